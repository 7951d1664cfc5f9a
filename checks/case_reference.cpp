// SPDX-License-Identifier: Apache-2.0
#include "checks/case_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/error.h"

namespace ampcheck::checks {

using reference::BallEvaluator;
using reference::Expr;

reference::Arithmetic arithmetic_of(const OpSignature& signature, const OpCall& call) {
  const PrecisionContract& contract = signature.precision;
  if (contract.compute != Dtype::fp32) throw Error("[" + signature.name + "] compute type, got " + name(contract.compute) + ", want fp32");
  reference::Arithmetic out;
  out.math = contract.math;
  out.summation_depth = contract.summation_depth;
  out.flushes_subnormals = contract.flushes_subnormals;
  if (contract.accumulate != Dtype::fp32) out.accumulate_roundoff = format(contract.accumulate).unit_roundoff();
  for (const OutputSpec& saved : signature.saved) out.saved[saved.name] = &format(dtype_of(saved.type, call.storage));
  return out;
}

reference::CaseInputs case_inputs(const OpSignature& signature, const OpCall& call, const NamedValues& inputs) {
  reference::CaseInputs out;
  for (const TensorSpec& spec : signature.inputs) {
    if (!call.has(spec)) continue;
    const std::vector<double>& values = inputs.at(spec.name);
    if (is_float(call.dtype(spec))) out.shapes[spec.name] = call.shape(spec);
    else out.integers[spec.name] = std::vector<std::int64_t>(values.begin(), values.end()), out.integer_shapes[spec.name] = call.shape(spec);
  }
  return out;
}

CaseReference::CaseReference(const OpDef& op, const OpCall& call, NamedValues inputs)
    : op_(op), call_(call), inputs_(std::move(inputs)), evaluated_(op.forms.size()) {
  for (const auto& [name, values] : inputs_)
    for (const double v : values) inputs_finite_ &= std::isfinite(v);
}

Shape CaseReference::shape_of(const std::vector<std::pair<std::string, Expr>>& nodes, const std::string& name) {
  for (const auto& [key, node] : nodes)
    if (key == name) return node.shape();
  throw Error("[reference] no tensor named '" + name + "'");
}

CaseReference::Evaluated& CaseReference::form_at(std::size_t form) {
  if (!evaluated_[form]) {
    evaluated_[form] = std::make_unique<Evaluated>();
    evaluated_[form]->recording = reference::record(op_.signature, op_.forms[form], call_.attributes, case_inputs(op_.signature, call_, inputs_));
  }
  return *evaluated_[form];
}

namespace {

std::unique_ptr<BallEvaluator> make_evaluator(const reference::Recording& recording, const OpSignature& signature,
                                              const OpCall& call, const NamedValues& inputs) {
  std::vector<Expr> targets = recording.output_nodes();
  for (const auto& [name, node] : recording.stored) targets.push_back(node);
  for (const Expr& node : recording.gradient_nodes()) targets.push_back(node);
  reference::Arithmetic arithmetic = arithmetic_of(signature, call);
  arithmetic.one_pass = recording.one_pass;
  auto out = std::make_unique<BallEvaluator>(*recording.graph, arithmetic, targets);
  for (const auto& [name, node] : recording.inputs) out->set(node, inputs.at(name));
  return out;
}

}  // namespace

BallEvaluator& CaseReference::forward(Evaluated& form) {
  if (!form.balls) {
    form.balls = make_evaluator(form.recording, op_.signature, call_, inputs_);
    std::vector<Expr> targets = form.recording.output_nodes();
    for (const auto& [name, node] : form.recording.stored) targets.push_back(node);
    form.balls->run(targets);
  }
  return *form.balls;
}

namespace {

/// NaN payloads count too.
bool same_bits(const NamedValues& a, const NamedValues& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.size() == y.second.size() &&
           (x.second.empty() || std::memcmp(x.second.data(), y.second.data(), x.second.size() * sizeof(double)) == 0);
  });
}

}  // namespace

void CaseReference::set_cotangents(const NamedValues& cotangents) {
  if (probe_ > 0 && same_bits(cotangents, cotangents_)) return;
  cotangents_ = cotangents;
  cotangents_finite_ = true;
  for (const auto& [name, values] : cotangents_)
    for (const double v : values) cotangents_finite_ &= std::isfinite(v);
  ++probe_;
}

void CaseReference::set_saved(NamedValues saved) { saved_ = std::move(saved); }

Interval CaseReference::output(std::size_t form, const std::string& name, Dtype dtype) {
  Evaluated& at = form_at(form);
  BallEvaluator& balls = forward(at);
  for (const auto& [key, node] : at.recording.outputs)
    if (key == name) return interval_of(balls.result(node), dtype, at.recording.form, inputs_finite_);
  const auto stored = at.recording.stored.find(name);
  if (stored == at.recording.stored.end())
    throw Error("[" + op_.signature.name + "] form '" + at.recording.form + "' has no stored(\"" + name + "\")");
  return interval_of(balls.result(stored->second), dtype, at.recording.form, inputs_finite_);
}

BallEvaluator& CaseReference::evaluate_gradients(std::size_t form, bool at_saved) {
  Evaluated& at = form_at(form);
  int& probe = at_saved ? at.probe_at_saved : at.probe;
  forward(at);
  if (at_saved && !at.at_saved) {
    at.at_saved = make_evaluator(at.recording, op_.signature, call_, inputs_);
    for (const auto& [key, node] : at.recording.stored)
      if (saved_.contains(key)) at.at_saved->set(node, saved_.at(key));
  }
  BallEvaluator& balls = at_saved ? *at.at_saved : *at.balls;
  if (probe != probe_) {
    for (const auto& [key, node] : at.recording.cotangents) balls.set(node, cotangents_.at(key));
    balls.run(at.recording.gradient_nodes());
    probe = probe_;
  }
  return balls;
}

const reference::Ball& CaseReference::gradient_ball(std::size_t form, const std::string& name, bool at_saved) {
  const BallEvaluator& balls = evaluate_gradients(form, at_saved);
  const Evaluated& at = form_at(form);
  for (const auto& [key, node] : at.recording.gradients)
    if (key == name) return balls.result(node);
  throw Error("[reference] no gradient named '" + name + "'");
}

Interval CaseReference::gradient(std::size_t form, const std::string& name, Dtype dtype, bool at_saved) {
  const reference::Ball& ball = gradient_ball(form, name, at_saved);
  return interval_of(ball, dtype, form_at(form).recording.form, inputs_finite_ && cotangents_finite_);
}

Interval CaseReference::accumulated(std::size_t form, const std::string& name, Dtype dtype, const std::vector<double>& held, bool at_saved) {
  return interval_of_sum(gradient_ball(form, name, at_saved), held, dtype, form_at(form).recording.form, inputs_finite_);
}

bool CaseReference::tame() { return !forward(form_at(0)).full(); }

}  // namespace ampcheck::checks
