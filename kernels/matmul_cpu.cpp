// SPDX-License-Identifier: Apache-2.0
// The CPU matrix product: panels packed as fp32, a 6 x 16 tile of chains in registers (Goto & van de Geijn 2008); 12 x 32 where the processor
// has AVX-512. A chain is the same in either, and so are the bits.
#include "kernels/matmul.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <memory>

#include "src/parallel.h"

namespace ampcheck::kernels {

Matrix::Matrix(const TensorView& view)
    : data(view.data),
      dtype(view.dtype),
      rows(view.shape.last(1)),
      columns(view.shape.last()),
      row_stride(view.strides.last(1)),
      column_stride(view.strides.last()) {}

Matrix::Matrix(const float* dense, std::int64_t row_count, std::int64_t column_count)
    : data(dense), rows(row_count), columns(column_count), row_stride(column_count), column_stride(1) {}

Matrix Matrix::transposed() const {
  Matrix other = *this;
  std::swap(other.rows, other.columns);
  std::swap(other.row_stride, other.column_stride);
  return other;
}

namespace {

constexpr std::int64_t kTileRows = 6;      // 6 x 16 chains fill 12 of the 16 vector registers
constexpr std::int64_t kTileColumns = 16;
constexpr std::int64_t kDepth = 256;       // k at a time: a panel of B (16 KiB) stays in the first-level cache
constexpr std::int64_t kBlockRows = 96;    // a block of A (96 KiB) stays in the second-level cache

struct AlignedDelete {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t(64)); }
};
using Buffer = std::unique_ptr<float[], AlignedDelete>;

Buffer buffer_of(std::int64_t floats) {
  return Buffer(static_cast<float*>(::operator new[](static_cast<std::size_t>(floats) * 4, std::align_val_t(64))));
}

/// packed[k * width + i] = m[first + i, k0 + k] for i < n and 0 up to width: the rows of one panel, k outermost.
template <class T, std::int64_t width>
void pack_panel(const Matrix& m, std::int64_t first, std::int64_t n, std::int64_t k0, std::int64_t depth,
                float* __restrict__ packed) {
  const T* from = static_cast<const T*>(m.data) + first * m.row_stride + k0 * m.column_stride;
  if (n < width) std::fill(packed, packed + depth * width, 0.0f);
  if (m.row_stride == 1 && n == width) {
    for (std::int64_t k = 0; k < depth; ++k)
      for (std::int64_t i = 0; i < width; ++i) packed[k * width + i] = to_float(from[k * m.column_stride + i]);
    return;
  }
  alignas(64) float row[width][kDepth];  // one row at a time as fp32, so that the conversion vectorises
  for (std::int64_t i = 0; i < n; ++i) {
    const T* line = from + i * m.row_stride;
    if (m.column_stride == 1)
      for (std::int64_t k = 0; k < depth; ++k) row[i][k] = to_float(line[k]);
    else
      for (std::int64_t k = 0; k < depth; ++k) row[i][k] = to_float(line[k * m.column_stride]);
  }
  if (n == width) {
    for (std::int64_t k = 0; k < depth; ++k)
      for (std::int64_t i = 0; i < width; ++i) packed[k * width + i] = row[i][k];
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < depth; ++k) packed[k * width + i] = row[i][k];
  }
}

template <std::int64_t width>
void pack(const Matrix& m, std::int64_t first, std::int64_t n, std::int64_t k0, std::int64_t depth, float* packed) {
  switch (m.dtype) {
    case Dtype::fp32: return pack_panel<float, width>(m, first, n, k0, depth, packed);
    case Dtype::bf16: return pack_panel<Bf16, width>(m, first, n, k0, depth, packed);
    case Dtype::fp16: return pack_panel<Fp16, width>(m, first, n, k0, depth, packed);
    default: throw Error("[matmul] dtype, got " + std::string(name(m.dtype)) + ", want fp32, fp16 or bf16");
  }
}

#if defined(__AVX2__) && defined(__FMA__)

/// Continues 6 x 16 chains over `depth` steps.
void tile(const float* __restrict__ a, const float* __restrict__ b, std::int64_t depth, float* __restrict__ c,
          std::int64_t stride) {
  __m256 low[kTileRows], high[kTileRows];
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    low[i] = _mm256_loadu_ps(c + i * stride);
    high[i] = _mm256_loadu_ps(c + i * stride + 8);
  }
  for (std::int64_t k = 0; k < depth; ++k, a += kTileRows, b += kTileColumns) {
    const __m256 b_low = _mm256_load_ps(b), b_high = _mm256_load_ps(b + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kTileRows; ++i) {
      const __m256 a_i = _mm256_broadcast_ss(a + i);
      low[i] = _mm256_fmadd_ps(a_i, b_low, low[i]);
      high[i] = _mm256_fmadd_ps(a_i, b_high, high[i]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    _mm256_storeu_ps(c + i * stride, low[i]);
    _mm256_storeu_ps(c + i * stride + 8, high[i]);
  }
}

/// Continues 12 x 32 chains: two panels of A, `a_panel` apart, by two of B.
__attribute__((target("avx512f"))) void wide_tile(const float* __restrict__ a, std::int64_t a_panel, const float* __restrict__ b, std::int64_t b_panel,
                                                  std::int64_t depth, float* __restrict__ c, std::int64_t stride) {
  __m512 low[2 * kTileRows], high[2 * kTileRows];
#pragma GCC unroll 12
  for (int i = 0; i < 2 * kTileRows; ++i) {
    low[i] = _mm512_loadu_ps(c + i * stride);
    high[i] = _mm512_loadu_ps(c + i * stride + kTileColumns);
  }
  for (std::int64_t k = 0; k < depth; ++k, a += kTileRows, b += kTileColumns) {
    const __m512 b_low = _mm512_load_ps(b), b_high = _mm512_load_ps(b + b_panel);
#pragma GCC unroll 12
    for (int i = 0; i < 2 * kTileRows; ++i) {
      const __m512 a_i = _mm512_set1_ps(a[i < kTileRows ? i : a_panel + i - kTileRows]);
      low[i] = _mm512_fmadd_ps(a_i, b_low, low[i]);
      high[i] = _mm512_fmadd_ps(a_i, b_high, high[i]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < 2 * kTileRows; ++i) {
    _mm512_storeu_ps(c + i * stride, low[i]);
    _mm512_storeu_ps(c + i * stride + kTileColumns, high[i]);
  }
}

bool runs_wide() {
  static const bool yes = __builtin_cpu_supports("avx512f");
  return yes;
}

#else

void wide_tile(const float*, std::int64_t, const float*, std::int64_t, std::int64_t, float*, std::int64_t) {}
bool runs_wide() { return false; }

void tile(const float* __restrict__ a, const float* __restrict__ b, std::int64_t depth, float* __restrict__ c,
          std::int64_t stride) {
  for (std::int64_t k = 0; k < depth; ++k)
    for (int i = 0; i < kTileRows; ++i)
      for (int j = 0; j < kTileColumns; ++j)
        c[i * stride + j] = math::fma(a[k * kTileRows + i], b[k * kTileColumns + j], c[i * stride + j]);
}

#endif

/// A tile at the edge of c, on a copy: the padded rows and columns are not stored.
void edge_tile(const float* a, const float* b, std::int64_t depth, float* c, std::int64_t stride, std::int64_t rows,
               std::int64_t columns) {
  alignas(64) float copy[kTileRows * kTileColumns] = {};
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(c + i * stride, columns, copy + i * kTileColumns);
  tile(a, b, depth, copy, kTileColumns);
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(copy + i * kTileColumns, columns, c + i * stride);
}

}  // namespace

void matmul_accumulate(const Matrix& a, const Matrix& b, float* c) {
  const std::int64_t rows = a.rows, columns = b.columns, depth = a.columns;
  if (b.rows != depth)
    throw Error("[matmul] inner extents differ, got " + std::to_string(depth) + " and " + std::to_string(b.rows));
  if (rows == 0 || columns == 0 || depth == 0) return;
  const std::int64_t panels = (columns + kTileColumns - 1) / kTileColumns;
  const std::int64_t depths = (depth + kDepth - 1) / kDepth;
  // B as panels of 16 columns: block k0 begins at k0 * padded columns.
  const std::int64_t padded = panels * kTileColumns;
  const Buffer packed_b = buffer_of(depth * padded);
  const Matrix b_columns = b.transposed();
  parallel_for(panels * depths, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t k0 = piece / panels * kDepth, j = piece % panels * kTileColumns;
      const std::int64_t d = std::min(kDepth, depth - k0);
      pack<kTileColumns>(b_columns, j, std::min(kTileColumns, columns - j), k0, d, packed_b.get() + k0 * padded + j * d);
    }
  });
  const std::int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const bool wide = runs_wide();
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const Buffer packed_a = buffer_of(kBlockRows * kDepth);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t i0 = block * kBlockRows, n = std::min(kBlockRows, rows - i0);
      for (std::int64_t k0 = 0; k0 < depth; k0 += kDepth) {
        const std::int64_t d = std::min(kDepth, depth - k0);
        for (std::int64_t i = 0; i < n; i += kTileRows)
          pack<kTileRows>(a, i0 + i, std::min(kTileRows, n - i), k0, d, packed_a.get() + i * d);
        const float* const panels_b = packed_b.get() + k0 * padded;
        const auto narrow = [&](std::int64_t i, std::int64_t j) {
          const std::int64_t width = std::min(kTileColumns, columns - j);
          float* const at = c + (i0 + i) * columns + j;
          if (n - i >= kTileRows && width == kTileColumns) tile(packed_a.get() + i * d, panels_b + j * d, d, at, columns);
          else edge_tile(packed_a.get() + i * d, panels_b + j * d, d, at, columns, std::min(kTileRows, n - i), width);
        };
        for (std::int64_t j = 0; j < columns; j += 2 * kTileColumns) {
          const bool two = columns - j >= 2 * kTileColumns;
          std::int64_t i = 0;
          for (; wide && two && i + 2 * kTileRows <= n; i += 2 * kTileRows)
            wide_tile(packed_a.get() + i * d, kTileRows * d, panels_b + j * d, kTileColumns * d, d, c + (i0 + i) * columns + j, columns);
          for (std::int64_t k = j; k < std::min(columns, j + 2 * kTileColumns); k += kTileColumns)
            for (std::int64_t rest = i; rest < n; rest += kTileRows) narrow(rest, k);
        }
      }
    }
  });
}

}  // namespace ampcheck::kernels
