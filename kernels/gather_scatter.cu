// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather_scatter.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/parallel.h"

namespace ampcheck::kernels {

namespace {

/// What both kernels take: rows of `width` elements.
struct RowsByIndex {
  Operand table, index, rows;
  std::int64_t count, width, table_rows, skip;
};

void gather_cpu(const RowsByIndex& a) {
  parallel_for(a.count, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> buffer(static_cast<std::size_t>(a.width));
    for (std::int64_t n = begin; n < end; ++n)
      write(a.rows, n * a.width, a.width, read(a.table, read_index(a.index, n) * a.width, a.width, buffer.data()));
  });
}

void scatter_cpu(const RowsByIndex& a) {
  // Source rows by table row, ascending within one (a stable sort).
  std::vector<std::int64_t> index(static_cast<std::size_t>(a.count)), order;
  for (std::int64_t n = 0; n < a.count; ++n) {
    index[static_cast<std::size_t>(n)] = read_index(a.index, n);
    if (index[static_cast<std::size_t>(n)] != a.skip) order.push_back(n);
  }
  const auto row_of = [&](std::int64_t n) { return index[static_cast<std::size_t>(n)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto left, auto right) { return row_of(left) < row_of(right); });
  std::vector<std::size_t> starts;  // where a table row's run begins
  for (std::size_t i = 0; i < order.size(); ++i)
    if (i == 0 || row_of(order[i]) != row_of(order[i - 1])) starts.push_back(i);

  parallel_for(static_cast<std::int64_t>(starts.size()), 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sum(static_cast<std::size_t>(a.width)), buffer(sum.size());
    const auto add = [&](const float* from) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += from[i];
    };
    for (auto run = static_cast<std::size_t>(begin); run < static_cast<std::size_t>(end); ++run) {
      const std::size_t stop = run + 1 < starts.size() ? starts[run + 1] : order.size();
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (std::size_t i = starts[run]; i < stop; ++i) add(read(a.rows, order[i] * a.width, a.width, buffer.data()));
      const std::int64_t at = row_of(order[starts[run]]) * a.width;
      add(read(a.table, at, a.width, buffer.data()));
      write(a.table, at, a.width, sum.data());
    }
  });
}

#if AMPCHECK_CUDA_COMPILER

__global__ void gather_kernel(const __grid_constant__ RowsByIndex a) {
  for (std::int64_t n = blockIdx.x; n < a.count; n += gridDim.x) {
    const std::int64_t row = load_index(a.index, n);
    for (std::int64_t i = threadIdx.x; i < a.width; i += blockDim.x)
      store(a.rows, n * a.width + i, load(a.table, row * a.width + i));
  }
}

/// Source rows n in [first, first + 32) that name this table row, as a mask; the same in all lanes.
__device__ unsigned matches(const RowsByIndex& a, std::int64_t row, std::int64_t first, int lane) {
  const std::int64_t n = first + lane;
  return __ballot_sync(~0u, n < a.count && load_index(a.index, n) == row);
}

/// A warp per table row; it looks through all indices, 32 at a time, once per 32 columns if any names it.
__global__ void scatter_kernel(const __grid_constant__ RowsByIndex a) {
  const int lane = threadIdx.x;
  for (std::int64_t row = blockIdx.x; row < a.table_rows; row += gridDim.x) {
    if (row == a.skip) continue;
    bool named = false;
    for (std::int64_t first = 0; first < a.count && !named; first += kLanes) named = matches(a, row, first, lane) != 0;
    if (!named) continue;
    for (std::int64_t base = 0; base < a.width; base += kLanes) {
      const std::int64_t column = base + lane;
      float sum = 0;
      for (std::int64_t first = 0; first < a.count; first += kLanes)
        for (unsigned mask = matches(a, row, first, lane); mask != 0; mask &= mask - 1)
          if (column < a.width) sum += load(a.rows, (first + __ffs(static_cast<int>(mask)) - 1) * a.width + column);
      if (column < a.width) store(a.table, row * a.width + column, sum + load(a.table, row * a.width + column));
    }
  }
}

#endif

RowsByIndex arguments(const TensorView& table, const TensorView& index, const TensorView& rows, std::int64_t skip) {
  return {Operand(table), Operand(index), Operand(rows), index.count(), table.shape.last(), table.shape[0], skip};
}

}  // namespace

void gather_rows(const KernelCall& call, const TensorView& table, const TensorView& index, const TensorView& out) {
  const RowsByIndex a = arguments(table, index, out, 0);
  if (a.count == 0 || a.width == 0) return;
  if (call.device == Device::cpu) return gather_cpu(a);
#if AMPCHECK_CUDA_COMPILER
  gather_kernel<<<grid_for(a.count, 1), 128, 0, stream_of(call)>>>(a);
  check_cuda(cudaGetLastError(), "gather_rows");
#else
  throw_no_cuda();
#endif
}

void scatter_add_rows(const KernelCall& call, const TensorView& source, const TensorView& index, std::int64_t skip,
                      const TensorView& table) {
  const RowsByIndex a = arguments(table, index, source, skip);
  if (a.count == 0 || a.width == 0) return;
  if (call.device == Device::cpu) return scatter_cpu(a);
#if AMPCHECK_CUDA_COMPILER
  scatter_kernel<<<grid_for(a.table_rows, 1), kLanes, 0, stream_of(call)>>>(a);
  check_cuda(cudaGetLastError(), "scatter_add_rows");
#else
  throw_no_cuda();
#endif
}

void check_indices(const KernelCall& call, const char* name, std::int64_t bound, std::int64_t skip) {
  if (call.device != Device::cpu) return;
  const Operand index(call.at(name));
  for (std::int64_t n = 0; n < call.at(name).count(); ++n) {
    const std::int64_t value = read_index(index, n);
    if (value != skip && (value < 0 || value >= bound))
      throw Error("[kernel] " + std::string(name) + " of row " + std::to_string(n) + " out of range, got " +
                  std::to_string(value) + ", want 0 to " + std::to_string(bound - 1));
  }
}

}  // namespace ampcheck::kernels
