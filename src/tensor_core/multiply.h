// SPDX-License-Identifier: Apache-2.0
// Whole matrices by tensor-core instructions, fast: the same bits as element() of product.h, which is the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "src/tensor_core/product.h"

namespace ampcheck::tensor_core {

/// A matrix of codes in the memory of a tensor.
struct Codes {
  const void* data = nullptr;
  int bytes = 2;  ///< of a code: 1, 2 or 4; of tf32 4
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 0;  ///< in elements

  std::uint32_t at(std::int64_t row, std::int64_t column) const {
    const std::int64_t index = row * row_stride + column * column_stride;
    switch (bytes) {
      case 1: return static_cast<const std::uint8_t*>(data)[index];
      case 2: return static_cast<const std::uint16_t*>(data)[index];
      default: return static_cast<const std::uint32_t*>(data)[index];
    }
  }
};

/// How it is computed. All give the same bits.
enum class Path {
  best,
  reference,        ///< element(), one at a time
  lanes8,           ///< vectors of 8, as AVX2 has them
  lanes16,          ///< vectors of 16, as AVX-512 has them
  lanes16_in_parts  ///< the same code for processors without AVX-512, for tests alone
};
/// Those that this processor runs, the fastest first.
std::vector<Path> paths();
const char* name(Path path);

/// d[i,j] = c[i,j] + sum over k of a[i,k] b[k,j]; c and d are dense, a.rows x b.columns. c may be d, or null for 0.
/// Both hold values of the output type, as fp32. Throws Error where the instruction is none, or extents differ.
void multiply(const Product& product, const Codes& a, const Codes& b, const float* c, float* d, Path path = Path::best);

}  // namespace ampcheck::tensor_core
