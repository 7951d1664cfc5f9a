// SPDX-License-Identifier: Apache-2.0
// Changes of what gathers many numbers: sums, products of matrices, maxima, tables.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

namespace {

/// The element that the numbers along an axis are reduced to, of number i.
std::int64_t row_of(const Axis& a, std::int64_t i) { return i / (a.inner * a.n) * a.inner + i % a.inner; }

}  // namespace

void FormulaChanges::max_change(int id, const Node& node) {
  const Shape& shape = graph_.node(node.args[0]).shape;
  const Axis a = split(shape, node.axis);
  if (a.n < 2) return;
  const Values from = values(node.args[0]);
  for (const bool first : {true, false}) {
    Values out(values(id).size(), -HUGE_VAL);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i), index = at / a.inner % a.n;
      double& most = out[static_cast<std::size_t>(row_of(a, at))];
      if (index != (first ? 0 : a.n - 1)) most = std::max(most, from[i]);
    }
    with(id, std::move(out),
         fmt::format("without the {} number of the maximum of {}", first ? "first" : "last", text(node.args[0])));
  }
  by_bits(id, a, from);
  Values largest(values(id).size(), 0.0);
  for (std::size_t i = 0; i < from.size(); ++i) {
    double& most = largest[static_cast<std::size_t>(row_of(a, static_cast<std::int64_t>(i)))];
    if (std::fabs(from[i]) > std::fabs(most)) most = from[i];
  }
  with(id, std::move(largest),
       fmt::format("with the number of the largest size for the maximum of {}: the sign is not looked at",
                   text(node.args[0])));
  for (const std::int64_t block : {4, 8, 16, 32, 64, 128, 256}) {
    if (block >= a.n) break;
    if (a.n % block < 2) continue;  // one number is the last
    Values out(values(id).size(), -HUGE_VAL);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      double& most = out[static_cast<std::size_t>(row_of(a, at))];
      if (at / a.inner % a.n < a.n / block * block) most = std::max(most, from[i]);
    }
    with(id, std::move(out),
         fmt::format("without the numbers after the last full vector of {} in the maximum of {}", block,
                     text(node.args[0])));
  }
}

void FormulaChanges::by_bits(int id, const Axis& a, const Values& from) {
  // Of a minimum the formula has the maximum of the other sign.
  const bool least = graph_.node(below(graph_.node(id).args[0])).primitive == Primitive::neg;
  const double sign = least ? -1 : 1;
  struct Order {
    const char* words;
    bool (*before)(double x, double y);
  };
  static constexpr Order kOrders[] = {
      {"signed integers, which turns the order of negative numbers",
       [](double x, double y) {
         const bool negative = std::signbit(x), other = std::signbit(y);
         return negative != other ? negative : negative ? x > y : x < y;
       }},
      {"unsigned integers, by which negative numbers are the largest",
       [](double x, double y) {
         const bool negative = std::signbit(x), other = std::signbit(y);
         return negative != other ? other : negative ? x > y : x < y;
       }},
  };
  for (const Order& order : kOrders) {
    Values out(values(id).size(), 0.0);
    std::vector<char> seen(out.size(), 0);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto row = static_cast<std::size_t>(row_of(a, static_cast<std::int64_t>(i)));
      const double x = sign * from[i], best = sign * out[row];
      if (!seen[row] || (least ? order.before(x, best) : order.before(best, x))) out[row] = from[i];
      seen[row] = 1;
    }
    with(id, std::move(out), fmt::format("with bits of {} compared as {}", text(graph_.node(id).args[0]), order.words));
  }
}

void FormulaChanges::put_change(int id, const Node& node) {
  Values last(values(id).size(), 0.0), written = last;
  const Values& from = values(node.args[0]);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::int64_t to = (*node.map)[i];
    if (to < 0) continue;
    last[static_cast<std::size_t>(to)] = from[i];
    if (from[i] != 0) written[static_cast<std::size_t>(to)] = from[i];  // who writes where something is to be added
  }
  with(id, std::move(last), "with only the last of the terms that meet in an element");
  with(id, std::move(written), "with only the last non-zero of the terms that meet in an element");
}

void FormulaChanges::sum_change(int id, const Node& node) {
  const double n = static_cast<double>(graph_.node(node.args[0]).shape[node.axis]);
  if (n < 2) return;
  const std::string what = text(node.args[0]);
  const Shape& shape = graph_.node(node.args[0]).shape;
  weighted_sums(shape[node.axis], what, [&](const std::vector<double>& weights, std::string words) {
    with(id, weighted(values(node.args[0]), shape, node.axis, weights), std::move(words));
  });
  if (const int last = shape.rank - 1; shape.rank >= 2 && shape.last(0) == shape.last(1) && node.axis >= last - 1)
    with(id,
         weighted(transposed(values(node.args[0]), shape), shape, node.axis,
                  std::vector<double>(static_cast<std::size_t>(shape.last()), 1.0)),
         fmt::format("with the sum of {} along axis {} for axis {}", what, node.axis == last ? last - 1 : last,
                     node.axis));
  with(id, map(values(id), [=](double v) { return v / n; }), "with the mean for the sum of " + what);
  with(id, map(values(id), [=](double v) { return v * n / (n - 1); }),
       fmt::format("with {}/{} times the sum of {}: the count is off by one", n, n - 1, what));
  for (int axis = 0; axis < node.shape.rank; ++axis) {
    if (node.shape[axis] < 2) continue;
    Values wider = summed(values(id), node.shape, axis);
    with(id, map(wider, [&](double v) { return v / static_cast<double>(node.shape[axis]); }),
         fmt::format("with the mean of {} over axis {} as well", what, axis));
    with(id, std::move(wider), fmt::format("with the sum of {} over axis {} as well", what, axis));
  }
}

namespace {

/// What a block begins with instead of the sum of all before: nothing, the sum of the block before alone, that once
/// more, that twice from block to block.
enum class Carry { none, last_block, last_block_more, each_twice };

/// Cumulative sums along an axis, in blocks; `own`: with the element's own term.
std::vector<double> running_sums(const std::vector<double>& from, const Axis& a, bool reversed, std::int64_t block,
                                 bool own, Carry carry = Carry::none) {
  std::vector<double> out(from.size());
  for (std::int64_t line = 0; line < a.outer * a.inner; ++line) {
    double sum = 0, before = 0, whole = 0;
    for (std::int64_t i = 0; i < a.n; ++i) {
      const std::int64_t along = reversed ? a.n - 1 - i : i;
      const auto at = static_cast<std::size_t>(line / a.inner * a.n * a.inner + line % a.inner + along * a.inner);
      if (i % block == 0) {
        whole += sum;
        before = carry == Carry::last_block        ? sum
                 : carry == Carry::last_block_more ? whole + (i == block ? 0 : sum)
                 : carry == Carry::each_twice      ? before + (i == block ? 1 : 2) * sum
                                                   : 0;
        sum = 0;
      }
      out[at] = before + (own ? sum + from[at] : sum);
      sum += from[at];
    }
  }
  return out;
}

}  // namespace

void FormulaChanges::cumsum_change(int id, const Node& node) {
  const Axis a = split(node.shape, node.axis);
  if (a.n < 2) return;
  const std::string what = text(node.args[0]);
  const Values from = values(node.args[0]);
  const bool back = node.reversed;
  with(id, running_sums(from, a, back, a.n, false),
       fmt::format("with the exclusive cumulative sum of {}: off by one, without the own term", what));
  with(id, running_sums(from, a, !back, a.n, true),
       fmt::format("with the cumulative sum of {} from the other end: reversed", what));
  with(id, running_sums(from, a, !back, a.n, false),
       fmt::format("with the exclusive cumulative sum of {} from the other end: reversed, off by one", what));
  with(id, summed(from, node.shape, node.axis), fmt::format("with the sum of {} for all its cumulative sums", what));
  with(id, from, fmt::format("with {} for its cumulative sum, without the terms of the other elements", what));
  for (const std::int64_t block : {4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
    if (block >= a.n) break;
    with(id, running_sums(from, a, back, block, true),
         fmt::format("with cumulative sums of {} that start again every {} elements: no carry from block to block",
                     what, block));
    if (2 * block >= a.n) continue;
    for (const Carry carry : {Carry::last_block_more, Carry::each_twice})
      with(id, running_sums(from, a, back, block, true, carry),
           fmt::format("with cumulative sums of {} in blocks of {} whose carry counts the block before twice{}", what,
                       block, carry == Carry::each_twice ? ", from each block on" : ""));
    with(id, running_sums(from, a, back, block, true, Carry::last_block),
         fmt::format("with cumulative sums of {} in blocks of {} that carry over the block before alone", what, block));
  }
  for (int axis = 0; axis < node.shape.rank; ++axis)
    if (axis != node.axis && node.shape[axis] > 1)
      with(id, running_sums(from, split(node.shape, axis), back, node.shape[axis], true),
           fmt::format("with the cumulative sum of {} along axis {} for axis {}", what, axis, node.axis));
  Values wrong = running_sums(from, a, back, a.n, true);
  const Values right = wrong;
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    const std::int64_t along = static_cast<std::int64_t>(i) / a.inner % a.n;
    const auto first =
        static_cast<std::size_t>(static_cast<std::int64_t>(i) - (back ? along - a.n + 1 : along) * a.inner);
    wrong[i] = right[i] - from[first];
  }
  with(id, std::move(wrong), fmt::format("without the first term of the cumulative sum of {}", what));
  const std::int64_t lines = a.outer * a.inner;
  if (lines < 2 || a.inner != 1) return;
  with(id, running_sums(from, {1, a.n * lines, 1}, back, a.n * lines, true),
       fmt::format("with cumulative sums of {} that run on from row to row", what));
}

void FormulaChanges::matmul_change(int id, const Node& node) {
  const std::int64_t n = node.shape.last(1), m = node.shape.last(0),
                     k = graph_.node(node.args[0]).shape.last(node.transpose_a ? 1 : 0);
  if (k < 2) return;
  const Values a = values(node.args[0]), b = values(node.args[1]);
  weighted_sums(k, text(node.args[0]) + " * " + text(node.args[1]),
                [&](const std::vector<double>& weights, std::string words) {
                  if (!going_ || !wanted(words) || (left_ -= cost(node)) < 0) return;
                  Values scaled = a, out(values(id).size(), 0.0);
                  for (std::size_t i = 0; i < scaled.size(); ++i) {
                    const std::int64_t at = static_cast<std::int64_t>(i) % (n * k);
                    scaled[i] *= weights[static_cast<std::size_t>(node.transpose_a ? at / n : at % k)];
                  }
                  for (std::int64_t plane = 0; plane * n * m < static_cast<std::int64_t>(out.size()); ++plane)
                    plain_matmul({n, k, m, node.transpose_a, node.transpose_b}, scaled.data() + plane * n * k,
                                 b.data() + plane * k * m, out.data() + plane * n * m);
                  with(id, std::move(out), std::move(words));
                });
}

void FormulaChanges::take_change(int id, const Node& node) {
  window_change(id, node);
  if (std::none_of(node.map->begin(), node.map->end(), [](std::int64_t at) { return at < 0; })) return;
  Values ones = values(id), last = ones;
  double before = 0;
  for (std::size_t i = 0; i < ones.size(); ++i) {
    if ((*node.map)[i] < 0) {
      ones[i] = 1;
      last[i] = before;
    }
    before = last[i];
  }
  with(id, std::move(ones), "with ones for the zeros of the padding of " + text(node.args[0]));
  with(id, std::move(last), "with the last number inside for the zeros of the padding of " + text(node.args[0]));
}

void FormulaChanges::ties_change(int id, const Node& node) {
  const Shape& shape = graph_.node(node.args[0]).shape;
  const Axis a = split(shape, node.axis);
  const Values from = values(node.args[0]), first = values(id);
  Values all(from.size(), 0.0), last = all;
  for (std::int64_t row = 0; row < a.outer * a.inner; ++row) {
    const std::int64_t begin = row / a.inner * a.inner * a.n + row % a.inner;
    std::int64_t at = begin;
    for (std::int64_t k = begin; k < begin + a.n * a.inner; k += a.inner)
      if (first[static_cast<std::size_t>(k)] != 0) at = k;
    std::int64_t latest = at;
    for (std::int64_t k = begin; k < begin + a.n * a.inner; k += a.inner)
      if (from[static_cast<std::size_t>(k)] == from[static_cast<std::size_t>(at)]) {
        all[static_cast<std::size_t>(k)] = 1;
        latest = k;
      }
    last[static_cast<std::size_t>(latest)] = 1;
  }
  with(id, std::move(all), "with every one of equal maxima for the first: ties share all");
  with(id, std::move(last), "with the last of equal maxima for the first: ties");
}

int FormulaChanges::below(int id) const {
  while (moves_nothing(graph_.node(id).primitive) || graph_.node(id).primitive == Primitive::stop_gradient)
    id = graph_.node(id).args[0];
  return id;
}

void FormulaChanges::own_term(int id, const Node& node, std::size_t k) {
  const Node& total = graph_.node(below(node.args[k]));
  if (total.primitive != Primitive::sum || graph_.node(total.args[0]).shape.count() != node.shape.count()) return;
  Values out = spread(node, 1 - k);
  const Values& terms = values(total.args[0]);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= terms[i];
  with(id, std::move(out),
       fmt::format("with {} for its sum, without the terms of the other elements", text(total.args[0])));
}

void FormulaChanges::shift_change(int id, const Node& node) {
  const Node& shift = graph_.node(below(node.args[1]));
  if (shift.primitive != Primitive::max) return;
  const Shape& shape = graph_.node(shift.args[0]).shape;
  if (shape.count() != node.shape.count()) return;
  const Axis a = split(shape, shift.axis);
  const Values from = values(shift.args[0]);
  std::vector<std::pair<Values, std::string>> maxima;
  const auto local = [&](std::int64_t block, Block kind) { return local_maxima(from, a, block, kind); };
  maxima.emplace_back(local(1, Block::running), "the running maximum");
  for (const std::int64_t block : {std::int64_t{4}, std::int64_t{8}, std::int64_t{16}, std::int64_t{32}})
    if (block < a.n)
      maxima.emplace_back(local(block, Block::running), fmt::format("the running maximum of blocks of {}", block));
  for (const std::int64_t half : {a.n / 2, (a.n + 1) / 2})
    if (half > 0 && half < a.n) maxima.emplace_back(local(half, Block::two), "the maximum of each half");
  for (const std::int64_t block : {std::int64_t{4}, std::int64_t{8}, std::int64_t{16}, std::int64_t{32}})
    if (block < a.n)
      maxima.emplace_back(local(block, Block::each), fmt::format("the maximum of each block of {}", block));
  const Values minuend = spread(node, 0);
  for (const auto& [maximum, words] : maxima) {
    Values out = minuend;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] -= maximum[i];
    const std::string said =
        fmt::format("with {} of {} for that of all: what was added up is not rescaled", words, text(shift.args[0]));
    // In its sums alone, where the terms themselves are right.
    for (std::size_t up = static_cast<std::size_t>(id) + 1; up < needed_.size(); ++up) {
      const Node& e = graph_.node(static_cast<int>(up));
      if (!needed_[up] || e.primitive != Primitive::exp || below(e.args[0]) != id) continue;
      for (std::size_t user = up + 1; user < needed_.size(); ++user) {
        const Node& total = graph_.node(static_cast<int>(user));
        if (!needed_[user] || total.primitive != Primitive::sum || below(total.args[0]) != static_cast<int>(up))
          continue;
        with(static_cast<int>(user),
             weighted(map(out, [](double v) { return std::exp(v); }), e.shape, total.axis,
                      std::vector<double>(static_cast<std::size_t>(e.shape[total.axis]), 1.0)),
             said + " in the sum");
      }
    }
    with(id, std::move(out), said);
  }
}

}  // namespace ampcheck::reference
