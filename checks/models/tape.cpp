// SPDX-License-Identifier: Apache-2.0
#include "checks/models/tape.h"

#include <cmath>

#include "src/amp/grad_mode.h"
#include "src/random.h"

namespace ampcheck::checks::models {

Var Tape::infer(const std::function<Var()>& block) {
  const NoGrad off;
  return block();
}

Var Tape::weight(const std::string& name, const Shape& shape, std::int64_t fan_in) {
  return parameter(name, shape, 0, 1 / std::sqrt(static_cast<double>(fan_in)));
}

std::vector<double> initial_values(const std::string& net, std::uint64_t seed, const std::string& name,
                                   const Shape& shape, double offset, double scale) {
  const Random random(seed, net + "/" + name);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(shape.count()));
  for (std::int64_t i = 0; i < shape.count(); ++i)
    values.push_back(offset + scale * random.normal(static_cast<std::uint64_t>(i)));
  return values;
}

}  // namespace ampcheck::checks::models
