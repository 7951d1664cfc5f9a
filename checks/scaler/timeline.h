// SPDX-License-Identifier: Apache-2.0
// A log's readings in the order of the run: which steps were skipped, at which scale, and what the steps said.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checks/scaler/log.h"
#include "src/amp/scale_rule.h"

namespace ampcheck::checks::scaler {

/// What one line says of a step, or of the steps since the line before.
struct Moment {
  std::int64_t line = 0;
  std::optional<std::int64_t> step;
  std::int64_t low = -1, high = -1;  ///< without a step: it lies in (low, high]; -1: not known
  std::optional<double> before, after;
  std::optional<double> peak;  ///< that the skips of an interval must have started from: more of them than it fell by
  std::int64_t skips = 0;      ///< steps skipped since the moment before
  std::int64_t interval = 1;   ///< steps since the moment before that says its step
  std::optional<double> loss, norm, mean_norm, lr, samples;
  std::optional<double> clean;    ///< clean steps, by the scaler's own count
  std::optional<double> counted;  ///< what the line's own counter of skips and NaN says
  bool averages = false;          ///< its numbers are of several steps
  Event event = Event::none;

  bool skip() const { return skips > 0; }
  bool all_skipped() const { return skips >= interval; }
};

/// Skips with no clean step known between them.
struct Streak {
  std::size_t first = 0, last = 0;  ///< of the moments
  std::int64_t skips = 0;
  double before = 0, after = 0;  ///< scale; 0: the log does not say
  bool scaled = false;           ///< the log says the scale
  double grown = 0;              ///< log2 of what the scale grew by since the streak before
  bool ended = false;            ///< a clean step follows

  double halvings() const;
};

/// How the skips of a log are known.
enum class SkipSource : std::uint8_t { none, lines, flags, counters, falls };

struct Timeline {
  std::vector<Moment> moments;  ///< of the rank that says most
  std::vector<Streak> streaks;
  std::vector<std::size_t> checkpoints, restarts;
  /// Ranks by number, of each the scales it said, with their step or -1.
  std::map<int, std::vector<std::pair<std::int64_t, double>>> by_rank;
  int copies = 1;  ///< ranks that say the same without their names
  SkipSource source = SkipSource::none;
  bool scale_known = false, norm_known = false, loss_known = false, step_known = false;
  bool each_step = false;                                 ///< every step has its line
  bool at_floor = false;                                  ///< the run ended by its rule's floor
  std::int64_t first_step = 0, last_step = 0, steps = 0;  ///< steps: of the log, 0: not known
  std::int64_t skips = 0;
  std::int64_t earlier_skips = 0;             ///< before the log's first line, as a counter says
  std::optional<std::int64_t> counted_skips;  ///< since the run began, as a counter says in the end

  std::optional<double> first_scale, last_scale;
};

/// `rule`: for logs that say a scale after an overflow and not before it.
Timeline timeline_of(const Log& log, const ScaleRule& rule);

}  // namespace ampcheck::checks::scaler
