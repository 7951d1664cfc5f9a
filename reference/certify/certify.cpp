// SPDX-License-Identifier: Apache-2.0
#include "reference/certify/certify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/certify/digits.h"
#include "reference/replay/plain_evaluator.h"
#include "src/error.h"
#include "src/random.h"

namespace ampcheck::reference {

namespace {

using Values = std::vector<Digits>;

const Digits& step() {
  static const Digits kStep("1e-33");
  return kStep;
}

const Digits& carried() {
  static const Digits kCarried("1e-" + std::to_string(kCarriedDigits));
  return kCarried;
}

Values to_digits(const std::vector<double>& values) { return Values(values.begin(), values.end()); }

/// Digits to which a and b agree relative to `scale`; what is below `noise` is no disagreement that the arithmetic
/// could see. NaN and infinities do not agree.
double agreement(const Digits& a, const Digits& b, const Digits& scale, const Digits& noise) {
  const Digits error = boost::multiprecision::abs(a - b);
  if (!(error < std::numeric_limits<double>::max()) || !(scale < std::numeric_limits<double>::max())) return 0;
  const Digits seen = error > noise ? error : noise;
  if (seen == 0) return kCarriedDigits;
  if (scale <= noise) return error <= noise ? kCarriedDigits : 0;
  return std::clamp(-std::log10(Digits(seen / scale).convert_to<double>()), 0.0, double{kCarriedDigits});
}

/// A coordinate under test.
struct Coordinate {
  Expr leaf;
  std::size_t index = 0;
};

/// L = sum_j g_j y_j over all outputs, as a function of the leaves of a graph, and its adjoint graph.
class Functional {
 public:
  Functional(const Graph& graph, std::vector<Expr> outputs, std::vector<Values> weights)
      : evaluator_(graph), outputs_(std::move(outputs)), weights_(std::move(weights)) {}

  void set(Expr leaf, Values values) {
    evaluator_.release_conventions();
    evaluator_.set(leaf, values);
    leaves_[leaf.id] = std::move(values);
    centre_.clear();
  }
  const Values& leaf(Expr leaf) const { return leaves_.at(leaf.id); }
  const Values& value(Expr node) { return evaluator_.value(node); }
  /// The terms g_j y_j of all outputs, with coordinate c moved by t; after centre().
  Values moved_terms(const Coordinate& c, const Digits& t) {
    Values moved = leaves_.at(c.leaf.id);
    moved[c.index] += t;
    evaluator_.set(c.leaf, std::move(moved));
    return terms();
  }
  /// The same where nothing is moved. From here to the next set() what is no_gradient keeps its values.
  const Values& centre() {
    if (!centre_.empty()) return centre_;
    evaluator_.hold_conventions();
    return centre_ = terms();
  }
  void restore(const Coordinate& c) { evaluator_.set(c.leaf, leaves_.at(c.leaf.id)); }

 private:
  Values terms() {
    Values out;
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      const Values& y = evaluator_.value(outputs_[k]);
      for (std::size_t j = 0; j < y.size(); ++j) out.push_back(weights_[k][j] * y[j]);
    }
    return out;
  }

  PlainEvaluator<DigitsPolicy> evaluator_;
  std::vector<Expr> outputs_;
  std::vector<Values> weights_;
  std::map<int, Values> leaves_;
  Values centre_;
};

/// Centred differences at h and h/2 and what they are judged by.
struct Difference {
  Digits coarse = 0, fine = 0, richardson = 0;
  Digits scale = 0;  ///< sum_j |g_j dy_j/dx|
  Digits noise = 0;  ///< of the differences
  bool kink = false;
};

Difference difference(Functional& functional, const Coordinate& c) {
  using boost::multiprecision::abs;
  const Digits &h = step(), half = h / 2;
  const Values& centre = functional.centre();
  const Values up = functional.moved_terms(c, h), down = functional.moved_terms(c, -h),
               half_up = functional.moved_terms(c, half), half_down = functional.moved_terms(c, -half);
  functional.restore(c);
  Difference d;
  Digits size = 0, gap = 0, slopes = 0;
  for (std::size_t j = 0; j < centre.size(); ++j) {
    d.coarse += up[j] - down[j];
    d.fine += half_up[j] - half_down[j];
    d.scale += abs(half_up[j] - half_down[j]);
    size += abs(centre[j]);
    gap += abs(up[j] - centre[j] - (centre[j] - down[j]));
    slopes += abs(up[j] - centre[j]) + abs(centre[j] - down[j]);
  }
  d.coarse /= 2 * h;
  d.fine /= h;
  d.scale /= h;
  d.richardson = (4 * d.fine - d.coarse) / 3;
  d.noise = size * carried() / h;
  // One-sided slopes differ by h |f''| where L is smooth and by about their size at a kink: sqrt(h) lies half way.
  d.kink = gap > boost::multiprecision::sqrt(h) * slopes && gap > size * carried();
  return d;
}

double error_ratio(const Difference& d, const Digits& adjoint) {
  const Digits coarse = boost::multiprecision::abs(d.coarse - adjoint),
               fine = boost::multiprecision::abs(d.fine - adjoint);
  // Below 1e8 times the noise the ratio would say nothing to eight digits.
  if (!(fine > d.noise * 100000000)) return std::numeric_limits<double>::quiet_NaN();
  return Digits(coarse / fine).convert_to<double>();
}

Values weights(const std::string& name, std::int64_t count, std::uint64_t seed) {
  return to_digits(certification_weights(name, count, seed));
}

/// `wanted` different indices, shuffled; at least half of them where the adjoint is not zero, if there are so many: on
/// the others only a gradient that ought to be there can be missed, not a wrong one.
std::vector<std::size_t> choose(const Values& adjoint, std::size_t wanted, const Random& random) {
  const std::size_t count = adjoint.size();
  std::vector<std::size_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = i;
  for (std::size_t i = 0; i + 1 < count; ++i) std::swap(all[i], all[i + random.below(i, count - i)]);
  wanted = std::min(count, wanted);
  std::vector<std::size_t> slopes = all;
  std::erase_if(slopes, [&](std::size_t i) { return adjoint[i] == 0; });
  slopes.resize(std::min(slopes.size(), (wanted + 1) / 2));
  std::erase_if(all, [&](std::size_t i) { return std::find(slopes.begin(), slopes.end(), i) != slopes.end(); });
  slopes.insert(slopes.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(wanted - slopes.size()));
  return slopes;
}

/// Compares the adjoint `gradient` of one leaf with differences at sampled coordinates.
void certify_leaf(Functional& functional, Expr leaf, Expr gradient, const CertifiedPoint& label, int samples,
                  std::uint64_t seed, FormulaCertificate& out) {
  constexpr int kTries = 4;
  const Random random(seed, "certify/coordinates/" + label.form + "/" + label.input);
  Values adjoint = functional.value(gradient);
  for (const std::size_t index : choose(adjoint, static_cast<std::size_t>(samples), random)) {
    const Coordinate c{leaf, index};
    Difference d = difference(functional, c);
    for (std::uint64_t attempt = 1; d.kink && attempt <= kTries; ++attempt) {
      // A smaller value of about the same magnitude and the same sign stays inside every domain.
      ++out.kinks;
      Values moved = functional.leaf(leaf);
      const double factor = 1 - 0.5 * random.uniform(1000 * attempt + index);
      moved[index] = moved[index] == 0 ? Digits(factor) : Digits(moved[index] * factor);
      functional.set(leaf, moved);
      adjoint = functional.value(gradient);
      d = difference(functional, c);
    }
    CertifiedPoint point = label;
    point.index = static_cast<std::int64_t>(index);
    point.x = functional.leaf(leaf)[index].convert_to<double>();
    point.adjoint = adjoint[index].convert_to<double>();
    point.difference = d.richardson.convert_to<double>();
    point.digits = d.kink ? 0 : agreement(d.richardson, adjoint[index], d.scale, d.noise);
    point.error_ratio = error_ratio(d, adjoint[index]);
    out.flat += d.scale == 0 && adjoint[index] == 0 ? 1 : 0;
    out.points.push_back(point);
  }
}

void set_inputs(Functional& functional, const Recording& recording, const CertificationCase& data) {
  for (const auto& [name, leaf] : recording.inputs) functional.set(leaf, to_digits(data.values.at(name)));
}

std::vector<Values> output_weights(const Recording& recording, std::uint64_t seed) {
  std::vector<Values> out;
  for (const auto& [name, node] : recording.outputs) out.push_back(weights(name, node.shape().count(), seed));
  return out;
}

/// Values of nodes by name at the case's own data.
using Named = std::map<std::string, Values>;

Named values_of(Functional& functional, const std::vector<std::pair<std::string, Expr>>& nodes) {
  Named out;
  for (const auto& [name, node] : nodes) out[name] = functional.value(node);
  return out;
}

/// Worst agreement of two sets of tensors, value by value.
double agreement(const Named& first, const Named& other) {
  using boost::multiprecision::abs;
  double digits = kCarriedDigits;
  for (const auto& [name, a] : first) {
    const auto found = other.find(name);
    if (found == other.end() || found->second.size() != a.size()) return 0;
    Digits largest = 0;
    for (const Digits& v : a)
      if (abs(v) > largest) largest = abs(v);
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!(a[i] == found->second[i]))  // equal infinities agree
        digits = std::min(digits, agreement(found->second[i], a[i], abs(a[i]), largest * carried()));
  }
  return digits;
}

/// The same nodes in the same order, adjoints included; rules of own adjoints show in what they recorded.
bool same_graph(const Graph& a, const Graph& b) {
  return std::equal(
      a.nodes().begin(), a.nodes().end(), b.nodes().begin(), b.nodes().end(), [](const Node& x, const Node& y) {
        const bool maps_agree = x.map == y.map || (x.map && y.map && *x.map == *y.map);
        return x.primitive == y.primitive && x.args == y.args && x.shape == y.shape && x.value == y.value &&
               x.axis == y.axis && x.transpose_a == y.transpose_a && x.transpose_b == y.transpose_b &&
               x.reversed == y.reversed && x.name == y.name && maps_agree;
      });
}

/// The conventions of a graph in words, each once.
void add_conventions(const Graph& graph, std::vector<std::string>& out) {
  for (const Node& node : graph.nodes())
    if (node.primitive == Primitive::no_gradient && std::find(out.begin(), out.end(), node.name) == out.end())
      out.push_back(node.name);
}

/// The domain of x^p is smaller for p = 0.5 than for the default: where other attributes leave no number of this draw,
/// and they do of its magnitudes, those are taken. At the defaults the signature's domain is held to.
CertificationCase inside_domain(const OpSignature& signature, const Form& form, const Attributes& attributes,
                                const CertificationCase& data) {
  if (attributes.all() == default_attributes(signature).all()) return data;
  const auto has_numbers = [&](const CertificationCase& drawn) {
    const Recording recording = record(signature, form, attributes, drawn.inputs);
    PlainEvaluator<Fp64Policy> evaluator(*recording.graph);
    for (const auto& [name, leaf] : recording.inputs) evaluator.set(leaf, drawn.values.at(name));
    return std::ranges::all_of(recording.outputs, [&](const auto& output) {
      return std::ranges::none_of(evaluator.value(output.second), [](double v) { return std::isnan(v); });
    });
  };
  if (has_numbers(data)) return data;
  CertificationCase positive = data;
  for (auto& [name, values] : positive.values)
    for (double& v : values) v = std::fabs(v);
  return has_numbers(positive) ? positive : data;
}

}  // namespace

FormulaCertificate certify(const OpSignature& signature, const std::vector<Form>& forms, const Attributes& attributes,
                           const CertificationCase& drawn, const SampleCounts& samples, std::uint64_t seed) {
  FormulaCertificate out;
  const CertificationCase data = forms.empty() ? drawn : inside_domain(signature, forms.front(), attributes, drawn);
  std::vector<Recording> recordings;
  Named outputs, gradients;  // of the definition
  for (const Form& form : forms) {
    recordings.push_back(record(signature, form, attributes, data.inputs));
    const Recording& recording = recordings.back();
    add_conventions(*recording.graph, out.conventions);
    const auto twin = std::find_if(recordings.begin(), recordings.end() - 1,
                                   [&](const Recording& r) { return same_graph(*r.graph, *recording.graph); });
    if (const auto at = twin - recordings.begin(); twin != recordings.end() - 1) {
      FormAgreement same{form.name, kCarriedDigits, kCarriedDigits};
      if (at > 0) {
        same = out.forms[static_cast<std::size_t>(at) - 1];
        same.form = form.name;
      }
      out.forms.push_back(same);
      continue;
    }
    const std::vector<Values> cotangents = output_weights(recording, seed);
    Functional functional(*recording.graph, recording.output_nodes(), cotangents);
    set_inputs(functional, recording, data);
    for (std::size_t k = 0; k < cotangents.size(); ++k)
      functional.set(recording.cotangents.at(gradient_name(recording.outputs[k].first)), cotangents[k]);
    if (recordings.size() == 1) {
      outputs = values_of(functional, recording.outputs);
      gradients = values_of(functional, recording.gradients);
    } else
      out.forms.push_back({form.name, agreement(outputs, values_of(functional, recording.outputs)),
                           agreement(gradients, values_of(functional, recording.gradients))});
    for (const auto& [gradient, node] : recording.gradients)
      for (const auto& [input, count] : samples)
        if (gradient_name(input) == gradient)
          certify_leaf(functional, recording.inputs.at(input), node, {.form = form.name, .input = input}, count, seed,
                       out);
  }
  out.conclude();
  return out;
}

FormulaCertificate certify_second_order(const OpSignature& signature, const Form& form, const Attributes& attributes,
                                        const CertificationCase& data, int samples, std::uint64_t seed) {
  const Recording recording = record(signature, form, attributes, data.inputs);
  // sum_k <v_k, dx_k> is differentiated by everything that it depends on.
  std::vector<Expr> leaves, directions;
  std::vector<std::string> names;
  std::vector<Values> values;
  const auto add_leaf = [&](const std::string& name, Expr leaf) {
    leaves.push_back(leaf);
    names.push_back(name);
  };
  for (const TensorSpec& spec : signature.inputs)
    if (spec.has_gradient() && recording.inputs.contains(spec.name))
      add_leaf(spec.name, recording.inputs.at(spec.name));
  for (const auto& [name, leaf] : recording.cotangents) add_leaf(name, leaf);
  for (const auto& [name, node] : recording.gradients) {
    const Shape shape = node.shape();
    directions.push_back(recording.graph->input("v " + name, shape));
    values.push_back(weights("v " + name, shape.count(), seed));
  }
  const std::vector<Expr> adjoints = recording.graph->vjp(recording.gradient_nodes(), directions, leaves);
  Functional functional(*recording.graph, recording.gradient_nodes(), values);
  set_inputs(functional, recording, data);
  for (std::size_t k = 0; k < directions.size(); ++k) functional.set(directions[k], values[k]);
  for (const auto& [name, leaf] : recording.cotangents) functional.set(leaf, weights(name, leaf.shape().count(), seed));
  FormulaCertificate out;
  for (std::size_t k = 0; k < leaves.size(); ++k)
    certify_leaf(functional, leaves[k], adjoints[k], {.form = form.name, .input = names[k]}, samples, seed, out);
  out.conclude();
  return out;
}

}  // namespace ampcheck::reference
