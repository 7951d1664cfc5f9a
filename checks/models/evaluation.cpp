// SPDX-License-Identifier: Apache-2.0
#include "checks/models/evaluation.h"

#include "reference/plain_evaluator.h"
#include "src/error.h"

namespace ampcheck::checks::models {

struct Evaluation::State {
  explicit State(std::shared_ptr<const reference::Recording> recorded) : recording(std::move(recorded)), values(*recording->graph) {}
  std::shared_ptr<const reference::Recording> recording;
  reference::PlainEvaluator<reference::Fp64Policy> values;
};

Evaluation::Evaluation(std::shared_ptr<const reference::Recording> recording) : state_(std::make_unique<State>(std::move(recording))) {}
Evaluation::~Evaluation() = default;

const reference::Recording& Evaluation::recording() const { return *state_->recording; }

void Evaluation::set_input(const std::string& name, std::vector<double> values) {
  const auto input = recording().inputs.find(name);
  if (input != recording().inputs.end()) state_->values.set(input->second, std::move(values));
}

const std::vector<double>& Evaluation::output() { return state_->values.value(recording().outputs.front().second); }

void Evaluation::set_cotangent(std::vector<double> values) {
  state_->values.set(recording().cotangents.begin()->second, std::move(values));
}

const std::vector<double>& Evaluation::gradient(const std::string& input) {
  for (const auto& [name, node] : recording().gradients)
    if (name == gradient_name(input)) return state_->values.value(node);
  throw Error("[tape] gradient, got none of input '" + input + "', want one that the op has");
}

}  // namespace ampcheck::checks::models
