// SPDX-License-Identifier: Apache-2.0
#include "checks/train/fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "src/amp/blocks.h"
#include "src/error.h"

namespace ampcheck::checks::train {

namespace {

constexpr float kMostFloat = std::numeric_limits<float>::max();

float quotient(float most, float amax) {
  const float scale = most / amax;
  return std::isinf(scale) ? kMostFloat : scale;
}

int whole(const std::string& key, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw Error(fmt::format("[fp8] {}, got '{}', want a whole number from {} to {}", key, text, least, most));
  return value;
}

bool second_of(const std::string& key, const std::string& text, const char* first, const char* second) {
  if (text != first && text != second)
    throw Error(fmt::format("[fp8] {}, got '{}', want {} or {}", key, text, first, second));
  return text == second;
}

void take_setting(const std::string& part, Fp8Recipe& out) {
  constexpr int kMostHistory = 1 << 16, kMostMargin = 64;
  const std::size_t equals = part.find('=');
  const std::string key = part.substr(0, equals), value = equals == std::string::npos ? "" : part.substr(equals + 1);
  if (key == "fp8_format") {
    out.hybrid = !second_of(key, value, "HYBRID", "E4M3");
    return;
  }
  const bool known = key == "amax_history_len" || key == "amax_compute_algo" || key == "margin";
  if (!known)
    throw Error("[fp8] setting, got '" + part +
                "', want amax_history_len=N, amax_compute_algo=max or most_recent, margin=N, or fp8_format=HYBRID or "
                "E4M3");
  if (!out.delayed())
    throw Error("[fp8] " + key +
                ", got it with current scaling, which takes the amax of the tensor itself; want it "
                "with delayed, or without");
  if (key == "amax_history_len") out.amax_history_len = whole(key, value, 1, kMostHistory);
  if (key == "amax_compute_algo") out.most_recent = second_of(key, value, "max", "most_recent");
  if (key == "margin") out.margin = whole(key, value, -kMostMargin, kMostMargin);
}

}  // namespace

std::string Fp8Recipe::str() const {
  const Fp8Recipe usual;
  std::string out = delayed() ? "delayed" : "current";
  if (amax_history_len != usual.amax_history_len) out += fmt::format(",amax_history_len={}", amax_history_len);
  if (most_recent) out += ",amax_compute_algo=most_recent";
  if (margin != usual.margin) out += fmt::format(",margin={}", margin);
  if (!hybrid) out += ",fp8_format=E4M3";
  return out;
}

Fp8Recipe read_fp8_recipe(const std::string& text) {
  Fp8Recipe out;
  std::size_t at = text.find(',');
  const std::string scaling = text.substr(0, at);
  if (scaling != "delayed" && scaling != "current")
    throw Error("[fp8] scaling, got '" + scaling + "', want delayed or current");
  if (scaling == "current") out.scaling = Fp8Recipe::Scaling::current;
  while (at != std::string::npos) {
    const std::size_t next = text.find(',', at + 1);
    take_setting(text.substr(at + 1, next == std::string::npos ? next : next - at - 1), out);
    at = next;
  }
  return out;
}

float amax_of(const TensorView& view) {
  float most = 0, part[kBlock];
  for (std::int64_t at = 0; at < view.count(); at += kBlock) {
    const std::int64_t n = std::min<std::int64_t>(kBlock, view.count() - at);
    load_block(view, at, n, part);
    for (std::int64_t i = 0; i < n; ++i) {
      const float size = std::fabs(part[i]);
      most = size > most ? size : most;
    }
  }
  return most;
}

float delayed_scale(float amax, Dtype dtype, int margin, float before) {
  if (!std::isfinite(amax) || amax <= 0) return before;
  return quotient(std::ldexp(static_cast<float>(format(dtype).max_finite()), -margin), amax);
}

float current_scale(float amax, Dtype dtype) {
  if (!std::isfinite(amax) || amax <= 0) return 1;
  return quotient(static_cast<float>(format(dtype).max_finite()), amax);
}

float Fp8State::scale(std::string_view tensor) const {
  const auto found = of_.find(tensor);
  return found == of_.end() ? 1 : found->second.scale;
}

void Fp8State::update(const std::map<std::string, Met, std::less<>>& met) {
  if (!recipe_.delayed()) return;
  const bool frozen = fault_.frozen_after >= 0 && steps_ >= fault_.frozen_after;
  ++steps_;
  if (frozen) return;
  const int length = fault_.amax_history_len > 0 ? fault_.amax_history_len : recipe_.amax_history_len;
  for (const auto& [name, now] : met) {
    Of& of = of_[name];
    of.gradient = now.gradient;
    of.history.push_back(now.amax);
    if (std::ssize(of.history) > length) of.history.erase(of.history.begin());
    const float amax = recipe_.most_recent ? now.amax : *std::max_element(of.history.begin(), of.history.end());
    of.scale = delayed_scale(amax, dtype(now.gradient), recipe_.margin, of.scale);
  }
}

Fp8Rank::Cast Fp8Rank::quantize(const std::string& tensor, bool gradient, const TensorView& from) {
  const float amax = amax_of(from);
  if (records_) {
    Fp8State::Met& met = met_[tensor];
    met.gradient = gradient;
    met.amax = amax > met.amax ? amax : met.amax;
  }
  Cast out;
  const Dtype dtype = state_->dtype(gradient);
  out.scale = state_->recipe().delayed() ? state_->scale(tensor) : current_scale(amax, dtype);
  out.scaled = Tensor::uninitialized(Dtype::fp32, from.shape);
  out.codes = Tensor::uninitialized(dtype, from.shape);
  const auto scaled = out.scaled.span<float>();
  for (std::int64_t at = 0; at < from.count(); at += kBlock) {
    const std::int64_t n = std::min<std::int64_t>(kBlock, from.count() - at);
    load_block(from, at, n, scaled.data() + at);
    for (std::int64_t i = at; i < at + n; ++i) scaled[static_cast<std::size_t>(i)] *= out.scale;
  }
  encode(format(dtype), {.overflow = Overflow::saturate}, std::span<const float>(scaled), out.codes.data());
  return out;
}

Tensor Fp8Rank::widened(const Cast& cast) const {
  const float factor = state_->fault().times_scale ? cast.scale : 1 / cast.scale;
  Tensor out = Tensor::uninitialized(Dtype::fp32, cast.codes.shape());
  const auto wide = out.span<float>();
  decode(format(cast.codes.dtype()), cast.codes.data(), wide);
  for (float& v : wide) v *= factor;
  return out;
}

}  // namespace ampcheck::checks::train
