// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/unstable_algebra.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>

#include "checks/case/case_run.h"
#include "reference/replay/replay.h"
#include "src/rounding.h"

namespace ampcheck::checks {

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
  bool each = false;  ///< of each number by itself: then the kernel's numbers are near to the replay's
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
float tanh_by_sigmoid(float x) { return 2 / (1 + std::exp(-2 * x)) - 1; }

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

/// Of a sum of squares of centred numbers.
std::optional<Substitute> one_pass_variance(const reference::Graph& graph, int id) {
  const Node& node = graph.node(id);
  const Node& squared = graph.node(below(graph, node.args[0]));
  const bool square = squared.primitive == Primitive::square ||
                      (squared.primitive == Primitive::mul && squared.args[0] == squared.args[1]);
  if (!square) return std::nullopt;
  const Node& centred = graph.node(below(graph, squared.args[0]));
  if (centred.primitive != Primitive::sub || !(graph.node(centred.args[0]).shape == centred.shape) ||
      !(graph.node(node.args[0]).shape == centred.shape))
    return std::nullopt;
  if (!is_mean_of(graph, centred.args[1], centred.args[0])) return std::nullopt;
  const Shape shape = centred.shape;
  const int axis = node.axis;
  return Substitute{id,
                    {Expr{const_cast<reference::Graph*>(&graph), centred.args[0]}},
                    [shape, axis](const std::vector<std::vector<double>>& of) { return one_pass(of[0], shape, axis); },
                    "the one pass variance E[x^2] - mean^2: it cancels"};
}

std::vector<Substitute> substitutes(const reference::Graph& graph) {
  std::vector<Substitute> out;
  const auto at = [&](int id) { return Expr{const_cast<reference::Graph*>(&graph), id}; };
  for (int id = 0; id < static_cast<int>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    const auto function = [&](auto of, const char* words) { out.push_back({id, {at(node.args[0])}, of, words}); };
    const auto itself = [&](float (*of)(float), const char* words) {
      out.push_back({id, {at(id)}, each(of), words, true});
    };
    switch (node.primitive) {
      case Primitive::tanh:
        function(each(tanh_by_exp), "tanh as (1 - exp(-2x)) / (1 + exp(-2x)): it cancels near zero");
        function(each(tanh_by_sigmoid), "tanh as 2 sigmoid(2x) - 1: it cancels near zero");
        break;
      case Primitive::exp:
        itself([](float v) { return (v - 1) + 1; },
               "exp(v) as (exp(v) - 1) + 1, as from an output that holds exp(v) - 1: it cancels where exp(v) is small");
        itself([](float v) { return (1 + v) - 1; }, "exp(v) as (1 + exp(v)) - 1: it cancels where exp(v) is small");
        break;
      case Primitive::sigmoid:
        itself([](float v) { return 1 - (1 - v); }, "s as 1 - (1 - s) of a sigmoid: it cancels where s is small");
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
      case Primitive::sum:
        if (auto one = one_pass_variance(graph, id)) out.push_back(std::move(*one));
        break;
      default: break;
    }
  }
  return out;
}

/// The same elements wrong, by about as much. `nearer`: most of them nearer to the replay than to the right value.
bool wrong_alike(const std::vector<double>& replay, const WrongTensor& wrong, bool nearer) {
  std::int64_t also = 0, besides = 0, near = 0;
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
      near += replay[k] != 0 && 2 * std::fabs(wrong.got[k] - replay[k]) <= error;  // zero has many causes
      ratios.push_back(std::isfinite(error) && std::isfinite(his)   ? error / his
                       : std::isfinite(error) == std::isfinite(his) ? 1.0
                                                                    : HUGE_VAL);
    }
  }
  if (2 * also < std::ssize(wrong.comparison.outside) || 2 * besides > std::max<std::int64_t>(also, 1)) return false;
  if (nearer && 4 * near < 3 * also) return false;
  std::nth_element(ratios.begin(), ratios.begin() + std::ssize(ratios) / 2, ratios.end());
  const double middle = ratios[ratios.size() / 2];
  return middle > 1.0 / 8 && middle < 8;
}

}  // namespace

std::string unstable_algebra(const WrongTensor& wrong) {
  if (wrong.pass == Pass::jvp || wrong.pass == Pass::backward_at_saved ||
      wrong.tensor.shape.count() > kLargestExplained || wrong.run.accumulates(wrong.tensor.name))
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
      if (wrong_alike(replay, wrong, other.each)) return std::string("the errors are those of ") + other.words;
    }
  }
  return "";
}

}  // namespace ampcheck::checks
