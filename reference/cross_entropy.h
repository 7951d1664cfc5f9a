// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reference/graph/expr.h"
#include "reference/log_softmax.h"
#include "src/error.h"

namespace ampcheck::reference {

/// The targets of one case: class by row, rows with target = ignore_index left out, and label smoothing s.
/// Szegedy et al. 2016, section 7: the target distribution is q_c = (1 - s) [c = target] + s/C.
struct Targets {
  std::vector<std::int64_t> target;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
};

namespace detail {

/// One cross entropy: x [N, C], with ignored rows read as zeros, so that whatever stands in them goes nowhere.
class CrossEntropy {
 public:
  CrossEntropy(Expr x, const Targets& targets) : graph_(*x.graph), rows_(x.shape()[0]), classes_(x.shape()[1]) {
    std::vector<std::int64_t> kept;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t target = targets.target[static_cast<std::size_t>(row)];
      const bool ignored = target == targets.ignore_index;
      if (!ignored && (target < 0 || target >= classes_))
        throw Error("[cross_entropy] target of row " + std::to_string(row) + ", got " + std::to_string(target) +
                    ", want 0 to " + std::to_string(classes_ - 1) + " or ignore_index");
      kept.push_back(ignored ? 0 : 1);
      at_target_.push_back(ignored ? -1 : row * classes_ + target);
    }
    kept_ = indicator(graph_, Shape{rows_, 1}, std::move(kept));
    x_ = where(kept_, x, constant(graph_, 0.0));
    if (targets.label_smoothing != 0) smoothing_ = constant(graph_, targets.label_smoothing);
  }

  Expr x() const { return x_; }
  /// -sum_c q_c z_c, where z is x (or the log-probabilities, or x less any shift): [N, 1]. Without smoothing just
  /// -z[target], so that a class masked by -inf does no harm.
  Expr minus_expected(Expr z) const {
    const Expr hit = take(z, at_target_, Shape{rows_, 1});
    if (!smoothing_.defined()) return -hit;
    return -((1.0 - smoothing_) * hit) - smoothing_ * mean(z, -1);
  }
  /// q [N, C].
  Expr target_distribution() const {
    const Expr one_hot = put_add(kept_, at_target_, Shape{rows_, classes_});
    if (!smoothing_.defined()) return one_hot;
    return (1.0 - smoothing_) * one_hot + smoothing_ / static_cast<double>(classes_);
  }
  /// 0 for ignored rows: [N].
  Expr loss(Expr value) const { return reshape(where(kept_, value, constant(graph_, 0.0)), Shape{rows_}); }

 private:
  Graph& graph_;
  std::int64_t rows_, classes_;
  std::vector<std::int64_t> at_target_;
  Expr kept_, x_, smoothing_;
};

}  // namespace detail

/// loss = log(sum(exp(z))) - sum_c q_c z_c with z = x - max(x): the shift cancels, because q sums to 1.
inline Expr cross_entropy(Expr x, const Targets& targets) {
  const detail::CrossEntropy ce(x, targets);
  const Expr z = ce.x() - stop_gradient(max(ce.x(), -1));
  return ce.loss(log(sum(exp(z), -1)) + ce.minus_expected(z));
}

/// The form whose adjoint is the field's usual one: dx = g (softmax(x) - q), the softmax as e/l.
inline Expr cross_entropy_usual_adjoint(Expr x, const Targets& targets) {
  const detail::CrossEntropy ce(x, targets);
  const Expr z = ce.x() - stop_gradient(max(ce.x(), -1)), e = exp(z), l = sum(e, -1);
  const Expr value = own_adjoint(log(l) + ce.minus_expected(z), {ce.x()}, [ce, e, l](Expr g) {
    return std::vector<Expr>{g * (e / l - ce.target_distribution())};
  });
  return ce.loss(value);
}

/// The form loss = lse - sum_c q_c x_c, with the adjoint g exp(x - lse) - g q.
inline Expr cross_entropy_by_lse(Expr x, const Targets& targets) {
  const detail::CrossEntropy ce(x, targets);
  return ce.loss(log_sum_exp(ce.x()) + ce.minus_expected(ce.x()));
}

/// The form of two ops, log_softmax and negative log-likelihood: loss = -sum_c q_c y_c, dx = g_y - exp(y) sum(g_y).
inline Expr cross_entropy_of_log_softmax(Expr x, const Targets& targets) {
  const detail::CrossEntropy ce(x, targets);
  return ce.loss(ce.minus_expected(log_softmax_usual_adjoint(ce.x())));
}

/// The fused form of the same: dx = g (exp(y) - q), y = x - lse.
inline Expr cross_entropy_fused_adjoint(Expr x, const Targets& targets) {
  const detail::CrossEntropy ce(x, targets);
  const Expr y = ce.x() - log_sum_exp(ce.x());
  const Expr value = own_adjoint(ce.minus_expected(y), {ce.x()}, [ce, y](Expr g) {
    return std::vector<Expr>{g * (exp(y) - ce.target_distribution())};
  });
  return ce.loss(value);
}

}  // namespace ampcheck::reference
