// SPDX-License-Identifier: Apache-2.0
// One forward and backward pass of a net under autocast, and what is looked at in it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checks/autocast/manual_tape.h"
#include "checks/autocast/net_audit.h"
#include "checks/train/live.h"

namespace ampcheck::checks::autocast {

/// An op's result may be this much worse than one rounding of each of its elements: kernels that round once stay below
/// 1, those whose contract rounds an inner result too below 2.
inline constexpr double kMostExcess = 2;

struct PassOptions {
  const NetSubject& subject;
  ManualTape::Classes classes;
  std::set<std::string> raised;  ///< these ops in fp32, by hand
  double scale = 1;              ///< of the loss
  bool by_hand = false;          ///< every op
  std::string custom = {};       ///< this op under custom_fwd, where autocast is on
  std::optional<Dtype> cast_inputs = {};
};

class Pass {
 public:
  /// All outlive the pass.
  Pass(PassOptions options, train::ParameterSet& parameters, models::Recordings& recordings);
  ~Pass();
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// From now on with local shadows; `judge` hears of every call, if there is one.
  void look(train::LiveJudge* judge);
  /// AmpError where autocast refuses a call.
  void run(std::int64_t batch);

  bool loss_finite() const;
  bool gradients_finite() const;
  /// By parameter, without the loss scale.
  std::map<std::string, std::vector<double>> gradients() const;
  /// What the call of that name wrote.
  TensorView output(const std::string& call) const;
  const std::vector<OpRow>& rows() const;
  std::int64_t bytes() const;
  /// Bytes of all cached casts at the end of the region.
  std::int64_t held() const;
  /// What they may be: of every weight one cast for each dtype of a region.
  std::int64_t due_held() const;
  /// Bytes of all cached casts behind the region: those of a region that stays open.
  std::int64_t left() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ampcheck::checks::autocast
