// SPDX-License-Identifier: Apache-2.0
// The same net with some of its calls in fp32: what `with autocast(enabled=False): op(x.float())` does.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checks/models/forwarding_tape.h"
#include "checks/train/net.h"

namespace ampcheck::checks::diagnose {

/// Calls by name: "linear_1", as a graph counts them.
using Ops = std::set<std::string>;

class RaisingTape final : public models::ForwardingTape {
 public:
  RaisingTape(models::Tape& inner, const Ops& raised) : ForwardingTape(inner), raised_(raised) {}

  models::Var call(const std::string& op, const std::vector<std::pair<std::string, models::Var>>& inputs,
                   const std::vector<std::pair<std::string, double>>& attributes = {}) override;
  models::Var recompute(const std::function<models::Var(bool again)>& block) override;
  models::Var infer(const std::function<models::Var()>& block) override;

 private:
  const Ops& raised_;
  std::map<std::string, int> counts_;
};

/// The net with numbers of its data cut off at this magnitude, as a mask's are that fits the type.
train::Net within(const train::Net& net, double largest);

/// The net with these calls in fp32; itself where there are none.
train::Net raised(const train::Net& net, const Ops& ops);

}  // namespace ampcheck::checks::diagnose
