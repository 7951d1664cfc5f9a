// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "checks/explain/departures.h"
#include "checks/explain/tried_departures.h"
#include "checks/judge/judge.h"
#include "checks/run/contract_evidence.h"
#include "src/error.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr double kImpossible = kImpossibleElement;
constexpr std::size_t kMostCases = 24;
constexpr std::int64_t kLargest = 16384;  ///< elements of a tensor

/// What is tried as an accumulator, of equally likely ones the first is taken. Tensor cores only where they are
/// declared: in the bits one generation looks like another, and often like fp32.
std::vector<Accumulator> accumulators_of(const OpDef& op) {
  std::vector<Accumulator> out = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
  if (op.signature.precision.accumulate.core != TensorCore::none)
    out.insert(out.begin(), op.signature.precision.accumulate);
  return out;
}
/// Functions in which the formulas' data is rounded; those of constants are none of the kernel's.
std::vector<std::string> functions_of(const OpDef& op, const OpCall& call) {
  using enum reference::Primitive;
  const RunOptions options;
  CaseRun run(op, call, options);
  std::vector<std::string> out;
  for (std::size_t form = 0; form < op.forms.size(); ++form) {
    const auto& nodes = run.reference.recording(form).graph->nodes();
    std::vector<char> of_data;  // arguments come before what they are arguments of
    for (const reference::Node& node : nodes) {
      of_data.push_back(node.primitive == input || std::any_of(node.args.begin(), node.args.end(), [&](int arg) {
                          return of_data[static_cast<std::size_t>(arg)] != 0;
                        }));
      if (of_data.back() == 0) continue;
      const reference::Primitive p = node.primitive == sigmoid ? exp : node.primitive;
      const bool function = p == exp || p == expm1 || p == log || p == log1p || p == tanh || p == erf || p == erfc ||
                            p == sqrt || p == rsqrt || p == pow;
      if (function && std::find(out.begin(), out.end(), name(p)) == out.end()) out.emplace_back(name(p));
    }
  }
  return out;
}

/// The accumulators of each tensor: intervals say which cannot be, replays which is likely.
std::vector<TensorReading> read_accumulators(const OpDef& op, const PrecisionContract& base,
                                             const std::vector<Wrote>& all) {
  std::vector<TensorReading> out;
  const std::vector<Accumulator> tried = accumulators_of(op);
  for (const Wrote& first : all) {
    if (std::any_of(out.begin(), out.end(), [&](const TensorReading& t) { return t.tensor == first.tensor.name; }))
      continue;
    std::vector<Wrote> wrote;
    for (const Wrote& w : all)
      if (w.tensor.name == first.tensor.name) wrote.push_back(w);
    TensorReading t{first.tensor.name, {}};
    t.accumulators = readings(op, base, wrote, tried.size(), [&](std::size_t k, PrecisionContract& c, Reading& r) {
      c.accumulate = tried[k];
      r.words = name(tried[k]);
      r.declared = op.signature.precision.accumulate == tried[k];
    });
    std::vector<std::vector<double>> each;
    for (std::size_t k = 0; k < tried.size(); ++k) {
      ByReplays by = likelihoods_by_replays(op, base, wrote, tried[k].dtype);
      t.accumulators[k].outside += by.refuted;
      each.push_back(std::move(by.likelihood));
    }
    std::vector<Reading> likely(tried.size());
    add_up(each, likely);
    for (std::size_t k = 0; k < likely.size(); ++k)
      t.accumulators[k].likelihood =
          likely[k].likelihood + kImpossible * static_cast<double>(t.accumulators[k].outside);
    rank(t.accumulators);
    out.push_back(std::move(t));
  }
  return out;
}

/// Kept or flushed. A kernel that flushes has zero where another has a subnormal number, and nothing in between as its
/// interval has.
std::vector<Reading> read_subnormals(const OpDef& op, const PrecisionContract& base, const std::vector<Wrote>& wrote) {
  std::vector<Reading> out(2);
  std::vector<std::vector<double>> each;
  for (const bool flushes : {false, true}) {
    PrecisionContract contract = base;
    contract.flushes_subnormals = flushes;
    each.push_back(likelihoods(op, contract, wrote));
    out[flushes].words = flushes ? "flushed" : "kept";
    out[flushes].declared = op.signature.precision.flushes_subnormals == flushes;
  }
  const double either = std::log10(2.0);
  for (std::size_t i = 0; i < each[0].size(); ++i)
    if (each[0][i] != kUnjudged && each[1][i] != kUnjudged)
      each[1][i] = std::max(each[1][i], std::min(each[0][i], each[0][i] - (each[0][i] == each[1][i] ? 0 : either)));
  add_up(each, out);
  rank(out);
  return out;
}

/// What the judge says of a tensor that was written, under the contract of `read`.
CheckResult judged_as(const OpDef& read, const Wrote& w, const RunOptions& options) {
  CaseRun run(read, *w.call, options);
  if (w.pass == Pass::backward) run.reference.set_cotangents(w.cotangents);
  GuardedTensor tensor(w.tensor.dtype, w.tensor.shape, Layout::dense, poison(w.tensor.dtype, 0));
  tensor.assign(w.got);
  const auto kind = w.pass == Pass::forward ? CheckId::Kind::forward : CheckId::Kind::backward;
  return judge(run, {{{kind, w.tensor.name}, &w.tensor, tensor.view()}}, w.pass).front();
}

/// Elements of these tensors that the judge finds wrong under a contract, in any order and grouping; `first`: a case
/// with some.
std::int64_t wrong_under(const OpDef& op, const PrecisionContract& contract, const std::vector<Wrote>& wrote,
                         std::string* first = nullptr) {
  const OpDef read = with_contract(op, contract);
  RunOptions options;
  options.explain = options.relations = options.power = false;
  std::int64_t out = 0;
  for (const Wrote& w : wrote) {
    const std::int64_t failed = judged_as(read, w, options).failed;
    if (failed > 0 && first != nullptr && out == 0) *first = w.call->str(op.signature);
    out += failed;
  }
  return out;
}

std::vector<Wrote> of_tensor(const std::vector<Wrote>& all, const std::string& name) {
  std::vector<Wrote> out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out), [&](const Wrote& w) { return w.tensor.name == name; });
  return out;
}

/// Whether the judge, asked for causes, calls most of a tensor's wrong cases bugs and not a short accumulator's: errors
/// of a slip may be as small as those.
bool called_a_bug(const OpDef& op, const PrecisionContract& base, const std::vector<Wrote>& wrote) {
  constexpr int kCases = 5;
  const OpDef read = with_contract(op, base);
  RunOptions options;
  options.relations = options.power = false;
  options.explain = true;
  int bugs = 0, all = 0;
  for (const Wrote& w : wrote) {
    if (all == kCases) break;
    const CheckResult check = judged_as(read, w, options);
    if (check.failed == 0) continue;
    ++all;
    bugs += check.verdict == Verdict::bug && !check.cause.empty();
  }
  return 2 * bugs > all;
}

/// What explains every number of a tensor that the contract does not explain.
void read_departures(const OpDef& op, const PrecisionContract& base, const std::vector<Wrote>& wrote,
                     TensorReading& out) {
  const OpDef read = with_contract(op, base);
  const RunOptions options;
  TriedDepartures tried;
  for (const Wrote& w : wrote) {
    CaseRun run(read, *w.call, options);
    if (w.pass == Pass::backward) run.reference.set_cotangents(w.cotangents);
    tried.see(run, w.pass, w.tensor, w.got, w.call->range != "subnormal");
  }
  if (const TriedDepartures::Best best = tried.best(); !best.words.empty()) {
    out.departure = best.words;
    out.function = best.function;
    out.departure_surety = best.surety;
    out.next = best.next.empty() ? "the contract without it" : "'" + best.next + "'";
  }
}

/// Replays of the forms in every order, against the kernel's bits.
void read_orders(const OpDef& op, const std::vector<Wrote>& wrote, Dtype accumulate, ContractReading& out) {
  const RunOptions options;
  std::map<SumKind, std::int64_t> equal;
  std::vector<SumKind> order_of_listing;
  for (const Wrote& w : wrote) {
    CaseRun run(op, *w.call, options);
    std::vector<SumKind> which;
    const std::vector<std::vector<double>> values = replays(op, run, w, accumulate, true, which);
    for (const SumKind& key : which)
      if (equal.try_emplace(key, 0).second) order_of_listing.push_back(key);
    for (std::size_t i = 0; i < w.got.size(); ++i) {
      const bool tells =
          std::any_of(values.begin(), values.end(), [&](const auto& v) { return !same(v[i], values.front()[i]); });
      if (!tells) continue;
      ++out.told;
      for (std::size_t k = 0; k < values.size(); ++k) equal[which[k]] += same(values[k][i], w.got[i]);
    }
  }
  for (const SumKind& key : order_of_listing)
    out.orders.push_back({key.form, key.order, accumulate, key.fused, equal[key]});
  std::stable_sort(out.orders.begin(), out.orders.end(),
                   [](const OrderReading& a, const OrderReading& b) { return a.equal > b.equal; });
  if (out.told == 0) out.orders.clear();
}

/// Runs the kernel: finite data, every output and gradient, full mantissas.
std::vector<Wrote> run_kernel(const OpDef& op, const std::vector<OpCall>& calls, ContractReading& out) {
  const RunOptions options;
  std::vector<Wrote> wrote;
  for (const OpCall& call : calls) {
    CaseRun run(op, call, options);
    if (!run.reference.inputs_finite()) continue;
    const LaunchTensors tensors = run.forward_tensors(run.reference.inputs(), 0);
    const LaunchResult forward = launch(op.kernel.forward, tensors, call.attributes, Device::cpu),
                       again = launch(op.kernel.forward, tensors, call.attributes, Device::cpu);
    const auto take = [&](const Written& tensor, Pass pass, const LaunchResult& result, const LaunchResult& second,
                          const NamedValues& cotangents) {
      if (tensor.shape.count() > kLargest || run.accumulates(tensor.name)) return;
      std::vector<double> got = to_doubles(result.written.at(tensor.name).view());
      out.repeats &= result.written.at(tensor.name).same_bytes(second.written.at(tensor.name));
      out.elements += std::ssize(got);
      wrote.push_back({&call, pass, tensor, std::move(got), cotangents});
    };
    for (const Written& output : run.outputs)
      if (!output.saved) take(output, Pass::forward, forward, again, {});
    if (!run.gradients.empty()) {
      const NamedValues cotangents = run.cotangents(0);
      const LaunchTensors given = run.backward_tensors(run.reference.inputs(), forward, cotangents, 0);
      const LaunchResult backward = launch(op.kernel.backward, given, call.attributes, Device::cpu),
                         second = launch(op.kernel.backward, given, call.attributes, Device::cpu);
      for (const Written& gradient : run.gradients) take(gradient, Pass::backward, backward, second, cotangents);
    }
    ++out.cases;
  }
  return wrote;
}

/// Cases of dense tensors that are small enough, the standard set's most productive ones first, with cotangents of full
/// mantissas; before them the standard shapes with data of full mantissas too, on which the order of a sum shows.
std::vector<OpCall> cases_for(const OpDef& op, Dtype storage, std::uint64_t seed) {
  std::vector<OpCall> out;
  for (const std::size_t k : {0u, 1u, 2u}) {
    OpCall call = default_call(op.signature, storage);
    call.seed = seed;
    call.cotangent = "normal";
    call.range = "loguniform8";
    for (const DimSpec& dim : op.signature.dims) call.dims[dim.symbol] = dim.standard[k];
    if (!op.signature.valid || op.signature.valid(call.dims, call.attributes)) out.push_back(std::move(call));
  }
  if (!out.empty()) {  // in sums of -1, 0 and 1 no accumulator loses anything
    out.push_back(out.front());
    out.back().range = "integers1";
    out.back().cotangent = "ones";
    for (const std::size_t k : {0u, 1u}) {  // whether subnormal numbers are kept
      if (k >= out.size() - 1) break;
      out.push_back(out[k]);
      out.back().range = "subnormal";
    }
  }
  for (OpCall call : cases_of(op.signature, storage, CaseSet::quick, seed)) {
    if (call.layout != "dense" || !call.dtypes.empty() || out.size() == kMostCases) continue;
    call.cotangent = "normal";
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const OpCall& c) { return c.str(op.signature) == call.str(op.signature); });
    if (!known) out.push_back(std::move(call));
  }
  return out;
}

void find_narrow(const std::vector<Wrote>& wrote, ContractReading& out) {
  std::map<std::string, std::pair<std::int64_t, std::map<Dtype, bool>>>
      seen;  // numbers that are not zero; fits a type so far
  for (const Wrote& w : wrote) {
    if (w.tensor.dtype != Dtype::fp32) continue;
    auto& [count, fits] = seen[w.tensor.name];
    for (const double v : w.got) count += v != 0;
    for (const Dtype shorter : {Dtype::bf16, Dtype::fp16}) {
      std::vector<double> rounded = w.got;
      round_values(format(shorter), RoundingMode{}, rounded, rounded);
      bool& fit = fits.try_emplace(shorter, true).first->second;
      for (std::size_t i = 0; i < rounded.size(); ++i) fit &= rounded[i] == w.got[i] || w.got[i] != w.got[i];
    }
  }
  for (const auto& [name, found] : seen)
    for (const auto& [shorter, fit] : found.second)
      if (fit && found.first > 64) out.narrow.emplace_back(name, shorter);
}

}  // namespace

const OrderReading* ContractReading::best_order(bool fused) const {
  const auto found =
      std::find_if(orders.begin(), orders.end(), [&](const OrderReading& o) { return o.fused == fused; });
  return found == orders.end() ? nullptr : &*found;
}

double ContractReading::surety(const std::vector<Reading>& readings) {
  return readings.size() < 2 ? HUGE_VAL : readings[0].likelihood - readings[1].likelihood;
}

bool ContractReading::explained() const {
  return std::all_of(tensors.begin(), tensors.end(), [](const TensorReading& t) { return t.unexplained == 0; });
}

bool ContractReading::can_be_declared() const {
  return explained() && std::all_of(tensors.begin(), tensors.end(),
                                    [](const TensorReading& t) { return t.departure.empty() || !t.function.empty(); });
}

namespace {

/// What the accumulators leave open once flushing is known.
void reread_accumulators(const OpDef& op, PrecisionContract base, const std::vector<Wrote>& wrote,
                         ContractReading& out) {
  base.accumulate = Dtype::fp32;
  for (const TensorReading& again : read_accumulators(op, base, wrote))
    for (TensorReading& t : out.tensors)
      if (t.tensor == again.tensor) t.accumulators = again.accumulators;
}

MathSet math_within(double ulps) {
  return {.name = fmt::format("{:g} ulp", ulps),
          .exp = ulps,
          .expm1 = ulps,
          .log = ulps,
          .log1p = ulps,
          .tanh = ulps,
          .erf = ulps,
          .erfc = ulps,
          .rsqrt = ulps,
          .sqrt = ulps,
          .pow = ulps};
}

/// Declares as many ulps as functions that depart need, and says of each tensor what is left.
void settle(const OpDef& op, const std::vector<Wrote>& wrote, PrecisionContract& best, ContractReading& out) {
  std::vector<Wrote> of_functions;
  for (const TensorReading& t : out.tensors)
    if (!t.function.empty())
      for (Wrote& w : of_tensor(wrote, t.tensor)) of_functions.push_back(std::move(w));
  for (const double ulps : {16, 64, 128, 256, 1024, 4096, 16384}) {
    if (of_functions.empty()) break;
    MathSet math = op.signature.precision.math;
    math.name = math_within(ulps).name;
    out.used.clear();
    for (const TensorReading& t : out.tensors) {
      if (t.function.empty()) continue;
      (t.function == "exp" ? math.exp : math.rsqrt) = ulps;
      if (std::find(out.used.begin(), out.used.end(), t.function) == out.used.end()) out.used.push_back(t.function);
    }
    best.math = math;
    if (wrong_under(op, best, of_functions) == 0) break;
  }
  for (TensorReading& t : out.tensors) {
    if (!t.departure.empty() && t.function.empty()) continue;
    t.unexplained = wrong_under(op, best, of_tensor(wrote, t.tensor), &t.first_unexplained);
    // What the accumulator that was read cannot give is not explained by it either.
    for (const Reading& r : t.accumulators)
      if (t.unexplained == 0 && best.accumulate != Dtype::fp32 && r.words == name(best.accumulate) &&
          t.accumulators.front().words == r.words)
        t.unexplained = r.outside;
  }
}

/// What departs where the plain accumulators leave something; returns what tensors wrote that no departure explains.
std::vector<Wrote> explain_departures(const OpDef& op, const PrecisionContract& base, const std::vector<Wrote>& wrote,
                                      ContractReading& out) {
  std::vector<Wrote> plain;  // of tensors that no departure explains
  for (TensorReading& t : out.tensors) {
    const std::vector<Wrote> own = of_tensor(wrote, t.tensor);
    const std::int64_t wrong = wrong_under(op, base, own);
    if (wrong > 0) read_departures(op, base, own, t);
    if (wrong > 0 && t.departure.empty() && called_a_bug(op, base, own))
      for (Reading& r : t.accumulators) {
        r.outside = std::max(r.outside, wrong);
        r.likelihood =
            r.words == "fp32" ? r.likelihood : std::min(r.likelihood, kImpossible * static_cast<double>(wrong));
      }
    rank(t.accumulators);
    if (t.departure.empty()) plain.insert(plain.end(), own.begin(), own.end());
  }
  return plain;
}

/// The contract has one accumulator: the shortest that some tensor needs.
void choose_accumulator(const ContractReading& out, PrecisionContract& best) {
  for (const TensorReading& t : out.tensors) {
    const Reading& likeliest = t.accumulators.front();
    if (t.departure.empty() && ContractReading::surety(t.accumulators) > 0.5)
      for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
        if (likeliest.words == name(dtype) && format(dtype).precision < format(best.accumulate.dtype).precision)
          best.accumulate = dtype;
  }
}

/// Which functions the kernel calls, if that shows.
void read_functions(const OpDef& op, const std::vector<OpCall>& calls, const std::vector<Wrote>& plain,
                    PrecisionContract& best, ContractReading& out) {
  const MathSet sets[] = {own_math(), glibc_math(), cuda_math(), math_within(16)};
  if (!calls.empty()) out.used = functions_of(op, calls.front());
  if (!out.used.empty())
    out.functions = readings(op, best, plain, std::size(sets), [&](std::size_t k, PrecisionContract& c, Reading& r) {
      c.math = sets[k];
      r.words = sets[k].name;
      r.declared = op.signature.precision.math.name == sets[k].name;
    });
  const bool functions_matter = std::any_of(out.functions.begin(), out.functions.end(), [&](const Reading& r) {
    return std::fabs(r.likelihood - out.functions.front().likelihood) > 1e-9;
  });
  if (!functions_matter) out.functions.clear();
  rank(out.functions);
  // Of equally likely ones the declared one: there is nothing to change.
  const auto declared_set =
      std::find_if(out.functions.begin(), out.functions.end(), [](const Reading& r) { return r.declared; });
  if (declared_set != out.functions.end() && declared_set->likelihood >= out.functions.front().likelihood - 1e-9)
    std::rotate(out.functions.begin(), declared_set, declared_set + 1);
  for (const MathSet& set : sets)
    if (out.functions_explain() && out.functions.front().words == set.name) best.math = set;
}

}  // namespace

std::vector<Wrote> run_for_contract(const OpDef& op, const std::vector<OpCall>& calls, ContractReading& out) {
  return run_kernel(op, calls, out);
}

std::vector<OpCall> contract_calls(const OpDef& op, Dtype storage, std::uint64_t seed) {
  return cases_for(op, storage, seed);
}

void read_order(const OpDef& op, const std::vector<Wrote>& wrote, ContractReading& out) {
  read_orders(op, wrote, Dtype::fp32, out);
}

void read_written(const OpDef& op, const std::vector<OpCall>& calls, const std::vector<Wrote>& wrote,
                  ContractReading& out) {
  const PrecisionContract& declared = op.signature.precision;
  PrecisionContract best = declared;
  best.summation_depth = 0;
  if (declared.accumulate.core == TensorCore::none) best.accumulate = Dtype::fp32;
  out.tensors = read_accumulators(op, best, wrote);
  const std::vector<Wrote> plain = explain_departures(op, best, wrote, out);
  choose_accumulator(out, best);

  out.subnormals = read_subnormals(op, best, plain);
  best.flushes_subnormals = out.subnormals.front().words == "flushed";
  if (best.flushes_subnormals != declared.flushes_subnormals) reread_accumulators(op, best, wrote, out);

  read_functions(op, calls, plain, best, out);
  settle(op, wrote, best, out);
  read_orders(op, wrote, best.accumulate.dtype, out);
  find_narrow(wrote, out);
  best.atomics = !out.repeats;
  out.best = best;
}

ContractReading read_contract(const OpDef& given, Dtype storage, std::uint64_t seed) {
  if (given.forms.empty())
    throw Error("[contract] got '" + given.signature.name +
                "', which has no formula, want an op with one: without, nothing says what its bits should be");
  ContractReading out;
  out.op = given.signature.name;
  out.storage = storage;
  out.cores = read_cores(given, storage, seed);
  OpDef op = given;  // with the tensor cores that its bits show: all else is read under them
  if (const CoreReading* const cores = out.cores.found();
      cores != nullptr && cores->accumulator.core != TensorCore::none) {
    op.signature.precision.accumulate = cores->accumulator;
    op.signature.precision.summation_depth = 0;
  }
  const std::vector<OpCall> calls = cases_for(op, storage, seed);
  const std::vector<Wrote> wrote = run_kernel(op, calls, out);
  read_written(op, calls, wrote, out);
  return out;
}

}  // namespace ampcheck::checks
