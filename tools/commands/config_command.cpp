// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include <fmt/format.h>

#include <algorithm>

#include "src/suggestion.h"
#include "tools/choose/command_line.h"
#include "tools/choose/command_list.h"
#include "tools/choose/config_file.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/output.h"
#include "tools/report/shell_word.h"

namespace ampcheck::tools {

namespace {

void require_command(const std::string& word) {
  std::vector<std::string> names;
  for (const CommandRow& row : command_rows()) names.emplace_back(row.name);
  if (!word.empty() && std::find(names.begin(), names.end(), word) == names.end())
    throw UsageError("[config] got unknown command '" + word + "'" + did_you_mean(word, names));
}

std::string text_of(const ConfigSetting& setting) {
  std::string out;
  if (setting.values.empty()) out = " " + setting.option;
  for (const std::string& value : setting.values) out += " " + setting.option + " " + shell_word(value);
  return fmt::format("{:<9}{:<50} {}\n", setting.command, out.substr(1), setting.origin);
}

}  // namespace

ExitCode config_command(const ConfigOptions& options) {
  require_command(options.command);
  std::string path;
  const CommandLine line;
  std::vector<ConfigSetting> settings = project_settings(path, options.profile, line.commands);
  if (!options.command.empty())
    std::erase_if(settings, [&](const ConfigSetting& s) { return s.command != options.command; });
  if (options.json) {
    Json out = {{"schema", "ampcheck.config/1"}, {"file", path}, {"settings", Json::array()}};
    for (const ConfigSetting& s : settings)
      out["settings"].push_back(
          {{"command", s.command}, {"option", s.option}, {"values", s.values}, {"origin", s.origin}});
    write_stdout(json_text(out));
    return ExitCode::passed;
  }
  if (path.empty() && settings.empty()) {
    write_stdout("no ampcheck.toml here, or above up to the root of the repository: every option has its default\n");
    return ExitCode::passed;
  }
  write_stdout(options.show || path.empty() ? "" : path + "\n");
  for (const ConfigSetting& setting : settings)
    if (options.show) write_stdout(text_of(setting));
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
