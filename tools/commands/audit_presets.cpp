// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit gate --preset NAME|all [OP...]`: the rules of known projects over many ops, a line each.
#include <fmt/format.h>

#include <algorithm>

#include "checks/audit/gate_presets.h"
#include "src/suggestion.h"
#include "tools/commands/gate_audits.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using checks::GatePreset;
using checks::zoo::GateAudit;

/// What one rule does with all ops of a storage type.
struct PresetLine {
  const GatePreset* preset;
  Dtype dtype;
  checks::GateRule rule;
  std::vector<std::string> vacuous, tight;  ///< ops
  std::int64_t ops = 0, defects = 0, accepted = 0, correct = 0, rejected = 0;

  void add(const GateAudit& audit) {
    ++ops;
    if (audit.vacuous()) vacuous.push_back(audit.op);
    if (audit.too_tight()) tight.push_back(audit.op);
    for (const checks::zoo::GatedKernel& kernel : audit.kernels) {
      if (kernel.defect && !kernel.visible) continue;
      (kernel.defect ? defects : correct) += 1;
      (kernel.defect ? accepted : rejected) += kernel.defect == kernel.accepted;
    }
  }
};

std::string share_text(std::int64_t of, std::int64_t all) {
  return all == 0
             ? "-"
             : fmt::format("{} of {} ({:.0f} %)", of, all, 100 * static_cast<double>(of) / static_cast<double>(all));
}

std::string names_text(const std::vector<std::string>& names) {
  if (names.empty()) return "-";
  std::string out = fmt::format("{}: ", names.size());
  constexpr std::size_t kMost = 3;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMost ? out + ", ..." : out;
}

std::string table(const std::vector<PresetLine>& lines, const Style& style) {
  std::string out = fmt::format("  {}{:<19}{:<8}{:<22}{:<20}{:<42}{}{}\n", style.bold, "rule", "type",
                                "accepts defects", "rejects correct", "vacuous for", "too tight for", style.reset);
  for (const PresetLine& line : lines)
    out += fmt::format("  {:<19}{:<8}{:<22}{:<20}{:<42}{}\n", line.preset->name, name(line.dtype),
                       share_text(line.accepted, line.defects), share_text(line.rejected, line.correct),
                       names_text(line.vacuous), names_text(line.tight));
  std::string rules;
  for (const PresetLine& line : lines)
    rules += fmt::format("  {:<19}{:<8}{:<60}{}\n", line.preset->name, name(line.dtype), line.preset->where,
                         line.rule.str());
  return out + "\n  the rules\n" + rules;
}

Json json_of(const std::vector<PresetLine>& lines, bool bad) {
  Json out = {{"schema", "ampcheck.audit_presets/1"}, {"passed", !bad}, {"presets", Json::array()}};
  for (const PresetLine& line : lines)
    out["presets"].push_back({{"preset", line.preset->name},
                              {"where", line.preset->where},
                              {"dtype", name(line.dtype)},
                              {"rule", line.rule.str()},
                              {"ops", line.ops},
                              {"defects", line.defects},
                              {"accepted", line.accepted},
                              {"correct", line.correct},
                              {"rejected", line.rejected},
                              {"vacuous", line.vacuous},
                              {"too_tight", line.tight}});
  return out;
}

std::vector<const GatePreset*> chosen(const std::string& wanted) {
  std::vector<const GatePreset*> out;
  std::vector<std::string> known;
  for (const GatePreset& preset : checks::gate_presets()) {
    known.push_back(preset.name);
    if (wanted == "all" || wanted == preset.name) out.push_back(&preset);
  }
  if (!out.empty()) return out;
  known.push_back("all");
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  throw UsageError(fmt::format("[--preset] got '{}', want {}{}", wanted, list, did_you_mean(wanted, known)));
}

}  // namespace

ExitCode audit_presets_command(const AuditOptions& options) {
  const std::vector<const GatePreset*> presets = chosen(options.gate.preset);
  AuditOptions all = options;
  if (all.words.empty()) all.words = {"*"};
  const std::vector<AskedOp> asked = asked_ops(all);
  std::vector<PresetLine> lines;
  for (const GatePreset* preset : presets)
    for (const AskedOp& of : asked) {
      const std::optional<checks::GateRule> rule = preset->rule(of.dtype);
      if (!rule || of.op->forms.empty()) continue;
      auto at = std::ranges::find_if(
          lines, [&](const PresetLine& line) { return line.preset == preset && line.dtype == of.dtype; });
      if (at == lines.end()) at = lines.insert(lines.end(), {.preset = preset, .dtype = of.dtype, .rule = *rule});
      at->add(checks::zoo::audit_gate(*of.op, of.calls, {*rule, options.gate.rounded_reference}));
    }
  if (lines.empty()) {
    write_stderr("ampcheck: nothing selected: no case of these ops in a storage type that the preset has a rule for\n");
    return ExitCode::nothing_ran;
  }
  const bool bad =
      std::ranges::any_of(lines, [](const PresetLine& line) { return !line.vacuous.empty() || !line.tight.empty(); });
  write_stdout(options.json ? json_text(json_of(lines, bad)) : table(lines, stdout_style()));
  return bad ? ExitCode::findings : ExitCode::passed;
}

}  // namespace ampcheck::tools
