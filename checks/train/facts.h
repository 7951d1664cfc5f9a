// SPDX-License-Identifier: Apache-2.0
// Claims about mixed precision that are often written, and what this machine measures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ampcheck::checks::train {

struct Fact {
  std::string claim;     ///< as it is written
  bool holds = false;    ///< whether the measurement bears it out
  std::string measured;  ///< numbers, computed when asked for
  std::string command;   ///< one line that shows it
};

/// Every claim, measured now; `data` holds digits and text. The same on every machine but for times.
std::vector<Fact> measured_facts(const std::filesystem::path& data);

}  // namespace ampcheck::checks::train
