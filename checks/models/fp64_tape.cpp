// SPDX-License-Identifier: Apache-2.0
#include "checks/models/fp64_tape.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "checks/models/evaluation.h"
#include "src/amp/grad_mode.h"
#include "src/error.h"

namespace ampcheck::checks::models {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void add_to(std::vector<double>& sum, const std::vector<double>& more) {
  sum.resize(more.size(), 0.0);
  for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
}

}  // namespace

std::vector<double>& Parameters::get(const std::string& name, const Shape& shape, double offset, double scale) {
  std::vector<double>& values = values_[name];
  if (values.empty()) values = initial_values(net_, seed_, name, shape, offset, scale);
  return values;
}

const RecordedCall* StepRecord::find(std::string_view name) const {
  const auto found =
      std::find_if(calls.begin(), calls.end(), [&](const RecordedCall& call) { return call.name == name; });
  return found == calls.end() ? nullptr : &*found;
}

Fp64Tape::Fp64Tape(Parameters& parameters) : parameters_(parameters) {}
Fp64Tape::~Fp64Tape() = default;

int Fp64Tape::push(const Shape& shape, std::vector<double> values) {
  if (std::ssize(values) != shape.count())
    throw Error("[tape] values, got " + std::to_string(values.size()) + ", want " + shape.str());
  record_.shapes.push_back(shape);
  record_.values.push_back(std::move(values));
  record_.cotangents.emplace_back();
  return static_cast<int>(record_.values.size()) - 1;
}

Var Fp64Tape::data(const Shape& shape, std::vector<double> values) { return {push(shape, std::move(values))}; }

Var Fp64Tape::parameter(const std::string& name, const Shape& shape, double offset, double scale) {
  const auto known = std::find_if(trained_.begin(), trained_.end(), [&](const auto& t) { return t.second == name; });
  std::vector<double>& values =
      known == trained_.end() ? parameters_.get(name, shape, offset, scale) : record_.values[at(known->first)];
  const int id =
      known == trained_.end() && takes_parameters_ ? push(shape, std::exchange(values, {})) : push(shape, values);
  trained_.emplace_back(id, name);
  return {id};
}

Var Fp64Tape::call(const std::string& op_name, const std::vector<std::pair<std::string, Var>>& inputs,
                   const std::vector<std::pair<std::string, double>>& attributes) {
  RecordedCall recorded = bind_call(op_name, inputs, attributes, [this](Var x) { return shape(x); });
  recorded.name = op_name + "_" + std::to_string(++counts_[op_name]) + (inferring_ ? "_inferred" : "");
  const auto values_of = [&](const std::string& name) {
    const auto input =
        std::find_if(recorded.inputs.begin(), recorded.inputs.end(), [&](const auto& i) { return i.first == name; });
    return record_.values[at(input->second)];
  };
  Entry entry;
  entry.evaluation =
      std::make_unique<Evaluation>(parameters_.recordings().of(op_of_call(op_name), recorded.call, values_of));
  for (const auto& [name, id] : recorded.inputs) entry.evaluation->borrow_input(name, record_.values[at(id)]);
  const auto& [output_name, output] = entry.evaluation->recording().outputs.front();
  recorded.output_name = output_name;
  recorded.output = push(output.shape(), entry.evaluation->output());
  const Var result{recorded.output};
  entry.call = record_.calls.size();
  record_.calls.push_back(std::move(recorded));
  if (grad_enabled()) entries_.push_back(std::move(entry));
  return result;
}

/// Its calls have names of their own, which no kernel's call has, and count for themselves.
Var Fp64Tape::infer(const std::function<Var()>& block) {
  const NoGrad off;
  std::map<std::string, int> counts = std::exchange(counts_, {});
  inferring_ = true;
  const Var out = block();
  inferring_ = false;
  counts_ = std::move(counts);
  return out;
}

Var Fp64Tape::reshape(Var x, const Shape& shape) {
  const Var out{push(shape, std::vector<double>(record_.values[at(x.id)]))};
  record_.moved[out.id] = x.id;
  if (grad_enabled()) entries_.push_back({.from = x.id, .to = out.id, .map = {}});
  return out;
}

Var Fp64Tape::take(Var x, const std::vector<std::int64_t>& map, const Shape& shape) {
  const std::vector<double>& from = record_.values[at(x.id)];
  std::vector<double> values;
  values.reserve(map.size());
  for (const std::int64_t i : map) values.push_back(from.at(at(i)));
  const Var out{push(shape, std::move(values))};
  record_.moved[out.id] = x.id;
  if (grad_enabled()) entries_.push_back({.from = x.id, .to = out.id, .map = map});
  return out;
}

void Fp64Tape::add_loss(Var value, double weight) {
  if (shape(value).count() != 1) throw Error("[tape] loss, got " + shape(value).str() + ", want one element");
  if (const std::size_t k = seen_losses_++; taken_loss_ && k != *taken_loss_) return;
  record_.loss += weight * record_.values[at(value.id)].front();
  losses_.emplace_back(value.id, weight);
}

std::vector<double>& Fp64Tape::cotangent(int id) {
  std::vector<double>& out = record_.cotangents[at(id)];
  if (out.empty()) out.assign(record_.values[at(id)].size(), 0.0);
  return out;
}

void Fp64Tape::backward(Entry& entry, bool first_of_two) {
  if (!entry.evaluation) {
    const std::vector<double>& g = cotangent(entry.to);
    std::vector<double>& to = cotangent(entry.from);
    for (std::size_t i = 0; i < g.size(); ++i) to[entry.map.empty() ? i : at(entry.map[i])] += g[i];
    return;
  }
  const RecordedCall& call = record_.calls[entry.call];
  entry.evaluation->set_cotangent(cotangent(call.output));
  for (const auto& [name, id] : call.inputs) {
    if (!op_of_call(call.call.op).signature.input(name)->has_gradient()) continue;
    std::vector<double> g = first_of_two ? entry.evaluation->gradient(name) : entry.evaluation->give_gradient(name);
    std::vector<double>& to = record_.cotangents[at(id)];
    if (by_input_ == nullptr && !keep_gradients_ && to.empty()) {
      to = std::move(g);
      continue;
    }
    if (to.empty())
      to = g;
    else
      for (std::size_t i = 0; i < g.size(); ++i) to[i] += g[i];
    if (by_input_ != nullptr)
      add_to((*by_input_)[call.name + " " + gradient_name(name)], g);
    else if (keep_gradients_)
      record_.gradients[first_of_two ? call.name + "_backward grad_" + name : call.name + " " + gradient_name(name)] =
          std::move(g);
  }
  if (!first_of_two) entry.evaluation.reset();
}

void Fp64Tape::backward(double weight_of_all) {
  if (freed_) throw Error("[tape] backward, got a second one, want a new forward pass: the first one freed the tape");
  freed_ = true;
  for (const auto& [id, weight] : losses_) cotangent(id).front() += weight_of_all * weight;
  walk_back(false);
}

void Fp64Tape::walk_back(bool first_of_two) {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) backward(*entry, first_of_two);
}

/// The backward pass read as a program of its own, which runs from the last call to the first, and so is differentiated
/// from the first to the last: of each call's gradients by its cotangent and its inputs.
void Fp64Tape::differentiate_backward(Entry& entry, std::vector<std::vector<double>>& of_cotangents,
                                      std::vector<std::vector<double>>& of_values) {
  if (!entry.evaluation) {
    const std::vector<double>& from = of_cotangents[at(entry.from)];
    if (from.empty()) return;
    std::vector<double> picked;
    for (std::size_t i = 0; i < record_.values[at(entry.to)].size(); ++i)
      picked.push_back(from[entry.map.empty() ? i : at(entry.map[i])]);
    return add_to(of_cotangents[at(entry.to)], picked);
  }
  const RecordedCall& call = record_.calls[entry.call];
  const OpDef& op = op_of_call(call.call.op);
  const auto input = [&](const std::string& name) {
    return std::find_if(call.inputs.begin(), call.inputs.end(), [&](const auto& i) { return i.first == name; })->second;
  };
  if (std::all_of(call.inputs.begin(), call.inputs.end(),
                  [&](const auto& i) { return of_cotangents[at(i.second)].empty(); }))
    return;
  if (!entry.second) {
    entry.second = std::make_unique<SecondEvaluation>(parameters_.recordings().second_order(
        op, call.call, [&](const std::string& name) { return record_.values[at(input(name))]; }));
    entry.second->set(gradient_name(call.output_name), cotangent(call.output));
    for (const auto& [name, id] : call.inputs) entry.second->set(name, record_.values[at(id)]);
  }
  SecondEvaluation& second = *entry.second;
  for (const std::string& name : std::exchange(entry.directed, {}))
    if (const int id = input(name); of_cotangents[at(id)].empty())
      second.set("dgrad_" + name, std::vector<double>(record_.values[at(id)].size(), 0.0));
  for (const auto& [name, id] : call.inputs)
    if (!of_cotangents[at(id)].empty()) {
      second.set("dgrad_" + name, of_cotangents[at(id)]);
      entry.directed.push_back(name);
      if (by_input_ == nullptr && keep_gradients_)
        record_.gradients[call.name + "_backward dgrad_" + name] = of_cotangents[at(id)];
    }
  const auto put = [&](std::vector<std::vector<double>>& to, int id, const std::string& name) {
    const std::vector<double>& g = second.gradient(name);
    add_to(to[at(id)], g);
    if (by_input_ != nullptr)
      add_to((*by_input_)[call.name + " " + name], g);
    else if (keep_gradients_)
      record_.gradients[call.name + "_backward " + name] = g;
  };
  for (const auto& [name, id] : call.inputs)
    if (op.signature.input(name)->has_gradient()) put(of_values, id, gradient_name(name));
  put(of_cotangents, call.output, gradient_name(gradient_name(call.output_name)));
}

void Fp64Tape::begin_derivatives() {
  for (const auto& [id, loss_weight] : losses_) cotangent(id).front() += loss_weight;
  walk_back(true);
}

/// A first backward of the loss, its norm n, and the cotangents of its gradients of `weight` n.
double Fp64Tape::begin_penalty(double weight, std::vector<std::vector<double>>& of_cotangents) {
  begin_derivatives();
  double sum = 0;
  const std::map<std::string, std::vector<double>> all = gradients();
  for (const auto& [name, g] : all)
    for (const double v : g) sum += v * v;
  const double norm = std::sqrt(sum);
  of_cotangents.assign(record_.values.size(), {});
  for (const auto& [id, name] : trained_)
    if (const auto g = all.find(name); g != all.end())
      for (const double v : g->second) of_cotangents[at(id)].push_back(weight * v / norm);
  return norm;
}

double Fp64Tape::backward_with_penalty(double weight, double penalty) {
  std::vector<std::vector<double>> of_cotangents, of_values(record_.values.size());
  const double norm = begin_penalty(weight * penalty, of_cotangents);
  for (Entry& entry : entries_) {
    differentiate_backward(entry, of_cotangents, of_values);
    entry.second.reset();
  }
  record_.cotangents = std::move(of_values);
  backward(weight);
  return norm;
}

/// From the cotangents of the gradients in `out.by_cotangent`, with those of the loss on record, where they are again
/// afterwards.
void Fp64Tape::trace_derivative(GradientDerivative& out) {
  const bool kept = std::exchange(keep_gradients_, false);
  by_input_ = &out.by_input;
  std::vector<std::vector<double>> of_values(record_.values.size());
  for (Entry& entry : entries_) differentiate_backward(entry, out.by_cotangent, of_values);
  std::vector<std::vector<double>> first = std::exchange(record_.cotangents, std::move(of_values));
  walk_back(true);
  out.by_value = std::exchange(record_.cotangents, std::move(first));
  by_input_ = nullptr;
  keep_gradients_ = kept;
}

GradientDerivative Fp64Tape::derivative_of_gradients(const std::map<std::string, std::vector<double>>& directions) {
  GradientDerivative out;
  out.by_cotangent.resize(record_.values.size());
  for (const auto& [id, name] : trained_)
    if (const auto found = directions.find(name); found != directions.end()) out.by_cotangent[at(id)] = found->second;
  trace_derivative(out);
  return out;
}

void Fp64Tape::trace_gradient_norm() {
  const bool kept = std::exchange(keep_gradients_, false);
  GradientDerivative of_norm;
  begin_penalty(1, of_norm.by_cotangent);
  trace_derivative(of_norm);
  for (Entry& entry : entries_) entry.second.reset();
  record_.cotangents.assign(record_.values.size(), {});
  record_.of_norm = std::move(of_norm);
  keep_gradients_ = kept;
}

void Fp64Tape::each_gradient(const std::function<void(const std::string&, const std::vector<double>&)>& use) const {
  std::map<std::string, std::vector<int>> ids;  // of a parameter that is taken more than once the sum is its gradient
  for (const auto& [id, name] : trained_)
    if (!record_.cotangents[at(id)].empty()) ids[name].push_back(id);
  for (const auto& [name, of] : ids) {
    if (of.size() == 1) {
      use(name, record_.cotangents[at(of.front())]);
      continue;
    }
    std::vector<double> sum = record_.cotangents[at(of.front())];
    for (std::size_t k = 1; k < of.size(); ++k) add_to(sum, record_.cotangents[at(of[k])]);
    use(name, sum);
  }
}

std::map<std::string, std::vector<double>> Fp64Tape::gradients() const {
  std::map<std::string, std::vector<double>> out;
  each_gradient([&](const std::string& name, const std::vector<double>& g) { out.emplace(name, g); });
  return out;
}

std::vector<std::pair<std::string, Shape>> Fp64Tape::trained_shapes() const {
  std::vector<std::pair<std::string, Shape>> out;
  for (const auto& [id, name] : trained_)
    if (std::none_of(out.begin(), out.end(),
                     [&, wanted = std::string_view(name)](const auto& known) { return known.first == wanted; }))
      out.emplace_back(name, record_.shapes[at(id)]);
  return out;
}

void Fp64Tape::backward_and_update(double rate) {
  backward();
  for (const auto& [name, g] : gradients()) {
    std::vector<double>& values = parameters_.values().at(name);
    for (std::size_t i = 0; i < g.size(); ++i) values[i] -= rate * g[i];
  }
}

}  // namespace ampcheck::checks::models
