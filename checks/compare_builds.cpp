// SPDX-License-Identifier: Apache-2.0
#include "checks/compare_builds.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "src/index.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr int kRounds = 3;  ///< of each case, in turns: the first finds caches cold

/// An op whose kernels note how long they take; the least of the calls since reset() counts.
struct Timed {
  OpDef op;
  double forward = HUGE_VAL, backward = HUGE_VAL;

  explicit Timed(const OpDef& from) : op(from) {
    op.kernel.forward = timed(from.kernel.forward, forward);
    op.kernel.backward = timed(from.kernel.backward, backward);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  void reset() { forward = backward = HUGE_VAL; }

 private:
  static kernels::KernelFn timed(kernels::KernelFn inner, double& least) {
    return [inner = std::move(inner), &least](const kernels::KernelCall& call) {
      const auto start = std::chrono::steady_clock::now();
      inner(call);
      least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    };
  }
};

void add_time(ComparedTime& time, double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return;
  time.seconds[0] += a, time.seconds[1] += b;
  time.faster[0] += a < b, time.faster[1] += b < a;
}

const Dump::Entry* entry(const Dump& dump, const std::string& name) {
  for (const Dump::Entry& e : dump.entries)
    if (e.name == name) return &e;
  return nullptr;
}

/// Sums instead of means until the end.
void add_tensor(ComparedTensor& out, const Dump& a, const Dump& b, const std::string& name, const std::string& where) {
  const Dump::Entry *got[2] = {entry(a, name + ".got"), entry(b, name + ".got")}, *want = entry(a, name + ".want"), *low = entry(a, name + ".low"), *high = entry(a, name + ".high");
  if (got[1] == nullptr || got[0]->values.size() != got[1]->values.size()) return;
  const FloatFormat& to = format(got[0]->dtype);
  for (std::size_t i = 0; i < got[0]->values.size(); ++i) {
    const double values[2] = {got[0]->values[i], got[1]->values[i]}, right = want->values[i];
    ++out.compared;
    if (encode_scalar(to, values[0]) != encode_scalar(to, values[1]) && out.differ++ == 0) out.first = where + " " + index_text(got[0]->shape, static_cast<std::int64_t>(i));
    const double width = (high->values[i] - low->values[i]) / 2;
    if (!std::isfinite(values[0]) || !std::isfinite(values[1]) || !std::isfinite(right) || !std::isfinite(width)) continue;
    const double half_ulp = right == 0 ? to.min_subnormal() / 2 : std::max(std::ldexp(1.0, std::ilogb(right) - to.precision), to.min_subnormal() / 2);
    ++out.elements;
    for (const int build : {0, 1}) {
      const double error = std::fabs(values[build] - right) / std::max(width, half_ulp);
      out.mean[build] += error, out.largest[build] = std::max(out.largest[build], error);
    }
  }
}

}  // namespace

int ComparedTime::winner() const {
  constexpr double kNormalQuantile = 3.29;  // two-sided, 1 in 1000
  const double all = faster[0] + faster[1], off = faster[0] - all / 2;
  if (all == 0 || std::fabs(off) < kNormalQuantile * std::sqrt(all) / 2) return -1;
  return off > 0 ? 0 : 1;
}

int ComparedBuilds::nearer() const {
  bool wins[2] = {false, false};
  for (const ComparedTensor& tensor : tensors) wins[0] |= tensor.mean[0] < tensor.mean[1], wins[1] |= tensor.mean[1] < tensor.mean[0];
  return wins[0] == wins[1] ? -1 : wins[0] ? 0 : 1;
}

ComparedBuilds compare_builds(const OpDef& a, const OpDef& b, const std::vector<OpCall>& cases, const RunOptions& options) {
  ComparedBuilds out;
  Timed builds[2] = {Timed(a), Timed(b)};
  std::map<std::string, std::size_t> known;
  for (const OpCall& call : cases) {
    if (options.cancel != nullptr && options.cancel->load()) break;
    Dump dumps[2];
    for (Timed& build : builds) build.reset();
    for (int round = 0; round < kRounds; ++round)
      for (const int which : {0, 1}) {
        OpCall own = call;
        own.op = builds[which].op.signature.name;  // the builds may be named apart
        run_case(builds[which].op, own, options, round == 0 ? &dumps[which] : nullptr);
      }
    ++out.cases;
    add_time(out.forward, builds[0].forward, builds[1].forward);
    add_time(out.backward, builds[0].backward, builds[1].backward);
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

std::string signature_difference(const OpSignature& a, const OpSignature& b) {
  const auto differ = [](const std::string& what, const std::string& x, const std::string& y) { return what + ", '" + x + "' and '" + y + "'"; };
  if (a.inputs.size() != b.inputs.size()) return differ("number of inputs", std::to_string(a.inputs.size()), std::to_string(b.inputs.size()));
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    const TensorSpec &x = a.inputs[i], &y = b.inputs[i];
    if (x.name != y.name) return differ("input " + std::to_string(i + 1), x.name, y.name);
    if (OpSignature::symbols(x) != OpSignature::symbols(y)) return differ("dims of '" + x.name + "'", x.dims, y.dims);
    if (x.type != y.type || x.role != y.role || x.domain != y.domain || x.optional != y.optional || x.index_dim != y.index_dim || x.has_gradient() != y.has_gradient())
      return "what input '" + x.name + "' is";
  }
  if (a.outputs.size() != b.outputs.size()) return differ("number of outputs", std::to_string(a.outputs.size()), std::to_string(b.outputs.size()));
  for (std::size_t i = 0; i < a.outputs.size(); ++i)
    if (a.outputs[i].name != b.outputs[i].name || a.outputs[i].type != b.outputs[i].type) return differ("output " + std::to_string(i + 1), a.outputs[i].name, b.outputs[i].name);
  if (a.attributes.size() != b.attributes.size()) return differ("number of attributes", std::to_string(a.attributes.size()), std::to_string(b.attributes.size()));
  for (std::size_t i = 0; i < a.attributes.size(); ++i)
    if (a.attributes[i].name != b.attributes[i].name) return differ("attribute " + std::to_string(i + 1), a.attributes[i].name, b.attributes[i].name);
  return "";
}

}  // namespace ampcheck::checks
