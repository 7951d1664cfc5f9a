// SPDX-License-Identifier: Apache-2.0
// Launches of an op's kernels on one device or another, for the tests that compare the two.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "checks/define/op_list.h"
#include "kernels/cublas.h"
#include "kernels/device.h"

#define AMPCHECK_NEEDS_CUDA() \
  if (std::string why; !ampcheck::kernels::cuda_available(&why)) GTEST_SKIP() << "no CUDA device: " << why

namespace ampcheck::checks {

/// A line of the summary that tools/gpu_check prints.
inline void summary_line(const std::string& text) { std::printf("= %s\n", text.c_str()); }

/// While it lives, products are the plain chains with the CPU's bits.
class WithoutCublas {
 public:
  WithoutCublas() { kernels::use_cublas(false); }
  ~WithoutCublas() { kernels::use_cublas(true); }
  WithoutCublas(const WithoutCublas&) = delete;
  WithoutCublas& operator=(const WithoutCublas&) = delete;
};

/// The forward and the backward of a case, launched on a device.
struct Launched {
  LaunchResult forward, backward;
  std::map<std::string, const GuardedTensor*> written() const {
    std::map<std::string, const GuardedTensor*> all;
    for (const LaunchResult* result : {&forward, &backward})
      for (const auto& [name, tensor] : result->written) all.emplace(name, &tensor);
    return all;
  }
};

inline Launched launched_on(const OpDef& op, const OpCall& call, Device device) {
  RunOptions options;
  options.device = device;
  CaseRun run(op, call, options);
  Launched out;
  out.forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
  if (op.kernel.backward)
    out.backward = run.run_backward(
        run.backward_tensors(run.reference.inputs(), out.forward, run.cotangents(relations_probe(call)), 0));
  return out;
}

/// What two launches of the same cases compared.
struct BitComparison {
  std::int64_t tensors = 0, elements = 0;
  std::map<std::string, std::int64_t> differ;  ///< elements of other bits by "<case> <tensor>"
};

/// The op's quick cases of a storage type on `there` against `reference`'s on the CPU.
inline void compare_bits(const OpDef& op, Device there, const OpDef& reference, Dtype storage, BitComparison& out) {
  for (const OpCall& call : cases_of(op.signature, storage, CaseSet::quick, 1)) {
    const Launched here = launched_on(reference, call, Device::cpu), other = launched_on(op, call, there);
    const auto want = here.written(), got = other.written();
    EXPECT_EQ(want.size(), got.size()) << call.str(op.signature);
    for (const auto& [name, tensor] : want) {
      const auto found = got.find(name);
      const std::int64_t count = tensor->view().count();
      const std::int64_t apart = found == got.end() ? count : differing(*tensor, *found->second);
      ++out.tensors;
      out.elements += count;
      if (apart != 0 || found == got.end()) out.differ[call.str(op.signature) + " " + name] = apart;
    }
  }
}

}  // namespace ampcheck::checks
