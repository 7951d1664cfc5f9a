// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/bias.h"

#include "checks/case/sign_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <set>

#include "checks/judge/judge.h"
#include "reference/replay/replay.h"
#include "src/error.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

using reference::Expr;

constexpr std::int64_t kLong =
    256;  ///< of the axis that is summed; extents are powers of four, so that 1/n and 1/sqrt(n) are exact

std::optional<Expr> node_named(const std::vector<std::pair<std::string, Expr>>& nodes, const std::string& name) {
  for (const auto& [key, node] : nodes)
    if (key == name) return node;
  return std::nullopt;
}

/// The leaf of that name: an input in a forward, a cotangent in a backward.
std::optional<Expr> source_of(const reference::Recording& recording, Pass pass, const std::string& name) {
  const auto& leaves = pass == Pass::forward ? recording.inputs : recording.cotangents;
  const auto found = leaves.find(name);
  return found == leaves.end() ? std::nullopt : std::optional(found->second);
}

/// One tensor under test.
struct Tested {
  const Written* tensor = nullptr;
  std::vector<std::size_t> elements;  ///< whose large numbers cancel
  int draws = 0, up = 0,
      inward = 0;  ///< draws that are not 0; of these, above 0; of these, toward zero from where the partial sums stand
  std::vector<int> shown;  ///< the first of these draws
};

/// Where large numbers stand: +1, -1, 0 for small ones.
std::vector<int> places_of(const Shape& shape, int axis) {
  std::vector<int> out(static_cast<std::size_t>(shape.count()));
  std::int64_t inner = 1;
  for (int k = axis + 1; k < shape.rank; ++k) inner *= shape[k];
  const std::int64_t extent = shape[axis], large = extent / 8;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i) / inner % extent;
    out[i] = at < large ? 1 : at >= extent - large ? -1 : 0;
  }
  return out;
}

/// Runs the pairs of one source along one axis.
class Mirrored {
 public:
  Mirrored(CaseRun& run, Pass pass, std::string source, const Shape& shape, Dtype dtype, int axis,
           const NamedValues& quiet, const LaunchResult* forward)
      : run_(run),
        pass_(pass),
        source_(std::move(source)),
        dtype_(dtype),
        places_(places_of(shape, axis)),
        quiet_(quiet),
        forward_(forward),
        stream_("bias " + source_ + " " + std::to_string(axis)) {}

  /// Those of the tensors that hold elements for the test, in every form of the op.
  std::vector<Tested> tested(const std::vector<Written>& tensors, const std::set<std::string>& done) {
    std::vector<Tested> out;
    const bool truncates = run_.op.signature.precision.accumulate.core != TensorCore::none;
    for (const Written& tensor : tensors) {
      if (tensor.saved || done.contains(tensor.name) || !is_float(tensor.dtype)) continue;
      const std::vector<std::size_t> forms = run_.reference.forms();
      const bool alike = std::all_of(forms.begin(), forms.end(), [&](std::size_t form) {
        const reference::Recording& recording = run_.reference.recording(form);
        const auto source = source_of(recording, pass_, source_),
                   target = node_named(nodes_of(recording, pass_), tensor.name);
        return source && target && sums_alike(recording, *source, *target, quiet_) &&
               !(truncates && enters_product(*recording.graph, *source, *target));
      });
      if (!alike) continue;
      Tested test{.tensor = &tensor, .elements = cancelling(tensor.name)};
      if (!test.elements.empty()) out.push_back(std::move(test));
    }
    return out;
  }

  /// One pair of runs: the sign of got(d) + got(-d), summed over the elements, of each tensor.
  void draw(int number, std::vector<Tested>& tests) {
    const double base = base_of(number);
    const LaunchResult a = launched(values(number, base, 1)), b = launched(values(number, base, -1));
    for (Tested& test : tests) {
      const std::vector<double> x = to_doubles(a.written.at(test.tensor->name).view()),
                                y = to_doubles(b.written.at(test.tensor->name).view());
      std::int64_t balance = 0;
      for (const std::size_t i : test.elements) {
        const double both = x[i] + y[i];
        balance += both > 0 ? 1 : both < 0 ? -1 : 0;
      }
      if (balance == 0) continue;
      ++test.draws;
      test.up += balance > 0;
      if (test.shown.size() < kRepeated) test.shown.push_back(number);
      test.inward += (balance > 0 ? 1.0 : -1.0) != base;
    }
  }

  /// Whether the same call gives the same bits of these tensors, at draws where their order of summation shows. What
  /// does not is reported.
  bool repeats(CaseRun& outer, const std::vector<Tested>& tests) {
    std::set<int> numbers;
    for (const Tested& test : tests) numbers.insert(test.shown.begin(), test.shown.end());
    std::int64_t all = 0;
    for (const int number : numbers) {
      const NamedValues given = values(number, base_of(number), 1);
      const LaunchResult first = launched(given);
      for (int k = 0; k < 2; ++k) {
        const LaunchResult again = launched(given);
        for (const Tested& test : tests) all += report_differing(outer, test.tensor->name, first, again);
      }
    }
    return all == 0;
  }

  /// Whether the judge finds nothing wrong with the tensor at a draw: what lies outside its interval is no matter of
  /// statistics.
  bool inside(int number, const Tested& test) {
    const NamedValues given = values(number, 1, 1);
    const LaunchResult result = launched(given, true);
    const std::vector<Subject> subjects{
        {{CheckId::Kind::bias, test.tensor->name}, test.tensor, result.written.at(test.tensor->name).view()}};
    if (pass_ == Pass::forward) {
      CaseRun at(run_.op, run_.call, run_.options, given);
      return judge(at, subjects, pass_).front().failed == 0;
    }
    NamedValues cotangents;
    for (const auto& [name, node] : run_.reference.recording().cotangents) cotangents[name] = given.at(name);
    run_.reference.set_cotangents(std::move(cotangents));
    return judge(run_, subjects, pass_).front().failed == 0;
  }

 private:
  static constexpr std::size_t kRepeated = 4;  ///< draws of a tensor that are repeated
  static double base_of(int number) { return (number & 1) != 0 ? -1.0 : 1.0; }

  static std::int64_t report_differing(CaseRun& outer, const std::string& name, const LaunchResult& first,
                                       const LaunchResult& again) {
    const std::int64_t changed = differing(first.written.at(name), again.written.at(name));
    outer.add_relation({CheckId::Kind::repeats, name}, Code::ac404, first.written.at(name).view().count(), changed,
                       changed == 0 ? "" : "differs from call to call, where large terms cancel");
    return changed;
  }

  /// Large and small numbers of a draw; of the other leaves the quiet ones.
  NamedValues values(int number, double base, double sign) const {
    const Random random(run_.call.seed, stream_ + " " + std::to_string(number));
    const bool fp16 = dtype_ == Dtype::fp16;  // its range ends soon
    const double large = base * std::ldexp(static_cast<double>(129 + 2 * random.below(0, 64)), fp16 ? 2 : -7);
    // All small numbers together stay below C / 2^10, far less than what separates multiples of C from powers of two.
    const int bits = static_cast<int>(std::bit_width(places_.size()));
    NamedValues out = quiet_;
    std::vector<double>& to = out[source_];
    to.resize(places_.size());
    for (std::size_t i = 0; i < to.size(); ++i) {
      const double small = std::ldexp(1 + random.uniform(i + 1), (fp16 ? 9 : 0) - 11 - bits);
      to[i] = places_[i] != 0 ? places_[i] * large : (random.bits(i + 1) & 1) != 0 ? small : -small;
    }
    round_values(format(dtype_), RoundingMode{}, to, to);
    for (std::size_t i = 0; i < to.size(); ++i)
      if (places_[i] == 0) to[i] *= sign;
    return out;
  }

  /// `held`: buffers that are added to hold what the judge takes them to hold; otherwise zero, which is its own mirror
  /// image.
  LaunchResult launched(const NamedValues& given, bool held = false) const {
    LaunchTensors tensors = pass_ == Pass::forward
                                ? run_.forward_tensors(given, 0)
                                : run_.backward_tensors(run_.reference.inputs(), *forward_, given, 0);
    for (auto& [name, tensor] : tensors.write)
      if (!held && run_.accumulates(name))
        tensor.assign(std::vector<double>(static_cast<std::size_t>(tensor.view().count()), 0.0));
    return pass_ == Pass::forward ? run_.run_forward(tensors) : run_.run_backward(tensors);
  }

  /// Elements of a target to which large numbers contribute, and cancel: exact sums, in whatever precision and order.
  std::vector<std::size_t> cancelling(const std::string& name) {
    const reference::Recording& recording = run_.reference.recording(run_.reference.forms().front());
    const Expr target = *node_named(nodes_of(recording, pass_), name);
    NamedValues signs = quiet_, sizes = quiet_;
    signs[source_].assign(places_.begin(), places_.end());
    sizes[source_] = signs[source_];
    for (double& v : sizes[source_]) v = std::fabs(v);
    const std::vector<double> balance =
        reference::replay(*recording.graph, leaves_of(recording, signs), {target}, {}).front();
    const std::vector<double> mass =
        reference::replay(*recording.graph, leaves_of(recording, sizes), {target}, {}).front();
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < mass.size(); ++i)
      if (balance[i] == 0 && mass[i] != 0) out.push_back(i);
    return out;
  }

  CaseRun& run_;
  Pass pass_;
  std::string source_;
  Dtype dtype_;
  std::vector<int> places_;
  const NamedValues& quiet_;
  const LaunchResult* forward_;
  std::string stream_;
};

/// Ones, and zeros where something is added; integers that mean no sentinel.
NamedValues quiet_inputs(const OpSignature& signature, const OpCall& call) {
  NamedValues out;
  for (const TensorSpec& spec : signature.inputs) {
    if (!call.has(spec)) continue;
    double value = spec.role == Role::bias ? 0 : 1;
    const auto bound = call.dims.find(spec.index_dim);
    if (spec.role == Role::index || spec.role == Role::target) {
      const auto taken = [&](double v) {
        return std::any_of(signature.attributes.begin(), signature.attributes.end(), [&](const AttributeSpec& a) {
          return a.is_sentinel() && call.attributes.number(a.name) == v;
        });
      };
      value = bound != call.dims.end() && bound->second < 2 ? 0 : taken(1) ? 0 : 1;
    }
    out[spec.name].assign(static_cast<std::size_t>(call.shape(spec).count()), value);
  }
  return out;
}

/// The call with one long axis, the others as short as the op allows.
std::optional<OpCall> long_call(const OpSignature& signature, const OpCall& call, const std::string& symbol) {
  for (const std::int64_t others : {4, 16, 0}) {  // 0: as they are
    OpCall out = call;
    for (const DimSpec& dim : signature.dims)
      if (others != 0) out.dims[dim.symbol] = others;
    out.dims[symbol] = kLong;
    if (signature.valid && !signature.valid(out.dims, out.attributes)) continue;
    const bool small = std::all_of(signature.inputs.begin(), signature.inputs.end(), [&](const TensorSpec& spec) {
      return !out.has(spec) || out.shape(spec).count() <= 64 * kLong;
    });
    if (small) return out;
  }
  return std::nullopt;
}

std::string words_of(const Tested& test, const std::string& shape, double p, bool by_value) {
  const int most = by_value ? std::max(test.inward, test.draws - test.inward) : std::max(test.up, test.draws - test.up);
  const char* where = by_value
                          ? (2 * test.inward > test.draws ? "toward zero: its accumulator truncates" : "away from zero")
                      : 2 * test.up > test.draws ? "up"
                                                 : "down";
  return fmt::format(
      "sums round {}; at {} in {} of {} draws of mirrored data, p = {:.1g} (sign test, {:g} allowed: {:g} a run, {} "
      "looks)",
      where, shape, most, test.draws, p, kBiasAlarm / kBiasLooks, kBiasAlarm, kBiasLooks);
}

/// What the draws say of one tensor.
void conclude(CaseRun& outer, Mirrored& mirrored, const Tested& test, int draws, const std::string& shape) {
  CheckResult check;
  check.id = {CheckId::Kind::bias, test.tensor->name};
  check.dtype = test.tensor->dtype;
  check.compared = draws * std::ssize(test.elements);
  const double by_value = sign_test(test.inward, test.draws), by_sign = sign_test(test.up, test.draws),
               p = std::min(by_value, by_sign);
  if (draws == kBiasDraws && p < kBiasAlarm / kBiasLooks && mirrored.inside(0, test)) {
    // Toward zero whatever the sign: an accumulator that drops bits, which is another contract.
    check.find(by_value <= by_sign && 2 * test.inward > test.draws ? Code::ac305 : Code::ac105);
    check.failed = check.compared;
    check.cause = words_of(test, shape, p, by_value <= by_sign);
  }
  outer.add(std::move(check));
}

/// The leaves of a pass that may hold the large and small numbers.
struct Source {
  std::string name;
  Shape shape;
  Dtype dtype;
};

std::vector<Source> sources_of(const CaseRun& run, Pass pass) {
  std::vector<Source> out;
  if (pass == Pass::forward) {
    for (const TensorSpec& spec : run.op.signature.inputs)
      if (run.call.has(spec) && is_float(run.call.dtype(spec)) && spec.domain == Domain::any &&
          spec.role != Role::bias && spec.role != Role::mask)
        out.push_back({spec.name, run.call.shape(spec), run.call.dtype(spec)});
    return out;
  }
  for (const Written& output : run.outputs)
    if (!output.saved && is_float(output.dtype))
      out.push_back({gradient_name(output.name), output.shape, output.dtype});
  return out;
}

/// Every source and long axis of a pass. `done`: tensors tested so far.
void examine_pass(CaseRun& outer, CaseRun& run, Pass pass, const NamedValues& quiet, const LaunchResult* forward,
                  std::set<std::string>& done) {
  for (const Source& source : sources_of(run, pass))
    for (int axis = 0; axis < source.shape.rank; ++axis) {
      if (source.shape[axis] < kLong) continue;
      Mirrored mirrored(run, pass, source.name, source.shape, source.dtype, axis, quiet, forward);
      std::vector<Tested> tests = mirrored.tested(pass == Pass::forward ? run.outputs : run.gradients, done);
      if (tests.empty()) continue;
      int draws = 0;
      const auto any = [&] {
        return std::any_of(tests.begin(), tests.end(), [](const Tested& t) { return t.draws > 0; });
      };
      while (draws < kFirstDraws || (draws < kBiasDraws && any())) mirrored.draw(draws++, tests);
      // A kernel that repeats and is no mirror is biased or rounds by no rule; one that does not repeat is neither, but
      // must say so.
      if (any() && !outer.op.signature.precision.atomics && !mirrored.repeats(outer, tests)) draws = 0;
      for (const Tested& test : tests) {
        conclude(outer, mirrored, test, draws, source.name + source.shape.str());
        done.insert(test.tensor->name);
      }
    }
}

void examine(CaseRun& outer, const OpCall& call, std::set<std::string>& done) {
  RunOptions options = outer.options;
  options.explain = options.power = false;
  NamedValues quiet = quiet_inputs(outer.op.signature, call);
  CaseRun run(outer.op, call, options, quiet);
  for (const auto& [name, node] : run.reference.recording().cotangents)
    quiet[name].assign(static_cast<std::size_t>(node.shape().count()), 0.0);
  examine_pass(outer, run, Pass::forward, quiet, nullptr, done);
  if (run.gradients.empty()) return;
  const LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
  examine_pass(outer, run, Pass::backward, quiet, &forward, done);
}

/// Outputs and gradients that are sums of a leaf's elements.
std::set<std::string> sums_of(CaseRun& run) {
  const reference::Recording& recording = run.reference.recording(run.reference.forms().front());
  std::set<std::string> out;
  for (const Pass pass : {Pass::forward, Pass::backward})
    for (const auto& [name, leaf] : pass == Pass::forward ? recording.inputs : recording.cotangents)
      for (const auto& [target, node] : nodes_of(recording, pass))
        if (is_sum_of(*recording.graph, leaf, node)) out.insert(target);
  return out;
}

}  // namespace

std::set<std::string> convicted_tensors(const CaseRun& run) {
  std::set<std::string> out;
  for (const CheckResult& check : run.checks)
    for (const std::vector<Written>* written : {&run.outputs, &run.gradients})
      for (const Written& tensor : *written)
        if (convicts(check.verdict) && check.id.tensor == tensor.name &&
            check.id.kind == (written == &run.outputs ? CheckId::Kind::forward : CheckId::Kind::backward))
          out.insert(tensor.name);
  return out;
}

void check_bias(CaseRun& run) {
  OpCall usual = default_call(run.op.signature, run.call.storage);
  usual.seed = run.call.seed;
  const OpSignature& signature = run.op.signature;
  // In a shorter accumulator the multiples of C are not exact, and nothing is mirrored.
  if (run.options.device != Device::cpu || run.op.forms.empty() || signature.precision.accumulate.dtype != Dtype::fp32)
    return;
  if (run.call.str(signature) != usual.str(signature)) return;
  const std::set<std::string> sums = sums_of(run);
  std::set<std::string> done = convicted_tensors(run);
  for (const DimSpec& dim : signature.dims) {
    const std::optional<OpCall> call = long_call(signature, usual, dim.symbol);
    if (!call || std::includes(done.begin(), done.end(), sums.begin(), sums.end())) continue;
    try {
      examine(run, *call, done);
    } catch (const EnvironmentError&) {
      throw;
    } catch (const std::exception& error) {  // a shape that the kernel refuses is a matter of the cases that have it
      CheckResult check;
      check.id = {.kind = CheckId::Kind::bias_untested, .dim = dim.symbol};
      check.dtype = usual.storage;
      check.verdict = Verdict::skipped;
      check.note = fmt::format("sums not tested for bias at '{}': {}", call->str(signature), error.what());
      run.add(std::move(check));
    }
  }
}

std::vector<std::string> untested_bias(const std::vector<CaseResult>& cases) {
  std::vector<std::string> out;
  std::set<std::pair<std::string, CheckId>> said;
  for (const CaseResult& result : cases)
    for (const CheckResult& check : result.checks)
      if (check.verdict == Verdict::skipped && check.id.kind == CheckId::Kind::bias_untested &&
          said.insert({result.op, check.id}).second)
        out.push_back(result.op + ": " + check.note);
  return out;
}

}  // namespace ampcheck::checks
