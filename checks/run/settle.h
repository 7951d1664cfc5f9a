// SPDX-License-Identifier: Apache-2.0
// Whether what a case found is what it seems: by its other tensors, and by runs of the same values in another layout or
// buffer.
#pragma once

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Changes the codes and causes of the checks of a case where the whole case says otherwise: a contract that explains
/// too little of it explains nothing (AC101), strides that are not followed (AC406), an input that is read after having
/// been overwritten (AC401).
void settle(CaseRun& run);

}  // namespace ampcheck::checks
