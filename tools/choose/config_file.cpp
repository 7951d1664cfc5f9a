// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/config_file.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "src/file_bytes.h"
#include "src/op_call.h"
#include "src/suggestion.h"
#include "src/toml_file.h"
#include "tools/choose/command_line.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "ampcheck.toml";
constexpr const char* kProfiles = "profile";

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

void read_options(const TomlFile& file, const TomlEntry& table, CLI::App& command, std::vector<ConfigSetting>& out) {
  const TomlSection section(file, table.value, table.key, keys_of(command));
  for (const TomlEntry& entry : table.value.entries) {
    bool off = false;
    const CLI::Option& option = *command.get_option("--" + entry.key);
    ConfigSetting setting{table.key, "--" + entry.key, values_of(section, entry, option, file.path(), off),
                          fmt::format("{}:{}", file.path(), entry.place.line)};
    if (!off) out.push_back(std::move(setting));
  }
}

/// Tables of commands, each with its options.
void read_commands(const TomlFile& file, const TomlNode& tables, const std::string& what,
                   const std::vector<CLI::App*>& commands, std::vector<ConfigSetting>& out) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  std::vector<std::string> keys = names;
  const bool is_root = &tables == &file.root();
  if (is_root) keys.emplace_back(kProfiles);
  const TomlSection section(file, tables, what, keys);
  for (const TomlEntry& table : tables.entries) {
    if (table.value.kind != TomlNode::Kind::table)
      file.fail(table.place, table.key + ", got " + kind_name(table.value.kind) + ", want a table of options");
    if (is_root && table.key == kProfiles) continue;
    const auto at = std::find(names.begin(), names.end(), table.key);
    read_options(file, table, *commands[static_cast<std::size_t>(at - names.begin())], out);
  }
}

/// The settings of one profile; all of them are read, so that a mistake in one shows at once.
std::vector<ConfigSetting> read_profiles(const TomlFile& file, const std::string& wanted,
                                         const std::vector<CLI::App*>& commands) {
  std::vector<ConfigSetting> out;
  std::vector<std::string> names;
  for (const TomlEntry& table : file.root().entries) {
    if (table.key != kProfiles) continue;
    for (const TomlEntry& profile : table.value.entries) {
      if (profile.value.kind != TomlNode::Kind::table)
        file.fail(profile.place, profile.key + ", got " + kind_name(profile.value.kind) + ", want tables of commands");
      std::vector<ConfigSetting> settings;
      read_commands(file, profile.value, "a command of the profile '" + profile.key + "'", commands, settings);
      if (profile.key == wanted) out = std::move(settings);
      names.push_back(profile.key);
    }
  }
  if (!wanted.empty() && std::find(names.begin(), names.end(), wanted) == names.end())
    throw UsageError(fmt::format("[--profile] got '{}'{}, want one that '{}' has{}", wanted,
                                 did_you_mean(wanted, names), file.path(), names.empty() ? "; it has none" : ""));
  return out;
}

/// "AMPCHECK_TIME_BUDGET" of "time-budget".
std::string variable_of(const std::string& option) {
  std::string out = "AMPCHECK_";
  for (const char c : option) out += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
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

std::vector<ConfigSetting> read_config(const std::string& path, const std::vector<CLI::App*>& commands,
                                       const std::string& profile) {
  return parse_config(read_bytes(path, "settings"), path, commands, profile);
}

std::vector<ConfigSetting> parse_config(std::string text, const std::string& path,
                                        const std::vector<CLI::App*>& commands, const std::string& profile) {
  std::vector<ConfigSetting> out;
  try {
    const TomlFile file(std::move(text), path);
    std::vector<ConfigSetting> plain;
    read_commands(file, file.root(), "a command", commands, plain);
    out = read_profiles(file, profile, commands);
    out.insert(out.end(), plain.begin(), plain.end());
  } catch (const TomlError& error) {
    throw UsageError(error.what());
  }
  return out;
}

std::vector<ConfigSetting> environment_settings(const std::vector<CLI::App*>& commands) {
  std::vector<ConfigSetting> out;
  for (CLI::App* const command : commands)
    for (const std::string& key : keys_of(*command)) {
      if (key == "data") continue;  // AMPCHECK_DATA is where data is looked for; --data is where it has to be
      const std::string variable = variable_of(key);
      const char* const text = std::getenv(variable.c_str());
      if (text == nullptr || *text == '\0') continue;
      const bool flag = command->get_option("--" + key)->get_items_expected_max() == 0;
      const std::string value = text;
      if (flag && value != "true" && value != "false" && value != "1" && value != "0")
        throw UsageError("[" + variable + "] got '" + value + "', want true or false");
      if (flag && (value == "false" || value == "0")) continue;
      out.push_back(
          {command->get_name(), "--" + key, flag ? std::vector<std::string>() : std::vector{value}, variable});
    }
  return out;
}

std::string chosen_profile(const std::string& on_command_line) {
  const char* const variable = std::getenv("AMPCHECK_PROFILE");
  return !on_command_line.empty() || variable == nullptr ? on_command_line : variable;
}

std::vector<ConfigSetting> project_settings(std::string& path, const std::string& profile,
                                            const std::vector<CLI::App*>& commands) {
  std::vector<ConfigSetting> out = environment_settings(commands);
  path = find_config(".");
  if (path.empty() && !profile.empty())
    throw UsageError("[--profile] got '" + profile + "', and there is no ampcheck.toml here, want one that has it");
  if (path.empty()) return out;
  const std::vector<ConfigSetting> of_file = read_config(path, commands, profile);
  out.insert(out.end(), of_file.begin(), of_file.end());
  return out;
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
