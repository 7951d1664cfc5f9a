// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

namespace detail {

/// value * weight + bias, each where it is given.
inline Expr scale_and_shift(Expr value, Expr weight, Expr bias) {
  if (weight.defined()) value = value * weight;
  return bias.defined() ? value + bias : value;
}

/// (x - mean) / sqrt(variance + eps) along the last axis, and its second factor.
struct Normalized {
  Expr value, inv_std;
};
inline Normalized normalize(Expr x, Expr eps) {
  const Expr centred = x - stored("mean", mean(x, -1));
  const Expr inv_std = stored("inv_std", rsqrt(mean(square(centred), -1) + eps));
  return {centred * inv_std, inv_std};
}

}  // namespace detail

/// y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias, along the last axis.   Ba et al. 2016, eq. 4.
/// `weight` and `bias` may be undefined.
inline Expr layer_norm(Expr x, Expr weight, Expr bias, Expr eps) {
  return detail::scale_and_shift(detail::normalize(x, eps).value, weight, bias);
}

/// The form whose adjoint is the field's usual one: with n = (x - mean) inv_std, dx = inv_std (g - mean(g) - n mean(g
/// n)).
inline Expr layer_norm_usual_adjoint(Expr x, Expr weight, Expr bias, Expr eps) {
  const auto [n, inv_std] = detail::normalize(x, eps);
  const Expr value = own_adjoint(n, {x}, [n = n, inv_std = inv_std](Expr g) {
    return std::vector<Expr>{inv_std * (g - mean(g, -1) - n * mean(g * n, -1))};
  });
  return detail::scale_and_shift(value, weight, bias);
}

}  // namespace ampcheck::reference
