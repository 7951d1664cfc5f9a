// SPDX-License-Identifier: Apache-2.0
// What a kernel is called with, and what an op's kernels are.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/device.h"
#include "src/error.h"
#include "src/op_signature.h"
#include "src/tensor.h"

namespace ampcheck::kernels {

/// One launch: borrowed tensors by name. Forward reads the inputs and writes the outputs and the saved tensors;
/// backward reads inputs, saved tensors and cotangents ("dy" for output "y") and writes gradients ("dx" for input "x").
/// An absent optional tensor is not in the list. Pointers are host or device memory as `device` says.
struct KernelCall {
  std::vector<std::pair<std::string, TensorView>> tensors;
  const Attributes* attributes = nullptr;
  Device device = Device::cpu;
  void* stream = nullptr;  ///< cudaStream_t; null is the default stream
  const std::atomic<bool>* cancel =
      nullptr;  ///< once true, nobody wants the result: a kernel that asks may return early

  const TensorView* find(std::string_view name) const {
    for (const auto& [key, view] : tensors)
      if (key == name) return &view;
    return nullptr;
  }
  const TensorView& at(std::string_view name) const {
    if (const TensorView* view = find(name)) return *view;
    throw Error("[kernel] no tensor named '" + std::string(name) + "' in this call");
  }
  double number(const std::string& name) const { return attributes->number(name); }
};

using KernelFn = std::function<void(const KernelCall&)>;

/// Who runs kernels that remember: what they keep from call to call can be taken from them.
class KernelHost {
 public:
  virtual ~KernelHost() = default;
  /// From now on nothing is left of earlier calls.
  virtual void start_anew() = 0;
  /// Work of a call may still run: before another op's kernel is called, it is ended.
  virtual void distrust() {}
  /// Calls forward with the same tensors until `written` hold other bits than after the first call, at most
  /// `times` times. How many calls left the same.
  virtual std::int64_t equal_calls(const KernelCall& call, const std::vector<std::string>& written,
                                   std::int64_t times) = 0;
};

/// KernelHost::equal_calls of a kernel that runs here.
std::int64_t equal_calls(const KernelFn& forward, const KernelCall& call, const std::vector<std::string>& written,
                         std::int64_t times);

struct Kernel {
  KernelFn forward;
  KernelFn backward;
  KernelFn jvp = nullptr;  ///< forward mode: reads inputs, saved tensors and tangents, writes the tangents of the
                           ///< outputs; may be null
  std::shared_ptr<KernelHost> host = nullptr;  ///< null: nobody can make them forget
};

}  // namespace ampcheck::kernels
