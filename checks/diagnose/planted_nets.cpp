// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/planted_nets.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>

#include "checks/models/bound_call.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::checks::diagnose {

std::vector<double> normals(const std::string& stream, std::int64_t batch, std::int64_t count) {
  std::vector<double> out(static_cast<std::size_t>(count));
  Random(7, "planted/" + stream + std::to_string(batch)).normals(0, out);
  return out;
}

Batch batch_of(std::int64_t batch, double gain) {
  Batch out;
  out.x = normals("x", batch % 8, kRows * kColumns);
  const std::vector<double> teacher = normals("teacher", 0, kColumns * kClasses);
  for (std::size_t row = 0; row < static_cast<std::size_t>(kRows); ++row) {
    double most = -INFINITY;
    std::size_t best = 0;
    for (std::size_t c = 0; c < static_cast<std::size_t>(kClasses); ++c) {
      double sum = 0;
      for (std::size_t k = 0; k < static_cast<std::size_t>(kColumns); ++k)
        sum += out.x[row * kColumns + k] * teacher[k * kClasses + c];
      if (sum <= most) continue;
      most = sum;
      best = c;
    }
    out.classes.push_back(static_cast<double>(best));
  }
  for (double& value : out.x) value *= gain;
  return out;
}

train::Net class_net(const Middle& middle, const std::function<double(std::int64_t)>& gain) {
  train::Net net;
  net.name = "planted";
  net.rate = 0.05;
  net.forward = [middle, gain](Tape& t, std::int64_t number) {
    const Batch batch = batch_of(number, gain ? gain(number) : 1);
    const Var x = t.data({kRows, kColumns}, batch.x);
    const Var h = middle(t, models::linear(t, "in", x, 64));
    const Var logits = models::linear(t, "out", h, kClasses);
    const Var losses = t.call("cross_entropy", {{"x", logits}, {"target", t.data({kRows}, batch.classes)}});
    t.add_loss(models::mean_all(t, losses), 1);
  };
  return net;
}

Subject subject_of(train::Net net, Dtype dtype, int steps) {
  Subject out;
  out.options.own_net = std::move(net);
  out.options.dtype = dtype;
  out.options.scaler.enabled = dtype == Dtype::fp16;
  out.options.scaler.init_scale = 1024;
  out.steps = steps;
  return out;
}

namespace {

void use_once(const std::string& name, const std::function<OpDef()>& make) {
  static std::mutex mutex;
  static std::deque<OpDef> kept;
  const std::lock_guard lock(mutex);
  if (std::any_of(kept.begin(), kept.end(), [&](const OpDef& op) { return op.signature.name == name; })) return;
  kept.push_back(make());
  models::use_op(kept.back());
}

}  // namespace

void use_planted(const std::string& base, const std::string& name, const Make& make) {
  use_once(name, [&] {
    OpDef op = *find_op(base);
    op.signature.name = name;
    op.kernel = make(op.kernel);
    return op;
  });
}

void use_new(OpDef op) {
  const std::string name = op.signature.name;
  use_once(name, [&] { return std::move(op); });
}

kernels::Kernel truncating(const kernels::Kernel& right) {
  kernels::Kernel out = right;
  out.forward = [right](const kernels::KernelCall& call) {
    kernels::KernelCall wide = call;
    std::vector<Tensor> held;
    for (auto& [name, view] : wide.tensors) {
      if (!is_float(view.dtype)) continue;
      held.emplace_back(Dtype::fp32, view.shape);
      from_doubles(to_doubles(view), held.back().view());
      view = held.back().view();
    }
    right.forward(wide);
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      const TensorView& view = call.tensors[i].second;
      if (!is_float(view.dtype)) continue;
      std::vector<double> values = to_doubles(wide.tensors[i].second);
      round_values(format(view.dtype), {.rounding = Rounding::toward_zero}, values, values);
      from_doubles(values, view);
    }
  };
  return out;
}

void set_element(const TensorView& view, std::int64_t at, double value) {
  std::vector<double> all = to_doubles(view);
  all[static_cast<std::size_t>(at)] = value;
  from_doubles(all, view);
}

}  // namespace ampcheck::checks::diagnose
