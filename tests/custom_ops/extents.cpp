// SPDX-License-Identifier: Apache-2.0
// Kernels whose extents follow from another extent (D/2) or from an attribute (rank), and one with an extent twice in a
// tensor. Each with a wrong version beside it.
#include <cmath>
#include <vector>

#include <ampcheck/op.h>

namespace {

using namespace ampcheck::op;

// ---- A gate: y = a * sigmoid(b) * weight, where a and b are the halves of a row. ------------------------------------

enum class Gate { second_half, first_half };

void describe_gate(Op& op, Gate gate) {
  op.input("x", "N D");
  op.input("weight", "D/2").weight();
  op.output("y").dims("N D/2");
  op.dim("N", 5, 64, 2);
  op.dim("D", 6, 130, 67);  // of an odd extent the last number is not read
  op.rows("N", {"y", "dx"});
  op.formula("h = floor(D/2); y = slice(x, -1, 0, h) * sigmoid(slice(x, -1, h, 2*h)) * weight");
  op.forward([gate]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), weight = call.view<const T>("weight");
    const auto y = call.view<T>("y");
    const std::int64_t half = x.extent(1) / 2, from = gate == Gate::second_half ? half : 0;
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < half; ++j)
        y(i, j) = T(float(x(i, j)) / (1.0f + std::exp(-float(x(i, from + j)))) * float(weight[j]));
  });
  op.backward([gate]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), weight = call.view<const T>("weight"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx"), dweight = call.view<T>("dweight");
    const std::int64_t half = x.extent(1) / 2, from = gate == Gate::second_half ? half : 0;
    std::vector<float> sums(static_cast<std::size_t>(half));
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      for (std::int64_t j = 2 * half; j < x.extent(1); ++j) dx(i, j) = T(0.0f);
      for (std::int64_t j = 0; j < half; ++j) {
        const float a = float(x(i, j)), s = 1.0f / (1.0f + std::exp(-float(x(i, from + j))));
        const float g = float(dy(i, j)), w = float(weight[j]);
        const float other = 1.0f / (1.0f + std::exp(float(x(i, from + j))));  // 1 - s without cancellation
        dx(i, j) = T(g * w * s);
        dx(i, half + j) = T(g * w * a * s * other);
        sums[static_cast<std::size_t>(j)] += g * a * s;
      }
    }
    for (std::int64_t j = 0; j < half; ++j) dweight[j] = T(sums[static_cast<std::size_t>(j)]);
  });
}

// ---- Two thin factors: y = (x a) b, where the attribute says how thin. ----------------------------------------------

void describe_thin(Op& op, bool of_two) {
  op.input("x", "N D");
  op.input("a", "D rank");
  op.input("b", "rank D");
  op.output("y");
  op.attribute("rank", 2, {1, 5});
  op.dim("N", 3, 16, 2);
  op.dim("D", 7, 33, 64);
  op.formula("y = matmul(matmul(x, a), b)");
  op.forward([of_two]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), a = call.view<const T>("a"), b = call.view<const T>("b");
    const auto y = call.view<T>("y");
    const std::int64_t rank = a.extent(1), used = of_two && rank > 2 ? 2 : rank;
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      std::vector<float> thin(static_cast<std::size_t>(rank));
      for (std::int64_t k = 0; k < rank; ++k)
        for (std::int64_t j = 0; j < x.extent(1); ++j) thin[std::size_t(k)] += float(x(i, j)) * float(a(j, k));
      for (std::int64_t j = 0; j < x.extent(1); ++j) {
        float sum = 0;
        for (std::int64_t k = 0; k < used; ++k) sum += thin[std::size_t(k)] * float(b(k, j));
        y(i, j) = T(sum);
      }
    }
  });
  op.backward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), a = call.view<const T>("a"), b = call.view<const T>("b");
    const auto dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx"), da = call.view<T>("da"), db = call.view<T>("db");
    const std::int64_t rows = x.extent(0), columns = x.extent(1), rank = a.extent(1);
    std::vector<float> sums_a(std::size_t(columns * rank)), sums_b(std::size_t(rank * columns));
    for (std::int64_t i = 0; i < rows; ++i) {
      std::vector<float> sums_x(static_cast<std::size_t>(columns));
      for (std::int64_t k = 0; k < rank; ++k) {
        float thin = 0, g = 0;  // of (x a) and its gradient
        for (std::int64_t j = 0; j < columns; ++j) {
          thin += float(x(i, j)) * float(a(j, k));
          g += float(dy(i, j)) * float(b(k, j));
        }
        for (std::int64_t j = 0; j < columns; ++j) {
          sums_x[std::size_t(j)] += g * float(a(j, k));
          sums_a[std::size_t(j * rank + k)] += float(x(i, j)) * g;
          sums_b[std::size_t(k * columns + j)] += thin * float(dy(i, j));
        }
      }
      for (std::int64_t j = 0; j < columns; ++j) dx(i, j) = T(sums_x[std::size_t(j)]);
    }
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t k = 0; k < rank; ++k) {
        da(j, k) = T(sums_a[std::size_t(j * rank + k)]);
        db(k, j) = T(sums_b[std::size_t(k * columns + j)]);
      }
  });
}

// ---- One extent twice: y = m^T x of a square m. ---------------------------------------------------------------------

void describe_turned(Op& op, bool turns) {
  op.input("m", "n n");
  op.input("x", "n");
  op.output("y");
  op.dim("n", 5, 64, 33);
  op.formula("y = reshape(matmul(transpose(m), reshape(x, n, 1)), n)");
  op.forward([turns]<class T>(Type<T>, const Call& call) {
    const auto m = call.view<const T>("m"), x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) {
      float sum = 0;
      for (std::int64_t k = 0; k < x.size(); ++k) sum += float(turns ? m(k, i) : m(i, k)) * float(x[k]);
      y[i] = T(sum);
    }
  });
  op.backward([turns]<class T>(Type<T>, const Call& call) {
    const auto m = call.view<const T>("m"), x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto dm = call.view<T>("dm"), dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.size(); ++i) {
      float sum = 0;
      for (std::int64_t k = 0; k < x.size(); ++k) {
        sum += float(turns ? m(i, k) : m(k, i)) * float(dy[k]);
        (turns ? dm(i, k) : dm(k, i)) = T(float(x[i]) * float(dy[k]));
      }
      dx[i] = T(sum);
    }
  });
}

}  // namespace

AMPCHECK_OP(gated_halves, op) { describe_gate(op.summary("half a row, gated by the other half"), Gate::second_half); }
AMPCHECK_OP(gated_by_itself, op) {
  describe_gate(op.summary("the gate is taken from the wrong half"), Gate::first_half);
}
AMPCHECK_OP(thin_factors, op) { describe_thin(op.summary("a product of two thin matrices"), false); }
AMPCHECK_OP(thin_factors_of_two, op) { describe_thin(op.summary("columns beyond the second are left out"), true); }
AMPCHECK_OP(turned_square, op) { describe_turned(op.summary("a square matrix, transposed, times a vector"), true); }
AMPCHECK_OP(turned_square_not, op) { describe_turned(op.summary("the matrix is not transposed"), false); }

// ---- The gate by launchers that know nothing of ampcheck, for a TOML file. ------------------------------------------

namespace {

void gate_rows(const float* x, const float* weight, float* y, std::int64_t rows, std::int64_t columns, bool second) {
  const std::int64_t half = columns / 2, from = second ? half : 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < half; ++j)
      y[i * half + j] = x[i * columns + j] / (1.0f + std::exp(-x[i * columns + from + j])) * weight[j];
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) void launch_gate(const float* x, const float* weight, float* y, std::int64_t N,
                                                        std::int64_t D) {
  gate_rows(x, weight, y, N, D, true);
}
__attribute__((visibility("default"))) void launch_gate_by_itself(const float* x, const float* weight, float* y,
                                                                  std::int64_t N, std::int64_t D) {
  gate_rows(x, weight, y, N, D, false);
}
}
