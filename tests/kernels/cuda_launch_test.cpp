// SPDX-License-Identifier: Apache-2.0
// Every kernel is launched once on a GPU, and memory around its tensors and what it reads stay as they were. Small and
// without a reference, so that tools/gpu_check runs it under compute-sanitizer.
#include <fmt/format.h>

#include "checks/define/second_order.h"
#include "tests/support/gpu_launch.h"

namespace ampcheck::checks {
namespace {

void launch_once(const OpDef& op, std::int64_t& launches) {
  for (const Dtype storage : op.signature.precision.storage) {
    const OpCall call = default_call(op.signature, storage);
    const Launched there = launched_on(op, call, Device::cuda);
    for (const LaunchResult* result : {&there.forward, &there.backward}) {
      EXPECT_TRUE(result->overrun.empty()) << call.str(op.signature) << ": wrote around " << result->overrun.front();
      EXPECT_TRUE(result->clobbered.empty()) << call.str(op.signature) << ": wrote into " << result->clobbered.front();
    }
    launches += 1 + (op.kernel.backward != nullptr);
  }
}

TEST(CudaLaunch, EveryKernelKeepsToItsMemory) {
  AMPCHECK_NEEDS_CUDA();
  const WithoutCublas plain;  // the library's kernels are not ours to sanitize
  std::int64_t launches = 0;
  for (const OpDef& op : all_ops()) launch_once(op, launches);
  for (const OpDef& op : second_order_ops()) launch_once(op, launches);
  summary_line(fmt::format("{} launches", launches));
}

}  // namespace
}  // namespace ampcheck::checks
