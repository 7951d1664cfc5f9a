// SPDX-License-Identifier: Apache-2.0
// Kernels in double: along an axis of [N, D], and tables of rows.
#include "kernels/double_parts.h"
#include "kernels/gather_scatter.h"

namespace ampcheck::kernels::doubles {

namespace {

/// The rows and columns of a call's x.
struct Extents {
  std::size_t rows, columns;
  explicit Extents(const KernelCall& call) : rows(1), columns(static_cast<std::size_t>(call.at("x").shape.last())) {
    const Shape& shape = call.at("x").shape;
    for (int axis = 0; axis + 1 < shape.rank; ++axis) rows *= static_cast<std::size_t>(shape[axis]);
  }
};

/// Along the last axis, or with the attribute axis = 0 over the rows; the axis stays.
Kernel total(bool divided) {
  return {[divided](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x");
            const bool over_rows = call.attributes->integer("axis") == 0;
            Numbers y(over_rows ? n.columns : n.rows);
            for (std::size_t i = 0; i < x.size(); ++i) y[over_rows ? i % n.columns : i / n.columns] += x[i];
            if (divided)
              for (double& v : y) v /= static_cast<double>(over_rows ? n.rows : n.columns);
            out(call, "y", y);
          },
          [divided](const KernelCall& call) {
            const Extents n(call);
            const Numbers dy = in(call, "dy");
            const bool over_rows = call.attributes->integer("axis") == 0;
            Numbers dx(n.rows * n.columns);
            for (std::size_t i = 0; i < dx.size(); ++i)
              dx[i] = dy[over_rows ? i % n.columns : i / n.columns] /
                      (divided ? static_cast<double>(over_rows ? n.rows : n.columns) : 1.0);
            out(call, "dx", dx);
          }};
}

Kernel softmax(bool logarithm) {
  return {[logarithm](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x");
            Numbers y = x;
            for (std::size_t at = 0; at < x.size(); at += n.columns) {
              const Exponentials row(y.data() + at, n.columns);
              const double log_sum = std::log(row.sum);
              for (std::size_t k = at; k < at + n.columns; ++k)
                y[k] = logarithm ? (x[k] - row.shift) - log_sum : y[k] / row.sum;
            }
            out(call, "y", y);
          },
          [logarithm](const KernelCall& call) {
            const Extents n(call);
            const Numbers g = in(call, "dy");
            Numbers y = in(call, "x"), dx(y.size());
            for (std::size_t at = 0; at < y.size(); at += n.columns) {
              const Exponentials row(y.data() + at, n.columns);
              double inner = 0;
              for (std::size_t k = at; k < at + n.columns; ++k) {
                y[k] /= row.sum;
                inner += logarithm ? g[k] : y[k] * g[k];
              }
              for (std::size_t k = at; k < at + n.columns; ++k)
                dx[k] = logarithm ? g[k] - y[k] * inner : y[k] * (g[k] - inner);
            }
            out(call, "dx", dx);
          }};
}

/// layer_norm, or with `centred` false rms_norm, which subtracts no mean.
Kernel norm(bool centred) {
  return {[centred](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x"), weight = parameter(call, "weight", n.columns, 1),
                          bias = parameter(call, "bias", n.columns, -0.0);
            const auto columns = static_cast<double>(n.columns);
            Numbers y(x.size()), means, inverse;
            for (std::size_t row = 0; row < n.rows; ++row) {
              const double* const v = x.data() + row * n.columns;
              double sum = 0, squares = 0;
              for (std::size_t k = 0; k < n.columns; ++k) sum += centred ? v[k] : 0;
              const double mean = centred ? sum / columns : 0;
              for (std::size_t k = 0; k < n.columns; ++k) squares += (v[k] - mean) * (v[k] - mean);
              const double inv = 1 / std::sqrt(squares / columns + call.number("eps"));
              for (std::size_t k = 0; k < n.columns; ++k)
                y[row * n.columns + k] = (v[k] - mean) * inv * weight[k] + bias[k];
              means.push_back(mean);
              inverse.push_back(inv);
            }
            out(call, "y", y);
            out(call, "mean", means);
            out(call, centred ? "inv_std" : "inv_rms", inverse);
          },
          [centred](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x"), dy = in(call, "dy"), weight = parameter(call, "weight", n.columns, 1),
                          means = centred ? in(call, "mean") : Numbers(n.rows),
                          inverse = in(call, centred ? "inv_std" : "inv_rms");
            const auto columns = static_cast<double>(n.columns);
            Numbers dx(x.size()), dweight(n.columns), dbias(n.columns);
            for (std::size_t row = 0; row < n.rows; ++row) {
              const std::size_t at = row * n.columns;
              const auto of = [&](std::size_t k) { return (x[at + k] - means[row]) * inverse[row]; };
              double sum_g = 0, sum_gn = 0;
              for (std::size_t k = 0; k < n.columns; ++k) {
                const double g = dy[at + k] * weight[k];
                sum_g += centred ? g : 0;
                sum_gn += g * of(k);
                dweight[k] += dy[at + k] * of(k);
                dbias[k] += dy[at + k];
              }
              for (std::size_t k = 0; k < n.columns; ++k)
                dx[at + k] = inverse[row] * (dy[at + k] * weight[k] - sum_g / columns - of(k) * (sum_gn / columns));
            }
            out(call, "dx", dx);
            out(call, "dweight", dweight);
            out(call, "dbias", dbias);
          }};
}

/// y = x weight^T + bias.
Kernel linear() {
  return {[](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x"), weight = in(call, "weight");
            const auto outputs = static_cast<std::size_t>(call.at("weight").shape[0]);
            const Numbers bias = parameter(call, "bias", outputs, -0.0);
            Numbers y(n.rows * outputs);
            for (std::size_t i = 0; i < n.rows; ++i)
              for (std::size_t j = 0; j < outputs; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < n.columns; ++k) sum += x[i * n.columns + k] * weight[j * n.columns + k];
                y[i * outputs + j] = sum + bias[j];
              }
            out(call, "y", y);
          },
          [](const KernelCall& call) {
            const Extents n(call);
            const Numbers x = in(call, "x"), weight = in(call, "weight"), dy = in(call, "dy");
            const auto outputs = static_cast<std::size_t>(call.at("weight").shape[0]);
            Numbers dx(x.size()), dweight(weight.size()), dbias(outputs);
            for (std::size_t i = 0; i < n.rows; ++i)
              for (std::size_t j = 0; j < outputs; ++j) {
                const double g = dy[i * outputs + j];
                dbias[j] += g;
                for (std::size_t k = 0; k < n.columns; ++k) {
                  dx[i * n.columns + k] += g * weight[j * n.columns + k];
                  dweight[j * n.columns + k] += g * x[i * n.columns + k];
                }
              }
            out(call, "dx", dx);
            out(call, "dweight", dweight);
            out(call, "dbias", dbias);
          }};
}

/// loss = lse - sum q x, q one-hot with label smoothing; the three terms are taken of x - max(x).
Kernel cross_entropy() {
  return {
      [](const KernelCall& call) {
        const Extents n(call);
        const Numbers x = in(call, "x");
        check_indices(call, "target", static_cast<std::int64_t>(n.columns), call.attributes->integer("ignore_index"));
        const double smoothing = call.number("label_smoothing");
        Numbers loss;
        for (const std::int64_t target : whole(call, "target")) {
          const double* const row = x.data() + loss.size() * n.columns;
          loss.push_back(0);
          if (target == call.attributes->integer("ignore_index")) continue;
          Numbers e(row, row + n.columns);
          const Exponentials of(e.data(), n.columns);
          loss.back() = std::log(of.sum) - (1 - smoothing) * (row[target] - of.shift);
          if (smoothing == 0) continue;  // 0 times the sum would be NaN for a class of -inf
          double sum = 0;
          for (std::size_t k = 0; k < n.columns; ++k) sum += row[k] - of.shift;
          loss.back() -= smoothing / static_cast<double>(n.columns) * sum;
        }
        out(call, "loss", loss);
      },
      [](const KernelCall& call) {
        const Extents n(call);
        const Numbers dloss = in(call, "dloss");
        check_indices(call, "target", static_cast<std::int64_t>(n.columns), call.attributes->integer("ignore_index"));
        const double smoothing = call.number("label_smoothing");
        Numbers dx = in(call, "x");
        std::size_t row = 0;
        for (const std::int64_t target : whole(call, "target")) {
          double* const v = dx.data() + row * n.columns;
          const bool ignored = target == call.attributes->integer("ignore_index");
          const Exponentials of(v, n.columns);
          for (std::size_t k = 0; k < n.columns; ++k) {
            const double hit = static_cast<std::int64_t>(k) == target ? 1 - smoothing : 0.0;
            v[k] = ignored ? 0.0 : dloss[row] * (v[k] / of.sum - hit - smoothing / static_cast<double>(n.columns));
          }
          ++row;
        }
        out(call, "dx", dx);
      }};
}

Kernel cumsum() {
  return {[](const KernelCall& call) {
            const Extents n(call);
            Numbers y = in(call, "x");
            for (std::size_t i = 0; i < y.size(); ++i)
              if (i % n.columns != 0) y[i] += y[i - 1];
            out(call, "y", y);
          },
          [](const KernelCall& call) {
            const Extents n(call);
            Numbers dx = in(call, "dy");
            for (std::size_t i = dx.size(); i-- > 0;)
              if ((i + 1) % n.columns != 0) dx[i] += dx[i + 1];
            out(call, "dx", dx);
          }};
}

/// Along one axis, as total(). NaN wins; of equal values the first.
Kernel extremum(double sign) {
  const auto winners = [sign](const KernelCall& call) {  // where in x each line has its largest number
    const Extents n(call);
    const Numbers x = in(call, "x");
    const bool over_rows = call.attributes->integer("axis") == 0;
    std::vector<std::size_t> at;
    for (std::size_t line = 0; line < (over_rows ? n.columns : n.rows); ++line) {
      const std::size_t first = over_rows ? line : line * n.columns, step = over_rows ? n.columns : 1;
      at.push_back(first);
      for (std::size_t i = 1; i < (over_rows ? n.rows : n.columns); ++i) {
        const double v = x[first + i * step], best = x[at.back()];
        if (sign * v > sign * best || (std::isnan(v) && !std::isnan(best))) at.back() = first + i * step;
      }
    }
    return at;
  };
  return {[winners](const KernelCall& call) {
            const Numbers x = in(call, "x");
            Numbers y;
            for (const std::size_t at : winners(call)) y.push_back(x[at]);
            out(call, "y", y);
          },
          [winners](const KernelCall& call) {
            const Numbers dy = in(call, "dy");
            Numbers dx(in(call, "x").size());
            std::size_t line = 0;
            for (const std::size_t at : winners(call)) dx[at] = dy[line++];
            out(call, "dx", dx);
          }};
}

/// Rows of a table; the gradient is added to what its buffer holds.
Kernel embedding() {
  constexpr std::int64_t kNone = -1;  // no index is allowed to be out of range
  return {[](const KernelCall& call) {
            const Numbers weight = in(call, "weight");
            const std::size_t columns = extents(call, "weight")[1];
            check_indices(call, "index", call.at("weight").shape[0], kNone);
            Numbers y;
            for (const std::int64_t row : whole(call, "index")) {
              const auto first = weight.begin() + row * static_cast<std::int64_t>(columns);
              y.insert(y.end(), first, first + static_cast<std::int64_t>(columns));
            }
            out(call, "y", y);
          },
          [](const KernelCall& call) {
            if (call.find("dweight") == nullptr) return;
            Numbers dweight = in(call, "dweight");
            const Numbers dy = in(call, "dy");
            const auto columns = static_cast<std::size_t>(call.at("dweight").shape[1]);
            check_indices(call, "index", call.at("dweight").shape[0], kNone);
            std::size_t n = 0;
            for (const std::int64_t row : whole(call, "index")) {
              for (std::size_t k = 0; k < columns && row != call.attributes->integer("padding_idx"); ++k)
                dweight[static_cast<std::size_t>(row) * columns + k] += dy[n * columns + k];
              ++n;
            }
            out(call, "dweight", dweight);
          }};
}

}  // namespace

Kernel row_kernel(std::string_view op) {
  if (op == "sum" || op == "mean") return total(op == "mean");
  if (op == "cumsum") return cumsum();
  if (op == "max" || op == "min") return extremum(op == "max" ? 1 : -1);
  if (op == "softmax" || op == "log_softmax") return softmax(op == "log_softmax");
  if (op == "cross_entropy") return cross_entropy();
  if (op == "layer_norm" || op == "rms_norm") return norm(op == "layer_norm");
  if (op == "linear") return linear();
  if (op == "embedding") return embedding();
  return {};
}

}  // namespace ampcheck::kernels::doubles
