// SPDX-License-Identifier: Apache-2.0
// One case: an op at dtypes, shapes, attributes, data and seed. Its printed name re-runs it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/op_signature.h"

namespace ampcheck {

struct CallData;  // checks/data/call_data.h

/// Printed as `layer_norm(x=bf16[5,1025],weight=fp32,bias=none,eps=0.001,range=wide,seed=3)`: the extents not yet known
/// from an earlier tensor, every non-default dtype, absent tensor, attribute and regime; no blanks.
struct OpCall {
  std::string op;
  Dtype storage = Dtype::fp32;
  Dims dims;
  std::map<std::string, Dtype> dtypes;  ///< of parameters, where it is not `storage`
  std::vector<std::string> absent;      ///< optional inputs left out
  Attributes attributes;                ///< all of the signature's, defaults filled in
  std::string range = "normal";         ///< data regime
  std::string cotangent = "mixed";      ///< cotangent regime
  std::string layout = "dense";         ///< memory layout of every tensor
  std::uint64_t seed = 1;
  /// Where the tensors are that `range` names, if it names some (a file's, a real run's). No part of the printed name.
  std::shared_ptr<const CallData> data = nullptr;

  std::string str(const OpSignature& signature) const;
  Shape shape(const TensorSpec& spec) const;
  Dtype dtype(const TensorSpec& spec) const;
  bool has(const TensorSpec& spec) const;
};

/// A call at the first standard shape with default attributes.
OpCall default_call(const OpSignature& signature, Dtype storage);

/// Op name of a printed case: what stands before "(".
std::string_view op_of(std::string_view case_name);

/// Parses a printed case name. Throws Error with what, where (column) and what was wanted.
OpCall parse_call(std::string_view text, const OpSignature& signature);

/// Shortest text that reads back as the same number; integers without a point.
std::string number_text(double value);

/// True if `text` matches a pattern with the wildcards `*` and `?`; an equal text always matches.
bool matches(std::string_view pattern, std::string_view text);

/// The nearest of the candidates by edit distance, for "did you mean"; empty if none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ampcheck
