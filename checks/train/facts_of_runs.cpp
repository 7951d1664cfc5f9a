// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/train/facts_of_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "checks/train/memory.h"
#include "checks/train/trainer.h"
#include "src/amp/autocast.h"
#include "src/rounding.h"

namespace ampcheck::checks::train {

namespace {

constexpr int kSteps = 20;

/// Of one forward and backward pass of the MLP.
struct PassCount {
  std::int64_t elements = 0, zeros = 0, fp16_numbers = 0;  ///< of the weight gradients as they are held
  int tensors = 0, low = 0;                                ///< that the backward pass wrote, and of these those in fp16
};

struct BackwardDtypes final : Observer {
  PassCount& count;
  explicit BackwardDtypes(PassCount& c) : count(c) {}

  bool wants(std::string_view) const override { return true; }
  bool wants_exact(std::string_view) const override { return false; }
  Seen see(const Event& e) override {
    if (e.phase == Phase::backward) {
      ++count.tensors;
      count.low += e.got.dtype == Dtype::fp16;
    }
    return {all_finite(e.got)};
  }
};

PassCount pass_of_mlp(const std::filesystem::path& data, Dtype autocast) {
  NetOptions options;
  options.data = data;
  const Net net = make_net(options);
  PassCount out;
  BackwardDtypes seen(out);
  ParameterSet parameters(net.name, 1);
  models::Recordings recordings;
  GraphOptions graph_options;
  graph_options.observer = &seen;
  Graph graph(parameters, recordings, graph_options);
  {
    const Autocast region(graph.device(), autocast_in(autocast));
    net.forward(graph, 0);
  }
  graph.backward(65536, 65536);
  for (const Parameter& parameter : parameters.all())
    for (const double g : to_doubles(parameter.grad.view())) {
      ++out.elements;
      out.zeros += g == 0;
      out.fp16_numbers += decode_scalar(kFp16, encode_scalar(kFp16, g)) == g;
    }
  return out;
}

Fact gradients_are_fp32(const std::filesystem::path& data) {
  const PassCount autocast = pass_of_mlp(data, Dtype::fp16), fp32 = pass_of_mlp(data, Dtype::fp32);
  return {.claim = "with autocast and fp32 weights the gradients are computed in fp32",
          .holds = autocast.fp16_numbers < autocast.elements,
          .measured = fmt::format("of the {} elements of the MLP's weight gradients, held in fp32, {} are fp16 numbers "
                                  "(without autocast {}, {} of them zeros): they were produced in fp16 and only stored "
                                  "in fp32, as the casts of dweight and dbias show",
                                  autocast.elements, autocast.fp16_numbers, fp32.fp16_numbers, fp32.zeros),
          .command = "ampcheck train --steps 1 --ops linear_1 --record one.trace; ampcheck trace one.trace"};
}

Fact backward_is_fp32(const std::filesystem::path& data) {
  const PassCount autocast = pass_of_mlp(data, Dtype::fp16);
  return {.claim = "fp16 is not used in backward, since autocast is off there",
          .holds = autocast.low == 0,
          .measured = fmt::format("{} of the {} tensors that a backward pass of the MLP writes are fp16: backward ops "
                                  "run in the dtype of their forward ops",
                                  autocast.low, autocast.tensors),
          .command = "ampcheck train --steps 1 --record all.trace; ampcheck trace all.trace"};
}

/// What a short run of the MLP came to.
struct Run {
  std::vector<double> losses;
  double scaled_norm = 0, norm = 0;  ///< of all gradients of the first step, before and after unscaling

  double first() const { return losses.front(); }
  double last() const { return losses.back(); }
};

Run run_of_mlp(const std::filesystem::path& data, Dtype dtype, double init_scale = 65536, double clip_norm = 0) {
  TrainOptions options;
  options.net.data = data;
  options.dtype = dtype;
  options.scaler.enabled = dtype == Dtype::fp16;
  options.scaler.init_scale = init_scale;
  options.rule.clip_norm = clip_norm;
  options.norms = true;
  Trainer trainer(options);
  const auto together = [](const std::vector<double>& norms) {
    return std::sqrt(std::inner_product(norms.begin(), norms.end(), norms.begin(), 0.0));
  };
  Run out;
  for (int i = 0; i < kSteps; ++i) {
    const StepResult step = trainer.step();
    if (i == 0) {
      out.scaled_norm = together(step.scaled_norms);
      out.norm = together(step.norms);
    }
    out.losses.push_back(step.loss);
  }
  return out;
}

Fact bf16_is_for_the_cpu(const std::filesystem::path& data) {
  const Run bf16 = run_of_mlp(data, Dtype::bf16), fp16 = run_of_mlp(data, Dtype::fp16);
  const auto ops = all_ops();
  const auto both = std::count_if(ops.begin(), ops.end(), [](const OpDef& op) {
    const auto& s = op.signature.precision.storage;
    return std::count(s.begin(), s.end(), Dtype::bf16) + std::count(s.begin(), s.end(), Dtype::fp16) == 2;
  });
  return {.claim = "bf16 is for the CPU and fp16 for the GPU",
          .holds = !(bf16.last() < bf16.first() && fp16.last() < fp16.first()),
          .measured = fmt::format(
              "on this CPU the same MLP comes from loss {:.3f} to {:.3f} in bf16 and to {:.3f} in fp16 in {} steps; {} "
              "of {} ops here take either. Only the default of a region without a dtype differs",
              fp16.first(), bf16.last(), fp16.last(), kSteps, both, ops.size()),
          .command =
              fmt::format("ampcheck train --dtype bf16 --steps {0}; ampcheck train --dtype fp16 --steps {0}", kSteps)};
}

Fact clipped_before_unscaling(const std::filesystem::path& data) {
  constexpr double kScale = 65536;
  // Scaled gradients clipped at 1 and then divided by a power of two are the gradients clipped at 1 / that.
  const Run before = run_of_mlp(data, Dtype::fp16, kScale, 1 / kScale),
            after = run_of_mlp(data, Dtype::fp16, kScale, 1);
  return {.claim = "gradients may be clipped before unscale_ as well as after it",
          .holds = before.last() <= after.last(),
          .measured = fmt::format(
              "the MLP's gradients have the norm {:.2g}, scaled {:.2g}: clipping these at 1 clips the gradients at "
              "{:.2g}. From loss {:.3f}, {} steps so clipped come to {:.3f}, clipped at 1 after unscale_ to {:.3f}",
              before.norm, before.scaled_norm, 1 / kScale, before.first(), kSteps, before.last(), after.last()),
          .command = fmt::format("ampcheck train --clip-norm {0} --steps {1}; ampcheck train --clip-norm 1 --steps {1}",
                                 1 / kScale, kSteps)};
}

Fact scale_changes_the_run(const std::filesystem::path& data) {
  constexpr double kScale = 65536;
  const std::vector<double> losses = run_of_mlp(data, Dtype::fp16, kScale).losses;
  const auto same = [&](double scale) { return run_of_mlp(data, Dtype::fp16, scale).losses == losses; };
  double low = kScale, high = kScale;
  while (low > 1 && same(low / 2)) low /= 2;
  while (high < 0x1p30 && same(high * 2)) high *= 2;
  return {.claim = "another loss scale is another training: it is a hyperparameter to be tuned",
          .holds = low == high,
          .measured = fmt::format(
              "{} losses of the MLP are the same bits with every power of two from 2^{} to 2^{} as first scale: it "
              "shifts exponents alone. Below, gradients lose digits; above, they overflow and steps are skipped",
              kSteps, std::ilogb(low), std::ilogb(high)),
          .command = fmt::format("ampcheck train --init-scale {} --steps {} --json | grep '\"loss\":'; ampcheck train "
                                 "--init-scale {} --steps {} --json | grep '\"loss\":'",
                                 low, kSteps, high, kSteps)};
}

Fact memory_halves(const std::filesystem::path& data) {
  constexpr std::int64_t kManyRows = 4096;
  const auto kilobytes = [&](const char* model, std::int64_t batch) {
    const Net net = make_net({.model = model, .batch = batch, .data = data});
    const MemoryReport report = memory_of(net, {.optimizer = optimizer_of(net, {})}, Dtype::fp16, 1);
    return std::pair{static_cast<double>(report.strategies[0].total()) * 1e-3,
                     static_cast<double>(report.strategies[1].total()) * 1e-3};
  };
  const auto [fp32, autocast] = kilobytes("transformer", 0);
  const auto [wide_fp32, wide_autocast] = kilobytes("mlp", kManyRows);
  return {
      .claim = "autocast halves the memory of a training",
      .holds = 2 * autocast <= fp32 && 2 * wide_autocast <= wide_fp32,
      .measured = fmt::format(
          "a step of the small transformer takes {:.1f} kB in fp32 and {:.1f} kB under autocast: weights, gradients "
          "and the optimizer's state stay in fp32, and what is saved on activations goes into 16-bit copies of the "
          "weights and other casts, kept for backward. Of the MLP with {} rows, nearly all activations, {:.1f} kB "
          "and {:.1f} kB",
          fp32, autocast, kManyRows, wide_fp32, wide_autocast),
      .command = fmt::format("ampcheck memory transformer; ampcheck memory mlp --batch {}", kManyRows)};
}

}  // namespace

std::vector<Fact> facts_of_runs(const std::filesystem::path& data) {
  return {gradients_are_fp32(data),    backward_is_fp32(data),    clipped_before_unscaling(data),
          scale_changes_the_run(data), bf16_is_for_the_cpu(data), memory_halves(data)};
}

}  // namespace ampcheck::checks::train
