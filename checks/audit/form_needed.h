// SPDX-License-Identifier: Apache-2.0
// Whether an algebra is as good as its op's formula, by their bounds alone: no kernel is run.
#pragma once

#include "checks/define/op_def.h"
#include "src/op_call.h"

namespace ampcheck::checks::zoo {

/// Whether the interval of this form, in some output, saved tensor or gradient of the case, leaves the one that the
/// formula alone admits, regroupings included: then a kernel of that form is right only if its author declares it.
bool form_is_needed(const OpDef& op, const OpCall& call, std::size_t form);

}  // namespace ampcheck::checks::zoo
