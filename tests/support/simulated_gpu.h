// SPDX-License-Identifier: Apache-2.0
// Our own CUDA kernels on device ptx, for tests that compare them with the CPU's.
#pragma once

#include <algorithm>
#include <cmath>

#include "src/ptx/gpu.h"
#include "tests/support/gpu_launch.h"
#include "tests/support/kernel_ptx.h"

#define AMPCHECK_NEEDS_CUDA_KERNELS() \
  if (!ampcheck::ptx::has_nvcc()) GTEST_SKIP() << "built without nvcc, so there are no CUDA kernels"

namespace ampcheck::checks {

/// While it lives, device cuda is the simulated GPU.
class SimulatedGpu {
 public:
  SimulatedGpu() { ptx::simulate_gpu(true); }
  ~SimulatedGpu() { ptx::simulate_gpu(false); }
  SimulatedGpu(const SimulatedGpu&) = delete;
  SimulatedGpu& operator=(const SimulatedGpu&) = delete;
};

inline bool takes(const OpDef& op, Dtype storage) {
  const auto& all = op.signature.precision.storage;
  return std::find(all.begin(), all.end(), storage) != all.end();
}

/// Elements of other bits; a NaN may have another payload.
inline std::int64_t differing_but_for_nans(const GuardedTensor& want, const GuardedTensor& got) {
  if (differing(want, got) == 0) return 0;
  const std::vector<double> a = to_doubles(want.view()), b = to_doubles(got.view());
  std::int64_t out = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    out += bits_at(want.view(), at) != bits_at(got.view(), at) && !(std::isnan(a[i]) && std::isnan(b[i]));
  }
  return out;
}

/// One case on the CPU and on the simulated GPU.
inline void compare_bits_of(const OpDef& op, const OpCall& call, BitComparison& out) {
  const std::string name = call.str(op.signature);
  const Launched here = launched_on(op, call, Device::cpu), there = launched_on(op, call, Device::cuda);
  for (const LaunchResult* result : {&there.forward, &there.backward})
    for (const LaunchNote& note : result->notes) ADD_FAILURE() << name << ": " << note.text;
  const auto want = here.written(), got = there.written();
  EXPECT_EQ(want.size(), got.size()) << name;
  for (const auto& [tensor, value] : want) {
    ++out.tensors;
    out.elements += value->view().count();
    const std::int64_t apart = differing_but_for_nans(*value, *got.at(tensor));
    if (apart != 0) out.differ[name + " " + tensor] = apart;
  }
}

}  // namespace ampcheck::checks
