// SPDX-License-Identifier: Apache-2.0
// Autocast's decisions against every recorded call that they can decide (autocast_cpu.json; its facts:
// autocast_facts_test.cpp) and torch's own lists.
#include "src/amp/autocast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "src/amp/error.h"
#include "tests/support/golden_coverage.h"
#include "tests/support/goldens.h"
#include "tools/commands/torch_differences.h"

namespace ampcheck {
namespace {

using tests::Golden;

constexpr AutocastDevice kCpu = AutocastDevice::cpu;

AutocastOptions region(std::optional<Dtype> dtype, bool enabled = true) { return {dtype, enabled, {}}; }

/// The inputs a column of the golden stands for: (first, rest).
std::vector<Dtype> column(const std::string& key, Dtype low) {
  const Dtype other = low == Dtype::bf16 ? Dtype::fp16 : Dtype::bf16;
  const std::map<std::string, std::pair<Dtype, Dtype>> columns = {{"fp32", {Dtype::fp32, Dtype::fp32}},
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
  if (cell.is_object())
    return "error: " + cell.at("error").at("type").text + ": " + cell.at("error").at("message").text;
  std::string all;
  for (const Golden& item : cell) all += observed(item) + ";";
  return all;
}

struct Tally {
  int decided = 0;
  std::set<std::string> wrong, composites;
};

/// A region's observation must be what the same op gives outside a region on the inputs that we say it is cast to.
void compare_op(const Golden& row, bool unlist_mm, Tally& tally) {
  const std::string& op = row.at("op").text;
  const Dtype low = tests::dtype_of(row.at("autocast_dtype").text);
  if (low != Dtype::fp16 && low != Dtype::bf16)
    throw std::runtime_error("golden: a region in " + row.at("autocast_dtype").text);
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
      want = std::string("error: ") + e.type + ": " + e.what();
    }
    ++tally.decided;
    if (want == observed(inside[i])) continue;
    if (!inherits_casts_of(kCpu, op).empty())
      tally.composites.insert(op);
    else
      tally.wrong.insert(op + " " + inside.keys[i] + ": " + observed(inside[i]) + ", we say " + want);
  }
}

/// Of an output, or the first of several; empty for an error.
std::string first_output(const Golden* cell) {
  return cell == nullptr || cell->is_object() ? "" : cell->is_text() ? cell->text : (*cell)[0].text;
}

/// How the row sums up what the region did to inputs in fp32 and in its own dtype.
void compare_summary(const Golden& row) {
  const std::string &low = row.at("autocast_dtype").text, of_fp32 = first_output(row.at("in_region").find("fp32")),
                    of_low = first_output(row.at("in_region").find("low"));
  EXPECT_EQ(row.at("observed").text, of_fp32 == low && of_low == low               ? "lower_precision_fp"
                                     : of_fp32 == "float32" && of_low == "float32" ? "fp32"
                                     : of_fp32 == "float32" && of_low == low       ? "keeps_input_dtype"
                                                                                   : "other")
      << row.at("op").text;
}

/// The bits are those of a cast by hand to the dtype that we say. An op that is made of others casts within.
void compare_bits(const Golden& row) {
  const Dtype low = tests::dtype_of(row.at("autocast_dtype").text);
  CastPolicy policy = CastPolicy::unlisted;
  for (const Golden& registered : row.at("registered")) policy = cast_policy(kCpu, registered.text);
  if (policy == CastPolicy::unlisted || !inherits_casts_of(kCpu, row.at("op").text).empty()) return;
  const Golden& bits = row.at("bitwise_equal_to_manual_cast");
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const std::vector<Dtype> to = decide_casts(policy, {true, low, true}, column(bits.keys[i], low)).inputs;
    if (std::ranges::adjacent_find(to, std::ranges::not_equal_to()) != to.end()) continue;
    const std::string want = to.front() == low ? "low" : "fp32";
    EXPECT_TRUE(std::ranges::any_of(bits[i], [&](const Golden& cast) { return cast.text == want; }))
        << row.at("op").text << " " << bits.keys[i] << ", want the bits of a cast to " << want;
  }
}

Tally compare_ops(const Golden& golden, bool unlist_mm) {
  Tally tally;
  for (const Golden& row : golden.at("ops")) compare_op(row, unlist_mm, tally);
  return tally;
}

const tests::Played played_ops("autocast_cpu.json", "ops", [](const Golden& row) {
  Tally tally;
  compare_op(row, false, tally);
  EXPECT_TRUE(tally.wrong.empty()) << *tally.wrong.begin();
  compare_summary(row);
  compare_bits(row);
});
const tests::Played played_defaults("autocast_cpu.json", "defaults", [](const Golden& defaults) {
  EXPECT_EQ(default_autocast_dtype(kCpu), tests::dtype_of(defaults.at("cpu_default_dtype").text));
  EXPECT_EQ(AutocastState().enabled, defaults.at("enabled_by_default").truth);
});

TEST(AutocastGoldens, EveryCpuCall) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  const Tally tally = compare_ops(golden, false);
  EXPECT_TRUE(tally.wrong.empty()) << *tally.wrong.begin();
  EXPECT_GT(tally.decided, 0);
  // What our lists cannot say: ops that are made of listed ones. Each is in the table of composites.
  EXPECT_EQ(tally.composites,
            (std::set<std::string>{"chain_matmul", "hstack", "linalg_multi_dot", "linalg_pinv", "lstm_cell",
                                   "multi_head_attention_forward", "rnn_relu_cell", "rnn_tanh_cell"}));
  EXPECT_FALSE(compare_ops(golden, true).wrong.empty());  // planted: mm is missing in the list
}

const std::vector<std::pair<const char*, AutocastDevice>> kDevices = {{"AutocastCPU", AutocastDevice::cpu},
                                                                      {"AutocastCUDA", AutocastDevice::cuda},
                                                                      {"AutocastXPU", AutocastDevice::xpu},
                                                                      {"AutocastMTIA", AutocastDevice::mtia},
                                                                      {"AutocastMAIA", AutocastDevice::maia}};

void play_registered(const Golden& registered) {
  for (const auto& [key, device] : kDevices) {
    std::set<std::string> ops, want;
    for (int policy = 0; policy < static_cast<int>(CastPolicy::unlisted); ++policy)
      for (const std::string_view op : listed_ops(device, static_cast<CastPolicy>(policy))) ops.emplace(op);
    for (const Golden& op : registered.at(key)) want.insert(op.text);
    EXPECT_EQ(ops, want) << key;
  }
}

void play_default_dtypes(const Golden& dtypes) {
  for (const auto& [key, device] : kDevices)
    EXPECT_EQ(default_autocast_dtype(device), tests::dtype_of(dtypes.at(name(device)).text)) << key;
}

void play_cuda_policies(const Golden& cuda) {
  for (std::size_t i = 0; i < cuda.size(); ++i) {
    const std::string want = cuda[i].text.starts_with("own wrapper")          ? "lower_precision_fp"
                             : cuda[i].text.starts_with("registered outside") ? "fp32"
                                                                              : cuda[i].text;
    EXPECT_EQ(name(cast_policy(AutocastDevice::cuda, cuda.keys[i])), want) << cuda.keys[i];
  }
}

const tests::Played played_registered("autocast_cuda_tables.json", "registered", play_registered),
    played_dtypes("autocast_cuda_tables.json", "default_dtypes", play_default_dtypes),
    played_policies("autocast_cuda_tables.json", "cuda", play_cuda_policies);

TEST(AutocastGoldens, ListsAreTorchs) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cuda_tables.json");
  play_registered(golden.at("registered"));
  play_default_dtypes(golden.at("default_dtypes"));
  play_cuda_policies(golden.at("cuda"));
}

/// nn modules by the op that decides their output; what is made of many ops is left out.
void play_module(const Golden& row) {
  static const std::map<std::string, std::string> deciding = {{"module_Linear", "linear"},
                                                              {"module_Conv2d_BatchNorm2d_ReLU", "conv2d"},
                                                              {"module_Embedding_Linear", "linear"},
                                                              {"module_LayerNorm", "layer_norm"},
                                                              {"module_BatchNorm1d_train", "batch_norm"}};
  const std::string& module = row.at("op").text;
  const Dtype low = tests::dtype_of(row.at("autocast_dtype").text);
  const Golden& inside = row.at("in_region");
  for (std::size_t i = 0; i < inside.size(); ++i) {
    SCOPED_TRACE(module + " " + inside.keys[i]);
    const std::vector<Dtype> inputs{inside.keys[i] == "low"    ? low
                                    : inside.keys[i] == "fp64" ? Dtype::fp64
                                                               : Dtype::fp32,
                                    Dtype::fp32, Dtype::fp32};
    const CastDecision decision = decide_casts(cast_policy(kCpu, deciding.at(module)), {true, low, true}, inputs);
    // Native: fp64 meets nothing else, and a norm takes fp32 parameters beside 16-bit activations and keeps the
    // latter's dtype.
    const bool refused = decision.inputs[0] == Dtype::fp64;
    EXPECT_EQ(refused, inside[i].contains("error"));
    if (refused) continue;
    EXPECT_EQ(decision.inputs[0], tests::dtype_of(inside[i].at("out").text));
    for (const Golden& gradient : inside[i].at("param_grads"))
      EXPECT_EQ(inputs[1], tests::dtype_of(gradient.text)) << "the parameter's own";
  }
}
const tests::Played played_modules("autocast_cpu.json", "modules", play_module);

TEST(AutocastGoldens, Modules) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  int played = 0;
  for (const Golden& row : golden.at("modules")) {
    const std::string left_out = "/modules[" + row.at("op").text + "]";
    if (std::ranges::any_of(tools::torch_differences(),
                            [&](const tools::TorchDifference& d) { return left_out == d.where; }))
      continue;
    play_module(row);
    ++played;
  }
  EXPECT_EQ(played, 10);
}

// By hand
// ---------------------------------------------------------------------------------------------------------------------

TEST(Autocast, PoliciesByHand) {
  const AutocastState fp16{true, Dtype::fp16, true};
  const std::vector<Dtype> mixed{Dtype::fp32, Dtype::fp16, Dtype::fp64, Dtype::i64};
  EXPECT_EQ(decide_casts(CastPolicy::lower_precision_fp, fp16, mixed).inputs,
            (std::vector{Dtype::fp16, Dtype::fp16, Dtype::fp64, Dtype::i64}));
  EXPECT_EQ(decide_casts(CastPolicy::fp32, fp16, mixed).inputs,
            (std::vector{Dtype::fp32, Dtype::fp32, Dtype::fp64, Dtype::i64}));
  EXPECT_EQ(decide_casts(CastPolicy::promote, fp16, mixed).inputs,
            (std::vector{Dtype::fp32, Dtype::fp32, Dtype::fp64, Dtype::i64}));
  EXPECT_EQ(decide_casts(CastPolicy::lower_precision_fp, fp16, mixed, {}, CallForm::in_place).inputs, mixed);
  EXPECT_EQ(decide_casts(CastPolicy::lower_precision_fp, {false, Dtype::fp16, true}, mixed).inputs, mixed);
  EXPECT_EQ(decide_casts(CastPolicy::fp32_set_opt_dtype, fp16, std::vector{Dtype::fp16}).dtype, Dtype::fp32);
  EXPECT_EQ(decide_casts(CastPolicy::fp32_set_opt_dtype, fp16, std::vector{Dtype::fp16}, Dtype::fp16).dtype,
            Dtype::fp16);
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
    std::thread(
        [&] {  // a region of its own: neither served from here nor the end of what is cached here, as it is in torch
          const Autocast theirs(kCpu, region(Dtype::bf16));
          EXPECT_NE(autocast_cast(kCpu, weight, Dtype::bf16).data(), cast.data());
          EXPECT_EQ(cached_casts(), 3u);
        })
        .join();
    EXPECT_EQ(cached_casts(), 2u);  // neither the inner region nor another thread cleared it
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

TEST(Autocast, ARegionThatEndedCachesNothing) {
  const CastSource weight{Tensor(Dtype::fp32, {3}), true};
  std::optional<Autocast> here(std::in_place, kCpu, region(Dtype::bf16));
  const auto late = with_autocast([&] {
    EXPECT_TRUE(autocast_state(kCpu).enabled);
    EXPECT_EQ(to_doubles(autocast_cast(kCpu, weight, Dtype::bf16).view()).size(), 3u);
  });
  here.reset();
  late();
  EXPECT_EQ(cached_casts(), 0u);
}

}  // namespace
}  // namespace ampcheck
