// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A convolutional classifier of 8x8 digits with attention pooling, a gated hidden layer, and a decoder that must
// reproduce the image.
#include "checks/models/layers.h"
#include "checks/models/models.h"

namespace ampcheck::checks::models {

namespace {

constexpr std::int64_t kSide = 8, kImage = kSide * kSide, kClasses = 10;
constexpr std::int64_t kChannels1 = 6, kChannels2 = 12, kHidden = 24;
constexpr double kReconstruction = 2;  // weight of the decoder's loss
constexpr double kRanked = 0.5;        // and of the ranked probability score

/// [N, C, 4, 4] to [N, C]: a learned softmax over the 16 places says how much each counts.
Var attention_pool(Tape& t, Var x) {
  const std::int64_t batch = t.shape(x)[0], channels = t.shape(x)[1], places = t.shape(x)[2] * t.shape(x)[3];
  const Var by_place = exchanged(t, x, batch, channels, places, 1, {batch * places, channels});
  const Var scores = t.reshape(linear(t, "pool", by_place, 1), {batch, places});
  const Var share = unary(t, "softmax", scores);
  // The same shares for each channel.
  std::vector<std::int64_t> map;
  for (std::int64_t i = 0; i < batch * channels * places; ++i)
    map.push_back(i / (channels * places) * places + i % places);
  const Shape rows{batch * channels, places};
  return t.reshape(row_sums(t, mul(t, t.reshape(x, rows), t.take(share, map, rows))), {batch, channels});
}

/// tanh(a) sigmoid(b).
Var gated(Tape& t, Var x) {
  return mul(t, unary(t, "tanh", linear(t, "content", x, kHidden)), unary(t, "sigmoid", linear(t, "gate", x, kHidden)));
}

/// -mean over the batch of log_softmax(logits)[class].
Var negative_log_likelihood(Tape& t, Var logits, const std::vector<double>& classes) {
  const std::int64_t batch = std::ssize(classes);
  std::vector<double> minus_one_hot(static_cast<std::size_t>(batch * kClasses), 0.0);
  for (std::size_t i = 0; i < classes.size(); ++i)
    minus_one_hot[i * kClasses + static_cast<std::size_t>(classes[i])] = -1;
  const Var target = t.data({batch, kClasses}, std::move(minus_one_hot));
  return mean_all(t, row_sums(t, mul(t, unary(t, "log_softmax", logits), target)));
}

/// The ranked probability score (Epstein 1969): squared differences of cumulative probabilities.
Var ranked_probability(Tape& t, Var logits, const std::vector<double>& classes) {
  std::vector<double> reached;
  for (const double one : classes)
    for (std::int64_t k = 0; k < kClasses; ++k) reached.push_back(static_cast<double>(k) >= one ? 1.0 : 0.0);
  const Var target = t.data({std::ssize(classes), kClasses}, std::move(reached));
  return t.call("mse_loss", {{"x", unary(t, "cumsum", unary(t, "softmax", logits))}, {"target", target}});
}

}  // namespace

void digits_model(Tape& t, const Digits& digits) {
  const std::int64_t batch = std::ssize(digits.classes);
  const Var image = t.data({batch, 1, kSide, kSide}, digits.pixels);
  const Var edges = unary(t, "relu", conv3x3(t, "conv1", image, kChannels1));
  const Var halved = t.call("max_pool2d", {{"x", edges}});
  const Var shapes = unary(t, "gelu", conv3x3(t, "conv2", halved, kChannels2));
  const Var hidden = gated(t, layer_norm(t, "norm", attention_pool(t, shapes)));
  const Var logits = linear(t, "classes", hidden, kClasses);
  t.add_loss(negative_log_likelihood(t, logits, digits.classes), 1);
  t.add_loss(ranked_probability(t, logits, digits.classes), kRanked);
  const Var decoded = unary(t, "sigmoid", linear(t, "decoder", hidden, kImage));
  t.add_loss(t.call("mse_loss", {{"x", decoded}, {"target", t.data({batch, kImage}, digits.pixels)}}), kReconstruction);
}

}  // namespace ampcheck::checks::models
