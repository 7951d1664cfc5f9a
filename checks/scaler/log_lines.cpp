// SPDX-License-Identifier: Apache-2.0
#include "checks/scaler/log_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace ampcheck::checks::scaler {

namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

bool in_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// What is looked for is short and so is a line: memmem() would build a table for each search.
std::size_t find_text(std::string_view text, std::string_view what, std::size_t from = 0) {
  return text.find(what, from);
}

/// The first place where `what` begins a word of its own: "loss=" is not in "step_loss=1".
std::size_t find_word(std::string_view text, std::string_view what) {
  for (std::size_t at = find_text(text, what); at != kNowhere; at = find_text(text, what, at + 1))
    if (at == 0 || !in_word(what.front()) || !in_word(text[at - 1])) return at;
  return kNowhere;
}

/// The number behind what stands before it (Grammar::Field).
std::optional<double> number_after(std::string_view line, std::string_view before) {
  std::size_t from = 0;
  for (bool first = true; !before.empty(); first = false) {
    const std::size_t star = std::min(before.find('*'), before.size());
    const std::string_view part = before.substr(0, star);
    before.remove_prefix(std::min(star + 1, before.size()));
    if (part == "^") continue;
    const std::size_t at = first ? find_word(line, part) : find_text(line, part, from);
    if (at == kNowhere) return std::nullopt;
    from = at + part.size();
  }
  return leading_number(line.substr(from));
}

/// A step within an epoch is counted from the run's first one.
void count_epochs(Found& found) {
  if (!found.has(Quantity::epoch) || !found.has(Quantity::per_epoch) || !found.has(Quantity::step)) return;
  const double epoch = std::max(found[Quantity::epoch] - 1, 0.0);
  found.set(Quantity::step, epoch * found[Quantity::per_epoch] + found[Quantity::step]);
}

/// What this grammar finds; nothing if the line is none of its kind.
std::optional<Found> found_by(const Grammar& grammar, int number, std::string_view line, bool& torn) {
  if (find_text(line, grammar.anchor) == kNowhere) return std::nullopt;
  Found found;
  found.event = grammar.event;
  found.grammar = number;
  for (const Grammar::Field& field : grammar.fields) {
    if (found.has(field.quantity)) continue;
    const std::optional<double> value = number_after(line, field.before);
    if (value) found.set(field.quantity, *value);
    if (!value && field.must) torn = true;
  }
  count_epochs(found);
  return found;
}

}  // namespace

std::optional<double> leading_number(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && std::strchr(" \t:'\"[({", text[at]) != nullptr) ++at;
  if (at < text.size() && text[at] == '+') ++at;
  double value = 0;
  const char* const begin = text.data() + at;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (stop == begin) return std::nullopt;
  if (stop != end && (in_word(*stop) || (*stop == '.' && stop + 1 != end && is_digit(stop[1])))) return std::nullopt;
  if (error == std::errc::result_out_of_range)  // as 1e-400
    return std::find(begin, stop, '-') == stop ? std::numeric_limits<double>::infinity() : 0.0;
  return value;
}

std::string_view without_escapes(std::string_view text, std::string& held) {
  if (std::memchr(text.data(), '\x1b', text.size()) == nullptr) return text;
  held.clear();
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\x1b') {
      held += text[at];
      continue;
    }
    if (at + 1 >= text.size() || text[at + 1] != '[') continue;
    at += 2;
    while (at < text.size() && (text[at] < '@' || text[at] > '~')) ++at;
  }
  return held;
}

std::optional<int> prefixed_rank(std::string_view line) {
  for (const std::string_view prefix : {"[rank", "[default", "[Rank ", ""}) {
    if (!line.starts_with(prefix)) continue;
    std::string_view rest = line.substr(prefix.size());
    int rank = 0;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), rank);
    if (stop == rest.data() || error != std::errc() || rank < 0) continue;
    rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
    if (rest.starts_with(prefix.empty() ? ": " : "]")) return rank;
  }
  return std::nullopt;
}

std::optional<Found> find_in_line(std::string_view line, int likely, bool& torn) {
  const std::vector<Grammar>& all = log_grammars();
  constexpr int kNotAlone = 2;  // the last rows fit lines of earlier ones too
  const int first = likely >= 0 && likely < static_cast<int>(all.size()) - kNotAlone ? likely : -1;
  std::optional<Found> found;
  if (first >= 0) found = found_by(all[static_cast<std::size_t>(first)], first, line, torn);
  for (int i = 0; !found && i < static_cast<int>(all.size()); ++i)
    if (i != first) found = found_by(all[static_cast<std::size_t>(i)], i, line, torn);
  if (!found) return found;
  if (const std::optional<int> rank = found->has(Quantity::rank) ? std::nullopt : prefixed_rank(line))
    found->set(Quantity::rank, *rank);
  return found;
}

}  // namespace ampcheck::checks::scaler
