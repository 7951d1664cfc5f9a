// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Attention of the zoo that were its unseen part once; rules have followed from them since.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Correct.
  keys_in_parts,
  // Wrong.
  dv_unnormalised,
  scale_squared_in_dq,
  keys_of_half_head,
  sentinel_of_100,
  delta_of_query_before,
  last_queries_lost,
};

/// The scores of one query, their exponentials about the largest and the sum of these.
struct Scores {
  Values s, e;
  float shift = 0, total = 0;
};

struct Head {
  const Values &q, &k, &v;
  std::size_t own, keys;  ///< where the head begins in q, and in k and v
  std::int64_t t, e;
  bool causal;
  Twist twist;

  float scale() const { return 1 / std::sqrt(static_cast<float>(e)); }
  /// Keys that a query looks at.
  std::int64_t count(std::int64_t query) const { return causal && twist != Twist::sentinel_of_100 ? query + 1 : t; }
  std::size_t at(std::size_t base, std::int64_t row, std::int64_t i) const { return base + index_of(row * e + i); }

  Scores scores(std::int64_t query) const {
    Scores out;
    for (std::int64_t key = 0; key < count(query); ++key) {
      if (causal && key > query) {  // a number for what is hidden
        out.s.push_back(-100);
        continue;
      }
      const float dot = total(in_order, e, [&](std::int64_t i) {
        return Term{q[at(own, query, i)], k[at(keys, key, i)]};
      });
      out.s.push_back(dot * scale());
    }
    out.shift = largest(out.s);
    for (const float score : out.s) {
      out.e.push_back(std::exp(score - out.shift));
      out.total += out.e.back();
    }
    return out;
  }

  /// One row of o. Returns lse.
  float attend(std::int64_t query, Values& o) const {
    const Scores row = scores(query);
    if (twist == Twist::keys_in_parts) return attend_in_parts(query, row.s, o);
    for (std::int64_t i = 0; i < e; ++i)
      o[at(own, query, i)] = total(in_order, static_cast<std::int64_t>(row.e.size()), [&](std::int64_t key) {
        return Term{row.e[index_of(key)] / row.total, v[at(keys, key, i)]};
      });
    return row.shift + std::log(row.total);
  }

  /// Parts of 8 keys, each with its own maximum, sum and products, as if they ran side by side; then merged.
  float attend_in_parts(std::int64_t query, const Values& s, Values& o) const {
    struct Part {
      float shift, total;
      Values sums;
    };
    const float shift = largest(s);
    std::vector<Part> parts;
    for (std::size_t begin = 0; begin < s.size(); begin += 8) {
      const std::size_t end = std::min(begin + 8, s.size());
      Part part{largest(std::span(s).subspan(begin, end - begin)), 0, Values(index_of(e))};
      for (std::size_t key = begin; key < end; ++key) {
        const bool hidden = part.shift == -INFINITY && shift != -INFINITY;
        const float p = hidden ? 0.0f : std::exp(s[key] - part.shift);
        part.total += p;
        for (std::int64_t i = 0; i < e; ++i)
          part.sums[index_of(i)] += p * v[at(keys, static_cast<std::int64_t>(key), i)];
      }
      parts.push_back(std::move(part));
    }
    float all = 0;
    Values sums(index_of(e));
    for (const Part& part : parts) {
      const float weight = part.shift == shift ? 1.0f : std::exp(part.shift - shift);
      all += weight * part.total;
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weight * part.sums[i];
    }
    for (std::int64_t i = 0; i < e; ++i) o[at(own, query, i)] = sums[index_of(i)] / all;
    return shift + std::log(all);
  }
};

struct Gradients {
  Values dq, dk, dv;
};

void differentiate(const Head& h, const Values& g, std::span<const float> lse, Gradients& out) {
  float before = 0;
  for (std::int64_t query = 0; query < h.t; ++query) {
    const Scores row = h.scores(query);
    const std::int64_t n = h.count(query);
    Values p, dp;
    for (std::int64_t key = 0; key < n; ++key) {
      p.push_back(std::exp(row.s[index_of(key)] - lse[index_of(query)]));
      dp.push_back(total(in_order, h.e, [&](std::int64_t i) {
        return Term{g[h.at(h.own, query, i)], h.v[h.at(h.keys, key, i)]};
      }));
    }
    const float own = total(in_order, n, [&](std::int64_t key) { return Term{p[index_of(key)], dp[index_of(key)]}; });
    const float delta = h.twist == Twist::delta_of_query_before && query > 0 ? before : own;
    before = own;
    const bool lost = h.twist == Twist::last_queries_lost && h.t > 16 && query >= h.t / 16 * 16;
    const float of_dq = h.twist == Twist::scale_squared_in_dq ? h.scale() * h.scale() : h.scale();
    for (std::int64_t i = 0; i < h.e; ++i) {
      float dq = 0;
      for (std::int64_t key = 0; key < n; ++key) {
        const float ds = p[index_of(key)] * (dp[index_of(key)] - delta);
        dq += ds * h.k[h.at(h.keys, key, i)];
        if (lost) continue;
        const float weight = h.twist == Twist::dv_unnormalised ? row.e[index_of(key)] : p[index_of(key)];
        out.dk[h.at(h.own, key, i)] += ds * h.q[h.at(h.own, query, i)];
        out.dv[h.at(h.own, key, i)] += weight * g[h.at(h.own, query, i)];
      }
      out.dq[h.at(h.own, query, i)] = dq * of_dq;
    }
  }
  for (std::int64_t i = 0; i < h.t * h.e; ++i) out.dk[h.own + index_of(i)] *= h.scale();
}

struct Inputs {
  Values q, k, v;
  explicit Inputs(const Call& call) : q(call.in("q")), k(call.in("k")), v(call.in("v")) {}
};

template <class F>
void for_heads(const Call& call, const Inputs& in, Twist twist, bool forward, F visit) {
  const Shape& s = call.shape("q");
  for (std::int64_t head = 0; head < s[0] * s[1]; ++head) {
    std::int64_t keys = head;
    // As if two heads of queries shared one of keys.
    if (twist == Twist::keys_of_half_head && forward) keys = head / s[1] * s[1] + head % s[1] / 2;
    const std::int64_t size = s[2] * s[3];
    visit(Head{in.q, in.k, in.v, index_of(head * size), index_of(keys * size), s[2], s[3], call.integer("causal") != 0,
               twist},
          index_of(head * s[2]));
  }
}

Kernel attention(Twist twist) {
  const auto forward = [twist](const Call& call) {
    const Inputs in(call);
    Values o(in.q.size()), lse(index_of(call.shape("lse").count()));
    if (call.columns("q") > 0)
      for_heads(call, in, twist, true, [&](const Head& h, std::size_t first) {
        for (std::int64_t query = 0; query < h.t; ++query) lse[first + index_of(query)] = h.attend(query, o);
      });
    call.out("o", o);
    call.out("lse", lse);
  };
  const auto backward = [twist](const Call& call) {
    const Inputs in(call);
    const Values g = call.in("do"), lse = call.in("lse");
    Gradients out{Values(in.q.size()), Values(in.q.size()), Values(in.q.size())};
    for_heads(call, in, twist, false, [&](const Head& h, std::size_t first) {
      differentiate(h, g, std::span(lse).subspan(first, index_of(h.t)), out);
    });
    call.out("dq", out.dq);
    call.out("dk", out.dk);
    call.out("dv", out.dv);
  };
  return kernel_of(forward, backward);
}

}  // namespace

std::vector<Specimen> common_attention_specimens() {
  std::vector<Specimen> out;
  add(out, "attention",
      {{"dv_unnormalised", 1, "dv takes exp(s - m), not divided by the sum", "any", V::bug,
        "factor|normali|without dividing|divid", attention(Twist::dv_unnormalised)},
       {"scale_squared_in_dq", 1, "dq has its scale twice", "E other than 1", V::bug, "factor",
        attention(Twist::scale_squared_in_dq)},
       {"keys_of_half_head", 45, "head h takes the keys and values of head h/2, as with grouped queries",
        "more than one head", V::structural,
        "another head|another row|rows are not independent|changes with other rows",
        attention(Twist::keys_of_half_head), kAllTypes, V::bug},
       {"sentinel_of_100", 32, "hidden scores are -100, not -inf", "causal, all visible scores far below zero", V::bug,
        "mask|leak|future|triangle", attention(Twist::sentinel_of_100), kAllTypes, V::structural},
       {"delta_of_query_before", 17, "ds takes the delta of the query before", "more than one query", V::bug,
        "another row|row before|shift|neighbour|delta|stale", attention(Twist::delta_of_query_before), kAllTypes,
        V::structural},
       {"last_queries_lost", 11, "dk and dv leave out the last, partial tile of 16 queries",
        "more than 16 queries, no multiple of 16", V::bug, "tail|last full vector|block|lost|last term",
        attention(Twist::last_queries_lost), kAllTypes, V::structural}},
      {{"keys_in_parts", "parts of 8 keys side by side, then merged", attention(Twist::keys_in_parts), "one pass"}});
  return out;
}

}  // namespace ampcheck::checks::zoo
