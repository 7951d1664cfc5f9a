// SPDX-License-Identifier: Apache-2.0
#include "tools/report/loss_decimal.h"

#include <fmt/format.h>

#include <cmath>

#include "tools/report/numbers.h"

namespace ampcheck::tools {

std::string loss_decimal(double value) {
  const double size = std::fabs(value);
  return value == 0 || (size >= 1e-3 && size < 1e6) ? fmt::format("{:.4f}", value) : rounded_decimal(value, 5);
}

}  // namespace ampcheck::tools
