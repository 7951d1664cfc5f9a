// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Kernels of the zoo as layers. Whether one shows at a run's data is found out apart from the judge: by the distance of
// its numbers and of the built-in kernel's from the formula.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "checks/audit/train_parts.h"
#include "checks/case/options.h"
#include "checks/models/layers.h"
#include "src/float_format.h"

namespace ampcheck::checks::train_audit {

namespace {

using train::LiveCall;
using train::Net;
using train::NetOptions;

constexpr std::array kNetNames = {"mlp", "conv", "transformer"};

Net net_of(const char* name) {
  return train::make_net({.model = name, .loss = {}, .batch = 0, .width = 0, .seed = 1, .data = models::find_data("")});
}

/// mlp with another op in the place of its first relu, for ops that no net has: of one input, or a norm with weights.
Net mlp_with(const std::string& op) {
  Net net = net_of("mlp");
  const auto digits = std::make_shared<const models::Digits>(models::read_digits(models::find_data("")));
  const bool weight = find_op(op)->signature.input("weight") != nullptr,
             bias = find_op(op)->signature.input("bias") != nullptr;
  net.forward = [=](models::Tape& t, std::int64_t batch) {
    const models::Digits rows = train::digits_batch(*digits, batch, 32);
    models::Var h = models::linear(t, "layer0", t.data({32, 64}, rows.pixels), 48);
    std::vector<std::pair<std::string, models::Var>> inputs{{"x", h}};
    if (weight) inputs.emplace_back("weight", t.constant_start("planted.weight", {48}, 1));
    if (bias) inputs.emplace_back("bias", t.constant_start("planted.bias", {48}, 0));
    h = t.call(op, inputs);
    h = models::unary(t, "gelu", models::linear(t, "layer1", h, 32));
    train::add_class_loss(t, models::linear(t, "layer2", h, train::kDigitClasses), rows.classes, {});
  };
  return net;
}

/// One input "x" whose last axis is free, with an output of its shape; norms may have weights.
bool fits_mlp(const OpDef& op) {
  static const std::set<std::string> kOps = {"leaky_relu",  "elu",        "softplus", "clamp", "gelu",
                                             "gelu_tanh",   "silu",       "sigmoid",  "tanh",  "softmax",
                                             "log_softmax", "layer_norm", "rms_norm"};
  return kOps.contains(op.signature.name);
}

std::set<std::string> ops_of(const Net& net) {
  std::set<std::string> out;
  train::TrainOptions options;
  options.own_net = net;
  options.judge = train::JudgeMode::sampled;
  options.hear_calls = [&](const LiveCall& call) { out.insert(call.call.op); };
  options.dtype = Dtype::fp16;
  train::Trainer trainer(options);
  trainer.step();
  return out;
}

struct Place {
  std::string net;
  Net made;
};

/// Where an op can be trained.
std::vector<Place> places_of(const std::string& op) {
  static const std::map<std::string, std::set<std::string>> kOps = [] {
    std::map<std::string, std::set<std::string>> out;
    for (const char* name : kNetNames) out[name] = ops_of(net_of(name));
    return out;
  }();
  std::vector<Place> out;
  for (const char* name : kNetNames)
    if (kOps.at(name).contains(op)) out.push_back({name, net_of(name)});
  const bool in_mlp = kOps.at("mlp").contains(op);
  if (!in_mlp && fits_mlp(*find_op(op))) out.push_back({"mlp with " + op, mlp_with(op)});
  return out;
}

using Written = std::map<std::string, Tensor>;

/// What a right kernel of the op writes at the tensors of a call.
Written written_by(const OpDef& right, const LiveCall& call) {
  kernels::KernelCall again;
  again.attributes = &call.call.attributes;
  Written written;
  std::set<std::string> inputs;
  for (const TensorSpec& spec : right.signature.inputs) inputs.insert(spec.name);
  const std::string output = right.signature.outputs.front().name, cotangent = gradient_name(output);
  const auto run = [&](const kernels::KernelFn& kernel, bool backward) {
    again.tensors.clear();
    for (const auto& [name, view] : call.tensors) {
      const bool gradient = name.starts_with("d") && inputs.contains(name.substr(1));
      if (backward ? name == output : gradient || name == cotangent) continue;
      const bool writes = backward ? gradient : !inputs.contains(name);
      if (writes) written[name] = Tensor(view.dtype, view.shape);
      again.tensors.emplace_back(name, written.contains(name) ? written[name].view() : view);
    }
    kernel(again);
  };
  run(right.kernel.forward, false);
  if (call.shadowed.size() > 1) run(right.kernel.backward, true);
  return written;
}

/// The built-in kernel of an op, and the zoo's that are right.
std::vector<const OpDef*> right_kernels(const std::string& op) {
  std::vector<const OpDef*> out{find_op(op)};
  for (const zoo::Specimen& s : zoo::specimens())
    if (s.correct() && !s.unseen && s.name().substr(0, s.name().find('.')) == op) out.push_back(&s.op);
  return out;
}

/// Whether what a call of a specimen wrote shows: see Trial::shows.
bool shows(const LiveCall& call, const std::vector<const OpDef*>& right) {
  std::vector<Written> others;
  for (const OpDef* op : right) others.push_back(written_by(*op, call));
  for (const auto& [got, exact] : call.shadowed) {
    const auto found = std::find_if(call.tensors.begin(), call.tensors.end(),
                                    [at = got.data](const auto& t) { return t.second.data == at; });
    if (found == call.tensors.end()) continue;
    const std::vector<double> planted = to_doubles(got);
    const auto* const want = exact.as<const double>();
    double worst = 0;
    for (Written& other : others) {
      if (!other.contains(found->first)) continue;
      const std::vector<double> values = to_doubles(other[found->first].view());
      for (std::size_t i = 0; i < values.size(); ++i)
        if (const double e = std::fabs(values[i] - want[i]); e < HUGE_VAL) worst = std::max(worst, e);
    }
    const FloatFormat& stored = format(got.dtype);
    for (std::size_t i = 0; i < planted.size(); ++i) {
      if (!std::isfinite(want[i])) continue;
      const double ulp = want[i] == 0 ? 0 : std::ldexp(2 * stored.unit_roundoff(), std::ilogb(want[i]));
      const double may = std::max({2 * worst, 2 * ulp, 2 * stored.min_subnormal()});
      if (!(std::fabs(planted[i] - want[i]) <= may)) return true;
    }
  }
  return false;
}

Trial run_specimen(const zoo::Specimen& specimen, Dtype dtype, const Place& place) {
  const std::string op = specimen.name().substr(0, specimen.name().find('.'));
  Trial out;
  out.part = specimen.correct() ? Part::variant : Part::kernel;
  out.name = specimen.name();
  out.net = place.net;
  out.dtype = dtype;
  out.shows = false;
  train::TrainOptions options;
  options.own_net = place.made;
  options.dtype = dtype;
  options.scaler.enabled = dtype == Dtype::fp16;
  options.shadows.local = true;
  options.judge = train::JudgeMode::sampled;
  options.check_steps = true;
  options.kernels_of[op] = &specimen.op;
  const std::vector<const OpDef*> right = right_kernels(op);
  options.hear_calls = [&](const LiveCall& call) {
    if (!specimen.correct() && !out.shows && call.call.op == op) out.shows = shows(call, right);
  };
  try {
    train::Trainer trainer(options);
    const std::string what = verdict_of(trainer, kSteps);
    out.found = !what.empty();
    out.what = what;
    for (const train::LiveFinding& f : trainer.judge()->findings()) {
      if (f.result.op != specimen.name()) continue;
      if (!out.named) out.step = f.step;
      out.named = true;
      out.right_class |= f.result.verdict == specimen.due || f.result.verdict == specimen.also;
    }
  } catch (const std::exception& error) {  // of the kernel
    out.found = out.named = out.shows = true;
    out.what = error.what();
  }
  return out;
}

/// Whether a net in that type can have it in the place of the op: kernels of fp8 alone cannot.
bool takes_its_place(const zoo::Specimen& specimen, Dtype dtype) {
  const auto& types = specimen.op.signature.precision.storage;
  const auto& wanted = find_op(specimen.name().substr(0, specimen.name().find('.')))->signature.precision.storage;
  const auto has = [](const std::vector<Dtype>& all, Dtype one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](Dtype one) { return (one != Dtype::fp32 && one != dtype) || has(types, one); });
}

bool selected(const std::string& name, const std::vector<std::string>& patterns) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) {
           return matches(p, name) || matches(p, name.substr(0, name.find('.')));
         });
}

}  // namespace

std::string verdict_of(train::Trainer& trainer, int steps) {
  for (int i = 0; i < steps; ++i) {
    const train::StepResult result = trainer.step();
    const std::vector<train::RunFinding> found = trainer.findings();
    const bool last = i + 1 == steps;
    for (const train::RunFinding& f : found) {
      const bool now = f.code < train::RunCode::all_skipped;  // what nothing did is known at the end
      if (now || last) return std::string(train::text_of(f.code).name) + " " + f.where + ": " + f.what;
    }
    if (result.left()) return "left at step " + std::to_string(i + 1);
  }
  return "";
}

std::vector<Work> kernel_works(const Options& options) {
  constexpr std::size_t kQuickEvery = 23;
  std::vector<Work> out;
  std::size_t number = 0;
  for (const zoo::Specimen& specimen : zoo::specimens()) {
    if (specimen.unseen || !specimen.equivalent.empty() || !selected(specimen.name(), options.patterns)) continue;
    if (options.quick && options.patterns.empty() && number++ % kQuickEvery != 0) continue;
    out.push_back({specimen.name(), [&specimen, quick = options.quick] {
                     std::vector<Trial> trials;
                     std::vector<Place> places = places_of(specimen.name().substr(0, specimen.name().find('.')));
                     if (quick && places.size() > 1) places.erase(places.begin() + 1, places.end());
                     for (const Place& place : places)
                       for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
                         if (takes_its_place(specimen, dtype)) trials.push_back(run_specimen(specimen, dtype, place));
                     return trials;
                   }});
  }
  return out;
}

}  // namespace ampcheck::checks::train_audit
