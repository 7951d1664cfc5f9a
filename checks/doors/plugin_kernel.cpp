// SPDX-License-Identifier: Apache-2.0
#include "checks/doors/plugin_kernel.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>

#include "checks/define/second_order.h"
#include "checks/doors/call_state.h"
#include "checks/doors/plugin.h"
#include "src/error.h"
#include "src/launch_notes.h"
#include "src/state_left.h"

namespace ampcheck::checks {

namespace {

using kernels::KernelCall;

constexpr std::size_t kMostMessage = 2000;
constexpr int kMostLogLines = 100;

/// Text of a plug-in on a terminal: no control characters, no end of it.
std::string shown(const char* text) {
  std::string out = text == nullptr ? "" : std::string(text, std::find(text, text + kMostMessage, '\0'));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return out;
}

/// What the host functions of one call work on.
struct Context {
  std::string op, error;
  const std::atomic<bool>* cancel = nullptr;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> memory = {};
};

void host_log(void* context, std::int32_t level, const char* message) {
  static std::atomic<int> lines{0};
  if (lines++ >= kMostLogLines) return;
  std::fprintf(stderr, "ampcheck: %s: %s%s\n", static_cast<Context*>(context)->op.c_str(),
               level == AC_LOG_WARNING ? "warning: " : "", shown(message).c_str());
}

void host_set_error(void* context, const char* message) { static_cast<Context*>(context)->error = shown(message); }

void* host_alloc(void* context, std::size_t bytes, std::size_t alignment) {
  if (alignment < 64 || (alignment & (alignment - 1)) != 0) alignment = 64;
  if (bytes > SIZE_MAX - alignment) return nullptr;
  void* memory =
      std::aligned_alloc(alignment, (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment);
  if (memory != nullptr) static_cast<Context*>(context)->memory.emplace_back(memory, &std::free);
  return memory;
}

std::int32_t host_should_cancel(void* context) {
  const std::atomic<bool>* const cancel = static_cast<Context*>(context)->cancel;
  return cancel != nullptr && cancel->load(std::memory_order_relaxed) ? 1 : 0;
}

ac_dldtype dldtype_of(Dtype dtype) {
  const auto of = [](std::uint8_t code, std::uint8_t bits) { return ac_dldtype{code, bits, 1}; };
  switch (dtype) {
    case Dtype::fp64: return of(AC_DL_FLOAT, 64);
    case Dtype::fp32: return of(AC_DL_FLOAT, 32);
    case Dtype::fp16: return of(AC_DL_FLOAT, 16);
    case Dtype::bf16: return of(AC_DL_BFLOAT, 16);
    case Dtype::e4m3fn: return of(AC_DL_FLOAT8_E4M3FN, 8);
    case Dtype::e5m2: return of(AC_DL_FLOAT8_E5M2, 8);
    case Dtype::i32: return of(AC_DL_INT, 32);
    case Dtype::i64: return of(AC_DL_INT, 64);
    case Dtype::u8: return of(AC_DL_UINT, 8);
  }
  return of(AC_DL_FLOAT, 32);
}

/// One call's tensors as the plug-in sees them. Deques: addresses stay.
class Arguments {
 public:
  Arguments(const KernelCall& call, ac_device device) : call_(call), device_(device) {}

  /// Tensors of these names in their order; null for those that the call has not.
  const ac_tensor* const* list(const std::vector<std::string>& names) {
    std::vector<const ac_tensor*>& out = lists_.emplace_back();
    for (const std::string& name : names) out.push_back(tensor(name));
    out.push_back(nullptr);  // never an empty array
    return out.data();
  }

 private:
  struct Entry {
    Shape shape, strides;
    ac_tensor tensor;
  };

  const ac_tensor* tensor(const std::string& name) {
    const TensorView* view = call_.find(name);
    if (view == nullptr) return nullptr;
    Entry& entry = entries_.emplace_back();
    entry.shape = view->shape;
    entry.strides = view->strides;
    entry.tensor = {
        sizeof(ac_tensor),
        ac_dtype_of(view->dtype),
        name.c_str(),
        {view->data, device_, view->shape.rank, dldtype_of(view->dtype), entry.shape.extent, entry.strides.extent, 0}};
    return &entry.tensor;
  }

  const KernelCall& call_;
  ac_device device_;
  std::deque<Entry> entries_;
  std::deque<std::vector<const ac_tensor*>> lists_;
};

/// The state of the thread, put back behind a call; what the call had changed becomes a note of the launch.
class StateOfCall {
 public:
  explicit StateOfCall(const char* pass) : pass_(pass) {}
  ~StateOfCall() {
    if (const std::string left = state_.restore(); !left.empty())
      note_launch({Code::none, kStateLeft, std::string(pass_) + " left " + left});
  }
  StateOfCall(const StateOfCall&) = delete;
  StateOfCall& operator=(const StateOfCall&) = delete;

 private:
  const char* pass_;
  CallState state_;
};

class PluginKernel {
 public:
  PluginKernel(const ac_op& op, const OpSignature& signature, ac_kernel double_backward)
      : op_(op), double_backward_(double_backward), name_(signature.name) {
    for (const TensorSpec& spec : signature.inputs) {
      inputs_.push_back(spec.name);
      gradients_.push_back(gradient_name(spec.name));
      gradient_cotangents_.push_back(gradient_name(gradient_as_output(spec.name)));
      tangents_.push_back(tangent_name(spec.name));
    }
    for (const OutputSpec& spec : signature.outputs) {
      outputs_.push_back(spec.name);
      to_backward_ |= spec.to_backward;
      cotangents_.push_back(gradient_name(spec.name));
      cotangent_gradients_.push_back(gradient_name(cotangents_.back()));
      output_tangents_.push_back(tangent_name(spec.name));
    }
    for (const OutputSpec& spec : signature.saved) saved_.push_back(spec.name);
    for (const AttributeSpec& spec : signature.attributes) attributes_.push_back(spec.name);
    storage_input_ = 0;
    for (std::size_t i = signature.inputs.size(); i-- > 0;)
      if (signature.inputs[i].type == TypeRule::storage && !signature.inputs[i].optional) storage_input_ = i;
  }

  enum class Direction { forward, backward, jvp, double_backward };

  void run(const KernelCall& call, Direction direction) {
    const std::uint32_t wanted = call.device == Device::cpu ? std::uint32_t{AC_ON_CPU} : std::uint32_t{AC_ON_CUDA};
    if (((op_.devices == 0 ? std::uint32_t{AC_ON_CPU} : op_.devices) & wanted) == 0)
      throw EnvironmentError("[" + name_ + "] has no kernel for the device " + name(call.device));
    const ac_device device = {call.device == Device::cpu ? std::int32_t{AC_CPU} : std::int32_t{AC_CUDA}, 0};
    Arguments arguments(call, device);
    Context context{name_, "", call.cancel};
    const ac_host host = {sizeof(ac_host), AMPCHECK_OP_ABI, &context,          host_log,
                          host_set_error,  host_alloc,      host_should_cancel};
    std::vector<ac_attribute_value> values;
    for (const std::string& attribute : attributes_)
      values.push_back({sizeof(ac_attribute_value), 0, attribute.c_str(), call.attributes->number(attribute)});
    ac_call out = {};
    out.struct_size = sizeof out;
    out.storage = ac_dtype_of(call.at(inputs_[storage_input_]).dtype);
    out.device = device;
    out.stream = call.stream;
    out.host = &host;
    out.user = op_.user;
    out.input_count = count(inputs_);
    out.output_count = count(outputs_);
    out.saved_count = count(saved_);
    out.attribute_count = count(attributes_);
    out.inputs = arguments.list(inputs_);
    out.saved = arguments.list(saved_);
    out.attributes = values.data();
    switch (direction) {
      case Direction::forward: out.outputs = arguments.list(outputs_); break;
      case Direction::backward:
        if (to_backward_) out.outputs = arguments.list(outputs_);
        out.cotangents = arguments.list(cotangents_);
        out.gradients = arguments.list(gradients_);
        break;
      case Direction::jvp:
        out.tangents = arguments.list(tangents_);
        out.output_tangents = arguments.list(output_tangents_);
        break;
      case Direction::double_backward:
        if (to_backward_) out.outputs = arguments.list(outputs_);
        out.cotangents = arguments.list(cotangents_);
        out.gradients = arguments.list(gradients_);
        out.gradient_cotangents = arguments.list(gradient_cotangents_);
        out.cotangent_gradients = arguments.list(cotangent_gradients_);
        break;
    }
    finish(invoke(kernel_of(direction), out, direction), context, direction);
  }

 private:
  ac_kernel kernel_of(Direction direction) const {
    switch (direction) {
      case Direction::forward: return op_.forward;
      case Direction::backward: return op_.backward;
      case Direction::jvp: return op_.jvp;
      case Direction::double_backward: return double_backward_;
    }
    return nullptr;
  }

  static std::int32_t count(const std::vector<std::string>& names) { return static_cast<std::int32_t>(names.size()); }

  std::int32_t invoke(ac_kernel kernel, const ac_call& call, Direction direction) {
    std::unique_lock lock(mutex_, std::defer_lock);
    if ((op_.flags & AC_OP_SERIAL) != 0) lock.lock();
    const StateOfCall state(pass(direction));
    try {
      return kernel(&call);
    } catch (const EnvironmentError&) {  // of a function of the host's own (Python): not the kernel's doing
      throw;
    } catch (const std::exception& error) {
      throw KernelError("[" + name_ + "] " + pass(direction) + " threw: " + shown(error.what()));
    } catch (...) {
      throw KernelError("[" + name_ + "] " + pass(direction) + " threw something that is no std::exception");
    }
  }

  void finish(std::int32_t code, const Context& context, Direction direction) const {
    if (code != 0)
      throw KernelError("[" + name_ + "] " + pass(direction) + " returned " + std::to_string(code) +
                        (context.error.empty() ? "" : ": " + context.error));
  }

  static const char* pass(Direction direction) {
    return direction == Direction::backward          ? "backward"
           : direction == Direction::jvp             ? "jvp"
           : direction == Direction::double_backward ? "double backward"
                                                     : "forward";
  }

  ac_op op_;
  ac_kernel double_backward_;
  std::string name_;
  std::vector<std::string> inputs_, outputs_, saved_, cotangents_, gradients_, tangents_, output_tangents_,
      gradient_cotangents_, cotangent_gradients_, attributes_;
  std::size_t storage_input_ = 0;
  bool to_backward_ = false;  ///< otherwise a call with outputs is forward's, as kernels have always told them apart
  std::mutex mutex_;
};

}  // namespace

int ac_dtype_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64: return AC_FP64;
    case Dtype::fp32: return AC_FP32;
    case Dtype::fp16: return AC_FP16;
    case Dtype::bf16: return AC_BF16;
    case Dtype::e4m3fn: return AC_E4M3FN;
    case Dtype::e5m2: return AC_E5M2;
    case Dtype::i32: return AC_I32;
    case Dtype::i64: return AC_I64;
    case Dtype::u8: return AC_U8;
  }
  return 0;
}

int ac_accumulator_of(const Accumulator& accumulator) {
  switch (accumulator.core) {
    case TensorCore::none: return ac_dtype_of(accumulator.dtype);
    case TensorCore::v100: return AC_TENSOR_CORE_V100;
    case TensorCore::turing: return AC_TENSOR_CORE_TURING;
    case TensorCore::a100: return AC_TENSOR_CORE_A100;
    case TensorCore::ada: return AC_TENSOR_CORE_ADA;
    case TensorCore::h100: return AC_TENSOR_CORE_H100;
    case TensorCore::b200: return AC_TENSOR_CORE_B200;
    case TensorCore::any: return AC_TENSOR_CORE_ANY;
  }
  return 0;
}

bool accumulator_of(int constant, Accumulator& out) {
  using enum TensorCore;
  for (const Accumulator known : {Accumulator(Dtype::fp32), Accumulator(Dtype::fp16), Accumulator(Dtype::bf16),
                                  Accumulator(v100), Accumulator(turing), Accumulator(a100), Accumulator(ada),
                                  Accumulator(h100), Accumulator(b200), Accumulator(any)})
    if (ac_accumulator_of(known) == constant) {
      out = known;
      return true;
    }
  return false;
}

PluginKernels plugin_kernels(const ac_op& op, const OpSignature& signature, ac_kernel double_backward) {
  const auto kernel = std::make_shared<PluginKernel>(op, signature, double_backward);
  PluginKernels all;
  kernels::Kernel& out = all.kernel;
  out.forward = [kernel](const KernelCall& call) { kernel->run(call, PluginKernel::Direction::forward); };
  out.backward = [kernel, any = op.backward != nullptr](const KernelCall& call) {
    if (any) kernel->run(call, PluginKernel::Direction::backward);
  };
  if (op.jvp != nullptr)
    out.jvp = [kernel](const KernelCall& call) { kernel->run(call, PluginKernel::Direction::jvp); };
  if (double_backward != nullptr)
    all.double_backward = [kernel](const KernelCall& call) {
      kernel->run(call, PluginKernel::Direction::double_backward);
    };
  return all;
}

}  // namespace ampcheck::checks
