// SPDX-License-Identifier: Apache-2.0
// A training log that has a loss, a gradient norm and a learning rate, and perhaps no more: the first bad step, what is
// excluded, and what to record next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checks/scaler/answers.h"

namespace ampcheck::checks::stacks {

/// One step as the log says it.
struct LoggedStep {
  std::int64_t line = 0;
  std::optional<std::int64_t> step;
  std::optional<double> loss, norm, lr;

  std::string place() const;
};

enum class LogTrouble : std::uint8_t {
  none,        ///< nothing wrong shows
  not_finite,  ///< loss or norm is NaN or infinite and stays so
  open,        ///< the last logged norm is not finite: whether that was applied is in no line
  skipped,     ///< single norms are not finite, and the loss goes on: a scaler skipped these steps
  rises,       ///< the loss rises for good, more than chance explains
  frozen,      ///< the loss is the same number for many steps
  no_gradient  ///< the norm is exactly zero
};
const char* name(LogTrouble trouble);

struct LogDiagnosis {
  LogTrouble trouble = LogTrouble::none;
  std::string kind;  ///< stable: "loss_not_finite", "norm_not_finite", "loss_rises", ...
  std::vector<LoggedStep> steps;
  std::string read;                ///< how the lines were read
  std::ptrdiff_t first_bad = -1;   ///< of the steps
  std::string what;                ///< at the first bad step
  std::vector<LoggedStep> before;  ///< the steps before it
  std::ptrdiff_t precursor = -1;   ///< from here on the norm rises, more than chance explains
  std::string precursor_text;
  std::vector<std::string> excluded, left, next, unknown;
  std::optional<scaler::LogAudit> scaler;  ///< where the log says a loss scale

  bool wrong() const;
};

/// Throws nothing for a log without a loss: `steps` is empty then.
LogDiagnosis diagnose_log(std::string_view text, const scaler::ColumnNames& columns = {});

/// The first place from which all values lie above the `width` values before it, with at least as many behind it; -1
/// without one. The width is such that chance gives it in at most one of 1000 logs: 1 / C(2 width, width) for each
/// place.
struct Rise {
  std::ptrdiff_t at = -1;
  std::size_t width = 0;
  double odds = 0;  ///< one in that many, over all places
};
Rise first_rise(const std::vector<double>& values);

}  // namespace ampcheck::checks::stacks
