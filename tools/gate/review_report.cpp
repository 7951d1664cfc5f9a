// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "checks/run/worse.h"
#include "tools/gate/gate_report.h"
#include "tools/report/markdown_text.h"
#include "tools/report/numbers.h"
#include "tools/report/shell_word.h"

namespace ampcheck::tools {

namespace {

using checks::TensorProfile;

/// One tensor over all cases of both states in which its numbers or bits differ.
struct TensorReview {
  std::size_t cases = 0;
  double squares[2] = {0, 0}, max[2] = {0, 0}, bias[2] = {0, 0};
  std::int64_t elements[2] = {0, 0}, not_finite[2] = {0, 0};

  void add(int side, const TensorProfile& t) {
    const auto n = static_cast<double>(t.elements - t.open);
    squares[side] += n * t.rms * t.rms;
    bias[side] += n * t.bias;
    max[side] = std::max(max[side], t.max);
    elements[side] += t.elements - t.open;
    not_finite[side] += t.not_finite;
  }
  double rms(int side) const { return elements[side] == 0 ? 0 : std::sqrt(squares[side] / double(elements[side])); }
  double mean(int side) const { return elements[side] == 0 ? 0 : bias[side] / double(elements[side]); }
};

struct Difference {
  std::vector<std::string> fresh, gone;  ///< cases
  std::size_t changed = 0, same = 0;     ///< of those in both
  std::map<std::string, TensorReview> tensors;
};

/// Whether what some machine computed differs; an architecture that one side does not know says nothing.
bool bits_differ(const StoredCase& was, const StoredCase& now, const std::string& tensor) {
  for (const auto& [arch, digests] : now.bits) {
    const auto before = was.bits.find(arch);
    if (before == was.bits.end() || !digests.contains(tensor)) continue;
    if (!before->second.contains(tensor) || before->second.at(tensor) != digests.at(tensor)) return true;
  }
  return false;
}

bool numbers_differ(const TensorProfile& a, const TensorProfile& b) {
  return a.elements != b.elements || a.not_finite != b.not_finite || a.max != b.max || a.rms != b.rms ||
         a.bias != b.bias || a.histogram != b.histogram;
}

Difference difference_of(const Review& review) {
  Difference out;
  for (const auto& [name, now] : review.now.cases) {
    const auto at = review.was.cases.find(name);
    if (at == review.was.cases.end()) {
      out.fresh.push_back(name);
      continue;
    }
    bool changed = false;
    for (const auto& [tensor, profile] : now.tensors) {
      const auto before = at->second.tensors.find(tensor);
      if (before != at->second.tensors.end() && !bits_differ(at->second, now, tensor) &&
          !numbers_differ(before->second, profile))
        continue;
      changed = true;
      TensorReview& t = out.tensors[tensor];
      ++t.cases;
      if (before != at->second.tensors.end()) t.add(0, before->second);
      t.add(1, profile);
    }
    ++(changed ? out.changed : out.same);
  }
  for (const auto& [name, was] : review.was.cases)
    if (!review.now.cases.contains(name)) out.gone.push_back(name);
  return out;
}

std::string arrow(double was, double now) { return rounded_decimal(was, 3) + " -> " + rounded_decimal(now, 3); }

/// Of an op that was never accepted: what its first state holds.
std::string first_state(const Baseline& now) { return fmt::format("first state, {} cases", now.cases.size()); }

std::string summary(const Review& review, const Difference& d) {
  if (!review.accepted) return first_state(review.now);
  std::string out = fmt::format("{} of {} cases changed", d.changed, d.changed + d.same);
  if (!d.fresh.empty()) out += fmt::format(", {} new", d.fresh.size());
  if (!d.gone.empty()) out += fmt::format(", {} gone", d.gone.size());
  return out;
}

/// Waivers that one side has and the other has not, and findings that somebody must answer for.
std::vector<std::string> lines_of(const Review& review) {
  std::vector<std::string> out;
  const auto has = [](const Baseline& b, const Waiver& w) {
    return std::any_of(b.waivers.begin(), b.waivers.end(),
                       [&](const Waiver& o) { return o.code == w.code && o.until == w.until; });
  };
  for (const Waiver& w : review.was.waivers)
    if (!has(review.now, w))
      out.push_back(fmt::format("waiver of {} until {} goes: {}", name(w.code), w.until, w.reason));
  for (const PendingFinding& f : review.now.findings) {
    out.push_back(fmt::format("finding {} in {} case{}, first '{}': accept it by --waive {} --until DATE, or mend it",
                              name(f.code), f.cases, f.cases == 1 ? "" : "s", f.first, name(f.code)));
    if (!f.smallest.empty()) out.push_back(fmt::format("{}: smallest case that fails '{}'", name(f.code), f.smallest));
    if (!f.cause.empty()) out.push_back(fmt::format("{}: {}", name(f.code), f.cause));
    out.push_back(fmt::format("{}: torch.allclose, with the tolerances of torch.testing, {}", name(f.code),
                              f.seen_by_allclose == 0 ? "would not have seen it"
                              : f.seen_by_allclose == f.cases
                                  ? "would have seen it in each case"
                                  : fmt::format("would have seen it in {} of {} cases", f.seen_by_allclose, f.cases)));
  }
  return out;
}

}  // namespace

namespace {

/// A stored profile with the digest of its tensor, by which cases that compute the same are told.
TensorProfile with_bits(const StoredCase& of, const std::string& tensor) {
  TensorProfile out = of.tensors.at(tensor);
  for (const auto& [arch, digests] : of.bits)
    if (const auto at = digests.find(tensor); at != digests.end()) out.bits += at->second;
  return out;
}

}  // namespace

ErrorsBeyondChance errors_beyond_chance(const Review& review) {
  std::deque<TensorProfile> kept;  // what pairs point to
  std::map<std::string, std::vector<checks::ProfilePair>> pairs;
  for (const auto& [name, now] : review.now.cases) {
    const auto at = review.was.cases.find(name);
    if (at == review.was.cases.end() || at->second.inputs != now.inputs) continue;
    for (const auto& [tensor, profile] : now.tensors) {
      const auto before = at->second.tensors.find(tensor);
      if (before == at->second.tensors.end() || !numbers_differ(before->second, profile)) continue;
      const TensorProfile& was = kept.emplace_back(with_bits(at->second, tensor));
      pairs[tensor].emplace_back(&was, &kept.emplace_back(with_bits(now, tensor)));
    }
  }
  const double level = checks::level_of(pairs.size());
  ErrorsBeyondChance out;
  for (const auto& [tensor, list] : pairs) {
    const checks::TensorChange change = checks::change_of(list);
    if (const std::string words = change.worse(level); !words.empty())
      out.worse.push_back(
          fmt::format("{} is worse: {} (rms {} ulp)", tensor, words, arrow(change.rms_was, change.rms_now)));
    std::vector<checks::ProfilePair> back;  // the old state as if it were the new one
    for (const auto& [was, now] : list) back.emplace_back(now, was);
    const checks::TensorChange undone = checks::change_of(back);
    if (const std::string words = undone.worse(level); !words.empty())
      out.better.push_back(
          fmt::format("{} was worse: {} (rms {} ulp)", tensor, words, arrow(undone.rms_now, undone.rms_was)));
  }
  if (!out.worse.empty()) out.better.clear();  // some for others is no improvement
  return out;
}

namespace {

std::string accept_line(const Review& review, const std::string& folder) {
  return fmt::format("ampcheck accept {} --baseline {} --reason TEXT", shell_word(review.op), shell_word(folder));
}

/// What a person who decides has to know, beside the numbers.
std::vector<std::string> lines_of(const Review& review, const ErrorsBeyondChance& errors) {
  std::vector<std::string> out = errors.worse;
  out.insert(out.end(), errors.better.begin(), errors.better.end());
  const std::vector<std::string> rest = lines_of(review);
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace

std::string tighten_text(const Review& review, const std::string& folder, const Style& style) {
  const std::vector<std::string> better = errors_beyond_chance(review).better;
  if (better.empty()) return "";
  std::string out = fmt::format("{}{}{}: better than accepted\n", style.bold, review.op, style.reset);
  for (const std::string& line : better) out += "  " + line + "\n";
  return out + "  " + accept_line(review, folder) + "\n";
}

std::string review_text(const Review& review, const Style& style) {
  const Difference d = difference_of(review);
  std::string out = fmt::format("{}{}{}: {}\n", style.bold, review.op, style.reset, summary(review, d));
  for (const auto& [tensor, t] : d.tensors)
    out += fmt::format("  {:<12} {} case{}: rms {} ulp, largest {} ulp, mean {} ulp\n", tensor, t.cases,
                       t.cases == 1 ? "" : "s", arrow(t.rms(0), t.rms(1)), arrow(t.max[0], t.max[1]),
                       arrow(t.mean(0), t.mean(1)));
  for (const std::string& line : lines_of(review, errors_beyond_chance(review))) out += "  " + line + "\n";
  return out;
}

std::string review_markdown(const std::vector<Review>& reviews, const std::string& folder) {
  std::string out = "# Pending baselines\n";
  for (const Review& review : reviews) {
    const Difference d = difference_of(review);
    out += fmt::format("\n## {}\n\n{}\n", markdown_word(review.op), summary(review, d));
    if (!d.tensors.empty())
      out += "\n| tensor | cases | rms (ulp) | largest (ulp) | mean (ulp) |\n|---|--:|--:|--:|--:|\n";
    for (const auto& [tensor, t] : d.tensors)
      out += fmt::format("| {} | {} | {} | {} | {} |\n", markdown_word(tensor), t.cases, arrow(t.rms(0), t.rms(1)),
                         arrow(t.max[0], t.max[1]), arrow(t.mean(0), t.mean(1)));
    const ErrorsBeyondChance errors = errors_beyond_chance(review);
    const std::vector<std::string> lines = lines_of(review, errors);
    if (!lines.empty()) out += "\n";
    for (const std::string& line : lines) out += "- " + markdown_word(line) + "\n";
    if (!errors.better.empty()) out += "- better than accepted: " + markdown_word(accept_line(review, folder)) + "\n";
  }
  return out;
}

Json review_json(const std::vector<Review>& reviews) {
  Json out = {{"schema", "ampcheck.review/1"}, {"ops", Json::array()}};
  for (const Review& review : reviews) {
    const Difference d = difference_of(review);
    const ErrorsBeyondChance errors = errors_beyond_chance(review);
    Json entry = {{"op", review.op},
                  {"accepted", review.accepted},
                  {"changed", d.changed},
                  {"same", d.same},
                  {"new", d.fresh},
                  {"gone", d.gone},
                  {"notes", lines_of(review)},
                  {"worse", errors.worse},
                  {"better", errors.better},
                  {"tensors", Json::array()}};
    for (const auto& [tensor, t] : d.tensors)
      entry["tensors"].push_back({{"tensor", tensor},
                                  {"cases", t.cases},
                                  {"rms", {hex_float(t.rms(0)), hex_float(t.rms(1))}},
                                  {"largest", {hex_float(t.max[0]), hex_float(t.max[1])}},
                                  {"mean", {hex_float(t.mean(0)), hex_float(t.mean(1))}}});
    out["ops"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace ampcheck::tools
