// SPDX-License-Identifier: Apache-2.0
// How far rounding alone may move the loss of one and the same weights: what a loss in low precision may differ from
// the fp64 run's even where the runs of all seeds have come to the same loss.
#pragma once

#include "checks/models/fp64_tape.h"
#include "src/amp/autocast.h"
#include "src/dtype.h"

namespace ampcheck::checks::train {

/// To first order, |cotangent| times |value| times unit roundoff, summed: of each number that the loss is computed
/// from, as a run in `dtype` stores it, and of what the fp32 ops of autocast's list make of them (a result of n numbers
/// is rounded n times at most; of more than 64, by an op of ours, in the fixed order of its kernel: once more for each
/// 32). Earlier layers are left out: an error there is one of the training, which the spread of seeds bounds. In units
/// of what `record`'s cotangents are of.
double loss_rounding(const models::StepRecord& record, Dtype dtype, AutocastDevice list = AutocastDevice::cuda);

}  // namespace ampcheck::checks::train
