// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/report_formats.h"

#include <algorithm>
#include <utility>

#include "tools/choose/option_parsing.h"
#include "tools/report/output.h"
#include "tools/report/reports.h"
#include "tools/report/scaler_html.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

constexpr ReportFormat kFormats[] = {
    {"json", json_report},       {"junit", junit_report},
    {"lines", lines_report},     {"jsonl", jsonl_report},
    {"sarif", sarif_report},     {"github", github_report},
    {"gitlab", gitlab_report},   {"markdown", markdown_report},
    {"csv", csv_report},         {"tap", tap_report},
    {"concise", concise_report}, {"html", html_report},
    {"html", trace_html},        {"html", scaler_html},
    {"csv", trace_csv},          {"json", +[](const Trace& trace) { return trace_json(trace, summed(trace)); }},
};

/// Names of the formats that write what `like` writes, as "json, junit, lines".
template <class Writer>
std::vector<std::string> names_of() {
  std::vector<std::string> out;
  for (const ReportFormat& format : kFormats)
    if (std::holds_alternative<Writer>(format.writer)) out.emplace_back(format.name);
  return out;
}

/// What a word that names no format means, where letters alone would mislead.
std::string format_of_word(const std::string& word, const std::vector<std::string>& names) {
  constexpr std::pair<const char*, const char*> kMeant[] = {
      {"xml", "junit"}, {"md", "markdown"}, {"ndjson", "jsonl"}, {"codequality", "gitlab"}, {"annotations", "github"}};
  for (const auto& [other, format] : kMeant)
    if (word == other && std::ranges::find(names, format) != names.end())
      return std::string(" (did you mean '") + format + "'?)";
  return did_you_mean(word, names);
}

template <class Writer>
const ReportFormat& format_named(const std::string& name, const char* other_kind) {
  const ReportFormat* other = nullptr;
  for (const ReportFormat& format : kFormats) {
    if (name != format.name) continue;
    if (std::holds_alternative<Writer>(format.writer)) return format;
    other = &format;
  }
  const std::vector<std::string> names = names_of<Writer>();
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
  throw UsageError(
      "[-o] got '" + name + "'" +
      (other != nullptr ? std::string(", which is a format of ") + other_kind : format_of_word(name, names)) +
      ", want " + list);
}

/// Two reports in one file would leave the second alone.
void require_apart(const std::vector<ReportFile>& reports, const std::string& path) {
  for (const ReportFile& other : reports)
    if (written_place(other.path) == written_place(path))
      throw UsageError("[-o] got '" + other.path + "' and '" + path + "', want a file of its own for each report");
}

template <class Writer>
void add_output(CLI::App* command, std::vector<ReportFile>& reports, const char* example, const char* other_kind,
                const std::string& where = "") {
  const std::vector<std::string> names = names_of<Writer>();
  std::string help = where + "also write ";
  for (std::size_t i = 0; i < names.size(); ++i)
    help += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + names[i] + ":FILE";
  each(command, "-o,--output", "FORMAT:FILE", (help + " (may be repeated)").c_str(),
       [&reports, example, other_kind](const std::string& text) {
         const std::size_t colon = text.find(':');
         if (colon == std::string::npos || colon + 1 == text.size())
           throw UsageError("[-o] got '" + text + "', want FORMAT:FILE, as " + example);
         const ReportFormat& format = format_named<Writer>(text.substr(0, colon), other_kind);
         const std::string path = text.substr(colon + 1);
         if (path == "-" && std::string_view(format.name) != "github")  // whose lines GitHub reads there
           throw UsageError("[-o] got '-'; for JSON on standard output use --json");
         require_apart(reports, path);
         reports.push_back({&format, path});
       });
}

}  // namespace

std::span<const ReportFormat> report_formats() { return kFormats; }

std::string ReportFile::text(const Report& report, const RunFacts& facts) const {
  return std::get<ReportWriter>(format->writer)(report, facts);
}
std::string ReportFile::text(const Trace& trace) const { return std::get<TraceFormatWriter>(format->writer)(trace); }
std::string ReportFile::text(const checks::scaler::LogAudit& audit, const std::string& file) const {
  return std::get<LogFormatWriter>(format->writer)(audit, file);
}

void add_report_output(CLI::App* command, std::vector<ReportFile>& reports) {
  add_output<ReportWriter>(command, reports, "json:check.json or junit:check.xml", "trace");
}
void add_trace_output(CLI::App* command, std::vector<ReportFile>& reports) {
  add_output<TraceFormatWriter>(command, reports, "html:run.html or csv:run.csv", "check");
}
void add_log_output(CLI::App* command, std::vector<ReportFile>& reports) {
  add_output<LogFormatWriter>(command, reports, "html:scale.html", "check or trace", "for zoo and for scaler --log: ");
}

}  // namespace ampcheck::tools
