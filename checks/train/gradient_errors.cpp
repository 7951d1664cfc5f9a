// SPDX-License-Identifier: Apache-2.0
#include "checks/train/gradient_errors.h"

#include <algorithm>
#include <cmath>

#include "src/op_call.h"

namespace ampcheck::checks::train {

namespace {

using Direction = std::vector<double>;

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

/// One parameter's error with its direction; false if it is not finite.
bool begin_error(const Parameter& fp64, const Tensor& gradient, const Parameter& low, GradientError& out,
                 Direction& direction) {
  out.parameter = fp64.name;
  const std::vector<double> exact = to_doubles(gradient.view());
  direction = to_doubles(low.grad.view());
  for (std::size_t i = 0; i < exact.size(); ++i) direction[i] -= exact[i];
  out.error = norm_of(direction);
  out.size = norm_of(exact);
  if (!std::isfinite(out.error)) return false;
  for (double& d : direction) d = out.error > 0 ? d / out.error : 0;
  return true;
}

struct Sums {
  double moves = 0, sizes = 0;
};

/// <derivative, error>, and the sum of |derivative value|.
template <class Value>
Sums products(const std::vector<double>& derivative, const std::vector<float>& error, const std::vector<Value>& value) {
  Sums out;
  if (derivative.size() != error.size() || value.size() != error.size()) return out;
  for (std::size_t i = 0; i < error.size(); ++i) {
    out.moves += derivative[i] * static_cast<double>(error[i]);
    out.sizes += std::fabs(derivative[i] * static_cast<double>(value[i]));
  }
  return out;
}

/// <derivative, error>; nothing where either has no numbers.
double product(const std::vector<double>& derivative, const std::vector<float>& error) {
  double out = 0;
  if (derivative.size() != error.size()) return out;
  for (std::size_t i = 0; i < error.size(); ++i) out += derivative[i] * static_cast<double>(error[i]);
  return out;
}

class Accounts {
 public:
  Accounts(const GradientErrorInputs& inputs, std::vector<GradientError>& out) : inputs_(inputs), out_(out) {}

  /// Adds what the errors of one micro-batch move parameter `p` by.
  void add_batch(std::size_t p, int batch, const models::GradientDerivative& derivative,
                 const models::StepRecord& tape) {
    // The step's gradient is the mean over ranks and micro-batches of the weighted losses'; a backward tensor's error
    // is of its own micro-batch's part already, times the scale.
    const double ranks = inputs_.rule.ranks, share = inputs_.rule.loss_weight / (ranks * inputs_.rule.accumulate);
    for (const LocalError& e : inputs_.errors.local()) {
      if (e.batch != batch || e.where.phase == Phase::all_reduce) continue;
      const std::vector<double>* const at =
          derivative_at(derivative, tape, e.where.phase, e.where.cast, e.where.op, e.where.tensor);
      if (at == nullptr || at->empty()) continue;
      const double factor = e.where.phase == Phase::backward ? 1 / (e.scale * ranks) : share;
      const Sums sums = products(*at, e.error, e.exact);
      add(out_[p].parts, e.where, factor * sums.moves,
          factor * sums.sizes * std::max(inputs_.roundoff, format(e.where.dtype).unit_roundoff()));
    }
    for (const InheritedErrors& met : inputs_.errors.inherited())
      if (met.batch == batch)
        add(out_[p].inherited, met.where, beyond_derivatives(met, derivative, tape, share, 1 / ranks), 0);
    for (const SumError& sum : inputs_.errors.sums()) {
      const models::RecordedCall* const call = sum.parameter ? nullptr : tape.find(sum.of);
      if (sum.batch == batch && call != nullptr)
        add_sum(
            p, sum,
            product(derivative.by_cotangent[static_cast<std::size_t>(call->output)], sum.error) / (sum.scale * ranks));
    }
  }
  /// Of sums of a parameter's own gradients, over its uses and over micro-batches.
  void add_sums(std::size_t p, const Direction& direction) {
    for (const SumError& sum : inputs_.errors.sums())
      if (sum.parameter && sum.of == out_[p].parameter)
        add_sum(p, sum, product(direction, sum.error) / (sum.scale * inputs_.rule.ranks));
  }
  /// Of the sum over ranks: each rank's number is rounded twice and added as often as there are ranks, less one.
  void add_reduce(std::size_t p, const Direction& direction, const std::vector<double>& sizes) {
    for (const LocalError& e : inputs_.errors.local()) {
      if (e.where.phase != Phase::all_reduce || e.where.op != out_[p].parameter) continue;
      const Sums sums = products(direction, e.error, sizes);
      add(out_[p].parts, e.where, sums.moves / e.scale, sums.sizes * (inputs_.rule.ranks + 1) * inputs_.roundoff);
    }
  }

 private:
  /// What an op made of its inputs' errors, less what its derivatives make of them.
  static double beyond_derivatives(const InheritedErrors& met, const models::GradientDerivative& derivative,
                                   const models::StepRecord& tape, double share, double of_gradients) {
    const models::RecordedCall* const call = tape.find(met.where.op);
    if (call == nullptr) return 0;
    const auto by_input = [&](const std::string& tensor, const std::vector<float>& error) {
      const auto found = derivative.by_input.find(met.where.op + " " + tensor);
      return found == derivative.by_input.end() ? 0 : product(found->second, error);
    };
    double forward = product(derivative.by_value[static_cast<std::size_t>(call->output)], met.output);
    for (const auto& [name, error] : met.inputs) forward -= by_input(gradient_name(name), error);
    double backward = -by_input(gradient_name(gradient_name(call->output_name)), met.cotangent);
    for (const auto& [name, id] : call->inputs)
      if (const auto gradient = met.gradients.find(name); gradient != met.gradients.end())
        backward += product(derivative.by_cotangent[static_cast<std::size_t>(id)], gradient->second);
    return share * forward + of_gradients * backward;
  }

  void add_sum(std::size_t p, const SumError& sum, double moves) {
    if (moves == 0) return;
    auto& sums = out_[p].sums;
    auto found = std::find_if(sums.begin(), sums.end(), [&](const auto& s) { return s.first == sum.of; });
    if (found == sums.end()) found = sums.insert(sums.end(), {sum.of, 0.0});
    found->second += moves;
  }

  static void add(std::vector<GradientPart>& parts, const TensorKey& key, double moves, double rounding) {
    if (moves == 0) return;
    auto found = std::find_if(parts.begin(), parts.end(), [&](const GradientPart& part) { return part.from == key; });
    if (found == parts.end()) found = parts.insert(parts.end(), {key, 0, 0});
    found->moves += moves;
    found->rounding += rounding;
  }

  const GradientErrorInputs& inputs_;
  std::vector<GradientError>& out_;
};

}  // namespace

std::vector<GradientError> gradient_errors(Fp64Run& fp64, ParameterSet& low, const GradientErrorInputs& inputs) {
  std::vector<GradientError> out;
  std::vector<Direction> directions;
  for (Parameter& parameter : fp64.parameters().all()) {
    const Parameter* const own = low.find(parameter.name);
    out.emplace_back();
    directions.emplace_back();
    if (!parameter.grad.defined() || own == nullptr || !own->grad.defined()) {
      out.back().parameter = parameter.name;
    } else if (!begin_error(parameter, fp64.gradient(parameter), *own, out.back(), directions.back())) {
      return {};
    }
  }
  Accounts accounts(inputs, out);
  const double share = inputs.rule.loss_weight / (inputs.rule.ranks * inputs.rule.accumulate);
  std::vector<std::vector<double>> sizes(out.size());  // of each parameter's gradients on their way into the mean
  for (int batch = 0; batch < static_cast<int>(std::ssize(fp64.records())); ++batch)
    fp64.run_again(batch, [&](models::Fp64Tape& tape) {
      tape.begin_derivatives();
      const std::map<std::string, std::vector<double>> gradients = tape.gradients();
      for (std::size_t p = 0; p < out.size(); ++p) {
        if (out[p].error == 0) continue;
        const std::vector<double>& own = gradients.at(out[p].parameter);
        sizes[p].resize(own.size(), 0.0);
        for (std::size_t i = 0; i < own.size(); ++i) sizes[p][i] += share * std::fabs(own[i]);
        const models::GradientDerivative derivative = tape.derivative_of_gradients({{out[p].parameter, directions[p]}});
        for (const auto& [id, name] : tape.trained()) {
          const auto at = std::find_if(out.begin(), out.end(),
                                       [&, wanted = std::string_view(name)](const GradientError& e) {
                                         return e.parameter == wanted;
                                       }) -
                          out.begin();
          const std::vector<double>& by_weight = derivative.by_value[static_cast<std::size_t>(id)];
          for (std::size_t i = 0; i < by_weight.size(); ++i)
            out[p].apart += share * by_weight[i] * inputs.apart[static_cast<std::size_t>(at)][i];
        }
        accounts.add_batch(p, batch, derivative, tape.record());
      }
    });
  for (std::size_t p = 0; p < out.size(); ++p) {
    accounts.add_reduce(p, directions[p], sizes[p]);
    accounts.add_sums(p, directions[p]);
  }
  for (GradientError& e : out)
    for (GradientPart& part : e.parts) part.rounding = std::max(part.rounding, kFp32.unit_roundoff() * e.size);
  return out;
}

}  // namespace ampcheck::checks::train
