// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/by_rows.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "src/elements.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

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
    whole[at] |= some == nullptr;
    parted[at] = !whole[at];
    if (whole[at]) return void(elements.erase(row));
    std::vector<std::int64_t>& known = elements[row];
    std::vector<std::int64_t> all;
    std::set_union(known.begin(), known.end(), some->begin(), some->end(), std::back_inserter(all));
    known = std::move(all);
  }
  bool any_whole() const { return std::find(whole.begin(), whole.end(), 1) != whole.end(); }
  std::int64_t count() const { return std::count(whole.begin(), whole.end(), 1) + std::ssize(elements); }
};

/// Counts as compared what a bound settled of the tensors `which`, and moves them out of `whole`: those that go by row
/// and are not done to `parted`, the others once the few elements that it left are compared by themselves.
void count_settled(ByRows& of, std::size_t form, const std::vector<std::size_t>& which, const std::vector<Left>& left,
                   std::int64_t open_rows, std::vector<std::size_t>& whole, std::vector<std::size_t>& parted) {
  const std::int64_t count = of.run.reference.row_count(form);
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
  count_settled(of, form, which, left, rows.count(), whole, parted);
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
  part.shape = Shape{few};
  part.range = ball.range;
  part.narrow = ball.narrow;
  part.v = reference::make_channel(few);
  part.r = reference::make_channel(few);
  for (std::int64_t i = 0; i < few; ++i) {
    std::int64_t& from = open[static_cast<std::size_t>(i)];
    part.v[i] = ball.v[from];
    part.r[i] = ball.r[from];
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

}  // namespace

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
    if (whole.empty()) break;
    OpenRows rows(run.reference.row_count(form));
    if (first)
      settle_most(of, form, whole, parted, rows);
    else {
      rows.whole = rows_outside(of, form, whole);
      std::swap(whole, parted);
    }
    if (!compare_rows(of, form, whole, first, nullptr) ||
        !(first ? compare_open(of, form, parted, rows) : compare_rows(of, form, parted, false, &rows.whole)))
      return false;
    first = false;
  }
  // A gradient without a value may have one-sided derivatives, which are looked at as a whole.
  return std::all_of(comparisons.begin(), comparisons.end(), [&](const Comparison& c) {
    return c.outside.empty() && (pass != Pass::backward || c.range == 0 || c.open != Comparison::Open::no_value);
  });
}

}  // namespace ampcheck::checks
