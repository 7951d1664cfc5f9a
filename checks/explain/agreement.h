// SPDX-License-Identifier: Apache-2.0
// How much of a wrong tensor a changed formula gives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

/// How much of a tensor a changed formula gives: of the wrong elements and of all. `bits`: by how many powers of two it
/// comes nearer to the kernel's numbers than the declared one, over all elements; chance has a probability of about
/// 2^-bits.
struct Agreement {
  double outside = 0, all = 0, bits = 0;
  std::int64_t telling = 0;  ///< elements for which the two formulas round to different numbers
  bool narrowed = false;
  bool same_bits =
      false;  ///< all elements have the bits that the changed formula rounds to, in a storage that rounds coarsely
  double freedom = 0;                  ///< of a change that is one of many: bits that it has to show besides
  std::int64_t moved = 0, fewest = 0;  ///< elements that it brings nearer, and how many of them it takes
  bool by_others = false;              ///< convincing by what it predicts elsewhere
  /// There are few intermediates to choose from. Numbers that agree to the last bit tell more than their size shows in
  /// short formats.
  bool convincing() const {
    if (by_others) return true;
    if (outside < 0.9 || all < 0.95) return false;
    if (freedom > 0) return outside >= 0.95 && bits >= 10 + freedom && moved >= fewest;
    return bits >= (narrowed || (outside == 1 && all == 1) ? 8 : 16) || to_the_last_bit();
  }
  /// A slip of another kind would not spare just the elements that this one does, and give the others the same bits.
  bool to_the_last_bit() const { return narrowed && outside == 1 && same_bits && telling >= 4; }
  /// Nothing that is yet to be tried fits better.
  bool perfect() const { return convincing() && outside == 1 && all == 1 && (bits >= 16 || by_others); }
  bool better_than(const Agreement& other) const {
    // A change with more of choice has to explain more than chance might.
    const double dearer = freedom > other.freedom && other.outside > 0 ? 0.02 : 0;
    return outside + all + std::min(bits, 16.0) / 16 >
           other.outside + other.all + std::min(other.bits, 16.0) / 16 + dearer;
  }
};

/// What a tensor leaves open between a kernel's number and a changed formula's, whose own roundings are about those of
/// the declared one.
class Tolerance {
 public:
  explicit Tolerance(const Interval& interval);
  double at(std::size_t i, double got) const;
  bool agrees(std::size_t i, double got, double changed) const;

 private:
  const Interval& interval_;
  const FloatFormat& storage_;
  double share_ = 0;  ///< relative radius of an element that does not cancel
};

/// `freedom`: of the change. Where it is large, right elements must not count for being rounded, as both formulas are.
Agreement agreement(const Tolerance& tolerance, const WrongTensor& wrong, std::vector<double> changed,
                    double freedom = 0);

}  // namespace ampcheck::checks
