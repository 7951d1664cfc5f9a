// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/scene.h"

#include <fmt/format.h>

#include <algorithm>

namespace ampcheck::checks::diagnose {

const char* name(Weight weight) {
  constexpr const char* kNames[] = {"possible", "supported", "decided"};
  return kNames[static_cast<int>(weight)];
}

int Symptoms::first() const {
  int out = -1;
  for (const int step : {lost, left, storm, bad_op})
    if (step >= 0 && (out < 0 || step < out)) out = step;
  return out;
}

bool Scene::has(Cause cause) const {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& f) { return f.cause == cause; });
}

Place first_place(const Observation& seen, const std::function<bool(const Track&, const Sample&)>& holds) {
  Place out;
  for (const auto& [name, track] : seen.tracks)
    for (const Sample& sample : track.samples)
      if (holds(track, sample)) {
        if (!out || sample.sequence < out.sample->sequence) out = {&track, &sample};
        break;
      }
  return out;
}

void try_right_loop(const Scene& scene, Finding& f) {
  if (!scene.subject.install) return;
  f.cure.right_loop = true;
  f.can_be_tried = true;
}

std::string step_text(int step) { return fmt::format("step {}", step + 1); }

std::string paste_fp32(const Observation& seen, const Ops& ops) {
  std::string layers, calls;
  for (const std::string& op : ops) {
    std::string layer;
    for (const auto& [name, track] : seen.tracks)
      if (track.key.op == op && !track.key.layer.empty()) layer = track.key.layer;
    const std::string one = layer.empty() ? op : layer;
    layers += (layers.empty() ? "" : ", ") + one;
  }
  return fmt::format(
      "with torch.autocast(\"cuda\", enabled=False): y = op(x.float())   # {}; in a net's TOML: autocast = \"off\"",
      layers);
}

}  // namespace ampcheck::checks::diagnose
