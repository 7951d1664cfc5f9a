// SPDX-License-Identifier: Apache-2.0
#include "checks/train/live.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "checks/data/call_data.h"
#include "checks/data/file_tensors.h"
#include "checks/run/dump.h"
#include "checks/train/fp8_check.h"
#include "src/amp/blocks.h"
#include "src/error.h"
#include "src/rounding.h"

namespace ampcheck::checks::train {

namespace {

constexpr std::size_t kMostNamed = 8;

/// Multiplications that the formula may take: the product of all extents.
double work_of(const OpCall& call) {
  double out = 1;
  for (const auto& [symbol, extent] : call.dims) out *= static_cast<double>(extent);
  return out;
}

Tensor copy_of(const TensorView& view) {
  Tensor out = Tensor::uninitialized(view.dtype, view.shape);
  copy_elements(view, out.view());
  return out;
}

/// Buffers that an op adds to were zero before: the formula's gradient is what they hold.
OpDef adding_to_zero(const OpDef& op) {
  OpDef out = op;
  out.signature.launch.accumulates.clear();
  return out;
}

}  // namespace

LiveJudge::LiveJudge(JudgeMode mode, const std::optional<Fp8Recipe>& fp8) : mode_(mode) {
  if (fp8) fp8_ = std::make_unique<Fp8Check>(*fp8);
}

LiveJudge::~LiveJudge() = default;

void LiveJudge::see_fp8(const LiveFp8& cast) {
  if (fp8_) fp8_->see(cast, mode_ == JudgeMode::all || sampled_now_);
}

void LiveJudge::begin(int step, int batch, int batches) {
  const auto number = static_cast<unsigned>(step) + 1;
  const int turn = std::bit_width(number) - 1;  // each sampled step another micro-batch
  sampled_now_ = std::has_single_bit(number) && batch == turn % batches;
}

bool LiveJudge::convicted(std::string_view call) const {
  return std::any_of(findings_.begin(), findings_.end(), [&](const LiveFinding& f) { return f.call == call; });
}

LiveJudge::Errors LiveJudge::errors_of(const LiveCall& call) {
  constexpr std::int64_t kLanes = 8;
  Errors out;
  for (const auto& [got, exact] : call.shadowed) {
    const auto* const want = exact.as<const double>();
    double values[kBlock], error2s[kLanes] = {}, exact2s[kLanes] = {}, worsts[kLanes] = {}, largests[kLanes] = {};
    // Selects instead of branches: the lanes vectorise.
    const auto take = [&](double value, double due, std::int64_t lane) {
      const bool counts = std::fabs(due) < HUGE_VAL;
      const double e = counts ? std::fabs(value - due) : 0, size = counts ? std::fabs(due) : 0;
      error2s[lane] += e * e;
      exact2s[lane] += size * size;
      worsts[lane] = e <= worsts[lane] ? worsts[lane] : e;  // a NaN is taken, and found by the sum of squares
      largests[lane] = size > largests[lane] ? size : largests[lane];
    };
    for (std::int64_t at = 0; at < got.count(); at += kBlock) {
      const std::int64_t part = std::min<std::int64_t>(kBlock, got.count() - at);
      load_block(got, at, part, values);
      std::int64_t i = 0;
      for (; i + kLanes <= part; i += kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane) take(values[i + lane], want[at + i + lane], lane);
      for (; i < part; ++i) take(values[i], want[at + i], 0);
    }
    double error2 = 0, exact2 = 0, worst = 0, largest = 0;
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      error2 += error2s[lane];
      exact2 += exact2s[lane];
      worst = worsts[lane] <= worst ? worst : worsts[lane];
      largest = std::max(largest, largests[lane]);
    }
    const double norm = exact2 > 0 ? std::sqrt(error2 / exact2) : error2;
    out.norm = norm <= out.norm ? out.norm : norm;
    const double beside = largest > 0 ? worst / largest : worst;
    out.worst = beside <= out.worst ? out.worst : beside;
  }
  return out;
}

bool LiveJudge::wants(const LiveCall& call, const Errors& errors) const {
  if (mode_ == JudgeMode::none || convicted(call.name)) return false;
  if (mode_ == JudgeMode::all || sampled_now_) return true;
  const auto known = judged_errors_.find(call.name);
  if (known == judged_errors_.end() || call.shadowed.empty()) return false;
  constexpr double kGrown = 2;  // costs time alone: the judge decides
  return !(errors.norm <= kGrown * known->second.norm && errors.worst <= kGrown * known->second.worst);
}

void LiveJudge::leave_out(std::string what) {
  const bool known = std::find(left_out_.begin(), left_out_.end(), what) != left_out_.end();
  if (!known && left_out_.size() < kMostNamed) left_out_.push_back(std::move(what));
}

void LiveJudge::see_call(const LiveCall& call) {
  if (listener_) listener_(call);
  if (call.op.forms.empty()) return;  // a black box has no formula to be judged by
  const Errors errors = errors_of(call);
  if (!wants(call, errors)) return;
  if (mode_ != JudgeMode::all && work_of(call.call) > kMostWork) {
    leave_out(std::string(call.name) + " (too large to be judged in passing: --judge all)");
    return;
  }
  Errors& most = judged_errors_[std::string(call.name)];
  most = {std::max(most.norm, errors.norm), std::max(most.worst, errors.worst)};
  judge(call);
}

void LiveJudge::see_cast(const LiveCast& cast) {
  if (mode_ == JudgeMode::none || (mode_ == JudgeMode::sampled && !sampled_now_) || casts_.size() >= kMostNamed) return;
  CastFinding found;
  found.elements = cast.got.count();
  double from[kBlock], got[kBlock];
  for (std::int64_t at = 0; at < found.elements; at += kBlock) {
    const std::int64_t part = std::min<std::int64_t>(kBlock, found.elements - at);
    load_block(cast.from, at, part, from);
    load_block(cast.got, at, part, got);
    const auto n = static_cast<std::size_t>(part);
    round_values(format(cast.got.dtype), RoundingMode{}, std::span<const double>(from, n), std::span<double>(from, n));
    for (std::size_t i = 0; i < n; ++i) {
      if (got[i] == from[i] || (std::isnan(got[i]) && std::isnan(from[i]))) continue;
      if (found.outside++ > 0) continue;
      found.got = got[i];
      found.want = from[i];
    }
  }
  if (found.outside == 0) return;
  found.step = cast.step;
  found.where = std::string(cast.op) + (cast.layer.empty() ? "" : " (" + std::string(cast.layer) + ")") +
                (cast.backward ? " backward" : " forward") + " cast of " + std::string(cast.tensor) + " to " +
                name(cast.got.dtype);
  const bool known =
      std::any_of(casts_.begin(), casts_.end(), [&](const CastFinding& f) { return f.where == found.where; });
  if (!known) casts_.push_back(std::move(found));
}

void LiveJudge::judge(const LiveCall& live) {
  TensorFile tensors{std::string(live.name), {}};
  for (const auto& [name, view] : live.tensors)
    if (tensors.find(name) == nullptr) tensors.tensors.push_back({name, copy_of(view)});
  const OpDef op = adding_to_zero(live.op);
  OpCall call = live.call;
  call.data = data_of_file(tensors);
  call.range = call.data->file_range;
  std::erase_if(call.dtypes, [&](const auto& entry) { return entry.second == call.storage; });
  DumpResult judged;
  try {
    require_file_call(op, call, true);
    judged = judge_dump(op, call, tensors);
  } catch (const Error& error) {  // tensors that the op's own signature does not take: nothing is known of the call
    leave_out(std::string(live.name) + " (" + error.what() + ")");
    return;
  }
  ++judged_;
  if (!convicts(judged.result.verdict)) return;
  findings_.push_back({live.step, live.rank, std::string(live.name), std::string(live.layer), std::move(judged.result),
                       std::move(tensors)});
}

}  // namespace ampcheck::checks::train
