// SPDX-License-Identifier: Apache-2.0
// Answers to the calls of the CUDA runtime, out of the simulated GPU.
#pragma once

#include "src/ptx/cuda_calls.h"

namespace ampcheck::ptx {

const AmpcheckCudaCalls& gpu_calls();

}  // namespace ampcheck::ptx
