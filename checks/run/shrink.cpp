// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/shrink.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "checks/explain/diagnosis.h"
#include "checks/run/conclude.h"
#include "src/parallel.h"

namespace ampcheck::checks {

namespace {

std::optional<CheckId> subject(const CaseResult& result) {
  const CheckResult* const check = deciding_check(result);
  return check == nullptr ? std::nullopt : std::optional(subject_of(*check));
}

/// A verdict and its code; of wrong numbers the same, however a replay explains them: a small case may not show by
/// what, and whether a number is lost to the range is an explanation too.
std::pair<Verdict, Code> kind_of(const CaseResult& result) {
  return result.code == Code::ac101 || result.verdict == Verdict::precision_contract
             ? std::pair(Verdict::bug, Code::ac101)
         : result.code == Code::ac203 ? std::pair(Verdict::bug, Code::ac102)
                                      : std::pair(result.verdict, result.code);
}

class Shrinker {
 public:
  Shrinker(const OpDef& op, const OpCall& call, const CaseResult& result, const RunOne& run, int tries)
      : op_(op), best_(call), result_(result), run_(run), tries_(tries) {}

  std::optional<OpCall> smallest() {
    const std::string before = best_.str(op_.signature);
    shape();
    const std::string after_shape = best_.str(op_.signature);
    rest();
    if (best_.str(op_.signature) != after_shape) shape();
    return best_.str(op_.signature) == before ? std::nullopt : std::optional(best_);
  }

 private:
  /// Takes the call over if it is one and fails alike.
  bool take(const OpCall& call) {
    const OpSignature& signature = op_.signature;
    if (tries_ <= 0 || (signature.valid && !signature.valid(call.dims, call.attributes))) return false;
    if (!tried_.insert(call.str(signature)).second) return false;
    --tries_;
    try {
      if (!fails_alike(result_, run_(op_, call))) return false;
    } catch (const Interrupted&) {
      tries_ = 0;
      return false;
    } catch (const std::exception&) {  // a smaller shape that the op does not have
      return false;
    }
    best_ = call;
    return true;
  }

  bool extent(const std::string& symbol, std::int64_t value) {
    OpCall call = best_;
    call.dims[symbol] = value;
    return take(call);
  }

  void dimension(const std::string& symbol) {
    if (best_.dims.at(symbol) <= 1 || extent(symbol, 1)) return;
    std::int64_t low = 1;  // does not fail
    while (best_.dims.at(symbol) - low > 1 && tries_ > 0) {
      const std::int64_t middle = low + (best_.dims.at(symbol) - low) / 2;
      if (!extent(symbol, middle)) low = middle;
    }
  }

  void shape() {
    std::vector<std::string> symbols;
    for (const DimSpec& dim : op_.signature.dims)
      if (best_.dims.contains(dim.symbol)) symbols.push_back(dim.symbol);
    std::stable_sort(symbols.begin(), symbols.end(),
                     [&](const auto& a, const auto& b) { return best_.dims.at(a) > best_.dims.at(b); });
    for (const std::string& symbol : symbols) dimension(symbol);
  }

  template <class Change>
  void change(const Change& make) {
    OpCall call = best_;
    make(call);
    take(call);
  }

  /// What a reader need not think of: defaults, dense tensors, simple numbers.
  void rest() {
    change([&](OpCall& c) { c.layout = "dense"; });
    change([&](OpCall& c) { c.dtypes.clear(); });
    change([&](OpCall& c) { c.absent.clear(); });
    for (const AttributeSpec& attribute : op_.signature.attributes)
      change([&](OpCall& c) { c.attributes.set(attribute.name, attribute.default_value); });
    simplest({"zeros", "integers1", "normal"}, &OpCall::range);
    simplest({"ones", "powers", "mixed"}, &OpCall::cotangent);
  }

  /// The first of these regimes that will do, simplest first; what stands behind the present one is no simpler.
  void simplest(const std::vector<std::string>& regimes, std::string OpCall::*field) {
    for (const std::string& regime : regimes) {
      if (best_.*field == regime) return;
      OpCall call = best_;
      call.*field = regime;
      if (take(call)) return;
    }
  }

  const OpDef& op_;
  OpCall best_;
  const CaseResult& result_;
  const RunOne& run_;
  int tries_;
  std::set<std::string> tried_;
};

}  // namespace

bool fails_alike(const CaseResult& a, const CaseResult& b) {
  if (!convicts(a.verdict) || !convicts(b.verdict)) return false;
  return kind_of(a) == kind_of(b) && subject(a) == subject(b);
}

bool may_say_why(const CaseResult& like, const CaseResult& result) {
  const auto wrong = [](const CaseResult& r) { return is_wrong_number(kind_of(r).second); };
  return fails_alike(like, result) || (wrong(like) && wrong(result) && subject(like) == subject(result));
}

std::optional<OpCall> shrink(const OpDef& op, const OpCall& call, const CaseResult& result, const RunOne& run,
                             int most_tries) {
  if (is_file_range(call.range) || is_real_range(call.range) || result.verdict == Verdict::timeout ||
      result.verdict == Verdict::ill_conditioned)
    return std::nullopt;
  return Shrinker(op, call, result, run, most_tries).smallest();
}

namespace {

using ByName = std::map<std::string, const Case*>;

ByName by_name(const std::vector<Case>& cases) {
  ByName out;
  for (const Case& item : cases) out[item.op->plugin + "\n" + item.call.str(item.op->signature)] = &item;
  return out;
}

const Case* find(const ByName& cases, const CaseResult& result) {
  const auto found = cases.find(result.plugin + "\n" + result.name);
  return found == cases.end() ? nullptr : found->second;
}

/// The first cases of a kind that are explained, and how many more where they do not say why.
constexpr std::size_t kExplained = 3;

}  // namespace

bool is_cheap_to_explain(const CaseResult& result) {
  constexpr std::int64_t kMostElements = 20'000;
  return result.elements() <= kMostElements;
}

std::set<std::size_t> that_differ(std::size_t count) {
  if (count == 0) return {};
  return {0, count / 2, count - 1};
}

bool says_why(const CaseResult& result) {
  const CheckResult* const check = deciding_check(result);
  return check != nullptr && says_why(*check);
}

bool gives_a_reason(const CaseResult& result) {
  const CheckResult* const check = deciding_check(result);
  return check != nullptr && gives_a_reason(*check);
}

namespace {

/// Of a departure that its numbers do not tell from another fault, another case may tell the fault: by a change of the
/// formula, which its other data confirmed.
bool decides(const CheckResult& as, const CheckResult& check) {
  return is_undecided(check) && as.code == Code::ac101 && gives_a_reason(as) &&
         as.cause.find(kChangedFormula) != std::string::npos;
}

struct Quoting {
  bool takes_contract;  ///< and the class with it
  bool adds;            ///< to what the check says by itself
};

/// Adds to a check what that of the case `name` says; whether this decides what was undecided.
bool quote(const CheckResult& as, const std::string& name, Quoting how, CheckResult& check) {
  const bool decided = decides(as, check);
  if (decided) {
    check.code = as.code;
    check.verdict = as.verdict;
    check.cause.clear();
  }
  const bool lost = as.code == Code::ac203 && (check.code == Code::ac102 || check.code == Code::ac103);
  if (!is_wrong_number(check.code)) return false;
  if (check.code == Code::ac102 && !lost && as.code != Code::ac101 && as.code != Code::ac102) return false;
  if ((as.verdict == Verdict::precision_contract && how.takes_contract) || lost) {
    check.code = as.code;
    check.verdict = as.verdict;
  }
  const std::string quoted = "as '" + name + "': " + as.cause;
  check.cause = how.adds && !check.cause.empty() ? check.cause + "; " + quoted : quoted;
  return decided;
}

}  // namespace

void explain_as(const CaseResult& like, CaseResult& result) {
  // In fp64 the size of the errors alone speaks for float: of a case whose errors do not, another one's say nothing.
  const bool takes_contract = !(result.explained && result.dtype == "fp64");
  bool decided = false;
  std::map<CheckId, const CheckResult*> known;
  for (const CheckResult& check : like.checks)
    if (check.failed > 0 && !check.cause.empty()) known.emplace(subject_of(check), &check);
  for (CheckResult& check : result.checks) {
    const auto found = known.find(subject_of(check));
    if (found == known.end()) continue;
    decided |= quote(*found->second, like.name, {takes_contract, result.explained}, check);
  }
  result.explained = true;
  if (decided) {
    result.code = like.code;
    result.verdict = like.verdict;
  }
  if (like.verdict == Verdict::precision_contract && takes_contract && contract_explains(result.checks)) {
    result.code = like.code;
    result.verdict = like.verdict;
  }
  const auto is_bug = [](const CheckResult& check) { return check.verdict == Verdict::bug; };
  if (like.code == Code::ac203 && std::none_of(result.checks.begin(), result.checks.end(), is_bug)) {
    result.code = like.code;
    result.verdict = like.verdict;
  }
}

namespace {

/// Judges these again, and says why they fail.
void explain_these(const std::vector<std::size_t>& chosen, const ByName& names, const RunOptions& options,
                   std::vector<CaseResult>& results) {
  parallel_for(static_cast<std::int64_t>(chosen.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      CaseResult& result = results[chosen[static_cast<std::size_t>(k)]];
      const Case* const item = find(names, result);
      if (item == nullptr || (options.cancel != nullptr && options.cancel->load())) continue;
      try {
        CaseResult explained = run_one(*item, {.sampled = result.unjudged() > 0, .again = true}, options);
        if (convicts(explained.verdict)) result = std::move(explained);
      } catch (const Interrupted&) {
        return;
      }
    }
  });
}

bool same_kernel(const CaseResult& a, const CaseResult& b) {
  return a.op == b.op && a.plugin == b.plugin && a.dtype == b.dtype;
}

using Kind = std::tuple<std::string, std::string, Code, std::optional<CheckId>>;
using Kinds = std::map<Kind, std::vector<std::size_t>>;

/// Of a kind whose first cases do not say why: others that have other extents and data.
std::vector<std::size_t> others_of(const std::vector<std::size_t>& all, const std::vector<CaseResult>& results) {
  std::vector<std::size_t> cheap, out;
  for (std::size_t k = kExplained; k < all.size(); ++k)
    if (is_cheap_to_explain(results[all[k]])) cheap.push_back(all[k]);
  for (const std::size_t k : that_differ(cheap.size())) out.push_back(cheap[k]);
  return out;
}

/// Who does not say why takes it over from the first that does.
void quote_each_other(const std::vector<std::size_t>& explained, std::vector<CaseResult>& results) {
  const auto says = [&](std::size_t i) { return says_why(results[i]); };
  const auto first = std::ranges::find_if(explained, [&](std::size_t i) { return gives_a_reason(results[i]); });
  if (first == explained.end()) return;
  const CaseResult like = results[*first];
  for (const std::size_t i : explained)
    if (convicts(results[i].verdict) && !says(i)) explain_as(like, results[i]);
}

/// All others of a kind take over what most of the explained ones say.
void quote_for_others(const std::vector<std::size_t>& all, const std::set<std::size_t>& explained,
                      std::vector<CaseResult>& results) {
  if (all.size() <= kExplained) return;
  std::map<Code, std::size_t> codes;
  for (std::size_t k = 0; k < kExplained; ++k) ++codes[results[all[k]].code];
  for (std::size_t k = 0; k < kExplained; ++k) {
    const CaseResult& like = results[all[k]];
    if (2 * codes[like.code] <= kExplained) continue;
    for (std::size_t i = kExplained; i < all.size(); ++i)
      if (!explained.contains(all[i])) explain_as(like, results[all[i]]);
    return;
  }
}

}  // namespace

void explain_failures(const std::vector<Case>& cases, const RunOptions& options, std::vector<CaseResult>& results) {
  const ByName names = by_name(cases);
  Kinds kinds;
  for (std::size_t i = 0; i < results.size(); ++i)
    if (results[i].verdict == Verdict::bug)
      kinds[{results[i].op, results[i].dtype, results[i].code, subject(results[i])}].push_back(i);
  std::vector<std::size_t> first, further;
  for (const auto& [kind, all] : kinds)
    first.insert(first.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(kExplained, all.size())));
  explain_these(first, names, options, results);
  for (const auto& [kind, all] : kinds)
    if (std::ranges::none_of(all, [&](std::size_t i) { return says_why(results[i]); }))
      std::ranges::copy(others_of(all, results), std::back_inserter(further));
  explain_these(further, names, options, results);
  std::set<std::size_t> explained(first.begin(), first.end());
  explained.insert(further.begin(), further.end());
  for (const auto& [kind, all] : kinds) {
    std::vector<std::size_t> own;
    std::ranges::copy_if(all, std::back_inserter(own), [&](std::size_t i) { return explained.contains(i); });
    quote_each_other(own, results);
    quote_for_others(all, explained, results);
  }
  // NaN and infinities tell little, of which finite wrong numbers of the same tensor may tell the reason.
  for (const std::size_t i : explained) {
    if (!convicts(results[i].verdict) || says_why(results[i])) continue;
    for (const std::size_t like : explained)
      if (same_kernel(results[like], results[i]) && gives_a_reason(results[like]) &&
          may_say_why(results[like], results[i])) {
        explain_as(CaseResult(results[like]), results[i]);
        break;
      }
  }
}

void shrink_failures(const std::vector<Case>& cases, const RunOptions& options, std::vector<CaseResult>& results,
                     std::size_t most) {
  const ByName names = by_name(cases);
  std::vector<CaseResult*> chosen;
  std::set<std::tuple<std::string, Code, std::optional<CheckId>>> kinds;
  std::set<std::string> ops;
  for (CaseResult& result : results) {
    if (!convicts(result.verdict) || result.unjudged() > 0 ||
        !kinds.insert({result.op, result.code, subject(result)}).second)
      continue;
    if (ops.insert(result.op).second || chosen.size() < most)
      chosen.push_back(&result);  // reports show the first of each op
  }
  parallel_for(static_cast<std::int64_t>(chosen.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      CaseResult& result = *chosen[static_cast<std::size_t>(k)];
      const Case* const item = find(names, result);
      if (item == nullptr) continue;
      RunOptions own = options;
      own.relations = options.relations && result.verdict == Verdict::structural;
      const bool first = result.verdict == Verdict::bug || result.verdict == Verdict::precision_contract;
      const RunOne run = [&](const OpDef& op, const OpCall& call) {
        return run_one({&op, call}, {.explain = false, .again = true, .first = first}, own);
      };
      const auto small = shrink(*item->op, item->call, result, run);
      if (small) result.smallest = small->str(item->op->signature);
      if (!first) continue;  // nor once more what crashed or hung
      try {
        const CaseResult reduced = run_one({item->op, small ? *small : item->call},
                                           {.explain = false, .again = true, .values = true, .first = true}, own);
        if (fails_alike(result, reduced)) result.values = reduced.values;
      } catch (const Interrupted&) {
        return;
      }
    }
  });
}

}  // namespace ampcheck::checks
