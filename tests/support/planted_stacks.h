// SPDX-License-Identifier: Apache-2.0
// Ops as two stacks compute them: the same formula with a cast, an accumulator, an order of products or an eps in
// another place, written down as plain loops. None of this comes from reference/.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/dtype.h"
#include "src/tensor_file.h"

namespace ampcheck::testing {

/// Rows of an op: x [rows, cols], and what else the op reads.
struct StackData {
  std::int64_t rows = 24, cols = 96;
  Dtype dtype = Dtype::bf16;
  std::vector<float> x, weight, gate, r;

  std::size_t at(std::int64_t i, std::int64_t j) const { return static_cast<std::size_t>(i * cols + j); }
};

/// Full mantissas of a 16-bit type, the same for the same seed.
StackData stack_data(std::uint64_t seed, Dtype dtype = Dtype::bf16);

struct StackWay {
  std::string name;
  std::function<std::vector<float>(const StackData&, Dtype)> run;
  bool follows = true;  ///< the declared contract: fp32 inside, one rounding at the end
  std::string says;     ///< of its words
};

struct StackOp {
  std::string name, formula;
  std::vector<std::string> inputs;  ///< "x", "weight"
  std::vector<StackWay> ways;       ///< the first follows the declared contract
};
const std::vector<StackOp>& stack_ops();

/// The dump of one call: inputs and y.
TensorFile stack_dump(const StackOp& op, const StackWay& way, const StackData& data);

float rounded(float value, Dtype dtype);

}  // namespace ampcheck::testing
