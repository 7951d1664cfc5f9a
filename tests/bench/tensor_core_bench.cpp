// SPDX-License-Identifier: Apache-2.0
// Products on the model of tensor cores, in each width of vectors that this processor has, beside Eigen's float
// product.
#include <Eigen/Core>
#include <vector>

#include "src/rounding.h"
#include "src/tensor_core/multiply.h"
#include "tests/bench/figures.h"

namespace ampcheck::bench {

namespace {

using namespace tensor_core;
using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Measured {
  const char* words;
  Instruction instruction;
};

constexpr Measured kMeasured[] = {
    {"h100 fp16", {.generation = TensorCore::h100}},
    {"h100 bf16", {.generation = TensorCore::h100, .a = Input::bf16, .b = Input::bf16}},
    {"a100 fp16", {.generation = TensorCore::a100}},
    {"h100 wgmma e4m3",
     {.generation = TensorCore::h100, .a = Input::e4m3, .b = Input::e4m3, .k = 32, .unit = Unit::wgmma}},
};

void product_against_eigen(benchmark::State& state, const Measured& what, Path path) {
  constexpr Eigen::Index n = 768;
  const FloatMatrix x = FloatMatrix::Random(n, n), w = FloatMatrix::Random(n, n);
  FloatMatrix y(n, n), d(n, n);
  const FloatFormat& format = format_of(what.instruction.a);
  const int bytes = format.storage_bytes();
  std::vector<std::uint8_t> a(static_cast<std::size_t>(n * n * bytes)), b(a.size());
  encode(format, {}, std::span<const float>(x.data(), n * n), a.data());
  encode(format, {}, std::span<const float>(w.data(), n * n), b.data());
  const Pair best = interleaved(
      state, 4,
      [&] {
        y.noalias() = x * w;
        benchmark::ClobberMemory();
      },
      [&] {
        multiply({what.instruction, {}}, {a.data(), bytes, n, n, n, 1}, {b.data(), bytes, n, n, n, 1}, nullptr,
                 d.data(), path);
        benchmark::ClobberMemory();
      });
  const double work = 2e-9 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  state.counters["eigen_gflops"] = work / best.baseline;
  state.counters["times_slower_than_eigen"] = best.subject / best.baseline;
  const bool wide = path == Path::lanes16;
  record_figure(
      std::string("tensor cores, ") + what.words + " 768^3, " + name(path) + " (beside Eigen's float product)",
      Goal::at_least, wide ? 20 : 6, work / best.subject, "GFLOP/s");
}

bool add_all() {
  for (const Path path : paths())
    if (path == Path::lanes8 || path == Path::lanes16)
      for (const Measured& what : kMeasured)
        add_figure(std::string("tensor_core/") + what.words + "/" + name(path), 5,
                   [what, path](benchmark::State& state) { product_against_eigen(state, what, path); });
  return true;
}

const bool added = add_all();

}  // namespace

}  // namespace ampcheck::bench
