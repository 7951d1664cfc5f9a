// SPDX-License-Identifier: Apache-2.0
// A vector is one row of A and one column of B, its result stands on the diagonal of D. Built for sm_90a, where wgmma
// is.
#include "tools/gpu/instructions.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <stdexcept>

namespace ampcheck::gpu {

namespace {

using namespace nvcuda;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("[") + what + "] got " + cudaGetErrorName(status) + ": " +
                             cudaGetErrorString(status));
}

struct DeviceVectors {
  const std::uint32_t *a, *b, *c;
  std::uint32_t* d;
  int count;
};

template <class T>
__device__ T from_bits(std::uint32_t bits) {
  const auto low = static_cast<std::uint16_t>(bits);
  return *reinterpret_cast<const T*>(&low);
}
template <>
__device__ float from_bits<float>(std::uint32_t bits) {
  return __uint_as_float(bits);
}
__device__ std::uint32_t to_bits(float value) { return __float_as_uint(value); }
__device__ std::uint32_t to_bits(__half value) { return __half_as_ushort(value); }

/// A warp computes 16 vectors. Stored: how an element lies in memory; Element: what wmma calls it.
template <class Stored, class Element, class Result, int kExtent>
__global__ void wmma_kernel(DeviceVectors v) {
  constexpr int kTile = 16;
  __shared__ __align__(32) Stored a[kTile * kExtent], b[kTile * kExtent];
  __shared__ __align__(32) Result c[kTile * kTile], d[kTile * kTile];
  const int first = static_cast<int>(blockIdx.x) * kTile;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kExtent; i += 32) {
    const int vector = first + i / kExtent;
    const bool there = vector < v.count;
    a[i] = from_bits<Stored>(there ? v.a[first * kExtent + i] : 0);  // row-major: a row is a vector
    b[i] = from_bits<Stored>(there ? v.b[first * kExtent + i] : 0);  // column-major: a column is one
  }
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += 32) {
    const int row = i / kTile, column = i % kTile;
    const bool there = row == column && first + row < v.count;
    c[i] = from_bits<Result>(there ? v.c[first + row] : 0);
  }
  __syncwarp();
  wmma::fragment<wmma::matrix_a, kTile, kTile, kExtent, Element, wmma::row_major> fragment_a;
  wmma::fragment<wmma::matrix_b, kTile, kTile, kExtent, Element, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, kTile, kTile, kExtent, Result> sums;
  wmma::load_matrix_sync(fragment_a, a, kExtent);
  wmma::load_matrix_sync(fragment_b, b, kExtent);
  wmma::load_matrix_sync(sums, c, kTile, wmma::mem_row_major);
  wmma::mma_sync(sums, fragment_a, fragment_b, sums);
  wmma::store_matrix_sync(d, sums, kTile, wmma::mem_row_major);
  __syncwarp();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine < kTile && first + mine < v.count) v.d[first + mine] = to_bits(d[mine * kTile + mine]);
}

/// Four 8-bit elements of a vector, from element k on.
__device__ std::uint32_t four(const std::uint32_t* from, int vector, int k, int count) {
  if (vector >= count) return 0;
  const std::uint32_t* at = from + vector * 32 + k;
  return at[0] | at[1] << 8 | at[2] << 16 | at[3] << 24;
}

#define AMPCHECK_MMA_FP32(TYPES)                                                                                    \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." TYPES                                                       \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "                                                       \
               "{%10,%11,%12,%13};"                                                                                 \
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), \
                 "f"(c[3]))
#define AMPCHECK_MMA_FP16(TYPES)                                                                               \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f16." TYPES ".f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%9};" \
               : "=r"(h[0]), "=r"(h[1])                                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(g[0]), "r"(g[1]))

/// A warp computes 8 vectors: rows 0 to 7 of m16n8k32. A thread holds row lane / 4, columns 2 (lane % 4) and the next.
__global__ void mma_fp8_kernel(DeviceVectors v, bool e5m2, bool fp16) {
  const int lane = static_cast<int>(threadIdx.x), row = lane / 4, quarter = lane % 4;
  const int first = static_cast<int>(blockIdx.x) * 8, vector = first + row;
  const std::uint32_t a[4] = {four(v.a, vector, quarter * 4, v.count), 0, four(v.a, vector, quarter * 4 + 16, v.count),
                              0};
  const std::uint32_t b[2] = {four(v.b, vector, quarter * 4, v.count), four(v.b, vector, quarter * 4 + 16, v.count)};
  const bool mine = row / 2 == quarter && vector < v.count;  // the diagonal
  const std::uint32_t held = mine ? v.c[vector] : 0;
  if (fp16) {
    const std::uint32_t g[2] = {row % 2 == 0 ? held : held << 16, 0};
    std::uint32_t h[2];
    if (e5m2)
      AMPCHECK_MMA_FP16("e5m2.e5m2");
    else
      AMPCHECK_MMA_FP16("e4m3.e4m3");
    if (mine) v.d[vector] = row % 2 == 0 ? h[0] & 0xffffu : h[0] >> 16;
    return;
  }
  float c[4] = {}, d[4];
  c[row % 2] = __uint_as_float(held);
  if (e5m2)
    AMPCHECK_MMA_FP32("e5m2.e5m2");
  else
    AMPCHECK_MMA_FP32("e4m3.e4m3");
  if (mine) v.d[vector] = __float_as_uint(d[row % 2]);
}

/// No swizzle, and 128 bytes from one group of 16 bytes of k to the next.
__device__ std::uint64_t descriptor(const void* shared) {
  const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(shared));
  constexpr std::uint64_t kNext = 128 >> 4;
  return (address & 0x3ffff) >> 4 | kNext << 16 | kNext << 32;
}

#define AMPCHECK_WGMMA(TYPES)                                                                                     \
  asm volatile("{ .reg .pred with_d; setp.ne.b32 with_d, %9, 0; wgmma.mma_async.sync.aligned.m64n8k32.f32." TYPES \
               " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, with_d, 1, 1; }"                                               \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(of_b), "r"(1))

/// Four warps compute 8 vectors: rows 0 to 7 of m64n8k32, held as in m16n8k32 by the first warp.
__global__ void wgmma_fp8_kernel(DeviceVectors v, bool e5m2) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ __align__(128) std::uint32_t b[64];  // 8 columns by 32 bytes, as two groups of 8 by 16
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 4, quarter = lane % 4;
  const bool first_warp = threadIdx.x < 32;
  const int first = static_cast<int>(blockIdx.x) * 8, vector = first + row;
  if (threadIdx.x < 64) {
    const int i = static_cast<int>(threadIdx.x), group = i / 32, column = i % 32 / 4, word = i % 4;
    b[i] = four(v.b, first + column, group * 16 + word * 4, v.count);
  }
  const int there = first_warp ? v.count : 0;
  const std::uint32_t a[4] = {four(v.a, vector, quarter * 4, there), 0, four(v.a, vector, quarter * 4 + 16, there), 0};
  const bool mine = first_warp && row / 2 == quarter && vector < v.count;
  float d[4] = {};
  if (mine) d[row % 2] = __uint_as_float(v.c[vector]);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const std::uint64_t of_b = descriptor(b);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  if (e5m2)
    AMPCHECK_WGMMA("e5m2.e5m2");
  else
    AMPCHECK_WGMMA("e4m3.e4m3");
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  if (mine) v.d[vector] = __float_as_uint(d[row % 2]);
#endif
}

class Words {
 public:
  explicit Words(const std::vector<std::uint32_t>& host) : Words(host.size()) {
    check(cudaMemcpy(data, host.data(), host.size() * 4, cudaMemcpyHostToDevice), "copy to the device");
  }
  explicit Words(std::size_t count) { check(cudaMalloc(&data, count * 4 + 4), "cudaMalloc"); }
  ~Words() { cudaFree(data); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  std::uint32_t* data = nullptr;
};

void launch(const Vectors& vectors, Unit unit, const DeviceVectors& v) {
  const bool fp16 = vectors.output == Output::fp16, e5m2 = vectors.input == Input::e5m2;
  const auto blocks = [&](int each) { return static_cast<unsigned>((v.count + each - 1) / each); };
  const bool eight_bits = e5m2 || vectors.input == Input::e4m3;
  if (unit == Unit::wgmma) {
    if (!eight_bits || fp16) throw std::runtime_error("[wgmma] got another type, want 8 bits in and fp32 out");
    wgmma_fp8_kernel<<<blocks(8), 128>>>(v, e5m2);
  } else if (eight_bits) {
    mma_fp8_kernel<<<blocks(8), 32>>>(v, e5m2, fp16);
  } else if (vectors.input == Input::tf32) {
    wmma_kernel<float, wmma::precision::tf32, float, 8><<<blocks(16), 32>>>(v);
  } else if (vectors.input == Input::bf16) {
    wmma_kernel<__nv_bfloat16, __nv_bfloat16, float, 16><<<blocks(16), 32>>>(v);
  } else if (fp16) {
    wmma_kernel<__half, __half, __half, 16><<<blocks(16), 32>>>(v);
  } else {
    wmma_kernel<__half, __half, float, 16><<<blocks(16), 32>>>(v);
  }
}

}  // namespace

std::vector<std::uint32_t> run(const Vectors& vectors, Unit unit) {
  const Words a(vectors.a), b(vectors.b), c(vectors.c), d(vectors.count());
  check(cudaMemset(d.data, 0xff, vectors.count() * 4), "cudaMemset");
  launch(vectors, unit, {a.data, b.data, c.data, d.data, static_cast<int>(vectors.count())});
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "instruction");
  std::vector<std::uint32_t> out(vectors.count());
  check(cudaMemcpy(out.data(), d.data, out.size() * 4, cudaMemcpyDeviceToHost), "copy from the device");
  return out;
}

std::string gpu_name() {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return std::string(properties.name) + " sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
}

}  // namespace ampcheck::gpu
