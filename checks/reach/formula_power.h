// SPDX-License-Identifier: Apache-2.0
// How much chosen cases would find in an op of whose kernels no wrong ones are at hand: of the changes of its formula
// (reference/replay/changes.h), those whose numbers would leave an interval at one of these cases.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "src/op_call.h"

namespace ampcheck::checks {

struct FormulaPower {
  std::int64_t changes = 0;         ///< that move some number of some case by more than 2^-30 of it
  std::int64_t found = 0;           ///< of these: outside of an interval somewhere
  std::vector<std::string> missed;  ///< "forward y: without the term eps"
  std::int64_t cases = 0;           ///< that were looked at
};

/// A term left out, a factor, a sign, a tail, a count that is off by one, sums in fewer bits: each once, whatever the
/// extents. On the reference alone, at up to 40 of these cases, evenly chosen among those of at most 4,096 elements a
/// tensor. `backward`: gradients, too, where the op has some.
FormulaPower formula_power(const OpDef& op, const std::vector<OpCall>& calls, bool backward,
                           const std::atomic<bool>* cancel = nullptr);

}  // namespace ampcheck::checks
