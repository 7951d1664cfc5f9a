// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/reach/coverage.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "checks/data/regimes.h"
#include "checks/reach/certified.h"
#include "checks/reach/sites.h"
#include "reference/ball/ball.h"
#include "reference/replay/replay.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kLargest = 512;  ///< elements of the largest tensor for which evaluating again is cheap

std::int64_t largest_tensor(const OpSignature& signature, const OpCall& call) {
  std::int64_t largest = 0;
  for (const TensorSpec& spec : signature.inputs)
    if (call.has(spec)) largest = std::max(largest, call.shape(spec).count());
  return largest;
}

/// Balls of outputs and gradients of the first form with some contributions switched off.
std::vector<reference::Ball> evaluate(const reference::Recording& recording, const reference::Arithmetic& arithmetic,
                                      const NamedValues& inputs, const NamedValues& cotangents,
                                      reference::Switches switches) {
  std::vector<reference::Expr> targets = recording.output_nodes();
  for (const reference::Expr& node : recording.gradient_nodes()) targets.push_back(node);
  reference::BallEvaluator balls(*recording.graph, arithmetic, targets, switches);
  for (const auto& [name, node] : recording.inputs) balls.set(node, inputs.at(name));
  for (const auto& [name, node] : recording.cotangents) balls.set(node, cotangents.at(name));
  balls.run(targets);
  std::vector<reference::Ball> out;
  for (const reference::Expr& target : targets) out.push_back(balls.result(target));
  return out;
}

double radius(const reference::Ball& ball, std::int64_t i) { return ball.r ? ball.r[i] : 0.0; }

}  // namespace

bool judged_by_interval(const reference::Ball& ball, std::int64_t i) {
  return std::fabs(ball.v[i]) <= kFp32.max_finite() &&
         (!ball.flags || (ball.flags[i] & (reference::kOverflowed | reference::kLeftRange)) == 0);
}

std::vector<Contribution> Coverage::contributions() const {
  std::vector<Contribution> out;
  for (const auto& [primitive, share] : best_) out.push_back({primitive, share});
  return out;
}

namespace {

/// Which sides of its conditions a case took: "where yes" and "where no" of every `where`, seen (1) or not (0).
void see_branches(const reference::Recording& recording, const std::vector<char>& needed,
                  const reference::Arithmetic& arithmetic, const NamedValues& inputs, const NamedValues& cotangents,
                  Coverage& out) {
  std::vector<reference::Expr> conditions;
  for (std::size_t id = 0; id < needed.size(); ++id)
    if (needed[id] && recording.graph->node(static_cast<int>(id)).primitive == reference::Primitive::where)
      conditions.push_back(recording.graph->at(recording.graph->node(static_cast<int>(id)).args[0]));
  if (conditions.empty()) return;
  reference::BallEvaluator balls(*recording.graph, arithmetic, conditions);
  for (const auto& [name, node] : recording.inputs) balls.set(node, inputs.at(name));
  for (const auto& [name, node] : recording.cotangents) balls.set(node, cotangents.at(name));
  balls.run(conditions);
  double yes = 0, no = 0;
  for (const reference::Expr& condition : conditions)
    for (std::int64_t i = 0; i < condition.shape().count(); ++i) (balls.result(condition).v[i] != 0 ? yes : no) = 1;
  out.see("branch yes", yes);
  out.see("branch no", no);
}

}  // namespace

namespace {

/// The largest share that the own rounding of each primitive has of a radius.
void see_roundings(const reference::Recording& recording, const reference::Arithmetic& arithmetic,
                   const NamedValues& inputs, const NamedValues& cotangents, const std::set<reference::Primitive>& used,
                   Coverage& out) {
  if (used.empty()) return;
  const auto all = evaluate(recording, arithmetic, inputs, cotangents, {});
  for (const reference::Primitive primitive : used) {
    const auto without = evaluate(recording, arithmetic, inputs, cotangents, {true, static_cast<int>(primitive)});
    double share = 0;
    for (std::size_t t = 0; t < all.size(); ++t)
      for (std::int64_t i = 0; i < all[t].count(); ++i) {
        const double r = radius(all[t], i);
        if (r > 0 && std::isfinite(r) && judged_by_interval(all[t], i))
          share = std::max(share, 1 - radius(without[t], i) / r);
      }
    out.see(reference::name(primitive), share);
  }
}

}  // namespace

Coverage coverage_of(const OpDef& op, const OpCall& call) {
  Coverage out;
  if (op.forms.empty() || largest_tensor(op.signature, call) > kLargest || call.layout != "dense") return out;
  const RunOptions options;
  CaseRun run(op, call, options);
  const reference::Recording& recording = run.reference.recording();
  const std::vector<char> needed = needed_nodes(recording);
  std::set<reference::Primitive> used;
  for (std::size_t id = 0; id < needed.size(); ++id) {
    const reference::Node& node = recording.graph->node(static_cast<int>(id));
    if (!needed[id]) continue;
    if ((node.primitive >= reference::Primitive::add && node.primitive <= reference::Primitive::sigmoid &&
         node.primitive != reference::Primitive::neg) ||
        node.primitive == reference::Primitive::sum || node.primitive == reference::Primitive::matmul ||
        node.primitive == reference::Primitive::put_add || node.primitive == reference::Primitive::cumsum)
      used.insert(node.primitive);
  }
  if (!run.reference.inputs_finite()) return out;
  const NamedValues cotangents = run.cotangents(0);
  const reference::Arithmetic arithmetic = arithmetic_of(op.signature, call);
  see_branches(recording, needed, arithmetic, run.reference.inputs(), cotangents, out);
  see_roundings(recording, arithmetic, run.reference.inputs(), cotangents, used, out);
  // Sums of the small whole numbers of the first probe are exact: what rounds in those of full mantissas shows there.
  std::erase_if(used, [&](reference::Primitive p) { return out.share(reference::name(p)) >= kVisibleShare; });
  if (const int probe = relations_probe(call); probe != 0 && !used.empty())
    see_roundings(recording, arithmetic, run.reference.inputs(), run.cotangents(probe), used, out);
  return out;
}
void calibrate(CaseRun& run, const LaunchResult& forward) {
  if (largest_tensor(run.op.signature, run.call) > kLargest || !run.reference.inputs_finite() || !run.reference.tame())
    return;
  const reference::Recording& recording = run.reference.recording();
  const NamedValues cotangents = run.cotangents(0);
  const reference::Arithmetic arithmetic = arithmetic_of(run.op.signature, run.call, run.options.device);
  if (arithmetic.products.core != TensorCore::none) return;  // replays add up in fp32
  const auto full = evaluate(recording, arithmetic, run.reference.inputs(), cotangents, {});
  const auto fixed = evaluate(recording, arithmetic, run.reference.inputs(), cotangents, {false, -1});
  std::vector<std::pair<reference::Expr, std::vector<double>>> leaves;
  for (const auto& [name, node] : recording.inputs) leaves.emplace_back(node, run.reference.inputs().at(name));
  for (const auto& [name, node] : recording.cotangents) leaves.emplace_back(node, cotangents.at(name));
  std::vector<reference::Expr> targets = recording.output_nodes();
  for (const reference::Expr& node : recording.gradient_nodes()) targets.push_back(node);

  // c: the largest share of the summation part that a replay in fp32 really uses, tripled (gradcheck's rule), at
  // most 1.
  std::vector<double> c(targets.size(), 0);
  for (const auto order : {reference::SumOrder::sequential, reference::SumOrder::lanes32, reference::SumOrder::pairwise,
                           reference::SumOrder::reversed}) {
    const auto values = reference::replay(*recording.graph, leaves, targets, {order, nullptr});
    for (std::size_t t = 0; t < targets.size(); ++t)
      for (std::int64_t i = 0; i < full[t].count(); ++i) {
        const double part = radius(full[t], i) - radius(fixed[t], i);
        const double error = std::fabs(values[t][static_cast<std::size_t>(i)] - full[t].v[i]) - radius(fixed[t], i);
        if (part > 0) c[t] = std::max(c[t], error / part);
      }
  }
  const LaunchResult backward = run.run_backward(run.backward_tensors(run.reference.inputs(), forward, cotangents, 0));
  for (CheckResult& check : run.checks) {
    for (std::size_t t = 0; t < targets.size(); ++t) {
      const bool is_output = t < recording.outputs.size();
      const std::string& tensor =
          is_output ? recording.outputs[t].first : recording.gradients[t - recording.outputs.size()].first;
      const CheckId& id = check.id;
      const bool first_probe = id.kind == CheckId::Kind::backward && id.probe == 0 && !id.at_saved;
      const bool of_tensor = id.tensor == tensor && (is_output ? id.kind == CheckId::Kind::forward : first_probe);
      if (!of_tensor || run.accumulates(tensor)) continue;
      const double share = std::min(1.0, 3 * c[t]);
      reference::Ball narrow = full[t];
      narrow.r = reference::make_channel(narrow.count());
      for (std::int64_t i = 0; i < narrow.count(); ++i)
        narrow.r[i] = radius(fixed[t], i) + share * (radius(full[t], i) - radius(fixed[t], i));
      const GuardedTensor& got = (is_output ? forward : backward).written.at(tensor);
      const Comparison comparison =
          compare(to_doubles(got.view()), interval_of(narrow, check.dtype, "calibrated", true));
      // Another form's algebra is not unusual: only what the deterministic interval of this form admits counts.
      const Comparison wide = compare(to_doubles(got.view()), interval_of(full[t], check.dtype, "deterministic", true));
      check.unusual = std::max<std::int64_t>(
          0, static_cast<std::int64_t>(comparison.outside.size()) - static_cast<std::int64_t>(wide.outside.size()));
    }
  }
}

Certificate certificate_of(const OpDef& op) {
  Certificate out;
  out.op = op.signature.name;
  const auto known = certified(op);
  const reference::FormulaCertificate& certificate = *known;
  out.digits = certificate.digits;
  out.error_ratio = certificate.error_ratio;
  out.points = static_cast<std::int64_t>(certificate.points.size());
  out.kinks = certificate.kinks;
  out.variants = static_cast<std::int64_t>(certificate.variants.size());
  out.conventions = certificate.conventions;
  return out;
}

}  // namespace ampcheck::checks
