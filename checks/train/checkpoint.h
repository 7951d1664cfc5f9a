// SPDX-License-Identifier: Apache-2.0
// A training run as a safetensors file, from which it goes on bit for bit: parameters, optimizer state, scaler, step;
// of a carried shadow the same of its fp64 runs, and when the run left it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checks/train/trainer.h"
#include "src/safetensors.h"

namespace ampcheck::checks::train {

/// The bytes of the file.
std::string checkpoint_bytes(Trainer& trainer);

/// Takes a fresh trainer to where the other one was. Error if the file is no checkpoint, one of an earlier version, or
/// one of another model, dtype, optimizer, loss scale, batch, seed or accumulation, or if a carried shadow is wanted
/// and it has none. `where` names the file.
void resume(Trainer& trainer, std::string_view bytes, const std::string& where);
/// The same of the tensors of such a file.
void resume(Trainer& trainer, std::vector<NamedTensor> tensors, const std::string& where);

}  // namespace ampcheck::checks::train
