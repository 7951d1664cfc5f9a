// SPDX-License-Identifier: Apache-2.0
// Statistical BUG: sums whose every element lies in its interval, and that nevertheless round to one side.
//
// The interval of a long sum is wide, so that an accumulator that truncates stays inside. What tells it from a right
// one is a symmetry. A tensor holds large numbers that cancel (+C at one end of an axis, -C at the other) and small
// ones d between them; its mirror image holds the same large numbers and -d. Let every term enter with the same power
// of two and every partial sum of the large ones alone be B = k C for a whole k. Then for round to nearest even, RN(B +
// e) - B = -(RN(B - e) - B): B is a multiple of the spacing, with 2 B an even one, and as C is an odd number (129 to
// 255) times a power of two, no k C is so near to a power of two that B + e and B - e are of different binades. By
// induction over the additions the mirrored sum is the mirror image of the sum, bit for bit, in any order of summation,
// in any tree, fused, compensated, or in a wider type: an element whose large numbers cancel is got(d) = -got(-d).
//
// So got(d) + got(-d) is 0 for a right kernel that repeats. Where its order changes from call to call, both runs draw
// theirs alike, and the sum of the two is as often positive as negative. That is the null hypothesis, and the test is
// an exact two-sided sign test over draws of fresh C and d: of n draws that are not 0 and of which k have one sign, p =
// 2 P(Binomial(n, 1/2) >= max(k, n - k)).
//
// Tensor cores cut off toward zero by design: products of matrices are not tested where the contract declares them.
#pragma once

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Chance that a run of up to kBiasLooks looks convicts a right kernel by this test: each look may err with kBiasAlarm
/// / kBiasLooks. A tensor has two: toward zero or away from it, up or down. The built-in ops make 72.
/// checks/judge/correlation.h takes its looks from the same number.
inline constexpr double kBiasAlarm = 1e-9;
inline constexpr int kBiasLooks = 1000;
/// Pairs of runs that the test takes, always all of them; it is not made where the first kFirstDraws are all 0.
inline constexpr int kBiasDraws = 64;
inline constexpr int kFirstDraws = 4;

/// Values of the leaves of a recording: inputs, and those cotangents that are given.
Leaves leaves_of(const reference::Recording& recording, const NamedValues& values);

/// Whether the target is a sum of elements of `source`, each times something that does not depend on it.
bool is_sum_of(const reference::Graph& graph, reference::Expr source, reference::Expr target);

/// Whether elements of `source` enter a product of matrices on their way to the target.
bool enters_product(const reference::Graph& graph, reference::Expr source, reference::Expr target);

/// Whether the target is a sum of elements of `source`, each times the same power of two or left out, whatever form of
/// the op computes it: then the test above holds. `values`: of the leaves other than the source, at which that is to be
/// so.
bool sums_alike(const reference::Recording& recording, reference::Expr source, reference::Expr target,
                const NamedValues& values);

/// Tensors with elements outside their intervals: no test of chance adds to that.
std::set<std::string> convicted_tensors(const CaseRun& run);

/// Makes the test for every output and gradient that is such a sum, once an op and storage type: at its default case.
/// Nothing on other devices than the CPU, whose matrix units may truncate by design, nor where the contract has an
/// accumulator shorter than fp32. An element outside its interval is left to the judge. An axis at whose long shape the
/// kernel throws has a check "bias along D" of verdict SKIPPED, whose note says why.
void check_bias(CaseRun& run);

/// What those checks of a run say, once an op and axis.
std::vector<std::string> untested_bias(const std::vector<CaseResult>& cases);

}  // namespace ampcheck::checks
