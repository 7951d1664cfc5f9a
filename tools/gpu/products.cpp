// SPDX-License-Identifier: Apache-2.0
// Times of square cuBLAS products. "Several times faster in fp16" and "multiples of 8" are said of these.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#include "tools/gpu/probe.h"

namespace ampcheck::gpu {

namespace {

void check(int status, const char* what) {
  if (status != 0)
    throw std::runtime_error(std::string("[") + what + "] got status " + std::to_string(status) + ", want 0");
}

/// The few declarations of cublas_v2.h that are used; numbers are those of library_types.h and cublas_api.h.
class Cublas {
 public:
  Cublas() {
    for (const char* file : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"})
      if (library_ == nullptr) library_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error("[products] got no libcublas that can be loaded, want one");
    const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library_, "cublasCreate_v2"));
    gemm_ = reinterpret_cast<Gemm>(dlsym(library_, "cublasGemmEx"));
    if (create == nullptr || gemm_ == nullptr)
      throw std::runtime_error("[products] got a libcublas without cublasGemmEx");
    check(create(&handle_), "cublasCreate");
  }
  void gemm(int n, int type, int compute, const void* alpha, const void* beta, const void* a, const void* b, void* c) {
    check(gemm_(handle_, 1, 0, n, n, n, alpha, a, type, n, b, type, n, beta, c, type, n, compute, -1), "cublasGemmEx");
  }

 private:
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                       const void*, void*, int, int, int, int);
  void *library_ = nullptr, *handle_ = nullptr;
  Gemm gemm_ = nullptr;
};

struct Kind {
  const char* name;
  int type, compute;
  int bytes;
};
constexpr Kind kKinds[] = {
    {"fp16", 2, 68, 2}, {"bf16", 14, 68, 2}, {"tf32", 0, 77, 4}, {"fp32", 0, 68, 4}, {"fp64", 1, 70, 8}};

/// Device memory with normal-like values: zeros would draw less power and run faster.
class Operand {
 public:
  Operand(const Kind& kind, std::size_t count) {
    check(cudaMalloc(&data, count * static_cast<std::size_t>(kind.bytes)), "cudaMalloc");
    std::vector<unsigned char> host(count * static_cast<std::size_t>(kind.bytes));
    std::uint64_t state = 1;
    for (std::size_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double value = static_cast<double>(static_cast<std::int64_t>(state)) * 0x1p-63;
      const auto f = static_cast<float>(value);
      const auto bits = std::bit_cast<std::uint32_t>(f);
      if (kind.bytes == 8) std::memcpy(&host[8 * i], &value, 8);
      if (kind.bytes == 4) std::memcpy(&host[4 * i], &f, 4);
      // Sixteen random bits with a small exponent will do for either 16-bit type.
      const auto low = static_cast<std::uint16_t>(
          kind.type == 14 ? bits >> 16 : (bits >> 16 & 0x8000u) | 0x3400u | (bits >> 13 & 0x3ffu));
      if (kind.bytes == 2) std::memcpy(&host[2 * i], &low, 2);
    }
    check(cudaMemcpy(data, host.data(), host.size(), cudaMemcpyHostToDevice), "copy to the device");
  }
  ~Operand() { cudaFree(data); }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  void* data = nullptr;
};

/// Seconds of a product, the fastest of `rounds`.
double seconds_of(Cublas& cublas, const Kind& kind, int n, const Operand& a, const Operand& b, const Operand& c,
                  int rounds) {
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const bool wide = kind.type == 1;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  float best = 1e30f;
  for (int i = 0; i < rounds + 1; ++i) {
    check(cudaEventRecord(begin), "cudaEventRecord");
    cublas.gemm(n, kind.type, kind.compute, wide ? static_cast<const void*>(&one64) : &one,
                wide ? static_cast<const void*>(&zero64) : &zero, a.data, b.data, c.data);
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "product");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i > 0) best = std::min(best, ms);  // the first one loads the kernel
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(best) * 1e-3;
}

double teraflops(double seconds, int n) { return 2.0 * n * n * n / seconds * 1e-12; }

std::string text(const char* format, auto... values) {
  char out[200];
  std::snprintf(out, sizeof out, format, values...);
  return out;
}

}  // namespace

Json products() {
  constexpr int kLarge = 8192, kMiddle = 4096, kAround = 8;
  Cublas cublas;
  Json types = Json::array(), extents = Json::array();
  std::map<std::string, double> large;
  for (const Kind& kind : kKinds) {
    const std::size_t count = static_cast<std::size_t>(kLarge) * kLarge;
    const Operand a(kind, count), b(kind, count), c(kind, count);
    const double t = seconds_of(cublas, kind, kLarge, a, b, c, 5);
    large[kind.name] = t;
    types.push_back({{"type", kind.name}, {"n", kLarge}, {"seconds", t}, {"tflops", teraflops(t, kLarge)}});
    if (kind.type == 1 || kind.type == 14) continue;
    double aligned = 0, odd = 0;
    for (int n = kMiddle - kAround; n <= kMiddle + kAround; ++n) {
      const double near = seconds_of(cublas, kind, n, a, b, c, 5);
      extents.push_back({{"type", kind.name}, {"n", n}, {"seconds", near}, {"tflops", teraflops(near, n)}});
      double& best = n % 8 == 0 ? aligned : odd;
      if (n % 8 == 0 || n % 2 == 1) best = std::max(best, teraflops(near, n));
    }
    say(text("%s: multiples of 8 near %d at most %.0f TFLOP/s, odd extents %.0f: %.2f times", kind.name, kMiddle,
             aligned, odd, aligned / odd));
  }
  for (const auto& [name, t] : large)
    say(text("%s, n = %d: %.2f ms, %.0f TFLOP/s", name.c_str(), kLarge, t * 1e3, teraflops(t, kLarge)));
  say(text("fp16 is %.1f times as fast as fp32, %.1f times as tf32, %.1f times as fp64", large["fp32"] / large["fp16"],
           large["tf32"] / large["fp16"], large["fp64"] / large["fp16"]));
  return {{"types", types}, {"extents", extents}};
}

}  // namespace ampcheck::gpu
