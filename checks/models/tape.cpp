// SPDX-License-Identifier: Apache-2.0
#include "checks/models/tape.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "reference/plain_evaluator.h"
#include "src/error.h"
#include "src/random.h"

namespace ampcheck::checks::models {

namespace {

constexpr std::uint64_t kSeed = 1;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

[[noreturn]] void fail(const std::string& op, const std::string& input, const std::string& got, const std::string& want) {
  throw Error("[tape] input '" + input + "' of " + op + ", got " + got + ", want " + want);
}

/// Binds the symbols of one input to the extents of its tensor.
void bind_dims(const std::string& op, const TensorSpec& spec, const Shape& shape, Dims& dims) {
  const std::vector<std::string> symbols = OpSignature::symbols(spec);
  if (std::ssize(symbols) != shape.rank) fail(op, spec.name, shape.str(), "[" + spec.dims + "]");
  for (int axis = 0; axis < shape.rank; ++axis) {
    const auto [known, fresh] = dims.try_emplace(symbols[at(axis)], shape[axis]);
    if (!fresh && known->second != shape[axis])
      fail(op, spec.name, shape.str(), known->first + "=" + std::to_string(known->second) + " as before");
  }
}

}  // namespace

std::vector<double>& Parameters::get(const std::string& name, const Shape& shape, double offset, double scale) {
  std::vector<double>& values = values_[name];
  if (values.empty()) {
    const Random random(kSeed, net_ + "/" + name);
    for (std::int64_t i = 0; i < shape.count(); ++i) values.push_back(offset + scale * random.normal(static_cast<std::uint64_t>(i)));
  }
  return values;
}

const RecordedCall* StepRecord::find(std::string_view name) const {
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const RecordedCall& call) { return call.name == name; });
  return found == calls.end() ? nullptr : &*found;
}

/// A call's graph and its values, kept until backward.
struct Tape::Evaluation {
  reference::Recording recording;
  std::optional<reference::PlainEvaluator<reference::Fp64Policy>> values;
};

Tape::Tape(Parameters& parameters) : parameters_(parameters) {}
Tape::~Tape() = default;

int Tape::push(const Shape& shape, std::vector<double> values) {
  if (std::ssize(values) != shape.count())
    throw Error("[tape] values, got " + std::to_string(values.size()) + ", want " + shape.str());
  record_.shapes.push_back(shape);
  record_.values.push_back(std::move(values));
  record_.cotangents.emplace_back();
  return static_cast<int>(record_.values.size()) - 1;
}

Var Tape::data(const Shape& shape, std::vector<double> values) { return {push(shape, std::move(values))}; }

Var Tape::parameter(const std::string& name, const Shape& shape, double offset, double scale) {
  std::vector<double>& values = parameters_.get(name, shape, offset, scale);
  const int id = push(shape, values);
  trained_.emplace_back(id, &values);
  return {id};
}

Var Tape::weight(const std::string& name, const Shape& shape, std::int64_t fan_in) {
  return parameter(name, shape, 0, 1 / std::sqrt(static_cast<double>(fan_in)));
}

Var Tape::constant_start(const std::string& name, const Shape& shape, double value) { return parameter(name, shape, value, 0); }

Var Tape::call(const std::string& op_name, const std::vector<std::pair<std::string, Var>>& inputs,
               const std::vector<std::pair<std::string, double>>& attributes) {
  const OpDef* op = find_op(op_name);
  if (op == nullptr) throw EnvironmentError("[tape] op '" + op_name + "', got a build without it, want every op of the real runs");
  const OpSignature& signature = op->signature;
  RecordedCall recorded;
  recorded.name = op_name + "_" + std::to_string(++counts_[op_name]);
  recorded.call = default_call(signature, Dtype::fp32);
  for (const auto& [name, value] : attributes) recorded.call.attributes.set(name, value);
  recorded.call.dims.clear();
  for (const TensorSpec& spec : signature.inputs) {
    const auto given = std::find_if(inputs.begin(), inputs.end(), [&](const auto& input) { return input.first == spec.name; });
    if (given == inputs.end()) {
      if (!spec.optional) fail(op_name, spec.name, "nothing", "[" + spec.dims + "]");
      recorded.call.absent.push_back(spec.name);
      continue;
    }
    bind_dims(op_name, spec, shape(given->second), recorded.call.dims);
    recorded.inputs.emplace_back(spec.name, given->second.id);
  }
  if (recorded.inputs.size() != inputs.size()) throw Error("[tape] inputs of " + op_name + ", got a name that it does not have");

  Entry entry;
  entry.evaluation = std::make_unique<Evaluation>();
  reference::CaseInputs case_inputs;
  for (const auto& [name, id] : recorded.inputs) {
    const std::vector<double>& values = record_.values[at(id)];
    if (is_float(dtype_of(signature.input(name)->type, Dtype::fp32))) case_inputs.shapes[name] = record_.shapes[at(id)];
    else case_inputs.integers[name] = std::vector<std::int64_t>(values.begin(), values.end());
  }
  reference::Recording& recording = entry.evaluation->recording;
  recording = reference::record(signature, op->forms.front(), recorded.call.attributes, case_inputs);
  auto& evaluator = entry.evaluation->values.emplace(*recording.graph);
  for (const auto& [name, id] : recorded.inputs)
    if (recording.inputs.contains(name)) evaluator.set(recording.inputs.at(name), record_.values[at(id)]);
  const auto& [output_name, output] = recording.outputs.front();
  recorded.output_name = output_name;
  recorded.output = push(output.shape(), evaluator.value(output));
  const Var result{recorded.output};
  entry.call = record_.calls.size();
  record_.calls.push_back(std::move(recorded));
  entries_.push_back(std::move(entry));
  return result;
}

Var Tape::reshape(Var x, const Shape& shape) {
  std::vector<std::int64_t> map(at(shape.count()));
  std::iota(map.begin(), map.end(), std::int64_t{0});
  return take(x, map, shape);
}

Var Tape::take(Var x, const std::vector<std::int64_t>& map, const Shape& shape) {
  Entry entry{.from = x.id, .map = map};
  const std::vector<double>& from = record_.values[at(x.id)];
  std::vector<double> values;
  for (const std::int64_t i : map) values.push_back(from.at(at(i)));
  entry.to = push(shape, std::move(values));
  entries_.push_back(std::move(entry));
  return {entries_.back().to};
}

void Tape::add_loss(Var value, double weight) {
  if (shape(value).count() != 1) throw Error("[tape] loss, got " + shape(value).str() + ", want one element");
  record_.loss += weight * record_.values[at(value.id)].front();
  losses_.emplace_back(value.id, weight);
}

std::vector<double>& Tape::cotangent(int id) {
  std::vector<double>& out = record_.cotangents[at(id)];
  if (out.empty()) out.assign(record_.values[at(id)].size(), 0.0);
  return out;
}

void Tape::backward(Entry& entry) {
  if (!entry.evaluation) {
    const std::vector<double>& g = cotangent(entry.to);
    std::vector<double>& to = cotangent(entry.from);
    for (std::size_t i = 0; i < g.size(); ++i) to[at(entry.map[i])] += g[i];
    return;
  }
  const RecordedCall& call = record_.calls[entry.call];
  const reference::Recording& recording = entry.evaluation->recording;
  auto& evaluator = *entry.evaluation->values;
  evaluator.set(recording.cotangents.begin()->second, cotangent(call.output));
  for (const auto& [name, node] : recording.gradients) {
    const auto input = std::find_if(call.inputs.begin(), call.inputs.end(), [&, wanted = std::string_view(name)](const auto& i) { return gradient_name(i.first) == wanted; });
    const std::vector<double>& g = evaluator.value(node);
    std::vector<double>& to = cotangent(input->second);
    for (std::size_t i = 0; i < g.size(); ++i) to[i] += g[i];
  }
  entry.evaluation.reset();
}

void Tape::backward_and_update(double rate) {
  for (const auto& [id, weight] : losses_) cotangent(id).front() += weight;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) backward(*entry);
  for (const auto& [id, values] : trained_) {
    const std::vector<double>& g = cotangent(id);
    for (std::size_t i = 0; i < g.size(); ++i) (*values)[i] -= rate * g[i];
  }
}

}  // namespace ampcheck::checks::models
