// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/define/fp64_ops.h"

#include <map>

#include "kernels/doubles.h"

namespace ampcheck::checks {

const OpDef* op_in_fp64(const OpDef& op) {
  static const std::map<const OpDef*, OpDef> kAll = [] {
    std::map<const OpDef*, OpDef> out;
    for (const OpDef& built_in : all_ops()) {
      kernels::Kernel kernel = kernels::double_kernel(built_in.signature.name);
      if (!kernel.forward) continue;
      OpDef& made = out.emplace(&built_in, built_in).first->second;
      made.kernel = std::move(kernel);
      made.signature.precision.storage = {Dtype::fp64};
      made.signature.precision.cublas = false;
      made.signature.precision.math = glibc_math();
      made.signature.forward_mode = false;
    }
    return out;
  }();
  const auto found = kAll.find(&op);
  return found == kAll.end() ? nullptr : &found->second;
}

}  // namespace ampcheck::checks
