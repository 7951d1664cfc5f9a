// SPDX-License-Identifier: Apache-2.0
// ampcheck.toml: options that a project always gives. A table for each command, with options by their long names:
//   [check]
//   regimes = "quick"
// [profile.NAME.check] holds what a run with --profile NAME has instead. A variable AMPCHECK_REGIMES stands for
// --regimes of every command that has it. The command line comes first, then variables, then the profile, then the
// rest.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ampcheck::tools {

/// The nearest ampcheck.toml: of the folder `from`, or of one above it up to the root of the repository (where .git
/// is); without a repository that of the folder alone. Empty if there is none.
std::string find_config(const std::string& from);

/// One setting.
struct ConfigSetting {
  std::string command, option;      ///< "check", "--regimes"
  std::vector<std::string> values;  ///< as they would stand on the command line; of a flag none
  std::string origin;               ///< "ampcheck.toml:3", "AMPCHECK_REGIMES"
};
/// All settings of a file, those of the profile first; empty: of none. UsageError for an unknown command, option, value
/// or profile, with the place.
std::vector<ConfigSetting> read_config(const std::string& path, const std::vector<CLI::App*>& commands,
                                       const std::string& profile);
/// The same of a file's text; `path` stands in messages.
std::vector<ConfigSetting> parse_config(std::string text, const std::string& path,
                                        const std::vector<CLI::App*>& commands, const std::string& profile);
/// Those that variables of the environment say. UsageError for a flag that is neither true nor false.
std::vector<ConfigSetting> environment_settings(const std::vector<CLI::App*>& commands);

/// The profile that the command line chose, or else AMPCHECK_PROFILE; empty: none.
std::string chosen_profile(const std::string& on_command_line);

/// The settings that apply here, those that win first; `path` is that of the file, empty where there is none.
std::vector<ConfigSetting> project_settings(std::string& path, const std::string& profile,
                                            const std::vector<CLI::App*>& commands);

/// Sets what neither the command line of that command nor an earlier setting says. UsageError for a value that the
/// option refuses.
void take_config(const std::vector<ConfigSetting>& settings, CLI::App& command);

}  // namespace ampcheck::tools
