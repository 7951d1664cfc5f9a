// SPDX-License-Identifier: Apache-2.0
// The derivatives are those of the kernels in float beside this file, written once more for double: who changes one
// looks at the other. The zoo has wrong versions (checks/zoo/doubles.cpp).
#include "kernels/doubles.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "src/rounding.h"

namespace ampcheck::kernels {

namespace {

using Numbers = std::vector<double>;

Numbers in(const KernelCall& call, const char* name) {
  if (call.device != Device::cpu)
    throw EnvironmentError("[kernel] storage in fp64 is on the CPU alone, got another device, want --device cpu");
  return to_doubles(call.at(name));
}

void out(const KernelCall& call, const std::string& name, const Numbers& values) {
  if (const TensorView* const tensor = call.find(name)) from_doubles(values, *tensor);
}

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
        [](D x, D g, D a, D) { return g * sigmoid(a * x); }, "beta"}}};
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

// ---- Rows of [N, D] -------------------------------------------------------------------------------------------------

/// The rows and columns of a call's x.
struct Extents {
  std::size_t rows, columns;
  explicit Extents(const KernelCall& call) : rows(1), columns(static_cast<std::size_t>(call.at("x").shape.last())) {
    const Shape& shape = call.at("x").shape;
    for (int axis = 0; axis + 1 < shape.rank; ++axis) rows *= static_cast<std::size_t>(shape[axis]);
  }
};

/// Along the last axis, or with the attribute axis = 0 over the rows; the axis stays.
Kernel total(bool divided) {
  return {[divided](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x");
            const bool over_rows = call.attributes->integer("axis") == 0;
            Numbers y(over_rows ? n.columns : n.rows);
            for (std::size_t i = 0; i < x.size(); ++i) y[over_rows ? i % n.columns : i / n.columns] += x[i];
            if (divided)
              for (double& v : y) v /= static_cast<double>(over_rows ? n.rows : n.columns);
            out(call, "y", y);
          },
          [divided](const KernelCall& call) {
            const Extents n(call);
            const Numbers dy = in(call, "dy");
            const bool over_rows = call.attributes->integer("axis") == 0;
            Numbers dx(n.rows * n.columns);
            for (std::size_t i = 0; i < dx.size(); ++i)
              dx[i] = dy[over_rows ? i % n.columns : i / n.columns] /
                      (divided ? static_cast<double>(over_rows ? n.rows : n.columns) : 1.0);
            out(call, "dx", dx);
          }};
}

/// exp(x - max) in place of x; its sum, and the maximum.
struct Exponentials {
  double shift = 0, sum = 0;
  Exponentials(double* x, std::size_t n) {
    if (n == 0) return;
    shift = *std::max_element(x, x + n);
    for (std::size_t k = 0; k < n; ++k) sum += x[k] = std::exp(x[k] - shift);
  }
};

Kernel softmax(bool logarithm) {
  return {[logarithm](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x");
            Numbers y = x;
            for (std::size_t at = 0; at < x.size(); at += n.columns) {
              const Exponentials row(y.data() + at, n.columns);
              const double log_sum = std::log(row.sum);
              for (std::size_t k = at; k < at + n.columns; ++k)
                y[k] = logarithm ? (x[k] - row.shift) - log_sum : y[k] / row.sum;
            }
            out(call, "y", y);
          },
          [logarithm](const KernelCall& call) {
            const Extents n(call);
            const Numbers g = in(call, "dy");
            Numbers y = in(call, "x"), dx(y.size());
            for (std::size_t at = 0; at < y.size(); at += n.columns) {
              const Exponentials row(y.data() + at, n.columns);
              double inner = 0;
              for (std::size_t k = at; k < at + n.columns; ++k) {
                y[k] /= row.sum;
                inner += logarithm ? g[k] : y[k] * g[k];
              }
              for (std::size_t k = at; k < at + n.columns; ++k)
                dx[k] = logarithm ? g[k] - y[k] * inner : y[k] * (g[k] - inner);
            }
            out(call, "dx", dx);
          }};
}

/// Ones, or zeros, where a parameter is absent.
Numbers parameter(const KernelCall& call, const char* name, std::size_t count, double otherwise) {
  return call.find(name) == nullptr ? Numbers(count, otherwise) : in(call, name);
}

/// layer_norm, or with `centred` false rms_norm, which subtracts no mean.
Kernel norm(bool centred) {
  return {[centred](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x"), weight = parameter(call, "weight", n.columns, 1),
                          bias = parameter(call, "bias", n.columns, -0.0);
            const auto columns = static_cast<double>(n.columns);
            Numbers y(x.size()), means, inverse;
            for (std::size_t row = 0; row < n.rows; ++row) {
              const double* const v = x.data() + row * n.columns;
              double sum = 0, squares = 0;
              for (std::size_t k = 0; k < n.columns; ++k) sum += centred ? v[k] : 0;
              const double mean = centred ? sum / columns : 0;
              for (std::size_t k = 0; k < n.columns; ++k) squares += (v[k] - mean) * (v[k] - mean);
              const double inv = 1 / std::sqrt(squares / columns + call.number("eps"));
              for (std::size_t k = 0; k < n.columns; ++k)
                y[row * n.columns + k] = (v[k] - mean) * inv * weight[k] + bias[k];
              means.push_back(mean);
              inverse.push_back(inv);
            }
            out(call, "y", y);
            out(call, "mean", means);
            out(call, centred ? "inv_std" : "inv_rms", inverse);
          },
          [centred](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x"), dy = in(call, "dy"), weight = parameter(call, "weight", n.columns, 1),
                          means = centred ? in(call, "mean") : Numbers(n.rows),
                          inverse = in(call, centred ? "inv_std" : "inv_rms");
            const auto columns = static_cast<double>(n.columns);
            Numbers dx(x.size()), dweight(n.columns), dbias(n.columns);
            for (std::size_t row = 0; row < n.rows; ++row) {
              const std::size_t at = row * n.columns;
              const auto of = [&](std::size_t k) { return (x[at + k] - means[row]) * inverse[row]; };
              double sum_g = 0, sum_gn = 0;
              for (std::size_t k = 0; k < n.columns; ++k) {
                const double g = dy[at + k] * weight[k];
                sum_g += centred ? g : 0;
                sum_gn += g * of(k);
                dweight[k] += dy[at + k] * of(k);
                dbias[k] += dy[at + k];
              }
              for (std::size_t k = 0; k < n.columns; ++k)
                dx[at + k] = inverse[row] * (dy[at + k] * weight[k] - sum_g / columns - of(k) * (sum_gn / columns));
            }
            out(call, "dx", dx);
            out(call, "dweight", dweight);
            out(call, "dbias", dbias);
          }};
}

/// y = x weight^T + bias.
Kernel linear() {
  return {[](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x"), weight = in(call, "weight");
            const auto outputs = static_cast<std::size_t>(call.at("weight").shape[0]);
            const Numbers bias = parameter(call, "bias", outputs, -0.0);
            Numbers y(n.rows * outputs);
            for (std::size_t i = 0; i < n.rows; ++i)
              for (std::size_t j = 0; j < outputs; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < n.columns; ++k) sum += x[i * n.columns + k] * weight[j * n.columns + k];
                y[i * outputs + j] = sum + bias[j];
              }
            out(call, "y", y);
          },
          [](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x"), weight = in(call, "weight"), dy = in(call, "dy");
            const auto outputs = static_cast<std::size_t>(call.at("weight").shape[0]);
            Numbers dx(x.size()), dweight(weight.size()), dbias(outputs);
            for (std::size_t i = 0; i < n.rows; ++i)
              for (std::size_t j = 0; j < outputs; ++j) {
                const double g = dy[i * outputs + j];
                dbias[j] += g;
                for (std::size_t k = 0; k < n.columns; ++k) {
                  dx[i * n.columns + k] += g * weight[j * n.columns + k];
                  dweight[j * n.columns + k] += g * x[i * n.columns + k];
                }
              }
            out(call, "dx", dx);
            out(call, "dweight", dweight);
            out(call, "dbias", dbias);
          }};
}

}  // namespace

Kernel double_kernel(std::string_view op) {
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
  if (op == "sum" || op == "mean") return total(op == "mean");
  if (op == "softmax" || op == "log_softmax") return softmax(op == "log_softmax");
  if (op == "layer_norm" || op == "rms_norm") return norm(op == "layer_norm");
  if (op == "linear") return linear();
  return {};
}

}  // namespace ampcheck::kernels
