// SPDX-License-Identifier: Apache-2.0
// What is said of many failing cases: why the first ones fail, and the smallest one that fails alike: in shape, then in
// attributes, layout and data, as far as a name can say it.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "checks/run/runner.h"

namespace ampcheck::checks {

/// Runs one case.
using RunOne = std::function<CaseResult(const OpDef&, const OpCall&)>;

/// Whether two results of an op say the same: the same code, or both wrong numbers, on the same tensor in the same
/// pass.
bool fails_alike(const CaseResult& a, const CaseResult& b);

/// Whether one may say why the other fails: alike, or both with wrong numbers in the same tensor, finite or not.
bool may_say_why(const CaseResult& like, const CaseResult& result);

/// Whether the finding that decides a case says why the kernel is wrong.
bool says_why(const CaseResult& result);
/// Whether it names a reason that another case may quote.
bool gives_a_reason(const CaseResult& result);

/// Of so many cases of one kind: the first, one in the middle and the last. They have other extents and data.
std::set<std::size_t> that_differ(std::size_t count);
/// Whether it is small enough to be explained only because others do not say why.
bool is_cheap_to_explain(const CaseResult& result);

/// Adds to a result what a case that fails alike says of the same tensors: the contract that they break, that they are
/// lost to the range, or the cause in words.
void explain_as(const CaseResult& like, CaseResult& result);

/// The smallest case found in at most `most_tries` runs; nothing if none is smaller, or the case is bound to saved
/// tensors or hangs. Every extent is brought down to where a smaller one no longer fails, by halving what lies between;
/// it need not be the least of all.
std::optional<OpCall> shrink(const OpDef& op, const OpCall& call, const CaseResult& result, const RunOne& run,
                             int most_tries = 60);

/// Explains the first failing cases of each kind (op, storage type, verdict, tensor) of results that were judged
/// without, three each, and three of the others where these do not say why. Those that do not say it take it over from
/// the first that does, and all others of the kind what most of the first three say.
void explain_failures(const std::vector<Case>& cases, const RunOptions& options, std::vector<CaseResult>& results);

/// Notes the smallest case for the first failing case of each op and of each kind, of the latter until `most` are
/// chosen, and the few values that it takes.
void shrink_failures(const std::vector<Case>& cases, const RunOptions& options, std::vector<CaseResult>& results,
                     std::size_t most = 10);

}  // namespace ampcheck::checks
