// SPDX-License-Identifier: Apache-2.0
// What a formula asks or adds up. Whether two numbers are equal, both of which were computed, holds only as long as
// both were rounded alike.
#pragma once

#include <cstdint>
#include <vector>

#include "checks/define/op_def.h"
#include "checks/diagnose/probe.h"

namespace ampcheck::checks::diagnose {

/// Whether the op's forward compares two numbers that both follow from its inputs.
bool compares_inputs(const OpDef& op);

/// Whether it adds up numbers that follow from its inputs. Of ops without a formula, or with integers: yes, for all
/// that is known.
bool sums_inputs(const OpDef& op);

struct Equality {
  std::int64_t held = 0, of = 0;  ///< elements
};
/// The formula at these inputs in fp64.
struct Compared {
  Equality equality;
  std::vector<double> result;
};
Compared compared_at(const MetCall& met);

}  // namespace ampcheck::checks::diagnose
