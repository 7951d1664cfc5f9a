// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A classifier of 8x8 digits of the ops that the other nets leave out: norms of channels, rectifiers with a slope,
// largest and smallest places, a root.
#include "checks/models/layers.h"
#include "checks/models/models.h"

namespace ampcheck::checks::models {

namespace {

constexpr std::int64_t kSide = 8, kClasses = 10, kChannels1 = 6, kChannels2 = 8, kHidden = 16;

/// [N, C, H, W] as [N, C, H * W].
Var by_channel(Tape& t, Var x) {
  const Shape shape = t.shape(x);
  return t.reshape(x, {shape[0], shape[1], shape[2] * shape[3]});
}

Var batch_norm(Tape& t, const std::string& name, Var x) {
  const Shape shape = t.shape(x);
  const std::vector<double> zeros(static_cast<std::size_t>(shape[1]), 0.0), ones(zeros.size(), 1.0);
  const Var y = t.call("batch_norm", {{"x", by_channel(t, x)},
                                      {"weight", t.constant_start(name + ".weight", {shape[1]}, 1)},
                                      {"bias", t.constant_start(name + ".bias", {shape[1]}, 0)},
                                      {"running_mean", t.data({shape[1]}, zeros)},
                                      {"running_var", t.data({shape[1]}, ones)}});
  return t.reshape(y, shape);
}

Var group_norm(Tape& t, const std::string& name, Var x) {
  const Shape shape = t.shape(x);
  const Var y = t.call("group_norm", {{"x", by_channel(t, x)},
                                      {"weight", t.constant_start(name + ".weight", {shape[1]}, 1)},
                                      {"bias", t.constant_start(name + ".bias", {shape[1]}, 0)}});
  return t.reshape(y, shape);
}

/// The largest or smallest place of each channel: [N, C, H, W] to [N, C].
Var extreme_place(Tape& t, const char* op, Var x) {
  const Shape shape = t.shape(x);
  const Var rows = t.reshape(x, {shape[0] * shape[1], shape[2] * shape[3]});
  return t.reshape(t.call(op, {{"x", rows}}), {shape[0], shape[1]});
}

}  // namespace

void channel_model(Tape& t, const Digits& digits) {
  const std::int64_t batch = std::ssize(digits.classes);
  const Var image = t.data({batch, 1, kSide, kSide}, digits.pixels);
  const Var edges = unary(t, "leaky_relu", batch_norm(t, "norm1", conv3x3(t, "conv1", image, kChannels1)));
  const Var halved = t.call("max_pool2d", {{"x", edges}});
  const Var shapes = unary(t, "elu", group_norm(t, "norm2", conv3x3(t, "conv2", halved, kChannels2)));
  const Var most = linear(t, "most", extreme_place(t, "max", shapes), kHidden);
  const Var least = linear(t, "least", extreme_place(t, "min", shapes), kHidden);
  const Var roots = unary(t, "sqrt", unary(t, "softplus", add(t, most, least)));
  const Var logits = linear(t, "classes", unary(t, "clamp", roots), kClasses);
  const Var losses = t.call("cross_entropy", {{"x", logits}, {"target", t.data({batch}, digits.classes)}});
  t.add_loss(mean_all(t, losses), 1);
}

}  // namespace ampcheck::checks::models
