// SPDX-License-Identifier: Apache-2.0
// Calls of a scaler or a training loop, and its replies, on their way between the auditor and the process of the
// library. Only tools/commands/audited_library.cpp includes this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/scaler/calls.h"
#include "checks/scaler/loop.h"
#include "tools/workers/wire_bytes.h"

namespace ampcheck::tools::audited {

using namespace checks::scaler;

/// Writes fields, or reads them in the same order: each struct is described once.
class Out {
 public:
  static constexpr bool kReads = false;

  void operator()(const bool& value) { out_.put(std::uint64_t{value}); }
  void operator()(const double& value) { out_.put(value); }
  void operator()(const std::string& text) { out_.put(text); }
  void operator()(const int& value) { out_.put(std::int64_t{value}); }
  void operator()(const std::int64_t& value) { out_.put(value); }
  std::size_t count(std::size_t size, std::size_t) {
    out_.put(std::uint64_t{size});
    return size;
  }
  std::string take() { return out_.take(); }

 private:
  Writer out_;
};

class In {
 public:
  static constexpr bool kReads = true;

  explicit In(std::string_view text) : in_(text) {}
  void operator()(bool& value) { in_.get(value); }
  void operator()(double& value) { in_.get(value); }
  void operator()(std::string& text) { in_.get(text); }
  void operator()(int& value) { in_.get(value); }
  void operator()(std::int64_t& value) { in_.get(value); }
  std::size_t count(std::size_t, std::size_t least) { return in_.count(least); }
  void end() const { in_.end(); }

 private:
  Reader in_;
};

/// `T`: the type that is read, or its const. An enum up to `last`.
template <class Pass, class T>
void field_enum(Pass& pass, T& value, std::remove_const_t<T> last) {
  int number = static_cast<int>(value);
  pass(number);
  if constexpr (Pass::kReads) {
    if (number < 0 || number > static_cast<int>(last)) throw Error("[audit] got a message that cannot be read");
    value = static_cast<T>(number);
  }
}

template <class Pass, class T>
void field_optional(Pass& pass, T& value) {
  bool there = value.has_value();
  pass(there);
  if constexpr (Pass::kReads) value.reset();
  if (!there) return;
  if constexpr (Pass::kReads) value.emplace();
  pass(*value);
}

/// `least`: bytes that an entry takes at least.
template <class Pass, class List, class Each>
void field_list(Pass& pass, List& list, std::size_t least, const Each& each) {
  const std::size_t size = pass.count(list.size(), least);
  if constexpr (Pass::kReads) list.resize(size);
  for (auto& entry : list) each(entry);
}

template <class Pass, class S>
void fields_of_setup(Pass& pass, S& s) {
  pass(s.init_scale);
  pass(s.growth_factor);
  pass(s.backoff_factor);
  pass(s.window);
  pass(s.enabled);
  pass(s.fused);
  pass(s.ranks);
}

template <class Pass, class C>
void fields_of_call(Pass& pass, C& call) {
  field_enum(pass, call.op, Op::reload);
  pass(call.optimizer);
  pass(call.rank);
  for (auto& g : call.grads) pass(g);
  pass(call.raw);
  pass(call.window);
}

template <class Pass, class R>
void fields_of_reply(Pass& pass, R& reply) {
  pass(reply.error);
  pass(reply.text);
  pass(reply.scaled);
  pass(reply.scale);
  pass(reply.other_scale);
  for (auto& g : reply.grads) pass(g);
  for (auto& w : reply.weights) pass(w);
  pass(reply.steps);
  pass(reply.schedule);
}

template <class Pass, class S>
void fields_of_loop_setup(Pass& pass, S& s) {
  pass(s.scale);
  pass(s.growth_interval);
  pass(s.clip);
  pass(s.accumulate);
  pass(s.ranks);
}

template <class Pass, class C>
void fields_of_loop_call(Pass& pass, C& call) {
  field_enum(pass, call.op, LoopOp::reload);
  pass(call.batch);
  field_optional(pass, call.poison);
  pass(call.last);
  pass(call.micro_batch);
  pass(call.rank);
}

template <class Pass>
void fields_of_state(Pass& pass, const State& state) {
  pass.count(state.size(), 0);
  for (const auto& [name, part] : state) {
    pass(name);
    field_list(pass, part.numbers, 8, [&](const double& number) { pass(number); });
    pass(part.digest);
  }
}
inline void fields_of_state(In& pass, State& state) {
  for (std::size_t parts = pass.count(0, 24); parts > 0; --parts) {
    std::string name;
    pass(name);
    StatePart& part = state[name];
    field_list(pass, part.numbers, 8, [&](double& number) { pass(number); });
    pass(part.digest);
  }
}

template <class Pass, class R>
void fields_of_loop_reply(Pass& pass, R& reply) {
  pass(reply.error);
  pass(reply.text);
  field_list(pass, reply.ranks, 48, [&](auto& rank) {
    field_optional(pass, rank.loss);
    field_list(pass, rank.scales, 8, [&](auto& scale) { pass(scale); });
    field_optional(pass, rank.skipped);
    fields_of_state(pass, rank.state);
    fields_of_state(pass, rank.forward);
  });
}

}  // namespace ampcheck::tools::audited
