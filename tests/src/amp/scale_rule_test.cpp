// SPDX-License-Identifier: Apache-2.0
// The frameworks' scale rules against traces (each number is log2 of scale / initial scale after an update), and the
// sharded scaler.
#include "src/amp/scale_rule.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cmath>
#include <limits>
#include <thread>

#include "src/amp/error.h"
#include "src/amp/sharded_grad_scaler.h"
#include "src/amp/unscale.h"
#include "tests/support/golden_coverage.h"
#include "tests/support/golden_optimizers.h"
#include "tests/support/goldens.h"

namespace ampcheck {
namespace {

using tests::Golden;
using tests::real;
using tests::same_number;
using tests::same_tensor;

constexpr char kSteps[] = "..X....XX......X.X...";

std::vector<int> trace(ScaleRule rule) {
  rule.window = 3;
  rule.init_scale = 0x1p20;
  LossScale scale(rule);
  std::vector<int> seen;
  for (const char step : std::string_view(kSteps)) {
    scale.update(step == 'X');
    seen.push_back(std::ilogb(scale.scale()) - 20);
  }
  return seen;
}

using Trace = std::vector<int>;
const Trace kTorch{0, 0, -1, -1, -1, 0, 0, -1, -2, -2, -2, -1, -1, -1, 0, -1, -1, -2, -2, -2, -1};
const Trace kMegatron{0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 1, 1, 1, 2};
const Trace kApexHysteresis{0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3};
const Trace kFlax{0, 0, -1, -1, -1, -1, 0, -1, -2, -2, -2, -2, -1, -1, -1, -2, -2, -3, -3, -3, -3};
// Executed: DeepSpeed 0.19.8.
const Trace kDeepspeed{0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0};
const Trace kDeepspeedConsecutive{0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1};

TEST(ScaleRule, TracesOfTheFrameworks) {
  for (const char* name : {"torch", "apex", "jmp", "keras"}) EXPECT_EQ(trace(scale_rule(name)), kTorch) << name;
  EXPECT_EQ(trace(scale_rule("megatron")), kMegatron);
  EXPECT_EQ(trace(scale_rule("apex_hysteresis")), kApexHysteresis);
  EXPECT_EQ(trace(scale_rule("flax")), kFlax);
  EXPECT_EQ(trace(scale_rule("deepspeed")), kDeepspeed);
  EXPECT_EQ(trace(scale_rule("deepspeed_consecutive")), kDeepspeedConsecutive);
}

/// Planted: each rule with one field of another; the trace must tell.
TEST(ScaleRule, OneWrongFieldShowsInTheTrace) {
  ScaleRule rule = scale_rule("torch");
  rule.count = GrowthCount::after_window;
  EXPECT_NE(trace(rule), kTorch);
  rule = scale_rule("torch");
  rule.hysteresis = 2;
  EXPECT_NE(trace(rule), kTorch);
  rule = scale_rule("megatron");
  rule.refill = HysteresisRefill::clean_step;
  EXPECT_NE(trace(rule), kMegatron);
  rule = scale_rule("deepspeed");
  rule.count = GrowthCount::equals_window;
  EXPECT_NE(trace(rule), kDeepspeed);
  EXPECT_THROW(scale_rule("torhc"), Error);
}

TEST(ScaleRule, TorchRowIsTorchsKernel) {
  ScaleRule rule = scale_rule("torch");
  rule.window = 2;
  rule.init_scale = 0x1p125;
  rule.growth_factor = 1.5;
  rule.backoff_factor = 0.9;
  LossScale scale(rule);
  auto expected = static_cast<float>(rule.init_scale);
  std::int32_t tracker = 0;
  std::uint32_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    state = state * 1664525u + 1013904223u;
    const bool overflow = state >> 30 == 0;
    scale.update(overflow);
    update_scale(expected, tracker, overflow ? 1.0f : 0.0f, rule.growth_factor, rule.backoff_factor, rule.window);
    ASSERT_EQ(scale.scale(), static_cast<double>(expected)) << i;
    ASSERT_EQ(scale.tracker(), tracker) << i;
  }
}

TEST(ScaleRule, FloorsAndCaps) {
  const auto after = [](const char* name, bool overflow, int steps) {
    ScaleRule rule = scale_rule(name);
    rule.window = 1;
    LossScale scale(rule);
    for (int i = 0; i < steps; ++i) scale.update(overflow);
    return scale.scale();
  };
  EXPECT_EQ(after("torch", true, 166), 0.0);
  EXPECT_EQ(after("jmp", true, 200), 1.0);
  EXPECT_EQ(after("megatron", true, 200), 1.0);
  EXPECT_EQ(after("flax", true, 200), 0x1p-126);
  EXPECT_EQ(after("apex", false, 200), 0x1p24);
  EXPECT_EQ(after("torch", false, 200), 0x1p127);
  EXPECT_EQ(after("jmp", false, 200), 0x1p127);
  EXPECT_EQ(after("flax", false, 400), 0x1.fffffep+127);
  EXPECT_EQ(after("keras", false, 200), std::numeric_limits<double>::infinity());
  EXPECT_EQ(after("megatron", false, 200), std::numeric_limits<double>::infinity());
  EXPECT_EQ(after("deepspeed", true, 17), 1.0);  // 1 of hysteresis and 16 halvings
  EXPECT_THROW(after("deepspeed", true, 18), AmpError);
}

TEST(ScaleRule, ScalerWithARuleMovesAsTheRuleAndReloads) {
  for (const ScaleRule& named : scale_rules()) {
    SCOPED_TRACE(named.name);
    ScaleRule rule = named;
    rule.window = 3;
    rule.init_scale = 0x1p20;
    Parameter w{"w", Tensor(Dtype::fp32, {1})};
    Sgd sgd({&w});
    RuleGradScaler scaler(rule);
    const Trace want = trace(rule);
    for (std::size_t i = 0; i < want.size(); ++i) {
      scaler.scale(Tensor(Dtype::fp32, {}));
      w.grad = Tensor(Dtype::fp32, {1});
      if (kSteps[i] == 'X') w.grad.span<float>()[0] = std::numeric_limits<float>::infinity();
      scaler.step(sgd);
      scaler.update();
      ASSERT_EQ(std::ilogb(scaler.get_scale()) - 20, want[i]) << i;
      RuleGradScaler loaded(rule);
      loaded.load_state_dict(scaler.state_dict());
      scaler = loaded;
    }
  }
}

// Sharded
// ---------------------------------------------------------------------------------------------------------------------

/// Runs work(rank, all_reduce) on two threads.
template <class Work>
void on_two_ranks(const Work& work) {
  std::barrier meet(2);
  std::array<float, 2> given{};
  const auto rank_of = [&](std::size_t rank) {
    work(rank, [&, rank](float value) {
      given[rank] = value;
      meet.arrive_and_wait();
      const float sum = given[0] + given[1];
      meet.arrive_and_wait();
      return sum;
    });
  };
  std::thread other([&] { rank_of(1); });
  rank_of(0);
  other.join();
}

struct RankResult {
  Tensor param, grad;
  OptimizerState state;
  std::map<int, float> found;
  double scale = 0.0;
  std::int32_t tracker = 0;
};

std::array<RankResult, 2> run_ranks(const Golden& entry, ShardedRule rule) {
  struct Rank {
    Parameter parameter;
    std::unique_ptr<BlockOptimizer> optimizer;
  };
  // The record is read here: what does not stand in it stops no rank that the other waits for.
  std::array<Rank, 2> ranks;
  Golden args;
  args.kind = Golden::Kind::object;
  args.keys = {"lr"};
  args.items = {entry.at("lr")};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ranks[rank].parameter = {"w", tests::tensor_of(entry.at("param_in"))};
    ranks[rank].parameter.grad = tests::tensor_of(entry.at("ranks")[rank].at("grad_in"));
    ranks[rank].optimizer =
        tests::make_optimizer(entry.at("optimizer").text, args, {&ranks[rank].parameter}, entry.at("fused").truth,
                              rule == ShardedRule::torch ? SkipRule::torch_exactly_one : SkipRule::nonzero);
    if (ranks[rank].parameter.value.dtype() != Dtype::fp32 || ranks[rank].parameter.grad.dtype() != Dtype::fp32 ||
        !(ranks[rank].parameter.value.shape() == ranks[rank].parameter.grad.shape()))
      throw Error("[golden] got no fp32 parameter with its gradient");
  }
  GradScalerOptions options;
  options.init_scale = real(entry.at("init_scale"));
  const bool explicit_unscale = entry.at("explicit_unscale").truth;
  std::array<RankResult, 2> results;
  on_two_ranks([&](std::size_t rank, const AllReduceSum& all_reduce) {
    auto& [parameter, optimizer] = ranks[rank];
    ShardedGradScaler scaler(options, all_reduce, rule);
    scaler.scale(Tensor(Dtype::fp32, {}));
    if (explicit_unscale) scaler.unscale_(*optimizer);
    scaler.step(*optimizer);
    RankResult& result = results[rank];
    result.found = scaler.found_inf(*optimizer);
    scaler.update();
    result.param = parameter.value;
    result.grad = parameter.grad;
    result.state = optimizer->state(0);
    result.scale = scaler.get_scale();
    result.tracker = scaler.get_growth_tracker();
  });
  return results;
}

void play_two_ranks(const Golden& entry) {
  SCOPED_TRACE(entry.at("name").text);
  const auto results = run_ranks(entry, ShardedRule::torch);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Golden& want = entry.at("ranks")[rank];
    EXPECT_TRUE(same_tensor(results[rank].param, want.at("param")));
    EXPECT_TRUE(same_tensor(results[rank].grad, want.at("grad_out")));
    EXPECT_TRUE(same_number(static_cast<double>(results[rank].found.at(0)), real(want.at("found_inf")[0])));
    EXPECT_EQ(results[rank].scale, real(want.at("scale")));
    EXPECT_EQ(results[rank].tracker, static_cast<std::int32_t>(want.at("tracker").value));
    // Fused Adam after an explicit unscale_ raises in Python once the parameters have moved (a shape [1] flag): no step
    // counter.
    if (want.contains("errors")) continue;
    const Golden& state = want.at("state");
    for (std::size_t i = 0; i < state.size(); ++i)
      EXPECT_TRUE(same_tensor(results[rank].state.at(state.keys[i]), state[i])) << state.keys[i];
  }
}
const tests::Played played_two_ranks("sharded_grad_scaler.json", "two_ranks", play_two_ranks);

TEST(ShardedGoldens, TorchsRuleOnTwoRanks) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "sharded_grad_scaler.json");
  for (const Golden& entry : golden.at("two_ranks")) play_two_ranks(entry);
}

/// Ours: ranks agree always, and nothing moves if any rank found something. torch's rule is the planted fault.
TEST(ShardedGoldens, AgreedRanksDoNotDiverge) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "sharded_grad_scaler.json");
  int torch_moved_on_bad = 0;
  for (const Golden& entry : golden.at("two_ranks")) {
    SCOPED_TRACE(entry.at("name").text);
    const bool bad = entry.at("name").text.ends_with("_bad");
    const auto results = run_ranks(entry, ShardedRule::agreed);
    for (const RankResult& result : results) {
      EXPECT_EQ(result.found.at(0), bad ? 1.0f : 0.0f);
      EXPECT_EQ(result.scale, bad ? 2.0 : 4.0);
      EXPECT_EQ(bool(same_tensor(result.param, entry.at("param_in"))), bad);
    }
    for (const RankResult& result : run_ranks(entry, ShardedRule::torch))
      torch_moved_on_bad += bad && !same_tensor(result.param, entry.at("param_in"));
  }
  EXPECT_GT(torch_moved_on_bad, 0);
}

/// Weights and found flags of two ranks after one fused SGD step; `bad` ranks have an infinite gradient.
std::array<RankResult, 2> one_step(std::array<bool, 2> bad, bool explicit_unscale, ShardedRule rule) {
  std::array<RankResult, 2> results;
  on_two_ranks([&](std::size_t rank, const AllReduceSum& all_reduce) {
    Parameter w{"w", Tensor(Dtype::fp32, {1})};
    SgdOptions sgd;
    sgd.lr = 1.0;
    sgd.fused = true;
    sgd.skip = rule == ShardedRule::torch ? SkipRule::torch_exactly_one : SkipRule::nonzero;
    Sgd optimizer({&w}, sgd);
    GradScalerOptions options;
    options.init_scale = 4.0;
    ShardedGradScaler scaler(options, all_reduce, rule);
    scaler.scale(Tensor(Dtype::fp32, {}));
    w.grad = Tensor(Dtype::fp32, {1});
    w.grad.span<float>()[0] = bad[rank] ? std::numeric_limits<float>::infinity() : 4.0f;
    if (explicit_unscale) scaler.unscale_(optimizer);
    scaler.step(optimizer);
    results[rank].found = scaler.found_inf(optimizer);
    scaler.update();
    results[rank].param = w.value;
    results[rank].scale = scaler.get_scale();
  });
  return results;
}

TEST(Sharded, RanksSkipTogetherOrNotAtAll) {
  for (const bool explicit_unscale : {false, true})
    for (const auto& bad : {std::array{false, false}, {true, false}, {false, true}, {true, true}}) {
      const auto results = one_step(bad, explicit_unscale, ShardedRule::agreed);
      const bool any = bad[0] || bad[1];
      for (const RankResult& result : results) {
        EXPECT_EQ(result.found.at(0), any ? 1.0f : 0.0f);
        EXPECT_EQ(result.param.span<float>()[0], any ? 0.0f : -1.0f);
        EXPECT_EQ(result.scale, any ? 2.0 : 4.0);
      }
    }
  // Planted, and what torch does: a summed flag of 2 is no skip for a fused optimizer; an unasked rank steps alone.
  EXPECT_TRUE(std::isinf(one_step({true, true}, true, ShardedRule::torch)[0].param.span<float>()[0]));
  const auto apart = one_step({true, false}, false, ShardedRule::torch);
  EXPECT_NE(apart[0].param.span<float>()[0], apart[1].param.span<float>()[0]);
  EXPECT_NE(apart[0].scale, apart[1].scale);
}

void play_one_process(const Golden& facts) {
  const AllReduceSum alone = [](float value) { return value; };
  const auto make = [&](double init, double growth, std::int32_t interval) {
    GradScalerOptions options;
    options.init_scale = init;
    options.growth_factor = growth;
    options.growth_interval = interval;
    return ShardedGradScaler(options, alone, ShardedRule::torch);
  };
  SgdOptions lr_one;
  lr_one.lr = 1.0;
  Parameter w{"w", Tensor(Dtype::fp32, {1})};
  Sgd sgd({&w}, lr_one);
  ShardedGradScaler growing = make(1e38, 16.0, 1);
  growing.scale(Tensor(Dtype::fp32, {}));
  w.grad = Tensor(Dtype::fp32, {1});
  growing.step(sgd);
  growing.update();
  EXPECT_TRUE(same_number(growing.get_scale(), real(facts.at("scale_1e38_after_growth_16"))));

  Tensor one(Dtype::fp16, {});
  from_doubles(std::vector{1.0}, one.view());
  EXPECT_TRUE(same_tensor(make(65536.0, 2.0, 2000).scale(one), facts.at("fp16_loss_1_scaled")));

  Parameter h{"h", Tensor(Dtype::fp16, {2})};
  from_doubles(std::vector{1.0, 1.0}, h.value.view());
  Sgd half({&h}, lr_one);
  ShardedGradScaler fp16 = make(4.0, 2.0, 2000);
  fp16.scale(one);
  h.grad = Tensor(Dtype::fp16, {2});
  from_doubles(std::vector{4.0, 8.0}, h.grad.view());
  fp16.step(half);
  fp16.update();
  EXPECT_TRUE(same_tensor(h.grad, facts.at("fp16_grads_4_8_scale_4").at("grad")));
  EXPECT_TRUE(same_tensor(h.value, facts.at("fp16_grads_4_8_scale_4").at("param")));

  w.clear_grad();
  ShardedGradScaler empty = make(4.0, 2.0, 2000);
  empty.scale(one);
  empty.step(sgd);
  empty.update();
  EXPECT_EQ(empty.get_scale(), real(facts.at("no_gradients").at("scale")));
  EXPECT_EQ(empty.get_growth_tracker(), static_cast<std::int32_t>(facts.at("no_gradients").at("tracker").value));
}
const tests::Played played_one_process("sharded_grad_scaler.json", "one_process", play_one_process);

TEST(ShardedGoldens, OneProcess) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "sharded_grad_scaler.json");
  play_one_process(golden.at("one_process"));
}

}  // namespace
}  // namespace ampcheck
