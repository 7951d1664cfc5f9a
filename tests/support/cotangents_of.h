// SPDX-License-Identifier: Apache-2.0
// Cotangents of a case for tests that drive its reference themselves.
#pragma once

#include "checks/case/case_reference.h"
#include "checks/data/regimes.h"

namespace ampcheck::checks {

inline NamedValues cotangents_of(CaseReference& reference, int probe) {
  NamedValues out;
  for (const OutputSpec& spec : reference.op().signature.outputs)
    out[gradient_name(spec.name)] =
        cotangent_values(reference.call(), spec.name, reference.recording().output(spec.name).shape(),
                         dtype_of(spec.type, reference.call().storage), probe);
  return out;
}

}  // namespace ampcheck::checks
