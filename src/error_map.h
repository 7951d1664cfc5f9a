// SPDX-License-Identifier: Apache-2.0
// Where in a tensor the wrong elements lie, in a grid that is small enough to keep for every finding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/tensor.h"

namespace ampcheck {

inline constexpr std::int64_t kMostMapBins = 32;  ///< along each side

struct ErrorMap {
  /// Of the tensor: its last axis, and all others as one.
  std::int64_t rows = 0, columns = 0;
  std::int64_t bin_rows = 0, bin_columns = 0;  ///< at most kMostMapBins each, and no more than there are elements
  /// A digit for each bin, row by row: '0' where no element is outside of its interval, else by the largest distance of
  /// one that is: '1' up to 2 ulp, '2' to 16, '3' to 256, '4' to 65,536, '5' more, or no number.
  std::string levels;

  /// The first row, or column, of the tensor that lies in a bin.
  static std::int64_t first_in(std::int64_t bin, std::int64_t bins, std::int64_t extent) {
    return (bin * extent + bins - 1) / bins;
  }
};

/// An element outside of its interval: its place in row-major order, and by how many ulp of the storage format.
struct ElementOutside {
  std::int64_t at = 0;
  double ulp = 0;
};
ErrorMap error_map(const Shape& shape, std::span<const ElementOutside> outside);

/// Whether a map is one that error_map() may have made: sizes that fit, and digits.
bool is_whole(const ErrorMap& map);

}  // namespace ampcheck
