// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck merge`: the check that its parts are of, with their results.
#include <fmt/format.h>

#include "tools/choose/plugins.h"
#include "tools/commands/check_run.h"
#include "tools/commands/commands.h"
#include "tools/report/foreign_file.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

void read_all(const MergeOptions& options, MergedRun& out) {
  for (const std::string& path : options.files) {
    require_readable(path);
    std::size_t torn = 0;
    const RunHeader header = read_run_file(path, out.kept, torn);
    if (torn > 0)
      write_stderr(fmt::format("ampcheck: '{}' has {} line{} that {} not written whole\n", path, torn,
                               torn == 1 ? "" : "s", torn == 1 ? "was" : "were"));
    const bool first = &path == &options.files.front();
    if (const std::string other = first ? "" : header.difference(out.header); !other.empty())
      throw ForeignFileError(fmt::format("[merge] got '{}' and '{}', which differ in {}, want the parts of one check",
                                         options.files.front(), path, other));
    if (first) out.header = header;
  }
}

/// The check as it was asked for.
CheckOptions check_of(const RunHeader& header, const MergeOptions& options) {
  std::vector<std::string> words = {"ampcheck", "--no-config", "check"};
  words.insert(words.end(), header.arguments.begin(), header.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  std::optional<std::string> help;
  CheckOptions check = std::get<CheckOptions>(parse_options(static_cast<int>(argv.size()), argv.data(), help));
  check.json = options.json;
  check.reports = options.reports;
  check.jobs = options.jobs;
  check.verbose = options.verbose;
  check.no_times = options.no_times;
  open_plugin(check);
  return check;
}

}  // namespace

ExitCode merge_command(const MergeOptions& options) {
  MergedRun merged;
  read_all(options, merged);
  const CheckOptions check = check_of(merged.header, options);
  for (const std::string& why : check.refused) write_stderr("ampcheck: " + why + "\n");
  const ExitCode code = check_with(check, &merged);
  return check.refused.empty() ? code : worse(code, ExitCode::usage);
}

}  // namespace ampcheck::tools
