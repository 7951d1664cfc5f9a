// SPDX-License-Identifier: Apache-2.0
// A small autocast of its own, right by torch's rules, and with one planted fault at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checks/autocast/actions.h"

namespace ampcheck::tests {

struct PlantedAutocast {
  const char* fault;
  const char* code;  ///< of the check that has to find it
};
const std::vector<PlantedAutocast>& planted_autocasts();

/// `fault`: empty for the right one.
std::unique_ptr<checks::autocast::Subject> small_autocast(const AutocastList& list, AutocastDevice device,
                                                          const std::string& fault = "");

}  // namespace ampcheck::tests
