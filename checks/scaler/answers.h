// SPDX-License-Identifier: Apache-2.0
// What a log says of its loss scale: a verdict for each question, with the lines that show it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checks/scaler/log.h"
#include "checks/scaler/timeline.h"
#include "src/amp/scale_rule.h"

namespace ampcheck::checks::scaler {

enum class Health : std::uint8_t { harmless, cannot_tell, losing, broken };
/// "HARMLESS", "CANNOT TELL", "LOSING", "BROKEN".
const char* name(Health health);

struct Evidence {
  std::int64_t line = 0;
  std::optional<std::int64_t> step;
  std::string what;
};

/// One question's answer. `kind` is stable: scripts may look for it.
struct Answer {
  const char* question = "";  ///< "skips", "nan", ...
  Health health = Health::harmless;
  std::string kind;
  std::string text;
  std::string advice;
  std::vector<Evidence> evidence;
};

struct LogAudit {
  Log log;
  Timeline timeline;
  ScaleRule rule;
  bool rule_declared = false;   ///< by the user or a trace; no: what the log's framework has
  std::vector<Answer> answers;  ///< in the order in which they are printed

  /// Nothing of the log says anything of a scale, a step or a loss.
  bool nothing_read() const { return log.readings.empty(); }
  /// The worst, and of several the one that explains the others. Of a log that shows no harm: how steps were skipped.
  const Answer& headline() const;
};

/// `rule`: empty for the one of the log's framework. Throws Error for a rule that is not known.
LogAudit audit_log(std::string_view text, const std::string& rule = "", const ColumnNames& columns = {});

/// The scale behind each moment as the rule has it, played with the log's own skips and the window that fits best; NaN
/// where the log does not show every step.
std::vector<double> scale_of_rule(const LogAudit& audit);

// Questions, each in a file of its own.
Answer which_rule(const LogAudit& audit);
Answer how_skipped(const LogAudit& audit);
Answer reset_by_resume(const LogAudit& audit);
Answer ranks_agree(const LogAudit& audit);
Answer nan_of_no_scale(const LogAudit& audit);
Answer scaler_there(const LogAudit& audit);
Answer updates_made(const LogAudit& audit);
Answer norm_follows_scale(const LogAudit& audit);
Answer steps_until_end(const LogAudit& audit);
Answer what_is_missing(const LogAudit& audit);

// Words that answers share.
std::string scale_text(double scale);
/// "step 12", or "line 40" where the log does not say the step.
std::string place_of(const Moment& moment);
Evidence evidence_of(const Moment& moment, std::string what);
std::string count_text(std::int64_t count, const char* one, const char* many);

}  // namespace ampcheck::checks::scaler
