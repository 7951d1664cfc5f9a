// SPDX-License-Identifier: Apache-2.0
// run_program PROGRAM.so [ARGUMENTS]: runs the main() of a CUDA program on device ptx and says what was found there.
// PROGRAM is built with nvcc -shared -cudart none, so that its calls of the CUDA runtime come to the stand-in. A handle
// of cuBLAS it gets too, and no product.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
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
}

namespace {

void say_notes() {
  for (const ampcheck::LaunchNote& note : ampcheck::take_launch_notes())
    if (note.code != ampcheck::Code::none)
      std::fprintf(stderr, "finding: %s %s\n", ampcheck::name(note.code), note.text.c_str());
}

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
  std::atexit(say_notes);  // a program that fails may end by exit()
  void* const library = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
  const auto program = library == nullptr ? nullptr : reinterpret_cast<int (*)(int, char**)>(dlsym(library, "main"));
  if (program == nullptr) {
    std::fprintf(stderr, "run_program: got '%s', %s\n", argv[1], library == nullptr ? dlerror() : "which has no main()");
    return 6;
  }
  return program(argc - 1, argv + 1);
}
