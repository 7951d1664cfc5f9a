// SPDX-License-Identifier: Apache-2.0
#include "checks/diagnose/smallest_set.h"

#include <algorithm>
#include <map>

namespace ampcheck::checks::diagnose {

namespace {

class Memory {
 public:
  explicit Memory(const std::function<bool(const Ops&)>& works) : works_(works) {}
  bool operator()(const std::vector<std::string>& set) {
    const Ops ops(set.begin(), set.end());
    const auto [at, fresh] = known_.try_emplace(ops, false);
    if (fresh) at->second = works_(ops);
    return at->second;
  }
  int tried() const { return static_cast<int>(known_.size()); }

 private:
  const std::function<bool(const Ops&)>& works_;
  std::map<Ops, bool> known_;
};

std::vector<std::string> part(const std::vector<std::string>& of, std::size_t i, std::size_t parts, bool without) {
  const std::size_t begin = of.size() * i / parts, end = of.size() * (i + 1) / parts;
  std::vector<std::string> out;
  for (std::size_t k = 0; k < of.size(); ++k)
    if ((k >= begin && k < end) != without) out.push_back(of[k]);
  return out;
}

/// A smaller set that works, of `parts` parts or their complements.
bool shrink(std::vector<std::string>& set, std::size_t parts, bool complements, Memory& works) {
  for (std::size_t i = 0; i < parts; ++i) {
    std::vector<std::string> smaller = part(set, i, parts, complements);
    if (smaller.empty() || smaller.size() == set.size() || !works(smaller)) continue;
    set = std::move(smaller);
    return true;
  }
  return false;
}

std::vector<std::string> minimal(std::vector<std::string> set, Memory& works) {
  std::size_t parts = 2;
  while (set.size() > 1) {
    if (shrink(set, parts, false, works)) {
      parts = 2;
    } else if (parts > 2 && shrink(set, parts, true, works)) {
      parts = std::max<std::size_t>(parts - 1, 2);
    } else if (parts < set.size()) {
      parts = std::min(2 * parts, set.size());
    } else {
      break;
    }
  }
  return set;
}

}  // namespace

Search smallest_set(const std::vector<std::string>& all, const std::vector<std::string>& likely,
                    const std::function<bool(const Ops&)>& works) {
  Memory memory(works);
  Search out;
  std::vector<std::string> from = !likely.empty() && memory(likely) ? likely : all;
  out.known = !from.empty() && memory(from);
  if (out.known) {
    from = minimal(std::move(from), memory);
    out.ops = Ops(from.begin(), from.end());
  }
  out.tried = memory.tried();
  return out;
}

}  // namespace ampcheck::checks::diagnose
