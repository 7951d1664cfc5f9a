// SPDX-License-Identifier: Apache-2.0
#include "checks/data/real_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "checks/data/regimes.h"
#include "checks/models/real_data.h"
#include "checks/run/runner.h"
#include "checks/zoo/planted.h"
#include "src/error.h"
#include "src/parallel.h"
#include "src/random.h"
#include "tests/support/paths.h"

namespace ampcheck::checks {
namespace {

namespace fs = std::filesystem;

const fs::path kData = tests::in_data_root("/tests/data");
constexpr Dtype kStorage[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};

std::vector<const OpDef*> every_op() {
  std::vector<const OpDef*> out;
  for (const OpDef& op : all_ops()) out.push_back(&op);
  return out;
}

std::uint64_t bits_hash(const auto& tensors, std::uint64_t hash) {
  for (const std::vector<double>& values : tensors)
    hash = hash * 31 + hash_name({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  return hash;
}

std::uint64_t hash_of(const models::NetRun& run) {
  std::uint64_t hash = 1;
  for (const models::StepRecord& step : run.steps) hash = bits_hash(step.cotangents, bits_hash(step.values, hash));
  return hash;
}

class RealTensors : public testing::Test {
 protected:
  static inline const std::shared_ptr<const CallData> data = data_of_nets(kData.string());
};

/// An op that no net meets is printed by `ampcheck list --wanting`; a net that loses one is a failure.
TEST_F(RealTensors, NetsMeetTheOpsThatAreNamedForThem) {
  for (const std::string_view net : models::net_names()) {
    std::set<std::string> met, named;
    const auto run = real_run(net, data);
    for (const models::RecordedCall& call : run->steps.front().calls) met.insert(call.call.op);
    for (const std::string_view op : models::ops_of_net(net)) named.emplace(op);
    EXPECT_EQ(met, named) << net << ": models::ops_of_net names others than it calls";
    for (const std::string& op : named) EXPECT_NE(find_op(op), nullptr) << net << " " << op;
  }
}

TEST_F(RealTensors, TheLossFallsAtEveryStep) {
  for (const std::string_view net : models::net_names()) {
    const auto run = real_run(net, data);
    ASSERT_EQ(run->steps.size(), static_cast<std::size_t>(models::kSteps));
    for (std::size_t i = 0; i < run->steps.size(); ++i) {
      std::printf("%s step %zu: loss %.6f\n", std::string(net).c_str(), i + 1, run->steps[i].loss);
      if (i == 0) continue;
      EXPECT_LT(run->steps[i].loss, run->steps[i - 1].loss) << net << " step " << i + 1;
    }
  }
}

TEST_F(RealTensors, TheSameBitsInEveryRunAndWithAnyNumberOfThreads) {
  for (const std::string_view net : models::net_names()) {
    set_threads(1);
    const std::uint64_t one = hash_of(models::run_net(net, kData));
    set_threads(4);
    const std::uint64_t four = hash_of(models::run_net(net, kData));
    set_threads(0);
    std::printf("%s: hash of all tensors %016llx\n", std::string(net).c_str(), static_cast<unsigned long long>(one));
    EXPECT_EQ(one, four) << net;
  }
}

TEST_F(RealTensors, EveryCallHasACotangentThatIsNotZero) {
  for (const std::string_view net : models::net_names()) {
    const auto run = real_run(net, data);
    for (const models::StepRecord& step : run->steps)
      for (const models::RecordedCall& call : step.calls) {
        const std::vector<double>& g = step.cotangents[static_cast<std::size_t>(call.output)];
        EXPECT_TRUE(std::any_of(g.begin(), g.end(), [](double v) { return v != 0; })) << net << " " << call.name;
        for (const auto& [name, id] : call.inputs)
          for (const double v : step.values[static_cast<std::size_t>(id)])
            ASSERT_TRUE(std::isfinite(v)) << net << " " << call.name << " " << name;
      }
  }
}

/// The tape's gradient of a parameter against centred differences of the loss, in fp64.
TEST_F(RealTensors, GradientsAreThoseOfTheLoss) {
  const auto loss_of = [](double nudge, std::vector<double>* gradient) {
    models::Parameters parameters("probe");
    parameters.get("w", {3, 4}, 0, 0.5)[5] += nudge;
    models::Fp64Tape tape(parameters);
    const models::Var x = tape.data({2, 4}, {1, -2, 3, 0.5, 0.25, 4, -1, 2}), w = tape.weight("w", {3, 4}, 4);
    const models::Var sums =
        tape.call("sum", {{"x", tape.call("mul", {{"x", tape.take(w, {4, 5, 6, 7, 5, 5, 0, 1}, {2, 4})}, {"y", x}})}});
    const models::Var squares = tape.call("mul", {{"x", sums}, {"y", sums}});
    tape.add_loss(tape.call("mean", {{"x", tape.reshape(squares, {1, 2})}}), 3);
    tape.backward_and_update(0.1);
    const models::StepRecord record = tape.take_record();
    if (gradient != nullptr) *gradient = record.cotangents[static_cast<std::size_t>(w.id)];
    return record.loss;
  };
  std::vector<double> gradient;
  loss_of(0, &gradient);
  // The loss is a quadratic of each weight, so the difference is exact but for rounding.
  const double difference = (loss_of(0x1p-4, nullptr) - loss_of(-0x1p-4, nullptr)) / 0x1p-3;
  ASSERT_NE(difference, 0);
  EXPECT_NEAR(gradient[5] / difference, 1, 1e-12);
  EXPECT_EQ(gradient[11], 0);
}

TEST_F(RealTensors, NamesReRunTheirCases) {
  const auto ops = every_op();
  const std::vector<Case> cases = real_cases(ops, kStorage, {}, data);
  ASSERT_FALSE(cases.empty());
  std::set<std::string> names;
  for (const Case& c : cases) {
    const OpSignature& signature = c.op->signature;
    const std::string name = c.call.str(signature);
    EXPECT_TRUE(names.insert(name).second) << name;
    OpCall parsed = parse_call(name, signature);
    parsed.data = data;
    EXPECT_EQ(parsed.str(signature), name);
    ASSERT_NO_THROW(require_real_call(signature, parsed)) << name;
    for (const TensorSpec& spec : signature.inputs) {
      if (!c.call.has(spec)) continue;
      EXPECT_EQ(input_values(signature, parsed, spec), input_values(signature, c.call, spec)) << name;
    }
  }
}

TEST_F(RealTensors, ValuesAreTheRecordedOnesRounded) {
  const auto run = real_run("digits", data);
  const models::RecordedCall& met = *run->steps[1].find("relu_1");
  OpCall call = met.call;
  call.storage = Dtype::bf16;
  call.range = "digits.step2.relu_1";
  call.data = data;
  const OpSignature& signature = find_op("relu")->signature;
  const std::vector<double>& recorded = run->steps[1].values[static_cast<std::size_t>(met.inputs[0].second)];
  const std::vector<double> values = input_values(signature, call, signature.inputs[0]);
  ASSERT_EQ(values.size(), recorded.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_LE(std::fabs(values[i] - recorded[i]), 0x1p-8 * std::fabs(recorded[i]));
  const std::vector<double>& gradient = run->steps[1].cotangents[static_cast<std::size_t>(met.output)];
  call.storage = Dtype::fp32;
  const std::vector<double> real =
      cotangent_values(call, "y", run->steps[1].shapes[static_cast<std::size_t>(met.output)], Dtype::fp32, 0);
  ASSERT_EQ(real.size(), gradient.size());
  for (std::size_t i = 0; i < real.size(); ++i)
    EXPECT_EQ(real[i], static_cast<double>(static_cast<float>(gradient[i])));
  OpCall generated = call;
  generated.range = "normal";
  EXPECT_EQ(probe_count(call), probe_count(generated) + 1);
  EXPECT_TRUE(full_mantissas(call, 0));
  for (int probe = 0; probe < probe_count(generated); ++probe)
    EXPECT_EQ(full_mantissas(call, probe + 1), full_mantissas(generated, probe));
}

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(RealTensors, WhatDoesNotExistIsToldWithWhatDoes) {
  const OpSignature& signature = find_op("softmax")->signature;
  const auto told = [&](const std::string& range, std::int64_t rows = 8) {
    OpCall call = default_call(signature, Dtype::fp32);
    call.dims = {{"N", rows}, {"D", 16}};
    call.range = range;
    call.data = data;
    return message_of([&] { input_values(signature, call, signature.inputs[0]); });
  };
  EXPECT_EQ(told("digits.step2.softmax_1"), "nothing was thrown");
  EXPECT_NE(told("digits.step9.softmax_1").find("digits.step1 to digits.step4"), std::string::npos);
  EXPECT_NE(told("digits.step").find("digits.step1 to digits.step4"), std::string::npos);
  EXPECT_NE(told("digits.step2.softmax_7").find("did you mean 'softmax_1'"), std::string::npos);
  EXPECT_NE(told("digits.step2").find("conv2d_1"), std::string::npos);
  EXPECT_NE(told("digits.step2.relu_1").find("a call of softmax"), std::string::npos);
  EXPECT_NE(told("digits.step2.softmax_1", 9).find("D=16 N=8"), std::string::npos);
  EXPECT_NE(told("digit.step2.softmax_1").find("unknown regime"), std::string::npos);
}

TEST_F(RealTensors, MissingDataNamesThePlaceAndTheFlag) {
  const std::string none = tests::in_build("/no such folder");
  try {
    real_run("digits", data_of_nets(none));
    FAIL() << "read data from a folder that is not there";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find(none), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--data"), std::string::npos) << error.what();
  }
}

TEST_F(RealTensors, BrokenDataIsRefusedWithItsLine) {
  const fs::path folder = tests::in_build("/broken_digits");
  fs::create_directories(folder);
  std::string row;
  for (int i = 0; i < 64; ++i) row += "3,";
  const auto refused = [&](const std::string& text) {
    std::ofstream(folder / models::kDigitsFile) << text;
    return message_of([&] { models::read_digits(folder); });
  };
  EXPECT_EQ(refused(row + "9\n"), "nothing was thrown");
  for (const std::string& bad :
       {row + "9\n" + row + "10\n", row + "9\n17," + row + "\n", row + "9\n" + row + "9,1\n", row + "9\n3,3\n"})
    EXPECT_NE(refused(bad).find("line 2"), std::string::npos) << refused(bad);
  fs::remove_all(folder);
}

TEST_F(RealTensors, EveryOpIsRightAtThem) {
  const auto ops = every_op();
  constexpr Dtype kOne[] = {Dtype::bf16};
  const Report report = run_cases(real_cases(ops, kOne, {models::kSteps}, data), {});
  std::printf("%zu cases in %.2f s\n", report.cases.size(), report.seconds);
  for (const CaseResult& result : report.cases) {
    EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
    EXPECT_GT(result.elements(), 0) << result.name;
  }
}

/// The planted variants of an op at the real tensors of the op itself.
Report run_planted(const PlantedOp& planted, const std::shared_ptr<const CallData>& data) {
  const std::vector<const OpDef*> ops = {&planted.op};
  constexpr Dtype kOne[] = {Dtype::bf16};
  const std::vector<Case> cases = real_cases(ops, kOne, {models::kSteps}, data);
  EXPECT_FALSE(cases.empty()) << planted.op.signature.name;
  return run_cases(cases, {});
}

TEST_F(RealTensors, PlantedFaultsAreFoundAndCorrectVariantsAreNot) {
  // Not each fault can show at a few real tensors; these must.
  const std::set<std::string> must = {"softmax.sign",    "softmax.missing_factor",     "softmax.unwritten_last",
                                      "softmax.overrun", "softmax.clobbers_cotangent", "add.overwrites"};
  std::size_t found = 0, clean = 0;
  for (const PlantedOp& planted : planted_ops()) {
    const std::string& name = planted.op.signature.name;
    const bool correct = planted.code == Code::none;
    if (!correct && !must.contains(name)) continue;
    const Report report = run_planted(planted, data);
    const bool convicted =
        std::any_of(report.cases.begin(), report.cases.end(), [](const CaseResult& r) { return convicts(r.verdict); });
    EXPECT_EQ(convicted, !correct) << name;
    ++(correct ? clean : found);
  }
  EXPECT_EQ(found, must.size());
  EXPECT_GT(clean, 0u);
}

}  // namespace
}  // namespace ampcheck::checks
