// SPDX-License-Identifier: Apache-2.0
// Checkpoints that no run wrote: refused before a tensor is read or written beyond its end.
#include "checks/train/checkpoint.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "src/amp/error.h"
#include "src/amp/grad_scaler.h"
#include "src/safetensors.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::train {
namespace {

using testing::contains;

TrainOptions adam_on_a_small_net() {
  TrainOptions out;
  out.net = {.model = "tutorial", .batch = 2, .width = 4};
  out.rule.optimizer.name = "adam";
  return out;
}

/// What is said of the checkpoint of a run of two steps after `change` of one of its tensors; empty: it is taken.
std::string refusal(const std::string& tensor, const std::function<void(NamedTensor&)>& change) {
  Trainer trainer(adam_on_a_small_net());
  for (int step = 0; step < 2; ++step) trainer.step();
  std::vector<NamedTensor> tensors = parse_safetensors(checkpoint_bytes(trainer), "right");
  bool found = false;
  for (NamedTensor& entry : tensors)
    if (entry.name.find(tensor) != std::string::npos && !found) {
      found = true;
      change(entry);
    }
  EXPECT_TRUE(found) << tensor;
  Trainer again(adam_on_a_small_net());
  try {
    resume(again, safetensors_bytes(tensors), "file");
  } catch (const Error& error) {
    return error.what();
  }
  again.step();
  return "";
}

std::function<void(NamedTensor&)> number(std::size_t at, double value) {
  return [at, value](NamedTensor& entry) { entry.tensor.span<double>()[at] = value; };
}

TEST(Checkpoint, OneThatARunWroteIsTaken) {
  EXPECT_EQ(refusal("exp_avg", [](NamedTensor&) {}), "");
  EXPECT_EQ(refusal("trainer/steps", number(0, 7)), "");
}

TEST(Checkpoint, TensorsOfAnotherShapeOrTypeAreRefused) {
  const auto shorter = [](NamedTensor& entry) { entry.tensor = Tensor(entry.tensor.dtype(), {0}); };
  const auto bytes = [](NamedTensor& entry) { entry.tensor = Tensor(Dtype::u8, entry.tensor.shape()); };
  for (const char* const tensor :
       {"exp_avg", "/step", "parameter/", "trainer/steps", "trainer/spreads", "scaler/scale", "recipe", "format"}) {
    const bool any_length = std::string_view(tensor) == "trainer/spreads";
    if (!any_length) {
      EXPECT_TRUE(contains(refusal(tensor, shorter), "[checkpoint] file"))
          << tensor << ": " << refusal(tensor, shorter);
    }
    const bool text = std::string_view(tensor) == "recipe" || std::string_view(tensor) == "format";
    if (!text) {
      EXPECT_TRUE(contains(refusal(tensor, bytes), "[checkpoint] file")) << tensor << ": " << refusal(tensor, bytes);
    }
  }
}

TEST(Checkpoint, NumbersThatNoRunReachesAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double value : {nan, -1.0, 0.5, 1e300})
    EXPECT_TRUE(contains(refusal("trainer/steps", number(0, value)), "steps, want a whole number")) << value;
  EXPECT_TRUE(contains(refusal("trainer/steps", number(1, 3)), "want a whole number up to 2")) << "skips";
  for (const double value : {nan, 1e300})
    EXPECT_TRUE(contains(refusal("scaler/_growth_tracker", number(0, value)), "'_growth_tracker'")) << value;
}

TEST(ScalerState, CountsThatItCannotHoldAreRefused) {
  GradScaler scaler;
  GradScaler::StateDict state = scaler.state_dict();
  EXPECT_NO_THROW(scaler.load_state_dict(state));
  for (const double value : {std::numeric_limits<double>::infinity(), 1e10}) {
    state["growth_interval"] = value;
    EXPECT_THROW(scaler.load_state_dict(state), AmpError) << value;
  }
}

}  // namespace
}  // namespace ampcheck::checks::train
