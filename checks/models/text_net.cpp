// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A character-level transformer of two blocks: one of GPT-2's kind (layer_norm, gelu_tanh), one of LLaMA's (rms_norm,
// swiglu, a gated attention), with a learned temperature and PaLM's z-loss on the logits.
#include "checks/models/layers.h"
#include "checks/models/models.h"
#include "src/error.h"

namespace ampcheck::checks::models {

namespace {

constexpr std::int64_t kTime = kPassage, kWidth = 32, kHeads = 2, kInner = 48;
constexpr double kSmoothing = 0.1;
constexpr double kZLoss = 0.01;  // Chowdhery et al. 2022, section 5, has 1e-4 for much longer runs

/// [tokens, width] to [batch, heads, time, width / heads].
Var split_heads(Tape& t, Var x) {
  const std::int64_t batch = t.shape(x)[0] / kTime;
  return exchanged(t, x, batch, kTime, kHeads, kWidth / kHeads, {batch, kHeads, kTime, kWidth / kHeads});
}

Var attention(Tape& t, const std::string& name, Var x) {
  const auto heads = [&](const char* which) { return split_heads(t, linear(t, name + "." + which, x, kWidth)); };
  const Var q = heads("q"), k = heads("k"), v = heads("v");
  const Var o = t.call("attention", {{"q", q}, {"k", k}, {"v", v}});
  const std::int64_t batch = t.shape(x)[0] / kTime;
  return exchanged(t, o, batch, kHeads, kTime, kWidth / kHeads, {batch * kTime, kWidth});
}

Var gpt_block(Tape& t, Var x) {
  const Var attended = linear(t, "block1.out", attention(t, "block1", layer_norm(t, "block1.norm1", x)), kWidth);
  x = add(t, x, attended);
  const Var inner = unary(t, "gelu_tanh", linear(t, "block1.up", layer_norm(t, "block1.norm2", x), kInner));
  return add(t, x, linear(t, "block1.down", inner, kWidth));
}

Var llama_block(Tape& t, Var x) {
  const Var normed = rms_norm(t, "block2.norm1", x);
  const Var gate = unary(t, "silu", linear(t, "block2.attention_gate", normed, kWidth));
  x = add(t, x, linear(t, "block2.out", mul(t, attention(t, "block2", normed), gate), kWidth));
  const Var in = rms_norm(t, "block2.norm2", x);
  const Var inner =
      t.call("swiglu", {{"gate", linear(t, "block2.gate", in, kInner)}, {"up", linear(t, "block2.up", in, kInner)}});
  return add(t, x, linear(t, "block2.down", inner, kWidth));
}

/// mean of log(sum(exp(logits)))^2: keeps the logits' scale in check.
Var z_loss(Tape& t, Var logits) {
  const Var z = unary(t, "log", row_sums(t, unary(t, "exp", logits)));
  return mean_all(t, unary(t, "pow", z));
}

Var embedded(Tape& t, const std::string& name, std::int64_t rows, const std::vector<double>& index) {
  return t.call("embedding",
                {{"weight", t.weight(name, {rows, kWidth}, 4)}, {"index", t.data({std::ssize(index)}, index)}});
}

}  // namespace

void add_passage(Passages& out, const Text& text, std::int64_t at, std::int64_t of) {
  const std::int64_t length = std::ssize(text.tokens);
  if (length < of * (kTime + 1))
    throw Error("[text net] text, got " + std::to_string(length) + " characters, want at least " +
                std::to_string(of * (kTime + 1)));
  const auto from = static_cast<std::size_t>((2 * at + 1) * (length - kTime - 1) / (2 * of));
  for (std::size_t i = 0; i < kTime; ++i) {
    out.tokens.push_back(static_cast<double>(text.tokens[from + i]));
    out.next.push_back(static_cast<double>(text.tokens[from + i + 1]));
    out.places.push_back(static_cast<double>(i));
  }
}

void text_model(Tape& t, const Passages& batch, std::int64_t vocabulary) {
  Var x = add(t, embedded(t, "characters", vocabulary, batch.tokens), embedded(t, "places", kTime, batch.places));
  x = rms_norm(t, "norm", llama_block(t, gpt_block(t, x)));
  const Var raw = linear(t, "characters_out", x, vocabulary);
  const std::int64_t tokens = std::ssize(batch.tokens);
  const Var temperature = t.call("exp", {{"x", t.constant_start("log_temperature", {1, 1}, -0.25)}});
  const Var logits = t.call("div", {{"x", raw}, {"y", repeated(t, temperature, tokens, vocabulary)}});
  const Var losses = t.call("cross_entropy", {{"x", logits}, {"target", t.data({tokens}, batch.next)}},
                            {{"label_smoothing", kSmoothing}});
  t.add_loss(mean_all(t, losses), 1);
  t.add_loss(z_loss(t, logits), kZLoss);
}

}  // namespace ampcheck::checks::models
