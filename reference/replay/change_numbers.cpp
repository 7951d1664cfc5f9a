// SPDX-License-Identifier: Apache-2.0
// Changes by one number that nobody knows beforehand: a factor of an intermediate, something added to it. It is found
// at one wrong element, and has to give all the others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reference/graph/row_plan.h"
#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

namespace {

/// Bits of choice: an intermediate, and a number to some digits; one that has a name has fewer.
constexpr double kOfNumbers = 24, kOfKnown = 12;

}  // namespace

std::vector<std::size_t> FormulaChanges::telling_elements() {
  struct Element {
    std::size_t at;
    double off;
  };
  std::vector<Element> all;
  const Values& own = values(target_.id);
  for (const std::int64_t at : written_->outside) {
    const auto i = static_cast<std::size_t>(at);
    const double off = std::fabs(written_->got[i] - own[i]) / written_->room(i);
    if (std::isfinite(off) && written_->got[i] != 0) all.push_back({i, off});
  }
  if (all.empty()) return {};
  std::ranges::sort(all, [](const Element& a, const Element& b) { return a.off > b.off; });
  std::vector<std::size_t> out{all.front().at};
  if (all.size() > 2) out.push_back(all[all.size() / 2].at);
  return out;
}

template <class Of>
std::optional<double> FormulaChanges::solved(std::size_t element, double from, double to, Of of) {
  constexpr int kSteps = 12;
  const double due = written_->got[element], close = written_->room(element) / 64;
  const auto off = [&](double number) {
    const double out = of(number)[element] - due;
    left_ -= followed_cost();
    return out;
  };
  double a = from, b = to, off_a = values(target_.id)[element] - due, off_b = off(b);
  for (int step = 0; step < kSteps && left_ > 0; ++step) {
    if (std::fabs(off_b) <= close) return b;
    if (off_a == off_b || !std::isfinite(off_b)) return std::nullopt;
    const double next = b - off_b * (b - a) / (off_b - off_a);
    if (!std::isfinite(next) || std::fabs(next) > 1e6) return std::nullopt;
    a = b;
    off_a = off_b;
    b = next;
    off_b = off(b);
  }
  return std::fabs(off_b) <= close ? std::optional(b) : std::nullopt;
}

void FormulaChanges::soft_mask() {
  std::map<int, std::vector<int>> hidden;  // by condition, what it chooses in
  for (std::size_t id = 0; id < needed_.size(); ++id)
    if (const Node& node = graph_.node(static_cast<int>(id));
        needed_[id] && !given(static_cast<int>(id)) && node.primitive == Primitive::where &&
        graph_.node(node.args[0]).primitive == Primitive::indicator)
      hidden[node.args[0]].push_back(static_cast<int>(id));
  for (const auto& [mask, chosen] : hidden) {
    finite_scores(mask, chosen);
    // The scores that are hidden, less a number; all that is chosen later follows from them.
    const auto with_weight = [&, mask = mask, &chosen = chosen](double weight) {
      std::vector<std::pair<int, Values>> others;
      for (const int id : chosen) {
        const Node& node = graph_.node(id);
        if (!(graph_.node(node.args[1]).shape == node.shape)) continue;
        Values seen =
            others.empty() ? values(node.args[1]) : evaluator_.value_if(others, {target_.graph, node.args[1]});
        if (others.empty()) {
          const Values& visible = values(mask);
          const Shape& of = graph_.node(mask).shape;
          for (std::size_t i = 0; i < seen.size(); ++i)
            if (visible[static_cast<std::size_t>(operand_index(node.shape, of, static_cast<std::int64_t>(i)))] == 0)
              seen[i] += weight;
        }
        others.emplace_back(id, std::move(seen));
      }
      return others;
    };
    for (const std::size_t element : telling_elements()) {
      if (!going_ || left_ <= 0) return;
      const auto target_at = [&](double score) { return evaluator_.value_if(with_weight(score), target_); };
      // What shows of it is about proportional to exp(score).
      const std::optional<double> weight =
          solved(element, 0, std::exp(-8.0), [&](double w) { return target_at(w > 0 ? std::log(w) : -HUGE_VAL); });
      if (!weight || *weight <= 0) continue;
      const double score = std::log(*weight);
      for (const double rounded : {std::round(score), score}) {
        Change change{.words =
                          fmt::format("with hidden elements that keep a weight of exp({:.4g}): the mask is soft, and "
                                      "what is hidden, as the future, is seen",
                                      rounded)};
        change.freedom = rounded == score ? kOfNumbers : kOfKnown;
        all_with(with_weight(rounded), change);
      }
      break;
    }
  }
}

void FormulaChanges::finite_scores(int mask, const std::vector<int>& chosen) {
  constexpr double kOfScores = 8;
  for (const double score : {0.0, -10.0, -20.0, -30.0, -50.0, -100.0, -1000.0, -1e4, -65504.0, -1e5}) {
    std::vector<std::pair<int, Values>> others;
    for (const int id : chosen) {
      const Node& node = graph_.node(id);
      if (!(graph_.node(node.args[1]).shape == node.shape)) continue;
      Values seen = others.empty() ? values(node.args[1]) : evaluator_.value_if(others, {target_.graph, node.args[1]});
      if (others.empty()) {
        const Values& visible = values(mask);
        const Shape& of = graph_.node(mask).shape;
        for (std::size_t i = 0; i < seen.size(); ++i)
          if (visible[static_cast<std::size_t>(operand_index(node.shape, of, static_cast<std::int64_t>(i)))] == 0)
            seen[i] = score;
      }
      others.emplace_back(id, std::move(seen));
    }
    if (others.empty() || !going_ || (left_ -= cost_) < 0) return;
    Change change{.words = fmt::format("with a score of {} for what the mask hides, as the future: the mask is soft, a "
                                       "finite sentinel",
                                       score)};
    change.freedom = kOfScores;
    all_with(std::move(others), change);
  }
}

std::vector<std::pair<int, FormulaChanges::Values>> FormulaChanges::with_number(const Site& site, Way way,
                                                                                double number) {
  Values other = map(values(site.id), [=](double v) {
    switch (way) {
      case Way::factor: return number * v;
      case Way::addend: return v + number;
      case Way::most: return v > number ? number : v;
      case Way::least: return v < number ? number : v;
    }
    return v;
  });
  std::vector<std::pair<int, Values>> out;
  if (site.user < 0)
    out.emplace_back(site.id, std::move(other));
  else
    out.emplace_back(site.user, evaluator_.value_if_argument(site.user, 0, std::move(other)));
  return out;
}

std::string FormulaChanges::what_of(const Site& site) {
  return site.user < 0 ? text(site.id) : fmt::format("{} in {}", text(site.id), text(site.user));
}

void FormulaChanges::try_number(const Site& site, Way way, double number) {
  constexpr double kNear = 1.0 / 128;  // of a known number, which then has to explain as well
  // A number that changes little looks like a constant or an intermediate in fewer bits.
  constexpr double kLeast = 1.0 / 64;
  if (way == Way::factor && std::fabs(number - 1) < kLeast) return;
  double size = 0;
  if (way == Way::addend)
    for (const double v : values(site.id)) size += std::fabs(v) / static_cast<double>(values(site.id).size());
  const std::string what = what_of(site);
  const auto say = [&](double value, const std::string& words, double freedom) {
    static constexpr const char* kWords[] = {"with a factor of {0} on {1}", "with {0} added to {1}",
                                             "with at most {0} for {1}: it is clipped, or saturates",
                                             "with at least {0} for {1}: it is clipped, or saturates"};
    Change change{.words = fmt::format(fmt::runtime(kWords[static_cast<std::size_t>(way)]), words, what)};
    change.freedom = freedom;
    change.number = FoundNumber{way, site.id, site.user, value};
    all_with(with_number(site, way, value), change);
  };
  for (const auto& [value, words] : written_->known)
    if (std::fabs(value - number) <= kNear * std::fabs(value) && value != (way == Way::factor ? 1 : 0))
      say(value, words, kOfKnown);
  if (way == Way::addend && std::fabs(number) < kLeast * size) return;
  say(number, fmt::format("{:.4g}", number), kOfNumbers);
}

bool FormulaChanges::way_fits(Way way, const Site& site) {
  const bool clips = way == Way::most || way == Way::least;
  return !clips || values(site.id).size() == values(target_.id).size();
}

std::vector<FormulaChanges::Site> FormulaChanges::sites_of_numbers() {
  std::vector<Site> out;
  std::vector<int> users(needed_.size(), 0);
  for (std::size_t id = 0; id < needed_.size(); ++id)
    if (needed_[id] && !given(static_cast<int>(id)))
      for (const int arg : graph_.node(static_cast<int>(id)).args) ++users[static_cast<std::size_t>(arg)];
  for (std::size_t id = needed_.size(); id-- > 0;) {
    const Node& node = graph_.node(static_cast<int>(id));
    const auto own = static_cast<int>(id);
    if (!needed_[id] || node.primitive == Primitive::indicator ||
        (node.primitive >= Primitive::less && node.primitive <= Primitive::equal) ||
        (moves_nothing(node.primitive) && !given(own)))
      continue;
    out.push_back({own, -1});
    // A function alone may take the number otherwise than the others that use it.
    if (!given(own) && node.args.size() == 1 && node.primitive >= Primitive::square &&
        node.primitive <= Primitive::abs && users[static_cast<std::size_t>(node.args[0])] > 1)
      out.push_back({node.args[0], own});
  }
  return out;
}

void FormulaChanges::numbers() {
  if (only_ != nullptr && only_->number) {  // as it was found elsewhere
    const FoundNumber& known = *only_->number;
    // At other extents the same number of a node may be another node.
    for (const Site& site : sites_of_numbers())
      if (site.id == known.id && site.user == known.user && only_->words.find(what_of(site)) != std::string::npos &&
          way_fits(known.way, site))
        all_with(with_number(site, known.way, known.value), Change{.words = only_->words});
    return;
  }
  soft_mask();
  if (only_ != nullptr && !only_->found_anew) return;
  const std::vector<std::size_t> elements = telling_elements();
  for (const Site& site : sites_of_numbers()) {
    for (const Way way : {Way::factor, Way::addend, Way::most, Way::least})
      for (const std::size_t element : elements) {
        if (!going_ || left_ <= 0) return;
        const bool clips = way == Way::most || way == Way::least;
        if (!way_fits(way, site)) continue;
        const double here = clips ? values(site.id)[element] : 0, step = 0.125 * std::max(std::fabs(here), 0x1p-10);
        const double from = clips                ? here
                            : way == Way::factor ? 1
                                                 : 0,
                     to = way == Way::most    ? here - step
                          : way == Way::least ? here + step
                                              : from + 0.125;
        const std::optional<double> number = solved(element, from, to, [&](double value) {
          return evaluator_.value_if(with_number(site, way, value), target_);
        });
        if (!number) continue;
        try_number(site, way, *number);
        break;
      }
  }
}

}  // namespace ampcheck::reference
