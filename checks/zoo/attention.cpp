// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// attention: o = softmax(q k^T / sqrt(E)) v over the visible keys; saves lse. Backward: p = exp(s - lse), dp = do v^T,
// delta = sum p dp, ds = p (dp - delta), dq = ds k scale, dk = ds^T q scale, dv = p^T do.   Dao et al. 2022
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

enum class Twist {
  none,
  flash,
  delta_of_output,
  scaled_queries,
  scale_missing_in_dk,
  mask_missing_in_backward,
  mask_off_by_one,
  delta_missing,
  delta_of_stored_output,
  p_in_storage,
  lse_in_bf16,
  scale_in_bf16,
  no_rescaling,
  gradients_swapped,
  lse_of_first_head,
  dk_last_query_block,
  keys_of_16,
  dv_without_mask,
  no_shift,
  scale_without_root,
  soft_mask,
  value_of_before,
  lse_of_next,
  only_before,
  dv_scaled,
};

struct Style {
  Twist twist = Twist::none;
  Sum sum = in_order;
  Slip slip = {};
};

/// One head: q, k, v [T, E] within the whole tensors.
struct Head {
  const Values &q, &k, &v;
  std::size_t base;
  std::int64_t t, e;
  bool causal;
  Style style;

  float scale() const {
    const float s =
        style.twist == Twist::scale_without_root ? 1 / static_cast<float>(e) : 1 / std::sqrt(static_cast<float>(e));
    return style.twist == Twist::scale_in_bf16 ? bf16(s) : s;
  }
  std::size_t at(std::int64_t row, std::int64_t i) const { return base + index_of(row * e + i); }
  bool sees(std::int64_t query, std::int64_t key) const {
    if (style.twist == Twist::keys_of_16 && t > 16 && key >= t / 16 * 16) return false;
    if (!causal || style.twist == Twist::soft_mask) return true;
    if (style.twist == Twist::only_before) return key < query || key == 0;
    return style.twist == Twist::mask_off_by_one ? key <= query + 1 : key <= query;
  }
  /// The row of v that belongs to a key.
  std::int64_t value_row(std::int64_t key) const {
    return style.twist == Twist::value_of_before ? std::max<std::int64_t>(key - 1, 0) : key;
  }
  float score(std::int64_t query, std::int64_t key) const {
    const bool scaled = style.twist == Twist::scaled_queries;
    const float s = total(style.sum, e, [&](std::int64_t i) {
      return Term{scaled ? q[at(query, i)] * scale() : q[at(query, i)], k[at(key, i)]};
    });
    if (style.twist == Twist::soft_mask && causal && key > query) return s * scale() - 10;
    return scaled ? s : s * scale();
  }
  std::vector<std::int64_t> keys(std::int64_t query) const {
    std::vector<std::int64_t> out;
    for (std::int64_t key = 0; key < t; ++key)
      if (sees(query, key)) out.push_back(key);
    return out;
  }
};

/// One query of forward: its row of o and its lse.
float attend(const Head& h, std::int64_t query, Values& o) {
  const auto keys = h.keys(query);
  Values s;
  for (const std::int64_t key : keys) s.push_back(h.score(query, key));
  float shift = h.style.twist == Twist::no_shift ? 0.0f : largest(s), l = 0;
  if (h.style.twist == Twist::flash || h.style.twist == Twist::no_rescaling) {  // blocks of 4 keys, running maximum
    shift = -INFINITY;
    Values acc(index_of(h.e));
    for (std::size_t start = 0; start < keys.size(); start += 4) {
      const std::size_t end = std::min(start + 4, keys.size());
      const float block = largest(std::span(s).subspan(start, end - start)),
                  next = block > shift || block != block ? block : shift;
      const float factor = shift == next || h.style.twist == Twist::no_rescaling ? 1.0f : std::exp(shift - next);
      l *= factor;
      for (float& a : acc) a *= factor;
      for (std::size_t j = start; j < end; ++j) {
        const float p = std::exp(s[j] - next);
        l += p;
        for (std::int64_t i = 0; i < h.e; ++i) acc[index_of(i)] += p * h.v[h.at(keys[j], i)];
      }
      shift = next;
    }
    for (std::int64_t i = 0; i < h.e; ++i) o[h.at(query, i)] = acc[index_of(i)] / l;
    return shift + std::log(l);
  }
  Values p(s.size());
  for (std::size_t j = 0; j < s.size(); ++j) p[j] = std::exp(s[j] - shift);
  l = total(h.style.sum, static_cast<std::int64_t>(p.size()), [&](std::int64_t j) { return Term{p[index_of(j)]}; });
  for (std::int64_t i = 0; i < h.e; ++i)
    o[h.at(query, i)] = total(h.style.sum, static_cast<std::int64_t>(p.size()), [&](std::int64_t j) {
      return Term{p[index_of(j)] / l, h.v[h.at(h.value_row(keys[index_of(j)]), i)]};
    });
  return shift + std::log(l);
}

struct Gradients {
  Values dq, dk, dv;
};

/// Backward of one head. The terms of dk and dv are collected over the queries.
void differentiate(const Head& h, const Values& g, const Values& o, const Values& lse, std::size_t first_lse,
                   Dtype dtype, Gradients& out) {
  const Twist twist = h.style.twist;
  std::vector<Terms> dk(index_of(h.t * h.e)), dv(dk.size());
  for (std::int64_t query = 0; query < h.t; ++query) {
    std::vector<std::int64_t> keys = h.keys(query);
    if (twist == Twist::mask_missing_in_backward) {
      keys.clear();
      for (std::int64_t key = 0; key < h.t; ++key) keys.push_back(key);
    }
    const auto n = static_cast<std::int64_t>(keys.size());
    Values p(keys.size()), dp(keys.size());
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const std::int64_t own = twist == Twist::lse_of_next ? std::min(query + 1, h.t - 1) : query;
      p[j] = std::exp(h.score(query, keys[j]) - lse[first_lse + index_of(own)]);
      if (twist == Twist::p_in_storage) p[j] = rounded(dtype, p[j]);
      dp[j] = total(h.style.sum, h.e, [&](std::int64_t i) { return Term{g[h.at(query, i)], h.v[h.at(keys[j], i)]}; });
    }
    float delta = total(h.style.sum, n, [&](std::int64_t j) { return Term{p[index_of(j)], dp[index_of(j)]}; });
    if (twist == Twist::delta_of_output || twist == Twist::delta_of_stored_output || twist == Twist::flash)
      delta = total(h.style.sum, h.e, [&](std::int64_t i) {
        const float value = o[h.at(query, i)];
        return Term{g[h.at(query, i)], twist == Twist::delta_of_stored_output ? rounded(dtype, value) : value};
      });
    if (twist == Twist::delta_missing) delta = 0;
    Values ds(keys.size());
    for (std::size_t j = 0; j < keys.size(); ++j) ds[j] = p[j] * (dp[j] - delta);
    for (std::int64_t i = 0; i < h.e; ++i) {
      out.dq[h.at(query, i)] = total(h.style.sum, n,
                                     [&](std::int64_t j) {
                                       return Term{ds[index_of(j)], h.k[h.at(keys[index_of(j)], i)]};
                                     }) *
                               h.scale();
      for (std::size_t j = 0; j < keys.size(); ++j) {
        const std::size_t key = index_of(keys[j] * h.e + i);
        if (twist == Twist::dk_last_query_block && query % 16 == 0) dk[key].clear();
        dk[key].push_back({ds[j], h.q[h.at(query, i)]});
        dv[key].push_back({p[j], g[h.at(query, i)]});
      }
    }
  }
  for (std::size_t i = 0; i < dk.size(); ++i) {
    out.dk[h.base + i] = h.style.sum(dk[i]) * (twist == Twist::scale_missing_in_dk ? 1.0f : h.scale());
    out.dv[h.base + i] = h.style.sum(dv[i]) * (twist == Twist::dv_scaled ? h.scale() : 1.0f);
  }
}

template <class F>
void for_heads(const Call& call, const Values& q, const Values& k, const Values& v, const Style& style, F visit) {
  const Shape& s = call.shape("q");
  for (std::int64_t head = 0; head < s[0] * s[1]; ++head)
    visit(Head{q, k, v, index_of(head * s[2] * s[3]), s[2], s[3], call.integer("causal") != 0, style}, head,
          index_of(head * s[2]));
}

void forward(const Call& call, const Style& style) {
  const Values q = call.in("q"), k = call.in("k"), v = call.in("v");
  Values o(q.size()), lse(index_of(call.rows("q")));
  if (call.columns("q") == 0) lse.assign(index_of(call.shape("lse").count()), 0);
  for_heads(call, q, k, v, style, [&](const Head& h, std::int64_t, std::size_t first) {
    for (std::int64_t query = 0; query < h.t; ++query) {
      const float value = attend(h, query, o);
      lse[first + index_of(query)] = style.twist == Twist::lse_in_bf16 ? bf16(value) : value;
    }
  });
  call.out("o", o);
  call.out("lse", lse);
}

void backward(const Call& call, const Style& style) {
  const Values q = call.in("q"), k = call.in("k"), v = call.in("v"), g = call.in("do"), lse = call.in("lse");
  Gradients out{Values(q.size()), Values(q.size()), Values(q.size())};
  Values o(q.size());
  for_heads(call, q, k, v, style, [&](const Head& h, std::int64_t, std::size_t first) {
    for (std::int64_t query = 0; query < h.t; ++query) attend(h, query, o);
    differentiate(h, g, o, lse, style.twist == Twist::lse_of_first_head ? 0 : first, call.dtype("q"), out);
  });
  if (style.twist == Twist::gradients_swapped) std::swap(out.dq, out.dk);
  call.out("dq", out.dq);
  call.out("dk", out.dk);
  call.out("dv", out.dv);
}

Kernel attention(Style style) {
  return kernel_of([style](const Call& call) { forward(call, style); },
                   [style](const Call& call) { backward(call, style); }, style.slip);
}

using V = Verdict;

}  // namespace

std::vector<Specimen> attention_specimens() {
  std::vector<Specimen> out;
  add(out, "attention",
      {{"scale_missing_in_dk", 1, "dk without 1/sqrt(E)", "E other than 1", V::bug, "factor",
        attention({Twist::scale_missing_in_dk})},
       {"mask_missing_in_backward", 32, "backward sees future keys", "causal", V::bug, "mask|leak|future|triangle",
        attention({Twist::mask_missing_in_backward}), kAllTypes, V::structural},
       {"mask_off_by_one", 14, "a query sees one key of the future", "causal", V::bug, "mask|leak|off by one|future",
        attention({Twist::mask_off_by_one})},
       {"delta_missing", 3, "ds = p dp", "any", V::bug, "term missing|missing term|without the term",
        attention({Twist::delta_missing})},
       {"delta_of_stored_output", 25, "delta from o as stored", "any", V::precision_contract,
        "rounded|stored|saved|keeps|takes", attention({Twist::delta_of_stored_output}), kHalfTypes, V::bug},
       {"p_in_storage", 25, "p of backward is rounded to the storage type", "any", V::precision_contract,
        "rounded|stored|saved|keeps|takes", attention({Twist::p_in_storage}), kHalfTypes, V::bug},
       {"lse_in_bf16", 27, "lse is saved in bf16", "any", V::precision_contract, "rounded|stored|saved|keeps|takes",
        attention({Twist::lse_in_bf16}), kAllTypes, V::bug},
       {"scale_in_bf16", 26, "1/sqrt(E) is rounded to bf16", "E no power of four", V::precision_contract,
        "scale|factor|rounded|keeps|takes", attention({Twist::scale_in_bf16}), kAllTypes, V::bug},
       {"no_rescaling", 40, "online softmax that does not rescale when the maximum grows", "more than 4 keys", V::bug,
        "rescal|factor", attention({Twist::no_rescaling})},
       {"gradients_swapped", 7, "dq and dk are exchanged", "any", V::bug, "swap|another|another output or gradient",
        attention({Twist::gradients_swapped})},
       {"lse_of_first_head", 9, "every head takes the lse of the first", "more than one head", V::bug,
        "another row|another head|head", attention({Twist::lse_of_first_head}), kAllTypes, V::structural},
       {"dk_last_query_block", 16, "query blocks of 16 overwrite each other's dk", "more than 16 queries", V::bug,
        "overwrit|lost|block|only the last", attention({Twist::dk_last_query_block}), kAllTypes, V::structural},
       {"key_tail", 13, "keys after the last full tile of 16 are left out", "more than 16 keys", V::bug,
        "tail|last full vector", attention({Twist::keys_of_16}), kAllTypes, V::structural},
       {"dense_cotangent", 18, "do is read as if row-major", "strided do", V::structural, "strided",
        attention({.slip = {Io::read_dense, "do"}})},
       {"strides_of_q", 20, "v is read with the strides of q", "q or v strided alone", V::structural, "strided",
        attention({.slip = {Io::read_with_strides, "v", 1, "q"}})},
       {"no_shift", 28, "exp(s) without subtracting the maximum", "scores above 88", V::bug,
        "overflow|inf-inf|infinite", attention({Twist::no_shift}), kAllTypes, V::range_declared},
       {"scale_without_root", 1, "scores are divided by E", "E other than 1", V::bug, "factor|scale",
        attention({Twist::scale_without_root})},
       {"soft_mask", 32, "future keys lose 10 of their score, and stay", "causal, scores that differ by more", V::bug,
        "mask|leak|future|triangle", attention({Twist::soft_mask}), kAllTypes, V::structural},
       {"value_of_before", 14, "a key meets the value of the key before it", "more than one key", V::bug,
        "previous|shift|another row|index|off by one", attention({Twist::value_of_before}), kAllTypes, V::structural},
       {"lse_of_next", 17, "backward takes the logarithm of the next query", "more than one query", V::bug,
        "another row|next|shift|index|off by one", attention({Twist::lse_of_next}), kAllTypes, V::structural},
       {"only_before", 14, "a query does not see its own key", "causal", V::bug, "mask|off by one",
        attention({Twist::only_before})},
       {"dv_scaled", 1, "dv with 1/sqrt(E)", "E other than 1", V::bug, "factor", attention({Twist::dv_scaled})},
       {"race", 38, "a missing barrier: every third sum loses a term", "repeats", V::structural, "repeats differ",
        attention({.sum = racing}), kAllTypes, V::bug}},
      {{"flash", "blocks of keys with a running maximum, delta = sum do o", attention({Twist::flash}),
        "p = exp(s - lse), p (dp - sum g o)"},
       {"delta_of_output", "delta = sum do o", attention({Twist::delta_of_output}),
        "p = exp(s - lse), p (dp - sum g o)"},
       {"scaled_queries", "(q scale) k^T", attention({Twist::scaled_queries}), "scaled q, p = e/l"},
       {"pairwise", "pairwise sums", attention({.sum = pairwise})},
       {"keys_from_the_end", "sums run backwards", attention({.sum = backwards})}});
  return out;
}

}  // namespace ampcheck::checks::zoo
