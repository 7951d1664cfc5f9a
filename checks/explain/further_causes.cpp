// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/further_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>

#include "checks/case/case_run.h"
#include "checks/case/form_comparison.h"
#include "checks/case/row_part.h"
#include "checks/explain/another_call.h"
#include "checks/explain/departures.h"
#include "checks/explain/diagnosis.h"
#include "checks/explain/elsewhere.h"
#include "checks/explain/error_field.h"
#include "checks/explain/formula_change.h"
#include "checks/explain/launch_formats.h"
#include "checks/explain/odds.h"
#include "checks/explain/places.h"
#include "checks/explain/sum_replays.h"
#include "checks/explain/unstable_algebra.h"
#include "reference/replay/replay.h"
#include "src/error.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

using reference::Node;
using reference::Primitive;

/// A named tensor of the shape of the wrong one.
struct Variable {
  std::string name;
  const std::vector<double>* values;
};

/// What the kernel has at the wrong elements, if it is one number, or a tensor itself.
std::string plateau(const WrongTensor& wrong, const std::vector<Variable>& variables) {
  std::set<double> values;
  for (const std::int64_t i : wrong.comparison.outside) values.insert(wrong.got[static_cast<std::size_t>(i)]);
  const FloatFormat& f = format(wrong.tensor.dtype);
  const auto equals = [&](const std::vector<double>& v) {
    return std::all_of(wrong.comparison.outside.begin(), wrong.comparison.outside.end(), [&](std::int64_t i) {
      const double got = wrong.got[static_cast<std::size_t>(i)];
      return got == 0 || ulp_distance(f, got, v[static_cast<std::size_t>(i)]) <= 1;
    });
  };
  if (values.size() <= 2 && wrong.comparison.outside.size() > values.size()) {
    std::string text;
    for (const double v : values) text += (text.empty() ? "" : " or ") + number_text(v);
    return ", and always " + text + " there: it saturates";
  }
  for (const Variable& v : variables)
    if (equals(*v.values)) return fmt::format(", and {} or 0 there: it saturates", v.name);
  return "";
}

/// Inputs and cotangents of the shape of the wrong tensor.
std::vector<Variable> variables_of(const WrongTensor& wrong) {
  const std::size_t n = wrong.got.size();
  const CaseRun& run = wrong.run;
  std::vector<Variable> out;
  for (const auto& [name, values] : wrong.run.reference.inputs())
    if (values.size() == n && is_float(run.call.dtype(*run.op.signature.input(name)))) out.push_back({name, &values});
  if (wrong.pass == Pass::forward) return out;
  for (const auto& [name, values] : wrong.run.reference.cotangents())
    if (values.size() == n) out.push_back({name, &values});
  return out;
}

/// The end of the narrowest range of a function of a variable, from it on or up to it, that holds all wrong elements;
/// nothing where it holds too many right ones.
template <class F>
std::optional<double> end_of(const std::vector<double>& values, const std::vector<char>& is_wrong, F f, bool beyond) {
  double end = beyond ? HUGE_VAL : -HUGE_VAL;
  std::size_t outside = 0, right = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (is_wrong[i]) {
      end = beyond ? std::min(end, f(values[i])) : std::max(end, f(values[i]));
      ++outside;
    }
  for (std::size_t i = 0; i < values.size(); ++i)
    right += !is_wrong[i] && (beyond ? f(values[i]) >= end : f(values[i]) <= end);
  return std::isnan(end) || 10 * right > outside ? std::nullopt : std::optional(end);
}

}  // namespace

std::string data_condition(const WrongTensor& wrong) {
  constexpr double kFewestBits = 10;
  const std::size_t n = wrong.got.size(), outside = wrong.comparison.outside.size();
  if (std::ssize(wrong.got) > (1 << 18) || bits_of_choice(n, outside) < kFewestBits) return "";
  if (10 * outside > 9 * n) return "";  // the few that are right are small, or right by chance
  const std::vector<Variable> variables = variables_of(wrong);
  std::vector<char> is_wrong(n, 0);
  for (const std::int64_t i : wrong.comparison.outside) is_wrong[static_cast<std::size_t>(i)] = 1;
  for (const Variable& v : variables) {
    const auto size = [](double x) { return std::fabs(x); };
    const auto self = [](double x) { return x; };
    const auto only = [&](auto f, bool beyond) { return end_of(*v.values, is_wrong, f, beyond); };
    const auto words = [&](const std::string& where) {
      return fmt::format("only where {}{}", where, plateau(wrong, variables));
    };
    const std::optional<double> smallest = only(size, false);
    if (smallest && *smallest == 0) return fmt::format("only where {} is zero", v.name);
    if (const auto end = only(size, true)) return words(fmt::format("|{}| >= {:.4g}", v.name, *end));
    if (const auto end = only(self, true)) return words(fmt::format("{} >= {:.4g}", v.name, *end));
    if (const auto end = only(self, false)) return words(fmt::format("{} <= {:.4g}", v.name, *end));
    if (smallest) return words(fmt::format("|{}| <= {:.4g}", v.name, *smallest));
  }
  return "";
}

namespace {

/// Of the value, of a function of few digits: a larger one is another function's.
constexpr double kFewDigits = 0x1p-6;

/// Of the wrong elements' values.
double largest_error(const WrongTensor& wrong) {
  double out = 0;
  for (const std::int64_t i : wrong.comparison.outside) {
    const auto k = static_cast<std::size_t>(i);
    const double error = std::fabs(wrong.got[k] / wrong.interval.value[k] - 1);
    out = error <= out ? out : error;  // NaN counts
  }
  return out;
}

/// Those whose digits may be few, joined by "or": "exp or reciprocal".
std::string functions_in(const WrongTensor& wrong) {
  const reference::Recording& recording = wrong.run.reference.recording(wrong.run.reference.forms().front());
  std::vector<std::string> out;
  for (const Node& node : recording.graph->nodes()) {
    const Primitive p = node.primitive;
    const bool function = (p >= Primitive::exp && p <= Primitive::sigmoid) || p == Primitive::div;
    const std::string name = p == Primitive::div ? "reciprocal" : reference::name(p);
    if (function && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return fmt::format("{}", fmt::join(out, " or "));
}

}  // namespace

std::string few_digits(const WrongTensor& wrong, bool& of_function) {
  constexpr std::size_t kFewest = 8;  // below, either sign may be chance
  constexpr double kFewUlps = 2;
  std::vector<double> errors;
  std::int64_t up = 0;
  bool ulps = bytes(wrong.tensor.dtype) < 4;
  for (const std::int64_t i : wrong.comparison.outside) {
    const auto k = static_cast<std::size_t>(i);
    const double error = wrong.got[k] / wrong.interval.value[k] - 1;
    if (!std::isfinite(error)) return "";
    errors.push_back(std::fabs(error));
    up += error > 0;
    std::vector<double> nearest{wrong.interval.value[k]};
    round_values(format(wrong.tensor.dtype), RoundingMode{}, nearest, nearest);
    ulps &= ulp_distance(format(wrong.tensor.dtype), wrong.got[k], nearest[0]) <= kFewUlps;
  }
  const std::string another = fmt::format(
      "off by at most {} ulp of {}, on {} of {} elements: as of an intermediate that is rounded to 16 bits on the way",
      kFewUlps, ampcheck::name(wrong.tensor.dtype), errors.size(), wrong.got.size());
  if (confined_to_rows(wrong)) return "";
  const double most = *std::max_element(errors.begin(), errors.end());
  const std::string functions = functions_in(wrong);
  const std::string small = ulps && !functions.empty() && most <= kFewDigits && !wrong.tensor.saved
                                ? another + ", or of a fast or approximate " + functions
                                : another;
  if (errors.size() < 4 || wrong.tensor.saved || functions.empty()) return ulps ? small : "";
  if (most > kFewDigits) return "";
  const auto all = static_cast<std::int64_t>(errors.size());
  // Of either sign; or all that there is, by next to nothing.
  constexpr double kNextToNothing = 0x1p-10;
  const bool either_sign = 5 * up >= all && 5 * up <= 4 * all && functions != "reciprocal",
             everywhere =
                 most <= kNextToNothing && 20 * errors.size() >= 19 * wrong.got.size() && !off_by_one_factor(wrong);
  of_function = errors.size() >= kFewest && (either_sign || everywhere);
  if (ulps) return small;
  const std::string rounded = rounded_on_the_way(wrong.tensor.dtype);
  of_function &= rounded.empty();
  return fmt::format(
      "errors of up to {:.2g} of the value, on {} of {} elements: as of {}", most, errors.size(), wrong.got.size(),
      rounded.empty() ? "a fast or approximate " + functions : "an intermediate that is rounded to " + rounded);
}

namespace {

std::string joined(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + "; " + b; }

/// A wrong tensor's rows that stand for all of it, where there are such.
struct Standing {
  std::unique_ptr<RowPart> part;
  const WrongTensor& whole;

  explicit Standing(const WrongTensor& wrong) : part(some_rows(wrong)), whole(wrong) {}
  /// Of these rows, or else the whole.
  WrongTensor rows() const { return part ? part->wrong(whole.pass) : whole; }
};

/// Words, and the code of a contract, if a fast or approximate function gives all of the numbers.
std::string fast_function(const Standing& standing, Notes& notes, CheckResult& check) {
  const WrongTensor& wrong = standing.whole;
  if (off_by_one_factor(wrong)) return "";
  const std::tuple refuted(wrong.tensor.name, wrong.pass, true);
  if (notes.no_departure.contains(refuted)) return "";
  Departed departed = explained_by_departure(standing.rows(), true, notes.departures);
  if (departed.refuted) notes.no_departure.insert(refuted);
  if (standing.part && departed.code != Code::none) departed = explained_by_departure(wrong, true, notes.departures);
  if (departed.code == Code::none) return "";
  if (departed.odds < kTellingOdds) {
    notes.weak.try_emplace(check.id, Weak{departed.code, departed.words});
    return "";
  }
  notes.departures.insert(departed.departure);
  check.find(departed.code);
  check.cause.clear();
  return departed.words;
}

/// A factor of a part of the numbers is said with the place of that part; no change of the formula says more.
bool a_factor_somewhere(const WrongTensor& wrong, const std::string& cause) {
  return 2 * wrong.comparison.outside.size() < wrong.got.size() &&
         (cause.starts_with("off by a constant factor of") || cause.starts_with("the sign is flipped"));
}

std::string further_change(const WrongTensor& wrong) { return explained_by_further_change(wrong).words; }

/// Of a tensor whose values are wrong and finite: the first of these that says something.
std::string further_cause(const WrongTensor& wrong, Notes& notes, CheckResult& check) {
  const Standing standing(wrong);
  const bool in_fp64 = wrong.run.call.storage == Dtype::fp64;  // replays compute in fp32: they explain nothing there
  if (in_fp64) {
    for (const auto& hypothesis :
         {right_for_another_call, transposed, further_change, zero_where, outer_product, data_condition})
      if (const std::string words = hypothesis(wrong); !words.empty()) return words;
    return "";
  }
  for (const auto& hypothesis : {unstable_algebra, right_for_another_call})
    if (const std::string words = hypothesis(standing.rows()); !words.empty()) return words;
  if (const std::string words = transposed(wrong); !words.empty()) return words;
  // Where all that is wrong is zero, the sign that it follows says more than a threshold found from it.
  const bool zeros = std::ranges::all_of(wrong.comparison.outside,
                                         [&](std::int64_t at) { return wrong.got[static_cast<std::size_t>(at)] == 0; });
  if (const std::string words = zeros ? zero_where(wrong) : ""; !words.empty()) return words;
  const Replayed changed =
      a_factor_somewhere(wrong, check.cause) ? Replayed() : explained_by_further_change(standing.rows());
  if (changed.kind != Replayed::Kind::none) {
    if (changed.kind == Replayed::Kind::approximated && largest_error(wrong) <= kFewDigits) {
      check.find(Code::ac304);
      check.cause.clear();
    }
    return changed.words;
  }
  for (const auto& hypothesis : {zero_where, outer_product})
    if (const std::string words = hypothesis(wrong); !words.empty()) return words;
  if (const std::string words = fast_function(standing, notes, check); !words.empty()) return words;
  if (const std::string words = data_condition(wrong); !words.empty()) return words;
  bool of_function = false;
  const std::string words = few_digits(wrong, of_function);
  if (!words.empty() && of_function) check.find(Code::ac304);
  const auto weak = notes.weak.find(check.id);
  if (weak == notes.weak.end()) return words;
  if (!of_function) check.find(weak->second.code);
  check.cause.clear();
  return words.empty() ? weak->second.words : words + "; perhaps: " + weak->second.words;
}

/// Of a tensor that holds NaN or infinity.
std::string cause_of_non_finite(const WrongTensor& whole) {
  if (whole.run.call.storage == Dtype::fp64) return "";
  const Standing standing(whole);
  const WrongTensor wrong = standing.rows();
  const Replayed changed = explained_by_change(wrong);
  if (changed.kind != Replayed::Kind::none) return changed.words;
  const std::string dropped = dropped_terms(wrong);
  if (!dropped.empty()) return dropped;
  const std::string unstable = unstable_algebra(wrong);
  return unstable.empty() ? further_change(wrong) : unstable;
}

/// By the code of a check; it may become another one.
std::string cause_of(const WrongTensor& wrong, Notes& notes, CheckResult& check) {
  if (check.code == Code::ac102) return cause_of_non_finite(wrong);
  if (check.code == Code::ac101) return further_cause(wrong, notes, check);
  const Replayed low = explained_by_low_accumulation(wrong);
  if (low.kind != Replayed::Kind::none) {
    check.find(Code::ac301);
    check.cause.clear();
  }
  return low.words;
}

bool explained_by_replays(const Notes& notes, const std::string& tensor) {
  const auto replayed = notes.replayed.find(tensor);
  return replayed != notes.replayed.end() && replayed->second.back().kind != Replayed::Kind::none;
}

void look_further(CaseRun& run, const Subject& subject, Pass pass, Notes& notes, CheckResult& check) {
  if (check.failed == 0 || (!is_wrong_number(check.code) && check.code != Code::ac408)) return;
  const Written& tensor = *subject.tensor;
  const Code code = check.code;
  if (run.accumulates(tensor.name) && code != Code::ac408) return;  // explained without what the buffer held
  const auto known = notes.further.find({code, tensor.name});       // two probes of a tensor say the same
  if (known != notes.further.end()) {
    check.cause = joined(check.cause, known->second);
    return;
  }
  if (code == Code::ac101 && !notes.weak.contains(check.id) && explained_by_replays(notes, tensor.name)) return;
  const std::vector<double> held =
      pass != Pass::forward && run.accumulates(tensor.name) ? run.held(tensor) : std::vector<double>();
  const std::vector<double> got = to_doubles(subject.got);
  const FormComparison with_forms = compare_with_forms(run, tensor, pass, got, held);
  const WrongTensor wrong{run, tensor, pass, got, with_forms.nearest, with_forms.comparison};
  if (wrong.comparison.outside.empty() || (code == Code::ac101 && all_zero(got))) return;
  std::string words;
  try {
    words = cause_of(wrong, notes, check);
  } catch (const Error& error) {  // the verdict stands without a cause
    check.note = joined(check.note, fmt::format("no cause was looked for: {}", error.what()));
  }
  check.verdict = text_of(check.code).verdict;
  if (code == check.code && !words.empty())
    notes.further[{code, tensor.name}] = words;  // another verdict is shown probe by probe
  check.cause = joined(check.cause, words);
}

/// What was said for want of better is said again where nothing better is found.
void explain_one(CaseRun& run, const Subject& subject, Pass pass, Notes& notes, CheckResult& check) {
  const auto weak = notes.weak.find(check.id);
  if (weak == notes.weak.end()) return look_further(run, subject, pass, notes, check);
  const Weak said = weak->second;
  check.find(Code::ac101);
  check.cause = said.before;
  look_further(run, subject, pass, notes, check);
  if (check.code != Code::ac101 || check.cause != said.before) return;
  check.find(said.code);
  check.cause = said.words;
}

}  // namespace

void explain_further(CaseRun& run, const std::vector<Subject>& subjects, Pass pass, Notes& notes,
                     std::vector<CheckResult>& checks) {
  if (!run.options.explain) return;
  for (std::size_t k = 0; k < checks.size(); ++k) explain_one(run, subjects[k], pass, notes, checks[k]);
}

namespace {

/// One number may be wrong for any reason: what is said of another tensor of the launch is likely its reason too.
void quote_for_single_numbers(std::vector<CheckResult>& checks) {
  const auto tells = [](const CheckResult& check) {
    return is_wrong_number(check.code) && !check.id.at_saved && check.compared > 1 && says_why(check);
  };
  for (CheckResult& single : checks) {
    if (!is_wrong_number(single.code) || single.compared != 1 || single.id.probe > 0 || !single.cause.empty()) continue;
    const auto other = std::ranges::find_if(checks, tells);
    if (other != checks.end()) single.cause = fmt::format("{} (as '{}' shows)", other->cause, other->id.tensor);
  }
}

}  // namespace

void quote_causes(std::vector<CheckResult>& checks) {
  for (CheckResult& broken : checks) {
    // Of a probe's values no other check is asked.
    if (broken.verdict != Verdict::structural || broken.code == Code::none || broken.id.probe >= 0) continue;
    const auto values = std::find_if(checks.begin(), checks.end(), [&](const CheckResult& c) {
      return is_wrong_number(c.code) && !c.cause.empty() && c.id.tensor == broken.id.tensor;
    });
    if (values != checks.end()) broken.cause += "; its values: " + values->cause;
  }
  quote_for_single_numbers(checks);
}

}  // namespace ampcheck::checks
