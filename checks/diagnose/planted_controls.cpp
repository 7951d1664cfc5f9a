// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Runs of which no precision is to blame, and healthy ones.
#include <cmath>
#include <iterator>

#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_nets.h"

namespace ampcheck::checks::diagnose {

namespace {

Var relu_layer(Tape& t, Var h) { return models::unary(t, "relu", h); }
Var normed_layer(Tape& t, Var h) { return models::unary(t, "gelu", models::layer_norm(t, "norm", h)); }
Var gated_layer(Tape& t, Var h) {
  const Var n = models::rms_norm(t, "norm", h);
  return models::add(t, h, models::mul(t, models::unary(t, "silu", n), models::unary(t, "sigmoid", n)));
}
Var attended(Tape& t, Var h) {
  return models::add(t, h, models::causal_attention(t, "block", models::layer_norm(t, "norm", h), 2, 8));
}

Subject probing(double scale, std::int32_t interval) {
  Subject out = subject_of(class_net(relu_layer), Dtype::fp16, 30);
  out.options.scaler.init_scale = scale;
  out.options.scaler.growth_interval = interval;
  return out;
}

/// One batch of large inputs in a regression with adam.
Subject burst() {
  train::Net net;
  net.name = "planted";
  net.rate = 0.05;
  net.forward = [](Tape& t, std::int64_t number) {
    const double gain = number >= 30 && number < 34 ? 60 : 1;
    const Batch batch = batch_of(number, gain);
    const Var h = models::unary(t, "tanh", models::linear(t, "in", t.data({kRows, kColumns}, batch.x), 64));
    const Var y = models::linear(t, "out", h, 1);
    std::vector<double> target(static_cast<std::size_t>(kRows));
    for (std::size_t i = 0; i < target.size(); ++i) target[i] = batch.x[i * kColumns];
    t.add_loss(t.call("mse_loss", {{"x", y}, {"target", t.data({kRows, 1}, target)}}), 1);
  };
  Subject out = subject_of(net, Dtype::bf16, 45);
  out.options.rule.optimizer = {.name = "adam", .lr = 0.02};
  return out;
}

Subject large_rate(double lr, Dtype dtype, const Middle& middle) {
  Subject out = subject_of(class_net(middle), dtype, 30);
  out.options.rule.optimizer.lr = lr;
  return out;
}

Subject healthy(const Middle& middle, Dtype dtype, std::uint64_t seed, train::OptimizerChoice optimizer = {}) {
  Subject out = subject_of(class_net(middle), dtype, 30);
  out.options.seed = seed;
  out.options.rule.optimizer = std::move(optimizer);
  return out;
}

/// A healthy run with one more setting.
Subject with(Subject subject, const std::function<void(train::TrainOptions&)>& set) {
  set(subject.options);
  return subject;
}

std::vector<PlantedRun> healthy_runs() {
  std::vector<PlantedRun> out;
  const auto add = [&](std::string name, std::function<Subject()> make) {
    out.push_back({"healthy_" + std::move(name), Cause::none, "healthy", {}, -1, std::move(make)});
  };
  struct Part {
    const char* name;
    Middle middle;
  };
  const Part parts[] = {
      {"relu", relu_layer}, {"normed", normed_layer}, {"gated", gated_layer}, {"attention", attended}};
  for (const Part& part : parts)
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
      for (const bool adam : {false, true}) {
        const Middle middle = part.middle;
        add(std::string(part.name) + "_" + ampcheck::name(dtype) + (adam ? "_adam" : "_sgd"), [=] {
          return healthy(middle, dtype, 3,
                         adam ? train::OptimizerChoice{.name = "adam", .lr = 0.003} : train::OptimizerChoice{});
        });
      }
  using Options = train::TrainOptions;
  add("clip", [] { return with(healthy(relu_layer, Dtype::fp16, 4), [](Options& o) { o.rule.clip_norm = 0.5; }); });
  add("ranks", [] { return with(healthy(relu_layer, Dtype::fp16, 5), [](Options& o) { o.rule.ranks = 2; }); });
  add("accumulate",
      [] { return with(healthy(normed_layer, Dtype::bf16, 6), [](Options& o) { o.rule.accumulate = 3; }); });
  add("masters", [] {
    return with(healthy(normed_layer, Dtype::bf16, 7),
                [](Options& o) { o.rule.optimizer.weights = train::Weights::master; });
  });
  add("schedule",
      [] { return with(healthy(gated_layer, Dtype::fp16, 8), [](Options& o) { o.rule.schedule = "cosine:30"; }); });
  add("momentum", [] { return healthy(relu_layer, Dtype::bf16, 9, {.name = "sgd", .lr = 0.02, .momentum = 0.9}); });
  add("rmsprop", [] { return healthy(normed_layer, Dtype::fp16, 10, {.name = "rmsprop", .lr = 0.001}); });
  add("fused", [] { return healthy(relu_layer, Dtype::fp16, 11, {.name = "adamw", .lr = 0.003, .fused = true}); });
  add("reversed_softmax",
      [] { return healthy([](Tape& t, Var h) { return models::unary(t, "softmax.reversed", h); }, Dtype::fp16, 12); });
  add("relu_by_fmax",
      [] { return healthy([](Tape& t, Var h) { return models::unary(t, "relu.mask", h); }, Dtype::bf16, 13); });
  return out;
}

}  // namespace

std::vector<PlantedRun> planted_controls() {
  using enum Cause;
  std::vector<PlantedRun> out = {{"scale_comes_down",
                                  scale_probing,
                                  "a first scale that is too high",
                                  {},
                                  -1,
                                  [] { return probing(67108864, 2000); }},
                                 {"scale_grows_back",
                                  scale_probing,
                                  "a scale that grows every third step",
                                  {},
                                  -1,
                                  [] { return probing(8192, 3); }},
                                 {"burst", second_moment_lag, "gradients that jump in fp64 too", {}, -1, burst},
                                 {"logits_grow",
                                  logit_growth,
                                  "a learning rate that lets logits grow",
                                  {},
                                  -1,
                                  [] { return large_rate(40, Dtype::bf16, normed_layer); }},
                                 {"rate_too_large",
                                  not_numerics,
                                  "a learning rate at which fp64 diverges",
                                  {},
                                  -1,
                                  [] { return large_rate(400, Dtype::bf16, relu_layer); }},
                                 {"rate_too_large_fp16", not_numerics, "the same in fp16", {}, -1, [] {
                                    return large_rate(400, Dtype::fp16, relu_layer);
                                  }}};
  std::vector<PlantedRun> well = healthy_runs();
  std::move(well.begin(), well.end(), std::back_inserter(out));
  return out;
}

const std::vector<PlantedRun>& planted_runs() {
  static const std::vector<PlantedRun> kAll = [] {
    std::vector<PlantedRun> out;
    for (auto part : {planted_ranges, planted_scalers, planted_optimizers, planted_kernels, planted_boundaries,
                      planted_twice, planted_fp8, planted_controls, planted_unseen}) {
      std::vector<PlantedRun> more = part();
      std::move(more.begin(), more.end(), std::back_inserter(out));
    }
    return out;
  }();
  return kAll;
}

}  // namespace ampcheck::checks::diagnose
