// SPDX-License-Identifier: Apache-2.0
#include "checks/train/trace_fields.h"

#include "checks/train/trace_record.h"

namespace ampcheck::checks::train {

namespace {

constexpr TraceField kRun[] = {
    {"schema", "text", "ampcheck.trace/2; another number means another format"},
    {"model", "text", "mlp, conv, transformer, tutorial, or the name of your own net"},
    {"dtype", "text", "of autocast: fp16, bf16, or fp32 without autocast"},
    {"autocast", "text", "whose lists of ops autocast followed: cuda, cpu, or none where no region was open"},
    {"autocast_tables", "text", "the release that has these lists: torch 2.15.0"},
    {"scaler", "text", "rule that moves the loss scale (torch, apex, ...), or none"},
    {"seed", "number", "of weights, batches and generated data"},
    {"fp8", "text", "recipe of the products in fp8 (delayed, current, with its settings); absent without", false},
    {"losses", "[text, ...]", "of a net with several: each with its weight and its layer; absent otherwise", false},
    {"optimizers", "[text, ...]", "of a run with several: what each is and what it moves; absent otherwise", false},
    {"steps", "steps", "how many are meant"},
    {"local", "yes or no", "with the shadow at each op's own inputs: local_error and what follows from it"},
    {"carried", "yes or no", "with the fp64 run from the same weights: carried_error, fp64_loss"},
    {"net", "text", "the net's name, or the TOML file that describes it; absent: a caller's own", false},
    {"batch", "rows", "of the net; 0: its own number", false},
    {"width", "features", "of the net tutorial; 0: its own number", false},
    {"loss_kind", "text", "cross_entropy, mse, or empty: the net's own", false},
};

constexpr TraceField kTensor[] = {
    {"step", "number", "from 0 on; the tables of `ampcheck trace` count from 1"},
    {"seq", "number", "of the line in its step: the order in which the tensors were written"},
    {"phase", "text", "forward, backward, all_reduce, unscale, clip or optimizer"},
    {"cast", "yes or no", "the tensor is another one in another dtype, and \"op\" is the op that asked for it"},
    {"op", "text",
     "number of the call (\"linear_1\" is the first linear), from unscale on the parameter (\"layer0.weight\")"},
    {"layer", "text", "name of the op's parameters without their last word; empty without parameters"},
    {"tensor", "text", "y (output), dx, dweight (gradients of the inputs x, weight), of a cast what is cast"},
    {"dtype", "text", "in which it is stored: fp32, fp16, bf16"},
    {"from", "text", "of a cast: the dtype before; else empty"},
    {"source", "number",
     "forward: of the tensor that is cast, or of an op's output, in its graph (a reshape keeps it); else -1.\nA tensor "
     "that is cast twice has it twice"},
    {"scale", "factor", "that the numbers are multiplied by: the loss scale in backward until unscale, else 1"},
    {"by_gradient", "yes or no",
     "only true: a gradient by a gradient (--grad-penalty), in which the loss scale cancels", false},
    {"rank", "number", "of several ranks, which; absent: the first", false},
    {"role", "text",
     "in a fault: producer (finite inputs, output not), propagator (neither), killer (inputs not finite, "
     "output\nfinite); else none"},
    {"at", "bytes",
     "[offset, length, checksum] of its statistics in the file beside this one; checksum: CRC-32 of the record's "
     "payload",
     false},
    {"record", "text",
     "instead of \"at\" where there is no such file (a trace to a pipe or a device): the record in hexadecimal digits",
     false},
};

constexpr RecordField kRecord[] = {
    {"elements", RecordType::count, "elements", "all of them: zero + inf + nan + the sum of \"exponents\""},
    {"zero", RecordType::count, "elements", "zeros of either sign"},
    {"subnormal", RecordType::count, "elements", "below the format's smallest normal number"},
    {"inf", RecordType::count, "elements", "infinite"},
    {"nan", RecordType::count, "elements", "NaN"},
    {"amax", RecordType::value, "value", "largest finite magnitude, with the scale in it"},
    {"amin", RecordType::value, "value", "smallest magnitude above zero; absent: there is none"},
    {"exponents", RecordType::histogram, "elements",
     "magnitudes by exponent; an exponent below the format's smallest holds all subnormal numbers"},
    {"nonzero", RecordType::count, "elements",
     "whose exact value is above its own rounding noise (2^-44 of the largest); absent: nothing exact is known"},
    {"flushed", RecordType::count, "elements",
     "of these, zeros for an exact value below the smallest subnormal number"},
    {"overflowed", RecordType::count, "elements", "not finite although the exact value is"},
    {"local_error", RecordType::value, "relative",
     "2-norm of (tensor - exact) by that of exact, exact being the formula in fp64 at the op's own inputs, of "
     "a\nnarrowing cast what was cast; absent: unknown"},
    {"subnormal_loss", RecordType::count, "elements", "subnormal although the exact value is not"},
    {"saturated", RecordType::count, "elements",
     "at the largest finite number or infinite, the exact value being beyond it"},
    {"bias", RecordType::value, "ulp", "mean of tensor - exact in units of the last place; absent: unknown"},
    {"bias_z", RecordType::value, "deviations",
     "bias by its standard error: beyond about 5 the rounding is not unbiased; absent: unknown"},
    {"ulps", RecordType::counts, "elements", "[equal, up to 1/2 ulp off, up to 1, 2, 4, ...]; absent: unknown"},
    {"carried_error", RecordType::value, "relative",
     "as local_error, against the fp64 run from the same weights; absent: unknown"},
    {"exact_rms", RecordType::value, "value",
     "root mean square of the exact values at the op's own inputs, without the scale; absent: unknown, or zero"},
    {"fp64_rms", RecordType::value, "value",
     "and of the fp64 run's. Below 2^-44 of the largest of its phase a tensor is zero by a symmetry, and what it holds "
     "is noise\n(without it: exact_rms below 2^-24 of the largest)"},
    {"range_least", RecordType::value, "value",
     "of a gradient in 16 bits, between ranks too, exact and without the scale, of each element the smaller of the "
     "exact value\nand the fp64 run's: smallest magnitude"},
    {"range_most", RecordType::value, "value", "and largest"},
    {"range_exponents", RecordType::histogram, "elements",
     "and magnitudes by exponent. Which loss scales lose nothing follows from it: 2^s times a magnitude above 2^-25 "
     "and below 65520\nis neither zero nor infinite in fp16 (`ampcheck trace` wants half of 2^s to keep all, too)"},
    {"range_powers", RecordType::counts, "elements",
     "of range_exponents' counts, those that are exact powers of two; absent: none"},
    {"cancelled", RecordType::value, "bits",
     "forward, with a local shadow: mean, over one element in each row, of the bits of its inputs' accuracy that the "
     "op loses,\nlog2(sum |dy/dx x| / |y|): for a sum, the size of its terms against the sum's. Infinite: all of it "
     "cancels"},
    {"most_cancelled", RecordType::value, "bits", "and the most of one element"},
    {"loss_error", RecordType::value, "loss",
     "forward, with both shadows: how far the error made here moves the loss, to first order: its product with "
     "the\nfp64 gradient of the loss by this tensor"},
    {"loss_reach", RecordType::value, "loss",
     "the product of the two norms: the most that errors of this size could move it"},
    {"norm_error", RecordType::value, "2-norm",
     "with both shadows: how far the error made here moves the norm of the loss's gradient by all parameters"},
    {"decisions", RecordType::count, "rows", "logits of a cross-entropy, with the fp64 run: all rows"},
    {"flipped", RecordType::count, "rows", "with another argmax"},
    {"undecided", RecordType::count, "rows", "whose two largest are no further apart than twice the largest error"},
    {"least_margin", RecordType::value, "value", "smallest difference of the two largest"},
    {"margins", RecordType::value, "value", "sum of these differences"},
    {"radii", RecordType::value, "value", "sum of the largest errors"},
    {"intended", RecordType::count, "elements", "optimizer: elements with a gradient"},
    {"stagnant", RecordType::count, "elements",
     "of these, those that stayed what they were: the update is below half a unit in their last place"},
    {"copy_stagnant", RecordType::count, "elements",
     "optimizer, with fp32 masters: those meant to move whose 16-bit copy stayed"},
    {"second_moment_zero", RecordType::count, "elements",
     "optimizer: the second moment is zero although the gradient is not: its square vanished"},
    {"epsilon_zero", RecordType::count, "elements", "optimizer: updated in a dtype in which eps is zero"},
};

constexpr TraceField kMove[] = {
    {"step", "number", "as above"},
    {"moved_late", "text",
     "data (a tensor of numbers), integers (an op's indices or targets) or map (of moved elements)"},
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
    {"parts", "2-norm",
     "[[seq, part, most], ...]: part of the error that was made in the tensors named as that of \"seq\", over "
     "all\nmicro-batches and ranks; the most that rounding each of their elements once, or the gradient to fp32, could "
     "make"},
    {"inherited", "2-norm",
     "[[seq, part], ...]: part of what the op that wrote \"seq\" makes of errors of its inputs beyond its "
     "derivatives:\nmasks and maxima that fall otherwise, and products of errors"},
    {"sums", "2-norm",
     "[[text, part], ...]: part of the rounding of sums of gradients, by the parameter or the op whose output they are "
     "of"},
};

constexpr TraceField kStep[] = {
    {"step", "number", "as above"},
    {"loss", "loss", "of the mixed-precision run"},
    {"fp64_loss", "loss", "of the fp64 run on the same batch; null without one"},
    {"spread", "loss",
     "largest less smallest loss of fp64 runs of several seeds, in the mean of the last steps: how far a run may "
     "stray\nfor other reasons than precision; null without fp64 runs"},
    {"apart", "loss", "loss less fp64_loss, in the mean of the last ten steps; null without fp64 run"},
    {"rounding", "loss",
     "how far rounding alone may move the loss of one and the same weights, to first order, in the mean of the last "
     "ten\nsteps; a run has diverged when it is further apart than this and the spread; null without fp64 run"},
    {"scale", "factor", "loss scale of this step's backward"},
    {"scale_after", "factor", "what the scaler made of it"},
    {"tracker", "steps", "without a skip since the scale last moved: at the growth interval it grows"},
    {"found_inf", "yes or no", "a gradient was not finite"},
    {"stepped", "yes or no", "the optimizer stepped; no: the scaler skipped it"},
    {"stagnant_share", "share", "of the elements that the optimizer meant to move: those that stayed"},
    {"loss_drift", "loss",
     "how far weights that had come apart from the fp64 run's move this loss, to first order; null: not computed"},
    {"norm", "2-norm", "of all gradients together before clipping; null: no largest norm was given"},
    {"clip_factor", "factor", "by which clipping to a norm multiplied the gradients; null: nothing clips"},
    {"clipped", "elements", "that clipping to a value changed; null: nothing clips"},
    {"decayed", "elements",
     "weights that decay, of runs with weight decay whose weights are in 16 bits alone; null: not counted"},
    {"decay_lost", "elements",
     "of these: the decay alone moves them by less than half their spacing; null: not counted"},
    {"losses", "[loss, ...]", "of a net with several, each without its weight; absent otherwise", false},
    {"optimizers", "[{...}, ...]",
     "of a run with several, for each stepped, found_inf, skips (so far) and lr; of one that clips its gradients "
     "alone\nnorm, clip_factor and clipped, as above; absent otherwise",
     false},
};

constexpr TraceLine kLines[] = {
    {"run",
     "First line: what was run. Again where a resumed run is meant to be longer than before: the last one counts",
     kRun},
    {"tensor", "For each tensor of each step that is looked at, in the order in which they were written", kTensor},
    {"move", "On a device, where the host put numbers into its memory in the middle of a pass", kMove},
    {"parameter",
     "With both shadows, without clipping and penalty, of every tenth step or those looked at: the error of a "
     "parameter's gradient, and whose it is",
     kParameter},
    {"step", "The last line of each step, looked at or not, with what the scaler did", kStep},
};

}  // namespace

std::span<const TraceLine> trace_lines() { return kLines; }

std::span<const RecordField> record_fields() { return kRecord; }

}  // namespace ampcheck::checks::train
