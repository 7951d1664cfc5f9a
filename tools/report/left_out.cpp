// SPDX-License-Identifier: Apache-2.0
#include "tools/report/left_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "checks/data/regimes.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

using Words = std::set<std::string>;

/// What cases have, over all ops.
struct Contents {
  Words data, cotangents, layouts, attributes;
  std::int64_t cases = 0, largest = 0;

  void add(const OpSignature& signature, const OpCall& call) {
    ++cases;
    data.insert(call.range.substr(0, call.range.find('.')));  // what follows names the tensors that have it
    cotangents.insert(call.cotangent);
    layouts.insert(call.layout.substr(0, call.layout.find(':')));
    for (const AttributeSpec& spec : signature.attributes)
      if (const auto value = call.attributes.all().find(spec.name);
          value != call.attributes.all().end() && value->second != spec.default_value)
        attributes.insert(signature.name + "." + spec.name);
    for (const TensorSpec& spec : signature.inputs)
      if (call.has(spec)) largest = std::max(largest, call.shape(spec).count());
  }
};

/// "; data spike, specials": the words that only the larger set has.
std::string missing(const char* what, const Words& has, const Words& larger) {
  constexpr std::size_t kMost = 24;
  std::vector<std::string> only;
  std::set_difference(larger.begin(), larger.end(), has.begin(), has.end(), std::back_inserter(only));
  std::string out;
  for (std::size_t i = 0; i < std::min(only.size(), kMost); ++i) out += (i == 0 ? "" : ", ") + only[i];
  if (only.size() > kMost) out += fmt::format(" and {} more", only.size() - kMost);
  return only.empty() ? "" : fmt::format("; {} {}", what, out);
}

}  // namespace

std::string left_out(const std::vector<checks::Case>& cases, checks::CaseSet set, std::uint64_t seed) {
  if (set == checks::CaseSet::all) return "";
  const bool quick = set == checks::CaseSet::quick;
  Contents has, larger;
  std::set<std::pair<const checks::OpDef*, Dtype>> seen;
  for (const checks::Case& item : cases) {
    const OpSignature& signature = item.op->signature;
    if (!seen.emplace(item.op, item.call.storage).second) continue;
    for (const OpCall& call : checks::cases_of(signature, item.call.storage, set, seed)) has.add(signature, call);
    for (const OpCall& call :
         checks::cases_of(signature, item.call.storage, quick ? checks::CaseSet::standard : checks::CaseSet::all, seed))
      larger.add(signature, call);
  }
  if (larger.cases <= has.cases) return "";
  std::string what = missing("data", has.data, larger.data) + missing("cotangents", has.cotangents, larger.cotangents) +
                     missing("layouts", has.layouts, larger.layouts) +
                     missing("other values of", has.attributes, larger.attributes);
  if (larger.largest > has.largest) what += fmt::format("; tensors of more than {} elements", grouped(has.largest));
  return fmt::format(
      "--regimes {0} runs {1} of the {2} cases of --regimes {3} and may miss what only the rest shows{4}",
      quick ? "quick" : "standard", grouped(has.cases), grouped(larger.cases), quick ? "standard" : "all",
      what.empty() ? ": further combinations of the same" : ":" + what.substr(1));
}

}  // namespace ampcheck::tools
