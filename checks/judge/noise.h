// SPDX-License-Identifier: Apache-2.0
// Derivatives of a function that is known by its values alone, each with a bound of its error made of measured noise,
// the rounding of the stored results, and the truncation that three step sizes show. For ops without a formula
// (checks/judge/black_box.h).
#pragma once

#include <vector>

namespace ampcheck::checks {

/// Chance that one bound on noise does not hold, where the noise is a sum with random signs: states how often the weak
/// mode may be wrong, not how far a value may be off.
inline constexpr double kChance = 1e-12;
/// sqrt(2 ln(2 / kChance)): a sum of terms of random sign exceeds this many root sums of squares of their bounds with
/// at most that chance (Hoeffding 1963, theorem 2).
double deviations();

/// Level of the noise (standard deviation) in values at equally spaced points: the first order of differences from
/// which three levels agree within a factor 4 while signs alternate. More & Wild 2011, "Estimating computational
/// noise", algorithm ECnoise. 0 where the values are those of a polynomial, or half of them are equal. Where no level
/// settles (a kink, too large a step), the largest level of third and higher differences, which is too large rather
/// than too small. At least 7 values.
double noise_level(std::vector<double> values);

/// Ratio from which a measured level of `values` values is more than an estimate's own scatter: the root of the
/// chi-square quantile at 1 - 1e-3 per degree of freedom (Wilson-Hilferty approximation).
double scatter(int values);

/// What was seen at steps +h and -h: differences to the value at 0, and the largest error that noise may cause in one
/// of them.
struct Step {
  double h = 0;
  double above = 0, below = 0;  ///< f(h) - f(0), f(-h) - f(0)
  double noise = 0;             ///< bound of the error of f(h) - f(-h)
};

struct Slope {
  bool settled = false;  ///< false: no step size agrees with the smaller ones (a kink, a jump, noise)
  double value = 0;
  double bound = 0;  ///< of its error
  double step = 0;
};

/// The centred difference with the smallest bound. `steps` double; at least three. With D the centred difference, s the
/// difference of the one-sided slopes: the truncation of D(h) is at most 4/3 |D(h) - D(h/2)| where the error is of
/// second order, plus |D(2h) - 5 D(h) + 4 D(h/2)| (zero at second order) plus |2 s(h/2) - s(h)| (zero for a smooth
/// function; at a kink nearer than h these three together are at least the error). Noise enters D(h) and, by 4/3 (D(h)
/// - D(h/2)), the truncation.
Slope slope_of(const std::vector<Step>& steps);

}  // namespace ampcheck::checks
