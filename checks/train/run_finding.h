// SPDX-License-Identifier: Apache-2.0
// What is wrong with a training run, beside the distance of its loss from fp64's.
#pragma once

#include <cstdint>
#include <string>

namespace ampcheck::checks::train {

enum class RunCode : std::uint8_t {
  op,        ///< an op is wrong at tensors that it met
  cast,      ///< a cast is not rounding to nearest
  fp8,       ///< a tensor in fp8 is not what the recipe makes of it
  sum,       ///< gradients of micro-batches do not add up to the step's
  mean,      ///< nor those of ranks to their mean
  unscale,   ///< gradients divided by the loss scale are not what the optimizer gets
  clip,      ///< clipping is not what was asked for
  update,    ///< weights or moments are not what the optimizer's rule makes of the gradients
  skip,      ///< a step was skipped for no reason, or made in spite of one
  gradient,  ///< the gradient is not that of the loss, by more than rounding does
  loss_gap,  ///< the loss differs from fp64's at the same weights, with one sign, by more than rounding does
  all_skipped,
  no_gradient,  ///< all gradients were zero
  not_moved,    ///< no parameter moved
  one_not_moved,
  not_finite,  ///< neither the run's loss nor the fp64 run's is finite, or both leave where they began
};
inline constexpr int kRunCodes = 16;

struct RunCodeText {
  const char* name;   ///< "TR101"
  const char* word;   ///< "BUG" or "NOTHING"
  const char* title;  ///< ends the line of the finding
};
const RunCodeText& text_of(RunCode code);

struct RunFinding {
  RunCode code = RunCode::op;
  int step = 0;            ///< where it was first seen
  std::string where;       ///< "linear_1 (layer0) backward dweight", "layer0.weight", or empty
  std::string what;        ///< the evidence in one line
  std::string again = {};  ///< how to see it again, where there is a way
};

}  // namespace ampcheck::checks::train
