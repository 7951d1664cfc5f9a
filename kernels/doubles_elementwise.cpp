// SPDX-License-Identifier: Apache-2.0
// Kernels in double: functions of one number or two.
#include <map>

#include "kernels/double_parts.h"

namespace ampcheck::kernels::doubles {

namespace {

// ---- y = f(x) -------------------------------------------------------------------------------------------------------

/// f(x, attributes) and the derivative's product with g.
struct Function {
  double (*value)(double x, double a, double b);
  double (*slope)(double x, double g, double a, double b);
  const char *a = nullptr, *b = nullptr;  ///< names of attributes
};

double number(const KernelCall& call, const char* name) { return name == nullptr ? 0 : call.number(name); }

Kernel of_one(const Function& f) {
  return {[f](const KernelCall& call) {
            Numbers y = in(call, "x");
            for (double& v : y) v = f.value(v, number(call, f.a), number(call, f.b));
            out(call, "y", y);
          },
          [f](const KernelCall& call) {
            const Numbers x = in(call, "x");
            Numbers dx = in(call, "dy");
            for (std::size_t i = 0; i < dx.size(); ++i)
              dx[i] = f.slope(x[i], dx[i], number(call, f.a), number(call, f.b));
            out(call, "dx", dx);
          }};
}

double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1.0) / (1 + e);
}
double sigmoid_slope(double x) {  // s (1 - s) without a difference
  const double e = std::exp(-std::fabs(x)), s = 1 / (1 + e);
  return s * (e * s);
}

constexpr double kSqrtHalf = 0.70710678118654752440, kDensity = 0.39894228040143267794;  // 1/sqrt(2), 1/sqrt(2 pi)
constexpr double kScale = 0.79788456080286535588, kCubic = 0.044715;                     // sqrt(2/pi)

double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(kScale * (x + kCubic * x * x * x))); }
double gelu_tanh_slope(double x) {
  const double t = std::tanh(kScale * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (kScale * (1 + 3 * kCubic * x * x));
}

const std::map<std::string, Function, std::less<>>& functions() {
  using D = double;
  static const std::map<std::string, Function, std::less<>> kAll = {
      {"exp", {[](D x, D, D) { return std::exp(x); }, [](D x, D g, D, D) { return g * std::exp(x); }}},
      {"log", {[](D x, D, D) { return std::log(x); }, [](D x, D g, D, D) { return g / x; }}},
      {"sqrt", {[](D x, D, D) { return std::sqrt(x); }, [](D x, D g, D, D) { return g / (2 * std::sqrt(x)); }}},
      {"tanh",
       {[](D x, D, D) { return std::tanh(x); },
        [](D x, D g, D, D) {
          const D y = std::tanh(x);
          return g * (1 - y * y);
        }}},
      {"sigmoid", {[](D x, D, D) { return sigmoid(x); }, [](D x, D g, D, D) { return g * sigmoid_slope(x); }}},
      {"silu",
       {[](D x, D, D) { return x * sigmoid(x); },
        [](D x, D g, D, D) {
          const D s = sigmoid(x);
          return g * (s * (1 + x * (1 - s)));
        }}},
      {"gelu",
       {[](D x, D, D) { return 0.5 * x * std::erfc(-(x * kSqrtHalf)); },
        [](D x, D g, D, D) {
          return g * (0.5 * std::erfc(-(x * kSqrtHalf)) + x * (kDensity * std::exp(-0.5 * x * x)));
        }}},
      {"gelu_tanh", {[](D x, D, D) { return gelu_tanh(x); }, [](D x, D g, D, D) { return g * gelu_tanh_slope(x); }}},
      {"relu", {[](D x, D, D) { return x <= 0 ? 0.0 : x; }, [](D x, D g, D, D) { return x <= 0 ? 0.0 : g; }}},
      {"leaky_relu",
       {[](D x, D a, D) { return x <= 0 ? a * x : x; }, [](D x, D g, D a, D) { return x <= 0 ? a * g : g; },
        "negative_slope"}},
      {"clamp",
       {[](D x, D a, D b) { return x < a   ? a
                                   : x > b ? b
                                           : x; },
        [](D x, D g, D a, D b) { return x < a || x > b ? 0.0 : g; }, "min", "max"}},
      {"elu",
       {[](D x, D a, D) { return x <= 0 ? a * std::expm1(x) : x; },
        [](D x, D g, D a, D) { return x <= 0 ? g * (a * std::exp(x)) : g; }, "alpha"}},
      {"softplus",
       {[](D x, D a, D) {
          const D z = a * x;
          return ((z < 0 ? 0.0 : z) + std::log1p(std::exp(-std::fabs(z)))) / a;
        },
        [](D x, D g, D a, D) { return g * sigmoid(a * x); }, "beta"}},
      {"pow",
       {[](D x, D a, D) { return std::pow(x, a); },
        [](D x, D g, D a, D) { return a == 0 ? 0.0 : g * (a * std::pow(x, a - 1)); },  // 0 times a pole is no number
        "exponent"}}};
  return kAll;
}

// ---- Of two tensors -------------------------------------------------------------------------------------------------

using Binary = double (*)(double, double);
using Slope = double (*)(double, double, double);

Kernel of_two(const char* x, const char* y, const char* z, Binary f, Slope fx, Slope fy) {
  const std::string dz = std::string("d") + z;
  return {[=](const KernelCall& call) {
            Numbers a = in(call, x);
            const Numbers b = in(call, y);
            for (std::size_t i = 0; i < a.size(); ++i) a[i] = f(a[i], b[i]);
            out(call, z, a);
          },
          [=](const KernelCall& call) {
            const Numbers a = in(call, x), b = in(call, y), g = in(call, dz.c_str());
            Numbers da(g.size()), db(g.size());
            for (std::size_t i = 0; i < g.size(); ++i) {
              da[i] = fx(a[i], b[i], g[i]);
              db[i] = fy(a[i], b[i], g[i]);
            }
            out(call, std::string("d") + x, da);
            out(call, std::string("d") + y, db);
          }};
}

Kernel mean_of_squares() {
  return {[](const KernelCall& call) {
            const Numbers x = in(call, "x"), target = in(call, "target");
            double sum = 0;
            for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - target[i]) * (x[i] - target[i]);
            out(call, "loss", {sum / static_cast<double>(x.size())});
          },
          [](const KernelCall& call) {
            const Numbers x = in(call, "x"), target = in(call, "target"), dloss = in(call, "dloss");
            Numbers dx(x.size()), dtarget(x.size());
            for (std::size_t i = 0; i < x.size(); ++i) {
              dx[i] = dloss[0] * (2 / static_cast<double>(x.size()) * (x[i] - target[i]));
              dtarget[i] = -dx[i];
            }
            out(call, "dx", dx);
            out(call, "dtarget", dtarget);
          }};
}

}  // namespace

Kernel elementwise_kernel(std::string_view op) {
  if (const auto one = functions().find(op); one != functions().end()) return of_one(one->second);
  using D = double;
  if (op == "add")
    return of_two(
        "x", "y", "z", [](D x, D y) { return x + y; }, [](D, D, D g) { return g; }, [](D, D, D g) { return g; });
  if (op == "mul")
    return of_two(
        "x", "y", "z", [](D x, D y) { return x * y; }, [](D, D y, D g) { return g * y; },
        [](D x, D, D g) { return g * x; });
  if (op == "div")
    return of_two(
        "x", "y", "z", [](D x, D y) { return x / y; }, [](D, D y, D g) { return g / y; },
        [](D x, D y, D g) { return -g * (x / y) / y; });
  if (op == "swiglu")
    return of_two(
        "gate", "up", "y", [](D gate, D up) { return gate * sigmoid(gate) * up; },
        [](D gate, D up, D g) {
          const D s = sigmoid(gate);
          return g * up * (s * (1 + gate * (1 - s)));
        },
        [](D gate, D, D g) { return gate * sigmoid(gate) * g; });
  if (op == "mse_loss") return mean_of_squares();
  return {};
}

}  // namespace ampcheck::kernels::doubles
