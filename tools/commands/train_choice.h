// SPDX-License-Identifier: Apache-2.0
// From the options of `ampcheck train` to a trainer's, with what is refused of them.
#pragma once

#include "checks/train/trainer.h"
#include "tools/choose/train_options.h"

namespace ampcheck::tools {

/// Throws UsageError for what is unknown and for what this run would not use.
checks::train::TrainOptions trainer_options(const TrainOptions& chosen);

/// UsageError "[flag] got it where nothing uses it, want ..." when that is so.
void refuse_unused(bool when, const char* flag, const char* want);

/// UsageError unless outputs are apart from one another, and replace only files of their own kind.
void require_outputs(const TrainOptions& chosen);

}  // namespace ampcheck::tools
