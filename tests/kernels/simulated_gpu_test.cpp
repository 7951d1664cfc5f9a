// SPDX-License-Identifier: Apache-2.0
// Our own CUDA kernels on the simulated GPU: the bits of the CPU device. All ops at their first case here; all their
// quick cases in tests/exhaustive.
#include "tests/support/simulated_gpu.h"

namespace ampcheck::checks {
namespace {

TEST(SimulatedGpu, EveryOpHasTheBitsOfTheCpu) {
  AMPCHECK_NEEDS_CUDA_KERNELS();
  const SimulatedGpu gpu;
  BitComparison seen;
  for (const OpDef& op : all_ops())
    for (const Dtype storage : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
      if (takes(op, storage)) compare_bits_of(op, default_call(op.signature, storage), seen);
  EXPECT_GE(seen.tensors, 300);
  for (const auto& [what, count] : seen.differ) ADD_FAILURE() << count << " elements differ in " << what;
}

/// A planted fault: a launch that does not see its last row.
TEST(SimulatedGpu, FindsWhatAKernelLeavesOut) {
  AMPCHECK_NEEDS_CUDA_KERNELS();
  const SimulatedGpu gpu;
  OpDef op = *find_op("softmax");
  op.kernel.forward = [right = op.kernel.forward](const kernels::KernelCall& call) {
    kernels::KernelCall fewer = call;
    for (auto& [name, view] : fewer.tensors)
      if (name == "x" || name == "y") view.shape[0] -= 1;
    right(fewer);
  };
  const OpCall call = default_call(op.signature, Dtype::fp32);
  const Launched right = launched_on(*find_op("softmax"), call, Device::cuda),
                 wrong = launched_on(op, call, Device::cuda);
  EXPECT_TRUE(right.forward.notes.empty()) << right.forward.notes.front().text;
  EXPECT_GT(differing(right.forward.written.at("y"), wrong.forward.written.at("y")), 0);
}

TEST(SimulatedGpu, SaysWhereAKernelLeavesItsTensors) {
  AMPCHECK_NEEDS_CUDA_KERNELS();
  const SimulatedGpu gpu;
  OpDef op = *find_op("relu");
  op.kernel.forward = [right = op.kernel.forward](const kernels::KernelCall& call) {
    kernels::KernelCall more = call;
    for (auto& [name, view] : more.tensors) view.shape[0] += 1;
    right(more);
  };
  const Launched wrong = launched_on(op, default_call(op.signature, Dtype::fp32), Device::cuda);
  ASSERT_FALSE(wrong.forward.notes.empty());
  EXPECT_EQ(wrong.forward.notes.front().code, Code::ac603) << wrong.forward.notes.front().text;
}

}  // namespace
}  // namespace ampcheck::checks
