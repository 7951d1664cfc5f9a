// SPDX-License-Identifier: Apache-2.0
#include "checks/train/fp8_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "src/amp/blocks.h"
#include "src/rounding.h"

namespace ampcheck::checks::train {

namespace {

std::string cast_text(const LiveFp8& c) {
  return std::string(c.gradient ? "backward" : "forward") + " cast of " + std::string(c.tensor) + " to " +
         name(c.codes.dtype);
}

std::string number(double x) { return fmt::format("{:.6g}", x); }

/// "1 step", "4 steps", "4 to 6 steps", "10 steps or more".
std::string length_text(int shortest, int longest, int known) {
  if (longest >= known && shortest > 1) return fmt::format("{} steps or more", shortest);
  const std::string out = shortest == longest ? std::to_string(shortest) : fmt::format("{} to {}", shortest, longest);
  return out + (longest == 1 ? " step" : " steps");
}

/// The lengths of history that agree with both; `a` is narrowed.
template <class Set>
void keep_common(Set& a, const Set& b) {
  std::erase_if(a, [&](const auto& x) { return !b.contains(x); });
}

}  // namespace

std::string Fp8Departure::where() const { return op + (layer.empty() ? "" : " (" + layer + ")") + " " + tensor; }

/// The largest of `length` amaxes before `until`; 0 for none.
float Fp8Check::amax_over(const Of& of, int until, int length) const {
  float most = 0;
  const int last = recipe_.most_recent ? 1 : length;
  for (int i = std::max(0, until - last); i < until; ++i) most = std::max(most, of.amaxes[static_cast<std::size_t>(i)]);
  return most;
}

/// The scale once so many amaxes are known.
float Fp8Check::scale_of(const Of& of, int until, int length, int margin) const {
  const float before = until > 0 && until <= std::ssize(of.scales) ? of.scales[static_cast<std::size_t>(until - 1)] : 1;
  return until <= 0 ? 1 : delayed_scale(amax_over(of, until, length), recipe_.dtype(of.gradient), margin, before);
}

/// What of the explanations agrees with this scale too, when n amaxes were known.
void Fp8Check::narrow_down(const Of& of, int n, float scale, Explained& e) const {
  const int length = recipe_.amax_history_len, margin = recipe_.margin;
  std::erase_if(e.frozen, [&](int k) { return scale_of(of, std::min(k, n), length, margin) != scale; });
  std::erase_if(e.lags, [&](int k) { return scale_of(of, n - k, length, margin) != scale; });
  std::erase_if(e.margins, [&](int k) { return scale_of(of, n, length, k) != scale; });
  if (n == 0) return;
  int shortest = kEver, longest = 0;
  float most = 0;
  for (int k = 1; k <= n; ++k) {
    most = std::max(most, of.amaxes[static_cast<std::size_t>(n - k)]);
    if (delayed_scale(most, recipe_.dtype(of.gradient), margin, 1) != scale) continue;
    shortest = std::min(shortest, k);
    longest = k == n ? kEver : k;
  }
  e.shortest = std::max(e.shortest, shortest);
  e.longest = std::min(e.longest, longest);
}

Fp8Check::Explained Fp8Check::explained(const Of& of) const {
  Explained e;
  const int before = static_cast<int>(std::ssize(of.amaxes) - std::ssize(of.used));
  for (int k = 0; k <= std::ssize(of.amaxes); ++k) e.frozen.insert(k);
  for (int k = 1; k <= kMostLag; ++k) e.lags.insert(k);
  for (int k = -kMostMargin; k <= kMostMargin; ++k) e.margins.insert(k);
  for (int i = 0; i < std::ssize(of.used); ++i) narrow_down(of, before + i, of.used[static_cast<std::size_t>(i)], e);
  return e;
}

void Fp8Check::note(Of& of, Fp8Departure::Kind kind, const LiveFp8& cast, const std::string& what) {
  of.found.try_emplace(
      kind, Fp8Departure{kind, cast.step, std::string(cast.op), std::string(cast.layer), cast_text(cast), what});
}

void Fp8Check::check_scale(Of& of, const LiveFp8& cast, float amax) {
  using Kind = Fp8Departure::Kind;
  if (!recipe_.delayed()) {
    const float wanted = current_scale(amax, cast.codes.dtype);
    if (cast.scale != wanted)
      note(of, Kind::scale, cast,
           fmt::format("its scale is {}, its largest magnitude {} asks for {}", number(cast.scale), number(amax),
                       number(wanted)));
    return;
  }
  if (cast.codes.dtype != recipe_.dtype(of.gradient)) return;  // of another format: that is found
  const int n = static_cast<int>(std::ssize(of.amaxes));
  const float wanted = scale_of(of, n, recipe_.amax_history_len, recipe_.margin);
  if (cast.scale != wanted)
    note(of, Kind::scale, cast,
         fmt::format("its scale is {}, the largest magnitude {} of its history asks for {}", number(cast.scale),
                     number(amax_over(of, n, recipe_.amax_history_len)), number(wanted)));
}

void Fp8Check::check_numbers(Of& of, const LiveFp8& cast, bool whole) {
  using Kind = Fp8Departure::Kind;
  constexpr std::int64_t kFew = 64;
  const std::int64_t all = cast.from.count(), n = whole ? all : std::min(all, kFew);
  const FloatFormat& format = ampcheck::format(cast.codes.dtype);
  const float inverse = 1 / cast.scale, most = static_cast<float>(format.max_finite());
  float from[kBlock], codes[kBlock], want[kBlock], wide[kBlock];
  std::uint8_t rounded[kBlock];
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t part = std::min<std::int64_t>(kBlock, n - at);
    const auto size = static_cast<std::size_t>(part);
    load_block(cast.from, at, part, from);
    load_block(cast.codes, at, part, codes);
    load_block(cast.wide, at, part, wide);
    for (std::size_t i = 0; i < size; ++i) from[i] *= cast.scale;
    encode(format, {.overflow = Overflow::saturate}, std::span<const float>(from, size), rounded);
    decode(format, rounded, std::span<float>(want, size));
    for (std::size_t i = 0; i < size; ++i) {
      of.step_saturated += std::fabs(from[i]) > most ? 1 : 0;
      of.step_zeros += from[i] != 0 && codes[i] == 0 ? 1 : 0;
      if (codes[i] != want[i] && !(std::isnan(codes[i]) && std::isnan(want[i])))
        note(of, Kind::codes, cast,
             fmt::format("{} where {} is nearest to {}", number(codes[i]), number(want[i]), number(from[i])));
      if (wide[i] == codes[i] * inverse || std::isnan(codes[i])) continue;
      const char* const how = wide[i] == codes[i] * cast.scale ? "multiplied by its scale, not divided by it"
                              : wide[i] == codes[i]            ? "not divided by its scale"
                                                               : "not its code divided by its scale";
      note(of, Kind::inverse, cast,
           fmt::format("what the product reads is {}: {} from the code {} and the scale {}, {} is right", how,
                       number(wide[i]), number(codes[i]), number(cast.scale), number(codes[i] * inverse)));
    }
  }
  of.step_elements += n;
}

void Fp8Check::see(const LiveFp8& cast, bool whole) {
  const std::string key = std::string(cast.op) + "." + std::string(cast.tensor);
  const auto [at, fresh] = of_.try_emplace(key);
  Of& of = at->second;
  if (fresh || of.op.empty()) {
    order_.push_back(key);
    of.op = cast.op;
    of.layer = cast.layer;
    of.gradient = cast.gradient;
  }
  of.tensor = cast_text(cast);
  const float amax = amax_of(cast.from);
  if (cast.codes.dtype != recipe_.dtype(of.gradient))
    note(of, Fp8Departure::Kind::format, cast,
         fmt::format("it is in {}, the recipe ({}) has {} there", name(cast.codes.dtype), recipe_.str(),
                     name(recipe_.dtype(of.gradient))));
  if (!of.now || !recipe_.delayed()) check_scale(of, cast, amax);
  if (!of.now) of.step_scale = cast.scale;
  of.now = std::max(of.now.value_or(0), amax);
  of.step = cast.step;
  of.step_dtype = cast.codes.dtype;
  check_numbers(of, cast, whole);
}

void Fp8Check::end_step() {
  for (auto& [key, of] : of_) {
    if (!of.now) continue;
    Fp8Loss& loss = of.loss;
    if (of.step_elements > 0) {
      const auto share = [elements = static_cast<double>(of.step_elements)](std::int64_t part) {
        return static_cast<double>(part) / elements;
      };
      if (loss.worst_step < 0 || share(of.step_saturated) > loss.worst_saturated) {
        loss.worst_step = of.step;
        loss.worst_saturated = share(of.step_saturated);
        loss.worst_amax = static_cast<double>(*of.now);
        loss.worst_room = format(of.step_dtype).max_finite() / static_cast<double>(of.step_scale);
      }
      loss.worst_zero = std::max(loss.worst_zero, share(of.step_zeros));
      loss.elements += of.step_elements;
      loss.saturated += of.step_saturated;
      loss.zeros += of.step_zeros;
      ++loss.steps;
      loss.dtype = of.step_dtype;
    }
    of.step_elements = of.step_saturated = of.step_zeros = 0;
    of.used.push_back(of.step_scale);
    of.amaxes.push_back(*of.now);
    of.now.reset();
    const int n = static_cast<int>(std::ssize(of.amaxes));
    const float before = of.scales.empty() ? 1 : of.scales.back();
    of.scales.push_back(
        delayed_scale(amax_over(of, n, recipe_.amax_history_len), recipe_.dtype(of.gradient), recipe_.margin, before));
  }
}

void Fp8Check::restore(const std::string& tensor, const Fp8State::Of& state) {
  Of& of = of_[tensor];
  of.gradient = state.gradient;
  of.amaxes = state.history;
  of.scales.assign(of.amaxes.size(), state.scale);
}

std::vector<Fp8Loss> Fp8Check::losses() const {
  std::vector<Fp8Loss> out;
  for (const std::string& key : order_) {
    const Of& of = of_.at(key);
    out.push_back(of.loss);
    out.back().op = of.op;
    out.back().layer = of.layer;
    out.back().tensor = of.tensor;
  }
  return out;
}

/// One for all tensors whose scales are not the recipe's: what explains each of them.
std::optional<Fp8Departure> Fp8Check::scale_departure() const {
  using Kind = Fp8Departure::Kind;
  std::optional<Fp8Departure> out;
  Explained common;
  int tensors = 0, known = 0;
  for (const std::string& key : order_) {
    const Of& of = of_.at(key);
    const auto found = of.found.find(Kind::scale);
    if (found == of.found.end()) continue;
    const bool first = !out;
    const Explained theirs = explained(of);
    if (first || found->second.step < out->step) out = found->second;
    if (first) {
      common = theirs;
    } else {
      keep_common(common.frozen, theirs.frozen);
      keep_common(common.lags, theirs.lags);
      keep_common(common.margins, theirs.margins);
      common.shortest = std::max(common.shortest, theirs.shortest);
      common.longest = std::min(common.longest, theirs.longest);
    }
    known = std::max(known, static_cast<int>(std::ssize(of.amaxes)));
    ++tensors;
  }
  if (!out) return out;
  out->tensors = tensors;
  out->of = static_cast<int>(std::ssize(order_));
  if (!recipe_.delayed()) return out;
  if (common.has_length() && common.longest > 0) {
    out->kind = Kind::history;
    out->what += fmt::format("; all scales are those of a history of {}, the recipe has {}",
                             length_text(common.shortest, common.longest, known), recipe_.amax_history_len);
  } else if (!common.margins.empty()) {
    out->kind = Kind::margin;
    out->what +=
        fmt::format("; all scales are those of margin {}, the recipe has {}", *common.margins.begin(), recipe_.margin);
  } else if (!common.frozen.empty()) {
    out->kind = Kind::stale;
    const int steps = *common.frozen.begin();
    out->what += fmt::format("; no scale has moved since {}",
                             steps == 0 ? std::string("the start") : fmt::format("step {}", steps));
  } else if (!common.lags.empty()) {
    out->kind = Kind::stale;
    out->what +=
        fmt::format("; all scales come {} step{} too late", *common.lags.begin(), *common.lags.begin() == 1 ? "" : "s");
  }
  return out;
}

std::vector<Fp8Departure> Fp8Check::departures() const {
  using Kind = Fp8Departure::Kind;
  std::vector<Fp8Departure> out;
  for (const Kind kind : {Kind::format, Kind::inverse, Kind::codes}) {
    std::optional<Fp8Departure> first;
    int tensors = 0;
    for (const std::string& key : order_) {
      const auto& found = of_.at(key).found;
      const auto at = found.find(kind);
      if (at == found.end()) continue;
      ++tensors;
      if (!first || at->second.step < first->step) first = at->second;
    }
    if (!first) continue;
    first->tensors = tensors;
    first->of = static_cast<int>(std::ssize(order_));
    out.push_back(*first);
  }
  if (const std::optional<Fp8Departure> scale = scale_departure()) out.push_back(*scale);
  return out;
}

}  // namespace ampcheck::checks::train
