// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Elementwise kernels as they go wrong in daily work: an index, a branch, a type or a factor.
#include <bit>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

float product(float x, float y, Dtype) { return x * y; }
float quotient(float x, float y, Dtype) { return x / y; }
float pass(float, float, float g, Dtype) { return g; }
float product_dx(float, float y, float g, Dtype) { return g * y; }
float product_dy(float x, float, float g, Dtype) { return g * x; }
float quotient_dx(float, float y, float g, Dtype) { return g / y; }
float quotient_dy(float x, float y, float g, Dtype) { return -g * (x / y) / y; }

/// What add stores, or hands back, when its indices are moved.
Kernel moved_sum(void (*forward)(Values& x, Values& y, Values& z, std::int64_t columns), bool next_cotangent) {
  return kernel_of(
      [forward](const Call& call) {
        Values x = call.in("x"), y = call.in("y"), z(x.size());
        forward(x, y, z, call.columns("x"));
        call.out("z", z);
      },
      [next_cotangent](const Call& call) {
        const Values g = call.in("dz");
        Values dx = g;
        for (std::size_t i = 0; i + 1 < g.size() && next_cotangent; ++i) dx[i] = g[i + 1];
        call.out("dx", dx);
        call.out("dy", g);
      });
}
void plain_sum(Values& x, Values& y, Values& z, std::int64_t) {
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = x[i] + y[i];
}
void low_half_for_both(Values& x, Values& y, Values& z, std::int64_t) {
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = i % 2 == 1 ? z[i - 1] : x[i] + y[i];
}
void by_number_of_row(Values& x, Values& y, Values& z, std::int64_t columns) {
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = x[i] + y[i / index_of(columns)];
}

void add_sums(std::vector<Specimen>& out) {
  add(out, "add",
      {{"residual_twice", 40, "x + (x + y), the residual is added by two kernels", "any", V::bug,
        "factor|twice|2 x|counted|term ", binary([](float x, float y, Dtype) { return x + (x + y); }, pass, pass)},
       {"next_cotangent", 14, "dx takes the cotangent one element ahead", "any", V::structural,
        "next|ahead|shift|off by one|neighbour|another element|offset|moved|another row|other rows",
        moved_sum(plain_sum, true), kAllTypes, V::bug},
       {"saturating_add", 28, "the sum is held between 0 and 1 and NaN is 0, as __hadd_sat has it",
        "sums below 0 or above 1", V::bug, "clamp|clip|satur|held|limit|between 0 and 1|only where|zero where|relu",
        binary([](float x, float y, Dtype) { return !(x + y > 0) ? 0.0f
                                                    : x + y > 1  ? 1.0f
                                                                 : x + y; }, pass, pass),
        kHalfTypes, V::range_declared},
       {"low_half_for_both", 13, "the second of each pair is stored as the first one", "any", V::bug,
        "pair|neighbour|element before|low half|odd|every other|another element|index|another row|other rows",
        moved_sum(low_half_for_both, false), kAllTypes, V::structural},
       {"y_by_number_of_row", 8, "y is read at the number of the row, as if one number a row", "any", V::structural,
        "broadcast|index|one number a row|another row|other rows|another element|independent",
        moved_sum(by_number_of_row, false), kAllTypes, V::bug}},
      {});
}

/// Each number of a row takes the row's sum.
Kernel product_with_reduced_dy() {
  return kernel_of(
      [](const Call& call) {
        const Values x = call.in("x"), y = call.in("y");
        Values z(x.size());
        for (std::size_t i = 0; i < z.size(); ++i) z[i] = x[i] * y[i];
        call.out("z", z);
      },
      [](const Call& call) {
        const Values x = call.in("x"), y = call.in("y"), g = call.in("dz");
        const std::int64_t n = call.columns("x");
        Values dx(x.size()), dy(x.size());
        for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = g[i] * y[i];
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          const float all = total(in_order, n, [&](std::int64_t i) {
            return Term{g[index_of(r * n + i)], x[index_of(r * n + i)]};
          });
          for (std::int64_t i = 0; i < n; ++i) dy[index_of(r * n + i)] = all;
        }
        call.out("dx", dx);
        call.out("dy", dy);
      });
}

/// x times the reciprocal of y, which is 0 above 2^126.
float fast_quotient(float x, float y, Dtype) {
  const float size = std::fabs(y);
  return size > 0x1p126f && std::isfinite(size) ? x * 0.0f : x / y;
}

void add_products(std::vector<Specimen>& out) {
  add(out, "mul",
      {{"whole_scale", 29, "y is taken for a whole number, as of a scale declared int", "any", V::bug,
        "trunc|whole|integer|cut|toward zero|only where|below 1",
        binary([](float x, float y, Dtype) { return x * std::trunc(y); },
               [](float, float y, float g, Dtype) { return g * std::trunc(y); }, product_dy)},
       {"scalar_y", 45, "the first number of y serves all", "any", V::structural,
        "first|broadcast|scalar|other rows|another row|independent",
        binary(product, product_dx, product_dy, {Io::first_for_all, "y"}), kAllTypes, V::bug},
       {"dy_summed_over_row", 8, "dy is the sum over the row, as of a y that is broadcast", "any", V::bug,
        "sum|reduced|other elements|broadcast", product_with_reduced_dy()}},
      {});
  add(out, "div",
      {{"whole_quotient", 30, "the quotient is cut to a whole number", "any", V::bug,
        "trunc|whole|integer|cut|floor|toward zero",
        binary([](float x, float y, Dtype) { return std::trunc(x / y); }, quotient_dx, quotient_dy)},
       {"dy_without_x", 3, "dy = -g / y^2", "any", V::bug, "factor|without x|missing|x is taken for 1|numerator",
        binary(quotient, quotient_dx, [](float, float y, float g, Dtype) { return -g / (y * y); })},
       {"zero_above_2_126",
        29,
        "0 where the divisor is above 2^126, as __fdividef has it",
        "huge divisors",
        V::bug,
        "fast|only where|underflow|zero where|2^126|subnormal|flush|reciprocal",
        binary(fast_quotient, quotient_dx, quotient_dy),
        {Dtype::fp32, Dtype::bf16},
        V::range_declared}},
      {});
}

/// exp of the fraction, its exponent moved by a whole number in the bits alone: nothing keeps it from wrapping.
float exp_by_bits(float x, float) {
  if (!(std::fabs(x) < 1e6f)) return std::exp(x);
  const float whole = std::nearbyint(x * 1.44269504f);
  const float rest = std::fma(whole, -1.42860677e-6f, std::fma(whole, -0.693145752f, x));
  const auto moved = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole)) << 23;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(std::exp(rest)) + moved);
}
float exp_slope(float x, float g, float) { return g * std::exp(x); }

void add_exponentials(std::vector<Specimen>& out) {
  add(out, "exp",
      {{"exponent_wraps", 22, "2^k is put together in the bits of the exponent, which wrap below 2^-126",
        "x below -87 or above 88", V::bug,
        "underflow|overflow|wrap|exponent|only where|range|infinite where|finite where|subnormal",
        elementwise(exp_by_bits, [](float x, float g, float) { return g * exp_by_bits(x, 0); }), kAllTypes,
        V::range_declared},
       {"nan_of_infinity", 28, "x - floor(x) is NaN at infinite x, and so is the result", "infinite x", V::bug,
        "infinit|nan|inf", elementwise([](float x, float) { return std::exp(x + (x - x)); }, exp_slope), kAllTypes,
        V::range_declared},
       {"argument_in_storage", 25, "exp2(x log2(e)), whose argument is rounded to the storage type", "any",
        V::precision_contract, "rounded|stored|keeps",
        unary([](float x, Dtype dtype) { return std::exp2(rounded(dtype, x * 1.44269504f)); },
              [](float x, float g, Dtype) { return g * std::exp(x); }),
        kHalfTypes, V::bug}},
      {});
}

float log_of(float x, float) { return std::log(x); }
float log_slope(float x, float g, float) { return g / x; }
float sqrt_slope(float x, float g, float) { return g / (2 * std::sqrt(x)); }

void add_roots(std::vector<Specimen>& out) {
  add(out, "log",
      {{"argument_in_fp16",
        28,
        "the logarithm of x rounded to fp16",
        "any; infinite beyond 65504 and below 3e-8",
        V::bug,
        "fp16|rounded|overflow|infinite|underflow|leaves the range",
        elementwise([](float x, float) { return std::log(fp16(x)); }, log_slope),
        {Dtype::fp32, Dtype::bf16},
        V::precision_contract},
       {"slope_limited", 28, "dx = g min(1/x, 100)", "x below 0.01", V::bug,
        "clip|clamp|satur|limit|held|at most|only where|below|floor|max(|constant",
        elementwise(log_of, [](float x, float g, float) { return g * (1 / x > 100 ? 100.0f : 1 / x); })},
       {"by_log1p",
        28,
        "log1p(x - 1), which loses the digits of small x",
        "x far below 1",
        V::bug,
        "cancel|digits|small|infinite|only where|x - 1|rounded|1 -|absor",
        elementwise([](float x, float) { return std::log1p(x - 1); }, log_slope),
        {Dtype::fp32, Dtype::bf16},
        V::precision_contract}},
      {});
  add(out, "sqrt",
      {{"reciprocal_root", 30, "rsqrt(x)", "any", V::bug, "recipro|invers|divid|power|another|1 /|1/|-1",
        elementwise([](float x, float) { return 1 / std::sqrt(x); }, sqrt_slope)},
       {"no_slope_of_small", 37, "dx = 0 where the root is below 0.01", "x below 1e-4", V::bug,
        "only where|zero|below|small|guard|threshold",
        elementwise([](float x, float) { return std::sqrt(x); },
                    [](float x, float g, float) {
                      const float y = std::sqrt(x);
                      return y < 0.01f ? 0.0f : g / (2 * y);
                    })}},
      {});
}

float power_of(float x, float p) { return std::pow(x, p); }
float power_slope(float x, float g, float p) { return g * (p * std::pow(x, p - 1)); }

void add_powers(std::vector<Specimen>& out) {
  add(out, "pow",
      {{"reciprocal_slope_positive", 2, "the branch of 1/x has the slope 1/x^2, without its minus", "exponent -1",
        V::bug, "sign|minus|negat|absolute",
        elementwise(
            power_of, [](float x, float g, float p) { return p == -1 ? g / (x * x) : power_slope(x, g, p); },
            "exponent")},
       {"cube_slope_unsquared", 1, "the branch of x^3 has the slope 3 x", "exponent 3", V::bug,
        "factor|square|power|without x|exponent",
        elementwise(
            power_of, [](float x, float g, float p) { return p == 3 ? g * (3 * x) : power_slope(x, g, p); },
            "exponent")}},
      {});
  add(out, "clamp",
      {{"soft_cap", 30, "max tanh(x / max), the soft cap of logits", "any", V::bug, "tanh|another|soft|smooth",
        elementwise([](float x, float most) { return most * std::tanh(x / most); },
                    [](float x, float g, float most) {
                      const float t = std::tanh(x / most);
                      return g * (1 - t * t);
                    },
                    "max")}},
      {});
}

}  // namespace

std::vector<Specimen> daily_elementwise_specimens() {
  std::vector<Specimen> out;
  add_sums(out);
  add_products(out);
  add_exponentials(out);
  add_roots(out);
  add_powers(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
