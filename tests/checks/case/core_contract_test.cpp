// SPDX-License-Identifier: Apache-2.0
// Ops whose contract declares tensor cores, judged as any op is: a right product passes, in any order and split; what
// keeps fewer bits than declared is convicted; and on the CUDA device cuBLAS's products are held to it.
#include <gtest/gtest.h>

#include <algorithm>

#include "checks/case/case_reference.h"
#include "checks/data/file_tensors.h"
#include "checks/doors/launcher_toml.h"
#include "checks/doors/plugin.h"
#include "checks/run/contract.h"
#include "checks/run/dump.h"
#include "checks/run/runner.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/tensor_core_model.h"

namespace ampcheck::checks {
namespace {

using tests::chain;
using tests::CoreModel;
using tests::cut;
using tests::Factors;
using tests::nearest;

struct Product {
  CoreModel model = {16, 25};
  std::size_t parts = 1;
  bool reversed = false, drops_last = false;

  /// One sum of the matrix product. fp32 operands are cut off to tf32, which half as many fit.
  double sum(std::vector<Factors> products, Dtype operand) const {
    CoreModel core = model;
    const bool tf32 = operand == Dtype::fp32;
    if (tf32) {
      core.terms /= 2;
      for (Factors& p : products) p = {cut(p.a, kTf32.fraction_bits()), cut(p.b, kTf32.fraction_bits())};
    }
    if (reversed) std::reverse(products.begin(), products.end());
    const auto block = static_cast<std::size_t>(core.terms);
    if (drops_last && products.size() > block) products.resize((products.size() - 1) / block * block);
    const FloatFormat& f = tf32 ? kTf32 : format(operand);
    const std::size_t step = std::max<std::size_t>(1, (products.size() + parts - 1) / parts);
    double out = 0;
    for (std::size_t begin = 0; begin < products.size(); begin += step) {
      const auto at = [&](std::size_t i) { return products.begin() + static_cast<std::ptrdiff_t>(i); };
      const std::vector<Factors> part(at(begin), at(std::min(begin + step, products.size())));
      out = nearest(kFp32, out + chain(core, f, f, part));
    }
    return out;
  }
};

/// linear, of which `product` makes the three products.
OpDef linear_with(const Product& product, const Accumulator& accumulator) {
  OpDef op = *find_op("linear");
  op.signature.precision.accumulate = accumulator;
  const auto multiply = [product](const std::vector<double>& a, const std::vector<double>& b, std::size_t n,
                                  std::size_t k, std::size_t m, bool a_by_k, bool b_by_k, Dtype operand) {
    std::vector<double> out(n * m);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < m; ++j) {
        std::vector<Factors> products(k);
        for (std::size_t p = 0; p < k; ++p)
          products[p] = {a[a_by_k ? p * n + i : i * k + p], b[b_by_k ? p * m + j : j * k + p]};
        out[i * m + j] = product.sum(std::move(products), operand);
      }
    return out;
  };
  const auto extents = [](const kernels::KernelCall& call) {
    const Shape& x = call.at("x").shape;
    return std::array{static_cast<std::size_t>(x[0]), static_cast<std::size_t>(x[1]),
                      static_cast<std::size_t>(call.at("weight").shape[0])};
  };
  op.kernel.forward = [=](const kernels::KernelCall& call) {
    const auto [n, k, m] = extents(call);
    const std::vector<double> x = to_doubles(call.at("x")), weight = to_doubles(call.at("weight"));
    std::vector<double> y = multiply(x, weight, n, k, m, false, false, call.at("x").dtype);
    if (const TensorView* bias = call.find("bias")) {
      const std::vector<double> add = to_doubles(*bias);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = nearest(kFp32, y[i] + add[i % m]);
    }
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [=, whole = op.kernel.backward](const kernels::KernelCall& call) {
    whole(call);  // dbias, which is no product
    const auto [n, k, m] = extents(call);
    const std::vector<double> x = to_doubles(call.at("x")), weight = to_doubles(call.at("weight")),
                              dy = to_doubles(call.at("dy"));
    const Dtype operand = call.at("x").dtype;
    if (call.find("dx")) from_doubles(multiply(dy, weight, n, m, k, false, true, operand), call.at("dx"));
    if (call.find("dweight")) from_doubles(multiply(dy, x, m, n, k, true, true, operand), call.at("dweight"));
  };
  return op;
}

OpCall call_of(const OpDef& op, Dtype storage, std::int64_t k, const std::string& range) {
  OpCall call = default_call(op.signature, storage);
  call.dims = {{"N", 3}, {"K", k}, {"M", 5}};
  call.range = range;
  return call;
}

/// How many of the usual cases, some of long sums, of one sign and of subnormal numbers, are convicted.
int convicted(const OpDef& op, Dtype storage, std::string& which) {
  std::vector<OpCall> calls = {default_call(op.signature, storage)};  // has the test for bias too
  for (const char* range : {"normal", "positive", "subnormal", "loguniform8"})
    for (const std::int64_t k : {3, 100}) calls.push_back(call_of(op, storage, k, range));
  calls.push_back(call_of(op, storage, 4096, "positive"));  // of one sign: no error makes up for another
  int out = 0;
  for (const OpCall& call : calls) {
    const CaseResult result = run_case(op, call, {});
    if (!convicts(result.verdict)) continue;
    ++out;
    which += std::string(ampcheck::name(result.code)) + " " + result.name + "\n";
  }
  return out;
}

TEST(CoreContract, RightProductsPassInAnyOrderAndSplit) {
  for (const Dtype storage : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) {
    std::string which;
    for (const Product& product : {Product{}, Product{.parts = 7}, Product{.model = {8, 25}, .reversed = true}})
      EXPECT_EQ(convicted(linear_with(product, TensorCore::h100), storage, which), 0) << name(storage) << "\n" << which;
    EXPECT_EQ(convicted(linear_with({}, TensorCore::any), storage, which), 0) << name(storage) << "\n" << which;
  }
}

/// Rounding to 16 bits hides what cores cut off (tests/reference/core_product_test.cpp has it before that rounding);
/// fp32 storage shows it.
TEST(CoreContract, TheSameProductsAreNoFp32Accumulation) {
  std::string which;
  EXPECT_GT(convicted(linear_with({}, Dtype::fp32), Dtype::fp32, which), 0);
}

TEST(CoreContract, FaultsStayConvicted) {
  for (const Dtype storage : {Dtype::fp16, Dtype::bf16}) {
    for (const auto& [words, product] : {
             std::pair{"partial sums in fp16", Product{.model = {16, 25, CoreModel::Result::nearest_fp16}}},
             std::pair{"13 bits, as fp8 has", Product{.model = {16, 13, CoreModel::Result::truncated_13_bits}}},
             std::pair{"the last block of k is dropped", Product{.drops_last = true}},
         }) {
      std::string which;
      EXPECT_GT(convicted(linear_with(product, TensorCore::h100), storage, which), 0) << words << " " << name(storage);
    }
  }
}

/// What the CUDA device asks of cuBLAS's products: tensor cores where both operands are of one 16-bit type, fp32 chains
/// elsewhere. On the CPU nothing changes.
TEST(CoreContract, CublasProductsAreHeldToTheCoresOfTheGpu) {
  const OpSignature& linear = find_op("linear")->signature;
  const auto core = [&](Dtype storage, Dtype weight, TensorCore cublas) {
    OpCall call = default_call(linear, storage);
    if (weight != storage) call.dtypes["weight"] = weight;
    const reference::Arithmetic arithmetic = arithmetic_of(linear, call, cublas);
    reference::Graph graph;
    const reference::Expr left = graph.input("x", {2, 3}), right = graph.input("weight", {3, 4});
    const reference::Expr y = matmul(left, right);
    const std::vector<double> x(6, 1), w(12, 0x1.000002p0);
    reference::BallEvaluator balls(graph, arithmetic, {y});
    balls.set(left, x);
    balls.set(right, w);
    balls.run({y});
    return balls.result(y).r[0] * 0x1p24 / 3;  // in roundings of the sum of sizes
  };
  for (const Dtype storage : {Dtype::fp16, Dtype::bf16}) {
    EXPECT_GT(core(storage, storage, TensorCore::h100), 1.01 * core(storage, storage, TensorCore::none));
    EXPECT_GT(core(storage, storage, TensorCore::a100), 1.01 * core(storage, storage, TensorCore::h100));
    EXPECT_EQ(core(storage, Dtype::fp32, TensorCore::h100), core(storage, Dtype::fp32, TensorCore::none));
  }
  EXPECT_EQ(core(Dtype::fp32, Dtype::fp32, TensorCore::h100), core(Dtype::fp32, Dtype::fp32, TensorCore::none));
  for (const OpDef& op : all_ops()) {
    EXPECT_EQ(op.signature.precision.accumulate, Accumulator(Dtype::fp32)) << op.signature.name;
    const OpCall call = default_call(op.signature, Dtype::bf16);
    EXPECT_EQ(arithmetic_of(op.signature, call, Device::cpu).products.core, TensorCore::none) << op.signature.name;
  }
}

/// Saved tensors of x weight^T.
TEST(CoreContract, DumpsAreHeldToIt) {
  const auto verdict = [](double factor, const Accumulator& accumulator) {
    constexpr std::size_t kColumns = 4;
    TensorFile dump{"dump", {}};
    std::vector<double> x(kColumns), weight(kColumns), y(1);
    std::vector<Factors> products;
    for (std::size_t i = 0; i < kColumns; ++i) {
      x[i] = 1.0 + static_cast<double>(i + 1) / 1024;
      weight[i] = std::ldexp(1.0 + static_cast<double>(2 * i + 1) / 1024, -static_cast<int>(3 * i));
      products.push_back({x[i], weight[i]});
    }
    y[0] = factor * chain({16, 25}, kFp16, kFp16, products);
    const auto add = [&](const char* name, Dtype dtype, const Shape& shape, const std::vector<double>& values) {
      Tensor tensor(dtype, shape);
      from_doubles(values, tensor.view());
      dump.tensors.push_back({name, std::move(tensor)});
    };
    add("x", Dtype::fp16, {1, 4}, x);
    add("weight", Dtype::fp16, {1, 4}, weight);
    add("y", Dtype::fp32, {1, 1}, y);
    const OpDef op = op_of_formula(dump, "y = matmul(x, weight, transpose_b=1)",
                                   {.storage = {}, .accumulate = accumulator, .math = own_math()});
    const OpCall call = file_call(op, data_of_file(dump), op.signature.precision.storage.front());
    return judge_dump(op, call, dump).result.verdict;
  };
  EXPECT_EQ(verdict(1, TensorCore::h100), Verdict::rounding);
  EXPECT_EQ(verdict(1 - 0x1p-19, TensorCore::h100), Verdict::bug) << "a few last places are more than cores lose";
}

TEST(CoreContract, WrongWordsAreToldWithTheKnownOnes) {
  const auto run = testing::ampcheck("check --dump no.npz --formula 'y = x' --accumulate 'tensor_core(h10)'");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(testing::contains(run.err,
                                "[--accumulate] got 'tensor_core(h10)' (did you mean 'tensor_core(h100)'?), "
                                "want fp32, fp16, bf16, tensor_core(v100)"))
      << run.err;
  const auto toml = [](const std::string& word) -> std::string {
    try {
      const OpDef op = op_of_toml(
                           "library = './rms_norm_launchers.so'\nname = 'cube'\nformula = 'y = x * x * x'\n"
                           "dims = { N = [35, 64, 2] }\ninputs = { x = 'N' }\noutputs = { y = 'N' }\n"
                           "contract = { storage = ['fp32'], accumulate = '" +
                               word +
                               "' }\n[forward]\nsymbol = 'cube'\narguments = ['const float* x', 'float* y', "
                               "'int64_t N']\n[backward]\nsymbol = 'cube_backward'\narguments = ['const float* "
                               "x', 'const float* dy', 'float* dx', 'int64_t N']\n",
                           "x.toml")
                           .op;
      return name(op.signature.precision.accumulate);
    } catch (const PluginError& error) {
      return error.what();
    }
  };
  for (const char* word : {"fp32", "bf16", "tensor_core(v100)", "tensor_core(b200)", "tensor_core(any)"})
    EXPECT_EQ(toml(word), word);
  EXPECT_EQ(toml("tensor_core(h200)"), "tensor_core(h100)");
  EXPECT_TRUE(testing::contains(toml("fp64"), "accumulate, got 'fp64'") &&
              testing::contains(toml("fp64"), "want fp32, fp16, bf16, tensor_core(v100)"))
      << toml("fp64");
}

/// The line that `ampcheck contract` prints names what was declared, in both doors' words.
TEST(CoreContract, ContractPrintsALineThatIsReadBack) {
  const std::string library = tests::in_build("/custom_ops/core_matmul.so");
  const auto run = testing::ampcheck("contract " + library + " core_matmul --dtype fp16");
  EXPECT_TRUE(testing::contains(run.out, "accumulates in tensor_core(h100): explains every element") &&
              testing::contains(run.out, "op.accumulate(AC_TENSOR_CORE_H100);") &&
              testing::contains(run.out, "accumulate = \"tensor_core(h100)\""))
      << run.out << run.err;
  const auto json = testing::ampcheck("contract " + library + " core_matmul --dtype fp16 --json");
  EXPECT_TRUE(testing::contains(json.out, "\"best_accumulate\": \"tensor_core(h100)\"")) << json.out;
}

TEST(CoreContract, AnOrderOfItsOwnCannotBeDeclaredBesides) {
  OpDef op = linear_with({}, TensorCore::h100);
  op.signature.precision.summation_depth = 7;
  EXPECT_THROW(arithmetic_of(op.signature, default_call(op.signature, Dtype::bf16)), Error);
}

}  // namespace
}  // namespace ampcheck::checks
