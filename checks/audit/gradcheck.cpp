// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/audit/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "checks/case/case_run.h"
#include "checks/explain/diagnosis.h"
#include "src/random.h"

namespace ampcheck::checks::zoo {

namespace {

// Defaults of torch.autograd.gradcheck.
constexpr double kStep = 1e-6, kAtol = 1e-5, kRtol = 1e-3;

constexpr Gate kRules[] = {
    {"gradcheck in fp32", "torch's slow rule: every Jacobian entry, step 1e-6, rtol 1e-3, atol 1e-5"},
    {"gradcheck, slow", "the same with exact differences"},
    {"gradcheck, fast", "torch's fast rule, one projection, with exact differences"},
};

/// Jacobians by gradient ("dx"), rows by output element, one after the other over all outputs.
using Jacobians = std::map<std::string, std::vector<std::vector<double>>>;

class Gradcheck {
 public:
  explicit Gradcheck(const OpDef& op) : call_(default_call(op.signature, Dtype::fp32)), run_(op, call_, options_) {
    forward_ = run_.run_forward(run_.forward_tensors(run_.reference.inputs(), 0));
    for (const Written& output : run_.outputs)
      if (!output.saved) zero_[gradient_name(output.name)].assign(static_cast<std::size_t>(output.shape.count()), 0.0);
  }

  std::vector<char> rejections() {
    Jacobians kernel, exact;
    bool wrong = !all_zero(backward(zero_));  // "backward not multiplied by grad_output"
    for (auto& [name, values] : zero_)
      for (double& one_hot : values) {
        one_hot = 1;
        const NamedValues got = backward(zero_);
        wrong |= !same(got, backward(zero_));  // nondet_tol = 0
        run_.reference.set_cotangents(zero_);
        for (const Written& gradient : run_.gradients) {
          kernel[gradient.name].push_back(got.at(gradient.name));
          const Interval interval = run_.reference.interval(0, Pass::backward, gradient.name, gradient.dtype);
          exact[gradient.name].emplace_back(interval.value.begin(), interval.value.end());
        }
        one_hot = 0;
      }
    return {static_cast<char>(wrong || !close(kernel, differences())),
            static_cast<char>(wrong || !close(kernel, exact)),
            static_cast<char>(wrong || !close_projections(kernel, exact))};
  }

 private:
  NamedValues backward(const NamedValues& cotangents) {
    LaunchTensors tensors = run_.backward_tensors(run_.reference.inputs(), forward_, cotangents, 0);
    for (const Written& gradient : run_.gradients)  // autograd hands out zeroed buffers to add to
      if (run_.accumulates(gradient.name))
        tensors.write.at(gradient.name)
            .assign(std::vector<double>(static_cast<std::size_t>(gradient.shape.count()), 0.0));
    const LaunchResult result = run_.run_backward(tensors);
    NamedValues out;
    for (const Written& gradient : run_.gradients)
      out[gradient.name] = to_doubles(result.written.at(gradient.name).view());
    return out;
  }

  std::vector<double> outputs_at(const NamedValues& inputs) {
    const LaunchResult result = run_.run_forward(run_.forward_tensors(inputs, 0));
    std::vector<double> all;
    for (const auto& [cotangent, values] : zero_)
      for (const double v : to_doubles(result.written.at(cotangent.substr(1)).view())) all.push_back(v);
    return all;
  }

  Jacobians differences() {
    Jacobians out;
    for (const Written& gradient : run_.gradients) {
      const std::string input = gradient.name.substr(1);
      for (std::size_t j = 0; j < run_.reference.inputs().at(input).size(); ++j) {
        NamedValues low = run_.reference.inputs(), high = low;
        low[input][j] = static_cast<double>(static_cast<float>(low[input][j] - kStep));
        high[input][j] = static_cast<double>(static_cast<float>(high[input][j] + kStep));
        const std::vector<double> a = outputs_at(low), b = outputs_at(high);
        out[gradient.name].resize(a.size());
        for (std::size_t i = 0; i < a.size(); ++i) out[gradient.name][i].push_back((b[i] - a[i]) / (2 * kStep));
      }
    }
    return out;
  }

  static bool all_zero(const NamedValues& gradients) {
    return std::all_of(gradients.begin(), gradients.end(), [](const auto& g) {
      return std::all_of(g.second.begin(), g.second.end(), [](double v) { return v == 0; });
    });
  }
  static bool same(const NamedValues& a, const NamedValues& b) {
    for (const auto& [name, values] : a)
      for (std::size_t i = 0; i < values.size(); ++i)
        if (!(values[i] == b.at(name)[i])) return false;
    return true;
  }
  static bool close(const Jacobians& a, const Jacobians& b) {
    for (const auto& [name, rows] : a)
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t j = 0; j < rows[i].size(); ++j)
          if (!(std::fabs(rows[i][j] - b.at(name)[i][j]) <= kAtol + kRtol * std::fabs(b.at(name)[i][j]))) return false;
    return true;
  }
  /// v^T J u for positive random unit vectors u and v; atol grows by the sums of both.
  static bool close_projections(const Jacobians& a, const Jacobians& b) {
    for (const auto& [name, rows] : a) {
      if (rows.empty() || rows.front().empty()) continue;
      const std::vector<double> v = unit(rows.size(), "v"), u = unit(rows.front().size(), "u " + name);
      double left = 0, right = 0, sum_u = 0, sum_v = 0;
      for (const double x : u) sum_u += x;
      for (const double x : v) sum_v += x;
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t j = 0; j < u.size(); ++j) {
          left += v[i] * rows[i][j] * u[j];
          right += v[i] * b.at(name)[i][j] * u[j];
        }
      if (!(std::fabs(left - right) <= kAtol * sum_u * sum_v + kRtol * std::fabs(right))) return false;
    }
    return true;
  }
  static std::vector<double> unit(std::size_t n, const std::string& stream) {
    const Random random(1, "gradcheck " + stream);
    std::vector<double> out(n);
    double square = 0;
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = random.uniform(i);
      square += out[i] * out[i];
    }
    for (double& x : out) x /= std::sqrt(square);
    return out;
  }

  RunOptions options_;
  OpCall call_;
  CaseRun run_;
  LaunchResult forward_;
  NamedValues zero_;
};

}  // namespace

std::span<const Gate> gradcheck_rules() { return kRules; }

std::vector<char> rejected_by_gradcheck(const OpDef& op) {
  try {
    return Gradcheck(op).rejections();
  } catch (const std::exception&) {  // every test sees a kernel that throws
    return {1, 1, 1};
  }
}

}  // namespace ampcheck::checks::zoo
