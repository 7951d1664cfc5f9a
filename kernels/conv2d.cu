// SPDX-License-Identifier: Apache-2.0
// y[n,o,oh,ow] = sum over c,r,s of x[n,c,oh stride + r - padding,ow stride + s - padding] weight[o,c,r,s] + bias[o].
//                                                                      Run it alone: ampcheck check conv2d
// x is zero outside the image, and these zeros are multiplied like any other value.
// Order: y one fma chain over (c,r,s); dweight one over (n,oh,ow); dx the sum over (r,s) of fma chains over o; all
// ascending, from 0. dbias as column_reduce.h. The CPU unfolds an image into a matrix [C R S, OH OW] and multiplies
// (matmul.h); CUDA runs the programs below, one thread an output, in the same order.
#include <algorithm>
#include <vector>

#include "kernels/column_reduce.h"
#include "kernels/for_each.h"
#include "kernels/matmul.h"

namespace ampcheck::kernels {

namespace {

struct Conv {
  Operand x, weight, bias, y, dx, dweight;  ///< y: the output, or in backward its cotangent
  std::int64_t images, channels, height, width, outputs, rows, columns, out_height, out_width;
  std::int64_t stride, padding;

  AMPCHECK_HD std::int64_t window() const { return channels * rows * columns; }
  AMPCHECK_HD std::int64_t out_plane() const { return out_height * out_width; }
  /// Index in x of what weight position k = (c,r,s) meets at output position p of image n; -1 outside the image.
  AMPCHECK_HD std::int64_t input_index(std::int64_t n, std::int64_t k, std::int64_t p) const {
    const std::int64_t h = p / out_width * stride - padding + k / columns % rows;
    const std::int64_t w = p % out_width * stride - padding + k % columns;
    if (h < 0 || h >= height || w < 0 || w >= width) return -1;
    return ((n * channels + k / columns / rows) * height + h) * width + w;
  }
};

template <class Io>
AMPCHECK_HD float input(const Io& io, const Conv& c, std::int64_t n, std::int64_t k, std::int64_t p) {
  const std::int64_t index = c.input_index(n, k, p);
  return index < 0 ? 0.0f : io.get(c.x, index);
}

struct Forward : Conv {
  template <class Io>
  AMPCHECK_HD void operator()(const Io& io, std::int64_t i) const {
    const std::int64_t p = i % out_plane(), o = i / out_plane() % outputs, n = i / out_plane() / outputs;
    float sum = 0;
    for (std::int64_t k = 0; k < window(); ++k)
      sum = math::fma(io.get(weight, o * window() + k), input(io, *this, n, k, p), sum);
    if (bias.data != nullptr) sum += io.get(bias, o);
    io.put(y, i, sum);
  }
};

struct BackwardWeight : Conv {
  template <class Io>
  AMPCHECK_HD void operator()(const Io& io, std::int64_t i) const {
    const std::int64_t k = i % window(), o = i / window();
    float sum = 0;
    for (std::int64_t n = 0; n < images; ++n)
      for (std::int64_t p = 0; p < out_plane(); ++p)
        sum = math::fma(io.get(y, (n * outputs + o) * out_plane() + p), input(io, *this, n, k, p), sum);
    io.put(dweight, i, sum);
  }
};

struct BackwardInput : Conv {
  template <class Io>
  AMPCHECK_HD void operator()(const Io& io, std::int64_t i) const {
    const std::int64_t plane = i / (height * width), c = plane % channels, n = plane / channels;
    const std::int64_t h = i / width % height + padding, w = i % width + padding;
    float total = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t s = 0; s < columns; ++s) {
        if (h < r || w < s || (h - r) % stride != 0 || (w - s) % stride != 0) continue;
        const std::int64_t oh = (h - r) / stride, ow = (w - s) / stride;
        if (oh >= out_height || ow >= out_width) continue;
        float sum = 0;
        for (std::int64_t o = 0; o < outputs; ++o)
          sum = math::fma(io.get(weight, ((o * channels + c) * rows + r) * columns + s),
                          io.get(y, (n * outputs + o) * out_plane() + oh * out_width + ow), sum);
        total += sum;
      }
    io.put(dx, i, total);
  }
};

Conv conv_of(const KernelCall& call, const TensorView& y) {
  const TensorView &x = call.at("x"), &weight = call.at("weight");
  Conv c;
  c.x = Operand(x);
  c.weight = Operand(weight);
  c.y = Operand(y);
  if (const TensorView* bias = call.find("bias")) c.bias = Operand(*bias);
  c.images = x.shape[0];
  c.channels = x.shape[1];
  c.height = x.shape[2];
  c.width = x.shape[3];
  c.outputs = weight.shape[0];
  c.rows = weight.shape[2];
  c.columns = weight.shape[3];
  c.out_height = y.shape[2];
  c.out_width = y.shape[3];
  c.stride = call.attributes->integer("stride");
  c.padding = call.attributes->integer("padding");
  return c;
}

// ---- CPU: unfold and multiply ---------------------------------------------------------------------------------------

using Floats = std::vector<float>;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Elements [first, first + n) of an operand as fp32.
Floats floats(const Operand& from, std::int64_t first, std::int64_t n) {
  Floats values(size(n));
  const float* data = read(from, first, n, values.data());
  if (data != values.data()) std::copy_n(data, n, values.begin());
  return values;
}

/// Calls work(k, p, index within the image) for every position inside the image.
template <class Work>
void for_positions(const Conv& c, const Work& work) {
  for (std::int64_t k = 0; k < c.window(); ++k)
    for (std::int64_t p = 0; p < c.out_plane(); ++p)
      if (const std::int64_t index = c.input_index(0, k, p); index >= 0) work(k, p, index);
}

/// Image n as a matrix [C R S, OH OW].
Floats unfold(const Conv& c, std::int64_t n) {
  const std::int64_t image = c.channels * c.height * c.width, out_plane = c.out_plane();
  const Floats x = floats(c.x, n * image, image);
  Floats columns(size(c.window() * out_plane), 0.0f);
  for_positions(c,
                [&](std::int64_t k, std::int64_t p, std::int64_t i) { columns[size(k * out_plane + p)] = x[size(i)]; });
  return columns;
}

void forward_cpu(const Conv& c) {
  const Floats weight = floats(c.weight, 0, c.outputs * c.window());
  const Floats bias = c.bias.data ? floats(c.bias, 0, c.outputs) : Floats();
  parallel_for(c.images, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const Floats columns = unfold(c, n);
      Floats sums(size(c.outputs * c.out_plane()), 0.0f);
      matmul_accumulate(Matrix(weight.data(), c.outputs, c.window()), Matrix(columns.data(), c.window(), c.out_plane()),
                        sums.data());
      for (std::size_t i = 0; !bias.empty() && i < sums.size(); ++i) sums[i] += bias[i / size(c.out_plane())];
      write(c.y, n * c.outputs * c.out_plane(), c.outputs * c.out_plane(), sums.data());
    }
  });
}

void backward_weight_cpu(const Conv& c) {
  Floats sums(size(c.outputs * c.window()), 0.0f);
  for (std::int64_t n = 0; n < c.images; ++n) {  // one chain runs over all images
    const Floats columns = unfold(c, n), dy = floats(c.y, n * c.outputs * c.out_plane(), c.outputs * c.out_plane());
    matmul_accumulate(Matrix(dy.data(), c.outputs, c.out_plane()),
                      Matrix(columns.data(), c.window(), c.out_plane()).transposed(), sums.data());
  }
  write(c.dweight, 0, c.outputs * c.window(), sums.data());
}

void backward_input_cpu(const Conv& c) {
  const Floats weight = floats(c.weight, 0, c.outputs * c.window());
  const std::int64_t image = c.channels * c.height * c.width;
  parallel_for(c.images, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const Floats dy = floats(c.y, n * c.outputs * c.out_plane(), c.outputs * c.out_plane());
      Floats columns(size(c.window() * c.out_plane()), 0.0f), dx(size(image), 0.0f);
      matmul_accumulate(Matrix(weight.data(), c.outputs, c.window()).transposed(),
                        Matrix(dy.data(), c.outputs, c.out_plane()), columns.data());
      for_positions(c, [&](std::int64_t k, std::int64_t p, std::int64_t i) {
        dx[size(i)] += columns[size(k * c.out_plane() + p)];
      });
      write(c.dx, n * image, image, dx.data());
    }
  });
}

// ---- both devices
// -----------------------------------------------------------------------------------------------------

void forward(const KernelCall& call, bool direct) {
  const TensorView& y = call.at("y");
  const Conv conv = conv_of(call, y);
  if (y.count() == 0) return;
  if (direct || call.device == Device::cuda)
    for_each(call, y.count(), Forward{conv});
  else
    forward_cpu(conv);
}

void backward(const KernelCall& call, bool direct) {
  const TensorView &x = call.at("x"), &weight = call.at("weight"), &dy = call.at("dy");
  const bool programs = direct || call.device == Device::cuda;
  Conv conv = conv_of(call, dy);
  if (const TensorView* dx = call.find("dx"); dx && dx->count() > 0) {
    conv.dx = Operand(*dx);
    if (programs)
      for_each(call, x.count(), BackwardInput{conv});
    else
      backward_input_cpu(conv);
  }
  if (const TensorView* dweight = call.find("dweight"); dweight && dweight->count() > 0) {
    conv.dweight = Operand(*dweight);
    if (programs)
      for_each(call, weight.count(), BackwardWeight{conv});
    else
      backward_weight_cpu(conv);
  }
  const TensorView channels_last = permute(dy, {0, 2, 3, 1});
  column_reduce(call, call.find("dbias"), channels_last.shape, Same{}, Same{}, channels_last);
}

}  // namespace

Kernel conv2d_kernel() {
  return {[](const KernelCall& call) { forward(call, false); }, [](const KernelCall& call) { backward(call, false); }};
}

/// The programs of the CUDA device on any device: on the CPU they give the same bits as conv2d_kernel().
Kernel direct_conv2d_kernel() {
  return {[](const KernelCall& call) { forward(call, true); }, [](const KernelCall& call) { backward(call, true); }};
}

}  // namespace ampcheck::kernels
