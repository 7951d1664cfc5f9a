// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/autocast_program.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <set>
#include <utility>

#include "src/error.h"
#include "tools/commands/json_program.h"

namespace ampcheck::tools {

namespace {

using namespace checks::autocast;

constexpr std::array kDtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::fp64, Dtype::i64};

Dtype dtype_of(const Json& j) {
  const std::string word = j.is_string() ? j.get<std::string>() : j.dump();
  for (const Dtype dtype : kDtypes)
    if (word == name(dtype)) return dtype;
  throw Error("a dtype (fp32, fp16, bf16, fp64, i64), got " + word);
}

std::optional<Dtype> optional_dtype(const Json& j, const char* key) {
  return j.contains(key) && !j.at(key).is_null() ? std::optional(dtype_of(j.at(key))) : std::nullopt;
}

const char* word_of(Do what) {
  constexpr const char* kWords[] = {"enter", "leave", "raise", "call", "use", "update", "clear", "custom"};
  return kWords[static_cast<std::size_t>(what)];
}

Json json_of(const Action& a) {
  const auto dtype = [](const std::optional<Dtype>& d) { return d ? Json(name(*d)) : Json(nullptr); };
  Json inputs = Json::array();
  for (const Dtype input : a.inputs) inputs.push_back(name(input));
  Json out = {{"do", word_of(a.what)}};
  if (a.what == Do::enter) {
    out["enabled"] = a.enabled;
    out["dtype"] = dtype(a.dtype);
    out["cache"] = a.cache;
  }
  if (a.what == Do::call) {
    out["op"] = a.op;
    out["dtype"] = dtype(a.given);
    out["form"] = a.form == Form::functional ? "functional" : a.form == Form::in_place ? "in_place" : "out";
  }
  if (a.what == Do::custom) out["cast_inputs"] = dtype(a.given);
  if (a.what == Do::call || a.what == Do::custom) out["inputs"] = std::move(inputs);
  if (a.what == Do::use) out["no_grad"] = a.no_grad;
  if (a.what == Do::use || a.what == Do::call)
    out["thread"] = a.thread == Thread::here ? "here" : a.thread == Thread::fresh ? "new" : "handed";
  return out;
}

/// Where autocast is on: its dtype; null: it is off.
void read_state(const Json& j, const char* key, bool& on, Dtype& dtype) {
  const std::optional<Dtype> state = optional_dtype(j, key);
  on = state.has_value();
  if (state) dtype = *state;
}

Reply reply_of(const Action& action, const Json& j) {
  Reply out;
  if (const auto refused = refusal_of(j)) {
    out.error = true;
    out.text = *refused;
    return out;
  }
  read_state(j, "autocast", out.enabled, out.dtype);
  out.held = j.contains("kept") ? j.at("kept").get<std::int64_t>() : -1;
  if (action.what == Do::call || action.what == Do::custom)
    for (const Json& input : j.at("inputs")) out.inputs.push_back(dtype_of(input));
  if (action.what == Do::call) out.given = optional_dtype(j, "dtype");
  if (action.what == Do::custom) {
    read_state(j, "forward", out.inside, out.inside_dtype);
    read_state(j, "backward", out.backward, out.backward_dtype);
  }
  if (action.what == Do::use) {
    out.value = static_cast<int>(j.at("value").get<double>());
    out.used = dtype_of(j.at("used"));
    const std::optional<Dtype> grad = optional_dtype(j, "grad");
    out.grad = grad.has_value();
    if (grad) out.grad_dtype = *grad;
  }
  return out;
}

class Program final : public Subject {
 public:
  explicit Program(const std::string& command) : program_(command, "audit autocast", "autocast") {
    has_ = program_.abilities();
  }

  std::vector<Reply> run(std::span<const Action> actions) override {
    Json request = {{"actions", Json::array()}};
    for (const Action& action : actions) request["actions"].push_back(json_of(action));
    std::vector<Reply> out;
    program_.replies(request, R"({"autocast": "bf16", ...})", [&](const Json& reply) {
      return out.size() < actions.size() && !out.emplace_back(reply_of(actions[out.size()], reply)).error;
    });
    if (out.size() < actions.size() && (out.empty() || !out.back().error))
      program_.fail(fmt::format("a reply for each of {} actions, got {}", actions.size(), out.size()));
    return out;
  }
  bool has_calls() const override { return has_.contains("calls"); }
  bool has_custom() const override { return has_.contains("custom"); }
  bool has_threads() const override { return has_.contains("threads"); }
  bool is_fast() const override { return false; }

 private:
  JsonProgram program_;
  std::set<std::string> has_;
};

}  // namespace

std::unique_ptr<Subject> autocast_program(const std::string& command) { return std::make_unique<Program>(command); }

}  // namespace ampcheck::tools
