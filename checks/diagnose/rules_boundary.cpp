// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Two computations of one number that are compared for equality, and were not rounded alike. That a result closer to
// fp64 is to blame shows in the experiment: with less precision there the op is right again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/diagnose/equality.h"
#include "checks/diagnose/scene.h"
#include "checks/diagnose/smallest_set.h"
#include "checks/models/bound_call.h"
#include "src/amp/autocast_tables.h"
#include "src/rounding.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

/// A result as far from fp64's as half of its own size, or not finite where that is: no matter of a few choices.
constexpr double kBroken = 0.5;

bool broken(const std::vector<double>& got, const std::vector<double>& wanted) {
  if (got.size() != wanted.size()) return false;
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(wanted[i])) continue;
    if (!std::isfinite(got[i])) return true;
    apart += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  return apart > kBroken * kBroken * size;
}

/// Inputs as the kernel read them: cast by autocast, or as they were met.
MetCall as_read(MetCall met, const TrainOptions& options) {
  const OpSignature& signature = models::op_of_call(met.op).signature;
  const bool lower = cast_policy(options.autocast, signature) == CastPolicy::lower_precision_fp;
  for (MetCall::Input& input : met.inputs) {
    const TensorSpec* const spec = signature.input(input.name);
    const bool stored = spec->type == TypeRule::storage || (spec->type == TypeRule::parameter && lower);
    if (stored && input.dtype == Dtype::fp32 && bytes(met.storage) == 2)
      round_values(format(met.storage), {}, input.values, input.values);
  }
  return met;
}

/// A call whose result is broken although what it read was finite.
struct Break {
  Place place;
  Fp64Call wide;
  Equality here, there;
  bool between = false;  ///< its own formula gives no better at the inputs that it read
};

std::optional<Break> break_at(Scene& scene, const Place& place) {
  const std::string& op = place.track->key.op;
  const int step = place.sample->step;
  const std::optional<MetCall> met = met_call(scene.lab, op, step);
  std::optional<Fp64Call> wide = fp64_call(scene.lab, op, step);
  if (!met || !wide || !broken(written_by(scene.lab, op, step, {}), wide->result)) return {};
  const Compared here = compared_at(as_read(*met, scene.options()));
  Break out{.place = place, .wide = std::move(*wide), .here = here.equality, .there = {}};
  out.there = compared_at(out.wide.met).equality;
  if (out.there.held == 0) return {};
  out.between = broken(here.result, out.wide.result);
  if (out.between) return out;
  // Inside: its own kernel is wrong, and not for the size of its numbers.
  const Sample& s = *place.sample;
  if (s.finite && s.excess <= kExcess) return {};
  const Answer small = answer_to(scaled(*met, 1.0 / 16));
  if (small.ran && small.finite && small.excess <= kExcess) return {};
  return out;
}

/// The first op with such a formula whose result is broken.
std::optional<Break> find_break(Scene& scene) {
  std::map<std::string, bool> known;
  const auto asks = [&](const std::string& call) {
    const std::string op = call.substr(0, call.rfind('_'));
    const auto [at, fresh] = known.try_emplace(op, false);
    if (fresh) at->second = compares_inputs(models::op_of_call(op));
    return at->second;
  };
  std::vector<Place> places;
  for (const auto& [name, track] : scene.seen.tracks) {
    if (track.key.phase != Phase::forward || track.key.cast || !asks(track.key.op)) continue;
    const auto at = std::find_if(track.samples.begin(), track.samples.end(), [](const Sample& s) {
      return s.finite ? s.carried > kBroken : s.role == FaultRole::producer;
    });
    if (at != track.samples.end()) places.push_back({&track, &*at});
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.sample->sequence < b.sample->sequence; });
  for (const Place& place : places)
    if (std::optional<Break> found = break_at(scene, place)) return found;
  return {};
}

/// Ops before that one which write fp32 in a run of 16 bits: their stores may be where a rounding was left out.
std::vector<std::string> wide_before(const Scene& scene, const Break& found) {
  std::vector<std::string> out;
  for (const std::string& name : scene.seen.order) {
    const TensorKey& key = scene.seen.tracks.at(name).key;
    if (key.op == found.place.track->key.op) break;
    if (key.phase == Phase::forward && !key.cast && key.dtype == Dtype::fp32) out.push_back(key.op);
  }
  return out;
}

const Track* forward_track(const Observation& seen, const std::string& op) {
  for (const std::string& name : seen.order) {
    const Track& track = seen.tracks.at(name);
    if (track.key.op == op && track.key.phase == Phase::forward && !track.key.cast) return &track;
  }
  return nullptr;
}

/// The rounding that was left out is in an op's store.
bool ask_rounding(Scene& scene, const Break& found, const std::function<bool(const Change&)>& mends, Finding& f) {
  if (!found.between) return false;
  const Search search =
      smallest_set(wide_before(scene, found), {}, [&](const Ops& ops) { return mends({.rounded = ops}); });
  if (!search.known || search.ops.empty()) return false;
  f.cure.rounded = search.ops;
  f.can_be_tried = true;
  f.op = *search.ops.begin();
  if (const Track* const track = forward_track(scene.seen, f.op)) f.tensor = track->key.str();
  const char* const type = ampcheck::name(scene.dtype());
  f.speaks_for.push_back(fmt::format("E2: with {} rounded to {}, which is less precision, {} is right", f.op, type,
                                     found.place.track->key.op));
  scene.lab.note("E2", fmt::format("{} rounded to {}", f.op, type), "the equality holds again");
  f.paste = fmt::format(
      "torch._inductor.config.emulate_precision_casts = True, or {} rounded to {} where both read it; or compare "
      "indices, not values",
      f.op, type);
  return true;
}

/// It is inside of a kernel that computes a number again: ops in fp32 round both alike.
bool ask_raising(Scene& scene, const Break& found, const std::function<bool(const Change&)>& mends, Finding& f) {
  if (found.between && found.here.held >= found.there.held) return false;  // another loss of precision
  const Search search = smallest_set(scene.seen.ops(), {found.place.track->key.op},
                                     [&](const Ops& ops) { return mends({.raised = ops}); });
  if (!search.known || search.ops.empty()) return false;
  std::string list;
  for (const std::string& op : search.ops) list += (list.empty() ? "" : ", ") + op;
  f.cure.raised = search.ops;
  f.sets_tried = search.tried;
  f.speaks_for.push_back(fmt::format("E2: with {} in fp32, where both are rounded alike, it is right", list));
  scene.lab.note("E2", list + " in fp32", "the equality holds again");
  return true;
}

}  // namespace

void ask_boundary(Scene& scene) {
  if (bytes(scene.dtype()) != 2 || scene.has(Cause::not_repeatable) || scene.has(Cause::poisoned_state)) return;
  const std::optional<Break> found = find_break(scene);
  if (!found) return;
  const TensorKey& key = found->place.track->key;
  const int step = found->place.sample->step;
  Finding f{.cause = Cause::moved_boundary,
            .weight = Weight::decided,
            .op = key.op,
            .tensor = key.str(),
            .precursor = step,
            .step = step};
  f.speaks_for.push_back(
      fmt::format("its formula asks whether two numbers are equal: in fp64 they are in {} of {} elements, {}",
                  found->there.held, found->there.of,
                  found->between ? fmt::format("at what the run computed in {}", found->here.held)
                                 : "and its kernel finds others"));
  const auto mends = [&](const Change& change) {
    const std::vector<double> got = written_by(scene.lab, key.op, step, change);
    return !got.empty() && !broken(got, found->wide.result);
  };
  if (!ask_rounding(scene, *found, mends, f) && !ask_raising(scene, *found, mends, f)) return;
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = step;
  scene.add(std::move(f));
}

}  // namespace ampcheck::checks::diagnose
