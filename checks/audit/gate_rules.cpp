// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/audit/gate_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ampcheck::checks {

namespace {

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Share of the elements that are close; 1 of none.
double share_close(const Compared& t, double rtol, double atol) {
  std::size_t close = 0;
  for (std::size_t i = 0; i < t.got.size(); ++i)
    close += same(t.got[i], t.want[i]) || std::fabs(t.got[i] - t.want[i]) <= atol + rtol * std::fabs(t.want[i]);
  return t.got.empty() ? 1.0 : static_cast<double>(close) / static_cast<double>(t.got.size());
}

bool small_mean(const Compared& t, double limit) {
  double sum = 0;
  for (std::size_t i = 0; i < t.got.size(); ++i)
    if (!same(t.got[i], t.want[i])) sum += std::fabs(t.got[i] - t.want[i]);
  return t.got.empty() || sum / static_cast<double>(t.got.size()) <= limit;
}

bool within_factor(const Compared& t, double factor) {
  double error = 0, eager = 0;
  for (std::size_t i = 0; i < t.got.size(); ++i) {
    if (!same(t.got[i], t.want[i]))
      error =
          std::isnan(t.got[i]) || std::isnan(t.want[i]) ? HUGE_VAL : std::max(error, std::fabs(t.got[i] - t.want[i]));
    if (!same(t.eager[i], t.want[i]) && !std::isnan(t.eager[i]))
      eager = std::max(eager, std::fabs(t.eager[i] - t.want[i]));
  }
  return error <= factor * eager;
}

bool small_nmse(const Compared& t, double limit) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < t.got.size(); ++i) {
    if (same(t.got[i], t.want[i]) && !std::isfinite(t.got[i])) continue;
    if (!std::isfinite(t.got[i]) || !std::isfinite(t.want[i])) return false;
    error += (t.got[i] - t.want[i]) * (t.got[i] - t.want[i]);
    size += t.want[i] * t.want[i];
  }
  return error <= limit * size;
}

bool near_cosine(const Compared& t, double limit) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < t.got.size(); ++i) {
    if (same(t.got[i], t.want[i]) && !std::isfinite(t.got[i])) continue;
    ab += t.got[i] * t.want[i];
    aa += t.got[i] * t.got[i];
    bb += t.want[i] * t.want[i];
  }
  if (aa == 0 || bb == 0) return aa == bb;
  return ab >= limit * std::sqrt(aa) * std::sqrt(bb);
}

}  // namespace

const std::vector<std::string>& gate_kinds() {
  static const std::vector<std::string> kNames = {"close", "matched", "mean", "nmse", "cosine", "factor"};
  return kNames;
}

std::string GateRule::str() const {
  if (finite || not_zero) {
    GateRule plain = *this;
    plain.finite = plain.not_zero = false;
    return plain.str() + (finite ? ", all finite" : "") + (not_zero ? ", not all zero" : "");
  }
  const std::string close = fmt::format("|got - want| <= {:g} + {:g} |want|", atol, rtol);
  switch (kind) {
    case Kind::close: return close;
    case Kind::matched: return fmt::format("{} at {:g} % of the elements", close, 100 * limit);
    case Kind::mean: return fmt::format("mean |got - want| <= {:g}", limit);
    case Kind::nmse: return fmt::format("sum (got - want)^2 <= {:g} sum want^2", limit);
    case Kind::cosine: return fmt::format("cosine >= {:g}", limit);
    case Kind::factor: return fmt::format("max |got - want| <= {:g} times that of the op's kernel", limit);
  }
  return "";
}

bool accepts(const GateRule& rule, const Compared& tensor) {
  const auto zero = [](double v) { return v == 0; };
  if (rule.finite && !std::ranges::all_of(tensor.got, [](double v) { return std::isfinite(v); })) return false;
  if (rule.not_zero && std::ranges::all_of(tensor.got, zero) && !std::ranges::all_of(tensor.want, zero)) return false;
  switch (rule.kind) {
    case GateRule::Kind::close: return share_close(tensor, rule.rtol, rule.atol) == 1;
    case GateRule::Kind::matched: return share_close(tensor, rule.rtol, rule.atol) >= rule.limit;
    case GateRule::Kind::mean: return small_mean(tensor, rule.limit);
    case GateRule::Kind::nmse: return small_nmse(tensor, rule.limit);
    case GateRule::Kind::cosine: return near_cosine(tensor, rule.limit);
    case GateRule::Kind::factor: return within_factor(tensor, rule.limit);
  }
  return false;
}

GateRule torch_default(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16: return {GateRule::Kind::close, 1e-5, 1e-3, 0};
    case Dtype::bf16: return {GateRule::Kind::close, 1e-5, 1.6e-2, 0};
    case Dtype::e4m3fn:
    case Dtype::e5m2: return {GateRule::Kind::close, 0, 0, 0};  // torch.testing has no tolerance for them: equal
    default: return {GateRule::Kind::close, 1e-5, 1.3e-6, 0};
  }
}

}  // namespace ampcheck::checks
