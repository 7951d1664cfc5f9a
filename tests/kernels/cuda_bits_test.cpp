// SPDX-License-Identifier: Apache-2.0
// The kernels on a GPU have the bits that the CPU has: every op, every storage type, forward, backward and the backward
// of the backward. SKIPPED with the reason where no GPU is; that the comparison itself sees a difference is tested on
// the CPU.
#include <fmt/format.h>

#include <exception>

#include "checks/define/second_order.h"
#include "tests/support/gpu_launch.h"

namespace ampcheck::checks {
namespace {

BitComparison compared(const OpDef& op, Device there, const OpDef& reference) {
  BitComparison out;
  for (const Dtype storage : op.signature.precision.storage) compare_bits(op, there, reference, storage, out);
  return out;
}

/// One op's failure, an exception too, leaves the others to be compared.
void expect_same_bits(const OpDef& op) {
  try {
    const BitComparison bits = compared(op, Device::cuda, op);
    EXPECT_GT(bits.elements, 0) << op.signature.name << ": nothing was compared";
    for (const auto& [where, count] : bits.differ)
      ADD_FAILURE() << where << ": " << count << " elements have other bits than on the CPU";
    summary_line(fmt::format("{}: {} tensors, {} elements, {} tensors with other bits", op.signature.name, bits.tensors,
                             bits.elements, bits.differ.size()));
  } catch (const std::exception& e) {
    ADD_FAILURE() << op.signature.name << ": " << e.what();
  }
}

TEST(CudaBits, TheComparisonSeesAnotherAccumulator) {
  const OpDef *right = find_op("softmax"), *wrong = find_op("softmax.bf16_accumulation");
  ASSERT_NE(right, nullptr);
  ASSERT_NE(wrong, nullptr);
  EXPECT_TRUE(compared(*right, Device::cpu, *right).differ.empty());
  const BitComparison seen = compared(*wrong, Device::cpu, *right);
  EXPECT_TRUE(std::any_of(seen.differ.begin(), seen.differ.end(),
                          [](const auto& one) { return one.first.ends_with(" dx") && one.second > 0; }));
}

TEST(CudaBits, EveryKernelHasTheBitsOfTheCpu) {
  AMPCHECK_NEEDS_CUDA();
  const WithoutCublas plain;
  for (const OpDef& op : all_ops()) expect_same_bits(op);
}

TEST(CudaBits, EveryDoubleBackwardHasTheBitsOfTheCpu) {
  AMPCHECK_NEEDS_CUDA();
  const WithoutCublas plain;
  for (const OpDef& op : second_order_ops()) expect_same_bits(op);
}

}  // namespace
}  // namespace ampcheck::checks
