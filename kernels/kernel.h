// SPDX-License-Identifier: Apache-2.0
// What a kernel is called with, and what an op's kernels are.
#pragma once

#include <atomic>
#include <functional>
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

struct Kernel {
  KernelFn forward;
  KernelFn backward;
  KernelFn jvp = nullptr;  ///< forward mode: reads inputs, saved tensors and tangents, writes the tangents of the
                           ///< outputs; may be null
};

}  // namespace ampcheck::kernels
