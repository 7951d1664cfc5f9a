// SPDX-License-Identifier: Apache-2.0
#include "kernels/cores.h"

#include "kernels/matmul.h"
#include "src/tensor_core/multiply.h"

namespace ampcheck::kernels {

namespace {

thread_local const Cores* in_use = nullptr;

/// While one lives, products of this thread run on its cores.
class OnCores {
 public:
  explicit OnCores(const Cores& cores) : before_(in_use) { in_use = &cores; }
  ~OnCores() { in_use = before_; }
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;

 private:
  const Cores* before_;
};

KernelFn with(const KernelFn& run, const Cores& cores) {
  if (!run) return run;
  return [run, cores](const KernelCall& call) {
    const OnCores here(cores);
    run(call);
  };
}

tensor_core::Input input_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16: return tensor_core::Input::fp16;
    case Dtype::bf16: return tensor_core::Input::bf16;
    case Dtype::e4m3fn: return tensor_core::Input::e4m3;
    case Dtype::e5m2: return tensor_core::Input::e5m2;
    default: return tensor_core::Input::tf32;
  }
}

tensor_core::Codes codes_of(const Matrix& m) {
  return {m.data, bytes(m.dtype), m.rows, m.columns, m.row_stride, m.column_stride};
}

}  // namespace

Kernel on_cores(Kernel kernel, const Cores& cores) {
  return {with(kernel.forward, cores), with(kernel.backward, cores), with(kernel.jvp, cores)};
}

const Cores* cores_of_thread() { return in_use; }

bool core_matmul(const Cores& cores, const Matrix& a, const Matrix& b, float* c, bool from_zero) {
  tensor_core::Product product{{.generation = cores.generation, .a = input_of(a.dtype), .b = input_of(b.dtype)},
                               cores.order};
  product.instruction.k = tensor_core::largest_k(cores.generation, product.instruction.a);
  if (!tensor_core::lacking(product.instruction).empty()) return false;
  tensor_core::multiply(product, codes_of(a), codes_of(b), from_zero ? nullptr : c, c);
  return true;
}

}  // namespace ampcheck::kernels
