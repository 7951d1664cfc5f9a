// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/further_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>

#include "checks/case/case_run.h"
#include "checks/case/form_comparison.h"
#include "checks/case/row_part.h"
#include "checks/explain/departures.h"
#include "checks/explain/diagnosis.h"
#include "checks/explain/error_field.h"
#include "checks/explain/formula_change.h"
#include "checks/explain/odds.h"
#include "checks/explain/places.h"
#include "reference/replay/replay.h"
#include "src/error.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kLargest = 1 << 14;  ///< elements of a tensor

/// Nine of ten wrong elements, and nearly all others, are right for these intervals; what the declared ones admit as
/// well shows nothing.
bool admitted_by(const std::vector<Interval>& forms, const WrongTensor& wrong) {
  const auto right = [&](std::int64_t i) {
    return std::any_of(forms.begin(), forms.end(), [&](const Interval& form) {
      return !unjudged(form, static_cast<std::size_t>(i)) && admits(form, i, wrong.got[static_cast<std::size_t>(i)]);
    });
  };
  std::vector<double> others(forms.back().value.begin(), forms.back().value.end());
  round_values(format(wrong.tensor.dtype), RoundingMode{}, others, others);
  std::int64_t outside = 0, telling = 0, all = 0;
  for (const std::int64_t i : wrong.comparison.outside) {
    outside += right(i);
    telling += !admits(wrong.interval, i, others[static_cast<std::size_t>(i)]);
  }
  const std::int64_t most = std::ssize(wrong.comparison.outside);
  if (10 * outside < 9 * most || 2 * telling < most) return false;
  for (std::int64_t i = 0; i < std::ssize(wrong.got); ++i) all += right(i);
  return 20 * all >= 19 * std::ssize(wrong.got);
}

/// Whether the tensor is right for this call and these inputs.
bool right_for(const WrongTensor& wrong, const OpCall& call, NamedValues inputs) {
  try {
    CaseReference other(wrong.run.op, call, std::move(inputs), wrong.run.options.device);
    if (!(CaseReference::shape_of(nodes_of(other.recording(), wrong.pass), wrong.tensor.name) == wrong.tensor.shape))
      return false;
    if (wrong.pass != Pass::forward) {
      for (const auto& [name, node] : other.recording().cotangents)
        if (const auto given = wrong.run.reference.cotangents().find(name);
            given == wrong.run.reference.cotangents().end() || std::ssize(given->second) != node.shape().count())
          return false;
      other.set_cotangents(wrong.run.reference.cotangents());
    }
    std::vector<Interval> forms;
    for (const std::size_t form : other.forms()) {
      forms.push_back(other.interval(form, wrong.pass, wrong.tensor.name, wrong.tensor.dtype));
      if (admitted_by(forms, wrong)) return true;
    }
  } catch (const std::exception&) {  // no such call
  }
  return false;
}

std::string value_text(const AttributeValue& value) {
  if (const double* number = std::get_if<double>(&value)) return number_text(*number);
  return std::get<std::string>(value);
}

/// What kernels make of indices by mistake; of an index that leaves its range the next one inside.
struct Slip {
  const char* words;
  std::int64_t (*of)(std::int64_t index, std::int64_t position, const std::vector<double>& all);
};
constexpr Slip kSlips[] = {
    {"its indices cut to 8 bits: they overflow",
     [](std::int64_t v, std::int64_t, const std::vector<double>&) { return v & 0xff; }},
    {"its indices cut to 8 bits with a sign: they overflow",
     [](std::int64_t v, std::int64_t, const std::vector<double>&) {
       return std::int64_t{static_cast<std::int8_t>(v)};
     }},
    {"its indices cut to 16 bits: they overflow",
     [](std::int64_t v, std::int64_t, const std::vector<double>&) { return v & 0xffff; }},
    {"each index plus 1: another row", [](std::int64_t v, std::int64_t, const std::vector<double>&) { return v + 1; }},
    {"each index less 1: another row", [](std::int64_t v, std::int64_t, const std::vector<double>&) { return v - 1; }},
    {"the first index for all: another row",
     [](std::int64_t, std::int64_t, const std::vector<double>& all) { return static_cast<std::int64_t>(all.front()); }},
    {"the next index: another row's",
     [](std::int64_t, std::int64_t at, const std::vector<double>& all) {
       return static_cast<std::int64_t>(all[static_cast<std::size_t>(at + 1) % all.size()]);
     }},
    {"the previous index: another row's",
     [](std::int64_t, std::int64_t at, const std::vector<double>& all) {
       return static_cast<std::int64_t>(all[(static_cast<std::size_t>(at) + all.size() - 1) % all.size()]);
     }},
    {"index 0 for the negative ones: a sentinel is followed",
     [](std::int64_t v, std::int64_t, const std::vector<double>&) { return std::max<std::int64_t>(v, 0); }},
    {"the largest one less 1: clamped one too early, another row",
     [](std::int64_t v, std::int64_t, const std::vector<double>& all) {
       return std::min(v, static_cast<std::int64_t>(*std::max_element(all.begin(), all.end())) - 1);
     }},
    {"their positions in place of the indices",
     [](std::int64_t, std::int64_t at, const std::vector<double>&) { return at; }},
};

}  // namespace

std::string right_for_another_call(const WrongTensor& wrong) {
  if (wrong.pass == Pass::jvp || wrong.pass == Pass::backward_at_saved || wrong.tensor.shape.count() > kLargest ||
      wrong.tensor.saved || wrong.run.accumulates(wrong.tensor.name))
    return "";
  const OpSignature& signature = wrong.run.op.signature;
  const NamedValues& inputs = wrong.run.reference.inputs();
  for (const AttributeSpec& spec : signature.attributes) {
    std::vector<AttributeValue> values{spec.default_value};
    values.insert(values.end(), spec.other_values.begin(), spec.other_values.end());
    if (std::holds_alternative<double>(spec.default_value)) values.emplace_back(0.0);
    const std::string present = value_text(wrong.run.call.attributes.all().at(spec.name));
    for (const AttributeValue& value : values) {
      if (value_text(value) == present) continue;
      OpCall call = wrong.run.call;
      call.attributes.set(spec.name, value);
      if (signature.valid && !signature.valid(call.dims, call.attributes)) continue;
      if (right_for(wrong, call, inputs))
        return fmt::format("right for {}={} in place of {}: the attribute is not followed", spec.name,
                           value_text(value), present);
    }
  }
  for (const TensorSpec& spec : signature.inputs) {
    if (spec.optional && wrong.run.call.has(spec)) {
      OpCall call = wrong.run.call;
      call.absent.push_back(spec.name);
      NamedValues others = inputs;
      others.erase(spec.name);
      if (right_for(wrong, call, others))
        return fmt::format("right for a call without '{}': the optional input is left out", spec.name);
    }
    if (!wrong.run.call.has(spec) || (spec.role != Role::index && spec.role != Role::target)) continue;
    const auto bound = wrong.run.call.dims.find(spec.index_dim);
    const std::vector<double>& given = inputs.at(spec.name);
    for (const Slip& slip : kSlips) {
      NamedValues others = inputs;
      std::vector<double>& index = others.at(spec.name);
      for (std::size_t i = 0; i < index.size(); ++i) {
        const std::int64_t most = bound == wrong.run.call.dims.end() ? INT64_MAX : bound->second - 1,
                           slipped = slip.of(static_cast<std::int64_t>(given[i]), static_cast<std::int64_t>(i), given);
        index[i] = static_cast<double>(
            std::clamp<std::int64_t>(slipped, std::min<std::int64_t>(0, static_cast<std::int64_t>(given[i])), most));
      }
      if (index != given && right_for(wrong, wrong.run.call, std::move(others)))
        return fmt::format("right for '{}' with {}", spec.name, slip.words);
    }
  }
  return "";
}

namespace {

using reference::Expr;
using reference::Node;
using reference::Primitive;

/// A node with the numbers that an equal algebra gives in fp32, from those of its operands.
struct Substitute {
  int id;
  std::vector<Expr> operands;
  std::function<std::vector<double>(const std::vector<std::vector<double>>&)> values;
  const char* words;
};

int below(const reference::Graph& graph, int id) {
  for (;; id = graph.node(id).args[0]) {
    const Primitive p = graph.node(id).primitive;
    if (p != Primitive::stored && p != Primitive::reshape && p != Primitive::stop_gradient &&
        p != Primitive::no_gradient && p != Primitive::own_adjoint)
      return id;
  }
}

/// A function of each number, in fp32.
std::function<std::vector<double>(const std::vector<std::vector<double>>&)> each(float (*f)(float)) {
  return [f](const std::vector<std::vector<double>>& of) {
    std::vector<double> out;
    for (const double v : of[0]) out.push_back(static_cast<double>(f(static_cast<float>(v))));
    return out;
  };
}

float tanh_by_exp(float x) {
  const float e = std::exp(-2 * x);
  return (1 - e) / (1 + e);
}

/// E[x^2] - m^2 along the axis of a sum of squares of centred numbers.
std::vector<double> one_pass(const std::vector<double>& x, const Shape& shape, int axis) {
  std::int64_t inner = 1, n = shape[axis];
  for (int k = axis + 1; k < shape.rank; ++k) inner *= shape[k];
  const std::int64_t outer = n == 0 ? 0 : shape.count() / (n * inner);
  std::vector<double> out;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      float sum = 0, squares = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        const auto v = static_cast<float>(x[static_cast<std::size_t>((o * n + k) * inner + i)]);
        sum += v;
        squares += v * v;
      }
      const auto count = static_cast<float>(n), mean = sum / count;
      out.push_back(static_cast<double>((squares / count - mean * mean) * count));
    }
  return out;
}

bool is_mean_of(const reference::Graph& graph, int mean, int x) {
  const Node& share = graph.node(below(graph, mean));
  if (share.primitive != Primitive::mul && share.primitive != Primitive::div) return false;
  const Node& sum = graph.node(below(graph, share.args[0]));
  return sum.primitive == Primitive::sum && below(graph, sum.args[0]) == below(graph, x);
}

std::vector<Substitute> substitutes(const reference::Graph& graph) {
  std::vector<Substitute> out;
  const auto at = [&](int id) { return Expr{const_cast<reference::Graph*>(&graph), id}; };
  for (int id = 0; id < static_cast<int>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    const auto function = [&](auto of, const char* words) { out.push_back({id, {at(node.args[0])}, of, words}); };
    switch (node.primitive) {
      case Primitive::tanh:
        function(each(tanh_by_exp), "tanh as (1 - exp(-2x)) / (1 + exp(-2x)): it cancels near zero");
        break;
      case Primitive::log1p:
        function(each([](float x) { return std::log(1 + x); }), "log(1 + v) for log1p(v): it cancels near zero");
        break;
      case Primitive::expm1:
        function(each([](float x) { return std::exp(x) - 1; }), "exp(v) - 1 for expm1(v): it cancels near zero");
        break;
      case Primitive::erfc:
        function(each([](float x) { return 1 - std::erf(x); }),
                 "1 - erf(v) for erfc(v): it cancels where erf is near 1");
        break;
      case Primitive::erf:
        function(each([](float x) { return 1 - std::erfc(x); }), "1 - erfc(v) for erf(v): it cancels near zero");
        break;
      case Primitive::stop_gradient:
        function([](const std::vector<std::vector<double>>& of) { return std::vector<double>(of[0].size(), 0.0); },
                 "exp(v) without subtracting the maximum: it overflows for large v, and otherwise loses digits");
        break;
      case Primitive::sum: {
        const Node& squared = graph.node(below(graph, node.args[0]));
        const bool square = squared.primitive == Primitive::square ||
                            (squared.primitive == Primitive::mul && squared.args[0] == squared.args[1]);
        if (!square) break;
        const Node& centred = graph.node(below(graph, squared.args[0]));
        if (centred.primitive != Primitive::sub || !(graph.node(centred.args[0]).shape == centred.shape) ||
            !(graph.node(node.args[0]).shape == centred.shape))
          break;
        if (!is_mean_of(graph, centred.args[1], centred.args[0])) break;
        const Shape shape = centred.shape;
        const int axis = node.axis;
        out.push_back(
            {id,
             {at(centred.args[0])},
             [shape, axis](const std::vector<std::vector<double>>& of) { return one_pass(of[0], shape, axis); },
             "the one pass variance E[x^2] - mean^2: it cancels"});
        break;
      }
      default: break;
    }
  }
  return out;
}

/// The same elements wrong, by about as much.
bool wrong_alike(const std::vector<double>& replay, const WrongTensor& wrong) {
  std::int64_t also = 0, besides = 0;
  std::vector<double> ratios;
  std::vector<char> outside(replay.size(), 0);
  for (const std::int64_t i : wrong.comparison.outside) outside[static_cast<std::size_t>(i)] = 1;
  for (std::int64_t i = 0; i < std::ssize(replay); ++i) {
    const auto k = static_cast<std::size_t>(i);
    const bool out = !admits(wrong.interval, i, replay[k]);
    if (!outside[k])
      besides += out;
    else if (out) {
      ++also;
      const double error = std::fabs(wrong.got[k] - wrong.interval.value[k]),
                   his = std::fabs(replay[k] - wrong.interval.value[k]);
      ratios.push_back(std::isfinite(error) && std::isfinite(his)   ? error / his
                       : std::isfinite(error) == std::isfinite(his) ? 1.0
                                                                    : HUGE_VAL);
    }
  }
  if (2 * also < std::ssize(wrong.comparison.outside) || 2 * besides > std::max<std::int64_t>(also, 1)) return false;
  std::nth_element(ratios.begin(), ratios.begin() + std::ssize(ratios) / 2, ratios.end());
  const double middle = ratios[ratios.size() / 2];
  return middle > 1.0 / 8 && middle < 8;
}

}  // namespace

std::string unstable_algebra(const WrongTensor& wrong) {
  if (wrong.pass == Pass::jvp || wrong.pass == Pass::backward_at_saved || wrong.tensor.shape.count() > kLargest ||
      wrong.run.accumulates(wrong.tensor.name))
    return "";
  for (const std::size_t form : wrong.run.reference.forms()) {
    const reference::Recording& recording = wrong.run.reference.recording(form);
    Leaves leaves;
    for (const auto& [name, node] : recording.inputs) leaves.emplace_back(node, wrong.run.reference.inputs().at(name));
    if (wrong.pass != Pass::forward)
      for (const auto& [name, node] : recording.cotangents)
        leaves.emplace_back(node, wrong.run.reference.cotangents().at(name));
    Expr target;
    for (const auto& [name, node] : nodes_of(recording, wrong.pass))
      if (name == wrong.tensor.name) target = node;
    if (const auto saved = recording.stored.find(wrong.tensor.name);
        wrong.pass == Pass::forward && saved != recording.stored.end())
      target = saved->second;
    if (!target.defined()) continue;
    for (const Substitute& other : substitutes(*recording.graph)) {
      if (other.id > target.id) break;
      Leaves with = leaves;
      with.emplace_back(Expr{target.graph, other.id},
                        other.values(reference::replay(*recording.graph, leaves, other.operands, {})));
      std::vector<double> replay = reference::replay(*recording.graph, with, {target}, {}).front();
      round_values(format(wrong.tensor.dtype), RoundingMode{}, replay, replay);
      if (wrong_alike(replay, wrong)) return std::string("the errors are those of ") + other.words;
    }
  }
  return "";
}

namespace {

/// A named tensor of the shape of the wrong one.
struct Variable {
  std::string name;
  const std::vector<double>* values;
};

/// What the kernel has at the wrong elements, if it is one number, or a tensor itself.
std::string plateau(const WrongTensor& wrong, const std::vector<Variable>& variables) {
  std::set<double> values;
  for (const std::int64_t i : wrong.comparison.outside) values.insert(wrong.got[static_cast<std::size_t>(i)]);
  const FloatFormat& f = format(wrong.tensor.dtype);
  const auto equals = [&](const std::vector<double>& v) {
    return std::all_of(wrong.comparison.outside.begin(), wrong.comparison.outside.end(), [&](std::int64_t i) {
      const double got = wrong.got[static_cast<std::size_t>(i)];
      return got == 0 || ulp_distance(f, got, v[static_cast<std::size_t>(i)]) <= 1;
    });
  };
  if (values.size() <= 2 && wrong.comparison.outside.size() > values.size()) {
    std::string text;
    for (const double v : values) text += (text.empty() ? "" : " or ") + number_text(v);
    return ", and always " + text + " there: it saturates";
  }
  for (const Variable& v : variables)
    if (equals(*v.values)) return fmt::format(", and {} or 0 there: it saturates", v.name);
  return "";
}

/// Inputs and cotangents of the shape of the wrong tensor.
std::vector<Variable> variables_of(const WrongTensor& wrong) {
  const std::size_t n = wrong.got.size();
  const CaseRun& run = wrong.run;
  std::vector<Variable> out;
  for (const auto& [name, values] : wrong.run.reference.inputs())
    if (values.size() == n && is_float(run.call.dtype(*run.op.signature.input(name)))) out.push_back({name, &values});
  if (wrong.pass == Pass::forward) return out;
  for (const auto& [name, values] : wrong.run.reference.cotangents())
    if (values.size() == n) out.push_back({name, &values});
  return out;
}

/// The end of the narrowest range of a function of a variable, from it on or up to it, that holds all wrong elements;
/// nothing where it holds too many right ones.
template <class F>
std::optional<double> end_of(const std::vector<double>& values, const std::vector<char>& is_wrong, F f, bool beyond) {
  double end = beyond ? HUGE_VAL : -HUGE_VAL;
  std::size_t outside = 0, right = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (is_wrong[i]) {
      end = beyond ? std::min(end, f(values[i])) : std::max(end, f(values[i]));
      ++outside;
    }
  for (std::size_t i = 0; i < values.size(); ++i)
    right += !is_wrong[i] && (beyond ? f(values[i]) >= end : f(values[i]) <= end);
  return std::isnan(end) || 10 * right > outside ? std::nullopt : std::optional(end);
}

}  // namespace

std::string data_condition(const WrongTensor& wrong) {
  constexpr double kFewestBits = 10;
  const std::size_t n = wrong.got.size(), outside = wrong.comparison.outside.size();
  if (std::ssize(wrong.got) > (1 << 18) || bits_of_choice(n, outside) < kFewestBits) return "";
  if (10 * outside > 9 * n) return "";  // the few that are right are small, or right by chance
  const std::vector<Variable> variables = variables_of(wrong);
  std::vector<char> is_wrong(n, 0);
  for (const std::int64_t i : wrong.comparison.outside) is_wrong[static_cast<std::size_t>(i)] = 1;
  for (const Variable& v : variables) {
    const auto size = [](double x) { return std::fabs(x); };
    const auto self = [](double x) { return x; };
    const auto only = [&](auto f, bool beyond) { return end_of(*v.values, is_wrong, f, beyond); };
    const auto words = [&](const std::string& where) {
      return fmt::format("only where {}{}", where, plateau(wrong, variables));
    };
    const std::optional<double> smallest = only(size, false);
    if (smallest && *smallest == 0) return fmt::format("only where {} is zero", v.name);
    if (const auto end = only(size, true)) return words(fmt::format("|{}| >= {:.4g}", v.name, *end));
    if (const auto end = only(self, true)) return words(fmt::format("{} >= {:.4g}", v.name, *end));
    if (const auto end = only(self, false)) return words(fmt::format("{} <= {:.4g}", v.name, *end));
    if (smallest) return words(fmt::format("|{}| <= {:.4g}", v.name, *smallest));
  }
  return "";
}

std::string few_digits(const WrongTensor& wrong, bool& of_function) {
  constexpr double kLargestError = 0x1p-6;
  constexpr std::size_t kFewest = 8;  // below, either sign may be chance
  constexpr double kFewUlps = 2;
  std::vector<double> errors;
  std::int64_t up = 0;
  bool ulps = bytes(wrong.tensor.dtype) < 4;
  for (const std::int64_t i : wrong.comparison.outside) {
    const auto k = static_cast<std::size_t>(i);
    const double error = wrong.got[k] / wrong.interval.value[k] - 1;
    if (!std::isfinite(error)) return "";
    errors.push_back(std::fabs(error));
    up += error > 0;
    std::vector<double> nearest{wrong.interval.value[k]};
    round_values(format(wrong.tensor.dtype), RoundingMode{}, nearest, nearest);
    ulps &= ulp_distance(format(wrong.tensor.dtype), wrong.got[k], nearest[0]) <= kFewUlps;
  }
  const std::string another = fmt::format(
      "off by at most {} ulp of {}, on {} of {} elements: as of an intermediate that is rounded to 16 bits on the way",
      kFewUlps, ampcheck::name(wrong.tensor.dtype), errors.size(), wrong.got.size());
  if (errors.size() < 4 || wrong.tensor.saved) return ulps ? another : "";
  const double most = *std::max_element(errors.begin(), errors.end());
  if (most > kLargestError) return "";
  const reference::Recording& recording = wrong.run.reference.recording(wrong.run.reference.forms().front());
  std::vector<std::string> functions;
  for (const Node& node : recording.graph->nodes()) {
    const Primitive p = node.primitive;
    const bool function = (p >= Primitive::exp && p <= Primitive::sigmoid) || p == Primitive::div;
    const std::string name = p == Primitive::div ? "reciprocal" : reference::name(p);
    if (function && std::find(functions.begin(), functions.end(), name) == functions.end()) functions.push_back(name);
  }
  if (functions.empty()) return ulps ? another : "";
  const auto all = static_cast<std::int64_t>(errors.size());
  of_function = errors.size() >= kFewest && 5 * up >= all && 5 * up <= 4 * all &&
                functions != std::vector<std::string>{"reciprocal"};
  if (ulps) return another + fmt::format(", or of a fast or approximate {}", fmt::join(functions, " or "));
  std::string words =
      fmt::format("errors of up to {:.2g} of the value, on {} of {} elements: as of a fast or approximate {}", most,
                  errors.size(), wrong.got.size(), fmt::join(functions, " or "));
  if (!of_function) return words;
  double square = 0;
  for (const double error : errors) square += error * error / static_cast<double>(errors.size());
  const auto with_such_errors = [&](std::size_t i) {
    return Expected{wrong.interval.value[i], std::sqrt(square) * std::fabs(wrong.interval.value[i])};
  };
  return words + " " +
         against(wrong.run.op.signature.precision.math.name, log10_odds(wrong.interval, wrong.got, with_such_errors));
}

namespace {

std::string joined(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + "; " + b; }

/// A wrong tensor's rows that stand for all of it, where there are such.
struct Standing {
  std::unique_ptr<RowPart> part;
  const WrongTensor& whole;

  explicit Standing(const WrongTensor& wrong) : part(some_rows(wrong)), whole(wrong) {}
  /// Of these rows, or else the whole.
  WrongTensor rows() const { return part ? part->wrong(whole.pass) : whole; }
};

/// Words, and the code of a contract, if a fast or approximate function gives all of the numbers.
std::string fast_function(const Standing& standing, Notes& notes, CheckResult& check) {
  const WrongTensor& wrong = standing.whole;
  if (off_by_one_factor(wrong)) return "";
  const std::tuple refuted(wrong.tensor.name, wrong.pass, true);
  if (notes.no_departure.contains(refuted)) return "";
  Departed departed = explained_by_departure(standing.rows(), true, notes.departures);
  if (departed.refuted) notes.no_departure.insert(refuted);
  if (standing.part && departed.code != Code::none) departed = explained_by_departure(wrong, true, notes.departures);
  if (departed.code == Code::none) return "";
  notes.departures.insert(departed.departure);
  check.find(departed.code);
  check.cause.clear();
  return departed.words;
}

/// Of a tensor whose values are wrong and finite: the first of these that says something.
std::string further_cause(const WrongTensor& wrong, Notes& notes, CheckResult& check) {
  const Standing standing(wrong);
  for (const auto& hypothesis : {unstable_algebra, right_for_another_call})
    if (const std::string words = hypothesis(standing.rows()); !words.empty()) return words;
  for (const auto& hypothesis : {transposed, zero_where, outer_product})
    if (const std::string words = hypothesis(wrong); !words.empty()) return words;
  if (const std::string words = fast_function(standing, notes, check); !words.empty()) return words;
  if (const std::string words = data_condition(wrong); !words.empty()) return words;
  bool of_function = false;
  const std::string words = few_digits(wrong, of_function);
  if (!words.empty() && of_function) check.find(Code::ac304);
  return words;
}

/// Of a tensor that holds NaN or infinity.
std::string cause_of_non_finite(const WrongTensor& whole) {
  const Standing standing(whole);
  const WrongTensor wrong = standing.rows();
  const Replayed changed = explained_by_change(wrong);
  if (changed.kind != Replayed::Kind::none) return changed.words;
  const std::string dropped = dropped_terms(wrong);
  return dropped.empty() ? unstable_algebra(wrong) : dropped;
}

/// By the code of a check; it may become another one.
std::string cause_of(const WrongTensor& wrong, Notes& notes, CheckResult& check) {
  if (check.code == Code::ac102) return cause_of_non_finite(wrong);
  if (check.code == Code::ac101) return further_cause(wrong, notes, check);
  const std::string words = explained_by_low_accumulation(wrong);
  if (!words.empty()) {
    check.find(Code::ac301);
    check.cause.clear();
  }
  return words;
}

bool explained_by_replays(const Notes& notes, const std::string& tensor) {
  const auto replayed = notes.replayed.find(tensor);
  return replayed != notes.replayed.end() && replayed->second.back().kind != Replayed::Kind::none;
}

void explain_one(CaseRun& run, const Subject& subject, Pass pass, Notes& notes, CheckResult& check) {
  if (check.failed == 0 || (!is_wrong_number(check.code) && check.code != Code::ac408)) return;
  const Written& tensor = *subject.tensor;
  const Code code = check.code;
  const auto known = notes.further.find({code, tensor.name});  // two probes of a tensor say the same
  if (known != notes.further.end()) {
    check.cause = joined(check.cause, known->second);
    return;
  }
  if (code == Code::ac101 && explained_by_replays(notes, tensor.name)) return;
  const std::vector<double> held =
      pass != Pass::forward && run.accumulates(tensor.name) ? run.held(tensor) : std::vector<double>();
  const std::vector<double> got = to_doubles(subject.got);
  const FormComparison with_forms = compare_with_forms(run, tensor, pass, got, held);
  const WrongTensor wrong{run, tensor, pass, got, with_forms.nearest, with_forms.comparison};
  if (wrong.comparison.outside.empty() || (code == Code::ac101 && all_zero(got))) return;
  std::string words;
  try {
    words = cause_of(wrong, notes, check);
  } catch (const Error& error) {  // the verdict stands without a cause
    check.note = joined(check.note, fmt::format("no cause was looked for: {}", error.what()));
  }
  check.verdict = text_of(check.code).verdict;
  if (code == check.code && !words.empty())
    notes.further[{code, tensor.name}] = words;  // another verdict is shown probe by probe
  check.cause = joined(check.cause, words);
}

}  // namespace

void explain_further(CaseRun& run, const std::vector<Subject>& subjects, Pass pass, Notes& notes,
                     std::vector<CheckResult>& checks) {
  if (!run.options.explain) return;
  for (std::size_t k = 0; k < checks.size(); ++k) explain_one(run, subjects[k], pass, notes, checks[k]);
}

void quote_causes(std::vector<CheckResult>& checks) {
  for (CheckResult& broken : checks) {
    // Of a probe's values no other check is asked.
    if (broken.verdict != Verdict::structural || broken.code == Code::none || broken.id.probe >= 0) continue;
    const auto values = std::find_if(checks.begin(), checks.end(), [&](const CheckResult& c) {
      return is_wrong_number(c.code) && !c.cause.empty() && c.id.tensor == broken.id.tensor;
    });
    if (values != checks.end()) broken.cause += "; its values: " + values->cause;
  }
}

}  // namespace ampcheck::checks
