// SPDX-License-Identifier: Apache-2.0
// A training loop as an auditor sees it: steps go in, and what can be observed behind each of them comes out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ampcheck::checks::scaler {

/// How a loop is made. The same setup makes the same loop: weights, data and random numbers come from fixed seeds.
struct LoopSetup {
  double scale = 65536;                    ///< of the first step
  std::int32_t growth_interval = 1 << 30;  ///< of a loop with a scaler: by default the scale never grows
  double clip = 0;                         ///< largest norm of the unscaled gradients; 0: no clipping
  int accumulate = 1;                      ///< micro-batches of a step
  int ranks = 1;

  std::string str() const;
};

enum class LoopOp : std::uint8_t {
  look,   ///< reports, and changes nothing
  step,   ///< one optimizer step, as the training loop makes it
  reload  ///< saves a checkpoint, makes a new loop, loads it
};
const char* name(LoopOp op);

struct LoopCall {
  LoopOp op = LoopOp::step;
  int batch = 0;                      ///< number of the data: the same number is the same data
  std::optional<double> poison = {};  ///< put into a gradient behind backward, before anything else sees it
  bool last = false;                  ///< into the last element of the last gradient, not the first of the first
  int micro_batch = 0, rank = 0;      ///< where

  std::string str() const;
};

/// A part of a loop's state: numbers, or any text that changes with it.
struct StatePart {
  std::vector<double> numbers = {};
  std::string digest = {};  ///< where it is no numbers

  /// The same bits, all NaN being one.
  bool operator==(const StatePart& other) const;
  bool finite() const;
};
using State = std::map<std::string, StatePart>;

/// What one rank reports behind a call.
struct RankReply {
  std::optional<double> loss = {};
  std::vector<double> scales = {};  ///< in force in the step's micro-batches; one number if they are one
  std::optional<bool> skipped = {};
  State state = {};    ///< what an update may change: weights, moments, steps, ema, schedule, buffers, random, ...
  State forward = {};  ///< what forward passes change without an update: running statistics, dropout's generator
};

struct LoopReply {
  bool error = false;
  std::string text = {};
  std::vector<RankReply> ranks = {};
};

/// What a loop can be asked for beside plain steps.
enum class Ability : std::uint8_t {
  scaler,      ///< it moves its scale itself
  clip,        ///< by the norm of the gradients
  accumulate,  ///< several micro-batches for a step
  resume,      ///< it saves and loads
  ranks        ///< it runs as two
};
inline constexpr Ability kAbilities[] = {Ability::scaler, Ability::clip, Ability::accumulate, Ability::resume,
                                         Ability::ranks};
const char* name(Ability ability);

/// What is audited.
class Loop {
 public:
  virtual ~Loop() = default;
  /// A new loop and these calls: a reply for each. Ends behind the first error.
  virtual std::vector<LoopReply> run(const LoopSetup& setup, std::span<const LoopCall> calls) = 0;
  virtual bool has(Ability ability) const = 0;
};

}  // namespace ampcheck::checks::scaler
