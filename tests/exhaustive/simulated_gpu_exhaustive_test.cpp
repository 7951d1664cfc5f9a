// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simulated_gpu.h"

namespace ampcheck::checks {
namespace {

TEST(SimulatedGpuExhaustive, EveryCaseHasTheBitsOfTheCpu) {
  AMPCHECK_NEEDS_CUDA_KERNELS();
  const SimulatedGpu gpu;
  for (const OpDef& op : all_ops()) {
    BitComparison seen;
    for (const Dtype storage : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
      if (!takes(op, storage)) continue;
      for (const OpCall& call : cases_of(op.signature, storage, CaseSet::standard, 1)) compare_bits_of(op, call, seen);
    }
    summary_line(op.signature.name + ": " + std::to_string(seen.elements) + " elements");
    for (const auto& [what, count] : seen.differ) ADD_FAILURE() << count << " elements differ in " << what;
  }
}

}  // namespace
}  // namespace ampcheck::checks
