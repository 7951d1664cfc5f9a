// SPDX-License-Identifier: Apache-2.0
#include "checks/case/case_reference.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/cublas.h"
#include "reference/graph/unguarded.h"
#include "reference/replay/replay.h"
#include "src/error.h"

namespace ampcheck::checks {

using reference::BallEvaluator;
using reference::Expr;

namespace {

/// The types of what a product may take from memory.
std::map<std::string, Dtype> types_in_memory(const OpSignature& signature, const OpCall& call) {
  std::map<std::string, Dtype> out;
  for (const TensorSpec& spec : signature.inputs) {
    if (!call.has(spec)) continue;
    out[spec.name] = call.dtype(spec);
    out[tangent_name(spec.name)] = call.dtype(spec);
  }
  for (const OutputSpec& output : signature.outputs)
    out[gradient_name(output.name)] = dtype_of(output.type, call.storage);
  for (const auto* list : {&signature.saved, &signature.outputs})
    for (const OutputSpec& read : *list)
      if (list == &signature.saved || read.to_backward) out[read.name] = dtype_of(read.type, call.storage);
  return out;
}

}  // namespace

reference::Arithmetic arithmetic_of(const OpSignature& signature, const OpCall& call, Device device) {
  const bool cublas = device == Device::cuda && signature.precision.cublas;
  return arithmetic_of(signature, call, cublas ? kernels::cublas_cores() : TensorCore::none);
}

reference::Arithmetic arithmetic_of(const OpSignature& signature, const OpCall& call, TensorCore cublas) {
  const PrecisionContract& contract = signature.precision;
  if (contract.compute != Dtype::fp32)
    throw Error("[" + signature.name + "] compute type, got " + name(contract.compute) + ", want fp32");
  reference::Arithmetic out;
  out.math = contract.math;
  if (call.storage == Dtype::fp64) out.math.erfc = std::max(out.math.erfc, 5.0);  // both libraries' in double precision
  out.summation_depth = contract.summation_depth;
  out.flushes_subnormals = contract.flushes_subnormals;
  const Accumulator& sums = contract.accumulate;
  if (sums.dtype != Dtype::fp32) out.accumulate_roundoff = format(sums.dtype).unit_roundoff();
  if (sums.core != TensorCore::none && contract.summation_depth != 0)
    throw Error("[" + signature.name + "] summation_depth, got " + std::to_string(contract.summation_depth) + " with " +
                name(sums) + ", want 0: tensor cores have an order of their own");
  if (sums.core != TensorCore::none || cublas != TensorCore::none)
    out.products = {.core = sums.core != TensorCore::none ? sums.core : cublas,
                    .storage = call.storage,
                    .converts = sums.core != TensorCore::none,
                    .leaves = types_in_memory(signature, call)};
  for (const auto* list : {&signature.saved, &signature.outputs})
    for (const OutputSpec& read : *list)
      // In fp64 what is saved is of the compute type.
      if ((list == &signature.saved || read.to_backward) && dtype_of(read.type, call.storage) != Dtype::fp64)
        out.saved[read.name] = &format(dtype_of(read.type, call.storage));
  if (call.storage != Dtype::fp64) out.saved[""] = &format(call.storage);  // of rounded(x)
  return out;
}

const std::vector<std::pair<std::string, Expr>>& nodes_of(const reference::Recording& recording, Pass pass) {
  return pass == Pass::forward ? recording.outputs : pass == Pass::jvp ? recording.jvps : recording.gradients;
}

void give_forward(const reference::Recording& recording, Leaves& leaves) {
  int first = static_cast<int>(recording.graph->nodes().size());
  for (const auto& [name, node] : recording.cotangents) first = std::min(first, node.id);
  std::set<int> taken;
  for (std::size_t id = static_cast<std::size_t>(first); id < recording.graph->nodes().size(); ++id)
    for (const int arg : recording.graph->node(static_cast<int>(id)).args)
      if (arg < first && !recording.graph->node(arg).args.empty()) taken.insert(arg);
  std::vector<reference::Expr> nodes;
  for (const int id : taken) nodes.push_back(recording.graph->at(id));
  std::vector<std::vector<double>> values = reference::replay(*recording.graph, leaves, nodes, {});
  for (std::size_t k = 0; k < nodes.size(); ++k) leaves.emplace_back(nodes[k], std::move(values[k]));
}

CaseReference::CaseReference(const OpDef& op, const OpCall& call, NamedValues inputs, Device device)
    : op_(op), call_(call), device_(device), inputs_(std::move(inputs)), evaluated_(op.forms.size()) {
  inputs_finite_ = measure(inputs_);
}

bool CaseReference::measure(const NamedValues& values) {
  bool finite = true;
  for (const auto& [name, list] : values) finite &= (ranges_[name] = reference::extremes_of(list)).finite;
  return finite;
}

Shape CaseReference::shape_of(const std::vector<std::pair<std::string, Expr>>& nodes, const std::string& name) {
  for (const auto& [key, node] : nodes)
    if (key == name) return node.shape();
  throw Error("[reference] no tensor named '" + name + "'");
}

std::vector<std::size_t> CaseReference::forms() const {
  if (op_.tried_first >= op_.forms.size())
    throw Error("[" + op_.signature.name + "] tried_first, got " + std::to_string(op_.tried_first) + ", want one of " +
                std::to_string(op_.forms.size()) + " forms");
  if (formula_alone_) return {0};
  std::vector<std::size_t> order{op_.tried_first};
  for (std::size_t form = 0; form < op_.forms.size(); ++form)
    if (form != op_.tried_first) order.push_back(form);
  return order;
}

CaseReference::Evaluated& CaseReference::form_at(std::size_t form) {
  if (!evaluated_[form]) {
    evaluated_[form] = std::make_unique<Evaluated>();
    const auto record = inputs_finite() ? reference::record : reference::record_unguarded;
    evaluated_[form]->recording =
        record(op_.signature, op_.forms[form], call_.attributes, case_inputs(op_.signature, call_, inputs_));
  }
  return *evaluated_[form];
}

namespace {

std::unique_ptr<BallEvaluator> make_evaluator(const reference::Recording& recording, const OpSignature& signature,
                                              const OpCall& call, Device device, const NamedValues& inputs,
                                              const Ranges& ranges, const std::vector<Expr>& targets,
                                              reference::Radii radii, bool flushes = false) {
  reference::Arithmetic arithmetic = arithmetic_of(signature, call, device);
  arithmetic.one_pass = recording.one_pass;
  arithmetic.flushes_subnormals |= flushes;
  auto out = std::make_unique<BallEvaluator>(*recording.graph, arithmetic, targets, reference::Switches{}, radii);
  for (const auto& [name, node] : recording.inputs) out->borrow(node, inputs.at(name), ranges.at(name));
  for (const auto& [name, node] : recording.cotangents) out->varies(node);
  const auto& adding = signature.launch.accumulates;
  for (const auto* list : {&recording.outputs, &recording.gradients})
    for (const auto& [name, node] : *list)
      if (std::find(adding.begin(), adding.end(), name) != adding.end()) out->adds_on(node);
  return out;
}

/// Forward mode alone, or what both directions need.
std::vector<Expr> targets_of(const reference::Recording& recording, Pass pass) {
  if (pass == Pass::jvp) return recording.jvp_nodes();
  std::vector<Expr> targets = recording.output_nodes();
  for (const auto& [name, node] : recording.stored) targets.push_back(node);
  for (const Expr& node : recording.gradient_nodes()) targets.push_back(node);
  return targets;
}

}  // namespace

CaseReference::Evaluated::Balls& CaseReference::evaluator(Evaluated& form, Pass pass, reference::Radii radii) {
  Evaluated::Balls& balls = form.at(pass, radii);
  if (!balls.of) {
    balls.of = make_evaluator(form.recording, op_.signature, call_, device_, inputs_, ranges_,
                              targets_of(form.recording, pass), radii);
    if (pass == Pass::jvp)
      for (const auto& [key, node] : form.recording.tangents)
        balls.of->borrow(node, tangents_.at(key), ranges_.at(key));
    for (const auto& [key, node] : form.recording.stored)
      if (pass == Pass::backward_at_saved && saved_.contains(key))
        balls.of->borrow(node, saved_.at(key), ranges_.at(key));
  }
  return balls;
}

BallEvaluator& CaseReference::ready(Evaluated& form, Pass pass, reference::Radii radii) {
  Evaluated::Balls& balls = evaluator(form, pass, radii);
  if (pass != Pass::forward && pass != Pass::jvp && balls.probe != probe_) {
    for (const auto& [key, node] : form.recording.cotangents)
      balls.of->borrow(node, cotangents_.at(key), ranges_.at(key));
    balls.probe = probe_;
  }
  if (const auto& bounded = form.at(pass, reference::Radii::uniform).of; radii == reference::Radii::each && bounded)
    balls.of->adopt_moved(*bounded);
  return *balls.of;
}

Expr CaseReference::node_of(const Evaluated& form, Pass pass, const std::string& name) {
  for (const auto& [key, node] : nodes_of(form.recording, pass))
    if (key == name) return node;
  const auto stored = form.recording.stored.find(name);
  if (pass != Pass::forward || stored == form.recording.stored.end())
    throw Error("[reference] form '" + form.recording.form + "' has no tensor named '" + name + "', wanted for " +
                (pass == Pass::forward ? "the forward"
                 : pass == Pass::jvp   ? "forward mode"
                                       : "the backward"));
  return stored->second;
}

void CaseReference::set_cotangents(NamedValues cotangents) {
  cotangents_ = std::move(cotangents);
  declared_ = {};
  cotangents_finite_ = measure(cotangents_);
  ++probe_;
}

void CaseReference::set_cotangents(NamedValues cotangents, const Ranges& ranges) {
  cotangents_ = std::move(cotangents);
  declared_ = {};
  cotangents_finite_ = true;
  for (const auto& [name, range] : ranges) cotangents_finite_ &= (ranges_[name] = range).finite;
  ++probe_;
}

void CaseReference::set_tangents(NamedValues tangents) {
  tangents_ = std::move(tangents);
  declared_ = {};
  tangents_finite_ = measure(tangents_);
}

void CaseReference::set_saved(NamedValues saved) {
  saved_ = std::move(saved);
  declared_ = {};
  measure(saved_);
}

bool CaseReference::stream_with(reference::Radii radii, std::size_t form, Pass pass,
                                const std::vector<std::string>& names, const Part& part, const std::vector<char>* rows,
                                const reference::RowElements* elements) {
  Evaluated& at = form_at(form);
  BallEvaluator& balls = ready(at, pass, radii);
  const std::int64_t fewest = radii == reference::Radii::uniform ? 1 : 2;  // one block alone is the whole
  if (balls.rows().blocks() < fewest || balls.full() || in_fp64() || sums_in_fp16()) return false;
  std::vector<Expr> targets;
  for (const std::string& name : names) targets.push_back(node_of(at, pass, name));
  const auto sink = [&](Expr target, std::int64_t first, const reference::Ball& ball) {
    for (std::size_t k = 0; k < targets.size(); ++k)
      if (targets[k].id == target.id) part(k, first, ball);
  };
  // One node may be several targets, but is handed over once.
  std::vector<Expr> distinct;
  for (const Expr& target : targets)
    if (std::none_of(distinct.begin(), distinct.end(), [&](Expr e) { return e.id == target.id; }))
      distinct.push_back(target);
  return balls.stream(distinct, sink, rows == nullptr || balls.needs_all_rows(distinct) ? nullptr : rows, elements);
}

bool CaseReference::stream(std::size_t form, Pass pass, const std::vector<std::string>& names, const Part& part,
                           const std::vector<char>* rows, const reference::RowElements* elements) {
  return stream_with(reference::Radii::each, form, pass, names, part, rows, elements);
}

bool CaseReference::takes_elements(std::size_t form, Pass pass, const std::vector<std::string>& names) {
  Evaluated& at = form_at(form);
  std::vector<Expr> targets;
  for (const std::string& name : names) targets.push_back(node_of(at, pass, name));
  return evaluator(at, pass).of->takes_elements(targets);
}

bool CaseReference::stream_uniform(std::size_t form, Pass pass, const std::vector<std::string>& names,
                                   const Part& part) {
  return stream_with(reference::Radii::uniform, form, pass, names, part, nullptr, nullptr);
}

std::vector<double> CaseReference::values(Pass pass, const std::string& name) {
  std::vector<double> out;
  const auto take = [&](std::size_t, std::int64_t first, const reference::Ball& part) {
    out.resize(std::max(out.size(), static_cast<std::size_t>(first + part.count())));
    std::copy_n(part.v.get(), part.count(), out.begin() + first);
  };
  if (stream_uniform(0, pass, {name}, take)) return out;
  const reference::Ball& whole = ball(0, pass, name);
  out.assign(whole.v.get(), whole.v.get() + whole.count());
  return out;
}

double CaseReference::radius_at(std::size_t form, Pass pass, const std::string& name, std::int64_t at,
                                const reference::RadiusTest& enough) {
  Evaluated& of = form_at(form);
  return evaluator(of, pass, reference::Radii::uniform).of->radius_at(node_of(of, pass, name), at, enough);
}

std::optional<reference::Ball> CaseReference::columns(std::size_t form, Pass pass, const std::string& name,
                                                      std::span<const std::int64_t> columns) {
  if (in_fp64() || sums_in_fp16()) return std::nullopt;
  Evaluated& at = form_at(form);
  return ready(at, pass).columns(node_of(at, pass, name), columns);
}

bool CaseReference::by_row(std::size_t form, Pass pass, const std::string& name) {
  Evaluated& at = form_at(form);
  return !evaluator(at, pass).of->needs_all_rows({node_of(at, pass, name)});
}

const reference::Ball& CaseReference::ball(std::size_t form, Pass pass, const std::string& name) {
  Evaluated& at = form_at(form);
  BallEvaluator& balls = ready(at, pass);
  const Expr node = node_of(at, pass, name);
  if (balls.known(node)) return balls.result(node);
  std::vector<Expr> targets;
  for (const auto& [key, target] : nodes_of(at.recording, pass)) targets.push_back(target);
  for (const auto& [key, stored] : at.recording.stored)
    if (pass == Pass::forward) targets.push_back(stored);
  balls.run(targets);
  return balls.result(node);
}

Interval CaseReference::interval_of_part(std::size_t form, Pass pass, const reference::Ball& part, Dtype dtype,
                                         std::span<const double> held) {
  const std::string& words = form_at(form).recording.form;
  if (!held.empty())
    return interval_of(evaluator(form_at(form), pass).of->added_to(part, held), dtype, words, inputs_finite_);
  return interval_of(
      part, dtype, words,
      inputs_finite_ && (pass == Pass::forward || (pass == Pass::jvp ? tangents_finite_ : cotangents_finite_)));
}

std::vector<double> CaseReference::exact_values(Evaluated& form, Pass pass, Expr node) {
  Evaluated::Exact& exact = form.exact[Evaluated::kind(pass)];
  const bool first = exact.of == nullptr;
  if (first) exact.of = std::make_unique<reference::QuadEvaluator>(*form.recording.graph);
  const auto set = [&](const std::map<std::string, Expr>& nodes, const NamedValues& values) {
    for (const auto& [key, leaf] : nodes)
      if (const auto found = values.find(key); found != values.end()) exact.of->set(leaf, found->second);
  };
  if (first) {
    set(form.recording.inputs, inputs_);
    set(form.recording.tangents, tangents_);
    if (pass == Pass::backward_at_saved) set(form.recording.stored, saved_);
  }
  if (exact.probe != probe_) set(form.recording.cotangents, cotangents_);
  exact.probe = probe_;
  return exact.of->value(node);
}

Interval CaseReference::interval_computed_in_fp32(std::size_t form, Pass pass, const std::string& name) {
  return interval_of_part(form, pass, ball(form, pass, name), Dtype::fp64, {});
}

Interval CaseReference::interval(std::size_t form, Pass pass, const std::string& name, Dtype dtype,
                                 std::span<const double> held) {
  if (in_fp64() && dtype == Dtype::fp64) {
    const reference::Ball& own = ball(form, pass, name);
    const std::vector<double> values = exact_values(form_at(form), pass, node_of(form_at(form), pass, name));
    return interval_in_fp64(
        held.empty() ? own : evaluator(form_at(form), pass).of->added_to(own, held), values, held,
        form_at(form).recording.form,
        inputs_finite_ && (pass == Pass::forward || (pass == Pass::jvp ? tangents_finite_ : cotangents_finite_)));
  }
  Interval out = interval_of_part(form, pass, ball(form, pass, name), dtype, held);
  if (sums_in_fp16() && pass != Pass::jvp) open_overflows_in_fp16(form, pass, name, out);
  return out;
}

void CaseReference::open_overflows_in_fp16(std::size_t form, Pass pass, const std::string& name, Interval& interval) {
  using enum reference::SumOrder;
  const Evaluated& at = form_at(form);
  const Leaves from = leaves(form, pass);
  for (const reference::SumOrder order : {sequential, reversed, pairwise, lanes32}) {
    const std::vector<double> values = reference::replay(*at.recording.graph, from, {node_of(at, pass, name)},
                                                         {.order = order, .accumulate = &format(Dtype::fp16)})
                                           .front();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i]) || (!interval.how.empty() && interval.how[i] != Judgement::interval)) continue;
      if (interval.how.empty()) interval.how.assign(values.size(), Judgement::interval);
      interval.how[i] = Judgement::open;
    }
  }
}

Interval CaseReference::interval_flushing(std::size_t form, Pass pass, const std::string& name, Dtype dtype) {
  Evaluated& at = form_at(form);
  const std::unique_ptr<BallEvaluator> balls =
      make_evaluator(at.recording, op_.signature, call_, device_, inputs_, ranges_, targets_of(at.recording, pass),
                     reference::Radii::each, true);
  if (pass != Pass::forward)
    for (const auto& [key, node] : at.recording.cotangents) balls->borrow(node, cotangents_.at(key), ranges_.at(key));
  const Expr node = node_of(at, pass, name);
  balls->run({node});
  return interval_of_part(form, pass, balls->result(node), dtype, {});
}

std::unique_ptr<BallEvaluator> CaseReference::around(Evaluated& form, Pass pass, const std::vector<Expr>& targets,
                                                     const NamedValues& radii) {
  std::unique_ptr<BallEvaluator> balls =
      make_evaluator(form.recording, op_.signature, call_, device_, inputs_, ranges_, targets, reference::Radii::each);
  for (const auto& [key, node] : form.recording.inputs)
    if (const auto radius = radii.find(key); radius != radii.end()) balls->set(node, inputs_.at(key), radius->second);
  for (const auto& [key, node] : pass == Pass::jvp ? form.recording.tangents : form.recording.cotangents) {
    if (pass == Pass::forward) break;
    balls->borrow(node, pass == Pass::jvp ? tangents_.at(key) : cotangents_.at(key), ranges_.at(key));
  }
  balls->run(targets);
  return balls;
}

Interval CaseReference::interval_around(std::size_t form, Pass pass, const std::string& name, Dtype dtype,
                                        const NamedValues& radii, std::span<const double> held) {
  const Expr node = node_of(form_at(form), pass, name);
  return interval_of_part(form, pass, around(form_at(form), pass, {node}, radii)->result(node), dtype, held);
}

bool CaseReference::decided_around(std::size_t form, Pass pass, const std::vector<Expr>& nodes,
                                   const NamedValues& radii) {
  const std::unique_ptr<BallEvaluator> balls = around(form_at(form), pass, nodes, radii);
  return std::all_of(nodes.begin(), nodes.end(), [&](Expr node) {
    const reference::Ball& ball = balls->result(node);
    const std::int64_t n = ball.count();
    return !ball.flags && (!ball.r || std::all_of(ball.r.get(), ball.r.get() + n, [](double r) { return r == 0; }));
  });
}

const BallEvaluator& CaseReference::declared(std::size_t form, Pass pass, const std::string& name) {
  if (declared_.balls && declared_.form == form && declared_.pass == pass && declared_.name == name)
    return *declared_.balls;
  Evaluated& at = form_at(form);
  reference::Graph& graph = *at.recording.graph;
  const Expr node = node_of(at, pass, name);
  std::vector<char> needed(graph.nodes().size(), 0);
  needed[static_cast<std::size_t>(node.id)] = 1;
  std::vector<Expr> all;  // targets are kept
  for (int id = node.id; id >= 0; --id) {
    if (!needed[static_cast<std::size_t>(id)]) continue;
    all.push_back(graph.at(id));
    for (const int arg : graph.node(id).args) needed[static_cast<std::size_t>(arg)] = 1;
  }
  declared_ = {
      form, pass, name,
      make_evaluator(at.recording, op_.signature, call_, device_, inputs_, ranges_, all, reference::Radii::each)};
  BallEvaluator& balls = *declared_.balls;
  if (pass != Pass::forward)
    for (const auto& [key, leaf] : at.recording.cotangents) balls.borrow(leaf, cotangents_.at(key), ranges_.at(key));
  for (const auto& [key, stored] : at.recording.stored)
    if (pass == Pass::backward_at_saved && saved_.contains(key)) balls.borrow(stored, saved_.at(key), ranges_.at(key));
  balls.run(all);
  return balls;
}

std::optional<Interval> CaseReference::interval_departing(std::size_t form, Pass pass, const std::string& name,
                                                          Dtype dtype, std::span<const Departing> nodes) {
  Evaluated& at = form_at(form);
  reference::Graph& graph = *at.recording.graph;
  const Expr node = node_of(at, pass, name);
  BallEvaluator balls = declared(form, pass, name);  // shares what does not depart
  for (const Departing& one : nodes) {
    const Expr own = graph.at(one.node),
               operand = graph.node(one.node).args.empty() ? own : graph.at(graph.node(one.node).args[0]);
    balls.run({operand, own});
    std::vector<double> values(static_cast<std::size_t>(own.shape().count())), radii(values.size());
    if (!one.make(balls.result(own), balls.result(operand), values, radii)) return std::nullopt;
    balls.set(own, values, radii);
  }
  balls.run({node});
  return interval_of_part(form, pass, balls.result(node), dtype, {});
}

Leaves CaseReference::leaves(std::size_t form, Pass pass) {
  const reference::Recording& recording = form_at(form).recording;
  Leaves out;
  for (const auto& [key, leaf] : recording.inputs) out.emplace_back(leaf, inputs_.at(key));
  if (pass == Pass::jvp)
    for (const auto& [key, leaf] : recording.tangents) out.emplace_back(leaf, tangents_.at(key));
  if (pass == Pass::backward || pass == Pass::backward_at_saved)
    for (const auto& [key, leaf] : recording.cotangents) out.emplace_back(leaf, cotangents_.at(key));
  for (const auto& [key, leaf] : recording.stored)
    if (pass == Pass::backward_at_saved && saved_.contains(key)) out.emplace_back(leaf, saved_.at(key));
  return out;
}

std::vector<char> CaseReference::behind_choices(std::size_t form, Pass pass, const std::string& name) {
  if (pass == Pass::forward || inputs_finite_) return {};
  const Evaluated& at = form_at(form);
  return reference::behind_choices(*at.recording.graph, leaves(form, pass), node_of(at, pass, name));
}

std::optional<reference::Regrouped> CaseReference::regrouped(std::size_t form, Pass pass, const std::string& name,
                                                             std::span<const double> held) {
  constexpr double kMost = 1 << 22;  // operations
  const Evaluated& at = form_at(form);
  const Expr node = node_of(at, pass, name);
  if (op_.signature.precision.summation_depth != 0 || reference::operations_of(*at.recording.graph, node) > kMost)
    return std::nullopt;
  reference::Arithmetic arithmetic = arithmetic_of(op_.signature, call_, device_);
  arithmetic.one_pass = at.recording.one_pass;
  reference::Regrouped out = reference::regrouped(*at.recording.graph, leaves(form, pass), node, arithmetic, held);
  if (in_fp64()) {  // as interval_in_fp64()
    out.value = exact_values(form_at(form), pass, node);
    for (std::size_t i = 0; i < out.value.size(); ++i) {
      const double value = out.value[i];
      if (!held.empty()) out.value[i] += held[i];
      const double sizes = std::fabs(out.value[i]) + (held.empty() ? 0 : std::fabs(value));
      out.radius[i] = radius_in_fp64(out.radius[i], sizes);
    }
  }
  return out;
}

bool CaseReference::adds_up(std::size_t form, Pass pass, const std::string& name) {
  const Evaluated& at = form_at(form);
  return reference::adds_up(*at.recording.graph, node_of(at, pass, name));
}

bool CaseReference::tame() {
  Evaluated& first = form_at(op_.tried_first);
  const auto& each = first.at(Pass::forward, reference::Radii::each).of;
  const auto& uniform = first.at(Pass::forward, reference::Radii::uniform).of;
  const bool bounded = uniform != nullptr && !uniform->gave_up();  // it holds as long as the plain mode does
  if (!bounded && each == nullptr) ball(op_.tried_first, Pass::forward, first.recording.outputs.front().first);
  return each == nullptr || !each->full();
}

}  // namespace ampcheck::checks
