// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/layer_norm.h"

namespace ampcheck::reference {

namespace detail {

/// n * weight[c] + bias[c] of n [N, C, L], each parameter where it is given.
inline Expr scale_and_shift_channels(Expr n, Expr weight, Expr bias) {
  const auto column = [](Expr parameter) {
    return parameter.defined() ? reshape(parameter, Shape{parameter.shape()[0], 1}) : parameter;
  };
  return scale_and_shift(n, column(weight), column(bias));
}

/// x [N, C, L] with a group a row: [N, groups, C/groups L].
inline Expr rows_of_groups(Expr x, std::int64_t groups) {
  const Shape& s = x.shape();
  return reshape(x, Shape{s[0], groups, s[1] / groups * s[2]});
}

}  // namespace detail

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, mean and variance over the channels of a group and all
/// places; weight and bias [C] may be undefined.   Wu & He 2018, eq. 1, 2, 6 and 7
inline Expr group_norm(Expr x, Expr weight, Expr bias, Expr eps, std::int64_t groups) {
  const Expr n = detail::normalize(detail::rows_of_groups(x, groups), eps).value;
  return detail::scale_and_shift_channels(reshape(n, x.shape()), weight, bias);
}

/// The form whose adjoint is the field's usual one, as layer_norm's: dx = inv_std (g - mean(g) - n mean(g n)).
inline Expr group_norm_usual_adjoint(Expr x, Expr weight, Expr bias, Expr eps, std::int64_t groups) {
  const Expr rows = detail::rows_of_groups(x, groups);
  const auto [n, inv_std] = detail::normalize(rows, eps);
  const Expr value = own_adjoint(n, {rows}, [n = n, inv_std = inv_std](Expr g) {
    return std::vector<Expr>{inv_std * (g - mean(g, -1) - n * mean(g * n, -1))};
  });
  return detail::scale_and_shift_channels(reshape(value, x.shape()), weight, bias);
}

}  // namespace ampcheck::reference
