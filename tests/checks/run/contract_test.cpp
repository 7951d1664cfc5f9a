// SPDX-License-Identifier: Apache-2.0
// The contract that a kernel's bits show is the one that it was written to; what they do not show is not claimed.
#include "checks/run/contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "checks/case/case_run.h"
#include "checks/doors/launcher_toml.h"
#include "checks/zoo/zoo.h"
#include "src/rounding.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::checks {
namespace {

using testing::contains;

const Reading& reading_of(const std::vector<Reading>& all, const std::string& words) {
  return *std::find_if(all.begin(), all.end(), [&](const Reading& r) { return r.words == words; });
}

TEST(Contract, OfCorrectKernels) {
  for (const char* name :
       testing::all_or_first({"softmax", "layer_norm", "gelu", "cross_entropy", "layer_norm.welford"})) {
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
  for (const auto& [name, order] :
       {std::pair("sum", reference::SumOrder::lanes32), std::pair("sum.pairwise", reference::SumOrder::pairwise),
        std::pair("sum.reversed", reference::SumOrder::reversed)}) {
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
  op.signature = {.name = "dot",
                  .inputs = {{.name = "x", .dims = "N D"}, {.name = "w", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {5, 9, 2}}, {"D", {33, 64, 7}}}};
  op.forms = {{"dot", [](reference::FormulaCall& c) { c.output("y", reference::sum(c["x"] * c["w"], -1)); }}};
  op.kernel.forward = [fused](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x")), w = to_doubles(call.at("w"));
    std::vector<double> y(static_cast<std::size_t>(call.at("y").count()));
    const std::size_t columns = y.empty() ? 0 : x.size() / y.size();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float a = static_cast<float>(x[i]), b = static_cast<float>(w[i]), s = static_cast<float>(y[i / columns]),
                  product = a * b;
      y[i / columns] = static_cast<double>(fused ? std::fma(a, b, s) : s + product);
    }
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [](const kernels::KernelCall& call) {
    const std::vector<double> g = to_doubles(call.at("dy"));
    for (const auto& [name, other] : {std::pair("dx", "w"), std::pair("dw", "x")}) {
      std::vector<double> out = to_doubles(call.at(other));
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<double>(static_cast<float>(g[i * g.size() / out.size()]) * static_cast<float>(out[i]));
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
  const ContractReading sums = read_contract(*find_op("sum"), Dtype::fp32, 1),
                        products = read_contract(*find_op("linear"), Dtype::fp32, 1);
  EXPECT_EQ(sums.best_order(true)->equal, sums.best_order(false)->equal) << "without products there is nothing to fuse";
  EXPECT_TRUE(products.orders.front().fused) << "our products of matrices are chains of fma";
}

TEST(Contract, FindsALowAccumulator) {
  for (const auto& [name, tensor, right] :
       {std::tuple("softmax.bf16_accumulation", "dx", "y"), std::tuple("sum.in_bf16", "y", "dx"),
        std::tuple("mean.in_bf16", "y", "dx")}) {
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

constexpr std::size_t kEvery = testing::kSanitized ? 53 : 13;  ///< of the zoo's kernels
constexpr const char* kTooLong = "attention.";                 // takes as long as all others: tests/soak

OpDef with_results(const OpDef& op, const std::function<void(std::vector<double>&)>& change) {
  OpDef out = op;
  for (auto* kernel : {&out.kernel.forward, &out.kernel.backward})
    *kernel = [inner = *kernel, change](const kernels::KernelCall& call) {
      inner(call);
      for (const auto& [name, view] : call.tensors) {
        if (name != "y" && name != "dx") continue;
        if (name == "y" &&
            std::any_of(call.tensors.begin(), call.tensors.end(), [](const auto& t) { return t.first == "dx"; }))
          continue;
        std::vector<double> values = to_doubles(view);
        change(values);
        from_doubles(values, view);
      }
    };
  return out;
}

TEST(Contract, FindsResultsInFewerBitsFlushesAndAtomics) {
  const ContractReading narrow = read_contract(
      with_results(*find_op("silu"), [](std::vector<double>& v) { round_values(kBf16, {}, v, v); }), Dtype::fp32, 1);
  EXPECT_EQ(narrow.narrow, (std::vector<std::pair<std::string, Dtype>>{{"dx", Dtype::bf16}, {"y", Dtype::bf16}}));
  int calls = 0;
  const ContractReading racing = read_contract(with_results(*find_op("sum"),
                                                            [&](std::vector<double>& v) {
                                                              if (!v.empty() && ++calls % 2 == 0)
                                                                v[0] = std::nextafter(static_cast<float>(v[0]), 1e30f);
                                                            }),
                                               Dtype::fp32, 1);
  EXPECT_FALSE(racing.repeats);
  EXPECT_TRUE(racing.best.atomics);
}

/// y with every number moved by so many ulps of fp32, and what the command says of it.
ContractReading with_error(const char* op, double ulps) {
  return read_contract(with_results(*find_op(op),
                                    [=](std::vector<double>& v) {
                                      for (double& x : v) x = static_cast<float>(x * (1 + ulps * 0x1p-23));
                                    }),
                       Dtype::fp32, 1);
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
  const TomlOp scaled = op_of_toml(
      "library = './rms_norm_launchers.so'\nname = 'cube'\nformula = 'y = x * x * x * rsqrt(N)'\ndims = { N = [35, 64, "
      "2] }\ninputs = { x = 'N' }\noutputs = { y = 'N' }\n"
      "contract = { storage = ['fp32'] }\n"
      "[forward]\nsymbol = 'cube'\narguments = ['const float* x', 'float* y', 'int64_t N']\n"
      "[backward]\nsymbol = 'cube_backward'\narguments = ['const float* x', 'const float* dy', 'float* dx', 'int64_t "
      "N']\n",
      tests::in_build("/custom_ops/x.toml"));
  EXPECT_TRUE(read_contract(scaled.op, Dtype::fp32, 1).used.empty())
      << "a function of a constant is none of the kernel's";
}

/// An op with the kernel of a built-in one, whose results are recomputed by a function of inputs and cotangents.
OpDef elementwise(const char* of, float (*f)(float), float (*df)(float x, float g)) {
  OpDef op = *find_op(of);
  op.kernel.forward = [f](const kernels::KernelCall& call) {
    std::vector<double> y = to_doubles(call.at("x"));
    for (double& v : y) v = static_cast<double>(f(static_cast<float>(v)));
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [df](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x"));
    std::vector<double> dx = to_doubles(call.at("dy"));
    for (std::size_t i = 0; i < dx.size(); ++i)
      dx[i] = static_cast<double>(df(static_cast<float>(x[i]), static_cast<float>(dx[i])));
    if (const auto* to = call.find("dx"); to != nullptr) from_doubles(dx, *to);
  };
  return op;
}

float round_to(const FloatFormat& f, float x, RoundingMode mode = {}) {
  double v = static_cast<double>(x);
  round_values(f, mode, {&v, 1}, {&v, 1});
  return static_cast<float>(v);
}
float exp2_of(float x) { return std::exp2(x * 1.44269504f); }
float exp2_of_a_short_constant(float x) { return std::exp2(x * 1.44f); }
float sigmoid_in_bf16(float x) { return round_to(kBf16, 1 / (1 + std::exp(-x))); }
float silu_of_that(float x) { return x * sigmoid_in_bf16(x); }
float flushing(float x) { return round_to(kFp32, std::exp(x), {.subnormals = Subnormals::flush}); }

const TensorReading& tensor_of(const ContractReading& r, const std::string& name) {
  return *std::find_if(r.tensors.begin(), r.tensors.end(), [&](const TensorReading& t) { return t.tensor == name; });
}

/// A matrix product whose forward rounds its operands to tf32.
OpDef product_in_tf32(Rounding mode) {
  OpDef op = dot(false);
  op.forms = {
      {"dot", [](reference::FormulaCall& c) { c.output("y", reference::matmul(c["x"], c["w"], false, true)); }}};
  op.signature.inputs[1].dims = "M D";
  op.signature.dims.push_back({"M", {3, 8, 1}});
  op.kernel.forward = [mode](const kernels::KernelCall& call) {
    std::vector<double> x = to_doubles(call.at("x")), w = to_doubles(call.at("w")), y = to_doubles(call.at("y"));
    for (std::vector<double>* const v : {&x, &w}) round_values(kTf32, {.rounding = mode}, *v, *v);
    const auto m = static_cast<std::size_t>(call.at("w").shape[0]), d = static_cast<std::size_t>(call.at("w").shape[1]);
    for (std::size_t i = 0; i < y.size(); ++i) {
      float s = 0;
      for (std::size_t k = 0; k < d; ++k)
        s += static_cast<float>(x[i / m * d + k]) * static_cast<float>(w[i % m * d + k]);
      y[i] = static_cast<double>(s);
    }
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [](const kernels::KernelCall& call) {
    const std::vector<double> g = to_doubles(call.at("dy")), x = to_doubles(call.at("x")), w = to_doubles(call.at("w"));
    const auto m = static_cast<std::size_t>(call.at("w").shape[0]), d = static_cast<std::size_t>(call.at("w").shape[1]),
               n = static_cast<std::size_t>(call.at("x").shape[0]);
    std::vector<double> dx(n * d), dw(m * d);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < m; ++j)
        for (std::size_t k = 0; k < d; ++k) {
          dx[i * d + k] += g[i * m + j] * w[j * d + k];
          dw[j * d + k] += g[i * m + j] * x[i * d + k];
        }
    if (const auto* to = call.find("dx"); to != nullptr) from_doubles(dx, *to);
    if (const auto* to = call.find("dw"); to != nullptr) from_doubles(dw, *to);
  };
  return op;
}

TEST(Contract, FindsFlushedSubnormals) {
  const ContractReading r =
      read_contract(elementwise("exp", flushing, [](float x, float g) { return g * std::exp(x); }), Dtype::fp32, 1);
  EXPECT_TRUE(r.best.flushes_subnormals && r.can_be_declared());
  EXPECT_FALSE(read_contract(*find_op("exp"), Dtype::fp32, 1).best.flushes_subnormals);
}

TEST(Contract, FindsAFastFunction) {
  const ContractReading r =
      read_contract(elementwise("exp", exp2_of, [](float x, float g) { return g * exp2_of(x); }), Dtype::fp32, 1);
  for (const char* tensor : {"y", "dx"}) {
    EXPECT_TRUE(contains(tensor_of(r, tensor).departure, "fast-math exp"))
        << tensor << ": " << tensor_of(r, tensor).departure;
    EXPECT_GT(tensor_of(r, tensor).departure_surety, 100) << tensor;
  }
  EXPECT_TRUE(r.can_be_declared()) << "all of it, in ulps";
  EXPECT_GT(r.best.math.exp, 16);
  EXPECT_EQ(r.used, std::vector<std::string>{"exp"});
}

/// In fp32, and where the storage is as short.
TEST(Contract, FindsAnIntermediateIn16Bits) {
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
    const ContractReading r = read_contract(
        elementwise("silu", silu_of_that,
                    [](float x, float g) { return g * (sigmoid_in_bf16(x) * (1 + x * (1 - sigmoid_in_bf16(x)))); }),
        storage, 1);
    EXPECT_EQ(tensor_of(r, "y").departure, "keeps sigmoid(x) in bf16") << name(storage);
    EXPECT_TRUE(tensor_of(r, "dx").departure.starts_with("keeps sigmoid(x) in bf16"))
        << name(storage) << ": " << tensor_of(r, "dx").departure;
    EXPECT_TRUE(r.explained() && !r.can_be_declared()) << "a contract has no word for it";
  }
}

TEST(Contract, FindsOperandsInTf32) {
  for (const auto& [mode, words] :
       {std::pair(Rounding::nearest_even, "in tf32"), std::pair(Rounding::toward_zero, "in tf32 (truncated)")}) {
    const ContractReading r = read_contract(product_in_tf32(mode), Dtype::fp32, 1);
    EXPECT_TRUE(tensor_of(r, "y").departure.ends_with(words)) << tensor_of(r, "y").departure;
    EXPECT_TRUE(tensor_of(r, "dx").departure.empty() && tensor_of(r, "dx").unexplained == 0);
  }
}

TEST(Contract, FindsTruncationToStorage) {
  const ContractReading r = read_contract(*find_op("add.truncates"), Dtype::bf16, 1);
  EXPECT_EQ(tensor_of(r, "z").departure, "truncated, not rounded, to bf16");
}

TEST(Contract, HasNoLineForAKernelThatIsWrong) {
  const ContractReading wrong = read_contract(
      elementwise("exp", exp2_of_a_short_constant, [](float x, float g) { return g * std::exp(x); }), Dtype::fp32, 1);
  EXPECT_GT(tensor_of(wrong, "y").unexplained, 0) << "no fast-math: the constant is wrong";
  EXPECT_EQ(tensor_of(wrong, "dx").unexplained, 0);
  EXPECT_FALSE(wrong.explained() || wrong.can_be_declared());
  // Of the zoo's kernels a part: a bug gets no other contract than the declared one, which stands where these cases do
  // not show it; a right kernel gets that too.
  int seen = 0, right = 0;
  for (std::size_t k = 0; k < zoo::specimens().size(); ++k) {
    const zoo::Specimen& s = zoo::specimens()[k];
    if (!s.correct() && (s.due == Verdict::precision_contract || s.also == Verdict::precision_contract)) continue;
    if (k % kEvery != 0 || s.name().starts_with(kTooLong)) continue;
    const ContractReading r = read_contract(s.op, s.dtypes.front(), 1);
    const bool as_declared = r.best.accumulate == Dtype::fp32 && !r.best.flushes_subnormals && r.best.math.exp < 10;
    if (s.correct()) {
      ++right;
      EXPECT_TRUE(r.can_be_declared() && as_declared) << s.name();
      for (const TensorReading& t : r.tensors)
        EXPECT_TRUE(t.departure.empty()) << s.name() << " " << t.tensor << ": " << t.departure;
    } else {
      EXPECT_TRUE(!r.can_be_declared() || as_declared)
          << s.name() << ": accumulate " << name(r.best.accumulate) << (r.best.flushes_subnormals ? ", flushes" : "")
          << ", exp " << r.best.math.exp;
      seen += !r.can_be_declared();
    }
  }
  EXPECT_GT(seen, 200 / kEvery / 3);
  EXPECT_GT(right, 60 / kEvery / 2);
}

TEST(ContractCommand, PrintsTheLineToPaste) {
  const auto run = testing::ampcheck("contract softmax.bf16_accumulation --dtype fp32");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* words : {"dx            accumulates in bf16: ", "; declared: fp32, which leaves",
                            "op.accumulate(AC_BF16);", "accumulate = \"bf16\""})
    EXPECT_TRUE(contains(run.out, words)) << words << "\n" << run.out;
  for (const char* words : {"explains every element; 10^", "under which every element lies inside its interval"})
    EXPECT_TRUE(contains(run.out, words)) << words << "\n" << run.out;
  const auto wrong = testing::ampcheck("contract softmax.missing_factor --dtype fp32"),
             kept = testing::ampcheck("contract softmax.y_saved_in_bf16 --dtype fp32");
  EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
  EXPECT_TRUE(contains(wrong.out, "  dx            no contract explains it: ") &&
              contains(wrong.out, "no line to paste") && !contains(wrong.out, "op.accumulate"))
      << wrong.out;
  EXPECT_EQ(kept.exit_code, 1) << kept.err;
  EXPECT_TRUE(contains(kept.out, " in bf16: explains every element; 10^") &&
              contains(kept.out, "a contract has no word for that") && !contains(kept.out, "op.accumulate"))
      << kept.out;
  EXPECT_TRUE(contains(testing::ampcheck("contract exp.through_exp2 --dtype fp32").out, "op.math().exp = 64;"));
  const auto json = testing::ampcheck("contract sum --dtype fp32 --json");
  EXPECT_TRUE(contains(json.out, "\"schema\": \"ampcheck.contract/1\"") && contains(json.out, "\"fused\": false") &&
              contains(json.out, "\"declarable\": true"))
      << json.out;
  const auto products = testing::ampcheck("contract linear --dtype fp32");
  EXPECT_TRUE(contains(products.out, "  products      added by fused multiply-add: ")) << products.out;
  // C++ and TOML declare the same.
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/loose.toml")
      << "library = '" + tests::in_build("/custom_ops/rms_norm_launchers.so") +
             "'\nname = 'loose'\nformula = 'y = exp(x)'\ndims = { N = [35, 64, 2] }\n"
             "inputs = { x = 'N' }\noutputs = { y = 'N' }\ncontract = { storage = ['fp32'] }\n"
             "[forward]\nsymbol = 'loose_exp'\narguments = ['const float* x', 'float* y', 'int64_t N']\n"
             "[backward]\nsymbol = 'loose_exp_backward'\narguments = ['const float* x', 'const float* dy', 'float* "
             "dx', "
             "'int64_t N']\n";
  const auto both = testing::ampcheck("contract " + folder.path() + "/loose.toml");
  EXPECT_TRUE(contains(both.out, "op.math().exp = 16;\n") && contains(both.out, "    math = { exp = 16 }"))
      << both.out << both.err;
  EXPECT_EQ(testing::ampcheck("contract").exit_code, 2);
  EXPECT_TRUE(contains(testing::ampcheck("contract softmx").err, "did you mean 'softmax'"));
}

}  // namespace
}  // namespace ampcheck::checks
