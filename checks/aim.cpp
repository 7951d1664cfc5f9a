// SPDX-License-Identifier: Apache-2.0
#include "checks/aim.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "checks/case_run.h"
#include "checks/preimage.h"
#include "src/parallel.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kLargest = 512;      ///< elements of the largest input of a case that is looked at
constexpr std::size_t kMostAims = 8;        ///< sites of one op and storage type that are aimed at
constexpr std::size_t kMostRanges = 2;      ///< data regimes for one site
constexpr double kShows = 2, kPlain = 64;   ///< a term so many intervals wide shows, and one of so many shows in all its digits but the last
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool small(const OpSignature& signature, const OpCall& call) {
  return std::all_of(signature.inputs.begin(), signature.inputs.end(), [&](const TensorSpec& spec) { return !call.has(spec) || call.shape(spec).count() <= kLargest; });
}

/// What of a call decides which formula is recorded, apart from its extents.
std::string variant_of(const OpCall& call) {
  std::string out;
  for (const auto& [name, value] : call.attributes.all()) out += name + "=" + (std::holds_alternative<double>(value) ? number_text(std::get<double>(value)) : std::get<std::string>(value)) + ",";
  for (const std::string& name : call.absent) out += "-" + name;
  return out;
}

/// The first form of an op at one call, with data that can be changed.
class Target {
 public:
  Target(const OpDef& op, const OpCall& call) : call_(call), run_(op, call_, options_), values_(recording()) {
    for (const auto& [name, values] : run_.reference.inputs()) values_.set(name, values);
    for (const auto& [name, values] : run_.cotangents(0)) values_.set(name, values);
    inputs_ = run_.reference.inputs();
  }

  const reference::Recording& recording() { return run_.reference.recording(); }
  SiteValues& values() { return values_; }
  bool finite() const { return run_.reference.inputs_finite(); }

  /// The floating inputs of the formula, the largest tensors first.
  std::vector<const TensorSpec*> inputs() {
    std::vector<const TensorSpec*> out;
    for (const TensorSpec& spec : run_.op.signature.inputs)
      if (recording().inputs.contains(spec.name)) out.push_back(&spec);
    std::stable_sort(out.begin(), out.end(), [&](const auto* a, const auto* b) { return call_.shape(*a).count() > call_.shape(*b).count(); });
    return out;
  }
  const FloatFormat& format_of(const TensorSpec& spec) const { return format(call_.dtype(spec)); }

  void set(const std::vector<AimedInput>& aims) {
    for (const TensorSpec* const spec : inputs()) {
      const auto aim = std::find_if(aims.begin(), aims.end(), [&](const AimedInput& a) { return a.input == spec->name; });
      const std::string range = aim == aims.end() ? "normal" : aimed_range({*aim});
      std::string& has = ranges_[spec->name];
      if (has == range || (has.empty() && range == "normal" && call_.range == "normal")) continue;
      OpCall at = call_;
      at.range = range, has = range;
      inputs_[spec->name] = input_values(run_.op.signature, at, *spec);
      values_.set(spec->name, inputs_[spec->name]);
    }
  }

  /// Intervals at the present data.
  std::map<std::string, Interval> intervals() {
    std::vector<reference::Expr> targets = recording().output_nodes();
    for (const reference::Expr& node : recording().gradient_nodes()) targets.push_back(node);
    return site_intervals(recording(), *balls_of(targets), [&](const std::string& name) { return dtype_of_written(name); });
  }

  /// Whether some element of a node is known to more than its rounding.
  bool determined(int node) {
    const auto balls = balls_of({recording().graph->at(node)});
    const reference::Ball& ball = balls->result(recording().graph->at(node));
    for (std::int64_t i = 0; i < ball.count(); ++i)
      if (std::fabs(ball.v[i]) > (ball.r ? ball.r[i] : 0.0)) return true;
    return false;
  }

  /// The middle one of a node's finite values.
  double typical(int node) {
    std::vector<double> finite;
    for (const double v : values_.value(node))
      if (std::isfinite(v)) finite.push_back(v);
    if (finite.empty()) return std::numeric_limits<double>::quiet_NaN();
    std::nth_element(finite.begin(), finite.begin() + static_cast<std::ptrdiff_t>(finite.size() / 2), finite.end());
    return finite[finite.size() / 2];
  }

 private:
  std::unique_ptr<reference::BallEvaluator> balls_of(const std::vector<reference::Expr>& targets) {
    auto out = std::make_unique<reference::BallEvaluator>(*recording().graph, arithmetic_of(run_.op.signature, call_), targets);
    for (const auto& [name, node] : recording().inputs) out->set(node, inputs_.at(name));
    for (const auto& [name, node] : recording().cotangents) out->set(node, run_.reference.cotangents().at(name));
    out->run(targets);
    return out;
  }

  Dtype dtype_of_written(const std::string& name) const {
    for (const auto* list : {&run_.outputs, &run_.gradients})
      for (const Written& tensor : *list)
        if (tensor.name == name) return tensor.dtype;
    return call_.storage;
  }

  const RunOptions options_;
  const OpCall call_;
  CaseRun run_;
  SiteValues values_;
  NamedValues inputs_;
  std::map<std::string, std::string> ranges_;  ///< of inputs that were changed
};

}  // namespace

std::size_t SiteCoverage::find(const Site& site, const OpCall& call) {
  const auto [at, is_new] = by_key_.try_emplace(site.key, sites_.size());
  if (is_new) sites_.push_back({site, call});
  return at->second;
}

void SiteCoverage::look(const OpDef& op, const OpCall& call) {
  if (op.forms.empty() || call.layout != "dense" || !small(op.signature, call)) return;
  const std::string variant = variant_of(call);
  if (done_.contains(variant)) return;
  Target target(op, call);
  bool all = true;
  std::optional<std::map<std::string, Interval>> intervals;
  for (const Site& site : sites_of(target.recording(), needed_nodes(target.recording()))) {
    Known& known = sites_[find(site, call)];
    if (!known.seen && site.kind != Site::Kind::term) known.seen = target.values().taken(site);
    if (!known.seen && site.kind == Site::Kind::term && target.finite()) {
      if (!intervals) intervals = target.intervals();
      known.seen = target.values().share(site, *intervals) > 1;
    }
    all &= known.seen;
  }
  if (all) done_.insert(variant);
}

namespace {

/// A number of nine digits: they tell the numbers of fp32 apart, and read better.
double short_number(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 9);
  double out = value;
  std::from_chars(text, end.ptr, out);
  return out;
}

/// Seeks data at which a cost falls to a goal: each input in turn is drawn from every binade of either sign and from around zero, and the best stays;
/// then its range is narrowed.
class Search {
 public:
  using Cost = std::function<double(const std::vector<AimedInput>&)>;
  /// Ends at `enough`; `coarse`: the step between exponents far from 1.
  Search(Target& target, Cost cost, double good, double enough, int coarse, bool narrows) : target_(target), cost_(std::move(cost)), good_(good), enough_(enough), coarse_(coarse), narrows_(narrows) {}

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
    if (known == aims.end()) aims.push_back(aim);
    else *known = aim;
    ++tried_;
    if (const double cost = cost_(aims); cost < found_) found_ = cost, here_ = std::move(aims);
  }

  void keep() {
    if (found_ < best_) best_ = found_, aims_ = here_;
  }

  void drop_what_is_not_needed() {
    for (std::size_t k = aims_.size(); k-- > 0 && aims_.size() > 1;) {
      std::vector<AimedInput> fewer = aims_;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(k));
      ++tried_;
      if (const double cost = cost_(fewer); cost <= std::max(best_, enough_)) best_ = cost, aims_ = std::move(fewer);
    }
  }

  /// Moderate sizes first: of equals the first stays.
  void scan(const TensorSpec& spec) {
    const FloatFormat& type = target_.format_of(spec);
    const int highest = type.max_exponent() - 1, lowest = std::ilogb(type.min_subnormal()) + 2, step = highest - lowest < 50 ? 1 : coarse_;
    found_ = best_;
    for (int far = 0; far <= std::max(highest, -lowest) && found_ > enough_; far += far < 16 ? 1 : step)
      for (const int exponent : {far, -far}) {
        if (exponent > highest || exponent < lowest || (far == 0 && exponent != far)) continue;
        const double size = std::ldexp(1.0, exponent);
        attempt(spec.name, size, 2 * size), attempt(spec.name, -2 * size, -size), attempt(spec.name, -size, size);
      }
    keep();
  }

  /// The part of the best range that comes nearest, again and again.
  void narrow(const TensorSpec& spec) {
    constexpr int kDepth = 24, kParts = 8;
    for (int depth = 0; depth < kDepth && best_ > good_; ++depth) {
      const auto aim = std::find_if(aims_.begin(), aims_.end(), [&](const AimedInput& a) { return a.input == spec.name; });
      if (aim == aims_.end()) return;
      const double low = aim->low, part = (aim->high - aim->low) / kParts;
      const double before = best_;
      found_ = kInfinity;
      for (int k = 0; k < kParts; ++k) attempt(spec.name, low + k * part, low + (k + 1) * part);
      if (!(found_ < kInfinity) || found_ > before * 2) return;
      best_ = found_, aims_ = here_;
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
  if (piece.first > most || piece.second < -most || (std::isinf(piece.first) && std::isinf(piece.second))) return std::nullopt;
  if (std::isinf(piece.first)) piece.first = piece.second - std::max(std::fabs(piece.second), 1.0);
  if (std::isinf(piece.second)) piece.second = piece.first + std::max(std::fabs(piece.first), 1.0);
  return std::pair(std::max(piece.first, -most), std::min(piece.second, most));
}

/// Sides that one input decides through a chain of primitives with inverses.
void solve(Target& target, const Site& side, Aim& out) {
  const auto typical = [&](int node) { return target.typical(node); };
  for (const TensorSpec* const spec : target.inputs()) {
    target.set({});
    const std::optional<Pieces> pieces = preimage_of_condition(*target.recording().graph, side.node, side.kind == Site::Kind::yes, target.recording().inputs.at(spec->name).id, typical);
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

/// The same site in the recording of this target: nodes are counted anew in each.
std::optional<Site> found_again(Target& target, const Site& site) {
  for (Site& other : sites_of(target.recording(), needed_nodes(target.recording())))
    if (other.key == site.key) return std::move(other);
  return std::nullopt;
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
  Search seek(target, side ? Search::Cost(distance) : Search::Cost(drowned), side ? 0 : 1 / kShows, side ? 0 : 1 / kPlain, side ? 2 : 4, side);
  const auto aims = seek.run();
  out.tried += seek.tried();
  if (aims) out.ranges.push_back(aimed_range(*aims));
}

}  // namespace

Aim aim_at(const OpDef& op, const SiteCoverage::Known& known) {
  OpCall call = known.at;
  call.range = "normal", call.cotangent = "mixed", call.layout = "dense";
  Aim out{.words = known.site.words, .side = known.site.kind != Site::Kind::term};
  Target target(op, call);
  const std::optional<Site> site = found_again(target, known.site);
  if (!site) return out;
  if (out.side) solve(target, *site, out);
  if (out.ranges.empty()) search(target, *site, out);
  return out;
}

namespace {

/// The call at a data regime; and the same in longer rows, where vectors and blocks have a tail.
void add_calls(const OpSignature& signature, OpCall call, const std::string& range, std::vector<OpCall>& out) {
  constexpr std::int64_t kLonger = 67;
  call.range = range, call.cotangent = "mixed", call.layout = "dense";
  out.push_back(call);
  for (const TensorSpec& spec : signature.inputs) {
    const std::vector<std::string> symbols = OpSignature::symbols(spec);
    if (symbols.empty()) continue;
    call.dims[symbols.back()] = kLonger;
    if (!signature.valid || signature.valid(call.dims, call.attributes)) out.push_back(call);
    return;
  }
}

/// Whether a term is one that a kernel may get wrong: a shift that cancels is right whatever it is, its gradient is nothing but rounding, and what
/// is zero throughout (behind a mask) is seen where the mask is.
bool worth_aiming(const OpDef& op, const SiteCoverage::Known& known) {
  if (known.site.kind != Site::Kind::term) return true;
  OpCall call = known.at;
  call.range = "normal", call.cotangent = "mixed", call.layout = "dense";
  Target target(op, call);
  const std::optional<Site> site = found_again(target, known.site);
  return site && target.determined(site->node) && target.values().matters(*site);
}

/// Of a case that the reference cannot hold its own result says so.
void look_if_possible(SiteCoverage& seen, const OpDef& op, const OpCall& call) {
  try {
    seen.look(op, call);
  } catch (const std::exception&) {
  }
}

void aim_at_kind(bool sides, SiteCoverage& seen, Aimed& out) {
  std::size_t aims = 0;
  std::vector<OpCall> calls;
  for (std::size_t i = 0; i < seen.sites().size(); ++i) {
    const SiteCoverage::Known& known = seen.sites()[i];
    if (known.seen || (known.site.kind != Site::Kind::term) != sides || !worth_aiming(*out.op, known)) continue;
    if (++aims > kMostAims) {
      ++out.not_aimed;
      continue;
    }
    Aim aim = aim_at(*out.op, known);
    for (const std::string& range : aim.ranges) add_calls(out.op->signature, known.at, range, calls);
    if (!aim.ranges.empty()) seen.saw(i);
    out.aims.push_back(std::move(aim));
  }
  for (const OpCall& call : calls) look_if_possible(seen, *out.op, call);
  out.calls.insert(out.calls.end(), calls.begin(), calls.end());
}

}  // namespace

std::vector<Aimed> aimed_cases(const std::vector<Case>& cases, const std::atomic<bool>* cancel) {
  std::vector<Aimed> out;
  std::vector<std::vector<const Case*>> of;
  for (const Case& item : cases) {
    const auto same = [&](const Aimed& a) { return a.op == item.op && a.storage == item.call.storage; };
    std::size_t at = static_cast<std::size_t>(std::find_if(out.begin(), out.end(), same) - out.begin());
    if (at == out.size()) out.push_back({item.op, item.call.storage}), of.emplace_back();
    of[at].push_back(&item);
  }
  parallel_for(std::ssize(out), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
      SiteCoverage seen;
      for (const Case* const item : of[k]) {
        if (cancel != nullptr && cancel->load()) return;
        look_if_possible(seen, *item->op, item->call);
      }
      aim_at_kind(true, seen, out[k]);
      aim_at_kind(false, seen, out[k]);
    }
  });
  for (Aimed& one : out) {
    std::set<std::string> names;
    std::erase_if(one.calls, [&](const OpCall& call) { return !names.insert(call.str(one.op->signature)).second; });
  }
  return out;
}

namespace {

/// "x from 1235.5 to 1239.5" of a regime's name.
std::string range_words(const OpSignature& signature, const std::string& range) {
  std::string out;
  for (const AimedInput& aim : parse_aimed_range(signature, range)) out += fmt::format("{}{} from {} to {}", out.empty() ? "" : " and ", aim.input, number_text(aim.low), number_text(aim.high));
  return out;
}

}  // namespace

std::vector<std::string> aimed_notes(const std::vector<Aimed>& aimed, bool all) {
  // By op and site, in the order of the cases; storage types together that have the same to say.
  std::vector<std::pair<std::string, std::string>> lines;  // what is said before and behind the storage types
  std::vector<std::vector<std::string>> types;
  for (const Aimed& one : aimed)
    for (const Aim& aim : one.aims) {
      if (!all && !aim.ranges.empty()) continue;
      const std::string& op = one.op->signature.name;
      std::string where;
      for (const std::string& range : aim.ranges) where += (where.empty() ? "" : ", and ") + range_words(one.op->signature, range);
      const char* const what = aim.side ? "is never the case" : "is below the rounding of the rest";
      const std::pair<std::string, std::string> line =
          aim.ranges.empty() ? std::pair(fmt::format("{}: {} {} at any data looked at, so nobody judged it there (", op, aim.words, what), fmt::format("); {} ranges of the inputs were tried besides the cases", aim.tried))
                             : std::pair(fmt::format("{}: {} {} in the usual cases; aimed ones have ", op, aim.words, what) + where + " (", std::string(")"));
      const auto known = static_cast<std::size_t>(std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == line.first; }) - lines.begin());
      if (known == lines.size()) lines.push_back(line), types.emplace_back();
      std::vector<std::string>& of = types[known];
      if (of.empty() || of.back() != name(one.storage)) of.push_back(name(one.storage));
    }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < lines.size(); ++i) out.push_back(lines[i].first + fmt::format("{}", fmt::join(types[i], " ")) + lines[i].second);
  for (const Aimed& one : aimed)
    if (one.not_aimed > 0) out.push_back(fmt::format("{}: {} further places of its formula that no case shows in {} were not aimed at: at most {} of a kind are", one.op->signature.name, one.not_aimed, name(one.storage), kMostAims));
  return out;
}

}  // namespace ampcheck::checks
