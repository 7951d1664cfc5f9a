// SPDX-License-Identifier: Apache-2.0
// Cases at the tensors of real runs: what the calls of small nets (checks/models/) met while the fp64 reference trained
// them. Such a case is an ordinary op call whose data regime names net, step and call: range=digits.step2.softmax_1.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checks/data/call_data.h"
#include "checks/define/case.h"
#include "checks/models/nets.h"

namespace ampcheck::checks {

/// The runs of the nets on the data of one folder, each computed at first use and kept; any number of threads.
class NetRuns {
 public:
  /// Empty: the usual places (models::find_data).
  explicit NetRuns(std::string folder = {}) : folder_(std::move(folder)) {}
  /// EnvironmentError without its data.
  std::shared_ptr<const models::NetRun> run(std::string_view net);

 private:
  const std::string folder_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const models::NetRun>, std::less<>> runs_;
};

/// The runs on a folder's data (--data), for the `data` of calls.
std::shared_ptr<const CallData> data_of_nets(const std::string& folder);

/// The run of a net where a call's data says; those in the usual places are kept for everybody.
std::shared_ptr<const models::NetRun> real_run(std::string_view net, const std::shared_ptr<const CallData>& data = {});

/// Whether a data regime is of a real run: a net's name, then a point.
bool is_real_range(std::string_view range);

/// The cases of these ops in these storage dtypes at the calls of the given steps (1 to models::kSteps; empty: the
/// first and the last), net by net in the order of the calls, on the runs of `data`. A planted variant has the cases of
/// its op.
std::vector<Case> real_cases(std::span<const OpDef* const> ops, std::span<const Dtype> dtypes,
                             std::vector<int> steps = {}, const std::shared_ptr<const CallData>& data = {});

/// Throws Error that says what exists for a range whose step or call does not, or whose call is of another op or shape.
void require_real_call(const OpSignature& signature, const OpCall& call);

/// fp64 values of one input or of the cotangent of an output; the caller rounds them. fp16 cotangents are of the loss
/// times a power of two, as in every fp16 training.
std::vector<double> real_input(const OpSignature& signature, const OpCall& call, const TensorSpec& spec);
std::vector<double> real_cotangent(const OpCall& call, const std::string& output, const Shape& shape);

}  // namespace ampcheck::checks
