// SPDX-License-Identifier: Apache-2.0
// explain, doctor and version: what the program knows of its findings, its machine and itself.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "checks/define/op_def.h"
#include "checks/reach/visible.h"
#include "checks/run/runner.h"
#include "reference/text/formula_text.h"
#include "src/finding.h"
#include "src/suggestion.h"
#include "tools/choose/user_tensors.h"
#include "tools/commands/commands.h"
#include "tools/commands/torch_differences.h"
#include "tools/report/json.h"
#include "tools/report/output.h"
#include "tools/report/reports.h"
#include "tools/trace/trace_explain.h"

namespace ampcheck::tools {

namespace {

Json code_json(const CodeText& text) {
  return {{"code", text.name},     {"verdict", name(text.verdict)},
          {"title", text.title},   {"meaning", text.meaning},
          {"remedy", text.remedy}, {"example", text.example == nullptr ? "" : text.example}};
}

std::string indented(const char* text) {
  std::string out = "  ";
  for (const char* c = text; *c != '\0'; ++c) out += *c == '\n' ? std::string("\n  ") : std::string(1, *c);
  return out + "\n";
}

/// A page that is not of a code.
struct Topic {
  const char* name;
  const char* title;
  const char* schema;
  std::string (*text)();
  Json (*json)() = nullptr;  ///< else schema and text
};
constexpr Topic kTopics[] = {{"formula", "the language of formulas in text", "ampcheck.formula/1",
                              [] { return std::string(reference::formula_language()); }},
                             {"dump", "what check --dump reads", "ampcheck.dump/1", dump_text},
                             {"trace", "the file that train --record writes, field by field", "ampcheck.trace_format/1",
                              trace_format_text, trace_format_json},
                             {"torch", "what of PyTorch's recorded behaviour is not repeated, and why",
                              "ampcheck.torch_differences/1", torch_text, torch_json}};

std::vector<std::string> topic_names() {
  std::vector<std::string> out;
  for (const Topic& topic : kTopics) out.emplace_back(topic.name);
  return out;
}

const CodeText& require_code(const std::string& word) {
  std::string upper = word;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (const CodeText* text = find_code(upper)) return *text;
  std::vector<std::string> codes;
  for (const CodeText& text : code_texts()) codes.push_back(text.name);
  std::string near = did_you_mean(upper, codes);
  if (near.empty()) near = did_you_mean(word, topic_names());
  throw UsageError("[explain] got unknown code '" + word + "'" + near + "; ampcheck explain lists all");
}

/// Of what replay prints of a case its first line, the head of the table and the checks of that code.
std::string lines_of(const CaseResult& result, const char* code) {
  std::string out = fmt::format("{}  '{}'\n", name(result.verdict), result.name);
  const std::string checks = console_checks(result, Style{});
  for (std::size_t begin = 0, line = 0; begin < checks.size(); ++line) {
    const std::size_t end = checks.find('\n', begin);
    if (line < 2 || checks.substr(begin, end - begin).find(std::string(" ") + code) != std::string::npos)
      out += checks.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}

/// The example of a code as `check` shows it, or where no case fails by it `replay`: run now, where a kernel in the
/// program shows it.
std::string example_text(const CodeText& text) {
  if (text.transcript != nullptr) return std::string("  Example, of a library\n") + indented(text.transcript);
  if (text.example == nullptr) return "";
  const checks::OpDef& op = *checks::find_op(op_of(text.example));
  const OpCall call = parse_call(text.example, op.signature);
  checks::RunOptions options;
  options.power = true;
  CaseResult result = checks::run_case(op, call, options);
  checks::say_where_visible(op, call, result);
  const RunFacts facts{.build = build_facts(), .machine = {}, .device = Device::cpu, .device_text = {}};
  const bool fails = convicts(result.verdict);
  std::string shown = fails ? console_failure(result, facts, Style{}) : lines_of(result, text.name);
  if (fails) shown.erase(shown.rfind("  why "));
  while (!shown.empty() && shown.back() == '\n') shown.pop_back();
  return (fails ? std::string("  Example, run just now\n")
                : fmt::format("  Example, run just now: of ampcheck replay '{}'\n", text.example)) +
         indented(shown.c_str());
}

/// A thing that this build or machine leaves out, and why.
struct Skipped {
  std::string what, why;
};

std::vector<Skipped> skipped_things(const CudaFacts& cuda) {
  std::vector<Skipped> out;
  if (!cuda.usable) out.push_back({"--device cuda", cuda.reason});
  return out;
}

std::string doctor_text(const BuildFacts& build, const MachineFacts& machine, const CudaFacts& cuda) {
  std::string targets;
  for (const std::string& target : machine.simd_targets) targets += (targets.empty() ? "" : ", ") + target;
  std::string out = fmt::format("ampcheck {}, {}, {}\n", build.version, build.compiler,
                                build.cuda ? "CUDA " + build.cuda_version : std::string("without CUDA"));
  out += fmt::format("  processor   {}, {} thread{}\n", machine.cpu, machine.threads, machine.threads == 1 ? "" : "s");
  out += fmt::format("  SIMD        {} in use; this program and machine have {}\n", machine.simd, targets);
  out += fmt::format("  CUDA        build {}, driver {}\n", build.cuda ? build.cuda_version : "none",
                     cuda.driver.empty() ? "none" : "up to " + cuda.driver);
  for (const CudaDevice& device : cuda.devices)
    out += fmt::format("  device      {}, sm_{}{}, {:.0f} GiB\n", device.name, device.major, device.minor,
                       device.memory_gib);
  out += fmt::format("  ops         {}\n", checks::all_ops().size());
  for (const Skipped& item : skipped_things(cuda)) out += fmt::format("  skipped     {}: {}\n", item.what, item.why);
  return out + "  verdict     ready; kernels run on the CPU with bit-exact low-precision arithmetic" +
         (cuda.usable ? ", and on the CUDA device with --device cuda\n" : "\n");
}

}  // namespace

ExitCode explain_command(const ExplainOptions& options) {
  for (const Topic& topic : kTopics) {
    if (options.codes.size() != 1 || options.codes.front() != topic.name) continue;
    if (options.json)
      write_stdout(
          json_text(topic.json != nullptr ? topic.json() : Json{{"schema", topic.schema}, {"text", topic.text()}}));
    else
      write_stdout(topic.text());
    return ExitCode::passed;
  }
  std::vector<const CodeText*> texts;
  for (const std::string& word : options.codes) texts.push_back(&require_code(word));
  if (options.codes.empty())
    for (const CodeText& text : code_texts()) texts.push_back(&text);
  if (options.json) {
    Json out = {{"schema", "ampcheck.codes/1"}, {"codes", Json::array()}};
    for (const CodeText* text : texts) out["codes"].push_back(code_json(*text));
    if (options.codes.empty())
      for (const Topic& topic : kTopics) out["topics"].push_back({{"name", topic.name}, {"title", topic.title}});
    write_stdout(json_text(out));
    return ExitCode::passed;
  }
  std::string out;
  for (const CodeText* text : texts) {
    if (options.codes.empty())
      out += fmt::format("{}  {:<18}  {}\n", text->name, name(text->verdict), text->title);
    else
      out += fmt::format("{}{}  {}: {}\n{}  What to do\n{}", out.empty() ? "" : "\n", text->name, name(text->verdict),
                         text->title, indented(text->meaning), indented(text->remedy)) +
             example_text(*text);
  }
  if (options.codes.empty())
    for (const Topic& topic : kTopics) out += fmt::format("{:<27}{}\n", topic.name, topic.title);
  write_stdout(out);
  return ExitCode::passed;
}

ExitCode doctor_command(const DoctorOptions& options) {
  const BuildFacts build = build_facts();
  const MachineFacts machine = machine_facts();
  const CudaFacts cuda = cuda_facts();
  if (!options.json) {
    write_stdout(doctor_text(build, machine, cuda));
    return ExitCode::passed;
  }
  Json out = {{"schema", "ampcheck.doctor/1"}, {"environment", environment_json(build, machine)}};
  out["cuda"] = {{"usable", cuda.usable}, {"reason", cuda.reason}, {"driver", cuda.driver}, {"devices", Json::array()}};
  for (const CudaDevice& d : cuda.devices)
    out["cuda"]["devices"].push_back(
        {{"name", d.name}, {"major", d.major}, {"minor", d.minor}, {"memory_gib", d.memory_gib}});
  out["ops"] = checks::all_ops().size();
  out["skipped"] = Json::array();
  for (const Skipped& item : skipped_things(cuda)) out["skipped"].push_back({{"what", item.what}, {"why", item.why}});
  write_stdout(json_text(out));
  return ExitCode::passed;
}

ExitCode version_command(const VersionOptions& options) {
  const BuildFacts build = build_facts();
  if (options.json) {
    write_stdout(json_text({{"schema", "ampcheck.version/1"},
                            {"version", build.version},
                            {"compiler", build.compiler},
                            {"cuda_build", build.cuda},
                            {"cuda_version", build.cuda_version}}));
  } else {
    write_stdout(fmt::format("ampcheck {} ({}, {})\n", build.version, build.compiler,
                             build.cuda ? "CUDA " + build.cuda_version : std::string("without CUDA")));
  }
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
