// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Values that leave the range, and gradients that vanish.
#include <cmath>
#include <memory>

#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_nets.h"

namespace ampcheck::checks::diagnose {

namespace {

using train::Event;
using train::Phase;

/// A layer with large weights, then a norm: its values grow with the data, the loss does not.
Var wide_layer(Tape& t, Var h) {
  const Var w = t.parameter("wide.weight", {64, 64}, 0, 2);
  const Var y = t.call("linear", {{"x", h}, {"weight", w}, {"bias", t.constant_start("wide.bias", {64}, 0)}});
  return models::layer_norm(t, "norm", y);
}

double growing(std::int64_t batch) { return 4 * std::pow(1.3, static_cast<double>(batch)); }

Subject overflow_of_layer() { return subject_of(class_net(wide_layer, growing), Dtype::fp16); }

Subject overflow_of_product() {
  const auto squared = [](Tape& t, Var h) { return models::layer_norm(t, "norm", models::mul(t, h, h)); };
  return subject_of(class_net(squared, growing), Dtype::fp16);
}

/// Keys that grow, so that the products of attention's scores do.
Subject overflow_of_residual() {
  const auto doubled = [](Tape& t, Var h) {
    Var sum = h;
    for (int i = 0; i < 3; ++i) sum = models::add(t, sum, sum);
    return models::layer_norm(t, "norm", sum);
  };
  return subject_of(class_net(doubled, [](std::int64_t b) { return 100 * std::pow(1.3, static_cast<double>(b)); }),
                    Dtype::fp16);
}

/// Rows of a mask that hide everything, from batch 6 on; the mask is cast to the run's type before it is added.
Subject mask_of(Dtype dtype, double sentinel) {
  train::Net net;
  net.name = "planted";
  net.rate = 0.05;
  net.forward = [sentinel, dtype](Tape& t, std::int64_t number) {
    const Batch batch = batch_of(number);
    std::vector<double> mask(kRows * 64, 0.0);
    const std::int64_t hidden = number % 16 >= 6 ? 64 : 16;
    for (std::int64_t i = 0; i < hidden; ++i) mask[static_cast<std::size_t>(i)] = sentinel;
    const Var scores = models::linear(t, "in", t.data({kRows, kColumns}, batch.x), 64);
    const Var masked = models::add(t, scores, t.to(t.data({kRows, 64}, mask), dtype));
    const Var p = models::unary(t, "softmax", masked);
    const Var logits = models::linear(t, "out", p, kClasses);
    const Var losses = t.call("cross_entropy", {{"x", logits}, {"target", t.data({kRows}, batch.classes)}});
    t.add_loss(models::mean_all(t, losses), 1);
  };
  return subject_of(net, dtype);
}

Var relu_layer(Tape& t, Var h) { return models::unary(t, "relu", h); }

Subject underflow(double weight, double momentum) {
  Subject out = subject_of(class_net(relu_layer), Dtype::fp16);
  out.options.scaler.enabled = false;
  out.options.rule.loss_weight = weight;
  out.options.rule.optimizer = {.name = "sgd", .lr = 0.05 / weight, .momentum = momentum};
  return out;
}

Subject underflow_of_adam() {
  Subject out = underflow(1e-6, -1);
  out.options.rule.optimizer = {.name = "adam", .lr = 0.003};
  return out;
}

/// A kernel that makes one NaN, before one that lets it vanish.
Subject killed() {
  use_planted("relu", "gate", [](const kernels::Kernel& right) {
    kernels::Kernel out = right;
    out.forward = [](const kernels::KernelCall& call) {
      std::vector<double> x = to_doubles(call.at("x"));
      for (double& value : x) value = std::fmax(value, 0.0);
      from_doubles(x, call.at("y"));
    };
    return out;
  });
  Subject out = subject_of(class_net([](Tape& t, Var h) { return models::unary(t, "gate", h); }), Dtype::fp16);
  out.make_fault = [] {
    return [](const Event& e) {
      if (e.step >= 8 && e.phase == Phase::forward && !e.cast && e.op == "linear_1") set_element(e.got, 3, NAN);
    };
  };
  return out;
}

/// Running statistics that a skipped step has spoilt.
Subject poisoned() {
  Subject out = subject_of(class_net(relu_layer), Dtype::fp16);
  out.options.scaler.init_scale = 16384;
  out.options.scaler.growth_interval = 3;
  out.make_fault = [] {
    const auto state = std::make_shared<double>(0);
    return [state](const Event& e) {
      if (e.phase == Phase::backward && !e.cast && e.op == "linear_2" && !train::all_finite(e.got)) *state = NAN;
      if (e.phase == Phase::forward && !e.cast && e.op == "linear_1" && std::isnan(*state)) set_element(e.got, 0, NAN);
    };
  };
  return out;
}

/// Noise that no seed decides.
Subject unrepeatable() {
  Subject out = subject_of(class_net(relu_layer), Dtype::bf16);
  out.make_fault = [] {
    return [](const Event& e) {
      static std::int64_t calls = 0;
      if (e.step < 12 || e.phase != Phase::forward || e.cast || e.op != "linear_2") return;
      ++calls;
      set_element(e.got, calls % e.got.count(), 0.01 * static_cast<double>(calls % 101));
    };
  };
  return out;
}

}  // namespace

std::vector<PlantedRun> planted_ranges() {
  using enum Cause;
  return {
      {"layer_overflows", forward_overflow, "a layer's output grows past fp16", {"linear_2"}, 1, overflow_of_layer},
      {"product_overflows", forward_overflow, "a product of activations does", {"mul_1"}, 1, overflow_of_product},
      {"residual_overflows",
       forward_overflow,
       "a residual sum does",
       {"add_1", "add_2", "add_3"},
       1,
       overflow_of_residual},
      {"mask_1e9",
       mask_sentinel,
       "-1e9 as a mask in fp16",
       {"to_1", "add_1", "softmax_1"},
       -1,
       [] { return mask_of(Dtype::fp16, -1e9); }},
      {"mask_finfo_fp32",
       mask_sentinel,
       "fp32's lowest number as a mask in bf16",
       {"to_1", "add_1", "softmax_1"},
       -1,
       [] { return mask_of(Dtype::bf16, -3.4028234e38); }},
      {"no_scaler", gradient_underflow, "a small loss without a scaler", {}, -1, [] { return underflow(1e-6, 0); }},
      {"no_scaler_momentum", gradient_underflow, "the same with momentum", {}, -1, [] { return underflow(1e-7, 0.9); }},
      {"no_scaler_adam", gradient_underflow, "the same with adam", {}, -1, underflow_of_adam},
      {"nan_hidden", nan_killed, "max(x, 0) that drops NaN", {"gate_1"}, -1, killed},
      {"spoilt_statistics", poisoned_state, "a state that keeps a skipped step's NaN", {"linear_1"}, -1, poisoned},
      {"race", not_repeatable, "an element that depends on what ran before", {"linear_2"}, -1, unrepeatable},
  };
}

}  // namespace ampcheck::checks::diagnose
