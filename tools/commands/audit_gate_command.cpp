// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit gate OP`: tests a tolerance rule. Does it accept wrong answers, does it reject right ones?
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checks/audit/gate_audit.h"
#include "checks/audit/gate_rules.h"
#include "checks/data/file_tensors.h"
#include "checks/data/regimes.h"
#include "checks/run/dump.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "src/toml_file.h"
#include "tools/choose/plugins.h"
#include "tools/choose/selection.h"
#include "tools/choose/user_tensors.h"
#include "tools/commands/commands.h"
#include "tools/commands/gate_audits.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/workers/runner.h"

namespace ampcheck::tools {

namespace {

using checks::GateRule;
using checks::zoo::GateAudit;
using checks::zoo::GatedKernel;
using checks::zoo::GatedTensor;
using checks::zoo::SurrogateScore;

/// The rule of one storage type.
using Rules = std::map<Dtype, GateRule>;

bool non_negative(double value) { return value >= 0; }  // and no NaN

/// What a limit of that rule has to be, if it is not; empty otherwise.
std::string wanted_of(GateRule::Kind kind, double limit) {
  if (kind == GateRule::Kind::matched && !(limit >= 0 && limit <= 1)) return "a share of the elements, 0 to 1";
  if (kind == GateRule::Kind::cosine && !(limit >= 0 && limit <= 1)) return "a cosine, 0 to 1";
  return non_negative(limit) && std::isfinite(limit) ? "" : "a finite number that is not negative";
}

GateRule rule_of_flags(const GateOptions& flags, Dtype dtype) {
  const std::pair<GateRule::Kind, std::optional<double>> limits[] = {{GateRule::Kind::matched, flags.matched},
                                                                     {GateRule::Kind::mean, flags.mean},
                                                                     {GateRule::Kind::nmse, flags.nmse},
                                                                     {GateRule::Kind::cosine, flags.cosine},
                                                                     {GateRule::Kind::factor, flags.factor}};
  GateRule rule;
  int given = 0;
  for (const auto& [kind, limit] : limits)
    if (limit) {
      if (const std::string wanted = wanted_of(kind, *limit); !wanted.empty())
        throw UsageError(fmt::format("[--{}] got {}, want {}", checks::gate_kinds()[static_cast<std::size_t>(kind)],
                                     *limit, wanted));
      rule.kind = kind;
      rule.limit = *limit;
      ++given;
    }
  const bool close = flags.atol || flags.rtol;
  if (given > 1 || (given == 1 && close && !flags.matched))
    throw UsageError(
        "[audit gate] got more than one rule, want --atol and --rtol (with --matched or without), or one of --mean, "
        "--nmse, --cosine, --factor");
  if (given == 0 && !close) return checks::torch_default(dtype);
  if (flags.matched && !close) throw UsageError("[--matched] got no --atol and no --rtol, want what it counts");
  rule.atol = flags.atol.value_or(0);
  rule.rtol = flags.rtol.value_or(0);
  return rule;
}

GateRule rule_of_section(const TomlFile& file, const TomlEntry& entry) {
  const TomlSection section(file, entry.value, entry.key, {"rule", "atol", "rtol", "limit"});
  GateRule rule;
  rule.kind = static_cast<GateRule::Kind>(section.choice("rule", checks::gate_kinds()).value_or(0));
  const bool close = rule.kind == GateRule::Kind::close;
  if (close && section.number("limit"))
    section.fail("limit", "got a limit, want none: of close, atol and rtol are the limits");
  if (!close && !section.number("limit"))
    section.fail("rule", "got no limit, want the number that '" + *section.text("rule") + "' asks for");
  if (close && !section.number("atol") && !section.number("rtol"))
    section.fail("", "got neither atol nor rtol, want one of them at least");
  rule.atol = section.number("atol").value_or(0);
  rule.rtol = section.number("rtol").value_or(0);
  rule.limit = section.number("limit").value_or(0);
  for (const auto& [key, value] :
       {std::pair("atol", rule.atol), std::pair("rtol", rule.rtol), std::pair("limit", rule.limit)})
    if (!non_negative(value)) section.fail(key, fmt::format("got {}, want a number that is not negative", value));
  if (const std::string wanted = close ? "" : wanted_of(rule.kind, rule.limit); !wanted.empty())
    section.fail("limit", fmt::format("got {}, want {}", rule.limit, wanted));
  return rule;
}

/// One table for each storage type: [bf16] with atol and rtol, or with rule and limit.
Rules rules_of_file(const std::string& path) {
  Rules out;
  std::string text;
  try {
    text = read_bytes(path, "--rules");
  } catch (const Error& error) {
    throw MissingFileError(error.what());
  }
  try {
    const TomlFile file(text, path);
    const TomlSection known(file, file.root(), "a rule", {"fp32", "fp16", "bf16", "e4m3fn", "e5m2"});
    for (const TomlEntry& entry : file.root().entries) {
      if (entry.value.kind != TomlNode::Kind::table)
        file.fail(entry.place,
                  entry.key + ", got " + kind_name(entry.value.kind) + ", want a table with atol and rtol");
      out[find_dtype(entry.key)->dtype] = rule_of_section(file, entry);
    }
  } catch (const TomlError& error) {
    throw UsageError(error.what());
  }
  if (out.empty())
    throw UsageError("[--rules] got no rule in '" + path +
                     "', want a table [fp32], [fp16], [bf16], [e4m3fn] or [e5m2]");
  return out;
}

}  // namespace

std::vector<AskedOp> asked_ops(const AuditOptions& options) {
  std::vector<AskedOp> out;
  const auto add = [&](const checks::OpDef* op, OpCall call) {
    if (!options.dtypes.empty() &&
        std::find(options.dtypes.begin(), options.dtypes.end(), call.storage) == options.dtypes.end())
      return;
    auto at =
        std::find_if(out.begin(), out.end(), [&](const AskedOp& a) { return a.op == op && a.dtype == call.storage; });
    if (at == out.end()) at = out.insert(out.end(), {op, call.storage, {}});
    at->calls.push_back(std::move(call));
  };
  for (const std::string& word : options.words) {
    if (word.find('(') != std::string::npos) {
      checks::Case item = parse_case(options, word);
      add(item.op, std::move(item.call));
      continue;
    }
    OpOptions one = options;
    one.words = {word};
    for (const checks::OpDef* op : select_ops(one))
      for (const Dtype storage : op->signature.precision.storage)
        for (std::uint64_t i = 0; i < options.seeds; ++i)
          for (OpCall& call : checks::zoo::everyday_cases(op->signature, storage, options.first_seed + i)) {
            if (!options.gate.range.empty()) call.range = options.gate.range;
            try {
              checks::require_regimes(op->signature, call);
            } catch (const Error& error) {
              throw UsageError(error.what());
            }
            add(op, std::move(call));
          }
  }
  return out;
}

namespace {

std::string list_of(const std::vector<std::string>& names, std::size_t most = 3) {
  std::string out;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > most ? fmt::format("{} and {} more", out, names.size() - most) : out;
}

struct KernelCounts {
  std::vector<std::string> accepted, rejected;  ///< names
  std::size_t hidden = 0;                       ///< defects that these cases do not show
};
KernelCounts count(const std::vector<GatedKernel>& kernels, bool defects) {
  KernelCounts out;
  for (const GatedKernel& k : kernels) {
    if (k.defect != defects) continue;
    if (defects && !k.visible)
      ++out.hidden;
    else
      (k.accepted ? out.accepted : out.rejected).push_back(k.name);
  }
  return out;
}

const char* verdict_of(const GateAudit& audit) {
  return audit.vacuous() && audit.too_tight() ? "VACUOUS AND TOO TIGHT"
         : audit.vacuous()                    ? "VACUOUS"
         : audit.too_tight()                  ? "TOO TIGHT"
                                              : "GATES";
}

/// What passes although it knows nothing: "zeros, shuffled pass for y, dx; mean passes for dx".
std::string vacuous_words(const GateAudit& audit) {
  std::vector<std::pair<std::string, std::vector<std::string>>> passing;  // tensors -> surrogates
  for (std::size_t k = 0; k < audit.tensors.front().surrogates.size(); ++k) {
    std::string names;
    for (const GatedTensor& t : audit.tensors) {
      const SurrogateScore& s = t.surrogates[k];
      if (s.says_nothing())
        names += fmt::format("{}{}{}", names.empty() ? "" : ", ", t.name,
                             s.accepted < s.wrong ? fmt::format(" in {} of {} cases", s.accepted, s.wrong) : "");
    }
    if (names.empty()) continue;
    auto at = std::find_if(passing.begin(), passing.end(), [&](const auto& p) { return p.first == names; });
    if (at == passing.end()) at = passing.insert(passing.end(), {names, {}});
    at->second.emplace_back(audit.tensors.front().surrogates[k].name);
  }
  std::string out;
  for (const auto& [names, surrogates] : passing)
    out += fmt::format("{}{} pass{} for {}", out.empty() ? "" : "; ", fmt::join(surrogates, ", "),
                       surrogates.size() > 1 ? "" : "es", names);
  return out;
}

std::string surrogate_table(const GateAudit& audit, const Style& style) {
  std::string out = fmt::format("  {}{:<20}", style.bold, "accepted, of wrong");
  for (const GatedTensor& t : audit.tensors) out += fmt::format("{:>12}", t.name);
  out += fmt::format("{}\n", style.reset);
  for (std::size_t k = 0; k < audit.tensors.front().surrogates.size(); ++k) {
    out += fmt::format("  {:<20}", audit.tensors.front().surrogates[k].name);
    for (const GatedTensor& t : audit.tensors) {
      const SurrogateScore& s = t.surrogates[k];
      out += fmt::format("{:>12}", s.wrong == 0 ? "-" : fmt::format("{} of {}", s.accepted, s.wrong));
    }
    out += fmt::format("   {}\n", audit.tensors.front().surrogates[k].what);
  }
  return out;
}

std::string kernel_lines(const GateAudit& audit) {
  std::string out;
  const KernelCounts defects = count(audit.kernels, true), right = count(audit.kernels, false);
  const std::size_t shown = defects.accepted.size() + defects.rejected.size();
  if (shown > 0)
    out += fmt::format("  planted defects: {} of {} pass{}{}{}\n", defects.accepted.size(), shown,
                       defects.accepted.empty() ? "" : ", as ", list_of(defects.accepted),
                       defects.hidden > 0 ? fmt::format(" ({} more do not show at this data)", defects.hidden) : "");
  if (!right.accepted.empty() || !right.rejected.empty())
    out += fmt::format("  correct kernels: {} of {} are rejected{}{}\n", right.rejected.size(),
                       right.accepted.size() + right.rejected.size(), right.rejected.empty() ? "" : ", as ",
                       list_of(right.rejected));
  return out;
}

/// Two digits: "0.014", "26", "650,000".
std::string times_text(double value) {
  if (!(value >= 1000) || value > 1e15) return rounded_decimal(value, 2);
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return grouped(static_cast<std::int64_t>(std::round(value / unit) * unit));
}

/// What the intervals are, beside the rule.
std::string own_bound(const GateAudit& audit) {
  double ulps = 0, widest = 0;
  for (const GatedTensor& t : audit.tensors) {
    ulps = std::max(ulps, t.widest_ulp);
    widest = std::max(widest, t.widest);
  }
  std::string out = fmt::format(
      "The intervals of this op at these shapes are at most {} ulp wide; a right answer is at most {} from the "
      "reference",
      rounded_decimal(ulps, 2), rounded_decimal(widest, 2));
  const bool close = audit.rule.kind == GateRule::Kind::close || audit.rule.kind == GateRule::Kind::matched;
  if (close && widest > 0 && audit.rule.atol > 0)
    out += fmt::format(": atol = {:g} is {} times that", audit.rule.atol, times_text(audit.rule.atol / widest));
  return out + ".\n";
}

std::string text_of(const GateAudit& audit, const Style& style) {
  const bool bad = audit.vacuous() || audit.too_tight();
  std::string out = fmt::format("{}{}{}  {} in {}: {}; {} cases\n", bad ? style.red : style.green, verdict_of(audit),
                                style.reset, audit.op, name(audit.dtype), audit.rule.str(), audit.cases);
  if (audit.vacuous()) out += fmt::format("  says nothing: {}\n", vacuous_words(audit));
  for (const GatedTensor& t : audit.tensors)
    if (t.right_rejected > 0)
      out += fmt::format("  rejects the correctly rounded {} in {} of {} cases: {} for {} at element {} of '{}'\n",
                         t.name, t.right_rejected, t.tensors, rounded_decimal(t.right, 6), rounded_decimal(t.want, 6),
                         t.index, t.rejected_case);
  return out + surrogate_table(audit, style) + kernel_lines(audit) + "  " + own_bound(audit);
}

Json json_of(const GateAudit& audit) {
  Json out = {{"op", audit.op},
              {"dtype", name(audit.dtype)},
              {"rule", audit.rule.str()},
              {"kind", checks::gate_kinds()[static_cast<std::size_t>(audit.rule.kind)]},
              {"atol", audit.rule.atol},
              {"rtol", audit.rule.rtol},
              {"limit", audit.rule.limit},
              {"cases", audit.cases},
              {"vacuous", audit.vacuous()},
              {"too_tight", audit.too_tight()},
              {"tensors", Json::array()},
              {"kernels", Json::array()}};
  for (const GatedTensor& t : audit.tensors) {
    Json entry = {{"name", t.name},
                  {"cases", t.tensors},
                  {"vacuous", t.vacuous()},
                  {"right_rejected", t.right_rejected},
                  {"widest_ulp", json_number(t.widest_ulp)},
                  {"widest", json_number(t.widest)},
                  {"surrogates", Json::array()}};
    if (t.right_rejected > 0)
      entry["rejected"] = {
          {"case", t.rejected_case}, {"index", t.index}, {"right", hex_float(t.right)}, {"want", hex_float(t.want)}};
    for (const SurrogateScore& s : t.surrogates)
      entry["surrogates"].push_back({{"name", s.name},
                                     {"what", s.what},
                                     {"uninformed", s.uninformed},
                                     {"wrong", s.wrong},
                                     {"accepted", s.accepted}});
    out["tensors"].push_back(std::move(entry));
  }
  for (const GatedKernel& k : audit.kernels)
    out["kernels"].push_back(
        {{"name", k.name}, {"what", k.what}, {"defect", k.defect}, {"visible", k.visible}, {"accepted", k.accepted}});
  return out;
}

ExitCode report(const std::vector<GateAudit>& audits, const AuditOptions& options) {
  bool bad = false;
  for (const GateAudit& audit : audits) bad |= audit.vacuous() || audit.too_tight();
  if (options.json) {
    Json json = {{"schema", "ampcheck.audit_gate/1"}, {"passed", !bad}, {"audits", Json::array()}};
    for (const GateAudit& audit : audits) json["audits"].push_back(json_of(audit));
    write_stdout(json_text(json));
  } else {
    const Style style = stdout_style();
    for (std::size_t i = 0; i < audits.size(); ++i) write_stdout((i == 0 ? "" : "\n") + text_of(audits[i], style));
  }
  return bad ? ExitCode::findings : ExitCode::passed;
}

/// The rule on the tensors of a dump: the formula's own answers there.
std::vector<GateAudit> audit_dump(const AuditOptions& options) {
  if (options.formula.empty())
    throw UsageError("[--dump] got no --formula, want an op's name or a formula as text (ampcheck explain dump)");
  const TensorFile dump = read_tensors(options.dump);
  std::vector<std::string> notes;
  const DumpedOp dumped = dumped_op(options, options, dump, notes);
  for (const std::string& note : notes) write_stderr("ampcheck: " + note + "\n");
  checks::OpDef op = dumped.op;
  op.kernel = {};
  const GateRule rule = rule_of_flags(options.gate, dumped.call.storage);
  if (rule.kind == GateRule::Kind::factor)
    throw UsageError("[--factor] got --dump, want an op with a kernel: the rule compares with its error");
  return {checks::zoo::audit_gate(op, {dumped.call}, {rule, options.gate.rounded_reference})};
}

void require_no_other_rule(const GateOptions& flags) {
  if (flags.atol || flags.rtol || flags.matched || flags.mean || flags.nmse || flags.cosine || flags.factor ||
      !flags.rules.empty())
    throw UsageError("[--preset] got another rule too, want one of them");
}

}  // namespace

ExitCode audit_gate_command(AuditOptions options) {
  open_plugin(options);
  take_kernels_apart(options.plugin_ops, options);
  const GateOptions& flags = options.gate;
  for (const auto& limit : {flags.atol, flags.rtol, flags.matched, flags.mean, flags.nmse, flags.cosine, flags.factor})
    if (limit && !non_negative(*limit))
      throw UsageError(fmt::format("[audit gate] got the limit {}, want a number that is not negative", *limit));
  if (!options.dump.empty()) {
    if (!options.words.empty())
      throw UsageError("[--dump] got '" + options.words.front() + "' too, want none: --formula says what is audited");
    if (!flags.preset.empty()) throw UsageError("[--preset] got --dump too, want ops: presets are tried on kernels");
    return report(audit_dump(options), options);
  }
  if (!flags.preset.empty()) {
    require_no_other_rule(flags);
    return audit_presets_command(options);
  }
  if (options.words.empty())
    throw UsageError("[audit gate] got no op, want one, a case name, or --dump FILE --formula F");
  const Rules rules = flags.rules.empty() ? Rules{} : rules_of_file(flags.rules);
  std::vector<GateAudit> audits;
  for (const AskedOp& asked : asked_ops(options)) {
    if (!rules.empty() && !rules.contains(asked.dtype)) continue;
    const GateRule rule = rules.empty() ? rule_of_flags(flags, asked.dtype) : rules.at(asked.dtype);
    if (asked.op->forms.empty())
      throw UsageError("[audit gate] got '" + asked.op->signature.name +
                       "', which has no formula, want an op with one");
    if (!asked.op->plugin.empty()) require_certified(*asked.op);
    audits.push_back(checks::zoo::audit_gate(*asked.op, asked.calls, {rule, flags.rounded_reference}));
  }
  if (audits.empty()) {
    write_stderr("ampcheck: nothing selected: no case of these ops in the storage types that have a rule\n");
    return ExitCode::nothing_ran;
  }
  return report(audits, options);
}

}  // namespace ampcheck::tools
