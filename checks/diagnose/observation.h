// SPDX-License-Identifier: Apache-2.0
// One run of the subject with both shadows: what each tensor of each step was, and a ring of checkpoints to go from.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checks/diagnose/subject.h"
#include "checks/train/fp8_check.h"
#include "checks/train/watch.h"
#include "src/code.h"

namespace ampcheck::checks::diagnose {

/// A tensor of one step and rank, as it was written.
struct Sample {
  int step = 0, rank = 0, batch = 0;
  std::int64_t sequence = 0;  ///< of all tensors of the run
  train::FaultRole role = train::FaultRole::none;
  bool finite = true, inputs_finite = true;
  double scale = 1;
  double largest = 0;                                                 ///< finite magnitude
  std::optional<int> headroom;                                        ///< binades below the format's largest number
  std::int64_t elements = 0, not_finite = 0, zeros = 0, at_most = 0;  ///< at_most: |x| is the format's largest number
  std::int64_t nonzero = 0, flushed = 0, overflowed = 0;              ///< Tally's, of exact values
  double exact_largest = 0;  ///< of exact values, where the tensor is not finite
  bool one_value = false;    ///< not finite where all of the exact values are one and the same negative number
  bool has_exact = false;
  double excess = 0;   ///< size of the error made here over the most that rounding each element once makes
  double error = 0;    ///< relative
  double carried = 0;  ///< relative, against the fp64 run; 0: not known
  std::int64_t toward_zero = 0, away_from_zero = 0, judged = 0;
  std::int64_t beyond_half = 0;            ///< errors larger than rounding to nearest makes
  double error_sum = 0, error_square = 0;  ///< of signed errors in ulps
  double cancelled = -1;
  std::int64_t codes = 0,
               at_largest = 0;    ///< where it is worse than a rounding: magnitudes, and elements with the largest
  std::uint64_t fingerprint = 0;  ///< of the bits of a cast weight
  std::int64_t decisions = 0, flipped = 0, undecided = 0;
};

struct Track {
  train::TensorKey key;
  Dtype from = Dtype::fp32;  ///< of a cast
  std::vector<Sample> samples;
};

/// What of the optimizer's step is not in StepResult.
struct UpdateSeen {
  std::vector<double>
      unscaled;  ///< by parameter: norm after unscaling times scale over the norm before; 1: as it should
  double norm_before = 0, norm_after = 0;  ///< of all gradients, before and after unscaling
  std::int64_t moments = 0,
               moments_still =
                   0;  ///< elements of 16-bit moments beside a gradient; those that stayed though fp64's would move
  std::int64_t leaving = 0;  ///< parameters whose gradient was finite when backward left it, and is not in the update
};

/// An op whose output was computed twice (train::TwiceComputed), over the run.
struct TwiceSeen {
  bool inferred = false;
  std::string op, layer;
  Dtype first = Dtype::fp32, second = Dtype::fp32;
  int step = -1;                             ///< the first at which bits differ; -1: none
  std::int64_t elements = 0, differing = 0;  ///< of that step; another type differs where the value does
  double apart = 0;                          ///< most of a step: 2-norm of the difference by that of the first
  double excess = 0;   ///< the same over what rounding each element once to the narrower type makes
  double largest = 0;  ///< difference of an element
};

/// A call that the judge convicts at the tensors that it met, as `train` does (TR101).
struct JudgedCall {
  std::string op, where;  ///< "relu_1", "relu_1 backward dx"
  int step = 0;
  Code code = Code::none;
  std::string what;  ///< its verdict in words
};

struct Checkpoint {
  int step = 0;
  std::string bytes;
};

struct Observation {
  std::vector<train::StepResult> steps;
  std::vector<UpdateSeen> updates;
  std::vector<std::string> parameters;
  std::map<std::string, Track> tracks;        ///< by TensorKey::str()
  std::vector<std::string> order;             ///< of the first step's tensors
  std::vector<TwiceSeen> twice;               ///< in the order of the first step
  std::deque<Checkpoint> ring;                ///< oldest first
  std::vector<JudgedCall> judged = {};        ///< the first of each op
  std::vector<train::Fp8Departure> fp8 = {};  ///< where a run in fp8 leaves its recipe
  std::string ended;                          ///< why the scaler's rule ended the run
  double seconds = 0;

  /// The newest checkpoint that is no later; null: none (a sharded run has none).
  const Checkpoint* before(int step) const;
  /// Forward calls in their order.
  std::vector<std::string> ops() const;
};

/// How many checkpoints a ring keeps, and how many steps of a run without finite loss are still looked at.
inline constexpr std::size_t kRing = 12;
inline constexpr int kAfterNaN = 4;

Observation observe(const Subject& subject);

/// The most that rounding each element once to a type makes of an error, in the 2-norm: u |x| + s sqrt(n) / 2.
double rounding_limit(Dtype dtype, double norm, std::int64_t elements);
/// The same, of a wide result that of the run's 16 bits: what is below these no training in them can tell.
double error_limit(Dtype dtype, Dtype run, double norm, std::int64_t elements);

}  // namespace ampcheck::checks::diagnose
