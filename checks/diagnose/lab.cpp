// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "src/amp/error.h"
#include "src/error.h"

namespace ampcheck::checks::diagnose {

using namespace train;

const StepResult* Course::at(int step) const {
  const int index = step - from;
  return index >= 0 && index < static_cast<int>(steps.size()) ? &steps[static_cast<std::size_t>(index)] : nullptr;
}

int Course::first_lost() const {
  for (const StepResult& step : steps)
    if (!std::isfinite(step.loss)) return step.step;
  return -1;
}

namespace {

void note_excess(Trainer& trainer, Dtype dtype, std::map<std::string, double>& out) {
  trainer.watch()->listen(
      [dtype, &out](const Event& e, const TensorKey& key, const Tally& tally, FaultRole, const TensorStats&) {
        if (e.cast || tally.exact2 <= 0) return;
        const double limit = error_limit(key.dtype, dtype, std::sqrt(tally.exact2), tally.elements);
        double& most = out[key.op];
        most = std::max(most, limit > 0 ? std::sqrt(tally.error2) / limit : 0);
      });
}

}  // namespace

const Course& Lab::run(const Change& change, int from, int to, bool locally) {
  const Checkpoint* const start = from < 0 || hidden_state_ ? nullptr : seen_.before(from);
  const std::string key = fmt::format("{}|{}|{}|{}", change.key(), start != nullptr ? start->step : 0, to, locally);
  const auto [at, fresh] = known_.try_emplace(key);
  Course& out = at->second;
  if (!fresh) return out;
  ++runs_;
  const auto began = std::chrono::steady_clock::now();
  try {
    const std::unique_ptr<Trainer> trainer = make_trainer(subject_, change, {.local = locally, .carried = false}, 0);
    if (start != nullptr) transplant(*trainer, start->bytes, change.scale || change.init_scale);
    if (locally) note_excess(*trainer, subject_.options.dtype, out.excess);
    out.from = trainer->steps();
    while (trainer->steps() <= to) out.steps.push_back(trainer->step());
  } catch (const AmpError& error) {
    out.refused = error.what();
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error& error) {
    out.refused = error.what();
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return out;
}

void Lab::note(std::string experiment, std::string what, std::string result) {
  for (const Tried& known : tried_)
    if (known.experiment == experiment && known.what == what && known.result == result) return;
  tried_.push_back({std::move(experiment), std::move(what), std::move(result)});
}

}  // namespace ampcheck::checks::diagnose
