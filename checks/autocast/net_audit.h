// SPDX-License-Identifier: Apache-2.0
// The autocast policy of a net: what every op takes, computes in and gives, held against the list that it should
// follow, against the same net cast by hand and against fp64; and the smallest change of the policy that helps.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checks/autocast/actions.h"
#include "checks/autocast/policy_check.h"
#include "checks/train/graph.h"
#include "checks/train/net.h"

namespace ampcheck::checks::autocast {

struct NetSubject {
  train::Net net;
  Dtype dtype = Dtype::fp16;  ///< of autocast: fp16 or bf16
  AutocastDevice device = AutocastDevice::cuda;
  AutocastList list;  ///< that it should follow
  std::uint64_t seed = 1;
  int batches = 2;
  double scale = 0;  ///< of the loss; 0: 2^16 for fp16, 1 for bf16
  std::set<std::string> suspects =
      {};  ///< ops that went wrong in a recorded run: they are raised, whatever is seen here
  // Planted faults: a tape between the net and the graph, other kernels by the op's name, changed tensors.
  std::function<std::unique_ptr<models::Tape>(models::Tape&)> between = nullptr;
  std::map<std::string, const OpDef*> kernels_of = {};
  std::function<void(const train::Event&)> fault = nullptr;
};

/// How an op's bits compare with those of the same op cast by hand.
enum class Bits : std::uint8_t { not_compared, same, differ };

/// One call of the first batch; numbers are the worst of all batches.
struct OpRow {
  std::string call, op, layer;  ///< "linear_1", "linear", "layer0"
  CastPolicy policy = CastPolicy::unlisted;
  bool enabled = true;        ///< autocast is on where it is called
  std::vector<Dtype> handed;  ///< its floating inputs before casts; empty: not known
  Dtype computes = Dtype::fp32, gives = Dtype::fp32;
  std::optional<Dtype> due_computes, due_gives;  ///< none: not known
  std::string hazard;              ///< "sum, exp": what an op that no list names does in 16 bits; empty: nothing
  std::optional<double> headroom;  ///< binades between its largest result and the format's largest number
  std::optional<double> excess;    ///< error made here over the most that rounding each element once makes
  std::optional<double> error;     ///< relative, in the 2-norm
  std::int64_t overflowed = 0;     ///< elements that are not finite where the exact value is
  std::int64_t cast_overflowed = 0, cast_elements = 0;  ///< of its inputs, cast to fewer bits
  std::int64_t grad_flushed = 0, grad_overflowed = 0,
               grad_elements = 0;  ///< of non-zero gradients that such a cast met
  std::int64_t bytes = 0;          ///< read and written by its kernels and casts, forward and backward, in one batch
  Bits bits = Bits::not_compared;

  bool is_low() const { return computes != Dtype::fp32 && computes != Dtype::fp64; }
};

/// A change of the policy, tried on the net.
struct Change {
  std::set<std::string> ops;                 ///< these in fp32
  double error_before = 0, error_after = 0;  ///< of the gradients against fp64, relative; not finite: they are not
  std::int64_t bytes_before = 0, bytes_after = 0;  ///< moved in one batch
};

/// A custom op under torch's custom_fwd, tried on the net.
struct CustomTry {
  std::string op;
  std::optional<Dtype> cast_inputs;  ///< none: without
  std::string refused;               ///< why it cannot run so; empty: it ran
  Dtype computes = Dtype::fp32, gives = Dtype::fp32;
  double error = 0;  ///< of the gradients against fp64
};

struct NetAudit {
  Results results;
  std::vector<OpRow> rows;  ///< in the order of their calls
  double scale = 1;         ///< of the loss, after halving while gradients overflowed
  int halved = 0;
  double error = 0;              ///< of the gradients against fp64, as the list has it
  std::int64_t bytes = 0;        ///< moved in one batch
  std::int64_t held = 0;         ///< bytes of cached casts at the region's end
  std::vector<Change> each;      ///< every op in 16 bits alone in fp32, the one that helps most first
  std::optional<Change> advice;  ///< the smallest set of ops that cures what is wrong; none: nothing is, or no set does
  bool ill = false;              ///< something is that a policy may cure
  bool suspected = false;        ///< nothing is ill here, and the advice is for the subject's suspects
  int tried = 0;                 ///< sets of ops
  std::vector<CustomTry> custom;  ///< of ops that are none of torch's
};

/// Checks A1 to A4, A7, A8 and A10 to A14 of the net, on its first batches with its first weights.
NetAudit audit_net(const NetSubject& subject);

/// Whether something is wrong with them that more bits may cure.
bool is_ill(const OpRow& row);

/// What rows say by themselves: A1 to A4, A8 and A12 to A14 of any run that filled them.
void judge_rows(const std::vector<OpRow>& rows, AutocastDevice device, Results& results);

/// "sum, exp": what of a formula is dangerous in 16 bits; empty: nothing.
std::string hazards(const reference::Recording& recording);
/// The same of an op at its smallest standard extents; empty for one without a formula, too.
std::string hazard_of(const OpDef& op);

}  // namespace ampcheck::checks::autocast
