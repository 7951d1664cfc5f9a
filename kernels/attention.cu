// SPDX-License-Identifier: Apache-2.0
// o = softmax(q k^T / sqrt(E)) v, position t seeing positions j <= t (causal = 1).     Run it alone: ampcheck check
// attention Vaswani et al. 2017, eq. 1. Saves lse[t] = log(sum over j of exp(s[t,j])), s = q k^T / sqrt(E), in fp32.
// Backward (Dao et al. 2022, appendix B.2): p = exp(s - lse), dp = do v^T, delta = sum over j of p dp, ds = p (dp -
// delta), dq = ds k / sqrt(E), dk = ds^T q / sqrt(E), dv = p^T do. Order: products are fma chains from 0, ascending in
// what is summed (e, j or t); sums and maxima over j as row_reduce.h. Masked positions are never read, so nothing leaks
// through 0 * inf. On CUDA a row t is a warp.
#include <cmath>
#include <vector>

#include "kernels/cores.h"
#include "kernels/row_reduce.h"
#include "src/parallel.h"

namespace ampcheck::kernels {

namespace {

struct Attention {
  Operand q, k, v, o, lse;            ///< o: the output, or in backward its cotangent
  Operand dq, dk, dv;                 ///< no data: nobody asked
  std::int64_t heads, length, width;  ///< B H, T, E
  float scale;
  bool causal;

  AMPCHECK_HD std::int64_t seen(std::int64_t t) const { return causal ? t + 1 : length; }
};

Attention attention_of(const KernelCall& call, const char* output) {
  const TensorView& q = call.at("q");
  Attention a;
  a.q = Operand(q);
  a.k = Operand(call.at("k"));
  a.v = Operand(call.at("v"));
  a.o = Operand(call.at(output));
  a.lse = Operand(call.at("lse"));
  a.heads = q.shape[0] * q.shape[1];
  a.length = q.shape[2];
  a.width = q.shape[3];
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.width)));
  a.causal = call.attributes->integer("causal") != 0;
  return a;
}

// ---- CPU: one head at a time, as fp32
// ---------------------------------------------------------------------------------

using Floats = std::vector<float>;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// One head's [T,E] of a tensor; transposed, [E,T], so that a chain over e runs for many positions at once.
struct Head {
  Floats rows, columns;

  Head(const Attention& a, const Operand& from, std::int64_t head) : rows(size(a.length * a.width)) {
    const std::int64_t n = a.length * a.width;
    const float* data = read(from, head * n, n, rows.data());
    if (data != rows.data()) std::copy_n(data, n, rows.begin());
  }
  void transpose(const Attention& a) {
    columns.resize(rows.size());
    for (std::int64_t t = 0; t < a.length; ++t)
      for (std::int64_t e = 0; e < a.width; ++e) columns[size(e * a.length + t)] = rows[size(t * a.width + e)];
  }
  const float* row(const Attention& a, std::int64_t t) const { return rows.data() + t * a.width; }
};

/// to[j] = fma(by, from[j], to[j])
void add_scaled(float by, const float* from, std::int64_t n, float* __restrict__ to) {
  for (std::int64_t j = 0; j < n; ++j) to[j] = math::fma(by, from[j], to[j]);
}

/// products[j] = sum over e of row[e] other[j,e] for j < n.
void dot_all(const Attention& a, const float* row, const Head& other, std::int64_t n, float* products) {
  std::fill(products, products + n, 0.0f);
  for (std::int64_t e = 0; e < a.width; ++e) add_scaled(row[e], other.columns.data() + e * a.length, n, products);
}

/// sums[e] = sum over j < n of by[j] rows[j,e].
void combine(const Attention& a, const float* by, const Head& rows, std::int64_t n, float* sums) {
  std::fill(sums, sums + a.width, 0.0f);
  for (std::int64_t j = 0; j < n; ++j) add_scaled(by[j], rows.row(a, j), a.width, sums);
}

void forward_head(const Attention& a, std::int64_t head) {
  const Head q(a, a.q, head), v(a, a.v, head);
  Head k(a, a.k, head);
  k.transpose(a);
  Floats s(size(a.length)), sums(size(a.width));
  for (std::int64_t t = 0; t < a.length; ++t) {
    const std::int64_t n = a.seen(t), row = head * a.length + t;
    dot_all(a, q.row(a, t), k, n, s.data());
    for (std::int64_t j = 0; j < n; ++j) s[size(j)] *= a.scale;
    const float shift = join_in_lanes(
        n, Max::kStart, [&](std::int64_t j) { return s[size(j)]; }, Max{});
    for (std::int64_t j = 0; j < n; ++j) s[size(j)] = math::exp(s[size(j)] - shift);
    const float total = join_in_lanes(
        n, Sum::kStart, [&](std::int64_t j) { return s[size(j)]; }, Sum{});
    combine(a, s.data(), v, n, sums.data());
    for (float& value : sums) value = math::divide(value, total);
    write(a.o, row * a.width, a.width, sums.data());
    const float lse = shift + math::log(total);
    write(a.lse, row, 1, &lse);
  }
}

void backward_head(const Attention& a, std::int64_t head) {
  const Head q(a, a.q, head), dout(a, a.o, head);
  Head k(a, a.k, head), v(a, a.v, head);
  k.transpose(a);
  v.transpose(a);
  Floats p(size(a.length)), ds(size(a.length)), dq(size(a.width));
  Floats dk(size(a.length * a.width), 0.0f), dv(dk.size(), 0.0f);
  for (std::int64_t t = 0; t < a.length; ++t) {
    const std::int64_t n = a.seen(t), row = head * a.length + t;
    float lse_buffer;
    const float lse = *read(a.lse, row, 1, &lse_buffer);
    dot_all(a, q.row(a, t), k, n, p.data());
    for (std::int64_t j = 0; j < n; ++j) p[size(j)] = math::exp(p[size(j)] * a.scale - lse);
    dot_all(a, dout.row(a, t), v, n, ds.data());
    const float delta = join_in_lanes(
        n, Sum::kStart, [&](std::int64_t j) { return p[size(j)] * ds[size(j)]; }, Sum{});
    for (std::int64_t j = 0; j < n; ++j) ds[size(j)] = p[size(j)] * (ds[size(j)] - delta);
    if (a.dq.data) {
      combine(a, ds.data(), k, n, dq.data());
      for (float& value : dq) value *= a.scale;
      write(a.dq, row * a.width, a.width, dq.data());
    }
    for (std::int64_t j = 0; j < n; ++j) {
      add_scaled(ds[size(j)], q.row(a, t), a.width, dk.data() + j * a.width);
      add_scaled(p[size(j)], dout.row(a, t), a.width, dv.data() + j * a.width);
    }
  }
  for (float& value : dk) value *= a.scale;
  const std::int64_t n = a.length * a.width;
  if (a.dk.data) write(a.dk, head * n, n, dk.data());
  if (a.dv.data) write(a.dv, head * n, n, dv.data());
}

// ---- CUDA
// ---------------------------------------------------------------------------------------------------------------

#if AMPCHECK_CUDA_COMPILER

/// x[row_x,:] . y[row_y,:]
__device__ float dot(const Attention& a, const Operand& x, std::int64_t row_x, const Operand& y, std::int64_t row_y) {
  float sum = 0;
  for (std::int64_t e = 0; e < a.width; ++e)
    sum = math::fma(load(x, row_x * a.width + e), load(y, row_y * a.width + e), sum);
  return sum;
}

/// out[row,e] = finish(sum over j < n of by[j] rows[first + j,e]), e by lane.
template <class Finish>
__device__ void combine_row(const Attention& a, const float* by, const Operand& rows, std::int64_t first,
                            std::int64_t n, const Operand& out, std::int64_t row, const Finish& finish) {
  for (std::int64_t e = threadIdx.x; e < a.width; e += kLanes) {
    float sum = 0;
    for (std::int64_t j = 0; j < n; ++j) sum = math::fma(by[j], load(rows, (first + j) * a.width + e), sum);
    store(out, row * a.width + e, finish(sum));
  }
}

/// A warp per row; work holds T floats a row.
__global__ void forward_kernel(const __grid_constant__ Attention a, float* work) {
  for (std::int64_t row = blockIdx.x; row < a.heads * a.length; row += gridDim.x) {
    const std::int64_t t = row % a.length, first = row - t, n = a.seen(t);
    float* s = work + row * a.length;
    for (std::int64_t j = threadIdx.x; j < n; j += kLanes) s[j] = dot(a, a.q, row, a.k, first + j) * a.scale;
    __syncwarp();
    const float shift = join_in_warp(
        n, Max::kStart, [&](std::int64_t j) { return s[j]; }, Max{});
    for (std::int64_t j = threadIdx.x; j < n; j += kLanes) s[j] = math::exp(s[j] - shift);
    __syncwarp();
    const float total = join_in_warp(
        n, Sum::kStart, [&](std::int64_t j) { return s[j]; }, Sum{});
    combine_row(a, s, a.v, first, n, a.o, row, [&](float sum) { return math::divide(sum, total); });
    if (threadIdx.x == 0) store(a.lse, row, shift + math::log(total));
  }
}

/// A warp per row t: p and ds for the next kernel, and dq.
__global__ void backward_rows_kernel(const __grid_constant__ Attention a, float* all_p, float* all_ds) {
  for (std::int64_t row = blockIdx.x; row < a.heads * a.length; row += gridDim.x) {
    const std::int64_t t = row % a.length, first = row - t, n = a.seen(t);
    float *p = all_p + row * a.length, *ds = all_ds + row * a.length;
    const float lse = load(a.lse, row);
    for (std::int64_t j = threadIdx.x; j < n; j += kLanes) {
      p[j] = math::exp(dot(a, a.q, row, a.k, first + j) * a.scale - lse);
      ds[j] = dot(a, a.o, row, a.v, first + j);
    }
    __syncwarp();
    const float delta = join_in_warp(
        n, Sum::kStart, [&](std::int64_t j) { return p[j] * ds[j]; }, Sum{});
    for (std::int64_t j = threadIdx.x; j < n; j += kLanes) ds[j] = p[j] * (ds[j] - delta);
    __syncwarp();
    if (a.dq.data) combine_row(a, ds, a.k, first, n, a.dq, row, [&](float sum) { return sum * a.scale; });
  }
}

/// A thread per element of dk and dv: sums over the rows t that see position j.
__global__ void backward_columns_kernel(const __grid_constant__ Attention a, const float* all_p, const float* all_ds) {
  const std::int64_t count = a.heads * a.length * a.width, step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const std::int64_t e = i % a.width, j = i / a.width % a.length, first = i / a.width - j;
    float dk = 0, dv = 0;
    for (std::int64_t t = a.causal ? j : 0; t < a.length; ++t) {
      const std::int64_t at = (first + t) * a.length + j, from = (first + t) * a.width + e;
      dk = math::fma(all_ds[at], load(a.q, from), dk);
      dv = math::fma(all_p[at], load(a.o, from), dv);
    }
    if (a.dk.data) store(a.dk, i, dk * a.scale);
    if (a.dv.data) store(a.dv, i, dv);
  }
}

/// Device memory for `rows` rows of T floats, freed in stream order.
class Workspace {
 public:
  Workspace(const Attention& a, std::int64_t rows, cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaMallocAsync(&data_, static_cast<std::size_t>(rows * a.length) * sizeof(float), stream), "attention");
  }
  ~Workspace() { cudaFreeAsync(data_, stream_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  float* data() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_;
};

void forward_cuda(const Attention& a, cudaStream_t stream) {
  const std::int64_t rows = a.heads * a.length;
  const Workspace work(a, rows, stream);
  forward_kernel<<<grid_for(rows, 1), kLanes, 0, stream>>>(a, work.data());
  check_cuda(cudaGetLastError(), "attention");
}

void backward_cuda(const Attention& a, cudaStream_t stream) {
  const std::int64_t rows = a.heads * a.length;
  const Workspace p(a, rows, stream), ds(a, rows, stream);
  backward_rows_kernel<<<grid_for(rows, 1), kLanes, 0, stream>>>(a, p.data(), ds.data());
  check_cuda(cudaGetLastError(), "attention");
  backward_columns_kernel<<<grid_for(rows * a.width, 128), 128, 0, stream>>>(a, p.data(), ds.data());
  check_cuda(cudaGetLastError(), "attention");
}

#endif

void for_heads(const Attention& a, void (*work)(const Attention&, std::int64_t)) {
  parallel_for(a.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) work(a, head);
  });
}

void forward(const KernelCall& call) {
  const Attention a = attention_of(call, "o");
  if (a.heads * a.length == 0) return;  // with E = 0 there is still an lse
  if (call.device == Device::cpu && attention_on_cores(call, false)) return;
  if (call.device == Device::cpu) return for_heads(a, forward_head);
#if AMPCHECK_CUDA_COMPILER
  forward_cuda(a, stream_of(call));
#else
  throw_no_cuda();
#endif
}

void backward(const KernelCall& call) {
  Attention a = attention_of(call, "do");
  if (a.heads * a.length * a.width == 0) return;
  if (const TensorView* dq = call.find("dq")) a.dq = Operand(*dq);
  if (const TensorView* dk = call.find("dk")) a.dk = Operand(*dk);
  if (const TensorView* dv = call.find("dv")) a.dv = Operand(*dv);
  if (call.device == Device::cpu && attention_on_cores(call, true)) return;
  if (call.device == Device::cpu) return for_heads(a, backward_head);
#if AMPCHECK_CUDA_COMPILER
  backward_cuda(a, stream_of(call));
#else
  throw_no_cuda();
#endif
}

}  // namespace

Kernel attention_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
