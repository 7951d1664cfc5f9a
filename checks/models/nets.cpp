// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/models/nets.h"

#include <array>
#include <functional>

#include "checks/models/models.h"
#include "src/error.h"

namespace ampcheck::checks::models {

namespace {

constexpr std::array<std::string_view, 3> kNames = {"digits", "text", "channels"};
constexpr std::array<std::string_view, 15> kOpsOfDigits = {
    "conv2d",   "cumsum", "gelu", "layer_norm", "linear",  "log_softmax", "max_pool2d", "mean",
    "mse_loss", "mul",    "relu", "sigmoid",    "softmax", "sum",         "tanh"};
constexpr std::array<std::string_view, 17> kOpsOfText = {
    "add", "attention", "cross_entropy", "div", "embedding", "exp",  "gelu_tanh", "layer_norm", "linear",
    "log", "mean",      "mul",           "pow", "rms_norm",  "silu", "sum",       "swiglu"};
constexpr std::array<std::string_view, 15> kOpsOfChannels = {
    "add",    "batch_norm", "clamp",      "conv2d", "cross_entropy", "elu",      "group_norm", "leaky_relu",
    "linear", "max",        "max_pool2d", "mean",   "min",           "softplus", "sqrt"};
constexpr double kRate = 0.2;
constexpr std::int64_t kImages = 8, kPassages = 4;

Digits first_digits(Digits digits) {
  if (std::ssize(digits.classes) < kImages)
    throw Error("[digits net] images, got " + std::to_string(digits.classes.size()) + ", want at least " +
                std::to_string(kImages));
  digits.pixels.resize(digits.pixels.size() / digits.classes.size() * kImages);
  digits.classes.resize(kImages);
  return digits;
}

NetRun train(std::string_view name, const std::function<void(Tape&)>& model) {
  NetRun out;
  out.name = name;
  Parameters parameters{out.name};
  for (int step = 0; step < kSteps; ++step) {
    Fp64Tape tape(parameters);
    model(tape);
    tape.backward_and_update(kRate);
    out.steps.push_back(tape.take_record());
  }
  return out;
}

}  // namespace

std::span<const std::string_view> net_names() { return kNames; }

std::span<const std::string_view> ops_of_net(std::string_view net) {
  if (net == kNames[0]) return kOpsOfDigits;
  if (net == kNames[1]) return kOpsOfText;
  if (net == kNames[2]) return kOpsOfChannels;
  throw Error("[real tensors] net, got '" + std::string(net) + "', want digits, text or channels");
}

NetRun run_net(std::string_view name, const std::filesystem::path& folder) {
  if (name == kNames[0])
    return train(name, [data = first_digits(read_digits(folder))](Tape& tape) { digits_model(tape, data); });
  if (name == kNames[2])
    return train(name, [data = first_digits(read_digits(folder))](Tape& tape) { channel_model(tape, data); });
  if (name == kNames[1]) {
    const Text text = read_text(folder);
    Passages passages;
    for (std::int64_t i = 0; i < kPassages; ++i) add_passage(passages, text, i, kPassages);
    return train(name, [=](Tape& tape) { text_model(tape, passages, text.vocabulary); });
  }
  throw Error("[real tensors] net, got '" + std::string(name) + "', want digits, text or channels");
}

}  // namespace ampcheck::checks::models
