// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// What one recording shows, and two recordings beside each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checks/stacks/op_records.h"
#include "src/float_format.h"

namespace ampcheck::checks::stacks {

namespace {

bool any_not_finite(const std::vector<TensorNumbers>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const TensorNumbers& t) { return t.not_finite(); });
}

const TensorNumbers* first_bad(const std::vector<TensorNumbers>& tensors) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [](const TensorNumbers& t) { return t.not_finite(); });
  return found == tensors.end() ? nullptr : &*found;
}

std::string numbers_text(const TensorNumbers& t) {
  std::string out = t.name;
  if (!t.dtype.empty()) out += " " + t.dtype;
  if (t.least) out += fmt::format("{} {}", t.sizes ? ", |x| from" : ", from", shown(*t.least));
  if (t.largest) out += " to " + shown(*t.largest);
  if (t.norm) out += ", norm " + shown(*t.norm);
  if (!t.hash.empty() && !t.largest) out += " " + t.hash;
  return out;
}

std::string op_text(const OpRecord& op) {
  std::string in, out;
  for (const TensorNumbers& t : op.inputs) in += (in.empty() ? "" : "; ") + numbers_text(t);
  for (const TensorNumbers& t : op.outputs) out += (out.empty() ? "" : "; ") + numbers_text(t);
  return op.name + ": " + in + (in.empty() ? "" : " -> ") + out;
}

/// Tensors that come in, without weights: those have no producer before.
bool all_zero(const TensorNumbers& t) {
  return t.largest && *t.largest == 0 && (!t.least || *t.least == 0) && (!t.norm || *t.norm == 0);
}

/// Whether a tensor may be in fp16: said so, or not said and within its range.
bool may_be_fp16(const TensorNumbers& t) { return t.dtype == "fp16" || t.dtype.empty(); }

constexpr double kNear = 0.5;  ///< of fp16's largest number: one doubling away

/// How near to the end of fp16 what comes in is.
std::string near_text(const OpRecord& op) {
  double most = 0;
  std::string tensor;
  for (const TensorNumbers& t : op.inputs)
    if (const auto amax = t.amax(); amax && std::isfinite(*amax) && *amax > most && may_be_fp16(t)) {
      most = *amax;
      tensor = t.name;
    }
  if (most < kNear * kFp16.max_finite() || most > 1.01 * kFp16.max_finite()) return "";
  return fmt::format("{} reaches {}, {:.0f} % of fp16's largest number 65504", tensor, shown(most),
                     100 * most / kFp16.max_finite());
}

std::string next_step(const OpRecord& op, bool fp16) {
  const std::string name = op.name.substr(0, op.name.find(' '));
  if (fp16)
    return fmt::format(
        "run '{}' in fp32, or the model in bf16, and record again; to say whether the op itself is right, "
        "save its tensors: ampcheck check --dump FILE --formula F",
        name);
  return fmt::format(
      "save the inputs and outputs of '{}' in that step and judge them: ampcheck check --dump FILE "
      "--formula F",
      name);
}

void describe_bad(const Recording& r, std::size_t at, RecordFinding& out) {
  const OpRecord& op = r.ops[at];
  const bool came_in = any_not_finite(op.inputs);
  out.trouble = came_in ? Trouble::came_in : Trouble::made;
  out.op = op.name;
  out.line = op.line;
  const TensorNumbers* const bad = came_in ? first_bad(op.inputs) : first_bad(op.outputs);
  out.tensor = bad->name;
  out.what = op_text(op);
  constexpr std::size_t kShown = 4;
  for (std::size_t k = at > kShown ? at - kShown : 0; k < at; ++k) out.before.push_back(op_text(r.ops[k]));
  const std::string near = near_text(op);
  if (!came_in && !near.empty()) out.what += "; " + near;
  if (came_in)
    out.excluded = "no op of this recording made it: the number was not finite when it came in";
  else if (op.inputs.empty())
    out.excluded = "the recording says nothing of its inputs";
  else
    out.excluded = "it is not inherited: everything that came in was finite";
  out.next = next_step(op, !near.empty());
}

void find_killers(const Recording& r, RecordFinding& out) {
  for (const OpRecord& op : r.ops)
    if (any_not_finite(op.inputs) && !op.outputs.empty() && !any_not_finite(op.outputs))
      out.killers.push_back(op_text(op));
}

}  // namespace

const char* name(Trouble trouble) {
  switch (trouble) {
    case Trouble::none: return "NOTHING FOUND";
    case Trouble::near_range: return "NEAR THE RANGE";
    case Trouble::all_zero: return "ALL ZERO";
    case Trouble::came_in: return "CAME IN";
    case Trouble::made: return "MADE";
  }
  return "";
}

RecordFinding judge_records(const Recording& r) {
  RecordFinding out;
  find_killers(r, out);
  for (std::size_t at = 0; at < r.ops.size(); ++at)
    if (any_not_finite(r.ops[at].outputs) || any_not_finite(r.ops[at].inputs)) {
      describe_bad(r, at, out);
      return out;
    }
  for (const OpRecord& op : r.ops) {
    const bool zero = !op.outputs.empty() && std::all_of(op.outputs.begin(), op.outputs.end(), all_zero);
    const bool given = std::any_of(op.inputs.begin(), op.inputs.end(),
                                   [](const TensorNumbers& t) { return t.largest && !all_zero(t); });
    if (!zero || !given) continue;
    out.trouble = Trouble::all_zero;
    out.op = op.name;
    out.line = op.line;
    out.what = op_text(op);
    out.next = next_step(op, false);
    return out;
  }
  for (const OpRecord& op : r.ops)
    for (const TensorNumbers& t : op.outputs) {
      const auto amax = t.amax();
      if (!amax || t.dtype != "fp16" || *amax < kNear * kFp16.max_finite()) continue;
      out.trouble = Trouble::near_range;
      out.op = op.name;
      out.line = op.line;
      out.tensor = t.name;
      out.what = op_text(op);
      out.next = next_step(op, true);
      return out;
    }
  out.excluded = fmt::format(
      "no number of the {} recorded ops is infinite or NaN, none becomes zero as a whole, and in "
      "fp16 none is within a factor of two of 65504",
      r.ops.size());
  return out;
}

namespace {

double apart(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return HUGE_VAL;
  return std::fabs(a - b) / std::max(std::fabs(a), std::fabs(b));
}

/// The largest relative distance of the numbers of two tensors. A mean is a small rest of large terms: it is held
/// against the largest |x|.
double apart(const TensorNumbers& a, const TensorNumbers& b, std::string& what) {
  double out = 0;
  const auto take = [&](const char* word, std::optional<double> x, std::optional<double> y, double size) {
    if (!x || !y) return;
    const double now = size > 0 && std::isfinite(size) && std::isfinite(*x) && std::isfinite(*y)
                           ? std::fabs(*x - *y) / size
                           : apart(*x, *y);
    if (now <= out) return;
    out = now;
    what = fmt::format("{} {} {} against {}", a.name, word, shown(*x), shown(*y));
  };
  take("norm", a.norm, b.norm, 0);
  take("min", a.least, b.least, 0);
  take("max", a.largest, b.largest, 0);
  take("mean", a.mean, b.mean, a.amax().value_or(0));
  if (a.hash == b.hash) return out;
  const auto x = number_in(a.hash), y = number_in(b.hash);
  if (x && y)
    take("hash", x, y, 0);
  else if (out == 0 && !a.hash.empty() && !b.hash.empty()) {
    out = 1e-300;  // digests differ: some bit does
    what = a.name + " digest " + a.hash + " against " + b.hash;
  }
  return out;
}

RecordPair pair_of(const OpRecord& a, const OpRecord& b, double relative) {
  RecordPair out{.name = a.name, .where = a.where};
  std::string ignored;
  out.inputs_known = !a.inputs.empty() && a.inputs.size() == b.inputs.size();
  for (std::size_t i = 0; out.inputs_known && i < a.inputs.size(); ++i)
    out.in_apart = std::max(out.in_apart, apart(a.inputs[i], b.inputs[i], ignored));
  for (std::size_t i = 0; i < std::min(a.outputs.size(), b.outputs.size()); ++i) {
    std::string what;
    const double now = apart(a.outputs[i], b.outputs[i], what);
    if (now > out.out_apart || out.what.empty()) {
      out.out_apart = std::max(now, out.out_apart);
      if (!what.empty()) out.what = what;
    }
    out.dtype_a = a.outputs[i].dtype;
    out.dtype_b = b.outputs[i].dtype;
  }
  out.inputs_alike = out.inputs_known && out.in_apart <= relative;
  out.outputs_alike = out.out_apart <= relative;
  return out;
}

}  // namespace

RecordComparison compare_records(const Recording& a, const Recording& b) {
  RecordComparison out;
  std::map<std::string, std::size_t> at;
  for (std::size_t i = 0; i < b.ops.size(); ++i) at.emplace(b.ops[i].name, i);
  std::map<std::string, bool> met;
  const double relative = std::max(a.relative, b.relative);
  double jump = 0;
  for (const OpRecord& op : a.ops) {
    const auto found = at.find(op.name);
    if (found == at.end()) {
      out.only_a.push_back(op.name);
      continue;
    }
    met[op.name] = true;
    RecordPair pair = pair_of(op, b.ops[found->second], relative);
    out.dtypes_differ |= pair.dtype_a != pair.dtype_b;
    const auto here = static_cast<std::ptrdiff_t>(out.ops.size());
    if (out.first_made < 0 && pair.inputs_alike && !pair.outputs_alike) out.first_made = here;
    const double by = pair.inputs_known && pair.in_apart > 0 ? pair.out_apart / pair.in_apart : 0;
    if (!pair.inputs_alike && pair.inputs_known && by > jump) {
      jump = by;
      out.largest_jump = here;
    }
    out.ops.push_back(std::move(pair));
  }
  for (const OpRecord& op : b.ops)
    if (!met.contains(op.name)) out.only_b.push_back(op.name);
  return out;
}

}  // namespace ampcheck::checks::stacks
