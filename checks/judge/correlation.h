// SPDX-License-Identifier: Apache-2.0
// Statistical BUG: errors of a row that go together, although every element lies in its interval and their mean over
// seeds is zero.
//
// A statistic of a row (inv_std, a mean, the denominator of softmax) that is computed too coarsely gives all elements
// of the row one relative error or one shift, of random sign from row to row: the test for bias is blind to it, and the
// interval of a row of n elements has room for n/2 units. With e = got - exact (exact: fp64 of the formula) and a row
// of m elements, the two statistics of a tensor at a seed are
//   factor  sum over rows of (sum e y / sum y^2)^2        shift  sum over rows of (sum e / m)^2 / (sum y^2 / m)
// Roundings that are independent within a row, storage's too, leave of each the m-th part.
//
// Two null hypotheses, and a kernel must beat both at a seed:
// - Its errors are independent. Their signs are drawn afresh 15 times, element by element: independent errors of either
// sign are as likely one of
//   these as themselves, so that theirs is the largest statistic of the 16 with a chance of 1/16. Needs no model of the
//   kernel's sums.
// - Its errors go together as those of right kernels do, whose row statistics round too, once or at every step of a
// sum. At the same seed
//   the formula is replayed in fp32 in every declared form and every order of summation of reference/replay/replay.h,
//   and each elementwise operation errs by as much as the contract lets the least accurate of the functions used, up or
//   down by a random bit, and in half of the replays each function always to one side, as a polynomial of few terms
//   does. A right kernel errs by that much nowhere but at its worst arguments: its statistic exceeds the largest one of
//   these replays with a chance of at most 1/2.
// The test is the sign test of checks/judge/bias.h over kBiasDraws fresh seeds: convicted is what beats both in 61
// of 64.
//
// Neither alone is a null: a right fma, Welford or another grouping of the row statistics exceeds plain replays at
// every seed, and a conv2d that sums otherwise than the replays exceeds all of them at 59 of 64 seeds, by independent
// errors. Measured at 16 rows of 8, 64 and 256 elements, 20 seeds each, as the ratio of the root of the statistic to
// that of the largest replay, 2 ulp per operation, without one-sided functions:
//   layer_norm, rms_norm, softmax, log_softmax and their correct variants: medians up to 0.6; beyond 1 at 2 of 20 seeds
//   for the shift of Welford's at 256 elements, and nowhere else; against plain replays medians up to 1.7; a factor of
//   +-8 u per row (u = 2^-24), by row length: layer_norm 1.6 to 2.0, rms_norm 1.6 to 1.7, log_softmax 2.1 to 2.6,
//   beyond 1 at all seeds.
// What the test cannot see: factors below the allowance (2 ulp of rsqrt make some 4 u), errors that go with another
// tensor than the output itself (a cotangent) or down a column, saved statistics (one number a row), and anything
// behind 16-bit storage, whose roundings are larger.
#pragma once

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// The statistics of a tensor of rows of `columns` elements; those of rows whose exact values are all zero are left
/// out.
struct RowErrors {
  double factor = 0, shift = 0;
};
RowErrors row_errors(const std::vector<double>& got, const std::vector<double>& exact, std::size_t columns);

/// Makes the test for every output and gradient in fp32 storage with at least kFewestRows rows, once an op: at its
/// default case, with 16 rows of 64 elements where the op takes such shapes. Not on devices other than the CPU, nor
/// where the contract computes or accumulates in less than fp32. A tensor with elements outside its interval is left to
/// the judge.
inline constexpr std::int64_t kFewestRows = 8;
void check_correlation(CaseRun& run);

}  // namespace ampcheck::checks
