// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// torch's rules as they are documented and were measured, without a word of src/amp/autocast.cpp.
#include <algorithm>
#include <map>

#include "checks/autocast/actions.h"

namespace ampcheck::checks::autocast {

namespace {

bool is_16_bits(Dtype dtype) { return dtype == Dtype::fp16 || dtype == Dtype::bf16; }
/// fp64 and integers are exempt.
bool is_eligible(Dtype dtype) { return dtype == Dtype::fp32 || is_16_bits(dtype); }

struct Region {
  bool enabled = false, cache = true;
  Dtype dtype = Dtype::fp16;
};

/// Whether a promoting op refuses its arguments: what comes behind an fp32 one is not looked at. `wide`: there is one.
bool promote_refuses(Dtype region, std::span<const Dtype> inputs, bool& wide) {
  for (const Dtype input : inputs) {
    if (!is_eligible(input)) continue;
    if (input == Dtype::fp32) wide = true;
    if (!wide && input != region) return true;
  }
  return false;
}

/// A cached cast: of the weight as it was.
struct Cached {
  int value = 0;
};

class Rules {
 public:
  Rules(const AutocastList& list, AutocastDevice device) : list_(list) {
    regions_.push_back({false, true, default_autocast_dtype(device)});
  }

  Reply take(const Action& action) {
    Reply reply;
    act(action, reply);
    reply.enabled = regions_.back().enabled;
    reply.dtype = regions_.back().dtype;
    reply.held = static_cast<std::int64_t>(cached_.size());
    return reply;
  }

 private:
  void act(const Action& action, Reply& reply) {
    switch (action.what) {
      case Do::enter:
        regions_.push_back({action.enabled, action.cache, action.dtype.value_or(regions_.back().dtype)});
        return;
      case Do::leave: return leave();
      case Do::raise:
        while (regions_.size() > 1) leave();
        return;
      case Do::call: return call(action, reply);
      case Do::use: return use(action, reply);
      case Do::update: ++weight_; return;
      case Do::clear: cached_.clear(); return;
      case Do::custom: return custom(action, reply);
    }
  }

  void leave() {
    if (regions_.size() > 1) regions_.pop_back();
    if (regions_.size() == 1) cached_.clear();
  }

  /// The region that the thread is in.
  Region region_of(const Action& action) const {
    return action.thread == Thread::fresh ? regions_.front() : regions_.back();
  }

  void call(const Action& action, Reply& reply) const {
    const Region region = region_of(action);
    Decision decision =
        decide(list_.policy(action.op), region.enabled, region.dtype, action.inputs, action.given, action.form);
    reply.error = decision.refused;
    reply.text = decision.why;
    reply.inputs = std::move(decision.inputs);
    reply.given = decision.given;
  }

  void use(const Action& action, Reply& reply) {
    const Region region = region_of(action);
    reply.used = region.enabled ? region.dtype : Dtype::fp32;
    reply.value = weight_;
    if (region.enabled && region.cache && regions_.size() > 1 && action.thread != Thread::fresh)
      reply.value = cached_.try_emplace(region.dtype, Cached{weight_}).first->second.value;
    reply.grad = !action.no_grad;
  }

  void custom(const Action& action, Reply& reply) const {
    const Region& region = regions_.back();
    const bool casts = action.given && region.enabled;
    reply.inside = region.enabled && !casts;
    reply.inside_dtype = region.dtype;
    for (const Dtype input : action.inputs) reply.inputs.push_back(casts && is_eligible(input) ? *action.given : input);
    reply.backward = reply.inside;
    reply.backward_dtype = region.dtype;
  }

  const AutocastList& list_;
  std::vector<Region> regions_;
  std::map<Dtype, Cached> cached_;
  int weight_ = 1;
};

}  // namespace

Dtype Decision::computes() const {
  if (given) return *given;
  Dtype widest = Dtype::fp16;
  bool any = false;
  for (const Dtype input : inputs) {
    if (!is_float(input)) continue;
    if (any && input != widest)
      widest = input == Dtype::fp64 || widest == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;
    else
      widest = input;
    any = true;
  }
  return any ? widest : Dtype::fp32;
}

Decision decide(CastPolicy policy, bool enabled, Dtype region, std::span<const Dtype> inputs,
                std::optional<Dtype> given, Form form) {
  Decision out;
  out.inputs.assign(inputs.begin(), inputs.end());
  out.given = given;
  if (!enabled || form != Form::functional) return out;
  const auto cast_all = [&](Dtype to) {
    for (Dtype& input : out.inputs) {
      if (!is_eligible(input)) continue;
      out.foreign |= is_16_bits(input) && is_16_bits(to) && input != to;
      input = to;
    }
  };
  switch (policy) {
    case CastPolicy::unlisted: break;
    case CastPolicy::banned:
      out.refused = true;
      out.why = "banned";
      break;
    case CastPolicy::lower_precision_fp: cast_all(region); break;
    case CastPolicy::fp32: cast_all(Dtype::fp32); break;
    case CastPolicy::fp32_set_opt_dtype:
      if (!given && !inputs.empty() && is_eligible(inputs.front())) out.given = Dtype::fp32;
      break;
    case CastPolicy::fp32_append_dtype:
      if (!given && !inputs.empty()) out.given = is_eligible(inputs.front()) ? Dtype::fp32 : inputs.front();
      break;
    case CastPolicy::promote: {
      bool wide = false;
      out.refused = promote_refuses(region, inputs, wide);
      if (out.refused)
        out.why = "a 16-bit argument of another type";
      else
        cast_all(wide ? Dtype::fp32 : region);
      break;
    }
  }
  return out;
}

std::vector<Reply> what_is_due(const AutocastList& list, AutocastDevice device, std::span<const Action> actions) {
  Rules rules(list, device);
  std::vector<Reply> out;
  for (const Action& action : actions) {
    out.push_back(rules.take(action));
    if (out.back().error) break;
  }
  return out;
}

}  // namespace ampcheck::checks::autocast
