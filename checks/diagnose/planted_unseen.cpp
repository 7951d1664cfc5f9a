// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Runs that the rules were not written with: other nets, losses, optimizers, seeds, learning rates and types.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>

#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_boundaries.h"
#include "checks/diagnose/planted_nets.h"
#include "src/amp/autocast.h"

namespace ampcheck::checks::diagnose {

namespace {

using train::Event;
using train::OptimizerChoice;
using train::Phase;

/// What a net has between its first and its last layers, at a place where a fault may be put.
using Gain = std::function<double(std::int64_t)>;

Var scaled_weight(Tape& t, const char* name, Var h, std::int64_t outputs, double size) {
  const std::int64_t inputs = t.shape(h)[1];
  return t.call("linear", {{"x", h},
                           {"weight", t.parameter(std::string(name) + ".weight", {outputs, inputs}, 0, size)},
                           {"bias", t.constant_start(std::string(name) + ".bias", {outputs}, 0)}});
}

/// Three residual blocks of rms_norm, silu and two layers; classes.
train::Net deep_net(const Middle& inside, const Gain& gain = nullptr) {
  train::Net net;
  net.name = "deep";
  net.rate = 0.03;
  net.forward = [=](Tape& t, std::int64_t number) {
    const Batch batch = batch_of(number + 1000, gain ? gain(number) : 1);
    Var h = models::linear(t, "in", t.data({kRows, kColumns}, batch.x), 48);
    for (const char* const name : {"a", "b", "c"}) {
      const Var n = models::rms_norm(t, std::string(name) + ".norm", h);
      Var up = models::unary(t, "silu", models::linear(t, std::string(name) + ".up", n, 80));
      if (std::string_view(name) == "b") up = inside(t, up);
      h = models::add(t, h, models::linear(t, std::string(name) + ".down", up, 48));
    }
    const Var logits = models::linear(t, "head", models::rms_norm(t, "last", h), kClasses);
    const Var losses = t.call("cross_entropy", {{"x", logits}, {"target", t.data({kRows}, batch.classes)}});
    t.add_loss(models::mean_all(t, losses), 1);
  };
  return net;
}

/// Images, two convolutions, a maximum and a layer; mean square error.
train::Net image_net(const Middle& inside, const Gain& gain = nullptr) {
  train::Net net;
  net.name = "images";
  net.rate = 0.05;
  net.forward = [=](Tape& t, std::int64_t number) {
    std::vector<double> x = normals("images", number % 6, 16 * 64);
    for (double& value : x) value *= gain ? gain(number) : 1;
    std::vector<double> target(16);
    for (std::size_t i = 0; i < target.size(); ++i) target[i] = std::tanh(x[i * 64] + x[i * 64 + 9]);
    Var h = models::conv3x3(t, "first", t.data({16, 1, 8, 8}, x), 4);
    h = t.call("max_pool2d", {{"x", models::unary(t, "tanh", h)}});
    h = models::unary(t, "gelu", models::conv3x3(t, "second", h, 4));
    h = inside(t, t.reshape(h, {16, 64}));
    const Var y = models::linear(t, "head", h, 1);
    t.add_loss(t.call("mse_loss", {{"x", y}, {"target", t.data({16, 1}, target)}}), 1);
  };
  return net;
}

/// Two blocks of attention over short sequences; mean square error.
train::Net sequence_net(const Middle& inside, const Gain& gain = nullptr) {
  train::Net net;
  net.name = "sequences";
  net.rate = 0.05;
  net.forward = [=](Tape& t, std::int64_t number) {
    std::vector<double> x = normals("sequences", number % 5, 32 * 24);
    std::vector<double> target(32);
    for (std::size_t i = 0; i < target.size(); ++i) target[i] = std::sin(x[i * 24]) + 0.5 * x[i * 24 + 1];
    for (double& value : x) value *= gain ? gain(number) : 1;
    Var h = models::linear(t, "in", t.data({32, 24}, x), 32);
    h = models::add(t, h, models::causal_attention(t, "one", models::layer_norm(t, "one.norm", h), 2, 8));
    h = inside(t, h);
    h = models::add(t, h, models::causal_attention(t, "two", models::layer_norm(t, "two.norm", h), 4, 8));
    const Var y = models::linear(t, "head", models::layer_norm(t, "last", h), 1);
    t.add_loss(t.call("mse_loss", {{"x", y}, {"target", t.data({32, 1}, target)}}), 1);
  };
  return net;
}

Var nothing(Tape&, Var h) { return h; }

Subject run_of(train::Net net, Dtype dtype, std::uint64_t seed, OptimizerChoice optimizer = {}, int steps = 36) {
  Subject out = subject_of(std::move(net), dtype, steps);
  out.options.seed = seed;
  out.options.rule.optimizer = std::move(optimizer);
  out.options.scaler.init_scale = 512;
  return out;
}

/// An op of one input whose results are cut off.
Middle cut_off(const char* op) {
  return [op](Tape& t, Var h) {
    const std::string name = std::string(op) + "_cut";
    use_planted(op, name, truncating);
    return models::unary(t, name.c_str(), h);
  };
}

/// A number that is not finite, put into a tensor from a step on.
Subject spoilt(Subject subject, Phase phase, const char* op, const char* tensor, int step, double value) {
  subject.make_fault = [=, op = std::string(op), tensor = std::string(tensor)] {
    return [=](const Event& e) {
      if (e.step >= step && e.phase == phase && !e.cast && e.op == op && e.tensor == tensor)
        set_element(e.got, e.got.count() / 2, value);
    };
  };
  return subject;
}

Subject repeated_differently(train::Net net, const char* op, const char* tensor, Phase phase) {
  Subject out = run_of(std::move(net), Dtype::fp16, 31);
  out.make_fault = [=, op = std::string(op), tensor = std::string(tensor)] {
    return [=](const Event& e) {
      static std::int64_t calls = 0;
      if (e.step < 5 || e.phase != phase || e.cast || e.op != op || e.tensor != tensor) return;
      ++calls;
      set_element(e.got, calls % e.got.count(), 0.003 * static_cast<double>(calls % 37));
    };
  };
  return out;
}

Subject without_scaler(train::Net net, double weight, OptimizerChoice optimizer) {
  Subject out = run_of(std::move(net), Dtype::fp16, 17, std::move(optimizer));
  out.options.scaler.enabled = false;
  out.options.rule.loss_weight = weight;
  return out;
}

Subject low_weights(train::Net net, Dtype dtype, OptimizerChoice optimizer) {
  optimizer.weights = train::Weights::low;
  Subject out = run_of(std::move(net), dtype, 19, std::move(optimizer), 60);
  out.options.scaler.enabled = false;
  return out;
}

Subject wired(train::Net net, Dtype run, Dtype wire, int ranks) {
  Subject out = run_of(std::move(net), run, 23, {}, 16);
  out.options.rule.ranks = ranks;
  out.options.reduce.compress = wire;
  return out;
}

/// Clips gradients by value while the scale is in them.
Subject clipped_values(train::Net net, double limit) {
  Subject out = run_of(std::move(net), Dtype::fp16, 29);
  out.install = [limit](train::Trainer& trainer) {
    trainer.scaler().set_unscale([limit](std::span<const TensorView> grads, float inverse, float& found_inf) {
      for (const TensorView& grad : grads) {
        if (!train::all_finite(grad)) found_inf = 1;
        std::vector<double> values = to_doubles(grad);
        for (double& value : values) value = std::clamp(value, -limit, limit) * static_cast<double>(inverse);
        from_doubles(values, grad);
      }
    });
  };
  return out;
}

double doubling(std::int64_t batch) { return 3 * std::pow(1.35, static_cast<double>(batch)); }

Var large_layer(Tape& t, Var h) {
  return models::layer_norm(t, "after", scaled_weight(t, "large", h, t.shape(h)[1], 3));
}

Var cubed(Tape& t, Var h) { return models::rms_norm(t, "after", models::mul(t, models::mul(t, h, h), h)); }

/// A bias of -1e8 added to the scores of some columns, cast to the run's type.
Var masked(Tape& t, Var h, Dtype dtype) {
  const Shape shape = t.shape(h);
  std::vector<double> mask(static_cast<std::size_t>(shape.count()), 0.0);
  for (std::int64_t i = 0; i < shape[1]; ++i) mask[static_cast<std::size_t>(i)] = -1e8;
  return models::unary(t, "softmax", models::add(t, h, t.to(t.data(shape, mask), dtype)));
}

std::vector<PlantedRun> unseen_faults_1() {
  using enum Cause;
  const OptimizerChoice adamw{.name = "adamw", .lr = 0.002};
  const OptimizerChoice momentum{.name = "sgd", .lr = 0.01, .momentum = 0.8};
  return {
      {"deep_overflows",
       forward_overflow,
       "data that grow, before the first norm",
       {"linear_1"},
       1,
       [=] { return run_of(deep_net(large_layer, doubling), Dtype::fp16, 3, adamw); }},
      {"image_overflows",
       forward_overflow,
       "a cube of activations",
       {"mul_1", "mul_2"},
       1,
       [=] {
         return run_of(image_net([](Tape& t, Var h) { return cubed(t, scaled_weight(t, "up", h, 64, 3)); }, doubling),
                       Dtype::fp16, 5, momentum);
       }},
      {"sequence_overflows",
       forward_overflow,
       "a layer between two attentions",
       {"linear_6"},
       1,
       [] { return run_of(sequence_net(large_layer, doubling), Dtype::fp16, 7); }},
      {"deep_underflows",
       gradient_underflow,
       "a loss weight of 2e-7",
       {},
       -1,
       [=] { return without_scaler(deep_net(nothing), 2e-7, adamw); }},
      {"image_underflows",
       gradient_underflow,
       "a loss weight of 1e-8",
       {},
       -1,
       [] { return without_scaler(image_net(nothing), 1e-8, {.name = "sgd", .lr = 5e6, .momentum = 0.5}); }},
      {"sequence_underflows",
       gradient_underflow,
       "a loss weight of 3e-8",
       {},
       -1,
       [] { return without_scaler(sequence_net(nothing), 3e-8, {.name = "rmsprop", .lr = 0.002}); }},
  };
}

std::vector<PlantedRun> unseen_faults_2() {
  using enum Cause;
  const OptimizerChoice adamw{.name = "adamw", .lr = 0.002};
  return {
      {"image_mask",
       mask_sentinel,
       "-1e8 in fp16",
       {"to_1", "add_1", "softmax_1"},
       -1,
       [] { return run_of(image_net([](Tape& t, Var h) { return masked(t, h, Dtype::fp16); }), Dtype::fp16, 11); }},
      {"deep_backward_nan",
       scaler_collapse,
       "a NaN in a block's backward",
       {"linear_5"},
       -1,
       [=] {
         return spoilt(run_of(deep_net(nothing), Dtype::fp16, 3, adamw), Phase::backward, "linear_5", "dx", 7, NAN);
       }},
      {"image_backward_inf",
       scaler_collapse,
       "an infinity in a convolution's backward",
       {"conv2d_2"},
       -1,
       [] {
         return spoilt(run_of(image_net(nothing), Dtype::fp16, 4), Phase::backward, "conv2d_2", "dweight", 9, INFINITY);
       }},
      {"deep_stands",
       update_stagnation,
       "bf16 weights with a small rate",
       {},
       -1,
       [] { return low_weights(deep_net(nothing), Dtype::bf16, {.name = "sgd", .lr = 3e-4}); }},
      {"sequence_stands",
       update_stagnation,
       "the same with adamw",
       {},
       -1,
       [] { return low_weights(sequence_net(nothing), Dtype::bf16, {.name = "adamw", .lr = 2e-5}); }},
      {"image_moments",
       optimizer_underflow,
       "fp16 moments",
       {},
       -1,
       [] {
         Subject out =
             run_of(image_net(nothing), Dtype::fp16, 6, {.name = "adam", .lr = 0.002, .moments = Dtype::fp16});
         out.options.rule.loss_weight = 0.003;
         return out;
       }},
  };
}

std::vector<PlantedRun> unseen_faults_3() {
  using enum Cause;
  return {
      {"deep_wire",
       low_reduction,
       "bf16 between three ranks",
       {},
       -1,
       [] { return wired(deep_net(nothing), Dtype::fp16, Dtype::bf16, 3); }},
      {"sequence_wire",
       low_reduction,
       "fp16 between eight ranks",
       {},
       -1,
       [] { return wired(sequence_net(nothing), Dtype::bf16, Dtype::fp16, 8); }},
      {"deep_clip",
       clip_before_unscale,
       "values clipped before they are unscaled",
       {},
       -1,
       [] { return clipped_values(deep_net(nothing), 0.05); }},
      {"image_race",
       not_repeatable,
       "another element in each run",
       {"conv2d_1"},
       -1,
       [] { return repeated_differently(image_net(nothing), "conv2d_1", "y", Phase::forward); }},
      {"sequence_race",
       not_repeatable,
       "the same in a backward",
       {"linear_4"},
       -1,
       [] { return repeated_differently(sequence_net(nothing), "linear_4", "dx", Phase::backward); }},
      {"deep_cut",
       biased_rounding,
       "an activation cut off",
       {"tanh_cut_1"},
       1,
       [] { return run_of(deep_net(cut_off("tanh")), Dtype::bf16, 8); }},
  };
}

std::vector<PlantedRun> unseen_faults_4() {
  using enum Cause;
  return {
      {"image_cut",
       biased_rounding,
       "the same with images",
       {"silu_cut_1"},
       1,
       [] { return run_of(image_net(cut_off("silu")), Dtype::bf16, 9); }},
      {"sequence_recomputed",
       recompute_differs,
       "a block computed again without autocast",
       {"linear_6", "gelu_1"},
       -1,
       [] {
         return run_of(sequence_net([](Tape& t, Var h) {
                         return t.recompute([&](bool again) {
                           std::optional<Autocast> off;
                           if (again) off.emplace(t.device(), AutocastOptions{.enabled = false});
                           const Var x = again ? t.to(h, Dtype::fp32) : h;
                           return models::add(t, x, models::unary(t, "gelu", models::linear(t, "block", x, 32)));
                         });
                       }),
                       Dtype::fp16, 12);
       }},
      {"deep_rate",
       not_numerics,
       "a rate at which fp64 diverges",
       {},
       -1,
       [] { return run_of(deep_net(nothing), Dtype::fp16, 2, {.name = "sgd", .lr = 3000}); }},
      {"image_rate",
       not_numerics,
       "the same with images",
       {},
       -1,
       [] { return run_of(image_net(nothing), Dtype::bf16, 2, {.name = "sgd", .lr = 50}); }},
      {"image_probing",
       scale_probing,
       "a first scale of 2^30",
       {},
       -1,
       [] {
         Subject out = run_of(image_net(nothing), Dtype::fp16, 2);
         out.options.scaler.init_scale = 1073741824;
         return out;
       }},
  };
}

Middle largest(const LargestParts& parts) {
  return [parts](Tape& t, Var h) { return largest_found(t, h, parts); };
}
Middle in_one_kernel(Meets how, bool through_memory) {
  return [=](Tape& t, Var h) { return largest_in_one_kernel(t, h, how, through_memory); };
}

/// Roundings that were moved, and the same nets with all of them, or none, in place.
std::vector<PlantedRun> unseen_boundaries() {
  using enum Cause;
  using enum Meets;
  const OptimizerChoice adamw{.name = "adamw", .lr = 0.002}, rmsprop{.name = "rmsprop", .lr = 0.002};
  const auto planted = [](const char* name, const char* what, const char* op, int optimum, auto make) {
    return PlantedRun{name, moved_boundary, what, {op}, optimum, make};
  };
  const auto well = [](const char* name, const char* what, auto make) {
    return PlantedRun{name, none, what, {}, -1, make};
  };
  return {
      planted("deep_amax_kept", "sums that were not stored, for a maximum", "sums_most_fused_1", -1,
              [=] {
                return run_of(deep_net(largest({.most_stored = false, .exact_first = false, .how = shift})),
                              Dtype::bf16, 41, adamw);
              }),
      planted("image_amax_kept", "products of images that were not stored", "most_fused_1", -1,
              [=] {
                return run_of(image_net(largest({.most_stored = false, .divided = false, .exact_first = false})),
                              Dtype::fp16, 42);
              }),
      planted("sequence_compared_kept", "sums in registers beside a maximum of stored ones", "sums_only_again_1", 2,
              [=] {
                return run_of(sequence_net(largest(
                                  {.compared_stored = false, .divided = false, .exact_first = false, .how = shift})),
                              Dtype::bf16, 43, rmsprop);
              }),
      planted("deep_one_kernel", "a stored maximum, and products in registers", "share_inside_stored_1", 1,
              [=] { return run_of(deep_net(in_one_kernel(gain, true)), Dtype::fp16, 44, adamw); }),
      planted("image_one_kernel", "the same of sums", "sums_share_inside_stored_1", 1,
              [=] { return run_of(image_net(in_one_kernel(shift, true)), Dtype::bf16, 45); }),
      well("well_deep_amax", "every sum is stored",
           [=] { return run_of(deep_net(largest({.exact_first = false, .how = shift})), Dtype::bf16, 46, adamw); }),
      well("well_image_amax", "no product is stored",
           [=] {
             return run_of(image_net(largest({.most_stored = false, .compared_stored = false, .exact_first = false})),
                           Dtype::fp16, 47);
           }),
      well("well_sequence_amax", "every sum is stored",
           [=] {
             return run_of(sequence_net(largest({.divided = false, .exact_first = false, .how = shift})), Dtype::bf16,
                           48, rmsprop);
           }),
      well("well_deep_one_kernel", "one kernel that stores nothing",
           [=] { return run_of(deep_net(in_one_kernel(gain, false)), Dtype::fp16, 49, adamw); }),
  };
}

/// An op of the zoo with a wrong kernel, on the way.
Middle zoo_op(const char* op) {
  return [op](Tape& t, Var h) { return models::unary(t, op, h); };
}

std::vector<PlantedRun> unseen_kernels() {
  const auto planted = [](const char* name, const char* what, const char* op, auto make) {
    return PlantedRun{name, Cause::wrong_kernel, what, {std::string(op) + "_1"}, -1, make};
  };
  const auto well = [](const char* name, const char* what, auto make) {
    return PlantedRun{name, Cause::none, what, {}, -1, make};
  };
  const OptimizerChoice adamw{.name = "adamw", .lr = 0.002}, rmsprop{.name = "rmsprop", .lr = 0.002};
  return {
      planted("deep_slope", "a slope without its product term", "silu.slope_of_product_missing",
              [=] { return run_of(deep_net(zoo_op("silu.slope_of_product_missing")), Dtype::fp16, 51, adamw); }),
      planted("deep_density", "a slope without its density", "gelu.density_missing",
              [=] { return run_of(deep_net(zoo_op("gelu.density_missing")), Dtype::bf16, 52, adamw); }),
      planted("image_square", "x^2 where the formula has x^3", "gelu_tanh.square_for_cube",
              [] { return run_of(image_net(zoo_op("gelu_tanh.square_for_cube")), Dtype::bf16, 53); }),
      planted("sequence_slope", "1 - y in place of 1 - y^2", "tanh.slope_unsquared",
              [=] { return run_of(sequence_net(zoo_op("tanh.slope_unsquared")), Dtype::fp16, 54, rmsprop); }),
      planted("sequence_hard", "lines in place of a sigmoid", "sigmoid.hard",
              [] { return run_of(sequence_net(zoo_op("sigmoid.hard")), Dtype::bf16, 55); }),
      well("well_deep_by_exp", "another algebra of silu",
           [=] { return run_of(deep_net(zoo_op("silu.by_exp")), Dtype::bf16, 56, adamw); }),
      well("well_image_erfc", "another algebra of gelu",
           [] { return run_of(image_net(zoo_op("gelu.erfc")), Dtype::fp16, 57); }),
      well("well_sequence_double", "tanh in double",
           [=] { return run_of(sequence_net(zoo_op("tanh.double")), Dtype::fp16, 58, rmsprop); }),
  };
}

std::vector<PlantedRun> unseen_faults() {
  std::vector<PlantedRun> out;
  for (const auto part :
       {unseen_faults_1, unseen_faults_2, unseen_faults_3, unseen_faults_4, unseen_boundaries, unseen_kernels}) {
    std::vector<PlantedRun> more = part();
    std::move(more.begin(), more.end(), std::back_inserter(out));
  }
  return out;
}

std::vector<PlantedRun> unseen_healthy() {
  std::vector<PlantedRun> out;
  const std::pair<const char*, train::Net (*)(const Middle&, const Gain&)> nets[] = {
      {"deep", deep_net}, {"image", image_net}, {"sequence", sequence_net}};
  const OptimizerChoice choices[] = {{.name = "sgd", .lr = 0.01, .momentum = 0.9},
                                     {.name = "adamw", .lr = 0.001},
                                     {.name = "rmsprop", .lr = 5e-4},
                                     {.name = "adagrad", .lr = 0.01}};
  std::uint64_t seed = 100;
  for (const auto& [name, make] : nets)
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
      for (const OptimizerChoice& choice : choices) {
        ++seed;
        out.push_back({std::string("well_") + name + "_" + ampcheck::name(dtype) + "_" + choice.name,
                       Cause::none,
                       "healthy",
                       {},
                       -1,
                       [=, make = make] { return run_of(make(nothing, nullptr), dtype, seed, choice); }});
      }
  return out;
}

}  // namespace

std::vector<PlantedRun> planted_unseen() {
  std::vector<PlantedRun> out = unseen_faults(), well = unseen_healthy();
  std::move(well.begin(), well.end(), std::back_inserter(out));
  for (PlantedRun& run : out) run.unseen = true;
  return out;
}

}  // namespace ampcheck::checks::diagnose
