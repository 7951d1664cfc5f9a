// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "checks/autocast/net_audit.h"
#include "checks/autocast/net_pass.h"
#include "checks/models/bound_call.h"
#include "src/op_call.h"

namespace ampcheck::checks::autocast {

namespace {

using reference::Primitive;

std::string dtypes_text(const std::vector<Dtype>& dtypes) {
  std::string out;
  for (const Dtype dtype : dtypes) out += (out.empty() ? "" : ", ") + std::string(ampcheck::name(dtype));
  return out;
}

void judge_classes(const std::vector<OpRow>& rows, Results& results) {
  std::map<CastPolicy, int> counts;
  std::vector<std::string> unknown;
  for (const OpRow& row : rows) {
    ++counts[row.policy];
    if (find_op(row.op) == nullptr && !row.due_computes) unknown.push_back(row.call);
  }
  std::string text;
  for (const auto& [policy, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, ampcheck::name(policy));
  if (unknown.empty())
    results.add("A1", Outcome::passed, fmt::format("{} calls: {}", rows.size(), text));
  else
    results.add("A1", Outcome::weak, fmt::format("{}: no list names it, and it says no class", unknown.front()),
                unknown);
}

void judge_dtypes(const std::vector<OpRow>& rows, Results& results) {
  std::vector<std::string> wrong;
  std::string says;
  int known = 0;
  for (const OpRow& row : rows) {
    if (!row.due_computes || !row.due_gives) continue;
    ++known;
    if (*row.due_computes == row.computes && *row.due_gives == row.gives) continue;
    if (says.empty())
      says = fmt::format("{} ({}{}) has to compute in {} and give {}, and computes in {} and gives {}", row.call,
                         ampcheck::name(row.policy), row.handed.empty() ? "" : ", of " + dtypes_text(row.handed),
                         ampcheck::name(*row.due_computes), ampcheck::name(*row.due_gives),
                         ampcheck::name(row.computes), ampcheck::name(row.gives));
    wrong.push_back(row.call);
  }
  if (!wrong.empty())
    results.add("A2", Outcome::failed, says, wrong);
  else if (known > 0)
    results.add("A2", Outcome::passed, fmt::format("{} ops compute and give what they should", known));
}

bool is_unlisted(CastPolicy policy) { return policy == CastPolicy::unlisted || policy == CastPolicy::promote; }

void judge_results(const std::vector<OpRow>& rows, Results& results) {
  std::vector<std::string> wrong;
  std::string says;
  const OpRow *worst = nullptr, *nearest = nullptr;
  int looked_at = 0;
  for (const OpRow& row : rows) {
    if (!row.is_low() || (!row.excess && row.overflowed == 0)) continue;
    ++looked_at;
    const std::string what = is_unlisted(row.policy) && !row.hazard.empty() ? " (unlisted: " + row.hazard + ")" : "";
    if (row.overflowed > 0 || *row.excess > kMostExcess) {
      if (says.empty())
        says = row.overflowed > 0 ? fmt::format("{}{} in {} makes {} finite numbers infinite or NaN", row.call, what,
                                                ampcheck::name(row.computes), row.overflowed)
                                  : fmt::format("{}{} in {} errs {:.1f} times as much as one rounding of each element",
                                                row.call, what, ampcheck::name(row.computes), *row.excess);
      wrong.push_back(row.call);
    }
    if (what.empty() || !row.excess) continue;
    if (worst == nullptr || *row.excess > *worst->excess) worst = &row;
    if (row.headroom && (nearest == nullptr || *row.headroom < *nearest->headroom)) nearest = &row;
  }
  if (!wrong.empty()) return results.add("A3", Outcome::failed, says, wrong);
  if (looked_at == 0) return;
  if (worst == nullptr)
    return results.add("A3", Outcome::passed,
                       fmt::format("{} results; no unlisted sum, exponential or square runs in 16 bits", looked_at));
  results.add("A3", Outcome::passed,
              fmt::format("{} results; of unlisted ones the worst is {} ({}) with {:.2f} of one rounding{}", looked_at,
                          worst->call, worst->hazard, *worst->excess,
                          nearest == nullptr ? ""
                                             : fmt::format(", the nearest to overflow {} with {:.1f} binades left",
                                                           nearest->call, *nearest->headroom)));
}

void judge_casts(const std::vector<OpRow>& rows, Results& results) {
  std::int64_t elements = 0;
  std::vector<std::string> lost, foreign;
  std::string says;
  for (const OpRow& row : rows) {
    elements += row.cast_elements;
    if (row.cast_overflowed > 0) {
      if (says.empty())
        says = fmt::format("{} finite numbers become infinite where the inputs of {} are cast to {}",
                           row.cast_overflowed, row.call, ampcheck::name(row.computes));
      lost.push_back(row.call);
    }
    if (row.is_low() && std::ranges::any_of(row.handed, [&](Dtype handed) {
          return (handed == Dtype::fp16 || handed == Dtype::bf16) && handed != row.computes;
        }))
      foreign.push_back(row.call);
  }
  if (!lost.empty()) return results.add("A4", Outcome::failed, says, lost);
  if (!foreign.empty())
    return results.add("A4", Outcome::weak, foreign.front() + " is handed another 16-bit type, which is cast silently",
                       foreign);
  if (elements > 0) results.add("A4", Outcome::passed, fmt::format("{} elements cast to fewer bits", elements));
}

void judge_gradients(const std::vector<OpRow>& rows, Results& results) {
  std::int64_t elements = 0, flushed = 0;
  std::vector<std::string> overflowed, all_flushed, some;
  for (const OpRow& row : rows) {
    elements += row.grad_elements;
    flushed += row.grad_flushed;
    if (row.grad_overflowed > 0) overflowed.push_back(row.call);
    if (row.grad_flushed > 0) (row.grad_flushed == row.grad_elements ? all_flushed : some).push_back(row.call);
  }
  if (!overflowed.empty())
    return results.add("A8", Outcome::failed, overflowed.front() + ": a gradient overflows where it is cast to 16 bits",
                       overflowed);
  if (!all_flushed.empty())
    return results.add("A8", Outcome::failed,
                       all_flushed.front() + ": every gradient becomes zero where it is cast to 16 bits", all_flushed);
  if (!some.empty())
    return results.add("A8", Outcome::weak,
                       fmt::format("{} of {} gradients become zero where they are cast to 16 bits: a larger loss scale "
                                   "keeps more",
                                   flushed, elements),
                       some);
  if (elements > 0)
    results.add("A8", Outcome::passed, fmt::format("{} gradients are cast to 16 bits, and none is lost", elements));
}

void judge_other_device(const std::vector<OpRow>& rows, AutocastDevice device, Results& results) {
  const AutocastDevice other = device == AutocastDevice::cpu ? AutocastDevice::cuda : AutocastDevice::cpu;
  const AutocastList there = autocast_list("", other);
  std::vector<std::string> differ;
  std::map<std::string, bool> seen;
  for (const OpRow& row : rows) {
    const OpDef* const op = find_op(row.op);
    if (op == nullptr || !seen.emplace(row.op, true).second) continue;
    const CastPolicy policy = policy_of(there, other, op->signature);
    if (policy != row.policy) differ.push_back(fmt::format("{} {}", row.op, ampcheck::name(policy)));
  }
  if (seen.empty()) return;
  if (differ.empty())
    return results.add("A12", Outcome::passed,
                       fmt::format("{} ops have the same class on {}", seen.size(), ampcheck::name(other)));
  results.add("A12", Outcome::weak,
              fmt::format("{} of {} ops have another class on {}: a run there does not test this policy", differ.size(),
                          seen.size(), ampcheck::name(other)),
              differ);
}

void judge_releases(const std::vector<OpRow>& rows, AutocastDevice device, Results& results) {
  std::vector<std::string> differ;
  std::map<std::string, bool> seen;
  for (const OpRow& row : rows) {
    const OpDef* const op = find_op(row.op);
    if (op == nullptr || !seen.emplace(row.op, true).second) continue;
    std::string_view first, last;  // of releases with another class: their class is one, as far as is known
    CastPolicy then = row.policy;
    for (const std::string_view release : autocast_releases(device)) {
      const CastPolicy policy = policy_of(autocast_list(release, device), device, op->signature);
      if (policy == row.policy) continue;
      if (first.empty()) first = release;
      last = release;
      then = policy;
    }
    if (first.empty()) continue;
    differ.push_back(fmt::format("{} {} in torch {}{}", row.op, ampcheck::name(then), first,
                                 first == last ? "" : " to " + std::string(last)));
  }
  if (seen.empty()) return;
  const std::string from =
      fmt::format("torch {} to {}", autocast_releases(device).front(), autocast_releases(device).back());
  if (differ.empty())
    results.add("A14", Outcome::passed, fmt::format("{} ops have the same class in {}", seen.size(), from));
  else
    results.add("A14", Outcome::weak, "classes changed between releases", differ);
}

}  // namespace

void judge_rows(const std::vector<OpRow>& rows, AutocastDevice device, Results& results) {
  judge_classes(rows, results);
  judge_dtypes(rows, results);
  judge_results(rows, results);
  judge_casts(rows, results);
  judge_gradients(rows, results);
  judge_other_device(rows, device, results);
  judge_releases(rows, device, results);
}

std::string hazards(const reference::Recording& recording) {
  constexpr std::array kDangerous = {std::pair{Primitive::sum, "sum"},       std::pair{Primitive::cumsum, "sum"},
                                     std::pair{Primitive::matmul, "sum"},    std::pair{Primitive::exp, "exp"},
                                     std::pair{Primitive::expm1, "exp"},     std::pair{Primitive::sigmoid, "exp"},
                                     std::pair{Primitive::square, "square"}, std::pair{Primitive::pow, "power"}};
  std::vector<int> open;
  for (const reference::Expr& output : recording.output_nodes()) open.push_back(output.id);
  std::vector<bool> seen(recording.graph->nodes().size(), false);
  std::vector<std::string> found;
  while (!open.empty()) {
    const int id = open.back();
    open.pop_back();
    if (seen[static_cast<std::size_t>(id)]) continue;
    seen[static_cast<std::size_t>(id)] = true;
    const reference::Node& node = recording.graph->node(id);
    for (const auto& [primitive, word] : kDangerous)
      if (node.primitive == primitive && std::ranges::find(found, word) == found.end()) found.emplace_back(word);
    const bool square = node.primitive == Primitive::mul && node.args[0] == node.args[1];
    if (square && std::ranges::find(found, "square") == found.end()) found.emplace_back("square");
    open.insert(open.end(), node.args.begin(), node.args.end());
  }
  std::ranges::sort(found);
  std::string out;
  for (const std::string& word : found) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string hazard_of(const OpDef& op) {
  if (op.forms.empty()) return "";
  const OpCall call = default_call(op.signature, Dtype::fp32);
  reference::CaseInputs inputs;
  for (const TensorSpec& spec : op.signature.inputs) {
    if (!call.has(spec)) continue;
    if (is_float(dtype_of(spec.type, Dtype::fp32)))
      inputs.shapes[spec.name] = call.shape(spec);
    else
      inputs.integers[spec.name] = std::vector<std::int64_t>(static_cast<std::size_t>(call.shape(spec).count()), 0);
  }
  return hazards(reference::record(op.signature, op.forms.front(), call.attributes, inputs));
}

}  // namespace ampcheck::checks::autocast
