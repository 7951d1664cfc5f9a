// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/autocast/scenarios.h"

#include <fmt/format.h>

namespace ampcheck::checks::autocast {

namespace {

using Actions = std::vector<Action>;

Action enter(Dtype dtype) { return {.what = Do::enter, .dtype = dtype}; }
Action off() { return {.what = Do::enter, .enabled = false}; }
const Action kLeave = {.what = Do::leave};
const Action kUse = {.what = Do::use};
const Action kUpdate = {.what = Do::update};

Action call(std::string_view op, std::vector<Dtype> inputs, std::optional<Dtype> given = {},
            Form form = Form::functional) {
  return {.what = Do::call, .op = std::string(op), .inputs = std::move(inputs), .given = given, .form = form};
}

/// One op of each class that the list has; of an operator with overloads one of these.
std::vector<std::string> examples(const AutocastList& list) {
  std::vector<std::string> out = {"relu"};
  for (const CastPolicy policy : {CastPolicy::lower_precision_fp, CastPolicy::fp32, CastPolicy::fp32_set_opt_dtype,
                                  CastPolicy::fp32_append_dtype, CastPolicy::promote})
    if (const auto ops = list.of(policy); !ops.empty()) out.emplace_back(ops.back());
  return out;
}

/// A1, A7: every op of the list on an fp32 tensor, and ops that are in none.
void add_classes(std::vector<Scenario>& out, const AutocastList& list) {
  for (const auto& [op, policy] : list.ops) {
    const bool banned = policy == CastPolicy::banned;
    out.push_back({banned ? "A7" : "A1", {enter(Dtype::bf16), call(op, {Dtype::fp32})}});
    if (banned) {
      out.push_back({"A7", {call(op, {Dtype::fp32})}});
      out.push_back({"A7", {enter(Dtype::fp16), off(), call(op, {Dtype::fp16})}});
    }
  }
  for (const char* const op : {"relu", "mean", "add", "batch_norm", "max_pool2d"})
    out.push_back({"A1", {enter(Dtype::bf16), call(op, {Dtype::fp32})}});
}

/// A2, A4, A5, A6: mixed arguments, in a region of each type.
void add_arguments(std::vector<Scenario>& out, const AutocastList& list) {
  for (const Dtype low : {Dtype::fp16, Dtype::bf16}) {
    const Dtype foreign = low == Dtype::fp16 ? Dtype::bf16 : Dtype::fp16;
    const auto ask = [&](const char* code, const Action& action) { out.push_back({code, {enter(low), action}}); };
    for (const std::string& op : examples(list)) {
      for (const auto& inputs :
           {std::vector{Dtype::fp32, low}, {low, Dtype::fp32}, {low, low}, {Dtype::fp32, Dtype::fp32}, {low}})
        ask("A2", call(op, inputs));
      for (const auto& inputs : {std::vector{foreign}, {foreign, low}, {foreign, Dtype::fp32}, {Dtype::fp32, foreign}})
        ask("A4", call(op, inputs));
      for (const auto& inputs : {std::vector{Dtype::fp64},
                                 {Dtype::fp64, low},
                                 {Dtype::fp32, Dtype::fp64},
                                 {Dtype::i64},
                                 {Dtype::i64, Dtype::fp32}})
        ask("A5", call(op, inputs));
      for (const Form form : {Form::in_place, Form::out}) ask("A6", call(op, {Dtype::fp32, low}, {}, form));
    }
    for (const CastPolicy policy : {CastPolicy::fp32_set_opt_dtype, CastPolicy::fp32_append_dtype})
      for (const std::string_view op : list.of(policy))
        for (const Dtype given : {low, Dtype::fp32, Dtype::fp64}) ask("A6", call(op, {low}, given));
  }
}

/// A9: what a region leaves behind. A call after it shows its state to whoever only looks at casts; a product does
/// where calls are not told, without the cache, which A10 is about.
void add_regions(std::vector<Scenario>& out, const Subject& subject) {
  const bool calls = subject.has_calls();
  const Action probe = calls ? call("linear", {Dtype::fp32, Dtype::fp32}) : kUse;
  const Action plain = {.what = Do::enter, .cache = calls}, off = {.what = Do::enter, .enabled = false, .cache = calls};
  const auto in = [&](Dtype dtype) { return Action{.what = Do::enter, .dtype = dtype, .cache = calls}; };
  const Action raise = {.what = Do::raise};
  const auto ask = [&](Actions actions) { out.push_back({"A9", std::move(actions)}); };
  ask({probe, in(Dtype::bf16), probe, kLeave, probe});
  ask({plain, probe, kLeave});
  ask({in(Dtype::bf16), in(Dtype::fp16), probe, kLeave, probe, kLeave, probe});
  ask({in(Dtype::fp16), plain, probe, kLeave, probe});
  ask({in(Dtype::bf16), off, probe, kLeave, probe});
  ask({in(Dtype::bf16), off, plain, probe, kLeave, probe, kLeave, probe});
  ask({off, in(Dtype::fp16), probe, kLeave, probe});
  ask({in(Dtype::bf16), in(Dtype::fp16), raise, probe});
  ask({in(Dtype::bf16), off, raise, probe, in(Dtype::fp16), probe, kLeave});
  if (subject.has_threads()) {
    Action fresh = probe, handed = probe;
    fresh.thread = Thread::fresh;
    handed.thread = Thread::handed;
    ask({in(Dtype::bf16), fresh, handed, probe});
    ask({in(Dtype::bf16), off, handed, fresh, kLeave, handed});
  }
  ask({in(Dtype::bf16), kUse, kLeave, kUse});
}

/// A10, but for what torch's rule itself loses.
void add_cache(std::vector<Scenario>& out, const Subject& subject) {
  const Action first = {.what = Do::use, .no_grad = true};
  const Action handed = {.what = Do::use, .thread = Thread::handed};
  const auto ask = [&](Actions actions) { out.push_back({"A10", std::move(actions)}); };
  ask({enter(Dtype::bf16), kUse, kUse, kLeave, kUpdate, enter(Dtype::bf16), kUse});
  ask({enter(Dtype::bf16), kUse, kUpdate, {.what = Do::clear}, kUse});
  ask({enter(Dtype::bf16), first, kUse});
  ask({enter(Dtype::bf16), kUse, enter(Dtype::fp16), kUse, kLeave, kUse});
  ask({enter(Dtype::bf16), kUse, off(), kUse, kLeave, kUse});
  ask({enter(Dtype::bf16), off(), kUse, kUpdate, kUse});
  ask({{.what = Do::enter, .dtype = Dtype::bf16, .cache = false}, kUse, kUpdate, kUse});
  ask({enter(Dtype::bf16), enter(Dtype::bf16), kUse, kLeave, kUse, kLeave});
  ask({enter(Dtype::fp16), kUse, {.what = Do::raise}, kUpdate, enter(Dtype::fp16), kUse});
  if (subject.has_threads()) ask({enter(Dtype::fp16), handed, kUse, handed});
  ask({kUse, kUpdate, kUse});
}

void add_custom_ops(std::vector<Scenario>& out, const Subject& subject) {
  const Action probe = subject.has_calls() ? call("linear", {Dtype::fp32}) : kUse;
  for (const Dtype low : {Dtype::fp16, Dtype::bf16}) {
    const Dtype foreign = low == Dtype::fp16 ? Dtype::bf16 : Dtype::fp16;
    for (const std::optional<Dtype> cast_inputs :
         {std::optional<Dtype>(), std::optional(Dtype::fp32), std::optional(low), std::optional(foreign)})
      for (const Dtype input : {Dtype::fp32, low, foreign, Dtype::fp64, Dtype::i64}) {
        const Action custom = {.what = Do::custom, .inputs = {input}, .given = cast_inputs};
        out.push_back({"A11", {custom}});
        out.push_back({"A11", {enter(low), custom, probe}});
        out.push_back({"A11", {enter(low), off(), custom}});
      }
  }
}

}  // namespace

std::vector<Scenario> scenarios(const AutocastList& list, const Subject& subject) {
  std::vector<Scenario> out;
  if (subject.has_calls()) {
    add_classes(out, list);
    add_arguments(out, list);
  }
  add_regions(out, subject);
  add_cache(out, subject);
  if (subject.has_custom()) add_custom_ops(out, subject);
  return out;
}

std::vector<Ideal> ideals(const Subject& subject) {
  const auto fresh = [](const std::vector<Reply>& got) {
    const Reply& last = got.back();
    return last.value == 2
               ? ""
               : fmt::format("after an update in place the product still sees weight {}, not 2", last.value);
  };
  const auto exact = [](const std::vector<Reply>& got) {
    return got.back().error || got.back().inputs.front() == Dtype::bf16
               ? ""
               : "a bf16 argument becomes fp16 without a word: what is above 65504 becomes infinite";
  };
  std::vector<Ideal> out = {{"A10", {enter(Dtype::bf16), kUse, kUpdate, kUse}, fresh}};
  if (subject.has_calls()) out.push_back({"A4", {enter(Dtype::fp16), call("linear", {Dtype::bf16})}, exact});
  return out;
}

}  // namespace ampcheck::checks::autocast
