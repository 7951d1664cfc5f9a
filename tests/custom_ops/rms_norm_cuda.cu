// SPDX-License-Identifier: Apache-2.0
// A CUDA kernel as its author has it: a block for each row, sums by warp shuffles, the stream of the caller. On the CPU
// the same op is a plain loop, so that the formula and the description are judged where no GPU is. In
// rms_norm_cuda_drops_warp only the first warp's sum counts.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <ampcheck/op.h>

namespace {

using namespace ampcheck::op;

template <class T>
struct OnDevice {
  using type = T;
};
template <>
struct OnDevice<Half> {
  using type = __half;
};
template <>
struct OnDevice<BFloat16> {
  using type = __nv_bfloat16;
};
template <class T>
using DeviceType = typename OnDevice<T>::type;

constexpr int kThreads = 128, kWarps = kThreads / 32;

template <int kWarpsSummed>
__device__ float block_sum(float x) {
  __shared__ float parts[kWarps];
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_down_sync(0xffffffffu, x, lane);
  __syncthreads();  // the last sum's parts have been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0;
  for (int warp = 0; warp < kWarpsSummed; ++warp) total += parts[warp];
  return total;
}

template <class T, int kWarpsSummed>
__global__ void rms_norm_forward(const T* x, const T* weight, T* y, float* inv_rms, int columns, float eps) {
  const long long row = static_cast<long long>(blockIdx.x) * columns;
  float sum = 0;
  for (int j = threadIdx.x; j < columns; j += kThreads)
    sum += static_cast<float>(x[row + j]) * static_cast<float>(x[row + j]);
  const float r = 1.0f / sqrtf(block_sum<kWarpsSummed>(sum) / static_cast<float>(columns) + eps);
  if (threadIdx.x == 0) inv_rms[blockIdx.x] = r;
  for (int j = threadIdx.x; j < columns; j += kThreads)
    y[row + j] = static_cast<T>(static_cast<float>(x[row + j]) * r * static_cast<float>(weight[j]));
}

template <class T, int kWarpsSummed>
__global__ void rms_norm_backward_x(const T* dy, const T* x, const T* weight, const float* inv_rms, T* dx,
                                    int columns) {
  const long long row = static_cast<long long>(blockIdx.x) * columns;
  const float r = inv_rms[blockIdx.x];
  float sum = 0;
  for (int j = threadIdx.x; j < columns; j += kThreads)
    sum += static_cast<float>(dy[row + j]) * static_cast<float>(weight[j]) * (static_cast<float>(x[row + j]) * r);
  const float mean = block_sum<kWarpsSummed>(sum) / static_cast<float>(columns);
  for (int j = threadIdx.x; j < columns; j += kThreads)
    dx[row + j] = static_cast<T>(r * (static_cast<float>(dy[row + j]) * static_cast<float>(weight[j]) -
                                      static_cast<float>(x[row + j]) * r * mean));
}

template <class T>
__global__ void rms_norm_backward_weight(const T* dy, const T* x, const float* inv_rms, T* dweight, int rows,
                                         int columns) {
  const int j = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (j >= columns) return;
  float sum = 0;
  for (int i = 0; i < rows; ++i) {
    const long long at = static_cast<long long>(i) * columns + j;
    sum += static_cast<float>(dy[at]) * (static_cast<float>(x[at]) * inv_rms[i]);
  }
  dweight[j] = static_cast<T>(sum);
}

void checked(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

template <class T, class Summed>
void forward(Type<T>, const Call& call, Summed) {
  const auto x = call.view<const T>("x"), w = call.view<const T>("weight");
  const auto y = call.view<T>("y");
  const auto inv_rms = call.view<float>("inv_rms");
  const float eps = static_cast<float>(call.number("eps"));
  const int rows = static_cast<int>(x.extent(0)), columns = static_cast<int>(x.extent(1));
  if (call.raw().device.type == AC_CUDA) {
    using D = DeviceType<T>;
    if (rows == 0) return;  // there is no empty grid
    rms_norm_forward<D, Summed::value>
        <<<static_cast<unsigned>(rows), kThreads, 0, static_cast<cudaStream_t>(call.stream())>>>(
            reinterpret_cast<const D*>(x.data()), reinterpret_cast<const D*>(w.data()), reinterpret_cast<D*>(y.data()),
            inv_rms.data(), columns, eps);
    return checked(cudaGetLastError());
  }
  for (int i = 0; i < rows; ++i) {
    float sum = 0;
    for (int j = 0; j < columns; ++j) sum += float(x(i, j)) * float(x(i, j));
    inv_rms(i, 0) = 1.0f / std::sqrt(sum / static_cast<float>(columns) + eps);
    for (int j = 0; j < columns; ++j) y(i, j) = T(float(x(i, j)) * inv_rms(i, 0) * float(w(j)));
  }
}

template <class T, class Summed>
void backward(Type<T>, const Call& call, Summed) {
  const auto x = call.view<const T>("x"), w = call.view<const T>("weight"), dy = call.view<const T>("dy");
  const auto inv_rms = call.view<const float>("inv_rms");
  const auto dx = call.view<T>("dx"), dweight = call.view<T>("dweight");
  const int rows = static_cast<int>(x.extent(0)), columns = static_cast<int>(x.extent(1));
  if (call.raw().device.type == AC_CUDA) {
    using D = DeviceType<T>;
    const auto stream = static_cast<cudaStream_t>(call.stream());
    const auto at = [](const auto& view) { return reinterpret_cast<const D*>(view.data()); };
    if (rows > 0)
      rms_norm_backward_x<D, Summed::value><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
          at(dy), at(x), at(w), inv_rms.data(), reinterpret_cast<D*>(dx.data()), columns);
    checked(cudaGetLastError());
    rms_norm_backward_weight<D><<<static_cast<unsigned>((columns + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
        at(dy), at(x), inv_rms.data(), reinterpret_cast<D*>(dweight.data()), rows, columns);
    return checked(cudaGetLastError());
  }
  float* total = call.scratch<float>(columns);
  for (int i = 0; i < rows; ++i) {
    float dot = 0;
    for (int j = 0; j < columns; ++j) dot += float(dy(i, j)) * float(w(j)) * (float(x(i, j)) * inv_rms(i, 0));
    for (int j = 0; j < columns; ++j) {
      const float n = float(x(i, j)) * inv_rms(i, 0);
      dx(i, j) = T(inv_rms(i, 0) * (float(dy(i, j)) * float(w(j)) - n * (dot / static_cast<float>(columns))));
      total[j] += float(dy(i, j)) * n;
    }
  }
  for (int j = 0; j < columns; ++j) dweight(j) = T(total[j]);
}

template <int kWarpsSummed>
void describe(Op& op) {
  using Summed = std::integral_constant<int, kWarpsSummed>;
  op.input("x", "N D");
  op.input("weight", "D").weight();
  op.output("y");
  op.saved("inv_rms");
  op.attribute("eps", 1e-6, {1e-3});
  op.dim("N", 5, 64, 2);
  op.dim("D", 7, 129, 1025).least(1);
  op.devices(AC_ON_CPU | AC_ON_CUDA);
  op.formula([](Expr x, Expr weight, Expr eps) {
    Expr inv_rms = stored("inv_rms", rsqrt(mean(x * x, -1) + eps)), n = x * inv_rms;
    return with_adjoint(n, {x}, [=](Expr g) { return inv_rms * (g - n * mean(g * n, -1)); }) * weight;
  });
  op.forward([]<class T>(Type<T> type, const Call& call) { forward(type, call, Summed{}); });
  op.backward([]<class T>(Type<T> type, const Call& call) { backward(type, call, Summed{}); });
}

}  // namespace

AMPCHECK_OP(rms_norm_cuda, op) { describe<kWarps>(op); }
AMPCHECK_OP(rms_norm_cuda_drops_warp, op) { describe<1>(op); }
