// SPDX-License-Identifier: Apache-2.0
#include "checks/train/loss_rounding.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "kernels/launch.h"
#include "src/amp/autocast_tables.h"

namespace ampcheck::checks::train {

namespace {

/// Of a result of n numbers, each made by a few roundings. Our kernels add along kLanes lanes or more and then up a
/// tree (kernels/row_reduce.h, kernels/column_reduce.h): a number passes n / kLanes + 5 additions, and what is left of
/// the first 64 is more than it takes to be made.
double roundings(const OpDef& op, std::size_t n) {
  constexpr std::size_t kAll = 2 * kernels::kLanes;
  if (!op.plugin.empty() || n <= kAll) return static_cast<double>(n);  // a library's op: any order
  return kAll + std::ceil(static_cast<double>(n - kAll) / kernels::kLanes);
}

class LossRounding {
 public:
  LossRounding(const models::StepRecord& record, Dtype dtype, AutocastDevice list)
      : record_(record), dtype_(dtype), list_(list) {
    for (const models::RecordedCall& call : record.calls) producers_[call.output] = &call;
  }

  double sum() {
    std::set<int> read;
    for (const models::RecordedCall& call : record_.calls)
      for (const auto& [name, id] : call.inputs) read.insert(written(id));
    double out = 0;
    for (const models::RecordedCall& call : record_.calls)
      if (!read.contains(call.output)) out += at(call.output);  // of what is no loss the cotangent is zero
    return out;
  }

 private:
  /// The tensor itself of one that was reshaped.
  int written(int id) const {
    for (auto from = record_.moved.find(id); from != record_.moved.end(); from = record_.moved.find(id))
      id = from->second;
    return id;
  }

  /// Under autocast to 16 bits; data and parameters are in fp32 where nothing casts them.
  bool is_fp32(int id) const {
    const auto found = producers_.find(id);
    if (found == producers_.end()) return true;
    const models::RecordedCall& call = *found->second;
    const OpSignature& signature = models::op_of_call(call.call.op).signature;
    const CastPolicy policy = cast_policy(list_, signature);
    if (policy == CastPolicy::lower_precision_fp) return false;
    if (policy != CastPolicy::promote && policy != CastPolicy::unlisted) return true;
    return std::any_of(call.inputs.begin(), call.inputs.end(), [&](const auto& input) {
      return signature.input(input.first)->has_gradient() && is_fp32(written(input.second));
    });
  }

  double at(int id) {
    if (!seen_.insert(id).second) return 0;
    const std::vector<double>&values = record_.values[static_cast<std::size_t>(id)],
          &cotangents = record_.cotangents[static_cast<std::size_t>(id)];
    double moved = 0;
    for (std::size_t i = 0; i < cotangents.size(); ++i) moved += std::fabs(cotangents[i] * values[i]);
    if (!is_fp32(id)) return moved * format(dtype_).unit_roundoff();
    if (!producers_.contains(id)) return moved * kFp32.unit_roundoff();
    const models::RecordedCall& call = *producers_.at(id);
    const OpDef& op = models::op_of_call(call.call.op);
    std::size_t terms = 1;  // of one element
    double out = 0;
    for (const auto& [name, input] : call.inputs) {
      if (!op.signature.input(name)->has_gradient()) continue;
      terms = std::max(
          terms, record_.values[static_cast<std::size_t>(input)].size() / std::max<std::size_t>(values.size(), 1));
      out += at(written(input));
    }
    return out + moved * roundings(op, terms) * kFp32.unit_roundoff();
  }

  const models::StepRecord& record_;
  Dtype dtype_;
  AutocastDevice list_;
  std::map<int, const models::RecordedCall*> producers_;
  std::set<int> seen_;
};

}  // namespace

double loss_rounding(const models::StepRecord& record, Dtype dtype, AutocastDevice list) {
  return LossRounding(record, dtype, list).sum();
}

}  // namespace ampcheck::checks::train
