// SPDX-License-Identifier: Apache-2.0
// Wrong gradients at a kink of the formula. Where a maximum has equal operands or a condition stands at its edge, the
// formula has one-sided derivatives, of which its adjoint takes one by convention. A nudge of the inputs by 2^-40 in a
// random direction decides every such choice one way or the other, so that the gradients there are gradients in the
// limit; a kernel's number between those of two nudges is as good a subgradient as the convention's (Clarke 1975), one
// outside of all of them is none, and neither are numbers whose sum over elements that only exchange their shares
// differs from what all nudges agree on: two equal maxima with the whole gradient each (checks/judge/kink_sums.h).
// Nudges at random need not meet every choice, so an element that they leave open is pushed up and down alone, with
// cotangents of one sign at a time: that bounds them all. A choice between rounded sums needs a nudge beyond their
// rounding, 2^-19; a jump is then what is 2^9 nudges wide, more than a smooth gradient moves.
#pragma once

#include <string>
#include <vector>

#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

struct AtKink {
  enum class Kind { none, subgradient, undeclared, no_subgradient } kind = Kind::none;
  std::string words = {};
};

/// What these elements of a gradient or tangent, which lie outside of its interval, are; Kind::none unless each of them
/// stands at a kink. The reference's cotangents are those of the probe. Kind::undeclared: a subgradient, where the op
/// declares its convention for this input. `together`: the tensors of the launch that are judged.
AtKink at_kink(const WrongTensor& wrong, const std::vector<std::int64_t>& outside,
               const std::vector<Subject>& together);

/// What a reader should know of the tensors that have another subgradient than the declared one (AC205): a line for
/// each.
std::vector<std::string> other_subgradients(const std::vector<CaseResult>& cases);

}  // namespace ampcheck::checks
