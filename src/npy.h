// SPDX-License-Identifier: Apache-2.0
// Tensors as NumPy's .npy files, little-endian.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/tensor.h"

namespace ampcheck {

/// Values of one .npy file, row-major.
struct NpyArray {
  Dtype dtype = Dtype::fp64;
  Shape shape;
  std::vector<double> values;
};

/// What stands before the data of a .npy file.
struct NpyHeader {
  Dtype dtype = Dtype::fp64;
  bool boolean = false;        ///< '|b1', which u8 holds: bytes are 0 or 1
  bool fortran_order = false;  ///< the first axis runs fastest
  Shape shape;
  std::size_t data_at = 0;    ///< bytes before the data
  std::size_t data_size = 0;  ///< bytes of the data
};

/// Longest text of a header, as numpy.load has it.
inline constexpr std::size_t kMostNpyHeader = 10'000;

/// The dtype in which `replay --save` holds values of `dtype` without loss: fp32 for every narrower float (NumPy has no
/// bf16), i64 for integers.
Dtype npy_dtype(Dtype dtype);

/// The bytes of a .npy file of version 1.0. `array.dtype` may be any; the file holds npy_dtype of it. Every value must
/// be exact there, and NaN keeps only its sign. Throws Error if the shape does not fit the values or a value is not
/// exact.
std::string npy_bytes(const NpyArray& array);

/// The bytes of a .npy file with the tensor's bits; bf16 and 8-bit floats, which NumPy has not, are widened to fp32.
std::string npy_bytes(const Tensor& tensor);

/// Reads what stands before the data: versions 1.0 to 3.0 with '<f8', '<f4', '<f2', '<i8', '<i4', '|u1' or '|b1', and
/// rank <= kMaxRank. `where` names the file in messages. Throws Error on anything else; nothing of the size that the
/// header declares is allocated.
NpyHeader parse_npy_header(std::string_view bytes, const std::string& where);

/// The tensor in the bytes of a .npy file, in C order. Throws Error on what parse_npy_header refuses, on cut or
/// overlong files, and on booleans other than 0 and 1.
Tensor parse_npy_tensor(std::string_view bytes, const std::string& where);

/// The same as doubles. Integers beyond 2^53 are refused, since they would not be exact.
NpyArray parse_npy(std::string_view bytes, const std::string& where);

/// Reads a file. Throws Error.
NpyArray read_npy(const std::string& path);

}  // namespace ampcheck
