// SPDX-License-Identifier: Apache-2.0
#include "reference/replay/plain_loops.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "src/error.h"

namespace ampcheck::reference {

namespace {

constexpr std::int64_t kPart = 256;  // elements of a block, which stays in the first cache

/// One axis of an elementwise iteration; stride 0: the operand repeats.
struct Loop {
  std::int64_t extent = 1, stride[3] = {};
};

/// Axes of extent 1 left out, and neighbours that every operand walks through as one made one; the innermost last.
std::vector<Loop> loops_of(const Shape& shape, std::span<const Shape* const> operands) {
  std::vector<Loop> out;
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (shape[axis] == 1) continue;
    Loop loop;
    loop.extent = shape[axis];
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const int own = axis - shape.rank + operands[k]->rank;
      loop.stride[k] = own < 0 || (*operands[k])[own] == 1 ? 0 : row_major_strides(*operands[k])[own];
    }
    const auto joins = [&](const Loop& outer) {
      for (std::size_t k = 0; k < operands.size(); ++k)
        if (outer.stride[k] != loop.stride[k] * loop.extent) return false;
      return true;
    };
    if (!out.empty() && joins(out.back())) {
      loop.extent *= out.back().extent;
      out.back() = loop;
    } else
      out.push_back(loop);
  }
  if (out.empty()) out.emplace_back();
  return out;
}

/// n elements that lie side by side: of one operand, of two.
template <class F>
void each(std::int64_t n, const double* a, double* out, F f) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[i]);
}
template <class F>
void pairs(std::int64_t n, const double* a, const double* b, double* out, F f) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
}
double truth(bool yes) { return yes ? 1.0 : 0.0; }
void choose(std::int64_t n, const double* condition, const double* yes, const double* no, double* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = condition[i] != 0 ? yes[i] : no[i];
}

void run_function(Primitive primitive, std::int64_t n, const double* a, double* out) {
  switch (primitive) {
    case Primitive::neg: return each(n, a, out, [](double x) { return -x; });
    case Primitive::square: return each(n, a, out, [](double x) { return x * x; });
    case Primitive::exp: return each(n, a, out, [](double x) { return std::exp(x); });
    case Primitive::expm1: return each(n, a, out, [](double x) { return std::expm1(x); });
    case Primitive::log: return each(n, a, out, [](double x) { return std::log(x); });
    case Primitive::log1p: return each(n, a, out, [](double x) { return std::log1p(x); });
    case Primitive::tanh: return each(n, a, out, [](double x) { return std::tanh(x); });
    case Primitive::erf: return each(n, a, out, [](double x) { return std::erf(x); });
    case Primitive::erfc: return each(n, a, out, [](double x) { return std::erfc(x); });
    case Primitive::sin: return each(n, a, out, [](double x) { return std::sin(x); });
    case Primitive::cos: return each(n, a, out, [](double x) { return std::cos(x); });
    case Primitive::sqrt: return each(n, a, out, [](double x) { return std::sqrt(x); });
    case Primitive::rsqrt: return each(n, a, out, [](double x) { return 1 / std::sqrt(x); });
    case Primitive::sigmoid: return each(n, a, out, [](double x) { return 1 / (1 + std::exp(-x)); });
    case Primitive::abs: return each(n, a, out, [](double x) { return x < 0 ? -x : x; });
    case Primitive::sign: return each(n, a, out, [](double x) { return x > 0 ? 1 : (x < 0 ? -1 : x); });
    default: throw Error(std::string("[plain] no rule for ") + name(primitive));
  }
}

void run(Primitive primitive, std::int64_t n, const double* a, const double* b, const double* c, double* out) {
  switch (primitive) {
    case Primitive::add: return pairs(n, a, b, out, [](double x, double y) { return x + y; });
    case Primitive::sub: return pairs(n, a, b, out, [](double x, double y) { return x - y; });
    case Primitive::mul: return pairs(n, a, b, out, [](double x, double y) { return x * y; });
    case Primitive::div: return pairs(n, a, b, out, [](double x, double y) { return x / y; });
    case Primitive::pow: return pairs(n, a, b, out, [](double x, double y) { return std::pow(x, y); });
    case Primitive::less: return pairs(n, a, b, out, [](double x, double y) { return truth(x < y); });
    case Primitive::less_equal: return pairs(n, a, b, out, [](double x, double y) { return truth(x <= y); });
    case Primitive::equal: return pairs(n, a, b, out, [](double x, double y) { return truth(x == y); });
    case Primitive::maximum: return pairs(n, a, b, out, [](double x, double y) { return x > y || x != x ? x : y; });
    case Primitive::where: return choose(n, a, b, c, out);
    default: return run_function(primitive, n, a, out);
  }
}

/// The innermost loop, by blocks: operands that repeat or lie apart are first laid side by side.
void run_loop(Primitive primitive, const Loop& loop, std::size_t operands, const double* const* from, double* out) {
  alignas(64) double laid[3][kPart];
  for (std::size_t k = 0; k < operands; ++k)
    if (loop.stride[k] == 0) std::fill_n(laid[k], std::min(kPart, loop.extent), *from[k]);
  for (std::int64_t begin = 0; begin < loop.extent; begin += kPart) {
    const std::int64_t n = std::min(kPart, loop.extent - begin);
    const double* in[3] = {};
    for (std::size_t k = 0; k < operands; ++k) {
      const std::int64_t stride = loop.stride[k];
      in[k] = stride == 1 ? from[k] + begin : laid[k];
      if (stride > 1)
        for (std::int64_t i = 0; i < n; ++i) laid[k][i] = from[k][(begin + i) * stride];
    }
    run(primitive, n, in[0], in[1], in[2], out + begin);
  }
}

using Four = double __attribute__((vector_size(32), aligned(8), may_alias));
constexpr std::int64_t kRows = 6, kColumns = 8;  // a tile of the product, whose sums stay in registers
constexpr std::int64_t kDepth = 256;             // terms at a time: what they need (28 KiB) stays in the first cache

/// Terms [k0, k0 + depth) of columns [at, at + kColumns) of b [k, m] side by side, with zeros beyond its last.
void pack(const MatmulSizes& s, const double* b, std::int64_t at, std::int64_t k0, std::int64_t depth, double* packed) {
  const std::int64_t columns = std::min(kColumns, s.m - at), row = s.transpose_b ? 1 : s.m,
                     column = s.transpose_b ? s.k : 1;
  const double* const from = b + k0 * row + at * column;
  if (columns == kColumns) {
    for (std::int64_t p = 0; p < depth; ++p)
      for (std::int64_t j = 0; j < kColumns; ++j) packed[p * kColumns + j] = from[p * row + j * column];
    return;
  }
  std::fill_n(packed, depth * kColumns, 0.0);
  for (std::int64_t p = 0; p < depth; ++p)
    for (std::int64_t j = 0; j < columns; ++j) packed[p * kColumns + j] = from[p * row + j * column];
}

/// Continues `sums` by k terms: kRows rows of a, laid side by side as `packed_a` [k, kRows], times the columns.
using Tile = void (*)(std::int64_t k, const double* packed_a, const double* packed_b, double (&sums)[kRows][kColumns]);

void tile_of_fours(std::int64_t k, const double* packed_a, const double* packed_b, double (&sums)[kRows][kColumns]) {
  Four low[kRows], high[kRows];
#pragma GCC unroll 6
  for (std::int64_t i = 0; i < kRows; ++i)
    low[i] = reinterpret_cast<const Four&>(sums[i][0]), high[i] = reinterpret_cast<const Four&>(sums[i][4]);
  for (std::int64_t p = 0; p < k; ++p, packed_a += kRows, packed_b += kColumns) {
    const Four left = reinterpret_cast<const Four&>(packed_b[0]), right = reinterpret_cast<const Four&>(packed_b[4]);
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < kRows; ++i) {
      low[i] += packed_a[i] * left;
      high[i] += packed_a[i] * right;
    }
  }
#pragma GCC unroll 6
  for (std::int64_t i = 0; i < kRows; ++i)
    reinterpret_cast<Four&>(sums[i][0]) = low[i], reinterpret_cast<Four&>(sums[i][4]) = high[i];
}

#ifdef __x86_64__
/// The same chains, and so the same bits, in half as many registers.
__attribute__((target("avx512f"))) void tile_of_eights(std::int64_t k, const double* packed_a, const double* packed_b,
                                                       double (&sums)[kRows][kColumns]) {
  using Eight = double __attribute__((vector_size(64), aligned(8), may_alias));
  Eight all[kRows];
#pragma GCC unroll 6
  for (std::int64_t i = 0; i < kRows; ++i) all[i] = reinterpret_cast<const Eight&>(sums[i][0]);
  for (std::int64_t p = 0; p < k; ++p, packed_a += kRows, packed_b += kColumns) {
    const Eight row = reinterpret_cast<const Eight&>(packed_b[0]);
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < kRows; ++i) all[i] += packed_a[i] * row;
  }
#pragma GCC unroll 6
  for (std::int64_t i = 0; i < kRows; ++i) reinterpret_cast<Eight&>(sums[i][0]) = all[i];
}
Tile widest_tile() { return __builtin_cpu_supports("avx512f") ? tile_of_eights : tile_of_fours; }
#else
Tile widest_tile() { return tile_of_fours; }
#endif

}  // namespace

std::vector<double> plain_elementwise(const Node& node, std::span<const std::vector<double>* const> args,
                                      std::span<const Shape* const> shapes) {
  std::vector<double> out(static_cast<std::size_t>(node.shape.count()));
  if (out.empty()) return out;
  const std::vector<Loop> loops = loops_of(node.shape, shapes);
  const Loop& inner = loops.back();
  const std::size_t outer = loops.size() - 1;
  std::vector<std::int64_t> index(outer, 0);
  const double* from[3] = {};
  for (std::size_t k = 0; k < args.size(); ++k) from[k] = args[k]->data();
  for (std::int64_t at = 0; at < std::ssize(out); at += inner.extent) {
    run_loop(node.primitive, inner, args.size(), from, out.data() + at);
    for (std::size_t axis = outer; axis-- > 0;) {
      for (std::size_t k = 0; k < args.size(); ++k) from[k] += loops[axis].stride[k];
      if (++index[axis] < loops[axis].extent) break;
      for (std::size_t k = 0; k < args.size(); ++k) from[k] -= loops[axis].stride[k] * loops[axis].extent;
      index[axis] = 0;
    }
  }
  return out;
}

void plain_sums(const double* x, std::int64_t outer, std::int64_t n, std::int64_t inner, double* out) {
  for (std::int64_t o = 0; o < outer; ++o, x += n * inner, out += inner) {
    if (inner == 1) {
      double sum = 0;
      for (std::int64_t k = 0; k < n; ++k) sum += x[k];
      *out = sum;
      continue;
    }
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t i = 0; i < inner; ++i) out[i] += x[k * inner + i];
  }
}

void plain_matmul(const MatmulSizes& s, const double* a, const double* b, double* out) {
  static const Tile tile = widest_tile();
  constexpr std::int64_t kTiles = 4;  // columns at a time: what a row of the result takes of them lies side by side
  const std::int64_t row_tiles = (s.n + kRows - 1) / kRows, part = kColumns * std::min(kDepth, s.k);
  std::vector<double> packed_a(static_cast<std::size_t>(row_tiles * kRows * s.k)),
      packed_b(static_cast<std::size_t>(kTiles * part));
  if (s.transpose_a) {  // in the order in which it lies
    for (std::int64_t p = 0; p < s.k; ++p)
      for (std::int64_t row = 0; row < s.n; row += kRows)
        std::copy_n(a + p * s.n + row, std::min(kRows, s.n - row), packed_a.data() + row * s.k + p * kRows);
  } else {
    for (std::int64_t i = 0; i < s.n; ++i) {
      double* const to = packed_a.data() + i / kRows * s.k * kRows + i % kRows;
      for (std::int64_t p = 0; p < s.k; ++p) to[p * kRows] = a[i * s.k + p];
    }
  }
  if (s.k == 0) std::fill_n(out, s.n * s.m, 0.0);
  for (std::int64_t panel = 0; panel < s.m; panel += kTiles * kColumns) {
    const std::int64_t end = std::min(s.m, panel + kTiles * kColumns);
    for (std::int64_t k0 = 0; k0 < s.k; k0 += kDepth) {
      const std::int64_t depth = std::min(kDepth, s.k - k0);
      for (std::int64_t column = panel; column < end; column += kColumns)
        pack(s, b, column, k0, depth, packed_b.data() + (column - panel) / kColumns * part);
      for (std::int64_t row = 0; row < s.n; row += kRows)
        for (std::int64_t column = panel; column < end; column += kColumns) {
          double sums[kRows][kColumns] = {};
          const std::int64_t rows = std::min(kRows, s.n - row), columns = std::min(kColumns, s.m - column);
          for (std::int64_t i = 0; k0 > 0 && i < rows; ++i)
            std::copy_n(out + (row + i) * s.m + column, columns, sums[i]);
          tile(depth, packed_a.data() + row * s.k + k0 * kRows, packed_b.data() + (column - panel) / kColumns * part,
               sums);
          for (std::int64_t i = 0; i < rows; ++i) std::copy_n(sums[i], columns, out + (row + i) * s.m + column);
        }
    }
  }
}

}  // namespace ampcheck::reference
