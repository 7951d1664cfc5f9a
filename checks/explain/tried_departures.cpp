// SPDX-License-Identifier: Apache-2.0
#include "checks/explain/tried_departures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// Whether numbers are those that truncation to a 16-bit storage leaves.
Interval cut_off(const Interval& interval) {
  Interval out = interval;
  out.low = {reference::make_channel(static_cast<std::int64_t>(interval.value.size())), interval.value.size()};
  out.high = {reference::make_channel(static_cast<std::int64_t>(interval.value.size())), interval.value.size()};
  for (std::size_t i = 0; i < interval.value.size(); ++i) {
    out.low[i] = interval.value[i] - interval.radius[i];
    out.high[i] = interval.value[i] + interval.radius[i];
  }
  for (const Numbers* const ends : {&out.low, &out.high}) {
    const std::span<double> values(ends->data(), ends->size());
    round_values(format(interval.dtype), {.rounding = Rounding::toward_zero}, values, values);
  }
  for (std::size_t i = 0; i < out.low.size(); ++i) {  // what overflows in the compute type stays infinite
    if (std::isinf(interval.low[i])) out.low[i] = interval.low[i];
    if (std::isinf(interval.high[i])) out.high[i] = interval.high[i];
  }
  return out;
}

/// Numbers below the smallest normal one of a 16-bit storage as zero.
Interval flushed(const Interval& interval) {
  Interval out = interval;
  const double least = format(interval.dtype).min_normal();
  out.low = {reference::make_channel(static_cast<std::int64_t>(interval.value.size())), interval.value.size()};
  out.high = {reference::make_channel(static_cast<std::int64_t>(interval.value.size())), interval.value.size()};
  for (std::size_t i = 0; i < interval.value.size(); ++i) {
    const bool lost = interval.low[i] > -least && interval.high[i] < least;
    out.low[i] = lost ? 0 : interval.low[i];
    out.high[i] = lost ? 0 : interval.high[i];
  }
  return out;
}

}  // namespace

void TriedDepartures::see(CaseRun& run, Pass pass, const Written& tensor, const std::vector<double>& got,
                          bool weighed) {
  for (const std::size_t form : run.reference.forms()) {
    const reference::Recording& recording = run.reference.recording(form);
    const Interval interval = run.reference.interval(form, pass, tensor.name, tensor.dtype);
    const bool first = form == run.reference.forms().front();
    if (first && weighed) {
      const Explained own = explained_by(interval, interval, got);
      declared_ += own.likelihood + kImpossibleElement * static_cast<double>(own.outside);
    }
    std::map<std::string, int> again;
    const auto each = [&](const Departure& departure, const auto& departing) {
      const std::string where = first ? "" : ", in the form '" + recording.form + "'";
      Tried& tried = all_[departure.words + where + " " + std::to_string(again[departure.words]++)];
      if (tried.cases != cases_ || tried.seen.outside > 0) return;
      if (cases_ == 0) {
        tried.place = all_.size();
        tried.seen.likelihood = departure.prior;
      }
      tried.words = departure.words + where;
      tried.kind = departure.kind;
      tried.function = departure.function;
      const std::optional<Interval> now = departing();
      const Explained seen = explained_by(now ? *now : interval, interval, got);
      tried.seen.outside += seen.outside;
      tried.seen.telling += seen.telling;
      tried.seen.bits += seen.bits;
      tried.seen.sharp += seen.sharp;
      tried.seen.sharp_telling += seen.sharp_telling;
      tried.seen.likelihood += weighed ? seen.likelihood : 0;
      tried.seen.above += seen.above;
      tried.seen.below += seen.below;
      ++tried.cases;
    };
    if (bytes(tensor.dtype) < 4) {
      each({.words = fmt::format("truncated, not rounded, to {}", name(tensor.dtype)), .nodes = {}},
           [&] { return std::optional(cut_off(interval)); });
      each({.words = fmt::format("subnormal numbers of {} flushed to zero", name(tensor.dtype)), .nodes = {}},
           [&] { return std::optional(flushed(interval)); });
    }
    for (const Departure& departure : departures_of(recording, target_of(recording, pass, tensor.name), tensor.dtype))
      each(departure,
           [&] { return run.reference.interval_departing(form, pass, tensor.name, tensor.dtype, departure.nodes); });
  }
  ++cases_;
}

TriedDepartures::Best TriedDepartures::best() const {
  const auto alike = [](const Tried& a, const Tried& b) {
    return std::fabs(a.seen.likelihood - b.seen.likelihood) < 1e-6;
  };
  std::vector<const Tried*> fits;
  for (const auto& [key, tried] : all_)
    if (tried.seen.outside == 0 && tried.cases == cases_ && tells(tried.seen, tried.kind, true)) fits.push_back(&tried);
  if (fits.empty()) return {};
  std::stable_sort(fits.begin(), fits.end(), [&](const Tried* a, const Tried* b) { return a->place < b->place; });
  const auto likelier = [&](const Tried* a, const Tried* b) {
    return !alike(*a, *b) && a->seen.likelihood < b->seen.likelihood;
  };
  const Tried& best = **std::max_element(fits.begin(), fits.end(), likelier);  // of alike ones the first
  std::erase_if(fits, [&](const Tried* t) { return t->words == best.words || alike(*t, best); });
  const auto next = std::max_element(fits.begin(), fits.end(), likelier);
  if (next == fits.end()) return {best.words, best.function, "", best.seen.likelihood - declared_};
  return {best.words, best.function, (*next)->words, best.seen.likelihood - (*next)->seen.likelihood};
}

}  // namespace ampcheck::checks
