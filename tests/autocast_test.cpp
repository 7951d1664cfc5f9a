// SPDX-License-Identifier: Apache-2.0
// Autocast's decisions against every recorded call that they can decide (autocast_cpu.json) and torch's own lists.
#include "src/amp/autocast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "src/amp/error.h"
#include "tests/goldens.h"

namespace ampcheck {
namespace {

using tests::Golden;

constexpr AutocastDevice kCpu = AutocastDevice::cpu;

AutocastOptions region(std::optional<Dtype> dtype, bool enabled = true) { return {dtype, enabled, {}}; }

/// The inputs a column of the golden stands for: (first, rest).
std::vector<Dtype> column(const std::string& key, Dtype low) {
  const Dtype other = low == Dtype::bf16 ? Dtype::fp16 : Dtype::bf16;
  const std::map<std::string, std::pair<Dtype, Dtype>> columns = {
      {"fp32", {Dtype::fp32, Dtype::fp32}},
      {"low", {low, low}},
      {"first_fp32_rest_low", {Dtype::fp32, low}},
      {"first_low_rest_fp32", {low, Dtype::fp32}},
      {"other16", {other, other}},
      {"first_low_rest_other16", {low, other}},
      {"first_fp32_rest_other16", {Dtype::fp32, other}},
      {"fp64", {Dtype::fp64, Dtype::fp64}},
      {"first_fp64_rest_low", {Dtype::fp64, low}},
      {"first_fp64_rest_fp32", {Dtype::fp64, Dtype::fp32}},
      {"int64", {Dtype::i64, Dtype::i64}}};
  const auto found = columns.find(key);
  if (found == columns.end()) throw std::runtime_error("golden: column '" + key + "'");
  return {found->second.first, found->second.second};
}

/// What was observed, as text: an output dtype, several, or an error.
std::string observed(const Golden& cell) {
  if (cell.is_text()) return cell.text;
  if (cell.is_object()) return "error: " + cell.at("error").at("message").text;
  std::string all;
  for (const Golden& item : cell) all += observed(item) + ";";
  return all;
}

struct Tally {
  int decided = 0;
  std::set<std::string> wrong, composites;
};

/// A region's observation must be what the same op gives outside a region on the inputs that we say it is cast to.
Tally compare_ops(const Golden& golden, bool unlist_mm) {
  Tally tally;
  for (const Golden& row : golden.at("ops")) {
    const std::string& op = row.at("op").text;
    const Dtype low = tests::dtype_of(row.at("autocast_dtype").text);
    const AutocastState state{true, low, true};
    CastPolicy policy = CastPolicy::unlisted;
    for (const Golden& registered : row.at("registered")) policy = cast_policy(kCpu, registered.text);
    if (unlist_mm && op == "mm") policy = CastPolicy::unlisted;
    const Golden &inside = row.at("in_region"), &outside = row.at("outside");
    for (std::size_t i = 0; i < inside.size(); ++i) {
      std::string want;
      try {
        const CastDecision decision = decide_casts(policy, state, column(inside.keys[i], low));
        for (std::size_t k = 0; k < outside.size(); ++k)
          if (column(outside.keys[k], low) == decision.inputs) want = observed(outside[k]);
      } catch (const AmpError& e) {
        want = std::string("error: ") + e.what();
      }
      ++tally.decided;
      if (want == observed(inside[i])) continue;
      if (!inherits_casts_of(kCpu, op).empty())
        tally.composites.insert(op);
      else
        tally.wrong.insert(op + " " + inside.keys[i] + ": " + observed(inside[i]) + ", we say " + want);
    }
  }
  return tally;
}

TEST(AutocastGoldens, EveryCpuCall) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  const Tally tally = compare_ops(golden, false);
  EXPECT_TRUE(tally.wrong.empty()) << *tally.wrong.begin();
  EXPECT_GT(tally.decided, 0);
  // What our lists cannot say: ops that are made of listed ones. Each is in the table of composites.
  EXPECT_EQ(tally.composites, (std::set<std::string>{"chain_matmul", "hstack", "linalg_multi_dot", "linalg_pinv", "lstm_cell",
                                                     "multi_head_attention_forward", "rnn_relu_cell", "rnn_tanh_cell"}));
  EXPECT_FALSE(compare_ops(golden, true).wrong.empty());  // planted: mm is missing in the list
}

TEST(AutocastGoldens, ListsAreTorchs) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cuda_tables.json");
  const auto all_of = [](AutocastDevice device) {
    std::set<std::string> ops;
    for (int policy = 0; policy < static_cast<int>(CastPolicy::unlisted); ++policy)
      for (const std::string_view op : listed_ops(device, static_cast<CastPolicy>(policy))) ops.emplace(op);
    return ops;
  };
  const std::vector<std::pair<const char*, AutocastDevice>> devices = {{"AutocastCPU", AutocastDevice::cpu},
                                                                       {"AutocastCUDA", AutocastDevice::cuda},
                                                                       {"AutocastXPU", AutocastDevice::xpu},
                                                                       {"AutocastMTIA", AutocastDevice::mtia},
                                                                       {"AutocastMAIA", AutocastDevice::maia}};
  for (const auto& [key, device] : devices) {
    std::set<std::string> registered;
    for (const Golden& op : golden.at("registered").at(key)) registered.insert(op.text);
    EXPECT_EQ(all_of(device), registered) << key;
    EXPECT_EQ(default_autocast_dtype(device), tests::dtype_of(golden.at("default_dtypes").at(name(device)).text)) << key;
  }
  const Golden& cuda = golden.at("cuda");
  for (std::size_t i = 0; i < cuda.size(); ++i) {
    const std::string want = cuda[i].text.starts_with("own wrapper") ? "lower_precision_fp" : cuda[i].text.starts_with("registered outside") ? "fp32" : cuda[i].text;
    EXPECT_EQ(name(cast_policy(AutocastDevice::cuda, cuda.keys[i])), want) << cuda.keys[i];
  }
}

TEST(AutocastGoldens, MixedDtypesAndOrder) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  int compared = 0;
  for (const Golden& fact : golden.at("facts")) {
    if (fact.at("name").text != "mixing/order_and_foreign_dtypes") continue;
    const Dtype low = tests::dtype_of(fact.at("autocast_dtype").text), other = low == Dtype::bf16 ? Dtype::fp16 : Dtype::bf16;
    const std::map<std::string, Dtype> words = {{"low", low},          {"other", other},     {"fp32", Dtype::fp32},
                                                {"fp64", Dtype::fp64}, {"int", Dtype::i64}, {"fp8", Dtype::e4m3fn}};
    const Golden& result = fact.at("result");
    for (std::size_t i = 0; i < result.size(); ++i) {
      std::vector<std::string> parts;
      for (std::size_t at = 0; at <= result.keys[i].size();) {
        const std::size_t end = std::min(result.keys[i].find('_', at), result.keys[i].size());
        parts.push_back(result.keys[i].substr(at, end - at));
        at = end + 1;
      }
      if (parts[0] == "narrowing") continue;
      std::vector<Dtype> inputs;
      for (std::size_t k = 1; k < parts.size(); ++k) inputs.push_back(words.at(parts[k]));
      if (parts[1] == "fp8") inputs.push_back(parts[0] == "add" ? low : Dtype::e4m3fn);
      const std::string op = parts[0] == "mse" ? "mse_loss" : parts[0];
      std::string got;
      try {
        const CastDecision decision = decide_casts(cast_policy(kCpu, op), {true, low, true}, inputs);
        const bool mixed = decision.inputs.front() != decision.inputs.back();
        got = op == "mm" && mixed ? "error" : name(promoted_dtype(decision.inputs));  // mm itself promotes nothing
      } catch (const AmpError&) {
        got = "error";
      }
      const std::string seen = observed(result[i]);
      if (result.keys[i] == "mse_int_int") continue;  // the kernel knows no integers: not a matter of casts
      ++compared;
      EXPECT_EQ(got, seen.starts_with("error") ? "error" : name(tests::dtype_of(seen))) << result.keys[i];
    }
  }
  EXPECT_GT(compared, 60);
}

void expect_state(const AutocastState& got, const Golden& want) {
  EXPECT_EQ(got.enabled, want.at("enabled").truth);
  EXPECT_EQ(got.dtype, tests::dtype_of(want.at("dtype").text));
  EXPECT_EQ(got.cache_enabled, want.at("cache_enabled").truth);
}

TEST(AutocastGoldens, RegionsNest) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  for (const Golden& fact : golden.at("facts")) {
    if (fact.at("name").text != "region/nesting") continue;
    const Dtype low = tests::dtype_of(fact.at("autocast_dtype").text), other = low == Dtype::bf16 ? Dtype::fp16 : Dtype::bf16;
    std::map<std::string, AutocastState> seen;
    seen["outside"] = autocast_state(kCpu);
    {
      const Autocast outer(kCpu, region(low));
      seen["outer"] = autocast_state(kCpu);
      {
        const Autocast disabled(kCpu, region({}, false));
        seen["disabled_inside"] = autocast_state(kCpu);
        const Autocast inner(kCpu, region(other));
        seen["other_dtype_inside_disabled"] = autocast_state(kCpu);
      }
      {
        const Autocast inner(kCpu, region(other));
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
      SCOPED_TRACE(where.at("where").text);
      expect_state(seen.at(where.at("where").text), where);
      if (const Golden* mm = where.find("mm")) {
        const CastDecision decision = decide_casts(cast_policy(kCpu, "mm"), seen.at(where.at("where").text), std::vector{Dtype::fp32, Dtype::fp32});
        EXPECT_EQ(decision.inputs[0], tests::dtype_of(mm->text));
      }
    }
  }
}

/// custom_fwd/custom_bwd in and out of a region: states, casts and the dtypes that mm then computes in.
TEST(AutocastGoldens, CustomForwardAndBackward) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  int played = 0;
  for (const Golden& fact : golden.at("facts")) {
    const std::string& name_of = fact.at("name").text;
    if (!name_of.starts_with("custom/cast_inputs=")) continue;
    SCOPED_TRACE(name_of + " " + fact.at("autocast_dtype").text);
    const Dtype low = tests::dtype_of(fact.at("autocast_dtype").text);
    const bool inside = name_of.find("_in_region") != std::string::npos;
    const std::string kind = name_of.substr(19, name_of.find(inside ? "_in_region" : "_out_of_region") - 19);
    const std::string given = name_of.substr(name_of.rfind('_') + 1);
    std::optional<Dtype> cast;
    if (kind == "float32") cast = Dtype::fp32;
    if (kind == "low") cast = low;
    std::vector<Dtype> inputs(2, given == "fp64" ? Dtype::fp64 : given == "low" ? low : Dtype::fp32);
    if (given == "mixed") inputs[1] = low;
    const Golden& result = fact.at("result");
    std::optional<Autocast> outer;
    if (inside) outer.emplace(kCpu, region(low));
    CustomOpContext context;
    std::vector<Dtype> saved;
    {
      const CustomForward forward(kCpu, cast);
      context = forward.context();
      // Out of a region torch reports its default dtype; the region's is what the context stores there too.
      EXPECT_EQ(autocast_state(kCpu).enabled, result.at("forward_state").at("enabled").truth);
      for (const Dtype dtype : inputs) saved.push_back(forward.input_dtype(dtype));
      for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(saved[i], tests::dtype_of(result.at("forward_input_dtypes")[i].text));
      const Golden& container = result.at("container");
      EXPECT_EQ(forward.input_dtype(Dtype::fp32), tests::dtype_of(container.at("t").text));
      EXPECT_EQ(forward.input_dtype(Dtype::fp64), tests::dtype_of(container.at("t64").text));
      EXPECT_EQ(forward.input_dtype(Dtype::i64), tests::dtype_of(container.at("i").text));
      const std::vector<Dtype> in_mm = decide_casts(kCpu, "mm", saved).inputs;
      EXPECT_EQ(in_mm[0] != in_mm[1], result.contains("forward_mm_error"));
      if (in_mm[0] == in_mm[1]) {
        EXPECT_EQ(in_mm[0], tests::dtype_of(result.at("forward_output_dtype").text));
      }
    }
    outer.reset();
    const CustomBackward backward(context);
    EXPECT_EQ(autocast_state(kCpu).enabled, result.at("backward_state").at("enabled").truth);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(saved[i], tests::dtype_of(result.at("backward_saved_dtypes")[i].text));
    const Dtype grad = tests::dtype_of(result.at("backward_grad_dtype").text);
    bool refused = false;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<Dtype> in_mm = decide_casts(kCpu, "mm", std::vector{grad, saved[i]}).inputs;
      refused = refused || in_mm[0] != in_mm[1];
      if (const Golden* computed = result.find("backward_mm_dtypes")) {
        EXPECT_EQ(in_mm[0], tests::dtype_of((*computed)[i].text));
      }
    }
    EXPECT_EQ(refused, result.contains("backward_mm_error"));
    ++played;
  }
  EXPECT_EQ(played, 48);
}

TEST(AutocastGoldens, CacheKeepsOnlyLeafWeights) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  for (const Golden& fact : golden.at("facts")) {
    if (fact.at("name").text != "cache/eligibility_casts_for_two_uses") continue;
    const Dtype low = tests::dtype_of(fact.at("autocast_dtype").text), other = low == Dtype::bf16 ? Dtype::fp16 : Dtype::bf16;
    const std::map<std::string, CastSource> sources = {{"fp32_leaf_requires_grad", {Tensor(Dtype::fp32, {2}), true, true, false}},
                                                       {"fp32_leaf_frozen", {Tensor(Dtype::fp32, {2}), false, true, false}},
                                                       {"fp32_nonleaf", {Tensor(Dtype::fp32, {2}), true, false, false}},
                                                       {"fp32_view_of_leaf", {Tensor(Dtype::fp32, {2}), true, false, true}},
                                                       {"other16_leaf", {Tensor(other, {2}), true, true, false}}};
    const Golden& casts = fact.at("result");
    for (std::size_t i = 0; i < casts.size(); ++i) {
      const Autocast here(kCpu, region(low));
      const Tensor first = autocast_cast(kCpu, sources.at(casts.keys[i]), low), second = autocast_cast(kCpu, sources.at(casts.keys[i]), low);
      EXPECT_EQ(first.data() == second.data() ? 1.0 : 2.0, casts[i].value) << casts.keys[i];
    }
  }
}

/// Facts that no decision of ours can be held against, and why.
const std::map<std::string, std::string>& left_out_facts() {
  static const std::map<std::string, std::string> reasons = {
      {"region/exit_order_swapped", "a scope cannot be left out of order"},
      {"region/same_object_twice", "a region object cannot be entered twice"},
      {"region/decorator", "Python's decorator; a scope in the function does it"},
      {"region/unsupported", "devices and warnings of this machine; the CPU dtype rule is tested by hand"},
      {"bypass/inplace_and_out", "texts of native errors; that the calls bypass autocast is tested by hand"},
      {"cache/no_grad_first", "needs autograd: the training loop's"},
      {"cache/optimizer_step_inside_region", "needs autograd; the stale cast itself is tested by hand"},
      {"cache/nested_other_dtype", "torch's fault, which our key does not have; tested by hand"},
      {"backward/dtypes", "needs autograd"},
      {"backward/inside_region", "needs autograd"},
      {"backward/rounding_at_a_widening_cast", "needs autograd"},
      {"custom/cast_containers", "Python containers"},
      {"gradcheck/fp64_in_region", "torch's gradcheck"}};
  return reasons;
}

TEST(AutocastGoldens, EveryFactIsPlayedOrLeftOutWithAReason) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  const std::set<std::string> played{"region/nesting", "region/restored_on_exception", "region/new_thread", "mixing/order_and_foreign_dtypes",
                                     "cache/two_uses", "cache/inplace_update", "cache/eligibility_casts_for_two_uses"};
  for (const Golden& fact : golden.at("facts")) {
    const std::string& name_of = fact.at("name").text;
    const bool custom = name_of.starts_with("custom/cast_inputs=") || name_of.starts_with("custom/no_decorators");
    EXPECT_TRUE(custom || played.contains(name_of) || left_out_facts().contains(name_of)) << name_of;
  }
}

/// nn modules by the op that decides their output; what is made of many ops is left out.
TEST(AutocastGoldens, Modules) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  const std::map<std::string, std::string> deciding = {{"module_Linear", "linear"},
                                                       {"module_Conv2d_BatchNorm2d_ReLU", "conv2d"},
                                                       {"module_Embedding_Linear", "linear"},
                                                       {"module_LayerNorm", "layer_norm"},
                                                       {"module_BatchNorm1d_train", "batch_norm"}};
  const std::set<std::string> composites{"module_LSTM", "module_GRU", "module_RNN_tanh", "module_LSTMCell", "module_MultiheadAttention",
                                         "module_TransformerEncoderLayer"};
  for (const Golden& row : golden.at("modules")) {
    const std::string& module = row.at("op").text;
    if (composites.contains(module)) continue;
    const Dtype low = tests::dtype_of(row.at("autocast_dtype").text);
    const Golden& inside = row.at("in_region");
    for (std::size_t i = 0; i < inside.size(); ++i) {
      SCOPED_TRACE(module + " " + inside.keys[i]);
      const std::vector<Dtype> inputs{inside.keys[i] == "low" ? low : inside.keys[i] == "fp64" ? Dtype::fp64 : Dtype::fp32, Dtype::fp32, Dtype::fp32};
      const CastDecision decision = decide_casts(cast_policy(kCpu, deciding.at(module)), {true, low, true}, inputs);
      // Native: fp64 meets nothing else, and a norm takes fp32 parameters beside 16-bit activations and keeps the latter's dtype.
      const bool refused = decision.inputs[0] == Dtype::fp64;
      EXPECT_EQ(refused, inside[i].contains("error"));
      if (!refused) {
        EXPECT_EQ(decision.inputs[0], tests::dtype_of(inside[i].at("out").text));
      }
    }
  }
}

/// Without the decorators the forward sees the region and the backward, outside it, does not: mm then refuses the mixture.
TEST(AutocastGoldens, CustomOpWithoutDecorators) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  for (const Golden& fact : golden.at("facts")) {
    const std::string& name_of = fact.at("name").text;
    if (!name_of.starts_with("custom/no_decorators")) continue;
    SCOPED_TRACE(name_of);
    const Dtype low = tests::dtype_of(fact.at("autocast_dtype").text);
    const Golden& result = fact.at("result");
    std::vector<Dtype> inputs{Dtype::fp32, name_of.ends_with("mixed") ? low : Dtype::fp32};
    std::optional<Autocast> outer;
    if (name_of.find("_in_region") != std::string::npos) outer.emplace(kCpu, region(low));
    const std::vector<Dtype> forward = decide_casts(kCpu, "mm", inputs).inputs;
    EXPECT_EQ(forward[0] != forward[1], result.contains("forward_mm_error"));
    outer.reset();
    const Dtype grad = tests::dtype_of(result.at("backward_grad_dtype").text);
    bool refused = false;
    for (const Dtype saved : inputs) {
      const std::vector<Dtype> backward = decide_casts(kCpu, "mm", std::vector{grad, saved}).inputs;
      refused = refused || backward[0] != backward[1];
    }
    EXPECT_EQ(refused, result.contains("backward_mm_error"));
  }
}

// By hand ---------------------------------------------------------------------------------------------------------------------

TEST(Autocast, PoliciesByHand) {
  const AutocastState fp16{true, Dtype::fp16, true};
  const std::vector<Dtype> mixed{Dtype::fp32, Dtype::fp16, Dtype::fp64, Dtype::i64};
  EXPECT_EQ(decide_casts(CastPolicy::lower_precision_fp, fp16, mixed).inputs, (std::vector{Dtype::fp16, Dtype::fp16, Dtype::fp64, Dtype::i64}));
  EXPECT_EQ(decide_casts(CastPolicy::fp32, fp16, mixed).inputs, (std::vector{Dtype::fp32, Dtype::fp32, Dtype::fp64, Dtype::i64}));
  EXPECT_EQ(decide_casts(CastPolicy::promote, fp16, mixed).inputs, (std::vector{Dtype::fp32, Dtype::fp32, Dtype::fp64, Dtype::i64}));
  EXPECT_EQ(decide_casts(CastPolicy::lower_precision_fp, fp16, mixed, {}, CallForm::in_place).inputs, mixed);
  EXPECT_EQ(decide_casts(CastPolicy::lower_precision_fp, {false, Dtype::fp16, true}, mixed).inputs, mixed);
  EXPECT_EQ(decide_casts(CastPolicy::fp32_set_opt_dtype, fp16, std::vector{Dtype::fp16}).dtype, Dtype::fp32);
  EXPECT_EQ(decide_casts(CastPolicy::fp32_set_opt_dtype, fp16, std::vector{Dtype::fp16}, Dtype::fp16).dtype, Dtype::fp16);
  EXPECT_EQ(decide_casts(CastPolicy::fp32_set_opt_dtype, fp16, std::vector{Dtype::fp64}).dtype, std::nullopt);
  EXPECT_EQ(decide_casts(CastPolicy::fp32_append_dtype, fp16, std::vector{Dtype::fp64}).dtype, Dtype::fp64);
  EXPECT_THROW(decide_casts(CastPolicy::banned, fp16, mixed), AmpError);
  EXPECT_NO_THROW(decide_casts(CastPolicy::banned, {false, Dtype::fp16, true}, mixed));
  // A bf16 argument is narrowed into an fp16 region without a word; the decision says so.
  EXPECT_TRUE(decide_casts(CastPolicy::lower_precision_fp, fp16, std::vector{Dtype::bf16}).narrowed[0]);
  EXPECT_FALSE(decide_casts(CastPolicy::fp32, fp16, std::vector{Dtype::bf16}).narrowed[0]);
  EXPECT_EQ(cast_policy(AutocastDevice::cuda, "softmax"), CastPolicy::fp32_set_opt_dtype);
  EXPECT_EQ(cast_policy(AutocastDevice::cpu, "softmax"), CastPolicy::unlisted);
  EXPECT_EQ(cast_policy(AutocastDevice::cuda, "binary_cross_entropy"), CastPolicy::banned);
  EXPECT_EQ(cast_policy(AutocastDevice::cpu, "binary_cross_entropy"), CastPolicy::fp32);
  EXPECT_EQ(cast_policy(AutocastDevice::cuda, "conv_transpose2d"), CastPolicy::lower_precision_fp);
}

TEST(Autocast, RegionsEndWithTheirScopeAlsoByException) {
  try {
    const Autocast here(kCpu);
    EXPECT_TRUE(autocast_state(kCpu).enabled);
    throw std::runtime_error("planted");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(autocast_state(kCpu).enabled);
  EXPECT_EQ(autocast_nesting(), 0);
  const Autocast refused(kCpu, region(Dtype::fp32));
  EXPECT_FALSE(autocast_state(kCpu).enabled);
  EXPECT_TRUE(refused.warning().starts_with("In CPU autocast, but the target dtype is not supported."));
}

TEST(Autocast, ThreadsStartDisabledUnlessHandedTheRegion) {
  const Autocast here(kCpu, region(Dtype::fp16));
  AutocastState bare{true}, handed;
  const auto bound = with_autocast([&] { handed = autocast_state(kCpu); });
  std::thread([&] { bare = autocast_state(kCpu); }).join();
  std::thread([&] { bound(); }).join();
  EXPECT_FALSE(bare.enabled);
  EXPECT_TRUE(handed.enabled);
  EXPECT_EQ(handed.dtype, Dtype::fp16);
}

TEST(Autocast, CacheLivesAsLongAsTheOutermostRegion) {
  CastSource weight{Tensor(Dtype::fp32, {3}), true};
  {
    const Autocast outer(kCpu, region(Dtype::bf16));
    const Tensor cast = autocast_cast(kCpu, weight, Dtype::bf16);
    {
      const Autocast inner(kCpu, region(Dtype::fp16));
      EXPECT_EQ(autocast_cast(kCpu, weight, Dtype::fp16).dtype(), Dtype::fp16);  // torch would serve the bf16 copy
    }
    std::thread(with_autocast([&] {
      const Autocast theirs(kCpu);
      EXPECT_EQ(autocast_cast(kCpu, weight, Dtype::bf16).data(), cast.data());
    })).join();
    EXPECT_EQ(cached_casts(), 2u);  // neither the inner region nor the other thread cleared it
    EXPECT_EQ(cached_cast_bytes(), 12);
    EXPECT_EQ(stale_casts(), 0u);
    weight.tensor.span<float>()[1] = 1.0f;  // an optimizer step inside the region
    EXPECT_EQ(stale_casts(), 2u);
    clear_autocast_cache();
    EXPECT_EQ(to_doubles(autocast_cast(kCpu, weight, Dtype::bf16).view())[1], 1.0);
    const Autocast uncached(kCpu, AutocastOptions{Dtype::bf16, true, false});
    EXPECT_NE(autocast_cast(kCpu, weight, Dtype::bf16).data(), autocast_cast(kCpu, weight, Dtype::bf16).data());
  }
  EXPECT_EQ(cached_casts(), 0u);
}

}  // namespace
}  // namespace ampcheck
