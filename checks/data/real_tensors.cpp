// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/data/real_tensors.h"

#include <algorithm>

#include "checks/models/real_data.h"
#include "src/error.h"
#include "src/suggestion.h"

namespace ampcheck::checks {

using models::NetRun;
using models::RecordedCall;
using models::StepRecord;

namespace {

/// Loss scale of fp16 cases. Without one, cotangents of a mean over some hundred elements are subnormal there.
constexpr double kFp16LossScale = 1024;
constexpr std::string_view kStep = "step";

std::string_view net_of(std::string_view range) {
  for (const std::string_view net : models::net_names())
    if (range.size() > net.size() && range.starts_with(net) && range[net.size()] == '.') return net;
  return {};
}

[[noreturn]] void fail(const std::string& range, const std::string& want) {
  throw Error("[range] real tensors, got '" + range + "', want " + want);
}

/// What a range names.
struct Met {
  std::shared_ptr<const NetRun> run;
  const StepRecord* step = nullptr;
  const RecordedCall* call = nullptr;

  const std::vector<double>* values(const std::string& input) const {
    for (const auto& [name, id] : call->inputs)
      if (name == input) return &step->values[static_cast<std::size_t>(id)];
    return nullptr;
  }
};

std::string call_names(const StepRecord& step) {
  std::string out;
  for (const RecordedCall& call : step.calls) out += (out.empty() ? "" : ", ") + call.name;
  return out;
}

Met find(const OpCall& at) {
  const std::string& range = at.range;
  const std::string_view net = net_of(range);
  const std::string_view rest = std::string_view(range).substr(net.size() + 1);
  const std::size_t point = std::min(rest.find('.'), rest.size());
  Met met;
  met.run = real_run(net, at.data);
  for (std::size_t i = 0; i < met.run->steps.size(); ++i)
    if (rest.substr(0, point) == std::string(kStep) + std::to_string(i + 1)) met.step = &met.run->steps[i];
  if (met.step == nullptr)
    fail(range, std::string(net) + ".step1 to " + std::string(net) + ".step" + std::to_string(met.run->steps.size()) +
                    ", then the call");
  const std::string_view name = rest.substr(std::min(point + 1, rest.size()));
  met.call = met.step->find(name);
  if (met.call == nullptr) {
    std::vector<std::string> names;
    for (const RecordedCall& call : met.step->calls) names.push_back(call.name);
    const std::string near = did_you_mean(name, names);
    fail(range, near.empty() ? "one of the calls " + call_names(*met.step) : "a call of that step" + near);
  }
  return met;
}

/// "softmax" of "softmax" and of the planted "softmax.sign".
std::string_view base_op(std::string_view op) { return op.substr(0, op.find('.')); }

std::string dims_text(const Dims& dims) {
  std::string out;
  for (const auto& [symbol, extent] : dims) out += (out.empty() ? "" : " ") + symbol + "=" + std::to_string(extent);
  return out;
}

void require_fit(const Met& met, const OpSignature& signature, const OpCall& call) {
  const OpCall& real = met.call->call;
  if (base_op(signature.name) != real.op)
    fail(call.range, "a call of " + std::string(base_op(signature.name)) + " there");
  if (call.dims != real.dims) fail(call.range, "the extents of that call, " + dims_text(real.dims));
  for (const TensorSpec& spec : signature.inputs)
    if (call.has(spec) && met.values(spec.name) == nullptr) fail(call.range, spec.name + "=none, as in that call");
}

/// One case for each of the dtypes that the op is declared for; beside 16-bit data one more with the parameters in
/// fp32, as mixed-precision training keeps them.
void add_cases(const OpDef& op, const OpCall& met, std::span<const Dtype> dtypes, std::vector<Case>& out) {
  const std::vector<Dtype>& storage = op.signature.precision.storage;
  for (const Dtype dtype : dtypes) {
    if (std::find(storage.begin(), storage.end(), dtype) == storage.end()) continue;
    OpCall call = met;
    call.op = op.signature.name;
    call.storage = dtype;
    out.push_back({&op, call});
    if (bytes(dtype) != 2) continue;
    for (const TensorSpec& spec : op.signature.inputs)
      if (spec.type == TypeRule::parameter && call.has(spec)) call.dtypes[spec.name] = Dtype::fp32;
    if (!call.dtypes.empty()) out.push_back({&op, std::move(call)});
  }
}

}  // namespace

std::shared_ptr<const NetRun> NetRuns::run(std::string_view net) {
  const std::lock_guard lock(mutex_);
  const auto known = runs_.find(net);
  if (known != runs_.end()) return known->second;
  auto run = std::make_shared<const NetRun>(models::run_net(net, models::find_data(folder_)));
  return runs_.emplace(std::string(net), std::move(run)).first->second;
}

std::shared_ptr<const CallData> data_of_nets(const std::string& folder) {
  auto out = std::make_shared<CallData>();
  out->runs = std::make_shared<NetRuns>(folder);
  return out;
}

std::shared_ptr<const NetRun> real_run(std::string_view net, const std::shared_ptr<const CallData>& data) {
  static NetRuns usual;
  return (data != nullptr && data->runs != nullptr ? *data->runs : usual).run(net);
}

bool is_real_range(std::string_view range) { return !net_of(range).empty(); }

std::vector<Case> real_cases(std::span<const OpDef* const> ops, std::span<const Dtype> dtypes, std::vector<int> steps,
                             const std::shared_ptr<const CallData>& data) {
  if (steps.empty()) steps = {1, models::kSteps};
  std::vector<Case> out;
  for (const std::string_view net : models::net_names()) {
    const auto run = real_run(net, data);
    for (const int step : steps)
      for (const RecordedCall& met : run->steps.at(static_cast<std::size_t>(step - 1)).calls) {
        OpCall call = met.call;
        call.range = std::string(net) + "." + std::string(kStep) + std::to_string(step) + "." + met.name;
        call.data = data;
        for (const OpDef* op : ops)
          if (base_op(op->signature.name) == met.call.op) add_cases(*op, call, dtypes, out);
      }
  }
  return out;
}

void require_real_call(const OpSignature& signature, const OpCall& call) { require_fit(find(call), signature, call); }

std::vector<double> real_input(const OpSignature& signature, const OpCall& call, const TensorSpec& spec) {
  const Met met = find(call);
  require_fit(met, signature, call);
  return *met.values(spec.name);
}

std::vector<double> real_cotangent(const OpCall& call, const std::string& output, const Shape& shape) {
  const Met met = find(call);
  const auto id = static_cast<std::size_t>(met.call->output);
  // Of further outputs the net asks nothing.
  if (output != met.call->output_name) return std::vector<double>(static_cast<std::size_t>(shape.count()), 0.0);
  if (!(shape == met.step->shapes[id]))
    fail(call.range, "attributes as in that call, whose output is " + met.step->shapes[id].str());
  std::vector<double> values = met.step->cotangents[id];
  values.resize(static_cast<std::size_t>(shape.count()), 0.0);
  if (call.storage == Dtype::fp16)
    for (double& value : values) value *= kFp16LossScale;
  return values;
}

}  // namespace ampcheck::checks
