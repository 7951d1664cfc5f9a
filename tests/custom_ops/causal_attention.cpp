// SPDX-License-Identifier: Apache-2.0
// Causal attention as FlashAttention does it (Dao et al. 2022, algorithms 1 and 4): forward goes over tiles of keys
// with an online softmax and saves the log-sum-exp alone; backward makes the probabilities of a tile again from that,
// the output too, and takes delta = sum(do o). Keys behind the query are never read. Two broken versions beside it.
#include <ampcheck/op.h>

#include <cmath>
#include <limits>

namespace {

using ampcheck::op::Call;
using ampcheck::op::Expr;
using ampcheck::op::Op;
using ampcheck::op::Type;
using ampcheck::op::View;

enum class Version {
  right,
  unscaled_dq,    // the scale of the scores is left out of dq
  sees_next_key,  // backward masks key > query + 1: one key too many
};

constexpr std::int64_t kTile = 8;  // keys

template <class T>
struct Head {
  Head(const Call& call, std::int64_t head)
      : q(call.view<const T>("q")),
        k(call.view<const T>("k")),
        v(call.view<const T>("v")),
        h(head),
        length(q.extent(1)),
        width(q.extent(2)),
        scale(1.0f / std::sqrt(static_cast<float>(width))) {}
  float score(std::int64_t query, std::int64_t key) const {
    float dot = 0;
    for (std::int64_t e = 0; e < width; ++e) dot += float(q(h, query, e)) * float(k(h, key, e));
    return dot * scale;
  }
  View<const T> q, k, v;
  std::int64_t h, length, width;
  float scale;
};

template <class T>
void forward(const Call& call) {
  const auto o = call.view<T>("o");
  const auto lse = call.view<float>("lse");
  float* const total = call.scratch<float>(o.extent(2));
  for (std::int64_t h = 0; h < o.extent(0); ++h) {
    const Head<T> head(call, h);
    for (std::int64_t query = 0; query < head.length; ++query) {
      float max = -std::numeric_limits<float>::infinity(), sum = 0;
      std::fill_n(total, head.width, 0.0f);
      for (std::int64_t begin = 0; begin <= query; begin += kTile) {
        const std::int64_t count = std::min(kTile, query + 1 - begin);
        float p[kTile], tile_max = max;
        for (std::int64_t j = 0; j < count; ++j) {
          p[j] = head.score(query, begin + j);
          tile_max = p[j] > tile_max || std::isnan(p[j]) ? p[j] : tile_max;
        }
        const float keep = begin == 0 ? 1.0f : std::exp(max - tile_max);  // nothing to rescale in the first tile
        float tile_sum = 0;
        for (std::int64_t j = 0; j < count; ++j) tile_sum += p[j] = std::exp(p[j] - tile_max);
        for (std::int64_t e = 0; e < head.width; ++e) {
          float dot = 0;
          for (std::int64_t j = 0; j < count; ++j) dot += p[j] * float(head.v(h, begin + j, e));
          total[e] = total[e] * keep + dot;
        }
        sum = sum * keep + tile_sum;
        max = tile_max;
      }
      lse(h, query, 0) = max + std::log(sum);
      for (std::int64_t e = 0; e < head.width; ++e) o(h, query, e) = T(total[e] / sum);
    }
  }
}

template <class T>
void backward(const Call& call, Version version) {
  const auto lse = call.view<const float>("lse");
  const auto g = call.view<const T>("do");
  const auto dq = call.view<T>("dq"), dk = call.view<T>("dk"), dv = call.view<T>("dv");
  const std::int64_t length = g.extent(1), width = g.extent(2);
  float* const dk_total = call.scratch<float>(length * width);
  float* const dv_total = call.scratch<float>(length * width);
  float* const dq_row = call.scratch<float>(width);
  float* const p = call.scratch<float>(length);
  for (std::int64_t h = 0; h < g.extent(0); ++h) {
    const Head<T> head(call, h);
    std::fill_n(dk_total, length * width, 0.0f);
    std::fill_n(dv_total, length * width, 0.0f);
    for (std::int64_t query = 0; query < length; ++query) {
      const std::int64_t keys = std::min(length, query + (version == Version::sees_next_key ? 2 : 1));
      for (std::int64_t key = 0; key < keys; ++key) p[key] = std::exp(head.score(query, key) - lse(h, query, 0));
      float delta = 0;
      for (std::int64_t e = 0; e < width; ++e) {
        float o = 0;
        for (std::int64_t key = 0; key < keys; ++key) o += p[key] * float(head.v(h, key, e));
        delta += float(g(h, query, e)) * o;
      }
      std::fill_n(dq_row, width, 0.0f);
      for (std::int64_t key = 0; key < keys; ++key) {
        float dp = 0;
        for (std::int64_t e = 0; e < width; ++e) dp += float(g(h, query, e)) * float(head.v(h, key, e));
        const float ds = p[key] * (dp - delta);
        for (std::int64_t e = 0; e < width; ++e) {
          dq_row[e] += ds * float(head.k(h, key, e));
          dk_total[key * width + e] += ds * float(head.q(h, query, e));
          dv_total[key * width + e] += p[key] * float(g(h, query, e));
        }
      }
      const float scale = version == Version::unscaled_dq ? 1.0f : head.scale;
      for (std::int64_t e = 0; e < width; ++e) dq(h, query, e) = T(dq_row[e] * scale);
    }
    for (std::int64_t t = 0; t < length; ++t)
      for (std::int64_t e = 0; e < width; ++e) {
        dk(h, t, e) = T(dk_total[t * width + e] * head.scale);
        dv(h, t, e) = T(dv_total[t * width + e]);
      }
  }
}

/// What a query sees: the keys up to itself.
struct Formula {
  Formula(Expr q_, Expr k_, Expr v_) : q(q_), k(k_), v(v_) {
    visible = reshape(arange(T), {1, 1, T}) <= reshape(arange(T), {1, T, 1});
    // The score of the first key, which every query sees, stands in for the hidden ones, so that exp never meets these.
    const Expr scores = matmul(q, k, false, true) * scale;
    shown = where(visible, scores, slice(scores, -1, 0, 1));
    shift = stop_gradient(max(shown, -1));
    total = sum(where(visible, exp(shown - shift), 0), -1);
    lse = stored("lse", shift + log(total));
  }
  /// softmax(q k^T / sqrt(E)) v, with the adjoint of the paper's appendix B.2.
  Expr by_softmax() const {
    const Expr p = where(visible, exp(shown - lse), 0), o = matmul(where(visible, exp(shown - shift), 0), v) / total;
    return with_adjoint(o, {q, k, v}, [=, *this](Expr g) {
      const Expr ds = p * (matmul(g, v, false, true) - sum(g * o, -1));
      return std::vector<Expr>{matmul(ds, k) * scale, matmul(ds, q, true) * scale, matmul(p, g, true)};
    });
  }
  /// The same without a hidden key in any sum: 0 inf is NaN.
  Expr over_visible() const {
    const Expr p = where(visible, exp(shown - lse), 0), o = sum(seen(p, by_key(v)), 2);
    return with_adjoint(reshape(o, {H, T, E}), {q, k, v}, [=, *this](Expr g) {
      const Expr dp = where(visible, matmul(g, v, false, true), 0);
      const Expr ds = p * where(visible, dp - sum(g * reshape(o, {H, T, E}), -1), 0);
      const auto rows = [&](Expr x) { return reshape(x, {H, T, E}); };
      return std::vector<Expr>{rows(sum(seen(ds, by_key(k)), 2)) * scale, rows(sum(seen(ds, by_query(q)), 1)) * scale,
                               rows(sum(seen(p, by_query(g)), 1))};
    });
  }
  Expr by_key(Expr x) const { return reshape(x, {H, 1, T, E}); }
  Expr by_query(Expr x) const { return reshape(x, {H, T, 1, E}); }
  Expr seen(Expr a, Expr rows) const {
    return where(reshape(visible, {1, T, T, 1}), reshape(a, {H, T, T, 1}) * rows, 0);
  }

  Expr q, k, v, H = ampcheck::op::dim("H"), T = ampcheck::op::dim("T"), E = ampcheck::op::dim("E"), scale = rsqrt(E);
  Expr visible = 0, shown = 0, shift = 0, total = 0, lse = 0;
};

void describe(Op& op, Version version) {
  op.summary("o = softmax(q k^T / sqrt(E)) v over the keys up to each query");
  op.input("q", "H T E");
  op.input("k", "H T E");
  op.input("v", "H T E");
  op.output("o");
  op.saved("lse");
  op.dim("H", 2, 3, 1);
  op.dim("T", 5, 33, 17).least(1);
  op.dim("E", 7, 16, 65).least(1);
  op.rows("H", {"o", "dq", "dk", "dv"});
  op.formula([](Expr q, Expr k, Expr v) { return Formula(q, k, v).by_softmax(); });
  op.form(
      "one pass", [](Expr q, Expr k, Expr v) { return Formula(q, k, v).by_softmax(); }, true);
  op.form(
      "visible keys only", [](Expr q, Expr k, Expr v) { return Formula(q, k, v).over_visible(); }, true);
  op.forward([]<class T>(Type<T>, const Call& call) { forward<T>(call); });
  op.backward([version]<class T>(Type<T>, const Call& call) { backward<T>(call, version); });
}

}  // namespace

AMPCHECK_OP(causal_attention, op) { describe(op, Version::right); }
AMPCHECK_OP(causal_attention_unscaled_dq, op) { describe(op, Version::unscaled_dq); }
AMPCHECK_OP(causal_attention_sees_next_key, op) { describe(op, Version::sees_next_key); }
