// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/audit/gate_audit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "checks/case/case_run.h"
#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "checks/zoo/zoo.h"
#include "src/error.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::checks::zoo {

namespace {

/// What a wrong answer is made from.
struct Answer {
  std::vector<double> right;  ///< the reference in the storage type
  std::vector<double> stale;  ///< the right answer of another seed
  Shape shape;
  Dtype dtype;
  std::uint64_t seed;
};
using Numbers64 = std::vector<double>;

Numbers64 in_storage(Dtype dtype, Numbers64 values) {
  if (is_float(dtype) && dtype != Dtype::fp64) round_values(format(dtype), RoundingMode{}, values, values);
  return values;
}

Numbers64 constant(const Answer& a, double value) { return in_storage(a.dtype, Numbers64(a.right.size(), value)); }

Numbers64 mean_of(const Answer& a) {
  double sum = 0;
  std::int64_t n = 0;
  for (const double v : a.right)
    if (std::isfinite(v)) {
      sum += v;
      ++n;
    }
  return constant(a, n == 0 ? 0 : sum / static_cast<double>(n));
}

Numbers64 middle_of(const Answer& a) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const double v : a.right)
    if (std::isfinite(v)) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
  return constant(a, low > high ? 0 : low / 2 + high / 2);
}

Numbers64 shuffled(const Answer& a) {
  Numbers64 out = a.right;
  const Random random(a.seed, "shuffled");
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random.below(i, i)]);  // Fisher & Yates
  return out;
}

Numbers64 without_last_tile(const Answer& a) {
  Numbers64 out = a.right;
  const std::int64_t columns = a.shape.rank == 0 ? 1 : a.shape.last(),
                     tile = std::min<std::int64_t>(32, (columns + 3) / 4);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (static_cast<std::int64_t>(i) % columns >= columns - tile) out[i] = 0;
  return out;
}

Numbers64 other_stride(const Answer& a) {
  Numbers64 out = a.right;
  const std::int64_t columns = a.shape.rank == 0 ? 1 : a.shape.last(),
                     rows = columns == 0 ? 0 : static_cast<std::int64_t>(out.size()) / columns;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      out[static_cast<std::size_t>(i * columns + j)] = a.right[static_cast<std::size_t>(j * rows + i)];
  return out;
}

/// The leading bits that the next shorter format has.
Numbers64 truncated(const Answer& a) {
  Numbers64 out = a.right;
  const FloatFormat& shorter = a.dtype == Dtype::fp32 ? kBf16 : kE5m2;
  round_values(shorter, {.rounding = Rounding::toward_zero, .overflow = Overflow::saturate}, out, out);
  return out;
}

Numbers64 biased(const Answer& a, double ulps) {
  Numbers64 out = a.right;
  const FloatFormat& f = format(a.dtype);
  for (double& v : out)
    if (std::isfinite(v) && v != 0)
      v += std::copysign(ulps * std::ldexp(1.0, std::max(std::ilogb(v), f.min_exponent()) - f.precision + 1), v);
  return in_storage(a.dtype, std::move(out));
}

Numbers64 scaled(const Answer& a, double factor) {
  Numbers64 out = a.right;
  for (double& v : out) v *= factor;
  return in_storage(a.dtype, std::move(out));
}

Numbers64 one_as(const Answer& a, double value) {
  Numbers64 out = a.right;
  if (!out.empty()) out[Random(a.seed, "one element").below(0, out.size())] = value;
  return out;
}

struct Surrogate {
  const char *name, *what;
  bool uninformed;
  Numbers64 (*make)(const Answer&);
};

const Surrogate kSurrogates[] = {
    {"zeros", "all zero", true, [](const Answer& a) { return constant(a, 0); }},
    {"mean", "everywhere the mean of the right answer", true, mean_of},
    {"middle", "everywhere the middle of its range", true, middle_of},
    {"shuffled", "the right numbers in another order", true, shuffled},
    {"stale", "the right answer to other inputs", true, [](const Answer& a) { return a.stale; }},
    {"negated", "the other sign", false, [](const Answer& a) { return scaled(a, -1); }},
    {"last tile dropped", "the last columns are zero", false, without_last_tile},
    {"swapped stride", "read with the strides of the transposed tensor", false, other_stride},
    {"truncated", "the leading bits alone: bf16's of fp32, e5m2's of 16-bit types", false, truncated},
    {"4 ulp bias", "4 ulp farther from zero", false, [](const Answer& a) { return biased(a, 4); }},
    {"10 % too large", "times 1.1", false, [](const Answer& a) { return scaled(a, 1.1); }},
    {"one zero", "one element is zero", false, [](const Answer& a) { return one_as(a, 0); }},
    {"one NaN", "one element is NaN", false, [](const Answer& a) { return one_as(a, NAN); }},
};

/// One tensor of one case: what is right, and what the rule gets for it.
struct Gated {
  std::string name;
  Pass pass = Pass::forward;
  const Written* written = nullptr;
  std::vector<Interval> forms;
  Answer answer;
  std::vector<double> want, eager;

  bool open(std::size_t i) const { return unjudged(forms.front(), i); }
  /// Some element lies outside the interval of every form.
  bool wrong(const Numbers64& got) const {
    for (std::size_t i = 0; i < got.size(); ++i)
      if (!open(i) && std::none_of(forms.begin(), forms.end(), [&](const Interval& form) {
            return admits(form, static_cast<std::int64_t>(i), got[i]);
          }))
        return true;
    return false;
  }
  /// What no interval judges is left out.
  bool accepted(const GateRule& rule, const Numbers64& got) const {
    Compared seen{written->dtype, {}, {}, {}};
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (open(i)) continue;
      seen.got.push_back(got[i]);
      seen.want.push_back(want[i]);
      if (!eager.empty()) seen.eager.push_back(eager[i]);
    }
    return accepts(rule, seen);
  }
};

/// One case with the op's right answers.
struct GatedCase {
  OpCall call;
  RunOptions options;
  CaseRun run;
  std::vector<Gated> tensors;

  GatedCase(const OpDef& op, const OpCall& call_in, bool rounded_reference) : call(call_in), run(op, call, options) {
    for (const Written& output : run.outputs)
      if (!output.saved) add(output, Pass::forward, rounded_reference);
    if (!run.gradients.empty()) run.cotangents(0);
    for (const Written& gradient : run.gradients) add(gradient, Pass::backward, rounded_reference);
    OpCall other = call_in;
    other.seed += 1000;
    if (is_file_range(call.range) || is_real_range(call.range)) {
      make_stale(nullptr);
    } else {
      CaseRun stale(op, other, options);
      make_stale(&stale);
    }
  }

 private:
  void add(const Written& tensor, Pass pass, bool rounded_reference) {
    Gated out;
    out.name = tensor.name;
    out.pass = pass;
    out.written = &tensor;
    const std::vector<double> held =
        pass == Pass::backward && run.accumulates(tensor.name) ? run.held(tensor) : std::vector<double>();
    for (const std::size_t form : run.reference.forms())
      out.forms.push_back(run.reference.interval(form, pass, tensor.name, tensor.dtype, held));
    const Interval& first = out.forms.front();
    out.want.assign(first.value.begin(), first.value.end());
    out.answer = {in_storage(tensor.dtype, out.want), {}, tensor.shape, tensor.dtype, call.seed};
    if (rounded_reference) out.want = out.answer.right;
    tensors.push_back(std::move(out));
  }
  /// Without another call (the tensors of a file have no seed) rows move on by one.
  void make_stale(CaseRun* other) {
    if (other != nullptr && !other->gradients.empty()) other->cotangents(0);
    for (Gated& t : tensors) {
      if (other != nullptr) {
        const Interval interval =
            other->reference.interval(other->reference.forms().front(), t.pass, t.name, t.written->dtype);
        t.answer.stale = in_storage(t.written->dtype, {interval.value.begin(), interval.value.end()});
      } else {
        t.answer.stale = t.answer.right;
        std::rotate(t.answer.stale.begin(),
                    t.answer.stale.begin() + static_cast<std::ptrdiff_t>(t.answer.stale.size() / 3),
                    t.answer.stale.end());
      }
    }
  }
};

/// What a kernel writes for the tensors of a case, in their order. Throws what the kernel throws.
std::vector<Numbers64> written_by(const OpDef& op, GatedCase& at) {
  const LaunchResult forward =
      launch(op.kernel.forward, at.run.forward_tensors(at.run.reference.inputs(), 0), at.call.attributes, Device::cpu);
  LaunchResult backward;
  if (!at.run.gradients.empty())
    backward =
        launch(op.kernel.backward, at.run.backward_tensors(at.run.reference.inputs(), forward, at.run.cotangents(0), 0),
               at.call.attributes, Device::cpu);
  std::vector<Numbers64> out;
  for (const Gated& t : at.tensors)
    out.push_back(to_doubles((t.pass == Pass::forward ? forward : backward).written.at(t.name).view()));
  return out;
}

void try_right(const GateRule& rule, const std::string& case_name, const Gated& t, GatedTensor& out) {
  const Interval& interval = t.forms.front();
  for (std::size_t i = 0; i < t.want.size(); ++i) {
    if (t.open(i) || !std::isfinite(interval.low[i]) || !std::isfinite(interval.high[i])) continue;
    out.widest_ulp =
        std::max(out.widest_ulp, ulp_distance(format(t.written->dtype), interval.low[i], interval.high[i]));
    out.widest =
        std::max({out.widest, std::fabs(interval.low[i] - t.want[i]), std::fabs(interval.high[i] - t.want[i])});
  }
  if (t.accepted(rule, t.answer.right)) return;
  if (out.right_rejected++ > 0) return;
  out.rejected_case = case_name;
  double farthest = -HUGE_VAL;
  for (std::size_t i = 0; i < t.want.size(); ++i) {
    const double beyond = std::fabs(t.answer.right[i] - t.want[i]) - rule.rtol * std::fabs(t.want[i]);
    if (!t.open(i) && beyond > farthest) {
      farthest = beyond;
      out.index = static_cast<std::int64_t>(i);
      out.right = t.answer.right[i];
      out.want = t.want[i];
    }
  }
}

void try_surrogates(const GateRule& rule, const Gated& t, GatedTensor& out) {
  for (std::size_t k = 0; k < std::size(kSurrogates); ++k) {
    const Numbers64 got = kSurrogates[k].make(t.answer);
    if (!t.wrong(got)) continue;
    ++out.surrogates[k].wrong;
    out.surrogates[k].accepted += t.accepted(rule, got);
  }
}

void try_kernels(const OpDef& op, const GateRule& rule, GatedCase& at, std::vector<GatedKernel>& kernels) {
  std::size_t k = 0;
  for (const Specimen& specimen : specimens()) {
    if (specimen.unseen || !specimen.equivalent.empty()) continue;
    if (!specimen.name().starts_with(op.signature.name + ".")) continue;
    if (std::find(specimen.dtypes.begin(), specimen.dtypes.end(), at.call.storage) == specimen.dtypes.end()) continue;
    if (k == kernels.size()) kernels.push_back({specimen.name(), specimen.what, !specimen.correct()});
    GatedKernel& kernel = kernels[k++];
    try {
      const std::vector<Numbers64> got = written_by(specimen.op, at);
      for (std::size_t i = 0; i < got.size(); ++i) {
        kernel.visible |= at.tensors[i].wrong(got[i]);
        kernel.accepted &= at.tensors[i].accepted(rule, got[i]);
      }
    } catch (const std::exception&) {  // every test sees a kernel that throws
      kernel.visible = true;
      kernel.accepted = false;
    }
  }
}

}  // namespace

bool SurrogateScore::says_nothing() const {
  return uninformed && wrong > 0 && (accepted == wrong || (zeros && accepted > 0));
}

bool GatedTensor::vacuous() const {
  return std::any_of(surrogates.begin(), surrogates.end(), [](const SurrogateScore& s) { return s.says_nothing(); });
}

bool GateAudit::vacuous() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const GatedTensor& t) { return t.vacuous(); });
}
bool GateAudit::too_tight() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const GatedTensor& t) { return t.right_rejected > 0; });
}

bool everyday(const OpSignature& signature, const OpCall& call) {
  if (call.range != "normal" || call.cotangent != "mixed" || call.layout != "dense" || !call.absent.empty() ||
      !call.dtypes.empty())
    return false;
  for (const AttributeSpec& attribute : signature.attributes)
    if (call.attributes.all().at(attribute.name) != attribute.default_value) return false;
  for (const std::size_t k : {0u, 1u, 2u})
    if (std::all_of(signature.dims.begin(), signature.dims.end(),
                    [&](const DimSpec& dim) { return call.dims.at(dim.symbol) == dim.standard[k]; }))
      return true;
  return false;
}

std::vector<OpCall> everyday_cases(const OpSignature& signature, Dtype storage, std::uint64_t seed) {
  std::vector<OpCall> out;
  for (const std::size_t k : {0u, 1u, 2u}) {
    OpCall call = default_call(signature, storage);
    call.seed = seed;
    call.cotangent = "normal";  // what a test draws
    for (const DimSpec& dim : signature.dims) call.dims[dim.symbol] = dim.standard[k];
    const bool known = std::any_of(out.begin(), out.end(), [&](const OpCall& c) { return c.dims == call.dims; });
    if (!known && (!signature.valid || signature.valid(call.dims, call.attributes))) out.push_back(std::move(call));
  }
  return out;
}

GateAudit audit_gate(const OpDef& op, const std::vector<OpCall>& calls, const GateAuditOptions& options) {
  if (op.forms.empty())
    throw Error("[audit gate] got '" + op.signature.name + "', which has no formula, want an op with one");
  GateAudit out;
  out.op = op.signature.name;
  out.rule = options.rule;
  for (const OpCall& call : calls) {
    GatedCase at(op, call, options.rounded_reference);
    out.dtype = call.storage;
    ++out.cases;
    if (op.kernel.forward) {
      const std::vector<Numbers64> eager = written_by(op, at);
      for (std::size_t i = 0; i < eager.size(); ++i) at.tensors[i].eager = eager[i];
    } else if (options.rule.kind == GateRule::Kind::factor) {
      throw Error("[audit gate] got a rule by the error of a kernel and an op without one, want another rule");
    }
    for (std::size_t i = 0; i < at.tensors.size(); ++i) {
      if (out.tensors.size() == i) {
        out.tensors.push_back({.name = at.tensors[i].name});
        for (const Surrogate& s : kSurrogates)
          out.tensors[i].surrogates.push_back({s.name, s.what, s.uninformed, &s == std::begin(kSurrogates)});
      }
      ++out.tensors[i].tensors;
      try_right(options.rule, call.str(op.signature), at.tensors[i], out.tensors[i]);
      try_surrogates(options.rule, at.tensors[i], out.tensors[i]);
    }
    try_kernels(op, options.rule, at, out.kernels);
  }
  return out;
}

}  // namespace ampcheck::checks::zoo
