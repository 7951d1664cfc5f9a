// SPDX-License-Identifier: Apache-2.0
// Changes of which terms a sum or maximum has: parts and strides left out, every sum of a launch cut short by the same
// loop, rows padded with zeros, the mean size for the root of a mean square.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "reference/graph/row_plan.h"
#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

namespace {

/// Bits of choice among the ways to leave terms out, about.
constexpr double kOfTerms = 8;

Change of_terms(std::string words) { return chosen(std::move(words), kOfTerms); }

/// Which of n terms loops take that are cut short or step too far: see(weights, words).
template <class See>
void cut_loops(std::int64_t n, See see) {
  const auto kept = [&](auto takes) {
    std::vector<double> out(static_cast<std::size_t>(n));
    for (std::int64_t k = 0; k < n; ++k) out[static_cast<std::size_t>(k)] = takes(k) ? 1 : 0;
    return out;
  };
  for (std::int64_t d = 2; d <= std::min<std::int64_t>(n / 2, 64); ++d) {
    if (n % d != 0) continue;
    const std::int64_t run = n / d;  // d runs of so many, or `run` groups of d
    see(kept([&](std::int64_t k) { return k % d != d - 1; }),
        fmt::format("without the last of each {}: off by one, as of a window that is one short", d));
    see(kept([&](std::int64_t k) { return k % d != 0; }), fmt::format("without the first of each {}: off by one", d));
    see(kept([&](std::int64_t k) { return k / run != d - 1; }),
        fmt::format("without the last {} of {}, the last part of {}, which is lost", run, n, d));
    see(kept([&](std::int64_t k) { return k / run != 0; }),
        fmt::format("without the first {} of {}, the first part of {}, which is lost", run, n, d));
    see(kept([&](std::int64_t k) { return k / run == 0; }),
        fmt::format("with only the first {} of {}, the first part of {}: the others are lost", run, n, d));
    if (d > 3)
      see(kept([&](std::int64_t k) { return k / run < d / 2; }),
          fmt::format("with only the first half, {} of {}: the others are lost", d / 2 * run, n));
    see(kept([&](std::int64_t k) { return k % d == 0; }), fmt::format("with only every {}. term: a stride", d));
  }
  for (const std::int64_t half : {n / 2, (n + 1) / 2})
    if (n > 2)
      see(kept([&](std::int64_t k) { return k < half; }),
          fmt::format("with only the first half, {} of {}: the others are lost", half, n));
  see(kept([&](std::int64_t k) { return k + 1 < n; }), "without the last: off by one");
  see(kept([&](std::int64_t k) { return k > 0; }), "without the first: off by one");
  for (const std::int64_t block : {4, 8, 16, 32, 64, 128, 256}) {
    if (n >= 2 * block || n % block != 0) {
      see(kept([&](std::int64_t k) { return k % block < block / 2; }),
          fmt::format("without the upper half of each {}: lanes are lost", block));
      see(kept([&](std::int64_t k) { return k % block >= block / 2; }),
          fmt::format("without the lower half of each {}: lanes are lost", block));
      see(kept([&](std::int64_t k) { return k % block != block - 1; }),
          fmt::format("without the last of each full {}: a lane is lost", block));
      see(kept([&](std::int64_t k) { return k % block == 0; }),
          fmt::format("with only the first of each {}: the other lanes are lost", block));
    }
    for (const bool first : {true, false}) {
      std::vector<double> overlapping(static_cast<std::size_t>(n), 1.0);
      for (std::int64_t k = first ? block : block - 1; k + (first ? 0 : 1) < n; k += block)
        overlapping[static_cast<std::size_t>(k)] = 2;
      if (n > 2 * block)  // of one overlap alone weighted_sums() has more to say
        see(overlapping, fmt::format("with the {} of each block of {} counted twice, by the block {} it as well: the "
                                     "blocks overlap",
                                     first ? "first" : "last", block, first ? "before" : "after"));
    }
    if (n % block != 0)
      see(kept([&](std::int64_t k) { return k < n / block * block; }),
          fmt::format("without what follows the last full vector of {}, the tail", block));
    if (block >= n) break;  // one that is not full, for all that are larger
    if (n > block + 1)
      see(kept([&](std::int64_t k) { return k < block; }), fmt::format("with only the first {}", block));
  }
}

}  // namespace

void FormulaChanges::terms_left_out(int id) {
  const Node& node = graph_.node(id);
  const Shape& shape = graph_.node(node.args[0]).shape;
  const std::int64_t n = shape[node.axis];
  if (n < 3) return;
  const std::string what = text(node.args[0]);
  if (node.primitive == Primitive::sum) {
    std::vector<double> twice(static_cast<std::size_t>(n), 1.0);
    twice.front() = 2;
    with(id, weighted(values(node.args[0]), shape, node.axis, twice),
         of_terms(fmt::format("with the first term of the sum of {} twice", what)));
  }
  cut_loops(n, [&](const std::vector<double>& weights, const std::string& words) {
    if (!going_) return;
    if (node.primitive == Primitive::sum) {
      with(id, weighted(values(node.args[0]), shape, node.axis, weights),
           of_terms(fmt::format("{}, in the sum of {}", words, what)));
      const double taken = std::accumulate(weights.begin(), weights.end(), 0.0);
      if (!counts_.contains(static_cast<double>(n)) || taken == 0) return;
      std::vector<double> of_a_part = weights;
      for (double& w : of_a_part) w *= static_cast<double>(n) / taken;
      with(id, weighted(values(node.args[0]), shape, node.axis, of_a_part),
           of_terms(fmt::format("{}, and divided by the number of these, in the mean of {}", words, what)));
      return;
    }
    const Axis a = split(shape, node.axis);
    const Values& from = values(node.args[0]);
    Values out(values(id).size(), -HUGE_VAL);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      double& most = out[static_cast<std::size_t>(at / (a.inner * a.n) * a.inner + at % a.inner)];
      if (weights[static_cast<std::size_t>(at / a.inner % a.n)] != 0) most = std::max(most, from[i]);
    }
    with(id, std::move(out), of_terms(fmt::format("{}, in the maximum of {}", words, what)));
  });
}

void FormulaChanges::products_left_out(int id) {
  const Node& node = graph_.node(id);
  const std::int64_t n = node.shape.last(1), k = graph_.node(node.args[0]).shape.last(node.transpose_a ? 1 : 0);
  if (k < 3) return;
  const std::string what = fmt::format("the sum of {} * {}", text(node.args[0]), text(node.args[1]));
  if (graph_.node(node.args[0]).shape.last() == graph_.node(node.args[0]).shape.last(1)) {
    Values off_diagonal = values(node.args[0]);
    const std::int64_t side = graph_.node(node.args[0]).shape.last();
    for (std::size_t i = 0; i < off_diagonal.size(); ++i)
      if (const std::int64_t at = static_cast<std::int64_t>(i) % (side * side); at / side == at % side)
        off_diagonal[i] = 0;
    with(id, evaluator_.value_if_argument(id, 0, std::move(off_diagonal)),
         of_terms(fmt::format("without the diagonal of {}, its own place, in {}", text(node.args[0]), what)));
  }
  cut_loops(k, [&](const std::vector<double>& weights, const std::string& words) {
    if (!going_ || (left_ -= cost(node)) < 0) return;
    Values scaled = values(node.args[0]);
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i) % (n * k);
      scaled[i] *= weights[static_cast<std::size_t>(node.transpose_a ? at / n : at % k)];
    }
    with(id, evaluator_.value_if_argument(id, 0, std::move(scaled)), of_terms(fmt::format("{}, in {}", words, what)));
  });
}

void FormulaChanges::sums_together() {
  std::map<std::int64_t, std::vector<int>> sums;
  for (std::size_t id = 0; id < needed_.size(); ++id) {
    const Node& node = graph_.node(static_cast<int>(id));
    if (needed_[id] && !given(static_cast<int>(id)) && node.primitive == Primitive::sum)
      if (const std::int64_t n = graph_.node(node.args[0]).shape[node.axis]; n > 2)
        sums[n].push_back(static_cast<int>(id));
  }
  for (const auto& [n, ids] : sums) {
    if (ids.size() < 2) continue;
    cut_loops(n, [&, n = n, &ids = ids](const std::vector<double>& weights, const std::string& words) {
      const auto terms = static_cast<double>(std::count(weights.begin(), weights.end(), 1.0));
      for (const bool mean : {true, false}) {
        std::vector<std::pair<int, Values>> others;
        for (const int id : ids) {
          const Node& node = graph_.node(id);
          left_ -= cost_;
          if (!going_ || left_ < 0) return;
          const Values& from =
              others.empty() ? values(node.args[0]) : evaluator_.value_if(others, {target_.graph, node.args[0]});
          std::vector<double> scaled = weights;
          if (mean)
            for (double& w : scaled) w *= static_cast<double>(n) / terms;
          Values sum = weighted(from, graph_.node(node.args[0]).shape, node.axis, scaled);
          others.emplace_back(id, std::move(sum));
        }
        all_with(std::move(others), of_terms(fmt::format("{}, in every sum over {}{}", words, n,
                                                         mean ? ", and its mean over these" : "")));
      }
    });
  }
}

void FormulaChanges::padded_terms(int id) {
  const Node& node = graph_.node(id);
  const Shape& shape = graph_.node(node.args[0]).shape;
  const std::int64_t n = shape[node.axis];
  // What a term becomes where the inputs hold zero, what reductions have found staying as it is.
  std::vector<std::pair<int, Values>> others;
  for (const int leaf : given_)
    if (needed_[static_cast<std::size_t>(leaf)] && graph_.node(leaf).shape == shape)
      others.emplace_back(leaf, Values(values(leaf).size(), 0.0));
  if (others.empty() || !(left_ > 2 * cost_)) return;
  for (std::size_t k = 0; k < static_cast<std::size_t>(id); ++k) {
    const Primitive p = graph_.node(static_cast<int>(k)).primitive;
    if (needed_[k] && (p == Primitive::sum || p == Primitive::max || p == Primitive::matmul))
      others.emplace_back(static_cast<int>(k), values(static_cast<int>(k)));
  }
  left_ -= cost_;
  const Values padding = evaluator_.value_if(std::move(others), {target_.graph, node.args[0]});
  if (std::ranges::all_of(padding, [](double v) { return v == 0; })) return;
  const Axis a = split(shape, node.axis);
  for (const std::int64_t to : {2, 4, 8, 16, 32, 64, 128}) {
    const std::int64_t added = (n + to - 1) / to * to - n;
    if (added == 0) continue;
    Values out = values(id);
    for (std::int64_t i = 0; i < std::ssize(out); ++i)
      out[static_cast<std::size_t>(i)] +=
          static_cast<double>(added) * padding[static_cast<std::size_t>(i / a.inner * a.n * a.inner + i % a.inner)];
    with(id, std::move(out),
         of_terms(fmt::format("with {} further terms in the sum of {}, as of rows that are padded with zeros to {}",
                              added, text(node.args[0]), n + added)));
  }
}

void FormulaChanges::other_norm(int id) {
  const Node& node = graph_.node(id);
  // sqrt or rsqrt of [a mean of] squares [plus eps].
  int at = below(node.args[0]);
  double eps = 0, share = 1;
  if (graph_.node(at).primitive == Primitive::add) {
    const Node& term = graph_.node(below(graph_.node(at).args[1]));
    if (term.shape.count() != 1) return;
    eps = values(graph_.node(at).args[1])[0];
    at = below(graph_.node(at).args[0]);
  }
  if (graph_.node(at).primitive == Primitive::mul && is_share(graph_.node(graph_.node(at).args[1]))) {
    share = graph_.node(graph_.node(at).args[1]).value;
    at = below(graph_.node(at).args[0]);
  }
  const Node& sum = graph_.node(at);
  if (sum.primitive != Primitive::sum || values(at).size() != values(id).size()) return;
  const Node& squared = graph_.node(below(sum.args[0]));
  const bool square = squared.primitive == Primitive::square ||
                      (squared.primitive == Primitive::mul && squared.args[0] == squared.args[1]);
  if (!square) return;
  const Shape& shape = graph_.node(sum.args[0]).shape;
  if (graph_.node(squared.args[0]).shape.count() != shape.count()) return;
  const Values sizes = map(values(squared.args[0]), [](double v) { return std::fabs(v); });
  const std::vector<double> ones(static_cast<std::size_t>(shape[sum.axis]), 1.0);
  const bool inverse = node.primitive == Primitive::rsqrt;
  const std::string of = text(squared.args[0]);
  const auto say = [&](const Values& norms, double scale, const char* words) {
    for (const double added : {eps, 0.0})
      with(id, map(norms, [&](double v) { return inverse ? 1 / (scale * v + added) : scale * v + added; }),
           of_terms(fmt::format("with {} of {} for the root of its mean square: another norm", words, of)));
  };
  say(weighted(sizes, shape, sum.axis, ones), share, "the mean size");
  Values largest(values(id).size(), 0.0);
  const Axis a = split(shape, sum.axis);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto k = static_cast<std::int64_t>(i);
    double& most = largest[static_cast<std::size_t>(k / (a.inner * a.n) * a.inner + k % a.inner)];
    most = std::max(most, sizes[i]);
  }
  say(largest, 1, "the largest size");
}

}  // namespace ampcheck::reference
