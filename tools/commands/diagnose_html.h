// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checks/diagnose/chain.h"

namespace ampcheck::tools {

/// The page of the run's trace with the causal chain marked. The run is made once more for it.
std::string diagnose_html(const checks::diagnose::Subject& subject, const checks::diagnose::Observation& seen,
                          const checks::diagnose::Report& report);

}  // namespace ampcheck::tools
