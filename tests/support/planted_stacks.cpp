// SPDX-License-Identifier: Apache-2.0
#include "tests/support/planted_stacks.h"

#include <cmath>

#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::testing {

float rounded(float value, Dtype dtype) {
  double wide = static_cast<double>(value);
  round_values(format(dtype), RoundingMode{}, {&wide, 1}, {&wide, 1});
  return static_cast<float>(wide);
}

namespace {

std::vector<float> drawn(const char* name, std::uint64_t seed, std::size_t count, Dtype dtype, float scale) {
  Random random(seed, name);
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = random.bits(i);
    // A sum of four uniform numbers: bell-shaped, and nothing of it is exact in few bits.
    float sum = 0;
    for (int k = 0; k < 4; ++k) sum += static_cast<float>(bits >> (16 * k) & 0xffff) / 65536.0f - 0.5f;
    out[i] = rounded(sum * scale, dtype);
  }
  return out;
}

using Floats = std::vector<float>;

enum class Sum { forward, backward, lanes, in_16_bits };

float sum_of(const Floats& terms, Sum how, Dtype dtype) {
  float out = 0;
  if (how == Sum::backward) {
    for (std::size_t i = terms.size(); i-- > 0;) out += terms[i];
    return out;
  }
  if (how == Sum::lanes) {
    Floats lanes(8, 0.0f);
    for (std::size_t i = 0; i < terms.size(); ++i) lanes[i % 8] += terms[i];
    for (std::size_t half = 4; half > 0; half /= 2)
      for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    return lanes[0];
  }
  for (const float term : terms) {
    out += term;
    if (how == Sum::in_16_bits) out = rounded(out, dtype);
  }
  return out;
}

struct NormWay {
  Sum sum = Sum::forward;
  bool round_square = false, round_mean = false, round_inv = false, before_weight = false, weight_first = false;
  bool eps_outside = false, round_product = false;
};

/// x / sqrt(mean(x^2) + eps) * weight
std::function<Floats(const StackData&, Dtype)> norm(NormWay way) {
  return [way](const StackData& d, Dtype dtype) {
    constexpr float kEps = 0.015625f;
    Floats y(d.x.size());
    for (std::int64_t i = 0; i < d.rows; ++i) {
      Floats terms(static_cast<std::size_t>(d.cols));
      for (std::int64_t j = 0; j < d.cols; ++j) {
        const float square = d.x[d.at(i, j)] * d.x[d.at(i, j)];
        terms[static_cast<std::size_t>(j)] = way.round_square ? rounded(square, dtype) : square;
      }
      float mean = sum_of(terms, way.sum, dtype) / static_cast<float>(d.cols);
      if (way.round_mean) mean = rounded(mean, dtype);
      float inv = way.eps_outside ? 1 / (std::sqrt(mean) + kEps) : 1 / std::sqrt(mean + kEps);
      if (way.round_inv) inv = rounded(inv, dtype);
      for (std::int64_t j = 0; j < d.cols; ++j) {
        const float w = d.weight[static_cast<std::size_t>(j)], x = d.x[d.at(i, j)];
        float out = 0;
        if (way.weight_first) {
          const float factor = inv * w;
          out = x * (way.round_product ? rounded(factor, dtype) : factor);
        } else {
          const float normed = x * inv;
          out = (way.before_weight ? rounded(normed, dtype) : normed) * w;
        }
        y[d.at(i, j)] = rounded(out, dtype);
      }
    }
    return y;
  };
}

struct GateWay {
  bool round_sigmoid = false, round_silu = false, round_product = false;
};

/// x * sigmoid(x) * gate + r
std::function<Floats(const StackData&, Dtype)> gated(GateWay way) {
  return [way](const StackData& d, Dtype dtype) {
    Floats y(d.x.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      float s = 1 / (1 + std::exp(-d.x[i]));
      if (way.round_sigmoid) s = rounded(s, dtype);
      float a = d.x[i] * s;
      if (way.round_silu) a = rounded(a, dtype);
      float b = a * d.gate[i];
      if (way.round_product) b = rounded(b, dtype);
      y[i] = rounded(b + d.r[i], dtype);
    }
    return y;
  };
}

struct SoftmaxWay {
  Sum sum = Sum::forward;
  bool round_shifted = false, round_exp = false;
};

/// exp(x - max) / sum
std::function<Floats(const StackData&, Dtype)> softmax(SoftmaxWay way) {
  return [way](const StackData& d, Dtype dtype) {
    Floats y(d.x.size());
    for (std::int64_t i = 0; i < d.rows; ++i) {
      float most = -HUGE_VALF;
      for (std::int64_t j = 0; j < d.cols; ++j) most = std::max(most, d.x[d.at(i, j)]);
      Floats terms(static_cast<std::size_t>(d.cols));
      for (std::int64_t j = 0; j < d.cols; ++j) {
        float shifted = d.x[d.at(i, j)] - most;
        if (way.round_shifted) shifted = rounded(shifted, dtype);
        float e = std::exp(shifted);
        if (way.round_exp) e = rounded(e, dtype);
        terms[static_cast<std::size_t>(j)] = e;
      }
      const float total = sum_of(terms, way.sum, dtype);
      for (std::int64_t j = 0; j < d.cols; ++j)
        y[d.at(i, j)] = rounded(terms[static_cast<std::size_t>(j)] / total, dtype);
    }
    return y;
  };
}

std::vector<StackOp> made() {
  std::vector<StackOp> out;
  out.push_back({"rms_norm",
                 "y = x * rsqrt(mean(x^2, -1) + 0.015625) * weight",
                 {"x", "weight"},
                 {{"fused", norm({}), true, "rounds once, at the end"},
                  {"other_order", norm({.sum = Sum::lanes}), true, "rounds once, at the end"},
                  {"backwards", norm({.sum = Sum::backward}), true, "rounds once, at the end"},
                  {"before_weight", norm({.before_weight = true}), false, "rounds x * rsqrt("},
                  {"inv_rounded", norm({.round_inv = true}), false, "rounds rsqrt("},
                  {"weight_into_inv", norm({.weight_first = true}), true, "rounds once, at the end"},
                  {"weight_into_inv_rounded",

                   norm({.weight_first = true, .round_product = true}), false, "rounds rsqrt("},
                  {"squares_rounded", norm({.round_square = true}), false, "rounds square(x) to "},
                  {"mean_rounded", norm({.round_mean = true}), false, "mean("},
                  {"sum_in_16_bits", norm({.sum = Sum::in_16_bits}), false, "accumulates in "},
                  {"eps_outside", norm({.eps_outside = true}), false, "eps"}}});
  out.push_back({"gated",
                 "y = x * sigmoid(x) * gate + r",
                 {"x", "gate", "r"},
                 {{"fused", gated({}), true, "rounds once, at the end"},
                  {"eager", gated({true, true, true}), false, "rounds every intermediate"},
                  {"sigmoid_rounded", gated({.round_sigmoid = true}), false, "rounds sigmoid(x) to "},
                  {"silu_rounded", gated({.round_silu = true}), false, "rounds x * sigmoid(x) to "},
                  {"before_add", gated({.round_product = true}), false, "rounds (x * sigmoid(x)) * gate to "}}});
  out.push_back({"softmax",
                 "e = exp(x - stop_gradient(max(x, -1))); y = e / sum(e, -1)",
                 {"x"},
                 {{"fused", softmax({}), true, "rounds once, at the end"},
                  {"other_order", softmax({.sum = Sum::lanes}), true, "rounds once, at the end"},
                  {"exp_rounded", softmax({.round_exp = true}), false, "rounds exp("},
                  {"sum_in_16_bits", softmax({.sum = Sum::in_16_bits}), false, "accumulates in "}}});
  return out;
}

Tensor tensor_of(const std::vector<float>& values, const Shape& shape, Dtype dtype) {
  Tensor out(dtype, shape);
  from_doubles(std::vector<double>(values.begin(), values.end()), out.view());
  return out;
}

}  // namespace

StackData stack_data(std::uint64_t seed, Dtype dtype) {
  StackData out;
  out.dtype = dtype;
  const auto count = static_cast<std::size_t>(out.rows * out.cols);
  out.x = drawn("x", seed, count, dtype, 1.5f);
  out.weight = drawn("weight", seed, static_cast<std::size_t>(out.cols), dtype, 2.0f);
  out.gate = drawn("gate", seed, count, dtype, 2.0f);
  out.r = drawn("r", seed, count, dtype, 0.5f);
  return out;
}

const std::vector<StackOp>& stack_ops() {
  static const std::vector<StackOp> all = made();
  return all;
}

TensorFile stack_dump(const StackOp& op, const StackWay& way, const StackData& data) {
  TensorFile out{"memory", {}};
  const Shape whole{data.rows, data.cols};
  for (const std::string& input : op.inputs) {
    const bool vector = input == "weight";
    const std::vector<float>& values = vector            ? data.weight
                                       : input == "gate" ? data.gate
                                       : input == "r"    ? data.r
                                                         : data.x;
    out.tensors.push_back({input, tensor_of(values, vector ? Shape{data.cols} : whole, data.dtype)});
  }
  out.tensors.push_back({"y", tensor_of(way.run(data, data.dtype), whole, data.dtype)});
  return out;
}

}  // namespace ampcheck::testing
