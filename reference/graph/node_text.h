// SPDX-License-Identifier: Apache-2.0
// Nodes of a graph in words.
#pragma once

#include <map>
#include <string>

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// Names of nodes that a reader knows: the outputs of a formula.
using NodeNames = std::map<int, std::string>;

/// A node as a reader would write it, with those names and names of leaves and of stored nodes; "..." below a few
/// levels.
std::string text_of(const Graph& graph, int id, const NodeNames& names = {});

/// Whole numbers of a formula under the name that its reader knows: "arange(T)", an index input.
Expr named(Expr indicator, const std::string& name);

/// What was added up or repeated only so that shapes fit: nothing that a reader would write.
bool silent(const Graph& graph, const Node& node);

/// The 1/n of a mean.
bool is_share(const Node& node);

}  // namespace ampcheck::reference
