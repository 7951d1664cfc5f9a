// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace ampcheck::tools {

/// One moving line on standard error; nothing at all where that is no terminal. Not thread-safe.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Draws at most ten times a second.
  void show(std::size_t done, std::size_t all, std::size_t failed, std::string_view last);
  void clear();
  bool on() const { return on_; }  ///< standard error is a terminal

 private:
  bool on_ = false, drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace ampcheck::tools
