// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// What ranks have in common, and how their gradients become one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checks/diagnose/scene.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

/// A weight whose cast is another on another rank of the same step.
void ask_replicas(Scene& scene) {
  Place out;
  std::string ranks;
  for (const auto& [name, track] : scene.seen.tracks) {
    if (!track.key.cast || track.key.tensor != "weight" || track.key.phase != Phase::forward) continue;
    std::map<int, const Sample*> first;
    for (const Sample& s : track.samples) {
      const auto [at, fresh] = first.try_emplace(s.step, &s);
      if (fresh || at->second->fingerprint == s.fingerprint) continue;
      if (!out || s.sequence < out.sample->sequence) {
        out = {&track, &s};
        ranks = fmt::format("{} and {}", at->second->rank, s.rank);
      }
      break;
    }
  }
  if (!out) return;
  Finding f{.cause = Cause::replica_drift,
            .weight = Weight::decided,
            .op = out.track->key.op,
            .tensor = out.track->key.str(),
            .precursor = out.sample->step,
            .step = out.sample->step};
  f.speaks_for.push_back("ranks " + ranks + " have other bits of this weight at " + step_text(f.step));
  f.not_tried = "what ranks exchange is the program's";
  f.paste = "broadcast the parameters from rank 0, and clip by a norm over all ranks";
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = f.step;
  scene.add(std::move(f));
}

/// The sum over ranks against the exact one of what the ranks have.
void ask_reduction(Scene& scene) {
  // A sum in the gradients' own fp32 is below this by far; in 16 bits every number is rounded at every addition.
  Place worst;
  for (const auto& [name, track] : scene.seen.tracks)
    if (track.key.phase == Phase::all_reduce)
      for (const Sample& s : track.samples)
        if (s.excess > 1 && (!worst || s.excess > worst.sample->excess)) worst = {&track, &s};
  if (!worst) return;
  const Place first = first_place(
      scene.seen, [](const Track& t, const Sample& s) { return t.key.phase == Phase::all_reduce && s.excess > 1; });
  Finding f{.cause = Cause::low_reduction,
            .weight = Weight::supported,
            .op = worst.track->key.op,
            .tensor = worst.track->key.str(),
            .precursor = first.sample->step,
            .step = first.sample->step};
  f.speaks_for.push_back(fmt::format("the sum over {} ranks is {:.2g} times as far from the exact one as one rounding",
                                     scene.options().rule.ranks, worst.sample->excess));
  f.cure.one_rank = true;
  f.can_be_tried = true;
  const Course& alone = scene.lab.run(f.cure, f.step, f.step);
  scene.lab.note("E6", "the same batches on one rank, summed in fp32", alone.refused.empty() ? "ran" : alone.refused);
  if (alone.refused.empty() && alone.at(f.step) != nullptr) {
    const StepResult &one = *alone.at(f.step), &many = scene.step(f.step);
    double apart = 0, size = 0;
    for (std::size_t i = 0; i < one.norms.size() && i < many.norms.size(); ++i) {
      apart += std::pow(one.norms[i] - many.norms[i], 2);
      size += std::pow(one.norms[i], 2);
    }
    f.weight = Weight::decided;
    f.speaks_for.push_back(fmt::format("E6: on one rank with the same batches the gradients' norms differ by {:.2g}",
                                       size > 0 ? std::sqrt(apart / size) : 0.0));
  }
  f.paste = "reduce in fp32: MixedPrecision(reduce_dtype=torch.float32), no fp16 or bf16 compress hook";
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = f.step;
  scene.add(std::move(f));
}

}  // namespace

void ask_ranks(Scene& scene) {
  if (scene.options().rule.ranks < 2 && scene.options().rule.accumulate < 2) return;
  ask_replicas(scene);
  ask_reduction(scene);
}

}  // namespace ampcheck::checks::diagnose
