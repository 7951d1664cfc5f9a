// SPDX-License-Identifier: Apache-2.0
// Numbers in fewer bits, and changes of several nodes at once.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "reference/graph/row_plan.h"
#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

bool FormulaChanges::sums(int id) const {
  const Node& node = graph_.node(id);
  if (moves_nothing(node.primitive)) return sums(node.args[0]);
  if (node.primitive == Primitive::mul && graph_.node(node.args[1]).primitive == Primitive::constant)
    return sums(node.args[0]);
  return node.primitive == Primitive::sum || node.primitive == Primitive::matmul ||
         node.primitive == Primitive::put_add || node.primitive == Primitive::cumsum;
}

void FormulaChanges::narrow(int id) {
  const Node& node = graph_.node(id);
  const bool operand = node.primitive == Primitive::input && given(id),
             constant = node.primitive == Primitive::constant;
  if (!operand && !constant &&
      (node.args.empty() || given(id) || (moves_nothing(node.primitive) && node.primitive != Primitive::stored)))
    return;
  if (node.primitive == Primitive::div) narrow_reciprocal(id, node);
  approximated(id);
  added_up_in_few_bits(id, node);
  if ((node.primitive == Primitive::take && silent(graph_, node)) || node.primitive == Primitive::neg) return;
  for (const Narrow& low : narrows(operand)) {
    Values rounded = values(id);
    round_values(*low.format, {.rounding = low.rounding}, rounded, rounded);
    std::string words = fmt::format("{} {} in {}",
                                    operand    ? "takes"
                                    : constant ? "keeps the constant"
                                               : "keeps",
                                    text(id), low.words) +
                        lost(values(id), rounded);
    with(id, std::move(rounded), Change{std::move(words), low.format, sums(id)});
  }
}

void FormulaChanges::narrow_reciprocal(int id, const Node& node) {
  for (const Narrow& low : narrows(false)) {
    Values inverse = map(spread(node, 1), [](double v) { return 1 / v; });
    const Values whole = inverse;
    round_values(*low.format, {.rounding = low.rounding}, inverse, inverse);
    std::string words = fmt::format("keeps 1/{} in {}", text(node.args[1]), low.words) + lost(whole, inverse);
    const Values dividend = spread(node, 0);
    for (std::size_t i = 0; i < inverse.size(); ++i) inverse[i] *= dividend[i];
    with(id, std::move(inverse), Change{std::move(words), low.format, false});
  }
}

void FormulaChanges::added_up_in_few_bits(int id, const Node& node) {
  if (node.primitive != Primitive::sum || given(id)) return;
  const Axis a = split(graph_.node(node.args[0]).shape, node.axis);
  if (a.n < 3) return;
  for (const Narrow& low : narrows(false)) {
    const Values& from = values(node.args[0]);
    Values sums(static_cast<std::size_t>(a.outer * a.inner), 0.0), terms(static_cast<std::size_t>(a.inner));
    for (std::int64_t outer = 0; outer < a.outer; ++outer)
      for (std::int64_t k = 0; k < a.n; ++k) {
        double* const sum = sums.data() + outer * a.inner;
        for (std::int64_t i = 0; i < a.inner; ++i)
          sum[i] += from[static_cast<std::size_t>((outer * a.n + k) * a.inner + i)];
        const std::span<double> row(sum, static_cast<std::size_t>(a.inner));
        round_values(*low.format, {.rounding = low.rounding}, row, row);
      }
    std::string words = fmt::format("accumulates in {} the sum of {} alone", low.words, text(node.args[0]));
    with(id, std::move(sums), Change{std::move(words), low.format, true});
  }
}

std::span<const FormulaChanges::Narrow> FormulaChanges::narrows(bool operand) {
  static constexpr Narrow kAll[] = {{&kBf16, Rounding::nearest_even, "bf16"},
                                    {&kFp16, Rounding::nearest_even, "fp16"},
                                    {&kTf32, Rounding::nearest_even, "tf32"},
                                    {&kTf32, Rounding::nearest_away, "tf32"},
                                    {&kTf32, Rounding::toward_zero, "tf32 (truncated)"},
                                    {&kBf16, Rounding::toward_zero, "bf16 (truncated)"},
                                    {&kE4m3fn, Rounding::nearest_even, "e4m3fn"},
                                    {&kE5m2, Rounding::nearest_even, "e5m2"}};
  return operand ? std::span<const Narrow>(kAll) : std::span<const Narrow>(kAll, 2);
}

void FormulaChanges::whole_factors() {
  const Node& node = graph_.node(target_.id);
  const Values whole = values(target_.id);
  Values by;
  for (int id = target_.id; id-- > 0 && going_;) {
    const Node& factor = graph_.node(id);
    if (!needed_[static_cast<std::size_t>(id)] || factor.shape.count() < 2 || !repeats_to(factor.shape, node.shape) ||
        values(id) == by)
      continue;
    by = values(id);  // of a node and its views the last, which has a name
    Values without = whole, twice = whole;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const double f =
          by[static_cast<std::size_t>(operand_index(node.shape, factor.shape, static_cast<std::int64_t>(i)))];
      without[i] /= f;
      twice[i] *= f;
    }
    with(target_.id, std::move(without), fmt::format("without the factor {} of all of it", text(id)));
    with(target_.id, std::move(twice), fmt::format("with the factor {} of all of it once too often", text(id)));
  }
}

void FormulaChanges::shares_together() {
  std::map<std::string, std::vector<int>> shares;
  for (std::size_t id = 0; id < needed_.size(); ++id) {
    const Node& node = graph_.node(static_cast<int>(id));
    if (needed_[id] && is_share(node)) shares[node.name].push_back(static_cast<int>(id));
  }
  for (const auto& [name, ids] : shares) {
    const double n = std::round(1 / graph_.node(ids.front()).value);
    // All of them, or the last ones: those of the backward.
    for (std::size_t from = 0; from + 1 < ids.size(); ++from)
      for (const double other : {n - 1, n + 1, std::ceil(n / 4) * 4, std::ceil(n / 8) * 8, std::ceil(n / 32) * 32}) {
        const std::span<const int> some = std::span(ids).subspan(from);
        const std::string where =
            from == 0 ? "every mean" : fmt::format("the last {} of {} means", some.size(), ids.size());
        const std::string words = fmt::format("with 1/{} for 1/{} in {}: the count is off", other, n, where);
        if (other < 1 || other == n || !going_ || !wanted(words) || (left_ -= cost_) < 0) continue;
        std::vector<std::pair<int, Values>> others;
        for (const int id : some) others.emplace_back(id, Values{1 / other});
        going_ = see_(Change{words, nullptr}, evaluator_.value_if(std::move(others), target_));
      }
  }
}

void FormulaChanges::narrow_saved() {
  std::vector<int> saved;
  std::string names;
  for (std::size_t id = 0; id < needed_.size(); ++id)
    if (needed_[id] && graph_.node(static_cast<int>(id)).primitive == Primitive::stored) {
      saved.push_back(static_cast<int>(id));
      names += (names.empty() ? "" : " and ") + text(static_cast<int>(id));
    }
  if (saved.size() > 1) narrow_together(saved, "keeps " + names);
}

void FormulaChanges::narrow_together(const std::vector<int>& ids, const std::string& words) {
  for (const Narrow& low : narrows(true)) {
    const std::string said = fmt::format("{} in {}", words, low.words);
    if (!wanted(said)) continue;
    if (!going_ || (left_ -= cost_) < 0) return;
    std::vector<std::pair<int, Values>> others;
    for (const int id : ids) {
      Values rounded = values(id);
      round_values(*low.format, {.rounding = low.rounding}, rounded, rounded);
      others.emplace_back(id, std::move(rounded));
    }
    going_ = see_(Change{said, low.format, false}, evaluator_.value_if(std::move(others), target_));
  }
}

void FormulaChanges::narrow_operands() {
  std::vector<int> leaves;
  for (const int id : given_)
    if (needed_[static_cast<std::size_t>(id)] && graph_.node(id).primitive == Primitive::input) leaves.push_back(id);
  if (leaves.size() > 1) narrow_together(leaves, "takes its operands");
  for (std::size_t id = needed_.size(); id-- > 0 && going_;) {
    const Node& node = graph_.node(static_cast<int>(id));
    if (!needed_[id] || given(static_cast<int>(id)) || node.primitive != Primitive::matmul ||
        node.args[0] == node.args[1])
      continue;
    narrow_together(node.args, fmt::format("takes the operands of {}", text(static_cast<int>(id))));
  }
}

}  // namespace ampcheck::reference
