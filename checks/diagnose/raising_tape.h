// SPDX-License-Identifier: Apache-2.0
// The same net with some of its calls in fp32: what `with autocast(enabled=False): op(x.float())` does.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checks/models/tape.h"
#include "checks/train/net.h"

namespace ampcheck::checks::diagnose {

/// Calls by name: "linear_1", as a graph counts them.
using Ops = std::set<std::string>;

class RaisingTape final : public models::Tape {
 public:
  RaisingTape(models::Tape& inner, const Ops& raised) : inner_(inner), raised_(raised) {}

  models::Var data(const Shape& shape, std::vector<double> values) override {
    return inner_.data(shape, std::move(values));
  }
  models::Var parameter(const std::string& name, const Shape& shape, double offset, double scale) override {
    return inner_.parameter(name, shape, offset, scale);
  }
  models::Var call(const std::string& op, const std::vector<std::pair<std::string, models::Var>>& inputs,
                   const std::vector<std::pair<std::string, double>>& attributes = {}) override;
  models::Var reshape(models::Var x, const Shape& shape) override { return inner_.reshape(x, shape); }
  models::Var take(models::Var x, const std::vector<std::int64_t>& map, const Shape& shape) override {
    return inner_.take(x, map, shape);
  }
  const Shape& shape(models::Var x) const override { return inner_.shape(x); }
  models::Var to(models::Var x, Dtype dtype) override { return inner_.to(x, dtype); }
  Dtype dtype(models::Var x) const override { return inner_.dtype(x); }
  AutocastDevice device() const override { return inner_.device(); }
  void add_loss(models::Var value, double weight) override { inner_.add_loss(value, weight); }

 private:
  models::Tape& inner_;
  const Ops& raised_;
  std::map<std::string, int> counts_;
};

/// The net with these calls in fp32; itself where there are none.
train::Net raised(const train::Net& net, const Ops& ops);

}  // namespace ampcheck::checks::diagnose
