/* SPDX-License-Identifier: Apache-2.0 */
/* A training loop through the C door: least squares by SGD with momentum. Broken versions: -DBROKEN=CLIPS_SCALED, ...
 */
#include <ampcheck/ampcheck_scaler.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NONE, CLIPS_SCALED, COUNTS_SKIPS, SAVES_NO_MOMENTS };
#ifndef BROKEN
#define BROKEN NONE
#endif
enum { COUNT = 3 };

typedef struct loop {
  ac_loop_setup setup;
  float weights[COUNT], moments[COUNT], grads[COUNT];
  double scale;
  int32_t clean, steps;
} loop;

static void* create(const ac_loop_setup* setup) {
  loop* self = (loop*)calloc(1, sizeof(loop));
  if (self == NULL) return NULL;
  self->setup = *setup;
  self->scale = setup->scale;
  self->weights[0] = 0.5f;
  self->weights[1] = -0.25f;
  self->weights[2] = 1.0f;
  return self;
}

static void clip(loop* self) {
  const float most = (float)self->setup.clip;
  float norm = 0;
  for (int i = 0; i < COUNT; ++i) norm += self->grads[i] * self->grads[i];
  norm = sqrtf(norm);
  for (int i = 0; i < COUNT && most > 0 && norm > most; ++i) self->grads[i] *= most / norm;
}

static int backward(loop* self, const ac_loop_step* step, double* loss) {
  int bad = 0;
  memset(self->grads, 0, sizeof self->grads);
  for (int32_t micro = 0; micro < self->setup.accumulate; ++micro) {
    const int32_t batch = step->batch * self->setup.accumulate + micro;
    for (int i = 0; i < COUNT; ++i) {
      const float error = self->weights[i] - sinf((float)(batch + i));
      *loss += (double)error * (double)error / 2;
      self->grads[i] += error * (float)self->scale / (float)self->setup.accumulate;
    }
    if (step->poisoned != 0 && step->micro_batch == micro)
      self->grads[step->last != 0 ? COUNT - 1 : 0] = (float)step->poison;
  }
  for (int i = 0; i < COUNT; ++i) bad |= !isfinite(self->grads[i]);
  return bad;
}

static int32_t take_step(void* at, const ac_loop_step* step, ac_loop_result* result) {
  loop* self = (loop*)at;
  result->scale = self->scale;
  result->loss = 0;
  result->skipped = backward(self, step, &result->loss);
  if (result->skipped == 0) {
    if (BROKEN == CLIPS_SCALED) clip(self);
    for (int i = 0; i < COUNT; ++i) self->grads[i] /= (float)self->scale;
    if (BROKEN != CLIPS_SCALED) clip(self);
    for (int i = 0; i < COUNT; ++i) {
      self->moments[i] = self->moments[i] / 2 + self->grads[i];
      self->weights[i] -= self->moments[i] / 16;
    }
  }
  if (result->skipped == 0 || BROKEN == COUNTS_SKIPS) ++self->steps;
  if (result->skipped != 0) {
    self->scale /= 2;
    self->clean = 0;
  } else if (++self->clean == self->setup.growth_interval) {
    self->scale *= 2;
    self->clean = 0;
  }
  return 0;
}

static int32_t report(void* at, const ac_loop_sink* sink) {
  const loop* self = (const loop*)at;
  double weights[COUNT], moments[COUNT];
  const double steps = self->steps;
  for (int i = 0; i < COUNT; ++i) {
    weights[i] = (double)self->weights[i];
    moments[i] = (double)self->moments[i];
  }
  sink->state(sink->context, "weights", weights, COUNT);
  sink->state(sink->context, "moments", moments, COUNT);
  sink->state(sink->context, "steps", &steps, 1);
  return 0;
}

static int64_t save(void* at, void* buffer, int64_t room) {
  if (room >= (int64_t)sizeof(loop)) memcpy(buffer, at, sizeof(loop));
  return sizeof(loop);
}

static int32_t load(void* at, const void* state, int64_t bytes) {
  loop* self = (loop*)at;
  if (bytes != (int64_t)sizeof(loop)) return 1;
  memcpy(self, state, sizeof(loop));
  if (BROKEN == SAVES_NO_MOMENTS) memset(self->moments, 0, sizeof self->moments);
  return 0;
}

static const ac_loop table = {
    .struct_size = sizeof(ac_loop),
    .abi = AMPCHECK_SCALER_ABI,
    .name = "my_loop",
    .flags = AC_LOOP_SCALER | AC_LOOP_CLIP | AC_LOOP_ACCUMULATE | AC_LOOP_RESUME,
    .create = create,
    .destroy = free,
    .step = take_step,
    .report = report,
    .save = save,
    .load = load,
};

const ac_loop* ampcheck_loop_v1(void) { return &table; }
