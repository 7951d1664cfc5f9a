// SPDX-License-Identifier: Apache-2.0
// Claims about mixed precision that are often written, and what this machine measures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ampcheck::checks::train {

struct Fact {
  std::string claim;     ///< as it is written
  bool holds = false;    ///< whether the measurement bears it out
  bool known = true;     ///< false: this machine cannot say
  std::string measured;  ///< numbers, computed when asked for
  std::string
      command;  ///< one line of commands with "; " between them, which shows it; they may write files where they run
};

/// Every claim, measured now. `data` holds digits and text. The same on every machine but for times.
std::vector<Fact> measured_facts(const std::filesystem::path& data);

/// A product of [kProductRows, n] by [n, n] on the CPU, the fastest of kProductRounds.
struct ProductTime {
  std::int64_t n = 0;
  double fp16 = 0, fp32 = 0;  ///< seconds
  std::int64_t multiplications() const;
};
inline constexpr std::int64_t kProductRows = 128;
inline constexpr int kProductRounds = 9;
/// Of every n from `first` to `last`.
std::vector<ProductTime> product_times(std::int64_t first, std::int64_t last);

}  // namespace ampcheck::checks::train
