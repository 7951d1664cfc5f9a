// SPDX-License-Identifier: Apache-2.0
// Exit codes are public: scripts and CI read them. Never a count.
#pragma once

#include <array>

namespace ampcheck::tools {

enum class ExitCode : int {
  passed = 0,
  findings = 1,     ///< a verdict that convicts
  usage = 2,        ///< unknown op, flag or value, or a file of data that is not there
  internal = 3,     ///< an error of ampcheck itself
  nothing_ran = 4,  ///< nothing selected, or everything skipped
  incomplete = 5,   ///< not all selected cases ran
  environment = 6,  ///< the requested device or plug-in is not there, or cannot be loaded
  not_written = 8,  ///< an output could not be written or flushed
};

/// The code that stands when both hold: 3 > 8 > 2 > 1 > 6 > 5 > 4 > 0.
constexpr ExitCode worse(ExitCode a, ExitCode b) {
  constexpr std::array kOrder = {ExitCode::internal,    ExitCode::not_written, ExitCode::usage,
                                 ExitCode::findings,    ExitCode::environment, ExitCode::incomplete,
                                 ExitCode::nothing_ran, ExitCode::passed};
  for (const ExitCode code : kOrder)
    if (a == code || b == code) return code;
  return ExitCode::internal;
}

}  // namespace ampcheck::tools
