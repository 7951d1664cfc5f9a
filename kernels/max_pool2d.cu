// SPDX-License-Identifier: Apache-2.0
// y = max over windows of kernel x kernel, `stride` apart, the image padded by -inf.   Run it alone: ampcheck check max_pool2d
// NaN wins; of equal values the first, row-major. Backward finds the winner again and gives it the window's cotangent;
// where windows overlap an element's cotangents are added in fp32, windows in row-major order.
#include "kernels/for_each.h"

namespace ampcheck::kernels {

namespace {

struct Pool {
  Operand x, y, dy, dx;
  std::int64_t height, width, out_height, out_width;
  std::int64_t kernel, stride, padding;

  /// Row-major index in the plane of the winner of window (oh, ow); value: its value.
  template <class Load>
  AMPCHECK_HD std::int64_t winner(const Load& at, std::int64_t oh, std::int64_t ow, float& value) const {
    std::int64_t best = -1;
    for (std::int64_t r = 0; r < kernel; ++r)
      for (std::int64_t s = 0; s < kernel; ++s) {
        const std::int64_t h = oh * stride - padding + r, w = ow * stride - padding + s;
        if (h < 0 || h >= height || w < 0 || w >= width) continue;
        const float candidate = at(h * width + w);
        if (best < 0 || candidate > value || (candidate != candidate && value == value)) {
          best = h * width + w;
          value = candidate;
        }
      }
    return best;
  }
};

struct Forward : Pool {
  template <class Io>
  AMPCHECK_HD void operator()(const Io& io, std::int64_t i) const {
    const std::int64_t plane = i / (out_height * out_width), at = i % (out_height * out_width);
    float value = -__builtin_huge_valf();
    winner([&](std::int64_t k) { return io.get(x, plane * height * width + k); }, at / out_width, at % out_width, value);
    io.put(y, i, value);
  }
};

struct Backward : Pool {
  template <class Io>
  AMPCHECK_HD void operator()(const Io& io, std::int64_t i) const {
    const std::int64_t plane = i / (height * width), at = i % (height * width);
    const std::int64_t h = at / width + padding, w = at % width + padding;
    float sum = 0;
    for (std::int64_t oh = h < kernel ? 0 : (h - kernel) / stride + 1; oh < out_height && oh * stride <= h; ++oh)
      for (std::int64_t ow = w < kernel ? 0 : (w - kernel) / stride + 1; ow < out_width && ow * stride <= w; ++ow) {
        float value = 0;
        const auto load = [&](std::int64_t k) { return io.get(x, plane * height * width + k); };
        if (winner(load, oh, ow, value) == at) sum += io.get(dy, (plane * out_height + oh) * out_width + ow);
      }
    io.put(dx, i, sum);
  }
};

Pool pool_of(const KernelCall& call, const Shape& y) {
  const TensorView& x = call.at("x");
  Pool pool;
  pool.x = Operand(x);
  pool.height = x.shape[2], pool.width = x.shape[3];
  pool.out_height = y[2], pool.out_width = y[3];
  pool.kernel = call.attributes->integer("kernel");
  pool.stride = call.attributes->integer("stride");
  pool.padding = call.attributes->integer("padding");
  return pool;
}

void forward(const KernelCall& call) {
  const TensorView& y = call.at("y");
  Forward pool{pool_of(call, y.shape)};
  pool.y = Operand(y);
  for_each(call, y.count(), pool);
}

void backward(const KernelCall& call) {
  const TensorView* dx = call.find("dx");
  if (dx == nullptr) return;
  Backward pool{pool_of(call, call.at("dy").shape)};
  pool.dy = Operand(call.at("dy"));
  pool.dx = Operand(*dx);
  for_each(call, dx->count(), pool);
}

}  // namespace

Kernel max_pool2d_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
