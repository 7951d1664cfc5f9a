// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// The table [train] of a net's TOML file: options by their names.
#include <algorithm>
#include <map>
#include <optional>

#include "src/file_bytes.h"
#include "src/op_call.h"
#include "src/toml_file.h"
#include "tools/choose/option_parsing.h"
#include "tools/choose/train_options.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

/// A value as it would stand on the command line; nothing for a flag that is off.
std::optional<std::string> as_argument(const TomlSection& section, const TomlEntry& entry, bool flag) {
  const TomlNode& value = entry.value;
  if (flag != (value.kind == TomlNode::Kind::boolean))
    section.fail(entry.key, std::string("got ") + kind_name(value.kind) + ", want " +
                                (flag ? "true or false" : "a string or a number"));
  switch (value.kind) {
    case TomlNode::Kind::boolean: return value.boolean ? std::optional<std::string>("true") : std::nullopt;
    case TomlNode::Kind::integer: return std::to_string(value.integer);
    case TomlNode::Kind::number: return number_text(value.number);
    case TomlNode::Kind::text: return section.text(entry.key);
    default: section.fail(entry.key, std::string("got ") + kind_name(value.kind) + ", want a string or a number");
  }
}

/// Of a key that may be a list, each.
std::vector<std::string> as_arguments(const TomlSection& section, const TomlEntry& entry, bool flag, bool list) {
  if (list && entry.value.kind == TomlNode::Kind::array) return section.texts(entry.key);
  const std::optional<std::string> one = as_argument(section, entry, flag);
  return one ? std::vector{*one} : std::vector<std::string>{};
}

/// Options of `train` that a file may set, by their keys there.
std::map<std::string, CLI::Option*> settings_of(const CLI::App& train) {
  std::map<std::string, CLI::Option*> out;
  for (CLI::Option* option : const_cast<CLI::App&>(train).get_options()) {
    if (option->get_lnames().empty()) continue;
    std::string key = option->get_lnames().front();
    if (key == "help" || key == "json" || key == "model" || key == "width" || key == "data") continue;
    std::replace(key.begin(), key.end(), '-', '_');
    out[key] = option;
  }
  return out;
}

void take(const CLI::App& train, const CLI::App& command, const TomlFile& file) {
  const auto table = std::find_if(file.root().entries.begin(), file.root().entries.end(),
                                  [](const TomlEntry& e) { return e.key == "train"; });
  if (table == file.root().entries.end()) return;
  const std::map<std::string, CLI::Option*> known = settings_of(train);
  std::vector<std::string> keys;
  for (const auto& [key, option] : known) keys.push_back(key);
  const TomlSection section(file, table->value, "train", keys);
  for (const TomlEntry& entry : table->value.entries) {
    const CLI::Option* const meant = known.at(entry.key);
    const std::vector<std::string> arguments = as_arguments(section, entry, meant->get_items_expected_max() == 0,
                                                            entry.key == "loss" || entry.key == "optimizer");
    CLI::Option* const option = const_cast<CLI::App&>(command).get_option_no_throw(meant->get_name());
    if (option == nullptr || option->count() > 0 || arguments.empty()) continue;
    try {
      for (const std::string& argument : arguments) option->add_result(argument);
      option->run_callback();
    } catch (const UsageError& error) {
      const std::string what = error.what();
      section.fail(entry.key, what.substr(std::min(what.size(), what.find("] ") + 2)));
    } catch (const CLI::Error& error) {
      section.fail(entry.key, error.what());
    }
  }
}

}  // namespace

void take_settings(const CLI::App& train, const CLI::App& command, const std::string& path) {
  for (const char* flag : {"--model", "--width"})  // the file says both
    if (const CLI::Option* const given = command.get_option_no_throw(flag); given != nullptr && given->count() > 0)
      throw UsageError(std::string("[") + flag + "] got one beside '" + path + "', want one of the two");
  require_readable(path);
  try {
    take(train, command, TomlFile(read_bytes(path, "net"), path));
  } catch (const TomlError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace ampcheck::tools
