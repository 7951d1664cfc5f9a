// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/autocast/manual_tape.h"

#include "checks/models/bound_call.h"
#include "src/amp/autocast.h"
#include "src/error.h"

namespace ampcheck::checks::autocast {

models::Var ManualTape::parameter(const std::string& name, const Shape& shape, double offset, double scale) {
  const models::Var out = inner_.parameter(name, shape, offset, scale);
  trained_.insert(out.id);
  return out;
}

models::Var ManualTape::cast(models::Var x, Dtype dtype) {
  if (!trained_.contains(x.id)) return inner_.to(x, dtype);
  const auto [known, fresh] = casts_.try_emplace({x.id, dtype}, models::Var());
  if (fresh) known->second = inner_.to(x, dtype);
  return known->second;
}

models::Var ManualTape::call(const std::string& op, const std::vector<std::pair<std::string, models::Var>>& inputs,
                             const std::vector<std::pair<std::string, double>>& attributes) {
  if (!only_.empty() && !only_.contains(op)) return inner_.call(op, inputs, attributes);
  const OpSignature& signature = models::op_of_call(op).signature;
  const AutocastState state = autocast_state(device());
  const CastPolicy policy = classes_(signature);
  std::vector<Dtype> dtypes;  // of what autocast looks at: a weight that may stay in fp32 follows the others
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec* const spec = signature.input(inputs[i].first);
    if (spec == nullptr || spec->type != TypeRule::storage) continue;
    dtypes.push_back(dtype(inputs[i].second));
    places.push_back(i);
  }
  const Decision decision = decide(policy, state.enabled, state.dtype, dtypes);
  if (decision.refused) throw Error("[autocast] op '" + op + "', got " + decision.why + ", want it refused");
  const Dtype computes = decision.computes();
  std::vector<std::pair<std::string, models::Var>> cast_inputs = inputs;
  if (state.enabled && policy != CastPolicy::unlisted) {
    for (const std::size_t i : places) cast_inputs[i].second = cast(inputs[i].second, computes);
    if (policy == CastPolicy::lower_precision_fp)
      for (auto& [name, var] : cast_inputs)
        if (const TensorSpec* const spec = signature.input(name); spec != nullptr && spec->type == TypeRule::parameter)
          var = cast(var, computes);
  }
  const Autocast off(device(), {.enabled = false});
  return inner_.call(op, cast_inputs, attributes);
}

ManualTape::Classes classes_of(const AutocastList& list, AutocastDevice device) {
  return [list, device](const OpSignature& op) { return policy_of(list, device, op); };
}

}  // namespace ampcheck::checks::autocast
