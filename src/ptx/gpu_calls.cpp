// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A launch is over when it returns, so whatever comes later comes in order: streams and events are names alone.
#include "src/ptx/gpu_calls.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "src/ptx/device_facts.h"
#include "src/ptx/gpu.h"

namespace ampcheck::ptx {

namespace {

using Extent = AmpcheckExtent;

thread_local CudaError last_error = CudaError::success;

int said(CudaError error) {
  if (error != CudaError::success) last_error = error;
  return static_cast<int>(error);
}
int done() { return 0; }

Gpu& gpu() { return Gpu::instance(); }

// ---- what a program registers: a handle is an address that is its own ----

void** add_binary(void* wrapper) {
  auto* const handle = static_cast<void**>(std::malloc(sizeof(void*)));
  *handle = wrapper;
  gpu().add_binary(handle, wrapper);
  return handle;
}
void end_binary(void**) {}
void remove_binary(void** handle) {
  gpu().remove_binary(handle);
  std::free(handle);
}
char init_module(void**) { return 1; }
void add_function(void** handle, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  gpu().add_function(handle, host, name);
}
void add_variable(void** handle, char* host, char*, const char* name, int, std::size_t, int, int) {
  gpu().add_variable(handle, host, name);
}

// ---- launches ----

struct Configuration {
  Extent grid, block;
  std::size_t shared;
  void* stream;
};
std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> all;
  return all;
}

unsigned push_configuration(Extent grid, Extent block, std::size_t shared, void* stream) {
  configurations().push_back({grid, block, shared, stream});
  return 0;
}
int pop_configuration(Extent* grid, Extent* block, std::size_t* shared, void* stream) {
  if (configurations().empty()) return said(CudaError::invalid_configuration);
  const Configuration last = configurations().back();
  configurations().pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  std::memcpy(stream, &last.stream, sizeof last.stream);
  return done();
}
int get_kernel(void** kernel, const void* function) {
  *kernel = const_cast<void*>(function);
  return gpu().knows(function) ? done() : said(CudaError::invalid_function);
}
int launch(const void* function, Extent grid, Extent block, void** arguments, std::size_t shared, void*) {
  return said(gpu().launch(function, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared}, arguments));
}
int launch_handle(void* kernel, Extent grid, Extent block, void** arguments, std::size_t shared, void* stream) {
  return launch(kernel, grid, block, arguments, shared, stream);
}
/// cudaLaunchConfig_t: extents, shared memory, stream, attributes and their number.
int launch_configured(const void* configuration, const void* function, void** arguments) {
  Configuration given;
  std::memcpy(&given, configuration, sizeof given);
  return launch(function, given.grid, given.block, arguments, given.shared, given.stream);
}
int set_function_attribute(const void* function, int attribute, int value) {
  constexpr int kMostShared = 8;  // cudaFuncAttributeMaxDynamicSharedMemorySize
  if (attribute != kMostShared) return done();
  return said(value < 0 ? CudaError::invalid_value : gpu().allow_shared(function, static_cast<std::size_t>(value)));
}
int set_cache(const void*, int) { return done(); }
int active_blocks(int* blocks, const void*, int threads, std::size_t) {
  *blocks = threads > 0 && threads <= 1024 ? 2048 / threads : 0;
  return done();
}
int active_blocks_flagged(int* blocks, const void* function, int threads, std::size_t shared, unsigned) {
  return active_blocks(blocks, function, threads, shared);
}

// ---- memory ----

int allocate(void** out, std::size_t bytes) {
  *out = gpu().allocate(bytes);
  return *out == nullptr ? said(CudaError::out_of_memory) : done();
}
int allocate_managed(void** out, std::size_t bytes, unsigned) { return allocate(out, bytes); }
int allocate_in_order(void** out, std::size_t bytes, void*) { return allocate(out, bytes); }
int allocate_host(void** out, std::size_t bytes) { return allocate(out, bytes); }
int allocate_host_flagged(void** out, std::size_t bytes, unsigned) { return allocate(out, bytes); }
int release_memory(void* memory) { return gpu().release(memory) ? done() : said(CudaError::invalid_value); }
int release_host(void* memory) { return release_memory(memory); }
int release_in_order(void* memory, void*) { return release_memory(memory); }

int copy(void* to, const void* from, std::size_t bytes, int) {
  if (bytes == 0) return done();
  if (!gpu().inside(from, bytes) || !gpu().touch(to, bytes)) return said(CudaError::invalid_value);
  std::memmove(to, from, bytes);
  return done();
}
int copy_in_order(void* to, const void* from, std::size_t bytes, int kind, void*) {
  return copy(to, from, bytes, kind);
}
int copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
              std::size_t height, int kind) {
  for (std::size_t i = 0; i < height; ++i)
    if (const int error =
            copy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * from_pitch, width, kind);
        error != 0)
      return error;
  return done();
}
int copy_rows_in_order(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                       std::size_t height, int kind, void*) {
  return copy_rows(to, to_pitch, from, from_pitch, width, height, kind);
}
int fill(void* memory, int value, std::size_t bytes) {
  if (bytes == 0) return done();
  if (!gpu().touch(memory, bytes)) return said(CudaError::invalid_value);
  std::memset(memory, value, bytes);
  return done();
}
int fill_in_order(void* memory, int value, std::size_t bytes, void*) { return fill(memory, value, bytes); }
int copy_to_symbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset, int) {
  std::uint8_t* const to = gpu().variable(symbol, offset, bytes);
  if (to == nullptr) return said(CudaError::invalid_symbol);
  std::memcpy(to, from, bytes);
  return done();
}
int copy_to_symbol_in_order(const void* symbol, const void* from, std::size_t bytes, std::size_t offset, int kind,
                            void*) {
  return copy_to_symbol(symbol, from, bytes, offset, kind);
}
int copy_from_symbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset, int) {
  const std::uint8_t* const from = gpu().variable(symbol, offset, bytes);
  if (from == nullptr) return said(CudaError::invalid_symbol);
  std::memcpy(to, from, bytes);
  return done();
}

// ---- streams, events, the device ----

int fresh(void** out) {
  static char names;
  *out = &names;
  return done();
}
int create_stream(void** stream) { return fresh(stream); }
int create_stream_flagged(void** stream, unsigned) { return fresh(stream); }
int create_stream_ranked(void** stream, unsigned, int) { return fresh(stream); }
int destroy_stream(void*) { return done(); }
int wait_for_stream(void*) { return done(); }
int query_stream(void*) { return done(); }
int wait_in_stream(void*, void*, unsigned) { return done(); }
int create_event(void** event) { return fresh(event); }
int create_event_flagged(void** event, unsigned) { return fresh(event); }
int destroy_event(void*) { return done(); }
int record_event(void*, void*) { return done(); }
int wait_for_event(void*) { return done(); }
int query_event(void*) { return done(); }
int time_between(float* milliseconds, void*, void*) {
  *milliseconds = 0;
  return done();
}
int wait_for_device() { return done(); }
int take_error() {
  const CudaError out = last_error;
  last_error = CudaError::success;
  return static_cast<int>(out);
}
int peek_error() { return static_cast<int>(last_error); }
int current_device(int* device) {
  *device = 0;
  return done();
}
int choose_device(int device) { return device == 0 ? done() : said(CudaError::invalid_value); }
int count_devices(int* count) {
  *count = 1;
  return done();
}

int device_attribute(int* value, int attribute, int) {
  *value = attribute_of_device(attribute);
  return done();
}
int device_properties(void* out, int device) {
  if (device != 0) return said(CudaError::invalid_value);
  return said(write_properties(out, gpu().ptx_version() >= 90 ? PropertyLayout::of_13 : PropertyLayout::of_11)
                  ? CudaError::success
                  : CudaError::invalid_value);
}
int device_properties_of_12(void* out, int device) {
  if (device != 0 || !write_properties(out, PropertyLayout::of_12)) return said(CudaError::invalid_value);
  return done();
}
int reset_device() { return done(); }
int memory_left(std::size_t* left, std::size_t* all) {
  *left = *all = kDeviceMemory;
  return done();
}
int runtime_version(int* version) {
  *version = gpu().ptx_version() >= 90 ? 13000 : 12000;
  return done();
}
int driver_version(int* version) { return runtime_version(version); }
int host_pointer(void** device, void* host, unsigned) {
  *device = host;
  return done();
}
int symbol_address(void** out, const void* symbol) {
  *out = gpu().variable(symbol, 0, 0);
  return *out == nullptr ? said(CudaError::invalid_symbol) : done();
}

// ---- what is refused by name ----

int refused(const char* what) { return said(gpu().refuse(CudaError::not_supported, std::string(what))); }
int launch_cooperative(const void*, Extent, Extent, void**, std::size_t, void*) {
  return refused(
      "got a cooperative launch, want an ordinary one: blocks run one after the other, so none can wait for all "
      "others");
}
constexpr const char* kGraphs = "got a CUDA graph, want its launches without one";
int begin_capture(void*, int) { return refused(kGraphs); }
int end_capture(void*, void** graph) {
  *graph = nullptr;
  return refused(kGraphs);
}
int is_capturing(void*, int* status) {
  *status = 0;
  return done();
}
int create_graph(void** graph, unsigned) {
  *graph = nullptr;
  return refused(kGraphs);
}
int instantiate_graph(void** out, void*, unsigned long long) {
  *out = nullptr;
  return refused(kGraphs);
}
int instantiate_graph_flagged(void** out, void* graph, unsigned long long flags) {
  return instantiate_graph(out, graph, flags);
}
int destroy_launchable(void*) { return done(); }
int launch_graph(void*, void*) { return refused(kGraphs); }
int destroy_graph(void*) { return done(); }

const char* error_name(int error) {
  switch (static_cast<CudaError>(error)) {
    case CudaError::success: return "cudaSuccess";
    case CudaError::invalid_value: return "cudaErrorInvalidValue";
    case CudaError::out_of_memory: return "cudaErrorMemoryAllocation";
    case CudaError::invalid_configuration: return "cudaErrorInvalidConfiguration";
    case CudaError::invalid_symbol: return "cudaErrorInvalidSymbol";
    case CudaError::invalid_function: return "cudaErrorInvalidDeviceFunction";
    case CudaError::launch_failed: return "cudaErrorLaunchFailure";
    case CudaError::not_supported: return "cudaErrorNotSupported";
  }
  return "cudaErrorUnknown";
}
const char* error_text(int error) {
  switch (static_cast<CudaError>(error)) {
    case CudaError::success: return "no error";
    case CudaError::invalid_value: return "invalid argument";
    case CudaError::out_of_memory: return "out of memory";
    case CudaError::invalid_configuration: return "invalid configuration argument";
    case CudaError::invalid_symbol: return "invalid device symbol";
    case CudaError::invalid_function: return "invalid device function";
    case CudaError::launch_failed: return "unspecified launch failure";
    case CudaError::not_supported: return "operation not supported";
  }
  return "unknown error";
}

}  // namespace

const AmpcheckCudaCalls& gpu_calls() {
  static constexpr AmpcheckCudaCalls kCalls = {
#define AMPCHECK_ANSWER(R, NAME, OWN, PARAMETERS, ARGUMENTS) &OWN,
      AMPCHECK_CUDA_CALLS(AMPCHECK_ANSWER)
#undef AMPCHECK_ANSWER
  };
  return kCalls;
}

}  // namespace ampcheck::ptx
