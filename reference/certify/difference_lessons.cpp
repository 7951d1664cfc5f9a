// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Why low-precision kernels are not differenced: the best that a centred difference gives in each arithmetic.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/certify/certify.h"
#include "reference/replay/plain_evaluator.h"
#include "src/float_format.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::reference {

namespace {

constexpr int kLargestStep = 2, kSmallestStep = -52;  // exponents of the ladder
constexpr double kNaiveStep = 1e-6;                   // torch.autograd.gradcheck's default
constexpr int kPoints = 33;

double round_to(const FloatFormat& format, double v) {
  if (format == kFp64) return v;
  if (format == kFp32) return static_cast<double>(static_cast<float>(v));
  return decode_scalar(format, encode_scalar(format, v));
}

/// fp64 with every result rounded to a format.
struct RoundedPolicy : Fp64Policy {
  explicit RoundedPolicy(const FloatFormat& f) : format(&f) {}
  const FloatFormat* format;
  double round(double v) const { return round_to(*format, v); }
  double sum(const std::vector<double>& terms) const {
    double s = 0;
    for (const double t : terms) s = round(s + t);
    return s;
  }
};

using Named = std::map<std::string, std::vector<double>>;

/// One formula in one arithmetic, at inputs that the format holds.
class Rounded {
 public:
  Rounded(const Recording& recording, const FloatFormat& format, Named values, const Named& cotangents)
      : recording_(recording),
        values_(std::move(values)),
        cotangents_(cotangents),
        evaluator_(*recording.graph, RoundedPolicy(format)) {
    for (auto& [name, v] : values_) {
      for (double& x : v) x = round_to(format, x);
      evaluator_.set(recording.inputs.at(name), v);
    }
    evaluator_.hold_conventions();
  }
  const Named& values() const { return values_; }
  /// sum_j g_j (y_j(up) - y_j(down)) for one coordinate, summed in fp64.
  double change(const std::string& input, std::size_t index, double up, double down) {
    const std::vector<double> high = terms(input, index, up), low = terms(input, index, down);
    evaluator_.set(recording_.inputs.at(input), values_.at(input));
    double total = 0;
    for (std::size_t j = 0; j < high.size(); ++j) total += high[j] - low[j];
    return total;
  }

 private:
  std::vector<double> terms(const std::string& input, std::size_t index, double x) {
    std::vector<double> moved = values_.at(input), out;
    moved[index] = x;
    evaluator_.set(recording_.inputs.at(input), std::move(moved));
    for (const auto& [name, node] : recording_.outputs) {
      const std::vector<double>&y = evaluator_.value(node), &g = cotangents_.at(gradient_name(name));
      for (std::size_t j = 0; j < y.size(); ++j) out.push_back(g[j] * y[j]);
    }
    return out;
  }

  const Recording& recording_;
  Named values_;
  const Named& cotangents_;
  PlainEvaluator<RoundedPolicy> evaluator_;
};

/// Gradients in fp64, by input.
Named gradients(const Recording& recording, const Named& values, const Named& cotangents) {
  PlainEvaluator<Fp64Policy> evaluator(*recording.graph);
  for (const auto& [name, v] : values) evaluator.set(recording.inputs.at(name), v);
  for (const auto& [name, g] : cotangents) evaluator.set(recording.cotangents.at(name), g);
  Named out;
  for (const auto& [name, node] : recording.gradients) out[name.substr(1)] = evaluator.value(node);  // "dx" is of "x"
  return out;
}

/// Relative error; a difference that is no number is wrong by everything.
double relative_error(double difference, double derivative) {
  const double error = std::fabs(difference - derivative) / std::fabs(derivative);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

DifferenceLesson lesson(const Recording& recording, const FloatFormat& format, const Named& data,
                        const Named& cotangents, std::uint64_t seed) {
  Rounded rounded(recording, format, data, cotangents);
  const Named derivatives = gradients(recording, rounded.values(), cotangents);
  const Random random(seed, "certify/lesson");
  std::map<int, std::vector<double>> errors;  // by exponent of the step
  std::vector<double> naive;
  int points = 0, vanished = 0;
  for (std::uint64_t draw = 0; draw < 4 * kPoints && points < kPoints; ++draw) {
    for (const auto& [input, derivative] : derivatives) {
      if (derivative.empty() || points == kPoints) continue;
      const std::size_t index = random.below(draw, derivative.size());
      const double x = rounded.values().at(input)[index], d = derivative[index];
      if (d == 0.0) continue;
      ++points;
      for (int e = kLargestStep; e >= kSmallestStep; --e) {
        const double up = round_to(format, x + std::ldexp(1.0, e)), down = round_to(format, x - std::ldexp(1.0, e));
        errors[e].push_back(up == down ? 1.0 : relative_error(rounded.change(input, index, up, down) / (up - down), d));
      }
      const double up = round_to(format, x + kNaiveStep), down = round_to(format, x - kNaiveStep);
      naive.push_back(relative_error(rounded.change(input, index, up, down) / (2 * kNaiveStep), d));
      vanished += up == x ? 1 : 0;
    }
  }
  DifferenceLesson out{.arithmetic = std::string(format.name), .best_error = std::numeric_limits<double>::infinity()};
  for (int e = kLargestStep; e >= kSmallestStep && points > 0; --e)
    if (const double error = median(errors[e]); error < out.best_error) {
      out.best_error = error;
      out.best_step = std::ldexp(1.0, e);
    }
  out.error_at_1e_6 = median(naive);
  out.step_vanishes = 2 * vanished > points;
  return out;
}

}  // namespace

std::vector<DifferenceLesson> difference_lessons(const OpSignature& signature, const Form& form,
                                                 const FormulaVariant& variant, std::uint64_t seed) {
  const CertificationCase data = certification_case(signature, variant, seed);
  const Recording recording = record(signature, form, variant.attributes, data.inputs);
  Named cotangents;
  for (const auto& [name, leaf] : recording.cotangents)
    cotangents[name] = certification_weights(name, leaf.shape().count(), seed);
  std::vector<DifferenceLesson> out;
  for (const FloatFormat* format : {&kFp64, &kFp32, &kFp16, &kBf16})
    out.push_back(lesson(recording, *format, data.values, cotangents, seed));
  return out;
}

}  // namespace ampcheck::reference
