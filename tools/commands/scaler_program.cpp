// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/scaler_program.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "src/error.h"
#include "tools/commands/json_program.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

using namespace checks::scaler;

Json json_of(const Setup& s) {
  return {{"init_scale", s.init_scale},
          {"growth_factor", s.growth_factor},
          {"backoff_factor", s.backoff_factor},
          {"growth_interval", s.window},
          {"enabled", s.enabled},
          {"fused", s.fused},
          {"ranks", s.ranks}};
}

Json json_of(const Call& call) {
  Json out = {{"op", name(call.op)}, {"optimizer", call.optimizer}, {"rank", call.rank}};
  if (call.op == Op::backward) {
    out["raw"] = call.raw;
    for (const double g : call.grads) out["grads"].push_back(json_number(g));
  }
  if (call.op == Op::set_window) out["growth_interval"] = call.window;
  return out;
}

Values values_of(const Json& j) {
  Values out{};
  if (!j.is_array() || j.size() != kElements) throw Error("three numbers, got " + j.dump());
  for (std::size_t i = 0; i < kElements; ++i) out[i] = number_of(j[i]);
  return out;
}

Reply reply_of(const Json& j) {
  Reply out;
  if (const auto refused = refusal_of(j)) {
    out.error = true;
    out.text = *refused;
    return out;
  }
  out.scale = number_of(j.at("scale"));
  out.other_scale = j.contains("other_scale") ? number_of(j.at("other_scale")) : out.scale;
  if (j.contains("scaled")) out.scaled = number_of(j.at("scaled"));
  out.grads = values_of(j.at("grads"));
  out.weights = values_of(j.at("weights"));
  out.steps = j.contains("steps") ? static_cast<std::int64_t>(number_of(j.at("steps"))) : -1;
  out.schedule = j.contains("schedule") ? static_cast<std::int64_t>(number_of(j.at("schedule"))) : -1;
  return out;
}

class Program : public Subject {
 public:
  explicit Program(const std::string& command) : program_(command, "audit scaler", "loss-scale") {
    has_ = program_.abilities();
  }

  std::vector<Reply> run(const Setup& setup, std::span<const Call> calls) override {
    Json request = {{"setup", json_of(setup)}, {"calls", Json::array()}};
    for (const Call& call : calls) request["calls"].push_back(json_of(call));
    std::vector<Reply> out;
    program_.replies(request, R"({"scale": S, "grads": [a, b, c], "weights": [a, b, c]})",
                     [&](const Json& reply) { return !out.emplace_back(reply_of(reply)).error; });
    if (out.size() < calls.size() && (out.empty() || !out.back().error))
      program_.fail(fmt::format("a reply for each of {} calls, got {}", calls.size(), out.size()));
    return out;
  }
  bool has_ranks() const override { return has_.contains("ranks"); }
  bool has_schedule() const override { return has_.contains("schedule"); }
  bool has_fused() const override { return has_.contains("fused"); }
  bool has_half() const override { return has_.contains("half"); }
  bool is_fast() const override { return false; }

 private:
  JsonProgram program_;
  std::set<std::string> has_;
};

}  // namespace

std::unique_ptr<Subject> scaler_program(const std::string& command) { return std::make_unique<Program>(command); }

}  // namespace ampcheck::tools
