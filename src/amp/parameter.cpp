// SPDX-License-Identifier: Apache-2.0
#include "src/amp/parameter.h"

#include <map>

#include "src/amp/blocks.h"

namespace ampcheck {

namespace {

/// The sum of the rows `parts` of a [n, width] tensor, each partial sum rounded to its dtype.
std::vector<double> sum_rows(const TensorView& values, const std::vector<std::int64_t>& parts, std::size_t width) {
  std::vector<double> sum(width, 0.0), row(width);
  for (const std::int64_t part : parts) {
    const auto n = static_cast<std::int64_t>(width);
    load_block(values, part * n, n, row.data());
    for (std::size_t i = 0; i < width; ++i) sum[i] += row[i];
    round_values(format(values.dtype), {}, sum, sum);
  }
  return sum;
}

}  // namespace

void coalesce(Parameter& parameter) {
  if (!parameter.sparse_rows || !parameter.grad.defined()) return;
  std::map<std::int64_t, std::vector<std::int64_t>> by_row;
  for (std::size_t i = 0; i < parameter.sparse_rows->size(); ++i)
    by_row[(*parameter.sparse_rows)[i]].push_back(static_cast<std::int64_t>(i));
  Shape shape = parameter.grad.shape();
  const std::int64_t width = shape[0] == 0 ? 0 : shape.count() / shape[0];
  shape[0] = static_cast<std::int64_t>(by_row.size());
  Tensor summed(parameter.grad.dtype(), shape);
  std::vector<std::int64_t> rows;
  for (const auto& [row, parts] : by_row) {
    const std::vector<double> sum = sum_rows(parameter.grad.view(), parts, static_cast<std::size_t>(width));
    store_block(summed.view(), static_cast<std::int64_t>(rows.size()) * width, width, sum.data());
    rows.push_back(row);
  }
  parameter.grad = summed;
  parameter.sparse_rows = rows;
}

}  // namespace ampcheck
