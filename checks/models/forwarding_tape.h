// SPDX-License-Identifier: Apache-2.0
// A tape that hands everything on to another one: whoever wants to see or change some calls overrides those.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checks/models/tape.h"

namespace ampcheck::checks::models {

class ForwardingTape : public Tape {
 public:
  explicit ForwardingTape(Tape& inner) : inner_(inner) {}

  Var data(const Shape& shape, std::vector<double> values) override { return inner_.data(shape, std::move(values)); }
  Var parameter(const std::string& name, const Shape& shape, double offset, double scale) override {
    return inner_.parameter(name, shape, offset, scale);
  }
  Var call(const std::string& op, const std::vector<std::pair<std::string, Var>>& inputs,
           const std::vector<std::pair<std::string, double>>& attributes = {}) override {
    return inner_.call(op, inputs, attributes);
  }
  Var reshape(Var x, const Shape& shape) override { return inner_.reshape(x, shape); }
  Var take(Var x, const std::vector<std::int64_t>& map, const Shape& shape) override {
    return inner_.take(x, map, shape);
  }
  const Shape& shape(Var x) const override { return inner_.shape(x); }
  Var to(Var x, Dtype dtype) override { return inner_.to(x, dtype); }
  Dtype dtype(Var x) const override { return inner_.dtype(x); }
  AutocastDevice device() const override { return inner_.device(); }
  void add_loss(Var value, double weight) override { inner_.add_loss(value, weight); }
  /// Once: whoever counts calls, counts those of a second time too.
  Var recompute(const std::function<Var(bool again)>& block) override { return block(false); }
  Var infer(const std::function<Var()>& block) override { return inner_.infer(block); }

 protected:
  Tape& inner_;
};

}  // namespace ampcheck::checks::models
