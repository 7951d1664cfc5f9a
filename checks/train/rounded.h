// SPDX-License-Identifier: Apache-2.0
// A number with the most that rounding may have moved it: the optimizer's rules are written once more with it, apart
// from src/amp, and a run is held to what comes out.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/dtype.h"
#include "src/float_format.h"

namespace ampcheck::checks::train {

struct Rounded {
  double value = 0, radius = 0;
};

/// Arithmetic of a format. Each operation rounds once here; twice that is allowed, since an implementation may order a
/// sum or a product another way, or keep a fused product.
class Arithmetic {
 public:
  explicit Arithmetic(Dtype dtype)
      : unit_(2 * format(dtype).unit_roundoff()),
        tiny_(format(dtype).min_subnormal()),
        most_(format(dtype).max_finite()) {}

  Rounded settle(Rounded x) const {
    const double size = std::fabs(x.value) + x.radius;
    if (!(size < most_)) return {x.value, HUGE_VAL};  // it may be infinite there
    return {x.value, x.radius + unit_ * size + tiny_};
  }
  Rounded number(double value) const { return settle({value, 0}); }
  Rounded add(Rounded a, Rounded b) const { return settle({a.value + b.value, a.radius + b.radius}); }
  Rounded subtract(Rounded a, Rounded b) const { return settle({a.value - b.value, a.radius + b.radius}); }
  Rounded multiply(Rounded a, Rounded b) const {
    return settle(
        {a.value * b.value, std::fabs(a.value) * b.radius + std::fabs(b.value) * a.radius + a.radius * b.radius});
  }
  Rounded divide(Rounded a, Rounded b) const {
    const double least = std::fabs(b.value) - b.radius;
    if (!(least > 0)) return {a.value / b.value, HUGE_VAL};
    return settle({a.value / b.value, (a.radius + std::fabs(a.value / b.value) * b.radius) / least});
  }
  Rounded root(Rounded x) const {
    const double value = std::sqrt(std::max(0.0, x.value)), low = std::sqrt(std::max(0.0, x.value - x.radius)),
                 high = std::sqrt(std::max(0.0, x.value + x.radius));
    return settle({value, std::max(value - low, high - value)});
  }

 private:
  double unit_, tiny_, most_;
};

/// Whether a number that was got may be this one, rounded to its format.
inline bool admits(const Rounded& want, double got) {
  if (!(want.radius < HUGE_VAL) || !std::isfinite(want.value)) return true;  // nothing is known
  return std::fabs(got - want.value) <= want.radius;                         // false for a NaN
}

}  // namespace ampcheck::checks::train
