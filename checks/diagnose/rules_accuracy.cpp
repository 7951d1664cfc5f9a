// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Ops whose results are further from their formulas than rounding makes them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/diagnose/probe.h"
#include "checks/diagnose/scene.h"

namespace ampcheck::checks::diagnose {

using namespace train;

void ask_accuracy(Scene& scene) {
  const Place place = first_place(scene.seen, [](const Track& t, const Sample& s) {
    return (t.key.phase == Phase::forward || t.key.phase == Phase::backward) && !t.key.cast && s.finite &&
           s.has_exact && s.excess > kExcess;
  });
  if (!place) return;
  Finding f{.cause = Cause::low_accumulator,
            .weight = Weight::possible,
            .op = place.track->key.op,
            .tensor = place.track->key.str(),
            .precursor = place.sample->step,
            .step = place.sample->step};
  f.speaks_for.push_back(fmt::format("its error is {:.3g} times what rounding each element once makes",
                                     place.sample->excess));
  scene.add(std::move(f));
}

}  // namespace ampcheck::checks::diagnose
