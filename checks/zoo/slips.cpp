// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Elementwise ops and sums whose author took the wrong one of the numbers at hand, or another function near by.
#include <algorithm>
#include <numeric>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float sigmoid_of(float x, float) { return sigmoid(x); }
float tanh_of(float x, float) { return std::tanh(x); }
float silu_of(float x, float) { return x * sigmoid(x); }
float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1 + x * (1 - s));
}
float softplus_of(float x, float beta) {
  const float z = beta * x;
  return ((z < 0 ? 0.0f : z) + std::log1p(std::exp(-std::fabs(z)))) / beta;
}

constexpr float kScale = 0.79788456f, kCubic = 0.044715f;  // sqrt(2/pi)

/// The argument of tanh with a square where its cube is due, and its slope.
float gelu_with_square(float x, float) { return 0.5f * x * (1 + std::tanh(kScale * (x + kCubic * (x * x)))); }
float gelu_slope(float x, float g, float) {
  const float t = std::tanh(kScale * (x + kCubic * (x * x * x)));
  return g * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * (kScale * (1 + 3 * kCubic * (x * x))));
}

void add_smooth(std::vector<Specimen>& out) {
  add(out, "exp",
      {{"slope_of_expm1", 30, "dx = g (y + 1), as if y were exp(x) - 1", "any", V::bug,
        "+ 1|1 +|expm1|another|added|constant|term|plus 1",
        elementwise([](float x, float) { return std::exp(x); },
                    [](float x, float g, float) { return g * (std::exp(x) + 1); })}},
      {});
  add(out, "log",
      {{"slope_from_output", 7, "dx = g / y, where 1/x is due", "any", V::bug,
        "output|y for x|another|divided by y|log",
        elementwise([](float x, float) { return std::log(x); },
                    [](float x, float g, float) { return g / std::log(x); }),
        kAllTypes, V::range_declared}},
      {});
  add(out, "sqrt",
      {{"slope_of_x", 7, "dx = g / (2 x), where 1/(2 y) is due", "any", V::bug, "root|x for y|another|square",
        elementwise([](float x, float) { return std::sqrt(x); }, [](float x, float g, float) { return g / (2 * x); }),
        kAllTypes, V::range_declared}},
      {});
  add(out, "sigmoid",
      {{"slope_at_output", 30, "the slope at y, not at x", "any", V::bug, "output|y for x|another|of y|at y",
        elementwise(sigmoid_of,
                    [](float x, float g, float) {
                      const float s = sigmoid(sigmoid(x));
                      return g * (s * (1 - s));
                    })},
       {"slope_squared", 3, "dx = g y y, where y (1 - y) is due", "any", V::bug, "factor|1 -|square|term|twice",
        elementwise(sigmoid_of,
                    [](float x, float g, float) {
                      const float s = sigmoid(x);
                      return g * (s * s);
                    })}},
      {});
  add(out, "tanh",
      {{"slope_unsquared", 1, "dx = g (1 - y)", "any", V::bug, "square|power|factor",
        elementwise(tanh_of, [](float x, float g, float) { return g * (1 - std::tanh(x)); })}},
      {});
  add(out, "silu",
      {{"slope_at_output", 30, "the slope at y, not at x", "any", V::bug, "output|y for x|another|of y|at y",
        elementwise(silu_of, [](float x, float g, float) { return g * silu_slope(silu_of(x, 0)); })}},
      {});
  add(out, "gelu_tanh",
      {{"square_for_cube", 48, "x + c x^2 in the argument of tanh", "any", V::bug, "power|square|factor|cub|exponent",
        elementwise(gelu_with_square, gelu_slope)}},
      {});
}

void add_bent(std::vector<Specimen>& out) {
  add(out, "softplus",
      {{"early_line", 28, "a straight line above beta x = 4", "beta x above 4", V::bug,
        "only where|threshold|linear|satur|above",
        elementwise([](float x, float beta) { return beta * x > 4 ? x : softplus_of(x, beta); },
                    [](float x, float g, float beta) { return beta * x > 4 ? g : g * sigmoid(beta * x); }, "beta")}},
      {});
  add(out, "elu",
      {{"slope_of_y_plus_one", 48, "dx = g (y + 1) on the left, where y + alpha is due", "alpha other than 1", V::bug,
        "alpha|constant|attribute|term",
        elementwise([](float x, float a) { return x <= 0 ? a * std::expm1(x) : x; },
                    [](float x, float g, float a) { return x <= 0 ? g * (a * std::expm1(x) + 1) : g; }, "alpha")}},
      {});
  add(out, "relu",
      {{"both_sides", 2, "|x|", "negative x", V::bug, "sign|absolute|another|mask|condition",
        elementwise([](float x, float) { return std::fabs(x); },
                    [](float x, float g, float) { return x <= 0 ? 0.0f : g; })},
       {"gradient_of_square", 46, "dx = g x on the right, as of x^2/2", "positive x", V::bug,
        "factor|another|product|times",
        elementwise([](float x, float) { return x <= 0 ? 0.0f : x; },
                    [](float x, float g, float) { return x <= 0 ? 0.0f : g * x; })}},
      {});
  add(out, "clamp",
      {{"gradient_of_bounds", 32, "dx = g outside the bounds, 0 inside", "any", V::bug, "mask|condition|turned|where",
        kernel_of(
            [](const Call& call) {
              Values y = call.in("x");
              for (float& v : y) v = v != v ? v : std::fmin(std::fmax(v, call.number("min")), call.number("max"));
              call.out("y", y);
            },
            [](const Call& call) {
              const Values x = call.in("x");
              Values dx = call.in("dy");
              for (std::size_t i = 0; i < dx.size(); ++i)
                if (x[i] >= call.number("min") && x[i] <= call.number("max")) dx[i] = 0;
              call.out("dx", dx);
            })}},
      {});
}

void add_of_two(std::vector<Specimen>& out) {
  const auto first = [](float, float, float g, Dtype) { return g; };
  add(out, "add",
      {{"average", 1, "(x + y) / 2", "any", V::bug, "factor|half|0.5|mean",
        binary([](float x, float y, Dtype) { return (x + y) / 2; }, first, first)}},
      {});
  add(out, "div",
      {{"dx_over_x", 7, "dx = g / x, where g / y is due", "any", V::bug, "exchang|another|swap|x for y|for y|in place",
        binary([](float x, float y, Dtype) { return x / y; }, [](float x, float, float g, Dtype) { return g / x; },
               [](float x, float y, float g, Dtype) { return -g * (x / y) / y; }),
        kAllTypes, V::range_declared}},
      {});
  add(out, "swiglu",
      {{"gate_by_up", 7, "dup = g up sigmoid(up), where gate is due", "any", V::bug,
        "up for gate|exchang|another|swap|in place",
        binary([](float gate, float up, Dtype) { return gate * sigmoid(gate) * up; },
               [](float gate, float up, float g, Dtype) { return g * up * silu_slope(gate); },
               [](float, float up, float g, Dtype) { return g * (up * sigmoid(up)); }, {}, {"gate", "up", "y"})}},
      {});
  const auto loss = [](const Call& call) {  // linear beyond 1
    const Values x = call.in("x"), target = call.in("target");
    float s = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float d = x[i] - target[i];
      s += std::fabs(d) > 1 ? 2 * std::fabs(d) - 1 : d * d;
    }
    call.out("loss", {s / static_cast<float>(x.size())});
  };
  add(out, "mse_loss",
      {{"linear_beyond_one", 30, "the gradient is clipped at |x - target| = 1, and the loss linear there", "any",
        V::bug, "only where|another|huber|linear|clip|satur",
        kernel_of(loss,
                  [](const Call& call) {
                    const Values x = call.in("x"), target = call.in("target");
                    const float g = call.in("dloss").at(0), factor = 2.0f / static_cast<float>(x.size());
                    Values dx(x.size()), dtarget(x.size());
                    for (std::size_t i = 0; i < x.size(); ++i) {
                      const float d = x[i] - target[i];
                      dx[i] = g * (factor * (d != d ? d : std::fmin(std::fmax(d, -1.0f), 1.0f)));
                      dtarget[i] = -dx[i];
                    }
                    call.out("dx", dx);
                    call.out("dtarget", dtarget);
                  })}},
      {});
}

// ---- Sums along an axis ----

/// `by_other`: the mean divides by the other extent. `first_twice`: the first element counts twice.
Kernel mean_or_sum(bool mean, bool by_other, bool first_twice) {
  const auto extent = [](const Call& call, bool along) {
    return call.shape("x")[(call.integer("axis") == 0) == along ? 0 : 1];
  };
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        const std::int64_t length = extent(call, true), lines = extent(call, false);
        const bool first = call.integer("axis") == 0;
        Values y;
        for (std::int64_t r = 0; r < lines; ++r) {
          float s = 0;
          for (std::int64_t i = 0; i < length; ++i) s += x[index_of(first ? i * lines + r : r * length + i)];
          if (first_twice && length > 0) s += x[index_of(first ? r : r * length)];
          y.push_back(mean ? s / static_cast<float>(by_other ? lines : length) : s);
        }
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values g = call.in("dy");
        const std::int64_t length = extent(call, true), lines = extent(call, false);
        const bool first = call.integer("axis") == 0;
        Values dx(index_of(length * lines));
        for (std::int64_t r = 0; r < lines; ++r)
          for (std::int64_t i = 0; i < length; ++i)
            dx[index_of(first ? i * lines + r : r * length + i)] =
                mean ? g[index_of(r)] / static_cast<float>(length) : g[index_of(r)];
        call.out("dx", dx);
      });
}

/// Running sums that forget what is more than 8 elements back.
Kernel moving_sums() {
  const auto sums = [](const Values& x, std::int64_t n, bool back) {
    Values out;
    for (std::int64_t at = 0; at < std::ssize(x); ++at) {
      const std::int64_t i = at % n, steps = std::min(std::int64_t{8}, back ? n - i : i + 1);
      float s = 0;
      for (std::int64_t k = steps; k-- > 0;) s += x[index_of(back ? at + k : at - k)];
      out.push_back(s);
    }
    return out;
  };
  return kernel_of([sums](const Call& call) { call.out("y", sums(call.in("x"), call.columns("x"), false)); },
                   [sums](const Call& call) { call.out("dx", sums(call.in("dy"), call.columns("dx"), true)); });
}

float erf_cdf(float x, float scale) { return 0.5f * (1 + std::erf(scale * x)); }
float gelu_slope_of(float x, float g, float) {
  return g * (erf_cdf(x, 0.70710678f) + x * (std::exp(-0.5f * (x * x)) * 0.39894228f));
}
float relu_slope(float x, float g, float a) { return x <= 0 ? a * g : g; }

/// Functions near by that came to mind later than the others.
void add_neighbours(std::vector<Specimen>& out) {
  add(out, "exp",
      {{"base_ten", 1, "10^x", "any", V::bug, "base|10|factor|constant|another",
        elementwise([](float x, float) { return std::pow(10.0f, x); },
                    [](float x, float g, float) { return g * std::exp(x); })}},
      {});
  add(out, "tanh",
      {{"slope_of_one_cosh", 1, "dx = g / cosh(x), where its square is due", "any", V::bug,
        "square|another|power|factor|root",
        elementwise(tanh_of, [](float x, float g, float) { return g / std::cosh(x); })}},
      {});
  add(out, "gelu",
      {{"erf_of_x", 48, "erf(x) for erf(x / sqrt(2))", "any", V::bug, "factor|constant|root|sqrt",
        elementwise([](float x, float) { return x * erf_cdf(x, 1); }, gelu_slope_of)}},
      {});
  add(out, "leaky_relu",
      {{"divided_by_slope", 7, "x / negative_slope on the left", "negative x", V::bug, "factor|inverse|slope|divid",
        elementwise([](float x, float a) { return x <= 0 ? x / a : x; }, relu_slope, "negative_slope")}},
      {});
  add(out, "clamp",
      {{"reflected", 30, "2 max - x above max", "x above max", V::bug, "only where|another|max|sign|reflect",
        kernel_of(
            [](const Call& call) {
              Values y = call.in("x");
              const float least = call.number("min"), most = call.number("max");
              for (float& v : y) v = v != v ? v : v > most ? 2 * most - v : std::fmax(v, least);
              call.out("y", y);
            },
            [](const Call& call) {
              const Values x = call.in("x");
              Values dx = call.in("dy");
              for (std::size_t i = 0; i < dx.size(); ++i)
                if (x[i] < call.number("min") || x[i] > call.number("max")) dx[i] = 0;
              call.out("dx", dx);
            })}},
      {});
  add(out, "pow",
      {{"size_of_exponent", 45, "x^|p|", "negative exponents", V::bug, "sign|exponent|absolute|attribute",
        elementwise([](float x, float p) { return std::pow(x, std::fabs(p)); },
                    [](float x, float g, float p) { return p == 0 ? 0.0f : g * (p * std::pow(x, p - 1)); },
                    "exponent")}},
      {});
}

void add_neighbours_of_two(std::vector<Specimen>& out) {
  const auto whole = [](float, float, float g, Dtype) { return g; };
  add(out, "add",
      {{"difference", 2, "x - y", "any", V::bug, "sign",
        binary([](float x, float y, Dtype) { return x - y; }, whole, whole)}},
      {});
  add(out, "swiglu",
      {{"silu_twice", 30, "silu(silu(gate)) up", "any", V::bug, "twice|another|silu",
        binary([](float gate, float up, Dtype) { return silu_of(silu_of(gate, 0), 0) * up; },
               [](float gate, float up, float g, Dtype) { return g * up * silu_slope(gate); },
               [](float gate, float, float g, Dtype) { return g * silu_of(gate, 0); }, {}, {"gate", "up", "y"})}},
      {});
  add(out, "cumsum",
      {{"running_maximum", 30, "the largest so far, not the sum", "any", V::bug, "another|maximum",
        kernel_of(
            [](const Call& call) {
              Values y = call.in("x");
              const std::size_t n = index_of(call.columns("x"));
              for (std::size_t at = 0; at < y.size(); ++at)
                if (at % n != 0) y[at] = y[at] > y[at - 1] || y[at] != y[at] ? y[at] : y[at - 1];
              call.out("y", y);
            },
            [](const Call& call) {
              Values dx = call.in("dy");
              const std::size_t n = index_of(call.columns("dx"));
              for (std::size_t at = dx.size(); at-- > 0;)
                if (at % n != n - 1) dx[at] += dx[at + 1];
              call.out("dx", dx);
            })}},
      {});
}

void add_sums(std::vector<Specimen>& out) {
  add(out, "mean",
      {{"by_other_extent", 42, "divides by the extent of the other axis", "N other than D", V::bug,
        "count|factor|extent|axis", mean_or_sum(true, true, false)}},
      {});
  add(out, "sum",
      {{"first_twice", 40, "the first element begins the sum and is added to it", "any", V::bug, "first|twice",
        mean_or_sum(false, false, true)}},
      {});
  add(out, "cumsum",
      {{"window_of_8", 17, "sums of the last 8 elements alone", "more than 8 elements", V::bug,
        "window|carry|block|terms|lost", moving_sums(), kAllTypes, V::structural}},
      {});
}

}  // namespace

std::vector<Specimen> slip_specimens() {
  std::vector<Specimen> out;
  add_smooth(out);
  add_bent(out);
  add_of_two(out);
  add_sums(out);
  add_neighbours(out);
  add_neighbours_of_two(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
