// SPDX-License-Identifier: Apache-2.0
// Tensors as NumPy's .npy files, version 1.0, little-endian, C order.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/tensor.h"

namespace ampcheck {

/// Values of one .npy file, row-major. dtype is fp64, fp32 or i64.
struct NpyArray {
  Dtype dtype = Dtype::fp64;
  Shape shape;
  std::vector<double> values;
};

/// The dtype in which a file holds values of `dtype` without loss: fp32 for every narrower float (NumPy has no bf16),
/// i64 for integers.
Dtype npy_dtype(Dtype dtype);

/// The bytes of a .npy file. `array.dtype` may be any; the file holds npy_dtype of it. Every value must be exact there,
/// and NaN keeps only its sign. Throws Error if the shape does not fit the values or a value is not exact.
std::string npy_bytes(const NpyArray& array);

/// Reads the bytes of a .npy file of version 1.0 with '<f8', '<f4' or '<i8' in C order and rank <= kMaxRank; `where` names
/// the file in messages. Integers beyond 2^53 are refused, since they would not be exact. Throws Error on anything else,
/// cut or overlong files included.
NpyArray parse_npy(std::string_view bytes, const std::string& where);

/// Reads a file. Throws Error.
NpyArray read_npy(const std::string& path);

}  // namespace ampcheck
