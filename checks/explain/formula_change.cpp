// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Which slip a wrong kernel made: the one change of a form that gives the kernel's numbers, right ones included.
#include "checks/explain/formula_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "checks/case/case_run.h"
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

/// How much of a tensor a changed formula gives: of the wrong elements and of all. `bits`: by how many powers of two it
/// comes nearer to the kernel's numbers than the declared one, over all elements; chance has a probability of about
/// 2^-bits.
struct Agreement {
  double outside = 0, all = 0, bits = 0;
  std::int64_t telling = 0;  ///< elements for which the two formulas round to different numbers
  bool narrowed = false;
  bool same_bits =
      false;  ///< all elements have the bits that the changed formula rounds to, in a storage that rounds coarsely
  double freedom = 0;                  ///< of a change that is one of many: bits that it has to show besides
  std::int64_t moved = 0, fewest = 0;  ///< elements that it brings nearer, and how many of them it takes
  /// There are few intermediates to choose from. Numbers that agree to the last bit tell more than their size shows in
  /// short formats.
  bool convincing() const {
    if (outside < 0.9 || all < 0.95) return false;
    if (freedom > 0) return outside >= 0.95 && bits >= 10 + freedom && moved >= fewest;
    return bits >= (narrowed || (outside == 1 && all == 1) ? 8 : 16) || to_the_last_bit();
  }
  /// A slip of another kind would not spare just the elements that this one does, and give the others the same bits.
  bool to_the_last_bit() const { return narrowed && outside == 1 && same_bits && telling >= 4; }
  /// Nothing that is yet to be tried fits better.
  bool perfect() const { return convincing() && outside == 1 && all == 1 && bits >= 16; }
  bool better_than(const Agreement& other) const {
    // A change with more of choice has to explain more than chance might.
    const double dearer = freedom > other.freedom && other.outside > 0 ? 0.02 : 0;
    return outside + all + std::min(bits, 16.0) / 16 >
           other.outside + other.all + std::min(other.bits, 16.0) / 16 + dearer;
  }
};

/// What a tensor leaves open between a kernel's number and a changed formula's, whose own roundings are about those of
/// the declared one.
class Tolerance {
 public:
  explicit Tolerance(const Interval& interval) : interval_(interval), storage_(format(interval.dtype)) {
    std::vector<double> shares;
    for (std::size_t i = 0; i < interval.value.size(); ++i) {
      const double share = interval.radius[i] / std::fabs(interval.value[i]);
      if (std::isfinite(share)) shares.push_back(share);
    }
    if (shares.empty()) return;
    const auto quarter =
        shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 4);  // little of it is cancellation
    std::nth_element(shares.begin(), quarter, shares.end());
    // A changed formula rounds where the declared one may be exact: 8 of its roundings.
    const double computed = 8 * (interval.dtype == Dtype::fp64 ? kFp64 : kFp32).unit_roundoff();
    share_ = std::clamp(*quarter, computed, 0x1p-4);
  }
  double at(std::size_t i, double got) const {
    return 2 * std::max(interval_.radius[i], share_ * std::fabs(got)) + spacing_at(storage_, got);
  }
  bool agrees(std::size_t i, double got, double changed) const {
    if (!std::isfinite(got) || !std::isfinite(changed))
      return got == changed || (std::isnan(got) && std::isnan(changed));
    return std::fabs(got - changed) <= at(i, got);
  }

 private:
  const Interval& interval_;
  const FloatFormat& storage_;
  double share_ = 0;  ///< relative radius of an element that does not cancel
};

/// `freedom`: of the change. Where it is large, right elements must not count for being rounded, as both formulas are.
Agreement agreement(const Tolerance& tolerance, const WrongTensor& wrong, std::vector<double> changed,
                    double freedom = 0) {
  Agreement out;
  out.freedom = freedom;
  out.fewest = std::min<std::int64_t>(4, (std::ssize(wrong.got) + 1) / 2);
  std::size_t far = 0;  // most changes are plainly none, before they are rounded
  for (const std::int64_t at : wrong.comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    const double off = std::fabs(wrong.got[i] - changed[i]);
    far += std::isfinite(off) && off > 2 * tolerance.at(i, wrong.got[i]);
    if (10 * far > wrong.comparison.outside.size()) return out;
  }
  round_values(format(wrong.interval.dtype), RoundingMode{}, changed, changed);
  std::size_t missed = 0, admitted = 0;
  for (const std::int64_t at : wrong.comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    if (!tolerance.agrees(i, wrong.got[i], changed[i]))
      ++missed;
    else if (admits(wrong.interval, at, changed[i]))
      ++admitted;  // it explains nothing, and refutes nothing: the kernel's own roundings took it outside
    if (10 * missed > wrong.comparison.outside.size() || 2 * admitted > wrong.comparison.outside.size()) return out;
  }
  out.outside = 1 - static_cast<double>(missed) / static_cast<double>(wrong.comparison.outside.size());
  std::vector<double> declared(wrong.interval.value.begin(), wrong.interval.value.end());
  round_values(format(wrong.interval.dtype), RoundingMode{}, declared, declared);
  out.same_bits = bytes(wrong.interval.dtype) < 4;
  const double precision = format(wrong.interval.dtype).precision;
  auto outside = wrong.comparison.outside.begin();  // ascending
  std::int64_t contradicted = 0;
  for (std::size_t i = 0; i < wrong.got.size(); ++i) {
    out.same_bits &= wrong.got[i] == changed[i];
    if (changed[i] != declared[i]) ++out.telling;
    const bool agrees = tolerance.agrees(i, wrong.got[i], changed[i]);
    out.all += agrees;
    const bool right = outside == wrong.comparison.outside.end() || *outside != static_cast<std::int64_t>(i);
    if (!right) ++outside;
    contradicted += right && !agrees;
    const double before = std::fabs(wrong.got[i] - (freedom > 0 ? declared[i] : wrong.interval.value[i])),
                 after = std::fabs(wrong.got[i] - changed[i]), blur = tolerance.at(i, wrong.got[i]) / 8;
    if (!std::isfinite(before) || !std::isfinite(after)) continue;
    const double bits = std::log2((before + blur) / (after + blur));
    // Zero is what many changes leave, and no number is known to more bits than it has.
    out.bits += freedom > 0 ? std::min(bits, changed[i] == 0 ? 2.0 : precision) : bits;
    out.moved += bits > 1;
  }
  out.all /= static_cast<double>(wrong.got.size());
  // A tail that is right is no chance, however short it is.
  const std::int64_t right = std::ssize(wrong.got) - std::ssize(wrong.comparison.outside);
  if (freedom > 0 && 20 * contradicted > right) out.all = 0;
  return out;
}

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

/// The change that explains a tensor best, over its forms.
class BestChange {
 public:
  explicit BestChange(const WrongTensor& wrong) : wrong_(wrong), tolerance_(wrong.interval) {}

  const Replayed& found() const { return found_; }
  bool perfect() const { return best_.perfect(); }
  double room(std::size_t i) const { return tolerance_.at(i, wrong_.got[i]); }
  bool alike(const std::vector<double>& values) const { return agreement(tolerance_, wrong_, values).convincing(); }

  /// False once nothing that is yet to be tried fits better.
  bool take(const reference::Recording& recording, const reference::Change& change,
            const std::vector<double>& changed) {
    Agreement seen = agreement(tolerance_, wrong_, changed, change.freedom);
    seen.narrowed = change.narrowed != nullptr;
    if (change.exact && !(seen.outside == 1 && seen.all == 1)) return true;
    // One wrong number among right ones is no rounding of all.
    if (seen.narrowed && !seen.to_the_last_bit() &&
        wrong_.comparison.outside.size() < std::min<std::size_t>(4, wrong_.got.size()))
      return true;
    if (!seen.convincing() || !seen.better_than(best_)) return true;
    best_ = seen;
    found_.kind = seen.narrowed ? Replayed::Kind::narrowed : Replayed::Kind::changed_formula;
    found_.of_sum = change.of_sum;
    found_.change = change.words;
    found_.words = "these are the values of the formula " + change.words;
    found_.odds = HUGE_VAL;
    if (seen.narrowed) {
      const Odds odds = odds_of(wrong_, [&](std::size_t i) { return Expected{changed[i], wrong_.interval.radius[i]}; });
      found_.words = change.words + " " + against(name(wrong_.run.op.signature.precision.compute), odds);
      found_.odds = odds.log10;
    }
    if (change.nonlinear && recording.cotangents.contains(change.leaf)) found_.words += ": not linear in the cotangent";
    return !seen.perfect();
  }

 private:
  const WrongTensor& wrong_;
  const Tolerance tolerance_;
  Agreement best_;
  Replayed found_;
};

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

reference::NodeNames names_in(const reference::Recording& recording, const CaseRun& run) {
  reference::NodeNames out;
  name_attributes(run, *recording.graph, out);
  for (const auto& [name, node] : recording.outputs) out[node.id] = name;
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

/// Tries the changes of each form, from what a pass starts with.
template <class ForEach>
void try_each_form(const WrongTensor& wrong, Pass pass, BestChange& best, ForEach for_each) {
  CaseReference& forms = wrong.run.reference;
  for (const std::size_t form : forms.forms()) {
    const reference::Recording& recording = forms.recording(form);
    const reference::Expr target = target_in(recording, wrong);
    if (!target.defined()) continue;
    for_each(*recording.graph, forms.leaves(form, pass), target, names_in(recording, wrong.run),
             [&](const reference::Change& change, const std::vector<double>& changed) {
               return best.take(recording, change, changed);
             });
    if (best.perfect()) break;
  }
}

void try_changes(const WrongTensor& wrong, Pass pass, const std::string& only, BestChange& best) {
  try_each_form(wrong, pass, best,
                [&](const reference::Graph& graph, const Leaves& leaves, reference::Expr target,
                    const reference::NodeNames& names,
                    const auto& see) { reference::for_each_change(graph, leaves, target, names, kMost, see, only); });
}

void try_further_changes(const WrongTensor& wrong, Pass pass, BestChange& best) {
  const reference::WrittenNumbers written{wrong.got, wrong.comparison.outside,
                                          [&](std::size_t i) { return best.room(i); }, known_numbers(wrong.run)};
  try_each_form(wrong, pass, best,
                [&](const reference::Graph& graph, const Leaves& leaves, reference::Expr target,
                    const reference::NodeNames& names, const auto& see) {
                  reference::for_each_further_change(graph, leaves, target, names, kMostFurther, written, see);
                });
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
  BestChange best(wrong);
  const Pass pass = wrong.pass == Pass::forward ? wrong.pass : Pass::backward;
  if (only.empty())
    if (const std::string words = another_tensor(wrong, pass, best); !words.empty())
      return {Replayed::Kind::changed_formula, words};
  try_changes(wrong, pass, only, best);
  // A slip that backward makes alone: what forward saved is right.
  if (pass == Pass::backward && best.found().kind != Replayed::Kind::changed_formula && has_saved(wrong.run.reference))
    try_changes(wrong, Pass::backward_at_saved, only, best);
  // A slip in the formula itself is nearer than another formula that happens to give the same.
  if (best.perfect() || !only.empty()) return best.found();
  const std::string activation =
      another_activation(wrong, [&](const std::vector<double>& values) { return best.alike(values); });
  return activation.empty() ? best.found() : Replayed{Replayed::Kind::changed_formula, activation};
}

std::string explained_by_further_change(const WrongTensor& wrong) {
  // One factor for all is said already; a factor of an intermediate says no more.
  if (!may_be_changed(wrong) || all_zero(wrong.got)) return "";
  const std::string seen = likely_cause(wrong);
  if (seen.starts_with("off by a constant factor of") || seen.starts_with("the sign is flipped")) return "";
  BestChange best(wrong);
  const Pass pass = wrong.pass == Pass::forward ? wrong.pass : Pass::backward;
  try_further_changes(wrong, pass, best);
  if (pass == Pass::backward && !best.perfect() && has_saved(wrong.run.reference))
    try_further_changes(wrong, Pass::backward_at_saved, best);
  return best.found().words;
}

}  // namespace ampcheck::checks
