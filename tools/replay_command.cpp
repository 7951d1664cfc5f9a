// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "checks/real_tensors.h"
#include "src/error.h"
#include "src/npy.h"
#include "src/parallel.h"
#include "tools/commands.h"
#include "tools/device_choice.h"
#include "tools/interrupt.h"
#include "tools/isolation.h"
#include "tools/json.h"
#include "tools/plugins.h"
#include "tools/reports.h"
#include "tools/selection.h"
#include "tools/user_tensors.h"

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw WriteError("[output] cannot make folder '" + folder + "': " + error.message());
}

/// Writes one .npy per tensor, and case.json, which says what each file is.
std::vector<std::string> save(const std::string& folder, const std::string& case_name, const checks::Dump& dump) {
  std::vector<std::string> files;
  Json tensors = Json::array();
  for (const checks::Dump::Entry& entry : dump.entries) {
    const std::string file = entry.name + ".npy";
    write_file((fs::path(folder) / file).string(), npy_bytes({entry.dtype, entry.shape, entry.values}));
    std::vector<std::int64_t> shape(entry.shape.extent, entry.shape.extent + entry.shape.rank);
    tensors.push_back({{"tensor", entry.name}, {"file", file}, {"dtype", name(entry.dtype)}, {"shape", shape}});
    files.push_back(file);
  }
  const Json about = {{"schema", "ampcheck.tensors/1"}, {"case", case_name}, {"tensors", std::move(tensors)}};
  write_file((fs::path(folder) / "case.json").string(), json_text(about));
  return files;
}

std::string saved_text(const std::string& folder, const std::vector<std::string>& files) {
  return fmt::format("\nSaved {} tensors in {}: {}\n", files.size(), folder, fmt::join(files, " "));
}

}  // namespace

ExitCode replay_command(const Options& options) {
  if (options.words.size() != 1) throw UsageError("[replay] got " + std::to_string(options.words.size()) + " case names, want one");
  checks::set_data_directory(options.data);
  open_inputs(options);
  const checks::Case item = parse_case(options, options.words.front());
  if (!item.op->plugin.empty()) require_certified(*item.op);
  RunFacts facts{.build = build_facts(), .machine = {}, .device = options.device, .device_text = require_device(options.device), .planned = 1, .data = options.data, .inputs = options.inputs};
  if (options.jobs != 0) set_threads(options.jobs);
  facts.machine = machine_facts();
  if (!options.save.empty()) make_folder(options.save);

  checks::RunOptions run;
  run.device = options.device;
  run.jobs = options.jobs;
  run.relations = options.relations;
  checks::Dump dump;
  Report report;
  const auto isolated = options.save.empty() ? isolated_run(options) : nullptr;  // tensors are saved from this process
  report.cases.push_back(isolated ? isolated(*item.op, item.call) : checks::run_case(*item.op, item.call, run, options.save.empty() ? nullptr : &dump));
  const CaseResult& result = report.cases.front();
  report.seconds = result.seconds;

  std::vector<std::string> files;
  if (!options.save.empty()) files = save(options.save, result.name, dump);
  if (options.json) {
    write_stdout(json_report(report, facts));
  } else {
    const Style style = stdout_style();
    std::string out = convicts(result.verdict) ? console_failure(result, facts, style)
                                               : fmt::format("{}{}{}  '{}'\n", style.green, name(result.verdict), style.reset, result.name);
    if (!convicts(result.verdict) && !result.note.empty()) out += "  note    " + result.note + "\n";
    out += console_checks(result, style);
    if (!files.empty()) out += saved_text(options.save, files);
    write_stdout(out);
  }
  return exit_code_of(report, facts.planned);
}

}  // namespace ampcheck::tools
