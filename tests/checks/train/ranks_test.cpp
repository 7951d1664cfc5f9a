// SPDX-License-Identifier: Apache-2.0
// Several ranks in the training loop: the mean of their gradients, and one scale for all.
#include "checks/train/ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "checks/train/checkpoint.h"
#include "checks/train/diagnosis.h"
#include "src/error.h"
#include "src/float_format.h"
#include "src/parallel.h"
#include "src/random.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::checks::train {
namespace {

using Order = ReduceOptions::Order;
using Divide = ReduceOptions::Divide;

Tensor fp32(const std::vector<double>& values) {
  Tensor out(Dtype::fp32, {std::ssize(values)});
  from_doubles(values, out.view());
  return out;
}

std::vector<Tensor> random_ranks(std::size_t ranks, std::size_t n) {
  std::vector<Tensor> out;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<double> values(n);
    Random(r, "ranks").normals(0, values);
    out.push_back(fp32(values));
  }
  return out;
}

std::vector<TensorView> views(const std::vector<Tensor>& tensors) {
  std::vector<TensorView> out;
  for (const Tensor& t : tensors) out.push_back(t.view());
  return out;
}

/// Each rank's number is rounded twice (on its way, by the division) and added ranks - 1 times: ranks + 1 roundings.
TEST(AllReduce, IsTheMeanWithinItsRoundings) {
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 7u, 8u})
    for (const std::optional<Dtype> wire :
         {std::optional<Dtype>(), std::optional(Dtype::fp16), std::optional(Dtype::bf16)})
      for (const Order order : {Order::ring, Order::tree})
        for (const Divide divide : {Divide::pre, Divide::post}) {
          const std::vector<Tensor> of_ranks = random_ranks(ranks, 2053);
          const ReduceOptions options{.divide = divide, .order = order, .compress = wire};
          const Tensor mean = all_reduce_mean(views(of_ranks), options);
          ASSERT_EQ(mean.dtype(), wire.value_or(Dtype::fp32));
          const std::vector<double> got = to_doubles(mean.view()), want = exact_mean(views(of_ranks));
          const FloatFormat& f = format(mean.dtype());
          const double n = static_cast<double>(ranks), u = f.unit_roundoff(), gamma = (n + 1) * u / (1 - (n + 1) * u);
          std::vector<double> sizes(got.size(), 0.0);
          for (const Tensor& t : of_ranks)
            for (std::size_t i = 0; i < sizes.size(); ++i)
              sizes[i] += std::fabs(static_cast<double>(t.span<float>()[i]));
          for (std::size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], want[i], gamma * sizes[i] / n + (n + 1) * f.min_subnormal() / 2)
                << str(options) << " " << ranks << " element " << i;
        }
}

/// 1, u/2 and u/2 side by side: left to right both halves are lost, in pairs they are one whole ulp.
TEST(AllReduce, OrdersDifferAsTheirAdditionsSay) {
  const double h = 0x1p-24;
  const std::vector<Tensor> of_ranks = {fp32({1, 1, 1, 1}), fp32({h, h, h, h}), fp32({h, h, h, h}), fp32({h, h, h, h})};
  const auto sum = [&](Order order) {
    std::vector<double> out =
        to_doubles(all_reduce_mean(views(of_ranks), {.divide = Divide::post, .order = order}).view());
    for (double& v : out) v *= 4;
    return out;
  };
  const double ulp = 0x1p-23;
  EXPECT_EQ(sum(Order::tree), (std::vector<double>{1 + ulp, 1 + ulp, 1 + ulp, 1 + ulp})) << "(1 + h) + (h + h)";
  // Chunk 0 is ranks 1, 2, 3, 0: 3h + 1, a tie that goes to the even 1 + 2 ulp. Chunk 1, ranks 2, 3, 0, 1: 1 + ulp and
  // h, the same tie. Then 1 + h is 1.
  EXPECT_EQ(sum(Order::ring), (std::vector<double>{1 + 2 * ulp, 1 + 2 * ulp, 1, 1}));
}

/// What torch's notes say of the order of division: sums of 16 bits overflow, means do not; and small numbers vanish
/// the other way round.
TEST(AllReduce, DividingBeforeOrAfterLosesOtherEnds) {
  const std::vector<Tensor> large = {fp32({40000}), fp32({40000})}, small = {fp32({0x1p-24}), fp32({0x1p-24})};
  const auto mean = [](const std::vector<Tensor>& of, Divide divide) {
    return to_doubles(all_reduce_mean(views(of), {.divide = divide, .compress = Dtype::fp16}).view())[0];
  };
  EXPECT_EQ(mean(large, Divide::pre), 40000);
  EXPECT_EQ(mean(large, Divide::post), INFINITY);
  EXPECT_EQ(mean(small, Divide::pre), 0);
  EXPECT_EQ(mean(small, Divide::post), 0x1p-24);
  EXPECT_THROW(all_reduce_mean(views({fp32({1}), fp32({1, 2})}), {}), Error);
}

TrainOptions options_of(Dtype dtype, int ranks, int accumulate) {
  TrainOptions options;
  options.net.data = tests::in_source("/tests/data");
  options.net.batch = 16;
  options.dtype = dtype;
  options.scaler.enabled = dtype == Dtype::fp16;
  options.rule.ranks = ranks;
  options.rule.accumulate = accumulate;
  return options;
}

std::vector<double> weights_after(const TrainOptions& options, int steps, std::vector<StepResult>* results = nullptr) {
  Trainer trainer(options);
  for (int i = 0; i < steps; ++i) {
    const StepResult result = trainer.step();
    if (results != nullptr) results->push_back(result);
  }
  std::vector<double> out;
  for (const Parameter& p : trainer.parameters().all())
    for (const double v : to_doubles(p.value.view())) out.push_back(v);
  return out;
}

/// Weights in 16 bits, with masters or alone, or fp32 weights whose gradients are kept in 16 bits.
struct Low {
  Dtype dtype;
  Weights weights;
  bool keep;
};
constexpr Low kLow[] = {{Dtype::fp16, Weights::master, false}, {Dtype::bf16, Weights::master, false},
                        {Dtype::fp16, Weights::low, false},    {Dtype::bf16, Weights::low, false},
                        {Dtype::fp16, Weights::fp32, true},    {Dtype::bf16, Weights::fp32, true}};

TrainOptions options_of(const Low& low, int ranks, int accumulate) {
  TrainOptions options = options_of(low.dtype, ranks, accumulate);
  options.rule.optimizer.weights = low.weights;
  options.rule.optimizer.fused = true;
  options.keep_low_precision_grads = low.keep;
  options.scaler.init_scale = 0x1p12;  // far from both ends of fp16
  return options;
}

using Gradients = std::map<std::string, std::vector<double>>;

/// The gradients of a step by parameter, in 16 bits, and their sum over ranks and micro-batches as the kernels wrote
/// them, in fp64; `sizes`: the sum of their magnitudes. `by`: each rank's gradients are divided by it before they are
/// sent.
struct Step {
  Gradients got, exact, sizes;
  Dtype dtype = Dtype::fp32;

  Step(TrainOptions options, double by) {
    // A scale without a scaler: the fused update writes back what it divided.
    options.scaler.enabled = false;
    options.rule.loss_weight = options.dtype == Dtype::fp16 ? 0x1p12 : 1;
    options.fault = [this, by](const Event& e) {
      if (e.phase != Phase::backward || e.cast || (e.tensor != "dweight" && e.tensor != "dbias")) return;
      std::vector<double> values = to_doubles(e.got);
      const std::string parameter = std::string(e.layer) + "." + std::string(e.tensor.substr(1));
      exact[parameter].resize(values.size());
      sizes[parameter].resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        exact[parameter][i] += values[i];
        sizes[parameter][i] += std::fabs(values[i]);
      }
      for (double& v : values) v /= by;
      if (by != 1) from_doubles(values, e.got);
    };
    Trainer trainer(options);
    trainer.step();
    for (const Parameter& p : trainer.parameters().all()) {
      got[p.name] = to_doubles(p.grad.view());
      dtype = p.grad.dtype();
    }
  }
};

/// Elements further from exact / by than `roundings` roundings to the formats can take them.
std::size_t outside(const Step& step, double by, int roundings, const FloatFormat& a, const FloatFormat& b) {
  const double u = std::max(a.unit_roundoff(), b.unit_roundoff()), gamma = roundings * u / (1 - roundings * u),
               tiny = std::max(a.min_subnormal(), b.min_subnormal());
  std::size_t out = 0;
  for (const auto& [name, got] : step.got)
    for (std::size_t i = 0; i < got.size(); ++i)
      out += !(std::fabs(got[i] - step.exact.at(name)[i] / by) <=
               gamma * step.sizes.at(name)[i] / by + roundings * tiny / 2);
  return out;
}

/// Halves are exact, so that two ranks are two micro-batches bit for bit; with the same rows in one batch the kernels'
/// sums have another order.
TEST(Ranks, AreOneRankWithTheSameRows) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const std::vector<double> two = weights_after(options_of(dtype, 2, 1), 3),
                              one = weights_after(options_of(dtype, 1, 2), 3);
    EXPECT_EQ(two, one) << name(dtype);
    TrainOptions threads = options_of(dtype, 2, 1);
    threads.watched = true;  // one rank after the other, instead of at once
    EXPECT_EQ(weights_after(threads, 3), two) << name(dtype);
  }
  // In fp64 the same step to fp64's roundings.
  std::vector<StepResult> ranks, whole;
  TrainOptions four = options_of(Dtype::fp32, 4, 1), batch = options_of(Dtype::fp32, 1, 1);
  batch.net.batch = 64;
  four.shadows.carried = batch.shadows.carried = true;
  const std::vector<double> of_ranks = weights_after(four, 3, &ranks), of_whole = weights_after(batch, 3, &whole);
  double apart = 0, moved = 0;
  const std::vector<double> start = weights_after(batch, 0);
  for (std::size_t i = 0; i < of_whole.size(); ++i) apart += std::pow(of_ranks[i] - of_whole[i], 2);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(*ranks[i].fp64_loss, *whole[i].fp64_loss, 64 * 3 * 0x1p-53 * *whole[i].fp64_loss) << i;
    EXPECT_NEAR(ranks[i].loss, whole[i].loss, 64 * 0x1p-24 * whole[i].loss) << i;
    for (const double n : whole[i].norms) moved += whole[i].lr * n;
  }
  // The step is lr g, of sums of 64 rows times as many roundings; the weights themselves are rounded once a step.
  EXPECT_LE(std::sqrt(apart),
            64 * 0x1p-24 * moved * 2 + 3 * 0x1p-24 * std::sqrt(static_cast<double>(of_whole.size())) * 0.5);
}

/// As Megatron and DeepSpeed train: gradients in 16 bits, their mean in the wire's dtype, or theirs. Two ranks are two
/// micro-batches bit for bit.
TEST(Ranks, InSixteenBitsAreOneRankWithTheSameRows) {
  for (const Low& low : kLow) {
    const std::vector<double> two = weights_after(options_of(low, 2, 1), 4),
                              one = weights_after(options_of(low, 1, 2), 4);
    EXPECT_EQ(two, one) << name(low.dtype) << " " << name(low.weights);
    TrainOptions wider = options_of(low, 2, 1);
    wider.reduce.compress = Dtype::fp32;  // one addition in fp32, then one rounding: what one addition in 16 bits is
    EXPECT_EQ(weights_after(wider, 4), two) << name(low.dtype) << " " << name(low.weights);
  }
}

/// Four ranks: each number is rounded on its way, by the division, by additions, and at the end to the gradient's
/// dtype. One rank's four micro-batches are three additions. Dividing twice leaves the bound.
TEST(Ranks, InSixteenBitsGiveTheMeanWithinItsRoundings) {
  constexpr int kRanks = 4;
  for (const Low& low : kLow)
    for (const std::optional<Dtype> wire :
         testing::all_or_first({std::optional<Dtype>(), std::optional(Dtype::fp16), std::optional(Dtype::bf16),
                                std::optional(Dtype::fp32)}))
      for (const Order order : {Order::ring, Order::tree})
        for (const Divide divide : {Divide::pre, Divide::post}) {
          TrainOptions options = options_of(low, kRanks, 1);
          options.reduce = {.divide = divide, .order = order, .compress = wire};
          const std::string what = std::string(name(low.dtype)) + " " + name(low.weights) + " " + str(options.reduce);
          const FloatFormat &own = format(low.dtype), &sent = format(wire.value_or(low.dtype));
          const Step ranks(options, 1), one(options_of(low, 1, kRanks), 1), twice(options, kRanks);
          ASSERT_EQ(ranks.dtype, low.dtype) << what;
          EXPECT_EQ(outside(ranks, kRanks, kRanks + 2, own, sent), 0u) << what;
          EXPECT_EQ(outside(one, 1, kRanks - 1, own, own), 0u) << what;
          EXPECT_GT(outside(twice, kRanks, kRanks + 2, own, sent), twice.got.at("layer0.weight").size() / 4) << what;
          // Micro-batches have their share of the loss from the start, a power of two: the same mean.
          for (const auto& [parameter, exact] : ranks.exact)
            for (std::size_t i = 0; low.dtype == Dtype::bf16 && i < exact.size(); ++i)
              ASSERT_EQ(exact[i] / kRanks, one.exact.at(parameter)[i]) << what << " " << parameter;
        }
}

/// What the division flushes in 16 bits is named, as a hook's is.
TEST(Ranks, WhatSixteenBitsLoseBetweenRanksIsNamed) {
  TrainOptions options = options_of(kLow[2], 4, 1);
  options.scaler.enabled = false;
  options.rule.loss_weight = 0x1p-9;
  options.shadows.local = true;
  Trainer trainer(options);
  const std::vector<StepResult> steps = {trainer.step()};
  std::size_t between = 0;
  for (const Place& place : diagnose(trainer, steps).vanished)
    between += place.where.phase == Phase::all_reduce && place.where.dtype == Dtype::fp16;
  EXPECT_GT(between, 0u);
}

TEST(Ranks, InSixteenBitsGoOnFromACheckpoint) {
  TrainOptions options = options_of(kLow[0], 3, 2);
  options.rule.optimizer.name = "adam";
  options.rule.optimizer.lr = 0.003;
  options.rule.clip_norm = 0.5;
  Trainer first(options), again(options);
  for (int i = 0; i < 3; ++i) first.step();
  resume(again, checkpoint_bytes(first), "checkpoint");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(again.step().loss, first.step().loss) << i;
}

/// One rank's infinity skips the step on all, and one scale is agreed on; a fault of one rank is that one's alone
/// otherwise.
TEST(Ranks, AnInfinityOnOneSkipsOnAll) {
  for (const std::optional<Dtype> wire : {std::optional<Dtype>(), std::optional(Dtype::fp16)})
    for (const bool faulty : {true, false}) {
      TrainOptions options = options_of(Dtype::fp16, 3, 1);
      options.reduce.compress = wire;
      options.shadows.local = true;
      if (faulty)
        options.fault = [](const Event& e) {
          if (e.step == 1 && e.rank == 2 && e.op == "linear_2" && e.tensor == "dweight" && !e.cast)
            e.got.as<std::uint16_t>()[3] = 0x7c00;
        };
      Trainer trainer(options);
      EXPECT_TRUE(trainer.step().stepped);
      const double before = trainer.scaler().get_scale();
      const StepResult second = trainer.step();
      EXPECT_EQ(second.stepped, !faulty);
      EXPECT_EQ(second.found_inf, faulty);
      EXPECT_EQ(second.scale_after, faulty ? before / 2 : before);
      bool passed_on = false;
      for (const FaultEvent& fault : trainer.watch()->faults())
        passed_on |= fault.where.phase == Phase::all_reduce && fault.where.op == "layer1.weight" &&
                     fault.role == FaultRole::propagator;
      EXPECT_EQ(passed_on, faulty);
      EXPECT_TRUE(trainer.step().stepped);
    }
}

/// What a compressing hook flushes is seen where it happens: gradients as small as fp16 on a rank, halved on the wire.
TEST(Ranks, WhatAHookLosesIsNamed) {
  for (const bool compressed : {true, false}) {
    TrainOptions options = options_of(Dtype::fp32, 2, 1);
    options.rule.loss_weight = 0x1p-20;
    options.shadows.local = true;
    if (compressed) options.reduce.compress = Dtype::fp16;
    Trainer trainer(options);
    std::vector<StepResult> steps = {trainer.step()};
    const Diagnosis diagnosis = diagnose(trainer, steps);
    EXPECT_EQ(!diagnosis.vanished.empty(), compressed);
    if (compressed) {
      EXPECT_EQ(diagnosis.vanished.front().where.phase, Phase::all_reduce);
      EXPECT_GT(diagnosis.vanished_share, 0.1);
    }
  }
}

/// The sum over ranks ends on the rank that owns the stretch, and everything after it is element by element: the same
/// bits, sharded or not.
TEST(Ranks, ShardedAreTheSameBits) {
  struct Case {
    const char* optimizer;
    Dtype dtype;
    int ranks;
    Order order;
    std::optional<Dtype> wire;
    const char* schedule;
  };
  for (const Case& c : {Case{"sgd", Dtype::fp16, 2, Order::ring, {}, ""},
                        Case{"adam", Dtype::bf16, 3, Order::tree, Dtype::bf16, "cosine:8"},
                        Case{"rmsprop", Dtype::fp16, 4, Order::ring, Dtype::fp16, "step:2"}}) {
    TrainOptions options = options_of(c.dtype, c.ranks, 1);
    options.rule.optimizer.name = c.optimizer;
    options.rule.schedule = c.schedule;
    options.reduce.order = c.order;
    options.reduce.compress = c.wire;
    options.scaler.init_scale = 0x1p24;  // some steps are skipped
    std::vector<StepResult> whole, parts;
    const std::vector<double> want = weights_after(options, 6, &whole);
    options.sharding.on = true;
    EXPECT_EQ(weights_after(options, 6, &parts), want) << c.optimizer;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(parts[i].loss, whole[i].loss) << i;
      EXPECT_EQ(parts[i].stepped, whole[i].stepped) << i;
      EXPECT_EQ(parts[i].scale_after, whole[i].scale_after) << i;
      EXPECT_EQ(parts[i].lr, whole[i].lr) << i;
      EXPECT_EQ(parts[i].stagnant_share, whole[i].stagnant_share) << i;
      EXPECT_FALSE(parts[i].ranks_disagree) << i;
    }
    EXPECT_TRUE(c.dtype != Dtype::fp16 || whole.back().skips > 0);
  }
}

/// Hexadecimal digits; a NaN is a NaN.
std::string exactly(const std::vector<double>& values) {
  std::string out;
  for (const double v : values) out += std::isnan(v) ? "nan " : fmt::format("{:a} ", v);
  return out;
}

/// The same of weights in 16 bits, with a master of each shard or without, and of gradients that stay in 16 bits:
/// scaled until each rank's optimizer divides. Of every optimizer, through skipped steps.
TEST(Ranks, ShardedInSixteenBitsAreTheSameBits) {
  for (const Low& low : kLow)
    for (const char* optimizer : {"sgd", "adam", "adagrad"})
      for (const int ranks : {2, 3}) {
        SCOPED_TRACE(fmt::format("{} {} {} {} ranks", name(low.dtype), name(low.weights), optimizer, ranks));
        TrainOptions options = options_of(low, ranks, 1);
        options.rule.optimizer.name = optimizer;
        if (std::string_view(optimizer) == "adam") options.rule.optimizer.lr = 0.003;
        options.norms = true;
        options.scaler.init_scale = 0x1p20;  // some steps are skipped
        std::vector<StepResult> whole, parts;
        const std::vector<double> want = weights_after(options, 8, &whole);
        options.sharding.on = true;
        EXPECT_EQ(exactly(weights_after(options, 8, &parts)), exactly(want));
        for (std::size_t i = 0; i < whole.size(); ++i) {
          EXPECT_EQ(exactly({parts[i].loss}), exactly({whole[i].loss})) << i;
          EXPECT_EQ(parts[i].stepped, whole[i].stepped) << i;
          EXPECT_EQ(parts[i].found_inf, whole[i].found_inf) << i;
          EXPECT_EQ(parts[i].scale_after, whole[i].scale_after) << i;
          EXPECT_EQ(exactly(parts[i].norms), exactly(whole[i].norms)) << i;
          EXPECT_EQ(parts[i].updates.stagnant, whole[i].updates.stagnant) << i;
          EXPECT_EQ(parts[i].updates.copy_stagnant, whole[i].updates.copy_stagnant) << i;
          EXPECT_FALSE(parts[i].ranks_disagree) << i;
        }
        EXPECT_TRUE(low.dtype != Dtype::fp16 || !options.scaler.enabled || whole.back().skips > 0);
        EXPECT_LT(whole.back().skips, 8);
      }
}

/// A master is fp32, of the shard alone; the shard has the weights' dtype.
TEST(Ranks, ShardsOfSixteenBitsHaveMastersOfTheirOwn) {
  TrainOptions options = options_of(kLow[0], 3, 1);
  ASSERT_EQ(options.rule.optimizer.weights, Weights::master);
  options.sharding.on = true;
  Trainer trainer(options);
  ASSERT_TRUE(trainer.step().stepped);
  for (const Parameter& whole : trainer.parameters().all()) {
    std::int64_t elements = 0, masters = 0;
    for (int r = 0; r < 3; ++r) {
      const Parameter& shard = *trainer.sharded()->shards(r).find(whole.name);
      EXPECT_EQ(shard.value.dtype(), options.dtype);
      EXPECT_EQ(shard.grad.dtype(), options.dtype);
      elements += shard.value.count();
      std::size_t at = 0;
      while (&trainer.sharded()->shards(r).all()[at] != &shard) ++at;
      const Tensor& master = trainer.sharded()->optimizers(r).state(at).at("master_param");
      EXPECT_EQ(master.dtype(), Dtype::fp32);
      masters += master.count();
      Tensor rounded(options.dtype, master.shape());
      from_doubles(to_doubles(master.view()), rounded.view());
      EXPECT_EQ(to_doubles(rounded.view()), to_doubles(shard.value.view()))
          << whole.name << ": the shard is the master's copy";
    }
    EXPECT_EQ(elements, whole.value.count());
    EXPECT_EQ(masters, elements);
  }
}

/// An infinity in one rank's shard of gradients in 16 bits: no rank's optimizer divides and steps unless all agree.
TEST(Ranks, ShardedInSixteenBitsSkipTogether) {
  for (const bool agreed : {true, false}) {
    TrainOptions options = options_of(kLow[0], 3, 1);
    ASSERT_EQ(options.dtype, Dtype::fp16);
    options.scaler.init_scale = 1024;
    options.sharding.on = true;
    if (!agreed) options.sharding.believes = [](int, float own, float) { return own; };
    options.fault = [](const Event& e) {  // the second element: rank 0 owns it
      if (e.step == 1 && e.rank == 2 && e.op == "linear_2" && e.tensor == "dweight" && !e.cast)
        e.got.as<std::uint16_t>()[1] = 0x7c00;
    };
    Trainer trainer(options);
    ASSERT_TRUE(trainer.step().stepped);
    std::vector<double> before, after;
    for (const Parameter& p : trainer.parameters().all())
      for (const double v : to_doubles(p.value.view())) before.push_back(v);
    const StepResult faulty = trainer.step();
    for (const Parameter& p : trainer.parameters().all())
      for (const double v : to_doubles(p.value.view())) after.push_back(v);
    EXPECT_TRUE(faulty.found_inf);
    EXPECT_FALSE(faulty.stepped);
    EXPECT_EQ(faulty.ranks_disagree, !agreed);
    EXPECT_EQ(after == before, agreed) << "the ranks that stepped";
    EXPECT_EQ(trainer.sharded()->scaler(1).get_scale(), agreed ? 512 : 1024);
  }
}

/// Clipped: unscaled in fp32 first, by one norm of all shards; and on from a checkpoint with the masters of each rank.
TEST(Ranks, ShardedInSixteenBitsAreClippedAndResumedAsOne) {
  TrainOptions options = options_of(kLow[0], 3, 1);
  options.rule.optimizer.name = "adam";
  options.rule.optimizer.lr = 0.003;
  options.rule.clip_norm = 0.25;
  options.sharding.on = true;
  Trainer first(options), again(options);
  for (int i = 0; i < 3; ++i) first.step();
  resume(again, checkpoint_bytes(first), "checkpoint");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(again.step().loss, first.step().loss) << i;
  for (Parameter& p : first.parameters().all())
    EXPECT_EQ(to_doubles(again.parameters().find(p.name)->value.view()), to_doubles(p.value.view())) << p.name;
  double squares = 0;
  for (int r = 0; r < 3; ++r)
    for (const Parameter& p : first.sharded()->shards(r).all())
      for (const double g : to_doubles(p.grad.view())) squares += g * g;
  EXPECT_NEAR(std::sqrt(squares), 0.25, 0.25 * 1e-5);
}

/// An infinity that is in one rank's shard alone: agreed on, all skip; where each believes its own flag, one skips and
/// the others step.
TEST(Ranks, ShardedSkipTogether) {
  struct End {
    std::vector<double> weights, scales;
    bool disagree = false, stepped = true;
  };
  const auto run = [](bool sharded, bool agreed) {
    TrainOptions options = options_of(Dtype::fp16, 3, 1);
    options.sharding.on = sharded;
    if (!agreed) options.sharding.believes = [](int, float own, float) { return own; };
    options.fault = [](const Event& e) {  // the second element: rank 0 owns it
      if (e.step == 1 && e.rank == 2 && e.op == "linear_2" && e.tensor == "dweight" && !e.cast)
        e.got.as<std::uint16_t>()[1] = 0x7c00;
    };
    Trainer trainer(options);
    End end;
    for (int i = 0; i < 4; ++i) {
      const StepResult result = trainer.step();
      end.disagree |= result.ranks_disagree;
      if (i == 1) end.stepped = result.stepped;
    }
    for (const Parameter& p : trainer.parameters().all())
      for (const float v : p.value.span<float>()) end.weights.push_back(static_cast<double>(v));
    for (int r = 0; sharded && r < 3; ++r) end.scales.push_back(trainer.sharded()->scaler(r).get_scale());
    return end;
  };
  const End whole = run(false, true), right = run(true, true), wrong = run(true, false);
  EXPECT_EQ(right.weights, whole.weights);
  EXPECT_FALSE(right.stepped || right.disagree);
  EXPECT_EQ(right.scales, (std::vector<double>(3, 32768)));
  EXPECT_TRUE(wrong.disagree);
  EXPECT_EQ(wrong.scales, (std::vector<double>{32768, 65536, 65536}));
  std::size_t apart = 0;
  for (std::size_t i = 0; i < whole.weights.size(); ++i) apart += wrong.weights[i] != whole.weights[i];
  EXPECT_GT(apart, whole.weights.size() / 3) << "the shards of the ranks that stepped";
}

/// Clipping needs one norm of all shards; a checkpoint has each rank's own.
TEST(Ranks, ShardedAreClippedAndResumedAsOne) {
  TrainOptions options = options_of(Dtype::bf16, 3, 1);
  options.rule.optimizer.name = "adam";
  options.rule.clip_norm = 0.25;
  options.sharding.on = true;
  Trainer first(options);
  for (int i = 0; i < 3; ++i) first.step();
  const std::string saved = checkpoint_bytes(first);
  Trainer again(options);
  resume(again, saved, "checkpoint");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(again.step().loss, first.step().loss) << i;
  for (Parameter& p : first.parameters().all())
    EXPECT_EQ(to_doubles(again.parameters().find(p.name)->value.view()), to_doubles(p.value.view())) << p.name;
  double squares = 0;
  for (int r = 0; r < 3; ++r)
    for (const Parameter& p : first.sharded()->shards(r).all())
      for (const float g : p.grad.span<float>()) squares += static_cast<double>(g) * static_cast<double>(g);
  EXPECT_NEAR(std::sqrt(squares), 0.25, 0.25 * 1e-5) << "torch's coefficient is max_norm / (norm + 1e-6)";
}

TEST(Ranks, AreFlagsOfTheCommand) {
  using ampcheck::testing::ampcheck;
  const auto run = ampcheck(
      "train --steps 2 --batch 16 --ranks 3 --reduce tree --divide post --compress bf16 --grad-penalty 0.01 --record "
      "/dev/stdout --json");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* part :
       {"\"phase\":\"all_reduce\",\"cast\":false,\"op\":\"layer0.weight\"", "\"dtype\":\"bf16\"", "\"rank\":2"})
    EXPECT_NE(run.out.find(part), std::string::npos) << part;
  const auto sharded = ampcheck("train --steps 2 --batch 16 --ranks 3 --sharded --json");
  EXPECT_EQ(sharded.exit_code, 0) << sharded.err;
  for (const char* low : {"--weights master", "--weights master --dtype bf16 --clip-norm 1", "--weights low --fused",
                          "--keep-low-precision-grads --fused --optimizer adam --lr 0.001"})
    EXPECT_EQ(ampcheck(std::string("train --steps 2 --batch 16 --ranks 3 --sharded ") + low).exit_code, 0) << low;
  EXPECT_NE(sharded.out.find("\"ranks_disagree_at\": null"), std::string::npos) << sharded.out;
  for (const char* wrong : {"--ranks 0", "--reduce star", "--compress fp8", "--divide twice", "--sharded",
                            "--ranks 2 --sharded --scaler deepspeed"})
    EXPECT_EQ(ampcheck(std::string("train --steps 1 ") + wrong).exit_code, 2) << wrong;
}

}  // namespace
}  // namespace ampcheck::checks::train
