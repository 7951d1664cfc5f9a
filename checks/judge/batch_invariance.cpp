// SPDX-License-Identifier: Apache-2.0
// Whether rows keep their bits in a batch of another size and at another place in it: kernels choose tiles, splits of
// sums and vector widths by the number of rows, which a change of other rows in place does not show.
#include "checks/judge/batch_invariance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "checks/case/row_part.h"
#include "src/elements.h"
#include "src/error.h"
#include "src/random.h"

namespace ampcheck::checks {

namespace {

/// Some rows of a case, run as a case of their own.
struct Alone {
  RowCase part;
  RowRange rows;
  NamedValues cotangents;
  LaunchResult forward, backward;

  const TensorView* written(const std::string& name) const {
    for (const LaunchResult* result : {&forward, &backward})
      if (const auto found = result->written.find(name); found != result->written.end()) return &found->second.view();
    return nullptr;
  }
};

/// An odd row, so that another place is one modulo every power of two.
std::int64_t odd_row(const CaseRun& run, std::int64_t all, std::int64_t count) {
  const auto places = static_cast<std::uint64_t>((all - count + 1) / 2);
  return 1 + 2 * static_cast<std::int64_t>(
                     Random(run.call.seed, "rows alone").below(static_cast<std::uint64_t>(count), places));
}

/// The cotangents of these rows as the launch had them; false where one has neither rows nor the same elements.
bool take_cotangents(Alone& out, const LaunchTensors& whole) {
  for (const Written& output : out.part.run->outputs) {
    if (output.saved) continue;
    const std::string name = gradient_name(output.name);
    const Elements elements(whole.read.at(name).view());
    const std::int64_t n = output.shape.count(), width = n / out.rows.count;
    const bool by_row = n * out.rows.all == elements.count() * out.rows.count;
    if (!by_row && n != elements.count()) return false;
    std::vector<double> room;
    const std::span<const double> part = elements.part(by_row ? out.rows.first * width : 0, n, room);
    out.cotangents[name] = {part.begin(), part.end()};
  }
  return true;
}

/// Null where these rows cannot be a case. `launched`: otherwise the formula alone is asked.
std::unique_ptr<Alone> rows_alone(CaseRun& run, const RowRange& rows, const BackwardRun& backward, bool launched) {
  auto out = std::make_unique<Alone>();
  out->rows = rows;
  if (!out->part.take(run, rows) || (!run.gradients.empty() && !take_cotangents(*out, backward.tensors)))
    return nullptr;
  if (!launched) return out;
  CaseRun& part = *out->part.run;
  try {
    out->forward = part.run_forward(part.forward_tensors(part.reference.inputs(), 0));
    if (!run.gradients.empty())
      out->backward =
          part.run_backward(part.backward_tensors(part.reference.inputs(), out->forward, out->cotangents, 0));
  } catch (const EnvironmentError&) {
    throw;
  } catch (const std::bad_alloc&) {  // not theirs
    throw;
  } catch (const std::exception& error) {
    if (!run.op.signature.launch.batch_invariant) return nullptr;  // cases of as few rows say it
    throw Error(fmt::format("with {} of its rows alone: {}", rows.count, error.what()));
  }
  for (const CheckResult& check : part.checks)  // guards and inputs, of which a small launch may be as careless
    if (check.failed > 0)
      run.add_relation(check.id, check.code, check.compared, check.failed,
                       fmt::format("with {} of the rows alone: {}", rows.count, check.cause));
  return out;
}

/// Elements of a tensor that have other bits alone than among all rows.
struct Difference {
  std::int64_t compared = 0, failed = 0;
  std::int64_t first = -1;  ///< element of the tensor alone
};

Difference difference(const Alone& alone, const TensorView& whole, const std::string& name) {
  Difference out;
  const TensorView* const view = alone.written(name);
  if (view == nullptr || view->count() * alone.rows.all != whole.count() * alone.rows.count) return out;
  out.compared = view->count();
  const std::int64_t from = whole.count() / alone.rows.all * alone.rows.first;
  for (std::int64_t i = 0; i < out.compared; ++i) {
    if (bits_at(*view, i) == bits_at(whole, from + i)) continue;
    if (out.failed++ == 0) out.first = i;
  }
  return out;
}

std::optional<Interval> formula_of(Alone& alone, const CaseRun& run, const std::string& name) {
  CaseReference& reference = alone.part.run->reference;
  const auto of = [&](const std::vector<Written>& list) {
    return std::find_if(list.begin(), list.end(), [&](const Written& w) { return w.name == name; });
  };
  if (!run.gradients.empty()) reference.set_cotangents(alone.cotangents);
  if (const auto at = of(run.outputs); at != run.outputs.end())
    return reference.interval(reference.forms().front(), Pass::forward, name, at->dtype);
  if (const auto at = of(run.gradients); at != run.gradients.end())
    return reference.interval(reference.forms().front(), Pass::backward, name, at->dtype);
  return std::nullopt;
}

/// Whether the mathematics gives a row another value where there are more of them: a mean over the batch.
bool follows_from_number(CaseRun& run, const BackwardRun& backward, const RowRange& row, const std::string& name) {
  const std::unique_ptr<Alone> one = rows_alone(run, {row.first, 1, row.all}, backward, false),
                               two = rows_alone(run, {row.first - 1, 2, row.all}, backward, false);
  if (one == nullptr || two == nullptr) return true;  // nothing is known
  const std::optional<Interval> a = formula_of(*one, run, name), b = formula_of(*two, run, name);
  if (!a || !b || 2 * a->value.size() != b->value.size()) return true;
  const std::size_t width = a->value.size();
  for (std::size_t i = 0; i < width; ++i) {
    const double x = a->value[i], y = b->value[width + i];
    if (!(std::fabs(x - y) <= a->radius[i] + b->radius[width + i]) && (x == x || y == y)) return true;
  }
  return false;
}

std::vector<double> repeated(const std::vector<double>& row, std::int64_t times) {
  std::vector<double> out;
  out.reserve(row.size() * static_cast<std::size_t>(times));
  for (std::int64_t i = 0; i < times; ++i) out.insert(out.end(), row.begin(), row.end());
  return out;
}

/// Whether a row's place or the number of rows changes its bits: a batch of copies of it has them all at once.
std::string what_decides(CaseRun& run, const BackwardRun& backward, std::int64_t row, std::int64_t all,
                         const std::string& name) {
  const std::unique_ptr<Alone> one = rows_alone(run, {row, 1, all}, backward, false);
  if (one == nullptr) return "";
  NamedValues inputs;
  for (const auto& [input, values] : one->part.run->reference.inputs())
    inputs[input] = has_rows(run.op.signature, *run.op.signature.input(input)) ? repeated(values, all) : values;
  CaseRun copies(run.op, run.call, run.options, std::move(inputs));
  const LaunchResult forward = copies.run_forward(copies.forward_tensors(copies.reference.inputs(), 0));
  LaunchResult result = forward;
  if (!forward.written.contains(name)) {
    NamedValues cotangents;
    for (const Written& output : copies.outputs) {
      if (output.saved) continue;
      const std::vector<double>& of_one = one->cotangents.at(gradient_name(output.name));
      cotangents[gradient_name(output.name)] =
          std::ssize(of_one) == output.shape.count() ? of_one : repeated(of_one, all);
    }
    result = copies.run_backward(copies.backward_tensors(copies.reference.inputs(), forward, cotangents, 0));
  }
  const TensorView& view = result.written.at(name).view();
  const std::int64_t width = view.count() / all;
  for (std::int64_t i = width; i < view.count(); ++i)
    if (bits_at(view, i) != bits_at(view, i % width))
      return fmt::format("; {} copies of row {} do not agree: a row's place decides", all, row);
  return fmt::format("; {} copies of row {} agree: the number of rows decides", all, row);
}

std::string words(const Alone& alone, const Difference& seen, const TensorView& whole, const std::string& name) {
  const std::int64_t width = seen.compared / alone.rows.count, row = alone.rows.first + seen.first / width;
  const std::string which =
      alone.rows.count == 1 ? fmt::format("row {}", row)
                            : fmt::format("rows {} to {}", alone.rows.first, alone.rows.first + alone.rows.count - 1);
  const double here = to_doubles(*alone.written(name))[static_cast<std::size_t>(seen.first)];
  const Elements elements(whole);
  std::vector<double> room;
  return fmt::format(
      "{} of '{}' alone: {} of {} elements have other bits than among {} rows, first [{},{}]: {:.9g} alone, {:.9g} "
      "among them",
      which, name, seen.failed, seen.compared, alone.rows.all, row, seen.first % width, here,
      elements.part(row * width + seen.first % width, 1, room)[0]);
}

/// Whether a tensor's rows already follow from other rows.
bool leaks(const CaseRun& run, const std::string& name) {
  return std::any_of(run.checks.begin(), run.checks.end(),
                     [&](const CheckResult& c) { return c.code == Code::ac405 && c.id.tensor == name; });
}

/// One tensor of a few rows alone against the same rows among the others; a relation where it is promised, else a note.
void compare_rows(CaseRun& run, const BackwardRun& backward, Alone& alone, const TensorView& whole,
                  const std::string& name) {
  const bool promised = run.op.signature.launch.batch_invariant;
  const Difference seen = difference(alone, whole, name);
  if (leaks(run, name) || seen.compared == 0 ||
      (seen.failed > 0 && !run.op.forms.empty() && follows_from_number(run, backward, alone.rows, name)))
    return;
  const CheckId id{CheckId::Kind::batch_invariance, name};
  std::string why = seen.failed > 0 ? words(alone, seen, whole, name) : "";
  std::vector<Element> first;
  if (promised && seen.failed > 0) {
    why += what_decides(run, backward, alone.rows.first + seen.first * alone.rows.count / seen.compared, alone.rows.all,
                        name);
    const std::int64_t at = whole.count() / alone.rows.all * alone.rows.first + seen.first;
    first = {broken(whole.dtype, whole.shape, at, bits_at(whole, at), bits_at(*alone.written(name), seen.first))};
  }
  run.add_relation(id, Code::ac409, seen.compared, promised ? seen.failed : 0, why, std::move(first));
  if (promised || seen.failed == 0) return;
  const auto check =
      std::find_if(run.checks.begin(), run.checks.end(), [&](const CheckResult& c) { return c.id == id; });
  if (check->note.empty()) check->note = why;
}

/// Whether there are rows to be compared. Without a formula nobody knows whether a row's value follows from how many
/// there are, unless the contract says.
bool has_rows_to_compare(const CaseRun& run, std::int64_t all) {
  constexpr std::int64_t kNoted = 1 << 14;  // elements: a note needs no large case
  const LaunchContract& contract = run.op.signature.launch;
  if (all < 2 || contract.row_independent.empty() || !run.reference.inputs_finite()) return false;
  return contract.batch_invariant || (!run.op.forms.empty() && run.outputs.front().shape.count() <= kNoted);
}

}  // namespace

void check_batch_invariance(CaseRun& run, const LaunchResult& forward, const BackwardRun& backward) {
  const LaunchContract& contract = run.op.signature.launch;
  const std::int64_t all = rows_of(run.op.signature, run.call);
  const bool promised = contract.batch_invariant;
  if (!has_rows_to_compare(run, all)) return;
  // For a note one launch is enough, of one row in some cases and of three in others.
  const bool one =
      all <= 3 ||
      Random(run.call.seed, "rows alone").below(static_cast<std::uint64_t>(run.outputs.front().shape.count()), 2) == 0;
  for (const std::int64_t count : {1, 3}) {
    if (count >= all || (!promised && (count == 1) != one)) continue;
    const std::unique_ptr<Alone> alone = rows_alone(run, {odd_row(run, all, count), count, all}, backward, true);
    if (alone == nullptr) return;
    for (const std::string& name : contract.row_independent) {
      const auto found = forward.written.find(name), gradient = backward.result.written.find(name);
      const bool written = found != forward.written.end() || gradient != backward.result.written.end();
      if (run.accumulates(name) || !written) continue;
      compare_rows(run, backward, *alone, (found != forward.written.end() ? found : gradient)->second.view(), name);
    }
  }
}

std::vector<std::string> batch_variances(const std::vector<CaseResult>& cases) {
  struct Seen {
    std::int64_t cases = 0;
    std::string first;
  };
  std::map<std::string, Seen> seen;
  for (const CaseResult& result : cases) {
    if (convicts(result.verdict)) continue;  // of a wrong kernel nobody asks
    const auto check = std::find_if(result.checks.begin(), result.checks.end(), [](const CheckResult& c) {
      return c.id.kind == CheckId::Kind::batch_invariance && c.failed == 0 && !c.note.empty();
    });
    if (check == result.checks.end()) continue;
    Seen& op = seen[result.op];
    if (op.cases++ == 0) op.first = fmt::format("{}, in '{}'", check->note, result.name);
  }
  std::vector<std::string> out;
  for (const auto& [op, all] : seen)
    out.push_back(
        fmt::format("{}: not batch invariant in {} case{}, which is allowed: the contract leaves the order of sums "
                    "free (batch_invariant declares otherwise); {}",
                    op, all.cases, all.cases == 1 ? "" : "s", all.first));
  return out;
}

}  // namespace ampcheck::checks
