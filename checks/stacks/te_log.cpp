// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/stacks/te_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/stacks/op_records.h"
#include "src/float_format.h"

namespace ampcheck::checks::stacks {

namespace {

constexpr double kHalfOfLast = 5e-5;  ///< of four decimals

/// The tensors of a GEMM in the order in which a step makes them.
constexpr std::string_view kTensors[] = {"activation", "weight", "output", "gradient", "dgrad", "wgrad"};

int place_of(const std::string& tensor) {
  const auto found = std::find(std::begin(kTensors), std::end(kTensors), tensor);
  return static_cast<int>(found - std::begin(kTensors));
}

/// "decoder.1_activation_cur_amax" in its three parts; false if it names no tensor of a GEMM.
bool split_name(std::string_view name, DebugStat& out) {
  std::size_t best = std::string_view::npos, length = 0;
  for (const std::string_view tensor : kTensors) {
    const std::string between = "_" + std::string(tensor) + "_";
    const std::size_t at = name.rfind(between);
    if (at == std::string_view::npos || (best != std::string_view::npos && at < best)) continue;
    best = at;
    length = tensor.size();
  }
  if (best == std::string_view::npos) return false;
  out.layer = std::string(name.substr(0, best));
  out.tensor = std::string(name.substr(best + 1, length));
  out.stat = std::string(name.substr(best + length + 2));
  return true;
}

/// Statistics that are sizes, so that a printed zero may be any small number.
bool is_size(const std::string& stat) {
  return stat == "max" || stat == "std" || stat == "l1_norm" || stat == "l2_norm" || stat.ends_with("amax") ||
         stat.ends_with("mse") || stat.find("scale_inv") != std::string::npos;
}

bool take_line(std::string_view line, DebugStat& out) {
  const std::size_t iteration = line.find("iteration="), value = line.find("value=");
  if (iteration == std::string_view::npos || value == std::string_view::npos || value < iteration) return false;
  std::string_view name = trimmed(line.substr(0, iteration));
  if (const std::size_t dash = name.rfind(" - "); dash != std::string_view::npos) name = trimmed(name.substr(dash + 3));
  const auto step = number_in(line.substr(iteration + 10, value - iteration - 10));
  const std::string_view text = trimmed(line.substr(value + 6));
  const auto number = number_in(text);
  if (!step || !number || !split_name(name, out)) return false;
  out.iteration = static_cast<std::int64_t>(*step);
  out.value = *number;
  const std::size_t point = text.find('.');
  out.four_decimals = point != std::string_view::npos && text.size() - point == 5;
  return true;
}

std::string place_text(const DebugStat& s) { return fmt::format("iteration {}, line {}", s.iteration, s.line); }

void find_not_finite(const DebugLog& log, std::vector<DebugFinding>& out) {
  const DebugStat* first = nullptr;
  for (const DebugStat& s : log.stats) {
    if (std::isfinite(s.value) || s.stat == "dynamic_range") continue;  // that is infinite where a tensor is zero
    if (first == nullptr || s.iteration < first->iteration) first = &s;
  }
  if (first == nullptr) return;
  std::string finite;
  for (const DebugStat& s : log.stats)
    if (s.iteration == first->iteration && s.layer == first->layer && std::isfinite(s.value) &&
        place_of(s.tensor) < place_of(first->tensor) && finite.find(s.tensor) == std::string::npos)
      finite += (finite.empty() ? "" : ", ") + s.tensor;
  const std::string from =
      finite.empty() ? "nothing is logged before it in this layer and iteration: it may have come in"
                     : fmt::format("in the same iteration {} of this layer {} finite: the layer's GEMM made it", finite,
                                   finite.find(',') == std::string::npos ? "is" : "are");
  out.push_back({"not_finite",
                 fmt::format("{} is {} at {}; {}", first->name(), shown(first->value), place_text(*first), from),
                 fmt::format("dump {} of '{}' in iteration {} (DumpTensors) and judge it: ampcheck check --dump FILE "
                             "--formula 'y = a @ b'",
                             first->tensor, first->layer, first->iteration),
                 first->iteration, first->line, true});
}

/// The worst percentage of a kind, and where it began.
void find_share(const DebugLog& log, const char* what, const char* kind, const char* next, bool wrong,
                std::vector<DebugFinding>& out) {
  const DebugStat *first = nullptr, *worst = nullptr;
  for (const DebugStat& s : log.stats) {
    if (s.stat.find(what) == std::string::npos || !(s.value > 0)) continue;
    if (first == nullptr || s.iteration < first->iteration) first = &s;
    if (worst == nullptr || s.value > worst->value) worst = &s;
  }
  if (worst == nullptr) return;
  out.push_back({kind,
                 fmt::format("{}: up to {} % ({}, {}), first at {} ({})", what, shown(worst->value), worst->name(),
                             place_text(*worst), place_text(*first), first->name()),
                 next, first->iteration, first->line, wrong});
}

/// A size that ends far above where it began, in doublings.
void find_growth(const DebugLog& log, std::vector<DebugFinding>& out) {
  constexpr double kDoublings = 4;
  std::map<std::string, std::pair<const DebugStat*, const DebugStat*>> ends;  // the smallest so far, the last
  const DebugStat* best = nullptr;
  const DebugStat* from = nullptr;
  double most = kDoublings;
  for (const DebugStat& s : log.stats) {
    if (!s.stat.ends_with("amax") && s.stat != "max") continue;
    if (!std::isfinite(s.value) || !(s.value > kHalfOfLast)) continue;
    auto& [least, last] = ends.try_emplace(s.name(), &s, &s).first->second;
    if (s.value < least->value) least = &s;
    last = &s;
    const double grown = std::log2(s.value / least->value);
    if (grown <= most) continue;
    most = grown;
    best = &s;
    from = least;
  }
  if (best == nullptr) return;
  out.push_back({"grows",
                 fmt::format("{} grows from {} ({}) to {} ({}): 2^{:.1f}", best->name(), shown(from->value),
                             place_text(*from), shown(best->value), place_text(*best), most),
                 "", best->iteration, best->line, false});
}

}  // namespace

std::optional<DebugLog> read_debug_log(std::string_view text, const std::string& path) {
  DebugLog out{.path = path};
  std::size_t at = 0;
  while (const auto line = next_line(text, at)) {
    ++out.lines;
    DebugStat stat;
    if (!take_line(*line, stat)) continue;
    stat.line = out.lines;
    if (stat.four_decimals && stat.value == 0 && is_size(stat.stat)) {
      if (out.hidden++ == 0) out.first_hidden = stat.name() + " at " + place_text(stat);
    }
    out.stats.push_back(std::move(stat));
  }
  if (out.stats.empty()) return std::nullopt;
  return out;
}

std::vector<DebugFinding> judge_debug_log(const DebugLog& log) {
  std::vector<DebugFinding> out;
  find_not_finite(log, out);
  find_share(log, "overflows%", "saturates", "a larger margin, or current scaling instead of delayed", true, out);
  find_share(log, "underflows%", "underflows",
             "current or block scaling, or this GEMM in high precision (DisableFP8GEMM)", false, out);
  find_growth(log, out);
  if (log.hidden > 0)
    out.push_back({"hidden",
                   fmt::format("{} sizes are printed as 0.0000, the first is {}: four decimals hide whatever is below "
                               "5e-5, and fp16's normal numbers end at {}",
                               log.hidden, log.first_hidden, shown(kFp16.min_normal())),
                   "a logger of your own (statistics_logger) that prints value=%.9g, or TensorBoard, which keeps fp32",
                   -1, 0, false});
  if (out.empty())
    out.push_back({"nothing", "every statistic is finite, nothing saturates or underflows", "", -1, 0, false});
  return out;
}

DebugDifference compare_debug_logs(const DebugLog& a, const DebugLog& b) {
  DebugDifference out;
  std::map<std::pair<std::int64_t, std::string>, const DebugStat*> others;
  for (const DebugStat& s : b.stats) others[{s.iteration, s.name()}] = &s;
  std::size_t met = 0;
  for (const DebugStat& s : a.stats) {
    const auto found = others.find({s.iteration, s.name()});
    if (found == others.end()) {
      ++out.only_a;
      continue;
    }
    ++met;
    ++out.compared;
    const DebugStat& other = *found->second;
    const bool both_nan = std::isnan(s.value) && std::isnan(other.value);
    if (s.value == other.value || both_nan) {
      out.hidden += s.four_decimals && s.value == 0 && is_size(s.stat);
      continue;
    }
    ++out.differ;
    ++out.by_tensor[s.layer + " " + s.tensor];
    const bool earlier = !out.first_a || s.iteration < out.first_a->iteration;
    if (!earlier) continue;
    out.first_a = s;
    out.first_b = other;
  }
  out.only_b = static_cast<std::int64_t>(others.size() - met);
  return out;
}

}  // namespace ampcheck::checks::stacks
