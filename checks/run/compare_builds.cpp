// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/compare_builds.h"
#include "checks/case/interval.h"
#include "checks/run/speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>

#include "src/index.h"
#include "src/launch_time.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr int kPairs = 12;            ///< of calls of A and B, at each call of a case: AB BA AB BA ...
constexpr double kMostSeconds = 0.2;  ///< for these, but for the first four

/// The pairs of one pass of one case. Both halves of them, taken in turns, have AB as often as BA.
struct PairedTime {
  double least[2] = {HUGE_VAL, HUGE_VAL};
  int wins[2][2] = {{0, 0}, {0, 0}};  ///< by half and build
  SecondPairs pairs;

  void add(int pair, const double (&seconds)[2]) {
    for (const int build : {0, 1}) least[build] = std::min(least[build], seconds[build]);
    pairs.push_back({seconds[0], seconds[1]});
    if (seconds[0] != seconds[1]) ++wins[pair / 2 % 2][seconds[1] < seconds[0]];
  }
};

/// Build A, whose kernels run B's too, at the same tensors: first at other addresses or warmer caches is no difference
/// between them.
struct Interleaved {
  OpDef op;
  PairedTime forward, backward;

  Interleaved(const OpDef& a, const OpDef& b)
      : op(a), restores_(!a.signature.launch.in_place.empty() || !a.signature.launch.accumulates.empty()) {
    op.kernel.forward = paired(a.kernel.forward, b.kernel.forward, forward);
    op.kernel.backward = paired(a.kernel.backward, b.kernel.backward, backward);
  }
  Interleaved(const Interleaved&) = delete;
  Interleaved& operator=(const Interleaved&) = delete;

 private:
  /// What a kernel reads that adds to its outputs or overwrites its inputs.
  static std::vector<std::pair<TensorView, std::vector<double>>> held(const kernels::KernelCall& call) {
    std::vector<std::pair<TensorView, std::vector<double>>> out;
    for (const auto& [name, view] : call.tensors)
      if (is_float(view.dtype)) out.emplace_back(view, to_doubles(view));
    return out;
  }

  kernels::KernelFn paired(kernels::KernelFn a, kernels::KernelFn b, PairedTime& times) const {
    return [kernels = std::array{std::move(a), std::move(b)}, &times,
            restores = restores_](const kernels::KernelCall& call) {
      if (restores && call.device != Device::cpu) return kernels[0](call);  // no times
      const auto before = restores ? held(call) : std::vector<std::pair<TensorView, std::vector<double>>>();
      const auto run = [&](int which) {
        for (const auto& [view, values] : before) from_doubles(values, view);
        take_launch_time();
        const auto start = std::chrono::steady_clock::now();
        kernels[static_cast<std::size_t>(which)](call);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        return take_launch_time().value_or(seconds);
      };
      double taken = run(1) + run(0);  // caches are cold
      for (int pair = 0; pair < kPairs && (pair < 4 || taken < kMostSeconds); ++pair) {
        double seconds[2];
        for (const int turn : {0, 1}) seconds[turn ^ (pair & 1)] = run(turn ^ (pair & 1));
        times.add(pair, seconds);
        taken += seconds[0] + seconds[1];
      }
      run(0);  // whose op this is
    };
  }

  bool restores_;
};

/// A case counts for a build that wins more of the pairs in both halves: by chance alone it would seldom be the same
/// one, nor the same for most cases.
void add_time(ComparedTime& time, const PairedTime& pairs) {
  if (!std::isfinite(pairs.least[0]) || !std::isfinite(pairs.least[1])) return;
  for (const int build : {0, 1}) {
    time.seconds[build] += pairs.least[build];
    const auto wins = [&](int half) { return pairs.wins[half][build] > pairs.wins[half][1 - build]; };
    time.faster[build] += wins(0) && wins(1);
  }
}

const Dump::Entry* entry(const Dump& dump, const std::string& name) {
  for (const Dump::Entry& e : dump.entries)
    if (e.name == name) return &e;
  return nullptr;
}

/// Sums instead of means until the end.
void add_tensor(ComparedTensor& out, const Dump& a, const Dump& b, const std::string& name, const std::string& where) {
  const Dump::Entry *got[2] = {entry(a, name + ".got"), entry(b, name + ".got")}, *want = entry(a, name + ".want"),
                    *low = entry(a, name + ".low"), *high = entry(a, name + ".high");
  if (got[1] == nullptr || got[0]->values.size() != got[1]->values.size()) return;
  const FloatFormat& to = format(got[0]->dtype);
  for (std::size_t i = 0; i < got[0]->values.size(); ++i) {
    const double values[2] = {got[0]->values[i], got[1]->values[i]}, right = want->values[i];
    ++out.compared;
    if (encode_scalar(to, values[0]) != encode_scalar(to, values[1]) && out.differ++ == 0)
      out.first = where + " " + index_text(got[0]->shape, static_cast<std::int64_t>(i));
    const double above = high->values[i] - right, below = right - low->values[i];
    if (!std::isfinite(values[0]) || !std::isfinite(values[1]) || !std::isfinite(right) || !std::isfinite(above) ||
        !std::isfinite(below))
      continue;
    const double half_ulp = spacing_at(to, right) / 2;
    ++out.elements;
    for (const int build : {0, 1}) {
      const double error = std::fabs(values[build] - right) / std::max(values[build] > right ? above : below, half_ulp);
      out.mean[build] += error;
      out.largest[build] = std::max(out.largest[build], error);
    }
  }
}

}  // namespace

int ComparedTime::winner() const {
  constexpr double kNormalQuantile = 3.29;  // two-sided, 1 in 1000
  const double all = faster[0] + faster[1], off = faster[0] - all / 2;
  if (all == 0 || std::fabs(off) < kNormalQuantile * std::sqrt(all) / 2) return -1;
  // Where code and data happen to lie in this process moves a kernel by a few per cent, which no repetition in it
  // averages out: two copies of one library were seen 3 % apart.
  constexpr double kOfPlace = 1.05;
  const int winner = off > 0 ? 0 : 1;
  return kOfPlace * seconds[winner] < seconds[1 - winner] ? winner : -1;
}

int ComparedBuilds::nearer() const {
  bool wins[2] = {false, false};
  for (const ComparedTensor& tensor : tensors) {
    wins[0] |= tensor.mean[0] < tensor.mean[1];
    wins[1] |= tensor.mean[1] < tensor.mean[0];
  }
  return wins[0] == wins[1] ? -1 : wins[0] ? 0 : 1;
}

ComparedBuilds compare_builds(const OpDef& a, const OpDef& b, const std::vector<OpCall>& cases,
                              const RunOptions& options) {
  ComparedBuilds out;
  std::map<std::string, std::size_t> known;
  for (const OpCall& call : cases) {
    if (options.cancel != nullptr && options.cancel->load()) break;
    Dump dumps[2];
    Interleaved both(a, b);
    OpCall own = call;
    own.op = a.signature.name;
    run_case(both.op, own, options);  // for the times: what A leaves unwritten holds B's numbers there
    run_case(a, own, options, &dumps[0]);
    own.op = b.signature.name;  // the builds may be named apart
    run_case(b, own, options, &dumps[1]);
    ++out.cases;
    add_time(out.forward, both.forward);
    add_time(out.backward, both.backward);
    for (const Dump::Entry& e : dumps[0].entries) {
      if (!e.name.ends_with(".got")) continue;
      const std::string name = e.name.substr(0, e.name.size() - 4);
      const auto [at, fresh] = known.try_emplace(name, out.tensors.size());
      if (fresh) out.tensors.emplace_back().name = name;
      add_tensor(out.tensors[at->second], dumps[0], dumps[1], name, call.str(a.signature));
    }
  }
  for (ComparedTensor& tensor : out.tensors)
    for (double& mean : tensor.mean) mean /= static_cast<double>(std::max<std::int64_t>(tensor.elements, 1));
  return out;
}

PassSpeeds measure_speed(const OpDef& base, const OpDef& build, const std::vector<OpCall>& cases,
                         const RunOptions& options) {
  constexpr std::size_t kMost = 64;
  std::vector<SecondPairs> forward, backward;
  const std::size_t step = std::max<std::size_t>(1, (cases.size() + kMost - 1) / kMost);
  for (std::size_t i = 0; i < cases.size(); i += step) {
    if (options.cancel != nullptr && options.cancel->load()) break;
    Interleaved both(base, build);
    OpCall call = cases[i];
    call.op = base.signature.name;  // the builds may be named apart
    run_case(both.op, call, options);
    forward.push_back(std::move(both.forward.pairs));
    backward.push_back(std::move(both.backward.pairs));
  }
  return {speed_of(forward), speed_of(backward)};
}

std::string signature_difference(const OpSignature& a, const OpSignature& b) {
  const auto differ = [](const std::string& what, const std::string& x, const std::string& y) {
    return what + ", '" + x + "' and '" + y + "'";
  };
  if (a.inputs.size() != b.inputs.size())
    return differ("number of inputs", std::to_string(a.inputs.size()), std::to_string(b.inputs.size()));
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    const TensorSpec &x = a.inputs[i], &y = b.inputs[i];
    if (x.name != y.name) return differ("input " + std::to_string(i + 1), x.name, y.name);
    if (OpSignature::symbols(x) != OpSignature::symbols(y)) return differ("dims of '" + x.name + "'", x.dims, y.dims);
    if (x.type != y.type || x.role != y.role || x.domain != y.domain || x.optional != y.optional ||
        x.index_dim != y.index_dim || x.has_gradient() != y.has_gradient())
      return "what input '" + x.name + "' is";
  }
  if (a.outputs.size() != b.outputs.size())
    return differ("number of outputs", std::to_string(a.outputs.size()), std::to_string(b.outputs.size()));
  for (std::size_t i = 0; i < a.outputs.size(); ++i)
    if (a.outputs[i].name != b.outputs[i].name || a.outputs[i].type != b.outputs[i].type)
      return differ("output " + std::to_string(i + 1), a.outputs[i].name, b.outputs[i].name);
  if (a.attributes.size() != b.attributes.size())
    return differ("number of attributes", std::to_string(a.attributes.size()), std::to_string(b.attributes.size()));
  for (std::size_t i = 0; i < a.attributes.size(); ++i)
    if (a.attributes[i].name != b.attributes[i].name)
      return differ("attribute " + std::to_string(i + 1), a.attributes[i].name, b.attributes[i].name);
  return "";
}

}  // namespace ampcheck::checks
