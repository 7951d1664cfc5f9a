// SPDX-License-Identifier: Apache-2.0
// Exact relations: what must hold bit for bit, whatever the rounding.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "checks/case_run.h"
#include "checks/rows.h"
#include "src/random.h"

namespace ampcheck::checks {

namespace {

/// Number of elements of two tensors of one layout whose bits differ, NaN payloads included.
std::int64_t differing(const GuardedTensor& a, const GuardedTensor& b) {
  const TensorView &x = a.view(), &y = b.view();
  const std::int64_t n = x.count();
  const auto size = static_cast<std::size_t>(bytes(x.dtype));
  if (x.is_dense() && y.is_dense() && (n == 0 || std::memcmp(x.data, y.data, static_cast<std::size_t>(n) * size) == 0)) return 0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += bits_at(x, i) != bits_at(y, i);
  return count;
}

std::string first_difference(const GuardedTensor& a, const GuardedTensor& b) {
  for (std::int64_t i = 0; i < a.view().count(); ++i)
    if (bits_at(a.view(), i) != bits_at(b.view(), i)) return "first at element " + std::to_string(i) + " of " + a.view().shape.str();
  return "";
}

/// Number of elements that differ between two runs; recorded under the relation's name.
std::int64_t compare_runs(CaseRun& run, const LaunchResult& a, const LaunchResult& b, const std::string& relation, const char* code,
                          const std::string& words) {
  std::int64_t all = 0;
  for (const auto& [name, tensor] : a.written) {
    const GuardedTensor& other = b.written.at(name);
    const std::int64_t changed = differing(tensor, other);
    run.add_relation(relation + " " + name, code, tensor.view().count(), changed,
                     changed ? words + ": " + first_difference(tensor, other) : "");
    all += changed;
  }
  return all;
}

/// Repeats: a result that differs from call to call. False if it does: then no other bitwise relation says anything.
bool check_repeats(CaseRun& run, const LaunchResult& forward, const LaunchTensors& tensors, const LaunchResult& first) {
  const std::int64_t size = run.gradients.empty() ? 0 : run.gradients.front().shape.count();
  const int repeats = size > 16384 ? 2 : 5;
  std::int64_t changed = 0;
  for (int k = 0; k < repeats; ++k) {
    changed += compare_runs(run, forward, run.run_forward(run.forward_tensors(run.reference.inputs(), 0)), "repeats", "AC404", "differs from call to call");
    changed += compare_runs(run, first, run.run_backward(tensors), "repeats", "AC404", "differs from call to call");
  }
  return changed == 0;
}

/// Poison: an output that depends on what its buffer held.
void check_poison(CaseRun& run, const LaunchResult& forward, const NamedValues& cotangents, const LaunchResult& first) {
  const NamedValues& inputs = run.reference.inputs();
  const char* words = "differs with what the buffer held before";
  compare_runs(run, forward, run.run_forward(run.forward_tensors(inputs, 1)), "poison", "AC401", words);
  compare_runs(run, first, run.run_backward(run.backward_tensors(inputs, forward, cotangents, 1)), "poison", "AC401", words);
}

/// How `scaled` differs from factor * `base`, where nothing nears the ends of the range.
struct Scaling {
  std::int64_t compared = 0, failed = 0;
  std::string where;  ///< of the first difference
};
Scaling compare_scaled(const std::vector<double>& base, const std::vector<double>& scaled, double factor, const FloatFormat& f) {
  Scaling out;
  const double least = 16 * f.min_normal(), most = f.max_finite() / 8;
  const auto judged = [=](double a, double b) {  // NaN on one side alone is left to the other
    a = std::fabs(a), b = std::fabs(b);
    return !(a < least) & !(b < least) & !(a > most) & !(b > most) & ((a == a) | (b == b));
  };
  const double *const from = base.data(), *const to = scaled.data();
  std::int64_t compared = 0, failed = 0;  // of 64 bits as the numbers are, and no branch: it vectorises
  for (std::size_t i = 0; i < base.size(); ++i) {
    const std::int64_t counts = judged(from[i], to[i]) ? 1 : 0;
    compared += counts, failed += to[i] != factor * from[i] ? counts : 0;
  }
  out.compared = compared, out.failed = failed;
  for (std::size_t i = 0; out.failed > 0 && out.where.empty(); ++i)
    if (judged(base[i], scaled[i]) && scaled[i] != factor * base[i])
      out.where = "element " + std::to_string(i) + ": " + std::to_string(base[i]) + " becomes " + std::to_string(scaled[i]) +
                  " when the cotangent is scaled by " + std::to_string(factor);
  return out;
}

/// backward(2^k g) = 2^k backward(g), bit for bit, at whatever finite data keeps every non-zero intermediate far from the ends
/// of the range (tame() leaves 2^26, the factors take 2^2). `first`: backward(g).
void check_homogeneity(CaseRun& run, const LaunchResult& forward, const NamedValues& base, const LaunchResult& first) {
  if (!run.reference.inputs_finite()) return;
  // Without a formula nobody knows the intermediates; a change of sign alone keeps all of their magnitudes.
  const bool black_box = run.op.forms.empty();
  if (!black_box && !run.reference.tame()) return;
  std::map<std::string, std::vector<double>> unscaled;
  for (const Written& gradient : run.gradients) unscaled[gradient.name] = to_doubles(first.written.at(gradient.name).view());
  for (const double factor : black_box ? std::vector<double>{-1} : std::vector<double>{-2, 0.25}) {  // sign and both directions
    NamedValues scaled = base;
    bool exact = true;
    for (const Written& output : run.outputs) {
      if (output.saved) continue;
      const double least = 16 * format(output.dtype).min_normal(), most = format(output.dtype).max_finite() / 8;
      std::int64_t lost = 0;
      for (double& g : scaled[gradient_name(output.name)]) {
        g *= factor;
        lost |= (g == 0) | ((std::fabs(g) >= least) & (std::fabs(g) <= most)) ? 0 : 1;
      }
      exact &= lost == 0;
    }
    if (!exact) continue;
    const LaunchResult result = run.run_backward(run.backward_tensors(run.reference.inputs(), forward, scaled, 0));
    for (const Written& gradient : run.gradients) {
      if (run.accumulates(gradient.name)) continue;
      const Scaling seen = compare_scaled(unscaled.at(gradient.name), to_doubles(result.written.at(gradient.name).view()), factor, format(gradient.dtype));
      run.add_relation("homogeneity " + gradient.name, "AC407", seen.compared, seen.failed, seen.where);
    }
  }
}

bool named(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// Changes every row but the last and one other, in place, to finite values that its role may have; the results of the two
/// must keep their bits, whatever stands in the others. Which outputs have rows that do not mix is the contract's to say.
void check_row_independence(CaseRun& run, const LaunchResult& forward, const NamedValues& cotangents, const LaunchResult& backward) {
  const LaunchContract& contract = run.op.signature.launch;
  if (contract.row_dim.empty() || !run.reference.inputs_finite()) return;
  const std::int64_t rows = rows_of(run.op.signature, run.call);
  if (rows < 2) return;
  const Random random(run.call.seed, "kept row");
  const std::int64_t kept = static_cast<std::int64_t>(random.below(0, static_cast<std::uint64_t>(rows)));
  // What is last may be treated apart; of two rows one is kept.
  const auto stays = [&](std::int64_t row) { return row == kept || (row == rows - 1 && rows > 2); };
  // The other rows become copies of the kept one: right for every role, and whatever is gathered over rows (a maximum, a sum)
  // changes too, which an exchange of rows would hide.
  const auto copy_kept = [&](std::vector<double>& values) {
    const auto width = static_cast<std::ptrdiff_t>(values.size() / static_cast<std::size_t>(rows));
    const std::vector<double> row(values.begin() + kept * width, values.begin() + (kept + 1) * width);
    for (std::int64_t r = 0; r < rows; ++r)
      if (!stays(r)) std::copy(row.begin(), row.end(), values.begin() + r * width);
  };
  const NamedValues& inputs = run.reference.inputs();
  NamedValues changed = inputs, changed_cotangents = cotangents;
  for (const TensorSpec& spec : run.op.signature.inputs) {
    if (run.call.has(spec) && has_rows(run.op.signature, spec)) copy_kept(changed[spec.name]);
  }
  for (const Written& output : run.outputs)
    if (!output.saved && named(contract.row_independent, output.name)) copy_kept(changed_cotangents[gradient_name(output.name)]);
  if (changed == inputs && changed_cotangents == cotangents) return;  // all rows are equal: nothing to see
  const LaunchResult forward_changed = run.run_forward(run.forward_tensors(changed, 0));
  const LaunchResult backward_changed = run.run_backward(run.backward_tensors(changed, forward_changed, changed_cotangents, 0));
  const auto compare_row = [&](const GuardedTensor& a, const GuardedTensor& b, const std::string& name) {
    const std::int64_t width = a.view().count() / rows;
    for (const std::int64_t row : {kept, rows - 1}) {
      if (!stays(row)) continue;
      std::int64_t failed = 0;
      for (std::int64_t i = row * width; i < (row + 1) * width; ++i) failed += bits_at(a.view(), i) != bits_at(b.view(), i);
      run.add_relation("row_independence " + name, "AC405", width, failed,
                       failed ? "row " + std::to_string(row) + " of '" + name + "' changes with other rows" : "");
      if (kept == rows - 1) return;
    }
  };
  for (const std::string& name : contract.row_independent) {
    if (forward.written.contains(name)) compare_row(forward.written.at(name), forward_changed.written.at(name), name);
    else if (backward.written.contains(name)) compare_row(backward.written.at(name), backward_changed.written.at(name), name);
  }
}

}  // namespace

int relations_probe(const OpCall& call) {
  int out = 0;
  for (int probe = 0; probe < probe_count(call); ++probe)
    if (full_mantissas(call, probe)) out = probe;
  return out;
}

void check_relations(CaseRun& run, const LaunchResult& forward, const BackwardRun& backward) {
  if (run.op.signature.precision.atomics) return;  // the order may differ from call to call: no bitwise relation holds
  if (!check_repeats(run, forward, backward.tensors, backward.result)) return;
  NamedValues cotangents;
  for (const Written& output : run.outputs)
    if (!output.saved) cotangents[gradient_name(output.name)] = to_doubles(backward.tensors.read.at(gradient_name(output.name)).view());
  check_poison(run, forward, cotangents, backward.result);
  check_homogeneity(run, forward, cotangents, backward.result);
  check_row_independence(run, forward, cotangents, backward.result);
}

}  // namespace ampcheck::checks
