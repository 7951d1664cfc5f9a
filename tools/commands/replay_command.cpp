// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "checks/data/regimes.h"
#include "checks/reach/visible.h"
#include "checks/run/budget.h"
#include "checks/run/sampled.h"
#include "src/error.h"
#include "src/npy.h"
#include "src/npz.h"
#include "src/parallel.h"
#include "tools/choose/cores_choice.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/plugins.h"
#include "tools/choose/selection.h"
#include "tools/choose/user_tensors.h"
#include "tools/commands/commands.h"
#include "tools/commands/run_facts.h"
#include "tools/report/json.h"
#include "tools/report/line_table.h"
#include "tools/report/output.h"
#include "tools/report/reports.h"
#include "tools/workers/interrupt.h"
#include "tools/workers/isolation.h"
#include "tools/workers/runner.h"

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

bool is_file(const std::string& save) { return save.ends_with(".safetensors") || save.ends_with(".npz"); }

/// One file with all tensors: safetensors keeps every dtype, npz widens what NumPy has not.
std::vector<std::string> save_file(const std::string& path, const checks::Dump& dump) {
  std::vector<NamedTensor> tensors;
  std::vector<std::string> names;
  for (const checks::Dump::Entry& entry : dump.entries) {
    Tensor tensor(entry.dtype, entry.shape);
    from_doubles(entry.values, tensor.view());
    tensors.push_back({entry.name, std::move(tensor)});
    names.push_back(entry.name);
  }
  write_file(path, path.ends_with(".npz") ? npz_bytes(tensors) : safetensors_bytes(tensors));
  return names;
}

std::vector<std::string> save_as(const std::string& where, const std::string& case_name, const checks::Dump& dump) {
  return is_file(where) ? save_file(where, dump) : save(where, case_name, dump);
}

/// What the kernel is given: saved before it runs, in case it takes the process with it.
checks::Dump inputs_of(const checks::Case& item) {
  checks::Dump out;
  const OpSignature& signature = item.op->signature;
  for (const TensorSpec& spec : signature.inputs)
    if (item.call.has(spec))
      out.entries.push_back(
          {spec.name, item.call.shape(spec), item.call.dtype(spec), checks::input_values(signature, item.call, spec)});
  return out;
}

std::string saved_text(const std::string& where, const std::vector<std::string>& files) {
  return fmt::format("\nSaved {} tensors in {}: {}\n", files.size(), where, fmt::join(files, " "));
}

/// Judges the case, in a worker where it is a library's and nothing is saved; `dump` gets the tensors that are saved.
CaseResult judged(const ReplayOptions& options, const checks::Case& item, const checks::RunOptions& run,
                  checks::Dump& dump) {
  const bool saves = !options.save.empty();
  const std::int64_t memory = options.memory > 0 ? options.memory : checks::available_memory() / 5 * 4;
  const bool sampled =
      checks::memory_need(*item.op, item.call, memory) > memory && checks::why_not_sampled(*item.op, item.call).empty();
  if (sampled && saves)
    throw UsageError("[--save] got a case that is judged on sampled rows (--memory), want one that is judged whole");
  if (saves) save_as(options.save, item.call.str(item.op->signature), inputs_of(item));
  if (!saves)
    if (const auto isolated = isolated_run(worker_setup(options.plugin_ops, options, options.inputs), run.cancel))
      return isolated(*item.op, item.call, {.sampled = sampled, .power = true});
  if (sampled) return checks::run_sampled(*item.op, item.call, run);
  return checks::run_case(*item.op, item.call, run, saves ? &dump : nullptr);
}

std::string text_of(const CaseResult& result, const RunFacts& facts, const Style& style) {
  std::string out = convicts(result.verdict)
                        ? console_failure(result, facts, style)
                        : fmt::format("{}{}{}  '{}'\n", style.green, name(result.verdict), style.reset, result.name);
  if (!convicts(result.verdict) && !result.note.empty()) out += "  note    " + result.note + "\n";
  return out + console_checks(result, style) + line_tables({result}, style);
}

}  // namespace

ExitCode replay_command(const ReplayOptions& given) {
  ReplayOptions options = given;
  if (options.words.size() != 1)
    throw UsageError("[replay] got " + std::to_string(options.words.size()) + " case names, want one");
  put_on_cores(options, options.accumulate, options.device);
  open_data(options);
  if (!options.save.empty()) take_kernels_apart(options.plugin_ops, options, options.device);
  const checks::Case item = parse_case(options, options.words.front());
  if (!item.op->plugin.empty()) require_certified(*item.op);
  RunFacts facts = begin_run(options, options);
  facts.planned = 1;
  facts.accumulate = accumulate_words(options.accumulate);
  if (!options.save.empty() && !is_file(options.save)) make_folder(options.save);

  const auto stopped = [&] {
    write_stderr(fmt::format("ampcheck: interrupted before the case was judged{}\n",
                             options.save.empty() ? "" : "; its inputs alone are saved"));
  };
  InterruptGuard guard(stopped);
  checks::RunOptions run{.device = options.device,
                         .jobs = options.jobs,
                         .relations = options.relations,
                         .as_written = options.as_written,
                         .power = true};
  run.cancel = guard.flag();
  checks::Dump dump;
  Report report;
  try {
    report.cases.push_back(judged(options, item, run, dump));
  } catch (const checks::Interrupted&) {
  }
  guard.finish();
  if (guard.interrupted()) {
    stopped();
    end_by_signal();
  }
  CaseResult& result = report.cases.front();
  checks::say_where_visible(*item.op, item.call, result);
  report.seconds = result.seconds;
  std::vector<std::string> files;
  if (!dump.entries.empty()) files = save_as(options.save, result.name, dump);
  write_stdout(options.json
                   ? json_report(report, facts)
                   : text_of(result, facts, stdout_style()) + (files.empty() ? "" : saved_text(options.save, files)));
  return exit_code_of(report, facts.planned);
}

}  // namespace ampcheck::tools
