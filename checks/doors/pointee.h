// SPDX-License-Identifier: Apache-2.0
// What a pointer parameter of a launcher points at, held against the tensor that is passed for it: C has no check here,
// and a kernel that reads bf16 as float computes numbers that look like its own fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ampcheck::checks {

/// What is known of a tensor that a launcher may be given.
struct TensorFacts {
  std::vector<std::int32_t>
      dtypes;  ///< AC_FP32, ...: those that it has in some case; empty: not known, and nothing is judged
  bool written = false;
  bool truth = false;  ///< 0 or 1 alone: a mask
};

/// The pointer of a parameter as it is declared.
struct Pointee {
  std::string type;       ///< "float", "unsigned short", "__nv_bfloat16"; empty: none was read
  bool constant = false;  ///< what is pointed at
  int stars = 1;
};

enum class Passed : std::uint8_t {
  as_is,
  narrowed,  ///< a copy in int32: the tensor has int64
};

/// How tensor `name` is passed for the pointer. void and types that are not known fit everything. Throws Error "got X,
/// want Y".
Passed passed_as(const Pointee& pointee, const std::string& name, const TensorFacts& facts);

}  // namespace ampcheck::checks
