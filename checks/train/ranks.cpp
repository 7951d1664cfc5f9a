// SPDX-License-Identifier: Apache-2.0
#include "checks/train/ranks.h"

#include <algorithm>
#include <cmath>

#include "checks/train/graph_entry.h"
#include "src/amp/blocks.h"
#include "src/error.h"

namespace ampcheck::checks::train {

namespace {

/// sum += more, of `count` elements from `from` on, rounded to their dtype.
void add_part(const TensorView& sum, const TensorView& more, std::int64_t from, std::int64_t count) {
  float a[kBlock], b[kBlock];
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t part = std::min<std::int64_t>(kBlock, count - at);
    load_block(sum, from + at, part, a);
    load_block(more, from + at, part, b);
    for (std::int64_t i = 0; i < part; ++i) a[i] += b[i];
    store_block(sum, from + at, part, a);
  }
}

/// Rounded to `to`, and there divided by `by`.
Tensor divided(const TensorView& from, Dtype to, float by) {
  Tensor out = converted(from, to);
  float a[kBlock];
  for (std::int64_t at = 0; by != 1 && at < from.count(); at += kBlock) {
    const std::int64_t part = std::min<std::int64_t>(kBlock, from.count() - at);
    load_block(out.view(), at, part, a);
    for (std::int64_t i = 0; i < part; ++i) a[i] /= by;
    store_block(out.view(), at, part, a);
  }
  return out;
}

}  // namespace

std::string str(const ReduceOptions& options) {
  return std::string(options.order == ReduceOptions::Order::ring ? "reduce ring" : "reduce tree") +
         (options.divide == ReduceOptions::Divide::pre ? " divide pre" : " divide post") + " compress " +
         (options.compress ? name(*options.compress) : "none");
}

Tensor all_reduce_mean(std::span<const TensorView> of_ranks, const ReduceOptions& options) {
  const Dtype wire = options.compress.value_or(of_ranks.front().dtype);
  const std::size_t ranks = of_ranks.size();
  const auto by = static_cast<float>(ranks);
  std::vector<Tensor> sent;
  for (const TensorView& view : of_ranks) {
    if (!(view.shape == of_ranks.front().shape))
      throw Error("[ranks] gradient, got " + view.shape.str() + ", want " + of_ranks.front().shape.str() +
                  " on every rank");
    sent.push_back(divided(view, wire, options.divide == ReduceOptions::Divide::pre ? by : 1));
  }
  Tensor out;
  if (options.order == ReduceOptions::Order::tree) {
    for (std::size_t stride = 1; stride < ranks; stride *= 2)
      for (std::size_t r = 0; r + stride < ranks; r += 2 * stride)
        add_part(sent[r].view(), sent[r + stride].view(), 0, sent[r].count());
    out = sent.front();
  } else {
    const std::int64_t n = sent.front().count(),
                       chunk = (n + static_cast<std::int64_t>(ranks) - 1) / static_cast<std::int64_t>(ranks);
    out = Tensor(wire, of_ranks.front().shape);
    for (std::size_t c = 0; c < ranks; ++c) {
      const std::int64_t from = std::min(n, static_cast<std::int64_t>(c) * chunk), count = std::min(chunk, n - from);
      // An element's first addition is to zero, which is exact; -0 + 0 loses its sign, which no sum keeps.
      for (std::size_t hop = 1; hop <= ranks; ++hop) add_part(out.view(), sent[(c + hop) % ranks].view(), from, count);
    }
  }
  return options.divide == ReduceOptions::Divide::post ? divided(out.view(), wire, by) : out;
}

std::vector<double> exact_mean(std::span<const TensorView> of_ranks) {
  std::vector<double> out = to_doubles(of_ranks.front());
  for (const TensorView& view : of_ranks.subspan(1)) {
    const std::vector<double> more = to_doubles(view);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += more[i];
  }
  for (double& v : out) v /= static_cast<double>(of_ranks.size());
  return out;
}

Sent sent_by(std::span<const TensorView> of_ranks, const ReduceOptions& options) {
  Sent out{exact_mean(of_ranks), 0};
  const double share = options.divide == ReduceOptions::Divide::pre ? 1 / static_cast<double>(of_ranks.size()) : 1;
  std::vector<double> largest(out.least.size(), 0), sums(out.least.size(), 0);
  for (const TensorView& view : of_ranks) {
    const std::vector<double> values = to_doubles(view);
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest[i] = std::max(largest[i], share * std::fabs(values[i]));
      sums[i] += share * std::fabs(values[i]);
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    out.least[i] = std::min(std::fabs(out.least[i]), largest[i]);
    if (std::isfinite(sums[i])) out.most = std::max(out.most, sums[i]);
  }
  return out;
}

Tensor in_dtype(const Tensor& tensor, Dtype dtype) {
  return tensor.dtype() == dtype ? tensor : converted(tensor.view(), dtype);
}

}  // namespace ampcheck::checks::train
