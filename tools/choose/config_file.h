// SPDX-License-Identifier: Apache-2.0
// ampcheck.toml: options that a project always gives. A table for each command, with options by their long names:
//   [check]
//   regimes = "quick"
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
  std::string origin;               ///< "ampcheck.toml:3"
};
/// All settings of a file. UsageError for an unknown command, option or value, with the place.
std::vector<ConfigSetting> read_config(const std::string& path, const std::vector<CLI::App*>& commands);

/// The settings of the file that applies here; `path` is empty where there is none.
std::vector<ConfigSetting> project_settings(std::string& path);

/// Sets what the command line of that command does not say. UsageError for a value that the option refuses.
void take_config(const std::vector<ConfigSetting>& settings, CLI::App& command);

}  // namespace ampcheck::tools
