// SPDX-License-Identifier: Apache-2.0
// Losses of a net as text: "cross_entropy", "mse*0.1" (a weight), "mse*0.1@decoder" (of that layer's output), several
// with a comma between.
#pragma once

#include <string>
#include <vector>

namespace ampcheck::checks::train {

struct LossChoice {
  bool mse = false;
  double weight = 1;
  std::string layer = {};  ///< whose output; empty: of the last one
  std::string text;        ///< as it was written
};

/// How a loss is written, for messages.
inline constexpr const char* kLossText = "cross_entropy or mse, with *WEIGHT and @LAYER if wanted";

/// Empty for an empty text. Error for another text.
std::vector<LossChoice> read_losses(const std::string& text);

}  // namespace ampcheck::checks::train
