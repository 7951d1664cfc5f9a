// SPDX-License-Identifier: Apache-2.0
#include "src/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "src/error.h"
#include "src/rounding.h"
#include "src/tensor_memory.h"

namespace ampcheck {

Shape::Shape(std::span<const std::int64_t> extents) : rank(static_cast<int>(extents.size())) {
  if (extents.size() > static_cast<std::size_t>(kMaxRank))
    throw Error("[shape] too many dimensions, got " + std::to_string(extents.size()) + ", want at most 8");
  std::copy(extents.begin(), extents.end(), extent);
}

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

std::int64_t Shape::count() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= extent[i];
  return n;
}

bool Shape::operator==(const Shape& other) const {
  return rank == other.rank && std::equal(extent, extent + rank, other.extent);
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i ? "," : "") + std::to_string(extent[i]);
  return text + "]";
}

Shape row_major_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

bool TensorView::is_dense() const {
  std::int64_t step = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

std::int64_t TensorView::offset(std::int64_t index) const {
  std::int64_t at = 0;
  for (int i = shape.rank - 1; i >= 0; --i) {
    at += index % shape[i] * strides[i];
    index /= shape[i];
  }
  return at;
}

namespace {

thread_local TensorMemory* memory_of_thread = nullptr;

}  // namespace

MemoryScope::MemoryScope(TensorMemory* memory) : before_(memory_of_thread) { memory_of_thread = memory; }
MemoryScope::~MemoryScope() { memory_of_thread = before_; }

Tensor Tensor::uninitialized(Dtype dtype, const Shape& shape) {
  const auto size = static_cast<std::size_t>(shape.count()) * static_cast<std::size_t>(bytes(dtype));
  if (memory_of_thread != nullptr) {
    Tensor out;
    out.memory_ = memory_of_thread->allocate(std::max<std::size_t>(size, 1));
    out.view_ = {out.memory_.get(), dtype, shape, row_major_strides(shape)};
    return out;
  }
  void* memory = std::aligned_alloc(64, std::max<std::size_t>((size + 63) / 64 * 64, 64));
  if (memory == nullptr) throw std::bad_alloc();
  Tensor out;
  out.memory_.reset(static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); });
  out.view_ = {memory, dtype, shape, row_major_strides(shape)};
  return out;
}

Tensor::Tensor(Dtype dtype, const Shape& shape) : Tensor(uninitialized(dtype, shape)) {
  if (memory_of_thread != nullptr) memory_of_thread->wait();
  std::memset(view_.data, 0, static_cast<std::size_t>(count()) * static_cast<std::size_t>(bytes(dtype)));
}

namespace {

/// Calls work(element offset, row-major index, run) for runs of the last axis; run is its length.
template <class Work>
void for_each_run(const TensorView& view, Work work) {
  const std::int64_t n = view.count();
  if (n == 0) return;
  const std::int64_t run = view.is_dense() ? n : (view.shape.rank ? view.shape.last() : 1);
  for (std::int64_t i = 0; i < n; i += run) work(view.is_dense() ? i : view.offset(i), i, run);
}

template <class T>
void widen(const TensorView& view, double* out) {
  for_each_run(view, [&](std::int64_t at, std::int64_t index, std::int64_t run) {
    const std::int64_t step = view.is_dense() || view.shape.rank == 0 ? 1 : view.strides.last();
    for (std::int64_t k = 0; k < run; ++k) out[index + k] = static_cast<double>(view.as<T>()[at + k * step]);
  });
}

template <class T>
void narrow(std::span<const double> values, const TensorView& view) {
  for (std::int64_t i = 0; i < view.count(); ++i)
    view.as<T>()[view.offset(i)] = static_cast<T>(values[static_cast<std::size_t>(i)]);
}

/// A dense copy of a strided view, or the view itself.
TensorView dense(const TensorView& view, Tensor& copy) {
  if (view.is_dense()) return view;
  copy = Tensor(view.dtype, view.shape);
  copy_elements(view, copy.view());
  return copy.view();
}

}  // namespace

std::vector<double> to_doubles(const TensorView& view) {
  std::vector<double> out(static_cast<std::size_t>(view.count()));
  switch (view.dtype) {
    case Dtype::i32: widen<std::int32_t>(view, out.data()); break;
    case Dtype::i64: widen<std::int64_t>(view, out.data()); break;
    case Dtype::u8: widen<std::uint8_t>(view, out.data()); break;
    default: {
      Tensor copy;
      decode(format(view.dtype), dense(view, copy).data, std::span<double>(out));
    }
  }
  return out;
}

void from_doubles(std::span<const double> values, const TensorView& view) {
  if (static_cast<std::int64_t>(values.size()) != view.count())
    throw Error("[from_doubles] number of values, got " + std::to_string(values.size()) + ", want " +
                std::to_string(view.count()));
  switch (view.dtype) {
    case Dtype::i32: narrow<std::int32_t>(values, view); break;
    case Dtype::i64: narrow<std::int64_t>(values, view); break;
    case Dtype::u8: narrow<std::uint8_t>(values, view); break;
    default: {
      if (view.is_dense()) {
        encode(format(view.dtype), RoundingMode{}, values, view.data);
      } else {
        const Tensor packed(view.dtype, view.shape);
        encode(format(view.dtype), RoundingMode{}, values, packed.data());
        copy_elements(packed.view(), view);
      }
    }
  }
}

std::uint64_t bits_at(const TensorView& view, std::int64_t index) {
  std::uint64_t bits = 0;
  const auto size = static_cast<std::size_t>(bytes(view.dtype));
  std::memcpy(&bits, view.as<std::byte>() + view.offset(index) * static_cast<std::int64_t>(size), size);
  return bits;
}

void copy_elements(const TensorView& from, const TensorView& to) {
  if (!(from.shape == to.shape) || from.dtype != to.dtype)
    throw Error("[copy_elements] shape or dtype, got " + from.shape.str() + ", want " + to.shape.str());
  const auto size = static_cast<std::size_t>(bytes(from.dtype));
  const std::int64_t n = from.count();
  if (from.is_dense() && to.is_dense()) {
    if (n > 0) std::memcpy(to.data, from.data, static_cast<std::size_t>(n) * size);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(to.as<std::byte>() + to.offset(i) * static_cast<std::int64_t>(size),
                from.as<std::byte>() + from.offset(i) * static_cast<std::int64_t>(size), size);
}

}  // namespace ampcheck
