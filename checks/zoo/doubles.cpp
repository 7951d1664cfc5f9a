// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Kernels in double of some built-in ops, whose own compute in fp32: right ones, and ones that lose digits to float or
// are wrong as others are.
#include <algorithm>
#include <numeric>
#include <utility>

#include "checks/zoo/kit.h"
#include "src/tensor.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;
using Numbers = std::vector<double>;

Numbers in(const KernelCall& call, const char* name) { return to_doubles(call.at(name)); }
void out(const KernelCall& call, const char* name, const Numbers& values) {
  if (const TensorView* const tensor = call.find(name)) from_doubles(values, *tensor);
}
double through_float(double v) { return static_cast<double>(static_cast<float>(v)); }

/// y = f(x), dx = df(x, dy).
Kernel of_one(double (*f)(double), double (*df)(double, double)) {
  return {[f](const KernelCall& call) {
            Numbers y = in(call, "x");
            for (double& v : y) v = f(v);
            out(call, "y", y);
          },
          [df](const KernelCall& call) {
            const Numbers x = in(call, "x");
            Numbers dx = in(call, "dy");
            for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = df(x[i], dx[i]);
            out(call, "dx", dx);
          }};
}

/// z = f(x, y) and its gradients.
Kernel of_two(double (*f)(double, double), double (*dx)(double, double, double), double (*dy)(double, double, double)) {
  return {[f](const KernelCall& call) {
            const Numbers y = in(call, "y");
            Numbers z = in(call, "x");
            for (std::size_t i = 0; i < z.size(); ++i) z[i] = f(z[i], y[i]);
            out(call, "z", z);
          },
          [dx, dy](const KernelCall& call) {
            const Numbers x = in(call, "x"), y = in(call, "y"), g = in(call, "dz");
            Numbers a(g.size()), b(g.size());
            for (std::size_t i = 0; i < g.size(); ++i) {
              a[i] = dx(x[i], y[i], g[i]);
              b[i] = dy(x[i], y[i], g[i]);
            }
            out(call, "dx", a);
            out(call, "dy", b);
          }};
}

double product(double x, double y) { return x * y; }
double times_y(double, double y, double g) { return g * y; }
double times_x(double x, double, double g) { return g * x; }
double quotient(double x, double y) { return x / y; }
double over_y(double, double y, double g) { return g / y; }
double minus_gz_over_y(double x, double y, double g) { return -g * (x / y) / y; }

double exp_of(double x) { return std::exp(x); }
double exp_slope(double x, double g) { return g * std::exp(x); }
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double sigmoid_slope(double x, double g) {
  const double y = sigmoid_of(x);
  return g * (y * (1 - y));
}

constexpr double kSqrtHalf = 0.70710678118654752440, kDensity = 0.39894228040143267794;  // 1/sqrt(2), 1/sqrt(2 pi)
double gelu_of(double x) { return 0.5 * x * std::erfc(-(x * kSqrtHalf)); }
double gelu_slope(double x, double g) {
  return g * (0.5 * std::erfc(-(x * kSqrtHalf)) + x * (kDensity * std::exp(-0.5 * x * x)));
}

enum class Twist { none, backwards, float_sum, float_exp, no_dot, positive_dot };

/// Of one row: y = exp(x - max) / sum, dx = y (g - sum g y).
struct SoftmaxRow {
  Numbers y;
  SoftmaxRow(const double* x, std::size_t n, Twist twist) : y(x, x + n) {
    if (n == 0) return;
    const double most = *std::max_element(y.begin(), y.end());
    for (double& v : y) v = twist == Twist::float_exp ? through_float(std::exp(v - most)) : std::exp(v - most);
    const double total =
        twist == Twist::backwards ? std::accumulate(y.rbegin(), y.rend(), 0.0)
        : twist == Twist::float_sum
            ? static_cast<double>(std::accumulate(y.begin(), y.end(), 0.0f,
                                                  [](float s, double v) { return s + static_cast<float>(v); }))
            : std::accumulate(y.begin(), y.end(), 0.0);
    for (double& v : y) v /= total;
  }
};

Kernel softmax(Twist twist) {
  return {[twist](const KernelCall& call) {
            const Numbers x = in(call, "x");
            const auto n = index_of(call.at("x").shape.last());
            Numbers y;
            for (std::size_t at = 0; at < x.size(); at += n) {
              const SoftmaxRow row(x.data() + at, n, twist);
              y.insert(y.end(), row.y.begin(), row.y.end());
            }
            out(call, "y", y);
          },
          [twist](const KernelCall& call) {
            const Numbers x = in(call, "x"), g = in(call, "dy");
            const auto n = index_of(call.at("x").shape.last());
            Numbers dx(x.size());
            for (std::size_t at = 0; at < x.size(); at += n) {
              const SoftmaxRow row(x.data() + at, n, twist);
              double dot = 0;
              for (std::size_t k = 0; k < n; ++k) dot += g[at + k] * row.y[k];
              if (twist == Twist::no_dot) dot = 0;
              if (twist == Twist::positive_dot) dot = -dot;
              for (std::size_t k = 0; k < n; ++k) dx[at + k] = row.y[k] * (g[at + k] - dot);
            }
            out(call, "dx", dx);
          }};
}

/// As kernels of fp64.
void in_fp64(std::vector<Specimen>& all) {
  for (Specimen& specimen : all) {
    specimen.op.signature.precision.storage = {Dtype::fp64};
    specimen.dtypes = {Dtype::fp64};
  }
}

}  // namespace

std::vector<Specimen> double_specimens() {
  std::vector<Specimen> all;
  add(all, "mul",
      {{"fp64_through_float", 25, "the product goes through float", "any", V::precision_contract, "fp32|float",
        of_two([](double x, double y) { return through_float(x * y); }, times_y, times_x)},
       {"fp64_dx_of_x", 7, "dx = g x", "any", V::bug, "swap|another input|other input|another output or gradient",
        of_two(product, times_x, times_x)},
       {"fp64_slope_off", 48, "dx = g y (1 + 1e-9)", "any", V::bug, "factor",
        of_two(
            product, [](double, double y, double g) { return g * y * (1 + 1e-9); }, times_x)}},
      {{"fp64_commuted", "y x, y g and x g",
        of_two([](double x, double y) { return y * x; }, [](double, double y, double g) { return y * g; },
               [](double x, double, double g) { return x * g; })}});
  add(all, "div",
      {{"fp64_float_reciprocal", 29, "x times a reciprocal in float", "any", V::precision_contract, "fp32|float",
        of_two([](double x, double y) { return x * through_float(1 / y); }, over_y, minus_gz_over_y)},
       {"fp64_dy_positive", 2, "dy without its minus sign", "any", V::bug, "sign",
        of_two(quotient, over_y, [](double x, double y, double g) { return g * (x / y) / y; })}},
      {{"fp64_by_slope", "dy = -g (x / y / y)",
        of_two(quotient, over_y, [](double x, double y, double g) { return -g * ((x / y) / y); })}});
  add(all, "exp",
      {{"fp64_expf", 29, "expf of the number in float", "any", V::precision_contract, "fp32|float",
        of_one([](double x) { return static_cast<double>(std::exp(static_cast<float>(x))); }, exp_slope)},
       {"fp64_passes_g", 1, "dx = g", "any", V::bug, "factor|without|missing",
        of_one(exp_of, [](double, double g) { return g; })}},
      {{"fp64_plain", "std::exp", of_one(exp_of, exp_slope)}});
  add(all, "sigmoid",
      {{"fp64_plus", 2, "dx = g y (1 + y)", "any", V::bug, "sign|factor|term",
        of_one(sigmoid_of,
               [](double x, double g) {
                 const double y = sigmoid_of(x);
                 return g * (y * (1 + y));
               })},
       {"fp64_float_slope", 25, "the slope goes through float", "any", V::precision_contract, "fp32|float",
        of_one(sigmoid_of,
               [](double x, double g) {
                 const double y = through_float(sigmoid_of(x));
                 return g * (y * (1 - y));
               })}},
      {{"fp64_plain", "1 / (1 + exp(-x))", of_one(sigmoid_of, sigmoid_slope)}});
  add(all, "gelu",
      {{"fp64_float_constant", 48, "1/sqrt(2) as a float", "any", V::bug, "constant|slightly off|float",
        of_one([](double x) { return 0.5 * x * std::erfc(-(x * through_float(kSqrtHalf))); }, gelu_slope), kAllTypes,
        V::precision_contract}},
      {{"fp64_erfc", "x/2 erfc(-x/sqrt(2))", of_one(gelu_of, gelu_slope)}});
  add(all, "softmax",
      {{"fp64_float_sum", 24, "the sum is kept in float", "any", V::precision_contract, "fp32|float",
        softmax(Twist::float_sum)},
       {"fp64_float_exp", 25, "exponentials go through float", "any", V::precision_contract, "fp32|float",
        softmax(Twist::float_exp)},
       {"fp64_dot_missing", 3, "backward leaves out sum g y", "any", V::bug,
        "term missing|missing term|without the term", softmax(Twist::no_dot)},
       {"fp64_dot_added", 2, "backward adds sum g y", "any", V::bug, "sign", softmax(Twist::positive_dot)}},
      {{"fp64_plain", "sums in order", softmax(Twist::none)},
       {"fp64_backwards", "sums run backwards", softmax(Twist::backwards)}});
  in_fp64(all);
  return all;
}

}  // namespace ampcheck::checks::zoo
