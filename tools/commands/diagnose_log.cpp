// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/diagnose_log.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <iterator>

#include "checks/stacks/call_folder.h"
#include "checks/stacks/op_records.h"
#include "checks/stacks/run_log.h"
#include "checks/stacks/te_log.h"
#include "src/file_bytes.h"
#include "tools/choose/as_usage.h"
#include "tools/commands/diagnose_trace.h"
#include "tools/commands/scaler_commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;
namespace stacks = checks::stacks;

std::string line_of(const char* word, const std::string& text) {
  return text.empty() ? "" : fmt::format("  {:<11} {}\n", word, text);
}

std::string lines_of(const char* word, const std::vector<std::string>& texts) {
  std::string out;
  for (std::size_t i = 0; i < texts.size(); ++i) out += line_of(i == 0 ? word : "", texts[i]);
  return out;
}

/// The file that a folder of msprobe holds; the path itself for a file.
std::string recording_file(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  if (fs::exists(fs::path(path) / "dump.json")) return (fs::path(path) / "dump.json").string();
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path, error))
    if (entry.path().filename() == "dump.json")
      throw UsageError("[diagnose] got '" + path + "', want one step and rank of it, as '" +
                       entry.path().parent_path().string() + "'");
  return "";
}

std::string text_of_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  require_readable(path);
  return read_bytes(path, "diagnose");
}

// Recordings of ops.

std::string text_of(const stacks::Recording& r, const stacks::RecordFinding& f) {
  const Style style = stdout_style();
  const bool wrong = f.trouble == stacks::Trouble::made || f.trouble == stacks::Trouble::came_in ||
                     f.trouble == stacks::Trouble::all_zero;
  std::string out =
      fmt::format("{}{}{}  {}: {} ops, recorded by {} with {}\n", wrong ? style.red : style.yellow, name(f.trouble),
                  style.reset, r.path == "-" ? "standard input" : r.path, r.ops.size(), r.tool, r.precision);
  if (!f.op.empty()) out += line_of("first", f.op + (f.line > 0 ? fmt::format(" (line {})", f.line) : ""));
  out += lines_of("before", f.before) + line_of("numbers", f.what) + line_of("excluded", f.excluded) +
         lines_of("hidden by", f.killers) + line_of("next", f.next) + lines_of("note", r.notes);
  return out;
}

Json json_of(const stacks::Recording& r, const stacks::RecordFinding& f) {
  return {{"schema", "ampcheck.diagnose_recording/1"},
          {"file", r.path},
          {"tool", r.tool},
          {"precision", r.precision},
          {"ops", r.ops.size()},
          {"verdict", name(f.trouble)},
          {"first", f.op},
          {"tensor", f.tensor},
          {"line", f.line},
          {"numbers", f.what},
          {"before", f.before},
          {"hidden_by", f.killers},
          {"excluded", f.excluded},
          {"next", f.next},
          {"notes", r.notes}};
}

ExitCode diagnose_recording(const stacks::Recording& r, bool json) {
  const stacks::RecordFinding found = stacks::judge_records(r);
  write_stdout(json ? json_text(json_of(r, found)) : text_of(r, found));
  switch (found.trouble) {
    case stacks::Trouble::made:
    case stacks::Trouble::came_in:
    case stacks::Trouble::all_zero: return ExitCode::findings;
    case stacks::Trouble::near_range:
    case stacks::Trouble::none: break;
  }
  return ExitCode::passed;
}

// TransformerEngine's debug log.

ExitCode diagnose_debug_log(const stacks::DebugLog& log, bool json) {
  const std::vector<stacks::DebugFinding> found = stacks::judge_debug_log(log);
  bool wrong = false;
  for (const stacks::DebugFinding& f : found) wrong |= f.wrong;
  if (json) {
    Json out = {{"schema", "ampcheck.diagnose_debug_log/1"},
                {"file", log.path},
                {"lines", log.lines},
                {"statistics", log.stats.size()},
                {"hidden_below_5e-5", log.hidden},
                {"findings", Json::array()}};
    for (const stacks::DebugFinding& f : found)
      out["findings"].push_back({{"kind", f.kind},
                                 {"what", f.what},
                                 {"iteration", f.iteration},
                                 {"line", f.line},
                                 {"wrong", f.wrong},
                                 {"next", f.next}});
    write_stdout(json_text(out));
  } else {
    const Style style = stdout_style();
    std::string out = fmt::format("{}{}{}  {}: {} statistics in {} lines of TransformerEngine's debug log\n",
                                  wrong ? style.red : style.green, wrong ? "WRONG" : "NOTHING WRONG", style.reset,
                                  log.path, grouped(std::ssize(log.stats)), grouped(log.lines));
    for (const stacks::DebugFinding& f : found) out += line_of(f.kind.c_str(), f.what) + line_of("  next", f.next);
    write_stdout(out);
  }
  return wrong ? ExitCode::findings : ExitCode::passed;
}

// A training log.

std::string text_of(const stacks::LogDiagnosis& d, const std::string& path) {
  const Style style = stdout_style();
  std::string out = fmt::format("{}{}{}  {}: {} steps, {}\n",
                                d.wrong()                               ? style.red
                                : d.trouble == stacks::LogTrouble::none ? style.green
                                                                        : style.yellow,
                                name(d.trouble), style.reset, path == "-" ? "standard input" : path,
                                grouped(std::ssize(d.steps)), d.read);
  if (d.first_bad >= 0) {
    const stacks::LoggedStep& s = d.steps[static_cast<std::size_t>(d.first_bad)];
    out += line_of("first bad", d.what + fmt::format(" (line {})", s.line));
    std::vector<std::string> before;
    for (const stacks::LoggedStep& b : d.before)
      before.push_back(fmt::format("{}: loss {}, grad_norm {}", b.place(), b.loss ? rounded_decimal(*b.loss, 6) : "-",
                                   b.norm ? rounded_decimal(*b.norm, 6) : "-"));
    out += lines_of("before", before) + line_of("precursor", d.precursor_text);
  }
  out += lines_of("excluded", d.excluded) + lines_of("left", d.left) + lines_of("next", d.next) +
         lines_of("not said", d.unknown);
  if (d.scaler && d.scaler->timeline.scale_known) {
    const checks::scaler::Answer& head = d.scaler->headline();
    out += line_of("loss scale",
                   fmt::format("{} ({}): ampcheck audit scaler --log {}", name(head.health), head.kind, path));
  }
  return out;
}

Json step_json(const stacks::LoggedStep& s) {
  const auto number = [](const std::optional<double>& value) { return value ? json_number(*value) : Json(nullptr); };
  return {{"line", s.line},
          {"step", s.step ? Json(*s.step) : Json(nullptr)},
          {"loss", number(s.loss)},
          {"grad_norm", number(s.norm)},
          {"lr", number(s.lr)}};
}

Json json_of(const stacks::LogDiagnosis& d, const std::string& path) {
  Json out = {{"schema", "ampcheck.diagnose_log/1"},
              {"file", path},
              {"read", d.read},
              {"steps", d.steps.size()},
              {"verdict", name(d.trouble)},
              {"kind", d.kind},
              {"first_bad", nullptr},
              {"what", d.what},
              {"before", Json::array()},
              {"precursor", nullptr},
              {"precursor_text", d.precursor_text},
              {"excluded", d.excluded},
              {"left", d.left},
              {"next", d.next},
              {"not_said", d.unknown},
              {"loss_scale", nullptr}};
  if (d.first_bad >= 0) out["first_bad"] = step_json(d.steps[static_cast<std::size_t>(d.first_bad)]);
  if (d.precursor >= 0) out["precursor"] = step_json(d.steps[static_cast<std::size_t>(d.precursor)]);
  for (const stacks::LoggedStep& s : d.before) out["before"].push_back(step_json(s));
  if (d.scaler && d.scaler->timeline.scale_known)
    out["loss_scale"] = {{"verdict", name(d.scaler->headline().health)}, {"kind", d.scaler->headline().kind}};
  return out;
}

/// A log of overflows and no loss.
ExitCode diagnose_scale_alone(const checks::scaler::LogAudit& audit, const std::string& path, bool json) {
  const checks::scaler::Answer& head = audit.headline();
  if (json) {
    stacks::LogDiagnosis none;
    none.read = "a loss scale alone";
    Json out = json_of(none, path);
    out["loss_scale"] = {{"verdict", name(head.health)}, {"kind", head.kind}};
    write_stdout(json_text(out));
  } else {
    write_stdout(fmt::format("{}  {}: a loss scale and no loss\n", name(head.health), path) +
                 line_of(head.question, head.text) + line_of("next", "ampcheck audit scaler --log " + path));
  }
  return head.health == checks::scaler::Health::broken        ? ExitCode::findings
         : head.health == checks::scaler::Health::cannot_tell ? ExitCode::nothing_ran
                                                              : ExitCode::passed;
}

ExitCode diagnose_training_log(const std::string& text, const std::string& path, bool json,
                               const OtherDataOptions& options) {
  stacks::LogDiagnosis found = stacks::diagnose_log(text, columns_of(options.columns));
  if (path != "-" && is_trace(text)) as_usage([&] { look_at_tensors(found, path); });
  if (found.steps.empty() && found.scaler) return diagnose_scale_alone(*found.scaler, path, json);
  if (found.steps.empty()) {
    write_stderr(
        fmt::format("ampcheck: [diagnose] '{}': nothing read: no line says a loss or a gradient norm in a form "
                    "that is known, and it is no recording of a known tool (ampcheck explain stacks)\n",
                    path));
    return ExitCode::nothing_ran;
  }
  write_stdout(json ? json_text(json_of(found, path)) : text_of(found, path));
  return found.wrong()                               ? ExitCode::findings
         : found.trouble == stacks::LogTrouble::open ? ExitCode::nothing_ran
                                                     : ExitCode::passed;
}

stacks::Recording recording_of(const std::string& path) {
  const std::string file = recording_file(path);
  if (file.empty())
    throw UsageError("[diagnose] got '" + path +
                     "', want a recording of msprobe, torchtitan or "
                     "TransformerEngine, or tensors");
  auto read = as_usage([&] { return stacks::read_records(text_of_file(file), file); });
  if (!read)
    throw UsageError("[diagnose] got '" + path +
                     "', which no tool known here wrote, want two dumps, two recordings of "
                     "msprobe or torchtitan, or two debug logs of TransformerEngine");
  return std::move(*read);
}

// Two recordings.

std::string op_line(const stacks::RecordPair& op) { return op.name + (op.where.empty() ? "" : " (" + op.where + ")"); }

std::string text_of(const stacks::RecordComparison& c, const stacks::Recording& a, const stacks::Recording& b) {
  const Style style = stdout_style();
  std::int64_t differ = 0;
  for (const stacks::RecordPair& op : c.ops) differ += !op.outputs_alike;
  const bool made = c.first_made >= 0;
  std::string out = fmt::format("{}{}{}: {} ops in both, {} with other outputs; {} prints {}\n",
                                made         ? style.red
                                : differ > 0 ? style.yellow
                                             : style.green,
                                made         ? "MADE"
                                : differ > 0 ? "CANNOT TELL"
                                             : "ALIKE",
                                style.reset, c.ops.size(), differ, a.tool, a.precision);
  out += fmt::format("  A  {}\n  B  {}\n", a.path, b.path);
  if (made) {
    const stacks::RecordPair& op = c.ops[static_cast<std::size_t>(c.first_made)];
    out += line_of("first made", op_line(op)) +
           line_of("numbers", op.what + fmt::format(" ({:.2g} apart; inputs alike)", op.out_apart));
    if (op.dtype_a != op.dtype_b) out += line_of("types", fmt::format("A stores {}, B {}", op.dtype_a, op.dtype_b));
    out += line_of("next",
                   "which cast or sum makes it is not in such numbers: save this op's inputs and output in both "
                   "stacks, then: ampcheck diagnose A.safetensors B.safetensors --formula F");
  } else if (c.largest_jump >= 0) {
    const stacks::RecordPair& op = c.ops[static_cast<std::size_t>(c.largest_jump)];
    out += line_of("grows most", fmt::format("{}: inputs {:.2g} apart, output {:.2g}; {}", op_line(op), op.in_apart,
                                             op.out_apart, op.what));
    out += line_of("next",
                   "inputs differ already at the first op that is in both: record from the same weights and batch");
  } else if (differ > 0) {
    for (const stacks::RecordPair& op : c.ops)
      if (!op.outputs_alike) {
        out += line_of("first other", op_line(op) + ": " + op.what);
        break;
      }
    out += line_of("next", "the recordings do not say the inputs, so made and inherited are not told apart");
  }
  if (c.dtypes_differ)
    out += line_of("note",
                   "the stacks store other types: every number differs by rounding, and numbers alone do not say "
                   "which of it is more than that");
  if (!c.only_a.empty())
    out += line_of("only in A", fmt::format("{} ops, first {}", c.only_a.size(), c.only_a.front()));
  if (!c.only_b.empty())
    out += line_of("only in B", fmt::format("{} ops, first {}", c.only_b.size(), c.only_b.front()));
  return out + lines_of("note", a.notes);
}

Json json_of(const stacks::RecordComparison& c, const stacks::Recording& a, const stacks::Recording& b) {
  Json out = {
      {"schema", "ampcheck.diagnose_recordings/1"},
      {"a", a.path},
      {"b", b.path},
      {"tool", a.tool},
      {"precision", a.precision},
      {"first_made", c.first_made < 0 ? Json(nullptr) : Json(c.ops[static_cast<std::size_t>(c.first_made)].name)},
      {"grows_most", c.largest_jump < 0 ? Json(nullptr) : Json(c.ops[static_cast<std::size_t>(c.largest_jump)].name)},
      {"types_differ", c.dtypes_differ},
      {"ops", Json::array()},
      {"only_a", c.only_a},
      {"only_b", c.only_b},
      {"notes", a.notes}};
  for (const stacks::RecordPair& op : c.ops)
    out["ops"].push_back({{"op", op.name},
                          {"where", op.where},
                          {"inputs_known", op.inputs_known},
                          {"inputs_alike", op.inputs_alike},
                          {"outputs_alike", op.outputs_alike},
                          {"inputs_apart", json_number(op.in_apart)},
                          {"outputs_apart", json_number(op.out_apart)},
                          {"numbers", op.what}});
  return out;
}

ExitCode compare_debug(const stacks::DebugLog& a, const stacks::DebugLog& b, bool json) {
  const stacks::DebugDifference d = stacks::compare_debug_logs(a, b);
  if (json) {
    Json out = {{"schema", "ampcheck.diagnose_debug_logs/1"},
                {"a", a.path},
                {"b", b.path},
                {"compared", d.compared},
                {"differ", d.differ},
                {"hidden_below_5e-5", d.hidden},
                {"only_a", d.only_a},
                {"only_b", d.only_b},
                {"first", nullptr}};
    if (d.first_a)
      out["first"] = {{"statistic", d.first_a->name()},
                      {"iteration", d.first_a->iteration},
                      {"a", json_number(d.first_a->value)},
                      {"b", json_number(d.first_b->value)}};
    write_stdout(json_text(out));
  } else {
    const Style style = stdout_style();
    std::string out = fmt::format("{}{}{}: {} of {} statistics differ in print (TransformerEngine's debug log)\n",
                                  d.differ > 0 ? style.yellow : style.green, d.differ > 0 ? "DIFFER" : "ALIKE",
                                  style.reset, grouped(d.differ), grouped(d.compared));
    if (d.first_a)
      out += line_of("first", fmt::format("{} at iteration {}: {} against {}", d.first_a->name(), d.first_a->iteration,
                                          rounded_decimal(d.first_a->value, 8), rounded_decimal(d.first_b->value, 8)));
    if (d.hidden > 0)
      out += line_of("hidden", fmt::format("{} sizes are 0.0000 in both: they may differ by anything below 5e-5",
                                           grouped(d.hidden)));
    out += line_of("note",
                   "the log holds no inputs of an op by themselves: made and inherited are not told apart. For "
                   "that dump tensors (DumpTensors) and compare them: ampcheck diagnose A B --formula F");
    write_stdout(out);
  }
  return d.differ > 0 ? ExitCode::findings : ExitCode::passed;
}

}  // namespace

ExitCode diagnose_one(const std::string& path, bool json, const OtherDataOptions& options) {
  std::error_code error;
  if (fs::is_directory(path, error) && recording_file(path).empty()) {
    const stacks::Recording numbers = as_usage([&] { return stacks::numbers_of_calls(stacks::list_calls(path)); });
    return diagnose_recording(numbers, json);
  }
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".safetensors" || extension == ".npz" || extension == ".pt")
    return diagnose_recording(as_usage([&] { return stacks::numbers_of_calls(stacks::list_calls(path)); }), json);
  const std::string text = text_of_file(recording_file(path));
  if (const auto recording = as_usage([&] { return stacks::read_records(text, path); }))
    return diagnose_recording(*recording, json);
  if (const auto log = stacks::read_debug_log(text, path)) return diagnose_debug_log(*log, json);
  return diagnose_training_log(text, path, json, options);
}

ExitCode diagnose_recordings(const std::string& a, const std::string& b, bool json) {
  const std::string file_a = recording_file(a), file_b = recording_file(b);
  if (!file_a.empty() && !file_b.empty()) {
    const auto log_a = stacks::read_debug_log(text_of_file(file_a), a),
               log_b = stacks::read_debug_log(text_of_file(file_b), b);
    if (log_a && log_b) return compare_debug(*log_a, *log_b, json);
  }
  const stacks::Recording of_a = recording_of(a), of_b = recording_of(b);
  if (of_a.tool != of_b.tool)
    throw UsageError("[diagnose] got recordings of " + of_a.tool + " and " + of_b.tool + ", want two of one tool");
  const stacks::RecordComparison compared = stacks::compare_records(of_a, of_b);
  if (compared.ops.empty()) {
    write_stderr("ampcheck: [diagnose] nothing compared: no op has the same name in both recordings\n");
    return ExitCode::nothing_ran;
  }
  write_stdout(json ? json_text(json_of(compared, of_a, of_b)) : text_of(compared, of_a, of_b));
  return compared.first_made >= 0 ? ExitCode::findings
         : compared.largest_jump >= 0 ||
                 std::ranges::any_of(compared.ops, [](const auto& op) { return !op.outputs_alike; })
             ? ExitCode::nothing_ran
             : ExitCode::passed;
}

}  // namespace ampcheck::tools
