// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "src/ptx/stand_in.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "src/error.h"
#include "src/ptx/gpu_calls.h"

// The library as bytes: it is there wherever the program is.
asm(".section .rodata\n"
    ".balign 16\n"
    "ampcheck_cudart_begin:\n"
    ".incbin \"" AMPCHECK_CUDART
    "\"\n"
    "ampcheck_cudart_end:\n"
    ".previous\n");
extern "C" const char ampcheck_cudart_begin[], ampcheck_cudart_end[];

namespace ampcheck::ptx {

namespace {

struct File {
  int descriptor = -1;
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
};

[[noreturn]] void fail(const std::string& what) {
  throw EnvironmentError("[device ptx] the stand-in for the CUDA runtime cannot be loaded: " + what);
}

void* load() {
  const File file{memfd_create("ampcheck_cudart.so", MFD_CLOEXEC)};
  const auto size = static_cast<std::size_t>(ampcheck_cudart_end - ampcheck_cudart_begin);
  for (std::size_t put = 0; put < size;) {
    const ssize_t more = file.descriptor < 0 ? -1 : write(file.descriptor, ampcheck_cudart_begin + put, size - put);
    if (more <= 0) fail("no memory for it");
    put += static_cast<std::size_t>(more);
  }
  // In front of libraries that come later: theirs are looked up here first.
  void* const library = dlopen(("/proc/self/fd/" + std::to_string(file.descriptor)).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) fail(dlerror());
  using Answer = void (*)(const AmpcheckCudaCalls*);
  const auto answer = reinterpret_cast<Answer>(dlsym(library, "ampcheck_answer_cuda"));
  if (answer == nullptr) fail("it is not whole");
  answer(&gpu_calls());
  return library;
}

}  // namespace

void stand_in_for_cuda() { [[maybe_unused]] static void* const kLibrary = load(); }

}  // namespace ampcheck::ptx
