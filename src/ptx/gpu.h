// SPDX-License-Identifier: Apache-2.0
// The simulated GPU of this process, as programs that call the CUDA runtime see it: kernels that they have registered,
// memory that they have asked for, launches in order. src/ptx/gpu_calls.h has the calls themselves.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/ptx/run.h"

namespace ampcheck::ptx {

/// What the runtime returns; the numbers are those of CUDA.
enum class CudaError : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  invalid_configuration = 9,
  invalid_symbol = 13,
  invalid_function = 98,
  launch_failed = 719,
  not_supported = 801,
};

/// Whether device cuda is the simulated GPU in this process.
bool simulates_gpu();
void simulate_gpu(bool on);

/// While one lives, the launches of this thread run on device ptx, and may use these tensors beside what was allocated.
class GpuCall {
 public:
  /// `tensors`: at addresses of the host; `cancel` may be null.
  GpuCall(std::vector<Region> tensors, const std::atomic<bool>* cancel);
  ~GpuCall();
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;
  /// Behind the kernel: throws Error for a launch that could not be, and keeps what was found out.
  void finish();
  /// Why a launch could not be; empty if all could.
  const std::string& trouble() const { return trouble_; }
  std::int64_t launches() const { return launches_; }

 private:
  friend class Gpu;
  std::vector<Region> tensors_;
  const std::atomic<bool>* cancel_;
  GpuCall* outer_;
  std::string trouble_ = {};
  std::int64_t launches_ = 0;
  std::vector<LaunchFact> unwritten_ = {};
};

/// True while a GpuCall of this thread lives.
bool on_simulated_gpu();

class Gpu {
 public:
  /// Never destroyed: libraries take leave of it while the program ends.
  static Gpu& instance();

  // ---- what a program registers ----
  void add_binary(const void* handle, const void* wrapper);
  void remove_binary(const void* handle);
  void add_function(const void* handle, const void* host, const char* name);
  void add_variable(const void* handle, const void* host, const char* name);

  // ---- memory ----
  void* allocate(std::size_t bytes);
  bool release(void* memory);
  /// That something was put there. False if it lies partly outside of what was allocated.
  bool touch(const void* memory, std::size_t bytes);
  bool inside(const void* memory, std::size_t bytes);
  /// Where a variable of a module lies, or null.
  std::uint8_t* variable(const void* host, std::size_t offset, std::size_t bytes);

  // ---- launches ----
  struct Extents {
    std::array<std::uint32_t, 3> grid, block;
    std::size_t shared = 0;
  };
  CudaError launch(const void* function, const Extents& extents, void** arguments);
  bool knows(const void* function);
  CudaError allow_shared(const void* function, std::size_t bytes);
  /// Keeps why a call fails: its case says so, or stderr where no case runs.
  CudaError refuse(CudaError error, const std::string& why);
  /// 83 for PTX 8.3, of the kernels that came last: it tells which toolkit has built them.
  int ptx_version();

 private:
  struct Binary {
    const void* wrapper = nullptr;
    std::shared_ptr<const Program> program = {};
    std::vector<std::uint8_t> globals = {};
    std::mutex running = {};  ///< of launches that share its variables
  };
  struct Function {
    std::shared_ptr<Binary> binary;
    std::string name;
    std::size_t most_shared = 48 * 1024;
  };
  struct Allocation {
    std::size_t bytes = 0;
    std::int64_t number = 0;
    bool written = false;
  };
  std::shared_ptr<Binary> binary_of(const void* handle);
  void make_program(Binary& binary);
  std::vector<Region> memory_of(const GpuCall* call);
  void launched(GpuCall* call, Outcome outcome);

  std::mutex mutex_;
  std::map<const void*, std::shared_ptr<Binary>> binaries_;
  std::map<const void*, Function> functions_;
  std::map<const void*, Function> variables_;
  std::map<std::uintptr_t, Allocation> allocations_;
  std::int64_t allocated_ = 0;
  const void* last_binary_ = nullptr;
};

}  // namespace ampcheck::ptx
