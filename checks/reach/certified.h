// SPDX-License-Identifier: Apache-2.0
// Certificates of ops, each computed once.
#pragma once

#include <memory>

#include "checks/define/op_def.h"
#include "reference/certify/certify.h"

namespace ampcheck::checks {

/// Certifies every variant of an op, attributes and optional inputs; the forms of an op that lasts (is_kept_for_good)
/// only the first time.
std::shared_ptr<const reference::FormulaCertificate> certified(const OpDef& op);

}  // namespace ampcheck::checks
