// SPDX-License-Identifier: Apache-2.0
// Shape, TensorView (what a kernel sees; DLPack's fields) and Tensor (owns its memory).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/dtype.h"

namespace ampcheck {

inline constexpr int kMaxRank = 8;

/// Extents (or strides, in elements) of a tensor. Trivially copyable, so that a kernel can hold it by value.
struct Shape {
  int rank = 0;
  std::int64_t extent[kMaxRank] = {};

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  std::int64_t operator[](int axis) const { return extent[axis]; }
  std::int64_t& operator[](int axis) { return extent[axis]; }
  /// Extent of an axis counted from the end: last(0) is the last one.
  std::int64_t last(int back = 0) const { return extent[rank - 1 - back]; }
  /// Number of elements; 1 for rank 0.
  std::int64_t count() const;
  bool operator==(const Shape& other) const;
  /// "[5,1025]"
  std::string str() const;
};

/// Strides, in elements, of a dense row-major tensor of this shape.
Shape row_major_strides(const Shape& shape);

/// Borrowed memory of a tensor: the fields of DLPack's DLTensor, strides in elements and always given.
struct TensorView {
  void* data = nullptr;
  Dtype dtype = Dtype::fp32;
  Shape shape;
  Shape strides;

  std::int64_t count() const { return shape.count(); }
  bool is_dense() const;
  /// Offset in elements of the element with this row-major index.
  std::int64_t offset(std::int64_t index) const;
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// A dense row-major tensor that owns zeroed, 64-byte aligned host memory. Copies share the memory.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Dtype dtype, const Shape& shape);
  /// Memory whose contents are indeterminate, for a caller that writes all of it.
  static Tensor uninitialized(Dtype dtype, const Shape& shape);

  const TensorView& view() const { return view_; }
  Dtype dtype() const { return view_.dtype; }
  const Shape& shape() const { return view_.shape; }
  std::int64_t count() const { return view_.count(); }
  void* data() const { return view_.data; }
  bool defined() const { return memory_ != nullptr; }
  template <class T>
  std::span<T> span() const {
    return {static_cast<T*>(view_.data), static_cast<std::size_t>(count())};
  }

 private:
  std::shared_ptr<std::byte> memory_;
  TensorView view_;
};

/// The exact values of a tensor, row-major (integers too).
std::vector<double> to_doubles(const TensorView& view);
/// Rounds values (RNE; integers must be exact) into the elements of a view, row-major.
void from_doubles(std::span<const double> values, const TensorView& view);
/// The stored pattern of one element, by row-major index.
std::uint64_t bits_at(const TensorView& view, std::int64_t index);
/// Copies element by element between views of one shape and dtype.
void copy_elements(const TensorView& from, const TensorView& to);

}  // namespace ampcheck
