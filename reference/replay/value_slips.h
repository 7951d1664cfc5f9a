// SPDX-License-Identifier: Apache-2.0
// Slips on whole tensors of numbers, as loops and indices make them: what changes.cpp puts in the place of a node's
// values.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/ball/ball_rules.h"

namespace ampcheck::reference {

/// What a maximum is taken of: each block alone, what precedes its end as well, or the first block and all the rest.
enum class Block { each, running, two };

/// For each number the maximum along the axis of such a part around it.
inline std::vector<double> local_maxima(const std::vector<double>& from, const Axis& axis, std::int64_t block,
                                        Block kind) {
  std::vector<double> out = from;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i), index = at / axis.inner % axis.n,
                       next = (index / block + 1) * block;
    const std::int64_t first = kind == Block::running ? 0
                               : kind == Block::two   ? (index < block ? 0 : block)
                                                      : next - block;
    const std::int64_t end = kind == Block::two && index >= block ? axis.n : std::min(axis.n, next);
    for (std::int64_t k = first; k < end; ++k)
      out[i] = std::max(out[i], from[static_cast<std::size_t>(at + (k - index) * axis.inner)]);
  }
  return out;
}

/// Whether an operand of that shape is repeated to the result's.
inline bool repeats_to(const Shape& operand, const Shape& result) {
  if (operand.rank > result.rank) return false;
  for (int axis = 0; axis < operand.rank; ++axis)
    if (operand[axis] != 1 && operand[axis] != result[axis + result.rank - operand.rank]) return false;
  return true;
}

/// The element of a broadcast operand that stands at element i of the result.
inline std::int64_t operand_index(const Shape& result, const Shape& operand, std::int64_t i) {
  std::int64_t at = 0, step = 1;
  for (int back = 0; back < result.rank; ++back) {
    const std::int64_t extent = result.last(back), index = i % extent;
    i /= extent;
    if (back >= operand.rank) continue;
    if (operand.last(back) != 1) at += index * step;
    step *= operand.last(back);
  }
  return at;
}

/// a/b where that is one whole number for all elements; 0 otherwise.
inline double ratio(const std::vector<double>& a, const std::vector<double>& b) {
  double out = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (b[i] == 0 && a[i] == 0) continue;
    const double here = a[i] / b[i];
    if (out == 0) out = std::round(here);
    if (!(std::fabs(here - out) < 1e-9) || out == 0) return 0;
  }
  return out;
}

/// What loops over `count` terms get wrong, as weights of the terms: see(weights, words).
template <class See>
void weighted_sums(std::int64_t count, const std::string& what, See see) {
  const auto n = static_cast<std::size_t>(count);
  const std::vector<double> ones(n, 1.0);
  std::vector<double> w = ones;
  w.front() = 0;
  see(w, "without the first term of the sum of " + what);
  w = ones;
  w.back() = 2;
  see(w, "with the last term of the sum of " + what + " twice");
  for (const std::int64_t block : {4, 8, 16, 32, 64, 128, 256}) {
    if (block >= count) break;
    w = ones;
    for (std::int64_t k = (count - 1) / block * block; k < count; ++k) w[static_cast<std::size_t>(k)] = 0;
    if (count % block == 0)
      see(w, fmt::format("without the last block of {} in the sum of {}", block, what));  // otherwise it is a tail
    w.assign(n, 0.0);
    for (std::int64_t k = (count - 1) / block * block; k < count; ++k) w[static_cast<std::size_t>(k)] = 1;
    see(w, fmt::format("with only the last block of {} in the sum of {}: blocks overwrite each other", block, what));
    for (const std::int64_t border : {std::int64_t{0}, block - 1}) {
      w = ones;
      for (std::int64_t k = border == 0 ? block : border; k < count; k += border == 0 ? block : block - 1)
        w[static_cast<std::size_t>(k)] = k + 1 < count || border == 0 ? 2 : 1;
      see(w, fmt::format("with every term at the border of {} blocks of {} twice in the sum of {}: they overlap",
                         border == 0 ? "two" : "shared", block, what));
    }
  }
  // A grid with too few blocks; one lane of a packed pair.
  for (const std::int64_t block : {1, 4, 8, 16, 32, 64, 128, 256}) {
    if (2 * block >= count && !(count == 2 && block == 1)) break;  // what is lost is a tail or a last block
    w.assign(n, 0.0);
    std::fill_n(w.begin(), block, 1.0);
    see(w, block == 1
               ? "with only the first term of the sum of " + what + ": the others are lost"
               : fmt::format("with only the first block of {} in the sum of {}: the others are lost", block, what));
  }
  for (const std::size_t lane : {std::size_t{0}, std::size_t{1}}) {
    if (count < 3) break;
    for (std::size_t k = 0; k < n; ++k) w[k] = k % 2 == lane ? 1 : 0;
    see(w, fmt::format("with only the {} term of each pair in the sum of {}", lane == 0 ? "first" : "second", what));
  }
}

/// Sums along an axis of terms times weights.
inline std::vector<double> weighted(const std::vector<double>& from, const Shape& shape, int axis,
                                    const std::vector<double>& weights) {
  const Axis a = split(shape, axis);
  std::vector<double> out(static_cast<std::size_t>(a.outer * a.inner), 0.0);
  const double* term = from.data();
  for (std::int64_t outer = 0; outer < a.outer; ++outer)
    for (std::int64_t k = 0; k < a.n; ++k, term += a.inner) {
      const double w = weights[static_cast<std::size_t>(k)];
      double* const sums = out.data() + outer * a.inner;
      if (w != 0)  // what is left out may be NaN
        for (std::int64_t i = 0; i < a.inner; ++i) sums[i] += w * term[i];
    }
  return out;
}

/// The sum along an axis, repeated along it.
inline std::vector<double> summed(const std::vector<double>& from, const Shape& shape, int axis) {
  const Axis a = split(shape, axis);
  const std::vector<double> sums = weighted(from, shape, axis, std::vector<double>(static_cast<std::size_t>(a.n), 1.0));
  std::vector<double> out(from.size());
  double* to = out.data();
  for (std::int64_t outer = 0; outer < a.outer; ++outer)
    for (std::int64_t k = 0; k < a.n; ++k, to += a.inner) std::copy_n(sums.data() + outer * a.inner, a.inner, to);
  return out;
}

/// Elements from elsewhere along an axis: source(index, extent).
template <class F>
std::vector<double> along(const std::vector<double>& from, const Shape& shape, int axis, F source) {
  const Axis a = split(shape, axis);
  std::vector<double> out(from.size());
  double* to = out.data();
  for (std::int64_t outer = 0; outer < a.outer; ++outer)
    for (std::int64_t k = 0; k < a.n; ++k, to += a.inner)
      std::copy_n(from.data() + (outer * a.n + source(k, a.n)) * a.inner, a.inner, to);
  return out;
}
inline std::vector<double> reversed(const std::vector<double>& from, const Shape& shape, int axis) {
  return along(from, shape, axis, [](std::int64_t i, std::int64_t n) { return n - 1 - i; });
}

inline std::vector<double> transposed(const std::vector<double>& from, const Shape& shape) {
  const std::int64_t n = shape.last();
  std::vector<double> out(from.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i), plane = at / (n * n) * n * n, row = at / n % n,
                       column = at % n;
    out[i] = from[static_cast<std::size_t>(plane + column * n + row)];
  }
  return out;
}

/// Which numbers leave the range of a shorter format.
inline std::string lost(const std::vector<double>& whole, const std::vector<double>& rounded) {
  std::int64_t infinite = 0, zero = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    infinite += std::isfinite(whole[i]) && std::isinf(rounded[i]);
    zero += whole[i] != 0 && rounded[i] == 0;
  }
  std::string out;
  if (infinite > 0) out += fmt::format(", in which {} of {} overflow", infinite, whole.size());
  if (zero > 0)
    out += fmt::format("{} {} of {} underflow to 0", infinite > 0 ? " and" : ", in which", zero, whole.size());
  return out;
}

}  // namespace ampcheck::reference
