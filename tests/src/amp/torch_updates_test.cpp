// SPDX-License-Identifier: Apache-2.0
// Updates against torch's, for tensors longer than a vector of its kernels (tests/data/make_torch_updates.py): plain
// and fused, in every dtype, parameters and moments to the bit.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/amp/optimizers.h"
#include "tests/support/paths.h"

namespace ampcheck {
namespace {

using nlohmann::json;

Dtype dtype_of(const std::string& name) {
  return name == "float32"   ? Dtype::fp32
         : name == "float64" ? Dtype::fp64
         : name == "float16" ? Dtype::fp16
                             : Dtype::bf16;
}

template <class Options>
Options options_of(const json& row, double lr, bool fused) {
  const json& args = row["args"];
  Options out;
  out.lr = lr;
  out.fused = fused;
  out.weight_decay = args.value("weight_decay", out.weight_decay);
  out.maximize = args.value("maximize", false);
  return out;
}

template <class Options>
Options adam_options(const json& row, double lr, bool fused) {
  auto out = options_of<Options>(row, lr, fused);
  out.amsgrad = row["args"].value("amsgrad", false);
  if (row["args"].contains("betas")) {
    out.beta1 = row["args"]["betas"][0];
    out.beta2 = row["args"]["betas"][1];
  }
  return out;
}

std::unique_ptr<BlockOptimizer> made(const json& row, double lr, bool fused, Parameter& parameter) {
  const json& args = row["args"];
  const std::string kind = row["class"];
  const std::vector<Parameter*> all{&parameter};
  if (kind == "Adam") return std::make_unique<Adam>(all, adam_options<AdamOptions>(row, lr, fused));
  if (kind == "AdamW") return std::make_unique<AdamW>(all, adam_options<AdamWOptions>(row, lr, fused));
  if (kind == "SGD") {
    auto options = options_of<SgdOptions>(row, lr, fused);
    options.momentum = args.value("momentum", 0.0);
    options.dampening = args.value("dampening", 0.0);
    options.nesterov = args.value("nesterov", false);
    return std::make_unique<Sgd>(all, options);
  }
  if (kind == "Adagrad") {
    auto options = options_of<AdagradOptions>(row, lr, fused);
    options.lr_decay = args.value("lr_decay", 0.0);
    options.initial_accumulator_value = args.value("initial_accumulator_value", 0.0);
    return std::make_unique<Adagrad>(all, options);
  }
  auto options = options_of<RmspropOptions>(row, lr, fused);
  options.momentum = args.value("momentum", 0.0);
  options.centered = args.value("centered", false);
  return std::make_unique<Rmsprop>(all, options);
}

/// FNV-1a over the numbers as fp64, as the script has it.
std::uint64_t digest(std::uint64_t so_far, const Tensor& tensor) {
  for (const double x : to_doubles(tensor.view())) {
    unsigned char bytes[sizeof x];
    std::memcpy(bytes, &x, sizeof x);
    for (const unsigned char byte : bytes) so_far = (so_far ^ byte) * 0x100000001B3u;
  }
  return so_far;
}

/// A digest of what the row's steps leave.
std::string played(const json& all, const json& row, bool fused) {
  const std::int64_t n = all["elements"];
  Parameter parameter{"p", Tensor(dtype_of(row["dtype"]), {n})};
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i * 37 % 64 - 31) / 16);
  from_doubles(values, parameter.value.view());
  const auto optimizer = made(row, all["lr"], fused, parameter);
  for (std::int64_t step = 0; step < all["steps"]; ++step) {
    for (std::int64_t i = 0; i < n; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<double>((i * 29 + step * 13) % 97 - 48) / 64;
    parameter.grad = Tensor(parameter.value.dtype(), {n});
    from_doubles(values, parameter.grad.view());
    optimizer->step();
  }
  std::uint64_t out = digest(0xCBF29CE484222325u, parameter.value);
  for (const auto& [name, tensor] : optimizer->state(0))
    if (name != "step") out = digest(out, tensor);
  char text[24];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(out));
  return text;
}

TEST(TorchUpdates, ParametersAndMomentsAreBitEqual) {
  std::ifstream file(tests::in_data_root("/tests/data/torch_updates.json"));
  ASSERT_TRUE(file.good());
  const json all = json::parse(file);
  ASSERT_GE(all["updates"].size(), 90u);
  std::size_t alike = 0;
  for (const json& row : all["updates"]) {
    EXPECT_EQ(played(all, row, row["fused"]), row["digest"]) << row.dump();
    if (row["class"] != "RMSprop" && played(all, row, !row["fused"].get<bool>()) == row["digest"]) ++alike;
  }
  EXPECT_LE(alike, all["updates"].size() / 2) << "the other arithmetic has to show";
}

/// torch's fused SGD makes its buffer in a first step that its kernel skips, and the next one is no first step: it
/// takes the buffer for a momentum, and dampens. What torch's buffer holds is whatever memory held.
TEST(TorchUpdates, ASkippedFirstStepOfFusedSgdMakesItsBuffer) {
  for (const SkipRule skip : {SkipRule::torch_exactly_one, SkipRule::nonzero}) {
    Parameter parameter{"p", Tensor(Dtype::fp32, {2})};
    from_doubles(std::vector<double>{1, 2}, parameter.value.view());
    SgdOptions options;
    options.lr = options.momentum = 0.5;
    options.dampening = 0.25;
    options.fused = true;
    options.skip = skip;
    Sgd sgd({&parameter}, options);
    parameter.grad = Tensor(Dtype::fp32, {2});
    from_doubles(std::vector<double>{1, 4}, parameter.grad.view());
    sgd.found_inf = 1.0f;
    sgd.step();
    EXPECT_EQ(to_doubles(parameter.value.view()), (std::vector<double>{1, 2}));
    EXPECT_EQ(sgd.state(0).contains("momentum_buffer"), skip == SkipRule::torch_exactly_one);
    sgd.found_inf = 0.0f;
    sgd.step();
    EXPECT_EQ(to_doubles(sgd.state(0).at("momentum_buffer").view()),
              (skip == SkipRule::torch_exactly_one ? std::vector<double>{0.75, 3} : std::vector<double>{1, 4}));
  }
}

}  // namespace
}  // namespace ampcheck
