// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Kernels along rows whose author took the wrong one of the numbers at hand, or put a factor in the wrong place.
#include <algorithm>
#include <numeric>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

// ---- softmax and log_softmax ----

enum class OfSoftmax { none, dot_outside, flatter, slope_of_logarithm, one_more, shift_twice };

/// Row by row: y = softmax(x) or its logarithm, dx = y (g - sum g y) or g - y sum g.
Kernel softmax(bool logarithm, OfSoftmax twist) {
  struct Row {
    Values e;
    float shift, total;
  };
  const auto exponentials = [twist](const Values& x, std::int64_t r, std::int64_t n) {
    const float scale = twist == OfSoftmax::flatter ? 1 / std::sqrt(static_cast<float>(n)) : 1.0f;
    Row out{{}, largest(row_of(x, r, n)), 0};
    for (const float v : row_of(x, r, n)) out.e.push_back(std::exp((v - out.shift) * scale));
    out.total = std::accumulate(out.e.begin(), out.e.end(), twist == OfSoftmax::one_more ? 1.0f : 0.0f);
    return out;
  };
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        const std::int64_t n = call.columns("x"), rows = call.rows("x");
        Values y;
        for (std::int64_t r = 0; r < rows; ++r) {
          const Row row = exponentials(x, r, n);
          for (std::int64_t i = 0; i < n; ++i)
            y.push_back(logarithm ? (x[index_of(r * n + i)] - row.shift) - std::log(row.total) -
                                        (twist == OfSoftmax::shift_twice ? row.shift : 0.0f)
                                  : row.e[index_of(i)] / row.total);
        }
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const std::int64_t n = call.columns("x"), rows = call.rows("x");
        Values dx;
        for (std::int64_t r = 0; r < rows; ++r) {
          const Row row = exponentials(x, r, n);
          const auto y = [&](std::int64_t i) {
            return twist == OfSoftmax::slope_of_logarithm ? (x[index_of(r * n + i)] - row.shift) - std::log(row.total)
                                                          : row.e[index_of(i)] / row.total;
          };
          const float s = total(in_order, n, [&](std::int64_t i) {
            return Term{g[index_of(r * n + i)], logarithm ? 1.0f : y(i)};
          });
          for (std::int64_t i = 0; i < n; ++i) {
            const float v = g[index_of(r * n + i)];
            dx.push_back(logarithm ? v - y(i) * s : twist == OfSoftmax::dot_outside ? y(i) * v - s : y(i) * (v - s));
          }
        }
        call.out("dx", dx);
      });
}

// ---- layer_norm and rms_norm ----

enum class OfNorm { none, weight_after_means, dweight_of_x, dx_of_x, not_centred, dbias_times_weight, sum_of_squares };

Kernel norm(bool centred, OfNorm twist) {
  const char* const saved = centred ? "inv_std" : "inv_rms";
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x"), weight = call.has("weight") ? call.in("weight") : Values(),
                 bias = call.has("bias") ? call.in("bias") : Values();
    const std::int64_t n = call.columns("x"), rows = call.shape("x")[0];
    const auto size = static_cast<float>(n);
    Values y, means, inverses;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = row_of(x, r, n);
      const float mean = centred ? std::accumulate(row.begin(), row.end(), 0.0f) / size : 0.0f;
      const float squares = total(in_order, n, [&](std::int64_t i) {
        const float d = row[index_of(i)] - mean;
        return Term{d, d};
      });
      const float inverse =
          1 / std::sqrt((twist == OfNorm::sum_of_squares ? squares : squares / size) + call.number("eps"));
      for (std::int64_t i = 0; i < n; ++i) {
        float v = (twist == OfNorm::not_centred ? row[index_of(i)] : row[index_of(i)] - mean) * inverse;
        if (!weight.empty()) v *= weight[index_of(i)];
        y.push_back(bias.empty() ? v : v + bias[index_of(i)]);
      }
      means.push_back(mean);
      inverses.push_back(inverse);
    }
    call.out("y", y);
    if (centred) call.out("mean", means);
    call.out(saved, inverses);
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), dy = call.in("dy"), inverses = call.in(saved);
    const std::int64_t n = call.columns("x"), rows = call.shape("x")[0];
    const Values weight = call.has("weight") ? call.in("weight") : Values(index_of(n), 1.0f),
                 means = centred ? call.in("mean") : Values(index_of(rows));
    const auto size = static_cast<float>(n);
    Values dx(x.size()), dweight(index_of(n)), dbias(index_of(n));
    for (std::int64_t r = 0; r < rows; ++r) {
      const float inverse = inverses[index_of(r)];
      const auto at = [&](std::int64_t i) { return index_of(r * n + i); };
      const auto normal = [&](std::int64_t i) { return (x[at(i)] - means[index_of(r)]) * inverse; };
      const bool late = twist == OfNorm::weight_after_means;
      const auto g = [&](std::int64_t i) { return late ? dy[at(i)] : dy[at(i)] * weight[index_of(i)]; };
      const float mean_g = centred ? total(in_order, n, [&](std::int64_t i) { return Term{g(i)}; }) / size : 0.0f;
      const float mean_gn = total(in_order, n, [&](std::int64_t i) { return Term{g(i), normal(i)}; }) / size;
      for (std::int64_t i = 0; i < n; ++i) {
        const float inner = twist == OfNorm::dx_of_x ? x[at(i)] : normal(i);
        const float v = inverse * (centred ? g(i) - mean_g - inner * mean_gn : g(i) - inner * mean_gn);
        dx[at(i)] = late ? v * weight[index_of(i)] : v;
        dweight[index_of(i)] += dy[at(i)] * (twist == OfNorm::dweight_of_x ? x[at(i)] : normal(i));
        dbias[index_of(i)] += twist == OfNorm::dbias_times_weight ? dy[at(i)] * weight[index_of(i)] : dy[at(i)];
      }
    }
    call.out("dx", dx);
    call.out("dweight", dweight);
    if (centred) call.out("dbias", dbias);
  };
  return kernel_of(forward, backward);
}

// ---- linear and embedding ----

enum class OfLinear { dbias_mean, dx_transposed, fused_relu };

Kernel linear(OfLinear twist) {
  const auto forward = [twist](const Call& call) {
    const Values x = call.in("x"), w = call.in("weight"), bias = call.has("bias") ? call.in("bias") : Values();
    const std::int64_t n = call.shape("x")[0], k = call.shape("x")[1], m = call.shape("weight")[0];
    Values y;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < m; ++j) {
        const float v = total(in_order, k, [&](std::int64_t at) {
          return Term{x[index_of(i * k + at)], w[index_of(j * k + at)]};
        });
        y.push_back(bias.empty() ? v : v + bias[index_of(j)]);
        if (twist == OfLinear::fused_relu && y.back() < 0) y.back() = 0;
      }
    call.out("y", y);
  };
  const auto backward = [twist](const Call& call) {
    const Values x = call.in("x"), w = call.in("weight"), g = call.in("dy");
    const std::int64_t n = call.shape("x")[0], k = call.shape("x")[1], m = call.shape("weight")[0];
    const bool turned = twist == OfLinear::dx_transposed && m == k;
    Values dx, dweight, dbias;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t at = 0; at < k; ++at)
        dx.push_back(total(in_order, m, [&](std::int64_t j) {
          return Term{g[index_of(i * m + j)], w[index_of(turned ? at * k + j : j * k + at)]};
        }));
    for (std::int64_t j = 0; j < m; ++j) {
      for (std::int64_t at = 0; at < k; ++at)
        dweight.push_back(total(in_order, n, [&](std::int64_t i) {
          return Term{g[index_of(i * m + j)], x[index_of(i * k + at)]};
        }));
      const float s = total(in_order, n, [&](std::int64_t i) { return Term{g[index_of(i * m + j)]}; });
      dbias.push_back(twist == OfLinear::dbias_mean ? s / static_cast<float>(n) : s);
    }
    call.out("dx", dx);
    call.out("dweight", dweight);
    call.out("dbias", dbias);
  };
  return kernel_of(forward, backward);
}

/// y = weight[index] sqrt(D), as before a transformer; the gradient adds up as it is due.
Kernel scaled_embedding() {
  return kernel_of(
      [](const Call& call) {
        const Values weight = call.in("weight");
        const std::int64_t d = call.columns("weight");
        Values y;
        for (const std::int64_t row : call.whole("index"))
          for (std::int64_t i = 0; i < d; ++i)
            y.push_back(weight[index_of(row * d + i)] * std::sqrt(static_cast<float>(d)));
        call.out("y", y);
      },
      [](const Call& call) {
        if (!call.has("dweight")) return;
        const Values dy = call.in("dy");
        Values dweight = call.in("dweight");
        const auto index = call.whole("index");
        const std::int64_t d = call.columns("weight");
        for (std::size_t n = 0; n < index.size(); ++n)
          for (std::int64_t i = 0; i < d && index[n] != call.integer("padding_idx"); ++i)
            dweight[index_of(index[n] * d + i)] += dy[n * index_of(d) + index_of(i)];
        call.out("dweight", dweight);
      });
}

}  // namespace

std::vector<Specimen> row_slip_specimens() {
  std::vector<Specimen> out;
  add(out, "softmax",
      {{"dot_outside", 3, "dx = y g - sum g y, where y times the sum is due", "any", V::bug, "factor|term",
        softmax(false, OfSoftmax::dot_outside)},
       {"flatter", 1, "softmax of x / sqrt(D)", "any", V::bug, "factor|scale|attribute|another",
        softmax(false, OfSoftmax::flatter)},
       {"one_more", 44, "one is added to the sum of exponentials", "any", V::bug, "added|constant|term|padd",
        softmax(false, OfSoftmax::one_more)}},
      {});
  add(out, "log_softmax",
      {{"slope_of_logarithm", 30, "dx = g - y sum g, where exp(y) is due", "any", V::bug,
        "exp|logarithm|output|another", softmax(true, OfSoftmax::slope_of_logarithm)},
       {"shift_twice", 40, "the maximum is taken off twice", "any", V::bug, "twice|maximum|max(|term|shift",
        softmax(true, OfSoftmax::shift_twice)}},
      {});
  add(out, "layer_norm",
      {{"weight_after_means", 7, "the weight is applied after the means are taken off", "any weight", V::bug,
        "weight|order|factor|mean", norm(true, OfNorm::weight_after_means)},
       {"not_centred", 4, "y = x inv_std weight + bias, the mean not taken off", "any", V::bug, "mean|term|without",
        norm(true, OfNorm::not_centred)},
       {"dbias_times_weight", 7, "dbias = sum dy weight", "any weight", V::bug, "weight|factor",
        norm(true, OfNorm::dbias_times_weight)},
       {"dweight_of_x", 7, "dweight = sum dy x, where n is due", "any", V::bug, "mean|normal|factor|x for|term|inv_std",
        norm(true, OfNorm::dweight_of_x)}},
      {});
  add(out, "rms_norm",
      {{"dx_of_x", 7, "dx = inv_rms (g - x mean(g n)), where n is due", "any", V::bug, "factor|inv_rms|x for|normal",
        norm(false, OfNorm::dx_of_x)},
       {"sum_of_squares", 42, "1/sqrt(sum of squares + eps)", "any", V::bug, "mean|count|factor|sum",
        norm(false, OfNorm::sum_of_squares)}},
      {});
  add(out, "linear",
      {{"dbias_mean", 42, "dbias is the mean over rows", "more than one row", V::bug, "mean|factor|count",
        linear(OfLinear::dbias_mean)},
       {"fused_relu", 30, "negative results are cut off", "any", V::bug, "max|zero|another|cut|relu",
        linear(OfLinear::fused_relu)},
       {"dx_transposed_if_square", 7, "a square weight is read transposed in backward", "K = M", V::bug, "transpos",
        linear(OfLinear::dx_transposed), kAllTypes, V::structural}},
      {});
  add(out, "embedding",
      {{"scaled", 1, "y is scaled by sqrt(D)", "D other than 1", V::bug, "factor|sqrt", scaled_embedding()}}, {});
  return out;
}

}  // namespace ampcheck::checks::zoo
