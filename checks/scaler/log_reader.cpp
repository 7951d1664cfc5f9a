// SPDX-License-Identifier: Apache-2.0
// Reads a log line by line: console lines, JSON lines, or the rows of a CSV.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "checks/scaler/log_lines.h"

namespace ampcheck::checks::scaler {

namespace {

using nlohmann::json;

constexpr std::size_t kMostKept = 10'000;  ///< torn lines that are remembered by number

/// Calls visit with each part of a text that `mark` separates.
template <class Visit>
void each_part(std::string_view text, char mark, const Visit& visit) {
  while (true) {
    const std::size_t end = std::min(text.find(mark), text.size());
    visit(text.substr(0, end));
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\"'";
  const std::size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::optional<double> number_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return leading_number(value.get_ref<const std::string&>());
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string_view text, const ColumnNames& own) : text_(text), columns_(own) {}

  Log read() {
    log_.cut_off = !text_.empty() && text_.back() != '\n';
    if (!text_.empty() && text_.back() == '\n') text_.remove_suffix(1);
    if (text_.empty()) return std::move(log_);
    each_part(text_, '\n', [this](std::string_view line) {
      ++log_.lines;
      take(without_escapes(line, plain_));
    });
    return std::move(log_);
  }

 private:
  void take(std::string_view line) {
    const std::string_view text = trimmed(line);
    if (text.empty()) return;
    if (text.starts_with("{\"")) return take_json(text);
    if (separator_ != '\0' && take_row(line)) return;
    if (separator_ == '\0' && header(line)) return;
    take_console(line);
  }

  /// Pieces that overwrote each other with \r: an overflow and the bar behind it are of one step.
  void take_console(std::string_view line) {
    std::optional<Found> event;
    bool known = false, torn = false;
    each_part(line, '\r', [&](std::string_view piece) {
      const std::optional<Found> found = find_in_line(piece, likely_, torn);
      if (!found) return;
      known = true;
      if (found->event == Event::none) likely_ = found->grammar;
      if (event && event->event == Event::skip && found->event == Event::none && !event->has(Quantity::step)) {
        for (std::size_t q = 0; q < kQuantities; ++q)
          if (const auto quantity = static_cast<Quantity>(q); found->has(quantity) && !event->has(quantity))
            event->set(quantity, (*found)[quantity]);
        return;
      }
      if (event) keep(*event);
      event = found;
    });
    if (event && !(torn && event->event == Event::none)) keep(*event);
    if (torn && log_.torn.size() < kMostKept) log_.torn.push_back(log_.lines);
    if (!known) unread(line);
  }

  void take_json(std::string_view text) {
    const json object = json::parse(text, nullptr, false);
    if (object.is_discarded() || !object.is_object()) {
      if (log_.torn.size() < kMostKept) log_.torn.push_back(log_.lines);
      return;
    }
    if (object.contains("schema")) {
      const std::string schema = object.value("schema", "");
      if (schema.starts_with("ampcheck.trace/")) {
        log_.columns = "trace of ampcheck";
        trace_ = true;
        log_.rule = object.value("scaler", "");
        return;
      }
    }
    if (trace_ && !object.contains("scale_after")) return;  // a tensor of a step
    Found found;
    members(object, found);
    if (found.mask == 0) return unread(text);
    if (log_.columns.empty()) log_.columns = "JSON lines";
    keep(found);
  }

  void members(const json& object, Found& found) {
    for (const auto& [key, value] : object.items()) {
      if (value.is_object()) {
        members(value, found);
        continue;
      }
      const std::optional<Quantity> quantity = columns_.of(key);
      if (!quantity) continue;
      const std::optional<double> number = number_of(value);
      if (number) found.set(trace_ && key == "scale" ? Quantity::attempted : *quantity, *number);
    }
  }

  /// A first line of names, one of which is the scale or the loss.
  bool header(std::string_view line) {
    for (const char mark : {',', '\t', ';'}) {
      if (line.find(mark) == std::string_view::npos) continue;
      std::vector<std::optional<Quantity>> names;
      bool numbers = false;
      each_part(line, mark, [&](std::string_view cell) {
        names.push_back(columns_.of(trimmed(cell)));
        numbers |= leading_number(cell).has_value();
      });
      const auto known = std::ranges::count_if(names, [](const auto& name) { return name.has_value(); });
      if (numbers || known < 2) continue;
      separator_ = mark;
      names_ = std::move(names);
      log_.columns = "CSV";
      return true;
    }
    return false;
  }

  bool take_row(std::string_view line) {
    Found found;
    std::size_t at = 0;
    each_part(line, separator_, [&](std::string_view cell) {
      const std::optional<Quantity> name = at < names_.size() ? names_[at] : std::nullopt;
      ++at;
      const std::string_view text = trimmed(cell);
      if (!name || text.empty()) return;
      if (text == "True" || text == "true") return found.set(*name, 1);
      if (text == "False" || text == "false") return found.set(*name, 0);
      if (const std::optional<double> number = leading_number(text)) found.set(*name, *number);
    });
    if (at == names_.size() && found.mask != 0) {
      keep(found);
      return true;
    }
    if (at > 1 && at < names_.size() && log_.torn.size() < kMostKept) {
      log_.torn.push_back(log_.lines);
      return true;
    }
    return false;
  }

  void keep(const Found& found) {
    log_.add(found, log_.lines);
    ++log_.by_grammar[found.grammar];
  }

  void unread(std::string_view line) {
    if (log_.unread++ > 0) return;
    log_.first_unread = log_.lines;
    log_.unread_text = line.substr(0, 80);
  }

  std::string_view text_;
  Columns columns_;
  Log log_;
  std::string plain_;
  int likely_ = -1;
  bool trace_ = false;
  char separator_ = '\0';
  std::vector<std::optional<Quantity>> names_;
};

}  // namespace

void Log::add(const Found& found, std::int64_t line) {
  Reading reading;
  reading.line = line;
  reading.grammar = found.grammar;
  reading.event = found.event;
  reading.mask_ = found.mask;
  reading.first_ = values_.size();
  for (std::size_t q = 0; q < kQuantities; ++q)
    if (found.has(static_cast<Quantity>(q))) values_.push_back(found.value[q]);
  readings.push_back(reading);
}

Log read_log(std::string_view text, const ColumnNames& columns) { return Reader(text, columns).read(); }

}  // namespace ampcheck::checks::scaler
