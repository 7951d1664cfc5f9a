// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/doors/launcher.h"

#include <dlfcn.h>
#include <ffi.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>

#include "checks/doors/loading.h"
#include "kernels/device.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 34;
constexpr std::size_t kGuard = 256;  ///< bytes on each side of a workspace
constexpr int kUnwritten = 0xff;     ///< a NaN in every float format: a kernel that counts on zeros shows
constexpr unsigned char kGuardByte = 0xa5;

ffi_type* ffi_of(LauncherArgument::Type type) {
  switch (type) {
    case LauncherArgument::Type::pointer: return &ffi_type_pointer;
    case LauncherArgument::Type::boolean: return &ffi_type_uint8;
    case LauncherArgument::Type::i32: return &ffi_type_sint32;
    case LauncherArgument::Type::u32: return &ffi_type_uint32;
    case LauncherArgument::Type::i64: return &ffi_type_sint64;
    case LauncherArgument::Type::u64: return &ffi_type_uint64;
    case LauncherArgument::Type::f32: return &ffi_type_float;
    case LauncherArgument::Type::f64: return &ffi_type_double;
  }
  return &ffi_type_void;
}

/// Scratch memory of one call, on the device of the call.
class Workspace {
 public:
  Workspace(const ac_call& call, std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    if (bytes < 0 || bytes > kMostWorkspace)
      throw Error("workspace, got " + std::to_string(bytes) + " bytes, want 0 to 2^34");
    if (call.device.type == AC_CUDA) {
      device_ = kernels::allocate_on_device(std::max<std::size_t>(bytes_, 1));
      const std::vector<unsigned char> fill(bytes_, static_cast<unsigned char>(kUnwritten));
      kernels::copy_to_device(device_.get(), fill.data(), bytes_);
      return;
    }
    host_ = static_cast<unsigned char*>(call.host->alloc(call.host->context, bytes_ + 2 * kGuard, 256));
    if (host_ == nullptr) throw Error("workspace, got no memory for " + std::to_string(bytes) + " bytes");
    std::memset(host_, kGuardByte, bytes_ + 2 * kGuard);
    std::memset(host_ + kGuard, kUnwritten, bytes_);
  }

  void* data() const { return host_ != nullptr ? host_ + kGuard : device_.get(); }
  bool overrun() const {
    if (host_ == nullptr) return false;
    const auto changed = [](unsigned char byte) { return byte != kGuardByte; };
    return std::any_of(host_, host_ + kGuard, changed) ||
           std::any_of(host_ + kGuard + bytes_, host_ + 2 * kGuard + bytes_, changed);
  }

 private:
  std::size_t bytes_;
  unsigned char* host_ = nullptr;
  std::shared_ptr<void> device_;
};

/// A copy of an int64 tensor in int32, at the same strides, on the device of the call.
class NarrowedTensor {
 public:
  NarrowedTensor(const ac_call& call, const ac_tensor& from, const std::string& argument) : argument_(argument) {
    for (int i = 0; i < from.dl.ndim; ++i) {
      if (from.dl.shape[i] == 0) return;
      const std::int64_t reach = (from.dl.shape[i] - 1) * from.dl.strides[i];
      reach < 0 ? lowest_ += reach : span_ += reach;
    }
    span_ += 1 - lowest_;
    const auto count = static_cast<std::size_t>(span_);
    std::vector<std::int64_t> wide;
    const std::int64_t* data = static_cast<const std::int64_t*>(from.dl.data) + lowest_;
    if (call.device.type == AC_CUDA) {
      wide.resize(count);
      kernels::copy_to_host(wide.data(), data, count * sizeof(std::int64_t));
      data = wide.data();
    }
    // What lies between the elements is filled too: a kernel with the wrong strides then reads no index.
    narrow_.assign(count, std::numeric_limits<std::int32_t>::min());
    fill(from.dl, data, 0, -lowest_);
    if (call.device.type == AC_CUDA) {
      device_ = kernels::allocate_on_device(count * sizeof(std::int32_t));
      kernels::copy_to_device(device_.get(), narrow_.data(), count * sizeof(std::int32_t));
    } else {
      passed_ = narrow_;
    }
  }

  const void* data() const {
    if (device_ != nullptr) return static_cast<const std::int32_t*>(device_.get()) - lowest_;
    return passed_.empty() ? nullptr : passed_.data() - lowest_;
  }
  bool changed() const { return device_ == nullptr && passed_ != narrow_; }

 private:
  void fill(const ac_dltensor& from, const std::int64_t* data, int axis, std::int64_t at) {
    if (axis < from.ndim) {
      for (std::int64_t i = 0; i < from.shape[axis]; ++i) fill(from, data, axis + 1, at + i * from.strides[axis]);
      return;
    }
    const std::int64_t value = data[at];
    if (value != static_cast<std::int32_t>(value))
      throw Error("argument '" + argument_ + "', got " + std::to_string(value) + ", want -2147483648 to 2147483647");
    narrow_[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(value);
  }

  std::string argument_;
  std::int64_t lowest_ = 0, span_ = 0;  ///< in elements
  std::vector<std::int32_t> narrow_, passed_;
  std::shared_ptr<void> device_;
};

}  // namespace

void* LauncherLibrary::symbol(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) {
    if (std::error_code error; !std::filesystem::is_regular_file(path_, error))
      throw EnvironmentError("[library] got '" + path_ + "', which is no file, want a shared library");
    const Loading loading(path_);
    handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      const char* why = dlerror();
      throw EnvironmentError("[library] got '" + path_ +
                             "', which cannot be loaded: " + (why == nullptr ? "no reason given" : why));
    }
  }
  void* found = dlsym(handle_, name.c_str());
  if (found == nullptr)
    throw Error("symbol '" + name + "', got none in '" + path_ +
                "', want one that it exports (nm -D lists them; in C++ it has to be extern \"C\")");
  return found;
}

struct Launcher::Interface {
  ffi_cif cif{};
  std::vector<ffi_type*> types;
};

Launcher::Launcher(LauncherDescription description, const ArgumentNames& names)
    : description_(std::move(description)), names_(names), interface_(std::make_unique<Interface>()) {
  for (const LauncherArgument& argument : description_.arguments) interface_->types.push_back(ffi_of(argument.type()));
  ffi_type* const result = description_.returns_status ? &ffi_type_sint32 : &ffi_type_void;
  if (ffi_prep_cif(&interface_->cif, FFI_DEFAULT_ABI, static_cast<unsigned>(interface_->types.size()), result,
                   interface_->types.data()) != FFI_OK)
    throw Error("arguments, got a list that libffi cannot call");
}

Launcher::~Launcher() = default;

void Launcher::resolve() {
  for (const auto& [storage, symbol] : description_.symbols) description_.library->symbol(symbol);
}

std::int32_t Launcher::run(const ac_call& call) {
  try {
    return call_symbol(call);
  } catch (const std::exception& error) {  // what the file asks for does not fit this call
    call.host->set_error(call.host->context, error.what());
    return -1;
  }
}

std::int32_t Launcher::call_symbol(const ac_call& call) {
  const auto any = description_.symbols.find(0), own = description_.symbols.find(call.storage);
  const std::string& symbol = own != description_.symbols.end() ? own->second : any->second;
  void* const function = description_.library->symbol(symbol);
  ArgumentContext context{call, names_};
  std::optional<Workspace> workspace;
  if (description_.workspace) {
    context.workspace_bytes = static_cast<std::int64_t>(description_.workspace->evaluate(context, true));
    workspace.emplace(call, context.workspace_bytes);
    context.workspace = workspace->data();
  }
  std::vector<LauncherArgument::Value> values;
  std::deque<NarrowedTensor> narrowed;  // of one tensor for each argument that has it: addresses stay
  for (const LauncherArgument& argument : description_.arguments) {
    values.push_back(argument.evaluate(context));
    if (const ac_tensor* const tensor = argument.narrowed(call))
      values.back().pointer = narrowed.emplace_back(call, *tensor, argument.text()).data();
  }
  std::vector<void*> pointers;
  for (LauncherArgument::Value& value : values) pointers.push_back(&value);
  ffi_arg status = 0;
  // One interface serves all calls: ffi_call only reads it.
  ffi_call(&interface_->cif, reinterpret_cast<void (*)()>(function), &status, pointers.data());
  if (workspace && workspace->overrun())
    throw Error("'" + symbol + "' wrote outside its workspace of " + std::to_string(context.workspace_bytes) +
                " bytes");
  if (std::any_of(narrowed.begin(), narrowed.end(), [](const NarrowedTensor& t) { return t.changed(); }))
    throw Error("'" + symbol + "' wrote into an index, which it is given to read");
  const auto code = description_.returns_status ? static_cast<std::int32_t>(status) : 0;
  if (code != 0) call.host->set_error(call.host->context, ("status of '" + symbol + "'").c_str());
  return code;
}

}  // namespace ampcheck::checks
