// SPDX-License-Identifier: Apache-2.0
// The loss scales in which an op's backward works on its data. A loss scale multiplies every cotangent, and with it
// every number of a backward, which is linear in them: so one evaluation tells at which power of two the first number
// becomes infinite, and at which the first one becomes zero.
#pragma once

#include <optional>
#include <string>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// The first number that is lost as the loss scale rises or falls.
struct ScaleEnd {
  int exponent = 0;    ///< of the loss scale 2^exponent at which it is lost
  std::string tensor;  ///< "dy", "dx", or of an intermediate "mul of the backward"
  std::vector<std::int64_t> index;
  int probe = 0;  ///< of the case's cotangents
};

/// Both ends; none where nothing can be lost (all cotangents are zero).
struct LossScaleWindow {
  std::optional<ScaleEnd> overflow;  ///< the smallest scale that overflows
  std::optional<ScaleEnd> flush;     ///< the largest scale that flushes
  /// "works at loss scales 2^-14 to 2^15: at 2^16 dy[0,0] becomes infinite, at 2^-15 dx[0,0] becomes 0"; empty without
  /// ends.
  std::string words() const;
};

/// The window of a case, over all its probes: from the reference values of cotangents and gradients in their storage
/// types, and of the backward's intermediates in the compute type, along the form that the judge tries first. What is
/// zero or not finite at scale 1 is no loss. Numbers are those of unrounded cotangents: where these are subnormal
/// themselves, their rounding may move the lower end by one.
LossScaleWindow loss_scale_window(CaseRun& run);

/// States the window of a case in 16-bit storage: in the notes of gradients whose intermediates leave the range
/// (AC201), and, where asked for by RunOptions::power, as a check of its own.
void note_loss_scales(CaseRun& run);

}  // namespace ampcheck::checks
