// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <string>

#include "src/amp/error.h"
#include "src/amp/grad_scaler.h"

namespace ampcheck {

inline constexpr double kMostSteps = 0x1p30;  ///< in a row, whose counter goes on in 32 bits

/// A number of a scaler's state. AmpError KeyError if it is not there.
inline double state_field(const GradScaler::StateDict& state, const char* key) {
  const auto found = state.find(key);
  if (found == state.end()) throw AmpError("KeyError", std::string("'") + key + "'");
  return found->second;
}

/// One that counts. AmpError ValueError for NaN and beyond `most`: by default what a T, and a double, counts exactly.
template <class T>
T counted_field(const GradScaler::StateDict& state, const char* key,
                double most = std::min(0x1p53, static_cast<double>(std::numeric_limits<T>::max()))) {
  const double value = state_field(state, key);
  if (!(value >= -most && value <= most))
    throw AmpError("ValueError", std::string("'") + key + "' of the state is no count that it could have reached");
  return static_cast<T>(value);
}

}  // namespace ampcheck
