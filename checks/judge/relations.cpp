// SPDX-License-Identifier: Apache-2.0
// Exact relations: what must hold bit for bit, whatever the rounding.
#include "checks/judge/relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "checks/case/case_run.h"
#include "checks/define/rows.h"
#include "checks/judge/batch_invariance.h"
#include "src/elements.h"
#include "src/random.h"

namespace ampcheck::checks {

namespace {

/// Elements `first` to `last` that have other bits in `b`, up to three.
std::vector<Element> first_differences(const TensorView& a, const TensorView& b, std::int64_t first,
                                       std::int64_t last) {
  std::vector<Element> out;
  for (std::int64_t i = first; i < last && out.size() < 3; ++i)
    if (bits_at(a, i) != bits_at(b, i)) out.push_back(broken(a.dtype, a.shape, i, bits_at(b, i), bits_at(a, i)));
  return out;
}

/// Number of elements that differ between two runs; recorded under the relation's name.
std::int64_t compare_runs(CaseRun& run, const LaunchResult& a, const LaunchResult& b, CheckId::Kind relation, Code code,
                          const std::string& words) {
  std::int64_t all = 0;
  for (const auto& [name, tensor] : a.written) {
    const GuardedTensor& other = b.written.at(name);
    const std::int64_t changed = differing(tensor, other), count = tensor.view().count();
    std::vector<Element> first =
        changed ? first_differences(tensor.view(), other.view(), 0, count) : std::vector<Element>();
    const std::string cause = changed ? fmt::format("{}: first at element {} of {}", words,
                                                    Shape(std::span<const std::int64_t>(first.front().index)).str(),
                                                    tensor.view().shape.str())
                                      : "";
    run.add_relation({relation, name}, code, count, changed, cause, std::move(first));
    all += changed;
  }
  return all;
}

/// Whether two runs wrote the same bits.
bool same(const LaunchResult& a, const LaunchResult& b) {
  return std::all_of(a.written.begin(), a.written.end(),
                     [&](const auto& entry) { return differing(entry.second, b.written.at(entry.first)) == 0; });
}

/// An element that holds its buffer's own filling in both calls was not written.
void name_unwritten(CheckResult& check) {
  const Element& first = check.worst.front();
  if (first.got_bits == poison(check.dtype, 1) && first.want_bits == poison(check.dtype, 0))
    check.cause = fmt::format("not written: element {} holds what the buffer held before the call",
                              Shape(std::span<const std::int64_t>(first.index)).str());
}

/// Repeats: a result that differs from call to call; then no other bitwise relation says anything, and this is false.
/// Poison: one that depends on what its buffer held. A run on other poison is a repeat as well; where it differs, all
/// the others are made.
bool check_repeats_and_poison(CaseRun& run, const LaunchResult& forward, const LaunchTensors& tensors,
                              const LaunchResult& first) {
  const LaunchTensors forward_tensors = run.forward_tensors(run.reference.inputs(), 0);
  const LaunchResult poisoned = run.run_forward(run.refilled(forward_tensors, run.outputs, 1)),
                     poisoned_back = run.run_backward(run.refilled(tensors, run.gradients, 1));
  const std::int64_t size = run.gradients.empty() ? 0 : run.gradients.front().shape.count();
  const bool repeated = same(forward, poisoned) && same(first, poisoned_back);
  std::int64_t changed = 0;
  int calls = 0;
  std::map<std::string, int> differ;  // by tensor, of these calls
  const auto compare = [&](const LaunchResult& again, const LaunchResult& again_back) {
    ++calls;
    for (const auto& [before, after] : {std::pair(&forward, &again), std::pair(&first, &again_back)})
      for (const auto& [name, tensor] : before->written) differ[name] += differing(tensor, after->written.at(name)) > 0;
    changed += compare_runs(run, forward, again, CheckId::Kind::repeats, Code::ac404, "differs from call to call");
    changed += compare_runs(run, first, again_back, CheckId::Kind::repeats, Code::ac404, "differs from call to call");
  };
  if (repeated) compare(poisoned, poisoned_back);
  for (int k = repeated ? 1 : 0; k < (size > 16384 ? 2 : 5); ++k) {
    const LaunchResult again = run.run_forward(forward_tensors);
    compare(again, run.run_backward(tensors));
  }
  for (CheckResult& check : run.checks)
    if (check.id.kind == CheckId::Kind::repeats && check.failed > 0)
      check.cause += fmt::format("; {} of {} repeated calls differ", differ[check.id.tensor], calls);
  if (changed != 0) return false;
  const char* words = "differs with what the buffer held before";
  compare_runs(run, forward, poisoned, CheckId::Kind::poison, Code::ac401, words);
  compare_runs(run, first, poisoned_back, CheckId::Kind::poison, Code::ac401, words);
  for (CheckResult& check : run.checks)
    if (check.id.kind == CheckId::Kind::poison && check.failed > 0) name_unwritten(check);
  return true;
}

constexpr std::int64_t kPart = 4096;  ///< elements that stay in cache between two passes

/// How `scaled` differs from factor * `base`, where nothing nears the ends of the range.
struct Scaling {
  std::int64_t compared = 0, failed = 0;
  std::string where;  ///< of the first difference
  std::vector<Element> first = {};
};

/// A factor, plus or minus a power of two, on codes of a dense tensor of 16 bits: the exponent moves and the sign
/// changes.
struct ScaledCodes {
  std::int32_t step, sign, least, most, normal, infinity;
  ScaledCodes(const FloatFormat& f, double factor)
      : step(std::ilogb(factor) * (1 << f.fraction_bits())),
        sign(factor < 0 ? 0x8000 : 0),
        least(5 << f.fraction_bits()),
        most(static_cast<std::int32_t>(f.max_code()) - (3 << f.fraction_bits())),
        normal(1 << f.fraction_bits()),
        infinity(static_cast<std::int32_t>(f.infinity_code())) {}
  static bool fit(const TensorView& view) {
    return view.is_dense() && (view.dtype == Dtype::bf16 || view.dtype == Dtype::fp16);
  }

  /// judged() and the comparison of compare_scaled(), without a branch: it vectorises.
  void compare(const std::uint16_t* from, const std::uint16_t* to, std::int64_t n, Scaling& out) const {
    const ScaledCodes c = *this;
    for (std::int64_t start = 0; start < n; start += kPart) {
      std::int32_t compared = 0, failed = 0;
      for (std::int64_t i = start; i < std::min(n, start + kPart); ++i) {
        const std::int32_t a = from[i] & 0x7fff, b = to[i] & 0x7fff, want = (from[i] + c.step) ^ c.sign;
        const bool a_nan = a > c.infinity, b_nan = b > c.infinity;
        const bool counts =
            (((a >= c.least) & (a <= c.most)) | a_nan) & (((b >= c.least) & (b <= c.most)) | b_nan) & !(a_nan & b_nan);
        compared += counts ? 1 : 0;
        failed += counts & ((to[i] != want) | a_nan) ? 1 : 0;
      }
      out.compared += compared;
      out.failed += failed;
    }
  }
  /// False where an element that is not zero comes near the ends of the range, or was there.
  bool scale(const std::uint16_t* from, std::int64_t n, std::uint16_t* to) const {
    const ScaledCodes c = *this;
    std::int32_t lost = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t size = from[i] & 0x7fff, scaled = size + c.step;
      const bool zero = size == 0;
      lost |= zero | ((size >= c.normal) & (scaled >= c.least) & (scaled <= c.most)) ? 0 : 1;
      to[i] = static_cast<std::uint16_t>((zero ? from[i] : from[i] + c.step) ^ c.sign);
    }
    return lost == 0;
  }
};

Scaling compare_scaled(const TensorView& base, const TensorView& scaled, double factor) {
  Scaling out;
  const FloatFormat& f = format(base.dtype);
  if (ScaledCodes::fit(base) && ScaledCodes::fit(scaled)) {
    ScaledCodes(f, factor).compare(base.as<const std::uint16_t>(), scaled.as<const std::uint16_t>(), base.count(), out);
    if (out.failed == 0) return out;
    out = {};  // again, to say where
  }
  const double least = 16 * f.min_normal(), most = f.max_finite() / 8;
  const auto judged = [=](double a, double b) {  // NaN on one side alone is left to the other
    a = std::fabs(a);
    b = std::fabs(b);
    return !(a < least) & !(b < least) & !(a > most) & !(b > most) & ((a == a) | (b == b));
  };
  const Elements before(base), after(scaled);
  std::vector<double> room[2];
  for (std::int64_t start = 0; start < before.count(); start += kPart) {
    const std::int64_t n = std::min(kPart, before.count() - start);
    const double *const from = before.part(start, n, room[0]).data(), *const to = after.part(start, n, room[1]).data();
    std::int64_t compared = 0, failed = 0;  // of 64 bits as the numbers are, and no branch: it vectorises
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t counts = judged(from[i], to[i]) ? 1 : 0;
      compared += counts;
      failed += to[i] != factor * from[i] ? counts : 0;
    }
    for (std::int64_t i = 0; failed > 0 && out.where.empty(); ++i)
      if (judged(from[i], to[i]) && to[i] != factor * from[i]) {
        out.first = {broken(scaled.dtype, scaled.shape, start + i, bits_at(scaled, start + i),
                            encode_scalar(f, factor * from[i]))};
        out.where = fmt::format("element {}: {:.9g} becomes {:.9g} when the cotangent is scaled by {}, want {:.9g}",
                                start + i, from[i], to[i], factor, factor * from[i]);
      }
    out.compared += compared;
    out.failed += failed;
  }
  return out;
}

/// A cotangent times a power of two; nothing where that is not exact, or comes near the ends of the range.
std::optional<GuardedTensor> scaled_by(const GuardedTensor& cotangent, double factor) {
  const FloatFormat& f = format(cotangent.view().dtype);
  GuardedTensor out = cotangent.clone();
  const TensorView& to = out.view();
  if (ScaledCodes::fit(to))
    return ScaledCodes(f, factor).scale(cotangent.view().as<const std::uint16_t>(), to.count(), to.as<std::uint16_t>())
               ? std::optional(std::move(out))
               : std::nullopt;
  const double least = 16 * f.min_normal(), most = f.max_finite() / 8;
  const Elements elements(cotangent.view());
  std::vector<double> room, all;
  std::int64_t lost = 0;
  for (std::int64_t start = 0; start < elements.count(); start += kPart) {
    const std::int64_t n = std::min(kPart, elements.count() - start);
    const std::span<const double> part = elements.part(start, n, room);
    double values[kPart];
    for (std::int64_t i = 0; i < n; ++i) {
      const double g = values[i] = factor * part[static_cast<std::size_t>(i)];
      lost |= (g == 0) | ((std::fabs(g) >= least) & (std::fabs(g) <= most)) ? 0 : 1;
    }
    if (to.is_dense())
      encode(f, RoundingMode{}, std::span<const double>(values, static_cast<std::size_t>(n)),
             to.as<std::byte>() + start * bytes(to.dtype));
    else
      all.insert(all.end(), values, values + n);
  }
  if (lost != 0) return std::nullopt;
  if (!all.empty()) out.assign(all);
  return out;
}

/// backward(2^k g) = 2^k backward(g), bit for bit, at whatever finite data keeps every non-zero intermediate far from
/// the ends of the range (tame() leaves 2^26, the factors take 2^2). `base`, `first`: backward(g).
void check_homogeneity(CaseRun& run, const LaunchTensors& base, const LaunchResult& first) {
  if (!run.reference.inputs_finite()) return;
  // Without a formula nobody knows the intermediates; a change of sign alone keeps all of their magnitudes.
  const bool black_box = run.op.forms.empty();
  if (!black_box && !run.reference.tame()) return;
  for (const double factor :
       black_box ? std::vector<double>{-1} : std::vector<double>{-2, 0.25}) {  // sign and both directions
    LaunchTensors tensors = base;
    bool exact = true;
    for (const Written& output : run.outputs) {
      if (output.saved || !exact) continue;
      GuardedTensor& cotangent = tensors.read.at(gradient_name(output.name));
      std::optional<GuardedTensor> scaled = scaled_by(cotangent, factor);
      if (scaled)
        cotangent = std::move(*scaled);
      else
        exact = false;
    }
    if (!exact) continue;
    const LaunchResult result = run.run_backward(tensors);
    for (const Written& gradient : run.gradients) {
      if (run.accumulates(gradient.name)) continue;
      const Scaling seen =
          compare_scaled(first.written.at(gradient.name).view(), result.written.at(gradient.name).view(), factor);
      run.add_relation({CheckId::Kind::homogeneity, gradient.name}, Code::ac407, seen.compared, seen.failed, seen.where,
                       seen.first);
    }
  }
}

bool named(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// Where element i lies, in row-major order.
std::byte* element(const TensorView& view, std::int64_t i) {
  return view.as<std::byte>() + view.offset(i) * bytes(view.dtype);
}

/// A copy of the tensor with row `from` in the place of every row that does not stay.
template <class Stays>
GuardedTensor with_copied_row(const GuardedTensor& tensor, std::int64_t rows, std::int64_t from, const Stays& stays) {
  GuardedTensor out = tensor.clone();
  const TensorView& view = out.view();
  const std::int64_t width = view.count() / rows;
  if (width == 0) return out;
  const auto size = static_cast<std::size_t>(bytes(view.dtype));
  for (std::int64_t row = 0; row < rows; ++row) {
    if (stays(row)) continue;
    if (view.is_dense())
      std::memmove(element(view, row * width), element(view, from * width), static_cast<std::size_t>(width) * size);
    else
      for (std::int64_t i = 0; i < width; ++i)
        std::memmove(element(view, row * width + i), element(view, from * width + i), size);
  }
  return out;
}

std::int64_t differing_in_row(const TensorView& a, const TensorView& b, std::int64_t row, std::int64_t width) {
  if (width == 0 || (a.is_dense() && b.is_dense() &&
                     std::memcmp(element(a, row * width), element(b, row * width),
                                 static_cast<std::size_t>(width * bytes(a.dtype))) == 0))
    return 0;
  std::int64_t failed = 0;
  for (std::int64_t i = row * width; i < (row + 1) * width; ++i) failed += bits_at(a, i) != bits_at(b, i);
  return failed;
}

/// Changes every row but the last and `kept`, in place, to finite values that its role may have; the results of the
/// two must keep their bits, whatever stands in the others. Which outputs have rows that do not mix is the contract's
/// to say. The other rows become copies of the kept one: right for every role, and whatever is gathered over rows (a
/// maximum, a sum) changes too, which an exchange of rows would hide. True if a row changed.
bool check_rows(CaseRun& run, std::int64_t rows, std::int64_t kept, const LaunchResult& forward,
                const LaunchTensors& tensors, const LaunchResult& backward) {
  const LaunchContract& contract = run.op.signature.launch;
  // What is last may be treated apart; of two rows one is kept.
  const auto stays = [&](std::int64_t row) { return row == kept || (row == rows - 1 && rows > 2); };
  LaunchTensors forward_tensors = run.forward_tensors(run.reference.inputs(), 0), backward_tensors = tensors;
  bool changed = false;
  const auto change = [&](GuardedTensor& tensor) {
    GuardedTensor copied = with_copied_row(tensor, rows, kept, stays);
    changed |= !copied.same_bytes(tensor);
    tensor = std::move(copied);
  };
  for (const TensorSpec& spec : run.op.signature.inputs) {
    if (!run.call.has(spec) || !has_rows(run.op.signature, spec)) continue;
    change(forward_tensors.read.at(spec.name));
    backward_tensors.read.at(spec.name) = forward_tensors.read.at(spec.name);
  }
  for (const Written& output : run.outputs)
    if (!output.saved && named(contract.row_independent, output.name))
      change(backward_tensors.read.at(gradient_name(output.name)));
  if (!changed) return false;  // all rows are equal: nothing to see
  const LaunchResult forward_changed = run.run_forward(forward_tensors);
  for (const Written& output : run.outputs)
    if (output.reaches_backward()) backward_tensors.read.at(output.name) = forward_changed.written.at(output.name);
  const LaunchResult backward_changed = run.run_backward(backward_tensors);
  bool found = false;
  const auto compare_row = [&](const TensorView& a, const TensorView& b, const std::string& name) {
    const std::int64_t width = a.count() / rows;
    for (const std::int64_t row : {kept, rows - 1}) {
      if (!stays(row)) continue;
      const std::int64_t failed = differing_in_row(a, b, row, width);
      found |= failed > 0;
      run.add_relation({CheckId::Kind::row_independence, name}, Code::ac405, width, failed,
                       failed ? "row " + std::to_string(row) + " of '" + name + "' changes with other rows" : "",
                       failed ? first_differences(a, b, row * width, (row + 1) * width) : std::vector<Element>());
      if (kept == rows - 1) return;
    }
  };
  for (const std::string& name : contract.row_independent) {
    if (forward.written.contains(name))
      compare_row(forward.written.at(name).view(), forward_changed.written.at(name).view(), name);
    else if (backward.written.contains(name))
      compare_row(backward.written.at(name).view(), backward_changed.written.at(name).view(), name);
  }
  return found;
}

/// The first row in which a tensor whose rows do not mix holds a wrong number; -1 if none does.
std::int64_t wrong_row(const CaseRun& run, std::int64_t rows) {
  for (const CheckResult& check : run.checks) {
    if (check.failed == 0 || check.worst.empty() || !is_wrong_number(check.code) ||
        !named(run.op.signature.launch.row_independent, check.id.tensor))
      continue;
    for (const auto* list : {&run.outputs, &run.gradients})
      for (const Written& written : *list) {
        const std::vector<std::int64_t>& index = check.worst.front().index;
        if (written.name != check.id.tensor || std::ssize(index) != written.shape.rank) continue;
        std::int64_t at = 0;
        for (int axis = 0; axis < written.shape.rank; ++axis)
          at = at * written.shape[axis] + index[static_cast<std::size_t>(axis)];
        return at / std::max<std::int64_t>(written.shape.count() / rows, 1);
      }
  }
  return -1;
}

/// At some row; where numbers are wrong and that row does not change, at one that holds a wrong one: a leak may reach
/// few rows.
void check_row_independence(CaseRun& run, const LaunchResult& forward, const LaunchTensors& tensors,
                            const LaunchResult& backward) {
  if (run.op.signature.launch.row_dim.empty() || !run.reference.inputs_finite()) return;
  const std::int64_t rows = rows_of(run.op.signature, run.call);
  if (rows < 2) return;
  const Random random(run.call.seed, "kept row");
  const auto kept = static_cast<std::int64_t>(random.below(0, static_cast<std::uint64_t>(rows)));
  if (check_rows(run, rows, kept, forward, tensors, backward)) return;
  if (const std::int64_t wrong = wrong_row(run, rows); wrong >= 0 && wrong != kept)
    check_rows(run, rows, wrong, forward, tensors, backward);
}

}  // namespace

void check_relations(CaseRun& run, const LaunchResult& forward, const BackwardRun& backward) {
  if (run.op.signature.precision.atomics) return;  // the order may differ from call to call: no bitwise relation holds
  if (!check_repeats_and_poison(run, forward, backward.tensors, backward.result)) return;
  check_homogeneity(run, backward.tensors, backward.result);
  check_row_independence(run, forward, backward.tensors, backward.result);
  check_batch_invariance(run, forward, backward);
}

}  // namespace ampcheck::checks
