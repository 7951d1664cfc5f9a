// SPDX-License-Identifier: Apache-2.0
// Changes of exponentials and of what is made of them: sums that are rescaled as the maximum grows, logarithms of
// probabilities, scores that a mask hides by a finite number.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/graph/row_plan.h"
#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"
#include "src/rounding.h"

namespace ampcheck::reference {

namespace {

/// Bits of choice among the changes of a kind, about.
constexpr double kOfRescalings = 6, kOfProbabilities = 4;

/// By what the sum of the blocks before is multiplied when the maximum grows by -d.
struct Rescaling {
  const char* words;
  double (*of)(double d);
};
constexpr Rescaling kRescalings[] = {
    {"rescaled by 2^(old - new) for e^(old - new), another base,", [](double d) { return std::exp2(d); }},
    {"rescaled by e^(new - old), the inverse factor,", [](double d) { return std::exp(-d); }},
    {"rescaled twice", [](double d) { return std::exp(2 * d); }},
    {"rescaled by e^((old - new)/2), half the shift,", [](double d) { return std::exp(d / 2); }},
    {"lost", [](double d) { return d < 0 ? 0.0 : 1.0; }},
};

}  // namespace

void FormulaChanges::rescaled_sums(int id) {
  const Node& node = graph_.node(id);
  if (node.primitive != Primitive::exp) return;
  const Node& shifted = graph_.node(below(node.args[0]));
  if (shifted.primitive != Primitive::sub) return;
  const Node& shift = graph_.node(below(shifted.args[1]));
  if (shift.primitive != Primitive::max || graph_.node(shift.args[0]).shape.count() != node.shape.count()) return;
  const Axis a = split(graph_.node(shift.args[0]).shape, shift.axis);
  const Values from = values(shift.args[0]);
  for (const std::int64_t block : {1, 2, 4, 8, 16, 32, 64}) {
    if (block >= a.n) break;
    for (const Rescaling& rescaling : kRescalings) {
      if (!going_) return;
      // What each term weighs in the end.
      Values weights(from.size(), 0.0);
      for (std::int64_t line = 0; line < a.outer * a.inner; ++line) {
        const auto at = [&](std::int64_t k) {
          return static_cast<std::size_t>(line / a.inner * a.n * a.inner + line % a.inner + k * a.inner);
        };
        double most = -HUGE_VAL;
        for (std::int64_t first = 0; first < a.n; first += block) {
          const std::int64_t end = std::min(a.n, first + block);
          double next = most;
          for (std::int64_t k = first; k < end; ++k) next = std::max(next, from[at(k)]);
          const double factor = first == 0 ? 1 : rescaling.of(most - next);
          for (std::int64_t k = 0; k < first; ++k) weights[at(k)] *= factor;
          for (std::int64_t k = first; k < end; ++k) weights[at(k)] = std::exp(from[at(k)] - next);
          most = next;
        }
      }
      const std::string words =
          fmt::format("with a running sum of {}, of blocks of {}, that is {} when the maximum grows", text(id), block,
                      rescaling.words);
      for (std::size_t user = static_cast<std::size_t>(id) + 1; user < needed_.size(); ++user) {
        const Node& total = graph_.node(static_cast<int>(user));
        if (needed_[user] && total.primitive == Primitive::sum && below(total.args[0]) == id)
          with(static_cast<int>(user),
               weighted(
                   weights, graph_.node(total.args[0]).shape, total.axis,
                   std::vector<double>(static_cast<std::size_t>(graph_.node(total.args[0]).shape[total.axis]), 1.0)),
               chosen(words, kOfRescalings));
      }
      with(id, std::move(weights), chosen(words + ", and so are the terms", kOfRescalings));
    }
  }
}

void FormulaChanges::logarithm_of_probability(int id) {
  const Node& node = graph_.node(id);
  if (node.primitive != Primitive::sub && node.primitive != Primitive::add) return;
  const auto is_log = [&](std::size_t k) { return graph_.node(below(node.args[k])).primitive == Primitive::log; };
  const bool negative = node.primitive == Primitive::add;  // log(sum) - z, of a loss
  if (negative ? !is_log(0) && !is_log(1) : !is_log(1)) return;
  const std::string what = fmt::format("{}the probability of {}", negative ? "- " : "", text(id));
  const auto say = [&](auto of, Change change) {
    const double sign = negative ? -1 : 1;
    with(id, map(values(id), [&](double v) { return sign * of(std::exp(sign * v)); }), std::move(change));
  };
  std::set<double> constants = eps_;
  constants.insert({1e-4, 1e-3, 1e-30, 1e-38});
  for (const double eps : constants) {
    say([=](double p) { return std::log(p + eps); },
        chosen(fmt::format("with the logarithm of {} with an eps of {} added", what, eps), kOfProbabilities));
    say([=](double p) { return std::log(std::max(p, eps)); },
        chosen(fmt::format("with the logarithm of {} clipped at {}: a floor", what, eps), kOfProbabilities));
  }
  for (const Narrow& low : narrows(false))
    say(
        [&](double p) {
          Values rounded{p};
          round_values(*low.format, {.rounding = low.rounding}, rounded, rounded);
          return std::log(rounded[0]);
        },
        Change{.words = fmt::format("keeps {} in {}", what, low.words), .narrowed = low.format});
}

void FormulaChanges::floored(int id, const std::string& what, const std::function<double(double)>& of,
                             const Values& argument) {
  for (const double eps : eps_)
    with(id, map(argument, [&](double v) { return of(std::max(v, eps)); }),
         fmt::format("with at least {} for {}: it is clipped, a floor", eps, what));
}

void FormulaChanges::approximated(int id) {
  // The exponential inside a function, as kernels compute it.
  const Node& node = graph_.node(id);
  const Primitive p = node.primitive;
  if (p != Primitive::sigmoid && p != Primitive::tanh && p != Primitive::expm1) return;
  const std::string what = text(id);
  for (const Narrow& low : narrows(false)) {
    const auto say = [&](const char* part, auto of) {
      with(id, map(values(node.args[0]), of),
           Change{.words = fmt::format("keeps {} of {} in {}", part, what, low.words), .narrowed = low.format});
    };
    const auto cut = [&](double v) {
      Values rounded{v};
      round_values(*low.format, {.rounding = low.rounding}, rounded, rounded);
      return rounded[0];
    };
    const double times = p == Primitive::tanh ? 2 : 1;
    const auto whole = [p](double e, double sum) {
      return p == Primitive::tanh ? 1 - 2 / sum : p == Primitive::expm1 ? e - 1 : 1 / sum;
    };
    const double sign = p == Primitive::sigmoid ? -1 : 1;
    say("the exponential", [&](double v) {
      const double e = cut(std::exp(sign * times * v));
      return whole(e, 1 + e);
    });
    if (p == Primitive::expm1) continue;
    say("the sum 1 + e^v", [&](double v) {
      const double e = std::exp(sign * times * v);
      return whole(e, cut(1 + e));
    });
    say("the exponential and the sum", [&](double v) {
      const double e = cut(std::exp(sign * times * v));
      return whole(e, cut(1 + e));
    });
  }
}

}  // namespace ampcheck::reference
