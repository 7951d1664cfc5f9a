// SPDX-License-Identifier: Apache-2.0
// A stand-in for the CUDA runtime: libraries that are loaded from now on and call it run their kernels on device ptx.
#pragma once

namespace ampcheck::ptx {

/// Loads it, once. Throws EnvironmentError where that fails.
void stand_in_for_cuda();

}  // namespace ampcheck::ptx
