// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/config_file.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>

#include "src/file_bytes.h"
#include "src/op_call.h"
#include "src/toml_file.h"
#include "tools/choose/command_line.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "ampcheck.toml";

/// Options that a file may set, by their keys: long names without dashes in front.
std::vector<std::string> keys_of(CLI::App& command) {
  std::vector<std::string> out;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_lnames().empty() && option->get_lnames().front() != "help")
      out.push_back(option->get_lnames().front());
  return out;
}

/// A path stands in the file as seen from there.
std::string resolved(const std::string& value, const CLI::Option& option, const std::string& file) {
  const std::string type = option.get_type_name();
  if (value.empty() || fs::path(value).is_absolute()) return value;
  std::error_code none;
  const fs::path folder = fs::relative(fs::absolute(file).parent_path(), none);
  const std::string prefix = none || folder == "." ? "" : folder.string() + "/";
  if (type == "DIR" || type == "FILE") return prefix + value;
  const std::size_t colon = value.find(':');
  if (type == "FORMAT:FILE" && colon != std::string::npos && !value.substr(colon + 1).starts_with("/"))
    return value.substr(0, colon + 1) + prefix + value.substr(colon + 1);
  return value;
}

std::string scalar(const TomlSection& section, const std::string& key, const TomlNode& node) {
  switch (node.kind) {
    case TomlNode::Kind::text: return node.text;
    case TomlNode::Kind::integer: return std::to_string(node.integer);
    case TomlNode::Kind::number: return number_text(node.number);
    default: section.fail(key, std::string("got ") + kind_name(node.kind) + ", want a string or a number");
  }
}

/// The values of one entry; `off`: a flag that is false.
std::vector<std::string> values_of(const TomlSection& section, const TomlEntry& entry, const CLI::Option& option,
                                   const std::string& file, bool& off) {
  const bool flag = option.get_items_expected_max() == 0;
  if (flag != (entry.value.kind == TomlNode::Kind::boolean))
    section.fail(entry.key, std::string("got ") + kind_name(entry.value.kind) + ", want " +
                                (flag ? "true or false" : "a string, a number or a list of these"));
  off = flag && !entry.value.boolean;
  if (flag) return {};
  std::vector<std::string> out;
  if (entry.value.kind != TomlNode::Kind::array)
    return {resolved(scalar(section, entry.key, entry.value), option, file)};
  for (const TomlEntry& item : entry.value.entries)
    out.push_back(resolved(scalar(section, entry.key, item.value), option, file));
  return out;
}

void read_table(const TomlFile& file, const TomlEntry& table, CLI::App& command, std::vector<ConfigSetting>& out) {
  const TomlSection section(file, table.value, table.key, keys_of(command));
  for (const TomlEntry& entry : table.value.entries) {
    bool off = false;
    const CLI::Option& option = *command.get_option("--" + entry.key);
    ConfigSetting setting{table.key, "--" + entry.key, values_of(section, entry, option, file.path(), off),
                          fmt::format("{}:{}", file.path(), entry.place.line)};
    if (!off) out.push_back(std::move(setting));
  }
}

}  // namespace

std::string find_config(const std::string& from) {
  std::error_code none;
  const fs::path start = fs::absolute(from, none);
  std::string nearest;
  for (fs::path folder = start;; folder = folder.parent_path()) {
    if (nearest.empty() && fs::is_regular_file(folder / kName, none))
      nearest = fs::relative(folder / kName, start, none).string();
    if (fs::exists(folder / ".git", none)) return nearest;
    if (folder == folder.parent_path()) break;
  }
  return fs::is_regular_file(start / kName, none) ? kName : "";
}

std::vector<ConfigSetting> read_config(const std::string& path, const std::vector<CLI::App*>& commands) {
  std::vector<ConfigSetting> out;
  try {
    const TomlFile file(read_bytes(path, "settings"), path);
    std::vector<std::string> names;
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    const TomlSection root(file, file.root(), "a command", names);
    for (const TomlEntry& table : file.root().entries) {
      if (table.value.kind != TomlNode::Kind::table)
        file.fail(table.place, table.key + ", got " + kind_name(table.value.kind) + ", want a table of options");
      const auto at = std::find(names.begin(), names.end(), table.key);
      read_table(file, table, *commands[static_cast<std::size_t>(at - names.begin())], out);
    }
  } catch (const TomlError& error) {
    throw UsageError(error.what());
  }
  return out;
}

std::vector<ConfigSetting> project_settings(std::string& path) {
  path = find_config(".");
  if (path.empty()) return {};
  const CommandLine line;
  return read_config(path, line.commands);
}

void take_config(const std::vector<ConfigSetting>& settings, CLI::App& command) {
  for (const ConfigSetting& setting : settings) {
    if (setting.command != command.get_name()) continue;
    CLI::Option* const option = command.get_option(setting.option);
    if (option->count() > 0) continue;
    try {
      if (setting.values.empty()) option->add_result("true");
      for (const std::string& value : setting.values) option->add_result(value);
      option->run_callback();
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("[{}] {}", setting.origin, error.what()));
    } catch (const CLI::Error& error) {
      throw UsageError(fmt::format("[{}] {}: {}", setting.origin, setting.option, error.what()));
    }
  }
}

}  // namespace ampcheck::tools
