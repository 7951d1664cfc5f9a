// SPDX-License-Identifier: Apache-2.0
// Pattern: the largest or the smallest element of each line of x [N, D] along one axis, on both devices. NaN wins; of
// equal values the first. Backward finds the winner again and gives it the line's cotangent, all others 0.
#pragma once

#include "kernels/for_each.h"

namespace ampcheck::kernels {

struct Largest {
  AMPCHECK_HD bool operator()(float candidate, float best) const { return candidate > best; }
};
struct Smallest {
  AMPCHECK_HD bool operator()(float candidate, float best) const { return candidate < best; }
};

namespace detail {

/// Lines of x along an axis: element i of line l lies at l * line_step + i * step.
template <class Better>
struct ExtremumLines {
  Operand x, y, dy, dx;
  std::int64_t length, line_step, step;

  AMPCHECK_HD std::int64_t at(std::int64_t line, std::int64_t i) const { return line * line_step + i * step; }
  /// Place of the winner in its line; value: its value.
  template <class Io>
  AMPCHECK_HD std::int64_t winner(const Io& io, std::int64_t line, float& value) const {
    std::int64_t best = 0;
    value = io.get(x, at(line, 0));
    for (std::int64_t i = 1; i < length; ++i) {
      const float candidate = io.get(x, at(line, i));
      if (Better()(candidate, value) || (candidate != candidate && value == value)) {
        best = i;
        value = candidate;
      }
    }
    return best;
  }
};

template <class Better>
struct ExtremumForward : ExtremumLines<Better> {
  template <class Io>
  AMPCHECK_HD void operator()(const Io& io, std::int64_t line) const {
    float value = 0;
    this->winner(io, line, value);
    io.put(this->y, line, value);
  }
};

template <class Better>
struct ExtremumBackward : ExtremumLines<Better> {
  template <class Io>
  AMPCHECK_HD void operator()(const Io& io, std::int64_t line) const {
    float value = 0;
    const std::int64_t best = this->winner(io, line, value);
    const float g = io.get(this->dy, line);
    for (std::int64_t i = 0; i < this->length; ++i) io.put(this->dx, this->at(line, i), i == best ? g : 0.0f);
  }
};

/// The lines of x along the attribute `axis`, -1 or 0.
template <class Better>
ExtremumLines<Better> extremum_lines(const KernelCall& call) {
  const TensorView& x = call.at("x");
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  const bool over_rows = call.attributes->integer("axis") == 0;
  return {Operand(x), {}, {}, {}, over_rows ? rows : columns, over_rows ? 1 : columns, over_rows ? columns : 1};
}

}  // namespace detail

/// y[line] = the winner of each line of x.
template <class Better>
void extremum_forward(const KernelCall& call) {
  const TensorView& y = call.at("y");
  detail::ExtremumForward<Better> program{detail::extremum_lines<Better>(call)};
  program.y = Operand(y);
  for_each(call, y.count(), program);
}

template <class Better>
void extremum_backward(const KernelCall& call) {
  const TensorView* dx = call.find("dx");
  if (dx == nullptr) return;
  detail::ExtremumBackward<Better> program{detail::extremum_lines<Better>(call)};
  program.dy = Operand(call.at("dy"));
  program.dx = Operand(*dx);
  for_each(call, call.at("dy").count(), program);
}

}  // namespace ampcheck::kernels
