// SPDX-License-Identifier: Apache-2.0
#include "kernels/launch.h"

#include <algorithm>
#include <cstring>

namespace ampcheck::kernels {

Operand::Operand(const TensorView& view, float fill_value) : data(view.data), dtype(view.dtype), fill(fill_value) {
  rank = 0;
  for (int i = 0; i < view.shape.rank; ++i) {
    const std::int64_t n = view.shape[i], step = view.strides[i];
    if (n == 1 && view.shape.rank > 1) continue;
    if (rank > 0 && stride[rank - 1] == step * n) {  // the two axes walk memory like one
      extent[rank - 1] *= n;
      stride[rank - 1] = step;
    } else {
      extent[rank] = n;
      stride[rank] = step;
      ++rank;
    }
  }
  if (rank == 0) {  // a single element
    rank = 1;
    extent[0] = 1;
  }
}

Operand::Operand(std::int64_t count, float fill_value) : fill(fill_value) { extent[0] = count; }

TensorView expand(const TensorView& view, const Shape& shape) {
  TensorView wide = view;
  wide.shape = shape;
  wide.strides = shape;
  const int missing = shape.rank - view.shape.rank;
  for (int i = 0; i < shape.rank; ++i) {
    const bool repeats = i < missing || view.shape[i - missing] == 1;
    if (!repeats && view.shape[i - missing] != shape[i])
      throw Error("[kernel] tensor does not broadcast, got " + view.shape.str() + ", want " + shape.str());
    wide.strides[i] = repeats ? 0 : view.strides[i - missing];
  }
  return wide;
}

TensorView permute(const TensorView& view, std::initializer_list<int> axes) {
  TensorView out = view;
  int i = 0;
  for (const int axis : axes) {
    out.shape[i] = view.shape[axis];
    out.strides[i++] = view.strides[axis];
  }
  return out;
}

Operand expanded_or(const TensorView* view, const Shape& shape, float fill) {
  return view ? Operand(expand(*view, shape)) : Operand(shape.count(), fill);
}

std::int64_t row_count(const Shape& shape) {
  std::int64_t n = 1;
  for (int i = 0; i + 1 < shape.rank; ++i) n *= shape[i];
  return n;
}

namespace {

template <class T>
void read_run(const Operand& from, std::int64_t at, std::int64_t n, float* __restrict__ out) {
  const T* __restrict__ data = static_cast<const T*>(from.data) + at;
  const std::int64_t step = from.stride[from.rank - 1];
  if (step == 1)
    for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(data[i]);
  else if (step == 0)
    std::fill(out, out + n, n > 0 ? to_float(*data) : 0.0f);
  else
    for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(data[i * step]);
}

template <class T>
void write_run(const Operand& to, std::int64_t at, std::int64_t n, const float* __restrict__ in) {
  T* __restrict__ data = static_cast<T*>(to.data) + at;
  const std::int64_t step = to.stride[to.rank - 1];
  if (step == 1)
    for (std::int64_t i = 0; i < n; ++i) data[i] = from_float<T>(in[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) data[i * step] = from_float<T>(in[i]);
}

/// Calls run(offset of the first element, done so far, length) for the pieces of [first, first + n) along the last
/// axis.
template <class Run>
void for_runs(const Operand& of, std::int64_t first, std::int64_t n, Run run) {
  const std::int64_t length = of.rank == 1 ? first + n : of.extent[of.rank - 1];
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t index = first + done;
    const std::int64_t piece = std::min(n - done, length - index % length);
    run(of.offset(index), done, piece);
    done += piece;
  }
}

template <class Fn>
void with_storage_type(Dtype dtype, Fn fn) {
  switch (dtype) {
    case Dtype::fp32: return fn(float{});
    case Dtype::bf16: return fn(Bf16{});
    case Dtype::fp16: return fn(Fp16{});
    default: throw Error("[kernel] storage dtype, got " + std::string(name(dtype)) + ", want fp32, fp16 or bf16");
  }
}

}  // namespace

const float* read(const Operand& from, std::int64_t first, std::int64_t n, float* buffer) {
  if (from.data == nullptr) {
    std::fill(buffer, buffer + n, from.fill);
    return buffer;
  }
  if (from.dtype == Dtype::fp32 && from.rank == 1 && from.stride[0] == 1)
    return static_cast<const float*>(from.data) + first;
  with_storage_type(from.dtype, [&](auto type) {
    for_runs(from, first, n, [&](std::int64_t at, std::int64_t done, std::int64_t length) {
      read_run<decltype(type)>(from, at, length, buffer + done);
    });
  });
  return buffer;
}

void write(const Operand& to, std::int64_t first, std::int64_t n, const float* values) {
  with_storage_type(to.dtype, [&](auto type) {
    for_runs(to, first, n, [&](std::int64_t at, std::int64_t done, std::int64_t length) {
      write_run<decltype(type)>(to, at, length, values + done);
    });
  });
}

std::int64_t read_index(const Operand& from, std::int64_t index) {
  return static_cast<const std::int64_t*>(from.data)[from.offset(index)];
}

void throw_no_cuda() {
  throw EnvironmentError("[kernel] device is not there, got cuda, want cpu (this program was built without CUDA)");
}

}  // namespace ampcheck::kernels
