// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/train/facts_of_loops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>

#include "checks/train/trainer.h"
#include "src/amp/autocast.h"
#include "src/amp/grad_mode.h"
#include "src/amp/unscale.h"

namespace ampcheck::checks::train {

namespace {

constexpr float kScale = 65536;

NetOptions mlp_of(const std::filesystem::path& data) {
  NetOptions out;
  out.data = data;
  return out;
}

/// The gradients of the MLP on a batch, times the scale; `inside`: backward is called in the region of autocast.
std::vector<float> gradients_of(const std::filesystem::path& data, std::int64_t batch, bool inside) {
  const Net net = make_net(mlp_of(data));
  ParameterSet parameters(net.name, 1);
  models::Recordings recordings;
  Graph graph(parameters, recordings, {});
  std::optional<Autocast> region(std::in_place, graph.device(), autocast_in(Dtype::fp16));
  net.forward(graph, batch);
  if (!inside) region.reset();
  graph.backward(kScale, kScale);
  std::vector<float> out;
  for (const Parameter& parameter : parameters.all())
    for (const float g : parameter.grad.span<float>()) out.push_back(g);
  return out;
}

Fact both_in_autocast(const std::filesystem::path& data) {
  const std::vector<float> inside = gradients_of(data, 0, true), outside = gradients_of(data, 0, false);
  const bool same = std::memcmp(inside.data(), outside.data(), inside.size() * sizeof(float)) == 0;
  return {.claim = "forward and backward must both run under autocast",
          .holds = !same,
          .measured = fmt::format("{} {} gradients of the MLP {} with backward inside the region of autocast and "
                                  "outside of it: a backward op runs in the dtypes of its forward op. torch's "
                                  "documentation advises against backward inside",
                                  same ? "all" : "not all", inside.size(), same ? "are the same bits" : "are the same"),
          .command = "ampcheck train --steps 1 --record all.trace; ampcheck trace all.trace"};
}

struct Course {
  std::vector<double> losses;
  std::vector<int> skipped;
  double fp64 = 0;
};

Course course_of(const TrainOptions& options, int steps) {
  Trainer trainer(options);
  Course out;
  for (int i = 0; i < steps; ++i) {
    const StepResult step = trainer.step();
    out.losses.push_back(step.loss);
    if (!step.stepped) out.skipped.push_back(i + 1);
    out.fp64 = step.fp64_loss.value_or(0);
  }
  return out;
}

Fact diverges_without_scaling(const std::filesystem::path& data) {
  constexpr int kSteps = 20;
  TrainOptions options;
  options.net = mlp_of(data);
  options.scaler.enabled = false;
  options.shadows.carried = true;
  options.spread_seeds = 1;
  const Course plain = course_of(options, kSteps);
  options.rule.loss_weight = 1e-6;
  options.rule.optimizer = {.name = "adam", .lr = 0.003};
  const Course small = course_of(options, kSteps);
  return {.claim = "without loss scaling an fp16 training diverges",
          .holds = !(plain.losses.back() < plain.losses.front()),
          .measured = fmt::format(
              "{0} steps of the MLP in fp16 without a scaler come from loss {1:.3f} to {2:.3f}, in fp64 to {3:.3f}. "
              "What is lost depends on how small gradients are: with the loss times 1e-6 nothing is learned, and {0} "
              "steps end at {4:.3f} (fp64 {5:.3f}). The loss stands still then. It does not grow",
              kSteps, plain.losses.front(), plain.losses.back(), plain.fp64, small.losses.back(), small.fp64),
          .command = fmt::format("ampcheck train --scaler none --steps {0}; ampcheck train --scaler none --loss-weight "
                                 "1e-6 --optimizer adam --lr 0.003 --steps {0}",
                                 kSteps)};
}

Fact skips_again_and_again(const std::filesystem::path& data) {
  constexpr int kSteps = 600;
  TrainOptions options;
  options.net = mlp_of(data);
  const Course usual = course_of(options, kSteps);
  options.scaler.growth_interval = 100;
  const Course often = course_of(options, kSteps);
  return {.claim = "a gradient scaler skips a step every few hundred iterations",
          .holds = usual.skipped.size() > 2,
          .measured = fmt::format(
              "{} of {} steps of the MLP are skipped with torch's growth_interval of 2000: {}. The scale grows once in "
              "growth_interval clean steps, and no faster than that can it overflow again: with an interval of 100 "
              "it is {} ({})",
              usual.skipped.size(), kSteps,
              usual.skipped.empty() ? "none" : fmt::format("step {}", fmt::join(usual.skipped, ", ")),
              often.skipped.size(), fmt::join(often.skipped, ", ")),
          .command = fmt::format("ampcheck train --steps {0} --shadow off; ampcheck train --steps {0} --shadow off "
                                 "--growth-interval 100",
                                 kSteps)};
}

/// Two micro-batches; after the first the gradients are divided by the scale, the second adds scaled ones.
Fact unscaled_too_early(const std::filesystem::path& data) {
  const std::vector<float> first = gradients_of(data, 0, false), second = gradients_of(data, 1, false);
  std::size_t gone = 0, elements = 0;
  double mixed2 = 0, right2 = 0, error2 = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const float unscaled = first[i] * (1 / kScale), sum = unscaled + second[i],
                right = (first[i] + second[i]) * (1 / kScale);
    if (first[i] != 0 && second[i] != 0) {
      ++elements;
      gone += sum == second[i];
    }
    mixed2 += static_cast<double>(sum) * static_cast<double>(sum);
    right2 += static_cast<double>(right) * static_cast<double>(right);
    const double again = static_cast<double>(sum * (1 / kScale)) - static_cast<double>(right);
    error2 += again * again;
  }
  return {.claim = "gradients that were unscaled before accumulation was complete can be put right later",
          .holds = error2 == 0,
          .measured = fmt::format(
              "unscale_ between two micro-batches of the MLP (scale 65536), and the sum has the norm {:.3g} where "
              "{:.3g} is right. Divided once more it is {:.0f} % off, for then the first part is divided twice. In "
              "{} of the {} elements to which both add, fp32 has rounded the first part away: no factor brings it back",
              std::sqrt(mixed2), std::sqrt(right2), 100 * std::sqrt(error2 / right2), gone, elements),
          .command = "ampcheck audit step --help"};
}

Fact set_to_none(const std::filesystem::path& data) {
  constexpr std::int64_t kCount = std::int64_t{1} << 22;
  Tensor gradient(Dtype::fp32, {kCount});
  double fill = INFINITY;
  for (int round = 0; round < kProductRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::memset(gradient.data(), round & 1, static_cast<std::size_t>(kCount) * 4);
    fill = std::min(fill, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const std::vector<float> once = gradients_of(data, 0, false);
  std::size_t other = 0;
  for (const float g : once) {
    const float added = 0.0f + g;
    other += std::memcmp(&added, &g, sizeof g) != 0;
  }
  return {
      .claim = "zero_grad(set_to_none=True) saves time",
      .holds = fill > 0,
      .measured = fmt::format(
          "it leaves out one write of each gradient, and backward assigns instead of adding: writing {} zeros takes "
          "{:.2g} ms on this CPU, once a step. Memory: gradients are not held between the step and the backward. "
          "Of the {} gradients of the MLP, {} have other bits if they are added to zero (-0 becomes 0)",
          kCount, 1e3 * fill, once.size(), other),
      .command = "ampcheck memory mlp"};
}

Fact inference_mode_saves(const std::filesystem::path& data) {
  const Net net = make_net(mlp_of(data));
  ParameterSet parameters(net.name, 1);
  models::Recordings recordings;
  const auto kept = [&](auto mode) {
    Graph graph(parameters, recordings, {});
    const Autocast region(graph.device(), autocast_in(Dtype::fp16));
    [[maybe_unused]] const auto scope = mode();
    net.forward(graph, 0);
    return graph.bytes_for_backward();
  };
  struct None {};
  const std::int64_t training = kept([] { return None{}; }), no_grad = kept([] { return std::make_unique<NoGrad>(); }),
                     inference = kept([] { return std::make_unique<InferenceMode>(); });
  return {
      .claim = "inference_mode takes less memory than no_grad",
      .holds = inference < no_grad,
      .measured = fmt::format(
          "a forward pass of the MLP keeps {} bytes of tensors for backward when it trains, {} under no_grad and {} "
          "under inference_mode. What torch leaves out besides is a version counter for each tensor, whatever "
          "its size. It saves time where tensors are small and many, which is not measured here",
          training, no_grad, inference),
      .command = "ampcheck memory mlp"};
}

Fact several_times_faster() {
  const std::vector<ProductTime> times = product_times(512, 512);
  return {
      .claim = "fp16 is 4 times as fast as fp32, and 10 times as fast as fp64",
      .known = false,
      .measured = fmt::format("it is a matter of the machine, and of how much of a step is matrix products. A GPU is "
                              "not measured here. On this CPU, which computes 16 bits in fp32, a product in fp16 "
                              "takes {:.2f} times as long as in fp32",
                              times[0].fp16 / times[0].fp32),
      .command = "ampcheck facts --times"};
}

}  // namespace

std::vector<Fact> facts_of_loops(const std::filesystem::path& data) {
  return {both_in_autocast(data), diverges_without_scaling(data), skips_again_and_again(data), unscaled_too_early(data),
          set_to_none(data),      inference_mode_saves(data),     several_times_faster()};
}

}  // namespace ampcheck::checks::train
