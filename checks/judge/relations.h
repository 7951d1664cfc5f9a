// SPDX-License-Identifier: Apache-2.0
// Relations that hold bit for bit, whatever the numbers are.
#pragma once

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Every exact relation of the op (poison, repeats, homogeneity, row independence), at the probe of relations_probe().
void check_relations(CaseRun& run, const LaunchResult& forward, const BackwardRun& backward);

}  // namespace ampcheck::checks
