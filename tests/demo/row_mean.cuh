// SPDX-License-Identifier: Apache-2.0
// The mean of each row: a warp for a row on a GPU, and the same sums in the same order on a CPU.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
#else
#define ON_BOTH
#endif

constexpr int kLanes = 32;

/// What one lane adds up: every 32nd element.
template <class T>
ON_BOTH float lane_sum(const T* row, std::int64_t columns, int lane) {
  float sum = 0;
  for (std::int64_t j = lane; j < columns; j += kLanes) sum = sum + static_cast<float>(row[j]);
  return sum;
}

/// The CPU twin.
template <class T>
float row_sum(const T* row, std::int64_t columns) {
  float lanes[kLanes], next[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lane_sum(row, columns, lane);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int lane = 0; lane < kLanes; ++lane) next[lane] = lanes[lane] + lanes[lane ^ step];
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = next[lane];
  }
  return lanes[0];
}

#ifdef __CUDACC__
template <class T>
__global__ void row_mean_kernel(const T* x, T* y, std::int64_t columns) {
  float sum = lane_sum(x + blockIdx.x * columns, columns, static_cast<int>(threadIdx.x));
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x == 0) y[blockIdx.x] = static_cast<T>(sum / static_cast<float>(columns));
}

template <class T>
__global__ void row_mean_backward_kernel(const T* dy, T* dx, std::int64_t columns) {
  const float each = static_cast<float>(dy[blockIdx.x]) / static_cast<float>(columns);
  for (std::int64_t j = threadIdx.x; j < columns; j += kLanes) dx[blockIdx.x * columns + j] = static_cast<T>(each);
}
#endif
