// SPDX-License-Identifier: Apache-2.0
// Pattern: a program for one output element that reads whatever it needs, for what no other pattern expresses.
#pragma once

#include "kernels/launch.h"
#include "src/parallel.h"

namespace ampcheck::kernels {

// A program is `template <class Io> AMPCHECK_HD void operator()(const Io& io, std::int64_t i) const`, with
//   io.get(operand, index)         an element as fp32, by row-major index
//   io.put(operand, index, value)  rounds into it
// and the operands as its own members.

struct HostIo {
  float get(const Operand& from, std::int64_t index) const {
    const std::int64_t at = from.offset(index);
    switch (from.dtype) {
      case Dtype::bf16: return to_float(static_cast<const Bf16*>(from.data)[at]);
      case Dtype::fp16: return to_float(static_cast<const Fp16*>(from.data)[at]);
      default: return static_cast<const float*>(from.data)[at];
    }
  }
  void put(const Operand& to, std::int64_t index, float value) const { write(to, index, 1, &value); }
};

#if AMPCHECK_CUDA_COMPILER
// A program is a host and device template: its instance for HostIo is never called on the device, nor the other way.
#pragma nv_diag_suppress 20011, 20014

struct DeviceIo {
  __device__ float get(const Operand& from, std::int64_t index) const { return load(from, index); }
  __device__ void put(const Operand& to, std::int64_t index, float value) const { store(to, index, value); }
};

namespace detail {

template <class Program>
__global__ void for_each_kernel(const __grid_constant__ Program program, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    program(DeviceIo{}, i);
}

}  // namespace detail
#endif

/// program(io, i) for i < count, in any order.
template <class Program>
void for_each(const KernelCall& call, std::int64_t count, const Program& program) {
  if (count == 0) return;
  if (call.device == Device::cuda) {
#if AMPCHECK_CUDA_COMPILER
    detail::for_each_kernel<<<grid_for(count, 128), 128, 0, stream_of(call)>>>(program, count);
    check_cuda(cudaGetLastError(), "for_each");
    return;
#else
    throw_no_cuda();
#endif
  }
  parallel_for(count, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) program(HostIo{}, i);
  });
}

}  // namespace ampcheck::kernels
