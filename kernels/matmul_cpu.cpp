// SPDX-License-Identifier: Apache-2.0
// The CPU matrix product: panels packed as fp32, a 6 x 16 tile of chains in registers (Goto & van de Geijn 2008); 12 x
// 32 where the processor has AVX-512. A chain is the same in either, and so are the bits.
#include "kernels/matmul.h"

#include "kernels/cores.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <memory>
#include <type_traits>

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

constexpr std::int64_t kTileRows = 6;  // 6 x 16 chains fill 12 of the 16 vector registers
constexpr std::int64_t kTileColumns = 16;
constexpr std::int64_t kDepth =
    512;  // k at a time: 12 rows of A (24 KiB) stay in the first-level cache, and B comes from the second
constexpr std::int64_t kBlockRows = 96;  // a block of A (192 KiB) stays in the second-level cache
constexpr std::int64_t kFewRows =
    192;  // up to here a panel of B is used once and so packed just before: these columns of it (128 KiB) at a time
constexpr std::int64_t kChunkColumns = 64;

struct AlignedDelete {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t(64)); }
};
using Buffer = std::unique_ptr<float[], AlignedDelete>;

Buffer buffer_of(std::int64_t floats) {
  return Buffer(static_cast<float*>(::operator new[](static_cast<std::size_t>(floats) * 4, std::align_val_t(64))));
}

#if defined(__AVX2__) && defined(__FMA__)

/// to[k * 16 + i] = from[i * stride + k] for i and k below 8.
void transpose_8x8(const float* from, std::int64_t stride, float* to) {
  __m256 row[8], pair[8], four[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) row[i] = _mm256_loadu_ps(from + i * stride);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pair[2 * i] = _mm256_unpacklo_ps(row[2 * i], row[2 * i + 1]);
    pair[2 * i + 1] = _mm256_unpackhi_ps(row[2 * i], row[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      four[4 * i + 2 * k] = _mm256_shuffle_ps(pair[4 * i + k], pair[4 * i + 2 + k], 0x44);
      four[4 * i + 2 * k + 1] = _mm256_shuffle_ps(pair[4 * i + k], pair[4 * i + 2 + k], 0xee);
    }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    _mm256_storeu_ps(to + k * kTileColumns, _mm256_permute2f128_ps(four[k], four[4 + k], 0x20));
    _mm256_storeu_ps(to + (4 + k) * kTileColumns, _mm256_permute2f128_ps(four[k], four[4 + k], 0x31));
  }
}

/// Of 16 rows, as many k as come in sixteens; returns how many. Eight rows at a time: more may be lines of one set of
/// the first cache.
std::int64_t transpose(const float* from, std::int64_t stride, std::int64_t depth, float* packed) {
  const std::int64_t whole = depth / kTileColumns * kTileColumns;
  for (std::int64_t k = 0; k < whole; k += kTileColumns)
    for (int i = 0; i < kTileColumns; i += 8) {
      for (int line = 0; line < 8; ++line)
        _mm_prefetch(reinterpret_cast<const char*>(from + (i + line) * stride + k) + 256, _MM_HINT_T0);
      for (int half = 0; half < kTileColumns; half += 8)
        transpose_8x8(from + i * stride + k + half, stride, packed + (k + half) * kTileColumns + i);
    }
  return whole;
}

#else
std::int64_t transpose(const float*, std::int64_t, std::int64_t, float*) { return 0; }
#endif

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
  if constexpr (std::is_same_v<T, float> && width == kTileColumns) {
    if (n == width && m.column_stride == 1) {
      for (std::int64_t k = transpose(from, m.row_stride, depth, packed); k < depth; ++k)
        for (std::int64_t i = 0; i < width; ++i) packed[k * width + i] = from[i * m.row_stride + k];
      return;
    }
  }
  constexpr std::int64_t kApart =
      kDepth + 16;                       // so that equal places of the rows are not in one set of the first-level cache
  alignas(64) float row[width][kApart];  // one row at a time as fp32, so that the conversion vectorises
  for (std::int64_t i = 0; i < n; ++i) {
    const T* line = from + i * m.row_stride;
    if (m.column_stride == 1)
      for (std::int64_t k = 0; k < depth; ++k) row[i][k] = to_float(line[k]);
    else
      for (std::int64_t k = 0; k < depth; ++k) row[i][k] = to_float(line[k * m.column_stride]);
  }
  if (n == width) {
    std::int64_t k = 0;
    if constexpr (width == kTileColumns) k = transpose(row[0], kApart, depth, packed);
    for (; k < depth; ++k)
      for (std::int64_t i = 0; i < width; ++i) packed[k * width + i] = row[i][k];
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < depth; ++k) packed[k * width + i] = row[i][k];
  }
}

/// Panels of 16 side by side of a matrix whose rows are the inner ones: by k, so that each of its pages comes once.
template <class T>
void pack_beside(const Matrix& m, std::int64_t first, std::int64_t n, std::int64_t k0, std::int64_t depth,
                 float* __restrict__ packed) {
  const T* from = static_cast<const T*>(m.data) + first + k0 * m.column_stride;
  for (std::int64_t k = 0; k < depth; ++k, from += m.column_stride, packed += kTileColumns)
    for (std::int64_t j = 0; j < n; j += kTileColumns)
      for (std::int64_t i = 0; i < kTileColumns; ++i) packed[j * depth + i] = to_float(from[j + i]);
}

/// Calls f with a number of the type that `dtype` stores.
template <class F>
void with_storage(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::fp32: return f(float());
    case Dtype::bf16: return f(Bf16());
    case Dtype::fp16: return f(Fp16());
    default: throw Error("[matmul] dtype, got " + std::string(name(dtype)) + ", want fp32, fp16 or bf16");
  }
}

template <std::int64_t width>
void pack(const Matrix& m, std::int64_t first, std::int64_t n, std::int64_t k0, std::int64_t depth, float* packed) {
  with_storage(m.dtype, [&](auto storage) { pack_panel<decltype(storage), width>(m, first, n, k0, depth, packed); });
}

/// Some columns of B, `columns` transposed, as panels.
void pack_columns(const Matrix& columns, std::int64_t first, std::int64_t n, std::int64_t k0, std::int64_t depth,
                  float* packed) {
  if (columns.row_stride == 1 && n % kTileColumns == 0)
    return with_storage(columns.dtype,
                        [&](auto storage) { pack_beside<decltype(storage)>(columns, first, n, k0, depth, packed); });
  for (std::int64_t j = 0; j < n; j += kTileColumns)
    pack<kTileColumns>(columns, first + j, std::min(kTileColumns, n - j), k0, depth, packed + j * depth);
}

#if defined(__AVX2__) && defined(__FMA__)

/// Continues 6 x 16 chains over `depth` steps; `fresh`: they begin at 0, whatever c holds.
void tile(const float* __restrict__ a, const float* __restrict__ b, std::int64_t depth, float* __restrict__ c,
          std::int64_t stride, bool fresh) {
  __m256 low[kTileRows], high[kTileRows];
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    low[i] = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(c + i * stride);
    high[i] = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(c + i * stride + 8);
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

/// Continues `rows` x 32 chains, at most 12: two panels of A, `a_panel` apart, by two of B.
template <int rows>
__attribute__((target("avx512f"))) void wide_rows(const float* __restrict__ a, std::int64_t a_panel,
                                                  const float* __restrict__ b, std::int64_t b_panel, std::int64_t depth,
                                                  float* __restrict__ c, std::int64_t stride, bool fresh) {
  __m512 low[rows], high[rows];
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) {
    low[i] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i * stride);
    high[i] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i * stride + kTileColumns);
  }
  for (int i = 0; i < rows; ++i) {  // of the next tile below; past the end of c it does nothing
    const auto below =
        reinterpret_cast<std::uintptr_t>(c) + static_cast<std::uintptr_t>((rows + i) * stride) * sizeof(float);
    __builtin_prefetch(reinterpret_cast<const void*>(below), 1);
    __builtin_prefetch(reinterpret_cast<const void*>(below + 64), 1);
  }
  for (std::int64_t k = 0; k < depth; ++k, a += kTileRows, b += kTileColumns) {
    const __m512 b_low = _mm512_load_ps(b), b_high = _mm512_load_ps(b + b_panel);
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
      const __m512 a_i = _mm512_set1_ps(a[i < kTileRows ? i : a_panel + i - kTileRows]);
      low[i] = _mm512_fmadd_ps(a_i, b_low, low[i]);
      high[i] = _mm512_fmadd_ps(a_i, b_high, high[i]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) {
    _mm512_storeu_ps(c + i * stride, low[i]);
    _mm512_storeu_ps(c + i * stride + kTileColumns, high[i]);
  }
}

using WideTile = void (*)(const float* a, std::int64_t a_panel, const float* b, std::int64_t b_panel,
                          std::int64_t depth, float* c, std::int64_t stride, bool fresh);
constexpr WideTile kWideTiles[] = {nullptr,       wide_rows<1>,  wide_rows<2>, wide_rows<3>, wide_rows<4>,
                                   wide_rows<5>,  wide_rows<6>,  wide_rows<7>, wide_rows<8>, wide_rows<9>,
                                   wide_rows<10>, wide_rows<11>, wide_rows<12>};

void wide_tile(std::int64_t rows, const float* a, std::int64_t a_panel, const float* b, std::int64_t b_panel,
               std::int64_t depth, float* c, std::int64_t stride, bool fresh) {
  kWideTiles[rows](a, a_panel, b, b_panel, depth, c, stride, fresh);
}

bool runs_wide() {
  static const bool yes = __builtin_cpu_supports("avx512f");
  return yes;
}

#else

void wide_tile(std::int64_t, const float*, std::int64_t, const float*, std::int64_t, std::int64_t, float*, std::int64_t,
               bool) {}
bool runs_wide() { return false; }

void tile(const float* __restrict__ a, const float* __restrict__ b, std::int64_t depth, float* __restrict__ c,
          std::int64_t stride, bool fresh) {
  for (int i = 0; fresh && i < kTileRows; ++i) std::fill_n(c + i * stride, kTileColumns, 0.0f);
  for (std::int64_t k = 0; k < depth; ++k)
    for (int i = 0; i < kTileRows; ++i)
      for (int j = 0; j < kTileColumns; ++j)
        c[i * stride + j] = math::fma(a[k * kTileRows + i], b[k * kTileColumns + j], c[i * stride + j]);
}

#endif

/// A tile at the edge of c, on a copy: the padded rows and columns are not stored.
void edge_tile(const float* a, const float* b, std::int64_t depth, float* c, std::int64_t stride, std::int64_t rows,
               std::int64_t columns, bool fresh) {
  alignas(64) float copy[kTileRows * kTileColumns] = {};
  for (std::int64_t i = 0; !fresh && i < rows; ++i) std::copy_n(c + i * stride, columns, copy + i * kTileColumns);
  tile(a, b, depth, copy, kTileColumns, false);
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(copy + i * kTileColumns, columns, c + i * stride);
}

/// Fetches a piece of a matrix into the second-level cache, a few lines at a time between other work. What lies in no
/// lines of its own is left.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const Matrix& m, std::int64_t first, std::int64_t n, std::int64_t k0, std::int64_t depth) {
    const std::int64_t size = bytes(m.dtype);
    if (m.row_stride != 1 && m.column_stride != 1) return;
    const bool rows_lie = m.column_stride == 1;
    at_ = static_cast<const char*>(m.data) + (first * m.row_stride + k0 * m.column_stride) * size;
    runs_ = rows_lie ? n : depth;
    step_ = (rows_lie ? m.row_stride : m.column_stride) * size;
    length_ = (rows_lie ? depth : n) * size;
  }
  void fetch(int lines) {
    for (; lines > 0 && runs_ > 0; --lines) {
      __builtin_prefetch(at_ + offset_, 0, 2);
      offset_ += 64;
      if (offset_ >= length_) {
        --runs_;
        at_ += runs_ > 0 ? step_ : 0;
        offset_ = 0;
      }
    }
  }

 private:
  const char* at_ = nullptr;
  std::int64_t runs_ = 0, step_ = 0, length_ = 0, offset_ = 0;
};

/// c [rows, columns], rows `stride` apart, continued over `depth` steps: packed panels of A by packed panels of B.
void multiply_panels(const float* packed_a, const float* packed_b, std::int64_t rows, std::int64_t columns,
                     std::int64_t depth, float* c, std::int64_t stride, bool fresh, Ahead ahead = {}) {
  static const bool wide = runs_wide();
  constexpr int kLines = 96;  // after each tile of some ten thousand cycles
  const auto narrow = [&](std::int64_t i, std::int64_t j) {
    const std::int64_t width = std::min(kTileColumns, columns - j);
    float* const at = c + i * stride + j;
    if (rows - i >= kTileRows && width == kTileColumns)
      tile(packed_a + i * depth, packed_b + j * depth, depth, at, stride, fresh);
    else
      edge_tile(packed_a + i * depth, packed_b + j * depth, depth, at, stride, std::min(kTileRows, rows - i), width,
                fresh);
  };
  for (std::int64_t j = 0; j < columns; j += 2 * kTileColumns) {
    const bool two = columns - j >= 2 * kTileColumns;
    std::int64_t i = 0;
    for (; wide && two && i < rows; i += 2 * kTileRows, ahead.fetch(kLines))
      wide_tile(std::min(2 * kTileRows, rows - i), packed_a + i * depth, kTileRows * depth, packed_b + j * depth,
                kTileColumns * depth, depth, c + i * stride + j, stride, fresh);
    for (std::int64_t k = j; k < std::min(columns, j + 2 * kTileColumns); k += kTileColumns)
      for (std::int64_t rest = i; rest < rows; rest += kTileRows) narrow(rest, k);
  }
}

/// Of few rows: all of A packed, and B as its columns come.
void multiply_few_rows(const Matrix& a, const Matrix& b, float* c, bool from_zero) {
  const std::int64_t rows = a.rows, columns = b.columns, depth = a.columns,
                     padded_rows = (rows + kTileRows - 1) / kTileRows * kTileRows;
  const Buffer packed_a = buffer_of(depth * padded_rows);  // block k0 begins at k0 * padded rows
  for (std::int64_t k0 = 0; k0 < depth; k0 += kDepth) {
    const std::int64_t d = std::min(kDepth, depth - k0);
    for (std::int64_t i = 0; i < rows; i += kTileRows)
      pack<kTileRows>(a, i, std::min(kTileRows, rows - i), k0, d, packed_a.get() + k0 * padded_rows + i * d);
  }
  const Matrix b_columns = b.transposed();
  parallel_for((columns + kChunkColumns - 1) / kChunkColumns, 1, [&](std::int64_t begin, std::int64_t end) {
    const Buffer packed_b = buffer_of(std::min(kDepth, depth) * kChunkColumns);
    const std::int64_t depths = (depth + kDepth - 1) / kDepth;
    for (std::int64_t piece = begin * depths; piece < end * depths; ++piece) {
      const auto columns_of = [&](std::int64_t of) {
        return std::min(kChunkColumns, columns - of / depths * kChunkColumns);
      };
      const auto depth_of = [&](std::int64_t of) { return std::min(kDepth, depth - of % depths * kDepth); };
      const std::int64_t first = piece / depths * kChunkColumns, n = columns_of(piece), k0 = piece % depths * kDepth,
                         d = depth_of(piece), next = piece + 1;
      pack_columns(b_columns, first, n, k0, d, packed_b.get());
      const Ahead ahead = next < end * depths ? Ahead(b_columns, next / depths * kChunkColumns, columns_of(next),
                                                      next % depths * kDepth, depth_of(next))
                                              : Ahead();
      multiply_panels(packed_a.get() + k0 * padded_rows, packed_b.get(), rows, n, d, c + first, columns,
                      from_zero && k0 == 0, ahead);
    }
  });
}

}  // namespace

void matmul_accumulate(const Matrix& a, const Matrix& b, float* c, bool from_zero) {
  const std::int64_t rows = a.rows, columns = b.columns, depth = a.columns;
  if (b.rows != depth)
    throw Error("[matmul] inner extents differ, got " + std::to_string(depth) + " and " + std::to_string(b.rows));
  if (from_zero && depth == 0) std::fill_n(c, rows * columns, 0.0f);
  if (rows == 0 || columns == 0 || depth == 0) return;
  if (const Cores* const cores = cores_of_thread(); cores != nullptr && core_matmul(*cores, a, b, c, from_zero)) return;
  if (rows <= kFewRows) return multiply_few_rows(a, b, c, from_zero);
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
      pack<kTileColumns>(b_columns, j, std::min(kTileColumns, columns - j), k0, d,
                         packed_b.get() + k0 * padded + j * d);
    }
  });
  const std::int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const Buffer packed_a = buffer_of(kBlockRows * kDepth);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t i0 = block * kBlockRows, n = std::min(kBlockRows, rows - i0);
      for (std::int64_t k0 = 0; k0 < depth; k0 += kDepth) {
        const std::int64_t d = std::min(kDepth, depth - k0);
        for (std::int64_t i = 0; i < n; i += kTileRows)
          pack<kTileRows>(a, i0 + i, std::min(kTileRows, n - i), k0, d, packed_a.get() + i * d);
        multiply_panels(packed_a.get(), packed_b.get() + k0 * padded, n, columns, d, c + i0 * columns, columns,
                        from_zero && k0 == 0);
      }
    }
  });
}

}  // namespace ampcheck::kernels
