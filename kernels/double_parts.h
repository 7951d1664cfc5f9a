// SPDX-License-Identifier: Apache-2.0
// What the kernels in double are made of, and the rooms that they stand in. A room gives a kernel without a forward for
// an op that it has not.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel.h"

namespace ampcheck::kernels::doubles {

using Numbers = std::vector<double>;

Numbers in(const KernelCall& call, const char* name);
/// Nothing where nobody asked for the tensor.
void out(const KernelCall& call, const std::string& name, const Numbers& values);
/// Of a parameter that is absent, as many times `otherwise`.
Numbers parameter(const KernelCall& call, const char* name, std::size_t count, double otherwise);
std::vector<std::int64_t> whole(const KernelCall& call, const char* name);

/// The extents of a tensor, from the first.
std::vector<std::size_t> extents(const KernelCall& call, const char* name);

/// exp(x - max) in place of x; its sum, and the maximum.
struct Exponentials {
  double shift = 0, sum = 0;
  Exponentials(double* x, std::size_t n) {
    if (n == 0) return;
    shift = *std::max_element(x, x + n);
    for (std::size_t k = 0; k < n; ++k) sum += x[k] = std::exp(x[k] - shift);
  }
};

Kernel elementwise_kernel(std::string_view op);  ///< functions of one number or two
Kernel row_kernel(std::string_view op);          ///< along an axis of [N, D], and tables of rows
Kernel image_kernel(std::string_view op);        ///< of more axes: images, channels, heads

}  // namespace ampcheck::kernels::doubles
