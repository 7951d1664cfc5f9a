// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck audit autocast`: of a net, a trace, lists of ops, the program's own autocast, or a program that is one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checks/autocast/scenarios.h"
#include "src/file_bytes.h"
#include "src/freed_memory.h"
#include "src/parallel.h"
#include "src/suggestion.h"
#include "tools/choose/as_usage.h"
#include "tools/choose/net_choice.h"
#include "tools/commands/audit_autocast.h"
#include "tools/commands/autocast_program.h"
#include "tools/commands/commands.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/workers/child.h"

namespace ampcheck::tools {

namespace {

using namespace checks::autocast;

/// Whether a file begins as a trace does, or has a net's layers.
bool is_trace(const std::string& bytes) { return bytes.starts_with("{"); }
bool is_net(const std::string& path, const std::string& bytes) {
  return path.ends_with(".toml") && bytes.find("[[layers]]") != std::string::npos;
}

bool is_net_name(const std::string& word) {
  return std::ranges::any_of(checks::train::nets(), [&](const auto& net) { return net.name == word; });
}

Dtype dtype_of(const AuditOptions& options, AutocastDevice device) {
  if (options.dtypes.empty()) return default_autocast_dtype(device);
  if (options.dtypes.size() > 1 || (options.dtypes.front() != Dtype::fp16 && options.dtypes.front() != Dtype::bf16))
    throw UsageError(std::string("[--dtype] got '") + name(options.dtypes.back()) +
                     "', want fp16 or bf16: the type of autocast's region");
  return options.dtypes.front();
}

/// The program's own autocast, or `program`, which is one.
ExitCode audit_rules_command(const AuditOptions& options, const std::string& program) {
  const AutocastDevice device = list_device("--device", options.autocast.device);
  if (program.empty() && !options.autocast.torch.empty())
    throw UsageError("[--torch] got '" + options.autocast.torch +
                     "' where ampcheck's own autocast is audited, which follows " + kAutocastTablesVersion);
  const AutocastList list = torch_list(options.autocast.torch, device);
  const auto subject = program.empty() ? built_in_autocast(device) : autocast_program(program);
  const RulesAudit audit = audit_rules(*subject, list, device);
  if (options.json) {
    Json out = head_json(audit.results, "rules", program, list.title);
    out["sequences"] = audit.sequences;
    out["actions"] = audit.actions;
    write_stdout(json_text(out));
  } else {
    const std::string what = program.empty() ? "ampcheck's own autocast" : "'" + program + "'";
    write_stdout(results_text(audit.results) + "\n" +
                 verdict_text(audit.results, what + " under the rules of " + list.title) +
                 fmt::format("{} sequences of {} actions.\n", grouped(audit.sequences), grouped(audit.actions)));
  }
  return audit.results.headline() != nullptr ? ExitCode::findings : ExitCode::passed;
}

ExitCode audit_net_command(const AuditOptions& options, const std::string& word) {
  keep_freed_memory();
  set_threads(options.jobs);
  const bool file = word.ends_with(".toml");
  NetOptions chosen;
  chosen.verb = "audit autocast";
  chosen.data = options.data;
  chosen.seed = options.first_seed;
  if (word == "tutorial") chosen.width = 256;
  const ChosenNet net = choose_net(chosen, word, file ? word : "");
  if (net.own) run_kernels_here(net.own->own_ops, options);
  NetSubject subject;
  subject.net = as_usage([&] { return net.made(); });
  subject.device = list_device("--device", options.autocast.device);
  subject.list = torch_list(options.autocast.torch, subject.device);
  subject.dtype = dtype_of(options, subject.device);
  subject.seed = options.first_seed;
  subject.batches = options.autocast.batches;
  subject.scale = options.autocast.scale;
  const NetAudit audit = audit_net_and_rules(subject);
  const std::string heading =
      fmt::format("{} in {}, autocast of {}", subject.net.name, name(subject.dtype), subject.list.title);
  if (options.json) {
    Json out = head_json(audit.results, "net", word, subject.list.title);
    out["dtype"] = name(subject.dtype);
    out["ops"] = rows_json(audit.rows);
    add_net_json(out, audit, subject.batches);
    write_stdout(json_text(out));
  } else {
    const Style style = stdout_style();
    std::string text =
        fmt::format("{}{}{}: {} batches, loss scale {}{}\n\n", style.bold, heading, style.reset, subject.batches,
                    rounded_decimal(audit.scale, 6),
                    audit.halved > 0 ? fmt::format(", {} times halved until gradients were finite", audit.halved) : "");
    text += rows_text(audit.rows) + "\n" + results_text(audit.results) + custom_text(audit) + advice_text(audit) +
            "\n" + verdict_text(audit.results, heading);
    write_stdout(text);
  }
  return audit.results.headline() != nullptr ? ExitCode::findings : ExitCode::passed;
}

}  // namespace

ExitCode audit_autocast_command(AuditOptions options) {
  const std::vector<std::string> words = options.words;
  if (words.empty()) return audit_rules_command(options, "");
  if (words.size() > 2)
    throw UsageError("[audit autocast] got '" + words[2] +
                     "' too, want a net, a net's TOML file, a trace and its net, a list of ops, or one or two of "
                     "torch's lists");
  const std::string& word = words.front();
  if (words.size() == 2 && !named_list(word, options.autocast.torch, options.autocast.device) &&
      std::filesystem::is_regular_file(word) && is_trace(read_bytes(word, "audit autocast")))
    return audit_autocast_trace(options, word, words.back());
  if (words.size() == 2 || named_list(word, options.autocast.torch, options.autocast.device))
    return audit_op_lists(options, words);
  if (is_net_name(word)) return audit_net_command(options, word);
  if (!std::filesystem::exists(word) && word.find(' ') != std::string::npos) return audit_rules_command(options, word);
  if (!std::filesystem::exists(word)) {
    std::vector<std::string> names;
    for (const auto& net : checks::train::nets()) names.emplace_back(net.name);
    for (const char* const device : {"cuda", "cpu", "xpu", "mtia", "maia"}) names.emplace_back(device);
    throw UsageError("[audit autocast] got '" + word + "'" + did_you_mean(word, names) +
                     ", want a net, a net's TOML file, a trace, a list of ops, torch's list as cuda or 2.6/cpu, or a "
                     "program in quotes");
  }
  require_readable(word);
  const std::string bytes = as_usage([&] { return read_bytes(word, "audit autocast"); });
  if (is_net(word, bytes)) return audit_net_command(options, word);
  if (is_trace(bytes)) return audit_autocast_trace(options, word, "");
  return audit_op_lists(options, words);
}

}  // namespace ampcheck::tools
