// SPDX-License-Identifier: Apache-2.0
// A condition whose edge lies elsewhere: found from which elements are wrong.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

void FormulaChanges::edge_moved(int id) {
  constexpr double kOfEdges = 12;
  const Node& node = graph_.node(id);
  if (values(id).size() != values(target_.id).size() || written_ == nullptr) return;
  const Values a = spread(node, 0), b = spread(node, 1);
  Values turned = values(id);
  for (const std::int64_t at : written_->outside) {
    double& v = turned[static_cast<std::size_t>(at)];
    v = 1 - v;
  }
  // The sides of a moved edge: all that is true now lies below all that is not.
  double most = -HUGE_VAL, least = HUGE_VAL;
  for (std::size_t i = 0; i < turned.size(); ++i) {
    const double off = a[i] - b[i];
    if (!std::isfinite(off)) continue;
    if (turned[i] != 0)
      most = std::max(most, off);
    else
      least = std::min(least, off);
  }
  if (!(most < least) || !std::isfinite(most) || !std::isfinite(least)) return;
  Change change{.words =
                    fmt::format("with {} less {} compared to a number between {:.4g} and {:.4g} for 0: another edge "
                                "of the condition",
                                text(node.args[0]), text(node.args[1]), most, least)};
  change.freedom = kOfEdges;
  with(id, std::move(turned), std::move(change));
}

}  // namespace ampcheck::reference
