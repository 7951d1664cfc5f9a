// SPDX-License-Identifier: Apache-2.0
// A change in one use of a number. The graph has each number once; a kernel computes it anew where it needs it, and may
// be right in one place and wrong in another: the query of a score, and the query that dk is a sum of.
#include <fmt/format.h>

#include "reference/replay/formula_changes.h"

namespace ampcheck::reference {

namespace {

constexpr double kOfUses = 4;           ///< bits of choice among the uses of a node
constexpr double kOfChangesInUses = 8;  ///< and among the simple slips, which say nothing of their own choice

}  // namespace

void FormulaChanges::list_uses() {
  uses_.assign(needed_.size(), {});
  for (std::size_t user = 0; user < needed_.size(); ++user) {
    const auto id = static_cast<int>(user);
    if (!needed_[user] || given(id)) continue;
    const Node& node = graph_.node(id);
    for (std::size_t k = 0; k < node.args.size(); ++k) uses_[static_cast<std::size_t>(node.args[k])].push_back({id, k});
  }
}

void FormulaChanges::in_one_use(int id, Values other, Change change) {
  constexpr int kLongest = 4;  // steps to where the uses part
  for (int step = 0; uses_[static_cast<std::size_t>(id)].size() == 1; ++step) {
    if (step == kLongest || id == target_.id || (left_ -= graph_.node(id).shape.count()) < 0) return;
    const Use use = uses_[static_cast<std::size_t>(id)].front();
    other = evaluator_.value_if_argument(use.user, use.arg, std::move(other));
    id = use.user;
  }
  if (other == values(id)) return;
  const std::string words = change.words;
  change.freedom = std::max(change.freedom, kOfChangesInUses) + kOfUses;
  for (const Use& use : uses_[static_cast<std::size_t>(id)]) {
    if (!going_ || left_ <= 0) return;
    change.words = fmt::format("{}, in {} alone", words, text(use.user));
    if (only_ != nullptr && !same_change(change.words, *only_)) continue;
    all_with({{use.user, evaluator_.value_if_argument(use.user, use.arg, other)}}, change);
  }
}

void FormulaChanges::one_use_each() {
  if (only_ != nullptr && !only_->words.ends_with(" alone")) return;
  list_uses();
  in_one_use_ = true;
  const std::vector<int> at_hand = numbers_at_hand();
  if (enters(-1)) leaves_exchanged(at_hand);
  for (std::size_t id = needed_.size(); id-- > 0 && going_;) {
    const auto node = static_cast<int>(id);
    if (!needed_[id] || uses_[id].empty() || graph_.node(node).primitive == Primitive::indicator || !enters(node))
      continue;
    change(node);
    if (!given(node) && !graph_.node(node).args.empty()) functions_exchanged(node);
  }
  for (const int id : at_hand)
    if (needed_[static_cast<std::size_t>(id)] && !uses_[static_cast<std::size_t>(id)].empty() && enters(id))
      put_between(id);
  in_one_use_ = false;
}

}  // namespace ampcheck::reference
