// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/device.h"

namespace ampcheck::tools {

/// From now on libraries of this process, and of those that it starts, find the simulated GPU in place of the CUDA
/// runtime.
void simulate_gpu();
/// From now on kernels on device ptx are followed in fp64, line by line, here and in processes that this one starts.
void follow_lines_of_kernels();
/// The same for mul and add without rounding, which become one fma.
void fuse_products_of_kernels();
/// The same if the process that started this one has done it.
void simulate_gpu_as_asked();

/// Throws EnvironmentError if this build or machine has no such device. Returns what a reader should know of the
/// choice.
std::string require_device(Device device);

}  // namespace ampcheck::tools
