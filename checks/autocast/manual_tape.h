// SPDX-License-Identifier: Apache-2.0
// The same net cast by hand: what autocast should do, done by a program that knows the list and opens no region. Its
// numbers are what autocast's are compared with; with a changed list it is what that list would do.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checks/autocast/actions.h"
#include "checks/models/forwarding_tape.h"

namespace ampcheck::checks::autocast {

/// Casts of what the tape hands on are made with its to(), one of a trained tensor to each dtype. Regions that the net
/// opens hold: what is off in them is not cast.
class ManualTape final : public models::ForwardingTape {
 public:
  using Classes = std::function<CastPolicy(const OpSignature&)>;
  /// `only`: ops by name that are cast by hand; empty: all.
  ManualTape(models::Tape& inner, Classes classes, std::set<std::string> only = {})
      : ForwardingTape(inner), classes_(std::move(classes)), only_(std::move(only)) {}

  models::Var parameter(const std::string& name, const Shape& shape, double offset, double scale) override;
  /// Error (banned, or a foreign 16-bit argument of a promoting op) where autocast has to refuse.
  models::Var call(const std::string& op, const std::vector<std::pair<std::string, models::Var>>& inputs,
                   const std::vector<std::pair<std::string, double>>& attributes = {}) override;

 private:
  models::Var cast(models::Var x, Dtype dtype);

  Classes classes_;
  std::set<std::string> only_;
  std::set<int> trained_;
  std::map<std::pair<int, Dtype>, models::Var> casts_;  ///< of trained tensors
};

/// The classes of a list for ops of that device.
ManualTape::Classes classes_of(const AutocastList& list, AutocastDevice device);

}  // namespace ampcheck::checks::autocast
