// SPDX-License-Identifier: Apache-2.0
// Saved tensors judged without a kernel: what numpy computed passes, the same with a fault does not.
#include "checks/run/dump.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checks/data/file_tensors.h"
#include "src/error.h"
#include "src/npy.h"
#include "src/npz.h"
#include "src/random.h"
#include "src/safetensors.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::ampcheck;
using testing::contains;
using testing::ProgramResult;
using testing::TemporaryFolder;

const std::string kData = tests::in_data_root("/tests/data/tensors/");
const std::string kRmsNorm = "y = x / sqrt(mean(x^2, -1) + 1e-6) * weight";

TensorFile rms_norm() { return read_tensors(kData + "rms_norm.safetensors"); }

Tensor& at(TensorFile& file, const std::string& name) {
  for (NamedTensor& tensor : file.tensors)
    if (tensor.name == name) return tensor.tensor;
  throw Error("no tensor " + name);
}

void remove(TensorFile& file, const std::string& name) {
  std::erase_if(file.tensors, [&](const NamedTensor& t) { return t.name == name; });
}

DumpResult judged(const TensorFile& dump, const std::string& formula, const DumpContract& contract) {
  const OpDef op = op_of_formula(dump, formula, contract);
  OpCall call = file_call(op, data_of_file(dump), op.signature.precision.storage.front());
  require_file_call(op, call, true);
  return judge_dump(op, call, dump);
}
DumpResult judged(const TensorFile& dump, const std::string& formula = kRmsNorm) {
  return judged(dump, formula, {.storage = {}, .math = cuda_math()});
}

std::string failing(const DumpResult& found) {
  std::string out;
  for (const CheckResult& check : found.result.checks)
    if (convicts(check.verdict)) out += (out.empty() ? "" : ", ") + check.name() + " " + ampcheck::name(check.code);
  return out;
}

std::string notes(const DumpResult& found) {
  std::string out;
  for (const std::string& note : found.notes) out += note + "\n";
  return out;
}

std::string message(const auto& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Dump, WhatNumpyComputedPasses) {
  const DumpResult found = judged(rms_norm());
  EXPECT_EQ(failing(found), "");
  EXPECT_EQ(found.result.verdict, Verdict::rounding);
  EXPECT_EQ(found.result.elements(), 12 * 48 + 12 * 48 + 48);
  EXPECT_EQ(notes(found), "not used of the dump: 'summed_in_bf16', 'without_inv_rms'\n");
}

TEST(Dump, OneWrongElementOfAnyTensorIsConvicted) {
  for (const char* name : {"y", "dx", "dweight"}) {
    TensorFile dump = rms_norm();
    Tensor& tensor = at(dump, name);
    tensor = Tensor(tensor.dtype(), tensor.shape());
    std::vector<double> values = to_doubles(rms_norm().find(name)->view());
    values[17] *= 1 + (tensor.dtype() == Dtype::bf16 ? 0x1p-6 : 0x1p-15);
    from_doubles(values, tensor.view());
    const DumpResult found = judged(dump);
    EXPECT_EQ(found.result.verdict, Verdict::bug) << name;
    for (const CheckResult& check : found.result.checks)
      EXPECT_EQ(check.failed, check.name().ends_with(name) ? 1 : 0) << check.name();
  }
}

TEST(Dump, AGradientWithoutAFactorIsConvicted) {
  TensorFile dump = rms_norm();
  at(dump, "dx") = at(dump, "without_inv_rms");
  EXPECT_EQ(failing(judged(dump)), "backward dx AC101");
}

TEST(Dump, ASumInBf16IsConvictedUnlessItIsDeclared) {
  TensorFile dump = rms_norm();
  at(dump, "dweight") = at(dump, "summed_in_bf16");
  EXPECT_EQ(failing(judged(dump)), "backward dweight AC301");
  EXPECT_EQ(failing(judged(dump, kRmsNorm, {.storage = {}, .accumulate = Dtype::bf16, .math = cuda_math()})), "");
}

TEST(Dump, WithoutGradientsOnlyTheForwardIsJudgedAndItSaysSo) {
  TensorFile dump = rms_norm();
  remove(dump, "dx");
  remove(dump, "dweight");
  const DumpResult found = judged(dump);
  EXPECT_EQ(found.result.checks.size(), 1u);
  EXPECT_TRUE(contains(notes(found), "only the forward is judged: the dump has no gradient 'dx', 'dweight'"))
      << notes(found);
  TensorFile one = rms_norm();
  remove(one, "dweight");
  EXPECT_TRUE(contains(notes(judged(one)), "not judged, since the dump has no 'dweight'"));
  TensorFile bare = rms_norm();
  remove(bare, "dy");
  EXPECT_TRUE(contains(message([&] { judged(bare); }), "no cotangent, want 'dy'"));
}

TEST(Dump, WhatDoesNotFitTheFormulaIsRefused) {
  EXPECT_TRUE(contains(message([] { judged(rms_norm(), "z = x * weight"); }), "want an output of the formula: 'z'"));
  EXPECT_TRUE(contains(message([] { judged(rms_norm(), "y = x * weigth"); }),
                       "column 9: got unknown name 'weigth' (did you mean 'weight'?), want a tensor of '"));
  EXPECT_TRUE(contains(message([] { judged(rms_norm(), "y = x * scale"); }), "which has 'dweight', "));
  EXPECT_TRUE(contains(message([] { judged(rms_norm(), "y = x @ weight"); }), "[formula] line 1"));
  EXPECT_TRUE(
      contains(message([] { judged(rms_norm(), "y = sum(x, -1)"); }), "tensor 'y', got shape [12,48], want [12,1]"));
  TensorFile dump = rms_norm();
  at(dump, "y") = Tensor(Dtype::i64, {12, 48});
  EXPECT_TRUE(contains(message([&] { judged(dump); }), "got i64, want floating"));
  dump = rms_norm();
  at(dump, "dx") = Tensor(Dtype::bf16, {12, 47});
  EXPECT_TRUE(contains(message([&] { judged(dump); }), "tensor 'dx', got shape [12,47]"));
}

/// NumPy's mean gives shape (), the language's [1].
TEST(Dump, ALossIsAScalarOrAVectorOfOneElement) {
  for (const char* const formula : {"loss = mean(x^2)", "loss = squeeze(mean(x^2), 0)"})
    for (const Shape& shape : {Shape{}, Shape{1}}) {
      TensorFile dump{"memory",
                      {{"x", Tensor(Dtype::fp32, {2, 4})},
                       {"loss", Tensor(Dtype::fp32, shape)},
                       {"dloss", Tensor(Dtype::fp32, shape)},
                       {"dx", Tensor(Dtype::fp32, {2, 4})}}};
      for (int i = 0; i < 8; ++i)
        at(dump, "x").span<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i),
                 at(dump, "dx").span<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i) / 2;
      at(dump, "loss").span<float>()[0] = 17.5F, at(dump, "dloss").span<float>()[0] = 2;
      EXPECT_EQ(failing(judged(dump, formula)), "") << formula << shape.str();
      at(dump, "loss").span<float>()[0] = 140;
      EXPECT_EQ(failing(judged(dump, formula)), "forward loss AC101") << formula << shape.str();
    }
  const TensorFile two{"memory", {{"x", Tensor(Dtype::fp32, {2, 4})}, {"loss", Tensor(Dtype::fp32, {1, 1})}}};
  EXPECT_TRUE(contains(message([&] { judged(two, "loss = mean(x^2)"); }), "got shape [1,1], want [1]"));
}

// A sum that went through float, and a sum in another order.
TEST(Dump, Fp64IsJudgedInFp64) {
  TensorFile dump{
      "memory",
      {{"x", Tensor(Dtype::fp64, {2, 40})}, {"y", Tensor(Dtype::fp64, {2, 1})}, {"z", Tensor(Dtype::fp64, {2, 1})}}};
  double sums[2] = {}, backwards[2] = {};
  float in_float[2] = {};
  const auto x = at(dump, "x").span<double>();
  for (int i = 0; i < 80; ++i) x[static_cast<std::size_t>(i)] = std::sin(i) / 3;
  for (int k = 0; k < 40; ++k)
    for (int row = 0; row < 2; ++row) {
      sums[row] += x[static_cast<std::size_t>(40 * row + k)];
      in_float[row] += static_cast<float>(x[static_cast<std::size_t>(40 * row + k)]);
      backwards[row] += x[static_cast<std::size_t>(40 * row + 39 - k)];
    }
  for (std::size_t row = 0; row < 2; ++row) {
    at(dump, "y").span<double>()[row] = std::exp(sums[row]);
    at(dump, "z").span<double>()[row] = std::exp(backwards[row]);
  }
  const std::string formula = "y = exp(sum(x, -1)); z = y + 0";
  EXPECT_EQ(failing(judged(dump, formula)), "");
  at(dump, "z").span<double>()[1] = std::exp(static_cast<double>(in_float[1]));
  EXPECT_EQ(failing(judged(dump, formula)).substr(0, 12), "forward z AC");
}

/// A product of [64,1024] and [1024,64], and its gradients for ones.
TensorFile product() {
  TensorFile dump{"memory",
                  {{"x", Tensor(Dtype::fp32, {64, 1024})},
                   {"w", Tensor(Dtype::fp32, {1024, 64})},
                   {"y", Tensor(Dtype::fp32, {64, 64})},
                   {"dy", Tensor(Dtype::fp32, {64, 64})},
                   {"dw", Tensor(Dtype::fp32, {1024, 64})}}};
  const Random random(1, "product");
  const auto x = at(dump, "x").span<float>(), w = at(dump, "w").span<float>(), y = at(dump, "y").span<float>(),
             dy = at(dump, "dy").span<float>(), dw = at(dump, "dw").span<float>();
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(random.normal(x.size() + i));
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<float>(random.normal(x.size() + w.size() + i));
  for (std::size_t i = 0; i < 64; ++i)
    for (std::size_t k = 0; k < 1024; ++k)
      for (std::size_t j = 0; j < 64; ++j) {
        y[64 * i + j] += x[1024 * i + k] * w[64 * k + j];
        dw[64 * k + j] += x[1024 * i + k] * dy[64 * i + j];
      }
  return dump;
}

// Rows of a large dump stand for it where the formula lets them: of the product's rows, and of those of the gradient,
// which are columns of x. The whole would take 40 times as long as the check that passes.
TEST(Dump, OneWrongRowOfALargeTensorIsNamedSoonAfterTheCheck) {
  const TensorFile right = product();
  const auto seconds = [](const TensorFile& dump, const std::string& due, const std::string& cause) {
    double best = 1e30;
    for (int turn = 0; turn < 3; ++turn) {
      const std::clock_t start = std::clock();  // of the processor: others may be at work
      const DumpResult found = judged(dump, "y = matmul(x, w)");
      best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
      EXPECT_EQ(failing(found), due);
      const CheckResult* const check = deciding_check(found.result);
      EXPECT_TRUE(check == nullptr || contains(check->cause, cause)) << check->cause;
    }
    return best;
  };
  const double passing = seconds(right, "", "");
  TensorFile wrong = product();
  for (std::size_t j = 0; j < 64; ++j) at(wrong, "y").span<float>()[64 * 37 + j] *= 3;
  EXPECT_LE(seconds(wrong, "forward y AC101", "off by a constant factor of 3; only in row 37"), 8 * passing);
  wrong = product();
  for (std::size_t j = 0; j < 64; ++j) at(wrong, "dw").span<float>()[64 * 900 + j] *= -1;
  EXPECT_LE(seconds(wrong, "backward dw AC101", "the sign is flipped; only in row 900"), 8 * passing);
  wrong = product();
  for (std::size_t j = 0; j < 4; ++j) at(wrong, "y").span<float>()[64 * 5 + j] = 0;
  seconds(wrong, "forward y AC101", "written as zero");
}

TEST(Dump, OpsInFp64ByTheirName) {
  const TemporaryFolder folder;
  const auto exit_codes = [&](double factor) {
    TensorFile dump{"memory", {{"x", Tensor(Dtype::fp64, {2, 3})}, {"y", Tensor(Dtype::fp64, {2, 3})}}};
    for (std::size_t i = 0; i < 6; ++i) {
      const double v = at(dump, "x").span<double>()[i] = 0.3 * static_cast<double>(i) + 0.1;
      at(dump, "y").span<double>()[i] = std::tanh(v) * factor;
    }
    const std::string file = folder.path() + "/a.safetensors";
    std::ofstream(file, std::ios::binary) << safetensors_bytes(dump.tensors);
    return std::pair(ampcheck("check --formula tanh --dump " + file).exit_code,
                     ampcheck("check tanh --inputs " + file).exit_code);
  };
  EXPECT_EQ(exit_codes(1), std::pair(0, 0));
  EXPECT_EQ(exit_codes(1 + 1e-12), std::pair(1, 0));
}

TEST(Dump, Fp64MayHoldFp32) {
  TensorFile dump{"memory", {{"x", Tensor(Dtype::fp64, {2, 3})}, {"y", Tensor(Dtype::fp64, {2, 3})}}};
  EXPECT_EQ(failing(judged(dump, "y = x * 3", {.storage = Dtype::fp32, .math = cuda_math()})), "");
  at(dump, "y").span<double>()[4] = 0x1p-60;
  EXPECT_EQ(failing(judged(dump, "y = x * 3", {.storage = Dtype::fp32, .math = cuda_math()})), "forward y AC101");
}

TEST(Dump, NoElementsAreNoFindingAndTheFormulaIsCertifiedAllTheSame) {
  const TensorFile dump{"memory", {{"x", Tensor(Dtype::fp32, {0, 5})}, {"y", Tensor(Dtype::fp32, {0, 5})}}};
  EXPECT_EQ(judged(dump, "y = exp(x)").result.verdict, Verdict::empty);
  const OpDef op = op_of_formula(dump, "y = exp(x)", {.storage = {}, .math = cuda_math()});
  std::string why;
  EXPECT_GE(certify_formula(op, file_call(op, data_of_file(dump), Dtype::fp32), why).digits, 25);
  EXPECT_EQ(why, "");
}

/// gather with indices, a mask of booleans, an output that is stored in between, two outputs with one cotangent.
TEST(Dump, IndicesMasksAndSeveralOutputs) {
  const std::int64_t rows = 6, width = 5, count = 9;
  TensorFile dump{"memory", {}};
  const Random random(3, "dump");
  const auto add = [&](const std::string& name, Dtype dtype, const Shape& shape, auto value) {
    std::vector<double> values(static_cast<std::size_t>(shape.count()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
    dump.tensors.push_back({name, Tensor(dtype, shape)});
    from_doubles(values, dump.tensors.back().tensor.view());
  };
  add("table", Dtype::fp32, {rows, width},
      [&](std::size_t i) { return static_cast<float>(random.below(i, 1000)) / 64.0; });
  add("at", Dtype::i64, {count}, [&](std::size_t i) { return static_cast<double>(i * 4 % 6); });
  add("keep", Dtype::u8, {count, width}, [&](std::size_t i) { return static_cast<double>(random.below(i + 5000, 2)); });
  const auto value = [&](const std::string& name) { return to_doubles(at(dump, name).view()); };
  const auto table = value("table"), index = value("at"), keep = value("keep");
  const auto picked = [&](std::size_t i) { return table[static_cast<std::size_t>(index[i / 5]) * 5 + i % 5]; };
  add("h", Dtype::fp32, {count, width}, picked);
  add("y", Dtype::fp32, {count, width}, [&](std::size_t i) { return picked(i) * keep[i] * 2; });
  add("dy", Dtype::fp32, {count, width},
      [&](std::size_t i) { return static_cast<double>(random.below(i + 9000, 17)) - 8; });
  const auto dy = value("dy");
  std::vector<double> gradient(table.size());
  for (std::size_t i = 0; i < dy.size(); ++i)
    gradient[static_cast<std::size_t>(index[i / 5]) * 5 + i % 5] += 2 * keep[i] * dy[i];
  add("dtable", Dtype::fp32, {rows, width}, [&](std::size_t i) { return gradient[i]; });
  const std::string formula = "h = gather(table, at); y = h * keep * 2";
  const DumpResult right = judged(dump, formula);
  EXPECT_EQ(failing(right), "");
  EXPECT_TRUE(contains(notes(right), "taken as zero, since the dump has no cotangent 'dh'")) << notes(right);
  EXPECT_EQ(right.result.elements(), 2 * count * width + rows * width);
  TensorFile wrong = dump;
  at(wrong, "at") = Tensor(Dtype::i64, {count});  // other rows than those that were taken
  EXPECT_EQ(judged(wrong, formula).result.verdict, Verdict::bug);
  TensorFile outside = dump;
  Tensor far(Dtype::i64, {count});
  far.span<std::int64_t>()[0] = 6;
  at(outside, "at") = far;
  EXPECT_NE(message([&] { judged(outside, formula); }), "no error");
}

// The program.

TEST(DumpCli, JudgesAnOpOrAFormula) {
  const std::string dump = "check --dump " + kData + "rms_norm.safetensors --formula ";
  for (const std::string& formula : {"'" + kRmsNorm + "'", std::string("'rms_norm(eps=1e-6)'")}) {
    const ProgramResult run = ampcheck(dump + formula);
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_TRUE(contains(run.out, "backward dweight")) << run.out;
    EXPECT_TRUE(contains(run.out, "not used of the dump: 'summed_in_bf16'")) << run.out;
    EXPECT_TRUE(contains(run.out, "certified to >= ")) << run.out;
  }
  const ProgramResult other = ampcheck(dump + "'rms_norm(eps=0.1)'");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_TRUE(contains(other.out,
                       "again   ampcheck check --dump " + kData + "rms_norm.safetensors --formula 'rms_norm(eps=0.1)'"))
      << other.out;
  const ProgramResult json = ampcheck(dump + "rms_norm --json");
  EXPECT_EQ(nlohmann::json::parse(json.out).at("cases").size(), 1u);
}

TEST(DumpCli, Bf16HeldInFp32NeedsToBeDeclared) {
  const std::string dump = "check --dump " + kData + "softmax.npz --formula softmax";
  const ProgramResult wide = ampcheck(dump);
  EXPECT_EQ(wide.exit_code, 1);
  EXPECT_TRUE(contains(wide.out, "every value is a bf16 number: if that is what the op stores, say --dtype bf16"))
      << wide.out;
  const ProgramResult run = ampcheck(dump + " --dtype bf16");
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_TRUE(contains(run.out, "'y' is held in fp32 and judged in bf16")) << run.out;
  EXPECT_EQ(ampcheck(dump + " --dtype e5m2").exit_code, 2);  // softmax is not declared for it
}

TEST(DumpCli, WhatIsMissingIsSaid) {
  const ProgramResult nowhere = ampcheck("check --dump nowhere.npz --formula 'y = x'");
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_TRUE(contains(nowhere.err, "'nowhere.npz', which is not there")) << nowhere.err;
  const std::string file = kData + "rms_norm.safetensors";
  for (const auto& [arguments, code, words] :
       {std::tuple{"check --dump " + file, 2, "want an op's name or a formula"},
        {std::string("check --formula softmax"), 2, "got no --dump"},
        {"check softmax --dump " + file + " --formula softmax", 2, "got the selector 'softmax'"},
        {"check --dump " + file + " --formula softmx", 2, "did you mean 'softmax'"},
        {"check --dump " + file + " --formula 'y = x +'", 2, "line 1"},
        {"check --dump " + file + " --formula 'y = x with dx = 2 * dy'", 2, "with"},
        {std::string("check --dump /nonexistent --formula softmax"), 2, "not there"},
        {"check --dump " + kData + "object.npy --formula softmax", 2, "'|O'"}}) {
    const ProgramResult run = ampcheck(arguments);
    EXPECT_EQ(run.exit_code, code) << arguments << "\n" << run.out;
    EXPECT_TRUE(contains(run.err, words)) << arguments << "\n" << run.err;
  }
  EXPECT_TRUE(contains(ampcheck("explain dump").out, "torch.ones_like(y)"));
}

TEST(DumpCli, AFolderOfNpyFiles) {
  const TemporaryFolder folder;
  for (const NamedTensor& tensor : read_tensors(kData + "softmax.npz").tensors)
    std::ofstream(folder.path() + "/" + tensor.name + ".npy", std::ios::binary) << npy_bytes(tensor.tensor);
  EXPECT_EQ(ampcheck("check --dump " + folder.path() +
                     " --formula 'e = exp(x - stop_gradient(max(x, -1))); y = e / sum(e, -1)' --dtype bf16")
                .exit_code,
            0);
}

}  // namespace
}  // namespace ampcheck::checks
