// SPDX-License-Identifier: Apache-2.0
// Tensors by name as NumPy's .npz files: a zip archive of .npy files, stored or deflated.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/safetensors.h"

namespace ampcheck {

inline constexpr int kMostNpzEntries = 4096;
/// What the entries may come to unpacked: this, or kMostNpzRatio times the file where that is more.
inline constexpr std::size_t kMostNpzUnpacked = std::size_t{1} << 30;
inline constexpr std::size_t kMostNpzRatio = 200;

/// The tensors in the bytes of an .npz file, in the archive's order, named without ".npy". Throws Error on a damaged
/// archive (local and central headers must agree), more entries or data than the limits above, names with '/',
/// encryption, methods other than stored and deflated, and whatever parse_npy_tensor refuses. Nothing is unpacked
/// beyond the size that an entry's own header says.
std::vector<NamedTensor> parse_npz(std::string_view bytes, const std::string& where);

/// The bytes of an .npz file, entries stored, the same for the same tensors at any time. Throws Error for names that
/// the reader would refuse.
std::string npz_bytes(std::span<const NamedTensor> tensors);

}  // namespace ampcheck
