// SPDX-License-Identifier: Apache-2.0
// Math sets that are not our own kernels'.
#include "checks/define/op_def.h"

namespace ampcheck::checks {

MathSet cuda_math() {
  return {.name = "CUDA",
          .exp = 2,
          .expm1 = 1,
          .log = 1,
          .log1p = 1,
          .tanh = 2,
          .erf = 2,
          .erfc = 4,
          .rsqrt = 2,
          .sqrt = 0.5,
          .pow = 4};
}

MathSet glibc_math() {
  return {.name = "glibc",
          .exp = 1,
          .expm1 = 1,
          .log = 1,
          .log1p = 1,
          .tanh = 2,
          .erf = 1,
          .erfc = 3,
          .rsqrt = 2,
          .sqrt = 0.5,
          .pow = 1};
}

}  // namespace ampcheck::checks
