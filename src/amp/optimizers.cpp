// SPDX-License-Identifier: Apache-2.0
// One block of each optimizer's update, written as torch writes it: an operation over the block at a time (reference),
// or all of them per element (fused).
#include "src/amp/optimizers.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/amp/blocks.h"
#include "src/amp/error.h"

namespace ampcheck {

namespace {

/// torch's operations on a block; each result is rounded to the parameter's dtype where that is below the arithmetic.
template <class T>
struct Ops {
  std::int64_t n;
  const FloatFormat* rounds_to;
  std::int64_t whole = 0;  ///< UpdateBlock's

  void settle(T* x, std::int64_t count) const {
    if (rounds_to == nullptr) return;
    std::array<std::uint16_t, kBlock> stored;
    const auto size = static_cast<std::size_t>(count);
    encode(*rounds_to, {}, std::span<const T>(x, size), stored.data());
    decode(*rounds_to, stored.data(), std::span<T>(x, size));
  }
  void settle(T* x) const { settle(x, n); }
  /// What a scalar is in an addition of torch's: rounded to the dtype too. Others stay as they are.
  T addend(double value) const {
    T out = static_cast<T>(value);
    settle(&out, 1);
    return out;
  }
  template <class F>
  void map(T* y, const F& f) const {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(i);
    settle(y);
  }
  void copy(T* y, const T* x) const { std::copy_n(x, n, y); }
  void neg(T* y) const {
    map(y, [=](std::int64_t i) { return -y[i]; });
  }
  void mul(T* y, double factor) const {
    const T s = static_cast<T>(factor);
    map(y, [=](std::int64_t i) { return y[i] * s; });
  }
  /// y + alpha * x, one rounding (torch's kernels use fma). Behind the whole vectors of a 16-bit dtype torch rounds the
  /// product to it as well.
  void add(T* y, const T* x, double factor) const {
    const T alpha = addend(factor);
    if (rounds_to == nullptr) return map(y, [=](std::int64_t i) { return std::fma(alpha, x[i], y[i]); });
    std::array<T, kBlock> product;
    T* const p = product.data();
    const std::int64_t first = whole;
    for (std::int64_t i = first; i < n; ++i) p[i - first] = alpha * x[i];
    settle(p, n - first);
    map(y, [=](std::int64_t i) { return i < first ? std::fma(alpha, x[i], y[i]) : y[i] + p[i - first]; });
  }
  void add(T* y, double value) const {
    const T s = addend(value);
    map(y, [=](std::int64_t i) { return y[i] + s; });
  }
  /// y + weight * (x - y) from the nearer end
  void lerp(T* y, const T* x, double w) const {
    const T weight = static_cast<T>(w);
    if (std::fabs(weight) < T(0.5))
      map(y, [=](std::int64_t i) { return std::fma(weight, x[i] - y[i], y[i]); });
    else
      map(y, [=](std::int64_t i) { return std::fma(weight - T(1), x[i] - y[i], x[i]); });
  }
  void addcmul(T* y, const T* a, const T* b, double value) const {
    const T v = static_cast<T>(value);
    map(y, [=](std::int64_t i) { return std::fma(v * a[i], b[i], y[i]); });
  }
  void addcdiv(T* y, const T* a, const T* b, double value) const {
    const T v = static_cast<T>(value);
    map(y, [=](std::int64_t i) { return y[i] + v * a[i] / b[i]; });
  }
  void sqrt(T* y, const T* x) const {
    map(y, [=](std::int64_t i) { return std::sqrt(x[i]); });
  }
  void div(T* y, double divisor) const {
    const T s = static_cast<T>(divisor);
    map(y, [=](std::int64_t i) { return y[i] / s; });
  }
};

}  // namespace

/// What comes before the rule: the sign to maximise, and weight decay as a part of the gradient.
template <class T, class Options>
void prepare(const Ops<T>& ops, const Options& options, const T* p, T* g) {
  if (options.maximize) ops.neg(g);
  if (options.weight_decay != 0.0) ops.add(g, p, options.weight_decay);
}

// SGD
// -----------------------------------------------------------------------------------------------------------------------

Sgd::Sgd(std::vector<Parameter*> parameters, const SgdOptions& options)
    : BlockOptimizer(std::move(parameters), options.lr, options), options_(options) {
  if (options.nesterov && (options.momentum <= 0.0 || options.dampening != 0.0))
    throw AmpError("ValueError", "Nesterov momentum requires a momentum and zero dampening");
}

std::vector<std::string> Sgd::moment_names() const {
  if (options_.momentum == 0.0) return {};
  return {"momentum_buffer"};
}

bool Sgd::takes_sparse() const { return options_.momentum == 0.0 && options_.weight_decay == 0.0; }

void Sgd::begin_parameter(double, bool first) { first_ = first; }

std::optional<UpdateRule> Sgd::rule() const {
  return UpdateRule{.kind = UpdateRule::Kind::sgd,
                    .maximize = options_.maximize,
                    .nesterov = options_.nesterov,
                    .weight_decay = options_.weight_decay,
                    .momentum = options_.momentum,
                    .dampening = options_.dampening};
}

template <class T>
void Sgd::apply(const UpdateBlock<T>& block) const {
  const Ops<T> ops{block.n, block.rounds_to, block.whole};
  T *p = block.parameter, *g = block.grad, *buf = block.moment[0];
  prepare(ops, options_, p, g);
  if (options_.momentum != 0.0) {
    if (first_) {
      ops.copy(buf, g);
    } else if (common_.fused) {
      const T momentum = static_cast<T>(options_.momentum), fresh = static_cast<T>(1.0 - options_.dampening);
      for (std::int64_t i = 0; i < block.whole; ++i) buf[i] = std::fma(g[i], fresh, buf[i] * momentum);
      for (std::int64_t i = block.whole; i < block.n; ++i) buf[i] = std::fma(buf[i], momentum, g[i] * fresh);
    } else {
      ops.mul(buf, options_.momentum);
      ops.add(buf, g, 1.0 - options_.dampening);
    }
    if (options_.nesterov)
      ops.add(g, buf, options_.momentum);
    else
      ops.copy(g, buf);
  }
  ops.add(p, g, -lr());
}

// Adam and AdamW
// ------------------------------------------------------------------------------------------------------------

Adam::Adam(std::vector<Parameter*> parameters, const AdamOptions& options, bool decoupled)
    : BlockOptimizer(std::move(parameters), options.lr, options), options_(options), decoupled_(decoupled) {
  if (!(options.beta1 >= 0.0 && options.beta1 < 1.0))
    throw AmpError("ValueError", "[adam] beta1, got " + std::to_string(options.beta1) + ", want 0 <= beta1 < 1");
  if (!(options.beta2 >= 0.0 && options.beta2 < 1.0))
    throw AmpError("ValueError", "[adam] beta2, got " + std::to_string(options.beta2) + ", want 0 <= beta2 < 1");
}

std::vector<std::string> Adam::moment_names() const {
  if (options_.amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

void Adam::begin_parameter(double step, bool) {
  step_size_ = lr() / (1.0 - std::pow(options_.beta1, step));
  bias_correction2_sqrt_ = std::sqrt(1.0 - std::pow(options_.beta2, step));
}

std::optional<UpdateRule> Adam::rule() const {
  return UpdateRule{.kind = UpdateRule::Kind::adam,
                    .maximize = options_.maximize,
                    .decoupled = decoupled_,
                    .amsgrad = options_.amsgrad,
                    .weight_decay = options_.weight_decay,
                    .beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .eps = options_.eps};
}

template <class T>
void Adam::apply(const UpdateBlock<T>& block) const {
  if (common_.fused) return apply_fused(block);
  const Ops<T> ops{block.n, block.rounds_to, block.whole};
  T *p = block.parameter, *g = block.grad, *m = block.moment[0], *v = block.moment[1], *vmax = block.moment[2];
  if (options_.maximize) ops.neg(g);
  if (options_.weight_decay != 0.0) {
    if (decoupled_)
      ops.mul(p, 1.0 - lr() * options_.weight_decay);
    else
      ops.add(g, p, options_.weight_decay);
  }
  ops.lerp(m, g, 1.0 - options_.beta1);
  ops.mul(v, options_.beta2);
  ops.addcmul(v, g, g, 1.0 - options_.beta2);
  if (options_.amsgrad)  // NaN stays, as in torch.maximum
    ops.map(vmax, [=](std::int64_t i) { return vmax[i] != vmax[i] || vmax[i] > v[i] ? vmax[i] : v[i]; });
  std::array<T, kBlock> denominator;
  ops.sqrt(denominator.data(), options_.amsgrad ? vmax : v);
  ops.div(denominator.data(), bias_correction2_sqrt_);
  ops.add(denominator.data(), options_.eps);
  ops.addcdiv(p, m, denominator.data(), -step_size_);
  ops.copy(g, m);
}

template <class T>
void Adam::apply_fused(const UpdateBlock<T>& block) const {
  const std::int64_t n = block.n;
  T *p = block.parameter, *g = block.grad, *m = block.moment[0], *v = block.moment[1], *vmax = block.moment[2];
  const T lerp = static_cast<T>(1.0 - options_.beta1), beta2 = static_cast<T>(options_.beta2);
  const T square = static_cast<T>(1.0 - options_.beta2), eps = static_cast<T>(options_.eps);
  const T correction = static_cast<T>(bias_correction2_sqrt_), step = static_cast<T>(-step_size_);
  const bool near_old = lerp < T(0.5);
  const T weight = near_old ? lerp : lerp - T(1);
  const Ops<T> ops{n, nullptr};  // nothing is rounded below T before it is stored
  if (options_.maximize) ops.neg(g);
  if (options_.weight_decay != 0.0) {
    if (decoupled_)
      ops.mul(p, 1.0 - lr() * options_.weight_decay);
    else
      ops.add(g, p, options_.weight_decay);
  }
  const auto blend = [=](std::int64_t i) {
    const T old = m[i], from = near_old ? old : g[i];
    m[i] = std::fma(weight, g[i] - old, from);
  };
#pragma GCC ivdep
  for (std::int64_t i = 0; i < block.whole; ++i) {
    blend(i);
    v[i] = std::fma(square * g[i], g[i], v[i] * beta2);
  }
  for (std::int64_t i = block.whole; i < n; ++i) {
    blend(i);
    v[i] = std::fma(beta2, v[i], square * g[i] * g[i]);
  }
  if (options_.amsgrad)
    ops.map(vmax, [=](std::int64_t i) { return vmax[i] != vmax[i] || vmax[i] > v[i] ? vmax[i] : v[i]; });
  const T* second = options_.amsgrad ? vmax : v;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    p[i] = p[i] + step * m[i] / (std::sqrt(second[i]) / correction + eps);
    g[i] = m[i];
  }
}

// Adagrad
// -------------------------------------------------------------------------------------------------------------------

Adagrad::Adagrad(std::vector<Parameter*> parameters, const AdagradOptions& options)
    : BlockOptimizer(std::move(parameters), options.lr, options), options_(options) {}

void Adagrad::begin_parameter(double step, bool) { decayed_lr_ = lr() / (1.0 + (step - 1.0) * options_.lr_decay); }

template <class T>
void Adagrad::apply(const UpdateBlock<T>& block) const {
  const Ops<T> ops{block.n, block.rounds_to, block.whole};
  T *p = block.parameter, *g = block.grad, *sum = block.moment[0];
  prepare(ops, options_, p, g);
  ops.addcmul(sum, g, g, 1.0);
  std::array<T, kBlock> deviation;
  ops.sqrt(deviation.data(), sum);
  ops.add(deviation.data(), options_.eps);
  ops.addcdiv(p, g, deviation.data(), -decayed_lr_);
}

// RMSprop
// -------------------------------------------------------------------------------------------------------------------

Rmsprop::Rmsprop(std::vector<Parameter*> parameters, const RmspropOptions& options)
    : BlockOptimizer(std::move(parameters), options.lr, options), options_(options) {}

std::vector<std::string> Rmsprop::moment_names() const {
  std::vector<std::string> names{"square_avg"};
  if (options_.momentum > 0.0) names.emplace_back("momentum_buffer");
  if (options_.centered) names.emplace_back("grad_avg");
  return names;
}

void Rmsprop::begin_parameter(double, bool) {}

template <class T>
void Rmsprop::apply(const UpdateBlock<T>& block) const {
  const Ops<T> ops{block.n, block.rounds_to, block.whole};
  T *p = block.parameter, *g = block.grad, *square = block.moment[0];
  prepare(ops, options_, p, g);
  ops.mul(square, options_.alpha);
  ops.addcmul(square, g, g, 1.0 - options_.alpha);
  std::array<T, kBlock> average;
  if (options_.centered) {
    T* grad_avg = block.moment[options_.momentum > 0.0 ? 2 : 1];
    ops.lerp(grad_avg, g, 1.0 - options_.alpha);
    ops.copy(average.data(), square);
    ops.addcmul(average.data(), grad_avg, grad_avg, -1.0);
    ops.sqrt(average.data(), average.data());
  } else {
    ops.sqrt(average.data(), square);
  }
  ops.add(average.data(), options_.eps);
  if (options_.momentum > 0.0) {
    T* buf = block.moment[1];
    ops.mul(buf, options_.momentum);
    ops.addcdiv(buf, g, average.data(), 1.0);
    ops.add(p, buf, -lr());
    ops.copy(g, buf);
  } else {
    ops.addcdiv(p, g, average.data(), -lr());
  }
}

}  // namespace ampcheck
