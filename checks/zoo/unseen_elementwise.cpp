// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Arithmetic and functions of one tensor, of the unseen part of the zoo: written after public fixes of kernels, without
// a look at the rules.
#include <cfloat>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

const std::vector<Dtype> kFp8 = {Dtype::e4m3fn, Dtype::e5m2};
const std::vector<Dtype> kWideExponents = {Dtype::fp32, Dtype::bf16};

// ---- Of two tensors. ----

float sum_of(float x, float y, Dtype) { return x + y; }
float passed_on(float, float, float g, Dtype) { return g; }
float product(float x, float y, Dtype) { return x * y; }
float times_x(float x, float, float g, Dtype) { return g * x; }
float quotient(float x, float y, Dtype) { return x / y; }
float over_y(float, float y, float g, Dtype) { return g / y; }
float slope_of_divisor(float x, float y, float g, Dtype) { return -g * (x / y) / y; }

/// As CUDA states of __fdividef: between 2^126 and 2^128 the reciprocal of the divisor is flushed.
float fast_quotient(float x, float y, Dtype) {
  const bool flushes = std::isfinite(y) && std::fabs(y) > 0x1p126f;
  return flushes ? x * 0.0f : x / y;
}

double reciprocal(float y) { return 1 / static_cast<double>(y); }

/// z = x y where the second factor is one number a row, the first of it.
Kernel row_scale() {
  const auto factors = [](const Call& call) {
    Values y = call.in("y");
    const std::size_t d = index_of(call.columns("y"));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = y[i / d * d];
    return y;
  };
  return kernel_of(
      [factors](const Call& call) {
        Values z = call.in("x");
        const Values y = factors(call);
        for (std::size_t i = 0; i < z.size(); ++i) z[i] *= y[i];
        call.out("z", z);
      },
      [](const Call& call) {
        const Values x = call.in("x"), y = call.in("y"), g = call.in("dz");
        Values dx, dy;
        for (std::size_t i = 0; i < g.size(); ++i) {
          dx.push_back(g[i] * y[i]);
          dy.push_back(g[i] * x[i]);
        }
        call.out("dx", dx);
        call.out("dy", dy);
      });
}

void add_binary(std::vector<Specimen>& out) {
  add(out, "add",
      {{"second_of_first_row", 8, "y is taken for one row that all rows share, as a bias", "more than one row",
        V::structural,
        "another row|rows are not independent|changes with other rows|first row|every row but the first|broadcast|"
        "wrong axis|other axis|stride",
        binary(sum_of, passed_on, passed_on, {Io::first_row_for_all, "y"}), kAllTypes, V::bug},
       {"small_codes_flushed", 29, "subnormal results are stored as zero", "small sums", V::precision_contract,
        "flush|subnormal|zero|underflow", binary(sum_of, passed_on, passed_on, {Io::flush, "z"}), kFp8, V::bug}},
      {{"by_subtraction", "x - (-y)", binary([](float x, float y, Dtype) { return x - (-y); }, passed_on, passed_on)}});
  add(out, "mul",
      {{"dx_of_output", 7, "dx = g z, where g y is due", "any", V::bug,
        "output|another|other input|factor|z for y|twice|squared|times x",
        binary(
            product, [](float x, float y, float g, Dtype) { return g * (x * y); }, times_x)},
       {"scale_of_row", 8, "the second factor of a row is its first number", "more than one column", V::bug,
        "first|broadcast|another element|scalar|column|wrong axis|other axis|stride|shift|index", row_scale(),
        kAllTypes, V::structural}},
      {});
  add(out, "div",
      {{"dy_inverted", 7, "dy = -g y / x^2, the operands exchanged", "any", V::bug,
        "swap|exchang|another|other input|x for y|y for x|revers|inver|divided by",
        binary(quotient, over_y, [](float x, float y, float g, Dtype) { return -g * (y / x) / x; })},
       {"fast_beyond_2_to_126", 29, "0 where the divisor lies between 2^126 and 2^128, as __fdividef has it",
        "divisors above 2^126", V::bug, "flush|zero|overflow|underflow|fast|reciprocal|approx|large|lost",
        binary(fast_quotient, over_y, slope_of_divisor), kWideExponents, V::precision_contract}},
      {{"by_double_reciprocal", "x (1/y), the reciprocal in fp64",
        binary([](float x, float y, Dtype) { return static_cast<float>(static_cast<double>(x) * reciprocal(y)); },
               over_y,
               [](float x, float y, float g, Dtype) {
                 const double z = static_cast<double>(x) * reciprocal(y);
                 return static_cast<float>(-static_cast<double>(g) * z * reciprocal(y));
               })}});
}

// ---- Of one tensor. ----

float exp_of(float x, Dtype) { return std::exp(x); }
float held(float x) { return x < -20 ? -20.0f : x; }

/// 2^(x log2 e), all of it in fp64.
float exp_by_power_of_two(float x) {
  return static_cast<float>(std::exp2(static_cast<double>(x) * 1.4426950408889634));
}

/// log(m) + e log(2) of x = m 2^e, in fp64.
float log_by_exponent(float x, Dtype) {
  if (!(x > 0) || !std::isfinite(x)) return std::log(x);
  int exponent = 0;
  const double m = std::frexp(static_cast<double>(x), &exponent);
  return static_cast<float>(std::log(m) + exponent * 0.6931471805599453);
}

/// x r, where r begins as a reciprocal root of 8 bits and takes one step of Newton's.
float root_of_one_step(float x, Dtype) {
  if (!(x > 0) || !std::isfinite(x)) return std::sqrt(x);
  const float seed = bf16(1 / std::sqrt(x));
  return x * (seed * (1.5f - 0.5f * (x * seed) * seed));
}

void add_powers(std::vector<Specimen>& out) {
  add(out, "exp",
      {{"slope_from_input", 7, "dx = g x, where g y is due: the wrong tensor was saved", "any", V::bug,
        "input|x for y|another|output", unary(exp_of, [](float x, float g, Dtype) { return g * x; })},
       {"held_above_minus_20", 28, "arguments below -20 are taken for -20", "x below -20", V::bug,
        "clamp|clip|satur|constant|floor|limit|held",
        unary([](float x, Dtype) { return std::exp(held(x)); },
              [](float x, float g, Dtype) { return g * std::exp(held(x)); }),
        kWideExponents}},
      {{"power_of_two_in_double", "exp2(x log2(e)), its argument in fp64",
        unary([](float x, Dtype) { return exp_by_power_of_two(x); },
              [](float x, float g, Dtype) { return g * exp_by_power_of_two(x); })}});
  add(out, "log",
      {{"slope_of_base_two", 1, "dx = g / (x log 2), as of log2", "any", V::bug,
        "factor|constant|base|log2|log(2)|1.44",
        unary([](float x, Dtype) { return std::log(x); },
              [](float x, float g, Dtype) { return g * 1.44269504f / x; })}},
      {{"mantissa_and_exponent", "log(m) + e log(2) in fp64",
        unary(log_by_exponent, [](float x, float g, Dtype) { return g / x; })}});
  add(out, "sqrt",
      {{"one_step_of_newton", 29, "x r from a reciprocal root of 8 bits and one step of Newton's", "any",
        V::precision_contract, "fast|approx|digits|rough|reciprocal",
        unary(root_of_one_step, [](float x, float g, Dtype) { return g / (2 * std::sqrt(x)); }), kFp32, V::bug},
       {"eps_in_slope", 6, "dx = g / (2 y + 1e-6)", "small x", V::bug, "eps|constant|added|1e-06|1e-6",
        unary([](float x, Dtype) { return std::sqrt(x); },
              [](float x, float g, Dtype) { return g / (2 * std::sqrt(x) + 1e-6f); }),
        kWideExponents}},
      {});
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float sigmoid_slope(float x, float g, Dtype) {
  const float y = sigmoid(x);
  return g * (y * (1 - y));
}
/// No exponential above 1 on either side.
float sigmoid_by_sides(float x, Dtype) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const float e = std::exp(x);
  return e / (1 + e);
}
float tanh_slope(float x, float g, Dtype) {
  const float y = std::tanh(x);
  return g * (1 - y * y);
}

void add_sigmoids(std::vector<Specimen>& out) {
  add(out, "sigmoid",
      {{"slope_is_value", 3, "dx = g y, where y (1 - y) is due", "any", V::bug,
        "factor|term missing|missing term|without the term|missing|1 - y|another function|another activation",
        unary([](float x, Dtype) { return sigmoid(x); }, [](float x, float g, Dtype) { return g * sigmoid(x); })},
       {"hard", 30, "x/6 + 1/2 held between 0 and 1", "any", V::bug,
        "another activation|another function|hard|linear|clip|clamp|satur|fast|approx",
        unary(
            [](float x, Dtype) {
              const float line = x / 6 + 0.5f;
              return line < 0 ? 0.0f : line > 1 ? 1.0f : line;
            },
            sigmoid_slope)}},
      {{"by_sides", "1 / (1 + exp(-x)) on the right, exp(x) / (1 + exp(x)) on the left",
        unary(sigmoid_by_sides, [](float x, float g, Dtype t) {
          const float y = sigmoid_by_sides(x, t), rest = sigmoid_by_sides(-x, t);
          return g * (y * rest);
        })}});
  add(out, "tanh",
      {{"slope_from_input", 7, "dx = g (1 - x^2): the input was saved, not the output", "any", V::bug,
        "input|x for y|another|output",
        unary([](float x, Dtype) { return std::tanh(x); }, [](float x, float g, Dtype) { return g * (1 - x * x); })},
       {"sign_not_restored", 2, "tanh(|x|): the sign that was taken off is not put back", "negative x", V::bug,
        "sign|absolute|negat|even", unary([](float x, Dtype) { return std::tanh(std::fabs(x)); }, tanh_slope)}},
      {});
}

}  // namespace

std::vector<Specimen> unseen_elementwise_specimens() {
  std::vector<Specimen> out;
  add_binary(out);
  add_powers(out);
  add_sigmoids(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
