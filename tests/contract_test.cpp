// SPDX-License-Identifier: Apache-2.0
// The contract that a kernel's bits show is the one that it was written to; what they do not show is not claimed.
#include "checks/contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checks/case_run.h"
#include "src/rounding.h"
#include "tests/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;

const Reading& reading_of(const std::vector<Reading>& all, const std::string& words) {
  return *std::find_if(all.begin(), all.end(), [&](const Reading& r) { return r.words == words; });
}

TEST(Contract, OfCorrectKernels) {
  for (const char* name : {"softmax", "layer_norm", "gelu", "cross_entropy"}) {
    const ContractReading r = read_contract(*find_op(name), Dtype::fp32, 1);
    EXPECT_EQ(r.best.accumulate, Dtype::fp32) << name;
    for (const TensorReading& t : r.tensors) {
      EXPECT_EQ(t.accumulators.front().words, "fp32") << name << " " << t.tensor;
      EXPECT_EQ(t.accumulators.front().outside, 0) << name << " " << t.tensor;
      EXPECT_TRUE(t.accumulators.front().declared) << name << " " << t.tensor;
    }
    EXPECT_EQ(r.subnormals.front().words, "kept") << name;
    EXPECT_TRUE(r.repeats && r.narrow.empty()) << name;
    EXPECT_GT(r.elements, 100) << name;
  }
}

/// Our row sums run in 32 lanes; the replays know other orders too.
TEST(Contract, FindsTheOrder) {
  for (const auto& [name, order] : {std::pair("sum", reference::SumOrder::lanes32), std::pair("sum.pairwise", reference::SumOrder::pairwise), std::pair("sum.reversed", reference::SumOrder::reversed)}) {
    const OpDef* const op = find_op(name);
    ASSERT_NE(op, nullptr) << name;
    const ContractReading r = read_contract(*op, Dtype::fp32, 1);
    ASSERT_FALSE(r.orders.empty()) << name;
    EXPECT_EQ(r.orders.front().order, order) << name;
    EXPECT_GT(r.told, 50) << name;
    EXPECT_GT(10 * r.orders.front().equal, 8 * r.told) << name;
  }
  EXPECT_TRUE(read_contract(*find_op("relu"), Dtype::fp32, 1).orders.empty()) << "nothing is summed";
}

TEST(Contract, FindsALowAccumulator) {
  for (const auto& [name, tensor, right] : {std::tuple("softmax.bf16_accumulation", "dx", "y"), std::tuple("sum.in_bf16", "y", "dx"), std::tuple("mean.in_bf16", "y", "dx")}) {
    const OpDef* const op = find_op(name);
    ASSERT_NE(op, nullptr) << name;
    const ContractReading r = read_contract(*op, Dtype::fp32, 1);
    EXPECT_EQ(r.best.accumulate, Dtype::bf16) << name;
    for (const TensorReading& t : r.tensors) {
      if (t.tensor == right) {
        EXPECT_EQ(t.accumulators.front().words, "fp32") << name;
      }
      if (t.tensor != tensor) continue;
      EXPECT_EQ(t.accumulators.front().words, "bf16") << name;
      EXPECT_GT(ContractReading::surety(t.accumulators), 10) << name;
      EXPECT_GT(reading_of(t.accumulators, "fp32").outside, 0) << name;
    }
  }
}

OpDef with_results(const OpDef& op, const std::function<void(std::vector<double>&)>& change) {
  OpDef out = op;
  for (auto* kernel : {&out.kernel.forward, &out.kernel.backward})
    *kernel = [inner = *kernel, change](const kernels::KernelCall& call) {
      inner(call);
      for (const auto& [name, view] : call.tensors) {
        if (name != "y" && name != "dx") continue;
        if (name == "y" && std::any_of(call.tensors.begin(), call.tensors.end(), [](const auto& t) { return t.first == "dx"; })) continue;
        std::vector<double> values = to_doubles(view);
        change(values);
        from_doubles(values, view);
      }
    };
  return out;
}

TEST(Contract, FindsResultsInFewerBitsFlushesAndAtomics) {
  const ContractReading narrow = read_contract(with_results(*find_op("silu"), [](std::vector<double>& v) { round_values(kBf16, {}, v, v); }), Dtype::fp32, 1);
  EXPECT_EQ(narrow.narrow, (std::vector<std::pair<std::string, Dtype>>{{"dx", Dtype::bf16}, {"y", Dtype::bf16}}));
  int calls = 0;
  const ContractReading racing = read_contract(with_results(*find_op("sum"), [&](std::vector<double>& v) {
    if (!v.empty() && ++calls % 2 == 0) v[0] = std::nextafter(static_cast<float>(v[0]), 1e30f);
  }), Dtype::fp32, 1);
  EXPECT_FALSE(racing.repeats);
  EXPECT_TRUE(racing.best.atomics);
}

TEST(ContractCommand, PrintsTheLineToPaste) {
  const auto run = testing::ampcheck("contract softmax.bf16_accumulation --dtype fp32");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* words : {"dx            accumulates in bf16: ", "; declared: fp32, which leaves", "op.accumulate(AC_BF16);", "accumulate = \"bf16\""}) EXPECT_TRUE(contains(run.out, words)) << words << "\n" << run.out;
  EXPECT_TRUE(contains(testing::ampcheck("contract sum --dtype fp32 --json").out, "\"schema\": \"ampcheck.contract/1\""));
  EXPECT_EQ(testing::ampcheck("contract").exit_code, 2);
  EXPECT_TRUE(contains(testing::ampcheck("contract softmx").err, "did you mean 'softmax'"));
}

}  // namespace
}  // namespace ampcheck::checks
