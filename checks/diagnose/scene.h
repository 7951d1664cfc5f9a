// SPDX-License-Identifier: Apache-2.0
// What the rules of a diagnosis look at, and the rules in the order in which they are asked.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checks/diagnose/finding.h"

namespace ampcheck::checks::diagnose {

/// An op's result may be this much worse than one rounding of each of its elements: kernels that round once stay below
/// 1, those whose contract rounds an inner result too below 2.
inline constexpr double kExcess = 2;

struct Scene {
  Lab& lab;
  const Observation& seen;
  const Subject& subject;
  Symptoms symptoms;
  std::vector<Finding> findings, notes;

  const train::TrainOptions& options() const { return subject.options; }
  Dtype dtype() const { return subject.options.dtype; }
  int last() const { return static_cast<int>(seen.steps.size()) - 1; }
  const train::StepResult& step(int i) const { return seen.steps[static_cast<std::size_t>(i)]; }
  bool has(Cause cause) const;
  void add(Finding finding) { findings.push_back(std::move(finding)); }
};

/// A tensor of a step.
struct Place {
  const Track* track = nullptr;
  const Sample* sample = nullptr;
  explicit operator bool() const { return track != nullptr; }
};
/// The first in the run's order for which `holds` is true.
Place first_place(const Observation& seen, const std::function<bool(const Track&, const Sample&)>& holds);
/// "step 12", counted from 1 as all text is.
std::string step_text(int step);
/// What would raise these ops, as lines of TOML or Python.
std::string paste_fp32(const Observation& seen, const Ops& ops);

/// Of a fault of the run's own loop, where the run has one: a step as torch does it is tried.
void try_right_loop(const Scene& scene, Finding& f);

void ask_repeat(Scene& scene);
void ask_fp8(Scene& scene);
void ask_twice(Scene& scene);
void ask_boundary(Scene& scene);
void ask_forward(Scene& scene);
void ask_killers(Scene& scene);
void ask_scaler(Scene& scene);
void ask_unscale(Scene& scene);
void ask_optimizer(Scene& scene);
void ask_underflow(Scene& scene);
void ask_ranks(Scene& scene);
void ask_accuracy(Scene& scene);
void ask_model(Scene& scene);

}  // namespace ampcheck::checks::diagnose
