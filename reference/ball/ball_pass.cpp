// SPDX-License-Identifier: Apache-2.0
// Which nodes a pass computes, in which phase, and the blocks of rows one after another.
#include "reference/ball/ball_pass.h"

#include <algorithm>

namespace ampcheck::reference {

namespace {

/// What computing a node takes: the adjoint rule is the only part that is dear to copy.
Node without_adjoint(const Node& node) {
  return {node.primitive,   node.args,     node.shape, node.value, node.axis, node.transpose_a,
          node.transpose_b, node.reversed, node.map,   node.name,  nullptr};
}

}  // namespace

bool elementwise(Primitive p) {
  return p == Primitive::add || p == Primitive::sub || p == Primitive::neg || p == Primitive::mul ||
         p == Primitive::square || p == Primitive::div || p == Primitive::exp || p == Primitive::expm1 ||
         p == Primitive::tanh || p == Primitive::sqrt || p == Primitive::rsqrt || p == Primitive::pow ||
         p == Primitive::sigmoid || p == Primitive::abs || p == Primitive::where || p == Primitive::maximum ||
         p == Primitive::erf || p == Primitive::log || p == Primitive::log1p;
}

BallEvaluator::Pass::Pass(BallEvaluator& of, const std::vector<char>& needed, const std::vector<Expr>& targets,
                          const BallSink& sink)
    : of_(of), needed_(needed), targets_(targets), sink_(sink), phase_(needed.size(), 0) {
  for (std::size_t id = 0; id < needed.size(); ++id) {
    if (!runs(id)) continue;
    for (const int from : args(id)) {
      const auto arg = static_cast<std::size_t>(from);
      if (!runs(arg)) continue;
      const bool waits = grain(arg) == Grain::column || (grain(arg) == Grain::row && grain(id) == Grain::whole);
      phase_[id] = std::max(phase_[id], phase_[arg] + (waits ? 1 : 0));
    }
    phases_ = std::max(phases_, phase_[id] + 1);
  }
  runs_.resize(needed.size());
  wanted_.resize(needed.size());
  for (std::size_t id = 0; id < needed.size(); ++id) {
    runs_[id] = runs(id);
    if (runs_[id])
      for (const int arg : args(id)) ++wanted_[static_cast<std::size_t>(arg)];
  }
}

bool BallEvaluator::Pass::run(const std::vector<char>* rows, const RowElements* elements) {
  all_rows_ = rows == nullptr;
  elements_ = elements;
  tail_.assign(runs_.size(), elements != nullptr);
  if (elements != nullptr) mark_tail();
  for (const Expr& target : targets_) {  // known already
    const auto id = static_cast<std::size_t>(target.id);
    handed_ = &of_.balls_[id];
    if (of_.fresh_[id]) sink_(target, 0, of_.balls_[id]);
  }
  for (int phase = 0; phase < phases_; ++phase) {
    for (std::size_t id = 0; id < runs_.size(); ++id) {
      if (!runs_[id] || phase_[id] != phase || grain(id) != Grain::whole) continue;
      if (!of_.compute_whole(id)) return false;
      hand_over(id, 0, of_.balls_[id]);
      release(id);
    }
    if (!run_rows(phase, rows)) return false;
  }
  return true;
}

void BallEvaluator::Pass::mark_tail() {
  const Shape& shape = of_.graph_.node(targets_.front().id).shape;
  for (std::size_t id = tail_.size(); id-- > 0;) {
    const Node& node = of_.graph_.node(static_cast<int>(id));
    const bool moves =
        moves_nothing(node.primitive) && !node.args.empty() && of_.graph_.node(node.args[0]).shape == shape;
    tail_[id] &= runs_[id] && node.shape == shape && (moves || elementwise(node.primitive));
    for (std::size_t k = 0; runs_[id] && !tail_[id] && k < node.args.size(); ++k)
      tail_[static_cast<std::size_t>(node.args[k])] = 0;
  }
}

void BallEvaluator::Pass::hand_over(std::size_t id, std::int64_t first, const Ball& part) {
  handed_ = &part;
  for (const Expr& target : targets_)
    if (static_cast<std::size_t>(target.id) == id) sink_(target, first, part);
}

bool BallEvaluator::Pass::wanted_by_sink(std::size_t id) const {
  return std::any_of(targets_.begin(), targets_.end(),
                     [&](const Expr& target) { return static_cast<std::size_t>(target.id) == id; });
}

void BallEvaluator::Pass::release(std::size_t id) {
  for (const int arg : args(id))
    if (--wanted_[static_cast<std::size_t>(arg)] == 0) of_.drop(static_cast<std::size_t>(arg));
}

std::vector<BallEvaluator::Pass::Step> BallEvaluator::Pass::steps_of(int phase) const {
  std::vector<Step> steps;
  std::vector<std::size_t> last_use(runs_.size(), 0);
  for (std::size_t id = 0; id < runs_.size(); ++id) {
    if (!runs_[id] || phase_[id] != phase || grain(id) == Grain::whole) continue;
    Step step;
    step.id = id;
    step.node = without_adjoint(of_.graph_.node(static_cast<int>(id)));
    step.rank = step.node.shape.rank;
    if (grain(id) == Grain::row) {
      step.width = step.node.shape.count() / of_.rows_.rows;
      step.node.axis -= of_.rows_.lead - 1;
      step.map = std::move(step.node.map);
      const std::int64_t source = step.map ? of_.graph_.node(step.node.args[0]).shape.count() / of_.rows_.rows : 0;
      const bool takes = step.node.primitive == Primitive::take;
      step.listed = takes ? step.width : source;
      step.other = takes ? source : step.width;
    }
    step.materialise = grain(id) == Grain::row && of_.keep_[id] && all_rows_;
    for (const int arg : args(id)) last_use[static_cast<std::size_t>(arg)] = steps.size();
    last_use[id] = steps.size();
    steps.push_back(std::move(step));
  }
  std::vector<char> elsewhere(runs_.size(), 0);  // wanted by what is no step of this phase
  for (std::size_t id = 0; id < runs_.size(); ++id)
    if (runs_[id] && (grain(id) == Grain::whole || phase_[id] != phase))
      for (const int arg : args(id)) elsewhere[static_cast<std::size_t>(arg)] = 1;
  for (Step& step : steps) step.materialise |= grain(step.id) == Grain::row && elsewhere[step.id] != 0;
  // One number a row is kept for radius_at() until the next block replaces it.
  for (std::size_t k = 0; k < steps.size(); ++k)
    if (grain(steps[k].id) == Grain::row && (steps[k].width > 1 || of_.radii_ == Radii::each))
      steps[last_use[steps[k].id]].last.push_back(steps[k].id);
  return steps;
}

std::int64_t BallEvaluator::Pass::next_block(std::int64_t row, const std::vector<char>* rows, bool gathers) {
  const RowPlan& plan = of_.rows_;
  const auto wanted = [&](std::int64_t at) { return rows == nullptr || (*rows)[static_cast<std::size_t>(at)] != 0; };
  listed_.clear();
  std::int64_t count = 0;
  while (count < plan.step && row + count < plan.rows && wanted(row + count)) ++count;
  if (count == 0 || !gathers || (elements_ == nullptr && count == plan.step)) return count;
  // Rows that stand alone make a block together.
  for (count = 0; std::ssize(listed_) < plan.step && row + count < plan.rows; ++count)
    if (wanted(row + count)) listed_.push_back(row + count);
  return count;
}

bool BallEvaluator::Pass::run_block(std::vector<Step>& steps, std::int64_t row, std::int64_t count) {
  slices_.clear();
  picks_.clear();
  if (elements_ != nullptr) picked_ = elements_of_rows(*elements_, listed_);
  for (std::size_t k = 0; k < steps.size();) {
    const std::size_t end = of_.radii_ == Radii::uniform ? run_group(steps, k, row, count) : k;
    for (std::size_t i = k; i < end; ++i)
      if (!finish_step(steps[i], group_[i - k], row, count)) return false;
    k = end;
    if (k < steps.size() && !run_step(steps[k++], row, count)) return false;
  }
  return true;
}

bool BallEvaluator::Pass::run_rows(int phase, const std::vector<char>* rows) {
  std::vector<Step> steps = steps_of(phase);
  if (steps.empty()) return true;
  parts_.assign(runs_.size(), Ball{});
  sums_.clear();
  uniform_sums_.clear();
  const bool gathers = rows != nullptr && of_.rows_.lead == 1 &&
                       std::none_of(steps.begin(), steps.end(), [](const Step& s) { return s.map != nullptr; });
  for (std::int64_t row = 0; row < of_.rows_.rows;) {
    const std::int64_t past = next_block(row, rows, gathers), count = listed_.empty() ? past : std::ssize(listed_);
    if (count > 0 && !run_block(steps, row, count)) return false;
    row += std::max<std::int64_t>(past, 1);
  }
  listed_.clear();
  for (Step& step : steps) {
    if (grain(step.id) == Grain::column && !finish_column(step.id)) return false;
    if (step.materialise || grain(step.id) == Grain::column) of_.fresh_[step.id] = 1;
  }
  for (const Step& step : steps) release(step.id);
  return true;
}

}  // namespace ampcheck::reference
