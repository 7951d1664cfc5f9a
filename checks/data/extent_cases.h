// SPDX-License-Identifier: Apache-2.0
// A kernel may be wrong at one extent alone: one that a launch rounds wrongly, or one that nobody was to try. No list
// of extents finds that, only all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/op_call.h"

namespace ampcheck::checks {

/// Extents that a dimension takes, each in turn.
struct ExtentRange {
  std::int64_t first = 1, last = 1024;
};

/// A case for each extent of each dimension in `ranges`, by its symbol; without any, from 1 to 1,024 of every
/// dimension of the op. The others have the extents of `fixed`, or else the least with which the op takes it. Extents
/// that it takes with none are left out.
std::vector<OpCall> cases_of_extents(const OpSignature& signature, Dtype storage,
                                     std::map<std::string, ExtentRange> ranges, const Dims& fixed, std::uint64_t seed);

}  // namespace ampcheck::checks
