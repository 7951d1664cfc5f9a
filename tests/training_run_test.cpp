// SPDX-License-Identifier: Apache-2.0
// The training runs that PyTorch did (shared/torch_goldens/training_run.json), repeated with our kernels, scaler and optimizer.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include "checks/models/real_data.h"
#include "checks/train/trainer.h"
#include "tests/shared_data.h"

namespace ampcheck::checks::train {
namespace {

using json = nlohmann::ordered_json;

double number(const json& j) { return std::strtod(j.at("hex").get<std::string>().c_str(), nullptr); }

std::vector<double> from_base64(const std::string& text) {
  std::vector<unsigned char> bytes;
  std::uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    const std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    held = held << 6 | static_cast<std::uint32_t>(alphabet.find(c));
    if ((bits += 6) >= 8) bytes.push_back(static_cast<unsigned char>(held >> (bits -= 8)));
  }
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return {values.begin(), values.end()};
}

/// Largest relative difference of the losses, as the README of the goldens states what an independent program reached; the bound
/// is the next power of two of those figures.
double loss_bound(const std::string& mode, const std::string& loss) {
  const bool mse = loss == "mse";
  if (mode == "fp64") return 1e-12;
  if (mode == "fp32") return 0x1p-20;              // README: 5e-7
  if (mode == "bf16") return mse ? 0x1p-22 : 0x1p-6;  // 2e-7 and 1.5e-2
  return mse ? 0x1p-11 : 0x1p-8;                   // fp16: 2.6e-4 and 2.9e-3
}

class TrainingRun : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto file = tests::shared_file("torch_goldens/training_run.json");
    if (!file) GTEST_SKIP() << "no shared/torch_goldens/training_run.json beside the source tree";
    golden_ = json::parse(std::ifstream(*file));
  }

  TrainOptions options_of(const json& run) const {
    TrainOptions options;
    options.net.model = "mlp";
    options.net.loss = run.at("loss_name").get<std::string>();
    options.net.data = std::string(AMPCHECK_ROOT) + "/tests/data";
    const std::string mode = run.at("mode").get<std::string>();
    options.autocast = AutocastDevice::cpu;  // where torch ran it
    options.dtype = mode == "bf16" ? Dtype::bf16 : mode.starts_with("fp16") ? Dtype::fp16 : Dtype::fp32;
    options.scaler.enabled = !run.at("scaler").is_null();
    if (options.scaler.enabled) {
      options.scaler.init_scale = number(run["scaler"]["init_scale"]);
      options.scaler.growth_interval = static_cast<std::int32_t>(number(run["scaler"]["growth_interval"]));
    }
    options.rule.optimizer.lr = number(run.at("lr"));
    options.rule.optimizer.momentum = number(run.at("momentum"));
    options.norms = true;
    return options;
  }
  void start(ParameterSet& run) const {
    for (const auto& [name, text] : golden_["init_params_base64_le_fp32"].items()) {
      const json& shape = golden_["shapes"][name];
      const Shape extents = shape.size() == 2 ? Shape{shape[0].get<std::int64_t>(), shape[1].get<std::int64_t>()} : Shape{shape[0].get<std::int64_t>()};
      const std::vector<double> values = from_base64(text.get<std::string>());
      run.set(name, extents, values);
    }
  }

  json golden_;
};

TEST_F(TrainingRun, EveryRunOfTheGoldenIsMatched) {
  for (const json& run : golden_["runs"]) {
    const std::string mode = run["mode"].get<std::string>(), what = mode + " " + run["loss_name"].get<std::string>();
    if (mode == "fp64") continue;
    Trainer trainer(options_of(run));
    start(trainer.parameters());
    double worst = 0;
    for (const json& step : run["steps"]) {
      const StepResult got = trainer.step();
      const double want = number(step["loss"]);
      worst = std::max(worst, std::fabs(got.loss - want) / std::fabs(want));
      const std::string where = what + " step " + std::to_string(got.step);
      EXPECT_EQ(got.scale, number(step["scale"])) << where;
      EXPECT_EQ(got.scale_after, number(step["scale_after"])) << where;
      EXPECT_EQ(got.stepped, step["stepped"].get<int>() != 0) << where;
      EXPECT_EQ(got.found_inf, step["found_inf"].get<int>() != 0) << where;
      if (got.step > 0) continue;
      // Sums in another order differ by roundings of fp32; after the rounding to 16 bits a few of thousands of elements show it.
      const double close = mode == "fp32" ? 0x1p-22 : 0x1p-19;
      EXPECT_NEAR(got.loss, want, std::fabs(want) * 0x1p-22) << where;
      ASSERT_EQ(got.norms.size(), step["grad_norms"].size()) << where;
      for (std::size_t p = 0; p < got.norms.size(); ++p) {
        EXPECT_NEAR(got.scaled_norms[p], number(step["scaled_grad_norms"][p]), number(step["scaled_grad_norms"][p]) * close) << where;
        EXPECT_NEAR(got.norms[p], number(step["grad_norms"][p]), number(step["grad_norms"][p]) * close) << where;
      }
    }
    EXPECT_LE(worst, loss_bound(mode, run["loss_name"].get<std::string>())) << what;
    std::printf("[          ] %-34s largest relative loss difference %.2g\n", what.c_str(), worst);
  }
}

TEST_F(TrainingRun, TheFp64RunIsTorchs) {
  for (const json& run : golden_["runs"]) {
    if (run["mode"] != "fp64") continue;
    const TrainOptions options = options_of(run);
    ParameterSet init("mlp", 1);
    start(init);
    Fp64Run fp64(make_net(options.net), options.rule, 1);
    fp64.start_from(init);
    double worst = 0;
    for (const json& step : run["steps"]) {
      const double want = number(step["loss"]);
      worst = std::max(worst, std::fabs(fp64.step() - want) / want);
    }
    EXPECT_LE(worst, loss_bound("fp64", "")) << run["loss_name"];
  }
}

}  // namespace
}  // namespace ampcheck::checks::train
