// SPDX-License-Identifier: Apache-2.0
#include "checks/models/evaluation.h"

#include "reference/replay/plain_evaluator.h"
#include "src/error.h"

namespace ampcheck::checks::models {

struct Evaluation::State {
  explicit State(std::shared_ptr<const reference::Recording> recorded)
      : recording(std::move(recorded)), values(*recording->graph) {}
  std::shared_ptr<const reference::Recording> recording;
  reference::PlainEvaluator<reference::Fp64Policy> values;
};

Evaluation::Evaluation(std::shared_ptr<const reference::Recording> recording)
    : state_(std::make_unique<State>(std::move(recording))) {}
Evaluation::~Evaluation() = default;

const reference::Recording& Evaluation::recording() const { return *state_->recording; }

void Evaluation::set_input(const std::string& name, std::vector<double> values) {
  const auto input = recording().inputs.find(name);
  if (input != recording().inputs.end()) state_->values.set(input->second, std::move(values));
}

void Evaluation::borrow_input(const std::string& name, const std::vector<double>& values) {
  const auto input = recording().inputs.find(name);
  if (input != recording().inputs.end()) state_->values.borrow(input->second, values);
}

const std::vector<double>& Evaluation::input(const std::string& name) {
  return state_->values.value(recording().inputs.at(name));
}

const std::vector<double>& Evaluation::output() { return state_->values.value(recording().outputs.front().second); }

void Evaluation::set_cotangent(std::vector<double> values) {
  // A net goes on with the first output. Nothing is asked of the others, such as running statistics.
  const std::string first = gradient_name(recording().outputs.front().first);
  for (const auto& [name, node] : recording().cotangents)
    state_->values.set(node, name == first ? std::move(values)
                                           : std::vector<double>(static_cast<std::size_t>(node.shape().count()), 0.0));
}

const std::vector<double>& Evaluation::gradient(const std::string& input) {
  return state_->values.value(gradient_node(input));
}

std::vector<double> Evaluation::give_gradient(const std::string& input) {
  return state_->values.give_value(gradient_node(input));
}

reference::Expr Evaluation::gradient_node(const std::string& input) const {
  for (const auto& [name, node] : recording().gradients)
    if (name == gradient_name(input)) return node;
  throw Error("[tape] gradient, got none of input '" + input + "', want one that the op has");
}

struct SecondEvaluation::State {
  explicit State(std::shared_ptr<const SecondOrder> recorded)
      : recording(std::move(recorded)), values(*recording->first.graph) {}
  std::shared_ptr<const SecondOrder> recording;
  reference::PlainEvaluator<reference::Fp64Policy> values;
};

SecondEvaluation::SecondEvaluation(std::shared_ptr<const SecondOrder> recording)
    : state_(std::make_unique<State>(std::move(recording))) {
  for (const auto& [name, node] : state_->recording->leaves)
    if (name.starts_with("dgrad_"))
      state_->values.set(node, std::vector<double>(static_cast<std::size_t>(node.shape().count()), 0.0));
}
SecondEvaluation::~SecondEvaluation() = default;

void SecondEvaluation::set(const std::string& name, std::vector<double> values) {
  const auto leaf = state_->recording->leaves.find(name);
  if (leaf != state_->recording->leaves.end()) state_->values.set(leaf->second, std::move(values));
}

const std::vector<double>& SecondEvaluation::gradient(const std::string& name) {
  const auto found = state_->recording->gradients.find(name);
  if (found == state_->recording->gradients.end())
    throw Error("[tape] gradient of a gradient, got '" + name + "', want that of an input or cotangent");
  return state_->values.value(found->second);
}

}  // namespace ampcheck::checks::models
