// SPDX-License-Identifier: Apache-2.0
// What a graph has on record, and the arithmetic on whole tensors that it does itself. For graph.cpp and
// graph_backward.cpp.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checks/train/graph.h"
#include "src/float_format.h"

namespace ampcheck::checks::train {

/// Rounded to nearest even, into memory of its own.
Tensor converted(const TensorView& from, Dtype to);
/// sum += more, rounded to the dtype of both.
void add_to(const TensorView& sum, const TensorView& more);
/// Whether a kernel adds to what is there.
bool accumulates(const OpDef& op, const std::string& name);
/// Whether a cast may change a value.
inline bool narrows(Dtype from, Dtype to) {
  const FloatFormat &a = format(from), &b = format(to);
  return b.precision < a.precision || b.max_finite() < a.max_finite() || b.min_subnormal() > a.min_subnormal();
}

struct Graph::Entry {
  enum class Kind {
    call,
    cast,
    move,
    spread,    ///< to[map[i]] += from[i]: a move the other way
    add,       ///< from + other
    norm,      ///< of `parts`, each times `factor`
    gradient,  ///< the backward of the call entries_[forward]
  } kind = Kind::call;
  int from = -1, to = -1;  ///< all but gradient; of a call `to` is its output
  int other = -1;
  std::vector<std::int64_t> map;  ///< move; empty: the same elements
  std::string name;               ///< call, or the call that asked for the cast; "linear_1_backward" of its backward
  std::string layer, label;       ///< label: what is cast
  const OpDef* op = nullptr;
  models::RecordedCall call;  ///< inputs as the kernel read them, after casts
  std::vector<std::pair<std::string, Tensor>> saved;
  std::unique_ptr<models::Evaluation> exact;  ///< of a call with a local shadow
  bool of_backward = false;                   ///< of gradients()
  std::vector<int> parts;
  float factor = 1;
  std::size_t forward = 0;
  int cotangent = -1;                                  ///< gradient: what it passes on
  bool in_fp8 = false;                                 ///< a call whose products read fp8; a cast to it and back
  Dtype between = Dtype::fp32;                         ///< of those: what lies between the products
  double quantized_by = 1;                             ///< of such a cast: the scale
  std::vector<std::pair<std::string, int>> gradients;  ///< gradient: by input, what it wrote
};

}  // namespace ampcheck::checks::train
