// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/chain.h"

#include <fmt/format.h>

#include <algorithm>

namespace ampcheck::checks::diagnose {

namespace {

/// A tensor of a step that the chain may name.
struct Seen {
  const std::string* tensor;
  const Sample* sample;
};

std::string share(std::int64_t part, std::int64_t all) {
  return fmt::format("{:.3g} %", 100 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(all, 1)));
}

/// What a tensor shows, the worst of it first.
std::string shown(const Sample& s) {
  if (s.role == train::FaultRole::producer)
    return fmt::format("makes {} of {} elements non-finite from finite ones", s.not_finite, s.elements);
  if (s.not_finite > 0) return fmt::format("{} of {} elements are not finite", s.not_finite, s.elements);
  if (s.role == train::FaultRole::killer) return "is finite although what it read was not";
  if (s.flushed > 0) return share(s.flushed, s.nonzero) + " of what is not zero became zero";
  if (s.flipped > 0) return fmt::format("{} of {} decisions fall otherwise than in fp64", s.flipped, s.decisions);
  if (s.excess > 1) return fmt::format("its error is {:.2g} times what rounding makes", s.excess);
  if (s.headroom) return fmt::format("its largest element is 2^{} below the largest number", *s.headroom);
  return fmt::format("its error is {:.2g}", s.error);
}

const Sample* sample_at(const Observation& seen, const std::string& tensor, int step) {
  const auto track = seen.tracks.find(tensor);
  if (track == seen.tracks.end()) return nullptr;
  const auto at = std::find_if(track->second.samples.begin(), track->second.samples.end(),
                               [&](const Sample& s) { return s.step == step; });
  return at == track->second.samples.end() ? nullptr : &*at;
}

/// What is not finite in a step, in the order in which it was written.
std::vector<Seen> not_finite_in(const Observation& seen, int step) {
  std::vector<Seen> out;
  for (const auto& [name, track] : seen.tracks)
    for (const Sample& s : track.samples)
      if (s.step == step && s.not_finite > 0) out.push_back({&name, &s});
  std::sort(out.begin(), out.end(),
            [](const Seen& a, const Seen& b) { return a.sample->sequence < b.sample->sequence; });
  return out;
}

void add_spread(const Observation& seen, int step, std::vector<Link>& out) {
  const std::vector<Seen> all = not_finite_in(seen, step);
  if (all.empty()) return;
  const bool known = std::any_of(out.begin(), out.end(),
                                 [&](const Link& l) { return l.step == step && l.tensor == *all.front().tensor; });
  if (!known) out.push_back({step, *all.front().tensor, shown(*all.front().sample)});
  if (all.size() > 1)
    out.push_back({step, *all.back().tensor, fmt::format("the last of {} tensors that have it then", all.size())});
}

void add_symptom(const Observation& seen, const Symptoms& symptoms, int step, std::vector<Link>& out) {
  const auto& steps = seen.steps;
  if (step >= 0 && step < std::ssize(steps) && !steps[static_cast<std::size_t>(step)].stepped)
    out.push_back({step, "", "the step is skipped"});
  if (symptoms.storm >= 0) out.push_back({symptoms.storm, "", "every step is skipped from here on"});
  if (symptoms.left >= 0 && symptoms.left != symptoms.lost)
    out.push_back({symptoms.left, "", "the loss leaves the fp64 run's"});
  if (symptoms.lost >= 0) out.push_back({symptoms.lost, "", "the loss is not finite"});
}

}  // namespace

std::vector<Link> causal_chain(const Observation& seen, const Report& report) {
  std::vector<Link> out;
  if (report.findings.empty()) return out;
  const Finding& f = report.findings.front();
  std::vector<int> at = {f.precursor, f.step};
  at.erase(std::unique(at.begin(), at.end()), at.end());
  for (const int step : at)
    if (const Sample* const s = step >= 0 ? sample_at(seen, f.tensor, step) : nullptr)
      out.push_back({step, f.tensor, shown(*s)});
  if (f.step >= 0) add_spread(seen, f.step, out);
  add_symptom(seen, report.symptoms, f.step, out);
  std::stable_sort(out.begin(), out.end(), [](const Link& a, const Link& b) { return a.step < b.step; });
  return out;
}

}  // namespace ampcheck::checks::diagnose
