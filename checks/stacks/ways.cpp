// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/stacks/ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checks/case/case_run.h"
#include "reference/graph/node_text.h"

namespace ampcheck::checks::stacks {

namespace {

using reference::Expr;
using reference::Graph;
using reference::Node;
using reference::Primitive;

constexpr std::size_t kAllSets = 8;               ///< so many boundaries: every set of them is tried
constexpr std::int64_t kScoutElements = 2048;     ///< on so many elements
constexpr std::size_t kKept = 6;                  ///< so many of the best sets are then held against everything
constexpr double kPerBoundary = 1, kOwnForm = 1;  ///< log10 of how much less is believed of a way that says more

/// The input that an intermediate meets in the next operation; empty if that is no product, quotient or sum with one.
std::string met_next(const Graph& graph, int id) {
  const auto view_of = [&](int at) {
    while (reference::silent(graph, graph.node(at)) && !graph.node(at).args.empty()) at = graph.node(at).args[0];
    return at;
  };
  for (std::size_t user = static_cast<std::size_t>(id) + 1; user < graph.nodes().size(); ++user) {
    const Node& node = graph.node(static_cast<int>(user));
    if (node.primitive != Primitive::mul && node.primitive != Primitive::add && node.primitive != Primitive::sub &&
        node.primitive != Primitive::div)
      continue;
    for (std::size_t k = 0; k < 2; ++k) {
      const int other = view_of(node.args[1 - k]);
      if (view_of(node.args[k]) == id && graph.node(other).primitive == Primitive::input) return graph.node(other).name;
    }
  }
  return "";
}

/// The target and what is the same number under another name: storing that is storing the target.
std::vector<int> views_of(const Graph& graph, int target) {
  std::vector<int> out{target};
  while (true) {
    const Node& node = graph.node(out.back());
    const Primitive p = node.primitive;
    if (node.args.empty() ||
        (!reference::silent(graph, node) && p != Primitive::stored && p != Primitive::own_adjoint &&
         p != Primitive::no_gradient && p != Primitive::stop_gradient))
      return out;
    out.push_back(node.args[0]);
  }
}

/// "x * w" of "keeps x * w in bf16".
std::string text_of(const Departure& departure) {
  const std::string_view words = departure.words;
  constexpr std::string_view kBegins = "keeps ";
  const std::size_t end = words.rfind(" in ");
  return std::string(words.substr(kBegins.size(), end - kBegins.size()));
}

bool is_boundary(const Departure& departure) {
  return departure.kind == Departure::Kind::narrowed && departure.low != nullptr && departure.nodes.size() == 1 &&
         departure.words.starts_with("keeps ");
}

}  // namespace

/// One tensor that was written, with the reference of its case.
struct Ways::One {
  One(const OpDef& op, const Wrote& w) : wrote(w), run(op, *w.call, options) {
    if (w.pass == Pass::backward) run.reference.set_cotangents(w.cotangents);
  }
  const Wrote& wrote;
  RunOptions options;
  CaseRun run;
  std::vector<Interval> declared;                                      ///< by form
  std::vector<std::map<std::string, CaseReference::Departing>> nodes;  ///< by form and key
};

Ways::~Ways() = default;

Ways::Ways(const OpDef& op, const std::vector<Wrote>& wrote) : op_(op), boundaries_(op.forms.size()) {
  std::int64_t elements = 0;
  for (const Wrote& w : wrote) {
    auto one = std::make_unique<One>(op, w);
    const Dtype storage = w.tensor.dtype;
    for (std::size_t form = 0; form < op.forms.size(); ++form) {
      one->declared.push_back(one->run.reference.interval(form, w.pass, w.tensor.name, storage));
      const reference::Recording& recording = one->run.reference.recording(form);
      const std::vector<int> views = views_of(*recording.graph, target_of(recording, w.pass, w.tensor.name).id);
      std::map<std::string, int> again;
      std::map<std::string, CaseReference::Departing> nodes;
      for (const Departure& departure :
           departures_of(recording, target_of(recording, w.pass, w.tensor.name), storage)) {
        if (!is_boundary(departure)) continue;
        const bool short_storage = bytes(storage) < 4;
        if (short_storage && std::find(views.begin(), views.end(), departure.nodes.front().node) != views.end())
          continue;
        if (short_storage && departure.low != &format(storage)) continue;
        const std::string key = departure.words + " #" + std::to_string(again[departure.words]++);
        nodes.emplace(key, departure.nodes.front());
        if (!all_.empty()) continue;
        boundaries_[form].push_back({key, text_of(departure), met_next(*recording.graph, departure.nodes.front().node),
                                     departure.low == &kBf16 ? Dtype::bf16 : Dtype::fp16, departure.of_sum});
      }
      one->nodes.push_back(std::move(nodes));
    }
    all_.push_back(std::move(one));
    if (elements < kScoutElements) ++scouts_;
    elements += std::ssize(w.got);
  }
}

const std::string& Ways::form_name(std::size_t form) const { return op_.forms[form].name; }

bool Ways::same_as(const Ways& other) const {
  return std::equal(boundaries_.begin(), boundaries_.end(), other.boundaries_.begin(), other.boundaries_.end(),
                    [](const auto& x, const auto& y) {
                      return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                                        [](const Boundary& a, const Boundary& b) { return a.key == b.key; });
                    });
}

Fit Ways::fit_of(const Way& way, std::size_t most) {
  Fit out;
  for (std::size_t i = 0; i < std::min(most, all_.size()); ++i) {
    One& one = *all_[i];
    const Interval& declared = one.declared[way.form];
    std::vector<CaseReference::Departing> nodes;
    for (const std::size_t at : way.rounded)
      if (const auto node = one.nodes[way.form].find(boundaries_[way.form][at].key); node != one.nodes[way.form].end())
        nodes.push_back(node->second);
    std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.node < b.node; });
    std::optional<Interval> now;
    if (!nodes.empty())
      now = one.run.reference.interval_departing(way.form, one.wrote.pass, one.wrote.tensor.name,
                                                 one.wrote.tensor.dtype, nodes);
    // A value that leaves the 16-bit range has no interval: such a way is refuted only by the elements that stay.
    const Explained seen = explained_by(now ? *now : declared, one.declared.front(), one.wrote.got);
    out.judged += std::ssize(one.wrote.got) - seen.open;
    out.outside += seen.outside;
    out.likelihood += seen.likelihood;
  }
  return out;
}

Fit Ways::fit(const Way& way) { return fit_of(way, all_.size()); }

double Ways::prior(const Way& way) const {
  return -kPerBoundary * static_cast<double>(way.rounded.size()) - (way.form == 0 ? 0 : kOwnForm);
}

/// From one set to the best neighbour, until none is better.
void Ways::climb(std::size_t form, Way start, std::vector<std::pair<double, Way>>& found) {
  const std::size_t count = boundaries_[form].size();
  double score = fit_of(start, scouts_).score() + prior(start);
  for (bool better = true; better;) {
    better = false;
    Way best = start;
    for (std::size_t at = 0; at < count; ++at) {
      Way next = start;
      const auto place = std::lower_bound(next.rounded.begin(), next.rounded.end(), at);
      if (place != next.rounded.end() && *place == at)
        next.rounded.erase(place);
      else
        next.rounded.insert(place, at);
      const double now = fit_of(next, scouts_).score() + prior(next);
      found.emplace_back(now, next);
      if (now <= score) continue;
      score = now;
      best = std::move(next);
      better = true;
    }
    start = std::move(best);
  }
}

Ways::Best Ways::best() {
  std::vector<std::pair<double, Way>> found;
  for (std::size_t form = 0; form < boundaries_.size(); ++form) {
    const std::size_t count = boundaries_[form].size();
    Way none{form, {}}, all{form, {}};
    for (std::size_t at = 0; at < count; ++at) all.rounded.push_back(at);
    if (count <= kAllSets) {
      for (std::size_t set = 0; set < (std::size_t{1} << count); ++set) {
        Way way{form, {}};
        for (std::size_t at = 0; at < count; ++at)
          if ((set >> at & 1) != 0) way.rounded.push_back(at);
        const double score = fit_of(way, scouts_).score() + prior(way);
        found.emplace_back(score, std::move(way));
      }
      continue;
    }
    for (const Way& start : {none, all}) {
      found.emplace_back(fit_of(start, scouts_).score() + prior(start), start);
      climb(form, start, found);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Way> kept;
  for (const auto& [score, way] : found)
    if (kept.size() < kKept && std::find(kept.begin(), kept.end(), way) == kept.end()) kept.push_back(way);
  std::vector<std::pair<double, std::pair<Way, Fit>>> ranked;
  for (const Way& way : kept) {
    const Fit whole = fit(way);
    ranked.push_back({whole.score() + prior(way), {way, whole}});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Best out{ranked.front().second.first, ranked.front().second.second, {}};
  out.next = ranked.size() > 1 ? ranked[1].second.second : out.fit;
  return out;
}

std::string Ways::words(const Way& way) const {
  std::string out;
  for (const std::size_t at : way.rounded) {
    const Boundary& b = boundaries_[way.form][at];
    out += (out.empty() ? "rounds " : ", ") + b.text + " to " + name(b.dtype);
  }
  const bool every = way.rounded.size() > 2 && way.rounded.size() == boundaries_[way.form].size();
  if (every) out = std::string("rounds every intermediate to ") + name(boundaries_[way.form].front().dtype);
  if (out.empty()) out = "rounds once, at the end";
  if (way.form != 0) out += ", in the form '" + form_name(way.form) + "'";
  return out;
}

namespace {

/// Boundaries of `way` that are none of the other's, by their text.
std::vector<const Boundary*> only_in(const Ways& ways, const Way& way, const Ways& others, const Way& other) {
  std::vector<const Boundary*> out;
  for (const std::size_t at : way.rounded) {
    const Boundary& mine = ways.boundaries(way.form)[at];
    const bool shared = std::any_of(other.rounded.begin(), other.rounded.end(),
                                    [&](std::size_t k) { return others.boundaries(other.form)[k].key == mine.key; });
    if (!shared) out.push_back(&mine);
  }
  return out;
}

std::string listed(const std::vector<const Boundary*>& boundaries) {
  std::string out;
  for (const Boundary* b : boundaries) out += (out.empty() ? "" : ", ") + b->text;
  return out;
}

}  // namespace

std::string boundary_line(const Ways& a, const Way& of_a, const Ways& b, const Way& of_b) {
  const std::vector<const Boundary*> mine = only_in(a, of_a, b, of_b), theirs = only_in(b, of_b, a, of_a);
  if (mine.empty() && theirs.empty())
    return of_a.form == of_b.form
               ? ""
               : "A multiplies as '" + a.form_name(of_a.form) + "', B as '" + b.form_name(of_b.form) + "'";
  const bool one_a = mine.size() == 1 && theirs.empty(), one_b = theirs.size() == 1 && mine.empty();
  if (one_a && !mine.front()->before.empty()) return "A rounds before " + mine.front()->before + ", B after";
  if (one_b && !theirs.front()->before.empty()) return "A rounds after " + theirs.front()->before + ", B before";
  const std::string to = std::string(" to ") + name((mine.empty() ? theirs : mine).front()->dtype);
  if (theirs.empty()) return "A rounds " + listed(mine) + to + ", B does not";
  if (mine.empty()) return "B rounds " + listed(theirs) + to + ", A does not";
  return "A rounds " + listed(mine) + to + ", B rounds " + listed(theirs);
}

}  // namespace ampcheck::checks::stacks
