// SPDX-License-Identifier: Apache-2.0
#include "checks/train/parameters.h"

#include <cstring>

#include "checks/models/tape.h"
#include "checks/train/graph_entry.h"
#include "src/error.h"

namespace ampcheck::checks::train {

Parameter* ParameterSet::find(const std::string& name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

void ParameterSet::set(const std::string& name, const Shape& shape, const std::vector<double>& values) {
  Parameter* known = find(name);
  if (std::ssize(values) != shape.count() || (known != nullptr && !(known->value.shape() == shape)))
    throw Error("[parameters] '" + name + "', got " + std::to_string(values.size()) + " values as " + shape.str() +
                ", want " + (known != nullptr ? known->value.shape().str() : shape.str()));
  if (known == nullptr) {
    known = &all_.emplace_back();
    known->name = name;
    known->value = Tensor(dtype_, shape);
    by_name_[name] = known;
  }
  from_doubles(values, known->value.view());
}

void ParameterSet::share_values(const ParameterSet& other) {
  for (const Parameter& from : other.all_) {
    Parameter*& known = by_name_[from.name];
    if (known == nullptr) known = &all_.emplace_back();
    known->name = from.name;
    known->value = from.value;
  }
}

Parameter& ParameterSet::get(const std::string& name, const Shape& shape, double offset, double scale) {
  if (Parameter* known = find(name)) {
    if (!(known->value.shape() == shape))
      throw Error("[parameters] '" + name + "', got " + shape.str() + ", want " + known->value.shape().str());
    return *known;
  }
  set(name, shape, models::initial_values(net_, seed_, name, shape, offset, scale));
  return *by_name_.at(name);
}

std::vector<Parameter*> ParameterSet::pointers() {
  std::vector<Parameter*> out;
  for (Parameter& parameter : all_) out.push_back(&parameter);
  return out;
}

void ParameterSet::clear_grads() {
  for (Parameter& parameter : all_) parameter.clear_grad();
}

void ParameterSet::add_grad(Parameter& parameter, const Tensor& grad) {
  if (!parameter.grad.defined()) {
    parameter.grad = Tensor::uninitialized(grad.dtype(), parameter.value.shape());
    std::memcpy(parameter.grad.data(), grad.data(), static_cast<std::size_t>(grad.count() * bytes(grad.dtype())));
    return;
  }
  if (grad.dtype() == Dtype::fp64) {
    const auto sum = parameter.grad.span<double>(), more = grad.span<double>();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  } else {
    add_to(parameter.grad.view(), grad.view());
  }
}

}  // namespace ampcheck::checks::train
