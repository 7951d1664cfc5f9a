// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y[n] = weight[index[n]], weight [V, D]. By convention the row `padding_idx` (-1: none) has no gradient, although y
/// depends on it (torch.nn.functional.embedding).
inline Expr embedding(Expr weight, const std::vector<std::int64_t>& index, std::int64_t padding_idx) {
  const Expr rows = gather_rows(weight, index);
  if (padding_idx < 0 || std::find(index.begin(), index.end(), padding_idx) == index.end()) return rows;
  std::vector<std::int64_t> padding;
  for (const std::int64_t row : index) padding.push_back(row == padding_idx ? 1 : 0);
  const Shape shape{static_cast<std::int64_t>(index.size()), 1};
  return where(indicator(*weight.graph, shape, std::move(padding)), no_gradient("rows of weight at padding_idx", rows),
               rows);
}

}  // namespace ampcheck::reference
