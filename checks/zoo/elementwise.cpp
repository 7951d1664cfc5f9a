// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// add, mul, div, relu, exp, log, sigmoid and tanh.
#include <algorithm>
#include <bit>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

float pass_on(float, float, float g, Dtype) { return g; }
float sum_of(float x, float y, Dtype) { return x + y; }
Kernel adds(Slip slip) { return binary(sum_of, pass_on, pass_on, std::move(slip)); }

float product_of(float x, float y, Dtype) { return x * y; }
float times_y(float, float y, float g, Dtype) { return g * y; }
float times_x(float x, float, float g, Dtype) { return g * x; }
Kernel multiplies(Slip slip) { return binary(product_of, times_y, times_x, std::move(slip)); }

float quotient_of(float x, float y, Dtype) { return x / y; }
float over_y(float, float y, float g, Dtype) { return g / y; }
float minus_gz_over_y(float x, float y, float g, Dtype) { return -g * (x / y) / y; }
Kernel divides(Slip slip) { return binary(quotient_of, over_y, minus_gz_over_y, std::move(slip)); }

/// 1/y to about 12 bits and no Newton step, as rcp instructions give it.
float rough_reciprocal(float y) {
  const float r = 1 / y;
  return std::isfinite(r) ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(r) & ~0x7ffu) : r;
}

float relu_of(float x, Dtype) { return x <= 0 ? 0 : x; }
float relu_slope(float x, float g, Dtype) { return x <= 0 ? 0 : g; }
Kernel rectifies(Slip slip) { return unary(relu_of, relu_slope, std::move(slip)); }

float exp_of(float x, Dtype) { return std::exp(x); }
float exp_slope(float x, float g, Dtype) { return g * std::exp(x); }
float log_of(float x, Dtype) { return std::log(x); }
float log_slope(float x, float g, Dtype) { return g / x; }

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float sigmoid_of(float x, Dtype) { return sigmoid(x); }
float sigmoid_slope(float x, float g, Dtype) {
  const float y = sigmoid(x);
  return g * (y * (1 - y));
}

float tanh_of(float x, Dtype) { return std::tanh(x); }
float tanh_slope(float x, float g, Dtype) {
  const float y = std::tanh(x);
  return g * (1 - y * y);
}
float tanh_by_expm1(float x) {
  const float e = std::expm1(-2 * std::fabs(x)), size = -e / (2 + e);
  return x < 0 ? -size : size;
}
/// Relative error up to 2^-11, as tanh.approx.f32 of PTX states.
float rough_tanh(float x) {
  const float y = std::tanh(x);
  return std::isfinite(y) ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) & ~0xfffu) : y;
}

void add_sums(std::vector<Specimen>& out) {
  add(out, "add",
      {{"dy_negated", 2, "dy = -g, as of a difference", "any", V::bug, "sign",
        binary(sum_of, pass_on, [](float, float, float g, Dtype) { return -g; })},
       {"dx_twice", 40, "g is added to dx twice", "any", V::bug, "factor of 2|twice", adds({Io::scale, "dx", 2})},
       {"dense_cotangent", 18, "dz is read as if row-major", "strided dz", V::structural, "strided",
        adds({Io::read_dense, "dz"})},
       {"strides_of_x", 20, "y is read with the strides of x", "x or y strided alone", V::structural, "strided",
        adds({Io::read_with_strides, "y", 1, "x"})},
       {"vector_tail", 13, "what follows the last full vector of 4 is not written", "counts that are no multiple of 4",
        V::structural, "output buffer held|unwritten", adds({Io::drop_tail_of_4, "z"})},
       {"grid_of_16_bits", 12, "elements beyond 65535 are not written", "large tensors", V::structural,
        "output buffer held|unwritten", adds({Io::drop_beyond_16_bits, "z"}), kFp32},
       {"truncates", 29, "stores toward zero instead of to nearest", "inexact sums", V::precision_contract,
        "truncat|toward zero", adds({Io::truncate, "z"}), kHalfTypes, V::bug},
       {"flushes", 29, "subnormal results are flushed to zero", "subnormal sums", V::precision_contract,
        "flush|subnormal", adds({Io::flush, "z"}), kAllTypes, V::range_declared},
       {"saturates", 28, "overflow gives the largest finite number", "near the largest number", V::range_declared,
        "satur|overflow|finite where", adds({Io::saturate, "z"}), kHalfTypes, V::bug},
       {"through_bf16", 25, "the fp16 sum goes through bf16", "any", V::precision_contract, "rounded|bf16|keeps|takes",
        adds({Io::through_bf16, "z"}), kFp16, V::bug},
       {"adds_gradient", 16, "dx is added to what its buffer holds", "buffers that are not zero", V::structural,
        "output buffer held|accumulat", adds({Io::add_to_buffer, "dx"})}},
      {{"plain", "one loop", adds({})},
       {"double", "in fp64, rounded once",
        binary(
            [](float x, float y, Dtype) { return static_cast<float>(static_cast<double>(x) + static_cast<double>(y)); },
            pass_on, pass_on)},
       {"fma", "fma(x, 1, y)",
        binary([](float x, float y, Dtype) { return std::fma(x, 1.0f, y); }, pass_on, pass_on)}});
}

void add_products(std::vector<Specimen>& out) {
  add(out, "mul",
      {{"dx_of_x", 7, "dx = g x", "any", V::bug, "swap|another input|other input|another output or gradient",
        binary(product_of, times_x, times_x)},
       {"dead_dy", 46, "dy is all zero", "any", V::bug, "zero", multiplies({Io::zero, "dy"})},
       {"absolute_cotangent", 10, "|g| in place of g", "cotangents of either sign", V::structural,
        "linear in the cotangent|sign", multiplies({Io::absolute, "dz"}), kAllTypes, V::bug},
       {"cotangent_of_ones", 10, "1 in place of g", "cotangents other than 1", V::structural,
        "linear in the cotangent|ignored", multiplies({Io::ones, "dz"}), kAllTypes, V::bug},
       {"clobbers_x", 21, "works in place on x", "any", V::structural, "changes its inputs",
        multiplies({Io::clobber, "x"})},
       {"through_bf16", 25, "the fp16 product goes through bf16", "any", V::precision_contract,
        "rounded|bf16|keeps|takes", multiplies({Io::through_bf16, "z"}), kFp16, V::bug},
       {"index_of_16_bits", 22, "a 16-bit index wraps beyond 65535", "large tensors", V::structural,
        "output buffer held|unwritten", multiplies({Io::wrap_16_bits, "z"}), kFp32},
       {"dense_output", 19, "dx is written as if row-major", "strided dx", V::structural,
        "strided|writes outside|output buffer held", multiplies({Io::write_dense, "dx"})},
       {"one_sided_slope", 48, "dx = 1.003 g y", "any", V::bug, "factor", multiplies({Io::scale, "dx", 1.003})}},
      {{"commuted", "y x, y g and x g",
        binary([](float x, float y, Dtype) { return y * x; }, times_y,
               [](float x, float, float g, Dtype) { return x * g; })},
       {"double", "in fp64, rounded once",
        binary(
            [](float x, float y, Dtype) { return static_cast<float>(static_cast<double>(x) * static_cast<double>(y)); },
            times_y, times_x)}});
}

void add_quotients(std::vector<Specimen>& out) {
  add(out, "div",
      {{"rough_reciprocal", 29, "x times a reciprocal of 12 bits", "any", V::precision_contract,
        "fast|approx|reciprocal",
        binary([](float x, float y, Dtype) { return x * rough_reciprocal(y); }, over_y, minus_gz_over_y), kAllTypes,
        V::bug},
       {"dy_positive", 2, "dy without its minus sign", "any", V::bug, "sign", divides({Io::negate, "dy"})},
       {"dy_over_y", 1, "dy = -g x / y", "any", V::bug, "factor y|divided|missing factor|without dividing",
        binary(quotient_of, over_y, [](float x, float y, float g, Dtype) { return -g * x / y; })},
       {"guarded", 37, "0 where y is 0", "y = 0 where x is not (x/0 is open to the judge)", V::bug, "finite where|zero",
        binary([](float x, float y, Dtype) { return y == 0 ? 0.0f : x / y; }, over_y, minus_gz_over_y)},
       {"eps_in_divisor", 6, "x / (y + 1e-6)", "small y", V::bug, "eps",
        binary([](float x, float y, Dtype) { return x / (y + 1e-6f); }, over_y, minus_gz_over_y)},
       {"dense_y", 19, "y is read as if row-major", "strided y", V::structural, "strided",
        divides({Io::read_dense, "y"})},
       {"last_dx_unwritten", 15, "the last dx is not written", "any", V::structural, "output buffer held|unwritten",
        divides({Io::drop_last, "dx"})}},
      {{"reciprocal", "x (1/y)", binary([](float x, float y, Dtype) { return x * (1 / y); }, over_y, minus_gz_over_y)},
       {"by_slope", "dy = -g (z / y)",
        binary(quotient_of, over_y, [](float x, float y, float g, Dtype) { return -g * ((x / y) / y); })},
       {"by_square", "dy = -g x / y^2",
        binary(quotient_of, over_y, [](float x, float y, float g, Dtype) { return -g * x / (y * y); })},
       {"double", "in fp64, rounded once",
        binary(
            [](float x, float y, Dtype) { return static_cast<float>(static_cast<double>(x) / static_cast<double>(y)); },
            over_y, minus_gz_over_y)}});
}

void add_relu(std::vector<Specimen>& out) {
  add(out, "relu",
      {{"slope_at_zero", 37, "slope 2 at zero, counted from both sides", "zeros", V::non_smooth,
        "subgradient|zero|kink",
        unary(relu_of, [](float x, float g, Dtype) { return x == 0 ? 2 * g : relu_slope(x, g, Dtype::fp32); }),
        kAllTypes, V::bug},
       {"guided", 10, "dx = max(g, 0) [x > 0]", "cotangents of either sign", V::structural, "linear in the cotangent",
        rectifies({Io::positive, "dy"}), kAllTypes, V::bug},
       {"drops_nan", 29, "NaN becomes 0, as with fmax", "NaN", V::bug, "finite where|hides",
        unary([](float x, Dtype) { return std::fmax(x, 0.0f); }, relu_slope)},
       {"cotangent_sign", 7, "the mask is taken of g, not of x", "any", V::bug,
        "mask|another input|linear in the cotangent",
        unary(relu_of, [](float, float g, Dtype) { return g <= 0 ? 0.0f : g; }), kAllTypes, V::structural},
       {"odd_column", 13, "the last column of odd rows is not written", "odd D", V::structural,
        "output buffer held|unwritten", rectifies({Io::drop_odd_column, "dx"})},
       {"transposed_store", 19, "y is written as if row-major", "strided y", V::structural,
        "strided|writes outside|output buffer held", rectifies({Io::write_dense, "y"})},
       {"leaky", 30, "the gradient of leaky relu with slope 0.01", "negative x", V::bug,
        "another activation|negative|zero",
        unary(relu_of, [](float x, float g, Dtype) { return x <= 0 ? 0.01f * g : g; })}},
      {{"fmax", "fmax, NaN passed on",
        unary([](float x, Dtype) { return x != x ? x : std::fmax(x, 0.0f); }, relu_slope)},
       {"one_at_zero", "slope 1 at zero, another subgradient",
        unary(relu_of, [](float x, float g, Dtype) { return x < 0 ? 0.0f : g; })},
       {"half_at_zero", "slope 1/2 at zero, another subgradient",
        unary(relu_of, [](float x, float g, Dtype) { return x < 0    ? 0.0f
                                                            : x == 0 ? 0.5f * g
                                                                     : g; })},
       {"mask", "a mask of bits",
        unary(
            [](float x, Dtype) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & (x <= 0 ? 0u : ~0u)); },
            relu_slope)}});
}

void add_exp(std::vector<Specimen>& out) {
  add(out, "exp",
      {{"through_exp2", 29, "exp2(x log2(e)) with the product rounded", "large |x|", V::precision_contract, "fast|exp",
        unary([](float x, Dtype) { return std::exp2(x * 1.44269504f); }, exp_slope), kFp32, V::bug},
       {"flushes", 29, "subnormal results are flushed to zero", "x below -87", V::precision_contract,
        "flush|subnormal|zero", unary(exp_of, exp_slope, {Io::flush, "y"}), kAllTypes, V::range_declared},
       {"clamped",
        28,
        "x is clamped to 80 first",
        "x above 80",
        V::range_declared,
        "clamp|satur|overflow|finite where",
        unary([](float x, Dtype) { return std::exp(x > 80 ? 80.0f : x); }, exp_slope),
        {Dtype::fp32, Dtype::bf16},
        V::bug},
       {"dx_of_positive_g", 10, "max(g, 0) in place of g", "cotangents of either sign", V::structural,
        "linear in the cotangent|zero", unary(exp_of, exp_slope, {Io::positive, "dy"}), kAllTypes, V::bug},
       {"stored_y", 27, "dx from y as stored", "any", V::precision_contract, "saved|stored|rounded|keeps|takes",
        unary(exp_of, [](float x, float g, Dtype t) { return g * rounded(t, std::exp(x)); }), kHalfTypes, V::bug},
       {"overrun", 13, "one element past the end of dx is written", "any", V::structural, "writes outside",
        unary(exp_of, exp_slope, {Io::overrun, "dx"})}},
      {{"double", "in fp64, rounded once",
        unary([](float x, Dtype) { return static_cast<float>(std::exp(static_cast<double>(x))); }, exp_slope)},
       {"one_ulp", "an ulp off, as declared",
        unary(
            [](float x, Dtype) {
              const float y = std::exp(x);
              return x == 0 || !std::isfinite(y) || y < 1e-30f
                         ? y
                         : std::nextafter(static_cast<float>(std::exp(static_cast<double>(x))), y);
            },
            exp_slope)}});
}

void add_log(std::vector<Specimen>& out) {
  add(out, "log",
      {{"eps_in_gradient", 6, "dx = g / (x + 1e-6)", "small x", V::bug, "eps",
        unary(log_of, [](float x, float g, Dtype) { return g / (x + 1e-6f); }), kAllTypes, V::range_declared},
       {"base_two", 1, "log2(x)", "any", V::bug, "factor",
        unary([](float x, Dtype) { return std::log2(x); }, log_slope)},
       {"rough_near_one", 29, "absolute error 2^-21.4 between 0.5 and 2, as __logf states", "x near 1",
        V::precision_contract, "fast|log",
        unary([](float x, Dtype) { return std::log(x) + (x > 0.5f && x < 2 ? 3.6e-7f : 0.0f); }, log_slope), kAllTypes,
        V::bug},
       {"eps_in_value", 6, "log(x + 1e-8)", "tiny x", V::bug, "eps|finite where",
        unary([](float x, Dtype) { return std::log(x + 1e-8f); }, log_slope), kAllTypes, V::range_declared},
       {"dead_gradient", 46, "dx is all zero", "any", V::bug, "zero", unary(log_of, log_slope, {Io::zero, "dx"})}},
      {{"double", "in fp64, rounded once",
        unary([](float x, Dtype) { return static_cast<float>(std::log(static_cast<double>(x))); }, log_slope)},
       {"reciprocal", "dx = g (1/x)", unary(log_of, [](float x, float g, Dtype) { return g * (1 / x); })}});
}

void add_sigmoid(std::vector<Specimen>& out) {
  add(out, "sigmoid",
      {{"overflows", 28, "exp(x) / (1 + exp(x))", "x above 88", V::range_declared, "overflow|inf-inf|infinite",
        unary([](float x, Dtype) { return std::exp(x) / (1 + std::exp(x)); }, sigmoid_slope), kAllTypes, V::bug},
       {"slope_by_square", 28, "dx = g e / (1 + e)^2 with e = exp(x)", "x above 44", V::range_declared,
        "overflow|inf-inf|infinite|leaves the range",
        unary(sigmoid_of,
              [](float x, float g, Dtype) {
                const float e = std::exp(x);
                return g * (e / ((1 + e) * (1 + e)));
              }),
        kAllTypes, V::bug},
       {"stored_y", 27, "dx from y as stored", "any", V::precision_contract, "saved|stored|rounded|keeps|takes",
        unary(sigmoid_of,
              [](float x, float g, Dtype t) {
                const float y = rounded(t, sigmoid(x));
                return g * (y * (1 - y));
              }),
        kHalfTypes, V::bug},
       {"clipped", 28, "0 and 1 beyond |x| = 8", "|x| above 8", V::bug, "satur|clip|zero",
        unary([](float x, Dtype) { return x > 8    ? 1.0f
                                          : x < -8 ? 0.0f
                                                   : sigmoid(x); }, sigmoid_slope)},
       {"squared_cotangent", 10, "g^2 in place of g", "cotangents other than 1", V::structural,
        "linear in the cotangent", unary(sigmoid_of, sigmoid_slope, {Io::squared, "dy"}), kAllTypes, V::bug},
       {"slope_of_tanh", 30, "dx = g (1 - y^2)", "any", V::bug, "another activation|tanh",
        unary(sigmoid_of,
              [](float x, float g, Dtype) {
                const float y = sigmoid(x);
                return g * (1 - y * y);
              })}},
      {{"by_tanh", "(1 + tanh(x/2)) / 2",
        unary([](float x, Dtype) { return 0.5f * (1 + std::tanh(0.5f * x)); },
              [](float x, float g, Dtype) {
                const float y = 0.5f * (1 + std::tanh(0.5f * x));
                return g * (y * (1 - y));
              }),
        "by tanh, g y (1 - y)"},
       {"double", "in fp64, rounded once",
        unary([](float x, Dtype) { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(x)))); },
              sigmoid_slope)}});
}

void add_tanh(std::vector<Specimen>& out) {
  add(out, "tanh",
      {{"rough", 29, "relative error 2^-11, as tanh.approx states", "any", V::precision_contract, "fast|tanh",
        unary([](float x, Dtype) { return rough_tanh(x); }, tanh_slope), kNotBf16, V::bug},
       {"stored_y", 27, "dx from y as stored", "saturated x", V::precision_contract, "saved|stored|rounded|keeps|takes",
        unary(tanh_of,
              [](float x, float g, Dtype t) {
                const float y = rounded(t, std::tanh(x));
                return g * (1 - y * y);
              }),
        kHalfTypes, V::bug},
       {"no_cotangent", 10, "dx = 1 - y^2", "cotangents other than 1", V::structural, "linear in the cotangent",
        unary(tanh_of, tanh_slope, {Io::ones, "dy"}), kAllTypes, V::bug},
       {"cancels_at_zero", 25, "(1 - e) / (1 + e), e = exp(-2x): no digits near 0",
        "small x; in fp16 between 2^-14 and 2^-11", V::bug, "cancel|zero|rounded|keeps|takes",
        unary(
            [](float x, Dtype) {
              const float e = std::exp(-2 * std::fabs(x)), y = (1 - e) / (1 + e);
              return x < 0 ? -y : y;
            },
            tanh_slope)},
       {"overflows", 28, "(e - 1) / (e + 1), e = exp(2x)", "x above 44", V::bug,
        "overflow|inf-inf|infinite|tanh as (1 - exp(-2x)) / (1 + exp(-2x))",
        unary(
            [](float x, Dtype) {
              const float e = std::exp(2 * x);
              return (e - 1) / (e + 1);
            },
            tanh_slope),
        kAllTypes, V::range_declared},
       {"clamped_slope", 28, "slope 0 beyond |x| = 3", "|x| above 3", V::bug, "zero|satur",
        unary(tanh_of, [](float x, float g, Dtype t) { return std::fabs(x) > 3 ? 0.0f : tanh_slope(x, g, t); })}},
      {{"by_expm1", "-e / (2 + e), e = expm1(-2|x|)",
        unary([](float x, Dtype) { return tanh_by_expm1(x); },
              [](float x, float g, Dtype) {
                const float y = tanh_by_expm1(x);
                return g * (1 - y * y);
              })},
       {"product_slope", "dx = g (1 - y) (1 + y)",
        unary(tanh_of,
              [](float x, float g, Dtype) {
                const float y = std::tanh(x);
                return g * ((1 - y) * (1 + y));
              })},
       {"double", "in fp64, rounded once",
        unary([](float x, Dtype) { return static_cast<float>(std::tanh(static_cast<double>(x))); }, tanh_slope)}});
}

}  // namespace

std::vector<Specimen> elementwise_specimens() {
  std::vector<Specimen> out;
  add_sums(out);
  add_products(out);
  add_quotients(out);
  add_relu(out);
  add_exp(out);
  add_log(out);
  add_sigmoid(out);
  add_tanh(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
