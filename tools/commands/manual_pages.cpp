// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/manual_pages.h"

#include <fmt/format.h>

#include "checks/define/op_def.h"
#include "reference/text/formula_functions.h"
#include "src/error.h"
#include "src/finding.h"
#include "tools/choose/command_table.h"
#include "tools/commands/torch_differences.h"
#include "tools/trace/trace_explain.h"

namespace ampcheck::tools {

namespace {

std::string fence(const std::string& text) { return "```text\n" + text + (text.ends_with('\n') ? "" : "\n") + "```\n"; }

/// The functions that a formula in text may call.
std::string functions_part() {
  std::string out, line;
  for (const reference::FormulaFunction& f : reference::formula_functions()) {
    const std::string usage = f.usage;
    if (line.size() + usage.size() > 98) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : "   ") + usage;
  }
  return fence(out + line);
}

/// Lines that were broken for a terminal as one paragraph.
std::string paragraph(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text + "\n\n";
}

/// One entry for each finding code, from the table of codes.
std::string codes_part() {
  std::string out;
  for (const CodeText& code : code_texts()) {
    out += fmt::format("## {}: {}\n\nVerdict: `{}`{}.\n\n", code.name, code.title, name(code.verdict),
                       convicts(code.verdict) ? "" : " (no case fails by it)");
    out += paragraph(code.meaning) + "**What to do.** " + paragraph(code.remedy);
    if (code.example != nullptr)
      out += fmt::format("**See one.** `ampcheck explain {}` runs this example: `{}`\n\n", code.name, code.example);
    else if (code.transcript != nullptr)
      out += "**See one.** From a library:\n\n" + fence(code.transcript) + "\n";
  }
  return out;
}

/// What `ampcheck COMMAND --help` prints, for each command.
std::string commands_part() {
  constexpr int kWidth = 100;
  std::string out;
  for (const CommandText& command : command_table())
    out += fmt::format("## ampcheck {}\n\n", command.name) + fence(command_help(command, kWidth)) + "\n";
  return out;
}

std::string ops_part() {
  std::string out;
  for (const checks::OpDef& op : checks::all_ops()) out += (out.empty() ? "`" : ", `") + op.signature.name + "`";
  return fmt::format("{} ops are built in: {}.\n", checks::all_ops().size(), out);
}

std::string part_of(std::string_view name) {
  if (name == "functions") return functions_part();
  if (name == "codes") return codes_part();
  if (name == "commands") return commands_part();
  if (name == "ops") return ops_part();
  if (name == "trace") return fence(trace_format_text());
  if (name == "torch") return fence(torch_text());
  throw Error(
      fmt::format("[manual] got <!-- fill: {} -->, want functions, codes, commands, ops, trace or torch", name));
}

}  // namespace

const std::vector<ManualPage>& manual_pages() {
  static const std::vector<ManualPage> kPages = {
#include "ampcheck_manual.inc"
  };
  return kPages;
}

const ManualPage* find_page(std::string_view name) {
  if (name == "formula") name = "formulas";
  if (name == "dump") name = "dumps";
  for (const ManualPage& page : manual_pages())
    if (name == page.name) return &page;
  return nullptr;
}

std::string filled(const ManualPage& page) {
  constexpr std::string_view kBegin = "<!-- fill: ", kEnd = " -->\n";
  std::string out;
  std::string_view rest = page.markdown;
  for (std::size_t at; (at = rest.find(kBegin)) != std::string_view::npos;) {
    out += rest.substr(0, at);
    rest.remove_prefix(at + kBegin.size());
    const std::size_t end = rest.find(kEnd);
    if (end == std::string_view::npos) throw Error(fmt::format("[manual] '{}': a fill without its end", page.name));
    out += part_of(rest.substr(0, end));
    rest.remove_prefix(end + kEnd.size());
  }
  return out + std::string(rest);
}

}  // namespace ampcheck::tools
