// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// What a run computes twice: activations that are not kept for the backward, and an inference beside the training.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/diagnose/scene.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

/// The first op of those whose bits differ: later ones inherit it.
const TwiceSeen* first_apart(const Observation& seen, bool inferred) {
  for (const TwiceSeen& t : seen.twice)
    if (t.inferred == inferred && t.step >= 0) return &t;
  return nullptr;
}

Finding finding_of(const Scene& scene, Cause cause, const TwiceSeen& t) {
  const std::string whose = t.layer.empty() ? t.op : t.op + " (" + t.layer + ")";
  Finding f{.cause = cause, .op = t.op, .tensor = whose + " forward", .precursor = t.step, .step = t.step};
  for (const auto& [name, track] : scene.seen.tracks)
    if (track.key.op == t.op && track.key.phase == Phase::forward && !track.key.cast) f.tensor = name;
  return f;
}

/// E8: each op of the forward against itself when it is computed again.
void ask_recomputed(Scene& scene) {
  const bool any =
      std::any_of(scene.seen.twice.begin(), scene.seen.twice.end(), [](const TwiceSeen& t) { return !t.inferred; });
  if (!any) return;
  const TwiceSeen* const t = first_apart(scene.seen, false);
  scene.lab.note("E8", "each op computed again against its forward", t == nullptr ? "the same bits" : "other bits");
  if (t == nullptr) return;
  Finding f = finding_of(scene, Cause::recompute_differs, *t);
  f.weight = scene.has(Cause::not_repeatable) ? Weight::supported : Weight::decided;
  f.speaks_for.push_back(
      fmt::format("E8: {} of {} elements have other values when they are computed again, {:.2g} of "
                  "their size apart at most; ops before it have the same bits",
                  t->differing, t->elements, t->apart));
  if (t->first != t->second)
    f.speaks_for.push_back(
        fmt::format("the forward computes in {}, the second time in {}", name(t->first), name(t->second)));
  if (scene.has(Cause::not_repeatable)) f.speaks_against.push_back("E0: the same step has other bits each time anyway");
  f.cure.keep_activations = true;
  f.can_be_tried = true;
  f.paste =
      "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False, preserve_rng_state=True), called inside "
      "the region of autocast";
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = f.step;
  scene.add(std::move(f));
}

/// Both sides may be well rounded: they are apart if their types are, or their results by more than a rounding.
void ask_inference(Scene& scene) {
  const TwiceSeen* last = nullptr;
  for (const TwiceSeen& t : scene.seen.twice)
    if (t.inferred) last = &t;
  if (last == nullptr) return;
  const TwiceSeen* const first = first_apart(scene.seen, true);
  scene.lab.note("E2", "each op of the inference against the training's",
                 first == nullptr ? "the same bits" : fmt::format("apart from {} on", first->op));
  if (first == nullptr || (first->first == first->second && last->excess <= kExcess)) return;
  Finding f = finding_of(scene, Cause::two_stacks, *first);
  f.weight = Weight::supported;
  f.speaks_for.push_back(fmt::format("E2: {} of {} elements of {} differ, the first op that does", first->differing,
                                     first->elements, first->op));
  if (first->first != first->second)
    f.speaks_for.push_back(
        fmt::format("the training computes it in {}, the inference in {}", name(first->first), name(first->second)));
  f.speaks_for.push_back(fmt::format("{} is {:.2g} apart at most: a ratio of probabilities is up to {:.3g} off",
                                     last->op, last->largest, std::expm1(last->largest)));
  f.not_tried = "ampcheck does not have the inference's kernels";
  f.paste = "the same kernels and types on both sides (fp16 for both, rather than bf16), or weights for the ratio";
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = f.step;
  scene.add(std::move(f));
}

}  // namespace

void ask_twice(Scene& scene) {
  ask_recomputed(scene);
  ask_inference(scene);
}

}  // namespace ampcheck::checks::diagnose
