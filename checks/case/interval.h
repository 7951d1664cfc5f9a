// SPDX-License-Identifier: Apache-2.0
// The comparator: the only file in which a kernel's number meets the reference's. An element is right iff it lies in
// [RN(v - r), RN(v + r)] in the storage format; NaN never lies in an interval.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/ball/ball.h"
#include "src/finding.h"
#include "src/tensor.h"

namespace ampcheck::checks {

/// How one element is judged.
enum class Judgement : std::uint8_t {
  interval,         ///< got in [low, high]
  infinite,         ///< the reference is +-inf, which `low` holds
  maybe_nan,        ///< as infinite, and NaN is right too
  interval_or_nan,  ///< the interval ends in infinity: a sum overflows, and a compensated one makes NaN of that
  non_finite,       ///< the reference is NaN: any non-finite is right
  open,             ///< unjudged: an intermediate leaves the range or may, or the formula itself has no value here
  unbounded,        ///< unjudged: there is a value, but roundings of the formula may move it by any amount
};

/// Numbers of one tensor in a shared, pooled buffer: copies share it.
struct Numbers {
  reference::Channel channel;
  std::size_t count = 0;
  std::size_t size() const { return count; }
  double* data() const { return channel.get(); }
  double& operator[](std::size_t i) const { return channel.get()[i]; }
  double* begin() const { return data(); }
  double* end() const { return data() + count; }
  /// The same numbers in a buffer of their own.
  Numbers separate() const;
};

/// What one form admits for every element of one tensor, in its storage format.
struct Interval {
  std::string form;
  Dtype dtype = Dtype::fp32;
  Shape shape;
  Numbers value, radius;       ///< of the ball, before storage
  Numbers low, high;           ///< rounded to storage
  std::vector<Judgement> how;  ///< empty: interval everywhere
  bool leaves_finite = true;   ///< whether all inputs of the case are finite
};

/// The interval of a ball. `leaves_finite`: whether all inputs of the case are finite.
Interval interval_of(const reference::Ball& ball, Dtype dtype, const std::string& form, bool leaves_finite);

/// What a radius of the rules, which know fp32, bounds in fp64: 2^-53 for 2^-24, and the rounding of the value itself.
/// `sizes`: of all numbers that were rounded to fp64 on the way to the value.
double radius_in_fp64(double radius_in_fp32, double sizes);

/// The interval of a kernel that computes in fp64, from the ball of one that computes in fp32 and from the values in
/// more digits: rules bound errors by a multiple of the unit roundoff that grows with it, so that a radius of fp32,
/// 2^-24, taken 2^-29 times bounds that of fp64, 2^-53. What leaves the range of fp32 is left open. `held`: what is
/// added to the values, with it in `ball`; or nothing.
Interval interval_in_fp64(const reference::Ball& ball, const std::vector<double>& values, std::span<const double> held,
                          const std::string& form, bool leaves_finite);

/// Rounds ends of intervals to storage. Where that has no infinity, they stay at its largest number.
void round_ends(Dtype dtype, std::span<double> ends);

/// Whether element i is not judged at all.
bool unjudged(const Interval& interval, std::size_t i);

/// Whether the interval admits this number as element i.
bool admits(const Interval& interval, std::int64_t i, double got);

/// Result of comparing one tensor: counts, and which elements lie outside.
struct Comparison {
  enum class Open { left_range, no_value, no_bound };
  std::int64_t compared = 0, blind = 0, range = 0;
  std::int64_t by_forms = 0, by_regrouping = 0;  ///< right by a further form alone, or by a regrouped one
  Open open = Open::left_range;                  ///< why the last of `range` is not judged
  double max_ratio = 0;
  std::vector<std::int64_t> outside;  ///< ascending indices
};

/// Compares all elements; `got` holds the exact stored values, row-major.
Comparison compare(const std::vector<double>& got, const Interval& interval);

/// Compares one part of a tensor, whose first element has the index `first`, and adds the result. Parts come in order.
void compare_part(std::span<const double> got, const Interval& interval, std::int64_t first, Comparison& comparison);

/// Constants of the test of unsettled() for one tensor.
struct NearestTest {
  double min_normal, scale, share, near;
  std::int64_t last_bit;
};

/// Whether an element is right and seen whatever its radius up to this one: it is the storage's number nearest to its
/// value, and not so near to zero that it might be blind. Its headroom is then unused.
bool settled(double got, double value, double radius, Dtype dtype);

/// Which of the elements of a ball from `first` on that test leaves open at the radii of the ball, ascending: indices
/// into `got`. Of more than `most` not all.
void unsettled(std::span<const double> got, const reference::Ball& ball, std::int64_t first, Dtype dtype,
               std::vector<std::int64_t>& out, std::size_t most = SIZE_MAX);

/// The same of n elements as they are stored, by a comparison of codes. False where there are more than `most`, or the
/// type has not 16 bits.
bool unsettled_codes(const std::byte* got, std::size_t n, const reference::Ball& ball, std::int64_t first, Dtype dtype,
                     std::vector<std::int64_t>& out, std::size_t most);

/// Drops of `comparison.outside` those elements of this part that a further form admits. A form may widen the interval,
/// not the range: from finite inputs the formula has a judged value here, and a form that overflows, or has no value,
/// says nothing about it. A form whose roundings alone are without a bound leaves finite numbers open.
void accept_form(std::span<const double> got, const Interval& interval, std::int64_t first, Comparison& comparison);

/// |got - value| beyond the storage rounding, in units of the radius; infinite where the radius is zero.
double excess_ratio(const Interval& interval, std::int64_t i, double got);

/// A reader's view of one element.
Element element_of(const Interval& interval, std::int64_t i, double got, std::uint64_t got_bits);

/// The same where only the bits of `want` are right: element `i` of a tensor of this dtype and shape.
Element broken(Dtype dtype, const Shape& shape, std::int64_t i, std::uint64_t got_bits, std::uint64_t want_bits);

/// The spacing of a format's normal numbers at a value, and at its smallest normal number below that; infinite where
/// the value is not finite.
double spacing_at(const FloatFormat& format, double value);

/// Distance of two numbers in ulps of a format, counted in representable steps; infinite if one is not finite.
double ulp_distance(const FloatFormat& format, double a, double b);

}  // namespace ampcheck::checks
