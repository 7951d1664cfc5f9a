// SPDX-License-Identifier: Apache-2.0
#include "checks/reach/aim_target.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "checks/data/regimes.h"
#include "checks/reach/coverage.h"

namespace ampcheck::checks {

Target::Target(const OpDef& op, const OpCall& call) : call_(call), run_(op, call_, options_), values_(recording()) {
  for (const auto& [name, values] : run_.reference.inputs()) values_.set(name, values);
  for (const auto& [name, values] : run_.cotangents(relations_probe(call_)))
    values_.set(name, values);  // full mantissas: sums of them round
  inputs_ = run_.reference.inputs();
}

std::vector<const TensorSpec*> Target::inputs() {
  std::vector<const TensorSpec*> out;
  for (const TensorSpec& spec : run_.op.signature.inputs)
    if (recording().inputs.contains(spec.name)) out.push_back(&spec);
  std::stable_sort(out.begin(), out.end(),
                   [&](const auto* a, const auto* b) { return call_.shape(*a).count() > call_.shape(*b).count(); });
  return out;
}

void Target::set(const std::vector<AimedInput>& aims) {
  for (const TensorSpec* const spec : inputs()) {
    const auto aim = std::find_if(aims.begin(), aims.end(), [&](const AimedInput& a) { return a.input == spec->name; });
    const std::string range = aim == aims.end() ? "normal" : aimed_range({*aim});
    std::string& has = ranges_[spec->name];
    if (has == range || (has.empty() && range == "normal" && call_.range == "normal")) continue;
    OpCall at = call_;
    at.range = range;
    has = range;
    inputs_[spec->name] = input_values(run_.op.signature, at, *spec);
    values_.set(spec->name, inputs_[spec->name]);
  }
}

std::unique_ptr<reference::BallEvaluator> Target::balls_of(const std::vector<reference::Expr>& targets,
                                                           reference::Switches switches) {
  auto out = std::make_unique<reference::BallEvaluator>(
      *recording().graph, arithmetic_of(run_.op.signature, call_, run_.options.device), targets, switches);
  for (const auto& [name, node] : recording().inputs) out->set(node, inputs_.at(name));
  for (const auto& [name, node] : recording().cotangents) out->set(node, run_.reference.cotangents().at(name));
  out->run(targets);
  return out;
}

std::vector<reference::Expr> Target::results() {
  std::vector<reference::Expr> out = recording().output_nodes();
  for (const reference::Expr& node : recording().gradient_nodes()) out.push_back(node);
  return out;
}

std::map<std::string, Interval> Target::intervals() {
  const auto balls = balls_of(results());
  std::map<std::string, Interval> out;
  for (const auto* list : {&recording().outputs, &recording().gradients})
    for (const auto& [name, node] : *list)
      out.emplace(name, interval_of(balls->result(node), dtype_of_written(name), recording().form, true));
  return out;
}

bool Target::determined(int node) {
  const auto balls = balls_of({recording().graph->at(node)});
  const reference::Ball& ball = balls->result(recording().graph->at(node));
  for (std::int64_t i = 0; i < ball.count(); ++i)
    if (std::fabs(ball.v[i]) > (ball.r ? ball.r[i] : 0.0)) return true;
  return false;
}

double Target::rounding_share(reference::Primitive primitive) {
  const auto all = balls_of(results()), without = balls_of(results(), {true, static_cast<int>(primitive)});
  double share = 0;
  for (const reference::Expr& node : results()) {
    const reference::Ball &wide = all->result(node), &narrow = without->result(node);
    for (std::int64_t i = 0; i < wide.count() && wide.r; ++i)
      if (wide.r[i] > 0 && std::isfinite(wide.r[i]) && judged_by_interval(wide, i))
        share = std::max(share, 1 - (narrow.r ? narrow.r[i] : 0.0) / wide.r[i]);
  }
  return share;
}

double Target::typical(int node) {
  std::vector<double> finite;
  for (const double v : values_.value(node))
    if (std::isfinite(v)) finite.push_back(v);
  if (finite.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::nth_element(finite.begin(), finite.begin() + static_cast<std::ptrdiff_t>(finite.size() / 2), finite.end());
  return finite[finite.size() / 2];
}

std::optional<Site> Target::find(const Site& site) {
  for (Site& other : sites_of(recording(), needed_nodes(recording())))
    if (other.key == site.key) return std::move(other);
  return std::nullopt;
}

Dtype Target::dtype_of_written(const std::string& name) const {
  for (const auto* list : {&run_.outputs, &run_.gradients})
    for (const Written& tensor : *list)
      if (tensor.name == name) return tensor.dtype;
  return call_.storage;
}

}  // namespace ampcheck::checks
