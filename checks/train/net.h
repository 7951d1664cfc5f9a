// SPDX-License-Identifier: Apache-2.0
// The nets that `ampcheck train` trains, with their data: one forward pass on a batch, on any tape.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "checks/models/tape.h"

namespace ampcheck::checks::train {

struct NetOptions {
  std::string model = "mlp";
  std::string loss = "cross_entropy";  ///< mlp: cross_entropy or mse
  std::int64_t batch = 0;              ///< rows; 0: the model's own
  std::int64_t width = 0;              ///< tutorial: of its layers; 0: 4096 as in the tutorial
  std::uint64_t seed = 1;              ///< of generated data
  std::filesystem::path data;          ///< folder of digits and text
};

struct NetInfo {
  std::string_view name, data, summary;
};

struct Net {
  std::string name;
  double rate = 0.1;       ///< learning rate that it is trained with unless another is asked for
  double momentum = 0;
  /// Forward and loss on batch 0, 1, 2, ...
  std::function<void(models::Tape& tape, std::int64_t batch)> forward;
};

std::span<const NetInfo> nets();
/// Error for an unknown model or loss; EnvironmentError if its data is not there.
Net make_net(const NetOptions& options);

}  // namespace ampcheck::checks::train
