// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Attention: scales, masks, heads and sums that are not the ones in the paper.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Forward.
  values_of_first_head,
  mask_reversed,
  mask_after_softmax,
  output_in_bf16,
  scores_in_fp16,
  base_two,
  scale_missing,
  scale_by_keys,
  divided_by_count,
  // Backward.
  scale_missing_in_dq,
  delta_without_p,
  own_key_lost,
  lse_in_base_two,
  dv_of_dp,
  ds_added,
  dk_of_keys,
  do_of_first_query,
};

struct Head {
  const Values &q, &k, &v;
  std::size_t own, values;  ///< where the head begins in q and k, and in v
  std::int64_t t, e;
  bool causal;
  Twist twist;

  std::size_t at(std::int64_t row, std::int64_t i) const { return own + index_of(row * e + i); }
  float value(std::int64_t key, std::int64_t i) const { return v[values + index_of(key * e + i)]; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(twist == Twist::scale_by_keys ? t : e)); }
  bool hidden(std::int64_t query, std::int64_t key) const {
    return causal && (twist == Twist::mask_reversed ? key < query : key > query);
  }

  /// Scores of all keys, -inf where they are hidden.
  Values scores(std::int64_t query, bool masked = true) const {
    Values s;
    for (std::int64_t key = 0; key < t; ++key) {
      const float dot = total(in_order, e, [&](std::int64_t i) { return Term{q[at(query, i)], k[at(key, i)]}; });
      const float score = twist == Twist::scale_missing ? dot : dot * scale();
      s.push_back(masked && hidden(query, key) ? -INFINITY : twist == Twist::scores_in_fp16 ? fp16(score) : score);
    }
    return s;
  }

  /// One row of o. Returns lse.
  float attend(std::int64_t query, Values& o) const {
    const Values s = scores(query, twist != Twist::mask_after_softmax);
    const float shift = largest(s);
    Values p;
    float sum = 0;
    for (const float score : s) {
      p.push_back(twist == Twist::base_two ? std::exp2(score - shift) : std::exp(score - shift));
      sum += p.back();
    }
    const float by = twist == Twist::divided_by_count ? static_cast<float>(t) : sum;
    for (std::int64_t i = 0; i < e; ++i) {
      float out = 0;
      for (std::int64_t key = 0; key < t; ++key) {
        if (hidden(query, key)) continue;
        out += p[index_of(key)] / by * value(key, i);
        if (twist == Twist::output_in_bf16) out = bf16(out);
      }
      o[at(query, i)] = out;
    }
    const float log_l = std::log(sum);
    return twist == Twist::lse_in_base_two ? (shift + log_l) * 1.44269504f : shift + log_l;
  }
};

struct Gradients {
  Values dq, dk, dv;
};

void differentiate(const Head& h, const Values& g, std::span<const float> lse, Gradients& out) {
  for (std::int64_t query = 0; query < h.t; ++query) {
    const Values s = h.scores(query);
    Values p, dp;
    for (std::int64_t key = 0; key < h.t; ++key) {
      p.push_back(h.hidden(query, key) ? 0.0f : std::exp(s[index_of(key)] - lse[index_of(query)]));
      dp.push_back(total(in_order, h.e, [&](std::int64_t i) { return Term{g[h.at(query, i)], h.value(key, i)}; }));
    }
    float delta = 0;
    for (std::int64_t key = 0; key < h.t; ++key)
      if (!h.hidden(query, key))
        delta += (h.twist == Twist::delta_without_p ? 1.0f : p[index_of(key)]) * dp[index_of(key)];
    if (h.twist == Twist::ds_added) delta = -delta;
    for (std::int64_t key = 0; key < h.t; ++key) {
      if (h.hidden(query, key)) continue;
      const float ds = p[index_of(key)] * (dp[index_of(key)] - delta);
      const std::int64_t of = h.twist == Twist::do_of_first_query ? 0 : query;
      for (std::int64_t i = 0; i < h.e; ++i) {
        out.dq[h.at(query, i)] += ds * h.k[h.at(key, i)];
        if (h.twist == Twist::own_key_lost && key == query) continue;
        out.dk[h.at(key, i)] += ds * (h.twist == Twist::dk_of_keys ? h.k[h.at(key, i)] : h.q[h.at(query, i)]);
        out.dv[h.at(key, i)] += (h.twist == Twist::dv_of_dp ? ds : p[index_of(key)]) * g[h.at(of, i)];
      }
    }
  }
  for (std::int64_t at = 0; at < h.t * h.e; ++at) {
    if (h.twist != Twist::scale_missing_in_dq) out.dq[h.own + index_of(at)] *= h.scale();
    out.dk[h.own + index_of(at)] *= h.scale();
  }
}

Kernel attention(Twist of_forward, Twist of_backward = Twist::none) {
  const auto for_heads = [](const Call& call, const Values* qkv, Twist twist, auto visit) {
    const Shape& s = call.shape("q");
    const std::int64_t size = s[2] * s[3];
    for (std::int64_t head = 0; head < s[0] * s[1]; ++head) {
      const std::int64_t values = twist == Twist::values_of_first_head ? head / s[1] * s[1] : head;
      visit(Head{qkv[0], qkv[1], qkv[2], index_of(head * size), index_of(values * size), s[2], s[3],
                 call.integer("causal") != 0, twist},
            index_of(head * s[2]));
    }
  };
  const auto forward = [=](const Call& call) {
    const Values qkv[3] = {call.in("q"), call.in("k"), call.in("v")};
    Values o(qkv[0].size()), lse(index_of(call.shape("lse").count()));
    if (call.columns("q") > 0)
      for_heads(call, qkv, of_forward, [&](const Head& h, std::size_t first) {
        for (std::int64_t query = 0; query < h.t; ++query) lse[first + index_of(query)] = h.attend(query, o);
      });
    call.out("o", o);
    call.out("lse", lse);
  };
  const auto backward = [=](const Call& call) {
    const Values qkv[3] = {call.in("q"), call.in("k"), call.in("v")}, g = call.in("do"), lse = call.in("lse");
    Gradients out{Values(qkv[0].size()), Values(qkv[0].size()), Values(qkv[0].size())};
    for_heads(call, qkv, of_backward, [&](const Head& h, std::size_t first) {
      differentiate(h, g, std::span(lse).subspan(first, index_of(h.t)), out);
    });
    call.out("dq", out.dq);
    call.out("dk", out.dk);
    call.out("dv", out.dv);
  };
  return kernel_of(forward, backward);
}
Kernel backward(Twist twist) { return attention(Twist::none, twist); }

}  // namespace

std::vector<Specimen> further_head_specimens() {
  std::vector<Specimen> out;
  add(out, "attention",
      {{"values_of_first_head", 45, "every head of a batch takes the values of its first one", "more than one head",
        V::structural, "another head|head|another row|rows are not independent|changes with other rows",
        attention(Twist::values_of_first_head), kAllTypes, V::bug},
       {"mask_reversed", 32, "a causal query sees itself and the future", "causal", V::bug,
        "mask|triangle|revers|transpos|future|leak", attention(Twist::mask_reversed), kAllTypes, V::structural},
       {"mask_after_softmax", 32, "hidden keys are taken out after the division by the sum of all", "causal", V::bug,
        "mask|normali|sum of|factor|hidden|future|divid|leak", attention(Twist::mask_after_softmax), kAllTypes,
        V::structural},
       {"output_in_bf16", 23, "o is accumulated in bf16", "any", V::precision_contract, "accumulates in bf16",
        attention(Twist::output_in_bf16)},
       {"scores_in_fp16", 25, "scores are rounded to fp16", "any", V::precision_contract,
        "keeps|rounded|stored|overflow", attention(Twist::scores_in_fp16), kAllTypes, V::bug},
       {"base_two", 48, "2^(s - m), with no log2(e) in the scale", "any", V::bug,
        "base|exp2|factor|constant|log2|ln 2|log(2)|another|2^v for e^v", attention(Twist::base_two)},
       {"scale_missing", 1, "scores without 1/sqrt(E)", "E above 1", V::bug, "factor|scale|missing|without|sqrt|root",
        attention(Twist::scale_missing)},
       {"scale_by_keys", 45, "scores times 1/sqrt(T)", "T other than E", V::bug,
        "factor|scale|count|extent|sqrt|root|constant", attention(Twist::scale_by_keys)},
       {"average_of_exponentials", 42, "o is divided by the number of keys, not by the sum", "any", V::bug,
        "factor|normali|divid|sum|count", attention(Twist::divided_by_count)},
       {"dq_without_scale", 1, "dq without 1/sqrt(E)", "E above 1", V::bug, "factor|scale|missing|without",
        backward(Twist::scale_missing_in_dq)},
       {"delta_without_p", 3, "delta = sum dp, where sum p dp is due", "more than one key", V::bug,
        "factor|missing|without|delta|weigh|dot", backward(Twist::delta_without_p)},
       {"own_key_lost", 14, "dk and dv leave out the query at the key's own place", "any", V::bug,
        "mask|diagonal|own|off by one|triangle|lost|leaves out|left out", backward(Twist::own_key_lost), kAllTypes,
        V::structural},
       {"lse_in_base_two", 48, "lse is saved times log2(e), backward takes exp(s - lse)", "any", V::bug,
        "base|log2|factor|constant|lse|ln 2|log(2)|times", attention(Twist::lse_in_base_two)},
       {"dv_of_ds", 7, "dv = ds^T do, where p^T do is due", "any", V::structural,
        "another|ds for p|factor|in place|linear in the cotangent|homogeneity", backward(Twist::dv_of_dp), kAllTypes,
        V::bug},
       {"delta_added", 2, "ds = p (dp + delta)", "any", V::bug, "sign|plus|added", backward(Twist::ds_added)},
       {"dk_of_keys", 7, "dk = ds^T k, where q is due", "any", V::bug,
        "another input|other input|k for q|swap|exchang|in place|another", backward(Twist::dk_of_keys)},
       {"dv_of_first_query", 9, "dv takes the cotangent of the first query for every one", "more than one query",
        V::bug, "another row|first|broadcast|cotangent|another|row", backward(Twist::do_of_first_query), kAllTypes,
        V::structural}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
