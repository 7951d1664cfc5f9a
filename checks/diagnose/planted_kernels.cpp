// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Kernels that compute the right formula in too little precision.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_nets.h"
#include "src/rounding.h"

namespace ampcheck::checks::diagnose {

namespace {

using kernels::Kernel;
using kernels::KernelCall;
using train::Event;
using train::Phase;

/// To nearest even; beyond the largest number infinite.
double rounded(double value, Dtype dtype) {
  if (value == 0 || !std::isfinite(value)) return value;
  const FloatFormat& f = format(dtype);
  const int lowest = std::ilogb(f.min_normal()), exponent = std::max(std::ilogb(value), lowest);
  const double spacing = std::ldexp(1.0, exponent - f.precision + 1), out = std::nearbyint(value / spacing) * spacing;
  return std::fabs(out) > f.max_finite() ? std::copysign(INFINITY, out) : out;
}

struct Rows {
  std::vector<double> x;
  std::size_t rows, columns;
  explicit Rows(const TensorView& view)
      : x(to_doubles(view)),
        rows(static_cast<std::size_t>(view.count() / view.shape.last())),
        columns(static_cast<std::size_t>(view.shape.last())) {}
};

std::vector<double> gains(const KernelCall& call, std::size_t columns) {
  const TensorView* const weight = call.find("weight");
  return weight != nullptr ? to_doubles(*weight) : std::vector<double>(columns, 1.0);
}
std::vector<double> biases(const KernelCall& call, std::size_t columns) {
  const TensorView* const bias = call.find("bias");
  return bias != nullptr ? to_doubles(*bias) : std::vector<double>(columns, 0.0);
}

/// layer_norm with the variance as mean(x^2) - mean(x)^2, in fp32.
Kernel one_pass(const Kernel& right) {
  Kernel out = right;
  out.forward = [right](const KernelCall& call) {
    right.forward(call);
    Rows in(call.at("x"));
    const std::vector<double> w = gains(call, in.columns), b = biases(call, in.columns);
    for (std::size_t r = 0; r < in.rows; ++r) {
      float sum = 0, squares = 0;
      for (std::size_t i = 0; i < in.columns; ++i) {
        const auto x = static_cast<float>(in.x[r * in.columns + i]);
        sum += x;
        squares += x * x;
      }
      const auto n = static_cast<float>(in.columns);
      const float mean = sum / n, variance = std::max(squares / n - mean * mean, 0.0f);
      for (std::size_t i = 0; i < in.columns; ++i) {
        double& x = in.x[r * in.columns + i];
        x = (x - mean) / std::sqrt(variance + 1e-5) * w[i] + b[i];
      }
    }
    from_doubles(in.x, call.at("y"));
  };
  return out;
}

/// rms_norm with its squares in fp16: beyond 256 they are infinite, and the result zero.
Kernel fp16_squares(const Kernel& right) {
  Kernel out = right;
  out.forward = [right](const KernelCall& call) {
    right.forward(call);
    Rows in(call.at("x"));
    const std::vector<double> w = gains(call, in.columns);
    for (std::size_t r = 0; r < in.rows; ++r) {
      double squares = 0;
      for (std::size_t i = 0; i < in.columns; ++i) {
        const double x = in.x[r * in.columns + i];
        squares += rounded(x * x, Dtype::fp16);
      }
      for (std::size_t i = 0; i < in.columns; ++i)
        in.x[r * in.columns + i] *= w[i] / std::sqrt(squares / static_cast<double>(in.columns) + 1e-6);
    }
    from_doubles(in.x, call.at("y"));
  };
  return out;
}

/// linear whose sum is kept in the type of its output.
Kernel low_sum(const Kernel& right) {
  Kernel out = right;
  out.forward = [](const KernelCall& call) {
    const Rows in(call.at("x"));
    const std::vector<double> w = to_doubles(call.at("weight"));
    const Dtype type = call.at("y").dtype;
    const std::size_t outputs = w.size() / in.columns;
    const std::vector<double> b = biases(call, outputs);
    std::vector<double> y(in.rows * outputs);
    for (std::size_t r = 0; r < in.rows; ++r)
      for (std::size_t o = 0; o < outputs; ++o) {
        double sum = 0;
        for (std::size_t k = 0; k < in.columns; ++k)
          sum = rounded(sum + in.x[r * in.columns + k] * w[o * in.columns + k], type);
        y[r * outputs + o] = sum + b[o];
      }
    from_doubles(y, call.at("y"));
  };
  return out;
}

/// mean with its count in fp16.
Kernel fp16_count(const Kernel& right) {
  Kernel out = right;
  out.forward = [](const KernelCall& call) {
    const Rows in(call.at("x"));
    const double count = rounded(static_cast<double>(in.columns), Dtype::fp16);
    std::vector<double> y(in.rows);
    for (std::size_t r = 0; r < in.rows; ++r)
      y[r] = std::accumulate(in.x.begin() + static_cast<std::ptrdiff_t>(r * in.columns),
                             in.x.begin() + static_cast<std::ptrdiff_t>((r + 1) * in.columns), 0.0) /
             count;
    from_doubles(y, call.at("y"));
  };
  return out;
}

/// mul whose second factor, positions, is taken in bf16.
Kernel bf16_positions(const Kernel& right) {
  Kernel out = right;
  out.forward = [](const KernelCall& call) {
    std::vector<double> x = to_doubles(call.at("x"));
    const std::vector<double> y = to_doubles(call.at("y"));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= rounded(y[i], Dtype::bf16);
    from_doubles(x, call.at("z"));
  };
  return out;
}

/// max that chooses by scores in bf16; its gradient goes to what it chose.
Kernel bf16_choice(const Kernel& right) {
  Kernel out = right;
  const auto best = [](const Rows& in, std::size_t r) {
    std::size_t at = 0;
    for (std::size_t i = 1; i < in.columns; ++i)
      if (rounded(in.x[r * in.columns + i], Dtype::bf16) > rounded(in.x[r * in.columns + at], Dtype::bf16)) at = i;
    return at;
  };
  out.forward = [best, right](const KernelCall& call) {
    right.forward(call);
    const Rows in(call.at("x"));
    std::vector<double> y(in.rows);
    for (std::size_t r = 0; r < in.rows; ++r) y[r] = in.x[r * in.columns + best(in, r)];
    from_doubles(y, call.at("y"));
  };
  out.backward = [best](const KernelCall& call) {
    const Rows in(call.at("x"));
    const std::vector<double> dy = to_doubles(call.at("dy"));
    std::vector<double> dx(in.x.size(), 0.0);
    for (std::size_t r = 0; r < in.rows; ++r) dx[r * in.columns + best(in, r)] = dy[r];
    from_doubles(dx, call.at("dx"));
  };
  return out;
}

/// layer_norm or rms_norm whose gains are stored as blocks of one number.
Kernel clamped_gains(const Kernel& right) {
  Kernel out = right;
  out.forward = [right](const KernelCall& call) {
    KernelCall changed = call;
    Tensor weight(call.at("weight").dtype, call.at("weight").shape);
    from_doubles(std::vector<double>(static_cast<std::size_t>(weight.count()), 1.0), weight.view());
    std::vector<double> w = to_doubles(call.at("weight"));
    for (double& value : w) value = std::exp2(std::floor(std::log2(std::fabs(value))));
    from_doubles(w, weight.view());
    for (auto& [name, view] : changed.tensors)
      if (name == "weight") view = weight.view();
    right.forward(changed);
  };
  return out;
}

/// cross_entropy whose gradient is softmax in bf16 less one-hot.
Kernel bf16_probabilities(const Kernel& right) {
  Kernel out = right;
  out.backward = [](const KernelCall& call) {
    Rows in(call.at("x"));
    const std::vector<double> target = to_doubles(call.at("target")), dloss = to_doubles(call.at("dloss"));
    for (std::size_t r = 0; r < in.rows; ++r) {
      const auto row = in.x.begin() + static_cast<std::ptrdiff_t>(r * in.columns);
      const double most = *std::max_element(row, row + static_cast<std::ptrdiff_t>(in.columns));
      double sum = 0;
      for (std::size_t i = 0; i < in.columns; ++i) sum += std::exp(row[static_cast<std::ptrdiff_t>(i)] - most);
      for (std::size_t i = 0; i < in.columns; ++i) {
        double& x = row[static_cast<std::ptrdiff_t>(i)];
        const double p = rounded(std::exp(x - most) / sum, Dtype::bf16);
        x = (p - (static_cast<double>(i) == target[r] ? 1 : 0)) * dloss[r];
      }
    }
    from_doubles(in.x, call.at("dx"));
  };
  return out;
}

/// attention that multiplies by 1/sqrt(E) after the product, which is in the type of its inputs.
Kernel late_scale(const Kernel& right) {
  Kernel out = right;
  out.forward = [right](const KernelCall& call) {
    right.forward(call);
    const TensorView &q = call.at("q"), &k = call.at("k");
    const auto each = static_cast<std::size_t>(q.shape.last()), time = static_cast<std::size_t>(q.shape.last(1));
    const std::vector<double> a = to_doubles(q), b = to_doubles(k);
    const double most = format(q.dtype).max_finite();
    std::vector<double> o = to_doubles(call.at("o"));
    const std::size_t heads = a.size() / (each * time);
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < time; ++i)
        for (std::size_t j = 0; j < time; ++j) {
          double product = 0;
          for (std::size_t e = 0; e < each; ++e) product += a[(h * time + i) * each + e] * b[(h * time + j) * each + e];
          if (std::fabs(product) > most)
            std::fill_n(o.begin() + static_cast<std::ptrdiff_t>((h * time + i) * each), each, NAN);
        }
    from_doubles(o, call.at("o"));
  };
  return out;
}

Subject shifted_norm() {
  use_planted("layer_norm", "norm_a", one_pass);
  const auto middle = [](Tape& t, Var h) {
    const Var shift = t.data({kRows, 64}, std::vector<double>(kRows * 64, 300.0));
    return t.call("norm_a", {{"x", models::add(t, h, shift)},
                             {"weight", t.constant_start("norm.weight", {64}, 1)},
                             {"bias", t.constant_start("norm.bias", {64}, 0)}});
  };
  return subject_of(class_net(middle), Dtype::fp16);
}

Subject large_norm(double gain, Dtype dtype) {
  use_planted("rms_norm", "norm_b", fp16_squares);
  const auto middle = [](Tape& t, Var h) {
    return t.call("norm_b", {{"x", h}, {"weight", t.constant_start("norm.weight", {64}, 1)}});
  };
  return subject_of(class_net(middle, [gain](std::int64_t b) { return b >= 8 ? gain : 1.0; }), dtype);
}

Subject summed(Dtype dtype) {
  use_planted("linear", "dense", low_sum);
  const auto middle = [](Tape& t, Var h) {
    const Var up = models::unary(t, "relu", models::linear(t, "up", h, 512));
    return t.call("dense", {{"x", up},
                            {"weight", t.weight("sum.weight", {64, 512}, 512)},
                            {"bias", t.constant_start("sum.bias", {64}, 0)}});
  };
  return subject_of(class_net(middle), dtype, 16);
}

/// A mean over more elements than fp16 counts.
Subject counted() {
  use_planted("mean", "average", fp16_count);
  train::Net net;
  net.name = "planted";
  net.rate = 0.05;
  net.forward = [](Tape& t, std::int64_t number) {
    constexpr std::int64_t kMany = 1056;
    const Var h = models::linear(t, "in", t.data({kMany, 16}, normals("many", number % 4, kMany * 16)), 64);
    const Var y = models::unary(t, "pow", h);
    t.add_loss(t.call("average", {{"x", t.reshape(y, {1, kMany * 64})}}), 1);
  };
  return subject_of(net, Dtype::fp16, 12);
}

Subject placed() {
  use_planted("mul", "rotate", bf16_positions);
  const auto middle = [](Tape& t, Var h) {
    std::vector<double> positions(kRows * 64);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::size_t row = i / 64;
      positions[i] = 1000 + static_cast<double>(row);
    }
    const Var angle = t.call("rotate", {{"x", t.data({kRows, 64}, std::vector<double>(kRows * 64, 0.01))},
                                        {"y", t.data({kRows, 64}, positions)}});
    return models::add(t, h, models::unary(t, "tanh", angle));
  };
  return subject_of(class_net(middle), Dtype::fp16);
}

Subject chosen() {
  use_planted("max", "choose", bf16_choice);
  const auto middle = [](Tape& t, Var h) {
    const Var scores = models::linear(t, "router", h, 48);
    return models::mul(t, h, models::repeated(t, t.call("choose", {{"x", scores}}), kRows, 64));
  };
  Subject out = subject_of(class_net(middle), Dtype::fp16);
  return out;
}

Subject clamped() {
  use_planted("rms_norm", "norm_c", clamped_gains);
  const auto middle = [](Tape& t, Var h) {
    return t.call("norm_c", {{"x", h}, {"weight", t.parameter("norm.weight", {64}, 1.1, 0.02)}});
  };
  return subject_of(class_net(middle), Dtype::bf16);
}

Subject small_differences() {
  use_planted("cross_entropy", "loss_a", bf16_probabilities);
  train::Net net;
  net.name = "planted";
  net.rate = 1;
  net.forward = [](Tape& t, std::int64_t number) {
    const Batch batch = batch_of(number % 2);
    const Var h = models::unary(t, "relu", models::linear(t, "in", t.data({kRows, kColumns}, batch.x), 64));
    const Var logits = models::linear(t, "out", h, kClasses);
    const Var losses = t.call("loss_a", {{"x", logits}, {"target", t.data({kRows}, batch.classes)}});
    t.add_loss(models::mean_all(t, losses), 1);
  };
  return subject_of(net, Dtype::fp16, 60);
}

Subject late_scaled() {
  use_planted("attention", "attend", late_scale);
  train::Net net;
  net.name = "planted";
  net.rate = 0.01;
  net.forward = [](Tape& t, std::int64_t number) {
    const Batch batch = batch_of(number, number >= 6 ? 60 : 1);
    const Var x = t.data({kRows, kColumns}, batch.x);
    const auto heads = [&](const char* which) {
      return models::exchanged(t, models::linear(t, which, x, 32), kRows / 8, 8, 2, 16, {kRows / 8, 2, 8, 16});
    };
    const Var q = heads("q"), k = heads("k"), v = heads("v");
    const Var o = t.call("attend", {{"q", q}, {"k", k}, {"v", v}});
    const Var y = models::exchanged(t, o, kRows / 8, 2, 8, 16, {kRows, 32});
    const Var logits = models::linear(t, "out", models::layer_norm(t, "norm", y), kClasses);
    t.add_loss(
        models::mean_all(t, t.call("cross_entropy", {{"x", logits}, {"target", t.data({kRows}, batch.classes)}})), 1);
  };
  return subject_of(net, Dtype::fp16, 24);
}

Subject truncated_layer() {
  use_planted("linear", "layer_t", truncating);
  const auto middle = [](Tape& t, Var h) {
    return t.call("layer_t", {{"x", models::unary(t, "relu", h)},
                              {"weight", t.weight("t.weight", {64, 64}, 64)},
                              {"bias", t.constant_start("t.bias", {64}, 0)}});
  };
  return subject_of(class_net(middle), Dtype::bf16);
}

Subject truncated_attention() {
  use_planted("attention", "attend_t", truncating);
  const auto middle = [](Tape& t, Var h) {
    const auto heads = [&](const char* which) {
      return models::exchanged(t, models::linear(t, which, h, 32), kRows / 8, 8, 2, 16, {kRows / 8, 2, 8, 16});
    };
    const Var o = t.call("attend_t", {{"q", heads("q")}, {"k", heads("k")}, {"v", heads("v")}});
    return models::exchanged(t, o, kRows / 8, 2, 8, 16, {kRows, 32});
  };
  return subject_of(class_net(middle), Dtype::bf16);
}

/// An op of the zoo, whose kernel is wrong, between the first layer and the last.
Subject wrong(const std::string& op, Dtype dtype) {
  const auto middle = [op](Tape& t, Var h) {
    if (op.starts_with("rms_norm")) return t.call(op, {{"x", h}, {"weight", t.constant_start("gain", {64}, 1)}});
    return models::unary(t, op.c_str(), h);
  };
  return subject_of(class_net(middle), dtype, 16);
}

/// fp8 with the scale of the first step, while the data grow.
Subject stale_amax() {
  const auto gain = [](std::int64_t b) { return std::pow(1.25, static_cast<double>(b)); };
  const auto middle = [](Tape& t, Var h) { return models::layer_norm(t, "norm", models::linear(t, "mid", h, 64)); };
  Subject out = subject_of(class_net(middle, gain), Dtype::bf16, 30);
  out.make_fault = [] {
    const auto scale = std::make_shared<double>(0);
    return [scale](const Event& e) {
      if (e.phase != Phase::forward || e.cast || e.op != "linear_1") return;
      std::vector<double> values = to_doubles(e.got);
      double most = 0;
      for (const double value : values) most = std::max(most, std::fabs(value));
      if (*scale == 0) *scale = 448 / (1.5 * most);
      for (double& value : values) {
        double v = std::clamp(value * *scale, -448.0, 448.0);
        value = rounded(v, Dtype::e4m3fn) / *scale;
      }
      from_doubles(values, e.got);
    };
  };
  return out;
}

}  // namespace

std::vector<PlantedRun> planted_kernels() {
  using enum Cause;
  return {
      {"one_pass_variance", cancellation, "mean(x^2) - mean(x)^2 of shifted rows", {"norm_a_1"}, -1, shifted_norm},
      {"fp16_squares",
       inner_overflow,
       "x^2 in fp16 inside a norm",
       {"norm_b_1"},
       -1,
       [] { return large_norm(400, Dtype::fp16); }},
      {"fp16_squares_bf16",
       inner_overflow,
       "the same in a run in bf16",
       {"norm_b_1"},
       -1,
       [] { return large_norm(2000, Dtype::bf16); }},
      {"fp16_sum", low_accumulator, "a product's sum in fp16", {"dense_1"}, 1, [] { return summed(Dtype::fp16); }},
      {"bf16_sum", low_accumulator, "a product's sum in bf16", {"dense_1"}, 1, [] { return summed(Dtype::bf16); }},
      {"fp16_count", count_overflow, "a mean over 67584 elements", {"average_1"}, -1, counted},
      {"bf16_positions", position_precision, "positions above 1000 in bf16", {"rotate_1"}, -1, placed},
      {"bf16_router", decision_flips, "the largest score chosen in bf16", {"choose_1"}, -1, chosen},
      {"gains_in_blocks", block_clamp, "gains stored as one number", {"norm_c_1"}, -1, clamped},
      {"p_minus_q", loss_cancellation, "softmax - one-hot in bf16", {"loss_a_1"}, -1, small_differences},
      {"scale_after_product", scale_placement, "1/sqrt(E) after the product", {"attend_1"}, -1, late_scaled},
      {"truncated_attention", biased_rounding, "attention that truncates", {"attend_t_1"}, 1, truncated_attention},
      {"truncated_layer", biased_rounding, "a layer that truncates", {"layer_t_1"}, 1, truncated_layer},
      {"no_dot_term",
       wrong_kernel,
       "a norm's gradient without its dot term",
       {"rms_norm.normal_term_missing_1"},
       -1,
       [] { return wrong("rms_norm.normal_term_missing", Dtype::fp16); }},
      {"no_factor",
       wrong_kernel,
       "a softmax's gradient without the factor y",
       {"softmax.missing_factor_1"},
       -1,
       [] { return wrong("softmax.missing_factor", Dtype::bf16); }},
      {"guided_relu",
       wrong_kernel,
       "a gradient that is cut off where it is negative",
       {"relu.guided_1"},
       -1,
       [] { return wrong("relu.guided", Dtype::fp16); }},
      {"rounded_exponent",
       wrong_kernel,
       "an exponential of numbers rounded to bf16",
       {"softmax.exp_of_bf16_1"},
       -1,
       [] { return wrong("softmax.exp_of_bf16", Dtype::fp16); }},
      {"stale_amax", fp8_scale, "fp8 with the first step's scale", {"linear_1"}, -1, stale_amax},
  };
}

}  // namespace ampcheck::checks::diagnose
