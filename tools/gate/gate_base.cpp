// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/gate/gate_base.h"

#include <fmt/format.h>

#include "checks/doors/plugin.h"
#include "checks/run/compare_builds.h"
#include "tools/choose/plugins.h"
#include "tools/report/json.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

constexpr const char* kSchema = "ampcheck.record/1";

const checks::OpDef& counterpart(const checks::OpDef& op, const std::string& library) {
  try {
    for (const checks::OpDef& other : checks::load_plugin(library).ops) {
      if (other.signature.name != op.signature.name) continue;
      const std::string difference = checks::signature_difference(other.signature, op.signature);
      if (difference.empty()) return other;
      throw UsageError("[--base] got builds of '" + op.signature.name + "' that differ in " + difference +
                       ", want the same signature");
    }
  } catch (const checks::PluginError& error) {
    throw UsageError(error.what());
  }
  throw UsageError("[--base] got '" + library + "', which has no op '" + op.signature.name + "'");
}

}  // namespace

std::vector<Baseline> states_of(const GateRun& run, const std::string& settings) {
  std::vector<Baseline> out;
  for (const GatedOp& op : run.ops) {
    Baseline& state = out.emplace_back();
    state.op = op.op->signature.name;
    state.settings = settings;
    for (const auto& [name, profile] : op.cases) {
      StoredCase& stored = state.cases[name];
      stored.inputs = profile.inputs;
      stored.tensors = profile.tensors;
      for (const auto& [tensor, p] : profile.tensors) stored.bits[run.arch][tensor] = p.bits;
    }
  }
  return out;
}

std::string record_text(const std::vector<Baseline>& states) {
  nlohmann::json out = {{"schema", kSchema}, {"ops", nlohmann::json::array()}};
  for (const Baseline& state : states) out["ops"].push_back(json_of(state));
  return diffable_text(out);
}

std::vector<Baseline> read_record(const std::string& path) {
  const nlohmann::json json = read_json_file(path);
  if (!json.is_object() || !json.contains("schema") || json.at("schema") != kSchema || !json.contains("ops") ||
      !json.at("ops").is_array())
    throw BaselineError(fmt::format("['{}'] got another file, want {}, which gate --record writes", path, kSchema));
  std::vector<Baseline> out;
  for (const nlohmann::json& op : json.at("ops")) out.push_back(baseline_from(op, path));
  return out;
}

std::vector<Baseline> base_states(const KernelGateOptions& options, const Selection& selection,
                                  const std::string& settings, const std::atomic<bool>* cancel) {
  if (!is_library(options.base) || options.base.ends_with(".json")) {
    require_readable(options.base);
    return read_record(options.base);
  }
  Selection base;
  for (const checks::Case& item : selection.cases) {
    if (item.op->plugin.empty())
      throw UsageError(
          "[--base] got a library, and built-in ops to compare with it; want a library of ops first, or a "
          "file that --record wrote");
    base.cases.push_back({&counterpart(*item.op, options.base), item.call});
  }
  return states_of(gate_run(options, base, cancel, nullptr), settings);
}

namespace {

/// The op as its library has it: in this process, as the base's is.
const checks::OpDef& own_of(const checks::OpDef& op) {
  for (const checks::OpDef& own : checks::load_plugin(op.plugin).ops)
    if (own.signature.name == op.signature.name) return own;
  return op;
}

/// Cases that neither crashed nor hung, and were judged whole.
std::vector<OpCall> timed_cases(const GatedOp& op) {
  std::vector<OpCall> out;
  for (const OpCall& call : op.calls)
    if (op.cases.contains(call.str(op.op->signature))) out.push_back(call);
  return out;
}

}  // namespace

void add_speeds(const KernelGateOptions& options, std::vector<OpGate>& gates, const std::atomic<bool>* cancel) {
  checks::RunOptions run;
  run.device = options.device;
  run.jobs = 1;
  run.relations = false;
  run.explain = false;
  run.cancel = cancel;
  for (OpGate& gate : gates) {
    const checks::OpDef& op = *gate.op->op;
    gate.speed = checks::measure_speed(counterpart(op, options.base), own_of(op), timed_cases(*gate.op), run);
    if (!options.strict_speed) continue;
    for (const auto& [pass, speed] :
         {std::pair{"forward", &gate.speed->forward}, std::pair{"backward", &gate.speed->backward}})
      if (speed->pace == checks::Pace::slow)
        gate.failures.push_back(
            fmt::format("{} is slower: {:.2f} times the base's time, {:.2f} to {:.2f} in 99 % of "
                        "the resamples (--strict-perf)",
                        pass, speed->ratio, speed->low, speed->high));
  }
}

}  // namespace ampcheck::tools
