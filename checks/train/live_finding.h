// SPDX-License-Identifier: Apache-2.0
// What the judge of a run found, in the words of the run's findings.
#pragma once

#include "checks/train/live.h"
#include "checks/train/run_finding.h"

namespace ampcheck::checks::train {

/// TR101, with the call's place, the op's own code and the likely cause.
RunFinding finding_of(const LiveFinding& found);

}  // namespace ampcheck::checks::train
