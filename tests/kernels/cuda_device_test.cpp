// SPDX-License-Identifier: Apache-2.0
// The kernels on a GPU: the bits that the CPU has, and verdicts on an author's own CUDA kernel. SKIPPED with the reason
// where no GPU is; that the comparison itself sees a difference is tested on the CPU.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "checks/define/op_list.h"
#include "checks/doors/plugin.h"
#include "checks/run/runner.h"
#include "kernels/device.h"
#include "tests/support/custom_op_list.h"

namespace ampcheck::checks {
namespace {

#define AMPCHECK_NEEDS_CUDA() \
  if (std::string why; !kernels::cuda_available(&why)) GTEST_SKIP() << "no CUDA device: " << why

/// What one case's forward and backward wrote on a device.
std::map<std::string, GuardedTensor> written_on(const OpDef& op, const OpCall& call, Device device) {
  RunOptions options;
  options.device = device;
  CaseRun run(op, call, options);
  LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
  std::map<std::string, GuardedTensor> all;
  if (op.kernel.backward) {
    LaunchResult backward = run.run_backward(
        run.backward_tensors(run.reference.inputs(), forward, run.cotangents(relations_probe(call)), 0));
    all = std::move(backward.written);
  }
  for (auto& [name, tensor] : forward.written) all.insert_or_assign(name, std::move(tensor));
  return all;
}

/// Tensors of any of the op's quick cases whose bits are others on `there` than those of `reference` on the CPU.
std::set<std::string> tensors_that_differ(const OpDef& op, Device there, const OpDef& reference) {
  std::set<std::string> out;
  for (const Dtype storage : op.signature.precision.storage)
    for (const OpCall& call : cases_of(op.signature, storage, CaseSet::quick, 1)) {
      const auto here = written_on(reference, call, Device::cpu), other = written_on(op, call, there);
      EXPECT_EQ(here.size(), other.size());
      for (const auto& [name, tensor] : here)
        if (const auto found = other.find(name); found == other.end() || differing(tensor, found->second) != 0)
          out.insert(name);
    }
  return out;
}

// Products by cuBLAS add up in an order of its own: they are judged by their intervals alone.
const std::set<std::string> kOwnOrder = {"linear"};

TEST(CudaDevice, TheComparisonOfBitsSeesAnotherAccumulator) {
  const OpDef *right = find_op("softmax"), *wrong = find_op("softmax.bf16_accumulation");
  ASSERT_NE(right, nullptr);
  ASSERT_NE(wrong, nullptr);
  EXPECT_TRUE(tensors_that_differ(*right, Device::cpu, *right).empty());
  EXPECT_TRUE(tensors_that_differ(*wrong, Device::cpu, *right).contains("dx"));
}

TEST(CudaDevice, EveryKernelHasTheBitsOfTheCpu) {
  AMPCHECK_NEEDS_CUDA();
  for (const OpDef& op : all_ops())
    if (!kOwnOrder.contains(op.signature.name)) {
      const auto differ = tensors_that_differ(op, Device::cuda, op);
      EXPECT_TRUE(differ.empty()) << op.signature.name << ": " << *differ.begin();
    }
}

TEST(CudaDevice, EveryKernelIsJudgedClean) {
  AMPCHECK_NEEDS_CUDA();
  RunOptions options;
  options.device = Device::cuda;
  for (const OpDef& op : all_ops())
    for (const Dtype storage : op.signature.precision.storage)
      for (const OpCall& call : cases_of(op.signature, storage, CaseSet::quick, 1)) {
        const CaseResult result = run_case(op, call, options);
        EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
      }
}

/// The codes of an op of tests/custom_ops/rms_norm_cuda.cu by number of cases.
std::map<std::string, int> codes_of_plugin(const std::string& name, Device device) {
  RunOptions options;
  options.device = device;
  std::map<std::string, int> out;
  const OpDef& op = custom_op({"rms_norm_cuda.so", name.c_str(), ""});
  for (const Dtype storage : op.signature.precision.storage)
    for (const OpCall& call : cases_of(op.signature, storage, CaseSet::quick, 1)) {
      const CaseResult result = run_case(op, call, options);
      ++out[convicts(result.verdict) ? result.code : ""];
    }
  return out;
}

bool plugin_built() { return std::filesystem::exists(custom_op_folder() + "rms_norm_cuda.so"); }

TEST(CudaDevice, AnAuthorsKernelIsCompiledAndItsLoopJudgedWithoutAGpu) {
  if (!plugin_built())
    GTEST_SKIP() << "built without CUDA (AMPCHECK_CUDA): no nvcc to compile tests/custom_ops/rms_norm_cuda.cu";
  const auto codes = codes_of_plugin("rms_norm_cuda", Device::cpu);
  EXPECT_EQ(codes.size(), 1u);
  EXPECT_TRUE(codes.contains(""));
}

TEST(CudaDevice, AnAuthorsKernelIsJudgedOnTheDevice) {
  AMPCHECK_NEEDS_CUDA();
  if (!plugin_built()) GTEST_SKIP() << "tests/custom_ops/rms_norm_cuda.cu is not among these files";
  const auto right = codes_of_plugin("rms_norm_cuda", Device::cuda),
             wrong = codes_of_plugin("rms_norm_cuda_drops_warp", Device::cuda);
  EXPECT_EQ(right.size(), 1u);
  EXPECT_TRUE(right.contains(""));
  EXPECT_TRUE(wrong.contains("AC101"));
}

}  // namespace
}  // namespace ampcheck::checks
