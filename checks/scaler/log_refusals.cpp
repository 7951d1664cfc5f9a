// SPDX-License-Identifier: Apache-2.0
// What torch says of a scaler that is used wrongly, by the words of its errors and warnings, and what is wrong in the
// script then.
#include "checks/scaler/log_lines.h"

namespace ampcheck::checks::scaler {

namespace {

constexpr Refusal kRefusals[] = {
    {"Attempting to unscale FP16 gradients", "the parameters are fp16, and so are their gradients",
     "keep the parameters in fp32 (no model.half(), no torch_dtype=float16) and let autocast make fp16 of them"},
    {"No inf checks were recorded for this optimizer", "no parameter of this optimizer has a gradient",
     "look whether the optimizer was made of these parameters (behind model.cuda()), whether they are frozen, and "
     "whether "
     "the loss is detached"},
    {"No inf checks were recorded prior to update", "update() came without step() or unscale_() since the last one",
     "call update() once, behind step()"},
    {"unscale_() has already been called on this optimizer", "unscale_() came twice without update() between",
     "with micro-batches, unscale and clip behind the last one only; call update() in every step, skipped by hand or "
     "not"},
    {"unscale_() is being called after step()", "unscale_() came behind step()", "unscale and clip before step()"},
    {"step() has already been called since the last update()", "step() came twice without update() between",
     "call update() behind step()"},
    {"but _scale is None", "no loss was scaled before", "scaler.scale(loss).backward() in place of loss.backward()"},
    {"check_and_unscale_cuda\" not implemented for 'BFloat16'",
     "the gradients are bf16, which torch's scaler does not take",
     "bf16 has the range of fp32 and needs no loss scale: GradScaler(enabled=False)"},
    {"The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler",
     "the checkpoint was saved with the scaler disabled", "load the scaler's state only if it is not empty"},
    {"Detected call of `lr_scheduler.step()` before `optimizer.step()`",
     "the schedule was advanced before the first update: the scaler skipped that step, and its value of the learning "
     "rate "
     "is never used",
     "advance the schedule only if the scale did not fall: before = scaler.get_scale(); scaler.step(optimizer); "
     "scaler.update(); if scaler.get_scale() >= before: scheduler.step()",
     false},
};

}  // namespace

std::span<const Refusal> refusals() { return kRefusals; }

}  // namespace ampcheck::checks::scaler
