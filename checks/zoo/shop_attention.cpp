// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Attention: features of other models that are left on, layouts of heads, tiles and numbers of few bits.
#include <algorithm>

#include "checks/zoo/kit.h"
#include "checks/zoo/shop_attention.h"

namespace ampcheck::checks::zoo {

namespace {

using Twist = AttentionTwist;

constexpr std::int64_t kTile = 16;
std::int64_t up_to(std::int64_t n, std::int64_t size) { return (n + size - 1) / size * size; }

/// 2^x by a polynomial of degree 3 for its fraction, as where the units for exp are too slow.
float cubic_exp(float x) {
  const float t = x * 1.44269504f, whole = std::floor(t), f = t - whole;
  if (!(t > -126)) return t != t ? t : 0.0f;
  return std::ldexp(1 + f * (0.695146f + f * (0.227564f + f * 0.077119f)), static_cast<int>(whole));
}

/// One head: q, k, v [T, E].
struct Head {
  Values q, k, v;
  std::int64_t t, e;
  bool causal;
  Dtype dtype;
  Twist twist;

  std::size_t at(std::int64_t row, std::int64_t i) const { return index_of(row * e + i); }
  bool is(Twist other) const { return twist == other; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(is(Twist::scale_of_padded) ? up_to(e, 8) : e)); }
  bool hidden(std::int64_t query, std::int64_t key) const {
    if (is(Twist::window_of_16) && key + kTile <= query) return true;
    return causal && (is(Twist::tile_open) ? key / kTile > query / kTile : key > query);
  }
  /// Row `row` of q or k turned by its place, halves paired.
  float turned(const Values& x, std::int64_t row, std::int64_t i) const {
    const std::int64_t half = e / 2;
    if (i >= 2 * half) return x[at(row, i)];
    const float angle =
        static_cast<float>(row) * std::pow(10000.0f, -static_cast<float>(i % half) / static_cast<float>(half));
    const float own = x[at(row, i)] * std::cos(angle), sine = std::sin(angle);
    return i < half ? own - x[at(row, i + half)] * sine : own + x[at(row, i - half)] * sine;
  }
  float score(std::int64_t query, std::int64_t key) const {
    const std::int64_t n = is(Twist::columns_of_8) ? e / 8 * 8 : e;
    const float s = total(in_order, n, [&](std::int64_t i) {
      if (is(Twist::rotary)) return Term{turned(q, query, i), turned(k, key, i)};
      const float own = q[at(query, i)];
      return Term{is(Twist::q_in_storage) ? rounded(dtype, own * scale()) : own, k[at(key, i)]};
    });
    const float scaled = is(Twist::q_in_storage) ? s : s * scale();
    if (is(Twist::softcap)) return 30 * std::tanh(scaled / 30);
    if (is(Twist::distance_bias)) return scaled - 0.25f * static_cast<float>(query > key ? query - key : key - query);
    return scaled;
  }
  /// Scores of all keys, -inf where they are hidden.
  Values scores(std::int64_t query) const {
    Values s;
    for (std::int64_t key = 0; key < t; ++key) s.push_back(hidden(query, key) ? -INFINITY : score(query, key));
    return s;
  }
  float shift_of(std::int64_t query, const Values& s) const {
    float shift = largest(s);
    if (is(Twist::shift_by_hidden))
      for (std::int64_t key = 0; key < t; ++key) shift = std::max(shift, score(query, key));
    return is(Twist::padded_keys) && !causal ? std::max(shift, 0.0f) : shift;
  }
  float exponential(float x) const { return is(Twist::cubic_exponential) ? cubic_exp(x) : std::exp(x); }

  /// One row of o. Returns lse.
  float attend(std::int64_t query, Values& o) const {
    const Values s = scores(query);
    const float shift = shift_of(query, s);
    Values p;
    float sum = 0;
    for (const float score : s) {
      p.push_back(exponential(score - shift));
      sum += p.back();
    }
    if (is(Twist::padded_keys) && !causal) sum += static_cast<float>(up_to(t, kTile) - t) * std::exp(-shift);
    if (is(Twist::sum_rescaled_alone))  // what a tile adds to o stays as of the maximum by then
      for (std::int64_t first = 0; first < t; first += kTile) {
        const std::int64_t end = std::min(first + kTile, t);
        const float so_far = largest(std::span(s).first(index_of(end)));
        for (std::int64_t key = first; key < end; ++key) p[index_of(key)] = std::exp(s[index_of(key)] - so_far);
      }
    for (std::int64_t i = 0; i < e; ++i) {
      float out = 0;
      for (std::int64_t key = 0; key < t; ++key) {
        if (hidden(query, key)) continue;
        const float weight = p[index_of(key)];
        out += (is(Twist::p_in_e4m3) ? rounded(Dtype::e4m3fn, weight) : weight) * v[at(key, i)];
      }
      o[at(query, i)] = out / sum;
    }
    return is(Twist::lse_without_shift) ? std::log(sum) : shift + std::log(sum);
  }

  /// o with the exponentials of a key divided by their sum over the queries.
  void attend_over_queries(Values& o) const {
    std::ranges::fill(o, 0.0f);
    for (std::int64_t key = 0; key < t; ++key) {
      Values s;
      for (std::int64_t query = 0; query < t; ++query) s.push_back(scores(query)[index_of(key)]);
      const float shift = largest(s);
      float sum = 0;
      for (const float score : s) sum += std::exp(score - shift);
      for (std::int64_t query = 0; query < t; ++query)
        if (!hidden(query, key))
          for (std::int64_t i = 0; i < e; ++i)
            o[at(query, i)] += std::exp(s[index_of(query)] - shift) / sum * v[at(key, i)];
    }
  }
};

/// p, dp and ds [T, T] of a head.
struct Inner {
  Values p, ds;
};

Inner inner_of(const Head& h, const Values& g, std::span<const float> lse) {
  Inner out;
  for (std::int64_t query = 0; query < h.t; ++query) {
    Values p, dp;
    float delta = 0;
    for (std::int64_t key = 0; key < h.t; ++key) {
      const bool seen = h.is(Twist::dkv_mask_reversed) && h.causal ? key >= query : !h.hidden(query, key);
      p.push_back(seen ? std::exp(h.score(query, key) - lse[index_of(query)]) : 0.0f);
      const Values& with = h.is(Twist::dp_of_keys) ? h.k : h.v;
      dp.push_back(total(in_order, h.e, [&](std::int64_t i) { return Term{g[h.at(query, i)], with[h.at(key, i)]}; }));
      if (seen) delta += p.back() * dp.back();
    }
    if (h.is(Twist::delta_without_o))
      delta = total(in_order, h.e, [&](std::int64_t i) { return Term{g[h.at(query, i)]}; });
    if (h.is(Twist::delta_in_bf16)) delta = bf16(delta);
    for (std::int64_t key = 0; key < h.t; ++key) {
      const float kept = h.is(Twist::dropout_scale) ? 0.9f : 1.0f, own = p[index_of(key)];
      float ds = own == 0 ? 0.0f : own * (dp[index_of(key)] / kept - delta);
      if (h.is(Twist::softcap)) {
        const float part = h.score(query, key) / 30;
        ds *= 1 - part * part;
      }
      out.p.push_back(own / kept);
      out.ds.push_back(ds);
    }
  }
  return out;
}

struct Gradients {
  Values dq, dk, dv;
};

Gradients differentiate(const Head& h, const Values& g, std::span<const float> lse) {
  Head usual = h;
  if (h.is(Twist::dkv_mask_reversed)) usual.twist = Twist::none;
  const Inner of_queries = inner_of(usual, g, lse), of_keys = inner_of(h, g, lse);
  Gradients out{Values(h.q.size()), Values(h.q.size()), Values(h.q.size())};
  const auto square = [&](std::int64_t query, std::int64_t key) { return index_of(query * h.t + key); };
  for (std::int64_t row = 0; row < h.t; ++row)
    for (std::int64_t i = 0; i < h.e; ++i) {
      float dq = 0, tile = 0, dk = 0, dv = 0;
      for (std::int64_t other = 0; other < h.t; ++other) {
        tile += of_queries.ds[square(row, other)] * h.k[h.at(other, i)] * h.scale();
        if ((other + 1) % kTile == 0 || other + 1 == h.t) {
          dq = h.is(Twist::dq_in_storage) ? rounded(h.dtype, dq + tile) : dq + tile;
          tile = 0;
        }
        const bool straight = h.is(Twist::ds_not_transposed);
        dk += of_keys.ds[straight ? square(row, other) : square(other, row)] * h.q[h.at(other, i)] * h.scale();
        dv += of_keys.p[square(other, row)] * g[h.at(other, i)];
      }
      out.dq[h.at(row, i)] = dq;
      out.dk[h.at(row, i)] = dk;
      out.dv[h.at(row, i)] = dv;
    }
  return out;
}

/// One head of x [B, H, T, E], or of x taken for [B, T, H, E].
Values head_of(const Values& x, const Shape& s, std::int64_t head, bool time_first = false) {
  Values out;
  const std::int64_t b = head / s[1], h = head % s[1];
  for (std::int64_t row = 0; row < s[2]; ++row)
    for (std::int64_t i = 0; i < s[3]; ++i)
      out.push_back(x[index_of((time_first ? (b * s[2] + row) * s[1] + h : head * s[2] + row) * s[3] + i)]);
  return out;
}
Head of_call(const Call& call, const Values* qkv, std::int64_t head, Twist twist) {
  const Shape& s = call.shape("q");
  return {head_of(qkv[0], s, head),
          head_of(qkv[1], s, head, twist == Twist::keys_by_time_first),
          head_of(qkv[2], s, head),
          s[2],
          s[3],
          call.integer("causal") != 0,
          call.dtype("q"),
          twist};
}

void forward(const Call& call, Twist twist) {
  const Values qkv[3] = {call.in("q"), call.in("k"), call.in("v")};
  const Shape& s = call.shape("q");
  Values o, lse;
  for (std::int64_t head = 0; head < s[0] * s[1]; ++head) {
    const Head h = of_call(call, qkv, head, twist);
    Values own(h.q.size());
    for (std::int64_t query = 0; query < h.t; ++query) lse.push_back(h.e > 0 ? h.attend(query, own) : 0.0f);
    if (twist == Twist::over_queries) h.attend_over_queries(own);
    o.insert(o.end(), own.begin(), own.end());
  }
  call.out("o", o);
  call.out("lse", lse);
}

void backward(const Call& call, Twist twist) {
  const Values qkv[3] = {call.in("q"), call.in("k"), call.in("v")}, g = call.in("do"), saved = call.in("lse");
  const Shape& s = call.shape("q");
  const std::int64_t t = s[2], pitch = twist == Twist::lse_of_padded_rows ? up_to(t, kTile) : t;
  Gradients out;
  std::vector<Gradients> parts;
  for (std::int64_t head = 0; head < s[0] * s[1]; ++head) {
    Values lse;
    for (std::int64_t row = 0; row < t; ++row) lse.push_back(saved[index_of(head * pitch + row) % saved.size()]);
    parts.push_back(differentiate(of_call(call, qkv, head, twist), head_of(g, s, head), lse));
  }
  const auto join = [&](Values& whole, Values Gradients::*which, bool pairs) {
    for (std::int64_t head = 0; head < std::ssize(parts); ++head) {
      const std::int64_t h = head % s[1], other = h % 2 == 1 ? head - 1 : h + 1 < s[1] ? head + 1 : -1;
      const Values& own = parts[index_of(head)].*which;
      for (std::size_t i = 0; i < own.size(); ++i)
        whole.push_back(pairs && other >= 0 ? own[i] + (parts[index_of(other)].*which)[i] : own[i]);
    }
  };
  const bool pairs = twist == Twist::pair_of_heads;
  join(out.dq, &Gradients::dq, false);
  join(out.dk, &Gradients::dk, pairs);
  join(out.dv, &Gradients::dv, pairs);
  call.out("dq", out.dq);
  call.out("dk", out.dk);
  call.out("dv", out.dv);
}

}  // namespace

Kernel twisted_attention(Twist of_forward, Twist of_backward) {
  return kernel_of([=](const Call& call) { forward(call, of_forward); },
                   [=](const Call& call) { backward(call, of_backward); });
}

}  // namespace ampcheck::checks::zoo
