// SPDX-License-Identifier: Apache-2.0
#include "checks/scaler/loop_checks.h"

#include "checks/scaler/loop_auditor.h"

namespace ampcheck::checks::scaler {

namespace {

constexpr CallCheck kChecks[] = {
    {"L1", "repeat", "does the same run give the same numbers twice?"},
    {"L2", "update", "does a clean step move the weights, and count as one?"},
    {"L3", "detection", "is infinity, minus infinity and NaN seen in the first and in the last gradient?"},
    {"L4", "replaced gradient", "does a gradient that is not finite reach the check, and no number in its place?"},
    {"L5", "skip: weights", "does a skipped step leave the weights alone, by weight decay too?"},
    {"L6", "skip: moments", "does a skipped step leave the moments alone?"},
    {"L7", "skip: step count", "does a skipped step not count?"},
    {"L8", "skip: average", "does a skipped step leave the average of the weights alone?"},
    {"L9", "skip: schedule", "does the schedule stand still on a skipped step?"},
    {"L10", "skip: buffers", "does a skipped step leave all else alone that an update changes?"},
    {"L11", "skip: random state", "does a skipped step draw no random number of the update?"},
    {"L12", "behind a skip", "is the step behind a skipped one as if that one had not been?"},
    {"L13", "scale", "does the scale fall and grow when and as far as the rule says?"},
    {"L14", "invariance", "is the update the same for scales 1, 2^8, 2^16 and 2^24?"},
    {"L15", "clipping", "is the norm that clips that of unscaled gradients?"},
    {"L16", "accumulation", "does a window of micro-batches keep one scale?"},
    {"L17", "spoiled window", "does a bad micro-batch spoil its window whole, and no other?"},
    {"L18", "resume: scale", "does the scale go on behind a resume as if nothing had been?"},
    {"L19", "resume: rest", "does everything else?"},
    {"L20", "ranks", "do all ranks skip and scale alike when one has a bad gradient?"},
};

}  // namespace

std::span<const CallCheck> loop_checks() { return kChecks; }

CallAudit audit_loop(Loop& loop, const ScaleRule& rule) { return LoopAuditor(loop, rule).audit(); }

}  // namespace ampcheck::checks::scaler
