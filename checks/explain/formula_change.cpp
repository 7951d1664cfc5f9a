// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Which slip a wrong kernel made: the one change of a form that gives the kernel's numbers, right ones included.
#include "checks/explain/formula_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "checks/case/case_run.h"
#include "checks/case/fresh_case.h"
#include "checks/explain/agreement.h"
#include "checks/explain/another_activation.h"
#include "checks/explain/diagnosis.h"
#include "checks/explain/odds.h"
#include "reference/replay/changes.h"
#include "src/op_call.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kMost = 1 << 23;         ///< scalar operations of all changes of one form
constexpr std::int64_t kMostFurther = 1 << 22;  ///< of each group of further ones

/// Another output or gradient of the tensor's shape that agrees: two were exchanged.
std::string same_as_another(const reference::Recording& recording,
                            const std::vector<std::pair<reference::Expr, std::vector<double>>>& leaves, Pass pass,
                            const Written& tensor, const std::function<bool(const std::vector<double>&)>& agrees) {
  for (const auto& [name, node] : pass == Pass::forward ? recording.outputs : recording.gradients) {
    if (name == tensor.name || !(node.shape() == tensor.shape)) continue;
    if (agrees(reference::evaluate_plainly(*recording.graph, leaves, node))) return name;
  }
  return "";
}

/// "eps 1e-05" for a constant that has an attribute's value; whole numbers stand in formulas for other reasons too.
void name_attributes(const CaseRun& run, const reference::Graph& graph, reference::NodeNames& names) {
  for (const auto& [attribute, value] : run.call.attributes.all()) {
    const double* const number = std::get_if<double>(&value);
    if (number == nullptr || *number == std::floor(*number)) continue;
    for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
      const reference::Node& node = graph.node(static_cast<int>(id));
      if (node.primitive == reference::Primitive::constant && node.value == *number)
        names[static_cast<int>(id)] = attribute + " " + number_text(*number);
    }
  }
}

}  // namespace

bool gives_the_numbers(const WrongTensor& wrong, const std::vector<double>& changed) {
  return agreement(Tolerance(wrong.interval), wrong, changed).perfect();
}

std::string explained_by_flushing(const WrongTensor& wrong) {
  if (wrong.pass == Pass::jvp || wrong.run.op.signature.precision.flushes_subnormals ||
      wrong.tensor.shape.count() > kLargestExplained || wrong.run.accumulates(wrong.tensor.name))
    return "";
  const double least = format(wrong.tensor.dtype).min_normal();  // or those of the storage type, on the way out
  const auto words = [&](const std::function<Expected(std::size_t)>& flushing, const char* or_else = "") {
    return std::string("flushes subnormals") + or_else + " " + against("kept", odds_of(wrong, flushing));
  };
  // 1/(1 + e^-x) is zero where e^-x overflows, and subnormal as e^x.
  const auto& nodes = wrong.run.reference.recording(wrong.run.reference.forms().front()).graph->nodes();
  const bool may_divide = std::any_of(nodes.begin(), nodes.end(), [](const reference::Node& node) {
    return node.primitive == reference::Primitive::exp || node.primitive == reference::Primitive::div;
  });
  if (std::all_of(wrong.comparison.outside.begin(), wrong.comparison.outside.end(), [&](std::int64_t at) {
        const double wanted = std::fabs(wrong.interval.value[static_cast<std::size_t>(at)]);
        return wrong.got[static_cast<std::size_t>(at)] == 0 && wanted != 0 && wanted < least;
      }))
    return words(
        [&](std::size_t i) {
          return Expected{std::fabs(wrong.interval.value[i]) < least ? 0 : wrong.interval.value[i],
                          wrong.interval.radius[i]};
        },
        may_divide ? ", or divides by what overflows" : "");
  if (wrong.run.reference.tame()) return "";  // nothing on the way is near to being subnormal
  // Who flushes writes no subnormal number.
  if (std::ranges::any_of(wrong.comparison.outside, [&](std::int64_t at) {
        const double size = std::fabs(wrong.got[static_cast<std::size_t>(at)]);
        return size != 0 && size < kFp32.min_normal();
      }))
    return "";
  std::vector<std::int64_t> left = wrong.comparison.outside;
  for (const std::size_t form : wrong.run.reference.forms()) {
    const Interval wide =
        wrong.run.reference.interval_flushing(form, wrong.pass, wrong.tensor.name, wrong.tensor.dtype);
    const auto says_nothing =
        [&](std::size_t i) {  // what admits any number explains none but a loss of the number itself
          const bool lost =
              wrong.got[i] == 0 || !std::isfinite(wrong.got[i]) || std::fabs(wide.value[i]) < 0x1p10 * least;
          return !lost && (unjudged(wide, i) || !(wide.radius[i] <= std::fabs(wide.value[i])));
        };
    std::erase_if(left, [&](std::int64_t at) {
      return !says_nothing(static_cast<std::size_t>(at)) && admits(wide, at, wrong.got[static_cast<std::size_t>(at)]);
    });
    if (left.empty()) return words([&](std::size_t i) { return Expected{wide.value[i], wide.radius[i]}; });
  }
  return "";
}

namespace {

/// What a form has for the tensor: of the same name what is saved, not the output.
reference::Expr target_in(const reference::Recording& recording, const WrongTensor& wrong) {
  const bool forward = wrong.pass == Pass::forward;
  if (const auto saved = recording.stored.find(wrong.tensor.name); forward && saved != recording.stored.end())
    return saved->second;
  reference::Expr out;
  for (const auto& [name, node] : forward ? recording.outputs : recording.gradients)
    if (name == wrong.tensor.name) out = node;
  return out;
}

reference::NodeNames names_in(const reference::Recording& recording, const WrongTensor& wrong) {
  reference::NodeNames out;
  name_attributes(wrong.run, *recording.graph, out);
  for (const auto& [name, node] : recording.outputs) out[node.id] = name;
  // What another gradient is may have been taken for a number of this one's.
  if (wrong.pass != Pass::forward)
    for (const auto& [name, node] : recording.gradients)
      if (name != wrong.tensor.name) out.emplace(node.id, name);
  return out;
}

/// Numbers that a kernel of such a call might take for another one, with their names.
std::vector<std::pair<double, std::string>> known_numbers(const CaseRun& run) {
  std::vector<std::pair<double, std::string>> out{{0.5, "1/2"}, {2, "2"}, {-1, "-1"}, {-2, "-2"}, {1, "1"}};
  for (const auto& [name, value] : run.call.attributes.all())
    if (const double* const number = std::get_if<double>(&value); number != nullptr && *number != 0) {
      out.emplace_back(*number, fmt::format("{} {}", name, number_text(*number)));
      out.emplace_back(1 / *number, fmt::format("1/{0} (1/{1})", name, number_text(*number)));
    }
  for (const auto& [name, extent] : run.call.dims) {
    const auto n = static_cast<double>(extent);
    if (extent < 2) continue;
    out.emplace_back(n, fmt::format("the extent {} of {}", extent, name));
    out.emplace_back(1 / n, fmt::format("1/{} (the extent of {})", extent, name));
    out.emplace_back(std::sqrt(n), fmt::format("sqrt({}) (the extent of {})", extent, name));
    out.emplace_back(1 / std::sqrt(n), fmt::format("1/sqrt({}) (the extent of {})", extent, name));
  }
  return out;
}

/// How the walks over a tensor's changes go.
struct Walk {
  Pass pass;             ///< from what it starts
  bool further = false;  ///< the changes that follow from the graph alone
};

using See = std::function<bool(const reference::Recording&, const reference::Change&, const std::vector<double>&)>;

/// Every change of each form; or those that are alike to one.
void walk(const WrongTensor& wrong, const Tolerance& tolerance, Walk how, const See& see,
          const reference::OneChange* only = nullptr) {
  CaseReference& forms = wrong.run.reference;
  bool going = true;
  for (const std::size_t form : forms.forms()) {
    const reference::Recording& recording = forms.recording(form);
    const reference::Expr target = target_in(recording, wrong);
    if (!target.defined()) continue;
    const auto seen = [&](const reference::Change& change, const std::vector<double>& changed) {
      return going = see(recording, change, changed);
    };
    if (how.further) {
      const reference::WrittenNumbers written{wrong.got, wrong.comparison.outside,
                                              [&](std::size_t i) { return tolerance.at(i, wrong.got[i]); },
                                              known_numbers(wrong.run)};
      reference::for_each_further_change(*recording.graph, forms.leaves(form, how.pass), target,
                                         names_in(recording, wrong), kMostFurther, written, seen, only);
    } else {
      reference::for_each_change(*recording.graph, forms.leaves(form, how.pass), target, names_in(recording, wrong),
                                 kMost, seen, only);
    }
    if (!going) return;
  }
}

/// What the kernel's numbers elsewhere say of a change.
struct Prediction {
  std::int64_t tried = 0;  ///< changes that are alike; 0: it says nothing
  Agreement best;
  std::vector<double> values;  ///< of the best
};

Prediction predicted(const WrongTensor& there, Walk how, reference::OneChange only, double freedom) {
  Prediction out;
  const Tolerance tolerance(there.interval);
  const auto see = [&](const reference::Recording&, const reference::Change& change,
                       const std::vector<double>& changed) {
    ++out.tried;
    Agreement seen = agreement(tolerance, there, changed, freedom);
    seen.narrowed = change.narrowed != nullptr;
    if (seen.outside + seen.all > out.best.outside + out.best.all) {
      out.best = seen;
      out.values = changed;
    }
    return !(seen.outside == 1 && seen.all == 1);
  };
  walk(there, tolerance, how, see, &only);
  if (out.tried > 0 || only.site == reference::OneChange::kAnywhere) return out;
  only.site = reference::OneChange::kAnywhere;  // nodes may be others at other extents
  walk(there, tolerance, how, see, &only);
  return out;
}

/// Numbers that are others where the extents are: these, their products and parts, one more or less.
std::set<double> numbers_of_extents(const Dims& dims) {
  std::set<double> out;
  for (const auto& [symbol, extent] : dims) {
    const auto n = static_cast<double>(extent);
    for (const double v : {n - 1, n, n + 1}) out.insert(v);
    for (std::int64_t d = 2; d <= std::min<std::int64_t>(extent / 2, 64); ++d)
      if (extent % d == 0) out.insert({static_cast<double>(d), static_cast<double>(extent / d)});
    for (const auto& [other, times] : dims)
      for (const double v : {-1.0, 0.0, 1.0}) out.insert(n * static_cast<double>(times) + v);
  }
  return out;
}

reference::OneChange same_as(const reference::Change& change) {
  return {.words = change.words, .site = change.site, .number = change.number, .edge = change.edge};
}

/// The change that explains a tensor best, over its forms, among those that predict what the kernel writes at other
/// data.
class BestChange {
 public:
  explicit BestChange(const WrongTensor& wrong, bool asks_elsewhere = true)
      : wrong_(wrong), tolerance_(wrong.interval), asks_(asks_elsewhere) {}

  const Replayed& found() const { return found_; }
  /// A change that gives every number of these extents, at other data too, while the kernel does something else at
  /// other extents: as of tiles of which there are more there.
  const Replayed& found_here() const { return here_; }
  bool perfect() const { return best_.perfect(); }
  bool alike(const std::vector<double>& values) const { return agreement(tolerance_, wrong_, values).convincing(); }

  /// Tries the changes of each form.
  void try_changes(Walk how, const reference::OneChange* only) {
    walk(
        wrong_, tolerance_, how,
        [&](const reference::Recording& recording, const reference::Change& change,
            const std::vector<double>& changed) { return take(how, recording, change, changed); },
        only);
  }

 private:
  /// False once nothing that is yet to be tried fits better.
  bool take(Walk how, const reference::Recording& recording, const reference::Change& change,
            const std::vector<double>& changed) {
    Agreement seen = agreement(tolerance_, wrong_, changed, change.freedom);
    seen.narrowed = change.narrowed != nullptr;
    if (change.exact && !(seen.outside == 1 && seen.all == 1)) return true;
    // One wrong number among right ones is no rounding of all.
    const bool few = seen.narrowed && !seen.to_the_last_bit() &&
                     wrong_.comparison.outside.size() < std::min<std::size_t>(4, wrong_.got.size());
    const bool convincing = seen.convincing() && !few;
    if (!(convincing || promising(seen)) || !seen.better_than(best_)) return true;
    double odds = 0;
    if (!holds_elsewhere(how, change, seen, convincing, odds)) {
      keep_for_here(change, seen);
      return true;
    }
    Odds narrow = seen.narrowed ? narrow_odds(wrong_, changed) : Odds();
    narrow.log10 += odds;
    if (seen.narrowed && !change.of_sum && !convincing && narrow.log10 < kTellingOdds) return true;
    best_ = seen;
    best_.by_others = !convincing;
    state(recording, change, narrow);
    return !best_.perfect();
  }

  /// The change that is best by now, in words.
  void state(const reference::Recording& recording, const reference::Change& change, const Odds& narrow) {
    found_.kind = best_.narrowed        ? Replayed::Kind::narrowed
                  : change.approximates ? Replayed::Kind::approximated
                                        : Replayed::Kind::changed_formula;
    found_.of_sum = change.of_sum;
    found_.change = change.words;
    found_.every = best_.outside == 1 && best_.all == 1 && best_.bits >= 16;
    found_.words = std::string(kChangedFormula) + change.words;
    found_.odds = HUGE_VAL;
    if (best_.narrowed) {
      found_.words = change.words + " " + against(name(wrong_.run.op.signature.precision.compute), narrow);
      found_.odds = narrow.log10;
    }
    found_.nonlinear = change.nonlinear && recording.cotangents.contains(change.leaf);
    if (found_.nonlinear) found_.words += ": not linear in the cotangent";
  }

  /// Of a change that does not hold everywhere, whether it does at these extents.
  void keep_for_here(const reference::Change& change, const Agreement& seen) {
    constexpr double kEveryBits = 16;
    if (std::exchange(only_here_, false) && !seen.narrowed && seen.outside == 1 && seen.all == 1 &&
        seen.bits >= kEveryBits && here_.words.empty())
      here_ = {.kind = Replayed::Kind::changed_formula,
               .words = std::string(kChangedFormula) + change.words + ", at these extents"};
  }

  static Odds narrow_odds(const WrongTensor& wrong, const std::vector<double>& changed) {
    return odds_of(wrong, [&](std::size_t i) { return Expected{changed[i], wrong.interval.radius[i]}; });
  }

  /// It gives every number, of which there are too few to tell.
  bool promising(const Agreement& seen) {
    constexpr double kFewestBits = 3;
    constexpr int kMostAsked = 24;  // each is a walk over the changes at other data
    return asks_ && seen.outside == 1 && seen.all == 1 && seen.bits >= kFewestBits && asked_ < kMostAsked;
  }

  /// Whether the kernel's other calls leave the change standing. What is not `convincing` here has to become so by
  /// what it predicts there, where no number of it can be chosen anew.
  /// `odds`: of a number in fewer bits there, in log10, as what is fitted to the numbers is fitted anew each time.
  bool holds_elsewhere(Walk how, const reference::Change& change, const Agreement& here, bool convincing,
                       double& odds) {
    constexpr int kMostAgain = 5;
    constexpr double kEnough = 10;  // bits, as of Agreement::convincing()
    if (!asks_) return true;
    FreshCases& fresh = fresh_cases_of(wrong_.run);
    const std::string& tensor = wrong_.tensor.name;
    const bool by_rows = wrong_.run.part_of != nullptr;
    double bits = here.bits;
    std::int64_t moved = here.moved, all = std::ssize(wrong_.comparison.outside), held = 0;
    asked_ += !convincing;
    const auto enough = [&] { return held > 0 && all >= 4 && moved >= 4 && bits >= kEnough + here.freedom; };
    reference::OneChange one = same_as(change);
    for (int k = 0; k < (convincing ? FreshCases::kAgain : kMostAgain) && (convincing || !enough()); ++k) {
      FreshTensor* const there = fresh.again(tensor, wrong_.pass, k);
      if (there == nullptr) continue;
      if (overflows_there_alone(*there)) continue;
      const Prediction seen = by_rows ? predicted_by_rows(*there, how, one, here.freedom, 0.9)
                                      : predicted(there->whole(wrong_.pass), how, one, here.freedom);
      if (seen.tried == 0 && change.edge) return false;  // no edge near it gives the numbers there
      if (seen.tried == 0) continue;
      if (seen.best.outside < 0.9 || seen.best.all < 0.95) return false;
      ++held;
      if (here.narrowed)
        odds += narrow_odds(by_rows ? there->rows(wrong_.pass) : there->whole(wrong_.pass), seen.values).log10;
      bits += seen.best.bits;
      moved += seen.best.moved;
      all += std::ssize(there->comparison.outside);
    }
    if (!convincing && !enough()) return false;
    one.extents = numbers_of_extents(wrong_.run.call.dims);
    if (holds_at_other_extents(how, change, here, one, odds)) return true;
    only_here_ = held > 0 && convincing;
    return false;
  }

  /// Of its rows, and before they refute a change, of all of it: a part may lack what the whole has, as what is saved.
  Prediction predicted_by_rows(FreshTensor& there, Walk how, const reference::OneChange& one, double freedom,
                               double least) const {
    Prediction out = predicted(there.rows(wrong_.pass), how, one, freedom);
    if (there.part != nullptr && out.tried > 0 && out.best.outside < least)
      out = predicted(there.whole(wrong_.pass), how, one, freedom);
    return out;
  }

  /// A wrong kernel may overflow in its type where the change, in fp64, does not: that refutes nothing.
  bool overflows_there_alone(const FreshTensor& there) const {
    const auto finite = [](double v) { return std::isfinite(v); };
    return std::ranges::all_of(wrong_.got, finite) && !std::ranges::all_of(there.got, finite);
  }

  bool holds_at_other_extents(Walk how, const reference::Change& change, const Agreement& here,
                              const reference::OneChange& one, double& odds) {
    constexpr double kOfVeryMany = 20;  // bits of choice: what fits here may be another one there
    const double least = here.freedom >= kOfVeryMany ? 0.9 : 0.5;
    FreshCases& fresh = fresh_cases_of(wrong_.run);
    for (int k = 0, wrong = 0; k < FreshCases::kElsewhere && wrong < 2; ++k) {
      FreshTensor* const there = fresh.elsewhere(wrong_.tensor.name, wrong_.pass, k);
      if (there == nullptr || overflows_there_alone(*there)) continue;
      ++wrong;
      const Prediction seen = predicted_by_rows(*there, how, one, here.freedom, 0.5);
      if (seen.tried > 0 ? seen.best.outside < least : change.edge.has_value()) return false;
      if (here.narrowed && seen.best.outside == 1)
        odds += std::max(0.0, narrow_odds(there->rows(wrong_.pass), seen.values).log10);
    }
    return true;
  }

  const WrongTensor& wrong_;
  const Tolerance tolerance_;
  const bool asks_;
  int asked_ = 0;
  bool only_here_ = false;  ///< of the change that was asked last: it fails at other extents alone
  Agreement best_;
  Replayed found_, here_;
};

/// Words if the tensor has the values of another one of its launch: two were exchanged.
std::string another_tensor(const WrongTensor& wrong, Pass pass, const BestChange& best) {
  CaseReference& forms = wrong.run.reference;
  for (const std::size_t form : forms.forms()) {
    const std::string other = same_as_another(forms.recording(form), forms.leaves(form, pass), wrong.pass, wrong.tensor,
                                              [&](const std::vector<double>& values) { return best.alike(values); });
    if (!other.empty()) return "these are the values of another output or gradient, '" + other + "'";
  }
  return "";
}

bool has_saved(CaseReference& forms) {
  const std::size_t form = forms.forms().front();
  return forms.leaves(form, Pass::backward_at_saved).size() > forms.leaves(form, Pass::backward).size();
}

}  // namespace

namespace {

bool may_be_changed(const WrongTensor& wrong) {
  return wrong.pass != Pass::jvp && wrong.tensor.shape.count() <= kLargestExplained &&
         !wrong.run.accumulates(wrong.tensor.name);
}

}  // namespace

Replayed explained_by_change(const WrongTensor& wrong, const std::string& only) {
  if (!may_be_changed(wrong)) return {};
  BestChange best(wrong, only.empty());
  const reference::OneChange one{.words = only};
  const reference::OneChange* const known = only.empty() ? nullptr : &one;
  const Pass pass = wrong.pass == Pass::forward ? wrong.pass : Pass::backward;
  if (only.empty())
    if (const std::string words = another_tensor(wrong, pass, best); !words.empty())
      return {Replayed::Kind::changed_formula, words};
  best.try_changes({pass}, known);
  // A slip that backward makes alone: what forward saved is right.
  if (pass == Pass::backward && best.found().kind != Replayed::Kind::changed_formula && has_saved(wrong.run.reference))
    best.try_changes({Pass::backward_at_saved}, known);
  // A slip in the formula itself is nearer than another formula that happens to give the same.
  if (best.perfect() || !only.empty()) return best.found();
  const std::string activation =
      another_activation(wrong, [&](const std::vector<double>& values) { return best.alike(values); });
  return activation.empty() ? best.found() : Replayed{Replayed::Kind::changed_formula, activation};
}

Replayed explained_by_further_change(const WrongTensor& wrong) {
  // One factor for all is said already; a factor of an intermediate says no more.
  if (!may_be_changed(wrong) || all_zero(wrong.got)) return {};
  if (off_by_one_factor(wrong)) return {};
  BestChange best(wrong);
  const Pass pass = wrong.pass == Pass::forward ? wrong.pass : Pass::backward;
  best.try_changes({pass, true}, nullptr);
  if (pass == Pass::backward && !best.perfect() && has_saved(wrong.run.reference))
    best.try_changes({Pass::backward_at_saved, true}, nullptr);
  Replayed out = best.found();
  if (out.kind != Replayed::Kind::none) return out;
  if (best.found_here().words.empty()) {  // what the simple slips give at these extents alone
    best.try_changes({pass}, nullptr);
    if (pass == Pass::backward && has_saved(wrong.run.reference)) best.try_changes({Pass::backward_at_saved}, nullptr);
  }
  return best.found_here();
}

namespace {

/// The change that these words name.
reference::OneChange named(const std::string& words, const Dims* found_at) {
  reference::OneChange out{.words = words, .found_anew = true};
  if (found_at != nullptr) out.extents = numbers_of_extents(*found_at);
  static constexpr std::string_view kEdge = "a number between ";
  if (const std::size_t at = words.find(kEdge); at != std::string::npos) {
    const std::string numbers = words.substr(at + kEdge.size());
    double ends[2] = {};
    const char* from = numbers.data();
    const char* const end = from + numbers.size();
    for (double& v : ends) {
      from = std::from_chars(from, end, v).ptr;
      from = std::min(end, from + std::string_view(" and ").size());
    }
    out.edge = {ends[0], ends[1]};
  }
  return out;
}

}  // namespace

std::optional<bool> gives(const std::string& change, const WrongTensor& there, const Dims* found_at) {
  if (!may_be_changed(there)) return std::nullopt;
  const reference::OneChange one = named(change, found_at);
  const Pass pass = there.pass == Pass::forward ? there.pass : Pass::backward;
  std::optional<bool> out;
  for (const bool further : {false, true})
    for (const Pass from : {pass, Pass::backward_at_saved}) {
      if (from == Pass::backward_at_saved && (pass == Pass::forward || !has_saved(there.run.reference))) continue;
      const Prediction seen = predicted(there, {from, further}, one, 0);
      if (seen.tried == 0) continue;
      if (seen.best.outside >= 0.9 && seen.best.all >= 0.95) return true;
      out = false;
    }
  return out;
}

}  // namespace ampcheck::checks
