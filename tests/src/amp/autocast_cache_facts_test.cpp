// SPDX-License-Identifier: Apache-2.0
// What torch's cache of weight casts was seen to do, played with ours.
#include "tests/support/autocast_facts.h"

namespace ampcheck::autocast_facts {
namespace {

std::string eligibility(const Golden& fact) {
  Differences d;
  const std::map<std::string, CastSource> sources = {
      {"fp32_leaf_requires_grad", {Tensor(Dtype::fp32, {2}), true, true, false}},
      {"fp32_leaf_frozen", {Tensor(Dtype::fp32, {2}), false, true, false}},
      {"fp32_nonleaf", {Tensor(Dtype::fp32, {2}), true, false, false}},
      {"fp32_view_of_leaf", {Tensor(Dtype::fp32, {2}), true, false, true}},
      {"other16_leaf", {Tensor(other_of(fact), {2}), true, true, false}}};
  const Golden& casts = fact.at("result");
  for (std::size_t i = 0; i < casts.size(); ++i) {
    const Autocast here(kCpu, region(low_of(fact)));
    double made = 0;
    for (int use = 0; use < 2; ++use)
      autocast_cast(kCpu, sources.at(casts.keys[i]), low_of(fact), [&] {
        ++made;
        return Tensor(low_of(fact), {2});
      });
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
    d.same(cached ? "cache on" : "cache off", static_cast<double>(run.nodes.casts()),
           result.at(cached ? "cast_nodes_for_two_uses_cache_on" : "cast_nodes_for_two_uses_cache_off").value);
    if (!cached) continue;
    std::vector<std::string> nodes = run.nodes.names, wanted;
    for (const char* call : {"linear_1", "linear_2"})
      if (run.graph.requires_grad(run.graph.output_of(call))) nodes.emplace_back("MmBackward0");
    if (run.graph.requires_grad(y)) nodes.emplace_back("AddBackward0");
    for (std::size_t i = 0; i < run.graph.parameter_vars().size(); ++i)
      nodes.emplace_back("torch::autograd::AccumulateGrad");
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
  for (std::size_t i = 0; i < run.graph.parameter_vars().size(); ++i)
    nodes.emplace_back("torch::autograd::AccumulateGrad");
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
      const auto w = weights.all.find("w.weight")->value.span<float>(),
                 grad = weights.all.find("w.weight")->grad.span<float>();
      for (std::size_t k = 0; k < w.size(); ++k) w[k] -= grad[k];  // SGD at lr 1
    }
  }
  const Autocast later(kCpu, region(low_of(fact)));
  d.same("in a new region", forward(false), tests::real(result.at("loss_in_a_new_region")));
  d.same("second backward", std::string("ran"), result.at("second_backward").text);  // the rounds above are its proof
  return d.text();
}

const Plays own_plays{{"cache/two_uses", two_uses},
                      {"cache/no_grad_first", no_grad_first},
                      {"cache/inplace_update", inplace_update},
                      {"cache/optimizer_step_inside_region", optimizer_step_inside},
                      {"cache/eligibility_casts_for_two_uses", eligibility}};

TEST(AutocastFacts, TheCacheIsTorchs) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  expect_as_torch(golden.at("facts"), "cache/");
}

}  // namespace
}  // namespace ampcheck::autocast_facts
