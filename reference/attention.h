// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// Scaled dot-product attention of q, k, v [B, H, T, E] in its forms: s = q k^T / sqrt(E), p = softmax(s) over the keys
/// that a query sees (all, or those up to itself if causal), o = p v.   Vaswani et al. 2017, eq. 1
class Attention {
 public:
  enum class Scale { scores, queries };  ///< (q k^T) scale or (q scale) k^T

  Attention(Expr q, Expr k, Expr v, bool causal, Scale placed = Scale::scores)
      : q_(q),
        k_(k),
        v_(v),
        zero_(constant(*q.graph, 0.0)),
        placed_(placed),
        scale_(rsqrt(constant(*q.graph, static_cast<double>(q.shape().last())))) {
    const std::int64_t t = q.shape().last(1);
    std::vector<std::int64_t> sees;
    for (std::int64_t query = 0; query < t; ++query)
      for (std::int64_t key = 0; key < t; ++key) sees.push_back(!causal || key <= query ? 1 : 0);
    visible_ = indicator(*q.graph, Shape{t, t}, std::move(sees));
    const Expr scores =
        placed == Scale::queries ? matmul(q * scale_, k, false, true) : matmul(q, k, false, true) * scale_;
    // Every query sees the first key: its score stands in for the hidden ones, which exp never meets so.
    scores_ = where(visible_, scores, slice(scores, -1, 0, std::min<std::int64_t>(t, 1)));
    const Expr shift = stop_gradient(max(scores_, -1));
    exponentials_ = where(visible_, exp(scores_ - shift), zero_);
    total_ = sum(exponentials_, -1);
    lse_ = stored("lse", shift + log(total_));
  }

  Expr p_by_total() const { return exponentials_ / total_; }
  Expr p_by_lse() const { return where(visible_, exp(scores_ - lse_), zero_); }

  /// o = p v; everything derived.
  Expr derived() const { return matmul(p_by_total(), v_); }

  /// o = (e v) / l, the division last.
  Expr divided_last() const { return matmul(exponentials_, v_) / total_; }

  enum class Delta { p_dp, g_o };  ///< delta = sum(p dp) or sum(g o), equal because o = p v
  /// o = p v with ds = p (dp - delta), dp = g v^T.   Dao et al. 2022, appendix B.2
  Expr usual_adjoint(Expr p, Delta from) const { return usual_adjoint(p, from, matmul(p, v_)); }
  Expr usual_adjoint(Expr p, Delta from, Expr o) const {
    return own_adjoint(o, {q_, k_, v_}, [self = *this, p, o, from](Expr g) {
      const Expr dp = matmul(g, self.v_, false, true);
      const Expr ds = p * (dp - (from == Delta::g_o ? sum(g * o, -1) : sum(p * dp, -1)));
      const Expr dk = self.placed_ == Scale::queries ? matmul(ds, self.q_ * self.scale_, true)
                                                     : matmul(ds, self.q_, true) * self.scale_;
      return std::vector<Expr>{matmul(ds, self.k_) * self.scale_, dk, matmul(p, g, true)};
    });
  }

  /// The form that leaves hidden keys out of every sum. It differs where one of them is not finite: 0 inf is NaN.
  Expr visible_only() const {
    const Expr p = p_by_lse(), o = over_keys(p, v_);
    return own_adjoint(o, {q_, k_, v_}, [self = *this, p, o](Expr g) {
      const Expr dp = where(self.visible_, matmul(g, self.v_, false, true), self.zero_);
      const Expr ds = p * where(self.visible_, dp - sum(g * o, -1), self.zero_);
      return std::vector<Expr>{self.over_keys(ds, self.k_) * self.scale_, self.over_queries(ds, self.q_) * self.scale_,
                               self.over_queries(p, g)};
    });
  }

 private:
  /// Products a[..,i,j] rows[..,i or j,e] where query i sees key j, else 0: [B, H, T, T, E].
  Expr products(Expr a, Expr rows, bool by_query) const {
    const Shape& s = q_.shape();
    const std::int64_t t = s[2];
    const Expr left = reshape(a, Shape{s[0], s[1], t, t, 1});
    const Expr right = reshape(rows, by_query ? Shape{s[0], s[1], t, 1, s[3]} : Shape{s[0], s[1], 1, t, s[3]});
    return where(reshape(visible_, Shape{t, t, 1}), left * right, zero_);
  }
  Expr over_keys(Expr a, Expr rows) const { return reshape(sum(products(a, rows, false), 3), q_.shape()); }
  Expr over_queries(Expr a, Expr rows) const { return reshape(sum(products(a, rows, true), 2), q_.shape()); }

  Expr q_, k_, v_, zero_;
  Scale placed_;
  Expr scale_, visible_, scores_, exponentials_, total_, lse_;
};

}  // namespace ampcheck::reference
