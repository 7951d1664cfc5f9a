// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checks/define/op_def.h"
#include "src/op_call.h"

namespace ampcheck::checks {

/// A case with the op it belongs to.
struct Case {
  const OpDef* op = nullptr;
  OpCall call;
};

}  // namespace ampcheck::checks
