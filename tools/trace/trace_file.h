// SPDX-License-Identifier: Apache-2.0
// A trace (checks/train/trace.h) read back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checks/train/clip_and_decay.h"
#include "checks/train/gradient_range.h"
#include "checks/train/noise.h"
#include "src/dtype.h"

namespace ampcheck::tools {

/// One tensor of one step.
struct TracedTensor {
  int step = 0, seq = 0, source = -1, rank = 0;
  std::string phase, op, layer, tensor, role, from;
  bool cast = false;
  Dtype dtype = Dtype::fp32;
  double scale = 1, amax = 0, amin = 0;
  std::int64_t elements = 0, zero = 0, subnormal = 0, inf = 0, nan = 0, nonzero = 0, flushed = 0, overflowed = 0,
               intended = 0, stagnant = 0;
  int first_exponent = 0;
  std::vector<std::int64_t> exponents;
  std::optional<double> local_error, carried_error, bias, bias_z;
  checks::train::Sizes sizes;
  bool noise = false;                               ///< by the rule of checks/train/noise.h, over the whole trace
  std::optional<double> loss_error;                 ///< how far the error made here moves the loss, to first order
  std::optional<double> cancelled, most_cancelled;  ///< bits that the op loses: mean and most
  std::int64_t copy_stagnant = 0, second_moment_zero = 0, epsilon_zero = 0;
  std::optional<double> norm_error;  ///< and the norm of its gradient
  double norm_error2 = 0, loss_error2 = 0, least_margin = 0, margins = 0, radii = 0;
  std::int64_t decisions = 0, flipped = 0,
               undecided = 0;  ///< of logits: rows, those that decide otherwise than fp64, those that could
  std::int64_t subnormal_loss = 0, saturated = 0;
  /// Gradients in 16 bits, without the loss scale: smallest and largest exact magnitude, how many have which exponent,
  /// and of these the exact powers of two.
  struct Range {
    double amin = 0, amax = 0;
    int first_exponent = 0;
    std::vector<std::int64_t> counts, powers;
  };
  std::optional<Range> range;
  bool by_gradient = false;        ///< the loss scale cancels
  std::vector<std::int64_t> ulps;  ///< equal, up to 1/2 ulp, 1, 2, 4, ...

  /// "linear_1 (layer0) backward dweight": the same for all steps.
  std::string name() const;
  checks::train::Phase phase_number() const;
  double flushed_share() const { return nonzero > 0 ? static_cast<double>(flushed) / static_cast<double>(nonzero) : 0; }
  /// log2(largest finite value / amax); none for a tensor of zeros, or with non-finite values.
  std::optional<double> headroom() const;
  /// log2(amin / smallest normal number): negative by the bits that the smallest element has lost; none without a
  /// non-zero element.
  std::optional<double> footroom() const;
};

/// Numbers that the host put into a device's memory in the middle of a pass.
struct TracedMove {
  int step = 0;
  std::string what, after;
  std::int64_t launched = 0, bytes = 0;
};

struct TracedStep {
  int step = 0;
  double loss = 0, scale = 1, scale_after = 1, stagnant_share = 0;
  int tracker = 0;
  std::optional<double> fp64_loss, spread, apart, rounding, loss_drift;
  std::optional<checks::train::Clipping> clipping;
  std::optional<checks::train::DecayCount> decay;
  bool found_inf = false, stepped = true;
  std::vector<double> losses = {};                            ///< of several
  std::vector<checks::train::OptimizerStep> optimizers = {};  ///< of several
};

/// What is in the error of one parameter's gradient in one step.
struct TracedGradient {
  struct Part {
    std::string tensor;  ///< TracedTensor::name(), or what it is in words
    int seq = 0;
    double moves = 0, rounding = 0;
  };
  int step = 0;
  std::string parameter;
  double error = 0, size = 0, apart = 0;
  std::vector<Part> parts;
  std::vector<Part> others;  ///< what ops made of their inputs' errors, and sums of gradients; no roundings
};

struct Trace {
  std::string path, model, dtype, autocast, autocast_tables, scaler;
  std::string fp8 = {};                                   ///< recipe; empty: no product is in fp8
  std::vector<std::string> losses = {}, optimizers = {};  ///< what each is, of several
  /// As `train` says it.
  std::string dtype_text() const { return fp8.empty() ? dtype : "fp8"; }
  std::string net, loss_kind;  ///< which net it is: its name or file; empty: not known
  std::int64_t batch = 0, width = 0;
  std::uint64_t seed = 0;
  bool local = false, carried = false;
  int steps_wanted = 0;
  std::vector<TracedTensor> tensors;
  std::vector<TracedStep> steps;
  std::vector<TracedGradient> gradients;
  std::vector<TracedMove> moves;
  bool torn = false;  ///< the last line was not whole: the run was cut off
  /// Statistics that lines name and that are not in the other file: their steps have no tensors here.
  struct Missing {
    std::string path;  ///< of the other file
    int first_step = 0, last_step = 0;
    std::int64_t steps = 0, tensors = 0;
    std::int64_t from = 0;  ///< its first byte that is not as written
    bool cut_off = true;    ///< all of them lie behind the file's end; no: some are there and damaged
  };
  std::optional<Missing> missing;
};

/// A record as a line has it that names no other file. Error if it is no text of hexadecimal digits.
std::string bytes_of_hex(const std::string& text);

/// "statistics of 2 steps (97 tensors, steps 5 to 6) are missing: 'run.trace.bin' ends at byte 1,234".
std::string missing_text(const Trace::Missing& missing);

/// "mlp in fp16, autocast cuda (torch 2.15.0)": how headings begin.
std::string net_in(const std::string& model, const std::string& dtype, const std::string& autocast,
                   const std::string& tables);

/// EnvironmentError if there is no such file, Error with file and line for what is no trace, and with the name of the
/// file of statistics if a line wants it and it is not there, or nothing that is named is in it.
Trace read_trace(const std::string& path);
/// The same of a trace in memory; `statistics`: of the file beside it, none: there is no such file. `path` is for
/// messages.
Trace parse_trace(std::string_view text, std::optional<std::string_view> statistics, const std::string& path);

/// All of a tensor over the run: counts added, extremes, errors as root of the mean square, exponents added, bias over
/// all elements.
struct TracedSum {
  TracedTensor sum;
  int cancellations = 0;            ///< tensors that say what cancels
  int tensors = 0, worst_step = 0;  ///< worst: largest share flushed, or else largest local error
  int ranks = 1;                    ///< that wrote it
  double worst_flushed = 0, worst_local = 0, worst_carried = 0, worst_bias_z = 0;
  std::optional<double> least_headroom, least_footroom;
  std::map<std::string, int> roles;  ///< in non-finite faults, how often
};
/// By name, in the order of their first use.
std::vector<TracedSum> summed(const Trace& trace);
/// Of forward and backward all, of other phases those with an error; the worst first, as train's worst_of() has it: by
/// what overflowed, the share of a gradient flushed, the error made here, the error inherited. Noise comes last.
std::vector<const TracedSum*> worst_first(const std::vector<TracedSum>& sums);

/// Root mean square over the steps looked at of what moves the loss by tensor, largest first, and the share of each in
/// the sum of all squares; the first one without a tensor is what weights had come apart before.
struct LossShare {
  const TracedSum* from = nullptr;
  double moves = 0, share = 0;
};
std::vector<LossShare> loss_shares(const Trace& trace, const std::vector<TracedSum>& sums);
/// The same of the norm of the loss's gradient, without what weights had come apart: all have a tensor.
std::vector<LossShare> norm_shares(const Trace& trace, const std::vector<TracedSum>& sums);

/// Of one parameter's gradient: root mean square over the steps of its error and of what moves it, largest first, with
/// the share of each in the sum of all squares.
struct ParameterShares {
  struct Share {
    std::string tensor;  ///< empty: weights that had come apart
    double moves = 0, share = 0;
    double beyond = 0;  ///< most of a step: times what rounding each element once could do
  };
  std::string parameter;
  double error = 0, size = 0;
  double explained = 0;  ///< sum of what moves it in the sum of the errors
  bool noise = false;  ///< its exact gradient is below fp32's rounding of the largest parameter's: zero by a symmetry,
                       ///< and what it has is no error
  std::vector<Share> shares;
};
std::vector<ParameterShares> gradient_shares(const Trace& trace);

/// What autocast did to dtypes on its own in a forward pass, and where that costs casts or memory.
struct DtypeNote {
  std::string kind, op, text;
};
/// Of the first step looked at: "island": an op in fp32 whose inputs were widened and whose output is narrowed again;
/// "widened": an op that takes the wider of its inputs' dtypes, and so widens one; "narrowed": an fp32 result that
/// another op reads in 16 bits; "fp32": an op that would take 16 bits, but whose inputs nothing casts back; "asked":
/// the net cast for it itself, by cast_inputs or before a region that is off.
std::vector<DtypeNote> dtype_notes(const Trace& trace);

/// Casts of the forward pass of the first step looked at.
struct CastNotes {
  std::map<std::string, int> kinds;  ///< "fp32 to fp16": how many
  /// One tensor that is cast to the same dtype more than once: autocast keeps the casts of weights alone.
  struct Repeated {
    Dtype to = Dtype::fp16;
    std::string tensor;  ///< as the first op calls it
    std::vector<std::string> ops;
  };
  std::vector<Repeated> repeated;
};
CastNotes cast_notes(const Trace& trace);

/// Of a step's gradients in 16 bits, between ranks too, noise aside: how much was flushed, and of which tensor most.
struct StepFlushes {
  std::int64_t nonzero = 0, flushed = 0;
  const TracedTensor* worst = nullptr;
  void add(const TracedTensor& t);
  double share() const { return nonzero > 0 ? static_cast<double>(flushed) / static_cast<double>(nonzero) : 0; }
};

/// Which powers of two as loss scale would have lost nothing (checks/train/gradient_range.h: ScaleAdvice). What has no
/// exact values is judged by what its format kept of it.
struct ScaleWindows {
  struct OfTensor {
    std::string name;
    bool exact = true;
    checks::train::LosslessScales run, narrowest;
    int narrowest_step = 0;
  };
  checks::train::ScaleAdvice run;  ///< as `ampcheck train` has it of the same steps; not known without exact values
  std::vector<OfTensor> tensors;   ///< narrowest over the run first; those with a gradient alone
  std::map<int, checks::train::LosslessScales> by_step;  ///< of all tensors; from 0 to 24
  std::vector<checks::train::LosslessScales>
      by_line;  ///< as Trace::tensors; none where there is no gradient in 16 bits
};
ScaleWindows scale_windows(const Trace& trace);
/// "2^9 .. 2^15", "none".
std::string scales_text(const checks::train::LosslessScales& scales);
/// "2^9 .. 2^15 would have lost nothing; 2^7 flushes part of ...".
std::string scale_advice(const checks::train::ScaleAdvice& advice);

/// One row for each tensor of each step; of each parameter a column: what moved its gradient, in the first row of that
/// name in the step.
std::string trace_csv(const Trace& trace);
/// All that the tables say and more: of each tensor the sums over the run, of each step its own line.
std::string trace_json(const Trace& trace, const std::vector<TracedSum>& sums);

/// One file without references to others: plots of loss, scale and skips, heat maps op by step, histograms of
/// exponents.
std::string trace_html(const Trace& trace);
/// A tensor of a step that is to be found on the page; no name: the step as a whole.
struct MarkedTensor {
  int step = 0;
  std::string tensor, what;
};
/// The same with these marked in the maps, and listed under a title at the top.
std::string marked_trace_html(const Trace& trace, const std::string& title, const std::vector<MarkedTensor>& marks);

}  // namespace ampcheck::tools
