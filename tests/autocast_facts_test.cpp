// SPDX-License-Identifier: Apache-2.0
// What torch's regions, cache, backward passes and custom functions were seen to do (the "facts" of autocast_cpu.json), played with ours: decisions,
// and graphs that train under CPU's list. That a play reads a fact is shown by changing it: every number, word and flag of it, one after the other.
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
#include "tests/golden_coverage.h"
#include "tests/goldens.h"
#include "tools/torch_differences.h"

namespace ampcheck {
namespace {

using checks::models::Var;
using tests::dtype_of;
using tests::Golden;
namespace models = checks::models;
namespace train = checks::train;

constexpr AutocastDevice kCpu = AutocastDevice::cpu;

AutocastOptions region(std::optional<Dtype> dtype, bool enabled = true) { return {dtype, enabled, {}}; }
AutocastOptions off() { return {.enabled = false}; }
Dtype low_of(const Golden& fact) { return dtype_of(fact.at("autocast_dtype").text); }
Dtype other_of(const Golden& fact) { return low_of(fact) == Dtype::bf16 ? Dtype::fp16 : Dtype::bf16; }

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
std::optional<Dtype> mm(const AutocastState& state, Dtype a, Dtype b) {
  const std::vector<Dtype> inputs = decide_casts(cast_policy(kCpu, "mm"), state, std::vector{a, b}).inputs;
  return inputs[0] == inputs[1] ? std::optional(inputs[0]) : std::nullopt;
}
std::optional<Dtype> mm(Dtype a = Dtype::fp32, Dtype b = Dtype::fp32) { return mm(autocast_state(kCpu), a, b); }

// Graphs ----------------------------------------------------------------------------------------------------------------------

/// The names of torch's nodes for what a graph ran that a gradient passes.
class Nodes final : public train::Observer {
 public:
  bool wants(std::string_view) const override { return true; }
  bool wants_exact(std::string_view) const override { return false; }
  bool see(const train::Event& e) override {
    const bool weight = e.tensor == "weight" || e.tensor == "bias";
    if (e.phase == train::Phase::forward && e.cast && weight) names.emplace_back("ToCopyBackward0");
    return train::all_finite(e.got);
  }
  std::size_t casts() const { return static_cast<std::size_t>(std::count(names.begin(), names.end(), "ToCopyBackward0")); }
  std::vector<std::string> names;
};

constexpr int kSide = 4;
/// The A of the facts: arange(16) / 7 + 0.1. Our linear takes the transposed of what mm takes, so that weights are put in transposed.
std::vector<double> a_values() {
  std::vector<double> out;
  for (int i = 0; i < kSide * kSide; ++i) out.push_back(static_cast<double>(static_cast<float>(i) / 7.0f + 0.1f));
  return out;
}
std::vector<double> transposed(const std::vector<double>& x) {
  std::vector<double> out;
  for (int i = 0; i < kSide * kSide; ++i) out.push_back(x[static_cast<std::size_t>(i % kSide * kSide + i / kSide)]);
  return out;
}
/// B: arange(16) / 5 - 1.
std::vector<double> b_values() {
  std::vector<double> out;
  for (int i = 0; i < kSide * kSide; ++i) out.push_back(static_cast<double>(static_cast<float>(i) / 5.0f - 1.0f));
  return out;
}
std::vector<double> eye() {
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

void scale(const Tensor& tensor, float factor) {
  Tensor same = tensor;
  for (float& x : same.span<float>()) x *= factor;
}

// Plays -----------------------------------------------------------------------------------------------------------------------

std::string nesting(const Golden& fact) {
  Differences d;
  std::map<std::string, AutocastState> seen;
  seen["outside"] = autocast_state(kCpu);
  {
    const Autocast outer(kCpu, region(low_of(fact)));
    seen["outer"] = autocast_state(kCpu);
    {
      const Autocast disabled(kCpu, off());
      seen["disabled_inside"] = autocast_state(kCpu);
      const Autocast inner(kCpu, region(other_of(fact)));
      seen["other_dtype_inside_disabled"] = autocast_state(kCpu);
    }
    {
      const Autocast inner(kCpu, region(other_of(fact)));
      seen["other_dtype_inside"] = autocast_state(kCpu);
    }
    {
      const Autocast inner(kCpu);
      seen["no_dtype_given_inside"] = autocast_state(kCpu);
    }
    seen["outer_again"] = autocast_state(kCpu);
  }
  seen["after"] = autocast_state(kCpu);
  for (const Golden& where : fact.at("result")) {
    const std::string& name_of = where.at("where").text;
    const AutocastState& state = seen.at(name_of);
    d.same_state(name_of, state, where);
    for (const auto& [key, dtype] : {std::pair("mm", Dtype::fp32), {"mm_fp32", Dtype::fp32}, {"mm_low", low_of(fact)}})
      if (const Golden* want = where.find(key)) d.same(name_of + " " + key, mm(state, dtype, dtype), std::optional(dtype_of(want->text)));
    if (const Golden* mixed = where.find("mm_mixed")) d.same(name_of + " mm_mixed", mm(state, low_of(fact), Dtype::fp32).has_value(), !mixed->contains("error"));
  }
  return d.text();
}

std::string restored_on_exception(const Golden& fact) {
  Differences d;
  try {
    const Autocast uncached(kCpu, {.dtype = low_of(fact), .cache_enabled = false});
    const Autocast disabled(kCpu, off());
    throw std::invalid_argument("boom");
  } catch (const std::invalid_argument&) {
  }
  d.same_state("after", autocast_state(kCpu), fact.at("result").at("after_exception"));
  d.same("mm", mm(), std::optional(dtype_of(fact.at("result").at("mm").text)));
  return d.text();
}

std::string new_thread(const Golden& fact) {
  Differences d;
  const Golden& result = fact.at("result");
  AutocastState bare;
  std::optional<Dtype> in_bare, in_own;
  const Autocast main(kCpu, region(low_of(fact)));
  std::thread([&] {
    bare = autocast_state(kCpu), in_bare = mm();
    const Autocast own(kCpu, region(low_of(fact)));
    in_own = mm();
  }).join();
  d.same_state("new thread", bare, result.at("new_thread"));
  d.same("mm in it", in_bare, std::optional(dtype_of(result.at("new_thread").at("mm").text)));
  d.same("mm in its own region", in_own, std::optional(dtype_of(result.at("new_thread_own_region").text)));
  d.same_state("main thread", autocast_state(kCpu), result.at("main_still"));
  return d.text();
}

std::string order_and_foreign_dtypes(const Golden& fact) {
  Differences d;
  const Dtype low = low_of(fact);
  const std::map<std::string, Dtype> words = {{"low", low},           {"other", other_of(fact)}, {"fp32", Dtype::fp32},
                                              {"fp64", Dtype::fp64}, {"int", Dtype::i64},       {"fp8", Dtype::e4m3fn}};
  const Golden& result = fact.at("result");
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= result.keys[i].size();) {
      const std::size_t end = std::min(result.keys[i].find('_', at), result.keys[i].size());
      parts.push_back(result.keys[i].substr(at, end - at));
      at = end + 1;
    }
    if (parts[0] == "narrowing" || result.keys[i] == "mse_int_int") continue;
    std::vector<Dtype> inputs;
    for (std::size_t k = 1; k < parts.size(); ++k) inputs.push_back(words.at(parts[k]));
    if (parts[1] == "fp8") inputs.push_back(parts[0] == "add" ? low : Dtype::e4m3fn);
    std::string got, error;
    try {
      const CastDecision decision = decide_casts(cast_policy(kCpu, parts[0] == "mse" ? "mse_loss" : parts[0]), {true, low, true}, inputs);
      const bool mixed = decision.inputs.front() != decision.inputs.back();
      got = parts[0] == "mm" && mixed ? "error" : name(promoted_dtype(decision.inputs));  // mm itself promotes nothing
    } catch (const AmpError& e) {
      got = "error", error = e.what();
    }
    const Golden* const seen = result[i].find("error");
    d.same(result.keys[i], got, seen != nullptr ? "error" : std::string(name(dtype_of(result[i].text))));
    if (seen != nullptr && !error.empty()) d.same(result.keys[i] + " text", seen->at("message").text.starts_with(error), true);
  }
  return d.text();
}

std::string eligibility(const Golden& fact) {
  Differences d;
  const std::map<std::string, CastSource> sources = {{"fp32_leaf_requires_grad", {Tensor(Dtype::fp32, {2}), true, true, false}},
                                                     {"fp32_leaf_frozen", {Tensor(Dtype::fp32, {2}), false, true, false}},
                                                     {"fp32_nonleaf", {Tensor(Dtype::fp32, {2}), true, false, false}},
                                                     {"fp32_view_of_leaf", {Tensor(Dtype::fp32, {2}), true, false, true}},
                                                     {"other16_leaf", {Tensor(other_of(fact), {2}), true, true, false}}};
  const Golden& casts = fact.at("result");
  for (std::size_t i = 0; i < casts.size(); ++i) {
    const Autocast here(kCpu, region(low_of(fact)));
    double made = 0;
    for (int use = 0; use < 2; ++use)
      autocast_cast(kCpu, sources.at(casts.keys[i]), low_of(fact), [&] { return ++made, Tensor(low_of(fact), {2}); });
    d.same(casts.keys[i], made, casts[i].value);
  }
  return d.text();
}

std::string two_uses(const Golden& fact) {
  Differences d;
  const Golden& result = fact.at("result");
  for (const bool cached : {true, false}) {
    Weights weights(b_values());
    Forward run(weights);
    std::optional<Autocast> here(std::in_place, kCpu, AutocastOptions{.dtype = low_of(fact), .cache_enabled = cached});
    const Var y1 = run.a_mm_w(), y2 = run.a_mm_w(), y = models::add(run.graph, y1, y2);
    here.reset();
    d.same(cached ? "cache on" : "cache off", static_cast<double>(run.nodes.casts()), result.at(cached ? "cast_nodes_for_two_uses_cache_on" : "cast_nodes_for_two_uses_cache_off").value);
    if (!cached) continue;
    std::vector<std::string> nodes = run.nodes.names, wanted;
    for (const char* call : {"linear_1", "linear_2"})
      if (run.graph.requires_grad(run.graph.output_of(call))) nodes.emplace_back("MmBackward0");
    if (run.graph.requires_grad(y)) nodes.emplace_back("AddBackward0");
    for (std::size_t i = 0; i < run.graph.parameter_vars().size(); ++i) nodes.emplace_back("torch::autograd::AccumulateGrad");
    std::sort(nodes.begin(), nodes.end());
    for (const Golden& node : result.at("nodes_cache_on")) wanted.push_back(node.text);
    d.same("nodes", nodes, wanted);
    run.add_float_sum(y);
    run.graph.backward(1, 1);
    d.same("grad dtype", weights.grad("w.weight").dtype(), dtype_of(result.at("grad_dtype").text));
  }
  return d.text();
}

std::string no_grad_first(const Golden& fact) {
  Differences d;
  const Golden& result = fact.at("result");
  Weights weights(b_values());
  Forward run(weights);
  std::optional<Autocast> here(std::in_place, kCpu, region(low_of(fact)));
  Var a;
  {
    const NoGrad none;
    a = models::linear(run.graph, "w", run.a(), kSide);
  }
  const Var b = models::linear(run.graph, "w", run.a(), kSide);
  here.reset();
  d.same("of no_grad", run.graph.requires_grad(a), result.at("no_grad_output_requires_grad").truth);
  d.same("after it", run.graph.requires_grad(b), result.at("output_requires_grad").truth);
  std::vector<std::string> nodes = run.nodes.names, wanted;  // our linear is torch's addmm of a transposed weight
  if (run.graph.requires_grad(b)) nodes.insert(nodes.end(), {"AddmmBackward0", "TBackward0"});
  for (std::size_t i = 0; i < run.graph.parameter_vars().size(); ++i) nodes.emplace_back("torch::autograd::AccumulateGrad");
  std::sort(nodes.begin(), nodes.end());
  for (const Golden& node : result.at("nodes")) wanted.push_back(node.text);
  d.same("nodes", nodes, wanted);
  run.add_float_sum(b);
  run.graph.backward(1, 1);
  d.same("weight", !weights.grad("w.weight").defined(), result.at("weight_grad_is_none").truth);
  d.same("bias", !weights.grad("w.bias").defined(), result.at("bias_grad_is_none").truth);
  return d.text();
}

std::string inplace_update(const Golden& fact) {
  Differences d;
  const Golden& result = fact.at("result");
  Weights weights(eye());
  Forward run(weights);
  const auto product = [&] { return run.values(run.a_mm_w()); };
  std::vector<double> y1, y2, y3, again;
  {
    const Autocast here(kCpu, region(low_of(fact)));
    y1 = product();
    scale(weights.value("w.weight"), 2);
    y2 = product();
    d.same("told", stale_casts(), std::size_t{1});
    clear_autocast_cache();
    y3 = product();
    scale(weights.value("w.weight"), 2);
    again = product();
  }
  const Autocast later(kCpu, region(low_of(fact)));
  const std::vector<double> y4 = product();
  d.same("second use", y1 != y2, result.at("second_use_sees_update").truth);
  d.same("after clear", y1 != y3, result.at("after_clear_sees_update").truth);
  d.same("stale again", again == y3, result.at("stale_after_second_update").truth);
  d.same("new region", y3 != y4, result.at("new_region_sees_update").truth);
  return d.text();
}

std::string optimizer_step_inside(const Golden& fact) {
  Differences d;
  const Golden &result = fact.at("result"), &losses = result.at("losses_inside_one_region");
  Weights weights(eye());
  const auto forward = [&](bool backward) {
    Forward run(weights);
    run.add_float_sum(run.a_mm_w());
    if (backward) run.graph.backward(1, 1);
    return static_cast<double>(run.graph.loss());
  };
  {
    const Autocast here(kCpu, region(low_of(fact)));
    for (std::size_t i = 0; i < losses.size(); ++i) {
      weights.all.clear_grads();
      d.same("loss " + std::to_string(i), forward(true), tests::real(losses[i]));
      const auto w = weights.all.find("w.weight")->value.span<float>(), grad = weights.all.find("w.weight")->grad.span<float>();
      for (std::size_t k = 0; k < w.size(); ++k) w[k] -= grad[k];  // SGD at lr 1
    }
  }
  const Autocast later(kCpu, region(low_of(fact)));
  d.same("in a new region", forward(false), tests::real(result.at("loss_in_a_new_region")));
  d.same("second backward", std::string("ran"), result.at("second_backward").text);  // the rounds above are its proof
  return d.text();
}

std::string backward_dtypes(const Golden& fact) {
  Differences d;
  const Golden &result = fact.at("result"), &forward = result.at("forward"), &grads = result.at("grad_dtypes");
  Weights weights(b_values());
  Forward run(weights);
  Var h, r, loss;
  {
    const Autocast here(kCpu, region(low_of(fact)));
    h = run.graph.call("linear", {{"x", run.graph.parameter("x.value", {kSide, kSide}, 0, 0)}, {"weight", run.w()}});
    r = models::unary(run.graph, "relu", h);
    loss = run.graph.call("mse_loss", {{"x", r}, {"target", run.graph.data({kSide, kSide}, std::vector<double>(kSide * kSide, 0))}});
  }
  run.graph.add_loss(loss, 1);
  run.graph.backward(1, 1);
  d.same("mm", run.graph.dtype(h), dtype_of(forward.at("mm").text));
  d.same("relu", run.graph.dtype(r), dtype_of(forward.at("relu").text));
  d.same("mse_loss", run.graph.dtype(loss), dtype_of(forward.at("mse_loss").text));
  d.same("grad of mm", run.graph.grad(h).dtype(), dtype_of(grads.at("mm_output").text));
  d.same("grad of relu", run.graph.grad(r).dtype(), dtype_of(grads.at("relu_output").text));
  d.same("grad of the loss", run.graph.grad(loss).dtype(), dtype_of(grads.at("loss").text));
  d.same("weight", weights.grad("w.weight").dtype(), dtype_of(result.at("weight_grad").text));
  d.same("input", weights.grad("x.value").dtype(), dtype_of(result.at("input_grad").text));
  Tensor grad(weights.grad("w.weight").dtype(), {kSide, kSide});
  from_doubles(transposed(to_doubles(weights.grad("w.weight").view())), grad.view());
  d.same("weight's values", bool(tests::same_tensor(grad, result.at("weight_grad_values"))), true);
  return d.text();
}

std::string backward_inside_region(const Golden& fact) {
  Differences d;
  const Golden& result = fact.at("result");
  std::map<bool, Tensor> grads;
  for (const bool inside : {true, false}) {
    Weights weights(b_values());
    Forward run(weights);
    std::optional<Autocast> here(std::in_place, kCpu, region(low_of(fact)));
    run.add_float_sum(run.a_mm_w());
    if (!inside) here.reset();
    run.graph.backward(1, 1);
    grads[inside] = weights.grad("w.weight");
    d.same(inside ? "inside" : "outside", grads[inside].dtype(), dtype_of(result.at(inside ? "weight_grad_inside" : "weight_grad_outside").text));
  }
  d.same("bits", to_doubles(grads[true].view()) == to_doubles(grads[false].view()), result.at("bitwise_equal").truth);
  return d.text();
}

std::string rounding_at_a_widening_cast(const Golden& fact) {
  Differences d;
  for (const Golden& row : fact.at("result")) {
    train::ParameterSet all("facts", 1, low_of(fact));
    all.set("h.value", {1, 1}, {1});
    models::Recordings recordings;
    train::Graph graph(all, recordings, {.autocast = kCpu});
    Var out;
    {
      const Autocast here(kCpu, region(low_of(fact)));
      out = graph.call("mse_loss", {{"x", graph.parameter("h.value", {1, 1}, 0, 0)}, {"target", graph.data({1, 1}, {0})}});  // of one element the mean is the sum
    }
    graph.add_loss(out, 1);
    const double incoming = tests::real(row.at("incoming"));
    graph.backward(static_cast<float>(incoming), 1);
    const Tensor& grad = all.find("h.value")->grad;
    const std::string where = std::to_string(incoming);
    d.same(where + " out", graph.dtype(out), dtype_of(row.at("out_dtype").text));
    d.same(where + " grad", bool(tests::same_number(to_doubles(grad.view())[0], tests::real(row.at("grad_at_low_input")))), true);
    d.same(where + " grad dtype", grad.dtype(), dtype_of(row.at("grad_dtype").text));
  }
  return d.text();
}

/// custom_fwd and custom_bwd with and without cast_inputs, or neither, in and out of a region: states, casts, and the dtypes that mm computes in.
std::string custom_function(const Golden& fact) {
  Differences d;
  const std::string& name_of = fact.at("name").text;
  const Golden& result = fact.at("result");
  const auto named = [&](const char* part) { return name_of.find(part) != std::string::npos; };
  const bool decorated = named("cast_inputs=");
  const Dtype low = low_of(fact);
  const std::optional<Dtype> cast = named("=float32_") ? std::optional(Dtype::fp32) : named("=low_") ? std::optional(low) : std::nullopt;
  std::vector<Dtype> inputs(2, name_of.ends_with("fp64") ? Dtype::fp64 : name_of.ends_with("low") ? low : Dtype::fp32);
  if (name_of.ends_with("mixed")) inputs[1] = low;
  std::optional<Autocast> outer;
  if (named("_in_region")) outer.emplace(kCpu, region(low));
  CustomOpContext context;
  std::vector<Dtype> saved;
  Dtype output;
  {
    std::optional<CustomForward> forward;
    if (decorated) forward.emplace(kCpu, cast), context = forward->context();
    const auto input = [&](Dtype dtype) { return forward ? forward->input_dtype(dtype) : dtype; };
    d.same_state("forward", autocast_state(kCpu), result.at("forward_state"));
    for (const Dtype dtype : inputs) saved.push_back(input(dtype));
    d.same_dtypes("inputs", saved, result.at("forward_input_dtypes"));
    const Golden& container = result.at("container");
    d.same_dtypes("container", {input(Dtype::fp32), input(Dtype::fp64), input(Dtype::i64)}, container);
    const std::optional<Dtype> product = mm(saved[0], saved[1]);
    d.same("forward mm", product.has_value(), !result.contains("forward_mm_error"));
    output = product.value_or(Dtype::fp32);  // the function of the fact widens where mm refuses
    d.same("output", output, dtype_of(result.at("forward_output_dtype").text));
  }
  outer.reset();
  std::optional<CustomBackward> backward;
  if (decorated) backward.emplace(context);
  d.same_state("backward", autocast_state(kCpu), result.at("backward_state"));
  d.same("grad", output, dtype_of(result.at("backward_grad_dtype").text));  // of the output's dtype
  d.same_dtypes("saved", saved, result.at("backward_saved_dtypes"));
  std::vector<Dtype> computed;
  for (const Dtype dtype : saved)
    if (const std::optional<Dtype> product = mm(output, dtype)) computed.push_back(*product);
  const bool refused = computed.size() < saved.size();
  d.same("backward mm", refused, result.contains("backward_mm_error"));
  if (!refused) d.same_dtypes("mm dtypes", computed, result.at("backward_mm_dtypes"));
  d.same_dtypes("input grads", inputs, result.at("input_grad_dtypes"));  // each arrives in its input's dtype
  return d.text();
}

struct Play {
  std::string begins;  ///< of the name of the fact
  std::function<std::string(const Golden&)> differences;
  std::vector<std::string> unread = {};  ///< parts of the paths to what it need not read: texts of errors that kernels raise
};

const std::vector<Play>& plays() {
  static const std::vector<Play> all = {{"region/nesting", nesting, {"/mm_mixed/error/"}},
                                        {"region/restored_on_exception", restored_on_exception},
                                        {"region/new_thread", new_thread},
                                        {"mixing/order_and_foreign_dtypes", order_and_foreign_dtypes, {"/error/type", "/mm_", "/mse_int_int/", "/narrowing_"}},
                                        {"cache/two_uses", two_uses},
                                        {"cache/no_grad_first", no_grad_first},
                                        {"cache/inplace_update", inplace_update},
                                        {"cache/optimizer_step_inside_region", optimizer_step_inside},
                                        {"cache/eligibility_casts_for_two_uses", eligibility},
                                        {"backward/dtypes", backward_dtypes},
                                        {"backward/inside_region", backward_inside_region},
                                        {"backward/rounding_at_a_widening_cast", rounding_at_a_widening_cast},
                                        {"custom/cast_inputs=", custom_function, {"_mm_error/"}},
                                        {"custom/no_decorators", custom_function, {"_mm_error/"}}};
  return all;
}

/// Facts that nothing of ours can be held against.
std::set<std::string> left_out() {
  std::set<std::string> names;
  const std::string begin = "/facts[";
  for (const tools::TorchDifference& d : tools::torch_differences())
    if (const std::string where = d.where; where.starts_with(begin)) names.insert(where.substr(begin.size(), where.size() - begin.size() - 1));
  return names;
}

const tests::Played played_facts("autocast_cpu.json", "facts", [](const Golden& fact) {
  const auto play = std::find_if(plays().begin(), plays().end(), [&](const Play& p) { return fact.at("name").text.starts_with(p.begins); });
  ASSERT_NE(play, plays().end()) << fact.at("name").text;
  EXPECT_EQ(play->differences(fact), "");
});

TEST(AutocastFacts, EachIsPlayedOrLeftOutWithAReason) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  std::set<std::string> used;
  int leaves = 0;
  for (const Golden& fact : golden.at("facts")) {
    const std::string& name_of = fact.at("name").text;
    SCOPED_TRACE(name_of + " in " + fact.at("autocast_dtype").text);
    const auto play = std::find_if(plays().begin(), plays().end(), [&](const Play& p) { return name_of.starts_with(p.begins); });
    EXPECT_NE(play != plays().end(), left_out().contains(name_of)) << "want the one or the other";
    used.insert(play != plays().end() ? play->begins : name_of);
    if (play == plays().end()) continue;
    EXPECT_EQ(play->differences(fact), "");
    Golden changed = fact;
    tests::each_leaf(changed.items[static_cast<std::size_t>(std::find(changed.keys.begin(), changed.keys.end(), "result") - changed.keys.begin())], "", [&](Golden& leaf, const std::string& path) {
      if (std::any_of(play->unread.begin(), play->unread.end(), [&](const std::string& part) { return (path + "/").find(part) != std::string::npos; })) return;
      const Golden before = leaf;
      tests::change(leaf);
      bool seen = true;
      try {
        seen = !play->differences(changed).empty();
      } catch (const std::exception&) {  // what it became names nothing
      }
      EXPECT_TRUE(seen) << path << " is not read";
      leaf = before;
      ++leaves;
    });
    EXPECT_FALSE(autocast_state(kCpu).enabled);
    EXPECT_EQ(cached_casts(), 0u);
  }
  for (const Play& play : plays()) EXPECT_TRUE(used.contains(play.begins)) << play.begins << ", got no such fact";
  for (const std::string& name_of : left_out()) EXPECT_TRUE(used.contains(name_of)) << name_of << ", got no such fact";
  EXPECT_GT(leaves, 700);
}

/// Planted: a play that reads a part of its fact alone is seen by what it leaves.
TEST(AutocastFacts, AFactThatIsReadInPartIsSeen) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  Golden fact;
  for (const Golden& each : golden.at("facts"))
    if (each.at("name").text == "region/restored_on_exception") fact = each;
  const auto in_part = [](const Golden& f) {
    Differences d;
    d.same("mm", mm(), std::optional(dtype_of(f.at("result").at("mm").text)));
    return d.text();
  };
  std::set<std::string> unseen;
  tests::each_leaf(fact, "", [&](Golden& leaf, const std::string& path) {
    const Golden before = leaf;
    tests::change(leaf);
    if (in_part(fact).empty()) unseen.insert(path);
    leaf = before;
  });
  EXPECT_EQ(unseen, (std::set<std::string>{"/name", "/autocast_dtype", "/result/after_exception/enabled", "/result/after_exception/dtype", "/result/after_exception/cache_enabled"}));
}

}  // namespace
}  // namespace ampcheck
