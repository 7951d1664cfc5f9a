// SPDX-License-Identifier: Apache-2.0
// What the library's matrix products and an author's own CUDA kernel are judged as on a GPU, and every kernel of ours.
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "checks/run/runner.h"
#include "tests/support/custom_op_list.h"
#include "tests/support/gpu_launch.h"

namespace ampcheck::checks {
namespace {

RunOptions on(Device device) {
  RunOptions options;
  options.device = device;
  return options;
}

bool cublas_loads() {
  float data[64] = {};
  const kernels::Matrix m(data, 8, 8);
  return kernels::can_use_cublas(m, m);
}

/// Elements of y whose bits are others with cuBLAS than in the plain chain: that the library ran at all.
std::int64_t bits_apart(const OpDef& op, const OpCall& call) {
  const Launched library = launched_on(op, call, Device::cuda);
  const WithoutCublas plain;
  const Launched chain = launched_on(op, call, Device::cuda);
  return differing(library.forward.written.at("y"), chain.forward.written.at("y"));
}

/// Products that are long, wide or one-sided, besides the op's own cases: where an accumulator shows.
TEST(CudaCublas, ProductsLieInTheirIntervals) {
  AMPCHECK_NEEDS_CUDA();
  if (!cublas_loads()) GTEST_SKIP() << "no cuBLAS that can be loaded: products are the plain chains here";
  const OpDef& op = *find_op("linear");
  std::int64_t judged = 0;
  double most = 0;
  for (const Dtype storage : op.signature.precision.storage) {
    std::vector<OpCall> calls = cases_of(op.signature, storage, CaseSet::standard, 1);
    for (const Dims& dims : {Dims{{"N", 64}, {"K", 4096}, {"M", 64}}, Dims{{"N", 256}, {"K", 1024}, {"M", 128}}})
      for (const char* range : {"normal", "positive"}) {
        OpCall call = default_call(op.signature, storage);
        call.dims = dims;
        call.range = range;
        calls.push_back(call);
      }
    for (const OpCall& call : calls) {
      const CaseResult result = run_case(op, call, on(Device::cuda));
      EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
      ++judged;
      for (const CheckResult& check : result.checks) most = std::max(most, check.max_ratio);
    }
    summary_line(
        fmt::format("linear {}: {} cases so far, worst error {:.2f} of the radius", name(storage), judged, most));
  }
  OpCall call = default_call(op.signature, Dtype::fp32);
  call.dims = {{"N", 256}, {"K", 1024}, {"M", 128}};
  summary_line(fmt::format("{} of {} elements have other bits than the plain chain", bits_apart(op, call), 256 * 128));
}

TEST(CudaCublas, EveryKernelIsJudgedClean) {
  AMPCHECK_NEEDS_CUDA();
  for (const OpDef& op : all_ops())
    for (const Dtype storage : op.signature.precision.storage)
      for (const OpCall& call : cases_of(op.signature, storage, CaseSet::quick, 1)) {
        const CaseResult result = run_case(op, call, on(Device::cuda));
        EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
      }
}

/// The codes of an op of tests/custom_ops/rms_norm_cuda.cu by number of cases.
std::map<std::string, int> codes_of_plugin(const std::string& name, Device device) {
  std::map<std::string, int> out;
  const OpDef& op = custom_op({"rms_norm_cuda.so", name.c_str(), ""});
  for (const Dtype storage : op.signature.precision.storage)
    for (const OpCall& call : cases_of(op.signature, storage, CaseSet::quick, 1)) {
      const CaseResult result = run_case(op, call, on(device));
      ++out[convicts(result.verdict) ? ampcheck::name(result.code) : ""];
    }
  return out;
}

bool plugin_built() { return std::filesystem::exists(custom_op_folder() + "rms_norm_cuda.so"); }

TEST(CudaPlugin, AnAuthorsKernelIsCompiledAndItsLoopJudgedWithoutAGpu) {
  if (!plugin_built())
    GTEST_SKIP() << "built without CUDA (AMPCHECK_CUDA): no nvcc to compile tests/custom_ops/rms_norm_cuda.cu";
  const auto codes = codes_of_plugin("rms_norm_cuda", Device::cpu);
  EXPECT_EQ(codes.size(), 1u);
  EXPECT_TRUE(codes.contains(""));
}

TEST(CudaPlugin, AnAuthorsKernelIsJudgedOnTheDevice) {
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
