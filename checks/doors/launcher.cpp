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
#include <utility>

#include "checks/doors/loading.h"
#include "kernels/device.h"
#include "src/op_call.h"

namespace ampcheck::checks {

namespace {

constexpr double kMostWorkspace = 0x1p34;
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
  Workspace(const ac_call& call, double bytes, const LauncherWorkspace& of) {
    if (!(bytes >= 0 && bytes <= kMostWorkspace))
      throw Error(of.name + ", got " + number_text(bytes) + " bytes, want 0 to 2^34");
    bytes_ = static_cast<std::size_t>(bytes);
    const int filled = of.zeroed ? 0 : kUnwritten;
    if (call.device.type == AC_CUDA) {
      device_ = kernels::allocate_on_device(std::max<std::size_t>(bytes_, 1));
      const std::vector<unsigned char> fill(bytes_, static_cast<unsigned char>(filled));
      kernels::copy_to_device(device_.get(), fill.data(), bytes_);
      return;
    }
    host_ = static_cast<unsigned char*>(call.host->alloc(call.host->context, bytes_ + 2 * kGuard, 256));
    if (host_ == nullptr) throw Error(of.name + ", got no memory for " + std::to_string(bytes_) + " bytes");
    std::memset(host_, kGuardByte, bytes_ + 2 * kGuard);
    std::memset(host_ + kGuard, filled, bytes_);
  }

  void* data() const { return host_ != nullptr ? host_ + kGuard : device_.get(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }
  bool overrun() const {
    if (host_ == nullptr) return false;
    const auto changed = [](unsigned char byte) { return byte != kGuardByte; };
    return std::any_of(host_, host_ + kGuard, changed) ||
           std::any_of(host_ + kGuard + bytes_, host_ + 2 * kGuard + bytes_, changed);
  }

 private:
  std::size_t bytes_ = 0;
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
    : description_(std::move(description)), names_(names) {
  for (const LauncherStep& step : description_.steps) {
    Interface& made = *interfaces_.emplace_back(std::make_unique<Interface>());
    for (const LauncherArgument& argument : step.arguments) made.types.push_back(ffi_of(argument.type()));
    ffi_type* const result = step.returns_status ? &ffi_type_sint32 : &ffi_type_void;
    if (ffi_prep_cif(&made.cif, FFI_DEFAULT_ABI, static_cast<unsigned>(made.types.size()), result, made.types.data()) !=
        FFI_OK)
      throw Error("arguments, got a list that libffi cannot call");
  }
}

Launcher::~Launcher() = default;

void Launcher::resolve() {
  for (const LauncherStep& step : description_.steps)
    for (const auto& [storage, symbol] : step.symbols) description_.library->symbol(symbol);
}

std::int32_t Launcher::run(const ac_call& call) {
  try {
    return call_steps(call);
  } catch (const std::exception& error) {  // what the file asks for does not fit this call
    call.host->set_error(call.host->context, error.what());
    return -1;
  }
}

std::int32_t Launcher::call_steps(const ac_call& call) {
  ArgumentContext context{call, names_};
  std::deque<Workspace> workspaces;
  for (const LauncherWorkspace& wanted : description_.workspaces) {
    workspaces.emplace_back(call, wanted.bytes.evaluate(context, true), wanted);
  }
  // Their sizes follow from the call alone: none knows another's.
  for (const Workspace& workspace : workspaces) context.workspaces.push_back({workspace.data(), workspace.bytes()});
  for (std::size_t step = 0; step < description_.steps.size(); ++step) {
    const std::int32_t code = call_step(step, context);
    for (std::size_t k = 0; k < workspaces.size(); ++k)
      if (workspaces[k].overrun()) {
        const std::string &symbol = description_.steps[step].symbol(call.storage),
                          &name = description_.workspaces[k].name;
        throw Error("'" + symbol + "' wrote outside its workspace" + (name == "workspace" ? "" : " '" + name + "'") +
                    " of " + std::to_string(workspaces[k].bytes()) + " bytes");
      }
    if (code != 0) return code;
  }
  return 0;
}

std::int32_t Launcher::call_step(std::size_t at, const ArgumentContext& context) {
  const LauncherStep& step = description_.steps[at];
  const ac_call& call = context.call;
  const std::string& symbol = step.symbol(call.storage);
  void* const function = description_.library->symbol(symbol);
  std::vector<LauncherArgument::Value> values;
  std::deque<NarrowedTensor> narrowed;  // of one tensor for each argument that has it: addresses stay
  for (const LauncherArgument& argument : step.arguments) {
    values.push_back(argument.evaluate(context));
    if (const ac_tensor* const tensor = argument.narrowed(call))
      values.back().pointer = narrowed.emplace_back(call, *tensor, argument.text()).data();
  }
  std::vector<void*> pointers;
  for (LauncherArgument::Value& value : values) pointers.push_back(&value);
  ffi_arg status = 0;
  // One interface serves all calls: ffi_call only reads it.
  ffi_call(&interfaces_[at]->cif, reinterpret_cast<void (*)()>(function), &status, pointers.data());
  if (std::any_of(narrowed.begin(), narrowed.end(), [](const NarrowedTensor& t) { return t.changed(); }))
    throw Error("'" + symbol + "' wrote into an index, which it is given to read");
  const auto code = step.returns_status ? static_cast<std::int32_t>(status) : 0;
  if (code != 0) call.host->set_error(call.host->context, ("status of '" + symbol + "'").c_str());
  return code;
}

}  // namespace ampcheck::checks
