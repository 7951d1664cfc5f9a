// SPDX-License-Identifier: Apache-2.0
// What the plays of torch's autocast facts (autocast_cpu.json) share: decisions, graphs that train under CPU's list,
// and their list.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "checks/models/layers.h"
#include "checks/train/graph.h"
#include "src/amp/autocast.h"
#include "src/amp/error.h"
#include "src/amp/grad_mode.h"
#include "src/rounding.h"
#include "tests/support/golden_coverage.h"
#include "tests/support/goldens.h"
#include "tools/commands/torch_differences.h"

namespace ampcheck::autocast_facts {

using checks::models::Var;
using tests::dtype_of;
using tests::Golden;
namespace models = checks::models;
namespace train = checks::train;

inline constexpr AutocastDevice kCpu = AutocastDevice::cpu;

inline AutocastOptions region(std::optional<Dtype> dtype, bool enabled = true) { return {dtype, enabled, {}}; }
inline AutocastOptions off() { return {.enabled = false}; }
inline Dtype low_of(const Golden& fact) { return dtype_of(fact.at("autocast_dtype").text); }
inline Dtype other_of(const Golden& fact) { return low_of(fact) == Dtype::bf16 ? Dtype::fp16 : Dtype::bf16; }

/// Where a play came out otherwise than the fact says.
class Differences {
 public:
  template <class Got, class Want>
  void same(const std::string& what, const Got& got, const Want& want) {
    if (!(got == want)) text_ += what + "; ";
  }
  void same_state(const std::string& what, const AutocastState& got, const Golden& want) {
    same(what + " enabled", got.enabled, want.at("enabled").truth);
    same(what + " dtype", got.dtype, dtype_of(want.at("dtype").text));
    same(what + " cache_enabled", got.cache_enabled, want.at("cache_enabled").truth);
  }
  void same_dtypes(const std::string& what, const std::vector<Dtype>& got, const Golden& want) {
    std::vector<Dtype> wanted;
    for (const Golden& each : want) wanted.push_back(dtype_of(each.text));
    same(what, got, wanted);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// The dtype that mm gives in `state`; none: its inputs are of two dtypes, which it refuses.
inline std::optional<Dtype> mm(const AutocastState& state, Dtype a, Dtype b) {
  const std::vector<Dtype> inputs = decide_casts(cast_policy(kCpu, "mm"), state, std::vector{a, b}).inputs;
  return inputs[0] == inputs[1] ? std::optional(inputs[0]) : std::nullopt;
}
inline std::optional<Dtype> mm(Dtype a = Dtype::fp32, Dtype b = Dtype::fp32) { return mm(autocast_state(kCpu), a, b); }

// Graphs
// ----------------------------------------------------------------------------------------------------------------------

/// The names of torch's nodes for what a graph ran that a gradient passes.
class Nodes final : public train::Observer {
 public:
  bool wants(std::string_view) const override { return true; }
  bool wants_exact(std::string_view) const override { return false; }
  train::Seen see(const train::Event& e) override {
    const bool weight = e.tensor == "weight" || e.tensor == "bias";
    if (e.phase == train::Phase::forward && e.cast && weight) names.emplace_back("ToCopyBackward0");
    return {train::all_finite(e.got)};
  }
  std::size_t casts() const {
    return static_cast<std::size_t>(std::count(names.begin(), names.end(), "ToCopyBackward0"));
  }
  std::vector<std::string> names;
};

inline constexpr int kSide = 4;
/// The A of the facts: arange(16) / 7 + 0.1. Our linear takes the transposed of what mm takes, so that weights are put
/// in transposed.
inline std::vector<double> a_values() {
  std::vector<double> out;
  for (int i = 0; i < kSide * kSide; ++i) out.push_back(static_cast<double>(static_cast<float>(i) / 7.0f + 0.1f));
  return out;
}
inline std::vector<double> transposed(const std::vector<double>& x) {
  std::vector<double> out;
  for (int i = 0; i < kSide * kSide; ++i) out.push_back(x[static_cast<std::size_t>(i % kSide * kSide + i / kSide)]);
  return out;
}
/// B: arange(16) / 5 - 1.
inline std::vector<double> b_values() {
  std::vector<double> out;
  for (int i = 0; i < kSide * kSide; ++i) out.push_back(static_cast<double>(static_cast<float>(i) / 5.0f - 1.0f));
  return out;
}
inline std::vector<double> eye() {
  std::vector<double> out(kSide * kSide, 0);
  for (std::size_t i = 0; i < kSide; ++i) out[i * kSide + i] = 1;
  return out;
}

/// Weights that outlive the graphs of their forwards.
struct Weights {
  explicit Weights(const std::vector<double>& w, Dtype dtype = Dtype::fp32) : all("facts", 1, dtype) {
    all.set("w.weight", {kSide, kSide}, transposed(w));
    all.set("w.bias", {kSide}, std::vector<double>(kSide, 0));
    all.set("x.value", {kSide, kSide}, a_values());
  }
  const Tensor& value(const char* name) { return all.find(name)->value; }
  const Tensor& grad(const char* name) { return all.find(name)->grad; }
  train::ParameterSet all;
};

/// One forward under CPU's list.
struct Forward {
  explicit Forward(Weights& weights) : graph(weights.all, recordings, {.observer = &nodes, .autocast = kCpu}) {}
  Var w() { return graph.parameter("w.weight", {kSide, kSide}, 0, 0); }
  Var a() { return graph.data({kSide, kSide}, a_values()); }
  Var a_mm_w() { return graph.call("linear", {{"x", a()}, {"weight", w()}}); }
  void add_float_sum(Var x) {
    const Var wide = graph.to(x, Dtype::fp32);
    graph.add_loss(graph.call("sum", {{"x", graph.reshape(wide, {1, graph.shape(wide).count()})}}), 1);
  }
  std::vector<double> values(Var x) const { return to_doubles(graph.view(x)); }

  Nodes nodes;
  models::Recordings recordings;
  train::Graph graph;
};

inline void scale(const Tensor& tensor, float factor) {
  Tensor same = tensor;
  for (float& x : same.span<float>()) x *= factor;
}

struct Play {
  std::string begins;  ///< of the name of the fact
  std::function<std::string(const Golden&)> differences;
  std::vector<std::string> unread =
      {};  ///< parts of the paths to what it need not read: texts of errors that kernels raise
};
/// Those of all files.
inline std::vector<Play>& plays() {
  static std::vector<Play> all;
  return all;
}
/// As a global of the file that has them.
struct Plays {
  Plays(std::initializer_list<Play> own) { plays().insert(plays().end(), own); }
};
/// That of a fact; null if there is none.
inline const Play* play_of(const Golden& fact) {
  for (const Play& play : plays())
    if (fact.at("name").text.starts_with(play.begins)) return &play;
  return nullptr;
}
/// Plays the facts whose name begins so.
inline void expect_as_torch(const Golden& facts, const std::string& begins) {
  int played = 0;
  for (const Golden& fact : facts) {
    const Play* const play = play_of(fact);
    if (play == nullptr || !fact.at("name").text.starts_with(begins)) continue;
    EXPECT_EQ(play->differences(fact), "") << fact.at("name").text;
    ++played;
  }
  EXPECT_GT(played, 0);
}

}  // namespace ampcheck::autocast_facts
