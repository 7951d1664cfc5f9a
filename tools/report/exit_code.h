// SPDX-License-Identifier: Apache-2.0
// Exit codes are public: scripts and CI read them. Never a count.
#pragma once

#include <array>
#include <utility>

namespace ampcheck::tools {

enum class ExitCode : int {
  passed = 0,
  findings = 1,
  usage = 2,
  internal = 3,
  nothing_ran = 4,
  incomplete = 5,
  environment = 6,
  baseline = 7,
  not_written = 8,
};

/// What each says, for --help and the manual.
constexpr std::array<std::pair<ExitCode, const char*>, 9> kExitCodes = {{
    {ExitCode::passed, "all passed"},
    {ExitCode::findings, "findings: something is wrong; train: the run diverged; audit: a goal or rule is not met"},
    {ExitCode::usage, "wrong use: an unknown op, option or value, or an input file that is not there"},
    {ExitCode::internal, "an error of ampcheck itself"},
    {ExitCode::nothing_ran,
     "nothing ran or nothing was judged: no case selected, all skipped, or all elements left open"},
    {ExitCode::incomplete, "incomplete: not all selected cases ran"},
    {ExitCode::environment, "something is missing: a device, a library, a folder of data, or memory"},
    {ExitCode::baseline,
     "gate: no accepted state, or a stale one: of other inputs or cases, or with a waiver that is expired or not "
     "needed; "
     "merge: files of different runs"},
    {ExitCode::not_written, "an output could not be written"},
}};
constexpr const char* exit_code_text(ExitCode code) {
  for (const auto& [known, text] : kExitCodes)
    if (known == code) return text;
  return "";
}

/// The code that stands when both hold: 3 > 8 > 2 > 1 > 7 > 6 > 5 > 4 > 0.
constexpr ExitCode worse(ExitCode a, ExitCode b) {
  constexpr std::array kOrder = {ExitCode::internal,   ExitCode::not_written, ExitCode::usage,
                                 ExitCode::findings,   ExitCode::baseline,    ExitCode::environment,
                                 ExitCode::incomplete, ExitCode::nothing_ran, ExitCode::passed};
  for (const ExitCode code : kOrder)
    if (a == code || b == code) return code;
  return ExitCode::internal;
}

}  // namespace ampcheck::tools
