// SPDX-License-Identifier: Apache-2.0
// From a training run to the cause of what is wrong with it: observes it once, asks the rules in the order of the
// causes, runs the experiments that decide, looks for the smallest set of ops to raise, and tries its own advice.
#pragma once

#include "checks/diagnose/finding.h"

namespace ampcheck::checks::diagnose {

Report diagnose_run(const Subject& subject);
/// The same of what was observed already.
Report diagnose_run(const Subject& subject, const Observation& seen);

}  // namespace ampcheck::checks::diagnose
