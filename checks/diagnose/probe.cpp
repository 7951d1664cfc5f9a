// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/probe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "checks/models/bound_call.h"
#include "checks/models/forwarding_tape.h"
#include "checks/train/graph.h"
#include "src/amp/autocast.h"
#include "src/amp/error.h"
#include "src/error.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

/// Remembers the inputs of one call of one forward on a graph.
class MeetingTape final : public models::ForwardingTape {
 public:
  MeetingTape(models::Tape& inner, const std::string& wanted, std::optional<MetCall>& out)
      : ForwardingTape(inner), wanted_(wanted), out_(out) {}

  models::Var parameter(const std::string& name, const Shape& shape, double offset, double scale) override {
    const models::Var out = inner_.parameter(name, shape, offset, scale);
    trained_.push_back(out.id);
    return out;
  }
  models::Var call(const std::string& op, const std::vector<std::pair<std::string, models::Var>>& inputs,
                   const std::vector<std::pair<std::string, double>>& attributes = {}) override {
    const std::string name = op + "_" + std::to_string(++counts_[op]);
    if (name == wanted_ && !out_ && !inferring_) remember(op, inputs, attributes);
    return inner_.call(op, inputs, attributes);
  }
  models::Var infer(const std::function<models::Var()>& block) override {
    std::map<std::string, int> before = std::exchange(counts_, {});
    inferring_ = true;
    const models::Var out = inner_.infer(block);
    inferring_ = false;
    counts_ = std::move(before);
    return out;
  }

 private:
  void remember(const std::string& op, const std::vector<std::pair<std::string, models::Var>>& inputs,
                const std::vector<std::pair<std::string, double>>& attributes) {
    const auto* const graph = dynamic_cast<const Graph*>(&inner_);
    if (graph == nullptr) return;
    out_ = MetCall{.op = op, .attributes = attributes};
    for (const auto& [name, var] : inputs) {
      const TensorView& view = graph->view(var);
      out_->inputs.push_back({name, view.shape, view.dtype,
                              std::find(trained_.begin(), trained_.end(), var.id) != trained_.end(), to_doubles(view)});
    }
  }

  const std::string& wanted_;
  bool inferring_ = false;
  std::optional<MetCall>& out_;
  std::vector<int> trained_;
  std::map<std::string, int> counts_;
};

/// Takes the first forward result.
class Taker final : public Observer {
 public:
  Taker(Answer& out, Dtype run) : out_(out), run_(run) {}
  bool wants(std::string_view) const override { return true; }
  bool wants_exact(std::string_view) const override { return true; }
  Seen see(const Event& e) override {
    Seen out{.all_finite = all_finite(e.got)};
    if (e.cast || e.phase != Phase::forward || !e.has_exact() || out_.ran) return out;
    out_.ran = true;
    out_.finite = out.all_finite;
    out_.got = to_doubles(e.got);
    out_.exact = to_doubles(e.exact);
    out_.exact_finite = true;
    double error2 = 0, exact2 = 0;
    for (std::size_t i = 0; i < out_.exact.size(); ++i) {
      out_.exact_finite &= std::isfinite(out_.exact[i]);
      if (std::isfinite(out_.exact[i])) out_.exact_largest = std::max(out_.exact_largest, std::fabs(out_.exact[i]));
      if (!std::isfinite(out_.exact[i]) || !std::isfinite(out_.got[i])) continue;
      out_.largest = std::max(out_.largest, std::fabs(out_.got[i]));
      error2 += (out_.got[i] - out_.exact[i]) * (out_.got[i] - out_.exact[i]);
      exact2 += out_.exact[i] * out_.exact[i];
    }
    out_.absolute = std::sqrt(error2);
    const double limit = error_limit(e.got.dtype, run_, std::sqrt(exact2), e.got.count());
    out_.excess = limit > 0 ? out_.absolute / limit : 0;
    out_.error = exact2 > 0 ? std::sqrt(error2 / exact2) : 0;
    return out;
  }

 private:
  Answer& out_;
  Dtype run_;
};

}  // namespace

MetCall::Input* MetCall::data() {
  for (Input& input : inputs)
    if (!input.trained && input.name != "target" && input.name != "index") return &input;
  return nullptr;
}

namespace {

/// A trainer before that step.
std::unique_ptr<Trainer> trainer_at(Lab& lab, const Subject& subject, const Change& change, int step) {
  std::unique_ptr<Trainer> out = make_trainer(subject, change, {}, 0);
  const Checkpoint* const start = lab.state_is_hidden() ? nullptr : lab.seen().before(step);
  if (start != nullptr) transplant(*out, start->bytes, false);
  while (out->steps() < step) out->step();
  return out;
}

}  // namespace

std::optional<Fp64Call> fp64_call(Lab& lab, const std::string& op, int step) {
  try {
    const std::unique_ptr<Trainer> trainer = trainer_at(lab, lab.subject(), {}, step);
    Fp64Run run(lab.subject().net(), trainer->options().rule, trainer->options().seed);
    run.start_from(trainer->parameters());
    run.prepare();
    run.resume_at(step);
    run.step();
    const models::StepRecord& record = run.records().front();
    const models::RecordedCall* const call = record.find(op);
    if (call == nullptr) return {};
    Fp64Call out{.met = {.op = call->call.op, .storage = Dtype::fp64, .run = Dtype::fp64},
                 .result = record.values[static_cast<std::size_t>(call->output)]};
    for (const auto& [name, value] : call->call.attributes.all())
      if (std::holds_alternative<double>(value)) out.met.attributes.emplace_back(name, std::get<double>(value));
    for (const auto& [name, id] : call->inputs) {
      const auto at = static_cast<std::size_t>(id);
      out.met.inputs.push_back({name, record.shapes[at], Dtype::fp64, false, record.values[at]});
    }
    return out;
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error&) {
    return {};
  }
}

std::vector<double> written_by(Lab& lab, const std::string& op, int step, const Change& change) {
  std::vector<double> out;
  Subject subject = lab.subject();
  const auto own = subject.make_fault;
  const Fault given = subject.options.fault;
  subject.make_fault = [&, own] {
    return [&, before = own ? own() : given](const Event& e) {
      if (before) before(e);
      if (out.empty() && e.step == step && e.phase == Phase::forward && !e.cast && e.op == op) out = to_doubles(e.got);
    };
  };
  try {
    trainer_at(lab, subject, change, step)->step();
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error&) {
  }
  return out;
}

std::optional<MetCall> met_call(Lab& lab, const std::string& op, int step) {
  std::optional<MetCall> out;
  Subject subject = lab.subject();
  Net net = subject.net();
  bool on = false;
  net.forward = [forward = net.forward, &on, &out, &op](models::Tape& tape, std::int64_t batch) {
    if (!on) return forward(tape, batch);
    MeetingTape meeting(tape, op, out);
    forward(meeting, batch);
  };
  subject.options.own_net = net;
  try {
    const std::unique_ptr<Trainer> trainer = trainer_at(lab, subject, {}, step);
    on = true;
    trainer->step();
  } catch (const AmpError&) {
  }
  if (!out) return out;
  out->run = lab.subject().options.dtype;
  for (const auto& [name, track] : lab.seen().tracks)
    if (track.key.op == op && track.key.phase == Phase::forward && !track.key.cast) out->storage = track.key.dtype;
  return out;
}

Answer answer_to(const MetCall& call, std::optional<Dtype> storage) {
  Answer out;
  Taker taker(out, call.run);
  ParameterSet parameters("probe", 1);
  models::Recordings recordings;
  Graph graph(parameters, recordings, {.observer = &taker});
  std::vector<std::pair<std::string, models::Var>> inputs;
  const Dtype wanted = storage.value_or(call.storage);
  for (const MetCall::Input& input : call.inputs) {
    models::Var var = graph.data(input.shape, input.values);
    const bool integer = input.name == "index" || (input.name == "target" && input.shape.rank == 1);
    if (!integer && (!input.trained || input.shape.rank > 1 || input.dtype != Dtype::fp32)) var = graph.to(var, wanted);
    inputs.emplace_back(input.name, var);
  }
  out = {};
  try {
    graph.call(call.op, inputs, call.attributes);
  } catch (const Error&) {
    out.ran = false;
  }
  return out;
}

MetCall scaled(MetCall call, double factor) {
  if (MetCall::Input* const x = call.data())
    for (double& value : x->values) value *= factor;
  return call;
}

MetCall centred(MetCall call) {
  MetCall::Input* const x = call.data();
  if (x == nullptr || x->shape.rank == 0) return call;
  const auto row = static_cast<std::size_t>(x->shape.last());
  for (std::size_t at = 0; at + row <= x->values.size(); at += row) {
    double mean = 0;
    for (std::size_t i = 0; i < row; ++i) mean += x->values[at + i] / static_cast<double>(row);
    for (std::size_t i = 0; i < row; ++i) x->values[at + i] -= mean;
  }
  return call;
}

MetCall fewer_terms(MetCall call, double share) {
  MetCall::Input* const x = call.data();
  if (x == nullptr || x->shape.rank == 0) return call;
  const auto row = static_cast<std::size_t>(x->shape.last());
  const auto kept = static_cast<std::size_t>(share * static_cast<double>(row));
  for (std::size_t i = 0; i < x->values.size(); ++i)
    if (i % row >= kept) x->values[i] = 0;
  return call;
}

MetCall cut(MetCall call, double share) {
  for (const MetCall::Input& input : call.inputs)
    if (input.trained || input.shape.rank == 0) return call;
  for (MetCall::Input& input : call.inputs) {
    const auto row = static_cast<std::size_t>(input.shape.last());
    const auto kept = std::max<std::size_t>(1, static_cast<std::size_t>(share * static_cast<double>(row)));
    std::vector<double> values;
    for (std::size_t i = 0; i < input.values.size(); ++i)
      if (i % row < kept) values.push_back(input.values[i]);
    input.values = std::move(values);
    input.shape[input.shape.rank - 1] = static_cast<std::int64_t>(kept);
  }
  return call;
}

MetCall plain_gains(MetCall call) {
  for (MetCall::Input& input : call.inputs)
    if (input.trained && input.shape.rank == 1 && input.name == "weight")
      std::fill(input.values.begin(), input.values.end(), 1.0);
  return call;
}

}  // namespace ampcheck::checks::diagnose
