// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/step_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/error.h"
#include "src/suggestion.h"
#include "tools/commands/json_program.h"
#include "tools/report/numbers.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

using namespace checks::scaler;

Json json_of(const LoopSetup& s) {
  return {{"scale", s.scale},
          {"growth_interval", s.growth_interval},
          {"clip", s.clip > 0 ? Json(s.clip) : Json(nullptr)},
          {"accumulate", s.accumulate},
          {"ranks", s.ranks}};
}

Json json_of(const LoopCall& call) {
  Json out = {{"op", name(call.op)}};
  if (call.op != LoopOp::step) return out;
  out["batch"] = call.batch;
  out["poison"] = call.poison ? json_number(*call.poison) : Json(nullptr);
  if (!call.poison) return out;
  out["at"] = call.last ? "last" : "first";
  out["micro_batch"] = call.micro_batch;
  out["rank"] = call.rank;
  return out;
}

StatePart part_of(const Json& j) {
  StatePart out;
  if (j.is_number() || j.is_boolean()) {
    out.numbers = {number_of(j)};
  } else if (j.is_array() && std::ranges::none_of(j, [](const Json& x) { return x.is_structured(); })) {
    for (const Json& x : j) out.numbers.push_back(number_of(x));
  } else if (!j.is_null()) {
    out.digest = j.is_string() ? j.get<std::string>() : j.dump();
  }
  return out;
}

State state_of(const Json& j, const char* key) {
  State out;
  if (!j.contains(key)) return out;
  if (!j.at(key).is_object()) throw Error(fmt::format("an object as {}, got {}", key, j.at(key).dump().substr(0, 80)));
  for (const auto& [name, value] : j.at(key).items()) out[name] = part_of(value);
  return out;
}

RankReply rank_of(const Json& j) {
  RankReply out;
  if (j.contains("loss") && !j.at("loss").is_null()) out.loss = number_of(j.at("loss"));
  if (j.contains("scale")) {
    const Json& scale = j.at("scale");
    if (scale.is_array())
      for (const Json& one : scale) out.scales.push_back(number_of(one));
    else
      out.scales = {number_of(scale)};
  }
  if (j.contains("skipped") && !j.at("skipped").is_null()) out.skipped = number_of(j.at("skipped")) != 0;
  out.state = state_of(j, "state");
  out.forward = state_of(j, "forward");
  return out;
}

LoopReply reply_of(const Json& j) {
  LoopReply out;
  if (const auto refused = refusal_of(j)) {
    out.error = true;
    out.text = *refused;
  } else if (j.contains("ranks")) {
    for (const Json& rank : j.at("ranks")) out.ranks.push_back(rank_of(rank));
  } else {
    out.ranks.push_back(rank_of(j));
  }
  return out;
}

class Program : public Loop {
 public:
  explicit Program(const std::string& command) : program_(command, "audit step", "training-step") {
    has_ = program_.abilities();
    std::vector<std::string> known;
    for (const Ability ability : kAbilities) known.emplace_back(name(ability));
    for (const std::string& one : has_)
      if (std::ranges::find(known, one) == known.end())
        throw UsageError(
            fmt::format("[audit step] '{}' says that it has '{}'{}, want of scaler, clip, accumulate, resume, ranks",
                        command, one, did_you_mean(one, known)));
  }

  std::vector<LoopReply> run(const LoopSetup& setup, std::span<const LoopCall> calls) override {
    Json request = {{"setup", json_of(setup)}, {"calls", Json::array()}};
    for (const LoopCall& call : calls) request["calls"].push_back(json_of(call));
    std::vector<LoopReply> out;
    program_.replies(request, R"({"loss": L, "scale": S, "skipped": false, "state": {"weights": [a, b, ...], ...}})",
                     [&](const Json& reply) { return !out.emplace_back(reply_of(reply)).error; });
    return out;
  }
  bool has(Ability ability) const override { return has_.contains(name(ability)); }

 private:
  JsonProgram program_;
  std::set<std::string> has_;
};

}  // namespace

std::unique_ptr<Loop> step_program(const std::string& command) { return std::make_unique<Program>(command); }

}  // namespace ampcheck::tools
