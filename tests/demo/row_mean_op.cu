// SPDX-License-Identifier: Apache-2.0
// The plug-in: what row_mean.cuh computes, and how ampcheck calls it.
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include <ampcheck/op.h>

#include <stdexcept>
#include <type_traits>

#include "row_mean.cuh"

namespace {

using namespace ampcheck::op;

/// What the kernel calls an element's type.
template <class T>
struct InKernel {
  using type = T;
};
#ifdef __CUDACC__
template <>
struct InKernel<Half> {
  using type = __half;
};
template <>
struct InKernel<BFloat16> {
  using type = __nv_bfloat16;
};

void checked(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}
#endif

template <class V>
auto elements(const V& view) {
  using T = std::remove_pointer_t<decltype(view.data())>;
  using D = typename InKernel<std::remove_const_t<T>>::type;
  return reinterpret_cast<std::conditional_t<std::is_const_v<T>, const D, D>*>(view.data());
}

template <class T>
void forward(Type<T>, const Call& call) {
  const auto x = call.view<const T>("x");
  const auto y = call.view<T>("y");
  const std::int64_t rows = x.extent(0), columns = x.extent(1);
#ifdef __CUDACC__
  if (call.raw().device.type == AC_CUDA) {
    const auto stream = static_cast<cudaStream_t>(call.stream());
    row_mean_kernel<<<static_cast<unsigned>(rows), kLanes, 0, stream>>>(elements(x), elements(y), columns);
    return checked(cudaGetLastError());
  }
#endif
  for (std::int64_t i = 0; i < rows; ++i)
    y[i] = T(row_sum(elements(x) + i * columns, columns) / static_cast<float>(columns));
}

template <class T>
void backward(Type<T>, const Call& call) {
  const auto dy = call.view<const T>("dy");
  const auto dx = call.view<T>("dx");
  const std::int64_t rows = dx.extent(0), columns = dx.extent(1);
#ifdef __CUDACC__
  if (call.raw().device.type == AC_CUDA) {
    const auto stream = static_cast<cudaStream_t>(call.stream());
    row_mean_backward_kernel<<<static_cast<unsigned>(rows), kLanes, 0, stream>>>(elements(dy), elements(dx), columns);
    return checked(cudaGetLastError());
  }
#endif
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) dx(i, j) = T(static_cast<float>(dy[i]) / static_cast<float>(columns));
}

}  // namespace

AMPCHECK_OP(row_mean, op) {
  op.summary("mean of each row");
  op.input("x", "N D");
  op.output("y");
  op.dim("N", 5, 64, 33);
  op.dim("D", 7, 129, 1024).least(1);
  op.formula([](Expr x) { return mean(x, -1); });
#ifdef __CUDACC__
  op.devices(AC_ON_CPU | AC_ON_CUDA);
#endif
  op.forward([]<class T>(Type<T> type, const Call& call) { forward(type, call); });
  op.backward([]<class T>(Type<T> type, const Call& call) { backward(type, call); });
}
