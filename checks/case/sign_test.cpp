// SPDX-License-Identifier: Apache-2.0
#include "checks/case/sign_test.h"

#include <algorithm>
#include <cmath>

namespace ampcheck::checks {

double log_choose(double n, double k) {
  const auto log_factorial = [](double v) {
    int sign = 1;  // lgamma() writes it to a global
    return lgamma_r(v + 1, &sign);
  };
  return log_factorial(n) - log_factorial(k) - log_factorial(n - k);
}

double sign_test(int positive, int draws) {
  const int most = std::max(positive, draws - positive);
  double p = 0;
  for (int k = most; k <= draws; ++k) p += std::exp(log_choose(draws, k) - draws * std::log(2.0));
  return std::min(1.0, 2 * p);
}

}  // namespace ampcheck::checks
