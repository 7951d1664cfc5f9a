// SPDX-License-Identifier: Apache-2.0
// `ampcheck compare A B`: two libraries (or TOML files) with builds of the same ops. Are both right? Which is nearer to
// the reference? Where do the bits differ? Is one faster?
#include "checks/run/compare_builds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "checks/doors/plugin.h"
#include "src/parallel.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/plugins.h"
#include "tools/choose/selection.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/report/reports.h"
#include "tools/workers/child.h"
#include "tools/workers/isolation.h"

namespace ampcheck::tools {

namespace {

constexpr const char* kBuild[] = {"A", "B"};

/// The verdicts of one build over the cases.
struct Verdicts {
  std::string library;
  Report report;
  std::map<std::string, int> found;  ///< "BUG AC101" -> cases
  int convicted = 0, skipped = 0;
  std::vector<char> stays;  ///< by case: it neither crashed nor hung, and can be run in this process
};

Verdicts verdicts_of(const CompareOptions& options, const std::string& library, const checks::OpDef& op,
                     const std::vector<OpCall>& calls) {
  Verdicts out{library, {}, {}, 0, 0, {}};
  std::vector<checks::Case> cases;
  for (const OpCall& call : calls) {
    cases.push_back({&op, call});
    cases.back().call.op = op.signature.name;  // the builds may be named apart
  }
  checks::RunOptions run;
  run.device = options.device;
  run.jobs = options.jobs;
  run.relations = options.relations;
  run.as_written = options.as_written;
  run.brief = true;  // the verdicts are those of `check`
  run.run = isolated_run(worker_setup({&op}, options, options.inputs));
  out.report = checks::run_cases(cases, run);
  for (const CaseResult& result : out.report.cases) {
    out.convicted += convicts(result.verdict);
    out.skipped += result.verdict == Verdict::skipped;
    if (convicts(result.verdict)) ++out.found[fmt::format("{} {}", name(result.verdict), name(result.code))];
    out.stays.push_back(result.verdict != Verdict::crash && result.verdict != Verdict::timeout &&
                        result.verdict != Verdict::skipped &&
                        result.unjudged() == 0);  // what was sampled is too large to run whole
  }
  return out;
}

struct Pair {
  const checks::OpDef *a, *b;
  std::array<Verdicts, 2> verdicts;
  checks::ComparedBuilds compared;

  bool repaired() const { return verdicts[0].convicted > 0 && verdicts[1].convicted == 0; }
};

const std::vector<checks::OpDef>& ops_of(const std::string& library) {
  try {
    return checks::load_plugin(library).ops;
  } catch (const checks::PluginError& error) {
    throw UsageError(error.what());
  }
}

/// The op of that name in the other library; the only one where both have one.
const checks::OpDef& counterpart(const checks::OpDef& op, const std::vector<checks::OpDef>& own,
                                 const std::vector<checks::OpDef>& others, const std::string& library) {
  for (const checks::OpDef& other : others)
    if (other.signature.name == op.signature.name) return other;
  if (own.size() == 1 && others.size() == 1) return others.front();
  throw UsageError("[compare] got op '" + op.signature.name + "', which '" + library + "' has not");
}

std::string names_of(const checks::OpDef& a, const checks::OpDef& b) {
  return "'" + a.signature.name + "'" + (a.signature.name == b.signature.name ? "" : " and '" + b.signature.name + "'");
}

Pair compared(const CompareOptions& options, const checks::OpDef& a, const checks::OpDef& b,
              const std::vector<OpCall>& calls) {
  const std::string difference = checks::signature_difference(a.signature, b.signature);
  if (!difference.empty())
    throw UsageError("[compare] got builds of " + names_of(a, b) + " that differ in " + difference +
                     ", want the same signature");
  require_certified(a);
  require_certified(b);
  Pair out{&a, &b, {verdicts_of(options, a.plugin, a, calls), verdicts_of(options, b.plugin, b, calls)}, {}};
  std::vector<OpCall> both;
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (i < out.verdicts[0].stays.size() && i < out.verdicts[1].stays.size() && out.verdicts[0].stays[i] &&
        out.verdicts[1].stays[i])
      both.push_back(calls[i]);
  checks::RunOptions run;
  run.device = options.device;
  run.jobs = 1;
  run.relations = false;
  run.as_written = options.as_written;
  out.compared = checks::compare_builds(a, b, both, run);
  return out;
}

std::string time_line(const char* pass, const checks::ComparedTime& time) {
  if (time.seconds[0] == 0 || time.seconds[1] == 0) return "";
  const int winner = time.winner();
  const std::string words = winner < 0 ? "no difference beyond chance"
                                       : fmt::format("{} is faster: {:.2f} times, in {} of {} cases", kBuild[winner],
                                                     time.seconds[1 - winner] / time.seconds[winner],
                                                     time.faster[winner], time.faster[0] + time.faster[1]);
  return fmt::format("  {:<9} A {:.3g} ms, B {:.3g} ms; {}\n", pass, 1e3 * time.seconds[0], 1e3 * time.seconds[1],
                     words);
}

std::string verdict_line(const Verdicts& verdicts, const char* build, const Style& style) {
  std::string found;
  for (const auto& [words, cases] : verdicts.found)
    found += fmt::format("{}{} in {}", found.empty() ? "" : ", ", words, cases);
  const auto cases = static_cast<int>(verdicts.report.cases.size());
  if (verdicts.skipped > 0) found += fmt::format("{}SKIPPED in {}", found.empty() ? "" : ", ", verdicts.skipped);
  const std::string words = found.empty() ? fmt::format("{}right{}", style.green, style.reset)
                                          : fmt::format("{}{}{}", style.red, found, style.reset);
  return fmt::format("  {} {}: {} of {} cases: {}\n", build, verdicts.library,
                     cases - verdicts.convicted - verdicts.skipped, cases, words);
}

std::string text_of(const Pair& pair, const Style& style) {
  const std::string &a = pair.a->signature.name, &b = pair.b->signature.name;
  std::string out = fmt::format("{}{}{}{}\n", style.bold, a, a == b ? "" : " (A), " + b + " (B)", style.reset);
  for (const int build : {0, 1})
    out += verdict_line(pair.verdicts[static_cast<std::size_t>(build)], kBuild[build], style);
  if (pair.repaired()) out += "  B repairs what is wrong in A\n";
  if (!pair.compared.tensors.empty()) {
    out += fmt::format("  {}{:<14}{:>10}{:>10}{:>12}{:>12}    bits differ{}\n", style.bold, "error", "A mean", "B mean",
                       "A largest", "B largest", style.reset);
    for (const checks::ComparedTensor& t : pair.compared.tensors)
      out += fmt::format(
          "  {:<14}{:>10}{:>10}{:>12}{:>12}    {}\n", t.name, rounded_decimal(t.mean[0], 3),
          rounded_decimal(t.mean[1], 3), rounded_decimal(t.largest[0], 3), rounded_decimal(t.largest[1], 3),
          t.differ == 0 ? "nowhere"
                        : fmt::format("{} of {}, first '{}'", grouped(t.differ), grouped(t.compared), t.first));
    const int nearer = pair.compared.nearer();
    out += nearer < 0 ? "  neither is nearer to the reference in every tensor"
                      : fmt::format("  {} is nearer to the reference", kBuild[nearer]);
    out += " (errors in units of what rounding may do to an element)\n";
  }
  return out + time_line("forward", pair.compared.forward) + time_line("backward", pair.compared.backward);
}

Json time_json(const checks::ComparedTime& time) {
  const int winner = time.winner();
  return {{"seconds", {json_number(time.seconds[0]), json_number(time.seconds[1])}},
          {"faster_in", {time.faster[0], time.faster[1]}},
          {"faster", winner < 0 ? "" : kBuild[winner]}};
}

Json json_of(const Pair& pair) {
  Json out = {{"op", pair.a->signature.name},
              {"op_b", pair.b->signature.name},
              {"builds", Json::array()},
              {"tensors", Json::array()}};
  for (const Verdicts& v : pair.verdicts)
    out["builds"].push_back({{"library", v.library},
                             {"cases", v.report.cases.size()},
                             {"failed", v.convicted},
                             {"skipped", v.skipped},
                             {"found", v.found}});
  for (const checks::ComparedTensor& t : pair.compared.tensors)
    out["tensors"].push_back({{"tensor", t.name},
                              {"elements", t.elements},
                              {"mean", {json_number(t.mean[0]), json_number(t.mean[1])}},
                              {"largest", {json_number(t.largest[0]), json_number(t.largest[1])}},
                              {"compared", t.compared},
                              {"bits_differ", t.differ},
                              {"first", t.first}});
  out["repaired"] = pair.repaired();
  const int nearer = pair.compared.nearer();
  out["nearer"] = pair.compared.tensors.empty() || nearer < 0 ? "" : kBuild[nearer];
  out["forward"] = time_json(pair.compared.forward);
  out["backward"] = time_json(pair.compared.backward);
  return out;
}

}  // namespace

ExitCode compare_command(const CompareOptions& options) {
  if (options.words.size() < 2 || !is_library(options.words[0]) || !is_library(options.words[1]))
    throw UsageError("[compare] got '" + (options.words.empty() ? "" : options.words.front()) +
                     "', want two libraries or TOML files with builds of the same ops, before its selectors");
  require_device(options.device);
  if (options.jobs != 0) set_threads(options.jobs);
  const std::vector<checks::OpDef>&own = ops_of(options.words[0]), &others = ops_of(options.words[1]);
  CaseOptions selecting = options;
  selecting.words.erase(selecting.words.begin(), selecting.words.begin() + 2);
  for (const checks::OpDef& op : own) selecting.plugin_ops.push_back(&op);
  run_kernels_here(selecting.plugin_ops, options, options.device);
  const Selection selection = select_cases(selecting);
  if (selection.cases.empty()) {
    write_stderr(nothing_selected(selecting));
    return ExitCode::nothing_ran;
  }
  const Style style = stdout_style();
  ExitCode code = ExitCode::passed;
  Json ops = Json::array();
  for (const checks::OpDef& op : own) {
    std::vector<OpCall> calls;
    for (const checks::Case& item : selection.cases)
      if (item.op == &op) calls.push_back(item.call);
    if (calls.empty()) continue;
    const Pair pair = compared(options, op, counterpart(op, own, others, options.words[1]), calls);
    for (const Verdicts& verdicts : pair.verdicts) {
      if (verdicts.skipped > 0) code = worse(code, ExitCode::incomplete);
    }
    if (pair.verdicts[1].convicted > 0) code = worse(code, ExitCode::findings);
    if (options.json)
      ops.push_back(json_of(pair));
    else
      write_stdout((ops.empty() && &op != &own.front() ? "\n" : "") + text_of(pair, style));
  }
  if (options.json) write_stdout(json_text({{"schema", "ampcheck.compare/1"}, {"ops", std::move(ops)}}));
  return code;
}

}  // namespace ampcheck::tools
