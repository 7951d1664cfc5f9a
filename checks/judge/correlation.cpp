// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/correlation.h"

#include "checks/case/sign_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>

#include "checks/data/regimes.h"
#include "checks/judge/bias.h"
#include "checks/judge/judge.h"
#include "reference/replay/replay.h"
#include "src/error.h"
#include "src/random.h"

namespace ampcheck::checks {

RowErrors row_errors(const std::vector<double>& got, const std::vector<double>& exact, std::size_t columns) {
  RowErrors out;
  for (std::size_t row = 0; columns > 0 && row + columns <= exact.size(); row += columns) {
    double along = 0, errors = 0, size = 0;
    for (std::size_t i = row; i < row + columns; ++i) {
      const double e = got[i] - exact[i];
      along += e * exact[i];
      errors += e;
      size += exact[i] * exact[i];
    }
    if (size == 0) continue;
    const double mean = errors / static_cast<double>(columns);
    out.factor += along / size * (along / size);
    out.shift += mean * mean / (size / static_cast<double>(columns));
  }
  return out;
}

namespace {

constexpr std::int64_t kRows = 16;
constexpr int kFlips = 15;               ///< one of 16 is the largest with a chance of 1/16
constexpr std::int64_t kLargest = 4096;  ///< elements of a tensor

/// The most that the contract lets a function of this form err, in ulp; at least 1, which leaves room for one more
/// rounding (a factor 1/n).
double allowance(const reference::Graph& graph, const MathSet& math) {
  double most = 1;
  for (const reference::Node& node : graph.nodes()) switch (node.primitive) {
      case reference::Primitive::exp:
      case reference::Primitive::sigmoid: most = std::max(most, math.exp); break;
      case reference::Primitive::expm1: most = std::max(most, math.expm1); break;
      case reference::Primitive::log: most = std::max(most, math.log); break;
      case reference::Primitive::log1p: most = std::max(most, math.log1p); break;
      case reference::Primitive::tanh: most = std::max(most, math.tanh); break;
      case reference::Primitive::erf: most = std::max(most, math.erf); break;
      case reference::Primitive::erfc: most = std::max(most, math.erfc); break;
      case reference::Primitive::sin:
      case reference::Primitive::cos: most = std::max(most, reference::kTrigonometricUlp); break;
      case reference::Primitive::sqrt: most = std::max(most, math.sqrt); break;
      case reference::Primitive::rsqrt: most = std::max(most, math.rsqrt); break;
      case reference::Primitive::pow: most = std::max(most, math.pow); break;
      default: break;
    }
  return most;
}

/// One tensor under test.
struct Tested {
  const Written* tensor = nullptr;
  Pass pass = Pass::forward;
  int factor = 0, shift = 0;  ///< draws in which the kernel's statistic exceeds every replay's
  bool inside = true;         ///< at the first draw
  std::int64_t compared = 0;
  double size = 0;  ///< of the row factors, squared, summed over draws and rows

  std::size_t columns() const { return static_cast<std::size_t>(tensor->shape.last()); }
  std::int64_t rows() const { return tensor->shape.count() / tensor->shape.last(); }
};

/// The largest statistics of the contract's replays; those that are not numbers do not count.
RowErrors largest_replay(CaseRun& run, const Tested& test, const std::vector<double>& exact, std::uint64_t seed) {
  using enum reference::SumOrder;
  RowErrors out;
  std::uint64_t number = 0;
  for (const std::size_t form : run.reference.forms()) {
    const reference::Recording& recording = run.reference.recording(form);
    for (const auto& [name, node] : nodes_of(recording, test.pass)) {
      if (name != test.tensor->name) continue;
      for (int k = 0; k < 8; ++k) {
        const reference::SumOrder orders[] = {sequential, lanes32, pairwise, reversed};
        const double most = allowance(*recording.graph, run.op.signature.precision.math);
        const reference::ReplayOptions options{
            .order = orders[k / 2], .scatter = most, .one_sided = k % 2 != 0, .seed = seed + number++};
        const RowErrors one = row_errors(
            reference::replay(*recording.graph, run.reference.leaves(form, test.pass), {node}, options).front(), exact,
            test.columns());
        out.factor = std::max(out.factor, one.factor);
        out.shift = std::max(out.shift, one.shift);
      }
    }
  }
  return out;
}

/// The largest statistics of the kernel's own errors with signs drawn afresh, element by element: what it would show if
/// its errors were independent.
RowErrors largest_flipped(const std::vector<double>& got, const std::vector<double>& exact, std::size_t columns,
                          std::uint64_t seed) {
  RowErrors out;
  for (int flip = 0; flip < kFlips; ++flip) {
    const Random random(seed, "correlation flip " + std::to_string(flip));
    std::vector<double> flipped = got;
    for (std::size_t i = 0; i < got.size(); ++i)
      if ((random.bits(i) & 1) != 0) flipped[i] = 2 * exact[i] - got[i];
    const RowErrors one = row_errors(flipped, exact, columns);
    out.factor = std::max(out.factor, one.factor);
    out.shift = std::max(out.shift, one.shift);
  }
  return out;
}

/// Tensors of a case at a fresh seed, held against the replays.
class Draws {
 public:
  Draws(CaseRun& outer, const OpCall& call) : outer_(outer), call_(call), options_(outer.options) {
    options_.explain = options_.power = false;
  }

  /// Those of the tensors that have rows to test.
  std::vector<Tested> tested() const {
    const CaseRun run(outer_.op, call_, options_);
    const std::set<std::string> convicted = convicted_tensors(outer_);
    std::vector<Tested> out;
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (const Written& tensor : pass == Pass::forward ? outer_.outputs : outer_.gradients) {
        const std::vector<Written>& now = pass == Pass::forward ? run.outputs : run.gradients;
        const Shape& shape =
            now[static_cast<std::size_t>(&tensor - (pass == Pass::forward ? outer_.outputs : outer_.gradients).data())]
                .shape;
        if (tensor.saved || tensor.dtype != Dtype::fp32 || convicted.contains(tensor.name) ||
            outer_.accumulates(tensor.name))
          continue;
        if (shape.rank < 2 || shape.last() < 4 || shape.count() / shape.last() < kFewestRows ||
            shape.count() > kLargest)
          continue;
        out.push_back({.tensor = &tensor, .pass = pass});
      }
    return out;
  }

  void draw(int number, std::vector<Tested>& tests) {
    OpCall call = call_;
    call.seed = Random(outer_.call.seed, "correlation").bits(static_cast<std::uint64_t>(number)) >> 32;
    CaseRun run(outer_.op, call, options_);
    const LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
    std::optional<LaunchResult> backward;
    for (Tested& test : tests) {
      if (test.pass == Pass::backward && !backward)
        backward = run.run_backward(
            run.backward_tensors(run.reference.inputs(), forward, run.cotangents(relations_probe(call)), 0));
      look(run, number, test.pass == Pass::forward ? forward : *backward, call.seed, test);
    }
  }

 private:
  /// The same tensor of another case of the op.
  static const Written& same(const CaseRun& run, const Tested& test) {
    const std::vector<Written>& all = test.pass == Pass::forward ? run.outputs : run.gradients;
    return *std::find_if(all.begin(), all.end(), [&](const Written& w) { return w.name == test.tensor->name; });
  }

  static void look(CaseRun& run, int number, const LaunchResult& result, std::uint64_t seed, Tested& test) {
    Tested here = test;
    here.tensor = &same(run, test);
    const TensorView view = result.written.at(here.tensor->name).view();
    const std::vector<double> got = to_doubles(view), exact = run.reference.values(test.pass, here.tensor->name);
    const RowErrors errors = row_errors(got, exact, here.columns()),
                    independent = largest_flipped(got, exact, here.columns(), seed);
    test.compared += std::ssize(got);
    // Replays take most of the time, and independent errors seldom exceed all of their flips.
    const bool exceeds = errors.factor > independent.factor || errors.shift > independent.shift;
    const RowErrors replays = exceeds ? largest_replay(run, here, exact, seed) : RowErrors();
    test.factor += errors.factor > std::max(replays.factor, independent.factor);
    test.shift += errors.shift > std::max(replays.shift, independent.shift);
    test.size += std::max(errors.factor, errors.shift) / static_cast<double>(here.rows());
    if (number == 0)
      test.inside = judge(run, {{{CheckId::Kind::correlation, here.tensor->name}, here.tensor, view}}, test.pass)
                        .front()
                        .failed == 0;
  }

  CaseRun& outer_;
  OpCall call_;
  RunOptions options_;
};

/// The call at which rows are long and many enough, and tensors small.
OpCall rows_call(const OpSignature& signature, const OpCall& usual) {
  const std::string rows = !signature.launch.row_dim.empty() ? signature.launch.row_dim
                           : signature.dims.empty()          ? ""
                                                             : signature.dims.front().symbol;
  for (const std::int64_t others : {64, 16, 0}) {  // 0: as they are
    OpCall out = usual;
    for (const DimSpec& dim : signature.dims)
      if (others != 0) out.dims[dim.symbol] = others;
    if (!rows.empty()) out.dims[rows] = kRows;
    if (signature.valid && !signature.valid(out.dims, out.attributes)) continue;
    const bool small = std::all_of(signature.inputs.begin(), signature.inputs.end(), [&](const TensorSpec& spec) {
      return !out.has(spec) || out.shape(spec).count() <= kLargest;
    });
    if (small) return out;
  }
  return usual;
}

std::string words_of(const Tested& test, bool by_factor, double p) {
  const double u = std::sqrt(test.size / kBiasDraws) * 0x1p24;
  return fmt::format(
      "the errors of a row share {}, of some {:.2g} u from row to row: more than their signs drawn afresh and than "
      "replays of the contract in any "
      "form and order, every operation at its full allowance, in {} of {} fresh seeds, p = {:.1g} (sign test, {:g} "
      "allowed: {:g} a run, {} looks)",
      by_factor ? "a factor" : "a shift", u, by_factor ? test.factor : test.shift, kBiasDraws, p,
      kBiasAlarm / kBiasLooks, kBiasAlarm, kBiasLooks);
}

void conclude(CaseRun& outer, const Tested& test, int draws, const std::string& at) {
  CheckResult check;
  check.id = {CheckId::Kind::correlation, test.tensor->name};
  check.dtype = test.tensor->dtype;
  check.compared = test.compared;
  const bool by_factor = test.factor >= test.shift;
  const int most = std::max(test.factor, test.shift);
  if (const double p = sign_test(most, draws);
      test.inside && draws == kBiasDraws && 2 * most > draws && p < kBiasAlarm / kBiasLooks) {
    check.find(Code::ac105);
    check.failed = check.compared;
    check.cause = words_of(test, by_factor, p) + " at " + at;
  }
  outer.add(std::move(check));
}

void examine(CaseRun& outer, const OpCall& call) {
  Draws draws(outer, call);
  std::vector<Tested> tests = draws.tested();
  if (tests.empty()) return;
  int made = 0;
  for (; made < kFirstDraws; ++made) draws.draw(made, tests);
  // A tensor that some replay exceeds in each of the first draws is looked at no further, which can only acquit.
  const auto suspect = [](const Tested& t) { return t.inside && std::max(t.factor, t.shift) == kFirstDraws; };
  const auto rest = std::partition(tests.begin(), tests.end(), suspect);
  for (auto t = rest; t != tests.end(); ++t) conclude(outer, *t, made, call.str(outer.op.signature));
  tests.erase(rest, tests.end());
  for (; !tests.empty() && made < kBiasDraws; ++made) draws.draw(made, tests);
  for (const Tested& test : tests) conclude(outer, test, made, call.str(outer.op.signature));
}

}  // namespace

void check_correlation(CaseRun& run) {
  const OpSignature& signature = run.op.signature;
  OpCall usual = default_call(signature, run.call.storage);
  usual.seed = run.call.seed;
  const PrecisionContract& contract = signature.precision;
  if (run.options.device != Device::cpu || run.op.forms.empty() || contract.compute != Dtype::fp32 ||
      contract.accumulate != Dtype::fp32)
    return;
  if (run.call.storage != Dtype::fp32 || run.call.str(signature) != usual.str(signature)) return;
  try {
    examine(run, rows_call(signature, usual));
  } catch (const EnvironmentError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {  // a shape that the kernel refuses is a matter of the cases that have it
  }
}

}  // namespace ampcheck::checks
