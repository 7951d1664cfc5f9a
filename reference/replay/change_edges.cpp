// SPDX-License-Identifier: Apache-2.0
// A condition whose edge lies elsewhere: found from which elements are wrong.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

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
  change.edge = {most, least};
  if (only_ != nullptr) {  // of other data, which leave it open elsewhere
    const std::size_t end = change.words.find(" compared to ");
    if (!only_->edge || only_->edge->first > least || only_->edge->second < most ||
        !only_->words.starts_with(change.words.substr(0, end)))
      return;
    change.words = only_->words;
  }
  with(id, std::move(turned), std::move(change));
}

namespace {

/// The numbers of the wrong elements on one side of an edge, and those right ones that tell on the other.
std::optional<std::pair<double, double>> edge_of(const std::vector<double>& by, const std::vector<char>& taken,
                                                 const std::vector<char>& tells, bool above) {
  double inner = above ? HUGE_VAL : -HUGE_VAL, outer = -inner;
  for (std::size_t i = 0; i < by.size(); ++i) {
    if (!taken[i] && !tells[i]) continue;
    if (!std::isfinite(by[i])) return std::nullopt;
    if (taken[i])
      inner = above ? std::min(inner, by[i]) : std::max(inner, by[i]);
    else
      outer = above ? std::max(outer, by[i]) : std::min(outer, by[i]);
  }
  if (above ? !(outer < inner) : !(inner < outer)) return std::nullopt;
  if (!std::isfinite(outer)) return std::nullopt;  // all are wrong: it is no branch
  return above ? std::pair(outer, inner) : std::pair(inner, outer);
}

}  // namespace

void FormulaChanges::branch_taken(const std::vector<int>& at_hand) {
  constexpr double kOfBranches = 14;
  if (written_ == nullptr || written_->outside.empty()) return;
  const Values own = values(target_.id);
  std::vector<char> taken(own.size(), 0);
  for (const std::int64_t at : written_->outside) taken[static_cast<std::size_t>(at)] = 1;
  const auto try_branch = [&](const Values& other, const std::string& what) {
    if (!going_ || (left_ -= std::ssize(own)) < 0) return;
    std::vector<char> tells(own.size(), 0);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (taken[i] && !(std::fabs(other[i] - written_->got[i]) <= written_->room(i))) return;
      tells[i] = !taken[i] && std::fabs(other[i] - own[i]) > written_->room(i);
    }
    for (const int by : at_hand) {
      if (values(by).size() != own.size()) continue;
      for (const bool above : {true, false}) {
        const auto edge = edge_of(values(by), taken, tells, above);
        if (!edge) continue;
        Values out = own;
        for (std::size_t i = 0; i < out.size(); ++i)
          if (taken[i]) out[i] = other[i];
        Change change =
            chosen(fmt::format("with {} where {} is {} a number between {:.4g} and {:.4g}: another branch, a "
                               "threshold",
                               what, text(by), above ? "above" : "below", edge->first, edge->second),
                   kOfBranches);
        change.edge = edge;
        if (only_ != nullptr) {
          const std::size_t end = change.words.find(" a number between ");
          if (!only_->edge || only_->edge->first > edge->second || only_->edge->second < edge->first ||
              !only_->words.starts_with(change.words.substr(0, end)))
            continue;
          change.words = only_->words;
        }
        with(target_.id, std::move(out), std::move(change));
        return;  // the first that separates them
      }
    }
  };
  for (const int id : at_hand)
    if (values(id).size() == own.size() && id != target_.id) try_branch(values(id), text(id));
  try_branch(Values(own.size(), 0.0), "0");
  try_branch(Values(own.size(), 1.0), "1");
}

}  // namespace ampcheck::reference
