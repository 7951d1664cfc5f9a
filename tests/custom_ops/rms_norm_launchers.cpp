// SPDX-License-Identifier: Apache-2.0
// Launchers as kernel libraries export them, which know nothing of ampcheck: RMSNorm with rows of any stride, and two
// broken backwards. rms_norm_launchers.toml describes them.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

struct bf16 {
  uint16_t bits;
};
float load(float x) { return x; }
float load(bf16 x) {
  const uint32_t wide = uint32_t{x.bits} << 16;
  float out;
  std::memcpy(&out, &wide, sizeof out);
  return out;
}
void store(float* to, float x) { *to = x; }
void store(bf16* to, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  to->bits = static_cast<uint16_t>(x != x ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <class T>
void forward(const T* x, const T* weight, T* y, float* inv_rms, int64_t rows, int columns, const int64_t* strides_x,
             const int64_t* strides_y, int64_t stride_w, int64_t stride_r, float eps) {
  for (int64_t i = 0; i < rows; ++i) {
    float sum = 0;
    for (int j = 0; j < columns; ++j) {
      const float v = load(x[i * strides_x[0] + j * strides_x[1]]);
      sum += v * v;
    }
    const float r = 1 / std::sqrt(sum / static_cast<float>(columns) + eps);
    inv_rms[i * stride_r] = r;
    for (int j = 0; j < columns; ++j)
      store(&y[i * strides_y[0] + j * strides_y[1]],
            load(x[i * strides_x[0] + j * strides_x[1]]) * r * load(weight[j * stride_w]));
  }
}

enum Version { kRight, kStridesOfX, kForgetsNorm };

/// total: columns floats, in any state.
template <class T>
void backward(Version version, const T* x, const T* weight, const float* inv_rms, const T* dy, T* dx, T* dweight,
              float* total, int64_t rows, int columns, const int64_t* sx, const int64_t* sdy, const int64_t* sdx,
              int64_t stride_w, int64_t stride_r, int64_t stride_dw) {
  if (version == kStridesOfX) sdy = sx;
  for (int j = 0; j < columns; ++j) total[j] = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const float r = inv_rms[i * stride_r];
    float dot = 0;
    for (int j = 0; j < columns; ++j)
      dot += load(dy[i * sdy[0] + j * sdy[1]]) * load(weight[j * stride_w]) * (load(x[i * sx[0] + j * sx[1]]) * r);
    for (int j = 0; j < columns; ++j) {
      const float n = load(x[i * sx[0] + j * sx[1]]) * r,
                  g = load(dy[i * sdy[0] + j * sdy[1]]) * load(weight[j * stride_w]);
      const float inside = g - n * (dot / static_cast<float>(columns));
      store(&dx[i * sdx[0] + j * sdx[1]], version == kForgetsNorm ? inside : r * inside);
      total[j] += load(dy[i * sdy[0] + j * sdy[1]]) * n;
    }
  }
  for (int j = 0; j < columns; ++j) store(&dweight[j * stride_dw], total[j]);
}

}  // namespace

// Codes of the storage type, as a library of its own would have them.
enum { kFloat = 0, kBFloat16 = 15 };

extern "C" {

void launch_rms_norm(const void* x, const void* weight, void* y, float* inv_rms, int64_t rows, int columns,
                     const int64_t* strides_x, const int64_t* strides_y, int64_t stride_w, int64_t stride_r, float eps,
                     int dtype, void* /*stream*/) {
  if (dtype == kBFloat16)
    forward(static_cast<const bf16*>(x), static_cast<const bf16*>(weight), static_cast<bf16*>(y), inv_rms, rows,
            columns, strides_x, strides_y, stride_w, stride_r, eps);
  else
    forward(static_cast<const float*>(x), static_cast<const float*>(weight), static_cast<float*>(y), inv_rms, rows,
            columns, strides_x, strides_y, stride_w, stride_r, eps);
}

/* The same with one rounding of each result, and the same with much idle work. */
void launch_rms_norm_exact(const void* x, const void* weight, void* y, float* inv_rms, int64_t rows, int columns,
                           const int64_t* sx, const int64_t* sy, int64_t stride_w, int64_t stride_r, float eps,
                           int dtype, void* /*stream*/) {
  const auto at = [dtype](const void* t, int64_t i) {
    return static_cast<double>(dtype == kBFloat16 ? load(static_cast<const bf16*>(t)[i])
                                                  : static_cast<const float*>(t)[i]);
  };
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int j = 0; j < columns; ++j) sum += at(x, i * sx[0] + j * sx[1]) * at(x, i * sx[0] + j * sx[1]);
    const double r = 1 / std::sqrt(sum / columns + static_cast<double>(eps));
    inv_rms[i * stride_r] = static_cast<float>(r);
    for (int j = 0; j < columns; ++j) {
      const auto out = static_cast<float>(at(x, i * sx[0] + j * sx[1]) * r * at(weight, j * stride_w));
      if (dtype == kBFloat16)
        store(&static_cast<bf16*>(y)[i * sy[0] + j * sy[1]], out);
      else
        static_cast<float*>(y)[i * sy[0] + j * sy[1]] = out;
    }
  }
}

void launch_rms_norm_slow(const void* x, const void* weight, void* y, float* inv_rms, int64_t rows, int columns,
                          const int64_t* sx, const int64_t* sy, int64_t stride_w, int64_t stride_r, float eps,
                          int dtype, void* stream) {
  launch_rms_norm(x, weight, y, inv_rms, rows, columns, sx, sy, stride_w, stride_r, eps, dtype, stream);
  volatile float work = 0;
  for (int64_t k = 0; k < 100 * (rows * columns + 100); ++k) work = work + 1;
}

#define BACKWARD(NAME, T, VERSION)                                                                                     \
  int NAME(const T* x, const T* weight, const float* inv_rms, const T* dy, T* dx, T* dweight, float* workspace,        \
           uint64_t workspace_bytes, int64_t rows, int columns, const int64_t* sx, const int64_t* sdy,                 \
           const int64_t* sdx, int64_t stride_w, int64_t stride_r, int64_t stride_dw) {                                \
    if (workspace_bytes < sizeof(float) * static_cast<uint64_t>(columns)) return 2;                                    \
    backward(VERSION, x, weight, inv_rms, dy, dx, dweight, workspace, rows, columns, sx, sdy, sdx, stride_w, stride_r, \
             stride_dw);                                                                                               \
    return 0;                                                                                                          \
  }
BACKWARD(rms_norm_backward_fp32, float, kRight)
BACKWARD(rms_norm_backward_bf16, bf16, kRight)
BACKWARD(rms_norm_strides_of_x_fp32, float, kStridesOfX)
BACKWARD(rms_norm_strides_of_x_bf16, bf16, kStridesOfX)
BACKWARD(rms_norm_forgets_norm_fp32, float, kForgetsNorm)
BACKWARD(rms_norm_forgets_norm_bf16, bf16, kForgetsNorm)

/* y = x^3, with the backward of its backward, once without a factor of 2. */
void cube(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * x[i] * x[i];
}
void cube_backward(const float* x, const float* dy, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dx[i] = 3 * (x[i] * x[i]) * dy[i];
}
void cube_double_backward(const float* x, const float* dy, const float* dgrad_x, float* dx, float* ddy, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    dx[i] = 6 * x[i] * dy[i] * dgrad_x[i];
    ddy[i] = 3 * (x[i] * x[i]) * dgrad_x[i];
  }
}
void cube_double_backward_by_3(const float* x, const float* dy, const float* dgrad_x, float* dx, float* ddy,
                               int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    dx[i] = 3 * x[i] * dy[i] * dgrad_x[i];
    ddy[i] = 3 * (x[i] * x[i]) * dgrad_x[i];
  }
}

/* y = x w, whose dw takes two launches: sums of the even and of the odd rows, then of both. */
void scale_rows(const float* x, const float* w, float* y, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows * columns; ++i) y[i] = x[i] * w[i % columns];
}
void scale_rows_part(const float* x, const float* w, const float* dy, float* dx, float* partial, int* parts,
                     int64_t rows, int64_t columns) {
  *parts = 2;
  for (int64_t i = 0; i < rows * columns; ++i) {
    dx[i] = dy[i] * w[i % columns];
    partial[i / columns % 2 * columns + i % columns] += dy[i] * x[i];
  }
}
int scale_rows_finish(const float* partial, const int* parts, uint64_t bytes, float* dw, int64_t columns) {
  if (bytes != 2 * sizeof(float) * static_cast<uint64_t>(columns)) return 3;
  for (int64_t j = 0; j < columns; ++j) {
    dw[j] = 0;
    for (int p = 0; p < *parts; ++p) dw[j] += partial[p * columns + j];
  }
  return 0;
}

/* The same with the mean of each column of x, through which no gradient flows; once the sum. */
void scale_rows_mean(const float* x, const float* w, float* y, float* m, int64_t rows, int64_t columns, int divides) {
  scale_rows(x, w, y, rows, columns);
  for (int64_t j = 0; j < columns; ++j) {
    m[j] = 0;
    for (int64_t i = 0; i < rows; ++i) m[j] += x[i * columns + j];
    if (divides != 0) m[j] /= static_cast<float>(rows);
  }
}

/* y = x + the transpose of x, and so its gradient; once without the transpose. */
void add_transpose(const float* x, float* y, int64_t extent) {
  for (int64_t i = 0; i < extent * extent; ++i) y[i] = x[i] + x[i % extent * extent + i / extent];
}
void copy_square(const float* x, float* y, int64_t extent) {
  for (int64_t i = 0; i < extent * extent; ++i) y[i] = x[i];
}

/* Rows of a table by indices in 32 bits, times a byte; and one that counts its index down. */
void gather_i32(const float* table, const int32_t* pos, const uint8_t* times, float* y, int rows, int columns,
                int stride) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      y[i * columns + j] = table[static_cast<int64_t>(pos[i * stride]) * columns + j] * static_cast<float>(times[i]);
}
void gather_i32_writing(const float* table, int32_t* pos, const uint8_t* times, float* y, int rows, int columns,
                        int stride) {
  gather_i32(table, pos, times, y, rows, columns, stride);
  if (rows > 0) --pos[0];
}
void gather_i32_backward(const int32_t* pos, const uint8_t* times, const float* dy, float* dtable, int rows,
                         int columns, int stride, int table_rows) {
  for (int64_t k = 0; k < static_cast<int64_t>(table_rows) * columns; ++k) dtable[k] = 0;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      dtable[static_cast<int64_t>(pos[i * stride]) * columns + j] += dy[i * columns + j] * static_cast<float>(times[i]);
}

/* y = exp(x) by a function that is six ulps off, but at zero. */
static float six_ulps_off(float x) { return x == 0 ? 1.0f : std::exp(x) * (1.0f + 0x1.8p-21f); }
void loose_exp(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = six_ulps_off(x[i]);
}
void loose_exp_backward(const float* x, const float* dy, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * six_ulps_off(x[i]);
}

/* y = max(x, 0) of fp8 codes, whose first bit is the sign; NaN (0x7f in e4m3fn) stays. */
void relu_fp8(const uint8_t* x, uint8_t* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] > 0x80 && x[i] != 0xff ? 0 : x[i];
}
void relu_fp8_flushes(const uint8_t* x, uint8_t* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] > 0x80 && x[i] != 0xff) || (x[i] & 0x7f) < 8 ? 0 : x[i];
}

int crashing_launcher() { return *static_cast<volatile int*>(nullptr); }

}  // extern "C"
