// SPDX-License-Identifier: Apache-2.0
// y = max over windows of kernel x kernel, `stride` apart, the image padded by -inf.   Run it alone: ampcheck check
// max_pool2d NaN wins; of equal values the first, row-major. Backward finds the winner again and gives it the window's
// cotangent; where windows overlap an element's cotangents are added in fp32, windows in row-major order.
#include <algorithm>
#include <vector>

#include "kernels/for_each.h"
#include "kernels/second_order.h"

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
    winner([&](std::int64_t k) { return io.get(x, plane * height * width + k); }, at / out_width, at % out_width,
           value);
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

/// `dx` is the gradient's cotangent, `dy` what it picks.
struct DoubleBackward : Pool {
  template <class Io>
  AMPCHECK_HD void operator()(const Io& io, std::int64_t i) const {
    const std::int64_t plane = i / (out_height * out_width), at = i % (out_height * out_width);
    float value = 0;
    const std::int64_t best = winner([&](std::int64_t k) { return io.get(x, plane * height * width + k); },
                                     at / out_width, at % out_width, value);
    io.put(dy, i, best < 0 ? 0.0f : io.get(dx, plane * height * width + best));
  }
};

Pool pool_of(const KernelCall& call, const Shape& y) {
  const TensorView& x = call.at("x");
  Pool pool;
  pool.x = Operand(x);
  pool.height = x.shape[2];
  pool.width = x.shape[3];
  pool.out_height = y[2];
  pool.out_width = y[3];
  pool.kernel = call.attributes->integer("kernel");
  pool.stride = call.attributes->integer("stride");
  pool.padding = call.attributes->integer("padding");
  return pool;
}

// ---- CPU: one plane at a time, as fp32 ------------------------------------------------------------------------------

/// Calls work(window index in the output plane, winner's index in the plane, winner's value) for every window of a
/// plane.
template <class Work>
void for_windows(const Pool& pool, const float* plane, const Work& work) {
  for (std::int64_t oh = 0; oh < pool.out_height; ++oh)
    for (std::int64_t ow = 0; ow < pool.out_width; ++ow) {
      float value = -__builtin_huge_valf();
      const std::int64_t best = pool.winner([&](std::int64_t k) { return plane[k]; }, oh, ow, value);
      work(static_cast<std::size_t>(oh * pool.out_width + ow), best, value);
    }
}

void run_cpu(const Pool& pool, std::int64_t planes, bool backward) {
  const std::int64_t n = pool.height * pool.width, out_n = pool.out_height * pool.out_width;
  parallel_for(planes, std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(n, 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<float> in(static_cast<std::size_t>(n)), out(static_cast<std::size_t>(out_n)),
                     sums(in.size());
                 for (std::int64_t p = begin; p < end; ++p) {
                   const float* plane = read(pool.x, p * n, n, in.data());
                   if (!backward) {
                     for_windows(pool, plane, [&](std::size_t w, std::int64_t, float value) { out[w] = value; });
                     write(pool.y, p * out_n, out_n, out.data());
                     continue;
                   }
                   const float* dy = read(pool.dy, p * out_n, out_n, out.data());
                   std::fill(sums.begin(), sums.end(), 0.0f);
                   for_windows(pool, plane, [&](std::size_t w, std::int64_t best, float) {
                     if (best >= 0) sums[static_cast<std::size_t>(best)] += dy[w];
                   });
                   write(pool.dx, p * n, n, sums.data());
                 }
               });
}

// ---- both devices ---------------------------------------------------------------------------------------------------

void forward(const KernelCall& call, bool direct) {
  const TensorView& y = call.at("y");
  Forward pool{pool_of(call, y.shape)};
  pool.y = Operand(y);
  if (direct || call.device == Device::cuda)
    for_each(call, y.count(), pool);
  else if (y.count() > 0)
    run_cpu(pool, y.shape[0] * y.shape[1], false);
}

void backward(const KernelCall& call, bool direct) {
  const TensorView* dx = call.find("dx");
  if (dx == nullptr) return;
  Backward pool{pool_of(call, call.at("dy").shape)};
  pool.dy = Operand(call.at("dy"));
  pool.dx = Operand(*dx);
  if (direct || call.device == Device::cuda)
    for_each(call, dx->count(), pool);
  else if (dx->count() > 0)
    run_cpu(pool, dx->shape[0] * dx->shape[1], true);
}

}  // namespace

Kernel max_pool2d_kernel() {
  return {[](const KernelCall& call) { forward(call, false); }, [](const KernelCall& call) { backward(call, false); }};
}

void max_pool2d_double_backward(const KernelCall& call) {
  const TensorView *ddy = call.find("ddy"), *cotangent = call.find("dgrad_x");
  if (ddy == nullptr || cotangent == nullptr) return;
  DoubleBackward pool{pool_of(call, ddy->shape)};
  pool.dy = Operand(*ddy);
  pool.dx = Operand(*cotangent);
  for_each(call, ddy->count(), pool);
}

/// The programs of the CUDA device on any device: on the CPU they give the same bits as max_pool2d_kernel().
Kernel direct_max_pool2d_kernel() {
  return {[](const KernelCall& call) { forward(call, true); }, [](const KernelCall& call) { backward(call, true); }};
}

}  // namespace ampcheck::kernels
