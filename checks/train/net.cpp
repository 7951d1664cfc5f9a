// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/train/net.h"

#include <algorithm>
#include <array>
#include <memory>

#include "checks/models/layers.h"
#include "checks/models/models.h"
#include "src/error.h"
#include "src/random.h"

namespace ampcheck::checks::train {

namespace {

using namespace models;

constexpr std::array kNets = {
    NetInfo{"mlp", "digits", "64-64-64-10 with relu on 8x8 digits; cross-entropy, or MSE against one-hot"},
    NetInfo{"conv", "digits", "two convolutions, attention pooling, a gated layer and a decoder on digits"},
    NetInfo{"transformer", "text", "two transformer blocks (GPT-2's and LLaMA's) that predict the next character"},
    NetInfo{"tutorial", "random", "three linear layers with relu and MSE, the net of the AMP tutorials"}};
constexpr std::int64_t kPixels = 64;

/// Rows batch * size, ... of the file, which begins anew at its end.
std::vector<std::size_t> rows_of(std::int64_t batch, std::int64_t size, std::int64_t all) {
  std::vector<std::size_t> out;
  for (std::int64_t i = 0; i < size; ++i) out.push_back(static_cast<std::size_t>((batch * size + i) % all));
  return out;
}

std::string batch_setting(std::int64_t size) { return " batch " + std::to_string(size); }

Net mlp(const NetOptions& options) {
  const std::string loss = options.loss.empty() ? "cross_entropy" : options.loss;
  const std::vector<LossChoice> losses = read_losses(loss);
  for (const LossChoice& l : losses)
    if (!l.layer.empty()) throw Error("[train] loss, got '" + l.text + "' for mlp, want one of its output, without @");
  const std::int64_t size = options.batch > 0 ? options.batch : 64;
  const auto digits = std::make_shared<const Digits>(read_digits(options.data));
  const auto forward = [=](Tape& t, std::int64_t batch) {
    const Digits rows = digits_batch(*digits, batch, size);
    Var h = t.data({size, kPixels}, rows.pixels);
    h = unary(t, "relu", linear(t, "layer0", h, 64));
    h = unary(t, "relu", linear(t, "layer1", h, 64));
    h = linear(t, "layer2", h, kDigitClasses);
    for (const LossChoice& l : losses) add_class_loss(t, h, rows.classes, l);
  };
  Net out{"mlp", 0.1, 0.9, forward, "loss " + loss + batch_setting(size)};
  for (const LossChoice& l : losses)
    if (losses.size() > 1) out.losses.push_back(l.text);
  return out;
}

Net conv(const NetOptions& options) {
  const std::int64_t size = options.batch > 0 ? options.batch : 8;
  const auto digits = std::make_shared<const Digits>(read_digits(options.data));
  return {"conv", 0.1, 0, [=](Tape& t, std::int64_t batch) { digits_model(t, digits_batch(*digits, batch, size)); },
          "loss own" + batch_setting(size)};
}

Net transformer(const NetOptions& options) {
  constexpr std::int64_t kWindow = 512, kOfWindow = 4;  // characters, and the passages that are taken from them
  const std::int64_t size = options.batch > 0 ? options.batch : kOfWindow;
  const auto text = std::make_shared<const Text>(read_text(options.data));
  const auto forward = [=](Tape& t, std::int64_t batch) {
    Passages passages;
    for (std::int64_t i = batch * size; i < (batch + 1) * size; ++i) {
      Text window;
      for (const std::size_t at : rows_of(i / kOfWindow, kWindow, std::ssize(text->tokens)))
        window.tokens.push_back(text->tokens[at]);
      add_passage(passages, window, i % kOfWindow, kOfWindow);
    }
    text_model(t, passages, text->vocabulary);
  };
  return {"transformer", 0.1, 0, forward, "loss own" + batch_setting(size)};
}

/// Normal inputs and targets.
Net tutorial(const NetOptions& options) {
  const std::int64_t size = options.batch > 0 ? options.batch : 128, width = options.width > 0 ? options.width : 4096;
  const std::uint64_t seed = options.seed;
  return {"tutorial", 1e-3, 0,
          [=](Tape& t, std::int64_t batch) {
            const auto normal = [&](const char* what) {
              std::vector<double> values(static_cast<std::size_t>(size * width));
              Random(seed, "tutorial/" + std::string(what) + std::to_string(batch)).normals(0, values);
              return values;
            };
            Var h = t.data({size, width}, normal("x"));
            h = unary(t, "relu", linear(t, "layer0", h, width));
            h = unary(t, "relu", linear(t, "layer1", h, width));
            h = linear(t, "layer2", h, width);
            t.add_loss(t.call("mse_loss", {{"x", h}, {"target", t.data({size, width}, normal("y"))}}), 1);
          },
          "loss mse" + batch_setting(size) + " width " + std::to_string(width)};
}

}  // namespace

Digits digits_batch(const Digits& all, std::int64_t batch, std::int64_t size) {
  Digits out;
  for (const std::size_t row : rows_of(batch, size, std::ssize(all.classes))) {
    const auto first = all.pixels.begin() + static_cast<std::ptrdiff_t>(row) * kPixels;
    out.pixels.insert(out.pixels.end(), first, first + kPixels);
    out.classes.push_back(all.classes[row]);
  }
  return out;
}

void add_class_loss(Tape& t, Var logits, const std::vector<double>& classes, const LossChoice& loss) {
  const std::int64_t rows = t.shape(logits)[0], columns = t.shape(logits)[1];
  if (!loss.mse) {
    const Var losses = t.call("cross_entropy", {{"x", logits}, {"target", t.data({rows}, classes)}});
    return t.add_loss(mean_all(t, losses), loss.weight);
  }
  std::vector<double> one_hot(static_cast<std::size_t>(rows * columns), 0.0);
  for (std::size_t i = 0; i < classes.size(); ++i)
    one_hot[i * static_cast<std::size_t>(columns) + static_cast<std::size_t>(classes[i])] = 1;
  t.add_loss(t.call("mse_loss", {{"x", logits}, {"target", t.data({rows, columns}, std::move(one_hot))}}), loss.weight);
}

std::span<const NetInfo> nets() { return kNets; }

Net make_net(const NetOptions& options) {
  if (options.model != "mlp" && !options.loss.empty())
    throw Error("[train] loss, got '" + options.loss + "' for " + options.model +
                ", want it with mlp alone: the others have their own");
  if (options.model == "mlp") return mlp(options);
  if (options.model == "conv") return conv(options);
  if (options.model == "transformer") return transformer(options);
  if (options.model == "tutorial") return tutorial(options);
  throw Error("[train] model, got '" + options.model + "', want mlp, conv, transformer or tutorial");
}

}  // namespace ampcheck::checks::train
