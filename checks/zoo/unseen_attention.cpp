// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Attention of the unseen part of the zoo: written after public fixes of kernels, without a look at the rules.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Correct.
  divided_last,
  // Wrong.
  scale_of_length,
  over_queries,
  lse_without_maximum,
  ds_unweighted,
  masked_after_softmax,
  output_in_storage,
  keys_in_other_layout,
  dv_without_own_key,
  dq_of_last_tile,
  scale_in_backward_missing,
};

/// Where one head stands in the whole tensors.
struct Place {
  std::int64_t image, head, heads, t, e;
  std::size_t at(std::int64_t row, std::int64_t i) const {
    return index_of(((image * heads + head) * t + row) * e + i);
  }
  std::size_t at_other_layout(std::int64_t row, std::int64_t i) const {
    return index_of(((image * t + row) * heads + head) * e + i);
  }
};

/// What all kernels of this file compute in: fp32, or fp64 that is rounded once.
template <class R>
struct Tensors {
  std::vector<R> q, k, v;
};

template <class R>
struct Head {
  const Tensors<R>& in;
  Place place;
  bool causal;
  Twist twist;
  Dtype storage;

  R scale() const {
    const auto extent = static_cast<R>(twist == Twist::scale_of_length ? place.t : place.e);
    return 1 / std::sqrt(extent);
  }
  std::int64_t visible(std::int64_t query) const { return causal ? query + 1 : place.t; }
  std::int64_t summed(std::int64_t query) const {
    return twist == Twist::masked_after_softmax ? place.t : visible(query);
  }
  R score(std::int64_t query, std::int64_t key) const {
    const bool other = twist == Twist::keys_in_other_layout;
    R s = 0;
    for (std::int64_t i = 0; i < place.e; ++i)
      s += in.q[place.at(query, i)] * in.k[other ? place.at_other_layout(key, i) : place.at(key, i)];
    return s * scale();
  }

  struct Row {
    std::vector<R> s;
    R shift = -INFINITY, total = 0;
    R p(std::size_t key) const { return std::exp(s[key] - shift) / total; }
  };
  Row row(std::int64_t query) const {
    Row out;
    for (std::int64_t key = 0; key < summed(query); ++key) {
      out.s.push_back(score(query, key));
      if (out.s.back() > out.shift || out.s.back() != out.s.back()) out.shift = out.s.back();
    }
    for (const R s : out.s) out.total += std::exp(s - out.shift);
    return out;
  }
  /// Of one key over the queries that see it: what a softmax along the wrong axis divides by.
  Row column(std::int64_t key) const {
    Row out;
    for (std::int64_t query = causal ? key : 0; query < place.t; ++query) {
      out.s.push_back(score(query, key));
      if (out.s.back() > out.shift || out.s.back() != out.s.back()) out.shift = out.s.back();
    }
    for (const R s : out.s) out.total += std::exp(s - out.shift);
    return out;
  }

  R output(const Row& row, std::int64_t query, std::int64_t i) const {
    R sum = 0;
    for (std::int64_t key = 0; key < visible(query); ++key) {
      const std::size_t at = index_of(key);
      const R value = in.v[place.at(key, i)];
      if (twist == Twist::divided_last || twist == Twist::output_in_storage) {
        sum += std::exp(row.s[at] - row.shift) * value;
        const bool ends = key % 16 == 15 || key + 1 == visible(query);
        if (twist == Twist::output_in_storage && ends) sum = static_cast<R>(rounded(storage, static_cast<float>(sum)));
      } else if (twist == Twist::over_queries) {
        sum += column(key).p(index_of(causal ? query - key : query)) * value;
      } else {
        sum += row.p(at) * value;
      }
    }
    return twist == Twist::divided_last || twist == Twist::output_in_storage ? sum / row.total : sum;
  }

  /// One row of o. Returns lse.
  float attend(std::int64_t query, Values& o) const {
    const Row own = row(query);
    for (std::int64_t i = 0; i < place.e; ++i) o[place.at(query, i)] = static_cast<float>(output(own, query, i));
    const R log_l = std::log(own.total);
    return static_cast<float>(twist == Twist::lse_without_maximum ? log_l : own.shift + log_l);
  }

  void differentiate(const std::vector<R>& g, std::span<const float> lse, std::vector<R>& dq, std::vector<R>& dk,
                     std::vector<R>& dv) const {
    for (std::int64_t query = 0; query < place.t; ++query) {
      const std::int64_t n = visible(query);
      std::vector<R> p, dp;
      R delta = 0;
      for (std::int64_t key = 0; key < n; ++key) {
        p.push_back(std::exp(score(query, key) - static_cast<R>(lse[index_of(query)])));
        dp.push_back(0);
        for (std::int64_t i = 0; i < place.e; ++i) dp.back() += g[place.at(query, i)] * in.v[place.at(key, i)];
        delta += p.back() * dp.back();
      }
      for (std::int64_t key = 0; key < n; ++key) {
        const std::size_t at = index_of(key);
        const R ds = (twist == Twist::ds_unweighted ? dp[at] - delta : p[at] * (dp[at] - delta));
        const bool clears = twist == Twist::dq_of_last_tile && key % 16 == 0;
        const bool skips = twist == Twist::dv_without_own_key && causal && key == query;
        for (std::int64_t i = 0; i < place.e; ++i) {
          R& dq_i = dq[place.at(query, i)];
          dq_i = (clears ? 0 : dq_i) + ds * in.k[place.at(key, i)];
          dk[place.at(key, i)] += ds * in.q[place.at(query, i)];
          if (!skips) dv[place.at(key, i)] += p[at] * g[place.at(query, i)];
        }
      }
    }
    const R factor = twist == Twist::scale_in_backward_missing ? 1 : scale();
    for (std::int64_t at = 0; at < place.t; ++at)
      for (std::int64_t i = 0; i < place.e; ++i) {
        dq[place.at(at, i)] *= factor;
        dk[place.at(at, i)] *= scale();
      }
  }
};

template <class R>
std::vector<R> read(const Call& call, const char* name) {
  const Values values = call.in(name);
  return {values.begin(), values.end()};
}
template <class R>
Values narrowed(const std::vector<R>& values) {
  Values out;
  for (const R v : values) out.push_back(static_cast<float>(v));
  return out;
}

template <class R, class F>
void for_heads(const Call& call, const Tensors<R>& in, Twist twist, F visit) {
  const Shape& s = call.shape("q");
  for (std::int64_t image = 0; image < s[0]; ++image)
    for (std::int64_t head = 0; head < s[1]; ++head)
      visit(Head<R>{in, {image, head, s[1], s[2], s[3]}, call.integer("causal") != 0, twist, call.dtype("q")},
            index_of((image * s[1] + head) * s[2]));
}

template <class R>
Kernel attention(Twist twist) {
  return kernel_of(
      [twist](const Call& call) {
        const Tensors<R> in{read<R>(call, "q"), read<R>(call, "k"), read<R>(call, "v")};
        Values o(in.q.size()), lse(index_of(call.shape("lse").count()));
        if (call.columns("q") > 0)
          for_heads(call, in, twist, [&](const Head<R>& h, std::size_t first) {
            for (std::int64_t query = 0; query < h.place.t; ++query) lse[first + index_of(query)] = h.attend(query, o);
          });
        call.out("o", o);
        call.out("lse", lse);
      },
      [twist](const Call& call) {
        const Tensors<R> in{read<R>(call, "q"), read<R>(call, "k"), read<R>(call, "v")};
        const std::vector<R> g = read<R>(call, "do");
        const Values lse = call.in("lse");
        std::vector<R> dq(g.size()), dk(g.size()), dv(g.size());
        for_heads(call, in, twist, [&](const Head<R>& h, std::size_t first) {
          h.differentiate(g, std::span(lse).subspan(first, index_of(h.place.t)), dq, dk, dv);
        });
        call.out("dq", narrowed(dq));
        call.out("dk", narrowed(dk));
        call.out("dv", narrowed(dv));
      });
}

}  // namespace

std::vector<Specimen> unseen_attention_specimens() {
  std::vector<Specimen> out;
  const auto kernel = [](Twist twist) { return attention<float>(twist); };
  add(out, "attention",
      {{"scale_of_length", 48, "scores are divided by the root of T, not of E", "T other than E", V::bug,
        "factor|scale|constant|sqrt|root", kernel(Twist::scale_of_length)},
       {"softmax_over_queries", 8, "the softmax of forward runs along the queries", "more than one query", V::bug,
        "axis|transpos|another|queries|rows|sum to 1|normali", kernel(Twist::over_queries), kAllTypes, V::structural},
       {"lse_without_maximum", 3, "lse is saved without the largest score", "scores that are not 0", V::bug,
        "maximum|shift|term missing|missing term|without the term|missing|factor|max|overflow|infinite|leaves the "
        "range",
        kernel(Twist::lse_without_maximum), kAllTypes, V::range_declared},
       {"ds_unweighted", 3, "ds = dp - delta, without its factor p", "any", V::bug,
        "factor|missing|without|term missing|weight", kernel(Twist::ds_unweighted)},
       {"masked_after_softmax", 32, "hidden keys are left out behind the softmax, whose sum holds them", "causal",
        V::bug, "mask|leak|future|triangle|normali|sum|factor", kernel(Twist::masked_after_softmax), kAllTypes,
        V::structural},
       {"output_in_storage", 23, "the sums of e v are kept in the storage type between tiles of 16 keys", "any",
        V::precision_contract, "rounded|stored|accumulates|keeps|takes|partial", kernel(Twist::output_in_storage),
        kHalfTypes, V::bug},
       {"keys_in_other_layout", 20, "keys are read as [B, T, H, E]", "more than one head", V::structural,
        "transpos|layout|stride|another head|another row|permut|rows are not independent|changes with other rows|axis|"
        "index",
        kernel(Twist::keys_in_other_layout), kAllTypes, V::bug},
       {"dv_without_own_key", 14, "dv leaves out the query of the key's own place", "causal", V::bug,
        "mask|off by one|triangle|diagonal|lost|leaves out|left out|term", kernel(Twist::dv_without_own_key)},
       {"dq_of_last_tile", 16, "tiles of 16 keys overwrite each other's dq", "more than 16 keys", V::bug,
        "overwrit|only the last|lost|block|tile|accumul|leaves out|left out", kernel(Twist::dq_of_last_tile), kAllTypes,
        V::structural},
       {"scale_missing_in_dq", 1, "dq without 1/sqrt(E)", "E other than 1", V::bug, "factor|scale|sqrt",
        kernel(Twist::scale_in_backward_missing)}},
      {{"divided_last", "(e v) / l", kernel(Twist::divided_last), "(e v) / l, p = exp(s - lse), p (dp - sum p dp)"},
       {"all_in_double", "in fp64, rounded once", attention<double>(Twist::none)}});
  return out;
}

}  // namespace ampcheck::checks::zoo
