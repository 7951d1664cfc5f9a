// SPDX-License-Identifier: Apache-2.0
// Kernels of built-in ops that compute in double, for storage in fp64: on the CPU, of any strides, one number after the
// other, with the functions of the C++ library.
#pragma once

#include <string_view>

#include "kernels/kernel.h"

namespace ampcheck::kernels {

/// Without a forward where the op has none in double.
Kernel double_kernel(std::string_view op);

}  // namespace ampcheck::kernels
