// SPDX-License-Identifier: Apache-2.0
#include "tools/report/progress.h"

#include <fmt/format.h>

#include <string>

#include "tools/report/output.h"

namespace ampcheck::tools {

ProgressLine::ProgressLine() : on_(stderr_is_terminal()) {}

void ProgressLine::show(std::size_t done, std::size_t all, std::size_t failed, std::string_view last) {
  const auto now = std::chrono::steady_clock::now();
  if (!on_ || now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  drawn_ = true;
  constexpr std::size_t kWidth = 24;
  const std::size_t full = all == 0 ? 0 : kWidth * done / all;
  const std::string failures = failed == 0 ? "" : fmt::format(", {} failed", failed);
  write_progress(fmt::format("\r[{}{}] {}/{}{}  {}\x1b[K", std::string(full, '='), std::string(kWidth - full, ' '),
                             done, all, failures, last));
}

void ProgressLine::clear() {
  if (drawn_) write_progress("\r\x1b[K");
  drawn_ = false;
}

}  // namespace ampcheck::tools
