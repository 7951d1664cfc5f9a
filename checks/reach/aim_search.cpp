// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "checks/reach/aim.h"
#include "checks/reach/aim_target.h"
#include "checks/reach/preimage.h"

namespace ampcheck::checks {

namespace {

constexpr std::size_t kMostRanges = 2;  ///< data regimes for one site
constexpr double
    kShows = 2,
    kPlain = 64;  ///< a term so many intervals wide shows, and one of so many shows in all its digits but the last
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A number of nine digits: they tell the numbers of fp32 apart, and read better.
double short_number(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 9);
  double out = value;
  std::from_chars(text, end.ptr, out);
  return out;
}

/// Seeks data at which a cost falls to a goal: each input in turn is drawn from every binade of either sign and from
/// around zero, and the best stays; then its range is narrowed.
class Search {
 public:
  using Cost = std::function<double(const std::vector<AimedInput>&)>;
  /// Ends at `enough`; `coarse`: the step between exponents far from 1.
  Search(Target& target, Cost cost, double good, double enough, int coarse, bool narrows)
      : target_(target), cost_(std::move(cost)), good_(good), enough_(enough), coarse_(coarse), narrows_(narrows) {}

  /// Nothing where no data comes to `good`.
  std::optional<std::vector<AimedInput>> run() {
    constexpr int kRounds = 2;
    for (int round = 0; round < kRounds && best_ > enough_; ++round) {
      const double before = best_;
      for (const TensorSpec* const spec : target_.inputs()) {
        if (best_ <= enough_) break;
        scan(*spec);
        if (best_ > good_ && narrows_) narrow(*spec);
      }
      if (!(best_ < before)) break;
    }
    if (best_ > good_) return std::nullopt;
    drop_what_is_not_needed();
    return aims_;
  }
  std::int64_t tried() const { return tried_; }

 private:
  void attempt(const std::string& input, double low, double high) {
    if (found_ <= enough_) return;
    std::vector<AimedInput> aims = aims_;
    const auto known = std::find_if(aims.begin(), aims.end(), [&](const AimedInput& a) { return a.input == input; });
    const AimedInput aim{input, short_number(low), short_number(high)};
    if (known == aims.end())
      aims.push_back(aim);
    else
      *known = aim;
    ++tried_;
    if (const double cost = cost_(aims); cost < found_) {
      found_ = cost;
      here_ = std::move(aims);
    }
  }

  void keep() {
    if (found_ < best_) {
      best_ = found_;
      aims_ = here_;
    }
  }

  void drop_what_is_not_needed() {
    for (std::size_t k = aims_.size(); k-- > 0 && aims_.size() > 1;) {
      std::vector<AimedInput> fewer = aims_;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(k));
      ++tried_;
      if (const double cost = cost_(fewer); cost <= std::max(best_, enough_)) {
        best_ = cost;
        aims_ = std::move(fewer);
      }
    }
  }

  /// Moderate sizes first: of equals the first stays.
  void scan(const TensorSpec& spec) {
    const FloatFormat& type = target_.format_of(spec);
    const int highest = type.max_exponent() - 1, lowest = std::ilogb(type.min_subnormal()) + 2,
              step = highest - lowest < 50 ? 1 : coarse_;
    found_ = best_;
    for (int far = 0; far <= std::max(highest, -lowest) && found_ > enough_; far += far < 16 ? 1 : step)
      for (const int exponent : {far, -far}) {
        if (exponent > highest || exponent < lowest || (far == 0 && exponent != far)) continue;
        const double size = std::ldexp(1.0, exponent);
        attempt(spec.name, size, 2 * size);
        attempt(spec.name, -2 * size, -size);
        attempt(spec.name, -size, size);
      }
    keep();
  }

  /// The part of the best range that comes nearest, again and again.
  void narrow(const TensorSpec& spec) {
    constexpr int kDepth = 24, kParts = 8;
    for (int depth = 0; depth < kDepth && best_ > good_; ++depth) {
      const auto aim =
          std::find_if(aims_.begin(), aims_.end(), [&](const AimedInput& a) { return a.input == spec.name; });
      if (aim == aims_.end()) return;
      const double low = aim->low, part = (aim->high - aim->low) / kParts;
      const double before = best_;
      found_ = kInfinity;
      for (int k = 0; k < kParts; ++k) attempt(spec.name, low + k * part, low + (k + 1) * part);
      if (!(found_ < kInfinity) || found_ > before * 2) return;
      best_ = found_;
      aims_ = here_;
    }
  }

  Target& target_;
  const Cost cost_;
  const double good_, enough_;
  const int coarse_;
  const bool narrows_;
  std::vector<AimedInput> aims_, here_;
  double best_ = kInfinity, found_ = kInfinity;
  std::int64_t tried_ = 0;
};

/// A finite range of a piece, at the end that it has.
std::optional<std::pair<double, double>> bounded(std::pair<double, double> piece, const FloatFormat& type) {
  const double most = type.max_finite() / 2;
  if (piece.first > most || piece.second < -most || (std::isinf(piece.first) && std::isinf(piece.second)))
    return std::nullopt;
  if (std::isinf(piece.first)) piece.first = piece.second - std::max(std::fabs(piece.second), 1.0);
  if (std::isinf(piece.second)) piece.second = piece.first + std::max(std::fabs(piece.first), 1.0);
  return std::pair(std::max(piece.first, -most), std::min(piece.second, most));
}

/// Sides that one input decides through a chain of primitives with inverses.
void solve(Target& target, const Site& side, Aim& out) {
  const auto typical = [&](int node) { return target.typical(node); };
  for (const TensorSpec* const spec : target.inputs()) {
    target.set({});
    const std::optional<Pieces> pieces =
        preimage_of_condition(*target.recording().graph, side.node, side.kind == Site::Kind::yes,
                              target.recording().inputs.at(spec->name).id, typical);
    if (!pieces) continue;
    for (const auto& piece : *pieces) {
      const auto range = bounded(piece, target.format_of(*spec));
      if (!range || out.ranges.size() == kMostRanges) continue;
      const std::vector<AimedInput> aims = {{spec->name, short_number(range->first), short_number(range->second)}};
      ++out.tried;
      target.set(aims);
      if (target.values().taken(side)) out.ranges.push_back(aimed_range(aims));
    }
    if (!out.ranges.empty()) return;
  }
}

void search(Target& target, const Site& site, Aim& out) {
  const bool side = site.kind != Site::Kind::term;
  const auto distance = [&](const std::vector<AimedInput>& aims) {
    target.set(aims);
    return target.values().distance(site);
  };
  const auto drowned = [&](const std::vector<AimedInput>& aims) {  // 1 / share: what is not judged shows nothing
    target.set(aims);
    const double share = target.values().share(site, target.intervals());
    return share > 0 && std::isfinite(share) ? 1 / share : kInfinity;
  };
  Search seek(target, side ? Search::Cost(distance) : Search::Cost(drowned), side ? 0 : 1 / kShows,
              side ? 0 : 1 / kPlain, side ? 2 : 4, side);
  const auto aims = seek.run();
  out.tried += seek.tried();
  if (aims) out.ranges.push_back(aimed_range(*aims));
}

/// What is ordinary but for the inputs that are aimed.
OpCall ordinary(OpCall call) {
  call.range = "normal";
  call.cotangent = "mixed";
  call.layout = "dense";
  return call;
}

}  // namespace

Aim aim_at(const OpDef& op, const SiteCoverage::Known& known) {
  Aim out{.kind = known.site.kind == Site::Kind::term ? Aim::Kind::term : Aim::Kind::side, .words = known.site.words};
  Target target(op, ordinary(known.at));
  const std::optional<Site> site = target.find(known.site);
  if (!site) return out;
  if (out.kind == Aim::Kind::side) solve(target, *site, out);
  if (out.ranges.empty()) search(target, *site, out);
  return out;
}

bool worth_aiming(const OpDef& op, const SiteCoverage::Known& known) {
  if (known.site.kind != Site::Kind::term) return true;
  Target target(op, ordinary(known.at));
  const std::optional<Site> site = target.find(known.site);
  return site && target.determined(site->node) && target.values().matters(*site);
}

Aim aim_at_rounding(const OpDef& op, const OpCall& call, reference::Primitive primitive, double enough) {
  Target target(op, ordinary(call));
  Aim out{.kind = Aim::Kind::rounding, .words = reference::name(primitive)};
  const auto cost = [&](const std::vector<AimedInput>& aims) {
    target.set(aims);
    const double share = target.rounding_share(primitive);
    return share > 0 ? 1 / share : kInfinity;
  };
  Search seek(target, cost, 1 / enough, 1 / enough, 16, false);
  if (const auto aims = seek.run()) out.ranges.push_back(aimed_range(*aims));
  out.tried = seek.tried();
  return out;
}

}  // namespace ampcheck::checks
