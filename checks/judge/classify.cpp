// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/judge/classify.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>

#include "checks/case/row_part.h"
#include "checks/explain/another_call.h"
#include "checks/explain/departures.h"
#include "checks/explain/diagnosis.h"
#include "checks/explain/elsewhere.h"
#include "checks/explain/formula_change.h"
#include "checks/explain/odds.h"
#include "checks/explain/places.h"
#include "checks/explain/sum_replays.h"
#include "checks/judge/kinks.h"
#include "checks/judge/overwriting_twin.h"

namespace ampcheck::checks {

namespace {

/// A wrong tensor, or some rows of one, with the answer to what is asked twice.
struct Asked : WrongTensor {
  explicit Asked(const WrongTensor& wrong) : WrongTensor(wrong) {}
  /// surely_low_accumulation().
  const Replayed& surely_low() const {
    if (!surely_low_) surely_low_ = surely_low_accumulation(*this);
    return *surely_low_;
  }

 private:
  mutable std::optional<Replayed> surely_low_ = {};
};

/// A tensor and those of its rows that stand for it.
struct Suspects {
  std::unique_ptr<RowPart> part;
  Asked whole;
  std::optional<Asked> rows = {};
  mutable RightRows right;  ///< where some rows stand for it

  Suspects(const WrongTensor& wrong, bool by_rows)
      : part(by_rows ? some_rows(wrong) : nullptr), whole(wrong), right(wrong) {
    if (part) rows.emplace(part->wrong(wrong.pass));
  }
  const Asked& cheapest() const { return rows ? *rows : whole; }
};

bool is_known(const Replayed& cause) { return cause.kind != Replayed::Kind::none; }

/// What replays say.
Replayed replays(const Asked& wrong, bool one_factor, RightRows* right) {
  const bool low = !one_factor && is_known(wrong.surely_low());
  Replayed out = explained_by_change(wrong);
  // Errors of the size of a short accumulator's say less than a formula that gives every number, here and elsewhere.
  if (low) return out.kind == Replayed::Kind::changed_formula && out.every ? out : wrong.surely_low();
  // A number in fewer bits that says little more than no cause at all does not keep a likelier one from being heard.
  const bool weak = out.kind == Replayed::Kind::narrowed && out.odds < kTellingOdds;
  // In short rows a sum without its tail may be no sum at all, and a sum kept in 16 bits one that adds up in them.
  const bool open = out.kind == Replayed::Kind::none || out.kind == Replayed::Kind::changed_formula || out.of_sum;
  if (!(open || weak) || one_factor) return out;
  if (weak && !out.of_sum) {
    const Replayed replayed = explained_by_low_accumulation(wrong, right);
    return is_known(replayed) && replayed.odds > out.odds ? replayed : out;
  }
  if (!out.of_sum) {
    const std::string dropped = dropped_terms(wrong);
    if (!dropped.empty() && out.kind == Replayed::Kind::none)
      out = {Replayed::Kind::dropped_terms, dropped};
    else if (!dropped.empty()) {
      out.words += "; or " + dropped;
      out.change.clear();
    }
  }
  if (out.kind != Replayed::Kind::none && !out.of_sum) return out;
  if (const Replayed replayed = explained_by_low_accumulation(wrong, right); is_known(replayed)) out = replayed;
  return out;
}

/// Whether what was said of another probe holds here too.
Replayed confirmed(const Replayed& before, const Asked& wrong) {
  using Kind = Replayed::Kind;
  if (!before.change.empty()) return explained_by_change(wrong, before.change);
  if (before.kind == Kind::low_accumulation)
    return is_known(wrong.surely_low()) ? wrong.surely_low() : explained_by_low_accumulation(wrong);
  const std::string words = before.kind == Kind::dropped_terms ? dropped_terms(wrong) : "";
  return words.empty() ? Replayed() : Replayed{before.kind, words};
}

/// They take long, so two probes that say the same speak for the others, and the second is asked first for what the
/// first one says.
Replayed replayed_cause(const Suspects& suspects, Notes& notes) {
  const Asked& whole = suspects.whole;
  std::vector<Replayed>& known = notes.replayed[whole.tensor.name];
  if (known.size() >= 2 && known[known.size() - 1].kind == known[known.size() - 2].kind) return known.back();
  const bool one_factor = off_by_one_factor(whole) || on_regular_lines(whole.comparison, whole.interval.shape);
  Replayed out = known.empty() ? Replayed() : confirmed(known.back(), suspects.cheapest());
  if (out.kind == Replayed::Kind::none && suspects.rows) out = replays(*suspects.rows, one_factor, &suspects.right);
  // Elements that cost little more than some of their rows; sums of a dump may have any number of terms.
  constexpr std::int64_t kCheap = 4096;
  const bool cheap = !suspects.rows || (!suspects.part->own && whole.tensor.shape.count() <= kCheap);
  if (out.kind == Replayed::Kind::none && cheap) out = replays(whole, one_factor, nullptr);
  return known.emplace_back(out);
}

/// Of a tensor with rows that stand for it: what holds there has to hold for all of it.
Departed departs(const Suspects& suspects, Notes& notes) {
  const Asked& whole = suspects.whole;
  if (off_by_one_factor(whole) || all_zero(whole.got)) return {};
  // A short accumulator that explained another probe is asked first, and so is one whose every number is the kernel's:
  // it takes a tenth of the time.
  const auto before = notes.replayed.find(whole.tensor.name);
  if (before != notes.replayed.end() && !before->second.empty() &&
      before->second.back().kind == Replayed::Kind::low_accumulation)
    return {};
  if (!on_regular_lines(whole.comparison, whole.interval.shape) && is_known(suspects.cheapest().surely_low()))
    return {};
  const std::tuple refuted(whole.tensor.name, whole.pass, false);
  if (notes.no_departure.contains(refuted)) return {};
  Departed out = explained_by_departure(suspects.cheapest(), false, notes.departures);
  if (out.refuted) notes.no_departure.insert(refuted);
  if (suspects.rows && out.code != Code::none) out = explained_by_departure(whole, false, notes.departures);
  if (out.code != Code::none) notes.departures.insert(out.departure);
  return out;
}

/// Before causes are known.
Code code_of(const WrongTensor& wrong) {
  if (wrong.run.accumulates(wrong.tensor.name)) return Code::ac408;
  const auto first = static_cast<std::size_t>(wrong.comparison.outside.front());
  if (!std::isfinite(wrong.interval.value[first])) return Code::ac103;
  for (const std::int64_t i : wrong.comparison.outside)
    if (!std::isfinite(wrong.got[static_cast<std::size_t>(i)])) return Code::ac102;
  return Code::ac101;
}

/// Whether the tensor stands at a kink, which then says all that there is to say. Of what is infinite, NaN or not added
/// to, only an excuse counts. `unexplained`: as of classify(); of which some are none, not left to the explaining.
bool at_a_kink(const WrongTensor& wrong, const std::vector<std::int64_t>& unexplained,
               const std::vector<Subject>& together, Notes& notes, CheckResult& check) {
  AtKink kink = notes.plainly_wrong.contains(wrong.tensor.name) ? AtKink() : at_kink(wrong, unexplained, together);
  if (check.code != Code::ac101 && kink.kind != AtKink::Kind::subgradient) kink = {};
  switch (kink.kind) {
    case AtKink::Kind::none: notes.plainly_wrong.insert(wrong.tensor.name); return false;
    case AtKink::Kind::undeclared:
      check.find(Code::ac206);
      check.cause = kink.words;
      return true;
    case AtKink::Kind::subgradient:
      check.find(Code::ac205);
      check.cause.clear();
      check.note = kink.words;
      check.failed = 0;
      check.max_ratio = wrong.comparison.max_ratio;
      return true;
    case AtKink::Kind::no_subgradient: break;
  }
  check.find(Code::ac204);
  check.cause = kink.words;
  if (!wrong.run.options.explain) return true;
  if (const Replayed why = explained_by_change(wrong); why.kind == Replayed::Kind::changed_formula)
    check.cause += "; " + why.words;
  return true;
}

/// In a case of fp64: words, if the numbers that are off look like those of a kernel that computes in fp32 on the way:
/// they are numbers of fp32, or a rounding of fp32 or a few away from the value, and none is farther than fp32 may be.
std::string computed_in_fp32(const WrongTensor& wrong) {
  constexpr double kNearest = 0x1p-27, kFarthest = 0x1p-20, kNoRounding = 0x1p-10;
  const auto& outside = wrong.comparison.outside;
  std::vector<double> errors;
  std::vector<std::int64_t> left = outside;
  for (const std::int64_t at : outside) {
    const auto i = static_cast<std::size_t>(at);
    errors.push_back(std::fabs(wrong.got[i] / wrong.interval.value[i] - 1));
  }
  const auto middle = errors.begin() + std::ssize(errors) / 2;
  std::nth_element(errors.begin(), middle, errors.end());
  const bool of_fp32 = std::all_of(outside.begin(), outside.end(), [&](std::int64_t at) {
    const double got = wrong.got[static_cast<std::size_t>(at)];
    return static_cast<double>(static_cast<float>(got)) == got;
  });
  // Of inputs and cotangents with few bits, other formulas have numbers of fp32 too.
  if (of_fp32 && !(*middle > kNoRounding) && !confined_to_rows(wrong))
    return "every number that is off is one of fp32: the result goes through float";
  for (const std::size_t form : wrong.run.reference.forms()) {
    const Interval interval = wrong.run.reference.interval_computed_in_fp32(form, wrong.pass, wrong.tensor.name);
    std::erase_if(left, [&](std::int64_t at) { return admits(interval, at, wrong.got[static_cast<std::size_t>(at)]); });
  }
  if (!left.empty() || !(*middle >= kNearest && *middle <= kFarthest) || confined_to_rows(wrong)) return "";
  return "the errors are roundings of fp32: something on the way is computed in float";
}

/// Replays compute in fp32, so they say nothing of a kernel in fp64. Changed formulas do.
void explain_in_fp64(const WrongTensor& wrong, const Suspects& suspects, Notes& notes, CheckResult& check) {
  if (check.code != Code::ac101) return;
  if (const std::string words = computed_in_fp32(wrong); !words.empty()) {
    check.find(Code::ac301);
    check.cause = words;
    return;
  }
  if (all_zero(wrong.got)) return;
  const Replayed cause = explained_by_change(suspects.cheapest());
  if (cause.kind != Replayed::Kind::changed_formula) return;
  notes.replayed[wrong.tensor.name].push_back(cause);
  check.cause = check.cause.empty() ? cause.words : check.cause + "; " + cause.words;
}

/// A departure from the contract, and how much likelier it is than what explains nothing.
struct Claim {
  Code code = Code::none;
  std::string words;
  double odds = 0;
};

/// Another formula is a bug, except that of a backward that is not linear in the cotangent.
void say_formula(const Replayed& cause, CheckResult& check) {
  if (cause.nonlinear) check.find(Code::ac407);
  check.cause = check.cause.empty() ? cause.words : check.cause + "; " + cause.words;
}

/// Causes that need replays, the surest first.
void explain(const WrongTensor& wrong, Notes& notes, CheckResult& check) {
  if (!is_wrong_number(check.code)) return;
  const Suspects suspects(wrong, true);
  if (wrong.run.call.storage == Dtype::fp64) return explain_in_fp64(wrong, suspects, notes, check);
  const bool may_flush = !suspects.rows || !explained_by_flushing(*suspects.rows).empty();
  if (const std::string flushes = may_flush ? explained_by_flushing(wrong) : ""; !flushes.empty()) {
    check.find(Code::ac303);
    check.cause = flushes;
    return;
  }
  if (check.code != Code::ac101) return;
  bool as_zero = false;
  if (const std::string words = without_subnormals(wrong, as_zero); !words.empty()) {
    if (as_zero) check.find(Code::ac303);
    check.cause = check.cause.empty() || as_zero ? words : check.cause + "; " + words;
    return;
  }
  if (const std::string words = truncated(wrong, notes); !words.empty()) {
    check.find(Code::ac305);
    check.cause = words;
    return;
  }
  if (const std::string words = rounded_otherwise(wrong); !words.empty()) {
    check.cause = words;
    return;
  }
  const Departed departed = departs(suspects, notes);
  Claim claim{departed.code, departed.words, departed.odds};
  if (departed.code == Code::none || departed.odds < kTellingOdds) {
    const Replayed cause = all_zero(wrong.got) ? Replayed() : replayed_cause(suspects, notes);
    if (cause.kind == Replayed::Kind::changed_formula || cause.kind == Replayed::Kind::dropped_terms)
      return say_formula(cause, check);
    if (is_known(cause) && (claim.code == Code::none || cause.odds > claim.odds))
      claim = {cause.kind == Replayed::Kind::narrowed ? Code::ac302 : Code::ac301, cause.words, cause.odds};
  }
  if (claim.code == Code::none) return;
  if (claim.odds < kTellingOdds) notes.weak[check.id] = {claim.code, claim.words, check.cause};
  check.find(claim.code);
  check.cause = claim.words;
}

}  // namespace

void classify(const WrongTensor& wrong, const std::vector<std::int64_t>& unexplained,
              const std::vector<Subject>& together, Notes& notes, CheckResult& check) {
  notes.weak.erase(check.id);
  check.find(code_of(wrong));
  check.cause = check.code == Code::ac408 ? added_otherwise(wrong) : "";
  if (check.code == Code::ac408 && check.cause.empty()) {
    const CheckResult on_zeros = judged_on_zeros(wrong);
    if (on_zeros.failed > 0) {  // the old content has no part in it
      check.find(on_zeros.code);
      check.cause = on_zeros.cause;
      return;
    }
  }
  if (check.cause.empty()) check.cause = likely_cause(wrong);
  if (at_a_kink(wrong, unexplained, together, notes, check) || !wrong.run.options.explain) return;
  explain(wrong, notes, check);
}

}  // namespace ampcheck::checks
