// SPDX-License-Identifier: Apache-2.0
// Pattern: a program for one row (the last axis), written once and run for every row, on both devices.
//
// The order of a row's sum, and of its maximum: lane l of 32 takes elements l, l + 32, l + 64, ... in this order,
// starting from 0 (-inf for the maximum); then the lanes join as a tree, lane l with l + 16, l + 8, l + 4, l + 2, l
// + 1. On CUDA a row is a warp, so both devices give the same bits.
//
// The order of a running sum: blocks of 32 one after the other; in a block number l takes the one 1, 2, 4, 8, 16 before
// it in turn (Hillis and Steele 1986), and then the last sum of the block before.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "kernels/launch.h"
#include "src/parallel.h"

namespace ampcheck::kernels {

/// The larger one; NaN if either is. (A comparison with NaN is false, which the second test mends.)
AMPCHECK_HD float max_or_nan(float a, float b) { return math::select(!(a < b), math::select(b != b, b, a), b); }

/// Joins f(0), ..., f(n - 1) in the order above.
template <class F, class Join>
float join_in_lanes(std::int64_t n, float start, const F& f, const Join& join) {
  alignas(64) float lane[kLanes];
  for (float& value : lane) value = start;
  const std::int64_t full = n / kLanes * kLanes;
  for (std::int64_t i = 0; i < full; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lane[l] = join(lane[l], f(i + l));
  for (std::int64_t i = full; i < n; ++i) lane[i - full] = join(lane[i - full], f(i));
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] = join(lane[l], lane[l + width]);
  return lane[0];
}

/// f(0), f(0) + f(1), ... in the order above into out[0], out[1], ...; `reversed`: f(n - 1), f(n - 1) + f(n - 2), ...
/// into out[n - 1], out[n - 2], ...
template <class F>
void scan_in_lanes(std::int64_t n, bool reversed, const F& f, float* __restrict__ out) {
  float before = 0.0f;
  for (std::int64_t first = 0; first < n; first += kLanes) {
    const std::int64_t count = std::min<std::int64_t>(kLanes, n - first);
    alignas(64) float lane[kLanes] = {};
    for (std::int64_t l = 0; l < count; ++l) lane[l] = f(reversed ? n - 1 - first - l : first + l);
    for (int step = 1; step < kLanes; step *= 2)
      for (int l = kLanes - 1; l >= step; --l) lane[l] = lane[l - step] + lane[l];
    for (float& value : lane) value = before + value;
    for (std::int64_t l = 0; l < count; ++l) out[reversed ? n - 1 - first - l : first + l] = lane[l];
    before = lane[kLanes - 1];
  }
}

struct Sum {
  static constexpr float kStart = 0.0f;
  AMPCHECK_HD float operator()(float a, float b) const { return a + b; }
};
struct Max {
  static constexpr float kStart = -__builtin_huge_valf();
  AMPCHECK_HD float operator()(float a, float b) const { return max_or_nan(a, b); }
};

#if AMPCHECK_CUDA_COMPILER
/// The same by a warp; every lane gets the result.
template <class F, class Join>
__device__ __forceinline__ float join_in_warp(std::int64_t n, float start, const F& f, const Join& join) {
  float value = start;
  for (std::int64_t i = threadIdx.x % kLanes; i < n; i += kLanes) value = join(value, f(i));
  for (int width = kLanes / 2; width > 0; width /= 2) value = join(value, __shfl_xor_sync(~0u, value, width));
  return value;
}
#endif

/// An operand of a row program: `length` consecutive elements belong to one row.
struct RowOperand {
  Operand operand;
  std::int64_t length = 0;

  RowOperand() = default;
  /// Rows along the last axis.
  RowOperand(const TensorView& view) : operand(view), length(view.shape.last()) {}  // NOLINT: meant to convert
  RowOperand(const TensorView* view) {                                              // NOLINT: null is absent
    if (view) *this = RowOperand(*view);
  }
  RowOperand(const Operand& any, std::int64_t row_length) : operand(any), length(row_length) {}
};

/// A parameter [D] (or anything that broadcasts to `shape`) beside rows of that shape; `fill` everywhere if it is null.
inline RowOperand parameter(const TensorView* view, const Shape& shape, float fill) {
  return {expanded_or(view, shape, fill), shape.last()};
}

/// A tensor with one element a row, of shape [N].
inline RowOperand per_row(const TensorView& view) { return {Operand(view), 1}; }

// A row program is `template <class Row> AMPCHECK_HD void operator()(const Row& row) const`, with
//   row.size()            elements of a row (the extent of the last axis)
//   row.in(k, i)          element i of input k, as fp32
//   row.scalar(k)         input k of one element a row
//   row.index(k)          the same for int64
//   row.sum(f), row.max(f)  over f(i), in the order above
//   row.once(k, f)        f itself, or what computes it once and keeps it where that is cheaper; k = 0 or 1 names the
//   room row.out(k, f)         output k = f(i) for every i, rounded to its dtype; nothing if the output is absent
//   row.scan(k, reversed, f)  output k = the running sum of f(i), from the last element on if reversed
//   row.save(k, value)    output k of one element a row
// Inputs and outputs are numbered as they were given to row_reduce.

#if AMPCHECK_CUDA_COMPILER
// A program is a host and device template: its instance for HostRow is never called on the device, nor the other way.
#pragma nv_diag_suppress 20011, 20014

namespace detail {

inline constexpr int kMaxRowOperands = 8;

template <class Program>
struct RowArguments {
  Program program;
  RowOperand in[kMaxRowOperands];
  RowOperand out[kMaxRowOperands];
  std::int64_t rows;
  std::int64_t size;
};

}  // namespace detail
#endif

/// A row on the CPU: its operands as fp32 in memory.
class HostRow {
 public:
  HostRow(std::initializer_list<RowOperand> in, std::initializer_list<RowOperand> out, std::int64_t size)
      : size_(size) {
    std::copy(in.begin(), in.end(), in_.begin());
    std::copy(out.begin(), out.end(), out_.begin());
    std::size_t floats = kRooms * static_cast<std::size_t>(size);
    for (const RowOperand& operand : in) floats += static_cast<std::size_t>(std::max<std::int64_t>(operand.length, 0));
    memory_.resize(floats);
    float* next = memory_.data() + static_cast<std::int64_t>(kRooms) * size;
    for (std::size_t k = 0; k < in.size(); ++k) {
      buffers_[k] = next;
      next += in_[k].length;
    }
    inputs_ = in.size();
  }

  void load(std::int64_t row) {
    row_ = row;
    for (std::size_t k = 0; k < inputs_; ++k) {
      const auto& [operand, length] = in_[k];
      if (operand.data != nullptr && !is_float(operand.dtype)) continue;  // read by index()
      // A parameter has the same elements in every row (stride 0 between rows): it is read once.
      const std::int64_t at = operand.data && length > 0 ? operand.offset(row * length) : 0;
      if (values_[k] && at == offsets_[k]) continue;
      offsets_[k] = at;
      values_[k] = read(operand, row * length, length, buffers_[k]);
    }
  }

  std::int64_t size() const { return size_; }
  float in(int k, std::int64_t i) const { return values_[static_cast<std::size_t>(k)][i]; }
  float scalar(int k) const { return in(k, 0); }
  std::int64_t index(int k) const { return read_index(in_[static_cast<std::size_t>(k)].operand, row_); }

  template <class F>
  float sum(const F& f) const {
    return join_in_lanes(size_, Sum::kStart, f, Sum{});
  }
  template <class F>
  float max(const F& f) const {
    return join_in_lanes(size_, Max::kStart, f, Max{});
  }
  template <class F>
  auto once(int k, const F& f) const {
    const float* kept = fill(k + 1, f);
    return [kept](std::int64_t i) { return kept[i]; };
  }
  template <class F>
  void out(int k, const F& f) const {
    const RowOperand& to = out_[static_cast<std::size_t>(k)];
    if (to.operand.data != nullptr) write(to.operand, row_ * to.length, size_, fill(0, f));
  }
  template <class F>
  void scan(int k, bool reversed, const F& f) const {
    const RowOperand& to = out_[static_cast<std::size_t>(k)];
    float* const result = const_cast<float*>(memory_.data());
    scan_in_lanes(size_, reversed, f, result);
    write(to.operand, row_ * to.length, size_, result);
  }
  void save(int k, float value) const {
    const RowOperand& to = out_[static_cast<std::size_t>(k)];
    if (to.operand.data != nullptr) write(to.operand, row_, 1, &value);
  }

 private:
  static constexpr std::size_t kRooms = 3;  ///< one row of results, two of what is computed once

  template <class F>
  const float* fill(int room, const F& f) const {
    float* __restrict__ result = const_cast<float*>(memory_.data()) + room * size_;
    const std::int64_t n = size_;
    AMPCHECK_VECTOR_LOOP
    for (std::int64_t i = 0; i < n; ++i) result[i] = f(i);
    return result;
  }

  std::array<RowOperand, 8> in_, out_;
  std::array<const float*, 8> values_ = {};
  std::array<float*, 8> buffers_ = {};
  std::array<std::int64_t, 8> offsets_ = {};
  std::vector<float> memory_;  // rooms of a row, then the rows of the inputs
  std::size_t inputs_ = 0;
  std::int64_t size_, row_ = 0;
};

#if AMPCHECK_CUDA_COMPILER

/// A row on CUDA: a warp, lane l handling elements l, l + 32, ...
template <class Program>
class DeviceRow {
 public:
  __device__ DeviceRow(const detail::RowArguments<Program>& arguments, std::int64_t row)
      : a_(arguments), row_(row), lane_(threadIdx.x % kLanes) {}

  __device__ std::int64_t size() const { return a_.size; }
  __device__ float in(int k, std::int64_t i) const { return load(a_.in[k].operand, row_ * a_.in[k].length + i); }
  __device__ float scalar(int k) const { return in(k, 0); }
  __device__ std::int64_t index(int k) const { return load_index(a_.in[k].operand, row_); }

  template <class F>
  __device__ float sum(const F& f) const {
    return join_in_warp(a_.size, Sum::kStart, f, Sum{});
  }
  template <class F>
  __device__ float max(const F& f) const {
    return join_in_warp(a_.size, Max::kStart, f, Max{});
  }
  template <class F>
  __device__ F once(int, const F& f) const {
    return f;  // computing again is cheaper than memory
  }
  template <class F>
  __device__ void out(int k, const F& f) const {
    const RowOperand& to = a_.out[k];
    if (to.operand.data == nullptr) return;
    for (std::int64_t i = lane_; i < a_.size; i += kLanes) store(to.operand, row_ * to.length + i, f(i));
  }
  template <class F>
  __device__ void scan(int k, bool reversed, const F& f) const {
    const RowOperand& to = a_.out[k];
    float before = 0.0f;
    for (std::int64_t first = 0; first < a_.size; first += kLanes) {  // every lane takes part in the exchanges
      const std::int64_t i = first + lane_, at = reversed ? a_.size - 1 - i : i;
      float value = i < a_.size ? f(at) : 0.0f;
      for (int step = 1; step < kLanes; step *= 2) {
        const float other = __shfl_up_sync(~0u, value, step);
        value = lane_ >= step ? other + value : value;
      }
      value = before + value;
      if (i < a_.size) store(to.operand, row_ * to.length + at, value);
      before = __shfl_sync(~0u, value, kLanes - 1);
    }
  }
  __device__ void save(int k, float value) const {
    if (a_.out[k].operand.data != nullptr && lane_ == 0) store(a_.out[k].operand, row_, value);
  }

 private:
  const detail::RowArguments<Program>& a_;
  std::int64_t row_;
  int lane_;
};

namespace detail {

template <class Program>
__global__ void row_kernel(const __grid_constant__ RowArguments<Program> a) {
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (blockDim.x / kLanes);
  for (std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes; row < a.rows;
       row += warps)
    a.program(DeviceRow<Program>(a, row));
}

}  // namespace detail

#endif

/// Runs the program on `rows` rows of `size` elements. Absent outputs are skipped.
template <class Program>
void row_reduce(const KernelCall& call, std::int64_t rows, std::int64_t size, const Program& program,
                std::initializer_list<RowOperand> in, std::initializer_list<RowOperand> out) {
  if (rows == 0) return;
  if (call.device == Device::cuda) {
#if AMPCHECK_CUDA_COMPILER
    detail::RowArguments<Program> arguments{program, {}, {}, rows, size};
    std::copy(in.begin(), in.end(), arguments.in);
    std::copy(out.begin(), out.end(), arguments.out);
    detail::row_kernel<<<grid_for(rows, 4), 4 * kLanes, 0, stream_of(call)>>>(arguments);
    check_cuda(cudaGetLastError(), "row_reduce");
    return;
#else
    throw_no_cuda();
#endif
  }
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(size, 1));
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    HostRow row(in, out, size);
    for (std::int64_t r = begin; r < end; ++r) {
      row.load(r);
      program(row);
    }
  });
}

}  // namespace ampcheck::kernels
