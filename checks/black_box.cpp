// SPDX-License-Identifier: Apache-2.0
#include "checks/black_box.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "checks/noise.h"
#include "src/index.h"
#include "src/op_call.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr int kNoisePoints = 9;
constexpr int kMostCoordinates = 6, kFewCoordinates = 2;  ///< of one input, in small and in large cases
constexpr std::int64_t kLarge = 1 << 11, kTooLarge = 1 << 20;  ///< elements of all inputs
constexpr int kFinestNoiseStep = 12, kFinestStep = 12;  ///< in halvings of the tensor's largest value: noise shows, truncation does not

/// Half an ulp of the format at a value: what storing it may change.
double half_ulp(const FloatFormat& format, double value) {
  if (value == 0 || !std::isfinite(value)) return format.min_subnormal() / 2;
  return std::max(std::ldexp(1.0, std::ilogb(value) - format.precision), format.min_subnormal() / 2);
}

/// An input whose gradient is compared: its values lie on a grid so coarse that x + h is stored exactly for every step.
struct Input {
  const TensorSpec* spec;
  double scale, grid;  ///< powers of two: largest magnitude, and distance of its neighbours in the format
};

/// Values of the outputs of one run, and of what it saved.
struct Run {
  LaunchResult result;
  std::vector<std::vector<double>> outputs;  ///< in the order of run.outputs, without the saved ones
};

class Differences {
 public:
  explicit Differences(CaseRun& run) : run_(run), inputs_(run.reference.inputs()) {
    for (const Written& output : run.outputs)
      if (!output.saved) outputs_.push_back(&output);
  }

  void check() {
    for (const Written& gradient : run_.gradients) prepare(*run_.op.signature.input(gradient.name.substr(1)));
    draw_cotangents();
    base_ = forward(inputs_);
    const LaunchResult backward = run_backward(inputs_, base_.result);
    measure_noise();
    for (std::size_t k = 0; k < run_.gradients.size(); ++k) run_.add(compare(k, backward));
  }

 private:
  // ---- The point at which all is compared. ----

  void prepare(const TensorSpec& spec) {
    std::vector<double>& values = inputs_.at(spec.name);
    double most = 0;
    for (const double v : values) most = std::max(most, std::fabs(v));
    Input input{&spec, 1, 1};
    input.scale = most == 0 ? 1 : std::ldexp(1.0, std::ilogb(most) + 1);
    input.grid = std::ldexp(input.scale, 1 - format(run_.call.dtype(spec)).precision);
    for (double& v : values) {
      v = std::nearbyint(v / input.grid) * input.grid;
      if (spec.domain != Domain::any) v = std::max(v, input.grid);
      if (spec.domain == Domain::unit_interval || spec.role == Role::probability) v = std::min(v, 1 - input.grid);
    }
    prepared_.push_back(input);
  }

  /// Signed powers of two: forward does not see their signs, so errors of its outputs add up like a random walk.
  void draw_cotangents() {
    for (const Written* output : outputs_) {
      std::vector<double>& g = cotangents_[gradient_name(output->name)];
      const Random random(run_.call.seed, "black box d" + output->name);
      g.resize(static_cast<std::size_t>(output->shape.count()));
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = (random.bits(i) & 1 ? -1.0 : 1.0) * (random.bits(i) & 2 ? 2.0 : 1.0);
      if (layout_of(run_.call.layout, gradient_name(output->name)) == Layout::expanded && output->shape.rank > 0)
        for (std::size_t i = 0; i < g.size(); ++i) g[i] = g[i - i % static_cast<std::size_t>(output->shape.last())];
    }
  }

  Run forward(const NamedValues& inputs) {
    Run out{run_.run_forward(run_.forward_tensors(inputs, 0)), {}};
    for (const Written* output : outputs_) out.outputs.push_back(to_doubles(out.result.written.at(output->name).view()));
    return out;
  }
  LaunchResult run_backward(const NamedValues& inputs, const LaunchResult& from) {
    return run_.run_backward(run_.backward_tensors(inputs, from, cotangents_, 0));
  }

  // ---- Noise, of every element of every output and gradient at once. ----

  /// Levels from runs at equally spaced points along one direction that moves every element of every input.
  void measure_noise() {
    std::vector<std::vector<std::vector<double>>> outputs(outputs_.size()), gradients(run_.gradients.size());  // tensor, point, element
    for (int point = 0; point < kNoisePoints; ++point) {
      NamedValues moved = inputs_;
      for (const Input& input : prepared_) {
        const double step = std::max(input.grid, std::ldexp(input.scale, -kFinestNoiseStep));
        std::vector<double>& values = moved.at(input.spec->name);
        const Random random(run_.call.seed, "direction " + input.spec->name);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double to = values[i] + (random.bits(i) & 1 ? step : -step) * (point - kNoisePoints / 2);
          if (inside(*input.spec, to)) values[i] = to;
        }
      }
      Run run = forward(moved);
      const LaunchResult backward = run_backward(moved, run.result);
      for (std::size_t k = 0; k < outputs.size(); ++k) outputs[k].push_back(std::move(run.outputs[k]));
      for (std::size_t k = 0; k < gradients.size(); ++k) gradients[k].push_back(to_doubles(backward.written.at(run_.gradients[k].name).view()));
    }
    for (const auto& points : outputs) output_noise_.push_back(levels(points));
    for (const auto& points : gradients) gradient_noise_.push_back(levels(points));
  }

  static std::vector<double> levels(const std::vector<std::vector<double>>& points) {
    std::vector<double> out(points.front().size()), values(points.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (std::size_t k = 0; k < points.size(); ++k) values[k] = points[k][i];
      out[i] = noise_level(values);
    }
    return out;
  }

  static bool inside(const TensorSpec& spec, double value) {
    if (spec.domain != Domain::any && !(value > 0)) return false;
    return !(spec.domain == Domain::unit_interval || spec.role == Role::probability) || (value >= 0 && value <= 1);
  }

  // ---- One coordinate. ----

  /// Outputs that notice a large change of a coordinate, by output and element: the others have no share in its gradient.
  std::vector<std::pair<std::size_t, std::size_t>> dependents(const Input& input, std::size_t at) {
    const double x = inputs_.at(input.spec->name)[at];
    std::vector<double> far = {x + 8 * input.scale, x - 8 * input.scale, x + input.scale / 2, x - input.scale / 2};
    if (input.spec->domain == Domain::positive) far = {16 * x, x / 16};
    if (input.spec->domain == Domain::unit_interval || input.spec->role == Role::probability) far = {0.125, 0.875};
    std::set<std::pair<std::size_t, std::size_t>> out;
    for (const double to : far) {
      const Run run = forward(moved(input, at, to));
      for (std::size_t k = 0; k < run.outputs.size(); ++k)
        for (std::size_t i = 0; i < run.outputs[k].size(); ++i)
          if (!(run.outputs[k][i] == base_.outputs[k][i])) out.emplace(k, i);
    }
    return {out.begin(), out.end()};
  }

  NamedValues moved(const Input& input, std::size_t at, double to) const {
    NamedValues out = inputs_;
    out.at(input.spec->name)[at] = to;
    return out;
  }

  Slope slope_at(const Input& input, std::size_t at) {
    const auto deps = dependents(input, at);
    const double x = inputs_.at(input.spec->name)[at];
    std::vector<Step> steps;
    for (double h = std::max(input.grid, std::ldexp(input.scale, -kFinestStep)); h <= input.scale / 2; h *= 2) {
      if (!inside(*input.spec, x + h) || !inside(*input.spec, x - h)) break;
      const Run above = forward(moved(input, at, x + h)), below = forward(moved(input, at, x - h));
      steps.push_back(step_of(h, above, below, deps));
    }
    return slope_of(steps);
  }

  Step step_of(double h, const Run& above, const Run& below, const std::vector<std::pair<std::size_t, std::size_t>>& deps) const {
    Step out;
    out.h = h;
    double linear = 0, squares = 0, measured = 0, unmeasured = 0;
    for (const auto& [k, i] : deps) {
      const double g = cotangents_.at(gradient_name(outputs_[k]->name))[i];
      out.above += g * (above.outputs[k][i] - base_.outputs[k][i]), out.below += g * (below.outputs[k][i] - base_.outputs[k][i]);
      const FloatFormat& to = format(outputs_[k]->dtype);
      for (const double y : {above.outputs[k][i], below.outputs[k][i]}) {
        const double bound = std::fabs(g) * half_ulp(to, y);
        linear += bound, squares += bound * bound;
        measured += g * g * output_noise_[k][i] * output_noise_[k][i], unmeasured += bound * bound / 3;  // of a uniform error
      }
    }
    const bool random_signs = run_.call.layout.find("expanded") == std::string::npos;  // an expanded cotangent repeats its own
    out.noise = random_signs ? std::min(linear, deviations() * std::sqrt(squares)) : linear;
    // More noise than storing causes: the kernel's own, known by its level alone.
    if (measured > scatter(kNoisePoints) * scatter(kNoisePoints) * unmeasured) out.noise += deviations() * std::sqrt(measured);
    return out;
  }

  // ---- One gradient. ----

  std::vector<std::size_t> coordinates(std::size_t count, const std::string& name) const {
    std::int64_t all = 0;
    for (const auto& [input, values] : inputs_) all += static_cast<std::int64_t>(values.size());
    if (count == 0 || all > kTooLarge) return {};
    const std::size_t most = static_cast<std::size_t>(all > kLarge ? kFewCoordinates : kMostCoordinates);
    std::set<std::size_t> out = {count - 1};  // where tails end
    if (most > 2) out.insert(0);
    const Random random(run_.call.seed, "coordinates of " + name);
    for (std::uint64_t i = 0; out.size() < std::min(most, count) && i < 64; ++i) out.insert(static_cast<std::size_t>(random.uniform(i) * static_cast<double>(count)));
    return {out.begin(), out.end()};
  }

  CheckResult compare(std::size_t which, const LaunchResult& backward) {
    const Written& gradient = run_.gradients[which];
    const Input& input = prepared_[which];
    const TensorView got_view = backward.written.at(gradient.name).view();
    const std::vector<double> got = to_doubles(got_view);
    const std::vector<double> held = run_.accumulates(gradient.name) ? run_.held(gradient) : std::vector<double>(got.size());
    const FloatFormat& to = format(gradient.dtype);
    CheckResult check;
    check.name = "backward " + gradient.name + " probe 0";
    check.dtype = gradient.dtype;
    std::vector<double> visible;
    double worst = 0;
    for (const std::size_t i : coordinates(got.size(), gradient.name)) {
      const Slope slope = slope_at(input, i);
      ++check.compared;
      const double level = gradient_noise_[which][i], stored = half_ulp(to, got[i]);
      const double own = stored + (level > scatter(kNoisePoints) * stored / std::sqrt(3.0) ? deviations() * level : 0);
      const double bound = slope.bound + own, want = held[i] + slope.value;
      const auto stored_as = [&](double v) { return decode_scalar(to, encode_scalar(to, v)); };
      const bool one_value = stored_as(want - bound) == stored_as(want + bound);
      const bool blind = !slope.settled || (bound >= std::fabs(slope.value) && !one_value);  // 0 and twice the value would pass
      check.blind += blind;
      if (!blind && slope.value != 0) visible.push_back(bound / std::fabs(slope.value));
      if (!slope.settled) continue;
      const double off = std::fabs(got[i] - want);
      if (off <= bound) {
        check.max_ratio = std::max(check.max_ratio, bound > 0 ? off / bound : 0);
        continue;
      }
      ++check.failed;
      const double ratio = std::isnan(off) ? HUGE_VAL : off / bound;
      if (check.worst.empty() || ratio > worst) check.worst = {element(got_view, static_cast<std::int64_t>(i), got[i], want, bound, slope.step, to)}, worst = ratio;
    }
    return concluded(std::move(check), visible);
  }

  static Element element(const TensorView& view, std::int64_t i, double got, double want, double bound, double step, const FloatFormat& to) {
    Element out;
    out.index = index_of(view.shape, i);
    const auto rounded = [&](double v) { return decode_scalar(to, encode_scalar(to, v)); };
    out.got = got, out.got_bits = bits_at(view, i);
    out.want = rounded(want), out.want_bits = encode_scalar(to, want);
    out.ulp = ulp_distance(to, got, out.want);
    out.low = rounded(want - bound), out.high = rounded(want + bound);
    out.interval_from = "differences of the op itself, step " + number_text(step);
    return out;
  }

  static CheckResult concluded(CheckResult check, std::vector<double>& visible) {
    if (!visible.empty()) {
      std::nth_element(visible.begin(), visible.begin() + static_cast<std::ptrdiff_t>(visible.size() / 2), visible.end());
      check.visible = visible[visible.size() / 2];
    }
    if (check.failed > 0) {
      check.code = "AC104", check.verdict = find_code("AC104")->verdict, check.max_ratio = 0;
    } else if (check.compared > 0 && check.blind == check.compared) {
      check.code = "AC202";
      check.note = "every coordinate is blind here";
    }
    return check;
  }

  CaseRun& run_;
  NamedValues inputs_, cotangents_;
  std::vector<const Written*> outputs_;
  std::vector<Input> prepared_;  ///< in the order of run.gradients
  Run base_;
  std::vector<std::vector<double>> output_noise_, gradient_noise_;
};

}  // namespace

std::string black_box_note(const std::string& op, const std::vector<CaseResult>& cases) {
  std::int64_t compared = 0, blind = 0;
  std::map<std::string, std::vector<double>> visible;  // by storage type
  for (const CaseResult& c : cases)
    for (const CheckResult& check : c.checks) {
      if (c.op != op || !check.name.starts_with("backward ")) continue;
      compared += check.compared, blind += check.blind;
      if (check.visible > 0) visible[c.dtype].push_back(check.visible);
    }
  std::string shown;
  for (auto& [dtype, errors] : visible) {
    std::sort(errors.begin(), errors.end());
    shown += fmt::format("{}{:.2g} % in {}", shown.empty() ? "" : ", ", 100 * errors[errors.size() / 2], dtype);
  }
  return fmt::format("{} has no formula: the weak mode. Forward values are not judged. Gradients were compared with differences of the op itself at {} coordinates, {} of "
                     "them hidden by noise or kinks; {}. A wrong forward whose derivative fits cannot be seen.",
                     op, compared, blind, shown.empty() ? "no error could have shown" : "half of the others would have shown a relative error of " + shown);
}

BackwardRun check_differences(CaseRun& run, const LaunchResult& forward) {
  // In other regimes values lie at the ends of the range, where no step fits between noise and truncation.
  if (run.call.range == "normal" && !run.gradients.empty()) Differences(run).check();
  BackwardRun out;
  out.tensors = run.backward_tensors(run.reference.inputs(), forward, run.cotangents(relations_probe(run.call)), 0);
  out.result = run.run_backward(out.tensors);
  return out;
}

}  // namespace ampcheck::checks
