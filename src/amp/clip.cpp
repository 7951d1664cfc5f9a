// SPDX-License-Identifier: Apache-2.0
#include "src/amp/clip.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "src/amp/blocks.h"
#include "src/amp/error.h"
#include "src/parallel.h"

namespace ampcheck {

namespace {

constexpr std::int64_t kGrain = 1 << 16;

/// |x| to the p, summed or maximised as `p` says; 8 lanes (4 in fp64) of fused multiply-adds for p = 2, which is
/// torch's order.
template <class T>
class NormSum {
 public:
  explicit NormSum(double p) : p_(p) {
    if (p == -std::numeric_limits<double>::infinity()) sum_ = std::numeric_limits<T>::infinity();
  }
  /// Blocks must come in order, all but the last of them full.
  void add(const T* x, std::int64_t n, std::int64_t lane_step) {
    std::int64_t i = 0;
    if (p_ == 2.0) {
      for (; i + lane_step <= n; i += lane_step)
        for (std::int64_t part = 0; part < lane_step; part += kLanes)
          for (std::int64_t lane = 0; lane < kLanes; ++lane) {
            const T value = x[i + part + lane];
            lanes_[static_cast<std::size_t>(lane)] = std::fma(value, value, lanes_[static_cast<std::size_t>(lane)]);
          }
      tail_.assign(x + i, x + n);
      return;
    }
    for (; i < n; ++i) add_one(std::fabs(x[i]));
  }
  T result() {
    if (p_ == 2.0) {
      sum_ = lanes_[0];
      for (std::size_t lane = 1; lane < lanes_.size(); ++lane) sum_ += lanes_[lane];
      for (const T value : tail_) sum_ = std::fma(value, value, sum_);
      return std::sqrt(sum_);
    }
    if (p_ == 0.0 || p_ == 1.0 || std::isinf(p_)) return sum_;
    return power(sum_, T(1) / static_cast<T>(p_));
  }

 private:
  static constexpr std::int64_t kLanes = 32 / static_cast<std::int64_t>(sizeof(T));

  static T power(T x, T p) { return static_cast<T>(std::pow(static_cast<double>(x), static_cast<double>(p))); }
  void add_one(T x) {
    if (p_ == 0.0)
      sum_ += x == T(0) ? T(0) : T(1);
    else if (p_ == 1.0)
      sum_ += x;
    else if (std::isinf(p_))
      sum_ = std::isnan(sum_) || std::isnan(x) ? sum_ + x : (p_ > 0.0 ? std::max(sum_, x) : std::min(sum_, x));
    else
      sum_ += power(x, static_cast<T>(p_));
  }

  double p_;
  T sum_ = T(0);
  std::array<T, static_cast<std::size_t>(kLanes)> lanes_{};
  std::vector<T> tail_;
};

template <class T>
T norm_of(const TensorView& grad, double p) {
  NormSum<T> sum(p);
  std::array<T, kBlock> buffer;
  const std::int64_t n = grad.count();
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t count = std::min<std::int64_t>(kBlock, n - at);
    T* values = block_in_place(grad, at, buffer.data());
    if (values == buffer.data()) load_block(grad, at, count, values);
    sum.add(values, count, bytes(grad.dtype) == 2 ? 16 : 32 / static_cast<std::int64_t>(sizeof(T)));
  }
  return sum.result();
}

Dtype promote(Dtype a, Dtype b) {
  if (a == b) return a;
  if (a == Dtype::fp64 || b == Dtype::fp64) return Dtype::fp64;
  return Dtype::fp32;  // fp16 and bf16 meet in fp32
}

/// The value rounded to the dtype.
double rounded(double value, Dtype dtype) {
  round_values(format(dtype), {}, std::span<const double>(&value, 1), std::span<double>(&value, 1));
  return value;
}

template <class T>
void map_dense(const TensorView& grad, const auto& f) {
  parallel_for(grad.count(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::array<T, kBlock> buffer;
    for (std::int64_t at = begin; at < end; at += kBlock) {
      const std::int64_t n = std::min<std::int64_t>(kBlock, end - at);
      T* values = block_in_place(grad, at, buffer.data());
      if (values == buffer.data()) load_block(grad, at, n, values);
      for (std::int64_t i = 0; i < n; ++i) values[i] = f(values[i]);
      if (values == buffer.data()) store_block(grad, at, n, values);
    }
  });
}

std::string python_float(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  for (int digits = 1; digits < 17; ++digits) {
    char shorter[32];
    std::snprintf(shorter, sizeof shorter, "%.*g", digits, value);
    if (std::strtod(shorter, nullptr) == value) {
      std::snprintf(text, sizeof text, "%s", shorter);
      break;
    }
  }
  std::string result = text;
  if (result.find_first_of(".en") == std::string::npos) result += ".0";
  return result;
}

const char* c10_name(Dtype dtype) {
  return dtype == Dtype::fp16   ? "c10::Half"
         : dtype == Dtype::bf16 ? "c10::BFloat16"
         : dtype == Dtype::fp32 ? "float"
                                : "double";
}

}  // namespace

Tensor total_norm(std::span<Parameter* const> parameters, double p) {
  std::vector<double> norms;
  Dtype dtype = Dtype::fp32;
  for (const Parameter* parameter : parameters) {
    if (!parameter->grad.defined()) continue;
    const TensorView& grad = parameter->grad.view();
    const double norm =
        grad.dtype == Dtype::fp64 ? norm_of<double>(grad, p) : static_cast<double>(norm_of<float>(grad, p));
    dtype = norms.empty() ? grad.dtype : promote(dtype, grad.dtype);
    norms.push_back(rounded(norm, grad.dtype));
  }
  Tensor total(dtype, {});
  if (norms.empty()) return total;
  Tensor stacked(dtype, {static_cast<std::int64_t>(norms.size())});
  from_doubles(norms, stacked.view());
  const double norm = dtype == Dtype::fp64 ? norm_of<double>(stacked.view(), p)
                                           : static_cast<double>(norm_of<float>(stacked.view(), p));
  from_doubles(std::span<const double>(&norm, 1), total.view());
  return total;
}

Tensor clip_grad_norm_(std::span<Parameter* const> parameters, double max_norm, double p, bool error_if_nonfinite) {
  Tensor total = total_norm(parameters, p);
  const double norm = to_doubles(total.view())[0];
  if (error_if_nonfinite && !std::isfinite(norm))
    throw AmpError("RuntimeError",
                   "The total norm of order " + python_float(p) +
                       " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this "
                       "error and scale the gradients by the non-finite norm anyway, set "
                       "`error_if_nonfinite=False`");
  const Dtype dtype = total.dtype();
  const Dtype scalars = dtype == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;
  const double padded = rounded(rounded(norm + rounded(1e-6, scalars), scalars), dtype);
  // torch writes max_norm / tensor, which Python turns into reciprocal and product: two roundings.
  const double reciprocal = rounded(rounded(1.0 / padded, scalars), dtype);
  double coefficient = rounded(rounded(rounded(max_norm, scalars) * reciprocal, scalars), dtype);
  coefficient = coefficient > 1.0 ? 1.0 : coefficient;  // NaN stays
  for (Parameter* parameter : parameters) {
    if (!parameter->grad.defined()) continue;
    const TensorView& grad = parameter->grad.view();
    if (grad.dtype == Dtype::fp64)
      map_dense<double>(grad, [=](double g) { return g * coefficient; });
    else
      map_dense<float>(grad, [c = static_cast<float>(coefficient)](float g) { return g * c; });
  }
  return total;
}

void clip_grad_value_(std::span<Parameter* const> parameters, double clip_value) {
  for (Parameter* parameter : parameters) {
    if (!parameter->grad.defined()) continue;
    const TensorView& grad = parameter->grad.view();
    if (std::isfinite(clip_value) && std::fabs(clip_value) > format(grad.dtype).max_finite())
      throw AmpError("RuntimeError",
                     std::string("value cannot be converted to type ") + c10_name(grad.dtype) + " without overflow");
    const double high = rounded(clip_value, grad.dtype), low = rounded(-clip_value, grad.dtype);
    const auto clamp = [](auto g, auto lower, auto upper) {  // the upper bound wins where they cross
      g = g < lower ? lower : g;
      return g > upper ? upper : g;
    };
    if (grad.dtype == Dtype::fp64)
      map_dense<double>(grad, [=](double g) { return clamp(g, low, high); });
    else
      map_dense<float>(
          grad, [=, l = static_cast<float>(low), h = static_cast<float>(high)](float g) { return clamp(g, l, h); });
  }
}

}  // namespace ampcheck
