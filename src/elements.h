// SPDX-License-Identifier: Apache-2.0
// The elements of a tensor as doubles, in row-major order, a part at a time: a whole copy costs more than most of what
// is done with it.
#pragma once

#include <span>
#include <vector>

#include "src/rounding.h"
#include "src/tensor.h"

namespace ampcheck {

class Elements {
 public:
  /// The view's memory must outlive this.
  explicit Elements(const TensorView& view) : view_(view), copied_(!view.is_dense() || !is_float(view.dtype)) {
    if (copied_) copy_ = to_doubles(view);
  }
  std::int64_t count() const { return view_.count(); }
  /// As they are stored, from element `first` on; null where they have gaps or are no floating numbers.
  const std::byte* codes(std::int64_t first) const {
    return copied_ ? nullptr : view_.as<const std::byte>() + first * bytes(view_.dtype);
  }
  /// Elements [first, first + count). `room` holds them where they have to be converted.
  std::span<const double> part(std::int64_t first, std::int64_t count, std::vector<double>& room) const {
    const auto n = static_cast<std::size_t>(count);
    if (copied_) return std::span(copy_).subspan(static_cast<std::size_t>(first), n);
    room.resize(n);
    decode(format(view_.dtype), view_.as<const std::byte>() + first * bytes(view_.dtype), std::span(room));
    return room;
  }

 private:
  TensorView view_;
  bool copied_;
  std::vector<double> copy_;
};

}  // namespace ampcheck
