// SPDX-License-Identifier: Apache-2.0
#include "src/error_map.h"

#include <algorithm>
#include <cmath>

namespace ampcheck {

namespace {

char level_of(double ulp) {
  constexpr double kEnds[] = {2, 16, 256, 65'536};
  char level = '1';
  for (const double end : kEnds) level = static_cast<char>(level + !(ulp <= end));
  return level;
}

}  // namespace

ErrorMap error_map(const Shape& shape, std::span<const ElementOutside> outside) {
  ErrorMap out;
  out.columns = shape.rank == 0 ? 1 : shape.last();
  out.rows = out.columns == 0 ? 0 : shape.count() / out.columns;
  out.bin_rows = std::min(out.rows, kMostMapBins);
  out.bin_columns = std::min(out.columns, kMostMapBins);
  out.levels.assign(static_cast<std::size_t>(out.bin_rows * out.bin_columns), '0');
  for (const auto& [at, ulp] : outside) {
    const std::int64_t row = at / out.columns * out.bin_rows / out.rows,
                       column = at % out.columns * out.bin_columns / out.columns;
    char& level = out.levels[static_cast<std::size_t>(row * out.bin_columns + column)];
    level = std::max(level, level_of(ulp));
  }
  return out;
}

bool is_whole(const ErrorMap& map) {
  return map.rows > 0 && map.columns > 0 && map.bin_rows == std::min(map.rows, kMostMapBins) &&
         map.bin_columns == std::min(map.columns, kMostMapBins) &&
         map.levels.size() == static_cast<std::size_t>(map.bin_rows * map.bin_columns) &&
         std::all_of(map.levels.begin(), map.levels.end(), [](char level) { return level >= '0' && level <= '5'; });
}

}  // namespace ampcheck
