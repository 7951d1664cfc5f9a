// SPDX-License-Identifier: Apache-2.0
// How likely a kernel's bits are under a precision contract: by the intervals of its forms, and by replays of its sums.
#pragma once

#include <cmath>
#include <compare>
#include <string>
#include <vector>

#include "checks/case/case_run.h"
#include "checks/run/contract.h"

namespace ampcheck::checks {

/// One tensor that the kernel wrote, and how to ask for its interval again.
struct Wrote {
  const OpCall* call;
  Pass pass;
  Written tensor;
  std::vector<double> got;
  NamedValues cotangents;
};

OpDef with_contract(const OpDef& op, const PrecisionContract& contract);

/// The cases at which `read_contract` runs a kernel of this storage type.
std::vector<OpCall> contract_calls(const OpDef& op, Dtype storage, std::uint64_t seed);
/// Runs the kernel there, twice: what it wrote, with `out` told how many cases and elements these are and whether the
/// bits repeat. The calls must stay where they are.
std::vector<Wrote> run_for_contract(const OpDef& op, const std::vector<OpCall>& calls, ContractReading& out);
/// The orders of sums alone, in fp32.
void read_order(const OpDef& op, const std::vector<Wrote>& wrote, ContractReading& out);
/// What these tensors say of the contract of whoever wrote them, a kernel or a stack that was dumped.
void read_written(const OpDef& op, const std::vector<OpCall>& calls, const std::vector<Wrote>& wrote,
                  ContractReading& out);

inline constexpr double kUnjudged = 1;  ///< in place of a log10 of a likelihood, which is never positive

/// log10 of how likely each number of the kernel is under a contract, all tensors one after the other: it is any of
/// those in its interval. kUnjudged where no form says anything of it.
std::vector<double> likelihoods(const OpDef& op, const PrecisionContract& contract, const std::vector<Wrote>& all);

/// Adds up what was judged under every contract of the field.
void add_up(const std::vector<std::vector<double>>& each, std::vector<Reading>& readings);

/// The likeliest first; readings were listed with the narrower promise first.
void rank(std::vector<Reading>& readings);

/// Of each of `count` contracts, which `set` makes of the base.
template <class Set>
std::vector<Reading> readings(const OpDef& op, const PrecisionContract& base, const std::vector<Wrote>& wrote,
                              std::size_t count, const Set& set) {
  std::vector<Reading> out(count);
  std::vector<std::vector<double>> each;
  for (std::size_t k = 0; k < count; ++k) {
    PrecisionContract contract = base;
    set(k, contract, out[k]);
    each.push_back(likelihoods(op, contract, wrote));
  }
  add_up(each, out);
  return out;
}

/// One NaN is as good as another.
inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// What one replay does with its sums.
struct SumKind {
  std::string form;
  reference::SumOrder order;
  bool fused;
  auto operator<=>(const SumKind&) const = default;
};

/// All forms in every order, rounded to storage, with products rounded before they are added and, if asked for, also
/// with fma: [which][element].
std::vector<std::vector<double>> replays(const OpDef& op, CaseRun& run, const Wrote& w, Dtype accumulate,
                                         bool fused_too, std::vector<SumKind>& which);

/// How likely the kernel's errors are if sums run in this type: Laplace's distribution about the reference, as wide as
/// the errors of replays. An interval holds the worst errors, and those of a wider accumulator are often no larger than
/// the usual ones of a shorter.
struct ByReplays {
  std::vector<double> likelihood;
  std::int64_t refuted = 0;  ///< elements that such sums cannot give although their interval admits them
};
ByReplays likelihoods_by_replays(const OpDef& op, const PrecisionContract& base, const std::vector<Wrote>& wrote,
                                 Dtype accumulate);

}  // namespace ampcheck::checks
