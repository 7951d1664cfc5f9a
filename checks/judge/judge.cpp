// SPDX-License-Identifier: Apache-2.0
// Judges one written tensor: the union over the forms of their intervals, then the class and the likely cause.
#include "checks/judge/judge.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "checks/case/case_run.h"
#include "checks/case/form_comparison.h"
#include "checks/case/row_part.h"
#include "checks/explain/departures.h"
#include "checks/explain/diagnosis.h"
#include "checks/explain/formula_change.h"
#include "checks/explain/places.h"
#include "checks/judge/kinks.h"
#include "src/elements.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// Up to three elements, the farthest outside first.
std::vector<Element> worst_elements(const Comparison& comparison, const Interval& interval, const TensorView& got,
                                    const std::vector<double>& values) {
  std::vector<std::pair<double, std::int64_t>> order;
  for (const std::int64_t i : comparison.outside) {
    const double ratio = excess_ratio(interval, i, values[static_cast<std::size_t>(i)]);
    order.emplace_back(std::isnan(ratio) ? INFINITY : ratio, i);
  }
  const std::size_t keep = std::min<std::size_t>(3, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(),
      [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::vector<Element> out;
  for (std::size_t k = 0; k < keep; ++k) {
    const std::int64_t i = order[k].second;
    out.push_back(element_of(interval, i, values[static_cast<std::size_t>(i)], bits_at(got, i)));
  }
  return out;
}

/// A wrong tensor, or some rows of one.
struct Wrong {
  CaseRun& run;
  const Written& tensor;
  Pass pass;
  const std::vector<double>& values;
  const Comparison& comparison;
  const Interval& interval;

  Replayed changed(const std::string& change = "") const {
    return explained_by_change(run, tensor, pass, values, comparison, interval, change);
  }
  std::string dropped() const { return dropped_terms(run, tensor, pass, values, comparison, interval); }
  bool accumulates_low(std::string& words) const {
    return explained_by_low_accumulation(run, tensor, pass, values, comparison, interval, words);
  }
  /// Asked twice, replayed once.
  bool surely_accumulates_low(std::string& words) const {
    if (!surely_low) {
      std::string found;
      surely_low = surely_low_accumulation(run, tensor, pass, values, comparison, interval, found) ? found : "";
    }
    if (!surely_low->empty()) words = *surely_low;
    return !surely_low->empty();
  }
  Departed departed(const std::set<std::string>& known) const {
    return explained_by_departure(run, tensor, pass, values, comparison, interval, false, known);
  }
  std::string flushes() const { return explained_by_flushing(run, tensor, pass, values, comparison, interval); }
  bool one_factor() const { return off_by_one_factor(comparison, interval, values); }

  mutable std::optional<std::string> surely_low = {};
};

/// What replays say.
Replayed replays(const Wrong& wrong, bool one_factor) {
  std::string words;
  if (!one_factor && wrong.surely_accumulates_low(words)) return {Replayed::Kind::low_accumulation, words};
  Replayed out = wrong.changed();
  // In short rows a sum without its tail may be no sum at all, and a sum kept in 16 bits one that adds up in them.
  const bool open = out.kind == Replayed::Kind::none || out.kind == Replayed::Kind::changed_formula || out.of_sum;
  if (!open || one_factor) return out;
  if (!out.of_sum) {
    const std::string dropped = wrong.dropped();
    if (!dropped.empty() && out.kind == Replayed::Kind::none)
      out = {Replayed::Kind::dropped_terms, dropped};
    else if (!dropped.empty())
      out.words += "; or " + dropped, out.change.clear();
  }
  if ((out.kind == Replayed::Kind::none || out.of_sum) && wrong.accumulates_low(words))
    out = {Replayed::Kind::low_accumulation, words};
  return out;
}

/// Whether what was said of another probe holds here too.
Replayed confirmed(const Replayed& before, const Wrong& wrong) {
  using Kind = Replayed::Kind;
  if (!before.change.empty()) return wrong.changed(before.change);
  std::string words;
  if (before.kind == Kind::dropped_terms)
    words = wrong.dropped();
  else if (before.kind == Kind::low_accumulation && !wrong.surely_accumulates_low(words) &&
           !wrong.accumulates_low(words))
    words.clear();
  return words.empty() ? Replayed() : Replayed{before.kind, words};
}

/// They take long, so two probes that say the same speak for the others, and the second is asked first for what the
/// first one says.
Replayed replayed_cause(const Wrong& whole, const Wrong* rows) {
  std::vector<Replayed>& known = whole.run.replayed[whole.tensor.name];
  if (known.size() >= 2 && known[known.size() - 1].kind == known[known.size() - 2].kind) return known.back();
  const bool one_factor = whole.one_factor() || on_regular_lines(whole.comparison, whole.interval.shape);
  Replayed out = known.empty() ? Replayed() : confirmed(known.back(), rows != nullptr ? *rows : whole);
  if (out.kind == Replayed::Kind::none && rows != nullptr) out = replays(*rows, one_factor);
  constexpr std::int64_t kCheap = 4096;  // elements that cost little more than some of their rows
  if (out.kind == Replayed::Kind::none && (rows == nullptr || whole.tensor.shape.count() <= kCheap))
    out = replays(whole, one_factor);
  return known.emplace_back(out);
}

/// Of a tensor with rows that stand for it: what holds there has to hold for all of it.
Departed departs(const Wrong& whole, const Wrong* rows) {
  std::set<std::string>& known = whole.run.departures;
  if (whole.one_factor() || all_zero(whole.values)) return {};
  // A short accumulator that explained another probe is asked first, and so is one whose every number is the kernel's:
  // it takes a tenth of the time.
  const auto before = whole.run.replayed.find(whole.tensor.name);
  if (before != whole.run.replayed.end() && !before->second.empty() &&
      before->second.back().kind == Replayed::Kind::low_accumulation)
    return {};
  if (std::string words; !on_regular_lines(whole.comparison, whole.interval.shape) &&
                         (rows != nullptr ? *rows : whole).surely_accumulates_low(words))
    return {};
  const std::tuple refuted(whole.tensor.name, whole.pass, false);
  if (whole.run.no_departure.contains(refuted)) return {};
  Departed out = rows != nullptr ? rows->departed(known) : whole.departed(known);
  if (out.refuted) whole.run.no_departure.insert(refuted);
  if (rows != nullptr && out.code != Code::none) out = whole.departed(known);
  if (out.code != Code::none) known.insert(out.departure);
  return out;
}

/// `unexplained`: the elements outside that no grouping of the formula admits.
void classify(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& values,
              const Comparison& comparison, const Interval& interval, const std::vector<std::int64_t>& unexplained,
              CheckResult& check) {
  const std::int64_t first = comparison.outside.front();
  const bool finite_expected = std::isfinite(interval.value[static_cast<std::size_t>(first)]);
  bool any_non_finite = false;
  for (const std::int64_t i : comparison.outside) any_non_finite |= !std::isfinite(values[static_cast<std::size_t>(i)]);
  check.code = any_non_finite && finite_expected ? Code::ac102 : (finite_expected ? Code::ac101 : Code::ac103);
  if (run.accumulates(tensor.name)) check.code = Code::ac408;
  check.cause = check.code == Code::ac408 ? added_otherwise(comparison, interval, run.held(tensor), values) : "";
  if (check.cause.empty()) check.cause = likely_cause(run.call, comparison, interval, values);
  {  // of which some are none: not left to the explaining
    const bool plainly = check.code == Code::ac101;
    AtKink kink =
        run.plainly_wrong.contains(tensor.name) ? AtKink() : at_kink(run, tensor, pass, values, unexplained, interval);
    if (!plainly && kink.kind != AtKink::Kind::subgradient)
      kink = {};  // then it is infinite, NaN or not added to first of all
    if (kink.kind == AtKink::Kind::no_subgradient) check.code = Code::ac204, check.cause = kink.words;
    if (kink.kind == AtKink::Kind::subgradient)
      check.code = Code::ac205, check.cause.clear(), check.note = kink.words, check.failed = 0,
      check.max_ratio = comparison.max_ratio;
    if (kink.kind == AtKink::Kind::undeclared) check.cause = kink.words;
    check.verdict = text_of(check.code).verdict;
    if (kink.kind == AtKink::Kind::no_subgradient && run.options.explain)
      if (const Replayed why = Wrong{run, tensor, pass, values, comparison, interval}.changed();
          why.kind == Replayed::Kind::changed_formula)
        check.cause += "; " + why.words;
    if (kink.kind != AtKink::Kind::none) return;
    run.plainly_wrong.insert(tensor.name);
  }
  if (!run.options.explain) {
    check.verdict = text_of(check.code).verdict;
    return;
  }
  const bool finite = is_wrong_number(check.code);
  const Wrong whole{run, tensor, pass, values, comparison, interval};
  const std::unique_ptr<RowPart> part = finite ? some_rows(run, tensor, pass, values, comparison, interval) : nullptr;
  std::optional<Wrong> rows;
  if (part) rows.emplace(Wrong{*part->run, part->tensor, pass, part->got, part->comparison, part->interval});
  if (const std::string flushes = finite && (!rows || !rows->flushes().empty()) ? whole.flushes() : "";
      !flushes.empty()) {
    check.find(Code::ac303), check.cause = flushes;
    return;
  }
  if (check.code != Code::ac101) {
    check.verdict = text_of(check.code).verdict;
    return;
  }
  if (const std::string words = truncated(run, tensor, pass, values); !words.empty()) {
    check.find(Code::ac305), check.cause = words;
    return;
  }
  if (const Departed departed = departs(whole, rows ? &*rows : nullptr); departed.code != Code::none) {
    check.find(departed.code), check.cause = departed.words;
    return;
  }
  const Replayed cause = all_zero(values) ? Replayed() : replayed_cause(whole, rows ? &*rows : nullptr);
  if (cause.kind == Replayed::Kind::low_accumulation)
    check.code = Code::ac301, check.cause = cause.words;
  else if (cause.kind == Replayed::Kind::narrowed)
    check.code = Code::ac302, check.cause = cause.words;
  else if (cause.kind != Replayed::Kind::none)
    check.cause = check.cause.empty() ? cause.words : check.cause + "; " + cause.words;
  check.verdict = text_of(check.code).verdict;
}

/// What the comparison of a whole tensor says, where nothing lies outside.
void conclude(const Comparison& comparison, CheckResult& check) {
  check.compared = comparison.compared, check.blind = comparison.blind, check.range = comparison.range;
  check.max_ratio = comparison.max_ratio;
  if (check.compared > 0 && check.blind == check.compared) {
    check.code = Code::ac202;
    check.note = "every element is blind here";  // convicts only if no case of the op sees the output (runner)
  } else if (check.compared > 0 && check.range == check.compared) {
    check.code = Code::ac201;
    check.note = "no element is judged: an intermediate leaves the compute type's range";
    check.verdict = Verdict::range;
  }
}

/// Largest ratio of a tensor without outside elements, in the form that the kernel computes: in another one's interval
/// its elements lie anywhere, up to the end. Which form it is shows in how little one that admits the whole tensor
/// leaves used; worth the evaluation only where the forms taken so far are nearly used up. `seen`: what the union of
/// the forms gave.
double headroom_used(CaseRun& run, const Subject& subject, Pass pass, std::span<const double> held,
                     const Comparison& seen) {
  constexpr double kNearlyUsedUp = 0.5;
  double least = seen.max_ratio;
  if (least <= kNearlyUsedUp) return least;
  const std::vector<double> values = to_doubles(subject.got);
  for (const std::size_t form : run.reference.forms()) {
    if (least <= kNearlyUsedUp) break;
    const Comparison alone =
        compare(values, run.reference.interval(form, pass, subject.tensor->name, subject.tensor->dtype, held));
    if (alone.outside.empty() && alone.range <= seen.range) least = std::min(least, alone.max_ratio);
  }
  return least;
}

/// Whether a number may be rounded otherwise than any form's: infinite or NaN where the value is finite, or off by
/// little beside the tensor's largest value. A slip moves most numbers farther.
bool may_be_regrouped(const Comparison& comparison, const Interval& interval, const std::vector<double>& values) {
  constexpr double kLittle = 0x1p-4;
  double largest = 0;
  for (const double v : interval.value)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  return std::any_of(comparison.outside.begin(), comparison.outside.end(), [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    return std::isfinite(interval.value[i]) &&
           !(std::fabs(values[i] - interval.value[i]) > kLittle * largest && std::isfinite(values[i]));
  });
}

/// The forms of built-in ops are all that kernels use, and what they leave open is stated. An author's formula says
/// less.
bool forms_are_listed(const CaseRun& run) { return run.op.plugin.empty() && find_op(run.op.signature.name) != nullptr; }

/// Drops gradients that the formula leaves open where an input is NaN or infinite.
void drop_open(CaseRun& run, const Written& tensor, Pass pass, const Interval& interval, Comparison& comparison) {
  if (comparison.outside.empty()) return;
  const std::vector<char> behind = run.reference.behind_choices(run.reference.forms().front(), pass, tensor.name);
  if (behind.empty()) return;
  comparison.range += static_cast<std::int64_t>(std::erase_if(comparison.outside, [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    return (behind[i] & 2) != 0 || (behind[i] != 0 && std::isnan(interval.value[i]));
  }));
}

/// Whether all of it is right for a kernel that regroups a form: then nothing lies outside, and what a grouping may
/// take out of the range counts as such. A tensor of which some elements stay wrong, `unexplained`, is judged as if
/// nothing could be regrouped.
bool right_if_regrouped(CaseRun& run, const Written& tensor, Pass pass, std::span<const double> held,
                        const std::vector<double>& values, const Interval& interval, Comparison& comparison,
                        std::vector<std::int64_t>& unexplained) {
  if (run.not_regrouped.contains(tensor.name) || run.plainly_wrong.contains(tensor.name) ||
      !may_be_regrouped(comparison, interval, values))
    return false;
  Comparison left = comparison;
  for (const std::size_t form : run.reference.forms()) {
    const std::optional<reference::Regrouped> bound = run.reference.regrouped(form, pass, tensor.name, held);
    if (!bound) return false;
    std::erase_if(left.outside, [&](std::int64_t at) {
      const auto i = static_cast<std::size_t>(at);
      const double v = bound->value[i], r = bound->radius[i];
      if (!std::isfinite(v) || !std::isfinite(interval.value[i])) return false;
      const bool left_range = bound->overflows[i] && (!std::isfinite(values[i]) ||
                                                      values[i] == 0);  // zero: divided by an overflow, or exp of it
      left.range += left_range;
      if (!left_range) left.max_ratio = 1;
      double ends[2] = {v - r * (1 + 0x1p-40), v + r * (1 + 0x1p-40)};
      round_ends(tensor.dtype, ends);
      return left_range || (r > 0 && values[i] >= ends[0] && values[i] <= ends[1]);
    });
    if (!left.outside.empty()) continue;
    comparison = left;
    return true;
  }
  if (left.outside.size() == comparison.outside.size())
    run.not_regrouped.insert(tensor.name);  // nor is another probe of it
  unexplained = left.outside;
  return false;
}

/// Judges a tensor as a whole, and explains what lies outside.
CheckResult judge_whole(CaseRun& run, const Subject& subject, Pass pass, std::span<const double> held) {
  const Written& tensor = *subject.tensor;
  CheckResult check;
  check.id = subject.id;
  check.dtype = tensor.dtype;
  const std::vector<double> values = to_doubles(subject.got);
  FormComparison with_forms = compare_with_forms(run, tensor, pass, values, held);
  Comparison& comparison = with_forms.comparison;
  const Interval& nearest = with_forms.nearest;  // for the report
  std::vector<std::int64_t> unexplained = comparison.outside;
  if (!forms_are_listed(run)) {
    drop_open(run, tensor, pass, nearest, comparison);
    unexplained = comparison.outside;
    if (comparison.outside.empty() ||
        right_if_regrouped(run, tensor, pass, held, values, nearest, comparison, unexplained)) {
      conclude(comparison, check);
      return check;
    }
  }
  if (comparison.outside.empty()) comparison.max_ratio = headroom_used(run, subject, pass, held, comparison);
  conclude(comparison, check);
  if (comparison.outside.empty()) return check;
  check.failed = static_cast<std::int64_t>(comparison.outside.size());
  check.max_ratio = 0;
  for (const std::int64_t i : comparison.outside)
    check.max_ratio = std::max(check.max_ratio, excess_ratio(nearest, i, values[static_cast<std::size_t>(i)]));
  check.worst = worst_elements(comparison, nearest, subject.got, values);
  classify(run, tensor, pass, values, comparison, nearest, unexplained, check);
  return check;
}

/// Tensors of one launch while they are judged by rows.
struct ByRows {
  CaseRun& run;
  const std::vector<Subject>& subjects;
  Pass pass;
  const std::vector<std::vector<double>>& held;
  std::vector<Comparison>& comparisons;
  std::vector<Elements> got;
  std::vector<double> room;

  const Written& tensor(std::size_t k) const { return *subjects[k].tensor; }
  std::vector<std::string> names(const std::vector<std::size_t>& which) const {
    std::vector<std::string> out;
    for (const std::size_t k : which) out.push_back(tensor(k).name);
    return out;
  }
};

/// A tensor that is worth a bound before its radii: not held, and stored in less than the compute type, so that nearly
/// all of its elements are the nearest numbers. A short one is judged sooner than bounded.
bool worth_a_bound(const ByRows& of, std::size_t k) {
  constexpr std::int64_t kFewest = 8192;
  std::int64_t largest = 0;
  for (const Subject& subject : of.subjects) largest = std::max(largest, subject.tensor->shape.count());
  return of.held[k].empty() && is_float(of.tensor(k).dtype) && bytes(of.tensor(k).dtype) < 4 && largest >= kFewest;
}

/// The most of n elements that a bound may leave open, so that each is looked at by itself.
std::size_t most_open(std::int64_t n) { return static_cast<std::size_t>(std::max<std::int64_t>(16, n / 64)); }

/// Which of the elements [at, at + n) of a tensor, those of the ball from `first` on, no bound settles: the part's, or
/// for the few that it leaves open one of their own. Ascending, from `at` on; nothing where they are too many, or where
/// one is enough (`any`) the first of them.
std::optional<std::vector<std::int64_t>> left_open(ByRows& of, std::size_t form, std::size_t k, std::int64_t at,
                                                   std::int64_t n, const reference::Ball& ball, std::int64_t first,
                                                   bool any) {
  const Dtype dtype = of.tensor(k).dtype;
  const std::size_t most = most_open(n);
  std::vector<std::int64_t> open;
  const std::byte* const codes = of.got[k].codes(at);
  if (codes == nullptr || !unsettled_codes(codes, static_cast<std::size_t>(n), ball, first, dtype, open, most)) {
    open.clear();
    unsettled(of.got[k].part(at, n, of.room), ball, first, dtype, open, most);
  }
  if (open.size() > most) return std::nullopt;
  const auto got = [&](std::int64_t i) { return of.got[k].part(at + i, 1, of.room).front(); };
  const auto far = [&](std::int64_t i) { return !settled(got(i), ball.v[first + i], 0, dtype); };  // at whatever radius
  if (const auto found = std::find_if(open.begin(), open.end(), far); any && found != open.end())
    return std::vector{*found};
  const auto settles = [&](std::int64_t i) {
    if (far(i)) return false;
    const double value = ball.v[first + i], number = got(i);
    const auto enough = [&](double radius) {
      return (radius == 0 && number == value) || settled(number, value, radius, dtype);
    };
    return enough(of.run.reference.radius_at(form, of.pass, of.tensor(k).name, first + i, enough));
  };
  if (any)
    return std::find_if_not(open.begin(), open.end(), settles) == open.end() ? std::vector<std::int64_t>{} : open;
  std::erase_if(open, settles);
  return open;
}

/// Compares some elements of a tensor with their own balls, side by side in `ball`; `at`: their indices.
void compare_at(ByRows& of, std::size_t form, std::size_t k, const std::vector<std::int64_t>& at,
                const reference::Ball& ball) {
  Comparison& all = of.comparisons[k];
  std::vector<double> got;
  for (const std::int64_t i : at) got.push_back(of.got[k].part(i, 1, of.room).front());
  const std::size_t known = all.outside.size();
  compare_part(got, of.run.reference.interval_of_part(form, of.pass, ball, of.tensor(k).dtype, {}), 0, all);
  for (std::size_t i = known; i < all.outside.size(); ++i)
    all.outside[i] = at[static_cast<std::size_t>(all.outside[i])];
}

/// What a bound left of a tensor that does not go by row: all of it, or elements of it if they are few.
struct Left {
  bool by_row, open = false;
  std::vector<std::int64_t> elements = {};
};

/// Rows of tensors that are still to be compared, and those of which some elements alone are.
struct OpenRows {
  std::vector<char> whole, parted;
  reference::RowElements elements;  ///< of the parted ones, of any of the tensors
  explicit OpenRows(std::int64_t count) : whole(static_cast<std::size_t>(count), 0), parted(whole) {}
  void add(std::int64_t row, const std::vector<std::int64_t>* some) {
    const auto at = static_cast<std::size_t>(row);
    whole[at] |= some == nullptr, parted[at] = !whole[at];
    if (whole[at]) return void(elements.erase(row));
    std::vector<std::int64_t>& known = elements[row];
    std::vector<std::int64_t> all;
    std::set_union(known.begin(), known.end(), some->begin(), some->end(), std::back_inserter(all));
    known = std::move(all);
  }
  bool any_whole() const { return std::find(whole.begin(), whole.end(), 1) != whole.end(); }
  std::int64_t count() const { return std::count(whole.begin(), whole.end(), 1) + std::ssize(elements); }
};

/// Counts what a bound settles and leaves the rest: whole tensors in `whole`, rows of the tensors in `parted`.
void settle_most(ByRows& of, std::size_t form, std::vector<std::size_t>& whole, std::vector<std::size_t>& parted,
                 OpenRows& rows) {
  std::vector<std::size_t> which;
  for (const std::size_t k : whole)
    if (worth_a_bound(of, k)) which.push_back(k);
  if (which.empty()) return;
  std::vector<Left> left;
  std::vector<std::string> by_row_names;
  const std::int64_t count = of.run.reference.row_count(form);
  for (const std::size_t k : which) {
    const bool by_row = of.run.reference.by_row(form, of.pass, of.tensor(k).name);
    left.push_back({by_row});
    if (by_row) by_row_names.push_back(of.tensor(k).name);
  }
  const bool elements = !by_row_names.empty() && of.run.reference.takes_elements(form, of.pass, by_row_names);
  const auto part = [&](std::size_t i, std::int64_t at, const reference::Ball& ball) {
    const std::size_t k = which[i];
    const std::int64_t width = left[i].by_row ? of.tensor(k).shape.count() / count : ball.count();
    for (std::int64_t first = 0; first < ball.count(); first += width) {
      const auto open = left_open(of, form, k, at + first, width, ball, first, left[i].by_row && !elements);
      if (open && open->empty()) continue;
      if (left[i].by_row) {
        rows.add((at + first) / width, open && elements ? &*open : nullptr);
        continue;
      }
      left[i].open = true;
      if (open && width == of.tensor(k).shape.count()) left[i].elements = *open;
    }
  };
  if (!of.run.reference.stream_uniform(form, of.pass, of.names(which), part)) return;
  const std::int64_t open_rows = rows.count();
  for (std::size_t i = 0; i < which.size(); ++i) {
    const std::size_t k = which[i];
    const std::int64_t size = of.tensor(k).shape.count();
    if (!left[i].by_row && left[i].open) {
      const auto balls = left[i].elements.empty()
                             ? std::nullopt
                             : of.run.reference.columns(form, of.pass, of.tensor(k).name, left[i].elements);
      if (!balls) continue;
      compare_at(of, form, k, left[i].elements, *balls);
    }
    std::erase(whole, k);
    of.comparisons[k].compared +=
        left[i].by_row ? size / count * (count - open_rows) : size - std::ssize(left[i].elements);
    if (left[i].by_row && open_rows > 0) parted.push_back(k);
  }
}

/// Which rows of a form hold elements that lie outside so far; none where it has no rows.
std::vector<char> rows_outside(const ByRows& of, std::size_t form, const std::vector<std::size_t>& which) {
  const std::int64_t count = of.run.reference.row_count(form);
  std::vector<char> rows(static_cast<std::size_t>(count), 0);
  for (const std::size_t k : which) {
    const std::int64_t size = of.tensor(k).shape.count();
    for (const std::int64_t i : of.comparisons[k].outside)
      if (count > 0)
        rows[static_cast<std::size_t>(size % count == 0 ? i / (size / count) : 0)] = 1;  // otherwise it comes whole
  }
  return rows;
}

/// compare_part() of a tensor nearly all of whose elements are the nearest numbers: only the others get an interval.
/// False where nothing may be left out: intervals are not all that there is.
bool compare_few(ByRows& of, std::size_t form, std::size_t k, std::int64_t at, const reference::Ball& ball) {
  if (ball.flags || !ball.range.finite || !ball.narrow || !ball.r || !of.held[k].empty()) return false;
  if (!is_float(of.tensor(k).dtype) || bytes(of.tensor(k).dtype) >= 4) return false;
  const std::span<const double> values = of.got[k].part(at, ball.count(), of.room);
  std::vector<std::int64_t> open;
  const auto most = static_cast<std::size_t>(ball.count() / 4);  // of more there is no point in leaving the others out
  unsettled(values, ball, 0, of.tensor(k).dtype, open, most);
  if (open.size() > most) return false;
  const auto few = static_cast<std::int64_t>(open.size());
  of.comparisons[k].compared += ball.count() - few;
  if (few == 0) return true;
  reference::Ball part;
  part.shape = Shape{few}, part.range = ball.range, part.narrow = ball.narrow;
  part.v = reference::make_channel(few), part.r = reference::make_channel(few);
  for (std::int64_t i = 0; i < few; ++i) {
    std::int64_t& from = open[static_cast<std::size_t>(i)];
    part.v[i] = ball.v[from], part.r[i] = ball.r[from];
    from += at;
  }
  compare_at(of, form, k, open, part);
  return true;
}

/// Compares these tensors with a form, or those of their rows that `rows` marks, or of these `elements`. False: it does
/// not go by rows.
bool compare_rows(ByRows& of, std::size_t form, const std::vector<std::size_t>& which, bool first,
                  const std::vector<char>* rows, const reference::RowElements* elements = nullptr) {
  if (which.empty()) return true;
  const auto part = [&](std::size_t i, std::int64_t at, const reference::Ball& ball) {
    const std::size_t k = which[i];
    if (first && compare_few(of, form, k, at, ball)) return;
    const auto n = static_cast<std::size_t>(ball.count());
    const std::span<const double> before =
        of.held[k].empty() ? std::span<const double>() : std::span(of.held[k]).subspan(static_cast<std::size_t>(at), n);
    const Interval interval = of.run.reference.interval_of_part(form, of.pass, ball, of.tensor(k).dtype, before);
    const std::span<const double> values = of.got[k].part(at, ball.count(), of.room);
    if (first)
      compare_part(values, interval, at, of.comparisons[k]);
    else
      accept_form(values, interval, at, of.comparisons[k]);
  };
  return of.run.reference.stream(form, of.pass, of.names(which), part, rows, elements);
}

/// As compare_rows() of a first form; what a bound settled of the rows of which it left some elements counts as
/// compared.
bool compare_open(ByRows& of, std::size_t form, const std::vector<std::size_t>& which, const OpenRows& rows) {
  std::vector<std::int64_t> before;
  for (const std::size_t k : which) before.push_back(of.comparisons[k].compared);
  if (rows.any_whole() && !compare_rows(of, form, which, true, &rows.whole)) return false;
  if (!rows.elements.empty() && !compare_rows(of, form, which, true, &rows.parted, &rows.elements)) return false;
  for (std::size_t i = 0; i < which.size(); ++i) {
    Comparison& all = of.comparisons[which[i]];
    all.compared = before[i] + rows.count() * (of.tensor(which[i]).shape.count() / std::ssize(rows.whole));
    std::sort(all.outside.begin(), all.outside.end());
    all.outside.erase(std::unique(all.outside.begin(), all.outside.end()),
                      all.outside.end());  // a tensor known before comes whole, twice
  }
  return true;
}

/// Judges tensors of one launch block by block of rows. True if that shows every element inside some form's interval.
bool judge_by_rows(CaseRun& run, const std::vector<Subject>& subjects, Pass pass,
                   const std::vector<std::vector<double>>& held, std::vector<Comparison>& comparisons) {
  ByRows of{run, subjects, pass, held, comparisons, {}, {}};
  for (const Subject& subject : subjects) of.got.emplace_back(subject.got);
  comparisons.assign(subjects.size(), {});
  bool first = true;
  for (const std::size_t form : run.reference.forms()) {
    std::vector<std::size_t> whole, parted;
    for (std::size_t k = 0; k < subjects.size(); ++k)
      if (first || !comparisons[k].outside.empty()) whole.push_back(k);
    if (whole.empty()) return true;
    OpenRows rows(run.reference.row_count(form));
    if (first)
      settle_most(of, form, whole, parted, rows);
    else
      rows.whole = rows_outside(of, form, whole), std::swap(whole, parted);
    if (!compare_rows(of, form, whole, first, nullptr) ||
        !(first ? compare_open(of, form, parted, rows) : compare_rows(of, form, parted, false, &rows.whole)))
      return false;
    first = false;
  }
  return std::all_of(comparisons.begin(), comparisons.end(), [](const Comparison& c) { return c.outside.empty(); });
}

/// Errors of either sign, in numbers of the storage type; of elements that are zero nothing relative can be said.
std::vector<double> power_of(CaseRun& run, const Written& tensor, Pass pass, std::span<const double> held) {
  const Interval interval =
      run.reference.interval(run.reference.forms().front(), pass, tensor.name, tensor.dtype, held);
  std::vector<double> seen(4, 0);
  double all = 0;
  for (std::size_t i = 0; i < interval.value.size(); ++i) {
    const double v = interval.value[i];
    if ((!interval.how.empty() && interval.how[i] != Judgement::interval) || v == 0 || !std::isfinite(v)) continue;
    ++all;
    for (std::size_t k = 0; k < seen.size(); ++k) {
      const double error = std::pow(10.0, static_cast<double>(k) - 3);
      double ends[2] = {v * (1 - error), v * (1 + error)};
      round_values(format(tensor.dtype), RoundingMode{}, ends, ends);
      const auto at = static_cast<std::int64_t>(i);
      seen[k] += !admits(interval, at, ends[0]) && !admits(interval, at, ends[1]);
    }
  }
  for (double& share : seen) share = all == 0 ? 0 : share / all;
  return all == 0 ? std::vector<double>() : seen;
}

}  // namespace

std::vector<CheckResult> judge(CaseRun& run, const std::vector<Subject>& subjects, Pass pass) {
  std::vector<std::vector<double>> held(subjects.size());
  for (std::size_t k = 0; k < subjects.size(); ++k)
    if (pass != Pass::forward && run.accumulates(subjects[k].tensor->name)) held[k] = run.held(*subjects[k].tensor);
  std::vector<Comparison> comparisons;
  const bool clear = judge_by_rows(run, subjects, pass, held, comparisons);
  std::vector<CheckResult> out;
  run.together = &subjects;
  for (std::size_t k = 0; k < subjects.size(); ++k) {
    if (!clear) {
      out.push_back(judge_whole(run, subjects[k], pass, held[k]));
      continue;
    }
    CheckResult& check = out.emplace_back();
    check.id = subjects[k].id, check.dtype = subjects[k].tensor->dtype;
    conclude(comparisons[k], check);
  }
  run.together = nullptr;
  for (std::size_t k = 0; run.options.power && k < subjects.size(); ++k)
    out[k].power = power_of(run, *subjects[k].tensor, pass, held[k]);
  return out;
}

}  // namespace ampcheck::checks
