// SPDX-License-Identifier: Apache-2.0
// Tensors by name, from a file that anyone wrote: safetensors, .npz, .npy, or a folder of these.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/safetensors.h"

namespace ampcheck {

struct TensorFile {
  std::string path;                  ///< as the user wrote it
  std::vector<NamedTensor> tensors;  ///< names differ

  /// Null if there is none of that name.
  const Tensor* find(std::string_view name) const;
  /// "'x', 'y'": the names, for messages.
  std::string names() const;
  /// 16 hexadecimal digits of FNV-1a (64 bits) over names, dtypes, shapes and bits: the same contents, the same digits.
  std::string digest() const;
};

/// The tensors in the bytes of a file; what kind it is shows in its first bytes. A .npy holds one tensor, named `stem`.
std::vector<NamedTensor> parse_tensors(std::string_view bytes, const std::string& where, const std::string& stem);

/// Reads a file, or all *.safetensors, *.npz and *.npy of a folder in the order of their names. MissingFileError for a
/// path that is not there, Error for what cannot be read and for a name that two files of a folder give.
TensorFile read_tensors(const std::string& path);

}  // namespace ampcheck
