// SPDX-License-Identifier: Apache-2.0
// run_program PROGRAM.so [ARGUMENTS]: runs the main() of a CUDA program on device ptx and says what was found there.
// PROGRAM is built with nvcc -shared -cudart none, so that its calls of the CUDA runtime come to the stand-in. Of
// cuBLAS it gets a handle and products of f32, as plain sums; no other call.
#include <dlfcn.h>

#include <cstdio>
#include <exception>

#include "src/launch_notes.h"
#include "src/ptx/gpu.h"
#include "src/ptx/stand_in.h"

extern "C" {
int cublasCreate_v2(void** handle) {
  *handle = handle;
  return 0;
}
int cublasLtCreate(void** handle) {
  *handle = handle;
  return 0;
}
int cublasSetMathMode(void*, int) { return 0; }
int cublasDestroy_v2(void*) { return 0; }
int cublasLtDestroy(void*) { return 0; }

/// C = alpha op(A) op(B) + beta C, by columns; op: 0 as it is, 1 transposed.
int cublasSgemmStridedBatched(void*, int op_a, int op_b, int m, int n, int k, const float* alpha, const float* a,
                              int lda, long long stride_a, const float* b, int ldb, long long stride_b,
                              const float* beta, float* c, int ldc, long long stride_c, int batches) {
  const auto at = [](int row, int column, int ld, int op) {
    return op == 0 ? row + static_cast<long long>(column) * ld : column + static_cast<long long>(row) * ld;
  };
  for (int batch = 0; batch < batches; ++batch, a += stride_a, b += stride_b, c += stride_c)
    for (int column = 0; column < n; ++column)
      for (int row = 0; row < m; ++row) {
        float sum = 0;
        for (int i = 0; i < k; ++i) sum += a[at(row, i, lda, op_a)] * b[at(i, column, ldb, op_b)];
        float& to = c[at(row, column, ldc, 0)];
        to = *alpha * sum + (*beta == 0 ? 0 : *beta * to);
        ampcheck::ptx::Gpu::instance().touch(&to, sizeof to);
      }
  return 0;
}
int cublasSgemm_v2(void* handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const float* a, int lda,
                   const float* b, int ldb, const float* beta, float* c, int ldc) {
  return cublasSgemmStridedBatched(handle, op_a, op_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}
}

namespace {

/// Says what was found when its thread ends, also by exit(): what came into being before it is still there then.
struct LastWord {
  LastWord() { ampcheck::take_launch_notes(); }
  ~LastWord() {
    for (const ampcheck::LaunchNote& note : ampcheck::take_launch_notes())
      if (note.code != ampcheck::Code::none)
        std::fprintf(stderr, "finding: %s %s\n", ampcheck::name(note.code), note.text.c_str());
  }
  LastWord(const LastWord&) = delete;
  LastWord& operator=(const LastWord&) = delete;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: run_program PROGRAM.so [ARGUMENTS]\n");
    return 2;
  }
  try {
    ampcheck::ptx::stand_in_for_cuda();
    ampcheck::ptx::simulate_gpu(true);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run_program: %s\n", error.what());
    return 6;
  }
  static thread_local const LastWord kLastWord;
  void* const library = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
  const auto program = library == nullptr ? nullptr : reinterpret_cast<int (*)(int, char**)>(dlsym(library, "main"));
  if (program == nullptr) {
    std::fprintf(stderr, "run_program: got '%s', %s\n", argv[1],
                 library == nullptr ? dlerror() : "which has no main()");
    return 6;
  }
  return program(argc - 1, argv + 1);
}
