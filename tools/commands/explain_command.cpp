// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// explain: what a finding means, and the pages of the manual.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "checks/define/op_def.h"
#include "checks/reach/visible.h"
#include "checks/run/runner.h"
#include "checks/train/run_finding.h"
#include "src/finding.h"
#include "src/suggestion.h"
#include "tools/choose/command_table.h"
#include "tools/commands/commands.h"
#include "tools/commands/manual_pages.h"
#include "tools/commands/torch_differences.h"
#include "tools/report/json.h"
#include "tools/report/markdown.h"
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

/// The schemas of pages that programs read since before there was a manual.
std::string schema_of(const ManualPage& page) {
  const std::string_view name = page.name;
  if (name == "formulas") return "ampcheck.formula/1";
  if (name == "dumps") return "ampcheck.dump/1";
  return "ampcheck.page/1";
}

Json page_json(const ManualPage& page) {
  const std::string_view name = page.name;
  if (name == "trace") return trace_format_json();
  if (name == "torch") return torch_json();
  const std::string markdown = filled(page);
  return {{"schema", schema_of(page)},
          {"name", page.name},
          {"title", title_of(markdown)},
          {"text", terminal_text(markdown, Style{}, 100)},
          {"markdown", markdown}};
}

std::string page_text(const ManualPage& page, const ExplainOptions& options) {
  const std::string markdown = filled(page);
  switch (options.page_format) {
    case PageFormat::markdown: return markdown;
    case PageFormat::html: return html_body(markdown);
    case PageFormat::man: {
      const bool program = std::string_view(page.name) == "command-line";
      return man_page(markdown, {.name = program ? "ampcheck" : std::string("ampcheck-") + page.name,
                                 .section = program ? 1 : 7,
                                 .version = build_facts().version});
    }
    case PageFormat::text: break;
  }
  const std::string_view name = page.name;  // pages of one listing stand as they are: programs cut pieces out of them
  if (name == "trace") return title_of(markdown) + "\n\n" + trace_format_text();
  if (name == "torch") return title_of(markdown) + "\n\n" + torch_text();
  return terminal_text(markdown, stdout_style(), static_cast<std::size_t>(help_width()));
}

/// The page of one command: `explain check`, or `explain ampcheck-trace` where a page of the manual has that name.
std::string command_text(const CommandText& command, const ExplainOptions& options) {
  const std::string markdown = command_page(command), full_name = "ampcheck-" + command.name;
  if (options.json)
    return json_text({{"schema", "ampcheck.page/1"},
                      {"name", full_name},
                      {"title", title_of(markdown)},
                      {"text", terminal_text(markdown, Style{}, 100)},
                      {"markdown", markdown}});
  switch (options.page_format) {
    case PageFormat::markdown: return markdown;
    case PageFormat::html: return html_body(markdown);
    case PageFormat::man:
      return man_page(markdown, {.name = full_name, .section = 1, .version = build_facts().version});
    case PageFormat::text: break;
  }
  return terminal_text(markdown, stdout_style(), static_cast<std::size_t>(help_width()));
}

/// What a word may mean that is neither code nor page nor command, but an op.
std::string of_op(const std::string& word) {
  if (checks::find_op(word) == nullptr) return "";
  return fmt::format(
      "[explain] got '{0}', which is an op, want a code, a page or a command; try ampcheck list {0} or "
      "ampcheck check {0}",
      word);
}

const CodeText& require_code(const std::string& word) {
  std::string upper = word;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (const CodeText* text = find_code(upper)) return *text;
  if (const std::string message = of_op(word); !message.empty()) throw UsageError(message);
  std::vector<std::string> codes, pages;
  for (const CodeText& text : code_texts()) codes.emplace_back(text.name);
  for (const ManualPage& page : manual_pages()) pages.emplace_back(page.name);
  for (const CommandText& command : command_table()) pages.push_back(command.name);
  std::string near = did_you_mean(upper, codes);
  if (near.empty()) near = did_you_mean(word, pages);
  throw UsageError("[explain] got unknown code, page or command '" + word + "'" + near +
                   "; ampcheck explain lists all");
}

/// A code of a training run (TR101): its class and title, and where to read more. Empty for another word.
std::string run_code_text(const std::string& word) {
  std::string upper = word;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (int i = 0; i < checks::train::kRunCodes; ++i)
    if (const auto& text = checks::train::text_of(static_cast<checks::train::RunCode>(i)); upper == text.name)
      return fmt::format("{}  {}: {}\n  ampcheck explain training says how a run finds this, and what to do.\n",
                         text.name, text.word, text.title);
  return "";
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

std::string code_text(const CodeText& text) {
  return fmt::format("{}  {}: {}\n{}  What to do\n{}", text.name, name(text.verdict), text.title,
                     indented(text.meaning), indented(text.remedy)) +
         example_text(text);
}

/// What there is: codes, then pages.
std::string contents_text() {
  std::string out;
  for (const CodeText& text : code_texts())
    out += fmt::format("{}  {:<18}  {}\n", text.name, name(text.verdict), text.title);
  out += "\nPages of the manual\n";
  for (const ManualPage& page : manual_pages()) out += fmt::format("{:<27}{}\n", page.name, title_of(page.markdown));
  out += "\nPages of commands\n";
  for (const CommandText& command : command_table())
    out +=
        fmt::format("{:<27}{}\n", find_page(command.name) ? "ampcheck-" + command.name : command.name, command.about);
  return out;
}

Json codes_json(const std::vector<const CodeText*>& texts, bool contents) {
  Json out = {{"schema", "ampcheck.codes/1"}, {"codes", Json::array()}};
  for (const CodeText* text : texts) out["codes"].push_back(code_json(*text));
  if (!contents) return out;
  for (const ManualPage& page : manual_pages())
    out["topics"].push_back({{"name", page.name}, {"title", title_of(page.markdown)}});
  for (const CommandText& command : command_table())
    out["commands"].push_back({{"name", "ampcheck-" + command.name}, {"title", command.about}});
  return out;
}

}  // namespace

ExitCode explain_command(const ExplainOptions& options) {
  if (options.codes.size() == 1)
    if (const ManualPage* const page = find_page(options.codes.front())) {
      write_stdout(options.json ? json_text(page_json(*page)) : page_text(*page, options));
      return ExitCode::passed;
    }
  if (options.codes.size() == 1)
    if (const std::optional<CommandText> command = find_command(options.codes.front())) {
      write_stdout(command_text(*command, options));
      return ExitCode::passed;
    }
  if (options.codes.size() == 1 && !options.json)
    if (const std::string text = run_code_text(options.codes.front()); !text.empty()) {
      write_stdout(text);
      return ExitCode::passed;
    }
  if (options.page_format != PageFormat::text)
    throw UsageError("[--format] got it without a page, want the name of one page of the manual");
  std::vector<const CodeText*> texts;
  for (const std::string& word : options.codes) texts.push_back(&require_code(word));
  if (options.codes.empty())
    for (const CodeText& text : code_texts()) texts.push_back(&text);
  if (options.json) {
    write_stdout(json_text(codes_json(texts, options.codes.empty())));
    return ExitCode::passed;
  }
  std::string out = options.codes.empty() ? contents_text() : "";
  if (!options.codes.empty())
    for (const CodeText* text : texts) out += (out.empty() ? "" : "\n") + code_text(*text);
  write_stdout(out);
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
