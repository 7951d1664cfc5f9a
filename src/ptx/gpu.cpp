// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "src/ptx/gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/launch_notes.h"
#include "src/ptx/fat_binary.h"
#include "src/ptx/text.h"

namespace ampcheck::ptx {

namespace {

constexpr std::size_t kAlignment = 256;  ///< of memory, as CUDA promises it
constexpr std::size_t kMostShared = 227 * 1024;
constexpr int kUsual = 80;  ///< instructions of later architectures are often those that device ptx lacks

std::atomic<bool> simulated = false;
thread_local GpuCall* current = nullptr;

/// What __cudaRegisterFatBinary is given.
struct Wrapper {
  std::uint32_t magic, version;
  const void* binary;
  const void* further;
};
constexpr std::uint32_t kWrapper = 0x466243b1u;

/// The newest text that is not newer than usual, or else the oldest.
const PtxText* usual(const std::vector<PtxText>& all) {
  const PtxText* out = nullptr;
  for (const PtxText& text : all) {
    const bool better = out == nullptr || (text.architecture <= kUsual
                                               ? out->architecture > kUsual || text.architecture > out->architecture
                                               : out->architecture > kUsual && text.architecture < out->architecture);
    if (better) out = &text;
  }
  return out;
}

/// "rms_norm.so": who holds the binary, for messages where no source line is known.
std::string holder(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "kernels.ptx";
  const std::string path = info.dli_fname;
  return path.substr(path.rfind('/') + 1) + ".ptx";
}

}  // namespace

bool simulates_gpu() { return simulated.load(std::memory_order_relaxed); }
void simulate_gpu(bool on) { simulated = on; }

GpuCall::GpuCall(std::vector<Region> tensors, const std::atomic<bool>* cancel)
    : tensors_(std::move(tensors)), cancel_(cancel), outer_(current) {
  current = this;
}
GpuCall::~GpuCall() { current = outer_; }

void GpuCall::finish() {
  if (!trouble_.empty()) throw Error("[device ptx] " + trouble_);
  if (launches_ == 1)  // what one launch leaves unwritten another one may write
    for (LaunchFact& fact : unwritten_) keep_launch_fact(std::move(fact));
}

bool on_simulated_gpu() { return current != nullptr; }

Gpu& Gpu::instance() {
  static Gpu* const all = new Gpu;
  return *all;
}

// ---- what a program registers ----

void Gpu::add_binary(const void* handle, const void* wrapper) {
  const std::lock_guard lock(mutex_);
  auto binary = std::make_shared<Binary>();
  binary->wrapper = wrapper;
  binaries_[handle] = std::move(binary);
  last_binary_ = handle;
}

void Gpu::remove_binary(const void* handle) {
  const std::lock_guard lock(mutex_);
  const auto found = binaries_.find(handle);
  if (found == binaries_.end()) return;
  for (auto* const map : {&functions_, &variables_})
    std::erase_if(*map, [&](const auto& known) { return known.second.binary == found->second; });
  binaries_.erase(found);
}

std::shared_ptr<Gpu::Binary> Gpu::binary_of(const void* handle) {
  const auto found = binaries_.find(handle);
  return found == binaries_.end() ? nullptr : found->second;
}

void Gpu::add_function(const void* handle, const void* host, const char* name) {
  const std::lock_guard lock(mutex_);
  if (auto binary = binary_of(handle)) functions_[host] = {std::move(binary), name};
}

void Gpu::add_variable(const void* handle, const void* host, const char* name) {
  const std::lock_guard lock(mutex_);
  if (auto binary = binary_of(handle)) variables_[host] = {std::move(binary), name};
}

bool Gpu::knows(const void* function) {
  const std::lock_guard lock(mutex_);
  return functions_.contains(function);
}

void Gpu::make_program(Binary& binary) {
  if (binary.program != nullptr) return;
  const auto* const wrapper = static_cast<const Wrapper*>(binary.wrapper);
  if (wrapper == nullptr || wrapper->magic != kWrapper) throw PtxError("[fat binary] got none, want what nvcc embeds");
  const std::vector<PtxText> all = ptx_of_fat_binary(wrapper->binary);
  const PtxText* const text = usual(all);
  const std::string name = holder(wrapper);
  if (text == nullptr)
    throw PtxError("[" + name +
                   "] got machine code alone, want PTX beside it: nvcc -gencode arch=compute_80,code=compute_80");
  binary.program = decode(parse(text->text, name), decode_options());
  binary.globals = binary.program->globals;
}

// ---- memory ----

void* Gpu::allocate(std::size_t bytes) {
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* const out = size < bytes ? nullptr : std::aligned_alloc(kAlignment, size);
  if (out == nullptr) return nullptr;
  std::memset(out, 0xff, size);  // NaN until something is written
  const std::lock_guard lock(mutex_);
  allocations_[reinterpret_cast<std::uintptr_t>(out)] = {bytes, ++allocated_, false};
  return out;
}

bool Gpu::release(void* memory) {
  if (memory == nullptr) return true;
  {
    const std::lock_guard lock(mutex_);
    if (allocations_.erase(reinterpret_cast<std::uintptr_t>(memory)) == 0) return false;
  }
  std::free(memory);
  return true;
}

bool Gpu::inside(const void* memory, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  auto above = allocations_.upper_bound(address);
  if (above == allocations_.begin()) return true;  // of the host, or a tensor
  const auto& [first, allocation] = *--above;
  const std::uintptr_t offset = address - first;
  return offset >= allocation.bytes || bytes <= allocation.bytes - offset;
}

bool Gpu::touch(const void* memory, std::size_t bytes) {
  if (!inside(memory, bytes)) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  auto above = allocations_.upper_bound(address);
  if (above == allocations_.begin()) return true;
  auto& [first, allocation] = *--above;
  if (address - first < allocation.bytes) allocation.written = true;
  return true;
}

std::uint8_t* Gpu::variable(const void* host, std::size_t offset, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = variables_.find(host);
  if (found == variables_.end()) return nullptr;
  Binary& binary = *found->second.binary;
  try {
    make_program(binary);
  } catch (const Error& error) {
    refuse(CudaError::invalid_symbol, error.what());
    return nullptr;
  }
  for (const auto& named : binary.program->global_names)
    if (named.name == found->second.name && offset <= named.bytes && bytes <= named.bytes - offset)
      return binary.globals.data() + named.at + offset;
  return nullptr;
}

// ---- launches ----

CudaError Gpu::refuse(CudaError error, const std::string& why) {
  if (current == nullptr)
    std::fprintf(stderr, "device ptx: %s\n", why.c_str());
  else if (current->trouble_.empty())
    current->trouble_ = why;
  return error;
}

int Gpu::ptx_version() {
  const std::lock_guard lock(mutex_);
  const auto binary = binary_of(last_binary_);
  if (binary == nullptr) return 0;
  try {
    make_program(*binary);
  } catch (const Error&) {
    return 0;
  }
  return binary->program->text.version;
}

CudaError Gpu::allow_shared(const void* function, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = functions_.find(function);
  if (found == functions_.end()) return CudaError::invalid_function;
  if (bytes > kMostShared) return CudaError::invalid_value;
  found->second.most_shared = std::max<std::size_t>(bytes, 48 * 1024);
  return CudaError::success;
}

std::vector<Region> Gpu::memory_of(const GpuCall* call) {
  std::vector<Region> out;
  if (call != nullptr) out = call->tensors_;
  for (const auto& [address, allocation] : allocations_)
    out.push_back(
        {"allocation " + std::to_string(allocation.number) + " of " + std::to_string(allocation.bytes) + " bytes",
         address, allocation.bytes, allocation.written});
  return out;
}

void Gpu::launched(GpuCall* call, Outcome outcome) {
  for (LaunchNote& note : outcome.notes) note_launch(std::move(note));
  keep_line_errors(outcome.lines);
  {
    const std::lock_guard lock(mutex_);
    for (auto& [address, allocation] : allocations_) allocation.written = true;
  }
  if (call == nullptr) return;
  ++call->launches_;
  // What one kernel has left out is not known to the next: it sees memory that may hold something.
  for (Region& tensor : call->tensors_) tensor.initialised = true;
  call->unwritten_.clear();
  for (LaunchFact& fact : outcome.facts)
    if (fact.kind == LaunchFact::Kind::unwritten)
      call->unwritten_.push_back(std::move(fact));
    else
      keep_launch_fact(std::move(fact));
  if (outcome.cancelled) call->trouble_ = "the kernel did not end in time";
}

CudaError Gpu::launch(const void* function, const Extents& extents, void** arguments) {
  Function known;
  std::vector<Region> regions;
  {
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(function);
    if (found == functions_.end())
      return refuse(CudaError::invalid_function, "got a launch of a kernel that nothing has registered");
    known = found->second;
    regions = memory_of(current);
    try {
      make_program(*known.binary);
    } catch (const Error& error) {
      return refuse(CudaError::invalid_function, error.what());
    }
  }
  const Program& program = *known.binary->program;
  const Routine* const kernel = program.entry(known.name);
  if (kernel == nullptr) return refuse(CudaError::invalid_function, "got no PTX of kernel '" + known.name + "'");
  if (extents.shared > known.most_shared)
    return refuse(CudaError::invalid_value, "kernel '" + known.name + "': got " + std::to_string(extents.shared) +
                                                " bytes of dynamic shared memory, want at most " +
                                                std::to_string(known.most_shared) +
                                                " (more by cudaFuncSetAttribute, up to 227 KiB)");
  Launch launch;
  launch.grid = extents.grid;
  launch.block = extents.block;
  launch.dynamic_shared = static_cast<std::uint32_t>(extents.shared);
  launch.regions = std::move(regions);
  launch.schedule = next_schedule();
  launch.follow = wants_line_errors(known.name);
  launch.globals = &known.binary->globals;
  launch.params.resize(kernel->param_bytes + 16);
  for (std::size_t i = 0; i < kernel->params.size(); ++i)
    std::memcpy(launch.params.data() + kernel->param_at[i], arguments[i], kernel->params[i].bytes);
  if (current != nullptr && current->cancel_ != nullptr)
    launch.cancelled = [cancel = current->cancel_] { return cancel->load(std::memory_order_relaxed); };
  std::unique_lock<std::mutex> alone(known.binary->running, std::defer_lock);
  if (!program.global_names.empty()) alone.lock();
  try {
    Outcome outcome = run(program, known.name, launch);
    launched(current, std::move(outcome));
    return CudaError::success;
  } catch (const PtxError& error) {
    return refuse(CudaError::invalid_configuration, error.what());
  }
}

}  // namespace ampcheck::ptx
