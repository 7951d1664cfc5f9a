// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/group_norm.h"

namespace ampcheck::reference {

/// Outputs of batch_norm in training mode.
struct BatchNorm {
  Expr y, running_mean, running_var;
};

/// y = (x - mean) / sqrt(variance + eps) * weight + bias over all images and places of a channel of x [N, C, L], and
/// the running statistics moved by `momentum` towards the mean and the variance over n - 1.   Ioffe & Szegedy 2015,
/// algorithm 1 and section 3.1. By convention no gradient flows through the running statistics (they are buffers of
/// torch's module). `usual_adjoint`: dx = inv_std (g - mean(g) - n mean(g n)) in place of the derived one.
inline BatchNorm batch_norm(Expr x, Expr weight, Expr bias, Expr running_mean, Expr running_var, Expr eps,
                            Expr momentum, bool usual_adjoint) {
  const Shape& s = x.shape();
  const std::int64_t images = s[0], channels = s[1], places = s[2], size = images * places;
  const int exchange[] = {1, 0, 2};
  const Expr rows = reshape(transpose(x, exchange), Shape{channels, size});
  const Expr centre = stored("mean", mean(rows, -1)), centred = rows - centre;
  const Expr squares = sum(square(centred), -1);
  const Expr inv_std = stored("inv_std", rsqrt(squares * named_constant(*x.graph, "1/" + std::to_string(size)) + eps));
  Expr n = centred * inv_std;
  if (usual_adjoint)
    n = own_adjoint(n, {rows}, [n, inv_std](Expr g) {
      return std::vector<Expr>{inv_std * (g - mean(g, -1) - n * mean(g * n, -1))};
    });
  const Expr by_image = transpose(reshape(n, Shape{channels, images, places}), exchange);
  const auto moved = [&](Expr old, Expr batch) {
    return (1.0 - momentum) * old + momentum * no_gradient("the running statistics", reshape(batch, Shape{channels}));
  };
  const Expr unbiased = squares * named_constant(*x.graph, "1/" + std::to_string(size - 1));
  return {detail::scale_and_shift_channels(by_image, weight, bias), moved(running_mean, centre),
          moved(running_var, unbiased)};
}

}  // namespace ampcheck::reference
