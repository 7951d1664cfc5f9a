// SPDX-License-Identifier: Apache-2.0
// The contract that a kernel's bits show is the one that it was written to; what they do not show is not claimed.
#include "checks/contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "checks/case_run.h"
#include "checks/launcher_toml.h"
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

/// y = sum(x w) over rows, one product after the other: added by fma, or rounded first; dx = dy w, dw = dy x.
OpDef dot(bool fused) {
  OpDef op;
  op.signature = {.name = "dot", .inputs = {{.name = "x", .dims = "N D"}, {.name = "w", .dims = "N D"}}, .outputs = {{.name = "y"}}, .dims = {{"N", {5, 9, 2}}, {"D", {33, 64, 7}}}};
  op.forms = {{"dot", [](reference::FormulaCall& c) { c.output("y", reference::sum(c["x"] * c["w"], -1)); }}};
  op.kernel.forward = [fused](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x")), w = to_doubles(call.at("w"));
    std::vector<double> y(static_cast<std::size_t>(call.at("y").count()));
    const std::size_t columns = y.empty() ? 0 : x.size() / y.size();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float a = static_cast<float>(x[i]), b = static_cast<float>(w[i]), s = static_cast<float>(y[i / columns]), product = a * b;
      y[i / columns] = static_cast<double>(fused ? std::fma(a, b, s) : s + product);
    }
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [](const kernels::KernelCall& call) {
    const std::vector<double> g = to_doubles(call.at("dy"));
    for (const auto& [name, other] : {std::pair("dx", "w"), std::pair("dw", "x")}) {
      std::vector<double> out = to_doubles(call.at(other));
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(static_cast<float>(g[i * g.size() / out.size()]) * static_cast<float>(out[i]));
      if (const auto* to = call.find(name); to != nullptr) from_doubles(out, *to);
    }
  };
  return op;
}

TEST(Contract, TellsFusedProductsFromRoundedOnes) {
  for (const bool fused : {false, true}) {
    const ContractReading r = read_contract(dot(fused), Dtype::fp32, 1);
    ASSERT_FALSE(r.orders.empty());
    EXPECT_EQ(r.orders.front().fused, fused);
    EXPECT_EQ(r.orders.front().order, reference::SumOrder::sequential);
    EXPECT_EQ(r.orders.front().equal, r.told) << "this is how it sums";
    EXPECT_LT(10 * r.best_order(!fused)->equal, 8 * r.told) << fused;
  }
  const ContractReading sums = read_contract(*find_op("sum"), Dtype::fp32, 1), products = read_contract(*find_op("linear"), Dtype::fp32, 1);
  EXPECT_EQ(sums.best_order(true)->equal, sums.best_order(false)->equal) << "without products there is nothing to fuse";
  EXPECT_TRUE(products.orders.front().fused) << "our products of matrices are chains of fma";
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

/// y with every number moved by so many ulps of fp32, and what the command says of it.
ContractReading with_error(const char* op, double ulps) {
  return read_contract(with_results(*find_op(op), [=](std::vector<double>& v) {
    for (double& x : v) x = static_cast<float>(x * (1 + ulps * 0x1p-23));
  }), Dtype::fp32, 1);
}

TEST(Contract, NamesFunctionsOnlyWhereTheyExplainTheBits) {
  const ContractReading right = with_error("exp", 0), loose = with_error("exp", 6), wrong = with_error("exp", 1000);
  EXPECT_EQ(right.used, std::vector<std::string>{"exp"});
  EXPECT_TRUE(right.functions_explain());
  EXPECT_TRUE(loose.functions_explain());
  EXPECT_EQ(loose.best.math.name, "16 ulp");
  EXPECT_FALSE(wrong.functions_explain());
  EXPECT_EQ(wrong.best.math.name, find_op("exp")->signature.precision.math.name) << "nothing better is known";
  EXPECT_TRUE(read_contract(*find_op("linear"), Dtype::fp32, 1).functions.empty()) << "no function in its formula";
  const TomlOp scaled = op_of_toml("library = './rms_norm_launchers.so'\nname = 'cube'\nformula = 'y = x * x * x * rsqrt(N)'\ndims = { N = [35, 64, 2] }\ninputs = { x = 'N' }\noutputs = { y = 'N' }\n"
                                   "contract = { storage = ['fp32'] }\n"
                                   "[forward]\nsymbol = 'cube'\narguments = ['const float* x', 'float* y', 'int64_t N']\n"
                                   "[backward]\nsymbol = 'cube_backward'\narguments = ['const float* x', 'const float* dy', 'float* dx', 'int64_t N']\n", AMPCHECK_BINARY_DIR "/custom_ops/x.toml");
  EXPECT_TRUE(read_contract(scaled.op, Dtype::fp32, 1).used.empty()) << "a function of a constant is none of the kernel's";
}

TEST(ContractCommand, PrintsTheLineToPaste) {
  const auto run = testing::ampcheck("contract softmax.bf16_accumulation --dtype fp32");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* words : {"dx            accumulates in bf16: ", "; declared: fp32, which leaves", "op.accumulate(AC_BF16);", "accumulate = \"bf16\""}) EXPECT_TRUE(contains(run.out, words)) << words << "\n" << run.out;
  const auto json = testing::ampcheck("contract sum --dtype fp32 --json");
  EXPECT_TRUE(contains(json.out, "\"schema\": \"ampcheck.contract/1\"") && contains(json.out, "\"fused\": false")) << json.out;
  const auto products = testing::ampcheck("contract linear --dtype fp32");
  EXPECT_TRUE(contains(products.out, "  products      added by fused multiply-add: ")) << products.out;
  // C++ and TOML declare the same.
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/loose.toml") << "library = '" AMPCHECK_BINARY_DIR "/custom_ops/rms_norm_launchers.so'\nname = 'loose'\nformula = 'y = exp(x)'\ndims = { N = [35, 64, 2] }\n"
                                                  "inputs = { x = 'N' }\noutputs = { y = 'N' }\ncontract = { storage = ['fp32'] }\n"
                                                  "[forward]\nsymbol = 'loose_exp'\narguments = ['const float* x', 'float* y', 'int64_t N']\n"
                                                  "[backward]\nsymbol = 'loose_exp_backward'\narguments = ['const float* x', 'const float* dy', 'float* dx', 'int64_t N']\n";
  const auto both = testing::ampcheck("contract " + folder.path() + "/loose.toml");
  EXPECT_TRUE(contains(both.out, "op.math().exp = 16;\n") && contains(both.out, "    math = { exp = 16 }")) << both.out << both.err;
  EXPECT_EQ(testing::ampcheck("contract").exit_code, 2);
  EXPECT_TRUE(contains(testing::ampcheck("contract softmx").err, "did you mean 'softmax'"));
}

}  // namespace
}  // namespace ampcheck::checks
