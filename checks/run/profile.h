// SPDX-License-Identifier: Apache-2.0
// What the errors of a kernel look like in one case: how large, how often, to which side. A later build is compared
// with it. Bounds are no part of a profile: each run derives them anew from the formula.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checks/case/options.h"

namespace ampcheck::checks {

/// One output or gradient. Errors are in ulps of its type, signed, from the reference rounded to that type.
struct TensorProfile {
  std::int64_t elements = 0;    ///< all of the tensor
  std::int64_t open = 0;        ///< of these: the formula leaves them open, or nothing finite was right
  std::int64_t not_finite = 0;  ///< of these: not finite where a finite number is right, or the other way round
  double max = 0, p9999 = 0, p99 = 0, rms = 0;  ///< of the size of the error, over the others
  double bias = 0;                              ///< mean of the error
  /// How many errors are in [2^k, 2^(k+1)) ulps; exact ones are in none.
  std::map<int, std::int64_t> histogram;
  struct Worst {
    std::string index;  ///< "[3,17]"
    std::uint64_t got = 0, want = 0;
    double ulp = 0;
  };
  std::vector<Worst> worst;  ///< at most four, the largest first
  std::string bits;          ///< digest of the tensor; every NaN counts as the same
};

struct CaseProfile {
  std::string inputs;  ///< digest of inputs and of the gradients that come in
  std::map<std::string, TensorProfile> tensors;
};

/// From the tensors of one run (run_case).
CaseProfile profile_of(const Dump& dump);

}  // namespace ampcheck::checks
