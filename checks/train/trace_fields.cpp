// SPDX-License-Identifier: Apache-2.0
#include "checks/train/trace_fields.h"

namespace ampcheck::checks::train {

namespace {

constexpr TraceField kRun[] = {
    {"schema", "text", "ampcheck.trace/1; another number means another format"},
    {"model", "text", "mlp, conv, transformer, tutorial, or the name of your own net"},
    {"dtype", "text", "of autocast: fp16, bf16, or fp32 without autocast"},
    {"autocast", "text", "whose lists of ops autocast followed: cuda, cpu, or none where no region was open"},
    {"autocast_tables", "text", "the release that has these lists: torch 2.15.0"},
    {"scaler", "text", "rule that moves the loss scale (torch, apex, ...), or none"},
    {"seed", "number", "of weights, batches and generated data"},
    {"steps", "steps", "how many are meant"},
    {"local", "yes or no", "with the shadow at each op's own inputs: local_error and what follows from it"},
    {"carried", "yes or no", "with the fp64 run from the same weights: carried_error, fp64_loss"},
};

constexpr TraceField kTensor[] = {
    {"step", "number", "from 0 on; the tables of `ampcheck trace` count from 1"},
    {"seq", "number", "of the line in its step: the order in which the tensors were written"},
    {"phase", "text", "forward, backward, all_reduce, unscale, clip or optimizer"},
    {"cast", "yes or no", "the tensor is another one in another dtype, and \"op\" is the op that asked for it"},
    {"op", "text", "number of the call (\"linear_1\" is the first linear), from unscale on the parameter (\"layer0.weight\")"},
    {"layer", "text", "name of the op's parameters without their last word; empty without parameters"},
    {"tensor", "text", "y (output), dx, dweight (gradients of the inputs x, weight), of a cast what is cast"},
    {"dtype", "text", "in which it is stored: fp32, fp16, bf16"},
    {"from", "text", "of a cast: the dtype before; else empty"},
    {"source", "number", "forward: of the tensor that is cast, or of an op's output, in its graph (a reshape keeps it); else -1.\nA tensor that is cast twice has it twice"},
    {"scale", "factor", "that the numbers are multiplied by: the loss scale in backward until unscale, else 1"},
    {"elements", "elements", "all of them: zero + inf + nan + the sum of \"exponents\""},
    {"zero", "elements", "zeros of either sign"},
    {"subnormal", "elements", "below the format's smallest normal number"},
    {"inf", "elements", "infinite"},
    {"nan", "elements", "NaN"},
    {"amax", "value", "largest finite magnitude, with the scale in it"},
    {"amin", "value", "smallest magnitude above zero; 0 if there is none"},
    {"exponents", "elements", "[e, [n0, n1, ...]]: n0 magnitudes in [2^e, 2^(e+1)), n1 in the next, ...;\nan e below the format's smallest exponent holds all subnormal numbers"},
    {"nonzero", "elements", "whose exact value is above its own rounding noise (2^-44 of the largest); 0: nothing exact is known"},
    {"flushed", "elements", "of these, zeros for an exact value below the smallest subnormal number"},
    {"overflowed", "elements", "not finite although the exact value is"},
    {"local_error", "relative", "2-norm of (tensor - exact) by that of exact, exact being the formula in fp64 at the op's own inputs, of a\nnarrowing cast what was cast; null: unknown"},
    {"subnormal_loss", "elements", "subnormal although the exact value is not"},
    {"saturated", "elements", "at the largest finite number or infinite, the exact value being beyond it"},
    {"bias", "ulp", "mean of tensor - exact in units of the last place; null: unknown"},
    {"bias_z", "deviations", "bias by its standard error: beyond about 5 the rounding is not unbiased; null: unknown"},
    {"ulps", "elements", "[equal, up to 1/2 ulp off, up to 1, 2, 4, ...]; empty: unknown"},
    {"carried_error", "relative", "as local_error, against the fp64 run from the same weights; null: unknown"},
    {"exact_rms", "value", "root mean square of the exact values at the op's own inputs, without the scale; absent: unknown, or zero", false},
    {"fp64_rms", "value", "and of the fp64 run's. Below 2^-44 of the largest of its phase a tensor is zero by a symmetry, and what it holds is noise\n(without it: exact_rms below 2^-24 of the largest)", false},
    {"range", "", "of a gradient in 16 bits, between ranks too, exact and without the scale: [smallest, largest, e, [n0, n1, ...], [p0, p1,\n...]]: n as in \"exponents\", p: how many of them are exact powers of two (left out where there are none); of each\nelement the smaller of the exact value and the fp64 run's. Which loss scales lose nothing follows from it: 2^s times a magnitude above 2^-25 and below 65520 is neither zero nor infinite in fp16\n(`ampcheck trace` wants half of 2^s to keep all, too)", false},
    {"by_gradient", "yes or no", "only true: a gradient by a gradient (--grad-penalty), in which the loss scale cancels", false},
    {"rank", "number", "of several ranks, which; absent: the first", false},
    {"cancelled", "bits", "forward, with a local shadow: [mean, most] of one element in each row: bits of its inputs' accuracy that the op loses,\nlog2(sum |dy/dx x| / |y|): for a sum, the size of its terms against the sum's. \"inf\": all of it cancels", false},
    {"loss_error", "loss", "forward, with both shadows: how far the error made here moves the loss, to first order: its product with the\nfp64 gradient of the loss by this tensor", false},
    {"loss_reach", "loss", "the product of the two norms: the most that errors of this size could move it", false},
    {"norm_error", "2-norm", "with both shadows: how far the error made here moves the norm of the loss's gradient by all parameters", false},
    {"decisions", "", "logits of a cross-entropy, with the fp64 run: [rows, rows with another argmax, rows whose two largest are no further\napart than twice the largest error, smallest difference of the two largest, sum of these differences, sum of the\nlargest errors]", false},
    {"intended", "elements", "optimizer: elements with a gradient; else 0"},
    {"stagnant", "elements", "of these, those that stayed what they were: the update is below half a unit in their last place"},
    {"copy_stagnant", "elements", "optimizer, with fp32 masters: those meant to move whose 16-bit copy stayed; absent: none", false},
    {"second_moment_zero", "elements", "optimizer: the second moment is zero although the gradient is not: its square vanished; absent: none", false},
    {"epsilon_zero", "elements", "optimizer: updated in a dtype in which eps is zero; absent: none", false},
    {"role", "text", "in a fault: producer (finite inputs, output not), propagator (neither), killer (inputs not finite, output\nfinite); else none"},
};

constexpr TraceField kMove[] = {
    {"step", "number", "as above"},
    {"moved_late", "text", "data (a tensor of numbers), integers (an op's indices or targets) or map (of moved elements)"},
    {"after", "text", "the op before it, as \"op\" has it; empty: none by name"},
    {"launched", "kernels", "of this pass, which the host waited for before it wrote"},
    {"bytes", "bytes", "that it put into the device's memory"},
};

constexpr TraceField kParameter[] = {
    {"step", "number", "as above"},
    {"parameter", "text", "\"layer0.weight\""},
    {"error", "2-norm", "of (gradient - fp64 gradient), before clipping, without the loss scale"},
    {"size", "2-norm", "of the fp64 gradient"},
    {"apart", "2-norm", "part of the error that is due to weights that had come apart in earlier steps"},
    {"parts", "2-norm", "[[seq, part, most], ...]: part of the error that was made in the tensors named as that of \"seq\", over all\nmicro-batches and ranks; the most that rounding each of their elements once, or the gradient to fp32, could make"},
};

constexpr TraceField kStep[] = {
    {"step", "number", "as above"},
    {"loss", "loss", "of the mixed-precision run"},
    {"fp64_loss", "loss", "of the fp64 run on the same batch; null without one"},
    {"spread", "loss", "largest less smallest loss of fp64 runs of several seeds, in the mean of the last steps: how far a run may stray\nfor other reasons than precision; null without fp64 runs"},
    {"apart", "loss", "loss less fp64_loss, in the mean of the last ten steps; null without fp64 run"},
    {"rounding", "loss", "how far rounding alone may move the loss of one and the same weights, to first order, in the mean of the last ten\nsteps; a run has left when it is further apart than this and the spread; null without fp64 run"},
    {"scale", "factor", "loss scale of this step's backward"},
    {"scale_after", "factor", "what the scaler made of it"},
    {"tracker", "steps", "without a skip since the scale last moved: at the growth interval it grows"},
    {"found_inf", "yes or no", "a gradient was not finite"},
    {"stepped", "yes or no", "the optimizer stepped; no: the scaler skipped it"},
    {"stagnant_share", "share", "of the elements that the optimizer meant to move: those that stayed"},
    {"loss_drift", "loss", "how far weights that had come apart from the fp64 run's move this loss, to first order; null: not computed"},
};

constexpr TraceLine kLines[] = {
    {"run", "First line: what was run. Again where a resumed run is meant to be longer than before: the last one counts", kRun},
    {"tensor", "For each tensor of each step that is looked at, in the order in which they were written", kTensor},
    {"move", "On a device, where the host put numbers into its memory in the middle of a pass", kMove},
    {"parameter", "With both shadows, without clipping and penalty, of every tenth step or those looked at: the error of a parameter's gradient, and whose it is", kParameter},
    {"step", "The last line of each step, looked at or not, with what the scaler did", kStep},
};

}  // namespace

std::span<const TraceLine> trace_lines() { return kLines; }

}  // namespace ampcheck::checks::train
