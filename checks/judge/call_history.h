// SPDX-License-Identifier: Apache-2.0
// Whether a forward call's result follows from that call alone. A kernel that keeps earlier results (by address, by
// shape, by a few elements), that is right for its first calls only, or that writes after it has returned passes every
// test of single calls.
#pragma once

#include <cstdint>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Calls in a row with the same tensors that must leave the same bits; fewer where a call moves many elements or takes
/// 20 ms or more, as an interpreted kernel does.
inline constexpr std::int64_t kCallsInARow = 4000;

/// AC410, at the first standard case of each storage type, of ops whose kernels can be made to forget
/// (kernels::KernelHost). A finding is made only where the first of all calls is right. `forward`: of the case.
void check_call_history(CaseRun& run, const LaunchResult& forward);

/// AC411, there too, before anything else of the case: where a call leaves elements unwritten, whether they are written
/// later. True if they are: what other checks would say of such an op is chance.
bool writes_later(CaseRun& run);

}  // namespace ampcheck::checks
