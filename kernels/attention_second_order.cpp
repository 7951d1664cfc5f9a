// SPDX-License-Identifier: Apache-2.0
// The double backward of attention: one head at a time, as fp32. Order: products are fma chains from 0, ascending in
// what is summed.
#include <cmath>
#include <vector>

#include "kernels/launch.h"
#include "kernels/second_order.h"
#include "src/parallel.h"

namespace ampcheck::kernels {

namespace {

using Floats = std::vector<float>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Extents {
  std::int64_t length, width;  ///< T, E
  float scale;
  bool causal;
  std::int64_t seen(std::int64_t t) const { return causal ? t + 1 : length; }
};

/// One head's rows of a tensor as fp32; zeros for one that is not there.
Floats head_of(const TensorView* view, std::int64_t head, std::int64_t n) {
  Floats out(at(n), 0.0f);
  if (view == nullptr || n == 0) return out;
  const float* const data = read(Operand(*view), head * n, n, out.data());
  if (data != out.data()) out.assign(data, data + n);
  return out;
}

float dot(const Floats& a, std::int64_t row_a, const Floats& b, std::int64_t row_b, std::int64_t width) {
  float sum = 0;
  for (std::int64_t e = 0; e < width; ++e) sum = math::fma(a[at(row_a * width + e)], b[at(row_b * width + e)], sum);
  return sum;
}

/// to[row_to] += by from[row_from]
void add_scaled(float by, const Floats& from, std::int64_t row_from, Floats& to, std::int64_t row_to,
                std::int64_t width) {
  for (std::int64_t e = 0; e < width; ++e)
    to[at(row_to * width + e)] = math::fma(by, from[at(row_from * width + e)], to[at(row_to * width + e)]);
}

float sum_of_products(const Floats& a, const Floats& b, std::int64_t n) {
  float sum = 0;
  for (std::int64_t j = 0; j < n; ++j) sum = math::fma(a[at(j)], b[at(j)], sum);
  return sum;
}

void head_backward(const KernelCall& call, const Extents& x, std::int64_t head) {
  const std::int64_t n = x.length * x.width, w = x.width;
  const Floats q = head_of(&call.at("q"), head, n), k = head_of(&call.at("k"), head, n),
               v = head_of(&call.at("v"), head, n), dout = head_of(&call.at("do"), head, n),
               gq = head_of(call.find("dgrad_q"), head, n), gk = head_of(call.find("dgrad_k"), head, n),
               gv = head_of(call.find("dgrad_v"), head, n), lse = head_of(&call.at("lse"), head, x.length);
  Floats dq(at(n), 0.0f), dk = dq, dv = dq, ddo = dq;
  Floats p(at(x.length)), dp = p, b = p, scores = p;
  for (std::int64_t t = 0; t < x.length; ++t) {
    const std::int64_t seen = x.seen(t);
    for (std::int64_t j = 0; j < seen; ++j) {
      p[at(j)] = math::exp(dot(q, t, k, j, w) * x.scale - lse[at(t)]);
      dp[at(j)] = dot(dout, t, v, j, w);
      b[at(j)] = (dot(gq, t, k, j, w) + dot(q, t, gk, j, w)) * x.scale;
    }
    const float delta = sum_of_products(p, dp, seen), beta = sum_of_products(p, b, seen);
    for (std::int64_t j = 0; j < seen; ++j)
      scores[at(j)] = b[at(j)] * (dp[at(j)] - delta) - dp[at(j)] * beta + dot(dout, t, gv, j, w);
    const float mean = sum_of_products(p, scores, seen);
    for (std::int64_t j = 0; j < seen; ++j) {
      const float by_p = p[at(j)] * (b[at(j)] - beta), by_score = p[at(j)] * (scores[at(j)] - mean),
                  ds = p[at(j)] * (dp[at(j)] - delta);
      add_scaled(by_p, v, j, ddo, t, w);
      add_scaled(p[at(j)], gv, j, ddo, t, w);
      add_scaled(by_p, dout, t, dv, j, w);
      add_scaled(by_score, k, j, dq, t, w);
      add_scaled(ds, gk, j, dq, t, w);
      add_scaled(by_score, q, t, dk, j, w);
      add_scaled(ds, gq, t, dk, j, w);
    }
  }
  for (Floats* scaled : {&dq, &dk})
    for (float& value : *scaled) value *= x.scale;
  const auto put = [&](const char* name, const Floats& values) {
    if (const TensorView* to = call.find(name)) write(Operand(*to), head * n, n, values.data());
  };
  put("dq", dq);
  put("dk", dk);
  put("dv", dv);
  put("ddo", ddo);
}

}  // namespace

void attention_double_backward(const KernelCall& call) {
  if (call.device != Device::cpu) throw Error("[double backward] attention, got the cuda device, want cpu");
  const TensorView& q = call.at("q");
  const Extents x{q.shape[2], q.shape[3], static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.shape[3]))),
                  call.attributes->integer("causal") != 0};
  if (q.count() == 0) return;
  parallel_for(q.shape[0] * q.shape[1], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) head_backward(call, x, head);
  });
}

}  // namespace ampcheck::kernels
