// SPDX-License-Identifier: Apache-2.0
// Which values of an input put a node of a formula into a set, found by going back through the primitives between them.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "reference/graph/expr.h"

namespace ampcheck::checks {

/// Closed pieces of the real line, ascending and apart; ends may be infinite. Open ends count as closed: data rounds
/// anyway.
using Pieces = std::vector<std::pair<double, double>>;

/// The pieces that both have, and what stands in either, put in order.
Pieces intersected(const Pieces& a, const Pieces& b);
Pieces joined(Pieces a, const Pieces& b);

/// Values of `leaf`, all its elements equal, for which `node` lies in `wanted`. `typical(id)` is the value of a node
/// that does not follow from the leaf. Nothing where the leaf is reached by more than one way, or through a primitive
/// that has no inverse here (matmul, a choice).
std::optional<Pieces> preimage(const reference::Graph& graph, int node, const Pieces& wanted, int leaf,
                               const std::function<double(int)>& typical);

/// The same for one side of a condition: a comparison, or what products, sums, differences from 1 and maxima make of
/// several.
std::optional<Pieces> preimage_of_condition(const reference::Graph& graph, int condition, bool yes, int leaf,
                                            const std::function<double(int)>& typical);

}  // namespace ampcheck::checks
