// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/cause.h"

#include <array>

namespace ampcheck::checks::diagnose {

namespace {

using enum Cause;
using enum CauseClass;

constexpr std::array<CauseInfo, kCauses> kTable = {{
    {forward_overflow, "D1", "forward_overflow", range, "values of the forward pass leave the format's range", "E1",
     "the largest magnitude of each op's output, step by step"},
    {scale_probing, "D2", "scale_probing", scaler,
     "the loss scale looks for its height: skipped steps that belong to it", "E1",
     "scale, skipped steps, and gradients at half the scale", true},
    {scaler_collapse, "D3", "scaler_collapse", scaler,
     "gradients are not finite at any loss scale, so that every step is skipped and the scale falls without end", "E1",
     "the gradients before backward() adds to them, and the scale of each step"},
    {scale_infinite, "D4", "scale_infinite", scaler, "the loss scale itself grew until it was infinite", "E1",
     "the scale of each step"},
    {gradient_underflow, "D5", "gradient_underflow", range, "gradients become zero on their way back", "E1",
     "for each op the share of zero gradients beside fp32"},
    {clip_before_unscale, "D6", "clip_before_unscale", scaler,
     "gradients are clipped while the loss scale is still in them", "E4",
     "the gradients' norm before and after unscaling, and the scale"},
    {found_inf_incomplete, "D7", "found_inf_incomplete", scaler,
     "a step with gradients that are not finite was not skipped, or not on all ranks", "E4",
     "for each rank which gradients were not finite, and whether it stepped"},
    {replica_drift, "D8", "replica_drift", parallel, "the ranks' copies of one parameter are no longer the same", "E6",
     "a checksum of each replicated parameter on every rank"},
    {update_stagnation, "D9", "update_stagnation", optimizer,
     "updates are smaller than half a spacing of the 16-bit weights, which therefore stay where they are", "E4",
     "the share of weights that an update with a gradient did not move"},
    {accumulator_stagnation, "D10", "accumulator_stagnation", optimizer,
     "a moving average in 16 bits no longer moves: each change is below half its spacing", "E4",
     "moving averages beside the same ones in fp32"},
    {optimizer_underflow, "D11", "optimizer_underflow", optimizer,
     "second moments or eps become zero in the optimizer, and updates are divided by almost nothing", "E4",
     "how many second moments are zero beside a gradient"},
    {second_moment_lag, "D12", "second_moment_lag", model,
     "the second moment lags behind the gradients, in fp64 too: no fault of precision", "E7",
     "sqrt(mean(g^2 / v)) of each step", true},
    {cancellation, "D13", "cancellation", accuracy,
     "an op subtracts large numbers that are almost the same (one-pass variance): shifted inputs change its result",
     "E9", "the op's inputs at a bad step: mean and spread of a row"},
    {inner_overflow, "D14", "inner_overflow", range,
     "a square or a norm overflows inside an op whose inputs and exact output are in range", "E9",
     "the op's inputs at the first bad step"},
    {low_accumulator, "D15", "low_accumulator", accuracy,
     "a sum inside an op is kept in too few bits: its error grows with the number of terms", "E2",
     "the op's inputs, and its error at half and a quarter of the terms"},
    {count_overflow, "D16", "count_overflow", range, "a count or denominator leaves the format's range", "E9",
     "the op's inputs, and its result at half the number of elements"},
    {mask_sentinel, "D17", "mask_sentinel", range,
     "a mask's large negative number became infinite, and rows that are masked altogether NaN", "E2",
     "the mask, and which rows are NaN"},
    {biased_rounding, "D18", "biased_rounding", accuracy, "roundings of an op go to one side", "E5",
     "signed errors of the op against its formula"},
    {position_precision, "D19", "position_precision", accuracy,
     "positions or angles are kept in 16 bits, where neighbours become the same number", "E2",
     "the error of the op by position"},
    {decision_flips, "D20", "decision_flips", decision,
     "a choice (router, largest element, tie) falls otherwise than in fp64, although its scores are well rounded", "E2",
     "the margin between the two largest scores, and the choices, beside fp32"},
    {low_reduction, "D21", "low_reduction", parallel,
     "gradients are summed over ranks or micro-batches in too few bits", "E6",
     "the gradients of each rank before they are summed"},
    {fp8_scale, "D22", "fp8_scale", range, "the scale of a tensor in fp8 is stale: values saturate or become zero",
     "E2", "for each fp8 tensor its largest magnitude, its scale, and the share at the format's largest number"},
    {block_clamp, "D23", "block_clamp", accuracy,
     "all weights of a block are stored as one number (shared exponents): the same factor in all of a gradient", "E2",
     "the weights of norms, before and after they are stored"},
    {loss_cancellation, "D24", "loss_cancellation", accuracy,
     "the loss's gradient is a difference p - q of numbers in 16 bits: its error grows as the training converges", "E2",
     "the loss's gradient beside fp32, early and late"},
    {recompute_differs, "D25", "recompute_differs", state,
     "what is computed again for the backward is not what the forward computed", "E8",
     "a checksum of each op's output in the forward and when it is computed again"},
    {moved_boundary, "D26", "moved_boundary", decision,
     "a rounding was moved or left out, so that two computations of one number are no longer equal", "E2",
     "how many elements of an equality hold, with and without the compiler"},
    {nan_killed, "D27", "nan_killed", range, "an op hides a NaN that came with its inputs, and the damage shows later",
     "E2", "for each op whether inputs and outputs are finite"},
    {poisoned_state, "D28", "poisoned_state", state,
     "a state that outlives the step kept what was not finite in a step that was skipped", "E0",
     "running statistics and caches after a skipped step"},
    {two_stacks, "D29", "two_stacks", decision, "training and inference compute the same model differently", "E2",
     "dumps of the same ops from both: ampcheck diagnose A B"},
    {not_repeatable, "D30", "not_repeatable", machine,
     "the same step from the same state has other bits: a race, or a faulty device", "E0",
     "checksums of each op's output in two runs"},
    {logit_growth, "D31", "logit_growth", model,
     "logits grow without bound in fp64 too: low precision only breaks earlier", "E7",
     "the largest logit and the entropy of each step", true},
    {scale_placement, "D32", "scale_placement", range,
     "a product overflows inside an op before it is multiplied by a factor below one", "E9",
     "the op's inputs at the first bad step"},
    {not_numerics, "D33", "not_numerics", model,
     "the run in fp64 goes the same way: learning rate, initial values, data or a wrong model", "E7",
     "the same steps in fp64", true},
    {fp8_history, "D34", "fp8_history", range,
     "scales in fp8 follow an amax history of another length, or another margin, than the recipe says", "E2",
     "for each fp8 tensor its largest magnitude and its scale, step by step"},
    {fp8_format, "D35", "fp8_format", range,
     "gradients are in the fp8 format of the forward, which has a binary exponent less and a bit more", "E2",
     "the fp8 type of each tensor"},
    {fp8_inverse, "D36", "fp8_inverse", range,
     "the scale of an fp8 tensor is not taken out again, or is taken out the wrong way round", "E2",
     "of an fp8 tensor the numbers before, its scale, and what the product reads"},
    {wrong_kernel, "D37", "wrong_kernel", kernel,
     "an op does not compute its formula, or not in the declared precision: its kernel is wrong", "E2",
     "the tensors of the call: ampcheck train --save-case DIR"},
}};

constexpr CauseInfo kNone = {none, "", "none", model, "nothing is wrong", "", ""};

}  // namespace

const char* name(CauseClass kind) {
  constexpr std::array kNames = {"range",    "scaler", "optimizer", "accuracy", "decision",
                                 "parallel", "state",  "machine",   "model",    "kernel"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::span<const CauseInfo> causes() { return kTable; }

const CauseInfo& info(Cause cause) { return cause == none ? kNone : kTable[static_cast<std::size_t>(cause) - 1]; }

}  // namespace ampcheck::checks::diagnose
