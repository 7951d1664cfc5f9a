// SPDX-License-Identifier: Apache-2.0
// From the first tensor that showed the cause to what was seen in the end: the links between, as they were observed.
#pragma once

#include <string>
#include <vector>

#include "checks/diagnose/finding.h"
#include "checks/diagnose/observation.h"

namespace ampcheck::checks::diagnose {

struct Link {
  int step = 0;
  std::string tensor;  ///< "linear_1 (layer0) forward y"; empty: of the step as a whole
  std::string what;
};

/// Of the cause that is named first; empty where nothing is wrong, or nothing is known. In the order of time.
std::vector<Link> causal_chain(const Observation& seen, const Report& report);

}  // namespace ampcheck::checks::diagnose
