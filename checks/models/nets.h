// SPDX-License-Identifier: Apache-2.0
// The small nets whose tensors the ops are checked at.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "checks/models/fp64_tape.h"

namespace ampcheck::checks::models {

inline constexpr int kSteps = 4;

/// A net with what trained it, as recorded.
struct NetRun {
  std::string name;
  std::vector<StepRecord> steps;  ///< kSteps of them
};

/// Names of the nets: "digits", "text", "channels".
std::span<const std::string_view> net_names();

/// The built-in ops that a net calls, in the order of the names. A test runs the nets and compares.
std::span<const std::string_view> ops_of_net(std::string_view net);

/// Trains a net for kSteps steps on the data in `folder`; the same bits at each call. EnvironmentError if this build
/// lacks one of its ops or the data is not there.
NetRun run_net(std::string_view name, const std::filesystem::path& folder);

}  // namespace ampcheck::checks::models
