// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Functions with branches, powers, and functions of two tensors: slips of algebra, of branches and of attributes.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

float relu_of(float x, float) { return x <= 0 ? 0.0f : x; }
float leaky_of(float x, float a) { return x <= 0 ? a * x : x; }
float leaky_slope(float x, float g, float a) { return x <= 0 ? a * g : g; }
float elu_slope(float x, float g, float a) { return x <= 0 ? g * (a * std::exp(x)) : g; }
float power_of(float x, float p) { return std::pow(x, p); }
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

void add_rectifiers(std::vector<Specimen>& out) {
  add(out, "relu",
      {{"capped_at_six", 30, "min(max(x, 0), 6)", "x above 6", V::bug,
        "clip|clamp|satur|another|above|cut|limit|relu6|only where",
        elementwise([](float x, float) { return x <= 0  ? 0.0f
                                                : x > 6 ? 6.0f
                                                        : x; },
                    [](float x, float g, float) { return x <= 0 || x > 6 ? 0.0f : g; })},
       {"mask_of_whole_number", 29, "the mask is that of x cut to a whole number: 0 below 1", "x between 0 and 1",
        V::bug, "only where|truncat|mask|zero|cast|integer|whole|condition|below 1|threshold",
        elementwise(relu_of, [](float x, float g, float) { return x < 1 ? 0.0f : g; })},
       {"gradient_of_leak_everywhere", 32, "dx = g, the mask of backward is missing", "negative x", V::bug,
        "mask|missing|condition|only where|zero|where|without",
        elementwise(relu_of, [](float, float g, float) { return g; })}},
      {});
  add(out, "leaky_relu",
      {{"branches_turned", 2, "negative_slope x where x > 0, x besides", "any", V::bug,
        "exchang|swap|mask|branch|condition|sign|turned|factor|revers",
        elementwise([](float x, float a) { return x <= 0 ? x : a * x; }, leaky_slope, "negative_slope")},
       {"slope_squared", 40, "the slope is applied twice: dx = g negative_slope^2", "negative x", V::bug,
        "factor|twice|square|slope",
        elementwise(
            leaky_of, [](float x, float g, float a) { return x <= 0 ? a * (a * g) : g; }, "negative_slope")},
       {"slope_subtracted", 48, "dx = g (1 - negative_slope) on the left", "negative x", V::bug,
        "1 -|factor|constant|attribute|complement|slope",
        elementwise(
            leaky_of, [](float x, float g, float a) { return x <= 0 ? (1 - a) * g : g; }, "negative_slope")}},
      {});
  add(out, "elu",
      {{"one_not_taken_off", 3, "alpha exp(x) on the left", "negative x", V::bug,
        "term|missing|constant|- 1|minus|added|without|alpha|sum of 1 and expm1",
        elementwise([](float x, float a) { return x <= 0 ? a * std::exp(x) : x; }, elu_slope, "alpha")},
       {"argument_over_alpha", 30, "alpha (exp(x / alpha) - 1), which is celu", "alpha other than 1", V::bug,
        "alpha|attribute|another|divid|factor|celu",
        elementwise([](float x, float a) { return x <= 0 ? a * std::expm1(x / a) : x; },
                    [](float x, float g, float a) { return x <= 0 ? g * std::exp(x / a) : g; }, "alpha")}},
      {});
  add(out, "pow",
      {{"exponent_less_two", 48, "dx = g p x^(p-2)", "any", V::bug, "power|exponent|off by one|factor|another|divid",
        elementwise(
            power_of, [](float x, float g, float p) { return g * (p * std::pow(x, p - 2)); }, "exponent"),
        kAllTypes, V::range_declared},
       {"gradient_of_exponent", 7, "dx = g y log(x), the gradient of the exponent", "any", V::bug,
        "another|log|exponent|other input",
        elementwise(
            power_of, [](float x, float g, float p) { return g * (std::pow(x, p) * std::log(x)); }, "exponent"),
        kAllTypes, V::range_declared},
       {"exponent_turned", 2, "x^-p", "any", V::bug, "sign|invers|recipro|exponent|another|power|attribute|divid",
        elementwise([](float x, float p) { return std::pow(x, -p); },
                    [](float x, float g, float p) { return g * (p * std::pow(x, p - 1)); }, "exponent"),
        kAllTypes, V::range_declared}},
      {});
}

/// y = f(x, min, max), dx = df(x, g, min, max).
Kernel clamp(float (*f)(float, float, float), float (*df)(float, float, float, float)) {
  return kernel_of(
      [f](const Call& call) {
        Values y = call.in("x");
        for (float& v : y) v = f(v, call.number("min"), call.number("max"));
        call.out("y", y);
      },
      [df](const Call& call) {
        const Values x = call.in("x");
        Values dx = call.in("dy");
        for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = df(x[i], dx[i], call.number("min"), call.number("max"));
        call.out("dx", dx);
      });
}

float held(float x, float least, float most) { return x < least ? least : x > most ? most : x; }
float held_slope(float x, float g, float least, float most) { return x < least || x > most ? 0.0f : g; }

void add_clamp(std::vector<Specimen>& out) {
  add(out, "clamp",
      {{"bounds_mirrored", 45, "held between -max and max", "min other than -max", V::bug,
        "attribute|min|sign|another|bound|max|limit",
        clamp([](float x, float, float most) { return held(x, -most, most); },
              [](float x, float g, float, float most) { return held_slope(x, g, -most, most); })},
       {"cotangent_held", 10, "dx is g held between min and max, besides the mask", "cotangents beyond the bounds",
        V::structural, "linear in the cotangent|clamp|clip|satur|limit|cotangent",
        clamp(held, [](float x, float g, float least,
                       float most) { return held_slope(x, held(g, least, most), least, most); }),
        kAllTypes, V::bug},
       {"lower_side_alone", 32, "min is not applied", "x below min", V::bug,
        "min|bound|missing|only where|mask|branch|below|without|never held",
        clamp([](float x, float, float most) { return x > most ? most : x; }, held_slope)}},
      {});
}

float sum_of(float x, float y, Dtype) { return x + y; }
float product(float x, float y, Dtype) { return x * y; }
float quotient(float x, float y, Dtype) { return x / y; }
float passed_on(float, float, float g, Dtype) { return g; }
float times_y(float, float y, float g, Dtype) { return g * y; }
float times_x(float x, float, float g, Dtype) { return g * x; }
float over_y(float, float y, float g, Dtype) { return g / y; }
float dy_of_quotient(float x, float y, float g, Dtype) { return -g * (x / y) / y; }

void add_of_two(std::vector<Specimen>& out) {
  add(out, "add",
      {{"first_row_broadcast", 8, "y is broadcast from its first row", "more than one row", V::structural,
        "another row|first row|broadcast|rows are not independent|changes with other rows",
        binary(sum_of, passed_on, passed_on, {Io::first_row_for_all, "y"}), kAllTypes, V::bug},
       {"through_fp16",
        28,
        "the sum goes through fp16",
        "sums beyond 65504 or with more than 11 bits",
        V::precision_contract,
        "fp16|rounded|stored|keeps|takes|overflow",
        binary(sum_of, passed_on, passed_on, {Io::through_fp16, "z"}),
        {Dtype::fp32, Dtype::bf16},
        V::bug},
       {"dy_halved", 1, "dy = g/2", "any", V::bug, "factor|half|0.5|twice",
        binary(sum_of, passed_on, [](float, float, float g, Dtype) { return 0.5f * g; })}},
      {});
  add(out, "mul",
      {{"slope_by_quotient", 37, "dx = g (z / x), 0/0 where x is 0", "x = 0", V::bug,
        "0/0|quotient|divid|zero|nan|overflow|infinite|underflow",
        binary(
            product, [](float x, float y, float g, Dtype) { return g * (x * y / x); }, times_x),
        kAllTypes, V::range_declared},
       {"dx_of_sum", 48, "dx = g (x + y), as of a product taken for a square", "any", V::bug,
        "term|added|another|plus|x + y|sum",
        binary(
            product, [](float x, float y, float g, Dtype) { return g * (x + y); }, times_x)},
       {"dy_negated", 2, "dy = -g x", "any", V::bug, "sign|negat|minus",
        binary(product, times_y, [](float x, float, float g, Dtype) { return -(g * x); })}},
      {});
  add(out, "div",
      {{"inverted", 7, "y / x", "any", V::bug, "exchang|swap|invert|invers|recipro|another|in place|order",
        binary([](float x, float y, Dtype) { return y / x; }, over_y, dy_of_quotient), kAllTypes, V::range_declared},
       {"divisor_floored", 6, "divisors below 1e-3 in size are taken for 1e-3", "y below 1e-3", V::bug,
        "eps|clamp|clip|floor|constant|guard|held|limit|finite where|only where",
        binary([](float x, float y, Dtype) { return x / (std::fabs(y) < 1e-3f ? std::copysign(1e-3f, y) : y); }, over_y,
               dy_of_quotient)},
       {"gradients_exchanged", 7, "dx and dy are exchanged", "any", V::bug,
        "swap|exchang|another input|other input|another output|in place", binary(quotient, dy_of_quotient, over_y)}},
      {});
}

const BinaryNames kGated{"gate", "up", "y"};
float gated(float gate, float up, Dtype) { return gate * sigmoid(gate) * up; }
float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1 + x * (1 - s));
}
float gate_gradient(float gate, float up, float g, Dtype) { return g * up * silu_slope(gate); }
float up_gradient(float gate, float, float g, Dtype) { return g * (gate * sigmoid(gate)); }

void add_swiglu(std::vector<Specimen>& out) {
  add(out, "swiglu",
      {{"glu", 30, "sigmoid(gate) up, the plain gated unit", "any", V::bug,
        "another|factor|missing|glu|sigmoid|without",
        binary([](float gate, float up, Dtype) { return sigmoid(gate) * up; }, gate_gradient, up_gradient, {}, kGated)},
       {"dup_of_slope", 30, "dup = g silu'(gate), where silu(gate) is due", "any", V::bug,
        "another|slope|derivative|silu|term|added",
        binary(
            gated, gate_gradient, [](float gate, float, float g, Dtype) { return g * silu_slope(gate); }, {}, kGated)},
       {"sigmoid_in_bf16", 24, "the sigmoid is rounded to bf16", "any", V::precision_contract,
        "bf16|rounded|stored|keeps|takes",
        binary([](float gate, float up, Dtype) { return gate * bf16(sigmoid(gate)) * up; }, gate_gradient, up_gradient,
               {}, kGated),
        kAllTypes, V::bug},
       {"dgate_complement", 3, "dgate = g up s (1 + gate), without (1 - s)", "any", V::bug,
        "factor|term|missing|without|1 - s",
        binary(
            gated, [](float gate, float up, float g, Dtype) { return g * up * (sigmoid(gate) * (1 + gate)); },
            up_gradient, {}, kGated)}},
      {});
}

}  // namespace

std::vector<Specimen> further_branch_specimens() {
  std::vector<Specimen> out;
  add_rectifiers(out);
  add_clamp(out);
  add_of_two(out);
  add_swiglu(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
