// SPDX-License-Identifier: Apache-2.0
// What each source line of a GPU kernel does to its numbers, measured on the simulated GPU beside a shadow in fp64. As
// with launch_notes, it goes by the thread that called the kernel.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ampcheck {

struct LineErrors {
  /// Why a number lost digits at a line.
  enum class Why : std::uint8_t { rounding, cancellation, overflow, underflow };

  std::string kernel, place;            ///< "softmax", "softmax.cu:17"
  std::int64_t results = 0;             ///< floats that the line computed
  double local_ulp = 0, local = 0;      ///< largest error of one operation on the operands that it had; relative
  double carried_ulp = 0, carried = 0;  ///< largest distance of a result from its shadow; relative
  std::int64_t cancelled_bits = 0;      ///< most leading bits that cancelled in a sum of numbers with errors
  std::int64_t nans = 0, infinities = 0, underflows = 0, subnormals = 0;  ///< born here, of numbers that are none
  /// Numbers in global memory with fewer than half of their digits right, by what happened here: no other line took
  /// more digits from them.
  std::array<std::int64_t, 4> lost_by = {};

  std::int64_t lost() const { return lost_by[0] + lost_by[1] + lost_by[2] + lost_by[3]; }
  /// What took the digits of most of them.
  const char* lost_words() const;
  void add(const LineErrors& other);
  friend bool operator==(const LineErrors&, const LineErrors&) = default;
};

/// Of this process: whether kernels on the simulated GPU are followed in fp64.
void follow_lines(bool wanted);
bool follows_lines();

/// Of this thread, since forget_line_errors(): the first launch of each kernel is followed, the others take long.
bool wants_line_errors(const std::string& kernel);
void keep_line_errors(const std::vector<LineErrors>& lines);
std::vector<LineErrors> take_line_errors();
void forget_line_errors();

}  // namespace ampcheck
