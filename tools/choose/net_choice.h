// SPDX-License-Identifier: Apache-2.0
// The net that `ampcheck train` and `ampcheck memory` run: one that comes with the program, or the user's own.
#pragma once

#include <optional>
#include <string>

#include "checks/train/net.h"
#include "tools/choose/train_options.h"

namespace ampcheck::tools {

struct ChosenNet {
  checks::train::NetOptions options;
  std::optional<checks::train::Net> own;  ///< of a TOML file
  checks::train::Net made() const { return own ? *own : checks::train::make_net(options); }
};

/// A TOML `file`, or if that is empty the model of that name, with the options' data, loss, batch, width and seed.
/// Throws UsageError for an unknown model, a file that describes no net, and data that the net is not trained on;
/// EnvironmentError where file or data are not there.
ChosenNet choose_net(const NetOptions& options, const std::string& model, const std::string& file);

}  // namespace ampcheck::tools
