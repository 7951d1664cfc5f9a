// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Loss scale, optimizer state and ranks.
#include <cmath>
#include <memory>

#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_nets.h"

namespace ampcheck::checks::diagnose {

namespace {

using train::Event;
using train::Phase;

Var relu_layer(Tape& t, Var h) { return models::unary(t, "relu", h); }

Subject plain(Dtype dtype, int steps = 40) { return subject_of(class_net(relu_layer), dtype, steps); }

/// A backward that makes a NaN in each step from the twelfth on.
Subject collapse_by_op(const char* op, const char* tensor) {
  Subject out = plain(Dtype::fp16);
  out.make_fault = [op = std::string(op), tensor = std::string(tensor)] {
    return [op, tensor](const Event& e) {
      if (e.step >= 12 && e.phase == Phase::backward && !e.cast && e.op == op && e.tensor == tensor)
        set_element(e.got, 0, NAN);
    };
  };
  return out;
}

void unscale(std::span<const TensorView> grads, float inverse) {
  for (const TensorView& grad : grads) {
    std::vector<double> values = to_doubles(grad);
    for (double& value : values) value *= inverse;
    from_doubles(values, grad);
  }
}

bool finite(std::span<const TensorView> grads) {
  for (const TensorView& grad : grads)
    if (!train::all_finite(grad)) return false;
  return true;
}

/// Gradients that are never set to zero.
Subject stale() {
  Subject out = plain(Dtype::fp16);
  out.options.scaler.init_scale = 16384;
  out.options.scaler.growth_interval = 4;
  out.install = [](train::Trainer& trainer) {
    const auto kept = std::make_shared<std::vector<std::vector<double>>>();
    trainer.scaler().set_unscale([kept](std::span<const TensorView> grads, float inverse, float& found_inf) {
      kept->resize(grads.size());
      for (std::size_t g = 0; g < grads.size(); ++g) {
        std::vector<double> values = to_doubles(grads[g]);
        std::vector<double>& before = (*kept)[g];
        before.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (!std::isfinite(before[i])) values[i] = before[i];  // a sum with it
          before[i] = values[i];
        }
        from_doubles(values, grads[g]);
      }
      found_inf = finite(grads) ? found_inf : 1;
      unscale(grads, inverse);
    });
  };
  return out;
}

Subject infinite_scale() {
  Subject out = plain(Dtype::bf16);
  ScaleRule rule = scale_rule("torch");
  rule.init_scale = 65536;
  rule.growth_factor = 256;
  rule.window = 1;
  rule.finite_guard = false;
  rule.cap = INFINITY;
  out.options.scaler.enabled = true;
  out.options.scale_rule = rule;
  out.options.rule.loss_weight = 1e-30;
  out.options.rule.optimizer = {.name = "sgd", .lr = 1e28};
  return out;
}

/// Clips by the norm of gradients that still have the scale.
Subject clipped_scaled(std::int32_t interval, double norm) {
  Subject out = plain(Dtype::fp16);
  out.options.scaler.init_scale = 256;
  out.options.scaler.growth_interval = interval;
  out.install = [norm](train::Trainer& trainer) {
    trainer.scaler().set_unscale([norm](std::span<const TensorView> grads, float inverse, float& found_inf) {
      if (!finite(grads)) found_inf = 1;
      double sum = 0;
      for (const TensorView& grad : grads)
        for (const double value : to_doubles(grad)) sum += value * value;
      const double factor = std::min(1.0, norm / (std::sqrt(sum) + 1e-6));
      unscale(grads, inverse * static_cast<float>(factor));
    });
  };
  return out;
}

/// Looks at the first gradient alone.
Subject first_gradient_alone() {
  Subject out = plain(Dtype::fp16);
  out.make_fault = [] {
    return [](const Event& e) {
      if (e.step == 9 && e.phase == Phase::backward && !e.cast && e.op == "linear_2" && e.tensor == "dweight")
        set_element(e.got, 5, INFINITY);
    };
  };
  out.install = [](train::Trainer& trainer) {
    trainer.scaler().set_unscale([](std::span<const TensorView> grads, float inverse, float& found_inf) {
      if (!finite(grads.first(1))) found_inf = 1;
      unscale(grads, inverse);
    });
  };
  return out;
}

Subject drifted_replica() {
  Subject out = plain(Dtype::bf16);
  out.options.rule.ranks = 2;
  out.make_fault = [] {
    return [](const Event& e) {
      if (e.rank != 1 || e.step < 10 || !e.cast || e.phase != Phase::forward || e.op != "linear_2" ||
          e.tensor != "weight")
        return;
      std::vector<double> values = to_doubles(e.got);
      for (double& value : values) value *= 1.02;
      from_doubles(values, e.got);
    };
  };
  return out;
}

Subject reduced(Dtype wire, int ranks) {
  Subject out = plain(Dtype::bf16, 20);
  out.options.rule.ranks = ranks;
  out.options.reduce.compress = wire;
  return out;
}

Subject stagnant(Dtype dtype, const char* optimizer, double lr) {
  Subject out = plain(dtype);
  out.options.scaler.enabled = false;
  out.options.rule.optimizer = {.name = optimizer, .lr = lr, .weights = train::Weights::low};
  return out;
}

/// Data that become small, so that second moments should fall.
Subject still_moments() {
  const auto gain = [](std::int64_t batch) { return batch < 12 ? 4.0 : 0.25; };
  Subject out = subject_of(class_net(relu_layer, gain), Dtype::bf16, 60);
  out.options.rule.optimizer = {.name = "adam", .lr = 0.002, .moments = Dtype::bf16};
  return out;
}

Subject vanishing_moments(train::Weights weights) {
  Subject out = plain(Dtype::fp16);
  out.options.rule.optimizer = {.name = "adam", .lr = 0.003, .weights = weights, .moments = Dtype::fp16};
  out.options.rule.loss_weight = 0.01;
  return out;
}

Subject vanishing_epsilon() {
  Subject out = plain(Dtype::fp16);
  out.options.scaler.enabled = false;
  out.options.rule.optimizer = {.name = "adam", .lr = 0.003, .weights = train::Weights::low};
  return out;
}

}  // namespace

std::vector<PlantedRun> planted_scalers() {
  using enum Cause;
  return {
      {"backward_nan",
       scaler_collapse,
       "dweight of a layer is NaN at any scale",
       {"linear_2"},
       -1,
       [] { return collapse_by_op("linear_2", "dweight"); }},
      {"backward_nan_of_relu",
       scaler_collapse,
       "dx of relu is",
       {"relu_1"},
       -1,
       [] { return collapse_by_op("relu_1", "dx"); }},
      {"stale_gradients", scaler_collapse, "gradients that are not cleared after a skip", {}, -1, stale},
      {"scale_infinite", scale_infinite, "growth without a bound", {}, -1, infinite_scale},
      {"clip_first", clip_before_unscale, "clipping before unscale_", {}, -1, [] { return clipped_scaled(2000, 1); }},
      {"clip_first_moving",
       clip_before_unscale,
       "the same while the scale grows",
       {},
       -1,
       [] { return clipped_scaled(6, 0.5); }},
      {"first_gradient_alone",
       found_inf_incomplete,
       "found_inf of the first tensor alone",
       {},
       -1,
       first_gradient_alone},
      {"replica_drifts", replica_drift, "one rank's copy of a weight is another", {"linear_2"}, -1, drifted_replica},
      {"wire_bf16",
       low_reduction,
       "gradients summed over 8 ranks in bf16",
       {},
       -1,
       [] { return reduced(Dtype::bf16, 8); }},
      {"wire_fp16",
       low_reduction,
       "gradients summed over 16 ranks in fp16",
       {},
       -1,
       [] { return reduced(Dtype::fp16, 16); }},
  };
}

std::vector<PlantedRun> planted_optimizers() {
  using enum Cause;
  return {
      {"bf16_weights",
       update_stagnation,
       "bf16 weights without masters",
       {},
       -1,
       [] { return stagnant(Dtype::bf16, "sgd", 1e-3); }},
      {"bf16_weights_adam",
       update_stagnation,
       "the same with adam",
       {},
       -1,
       [] { return stagnant(Dtype::bf16, "adam", 2e-5); }},
      {"bf16_moments", accumulator_stagnation, "second moments in bf16 that cannot fall", {}, -1, still_moments},
      {"fp16_moments",
       optimizer_underflow,
       "second moments in fp16",
       {},
       -1,
       [] { return vanishing_moments(train::Weights::fp32); }},
      {"fp16_moments_masters",
       optimizer_underflow,
       "the same beside masters",
       {},
       -1,
       [] { return vanishing_moments(train::Weights::master); }},
      {"fp16_epsilon", optimizer_underflow, "eps 1e-8 in fp16", {}, -1, vanishing_epsilon},
  };
}

}  // namespace ampcheck::checks::diagnose
