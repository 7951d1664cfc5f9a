// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Where a run in fp8 leaves its recipe.
#include "checks/diagnose/scene.h"

#include <cmath>

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

struct Meaning {
  Cause cause;
  const char* paste;
};

/// None for what is no cause of its own: other codes are an op's or the format's.
Meaning meaning_of(Fp8Departure::Kind kind) {
  using Kind = Fp8Departure::Kind;
  switch (kind) {
    case Kind::format: return {Cause::fp8_format, "Format.HYBRID: gradients in e5m2, with 57344 / amax as their scale"};
    case Kind::stale:
    case Kind::scale:
      return {Cause::fp8_scale,
              "record the amax and update the scale of each tensor in each step; or Float8CurrentScaling()"};
    case Kind::history:
    case Kind::margin:
      return {Cause::fp8_history, "the amax_history_len and margin that the recipe says, in every module"};
    case Kind::inverse:
      return {Cause::fp8_inverse, "scale_inv = 1 / scale of the same step, for each of a product's inputs"};
    case Kind::codes: break;
  }
  return {Cause::none, ""};
}

}  // namespace

void ask_fp8(Scene& scene) {
  for (const Fp8Departure& d : scene.seen.fp8) {
    const Meaning meaning = meaning_of(d.kind);
    if (meaning.cause == Cause::none) continue;
    if (scene.symptoms.first() < 0) scene.symptoms.bad_op = d.step;
    Finding f{.cause = meaning.cause,
              .weight = Weight::decided,
              .op = d.op,
              .tensor = d.where(),
              .precursor = d.step,
              .step = d.step,
              .speaks_for = {d.what},
              .paste = meaning.paste,
              .cure = {.fp8_by_recipe = true},
              .can_be_tried = true};
    if (meaning.cause == Cause::fp8_scale) f.otherwise = Change{.fp8_current = true};
    scene.add(std::move(f));
  }
  if (scene.findings.empty()) return;
  const Course& wide = scene.lab.whole({.without_fp8 = true});
  const bool finite = wide.refused.empty() && wide.first_lost() < 0;
  scene.lab.note("E2", "all linear layers in 16 bits", finite ? "every loss is finite" : "not well either");
}

}  // namespace ampcheck::checks::diagnose
