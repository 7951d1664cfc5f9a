// SPDX-License-Identifier: Apache-2.0
// A wider bound than the ball's, for numbers that it leaves outside: what a kernel may compute that regroups the
// formula by the laws of arithmetic. Beside any order of sums and of products (rules R3, R4) it may take a factor into
// a sum or out of it: s * sum(x) for sum(s * x), a + t * (b - a) for (1 - t) * a + t * b. The state of a sum (number of
// terms, their mass, radius without its roundings, lowest set bit) therefore goes through products with one factor; two
// sums are multiplied as they are, since no kernel expands them.
//
// No grouping may cancel, overflow or make a NaN where the formula as written does not. So the radius is no more than a
// small multiple of the formula's own, at inputs that are known to one rounding: what it subtracts itself may err as
// its operands do. And the largest intermediate of any grouping (a product of the sizes of all factors, none below 1,
// added up over terms) excuses an overflow only where the formula's own largest one is near the end of the range too.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reference/ball/ball.h"

namespace ampcheck::reference {

struct Regrouped {
  std::vector<double> value, radius;
  std::vector<char> overflows;  ///< some grouping has an intermediate beyond max_finite
};

/// Of a target, from exact values of the leaves and of whatever else is given; `held`: one more term for each element,
/// if any. Scalar and slow: about 50 ns an operation.
Regrouped regrouped(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves, Expr target,
                    const Arithmetic& arithmetic, std::span<const double> held = {});

/// Which elements of a target depend on an infinite (1) or NaN (2) element of a leaf, or both, if only by a choice that
/// it takes part in; nothing where the target follows from no choice (a condition, a maximum). What a gradient is
/// behind a choice by NaN the formula leaves open; where it is 0 times infinity or NaN, a kernel that selects has a
/// number and one that multiplies by a mask has NaN.
std::vector<char> behind_choices(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves,
                                 Expr target);

/// Whether there is something to regroup on the way to a target: a sum or difference.
bool adds_up(const Graph& graph, Expr target);

/// How many operations that takes.
double operations_of(const Graph& graph, Expr target);

}  // namespace ampcheck::reference
