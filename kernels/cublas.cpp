// SPDX-License-Identifier: Apache-2.0
#include "kernels/cublas.h"

#include <dlfcn.h>

#include <atomic>
#include <limits>
#include <mutex>

#include "kernels/device.h"
#include "src/ptx/gpu.h"

namespace ampcheck::kernels {

namespace {

// The few declarations of cublas_v2.h that are used, so that its header need not be installed.
using Handle = struct cublasContext*;
constexpr int kSuccess = 0, kOpN = 0, kOpT = 1, kReal32 = 0, kReal16 = 2, kRealBf16 = 14, kCompute32 = 68;
constexpr int kDefaultAlgorithm = -1;

struct Library {
  int (*create)(Handle*) = nullptr;
  int (*set_stream)(Handle, void*) = nullptr;
  int (*gemm)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
              void*, int, int, int, int) = nullptr;
  Handle handle = nullptr;
  std::mutex mutex;  // a handle has one stream at a time

  Library() {
    void* library = nullptr;
    for (const char* file : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"})
      if (!library) library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    create = reinterpret_cast<decltype(create)>(dlsym(library, "cublasCreate_v2"));
    set_stream = reinterpret_cast<decltype(set_stream)>(dlsym(library, "cublasSetStream_v2"));
    gemm = reinterpret_cast<decltype(gemm)>(dlsym(library, "cublasGemmEx"));
    if (!create || !set_stream || !gemm || create(&handle) != kSuccess) handle = nullptr;
  }
};

Library& library() {
  static Library loaded;
  return loaded;
}

int type_of(Dtype dtype) { return dtype == Dtype::bf16 ? kRealBf16 : dtype == Dtype::fp16 ? kReal16 : kReal32; }

bool fits(std::int64_t n) { return n > 0 && n <= std::numeric_limits<int>::max(); }

/// cuBLAS takes matrices with one stride 1 and the other at least the extent.
bool is_plain(const Matrix& m) {
  if (!fits(m.rows) || !fits(m.columns)) return false;
  return (m.column_stride == 1 && m.row_stride >= m.columns && fits(m.row_stride)) ||
         (m.row_stride == 1 && m.column_stride >= m.rows && fits(m.column_stride));
}

struct Operation {
  int op;
  int leading;
};

/// The row-major matrix as the transpose of a column-major one.
Operation operation(const Matrix& m) {
  const bool rows_dense = m.column_stride == 1 && m.row_stride >= m.columns;
  return rows_dense ? Operation{kOpN, static_cast<int>(m.row_stride)}
                    : Operation{kOpT, static_cast<int>(m.column_stride)};
}

}  // namespace

namespace {

std::atomic<bool> allowed = true;

}  // namespace

void use_cublas(bool on) { allowed = on; }

bool can_use_cublas(const Matrix& a, const Matrix& b) {
  return allowed && !ptx::on_simulated_gpu() && a.dtype == b.dtype && is_plain(a) && is_plain(b) &&
         library().handle != nullptr;
}

TensorCore cublas_cores() {
  if (!allowed || ptx::simulates_gpu() || library().handle == nullptr) return TensorCore::none;
  int major = 0, minor = 0;
  return cuda_compute_capability(major, minor) ? tensor_core_of(major, minor) : TensorCore::any;
}

void cublas_matmul(const Matrix& a, const Matrix& b, float* sums, void* stream) {
  Library& cublas = library();
  const std::lock_guard lock(cublas.mutex);
  const float one = 1, zero = 0;
  const Operation op_a = operation(a), op_b = operation(b);
  const int m = static_cast<int>(a.rows), n = static_cast<int>(b.columns), k = static_cast<int>(a.columns);
  int status = cublas.set_stream(cublas.handle, stream);
  if (status == kSuccess)  // column-major: sums^T = b^T a^T
    status = cublas.gemm(cublas.handle, op_b.op, op_a.op, n, m, k, &one, b.data, type_of(b.dtype), op_b.leading, a.data,
                         type_of(a.dtype), op_a.leading, &zero, sums, kReal32, n, kCompute32, kDefaultAlgorithm);
  if (status != kSuccess) throw Error("[matmul] cuBLAS failed, got status " + std::to_string(status) + ", want 0");
}

}  // namespace ampcheck::kernels
