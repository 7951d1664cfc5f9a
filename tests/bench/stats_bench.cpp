// SPDX-License-Identifier: Apache-2.0
// TensorStats against a memcpy of the same buffer; the scaler's check with unscaling and the fused update against the
// memory they move.
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/amp/optimizers.h"
#include "src/amp/tensor_stats.h"
#include "src/amp/unscale.h"
#include "src/parallel.h"
#include "tests/bench/figures.h"

namespace {

using ampcheck::Dtype;
using ampcheck::Tensor;
using ampcheck::bench::Goal;

/// Activations and gradients: normal-like, over many binades, some zeros and subnormals.
Tensor make_values(Dtype dtype, std::int64_t n) {
  Tensor tensor = Tensor::uninitialized(dtype, {n});
  std::vector<double> block(1 << 16);
  std::uint64_t state = 1;
  for (double& value : block) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto mantissa = static_cast<double>(static_cast<std::int64_t>(state)) * 0x1p-63;
    value = (state & 63) == 0 ? 0.0 : mantissa * mantissa * mantissa * ((state & 15) == 1 ? 0x1p-14 : 4.0);
  }
  const std::int64_t size = ampcheck::bytes(dtype);
  for (std::int64_t at = 0; at < n; at += 1 << 16) {
    ampcheck::TensorView part = tensor.view();
    part.data = static_cast<std::byte*>(tensor.data()) + at * size;
    part.shape = ampcheck::Shape{std::min<std::int64_t>(1 << 16, n - at)};
    part.strides = ampcheck::row_major_strides(part.shape);
    ampcheck::from_doubles(std::span<const double>(block.data(), static_cast<std::size_t>(part.count())), part);
  }
  return tensor;
}

void stats_figure(Dtype dtype, std::int64_t n, double wanted, int turns) {
  const std::string size = n >= 100'000'000 ? "10^8" : "10^6";
  ampcheck::bench::add_figure("stats/" + std::string(name(dtype)) + "/" + size, turns, [=](benchmark::State& state) {
    ampcheck::set_threads(1);
    const Tensor tensor = make_values(dtype, n);
    const auto bytes = static_cast<std::size_t>(n * ampcheck::bytes(dtype));
    const auto copy = std::make_unique<std::byte[]>(bytes);
    std::memset(copy.get(), 1, bytes);
    const ampcheck::bench::Pair pair = ampcheck::bench::interleaved(
        state, 1,
        [&] {
          std::memcpy(copy.get(), tensor.data(), bytes);
          benchmark::ClobberMemory();
        },
        [&] { benchmark::DoNotOptimize(ampcheck::tensor_stats(tensor.view())); });
    ampcheck::set_threads(0);
    ampcheck::bench::record_figure(
        "full TensorStats of " + std::string(name(dtype)) + ", " + size + " elements / memcpy", Goal::at_least, wanted,
        pair.baseline / pair.subject, "x");
  });
}

void unscale_figure() {
  ampcheck::bench::add_figure("stats/unscale", 15, [](benchmark::State& state) {
    ampcheck::set_threads(1);
    constexpr std::int64_t kCount = 50'000'000;
    Tensor grads = make_values(Dtype::fp32, kCount);
    Tensor copy = make_values(Dtype::fp32, kCount);
    float found = 0.0f;
    const std::vector views{grads.view()};
    const ampcheck::bench::Pair pair = ampcheck::bench::interleaved(
        state, 1,
        [&] {  // as much read and written: a copy
          std::memcpy(copy.data(), grads.data(), kCount * sizeof(float));
          benchmark::ClobberMemory();
        },
        [&] { ampcheck::check_and_unscale(views, 0.5f, found); });
    ampcheck::set_threads(0);
    ampcheck::bench::record_figure("unscale and check of fp32 gradients / memory bandwidth (memcpy)", Goal::at_least,
                                   0.8, pair.baseline / pair.subject, "x");
  });
}

void adam_figure() {
  ampcheck::bench::add_figure("stats/fused_adam", 25, [](benchmark::State& state) {
    ampcheck::set_threads(1);
    constexpr std::int64_t kCount = 10'000'000;
    ampcheck::Parameter parameter{"p", make_values(Dtype::fp16, kCount)};
    parameter.grad = make_values(Dtype::fp16, kCount);
    ampcheck::AdamOptions options;
    options.fused = options.master_weights = true;
    ampcheck::Adam adam({&parameter}, options);
    adam.step();
    // 28 bytes move per element: gradient in, master, two moments in and out, copy out.
    const auto bytes = static_cast<std::size_t>(kCount) * 14;
    const auto from = std::make_unique<std::byte[]>(bytes), to = std::make_unique<std::byte[]>(bytes);
    std::memset(from.get(), 1, bytes);
    std::memset(to.get(), 1, bytes);
    const ampcheck::bench::Pair pair = ampcheck::bench::interleaved(
        state, 1,
        [&] {
          std::memcpy(to.get(), from.get(), bytes);
          benchmark::ClobberMemory();
        },
        [&] { adam.step(); });
    ampcheck::set_threads(0);
    ampcheck::bench::record_figure("fused Adam, fp16 with fp32 master and moments / memcpy of as many bytes",
                                   Goal::at_least, 0.7, pair.baseline / pair.subject, "x");
  });
}

bool register_all() {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) {
    stats_figure(dtype, 100'000'000, 0.5, 15);
    stats_figure(dtype, 1'000'000, 0.15, 20);
  }
  unscale_figure();
  adam_figure();
  return true;
}

const bool registered = register_all();

}  // namespace
