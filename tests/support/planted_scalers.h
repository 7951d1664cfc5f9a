// SPDX-License-Identifier: Apache-2.0
// A small loss scaler of its own, right for any rule, and with one planted fault at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checks/scaler/calls.h"

namespace ampcheck::tests {

struct PlantedScaler {
  const char* fault;
  const char* code;  ///< of the check that has to find it
  const char* rule;  ///< that it follows otherwise
};
const std::vector<PlantedScaler>& planted_scalers();

/// `fault`: empty for the right one.
std::unique_ptr<checks::scaler::Subject> small_scaler(const ScaleRule& rule, const std::string& fault = "");

}  // namespace ampcheck::tests
