// SPDX-License-Identifier: Apache-2.0
// The rules by which projects compare a kernel's numbers with a reference, as their tests state them: what is measured
// on the zoo beside our own verdicts, and what `ampcheck audit gate` tries.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/dtype.h"

namespace ampcheck::checks {

/// Numbers of one tensor as a rule sees them: what the kernel gave, the reference, and what an accepted kernel of the
/// same storage type gave, for rules that ask for one.
struct Compared {
  Dtype dtype = Dtype::fp32;
  std::vector<double> got, want, eager;
};

struct GateRule {
  enum class Kind {
    close,    ///< |got - want| <= atol + rtol |want| at every element (torch.testing.assert_close with equal_nan)
    matched,  ///< the same at a share of at least `limit` of the elements
    mean,     ///< mean |got - want| <= limit
    nmse,    ///< sum (got - want)^2 <= limit sum want^2; a difference of class fails (ggml, tests/test-backend-ops.cpp)
    cosine,  ///< the cosine of the angle between got and want >= limit
    factor,  ///< max |got - want| <= limit max |eager - want| (Dao et al., tests/test_flash_attn.py: 2)
  } kind = Kind::close;
  double atol = 0, rtol = 0, limit = 0;
  bool finite = false;    ///< an infinity or NaN of the kernel fails as well, wherever it stands
  bool not_zero = false;  ///< an answer of zeros alone fails as well, where the reference has another number

  /// "|got - want| <= 10000 + 0.01 |want|"
  std::string str() const;
};

/// Names of the kinds: "close", "matched", ... in their order.
const std::vector<std::string>& gate_kinds();

/// Whether a rule accepts one tensor. An empty one is accepted.
bool accepts(const GateRule& rule, const Compared& tensor);

/// torch.testing's default tolerances of a type (torch/testing/_comparison.py).
GateRule torch_default(Dtype dtype);

}  // namespace ampcheck::checks
