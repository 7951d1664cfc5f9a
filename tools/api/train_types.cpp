// SPDX-License-Identifier: Apache-2.0
#include "tools/api/train_types.h"

namespace ampcheck::train {

namespace {

Place public_place(const checks::train::Place& from) {
  const checks::train::Tally& t = from.tally;
  return {.text = from.where.str(),
          .op = from.where.op,
          .layer = from.where.layer,
          .phase = checks::train::name(from.where.phase),
          .tensor = from.where.tensor,
          .cast = from.where.cast,
          .dtype = public_dtype(from.where.dtype),
          .elements = t.elements,
          .nonzero = t.nonzero,
          .flushed = t.flushed,
          .overflowed = t.overflowed,
          .local_error = t.local_error(),
          .carried_error = t.carried_error()};
}

ScaleAdvice public_advice(const checks::train::ScaleAdvice& from) {
  return {.known = from.known,
          .low = from.low,
          .high = from.high,
          .best = from.best,
          .best_share = from.best_share,
          .unscaled_share = from.unscaled_share,
          .flushes = from.flushes,
          .overflows = from.overflows};
}

template <Dtype dtype, ampcheck::Dtype ours>
constexpr bool kSame = static_cast<int>(dtype) == static_cast<int>(ours);
static_assert(kSame<Dtype::fp64, ampcheck::Dtype::fp64> && kSame<Dtype::fp32, ampcheck::Dtype::fp32> &&
              kSame<Dtype::fp16, ampcheck::Dtype::fp16> && kSame<Dtype::bf16, ampcheck::Dtype::bf16> &&
              kSame<Dtype::e4m3fn, ampcheck::Dtype::e4m3fn> && kSame<Dtype::e5m2, ampcheck::Dtype::e5m2> &&
              kSame<Dtype::i32, ampcheck::Dtype::i32> && kSame<Dtype::i64, ampcheck::Dtype::i64> &&
              kSame<Dtype::u8, ampcheck::Dtype::u8>);

}  // namespace

ampcheck::Dtype inner_dtype(Dtype dtype) { return static_cast<ampcheck::Dtype>(dtype); }
Dtype public_dtype(ampcheck::Dtype dtype) { return static_cast<Dtype>(dtype); }

ampcheck::Shape inner_shape(const Shape& shape) {
  if (shape.size() > static_cast<std::size_t>(kMaxRank))
    throw UsageError("[shape] got " + std::to_string(shape.size()) + " dimensions, want at most " +
                     std::to_string(kMaxRank));
  for (const std::int64_t extent : shape)
    if (extent < 0) throw UsageError("[shape] got an extent of " + std::to_string(extent) + ", want 0 or more");
  return ampcheck::Shape(std::span<const std::int64_t>(shape));
}

Shape public_shape(const ampcheck::Shape& shape) { return Shape(shape.extent, shape.extent + shape.rank); }

StepResult public_result(const checks::train::StepResult& from) {
  StepResult out;
  out.step = from.step;
  out.loss = from.loss;
  out.fp64_loss = from.fp64_loss;
  out.apart = from.apart;
  out.spread = from.spread;
  out.rounding = from.rounding;
  out.allowed = from.allowed();
  out.left = from.left();
  out.grad_norm = from.grad_norm;
  out.scale = from.scale;
  out.scale_after = from.scale_after;
  out.found_inf = from.found_inf;
  out.stepped = from.stepped;
  out.skips = from.skips;
  out.lr = from.lr;
  out.stagnant_share = from.stagnant_share;
  out.scaled_norms = from.scaled_norms;
  out.norms = from.norms;
  out.losses = from.losses;
  if (from.clipping) {
    out.clipped_norm = from.clipping->norm;
    out.clip_factor = from.clipping->factor;
  }
  for (const checks::train::OptimizerStep& own : from.optimizers) {
    StepResult::OfOptimizer& to = out.optimizers.emplace_back();
    to = {.found_inf = own.found_inf, .stepped = own.stepped, .skips = own.skips, .lr = own.lr};
    if (!own.clipping) continue;
    to.clipped_norm = own.clipping->norm;
    to.clip_factor = own.clipping->factor;
  }
  return out;
}

Diagnosis public_diagnosis(const checks::train::Diagnosis& from) {
  Diagnosis out;
  out.left_at = from.left_at;
  if (from.worst) out.worst = public_place(*from.worst);
  for (const checks::train::Place& place : from.vanished) out.vanished.push_back(public_place(place));
  for (const checks::train::Place& place : from.least_exact) out.least_exact.push_back(public_place(place));
  if (from.producer) out.producer = from.producer->where.str();
  if (from.killer) out.killer = from.killer->where.str();
  out.vanished_share = from.vanished_share;
  out.skipped = from.skipped;
  out.scale = public_advice(from.scale);
  return out;
}

}  // namespace ampcheck::train
