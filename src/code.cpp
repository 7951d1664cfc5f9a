// SPDX-License-Identifier: Apache-2.0
// The stable finding codes: 1xx values, 2xx range and conditioning, 3xx contracts, 4xx exact relations, 5xx the call
// itself, 6xx what only a simulated GPU shows.
#include "src/code.h"
#include <algorithm>
#include <iterator>
#include <ostream>
#include <string>

#include "src/error.h"

namespace ampcheck {

namespace {

constexpr CodeText kTexts[] = {
    {Code::ac101, "AC101", Verdict::bug, "value outside its interval",
     "No order of evaluation of any declared form, in the declared precisions, can give this value: the interval\n"
     "holds everything that rounding may do to this element at these inputs.",
     "Look at the cause line, then replay with --save DIR and compare its .got.npy with .low.npy and .high.npy. If\n"
     "the kernel computes the op in another way on purpose, declare that as a form.",
     "softmax.missing_factor(x=bf16[5,7],seed=1)"},
    {Code::ac102, "AC102", Verdict::bug, "NaN or infinity where a finite value is due",
     "The reference is finite and no intermediate of a declared form leaves the compute type's range here.",
     "Look for 0/0, inf-inf, exp without a shift, or an uninitialised read.", "pow.by_logarithm(x=fp32[5,7],seed=1)"},
    {Code::ac103, "AC103", Verdict::bug, "not the NaN or infinity that is due",
     "The inputs hold non-finite values that reach this element in every declared form; the kernel has a finite "
     "number\n"
     "there, or another one of NaN and the infinities.",
     "Comparisons with NaN are false: a max or clamp written with < may drop the NaN.",
     "relu.drops_nan(x=bf16[2,1025],range=specials,seed=1)"},
    {Code::ac104, "AC104", Verdict::bug, "gradient differs from differences of the op itself",
     "The op has no formula. Its backward is compared with centred differences of its own forward. The bound holds\n"
     "the measured noise of both, the rounding of what they store, and the truncation that three steps show.",
     "Forward and backward contradict each other: look for a sign, a factor or a term. With a formula ampcheck says\n"
     "which of the two is wrong (ampcheck explain formulas).",
     nullptr,
     "BUG  AC104  plain_softmax_sign backward dx probe 0                    gradient differs from differences of the "
     "op itself\n"
     "  case    'plain_softmax_sign(x=fp32[5,7],seed=1)'\n"
     "  worst   [0,4]   got -0.36561194 (0xbebb317d)   want -0.65570325 (0xbf27dc2b)   off by 4.87e+06 ulp\n"
     "  allowed [-0.6557421, -0.6556644] (differences of the op itself, step 0.03125)\n"
     "  where   6 of 6 elements"},
    {Code::ac105, "AC105", Verdict::bug, "sums round to one side, or errors of a row go together",
     "Every element lies in its interval, which is wide for long sums, but the errors are not random.\n"
     "Sums that round to one side: the sum of -d has to be minus the sum of d, bit for bit and in any order of "
     "summation,\n"
     "if it rounds to nearest. Here it is not, and the difference has the same sign for draw after draw of fresh "
     "data.\n"
     "Errors of a row that go together: they share a factor or a shift, as when a statistic of the row (inv_std, a "
     "mean,\n"
     "a denominator) is computed too coarsely. For fresh seeds they share more than chance allows, and more than any "
     "replay\n"
     "of the contract; in fp32 storage only. p is that of an exact sign test, corrected for the number of tests in a "
     "run.",
     "Round the accumulator to nearest: look for a rounding mode that was set (an accumulator that truncates is "
     "AC305).\n"
     "Matrix units of GPUs truncate by design: ampcheck does not make this test on them. Where a row shares its "
     "error,\n"
     "compute its statistics in fp32 with functions as accurate as declared, or declare the accuracy that they have.",
     "rms_norm.eps_outside(x=fp32[5,7],seed=1)"},
    {Code::ac106, "AC106", Verdict::bug, "forward mode and backward contradict each other",
     "<v, J u> = <J^T v, u> for any tangent u and cotangent v, whatever the op computes. The op has no formula, so J u "
     "by its\n"
     "forward mode and J^T v by its backward are multiplied out in fp64. The two numbers differ by more than storing "
     "and the\n"
     "measured noise explain. (With a formula each side is judged by itself, element by element: AC101.)",
     "The cause says which of the two a difference of the op itself contradicts, where that shows. Look there for a "
     "sign,\n"
     "a factor or a term.",
     nullptr,
     "BUG  AC106  plain_softmax_tangent_of_mean jvp dot product             forward mode and backward contradict "
     "each other\n"
     "  case    'plain_softmax_tangent_of_mean(x=fp32[5,7],seed=1)'\n"
     "  where   70 of 70 elements\n"
     "  cause   <v, J u> is 0.999195 by forward mode, <J^T v, u> 0.581004 by the backward: 0.418 apart, where "
     "storing and measured noise explain 1.06e-05; differences of the op itself along u give 0.580881: forward mode "
     "is wrong"},
    {Code::ac201, "AC201", Verdict::range, "an intermediate leaves the compute type's range",
     "At these inputs some order of evaluation overflows: finite and non-finite values are both right, and the\n"
     "element is not judged. Of a gradient in 16-bit storage it says at which loss scale the first number becomes "
     "infinite,\n"
     "and at which the first one becomes zero; `ampcheck replay` says so of every such case.",
     "Nothing, unless your model has such inputs. For a gradient: use a loss scale between the two.",
     "linear(x=bf16[5,7],weight=bf16[3,7],cotangent=near_max,seed=1)"},
    {Code::ac202, "AC202", Verdict::ill_conditioned, "a whole output is blind",
     "At these inputs rounding alone may turn every value into 0 or into twice itself, so no value can be called "
     "wrong.",
     "Use other data or a smaller shape. Other cases of the op judge this output.",
     "softmax(x=fp32[5,67],range=near_max,seed=1)"},
    {Code::ac203, "AC203", Verdict::range_declared, "a number is lost inside the declared range",
     "A number becomes infinite, NaN or zero although its correctly rounded value is representable and the formula, as "
     "it\n"
     "is written, loses nothing on the way; or it stays finite where infinity is due. At small inputs the kernel is "
     "right there.\n"
     "Every finite input counts, unless the formula itself leaves the range. An op may declare more: sizes of its "
     "inputs\n"
     "(largest_input) or a window of loss scales, inside of which no order of evaluation excuses a lost number.",
     "Subtract the maximum before exp, reorder the products or scale in between, so that no number on the way leaves "
     "the\n"
     "range. Of a declaration: keep it, or declare a narrower one (largest_input, loss_scales).",
     "mul.loses_range(x=bf16[5,7],seed=1)"},
    {Code::ac204, "AC204", Verdict::non_smooth, "no subgradient at a kink",
     "The formula has a kink at these inputs: a maximum of equal operands, or a condition at its edge. Its one-sided\n"
     "derivatives differ. The kernel's number lies outside of both, or the gradients of elements that tie add up to "
     "more or\n"
     "less than any choice among them gives.",
     "Give the gradient to one of the equal operands, or share it among them. Look for conditions that hold on both "
     "sides\n"
     "of the edge.",
     "relu.slope_at_zero(x=bf16[5,7],range=zeros,seed=1)"},
    {Code::ac205, "AC205", Verdict::another_subgradient, "another subgradient than the declared one",
     "The formula has a kink at these inputs. The kernel's numbers lie between its one-sided derivatives: as good as "
     "the\n"
     "gradient that the formula declares there, but other numbers. This is reported, and no case fails by it.",
     "Nothing, or declare the kernel's convention: < for <= in the formula's condition, or another form.",
     "relu.one_at_zero(x=bf16[5,7],range=zeros,seed=1)"},
    {Code::ac206, "AC206", Verdict::non_smooth, "not the subgradient that the op declares",
     "The formula has a kink at these inputs, and the op declares the gradient there. The kernel has another one.",
     "Give the gradient that the formula has at a tie (ampcheck explain formulas), or do not declare the kink: then "
     "any\n"
     "number between the one-sided derivatives is right, and reported.",
     "clamp.zero_at_bounds(x=bf16[5,7],seed=1)"},
    {Code::ac301, "AC301", Verdict::precision_contract, "accumulates in a lower precision than declared",
     "The value lies outside the interval of the declared precision. The same sum, kept in a lower precision, gives "
     "such\n"
     "numbers.",
     "Keep the sum in the declared type, which is fp32 unless the op says otherwise. If the lower precision is meant, "
     "declare\n"
     "it: op.accumulate(AC_BF16) in C++, accumulate = \"bf16\" in TOML, --accumulate bf16 with --dump. Then long sums\n"
     "cannot be judged: what bf16 may lose of 1,000 terms is more than the sum.\n"
     "Which sum: the cause line names the type, and ampcheck contract LIBRARY looks at each tensor. Other findings of\n"
     "the op are often the same fault. Mend this one first.",
     "softmax.bf16_accumulation(x=bf16[64,129],seed=1)"},
    {Code::ac302, "AC302", Verdict::precision_contract, "keeps an intermediate in a lower precision than declared",
     "The value lies outside the interval of the declared precision. The formula with one intermediate rounded to a "
     "16-bit\n"
     "format gives nearly all of the kernel's numbers.",
     "Keep this intermediate in fp32: the cause line names it. If its rounding is meant, say so in the formula: "
     "stored(name, x).",
     "softmax.y_saved_in_bf16(x=fp32[5,7],seed=1)"},
    {Code::ac303, "AC303", Verdict::precision_contract, "flushes subnormals although the contract keeps them",
     "The value leaves the interval of the declared contract, and lies in that of a kernel that takes numbers below "
     "the\n"
     "smallest normal one for zero, as -ffast-math and --ftz=true do.",
     "Build without flushing, or declare it (flushes_subnormals). A zero may also come of a division by an overflow, "
     "dy / (1 + exp(-x)) at x = -100:\n"
     "a kernel of that algebra needs it as a form.",
     "add.flushes(x=fp32[5,67],range=subnormal,seed=1)"},
    {Code::ac304, "AC304", Verdict::precision_contract, "a function has fewer digits than declared",
     "The values leave the interval of the declared contract by small errors of either sign, on many elements, which "
     "no changed formula and\n"
     "no shorter accumulator explains: as of a fast or approximate exp, tanh, rsqrt or the like.",
     "Build without fast-math, or declare what the functions err by (the contract's math set, in ulps).",
     "softmax.exp_table(x=fp32[5,7],seed=1)"},
    {Code::ac305, "AC305", Verdict::precision_contract, "rounds toward zero",
     "The value leaves the interval of the declared contract, and nearly all of the kernel's numbers are the "
     "reference's, cut off at the digits\n"
     "of the storage type where the nearest number is due: a conversion that drops bits. Or sums of mirrored data "
     "round\n"
     "toward zero draw after draw: an accumulator that drops bits.",
     "Convert with rounding to nearest, as __float2bfloat16_rn does; a shift by 16 bits truncates.",
     "add.truncates(x=bf16[5,7],seed=1)"},
    {Code::ac401, "AC401", Verdict::structural, "result depends on what the output buffer held",
     "The same call with two different fills of its output buffers gave different bits: an element is not written,\n"
     "or is read before it is written. Of an output that overwrites its input: the values are wrong there, and right "
     "with a\n"
     "buffer of its own, so that the kernel reads elements of its input which it has already written over.",
     "Check the tail of each row and the bounds of the launch; in place, read all that a row needs before its first "
     "store.",
     "softmax.unwritten_last(x=bf16[5,7],seed=1)"},
    {Code::ac402, "AC402", Verdict::structural, "writes outside its tensors",
     "The guard bytes around an output or in the gaps of a strided one changed.",
     "Check the bounds of the launch and the strides that the stores use.", "softmax.overrun(x=bf16[5,7],seed=1)"},
    {Code::ac403, "AC403", Verdict::structural, "changes its inputs",
     "An input, a saved tensor or a cotangent holds other bits after the call.",
     "Write to the declared outputs only, or declare the output as in place.",
     "softmax.clobbers_cotangent(x=bf16[5,7],seed=1)"},
    {Code::ac404, "AC404", Verdict::structural, "repeats differ",
     "The same call gave different bits although the contract declares no atomics.",
     "Look for a race or unordered accumulation; declare atomics if they are meant.",
     "softmax.alternating_order(x=fp32[5,7],seed=1)"},
    {Code::ac405, "AC405", Verdict::structural, "rows are not independent",
     "Changing other rows changed this row's result, though the contract names the output as row-independent.",
     "Look for state carried from one row to the next, or a reduction over the wrong axis.",
     "softmax.stale_maximum(x=fp32[5,7],seed=1)"},
    {Code::ac406, "AC406", Verdict::structural, "wrong for strided tensors",
     "The same values in another memory layout leave the interval.",
     "Use each tensor's own strides; reject layouts that are not supported in the contract (strided = false).",
     "softmax.ignores_strides(x=bf16[5,7],layout=last2,seed=1)"},
    {Code::ac407, "AC407", Verdict::structural, "backward is not linear in the cotangent",
     "backward(2^k g) is not 2^k backward(g), bit for bit, where every intermediate stays normal.",
     "Something other than the cotangent enters: |g|, g^2, an additive epsilon, or no g at all.",
     "softmax.nonlinear(x=fp32[5,7],seed=1)"},
    {Code::ac408, "AC408", Verdict::structural, "does not accumulate as declared",
     "A gradient declared as accumulating does not equal what its buffer held plus the gradient.",
     "Add to the buffer, or declare that it is overwritten.", "add.overwrites(x=bf16[5,7],seed=1)"},
    {Code::ac409, "AC409", Verdict::structural, "results depend on batch size or row position",
     "A few rows alone, forward and backward, give other bits than the same rows among others, although the contract "
     "says\n"
     "that rows are independent and that the kernel is batch invariant. Each result may be right within rounding: "
     "another\n"
     "order of sums is enough.",
     "Choose tiles, splits of long sums and vector widths by the length of a row, never by the number of rows, and sum "
     "every\n"
     "row in the same way, the last ones of a block too. Without the promise (batch_invariant) the order of sums is "
     "free, and\n"
     "this is a note.",
     "softmax.order_by_batch(x=fp32[5,7],seed=2)"},
    {Code::ac410, "AC410", Verdict::structural, "depends on earlier calls",
     "The first call of a fresh process is right. After calls with other data, or after many calls, the same call "
     "gives "
     "other\n"
     "bits: results are kept by the addresses, the shapes or a few elements of the tensors, or calls are counted. The "
     "cause\n"
     "line says which. It is tried at the first standard case of each storage type: other data at the same and at "
     "other\n"
     "addresses, data with the same ends or sums, and 4,000 calls in a row. Other findings of such an op follow from "
     "it.",
     "Key what is kept by all that the result depends on, or keep nothing. A static buffer that is filled once is the "
     "usual\n"
     "mistake.",
     "rms_norm.cheat_by_shape(x=bf16[5,7],seed=1)"},
    {Code::ac411, "AC411", Verdict::structural, "writes after it has returned",
     "The output holds other bits 50 ms after the call has returned than right after it.",
     "Join the threads, or synchronise the stream, before the call returns.", nullptr,
     "STRUCTURAL  AC411  writes_later history y                             writes after it has returned\n"
     "  case    'writes_later(x=fp32[5,7],seed=1)'\n"
     "  where   35 of 35 elements\n"
     "  cause   what it wrote changes after the call has returned: work of its own still runs then"},
    {Code::ac412, "AC412", Verdict::structural, "replaces functions that others call",
     "`ampcheck verify` compares the functions of Python, numpy, torch and ampcheck before and after the solution is "
     "loaded\n"
     "and called. One of them is another one now: a timer, a comparison such as torch.allclose, an op. What the "
     "solution "
     "computes\n"
     "may be right; what anybody measures of it afterwards is not.",
     "Compute the result, and leave other modules as they are.", nullptr,
     "WRONG  STRUCTURAL AC412\n"
     "  cause   the solution replaces torch.allclose, time.perf_counter as it is loaded: whoever calls it afterwards "
     "gets the\n"
     "          solution's own"},
    {Code::ac501, "AC501", Verdict::crash, "the kernel threw or crashed", "The call did not return normally.",
     "Replay the case under a debugger, with --isolation none.", nullptr,
     "CRASH  AC501  segfault call                                           the kernel threw or crashed\n"
     "  case    'segfault(x=fp32[17,7],seed=1)'\n"
     "  where   1 of 1 elements\n"
     "  cause   its process was killed by signal 11 (Segmentation fault)\n"
     "  note    its inputs and cotangents follow from the case name, bit for bit; replay --save DIR writes the "
     "inputs before the call"},
    {Code::ac502, "AC502", Verdict::timeout, "the kernel did not return in time", "The call ran past its time limit.",
     "Replay the case under a debugger, with --isolation none.", nullptr,
     "TIMEOUT  AC502  loops call                                            the kernel did not return in time\n"
     "  case    'loops(x=fp32[17,7],seed=1)'\n"
     "  where   1 of 1 elements\n"
     "  cause   no answer in 1 s (--timeout); asked to end (should_cancel), it did not within 2 s and was killed\n"
     "  note    its inputs and cotangents follow from the case name, bit for bit; replay --save DIR writes the "
     "inputs before the call"},
    {Code::ac601, "AC601", Verdict::structural, "threads of a kernel race for memory",
     "Two threads use the same bytes of shared or global memory, at least one of them writes, and no barrier, warp\n"
     "synchronisation or atomic stands between them. Which one comes first is up to the GPU, so the result is too, "
     "even\n"
     "where this run's values are right. Both source lines are named. (Device ptx: kernels in PTX run on the CPU.)",
     "Put __syncthreads() or __syncwarp() between the two lines, also at the end of a loop whose next turn writes what "
     "this\n"
     "one reads. Between blocks only atomics or another launch help.",
     nullptr,
     "STRUCTURAL  AC601  shift simulated race                               threads of a kernel race for memory\n"
     "  case    'shift(x=fp32[5],seed=1)'\n"
     "  where   7 of 7 elements\n"
     "  cause   forward: shift.cu:4: thread 59 of block 0 writes 'part' in shared memory, byte 236, which thread 4 "
     "reads at shift.cu:5: want __syncthreads() between; 5 times"},
    {Code::ac602, "AC602", Verdict::structural, "a kernel reads memory that nothing wrote",
     "The bytes were never written: of shared memory by this block, of an output or a workspace by this launch. On a "
     "GPU\n"
     "they hold what an earlier kernel left there. (Device ptx.)",
     "Write the element first; where a tail is not filled, give it the neutral number of what is computed from it.",
     nullptr,
     "STRUCTURAL  AC602  shift simulated uninitialised read                 a kernel reads memory that nothing wrote\n"
     "  case    'shift(x=fp32[5],seed=1)'\n"
     "  where   6 of 6 elements\n"
     "  cause   forward: shift.cu:6: reads 'part' in shared memory, byte 252, which nothing wrote (thread 0 of block "
     "0); 5 times"},
    {Code::ac603, "AC603", Verdict::structural, "a kernel reads or writes outside its memory",
     "The address lies in no tensor, workspace or shared memory of this launch; of shared memory the line says how "
     "far\n"
     "behind its end. A GPU returns the bytes of a neighbour, or stops. (Device ptx: such reads give NaN, such writes "
     "are\n"
     "dropped, and the run goes on.)",
     "Look at the guard of the line (>= for >), at the size of the grid, and at the bytes of dynamic shared memory.",
     nullptr,
     "STRUCTURAL  AC603  shift simulated out of bounds                      a kernel reads or writes outside its "
     "memory\n"
     "  case    'shift(x=fp32[5],seed=1)'\n"
     "  where   6 of 6 elements\n"
     "  cause   forward: shift.cu:3: reads 4 bytes 0 bytes behind the end of 'x', which has 20 (thread 5 of block 0); "
     "118 times"},
    {Code::ac604, "AC604", Verdict::structural, "a barrier or warp operation that not all its threads reach",
     "A barrier at which some threads of the block do not arrive, or at which they arrive from different lines; or a\n"
     "shuffle, vote or __syncwarp whose mask names lanes that ended or wait elsewhere, or a shuffle from a lane "
     "outside\n"
     "the mask: its result is undefined. (Device ptx.)",
     "Move the barrier or the shuffle out of the branch, let threads without work take part with a neutral number, or "
     "build\n"
     "the mask with __ballot_sync before the branch.",
     nullptr,
     "STRUCTURAL  AC604  shift simulated warp mask                          a barrier or warp operation that not all "
     "its threads reach\n"
     "  case    'shift(x=fp32[5],seed=1)'\n"
     "  where   6 of 6 elements\n"
     "  cause   forward: shift.cu:4: lane 4 shuffles from lane 5, which does not take part: the value is undefined "
     "(thread 4 of block 0)"},
    {Code::ac605, "AC605", Verdict::structural, "a vector access that is not aligned",
     "An access of 2, 4, 8 or 16 bytes at an address that is no multiple of its size: a GPU stops with 'misaligned\n"
     "address'. (Device ptx.)",
     "Check the alignment of the pointer and of each row (a row of 33 floats makes float4 illegal), or load the head "
     "and the\n"
     "tail by scalars.",
     nullptr,
     "STRUCTURAL  AC605  shift simulated misaligned                         a vector access that is not aligned\n"
     "  case    'shift(x=fp32[5],seed=1)'\n"
     "  where   6 of 6 elements\n"
     "  cause   forward: shift.cu:4: reads 8 bytes at an address that is 4 bytes off a multiple of 8 (thread 0 of "
     "block 0); 2 times"},
};

constexpr bool in_order() {
  std::size_t at = 0;
  for (const CodeText& text : kTexts)
    if (static_cast<std::size_t>(text.code) != ++at) return false;
  return at == static_cast<std::size_t>(Code::ac605);
}
static_assert(in_order(), "each code has its row, in the order of the enum");

}  // namespace

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::rounding: return "ROUNDING";
    case Verdict::empty: return "EMPTY";
    case Verdict::skipped: return "SKIPPED";
    case Verdict::range:
    case Verdict::range_declared: return "RANGE";
    case Verdict::ill_conditioned: return "ILL_CONDITIONED";
    case Verdict::another_subgradient:
    case Verdict::non_smooth: return "NON_SMOOTH";
    case Verdict::bug: return "BUG";
    case Verdict::precision_contract: return "PRECISION_CONTRACT";
    case Verdict::structural: return "STRUCTURAL";
    case Verdict::timeout: return "TIMEOUT";
    case Verdict::crash: return "CRASH";
  }
  return "?";
}

bool convicts(Verdict verdict) { return verdict >= Verdict::ill_conditioned; }

std::span<const CodeText> code_texts() { return kTexts; }

const CodeText& text_of(Code code) { return kTexts[static_cast<std::size_t>(code) - 1]; }

const CodeText* find_code(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kTexts), std::end(kTexts), [&](const CodeText& text) { return text.name == name; });
  return found == std::end(kTexts) ? nullptr : found;
}

Code read_code(std::string_view name) {
  if (name.empty()) return Code::none;
  if (const CodeText* const text = find_code(name)) return text->code;
  throw Error("[code] got '" + std::string(name) + "', want the code of a finding (ampcheck explain lists all)");
}

const char* name(Code code) { return code == Code::none ? "" : text_of(code).name; }

std::ostream& operator<<(std::ostream& out, Code code) { return out << name(code); }

}  // namespace ampcheck
