// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "src/amp/parameter.h"

namespace ampcheck::checks::train {

/// The trained tensors of a net, fp32 or in 16 bits (or fp64, for the reference), in the order of their first use.
/// Addresses stay.
class ParameterSet {
 public:
  ParameterSet(std::string net, std::uint64_t seed, Dtype dtype = Dtype::fp32)
      : net_(std::move(net)), seed_(seed), dtype_(dtype) {}
  ParameterSet(const ParameterSet&) = delete;
  ParameterSet& operator=(const ParameterSet&) = delete;

  /// The parameter of that name; at first use its models::initial_values(), rounded.
  Parameter& get(const std::string& name, const Shape& shape, double offset, double scale);
  /// Has the parameters of the other set, with gradients of its own: a replica that is never apart.
  void share_values(const ParameterSet& other);
  /// Puts values there before their first use, or later of the same shape.
  void set(const std::string& name, const Shape& shape, const std::vector<double>& values);
  Parameter* find(const std::string& name);

  Dtype dtype() const { return dtype_; }
  std::deque<Parameter>& all() { return all_; }
  const std::deque<Parameter>& all() const { return all_; }
  std::vector<Parameter*> pointers();
  void clear_grads();
  /// Adds to the gradient, rounded to its dtype; the first one becomes it.
  static void add_grad(Parameter& parameter, const Tensor& grad);

 private:
  std::string net_;
  std::uint64_t seed_;
  Dtype dtype_;
  std::deque<Parameter> all_;
  std::map<std::string, Parameter*> by_name_;
};

}  // namespace ampcheck::checks::train
