// SPDX-License-Identifier: Apache-2.0
// Kernels in double: of images, channels and heads.
#include "kernels/double_parts.h"

namespace ampcheck::kernels::doubles {

namespace {

// ---- group_norm and batch_norm
// ---------------------------------------------------------------------------------------

/// Which elements of x [N, C, L] are normalised together: a group of an image, or a channel of all images.
struct Lines {
  std::size_t images, channels, places, count, length;
  bool of_batch;

  Lines(const KernelCall& call, bool batch) : of_batch(batch) {
    const std::vector<std::size_t> x = extents(call, "x");
    images = x[0];
    channels = x[1];
    places = x[2];
    const auto groups = batch ? 0 : static_cast<std::size_t>(call.attributes->integer("groups"));
    count = batch ? channels : images * groups;
    length = batch ? images * places : channels / groups * places;
  }
  std::size_t at(std::size_t line, std::size_t i) const {
    return of_batch ? (i / places * channels + line) * places + i % places : line * length + i;
  }
  std::size_t channel(std::size_t at) const { return at / places % channels; }
};

struct Statistics {
  double mean = 0, squares = 0;
};

Statistics statistics(const Numbers& x, const Lines& lines, std::size_t line) {
  Statistics out;
  for (std::size_t i = 0; i < lines.length; ++i) out.mean += x[lines.at(line, i)];
  out.mean /= static_cast<double>(lines.length);
  for (std::size_t i = 0; i < lines.length; ++i) {
    const double off = x[lines.at(line, i)] - out.mean;
    out.squares += off * off;
  }
  return out;
}

void normalize(const KernelCall& call, bool batch) {
  const Lines lines(call, batch);
  const Numbers x = in(call, "x"), weight = parameter(call, "weight", lines.channels, 1),
                bias = parameter(call, "bias", lines.channels, -0.0);
  Numbers y(x.size()), means, inverse;
  Numbers running_mean = batch ? in(call, "running_mean") : Numbers(),
          running_var = batch ? in(call, "running_var") : Numbers();
  for (std::size_t line = 0; line < lines.count; ++line) {
    const Statistics of = statistics(x, lines, line);
    const double inv = 1 / std::sqrt(of.squares / static_cast<double>(lines.length) + call.number("eps"));
    for (std::size_t i = 0; i < lines.length; ++i) {
      const std::size_t at = lines.at(line, i), c = lines.channel(at);
      y[at] = (x[at] - of.mean) * inv * weight[c] + bias[c];
    }
    means.push_back(of.mean);
    inverse.push_back(inv);
    if (!batch) continue;
    const double moved = call.number("momentum"), kept = 1 - moved;
    running_mean[line] = kept * running_mean[line] + moved * of.mean;
    running_var[line] = kept * running_var[line] + moved * (of.squares / static_cast<double>(lines.length - 1));
  }
  out(call, "y", y);
  out(call, "mean", means);
  out(call, "inv_std", inverse);
  if (!batch) return;
  out(call, "new_running_mean", running_mean);
  out(call, "new_running_var", running_var);
}

void normalize_backward(const KernelCall& call, bool batch) {
  const Lines lines(call, batch);
  const Numbers x = in(call, "x"), dy = in(call, "dy"), weight = parameter(call, "weight", lines.channels, 1),
                means = in(call, "mean"), inverse = in(call, "inv_std");
  Numbers dx(x.size()), dweight(lines.channels), dbias(lines.channels);
  for (std::size_t line = 0; line < lines.count; ++line) {
    const auto normal = [&](std::size_t at) { return (x[at] - means[line]) * inverse[line]; };
    const auto g = [&](std::size_t at) { return dy[at] * weight[lines.channel(at)]; };
    const auto length = static_cast<double>(lines.length);
    double sum_g = 0, sum_gn = 0;
    for (std::size_t i = 0; i < lines.length; ++i) {
      const std::size_t at = lines.at(line, i);
      sum_g += g(at);
      sum_gn += g(at) * normal(at);
      dweight[lines.channel(at)] += dy[at] * normal(at);
      dbias[lines.channel(at)] += dy[at];
    }
    for (std::size_t i = 0; i < lines.length; ++i) {
      const std::size_t at = lines.at(line, i);
      dx[at] = inverse[line] * (g(at) - sum_g / length - normal(at) * (sum_gn / length));
    }
  }
  out(call, "dx", dx);
  out(call, "dweight", dweight);
  out(call, "dbias", dbias);
}

// ---- conv2d and max_pool2d
// -------------------------------------------------------------------------------------------

/// Of x [N, C, H, W] and windows that are `stride` apart.
struct Windows {
  std::size_t images, channels, height, width, out_height, out_width;
  std::int64_t stride, padding;

  Windows(const KernelCall& call, const char* result) {
    const std::vector<std::size_t> x = extents(call, "x"), y = extents(call, result);
    images = x[0];
    channels = x[1];
    height = x[2];
    width = x[3];
    out_height = y[2];
    out_width = y[3];
    stride = call.attributes->integer("stride");
    padding = call.attributes->integer("padding");
  }
  /// Index in a plane of tap (r, s) of window (i, j), -1 outside.
  std::int64_t at(std::size_t i, std::size_t j, std::size_t r, std::size_t s) const {
    const std::int64_t a = static_cast<std::int64_t>(i) * stride - padding + static_cast<std::int64_t>(r),
                       b = static_cast<std::int64_t>(j) * stride - padding + static_cast<std::int64_t>(s);
    const bool inside =
        a >= 0 && b >= 0 && a < static_cast<std::int64_t>(height) && b < static_cast<std::int64_t>(width);
    return inside ? a * static_cast<std::int64_t>(width) + b : -1;
  }
};

/// Calls visit(index of y, of weight, of x or -1 outside, output channel) for every product of the sums.
template <class Visit>
void for_products(const KernelCall& call, const char* result, const Visit& visit) {
  const Windows of(call, result);
  const std::vector<std::size_t> weight = extents(call, "weight");
  std::size_t y = 0;
  for (std::size_t image = 0; image < of.images; ++image)
    for (std::size_t o = 0; o < weight[0]; ++o)
      for (std::size_t i = 0; i < of.out_height; ++i)
        for (std::size_t j = 0; j < of.out_width; ++j, ++y)
          for (std::size_t c = 0; c < of.channels; ++c)
            for (std::size_t r = 0; r < weight[2]; ++r)
              for (std::size_t s = 0; s < weight[3]; ++s) {
                const std::int64_t in_plane = of.at(i, j, r, s);
                const auto plane = static_cast<std::int64_t>((image * of.channels + c) * of.height * of.width);
                visit(y, ((o * of.channels + c) * weight[2] + r) * weight[3] + s, in_plane < 0 ? -1 : plane + in_plane,
                      o);
              }
}

/// x is zero outside the image, and these zeros are multiplied like any other number.
Kernel conv2d() {
  return {[](const KernelCall& call) {
            const Numbers x = in(call, "x"), weight = in(call, "weight");
            const std::vector<std::size_t> of = extents(call, "y");
            const Numbers bias = parameter(call, "bias", of[1], -0.0);
            Numbers y(of[0] * of[1] * of[2] * of[3]);
            for_products(call, "y", [&](std::size_t to, std::size_t k, std::int64_t from, std::size_t) {
              y[to] += weight[k] * (from < 0 ? 0.0 : x[static_cast<std::size_t>(from)]);
            });
            for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i / (of[2] * of[3]) % of[1]];
            out(call, "y", y);
          },
          [](const KernelCall& call) {
            const Numbers x = in(call, "x"), weight = in(call, "weight"), dy = in(call, "dy");
            const std::vector<std::size_t> of = extents(call, "dy");
            Numbers dx(x.size()), dweight(weight.size()), dbias(of[1]);
            for_products(call, "dy", [&](std::size_t to, std::size_t k, std::int64_t from, std::size_t) {
              dweight[k] += dy[to] * (from < 0 ? 0.0 : x[static_cast<std::size_t>(from)]);
              if (from >= 0) dx[static_cast<std::size_t>(from)] += dy[to] * weight[k];
            });
            for (std::size_t i = 0; i < dy.size(); ++i) dbias[i / (of[2] * of[3]) % of[1]] += dy[i];
            out(call, "dx", dx);
            out(call, "dweight", dweight);
            out(call, "dbias", dbias);
          }};
}

/// Calls visit(index of y, of its winner in x or -1) for every window. NaN wins; of equal numbers the first.
template <class Visit>
void for_winners(const KernelCall& call, const char* result, const Numbers& x, const Visit& visit) {
  const Windows of(call, result);
  const auto kernel = static_cast<std::size_t>(call.attributes->integer("kernel"));
  std::size_t y = 0;
  for (std::size_t plane = 0; plane < of.images * of.channels; ++plane)
    for (std::size_t i = 0; i < of.out_height; ++i)
      for (std::size_t j = 0; j < of.out_width; ++j, ++y) {
        std::int64_t best = -1;
        const auto number = [&](std::int64_t at) { return x[static_cast<std::size_t>(at)]; };
        for (std::size_t tap = 0; tap < kernel * kernel; ++tap) {
          std::int64_t at = of.at(i, j, tap / kernel, tap % kernel);
          if (at < 0) continue;
          at += static_cast<std::int64_t>(plane * of.height * of.width);
          if (best < 0 || number(at) > number(best) || (std::isnan(number(at)) && !std::isnan(number(best)))) best = at;
        }
        visit(y, best);
      }
}

Kernel max_pool2d() {
  return {[](const KernelCall& call) {
            const Numbers x = in(call, "x");
            Numbers y;
            for_winners(call, "y", x, [&](std::size_t, std::int64_t at) {
              y.push_back(at < 0 ? -HUGE_VAL : x[static_cast<std::size_t>(at)]);
            });
            out(call, "y", y);
          },
          [](const KernelCall& call) {
            const Numbers x = in(call, "x"), dy = in(call, "dy");
            Numbers dx(x.size());
            for_winners(call, "dy", x, [&](std::size_t y, std::int64_t at) {
              if (at >= 0) dx[static_cast<std::size_t>(at)] += dy[y];
            });
            out(call, "dx", dx);
          }};
}

// ---- attention
// -------------------------------------------------------------------------------------------------------

/// o = softmax(q k^T / sqrt(E)) v of the heads [T, E]. A masked position is never read.
struct Attention {
  std::size_t heads, length, width;
  bool causal;
  double scale;
  Numbers q, k, v;

  explicit Attention(const KernelCall& call) : q(in(call, "q")), k(in(call, "k")), v(in(call, "v")) {
    const std::vector<std::size_t> of = extents(call, "q");
    heads = of[0] * of[1];
    length = of[2];
    width = of[3];
    causal = call.attributes->integer("causal") != 0;
    scale = 1 / std::sqrt(static_cast<double>(width));
  }
  std::size_t seen(std::size_t t) const { return causal ? t + 1 : length; }
  /// Rows of head h.
  std::size_t row(std::size_t h, std::size_t t) const { return (h * length + t) * width; }
  double dot(const Numbers& a, std::size_t row_a, const Numbers& b, std::size_t row_b) const {
    double sum = 0;
    for (std::size_t e = 0; e < width; ++e) sum += a[row_a + e] * b[row_b + e];
    return sum;
  }
  double score(std::size_t h, std::size_t t, std::size_t j) const { return dot(q, row(h, t), k, row(h, j)) * scale; }
};

void attend(const KernelCall& call) {
  const Attention a(call);
  Numbers o(a.q.size()), lse;
  for (std::size_t h = 0; h < a.heads; ++h)
    for (std::size_t t = 0; t < a.length; ++t) {
      Numbers p;
      for (std::size_t j = 0; j < a.seen(t); ++j) p.push_back(a.score(h, t, j));
      const Exponentials of(p.data(), p.size());
      for (std::size_t j = 0; j < p.size(); ++j)
        for (std::size_t e = 0; e < a.width; ++e) o[a.row(h, t) + e] += p[j] / of.sum * a.v[a.row(h, j) + e];
      lse.push_back(of.shift + std::log(of.sum));
    }
  out(call, "o", o);
  out(call, "lse", lse);
}

/// Dao et al. 2022, appendix B.2.
void attend_backward(const KernelCall& call) {
  const Attention a(call);
  const Numbers g = in(call, "do"), lse = in(call, "lse");
  Numbers dq(a.q.size()), dk(a.q.size()), dv(a.q.size());
  for (std::size_t h = 0; h < a.heads; ++h)
    for (std::size_t t = 0; t < a.length; ++t) {
      const std::size_t n = a.seen(t);
      Numbers p(n), dp(n);
      double delta = 0;
      for (std::size_t j = 0; j < n; ++j) {
        p[j] = std::exp(a.score(h, t, j) - lse[h * a.length + t]);
        dp[j] = a.dot(g, a.row(h, t), a.v, a.row(h, j));
        delta += p[j] * dp[j];
      }
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t e = 0; e < a.width; ++e) {
          const double ds = p[j] * (dp[j] - delta);
          dq[a.row(h, t) + e] += ds * a.k[a.row(h, j) + e];
          dk[a.row(h, j) + e] += ds * a.q[a.row(h, t) + e];
          dv[a.row(h, j) + e] += p[j] * g[a.row(h, t) + e];
        }
    }
  for (Numbers* const gradient : {&dq, &dk})
    for (double& v : *gradient) v *= a.scale;
  out(call, "dq", dq);
  out(call, "dk", dk);
  out(call, "dv", dv);
}

}  // namespace

Kernel image_kernel(std::string_view op) {
  if (op == "group_norm" || op == "batch_norm")
    return {[batch = op == "batch_norm"](const KernelCall& call) { normalize(call, batch); },
            [batch = op == "batch_norm"](const KernelCall& call) { normalize_backward(call, batch); }};
  if (op == "conv2d") return conv2d();
  if (op == "max_pool2d") return max_pool2d();
  if (op == "attention") return {attend, attend_backward};
  return {};
}

}  // namespace ampcheck::kernels::doubles
