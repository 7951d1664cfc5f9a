// SPDX-License-Identifier: Apache-2.0
// The order of arithmetic that each pattern's header promises, bit for bit against plain loops, and that strides, empty
// extents and absent tensors change nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "kernels/column_reduce.h"
#include "kernels/elementwise.h"
#include "kernels/gather_scatter.h"
#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

Kernel direct_conv2d_kernel();
Kernel direct_max_pool2d_kernel();

namespace {

/// Full-mantissa numbers of mixed sign and size, rounded to the dtype.
Tensor numbers(Dtype dtype, const Shape& shape, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  std::vector<double> values(static_cast<std::size_t>(shape.count()));
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (double& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = std::ldexp(static_cast<double>(static_cast<std::int64_t>(state) >> 11), -52) *
            std::ldexp(1.0, static_cast<int>(state >> 33 & 7) - 4);
    value = static_cast<float>(value);
  }
  from_doubles(values, tensor.view());
  return tensor;
}

std::vector<float> floats(const TensorView& view) {
  const std::vector<double> values = to_doubles(view);
  return {values.begin(), values.end()};
}

/// A view of the same elements in memory of other strides: every second element of a transposed buffer.
struct Strided {
  Tensor memory;
  TensorView view;
  explicit Strided(const Tensor& dense) {
    Shape wide = dense.shape();
    wide[wide.rank - 1] = 2 * wide[wide.rank - 1] + 3;
    std::swap(wide[0], wide[wide.rank - 1]);
    memory = Tensor(dense.dtype(), wide);
    view = memory.view();
    std::swap(view.strides[0], view.strides[wide.rank - 1]);
    view.shape = dense.shape();
    view.strides[wide.rank - 1] *= 2;
    copy_elements(dense.view(), view);
  }
};

void expect_same_bits(const TensorView& got, const TensorView& want, const std::string& what) {
  ASSERT_EQ(got.shape.str(), want.shape.str()) << what;
  for (std::int64_t i = 0; i < got.count(); ++i)
    ASSERT_EQ(bits_at(got, i), bits_at(want, i)) << what << " element " << i << " of " << want.shape.str();
}

float join_plainly(const std::vector<float>& terms, std::size_t lanes) {
  std::vector<float> lane(lanes, 0.0f);
  for (std::size_t i = 0; i < terms.size(); ++i) lane[i % lanes] += terms[i];
  for (std::size_t width = lanes / 2; width > 0; width /= 2)
    for (std::size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

Attributes attributes(std::initializer_list<std::pair<const char*, double>> values) {
  Attributes result;
  for (const auto& [key, value] : values) result.set(key, value);
  return result;
}

TEST(KernelPatterns, RowSumHasItsWrittenOrder) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
    for (const std::int64_t size : {0, 1, 31, 32, 33, 1025}) {
      const Tensor x = numbers(dtype, {3, size}, 7);
      const Tensor y(Dtype::fp32, {3, 1});
      const Attributes axis = attributes({{"axis", -1}});
      KernelCall call{{{"x", x.view()}, {"y", y.view()}}, &axis};
      sum_kernel().forward(call);
      const std::vector<float> values = floats(x.view());
      for (std::int64_t row = 0; row < 3; ++row)
        EXPECT_EQ(floats(y.view())[static_cast<std::size_t>(row)],
                  join_plainly({values.begin() + row * size, values.begin() + (row + 1) * size}, 32))
            << name(dtype) << " size " << size;
    }
}

TEST(KernelPatterns, ColumnAndTensorSumHaveTheirWrittenOrder) {
  for (const std::int64_t rows : {0, 1, 32, 33, 300})
    for (const std::int64_t columns : {1, 5, 300}) {
      const Tensor x = numbers(Dtype::fp32, {rows, columns}, 9);
      const Tensor sums(Dtype::fp32, {1, columns}), total(Dtype::fp32, {1});
      const KernelCall call;
      column_reduce(call, &sums.view(), x.shape(), Same{}, Same{}, x.view());
      tensor_reduce(call, total.view(), x.shape(), Same{}, Same{}, x.view());
      const std::vector<float> values = floats(x.view());
      for (std::int64_t j = 0; j < columns; ++j) {
        std::vector<float> column;
        for (std::int64_t i = 0; i < rows; ++i) column.push_back(values[static_cast<std::size_t>(i * columns + j)]);
        EXPECT_EQ(sums.span<float>()[static_cast<std::size_t>(j)], join_plainly(column, 32)) << rows << "x" << columns;
      }
      EXPECT_EQ(total.span<float>()[0], join_plainly(values, 1024)) << rows << "x" << columns;
    }
}

TEST(KernelPatterns, RowMaximumKeepsNaN) {
  for (const std::int64_t at : {0, 5, 31, 32, 40}) {
    const Tensor x = numbers(Dtype::fp32, {1, 41}, 3), y(Dtype::fp32, {1, 41});
    x.span<float>()[static_cast<std::size_t>(at)] = std::nanf("");
    softmax_kernel().forward({{{"x", x.view()}, {"y", y.view()}}});
    for (const float value : y.span<float>()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(KernelPatterns, MatmulIsOneChainPerOutput) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {7, 17, 5},
                                  {6, 16, 256},
                                  {97, 33, 515},
                                  {20, 80, 37},
                                  {3, 0, 4},
                                  {0, 3, 4},
                                  {2, 3, 0},
                                  {13, 64, 40},
                                  {14, 64, 16},
                                  {15, 64, 193},
                                  {16, 32, 9},
                                  {17, 32, 8},
                                  {19, 96, 24},
                                  {21, 64, 33},
                                  {22, 32, 7},
                                  {23, 48, 200},
                                  {205, 64, 20},
                                  {205, 80, 1030},
                                  {13, 150, 1027}})
      for (const bool a_turned : {false, true})
        for (const bool b_turned : {false, true}) {
          const Tensor a = numbers(dtype, a_turned ? Shape{k, m} : Shape{m, k}, 1);
          const Tensor b = numbers(dtype, b_turned ? Shape{n, k} : Shape{k, n}, 2);
          const Tensor bias = numbers(Dtype::fp32, {n}, 3), out(dtype, {m, n}), want(dtype, {m, n});
          std::memset(out.data(), 0xff,
                      static_cast<std::size_t>(out.count() * bytes(dtype)));  // what is there is nobody's: NaN
          set_threads(m % 2 == 0 ? 1 : 0);
          const Matrix left = a_turned ? Matrix(a.view()).transposed() : Matrix(a.view());
          const Matrix right = b_turned ? Matrix(b.view()).transposed() : Matrix(b.view());
          matmul({}, left, right, &bias.view(), &out.view());
          const std::vector<float> x = floats(a.view()), y = floats(b.view());
          std::vector<double> chains;
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              float sum = 0;
              for (std::int64_t l = 0; l < k; ++l)
                sum = std::fma(x[static_cast<std::size_t>(a_turned ? l * m + i : i * k + l)],
                               y[static_cast<std::size_t>(b_turned ? j * k + l : l * n + j)], sum);
              chains.push_back(sum + bias.span<float>()[static_cast<std::size_t>(j)]);
            }
          from_doubles(chains, want.view());
          set_threads(0);
          expect_same_bits(out.view(), want.view(), "matmul " + std::string(name(dtype)));
        }
}

TEST(KernelPatterns, ScatterAddsRowsInAscendingOrderToWhatIsHeld) {
  constexpr std::int64_t kRows = 5, kWidth = 37, kCount = 64;
  const Tensor dy = numbers(Dtype::bf16, {kCount, kWidth}, 4), index(Dtype::i64, {kCount});
  for (std::int64_t n = 0; n < kCount; ++n) index.span<std::int64_t>()[static_cast<std::size_t>(n)] = n * n % 4;
  const Tensor held = numbers(Dtype::bf16, {kRows, kWidth}, 5), want(Dtype::bf16, held.shape());
  std::vector<float> sums(kRows * kWidth, 0.0f), values = floats(dy.view());
  for (std::int64_t n = 0; n < kCount; ++n)
    for (std::int64_t i = 0; i < kWidth; ++i)
      if (n * n % 4 != 1)
        sums[static_cast<std::size_t>(n * n % 4 * kWidth + i)] += values[static_cast<std::size_t>(n * kWidth + i)];
  std::vector<double> totals;
  for (std::size_t i = 0; i < sums.size(); ++i) totals.push_back(sums[i] + floats(held.view())[i]);
  from_doubles(totals, want.view());
  const Attributes skip = attributes({{"padding_idx", 1}});
  embedding_kernel().backward({{{"dy", dy.view()}, {"index", index.view()}, {"dweight", held.view()}}, &skip});
  expect_same_bits(held.view(), want.view(), "scatter");
}

TEST(KernelPatterns, IndicesOutOfRangeAreRefused) {
  const Tensor weight = numbers(Dtype::fp32, {4, 2}, 1), index(Dtype::i64, {1}), y(Dtype::fp32, {1, 2});
  index.span<std::int64_t>()[0] = 4;
  EXPECT_THROW(embedding_kernel().forward({{{"weight", weight.view()}, {"index", index.view()}, {"y", y.view()}}}),
               Error);
}

TEST(KernelPatterns, Conv2dOnTheCpuHasTheOrderOfTheCudaProgram) {
  for (const auto& [stride, padding] : {std::pair{1, 0}, {2, 1}, {1, 2}}) {
    const Tensor x = numbers(Dtype::bf16, {2, 3, 8, 7}, 1), weight = numbers(Dtype::bf16, {4, 3, 3, 2}, 2);
    const Tensor bias = numbers(Dtype::bf16, {4}, 3);
    const Shape shape{2, 4, (8 + 2 * padding - 3) / stride + 1, (7 + 2 * padding - 2) / stride + 1};
    const Tensor dy = numbers(Dtype::bf16, shape, 4);
    const Attributes window = attributes({{"stride", stride}, {"padding", padding}});
    std::vector<Tensor> results[2];
    for (const bool direct : {false, true}) {
      std::vector<Tensor>& r = results[direct];
      r = {Tensor(Dtype::fp32, shape), Tensor(Dtype::fp32, x.shape()), Tensor(Dtype::fp32, weight.shape()),
           Tensor(Dtype::fp32, {4})};
      const KernelCall call{{{"x", x.view()},
                             {"weight", weight.view()},
                             {"bias", bias.view()},
                             {"dy", dy.view()},
                             {"y", r[0].view()},
                             {"dx", r[1].view()},
                             {"dweight", r[2].view()},
                             {"dbias", r[3].view()}},
                            &window};
      const Kernel kernel = direct ? direct_conv2d_kernel() : conv2d_kernel();
      kernel.forward(call);
      kernel.backward(call);
    }
    for (std::size_t i = 0; i < 4; ++i) expect_same_bits(results[0][i].view(), results[1][i].view(), "conv2d");
    EXPECT_NE(floats(results[0][0].view())[0], 0.0f);
  }
}

TEST(KernelPatterns, MaxPool2dOnTheCpuHasTheOrderOfTheCudaProgram) {
  for (const auto& [kernel, stride, padding] : {std::array{2, 2, 0}, {3, 1, 1}, {3, 2, 1}, {2, 3, 0}}) {
    const Tensor x = numbers(Dtype::bf16, {2, 3, 9, 8}, 1);
    x.span<std::uint16_t>()[3] = 0x7fc0;  // NaN, in a window of every case
    const Shape shape{2, 3, (9 + 2 * padding - kernel) / stride + 1, (8 + 2 * padding - kernel) / stride + 1};
    const Tensor dy = numbers(Dtype::bf16, shape, 2);
    const Attributes window = attributes({{"kernel", kernel}, {"stride", stride}, {"padding", padding}});
    const Tensor y[2] = {Tensor(Dtype::fp32, shape), Tensor(Dtype::fp32, shape)};
    const Tensor dx[2] = {Tensor(Dtype::fp32, x.shape()), Tensor(Dtype::fp32, x.shape())};
    for (const std::size_t direct : {0, 1}) {
      const Kernel pool = direct ? direct_max_pool2d_kernel() : max_pool2d_kernel();
      const KernelCall call{{{"x", x.view()}, {"dy", dy.view()}, {"y", y[direct].view()}, {"dx", dx[direct].view()}},
                            &window};
      pool.forward(call);
      pool.backward(call);
    }
    expect_same_bits(y[0].view(), y[1].view(), "y");
    expect_same_bits(dx[0].view(), dx[1].view(), "dx");
    const std::vector<float> maxima = floats(y[0].view());
    EXPECT_TRUE(std::any_of(maxima.begin(), maxima.end(), [](float v) { return v != v; }));
  }
}

/// An op with all of its tensors, for comparing runs of different layout.
struct OpRun {
  std::string op;
  Kernel kernel;
  Attributes attributes;
  std::vector<std::pair<std::string, Tensor>> inputs, outputs;
};

/// Tensors of one dtype.
struct Tensors {
  Dtype dtype;
  Tensor in(const Shape& shape, std::uint64_t seed) const { return numbers(dtype, shape, seed); }
  Tensor out(const Shape& shape) const { return Tensor(dtype, shape); }
};
Tensor f32(const Shape& shape) { return Tensor(Dtype::fp32, shape); }

std::vector<OpRun> runs_over_rows(const Tensors& of) {
  const Shape s{5, 45};
  const Tensor x = of.in(s, 1), y = of.in(s, 2), w = of.in({45}, 3), b = of.in({45}, 4);
  return {
      {"add",
       add_kernel(),
       {},
       {{"x", x}, {"y", y}, {"dz", of.in(s, 11)}},
       {{"z", of.out(s)}, {"dx", of.out(s)}, {"dy", of.out(s)}}},
      {"softmax", softmax_kernel(), {}, {{"x", x}, {"dy", y}}, {{"y", of.out(s)}, {"dx", of.out(s)}}},
      {"layer_norm",
       layer_norm_kernel(),
       attributes({{"eps", 1e-5}}),
       {{"x", x}, {"weight", w}, {"bias", b}, {"dy", y}},
       {{"y", of.out(s)},
        {"mean", f32({5, 1})},
        {"inv_std", f32({5, 1})},
        {"dx", of.out(s)},
        {"dweight", of.out({45})},
        {"dbias", of.out({45})}}},
      {"rms_norm",
       rms_norm_kernel(),
       attributes({{"eps", 1e-6}}),
       {{"x", x}, {"weight", w}, {"dy", y}},
       {{"y", of.out(s)}, {"inv_rms", f32({5, 1})}, {"dx", of.out(s)}, {"dweight", of.out({45})}}},
      {"mean",
       mean_kernel(),
       attributes({{"axis", 0}}),
       {{"x", x}, {"dy", of.in({1, 45}, 12)}},
       {{"y", of.out({1, 45})}, {"dx", of.out(s)}}},
  };
}

std::vector<OpRun> runs_of_losses_and_linear(const Tensors& of) {
  const Shape s{5, 45};
  const Tensor x = of.in(s, 1), y = of.in(s, 2);
  Tensor target(Dtype::i64, {5});
  for (std::int64_t i = 0; i < 5; ++i) target.span<std::int64_t>()[static_cast<std::size_t>(i)] = i * 7 % 45;
  target.span<std::int64_t>()[2] = -100;
  return {
      {"mse_loss",
       mse_loss_kernel(),
       {},
       {{"x", x}, {"target", y}, {"dloss", of.in({1}, 13)}},
       {{"loss", of.out({1})}, {"dx", of.out(s)}, {"dtarget", of.out(s)}}},
      {"cross_entropy",
       cross_entropy_kernel(),
       attributes({{"label_smoothing", 0.1}, {"ignore_index", -100}}),
       {{"x", x}, {"target", target}, {"dloss", numbers(Dtype::fp32, {5}, 14)}},
       {{"loss", f32({5})}, {"dx", of.out(s)}}},
      {"linear",
       linear_kernel(),
       {},
       {{"x", x}, {"weight", of.in({9, 45}, 15)}, {"bias", of.in({9}, 16)}, {"dy", of.in({5, 9}, 17)}},
       {{"y", of.out({5, 9})}, {"dx", of.out(s)}, {"dweight", of.out({9, 45})}, {"dbias", of.out({9})}}},
  };
}

std::vector<OpRun> runs_of_images_and_attention(const Tensors& of) {
  const Tensor image = of.in({2, 3, 6, 6}, 5), filter = of.in({4, 3, 3, 3}, 6);
  const Tensor q = of.in({2, 2, 7, 8}, 7), k = of.in({2, 2, 7, 8}, 8), v = of.in({2, 2, 7, 8}, 9);
  return {
      {"max_pool2d",
       max_pool2d_kernel(),
       attributes({{"kernel", 3}, {"stride", 2}, {"padding", 1}}),
       {{"x", image}, {"dy", of.in({2, 3, 3, 3}, 18)}},
       {{"y", of.out({2, 3, 3, 3})}, {"dx", of.out(image.shape())}}},
      {"conv2d",
       conv2d_kernel(),
       attributes({{"stride", 1}, {"padding", 1}}),
       {{"x", image}, {"weight", filter}, {"bias", of.in({4}, 19)}, {"dy", of.in({2, 4, 6, 6}, 20)}},
       {{"y", of.out({2, 4, 6, 6})},
        {"dx", of.out(image.shape())},
        {"dweight", of.out(filter.shape())},
        {"dbias", of.out({4})}}},
      {"attention",
       attention_kernel(),
       attributes({{"causal", 1}}),
       {{"q", q}, {"k", k}, {"v", v}, {"do", of.in(q.shape(), 21)}},
       {{"o", of.out(q.shape())},
        {"lse", f32({2, 2, 7, 1})},
        {"dq", of.out(q.shape())},
        {"dk", of.out(q.shape())},
        {"dv", of.out(q.shape())}}},
  };
}

std::vector<OpRun> runs(Dtype dtype) {
  const Tensors of{dtype};
  std::vector<OpRun> out = runs_over_rows(of);
  for (const auto& more : {runs_of_losses_and_linear(of), runs_of_images_and_attention(of)})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

TEST(KernelPatterns, StridesChangeNoBit) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
    for (const OpRun& run : runs(dtype)) {
      KernelCall dense, strided;
      dense.attributes = strided.attributes = &run.attributes;
      std::vector<Strided> keep;
      for (const auto* list : {&run.inputs, &run.outputs})
        for (const auto& [key, tensor] : *list) {
          dense.tensors.emplace_back(key, tensor.view());
          strided.tensors.emplace_back(key, keep.emplace_back(tensor).view);
        }
      for (const KernelCall* call : {&dense, &strided}) {
        run.kernel.forward(*call);
        run.kernel.backward(*call);
      }
      for (const auto& [key, tensor] : run.outputs)
        expect_same_bits(strided.at(key), tensor.view(), run.op + " " + key + " " + name(dtype));
    }
}

/// A gradient nobody asked for changes no other: each output alone gives the same bits.
TEST(KernelPatterns, AbsentGradientsChangeNothing) {
  for (const OpRun& run : runs(Dtype::bf16)) {
    KernelCall all;
    all.attributes = &run.attributes;
    for (const auto* list : {&run.inputs, &run.outputs})
      for (const auto& [key, tensor] : *list) all.tensors.emplace_back(key, tensor.view());
    run.kernel.forward(all);
    run.kernel.backward(all);
    for (const auto& [wanted, tensor] : run.outputs) {
      if (wanted[0] != 'd') continue;
      KernelCall one;
      one.attributes = &run.attributes;
      const Tensor alone(tensor.dtype(), tensor.shape());
      for (const auto& [key, view] : all.tensors) {
        bool gradient = false;
        for (const auto& [output, ignored] : run.outputs) gradient |= key == output && key[0] == 'd';
        if (!gradient) one.tensors.emplace_back(key, view);
      }
      one.tensors.emplace_back(wanted, alone.view());
      run.kernel.backward(one);
      expect_same_bits(alone.view(), tensor.view(), run.op + " " + wanted + " alone");
    }
  }
}

TEST(KernelPatterns, EmptyTensorsAreLeftAlone) {
  for (const Shape& shape : {Shape{0, 4}, Shape{3, 0}, Shape{0, 0}}) {
    const Tensor x(Dtype::bf16, shape), y(Dtype::bf16, shape), dx(Dtype::bf16, shape), dy(Dtype::bf16, shape);
    const KernelCall call{{{"x", x.view()}, {"y", y.view()}, {"dy", dy.view()}, {"dx", dx.view()}}};
    for (const Kernel& kernel : {softmax_kernel(), gelu_kernel(), log_softmax_kernel()}) {
      kernel.forward(call);
      kernel.backward(call);
    }
    const Tensor mean(Dtype::fp32, {shape[0], 1});
    const Attributes axis = attributes({{"axis", -1}});
    mean_kernel().forward({{{"x", x.view()}, {"y", mean.view()}}, &axis});
    for (const float value : mean.span<float>()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(KernelPatterns, PoolingTakesTheFirstMaximumAndNaN) {
  const Tensor x(Dtype::fp32, {1, 1, 2, 4}), y(Dtype::fp32, {1, 1, 1, 2}), dy(Dtype::fp32, {1, 1, 1, 2});
  const Tensor dx(Dtype::fp32, x.shape());
  const float image[8] = {1, 2, 0, std::nanf(""), 2, 2, 5, std::nanf("")};
  std::memcpy(x.data(), image, sizeof image);
  dy.span<float>()[0] = 3;
  dy.span<float>()[1] = 4;
  const Attributes window = attributes({{"kernel", 2}, {"stride", 2}, {"padding", 0}});
  const KernelCall call{{{"x", x.view()}, {"y", y.view()}, {"dy", dy.view()}, {"dx", dx.view()}}, &window};
  max_pool2d_kernel().forward(call);
  max_pool2d_kernel().backward(call);
  EXPECT_EQ(y.span<float>()[0], 2.0f);
  EXPECT_TRUE(std::isnan(y.span<float>()[1]));
  const float want[8] = {0, 3, 0, 4, 0, 0, 0, 0};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(dx.span<float>()[i], want[i]) << i;
}

TEST(KernelPatterns, AttentionIsSoftmaxOverWhatIsSeen) {
  constexpr std::int64_t kLength = 7, kWidth = 8;
  const OpRun run = runs(Dtype::fp32).back();
  ASSERT_EQ(run.op, "attention");
  KernelCall call;
  call.attributes = &run.attributes;
  for (const auto* list : {&run.inputs, &run.outputs})
    for (const auto& [key, tensor] : *list) call.tensors.emplace_back(key, tensor.view());
  call.at("v").as<float>()[kWidth * (kLength - 1)] = std::nanf("");  // seen by the last position of head 0 only
  run.kernel.forward(call);
  const auto q = to_doubles(call.at("q")), k = to_doubles(call.at("k")), v = to_doubles(call.at("v"));
  const auto o = to_doubles(call.at("o"));
  for (std::int64_t row = 0; row < 4 * kLength; ++row) {
    const std::int64_t t = row % kLength, first = row - t;
    const auto at = [&](const std::vector<double>& x, std::int64_t r, std::int64_t e) {
      return x[static_cast<std::size_t>(r * kWidth + e)];
    };
    double total = 0;
    std::vector<double> sums(kWidth, 0.0);
    for (std::int64_t j = 0; j <= t; ++j) {
      double s = 0;
      for (std::int64_t e = 0; e < kWidth; ++e) s += at(q, row, e) * at(k, first + j, e);
      const double p = std::exp(s / std::sqrt(static_cast<double>(kWidth)));
      total += p;
      for (std::int64_t e = 0; e < kWidth; ++e) sums[static_cast<std::size_t>(e)] += p * at(v, first + j, e);
    }
    for (std::int64_t e = 0; e < kWidth; ++e) {
      const double want = sums[static_cast<std::size_t>(e)] / total, got = at(o, row, e);
      EXPECT_EQ(std::isnan(got), std::isnan(want)) << row << "," << e;
      if (!std::isnan(want)) {
        EXPECT_NEAR(got, want, 1e-4) << row << "," << e;
      }
    }
  }
}

}  // namespace
}  // namespace ampcheck::kernels
