// SPDX-License-Identifier: Apache-2.0
// Writing that notices a full disk or a closed pipe: every failure is a WriteError (exit code 8).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ampcheck::tools {

/// At the start of a program. A standard file that is closed is opened, and what uses it fails as before: or else a
/// file that is opened later takes its number, and what is printed goes into it.
void hold_standard_files();
/// Writes all of `text` to standard output.
void write_stdout(std::string_view text);
/// Closes standard output: some file systems report a failed write only here. Nothing may be written afterwards.
void close_stdout();
/// Messages, without control characters but for ends of lines; failures are ignored, since there is nowhere left to
/// report them.
void write_stderr(std::string_view text);
/// A line of progress on a terminal, as it is.
void write_progress(std::string_view text);

/// Writes a file under a temporary name beside it and renames it, so that no reader sees half of it. What is not a
/// regular file (a device, a pipe) is written directly.
void write_file(const std::string& path, std::string_view text);
/// Throws WriteError if `path` can surely not be written; called before a long run.
void require_writable(const std::string& path);
/// Where a file of that name is written: behind links, there or not yet, from the root. Equal for two names of one
/// file.
std::string written_place(const std::string& name);
/// An option, and the file that it has written; empty: none.
using WrittenFile = std::pair<std::string, std::string>;
/// Throws UsageError where two of them are one file: the one that is written last would be all that is left.
void require_apart(const std::vector<WrittenFile>& files);
/// Throws EnvironmentError if there is no file of that name, UsageError if it is a folder.
void require_readable(const std::string& path);

/// Escape codes of a terminal, all empty where colours are off.
struct Style {
  const char *bold = "", *dim = "", *red = "", *green = "", *yellow = "", *reset = "";
};
/// Colours on standard output: on a terminal only, and not with a non-empty NO_COLOR or TERM=dumb.
Style stdout_style();
/// Whether a moving line may be drawn on standard error.
bool stderr_is_terminal();

}  // namespace ampcheck::tools
