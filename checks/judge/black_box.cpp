// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/black_box.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "checks/case/interval.h"
#include "checks/data/regimes.h"
#include "checks/judge/forward_mode.h"
#include "checks/judge/noise.h"
#include "src/index.h"
#include "src/op_call.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr int kNoisePoints = 9;
constexpr int kMostCoordinates = 6, kFewCoordinates = 2;       ///< of one input, in small and in large cases
constexpr std::int64_t kLarge = 1 << 11, kTooLarge = 1 << 20;  ///< elements of all inputs
constexpr int kFinestNoiseStep = 12,
              kFinestStep = 12;  ///< in halvings of the tensor's largest value: noise shows, truncation does not

/// Half an ulp of the format at a value: what storing it may change.
double half_ulp(const FloatFormat& format, double value) {
  return std::isfinite(value) ? spacing_at(format, value) / 2 : format.min_subnormal() / 2;
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
    draw_tangents();
    base_ = forward(inputs_);
    const LaunchResult backward = run_backward(inputs_, base_.result);
    measure_noise();
    for (std::size_t k = 0; k < run_.gradients.size(); ++k) run_.add(compare(k, backward));
    if (!run_.tangents.empty()) compare_products(backward);
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
      for (std::size_t i = 0; i < g.size(); ++i)
        g[i] = (random.bits(i) & 1 ? -1.0 : 1.0) * (random.bits(i) & 2 ? 2.0 : 1.0);
      if (layout_of(run_.call.layout, gradient_name(output->name)) == Layout::expanded && output->shape.rank > 0)
        for (std::size_t i = 0; i < g.size(); ++i) g[i] = g[i - i % static_cast<std::size_t>(output->shape.last())];
    }
  }

  /// Signed powers of two too: products with what a kernel wrote are exact.
  void draw_tangents() {
    for (const Input& input : prepared_) {
      std::vector<double>& u = tangents_[tangent_name(input.spec->name)];
      const Random random(run_.call.seed, "black box tangent " + input.spec->name);
      u.resize(inputs_.at(input.spec->name).size());
      for (std::size_t i = 0; i < u.size(); ++i)
        u[i] = (random.bits(i) & 1 ? -1.0 : 1.0) * (random.bits(i) & 2 ? 2.0 : 1.0);
    }
  }

  Run forward(const NamedValues& inputs) {
    Run out{run_.run_forward(run_.forward_tensors(inputs, 0)), {}};
    for (const Written* output : outputs_)
      out.outputs.push_back(to_doubles(out.result.written.at(output->name).view()));
    return out;
  }
  LaunchResult run_backward(const NamedValues& inputs, const LaunchResult& from) {
    return run_.run_backward(run_.backward_tensors(inputs, from, cotangents_, 0));
  }

  LaunchResult run_jvp(const NamedValues& inputs, const LaunchResult& from) {
    return run_.run_jvp(jvp_tensors(run_, inputs, from, tangents_));
  }

  // ---- Noise, of every element of every output, gradient and tangent at once. ----

  /// Levels from runs at equally spaced points along one direction that moves every element of every input.
  void measure_noise() {
    std::vector<std::vector<std::vector<double>>> outputs(outputs_.size()), gradients(run_.gradients.size()),
        tangents(run_.tangents.size());  // tensor, point, element
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
      for (std::size_t k = 0; k < gradients.size(); ++k)
        gradients[k].push_back(to_doubles(backward.written.at(run_.gradients[k].name).view()));
      if (tangents.empty()) continue;
      const LaunchResult jvp = run_jvp(moved, run.result);
      for (std::size_t k = 0; k < tangents.size(); ++k)
        tangents[k].push_back(to_doubles(jvp.written.at(run_.tangents[k].name).view()));
    }
    for (const auto& points : outputs) output_noise_.push_back(levels(points));
    for (const auto& points : gradients) gradient_noise_.push_back(levels(points));
    for (const auto& points : tangents) tangent_noise_.push_back(levels(points));
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

  /// Outputs that notice a large change of a coordinate, by output and element: the others have no share in its
  /// gradient.
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

  Step step_of(double h, const Run& above, const Run& below,
               const std::vector<std::pair<std::size_t, std::size_t>>& deps) const {
    Step out;
    out.h = h;
    double linear = 0, squares = 0, measured = 0, unmeasured = 0;
    for (const auto& [k, i] : deps) {
      const double g = cotangents_.at(gradient_name(outputs_[k]->name))[i];
      out.above += g * (above.outputs[k][i] - base_.outputs[k][i]);
      out.below += g * (below.outputs[k][i] - base_.outputs[k][i]);
      const FloatFormat& to = format(outputs_[k]->dtype);
      for (const double y : {above.outputs[k][i], below.outputs[k][i]}) {
        const double bound = std::fabs(g) * half_ulp(to, y);
        linear += bound;
        squares += bound * bound;
        measured += g * g * output_noise_[k][i] * output_noise_[k][i];
        unmeasured += bound * bound / 3;  // of a uniform error
      }
    }
    const bool random_signs =
        run_.call.layout.find("expanded") == std::string::npos;  // an expanded cotangent repeats its own
    out.noise = random_signs ? std::min(linear, deviations() * std::sqrt(squares)) : linear;
    // More noise than storing causes: the kernel's own, known by its level alone.
    if (measured > scatter(kNoisePoints) * scatter(kNoisePoints) * unmeasured)
      out.noise += deviations() * std::sqrt(measured);
    return out;
  }

  /// What a number that a kernel wrote may be off by: its storing, and more where its noise is more than storing
  /// causes.
  static double own_error(const FloatFormat& to, double got, double level) {
    const double stored = half_ulp(to, got);
    return stored + (level > scatter(kNoisePoints) * stored / std::sqrt(3.0) ? deviations() * level : 0);
  }

  // ---- Forward mode. ----

  /// A sum over what a kernel wrote times the other side's weights, and what that may be off by.
  struct Product {
    double value = 0, bound = 0, mass = 0;
    std::int64_t elements = 0;
  };
  static void add(Product& sum, const std::vector<double>& got, const std::vector<double>& held,
                  const std::vector<double>& noise, const std::vector<double>& weights, Dtype dtype) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double term = weights[i] * (got[i] - held[i]);
      sum.value += term;
      sum.mass += std::fabs(term);
      sum.bound += std::fabs(weights[i]) * own_error(format(dtype), got[i], noise[i]);
    }
    sum.elements += std::ssize(got);
  }

  /// <v, J u> by forward mode is <J^T v, u> by the backward, whatever the op computes: they differ by no more than both
  /// err by.
  void compare_products(const LaunchResult& backward) {
    const LaunchResult jvp = run_jvp(inputs_, base_.result);
    Product there, back;
    for (std::size_t k = 0; k < run_.tangents.size(); ++k) {
      const std::vector<double> got = to_doubles(jvp.written.at(run_.tangents[k].name).view());
      add(there, got, std::vector<double>(got.size()), tangent_noise_[k],
          cotangents_.at(gradient_name(outputs_[k]->name)), run_.tangents[k].dtype);
    }
    for (std::size_t k = 0; k < run_.gradients.size(); ++k) {
      const Written& gradient = run_.gradients[k];
      const std::vector<double> got = to_doubles(backward.written.at(gradient.name).view());
      const std::vector<double> held =
          run_.accumulates(gradient.name) ? run_.held(gradient) : std::vector<double>(got.size());
      add(back, got, held, gradient_noise_[k], tangents_.at(tangent_name(prepared_[k].spec->name)), gradient.dtype);
    }
    const auto all = static_cast<double>(there.elements + back.elements);
    const double bound =
        there.bound + back.bound + all * 0x1p-53 * (there.mass + back.mass);  // of the sums here, in fp64
    const double apart = std::fabs(there.value - back.value);
    CheckResult check;
    check.id.kind = CheckId::Kind::jvp_product;
    check.dtype = run_.call.storage;
    check.compared = there.elements + back.elements;
    if (apart <= bound) {
      check.max_ratio = bound > 0 ? apart / bound : 0;
      if (bound >= std::max(std::fabs(there.value), std::fabs(back.value)))
        check.blind = check.compared;  // 0 and twice the value would pass
    } else {                           // or not a number
      check.find(Code::ac106);
      check.failed = check.compared;
      check.cause = fmt::format(
          "<v, J u> is {:.6g} by forward mode, <J^T v, u> {:.6g} by the backward: {:.3g} apart, where storing and "
          "measured noise explain {:.3g}; {}",
          there.value, back.value, apart, bound, who_is_wrong(there, back));
    }
    run_.add(std::move(check));
  }

  /// The difference of <v, y> along the tangents, all inputs moved at once.
  Slope slope_along_tangents() {
    std::vector<std::pair<std::size_t, std::size_t>> all;
    for (std::size_t k = 0; k < base_.outputs.size(); ++k)
      for (std::size_t i = 0; i < base_.outputs[k].size(); ++i) all.emplace_back(k, i);
    double least = 0, most = HUGE_VAL;
    for (const Input& input : prepared_) {
      least = std::max({least, input.grid, std::ldexp(input.scale, -kFinestStep)});
      most = std::min(most, input.scale / 4);  // tangents are 2 at most
    }
    std::vector<Step> steps;
    for (double h = least; h <= most; h *= 2) {
      NamedValues above = inputs_, below = inputs_;
      bool within = true;
      for (const Input& input : prepared_) {
        const std::vector<double>& u = tangents_.at(tangent_name(input.spec->name));
        std::vector<double>&up = above.at(input.spec->name), &down = below.at(input.spec->name);
        for (std::size_t i = 0; i < u.size(); ++i) {
          up[i] += h * u[i];
          down[i] -= h * u[i];
          within &= inside(*input.spec, up[i]) && inside(*input.spec, down[i]);
        }
      }
      if (!within) break;
      steps.push_back(step_of(h, forward(above), forward(below), all));
    }
    return slope_of(steps);
  }

  /// Which of the two the difference along the tangents contradicts.
  std::string who_is_wrong(const Product& there, const Product& back) {
    const Slope slope = slope_along_tangents();
    if (!slope.settled) return "differences of the op itself do not settle here which of the two is wrong";
    const bool jvp_off = !(std::fabs(there.value - slope.value) <= slope.bound + there.bound),
               backward_off = !(std::fabs(back.value - slope.value) <= slope.bound + back.bound);
    return fmt::format("differences of the op itself along u give {:.6g}: {}", slope.value,
                       jvp_off && backward_off ? "neither agrees, as where both are wrong or a kink lies along u"
                       : jvp_off               ? "forward mode is wrong"
                       : backward_off          ? "the backward is wrong"
                                               : "too near to both to say which is wrong");
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
    for (std::uint64_t i = 0; out.size() < std::min(most, count) && i < 64; ++i)
      out.insert(static_cast<std::size_t>(random.uniform(i) * static_cast<double>(count)));
    return {out.begin(), out.end()};
  }

  CheckResult compare(std::size_t which, const LaunchResult& backward) {
    const Written& gradient = run_.gradients[which];
    const Input& input = prepared_[which];
    const TensorView got_view = backward.written.at(gradient.name).view();
    const std::vector<double> got = to_doubles(got_view);
    const std::vector<double> held =
        run_.accumulates(gradient.name) ? run_.held(gradient) : std::vector<double>(got.size());
    const FloatFormat& to = format(gradient.dtype);
    CheckResult check;
    check.id = {.kind = CheckId::Kind::backward, .tensor = gradient.name, .probe = 0};
    check.dtype = gradient.dtype;
    std::vector<double> visible;
    double worst = 0;
    for (const std::size_t i : coordinates(got.size(), gradient.name)) {
      const Slope slope = slope_at(input, i);
      ++check.compared;
      const double bound = slope.bound + own_error(to, got[i], gradient_noise_[which][i]), want = held[i] + slope.value;
      const auto stored_as = [&](double v) { return decode_scalar(to, encode_scalar(to, v)); };
      const bool one_value = stored_as(want - bound) == stored_as(want + bound);
      const bool blind =
          !slope.settled || (bound >= std::fabs(slope.value) && !one_value);  // 0 and twice the value would pass
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
      if (check.worst.empty() || ratio > worst) {
        check.worst = {element(got_view, static_cast<std::int64_t>(i), got[i], want, bound, slope.step, to)};
        worst = ratio;
      }
    }
    return concluded(std::move(check), visible);
  }

  static Element element(const TensorView& view, std::int64_t i, double got, double want, double bound, double step,
                         const FloatFormat& to) {
    Element out;
    out.index = index_of(view.shape, i);
    const auto rounded = [&](double v) { return decode_scalar(to, encode_scalar(to, v)); };
    out.got = got;
    out.got_bits = bits_at(view, i);
    out.want = rounded(want);
    out.want_bits = encode_scalar(to, want);
    out.ulp = ulp_distance(to, got, out.want);
    out.low = rounded(want - bound);
    out.high = rounded(want + bound);
    out.interval_from = "differences of the op itself, step " + number_text(step);
    return out;
  }

  static CheckResult concluded(CheckResult check, std::vector<double>& visible) {
    if (!visible.empty()) {
      std::nth_element(visible.begin(), visible.begin() + static_cast<std::ptrdiff_t>(visible.size() / 2),
                       visible.end());
      check.visible = visible[visible.size() / 2];
    }
    if (check.failed > 0) {
      check.find(Code::ac104);
      check.max_ratio = 0;
    } else if (check.compared > 0 && check.blind == check.compared) {
      check.code = Code::ac202;
      check.note = "every coordinate is blind here";
    }
    return check;
  }

  CaseRun& run_;
  NamedValues inputs_, cotangents_, tangents_;
  std::vector<const Written*> outputs_;
  std::vector<Input> prepared_;  ///< in the order of run.gradients
  Run base_;
  std::vector<std::vector<double>> output_noise_, gradient_noise_, tangent_noise_;
};

}  // namespace

std::string black_box_note(const std::string& op, const std::vector<CaseResult>& cases) {
  std::int64_t compared = 0, blind = 0;
  std::map<std::string, std::vector<double>> visible;  // by storage type
  for (const CaseResult& c : cases)
    for (const CheckResult& check : c.checks) {
      if (c.op != op || check.id.kind != CheckId::Kind::backward) continue;
      compared += check.compared;
      blind += check.blind;
      if (check.visible > 0) visible[c.dtype].push_back(check.visible);
    }
  std::string shown;
  for (auto& [dtype, errors] : visible) {
    std::sort(errors.begin(), errors.end());
    shown += fmt::format("{}{:.2g} % in {}", shown.empty() ? "" : ", ", 100 * errors[errors.size() / 2], dtype);
  }
  return fmt::format(
      "{} has no formula: the weak mode. Forward values are not judged. Gradients were compared with differences of "
      "the op itself at {} coordinates, {} of "
      "them hidden by noise or kinks; {}. A wrong forward whose derivative fits cannot be seen.",
      op, compared, blind,
      shown.empty() ? "no error could have shown" : "half of the others would have shown a relative error of " + shown);
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
