// SPDX-License-Identifier: Apache-2.0
// A loss scaler as an auditor sees it: calls go in, and what can be observed comes out.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/amp/scale_rule.h"

namespace ampcheck::checks::scaler {

inline constexpr std::size_t kElements = 3;  ///< of an optimizer's one parameter
using Values = std::array<double, kElements>;

/// How a scaler is made, and what it works on: SGD with momentum 1/2 and learning rate 1/16 on zeros.
struct Setup {
  double init_scale = 1024, growth_factor = 2, backoff_factor = 0.5;
  std::int32_t window = 2;
  bool enabled = true;
  bool fused = false;  ///< the optimizer unscales and skips by itself
  int ranks = 1;
};

enum class Op : std::uint8_t {
  scale,       ///< a loss of 1
  scale_half,  ///< a loss of 1 in fp16
  backward,    ///< adds `grads` times the last scale to the gradients
  unscale,
  corrupt,  ///< puts infinity into the first gradient
  step,
  schedule,  ///< steps the schedule as the training loop does
  update,
  zero,  ///< forgets the gradients
  set_window,
  reload,  ///< saves the state, makes a new scaler, loads
};
const char* name(Op op);

struct Call {
  Op op = Op::scale;
  int optimizer = 0, rank = 0;
  Values grads = {1, -0.5, 0.25};
  bool raw = false;  ///< grads are what backward leaves, scale and all
  std::int32_t window = 0;

  std::string str() const;
};

/// After a call. What a scaler cannot say is NaN or -1.
struct Reply {
  bool error = false;
  std::string text;
  double scaled = 0;           ///< of scale
  double scale = 0;            ///< in force
  double other_scale = 0;      ///< of the second rank
  Values grads{}, weights{};   ///< of the call's optimizer and rank
  std::int64_t steps = 0;      ///< that this optimizer counts
  std::int64_t schedule = -1;  ///< of the learning rate
};

/// What is audited.
class Subject {
 public:
  virtual ~Subject() = default;
  /// A new scaler and these calls. Ends behind the first error.
  virtual std::vector<Reply> run(const Setup& setup, std::span<const Call> calls) = 0;
  /// Each of the sequences, with a scaler of its own. One whose process is asked once for all takes less time.
  virtual std::vector<std::vector<Reply>> run_each(const Setup& setup, std::span<const std::vector<Call>> sequences) {
    std::vector<std::vector<Reply>> out;
    for (const std::vector<Call>& calls : sequences) out.push_back(run(setup, calls));
    return out;
  }
  virtual bool has_ranks() const { return false; }
  virtual bool has_schedule() const { return false; }
  virtual bool has_fused() const { return false; }
  virtual bool has_half() const { return false; }
  virtual bool sets_window() const { return true; }
  /// Whether a sequence costs next to nothing: then all up to length 8 are tried.
  virtual bool is_fast() const { return true; }
};

/// `ampcheck`'s own GradScaler with that rule.
std::unique_ptr<Subject> built_in_scaler(const ScaleRule& rule);

/// What a rule says of calls, written down apart from any scaler.
std::vector<Reply> what_is_due(const ScaleRule& rule, const Setup& setup, std::span<const Call> calls);
/// The rule with a setup's numbers.
ScaleRule configured(ScaleRule rule, const Setup& setup);

}  // namespace ampcheck::checks::scaler
