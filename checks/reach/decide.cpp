// SPDX-License-Identifier: Apache-2.0
#include "checks/reach/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "checks/reach/visible.h"
#include "src/parallel.h"

namespace ampcheck::checks {

namespace {

constexpr double kMost = 0.5;               ///< such a share of an output decides it
constexpr std::int64_t kLarge = 1 << 12;    ///< elements of a case that others may be too small for
constexpr std::int64_t kLargest = 1 << 19;  ///< of one whose reference is evaluated at other data
constexpr const char* kSharp[] = {"integers1", "positive", "ones",
                                  "spike"};  ///< sums that are exact in any order, or far from zero
constexpr const char* kSharpCotangents[] = {"ones", "integers255"};

std::int64_t largest_tensor(const Case& item) {
  std::int64_t largest = 0;
  for (const TensorSpec& spec : item.op->signature.inputs)
    if (item.call.has(spec)) largest = std::max(largest, item.call.shape(spec).count());
  return largest;
}

/// Whether every extent of `a` is at least that of `b`.
bool covers(const OpCall& a, const OpCall& b) {
  return std::all_of(b.dims.begin(), b.dims.end(), [&](const auto& dim) {
    const auto own = a.dims.find(dim.first);
    return own != a.dims.end() && own->second >= dim.second;
  });
}

/// The cases that compared an output, and whether they saw any of it.
struct Seen {
  std::vector<std::size_t> blind, seen;
};
using BySubject = std::map<std::pair<const OpDef*, CheckId>, Seen>;

BySubject by_subject(const std::vector<Case>& cases, const std::vector<CaseResult>& results) {
  BySubject out;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (results[i].unjudged() > 0 || cases[i].op->forms.empty()) continue;
    std::map<CheckId, bool> sees;  // in some probe
    for (const CheckResult& check : results[i].checks)
      if (check.compared > 0 && is_of_pass(check.id)) sees[subject_of(check)] |= check.blind < check.compared;
    for (const auto& [subject, visible] : sees) {
      Seen& at = out[{cases[i].op, subject}];
      (visible ? at.seen : at.blind).push_back(i);
    }
  }
  return out;
}

/// The largest of the cases that no case at least as large sees, one for each storage type; of an output that nobody
/// sees the largest of all.
std::vector<Decision> wanted(const std::vector<Case>& cases, const BySubject& subjects) {
  std::vector<Decision> out;
  for (const auto& [key, at] : subjects) {
    std::map<Dtype, std::size_t> largest;
    for (const std::size_t i : at.blind) {
      const bool small = !at.seen.empty() && largest_tensor(cases[i]) < kLarge;
      const auto sees = [&](std::size_t k) {
        return cases[k].call.storage == cases[i].call.storage && covers(cases[k].call, cases[i].call);
      };
      if (small || is_file_range(cases[i].call.range) || is_real_range(cases[i].call.range) ||
          std::any_of(at.seen.begin(), at.seen.end(), sees))
        continue;
      const auto [best, is_new] = largest.try_emplace(cases[i].call.storage, i);
      if (!is_new && largest_tensor(cases[best->second]) < largest_tensor(cases[i])) best->second = i;
    }
    for (const auto& [storage, i] : largest) out.push_back({key.first, key.second, cases[i].call, at.seen.empty()});
  }
  // In the order of the cases, not of addresses.
  std::map<const OpDef*, std::size_t> order;
  for (std::size_t i = 0; i < cases.size(); ++i) order.try_emplace(cases[i].op, i);
  std::stable_sort(out.begin(), out.end(),
                   [&](const Decision& a, const Decision& b) { return order.at(a.op) < order.at(b.op); });
  return out;
}

bool shows(const Decision& decision, const OpCall& call) {
  try {
    return visible_share(*decision.op, call, decision.subject) >= kMost;
  } catch (const std::exception&) {  // extents that the formula does not take, or more memory than there is
    return false;
  }
}

/// The same extents at data that shows most of the output; the first that will do, or nothing.
std::optional<OpCall> at_sharp_data(const Decision& decision) {
  const bool forward = decision.subject.kind == CheckId::Kind::forward;
  for (const char* range : kSharp)
    for (const char* cotangent : kSharpCotangents) {
      OpCall call = decision.blind;
      call.range = range;
      call.cotangent = forward ? call.cotangent : cotangent;
      if (shows(decision, call)) return call;
      if (forward) break;
    }
  return std::nullopt;
}

/// The same data at half the extents, and so on, until most of the output shows.
std::optional<OpCall> at_sharp_extents(const Decision& decision) {
  OpCall call = decision.blind;
  const OpSignature& signature = decision.op->signature;
  for (;;) {
    bool smaller = false;
    for (auto& [symbol, extent] : call.dims)
      if (extent > 1) {
        extent = extent / 2;
        smaller = true;
      }
    if (!smaller) return std::nullopt;
    if (signature.valid && !signature.valid(call.dims, call.attributes)) continue;
    if (shows(decision, call)) return call;
  }
}

void decide(Decision& decision) {
  if (largest_tensor({decision.op, decision.blind}) <= kLargest)
    if (const auto call = at_sharp_data(decision)) decision.at.push_back(*call);
  if (!decision.everywhere) return;
  if (const auto call = at_sharp_extents(decision)) decision.at.push_back(*call);
  if (!decision.at.empty()) return;
  const VisibleCase found =
      find_visible_case(*decision.op, decision.blind.storage, decision.subject, decision.blind.seed);
  if (!found.name.empty()) decision.at.push_back(parse_call(found.name, decision.op->signature));
}

}  // namespace

std::vector<Decision> decisions(const std::vector<Case>& cases, const std::vector<CaseResult>& results,
                                const std::atomic<bool>* cancel) {
  std::vector<Decision> out = wanted(cases, by_subject(cases, results));
  parallel_for(std::ssize(out), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k)
      if (cancel == nullptr || !cancel->load()) decide(out[k]);
  });
  return out;
}

std::vector<std::string> decision_notes(const std::vector<Decision>& decided, const std::vector<CaseResult>& results,
                                        bool all) {
  std::vector<std::string> out;
  for (const Decision& decision : decided) {
    std::string where;
    bool wrong = false;
    for (const OpCall& call : decision.at) {
      const std::string case_name = call.str(decision.op->signature);
      const auto result = std::find_if(results.begin(), results.end(), [&](const CaseResult& r) {
        return r.name == case_name && r.op == decision.op->signature.name;
      });
      if (result == results.end()) continue;
      wrong |= convicts(result->verdict);
      where += fmt::format("{}decided at '{}': {}", where.empty() ? "" : ", and ", case_name,
                           convicts(result->verdict) ? std::string(name(result->code)) + " there" : "right there");
    }
    if (where.empty() || !(all || decision.everywhere || wrong)) continue;
    const std::string what =
        decision.everywhere ? "every interval would accept both 0 and twice the value, so it was not judged (AC202)"
                            : fmt::format("blind at '{}', and no case as large sees it (AC202)",
                                          decision.blind.str(decision.op->signature));
    out.push_back(fmt::format("{} {}: {}; {}", decision.op->signature.name, name(decision.subject), what, where));
  }
  return out;
}

std::vector<std::string> convict_unseen_outputs(std::vector<CaseResult>& cases) {
  constexpr int kFewest = 8;
  struct Seen {
    int all = 0, blind = 0;
    const CaseResult* first = nullptr;
  };
  std::map<std::pair<std::string, CheckId>, Seen> seen;  // by op and output
  const auto whole = [](const CheckResult& check) { return check.compared > 0 && check.blind == check.compared; };
  for (const CaseResult& c : cases)
    for (const CheckResult& check : c.checks)
      if (check.compared > 0 && is_of_pass(check.id)) {
        Seen& at = seen[{c.op, subject_of(check)}];
        ++at.all;
        at.blind += whole(check);
        if (at.first == nullptr) at.first = &c;
      }
  std::vector<std::string> notes;
  for (const auto& [key, at] : seen)
    if (at.blind == at.all && at.all < kFewest)
      notes.push_back(fmt::format(
          "{} {}: every interval would accept both 0 and twice the value, so it was not judged (AC202); "
          "ampcheck replay {}'{}' says where it is seen",
          key.first, name(key.second), at.first->plugin.empty() ? "" : at.first->plugin + " ", at.first->name));
  for (CaseResult& c : cases)
    for (CheckResult& check : c.checks) {
      const auto found = seen.find({c.op, subject_of(check)});
      if (found == seen.end() || found->second.all < kFewest || found->second.all != found->second.blind ||
          !whole(check))
        continue;
      check.verdict = Verdict::ill_conditioned;
      if (!convicts(c.verdict)) {
        c.verdict = check.verdict;
        c.code = check.code;
      }
    }
  return notes;
}

}  // namespace ampcheck::checks
