// SPDX-License-Identifier: Apache-2.0
// The PTX that a compiler of CUDA has left in a program: one text for each architecture, often compressed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ampcheck::ptx {

struct PtxText {
  int architecture = 0;  ///< 80 of compute_80
  std::string text;
};

/// Of a fat binary in memory. Throws PtxError for one that is damaged or compressed in an unknown way, EnvironmentError
/// where the library that it is compressed with is missing.
std::vector<PtxText> ptx_of_fat_binary(const void* fat_binary);

}  // namespace ampcheck::ptx
