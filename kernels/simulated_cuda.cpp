// SPDX-License-Identifier: Apache-2.0
// The linker sends the CUDA runtime's calls of our kernels here (--wrap, CMakeLists.txt). While a thread is on device
// ptx the simulated GPU answers; else the runtime itself does.
#if AMPCHECK_HAS_CUDA

#include <map>
#include <mutex>

#include "src/ptx/gpu.h"
#include "src/ptx/gpu_calls.h"

namespace {

using ampcheck::ptx::gpu_calls;
using ampcheck::ptx::on_simulated_gpu;

/// The runtime keeps one handle for each kernel, made on first use: it has to be good on both devices.
struct Handles {
  std::mutex mutex;
  std::map<const void*, const void*> functions;
};
Handles& handles() {
  static Handles* const all = new Handles;
  return *all;
}

}  // namespace

extern "C" {

#define AMPCHECK_REAL(R, NAME, OWN, PARAMETERS, ARGUMENTS) R __real_##NAME PARAMETERS;
AMPCHECK_CUDA_REGISTRATIONS(AMPCHECK_REAL)
AMPCHECK_CUDA_HANDLES(AMPCHECK_REAL)
AMPCHECK_CUDA_OWN(AMPCHECK_REAL)

void** __wrap___cudaRegisterFatBinary(void* wrapper) {
  void** const handle = __real___cudaRegisterFatBinary(wrapper);
  ampcheck::ptx::Gpu::instance().add_binary(handle, wrapper);
  return handle;
}
void __wrap___cudaRegisterFatBinaryEnd(void** handle) { __real___cudaRegisterFatBinaryEnd(handle); }
void __wrap___cudaUnregisterFatBinary(void** handle) {
  ampcheck::ptx::Gpu::instance().remove_binary(handle);
  __real___cudaUnregisterFatBinary(handle);
}
void __wrap___cudaRegisterFunction(void** handle, const char* host, char* device, const char* name, int threads,
                                   void* thread, void* block, void* block_extent, void* grid_extent, int* warp) {
  ampcheck::ptx::Gpu::instance().add_function(handle, host, name);
  __real___cudaRegisterFunction(handle, host, device, name, threads, thread, block, block_extent, grid_extent, warp);
}

int __wrap___cudaGetKernel(void** kernel, const void* function) {
  const int error = __real___cudaGetKernel(kernel, function);
  if (error != 0 && !on_simulated_gpu()) return error;
  if (error != 0) *kernel = const_cast<void*>(function);  // no GPU: nobody else will want it
  const std::lock_guard lock(handles().mutex);
  handles().functions[*kernel] = function;
  return 0;
}
int __wrap___cudaLaunchKernel(void* kernel, AmpcheckExtent grid, AmpcheckExtent block, void** arguments,
                              std::size_t shared, void* stream) {
  if (!on_simulated_gpu()) return __real___cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
  const void* function = kernel;
  {
    const std::lock_guard lock(handles().mutex);
    if (const auto known = handles().functions.find(kernel); known != handles().functions.end())
      function = known->second;
  }
  return gpu_calls().launch(function, grid, block, arguments, shared, stream);
}

#define AMPCHECK_CHOOSE(R, NAME, OWN, PARAMETERS, ARGUMENTS) \
  R __wrap_##NAME PARAMETERS { return on_simulated_gpu() ? gpu_calls().OWN ARGUMENTS : __real_##NAME ARGUMENTS; }
AMPCHECK_CUDA_OWN(AMPCHECK_CHOOSE)
#undef AMPCHECK_CHOOSE
#undef AMPCHECK_REAL
}

#endif
