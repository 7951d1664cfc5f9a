// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Whether a wrong kernel of one input (or a gate and its factor) computes another activation, or has another's
// gradient.
#include "checks/explain/another_activation.h"

#include <cmath>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }
double normal_pdf(double x) { return std::exp(-0.5 * x * x) * 0.5 * M_SQRT1_2 * M_2_SQRTPI; }

/// tanh form of gelu: its argument and the argument's slope.
double cubic(double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
double cubic_slope(double x) { return std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x); }

struct Activation {
  const char* name;
  double (*value)(double);
  double (*slope)(double);
};

/// x s(k x) and its derivative.
template <int thousandths>
double swish(double x) {
  return x * logistic(thousandths * 1e-3 * x);
}
template <int thousandths>
double swish_slope(double x) {
  const double k = thousandths * 1e-3, s = logistic(k * x);
  return s + k * x * s * (1 - s);
}

constexpr Activation kActivations[] = {
    {"relu", [](double x) { return x > 0 ? x : 0.0; }, [](double x) { return x > 0 ? 1.0 : 0.0; }},
    {"leaky relu (0.01)", [](double x) { return x > 0 ? x : 0.01 * x; }, [](double x) { return x > 0 ? 1.0 : 0.01; }},
    {"relu6", [](double x) { return std::fmin(std::fmax(x, 0.0), 6.0); },
     [](double x) { return x > 0 && x < 6 ? 1.0 : 0.0; }},
    {"gelu", [](double x) { return x * normal_cdf(x); }, [](double x) { return normal_cdf(x) + x * normal_pdf(x); }},
    {"gelu_tanh", [](double x) { return 0.5 * x * (1 + std::tanh(cubic(x))); },
     [](double x) {
       const double t = std::tanh(cubic(x));
       return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * cubic_slope(x);
     }},
    {"quick gelu (x sigmoid(1.702 x))", swish<1702>, swish_slope<1702>},
    {"silu", swish<1000>, swish_slope<1000>},
    {"hard silu", [](double x) { return x * std::fmin(std::fmax(x + 3, 0.0), 6.0) / 6; },
     [](double x) { return x <= -3  ? 0.0
                           : x >= 3 ? 1.0
                                    : (2 * x + 3) / 6; }},
    {"sigmoid", logistic, [](double x) { return logistic(x) * (1 - logistic(x)); }},
    {"tanh", [](double x) { return std::tanh(x); }, [](double x) { return 1 - std::tanh(x) * std::tanh(x); }},
    {"softplus", [](double x) { return std::log1p(std::exp(x)); }, logistic},
    {"elu", [](double x) { return x > 0 ? x : std::expm1(x); }, [](double x) { return x > 0 ? 1.0 : std::exp(x); }},
    {"exp", [](double x) { return std::exp(x); }, [](double x) { return std::exp(x); }},
    {"log", [](double x) { return std::log(x); }, [](double x) { return 1 / x; }},
    {"sqrt", [](double x) { return std::sqrt(x); }, [](double x) { return 0.5 / std::sqrt(x); }},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, [](double x) { return -0.5 / (x * std::sqrt(x)); }},
    {"reciprocal", [](double x) { return 1 / x; }, [](double x) { return -1 / (x * x); }},
    {"square", [](double x) { return x * x; }, [](double x) { return 2 * x; }},
};

/// The floating inputs of a case if there are one or two of the tensor's shape; empty otherwise.
std::vector<std::string> operands(const CaseRun& run, const Written& tensor) {
  std::vector<std::string> out;
  for (const TensorSpec& spec : run.op.signature.inputs) {
    if (!run.call.has(spec)) continue;
    if (!is_float(run.call.dtype(spec)) || !(run.call.shape(spec) == tensor.shape)) return {};
    out.push_back(spec.name);
  }
  return out.size() <= 2 ? out : std::vector<std::string>{};
}

}  // namespace

std::string another_activation(const WrongTensor& wrong,
                               const std::function<bool(const std::vector<double>&)>& agrees) {
  const std::vector<std::string> names = operands(wrong.run, wrong.tensor);
  if (names.empty() || wrong.pass == Pass::jvp ||
      (wrong.pass != Pass::forward && wrong.run.reference.cotangents().size() != 1))
    return "";
  const std::vector<double>& x = wrong.run.reference.inputs().at(names[0]);
  const std::vector<double> ones(x.size(), 1.0);
  const std::vector<double>& factor = names.size() == 2 ? wrong.run.reference.inputs().at(names[1]) : ones;
  const bool backward = wrong.pass != Pass::forward,
             of_factor = names.size() == 2 && wrong.tensor.name == gradient_name(names[1]);
  const std::vector<double>& g = backward ? wrong.run.reference.cotangents().begin()->second : ones;
  if (g.size() != x.size()) return "";
  std::vector<double> values(x.size());
  const auto gives = [&](auto of, const std::vector<double>& times) {
    for (std::size_t i = 0; i < x.size(); ++i) values[i] = of(i) * times[i] * (backward ? g[i] : 1.0);
    return agrees(values);
  };
  for (const Activation& f : kActivations) {
    const bool slope = backward && !of_factor;
    if (gives([&](std::size_t i) { return slope ? f.slope(x[i]) : f.value(x[i]); }, of_factor ? ones : factor))
      return std::string(slope ? "these are the values of the gradient of another activation: "
                               : "these are the values of another function: ") +
             f.name;
  }
  if (!backward || names.size() == 2) return "";
  // As a backward computes it that keeps y.
  const Interval y =
      wrong.run.reference.interval(0, Pass::forward, wrong.run.outputs.front().name, wrong.run.outputs.front().dtype);
  if (y.value.size() != x.size()) return "";
  const auto from_y = [&](auto slope, const char* name) {
    return gives([&](std::size_t i) { return slope(y.value[i]); }, ones)
               ? std::string("these are the values of the gradient of another activation: ") + name
               : "";
  };
  const std::string tanh = from_y([](double v) { return 1 - v * v; }, "tanh, from y");
  return tanh.empty() ? from_y([](double v) { return v * (1 - v); }, "sigmoid, from y") : tanh;
}

}  // namespace ampcheck::checks
