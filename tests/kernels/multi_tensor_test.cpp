// SPDX-License-Identifier: Apache-2.0
// Many tensors in one launch against src/amp on the host, bit for bit: on a stream that defers its work, and on CUDA
// where that is.
#include "kernels/multi_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>

#include "kernels/device.h"
#include "kernels/tensor_ops.h"
#include "src/amp/grad_scaler.h"
#include "src/amp/unscale.h"
#include "src/random.h"
#include "src/rounding.h"
#include "tests/support/fake_device.h"

namespace ampcheck {
namespace {

using kernels::Stream;
using tests::FakeStream;

/// Sizes around the chunks of a launch; an empty one too.
constexpr std::int64_t kSizes[] = {1, 7, 4096, 0, 4097, 3, 20000, 8191};
constexpr Dtype kDtypes[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};

/// Values of every magnitude, zeros and subnormals among them; gradients ("g...") are not small where the weights are.
std::vector<double> values_of(const char* name, std::int64_t n, double size = 1) {
  std::vector<double> out(static_cast<std::size_t>(n));
  Random(7, name).normals(0, out);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] *= i % 11 == 0 ? 0 : size * std::ldexp(1.0, -static_cast<int>(i * (name[0] == 'g' ? 7 : 5) % 37));
  return out;
}

Tensor tensor_of(const char* name, Dtype dtype, std::int64_t n, double size = 1) {
  Tensor out(dtype, {n});
  from_doubles(values_of(name, n, size), out.view());
  return out;
}

/// Elements whose bits differ; `nan_is_nan`: on a GPU arithmetic makes NaNs of its own.
std::int64_t differing(const Tensor& a, const Tensor& b, bool nan_is_nan = false) {
  std::int64_t count = 0;
  const std::vector<double> x = to_doubles(a.view()), y = to_doubles(b.view());
  for (std::int64_t i = 0; i < a.count(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (nan_is_nan && std::isnan(x[k]) && std::isnan(y[k])) continue;
    count += bits_at(a.view(), i) != bits_at(b.view(), i);
  }
  return count;
}

struct OnDevice {
  std::vector<Tensor> tensors;
  std::vector<TensorView> views() const {
    std::vector<TensorView> out;
    for (const Tensor& tensor : tensors) out.push_back(tensor.view());
    return out;
  }
};

OnDevice gradients(Stream* stream, double special) {
  const MemoryScope scope(stream);
  OnDevice out;
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::fp64})
    for (const std::int64_t n : kSizes) out.tensors.push_back(tensor_of("grad", dtype, n, 1000));
  if (special != 0) {  // the last element of the last tensor but one, and a NaN of either sign elsewhere
    std::vector<double> values = to_doubles(out.tensors[14].view());
    values[values.size() - 1] = special;
    from_doubles(values, out.tensors[14].view());
  }
  return out;
}

void check_unscale(Stream& stream, bool nan_is_nan) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const double special : {0.0, inf, -inf, nan, -nan})
    for (const float inverse : {1.0f, 0x1p-16f, 0x1p3f, 0.3f, 0x1p-130f}) {
      const OnDevice host = gradients(nullptr, special), device = gradients(&stream, special);
      float want = 0, got = 0;
      check_and_unscale(host.views(), inverse, want);
      const std::int64_t before = stream.launches();
      kernels::unscale_at_once(stream, device.views(), inverse, got);
      EXPECT_EQ(stream.launches(), before + 1);
      EXPECT_EQ(got, want) << special;
      EXPECT_EQ(want, special == 0 ? 0.0f : 1.0f);
      for (std::size_t i = 0; i < host.tensors.size(); ++i)
        EXPECT_EQ(differing(host.tensors[i], device.tensors[i], nan_is_nan), 0)
            << i << " " << special << " " << inverse;
    }
}

TEST(MultiTensor, UnscaleHasTheBitsOfTheHostInOneLaunch) {
  FakeStream stream;
  check_unscale(stream, false);
}

TEST(MultiTensor, WhatUnscaleRefusesIsRefusedAlike) {
  FakeStream stream;
  const MemoryScope scope(&stream);
  const Tensor whole(Dtype::i32, {4});
  float found = 0;
  EXPECT_ANY_THROW(kernels::unscale_at_once(stream, std::vector<TensorView>{whole.view()}, 2, found));
  const auto every_other = [](const Tensor& table) {
    TensorView out = table.view();
    out.shape = {32};
    out.strides = {2};
    return out;
  };
  const Tensor ours = tensor_of("grad", Dtype::fp16, 64), theirs = tensor_of("grad", Dtype::fp16, 64);
  check_and_unscale(std::vector<TensorView>{every_other(ours)}, 2, found);
  kernels::unscale_at_once(stream, std::vector<TensorView>{every_other(theirs)}, 2, found);
  EXPECT_EQ(differing(ours, theirs), 0);
  EXPECT_GT(differing(theirs, tensor_of("grad", Dtype::fp16, 64)), 0);
}

struct Parameters {
  std::vector<Parameter> all;
  std::vector<Parameter*> pointers() {
    std::vector<Parameter*> out;
    for (Parameter& p : all) out.push_back(&p);
    return out;
  }
};

Parameters parameters(Stream* stream, Dtype dtype, bool mixed_grads) {
  const MemoryScope scope(stream);
  Parameters out;
  int index = 0;
  for (const std::int64_t n : kSizes) {
    Parameter& p = out.all.emplace_back();
    p.name = std::to_string(index);
    p.value = tensor_of(p.name.c_str(), dtype, n);
    p.grad = tensor_of(("g" + p.name).c_str(), mixed_grads ? kDtypes[index % 3] : dtype, n);
    ++index;
  }
  out.all[1].grad = {};  // a parameter without a gradient is left alone
  return out;
}

bool same(const UpdateCounts& a, const UpdateCounts& b) {
  return a.intended == b.intended && a.stagnant == b.stagnant && a.copy_stagnant == b.copy_stagnant &&
         a.with_grad == b.with_grad && a.with_grad_stagnant == b.with_grad_stagnant &&
         a.second_moment_zero == b.second_moment_zero;
}

template <class Optimizer, class Options>
void check_optimizer(Stream& stream, const Options& options, Dtype dtype, const std::string& what, bool nan_is_nan) {
  Parameters host = parameters(nullptr, dtype, options.fused), device = parameters(&stream, dtype, options.fused);
  Optimizer ours(host.pointers(), options), theirs(device.pointers(), options);
  theirs.set_multi_tensor(
      [&](std::span<const TensorUpdate> tensors, const UpdateRule& rule, std::span<UpdateCounts> counts) {
        kernels::update_at_once(stream, tensors, rule, counts);
      });
  ours.reset_counts();
  theirs.reset_counts();
  const MemoryScope scope(&stream);  // of the state
  for (int step = 0; step < 4; ++step) {
    for (BlockOptimizer* optimizer : {static_cast<BlockOptimizer*>(&ours), static_cast<BlockOptimizer*>(&theirs)}) {
      if (options.fused) {
        optimizer->grad_scale = step % 2 == 0 ? 1.0f : 8.0f;
        optimizer->found_inf = step == 2 ? 1.0f : 0.0f;
      }
      optimizer->set_lr(step == 3 ? 0.05 : 0.01);
    }
    ours.step();
    stream.wait();
    const std::int64_t before = stream.launches();
    theirs.step();
    EXPECT_EQ(stream.launches() - before, options.fused && step == 2 ? 0 : 1) << what;
    stream.wait();
    for (std::size_t i = 0; i < host.all.size(); ++i) {
      EXPECT_EQ(differing(host.all[i].value, device.all[i].value, nan_is_nan), 0)
          << what << " step " << step << " tensor " << i;
      if (host.all[i].grad.defined()) {
        EXPECT_EQ(differing(host.all[i].grad, device.all[i].grad, nan_is_nan), 0) << what << " grad " << i;
      }
      ASSERT_EQ(ours.state(i).size(), theirs.state(i).size());
      for (const auto& [name, tensor] : ours.state(i))
        EXPECT_EQ(differing(tensor, theirs.state(i)[name], nan_is_nan), 0) << what << " " << name << " " << i;
      EXPECT_TRUE(same(ours.counts(i), theirs.counts(i))) << what << " " << i;
    }
    EXPECT_TRUE(same(ours.counts(), theirs.counts())) << what;
  }
  EXPECT_GT(ours.counts().intended, 0) << what;
  if (std::is_same_v<Optimizer, Sgd> && options.weight_decay == 0) {
    EXPECT_GT(ours.counts().stagnant, 0) << what << ": the tensors have elements that do not move";
  }
}

template <class Adam, class Options>
void check_adam(Stream& stream, const std::string& what, bool nan_is_nan) {
  for (const bool amsgrad : {false, true})
    for (const double decay : {0.0, 0.1}) {
      Options options;
      options.count = true;
      options.amsgrad = amsgrad;
      options.weight_decay = decay;
      options.maximize = decay != 0;
      check_optimizer<Adam>(stream, options, Dtype::fp32, what + " reference", nan_is_nan);
      options.beta1 = 0.4;  // the other end of the interpolation
      check_optimizer<Adam>(stream, options, Dtype::fp32, what + " reference, beta1 0.4", nan_is_nan);
      options.fused = true;
      check_optimizer<Adam>(stream, options, Dtype::fp32, what + " fused, beta1 0.4", nan_is_nan);
      options.beta1 = 0.9;
      for (const Dtype dtype : kDtypes) {
        check_optimizer<Adam>(stream, options, dtype, what + " fused " + name(dtype), nan_is_nan);
        options.master_weights = dtype != Dtype::fp32;
        check_optimizer<Adam>(stream, options, dtype, what + " masters " + name(dtype), nan_is_nan);
        options.moments = Dtype::bf16;
        check_optimizer<Adam>(stream, options, dtype, what + " bf16 moments " + name(dtype), nan_is_nan);
        options.master_weights = false;
        options.moments.reset();
      }
    }
}

void check_sgd(Stream& stream, bool nan_is_nan) {
  for (const bool fused : {false, true})
    for (const double momentum : {0.0, 0.9})
      for (const bool nesterov : {false, true}) {
        if (nesterov && momentum == 0) continue;
        SgdOptions options;
        options.count = true;
        options.fused = fused;
        options.momentum = momentum;
        options.nesterov = nesterov;
        options.dampening = nesterov ? 0 : 0.1;
        options.weight_decay = momentum / 9;
        check_optimizer<Sgd>(stream, options, Dtype::fp32, "sgd", nan_is_nan);
      }
}

TEST(MultiTensor, UpdatesHaveTheBitsOfTheHostInOneLaunch) {
  FakeStream stream;
  check_adam<Adam, AdamOptions>(stream, "adam", false);
  check_adam<AdamW, AdamWOptions>(stream, "adamw", false);
  check_sgd(stream, false);
}

/// A rule that a device has not goes to the host, and so do fp64 and what is rounded on its way.
TEST(MultiTensor, OtherUpdatesAreTheHosts) {
  FakeStream stream;
  const MemoryScope scope(&stream);
  const auto launched = [&](auto&& optimizer) {
    optimizer.set_multi_tensor(
        [&](std::span<const TensorUpdate> tensors, const UpdateRule& rule, std::span<UpdateCounts> counts) {
          kernels::update_at_once(stream, tensors, rule, counts);
        });
    const std::int64_t before = stream.launches();
    optimizer.step();
    stream.wait();
    return stream.launches() - before;
  };
  Parameters fp32 = parameters(&stream, Dtype::fp32, false), fp64 = parameters(&stream, Dtype::fp64, false),
             fp16 = parameters(&stream, Dtype::fp16, false);
  EXPECT_EQ(launched(Adam(fp32.pointers())), 1);
  EXPECT_EQ(launched(Rmsprop(fp32.pointers())), 0);
  EXPECT_EQ(launched(Adam(fp64.pointers())), 0);
  EXPECT_EQ(launched(Adam(fp16.pointers())), 0);
}

/// The planted fault: a scalar of the rule that is off by some ulps of fp32 is seen in these tensors' bits.
TEST(MultiTensor, AnotherRuleIsSeen) {
  FakeStream stream;
  Parameters host = parameters(nullptr, Dtype::fp32, false), device = parameters(&stream, Dtype::fp32, false);
  AdamOptions options;
  Adam ours(host.pointers(), options), theirs(device.pointers(), options);
  theirs.set_multi_tensor([&](std::span<const TensorUpdate> tensors, UpdateRule rule, std::span<UpdateCounts> counts) {
    rule.beta1 += 0x1p-24;
    kernels::update_at_once(stream, tensors, rule, counts);
  });
  const MemoryScope scope(&stream);
  std::int64_t apart = 0;
  for (int step = 0; step < 3; ++step) {
    ours.step();
    theirs.step();
    stream.wait();
  }
  for (std::size_t i = 0; i < host.all.size(); ++i) apart += differing(host.all[i].value, device.all[i].value);
  EXPECT_GT(apart, 0);
}

void check_conversions(Stream& stream) {
  const MemoryScope scope(&stream);
  for (const Dtype low : {Dtype::fp16, Dtype::bf16}) {
    const Tensor codes(low, {65536}), wide(Dtype::fp32, {65536}), back(low, {65536});
    for (std::size_t i = 0; i < 65536; ++i) codes.span<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
    std::vector<float> want(65536);
    decode(format(low), codes.data(), std::span<float>(want));
    stream.launch(kernels::convert_kernel, {.tensors = {{"x", codes.view()}, {"out", wide.view()}}});
    stream.launch(kernels::convert_kernel, {.tensors = {{"x", wide.view()}, {"out", back.view()}}});
    stream.wait();
    EXPECT_EQ(std::memcmp(want.data(), wide.data(), 65536 * 4), 0) << name(low);
    std::vector<std::uint16_t> again(65536);
    encode(format(low), {}, std::span<const float>(want), again.data());
    EXPECT_EQ(std::memcmp(again.data(), back.data(), 65536 * 2), 0) << name(low);
    // Rounding: every pattern of the upper 16 bits of a float, with lower halves that tie, nearly tie and do not.
    const Tensor floats(Dtype::fp32, {65536 * 4}), rounded(low, {65536 * 4});
    for (std::uint32_t i = 0; i < 65536 * 4; ++i)
      floats.span<std::uint32_t>()[i] = (i / 4) << 16 | (i % 4 == 0   ? 0x8000u
                                                         : i % 4 == 1 ? 0x7fffu
                                                         : i % 4 == 2 ? 0x1000u
                                                                      : 0x3001u);
    std::vector<std::uint16_t> nearest(65536 * 4);
    encode(format(low), {}, std::span<const float>(floats.span<float>()), nearest.data());
    stream.launch(kernels::convert_kernel, {.tensors = {{"x", floats.view()}, {"out", rounded.view()}}});
    stream.wait();
    EXPECT_EQ(std::memcmp(nearest.data(), rounded.data(), nearest.size() * 2), 0) << name(low);
  }
}

TEST(MultiTensor, ConversionsHaveTheBitsOfTheHost) {
  FakeStream stream;
  check_conversions(stream);
}

/// A tensor of the host in a launch is refused before the device sees it.
TEST(MultiTensor, HostMemoryIsRefused) {
  FakeStream stream;
  const Tensor host(Dtype::fp32, {4});
  EXPECT_THROW(stream.launch(kernels::zero_kernel, {.tensors = {{"out", host.view()}}}), Error);
}

/// The fake device itself: a host that does not wait is stopped, one that waits is not.
TEST(FakeDeviceDeathTest, TheHostWaitsOrIsStopped) {
  const auto touch = [](bool waits) {
    FakeStream stream;
    const MemoryScope scope(&stream);
    const Tensor x(Dtype::fp32, {4});
    stream.launch(kernels::zero_kernel, {.tensors = {{"out", x.view()}}});
    if (waits) stream.wait();
    return x.span<float>()[0];
  };
  EXPECT_EQ(touch(true), 0.0f);
  EXPECT_DEATH(static_cast<void>(touch(false)), "");
}

TEST(MultiTensor, CudaHasTheBitsOfTheHost) {
  std::string why;
  if (!kernels::cuda_available(&why)) GTEST_SKIP() << why;
  const std::unique_ptr<Stream> stream = kernels::make_cuda_stream();
  check_conversions(*stream);
  check_unscale(*stream, true);
  check_adam<Adam, AdamOptions>(*stream, "adam", true);
  check_adam<AdamW, AdamWOptions>(*stream, "adamw", true);
  check_sgd(*stream, true);
}

}  // namespace
}  // namespace ampcheck
