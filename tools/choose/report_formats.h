// SPDX-License-Identifier: Apache-2.0
// `-o FORMAT:FILE`. A new format is a file with its writer and one line in the table of report_formats.cpp: the words
// of
// --help, what is refused, and what is written follow from that line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/finding.h"

namespace CLI {
class App;
}

namespace ampcheck::checks::scaler {
struct LogAudit;
}

namespace ampcheck::tools {

struct RunFacts;  // tools/report/reports.h
struct Trace;     // tools/trace/trace_file.h

/// What a format is of says which commands have it: a report check, with --dump or without, a trace `trace`, a log
/// `audit scaler --log`.
using ReportWriter = std::string (*)(const Report&, const RunFacts&);
using TraceFormatWriter = std::string (*)(const Trace&);
using LogFormatWriter = std::string (*)(const checks::scaler::LogAudit&, const std::string& file);

struct ReportFormat {
  const char* name;
  std::variant<ReportWriter, TraceFormatWriter, LogFormatWriter> writer;
};

/// All formats of all commands.
std::span<const ReportFormat> report_formats();

/// One `-o FORMAT:FILE`.
struct ReportFile {
  const ReportFormat* format = nullptr;
  std::string path;

  /// The text in the chosen format.
  std::string text(const Report& report, const RunFacts& facts) const;
  std::string text(const Trace& trace) const;
  std::string text(const checks::scaler::LogAudit& audit, const std::string& file) const;
};

/// -o of a command that writes reports of checks, or of one that writes traces. An unknown format, one of the other
/// kind, and two reports in one file are UsageErrors.
void add_report_output(CLI::App* command, std::vector<ReportFile>& reports);
void add_trace_output(CLI::App* command, std::vector<ReportFile>& reports);
/// Of a log's audit.
void add_log_output(CLI::App* command, std::vector<ReportFile>& reports);

}  // namespace ampcheck::tools
