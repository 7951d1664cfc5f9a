// SPDX-License-Identifier: Apache-2.0
// Which loss scales would have lost nothing, by tensor and by step, from a trace's exponents.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tools/report/numbers.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

using checks::train::GradientRange;
using checks::train::LosslessScales;
using checks::train::ScaleAdvice;

/// None for what is no gradient in 16 bits, or one of zeros.
std::optional<GradientRange> range_of(const TracedTensor& t) {
  GradientRange out(t.dtype);
  if (t.noise) return std::nullopt;
  if (t.range) {
    out.add_counts(t.range->amin, t.range->amax, t.range->first_exponent, t.range->counts, t.range->powers);
  } else {
    const bool gradient = checks::train::is_gradient(t.phase_number()) &&
                          (t.dtype == Dtype::fp16 || t.dtype == Dtype::bf16) && !t.by_gradient;
    const double kept[] = {t.amin, t.amax};
    if (gradient && t.amax > 0) out.add(kept, t.scale);
  }
  return out.nonzero() > 0 ? std::optional(out) : std::nullopt;
}

/// How many scales lose nothing; negative: how many more would be needed.
int width(const LosslessScales& s) { return s.low && s.high ? *s.high - *s.low : std::numeric_limits<int>::max(); }

std::string power(int k) { return fmt::format("2^{}", k); }

}  // namespace

ScaleWindows scale_windows(const Trace& trace) {
  ScaleWindows out;
  out.by_line.resize(trace.tensors.size());
  if (trace.dtype == name(Dtype::fp32)) return out;
  struct Known {
    std::size_t order;
    std::map<int, LosslessScales> by_step = {};
  };
  std::map<std::string, GradientRange> exact, kept;
  std::map<std::string, Known> known;
  for (const TracedTensor& t : trace.tensors) {
    const std::optional<GradientRange> range = range_of(t);
    if (!range) continue;
    known.try_emplace(t.name(), Known{known.size()});
    (t.range ? exact : kept).try_emplace(t.name(), GradientRange(t.dtype)).first->second.merge(*range);
  }
  checks::train::KnownOverflow overflow;
  for (const TracedStep& step : trace.steps)
    overflow.add(step.step, step.scale, step.loss, step.found_inf, step.stepped);
  out.run = checks::train::advise(exact, overflow);
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
    const TracedTensor& t = trace.tensors[i];
    const std::optional<GradientRange> range = range_of(t);
    if (!range) continue;
    out.by_line[i] = checks::train::lossless_scales(*range);
    known.at(t.name()).by_step[t.step].narrow(out.by_line[i]);
    out.by_step.try_emplace(t.step, LosslessScales{0, checks::train::kMostScale}).first->second.narrow(out.by_line[i]);
  }
  std::vector<std::pair<std::size_t, ScaleWindows::OfTensor>> ordered;
  for (const auto& [name, of] : known) {
    ScaleWindows::OfTensor t{name, exact.contains(name), {}, {}, -1};
    for (const auto& [step, scales] : of.by_step) {
      t.run.narrow(scales);
      if (t.narrowest_step < 0 || width(scales) < width(t.narrowest)) {
        t.narrowest = scales;
        t.narrowest_step = step;
      }
    }
    ordered.emplace_back(of.order, std::move(t));
  }
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return std::pair(width(a.second.run), a.first) < std::pair(width(b.second.run), b.first);
  });
  for (auto& [order, t] : ordered) out.tensors.push_back(std::move(t));
  return out;
}

std::string scales_text(const LosslessScales& s) {
  if (!s.low && !s.high) return "-";
  if (s.none()) return "none";
  if (s.low == s.high) return power(*s.low);
  return fmt::format("{} .. {}", s.low ? power(*s.low) : "", s.high ? power(*s.high) : "");
}

std::string scale_advice(const ScaleAdvice& a) {
  std::string out;
  if (a.overflows_at <= 0 && a.elsewhere.low && !a.elsewhere.none())
    return scales_text(a.elsewhere) + " would have lost nothing; " + a.overflows + " overflows at scale 1 already";
  if (a.overflows_at <= 0) return "no loss scale helps: " + a.overflows + " overflows at scale 1 already";
  if (a.low <= a.high) {
    out = a.low == a.high ? fmt::format("{} would have lost nothing", power(a.low))
                          : fmt::format("{} .. {} would have lost nothing", power(a.low), power(a.high));
    if (!a.flushes.empty()) out += fmt::format("; {} flushes part of {}", power(a.low - 2), a.flushes);
  } else {
    const std::string who = a.elsewhere.low && !a.elsewhere.none()
                                ? scales_text(a.elsewhere) + " would have lost nothing; between 1 and 2^24,"
                                : "no loss scale keeps everything;";
    out =
        fmt::format("{} {} loses least, {} of the elements{} (scale 1: {})", who, power(a.best), percent(a.best_share),
                    a.flushes.empty() ? "" : ", most of them in " + a.flushes, percent(a.unscaled_share));
  }
  if (a.overflows_at <= checks::train::kMostScale)
    out += fmt::format("; {} overflows {}", power(a.overflows_at), a.overflows);
  return out;
}

}  // namespace ampcheck::tools
