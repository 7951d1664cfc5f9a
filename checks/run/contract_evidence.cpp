// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/contract_evidence.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "checks/explain/tried_departures.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

using reference::SumOrder;

constexpr double kImpossible = kImpossibleElement;
constexpr SumOrder kOrders[] = {SumOrder::sequential, SumOrder::lanes32, SumOrder::pairwise, SumOrder::reversed};

/// log10 of the number of storage numbers from low to high.
double numbers_between(const FloatFormat& f, double low, double high) {
  const double steps = ulp_distance(f, low, high);
  return std::isfinite(steps) ? std::log10(steps + 1) : f.bits() * std::log10(2.0);
}

/// How far the errors of a tensor are from those of replays, beside the rounding to storage.
double typical_size(std::vector<double>& ratios) {
  constexpr std::size_t kFewest = 16;
  if (ratios.size() < kFewest) return 1;
  const auto middle = ratios.begin() + std::ssize(ratios) / 2;
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

}  // namespace

OpDef with_contract(const OpDef& op, const PrecisionContract& contract) {
  OpDef out = op;
  out.signature.precision = contract;
  return out;
}

std::vector<double> likelihoods(const OpDef& op, const PrecisionContract& contract, const std::vector<Wrote>& all) {
  const OpDef read = with_contract(op, contract);
  const RunOptions options;
  const OpCall* known = nullptr;
  std::unique_ptr<CaseRun> run;
  std::vector<double> out;
  for (const Wrote& w : all) {
    if (w.call != known) {
      run = std::make_unique<CaseRun>(read, *w.call, options);
      known = w.call;
    }
    if (w.pass == Pass::backward && run->reference.cotangents().empty()) run->reference.set_cotangents(w.cotangents);
    std::vector<Interval> forms;
    for (const std::size_t form : run->reference.forms())
      forms.push_back(run->reference.interval(form, w.pass, w.tensor.name, w.tensor.dtype));
    const FloatFormat& f = format(w.tensor.dtype);
    for (std::size_t i = 0; i < w.got.size(); ++i) {
      double best = kImpossible;
      for (const Interval& form : forms) {
        if (!form.how.empty() && form.how[i] != Judgement::interval)
          best = kUnjudged;
        else if (best != kUnjudged && admits(form, static_cast<std::int64_t>(i), w.got[i]))
          best = std::max(best, -numbers_between(f, form.low[i], form.high[i]));
      }
      out.push_back(best);
    }
  }
  return out;
}

void add_up(const std::vector<std::vector<double>>& each, std::vector<Reading>& readings) {
  for (std::size_t i = 0; !each.empty() && i < each.front().size(); ++i) {
    if (std::any_of(each.begin(), each.end(), [&](const auto& l) { return l[i] == kUnjudged; })) continue;
    for (std::size_t k = 0; k < each.size(); ++k) {
      readings[k].likelihood += each[k][i];
      readings[k].outside += each[k][i] == kImpossible;
    }
  }
}

void rank(std::vector<Reading>& readings) {
  std::stable_sort(readings.begin(), readings.end(),
                   [](const Reading& a, const Reading& b) { return a.likelihood > b.likelihood + 1e-9; });
}

std::vector<std::vector<double>> replays(const OpDef& op, CaseRun& run, const Wrote& w, Dtype accumulate,
                                         bool fused_too, std::vector<SumKind>& which) {
  std::vector<std::vector<double>> values;
  for (std::size_t form = 0; form < op.forms.size(); ++form) {
    const reference::Recording& recording = run.reference.recording(form);
    Leaves leaves;
    for (const auto& [name, node] : recording.inputs) leaves.emplace_back(node, run.reference.inputs().at(name));
    if (w.pass == Pass::backward)
      for (const auto& [name, node] : recording.cotangents) leaves.emplace_back(node, w.cotangents.at(name));
    if (w.pass == Pass::backward && accumulate != Dtype::fp32) give_forward(recording, leaves);
    for (const auto& [name, node] : nodes_of(recording, w.pass)) {
      if (name != w.tensor.name) continue;
      const auto add = [&, target = node](SumOrder order, bool fused) {
        values.push_back(reference::replay(*recording.graph, leaves, {target},
                                           {.order = order,
                                            .accumulate = accumulate == Dtype::fp32 ? nullptr : &format(accumulate),
                                            .fused = fused})
                             .front());
        round_values(format(w.tensor.dtype), RoundingMode{}, values.back(), values.back());
        which.push_back({recording.form, order, fused});
      };
      const std::size_t rounded = values.size();
      for (const SumOrder order : kOrders) add(order, false);
      if (!fused_too) continue;
      add(kOrders[0], true);
      const bool nothing_fused = std::equal(values.back().begin(), values.back().end(), values[rounded].begin(), same);
      for (std::size_t k = 1; k < std::size(kOrders); ++k) {
        if (!nothing_fused)
          add(kOrders[k], true);
        else {
          values.emplace_back(values[rounded + k]);
          which.push_back({recording.form, kOrders[k], true});
        }
      }
    }
  }
  return values;
}

ByReplays likelihoods_by_replays(const OpDef& op, const PrecisionContract& base, const std::vector<Wrote>& wrote,
                                 Dtype accumulate) {
  constexpr double kTooSmall = 1.0 / 16;  // such sums are never as good as that
  const RunOptions options;
  const OpDef declared = with_contract(op, base);
  ByReplays out;
  std::vector<double> ratios;
  for (const Wrote& w : wrote) {
    CaseRun run(declared, *w.call, options);
    if (w.pass == Pass::backward) run.reference.set_cotangents(w.cotangents);
    std::vector<Interval> forms;
    for (const std::size_t form : run.reference.forms())
      forms.push_back(run.reference.interval(form, w.pass, w.tensor.name, w.tensor.dtype));
    const Interval& interval = forms.front();
    std::vector<SumKind> which;
    std::vector<std::vector<double>> values = replays(declared, run, w, accumulate, false, which);
    const std::size_t count = values.size();
    if (accumulate != Dtype::fp32)
      for (std::vector<double>& v : replays(declared, run, w, Dtype::fp32, false, which))
        values.push_back(std::move(v));
    const FloatFormat& f = format(w.tensor.dtype);
    for (std::size_t i = 0; i < w.got.size(); ++i) {
      const double value = interval.value[i];
      const bool judged = (interval.how.empty() || interval.how[i] == Judgement::interval) && std::isfinite(value) &&
                          std::isfinite(w.got[i]);
      const double stored = std::max(f.unit_roundoff() * std::fabs(value), f.min_subnormal() / 2);
      double errors = 0;
      bool finite = judged;
      for (std::size_t k = 0; k < count; ++k) {
        finite &= std::isfinite(values[k][i]);
        errors += finite ? std::pow(values[k][i] - value, 2) / static_cast<double>(count) : 0.0;
      }
      if (!finite || !std::isfinite(errors)) {
        out.likelihood.push_back(kUnjudged);
        continue;
      }
      const double width = std::sqrt(stored * stored + errors);
      if (accumulate != Dtype::fp32) {
        // Where it loses nothing in any order, the kernel is as right as one that sums in fp32.
        const bool loses =
            std::any_of(values.begin(), values.end(), [&](const auto& v) { return v[i] != values.front()[i]; });
        const auto admitted = [&](const Interval& form) {
          return (!form.how.empty() && form.how[i] != Judgement::interval) ||
                 admits(form, static_cast<std::int64_t>(i), w.got[i]);
        };
        out.refuted += !loses && std::none_of(forms.begin(), forms.end(), admitted);
        if (errors > 16 * stored * stored) ratios.push_back(std::fabs(w.got[i] - value) / width);
      }
      // In numbers of the storage type, so that it is a likelihood and no density.
      const double step = std::max(2 * f.unit_roundoff() * std::fabs(value), f.min_subnormal());
      const double likelihood = std::log10(step / (2 * width)) - std::fabs(w.got[i] - value) / width / std::log(10.0);
      out.likelihood.push_back(std::clamp(likelihood, kImpossible, 0.0));  // one element outweighs no others
    }
  }
  if (typical_size(ratios) < kTooSmall) out.refuted += std::ssize(ratios);
  return out;
}

}  // namespace ampcheck::checks
