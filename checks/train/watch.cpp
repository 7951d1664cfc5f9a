// SPDX-License-Identifier: Apache-2.0
#include "checks/train/watch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "src/amp/blocks.h"
#include "src/op_call.h"

namespace ampcheck::checks::train {

namespace {

bool is_16_bit(Dtype dtype) { return dtype == Dtype::fp16 || dtype == Dtype::bf16; }

constexpr std::int64_t kPart = 256;  // elements at a time: four buffers of them leave room in the first cache
constexpr double kMax = std::numeric_limits<double>::max();

/// n elements from `at` on as doubles: where they lie, or in `buffer`.
const double* read_block(const TensorView& view, std::int64_t at, std::int64_t n, double* buffer) {
  const double* const in_place = block_in_place(view, at, buffer);
  if (in_place == buffer) load_block(view, at, n, buffer);
  return in_place;
}

/// Adds the squares of x times `factor` less r, and of r, where both are finite; in the order of the elements.
void sum_squares(const double* x, double factor, const double* r, std::int64_t n, double& error2, double& of2) {
  double errors[kPart], values[kPart];
  for (std::int64_t i = 0; i < n; ++i) {
    const double scaled = x[i] * factor;
    const bool both = (std::fabs(scaled) <= kMax) & (std::fabs(r[i]) <= kMax);
    const double e = both ? scaled - r[i] : 0.0, v = both ? r[i] : 0.0;
    errors[i] = e * e;
    values[i] = v * v;
  }
  double error = error2, of = of2;
  for (std::int64_t i = 0; i < n; ++i) {
    error += errors[i];
    of += values[i];
  }
  error2 = error;
  of2 = of;
}

/// A block against its exact values; `sent`: as Event has it, or r.
void compare(const double* x, const double* r, const double* sent, std::int64_t n, double noise, double smallest,
             Tally& tally) {
  std::int64_t nonzero = 0, flushed = 0, overflowed = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double size = std::fabs(r[i]), got = std::fabs(x[i]);
    const std::int64_t finite = size <= kMax ? 1 : 0, above = size > noise ? finite : 0;
    nonzero += above;
    flushed += above & (got == 0 ? 1 : 0) &
               (std::fabs(sent[i]) < smallest ? 1 : 0);  // a zero for a larger value is an error, but no flush
    overflowed += finite & (got <= kMax ? 0 : 1);
  }
  tally.nonzero += nonzero;
  tally.flushed += flushed;
  tally.overflowed += overflowed;
  sum_squares(x, 1, r, n, tally.error2, tally.exact2);
}

/// Which logits decide otherwise than the fp64 run's, and which could.
void compare_decisions(const TensorView& got, std::span<const double> exact, Tally& tally) {
  const std::int64_t classes = got.shape.last();
  if (got.shape.rank != 2 || classes < 2) return;
  std::vector<double> row(static_cast<std::size_t>(classes));
  for (std::int64_t at = 0; at < got.count(); at += classes) {
    const std::span<const double> want = exact.subspan(static_cast<std::size_t>(at), row.size());
    load_block(got, at, classes, row.data());
    const auto first = std::max_element(want.begin(), want.end());
    double second = -INFINITY, radius = 0;
    for (auto v = want.begin(); v != want.end(); ++v)
      if (v != first) second = std::max(second, *v);
    for (std::size_t i = 0; i < row.size(); ++i) radius = std::max(radius, std::fabs(row[i] - want[i]));
    const double margin = *first - second;
    if (!std::isfinite(margin)) continue;
    const bool finite = std::isfinite(radius),
               flips = !finite || std::max_element(row.begin(), row.end()) - row.begin() != first - want.begin();
    tally.least_margin = tally.decisions == 0 ? margin : std::min(tally.least_margin, margin);
    ++tally.decisions;
    tally.flipped += flips ? 1 : 0;
    tally.undecided += flips || margin <= 2 * radius ? 1 : 0;
    tally.margins += margin;
    tally.radii += finite ? radius : 0;
  }
}

double relative(double error2, double of2) { return of2 > 0 ? std::sqrt(error2 / of2) : error2 > 0 ? INFINITY : 0; }

}  // namespace

const char* name(FaultRole role) {
  constexpr const char* kNames[] = {"none", "producer", "propagator", "killer"};
  return kNames[static_cast<int>(role)];
}

void Tally::add(const Tally& other) {
  tensors += other.tensors;
  elements += other.elements;
  nonzero += other.nonzero;
  flushed += other.flushed;
  overflowed += other.overflowed;
  error2 += other.error2;
  exact2 += other.exact2;
  unscaled2 += other.unscaled2;
  carried_error2 += other.carried_error2;
  carried2 += other.carried2;
  intended += other.intended;
  stagnant += other.stagnant;
  loss_error += other.loss_error;
  loss_error2 += other.loss_error2;
  loss_reach += other.loss_reach;
  norm_error += other.norm_error;
  norm_error2 += other.norm_error2;
  least_margin = decisions == 0         ? other.least_margin
                 : other.decisions == 0 ? least_margin
                                        : std::min(least_margin, other.least_margin);
  decisions += other.decisions;
  flipped += other.flipped;
  undecided += other.undecided;
  margins += other.margins;
  radii += other.radii;
}

double Tally::local_error() const { return relative(error2, exact2); }
double Tally::carried_error() const { return relative(carried_error2, carried2); }

Sizes Tally::sizes() const {
  Sizes out;
  const auto n = static_cast<double>(elements);
  if (unscaled2 > 0) out.exact = std::sqrt(unscaled2 / n);
  if (carried2 > 0 || carried_error2 > 0) out.fp64 = std::sqrt(carried2 / n);
  return out;
}

const std::vector<double>* derivative_at(const models::GradientDerivative& of, const models::StepRecord& record,
                                         Phase phase, bool cast, std::string_view op, std::string_view tensor) {
  if (of.by_value.empty() || phase > Phase::backward) return nullptr;
  const models::RecordedCall* call = record.find(op);
  if (call == nullptr) return nullptr;
  const auto at = [](const std::vector<std::vector<double>>& all, int id) {
    return &all[static_cast<std::size_t>(id)];
  };
  if (phase == Phase::backward) {
    for (const auto& [input, id] : call->inputs)
      if (tensor == gradient_name(input)) return at(of.by_cotangent, id);
    return nullptr;
  }
  if (!cast) return tensor == call->output_name ? at(of.by_value, call->output) : nullptr;
  const auto found = of.by_input.find(std::string(op) + " d" + std::string(tensor));
  return found == of.by_input.end() ? nullptr : &found->second;
}

void Watch::begin(int step, const models::StepRecord* carried, bool first_micro_batch, double loss_weight, double share,
                  int batch) {
  step_ = step;
  carried_ = carried;
  loss_weight_ = loss_weight;
  share_ = share;
  batch_ = batch;
  if (first_micro_batch) {
    for (auto& [key, place] : places_) place.of_step = {};
    next_ = 0;
    errors_.clear();
    step_lost_ = false;
  }
  pass_lost_ = false;
  logits_.clear();
  if (carried == nullptr) return;
  for (const models::RecordedCall& call : carried->calls) {
    if (call.call.op != "cross_entropy") continue;
    for (const models::RecordedCall& before : carried->calls)
      for (const auto& [input, id] : call.inputs)
        if (input == "x" && before.output == id) logits_ = before.name;
  }
}

/// The fp64 run's cotangent of a forward tensor: of a call's output in all its uses, of a cast in the call that asked
/// for it.
const std::vector<double>* Watch::cotangent_of(const Event& event) const {
  if (carried_ == nullptr || event.phase != Phase::forward) return nullptr;
  if (event.cast) {
    const auto gradient = carried_->gradients.find(std::string(event.op) + " d" + std::string(event.tensor));
    return gradient == carried_->gradients.end() ? nullptr : &gradient->second;
  }
  const models::RecordedCall* call = carried_->find(event.op);
  return call == nullptr || event.tensor != call->output_name
             ? nullptr
             : &carried_->cotangents[static_cast<std::size_t>(call->output)];
}

/// The values of the fp64 run for this tensor: of an op's output or input, or what the op added to a gradient.
const std::vector<double>* Watch::carried_of(const Event& event) const {
  if (event.phase > Phase::backward) return nullptr;
  if (carried_ == nullptr) return nullptr;
  if (event.phase == Phase::backward) {
    const auto gradient = carried_->gradients.find(std::string(event.op) + " " + std::string(event.tensor));
    return gradient == carried_->gradients.end() ? nullptr : &gradient->second;
  }
  const models::RecordedCall* call = carried_->find(event.op);
  if (call == nullptr) return nullptr;
  const auto value = [&](const auto& of, int id) { return &of[static_cast<std::size_t>(id)]; };
  if (!event.cast) return event.tensor == call->output_name ? value(carried_->values, call->output) : nullptr;
  for (const auto& [input, id] : call->inputs)
    if (event.tensor == input) return value(carried_->values, id);
  return nullptr;
}

bool Watch::wants(std::string_view op) const {
  return sampling_.step(step_) && (sampling_.ops == "*" || matches(sampling_.ops, op));
}

FaultRole Watch::note_fault(const Event& event, const TensorKey& key, bool finite) {
  FaultRole role = FaultRole::none;
  if (!finite)
    role = event.inputs_finite ? FaultRole::producer : FaultRole::propagator;
  else if (event.phase == Phase::backward ? !event.cotangent_finite : !event.inputs_finite)
    role = FaultRole::killer;
  const auto known = [&](const FaultEvent& f) {
    return f.step == event.step && f.role == role && f.where.phase == key.phase;
  };
  if (role != FaultRole::none && faults_.size() < kMostFaults && std::none_of(faults_.begin(), faults_.end(), known))
    faults_.push_back({event.step, role, key});
  return role;
}

void Watch::end(bool skipped) {
  if (!skipped) return;
  const auto of_backward = [&](const FaultEvent& f) { return f.step == step_ && f.where.phase != Phase::forward; };
  if (knows_skip_)
    std::erase_if(faults_, of_backward);
  else
    knows_skip_ = std::any_of(faults_.begin(), faults_.end(), of_backward);
}

std::map<TensorKey, Tally> Watch::of_step() const {
  std::map<TensorKey, Tally> out;
  for (const auto& [key, place] : places_)
    if (place.of_step.tensors > 0) out.emplace_hint(out.end(), key, place.of_step);
  return out;
}

Watch::Known& Watch::place_of(const Event& e) {
  if (next_ < order_.size()) {
    const TensorKey& key = *order_[next_]->key;
    if (key.phase == e.phase && key.cast == e.cast && key.dtype == e.got.dtype && key.tensor == e.tensor &&
        key.op == e.op && key.layer == e.layer)
      return *order_[next_++];
  }
  const auto [found, fresh] = places_.try_emplace(
      TensorKey{e.phase, e.cast, e.got.dtype, std::string(e.op), std::string(e.layer), std::string(e.tensor)});
  if (fresh) {
    found->second.key = &found->first;
    found->second.of_run = &of_run_[found->first];
  }
  order_.resize(next_++);  // from here on the order is learnt anew
  order_.push_back(&found->second);
  return found->second;
}

/// Some elements of an event: what was got, the exact values (with the scale) and the fp64 run's (without), as far as
/// there are any.
struct Watch::Block {
  const double *got = nullptr, *exact = nullptr, *carried = nullptr;
  std::int64_t n = 0;
  double noise = 0, carried_noise = 0;
};

void Watch::add_range(GradientRange& range, const Event& event, const Block& block) const {
  double magnitudes[kPart], most = 0;
  const double inverse = 1 / event.scale, kept = format(event.got.dtype).min_subnormal() * inverse,
               lost = range.half_subnormal() * inverse;
  const bool earlier = event.phase == Phase::all_reduce ? step_lost_ : pass_lost_,
             exact_counts = block.carried == nullptr || !earlier;
  for (std::int64_t i = 0; i < block.n; ++i) {
    double exact =
        block.exact != nullptr && std::fabs(block.exact[i]) > block.noise ? std::fabs(block.exact[i]) * inverse : 0;
    const double fp64 =
        block.carried != nullptr && std::fabs(block.carried[i]) > block.carried_noise ? std::fabs(block.carried[i]) : 0;
    if (!exact_counts) exact = exact > 0 && exact < kept && block.got[i] == 0 ? std::nextafter(lost, kMax) : 0;
    magnitudes[i] = exact > 0 && fp64 > 0 ? std::min(exact, fp64) : std::max(exact, fp64);
    if (exact <= kMax) most = std::max(most, exact);
    if (fp64 <= kMax) most = std::max(most, fp64);
  }
  range.add_part({magnitudes, static_cast<std::size_t>(block.n)}, 1, 0);
  range.reach(most);
}

/// What an event is held against, as far as there is any, and what of it is noise.
struct Watch::Shadows {
  std::span<const double> carried;  ///< the fp64 run's values
  /// What an error of an element moves: the loss, and the norm of its gradient.
  const std::vector<double>*loss_by = nullptr, *norm_by = nullptr;
  GradientRange* range = nullptr;  ///< of a gradient in 16 bits: where its sizes are counted
  double noise = 0, carried_noise = 0;
};

std::optional<TensorStats> Watch::statistics_of(const Event& event) const {
  if (!listener_) return std::nullopt;
  std::optional<TensorStats> stats;
  if (event.narrow_stats != nullptr && event.got.dtype == Dtype::fp32)
    stats = widened_stats(*event.narrow_stats, event.narrow);
  return stats ? std::move(stats) : tensor_stats(event.got);
}

Watch::Shadows Watch::shadows_of(const Event& event, Known& place) {
  Shadows out;
  const std::int64_t n = event.got.count();
  const auto of_all = [n](const std::vector<double>* values) {
    return values != nullptr && std::ssize(*values) == n ? values : nullptr;
  };
  const std::vector<double>* const of_record = carried_of(event);
  out.carried = of_record != nullptr ? std::span<const double>(*of_record) : event.carried;
  if (std::ssize(out.carried) != n) out.carried = {};
  if (is_gradient(event.phase) && is_16_bit(event.got.dtype) && !event.by_gradient &&
      (event.has_exact() || !out.carried.empty())) {
    if (place.range == nullptr)
      place.range = &ranges_.try_emplace(place.key->str(), GradientRange(event.got.dtype)).first->second;
    if (listener_) range_of_event_ = GradientRange(event.got.dtype);
    out.range = listener_ ? &range_of_event_ : place.range;
    if (!out.carried.empty()) out.carried_noise = noise_of(out.carried);
  }
  if (!event.has_exact()) return out;
  out.noise = kNoiseShare * (event.largest_exact ? *event.largest_exact : magnitudes(event.exact).largest_finite);
  out.loss_by = of_all(cotangent_of(event));
  if (carried_ != nullptr)
    out.norm_by = of_all(derivative_at(carried_->of_norm, *carried_, event.phase, event.cast, event.op, event.tensor));
  return out;
}

/// A cast in a run without fp64 beside it: its statistics and sums in one pass; nothing of another event.
std::optional<ShadowStats> Watch::compare_cast(const Event& event, const Shadows& with, Tally& tally) const {
  if (!listener_ || !event.has_exact() || !with.carried.empty() || with.loss_by != nullptr || with.norm_by != nullptr)
    return std::nullopt;
  const std::int64_t n = event.got.count();
  double exact[kPart];
  for (std::int64_t at = 0; with.range != nullptr && at < n; at += kPart) {
    const std::int64_t part = std::min<std::int64_t>(kPart, n - at);
    with.range->add_part({read_block(event.exact, at, part, exact), static_cast<std::size_t>(part)}, event.scale,
                         with.noise);
  }
  ShadowSums sums;
  std::optional<ShadowStats> out = shadow_stats(event.got, event.exact, with.noise, sums);
  tally.nonzero = sums.above;
  tally.flushed = sums.flushed;
  tally.overflowed = sums.overflowed;
  tally.error2 = sums.error2;
  tally.exact2 = sums.shadow2;
  return out;
}

/// Elements [at, at + n) against the exact values, and what their errors move. `adjoint2`: the sum of squares of the
/// cotangents so far.
void Watch::compare_exact(const Event& event, const Shadows& with, std::int64_t at, std::int64_t n, const double* got,
                          Tally& tally, double& adjoint2) const {
  double exact[kPart];
  const double* const r = read_block(event.exact, at, n, exact);
  compare(got, r, event.sent.empty() ? r : event.sent.data() + at, n, with.noise,
          format(event.got.dtype).min_subnormal(), tally);
  for (std::int64_t i = 0; with.loss_by != nullptr && i < n; ++i) {
    const double adjoint = (*with.loss_by)[static_cast<std::size_t>(at + i)];
    tally.loss_error += (got[i] - r[i]) * adjoint;
    adjoint2 += adjoint * adjoint;
  }
  for (std::int64_t i = 0; with.norm_by != nullptr && i < n; ++i)
    tally.norm_error += (got[i] - r[i]) * (*with.norm_by)[static_cast<std::size_t>(at + i)];
}

/// All of an event, part by part. Returns the sum of squares of the cotangents.
double Watch::compare_all(const Event& event, const Shadows& with, Tally& tally) const {
  const std::int64_t n = event.got.count();
  double got[kPart], exact[kPart], adjoint2 = 0;
  for (std::int64_t at = 0; at < n && (event.has_exact() || !with.carried.empty()); at += kPart) {
    const std::int64_t part = std::min<std::int64_t>(kPart, n - at);
    load_block(event.got, at, part, got);
    if (event.has_exact()) compare_exact(event, with, at, part, got, tally, adjoint2);
    const double* const carried = with.carried.empty() ? nullptr : with.carried.data() + at;
    if (with.range != nullptr) {
      const double* const sizes = !event.has_exact()   ? nullptr
                                  : event.sent.empty() ? read_block(event.exact, at, part, exact)
                                                       : event.sent.data() + at;
      add_range(*with.range, event, {got, sizes, carried, part, with.noise, with.carried_noise});
    }
    if (carried != nullptr) sum_squares(got, 1 / event.scale, carried, part, tally.carried_error2, tally.carried2);
  }
  return adjoint2;
}

/// What follows from the sums of an event.
void Watch::conclude(const Event& event, const Shadows& with, double adjoint2, Tally& tally) {
  const double inverse = 1 / event.scale;
  const auto finite = [](double v) { return std::isfinite(v) ? v : 0; };  // what is not finite has its own report
  if (with.range != nullptr) {
    with.range->reach(event.most_sent * inverse);
    if (tally.overflowed > 0)
      with.range->reach(with.range->infinite_from() * inverse);  // at this scale it did, by its own rounding
    pass_lost_ |= tally.flushed > 0;
    step_lost_ |= tally.flushed > 0;
  }
  tally.unscaled2 = tally.exact2 * inverse * inverse;
  tally.loss_error = finite(tally.loss_error / loss_weight_);
  tally.norm_error = finite(tally.norm_error * (event.phase == Phase::backward ? inverse / loss_weight_ : share_));
  tally.norm_error2 = tally.norm_error * tally.norm_error;
  tally.loss_error2 = tally.loss_error * tally.loss_error;
  tally.loss_reach = std::sqrt(tally.error2 * adjoint2) / loss_weight_;
  if (!logits_.empty() && event.phase == Phase::forward && !event.cast && event.op == logits_ && !with.carried.empty())
    compare_decisions(event.got, with.carried, tally);
  tally.intended = event.intended;
  tally.stagnant = event.stagnant;
}

Seen Watch::see(const Event& event) {
  Known& place = place_of(event);
  const TensorKey& key = *place.key;
  std::optional<TensorStats> stats = statistics_of(event);
  const bool finite = stats ? stats->not_finite() == 0 : all_finite(event.got);
  const FaultRole role = note_fault(event, key, finite);
  const Shadows with = shadows_of(event, place);
  Tally tally;
  tally.tensors = 1;
  tally.elements = event.got.count();
  const std::optional<ShadowStats> shadow = compare_cast(event, with, tally);
  conclude(event, with, shadow ? 0 : compare_all(event, with, tally), tally);
  if (keeps_errors_ && event.has_exact() && event.phase <= Phase::all_reduce && !event.by_gradient) {
    errors_.add_local(event, key, batch_);
    if (event.inputs != nullptr && carried_ != nullptr) errors_.add_inherited(event, key, batch_, *carried_);
  }
  place.of_step.add(tally);
  place.of_run->add(tally);
  if (listener_) {
    if (with.range != nullptr) place.range->merge(*with.range);
    Event told = event;
    told.shadow = shadow ? &*shadow : nullptr;
    told.range = with.range;
    listener_(told, key, tally, role, *stats);
  }
  return {finite, stats && event.phase == Phase::backward && is_16_bit(event.got.dtype)
                      ? std::make_shared<const TensorStats>(std::move(*stats))
                      : nullptr};
}

}  // namespace ampcheck::checks::train
