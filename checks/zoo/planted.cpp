// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/zoo/planted.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "checks/zoo/backwards.h"
#include "src/error.h"

namespace ampcheck::checks {

namespace {

using kernels::KernelCall;
using Row = std::vector<float>;

enum class Twist {
  // Faults of the backward of softmax.
  sign,
  missing_factor,
  dropped_tail,
  bf16_accumulation,
  unwritten_last,
  nan_rows_unwritten,
  overrun,
  clobbers_cotangent,
  alternating_order,
  stale_maximum,
  ignores_strides,
  nonlinear,
  order_by_batch,
  order_by_place,
  order_by_neighbour,
  // Correct variants.
  reversed_order,
  kahan,
  online,
  by_lse,
};

float to_bf16(float x) {
  if (!std::isfinite(x)) return x;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(x);  // to nearest even; bf16 has the exponents of fp32
  bits += 0x7fff + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

float sum(const Row& terms, Twist twist, bool flip) {
  float s = 0, carry = 0;
  const std::size_t n = terms.size();
  for (std::size_t i = 0; i < n; ++i) {
    const bool backwards = twist == Twist::reversed_order || flip;
    const float t = terms[backwards ? n - 1 - i : i];
    if (twist == Twist::kahan) {
      const float y = t - carry, next = s + y;
      carry = (next - s) - y;
      s = next;
    } else if (twist == Twist::bf16_accumulation) {
      s = to_bf16(s + t);
    } else {
      s += t;
    }
  }
  return s;
}

/// One row of softmax; `shift` replaces the row's maximum where it is finite.
Row softmax_row(const Row& x, Twist twist, const float* shift) {
  float m = -INFINITY;
  for (const float v : x) m = v > m || v != v ? v : m;
  if (shift != nullptr && std::isfinite(*shift) && std::fabs(*shift - m) < 8) m = *shift;
  Row e(x.size());
  if (twist == Twist::online) {  // Milakov and Gimelshein 2018
    float running = -INFINITY, l = 0;
    for (const float v : x) {
      const float next = v > running || v != v ? v : running;
      l = l * (running == next ? 1.0f : std::exp(running - next)) + std::exp(v - next);
      running = next;
    }
    for (std::size_t i = 0; i < x.size(); ++i) e[i] = std::exp(x[i] - running) / l;
    return e;
  }
  for (std::size_t i = 0; i < x.size(); ++i) e[i] = std::exp(x[i] - m);
  const float l = sum(e, twist == Twist::bf16_accumulation ? Twist::sign : twist, false);
  const float lse = m + std::log(l);
  for (std::size_t i = 0; i < x.size(); ++i) e[i] = twist == Twist::by_lse ? std::exp(x[i] - lse) : e[i] / l;
  return e;
}

/// Rows of a [N, D] view as float; with `as_dense`, as a kernel reads that takes every tensor for row-major.
std::vector<Row> rows_of(const TensorView& view, bool as_dense = false) {
  TensorView seen = view;
  if (as_dense) seen.strides = row_major_strides(view.shape);
  const std::vector<double> values = to_doubles(seen);
  std::vector<Row> rows(static_cast<std::size_t>(view.shape[0]), Row(static_cast<std::size_t>(view.shape[1])));
  for (std::size_t i = 0; i < values.size(); ++i)
    rows[i / rows[0].size()][i % rows[0].size()] = static_cast<float>(values[i]);
  return rows;
}

void store(const Row& row, std::int64_t r, const TensorView& view, std::int64_t columns) {
  std::vector<double> values(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(columns));
  TensorView target = view;
  target.shape = Shape{1, columns};
  target.data = view.as<std::byte>() + r * view.strides[0] * bytes(view.dtype);
  if (columns > 0) from_doubles(values, target);
}

void forward(const KernelCall& call, Twist twist) {
  const TensorView& y = call.at("y");
  const std::vector<Row> x = rows_of(call.at("x"));
  const float* previous = nullptr;
  float shift = 0;
  for (std::size_t r = 0; r < x.size(); ++r) {
    const Row out = softmax_row(x[r], twist, twist == Twist::stale_maximum ? previous : nullptr);
    if (!x[r].empty()) {
      shift = *std::max_element(x[r].begin(), x[r].end());
      previous = &shift;
    }
    const bool nan_row = std::any_of(out.begin(), out.end(), [](float v) { return v != v; });
    if (twist == Twist::nan_rows_unwritten && nan_row) continue;
    store(out, static_cast<std::int64_t>(r), y, static_cast<std::int64_t>(out.size()));
  }
}

void backward(const KernelCall& call, Twist twist) {
  static std::atomic<int> calls{0};
  const bool odd_call = ++calls % 2 == 0;
  const TensorView &dx = call.at("dx"), &dy = call.at("dy");
  const std::vector<Row> x = rows_of(call.at("x")), g = rows_of(dy, twist == Twist::ignores_strides);
  for (std::size_t r = 0; r < x.size(); ++r) {
    const bool flip = (twist == Twist::alternating_order && odd_call) ||
                      (twist == Twist::order_by_batch && x.size() > 3) ||
                      (twist == Twist::order_by_place && r % 2 == 1) ||
                      (twist == Twist::order_by_neighbour && r > 0 && !x[r - 1].empty() && x[r - 1][0] > 0);
    const Row y = softmax_row(x[r], twist, nullptr);
    const std::size_t n = y.size();
    Row products(n), out(n);
    const std::size_t used = twist == Twist::dropped_tail ? n / 8 * 8 : n;
    for (std::size_t i = 0; i < n; ++i) products[i] = i < used ? g[r][i] * y[i] : 0.0f;
    const float dot = sum(products, twist, flip);
    for (std::size_t i = 0; i < n; ++i) {
      const float cotangent = g[r][i];
      out[i] = y[i] * (twist == Twist::sign ? cotangent + dot : cotangent - dot);
      if (twist == Twist::missing_factor) out[i] = cotangent - dot;
      if (twist == Twist::nonlinear)
        out[i] += out[i] * std::fmin(std::fabs(cotangent), 4.0f) * 0x1p-25f;  // about an ulp
    }
    const bool last = r + 1 == x.size();
    store(out, static_cast<std::int64_t>(r), dx,
          static_cast<std::int64_t>(twist == Twist::unwritten_last && last && n > 0 ? n - 1 : n));
  }
  const std::int64_t size = bytes(dx.dtype);
  if (twist == Twist::overrun && dx.count() > 0)  // one element past the end, as a launch rounded up would
    std::memset(dx.as<std::byte>() + (dx.offset(dx.count() - 1) + 1) * size, 0, static_cast<std::size_t>(size));
  if (twist == Twist::clobbers_cotangent && dy.count() > 0) std::memset(dy.data, 0, static_cast<std::size_t>(size));
}

PlantedOp softmax_with(const std::string& variant, Twist twist, const std::string& what, Code code) {
  PlantedOp out{*find_op("softmax"), what, code};
  out.op.signature.name = "softmax." + variant;
  out.op.signature.summary = what;
  out.op.signature.precision.math = {.name = "glibc", .tanh = 2, .erfc = 3};
  out.op.kernel.forward = [twist](const KernelCall& call) { forward(call, twist); };
  out.op.kernel.backward = [twist](const KernelCall& call) { backward(call, twist); };
  return out;
}

PlantedOp batch_invariant(PlantedOp planted) {
  planted.op.signature.launch.batch_invariant = true;
  return planted;
}

/// An op whose gradient accumulates by contract, but whose kernel overwrites; the sum over rows of a broadcast bias.
PlantedOp overwriting_accumulator() {
  PlantedOp out{*find_op("add"), "declared to add its gradient to the buffer, but overwrites it", Code::ac408};
  out.op.signature.name = "add.overwrites";
  out.op.signature.summary = out.what;
  out.op.signature.launch.accumulates = {"dx"};
  out.op.signature.launch.row_independent = {"z", "dy"};
  return out;
}

/// dx = ((dz 2^100) 2^-100) y: right, until a loss scale lets dz 2^100 overflow.
PlantedOp loses_range() {
  PlantedOp out{*find_op("mul"),
                "declared for loss scales of 2^-40 to 2^40, but its backward scales by 2^100 on the way", Code::ac203};
  out.op.signature.name = "mul.loses_range";
  out.op.signature.summary = out.what;
  out.op.signature.range = {.smallest_scale = 0x1p-40, .largest_scale = 0x1p40};
  const auto whole = out.op.kernel.backward;
  out.op.kernel.backward = [whole](const KernelCall& call) {
    whole(call);
    const std::vector<double> g = to_doubles(call.at("dz")), y = to_doubles(call.at("y"));
    std::vector<double> dx;
    for (std::size_t i = 0; i < g.size(); ++i) {
      const float scaled = static_cast<float>(g[i]) * 0x1p100f;
      dx.push_back(static_cast<double>(scaled * 0x1p-100f * static_cast<float>(y[i])));
    }
    if (const auto* to = call.find("dx"); to != nullptr) from_doubles(dx, *to);
  };
  return out;
}

std::vector<PlantedOp> with_second_order(std::vector<PlantedOp> ops) {
  for (PlantedOp& fault : second_order_faults()) ops.push_back(std::move(fault));
  return ops;
}

}  // namespace

std::span<const PlantedOp> planted_ops() {
  static const std::vector<PlantedOp> kOps = with_second_order({
      softmax_with("sign", Twist::sign, "backward adds the dot product instead of subtracting it", Code::ac101),
      softmax_with("missing_factor", Twist::missing_factor, "backward leaves out the factor y", Code::ac101),
      softmax_with("dropped_tail", Twist::dropped_tail, "the dot product misses what follows the last full vector of 8",
                   Code::ac101),
      softmax_with("bf16_accumulation", Twist::bf16_accumulation, "the dot product is accumulated in bf16",
                   Code::ac301),
      softmax_with("unwritten_last", Twist::unwritten_last, "the last element of dx is never written", Code::ac401),
      softmax_with("nan_rows_unwritten", Twist::nan_rows_unwritten, "rows that hold NaN are left unwritten",
                   Code::ac401),
      softmax_with("overrun", Twist::overrun, "writes one element past the end of dx", Code::ac402),
      softmax_with("clobbers_cotangent", Twist::clobbers_cotangent, "overwrites the cotangent", Code::ac403),
      softmax_with("alternating_order", Twist::alternating_order, "sums in another order at every other call",
                   Code::ac404),
      softmax_with("stale_maximum", Twist::stale_maximum, "shifts a row by the maximum of the row before", Code::ac405),
      softmax_with("order_by_neighbour", Twist::order_by_neighbour,
                   "sums backwards where the row before starts with a positive number", Code::ac405),
      softmax_with("ignores_strides", Twist::ignores_strides, "takes the cotangent for row-major", Code::ac406),
      batch_invariant(softmax_with(
          "order_by_batch", Twist::order_by_batch,
          "sums backwards where there are more than three rows, though declared batch invariant", Code::ac409)),
      batch_invariant(softmax_with("order_by_place", Twist::order_by_place,
                                   "sums every second row backwards, though declared batch invariant", Code::ac409)),
      softmax_with("nonlinear", Twist::nonlinear, "a factor 1 + |g| 2^-25, too small for the interval", Code::ac407),
      overwriting_accumulator(),
      loses_range(),
      softmax_with("reversed_order", Twist::reversed_order, "correct: sums backwards", Code::none),
      softmax_with("kahan", Twist::kahan, "correct: compensated sums", Code::none),
      batch_invariant(softmax_with("one_order", Twist::reversed_order,
                                   "correct: sums backwards, whatever the number of rows", Code::none)),
      softmax_with("online", Twist::online, "correct: one pass with running rescaling", Code::none),
      softmax_with("by_lse", Twist::by_lse, "correct: exp(x - lse)", Code::none),
  });
  return kOps;
}

}  // namespace ampcheck::checks
