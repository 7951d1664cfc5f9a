// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// The calls of one dump as a recording: the numbers of their tensors.
#include <algorithm>
#include <cmath>

#include "checks/stacks/call_folder.h"
#include "src/error.h"

namespace ampcheck::checks::stacks {

namespace {

bool is_output(const std::string& name) { return name == "y" || name.starts_with("result") || name.starts_with("out"); }

TensorNumbers numbers_of(const NamedTensor& named) {
  TensorNumbers out{.name = named.name, .dtype = name(named.tensor.dtype()), .shape = named.tensor.shape().str()};
  const std::vector<double> values = to_doubles(named.tensor.view());
  if (values.empty()) return out;
  double least = HUGE_VAL, largest = -HUGE_VAL, squares = 0;
  bool nan = false;
  for (const double v : values) {
    nan |= std::isnan(v);
    least = std::min(least, v);
    largest = std::max(largest, v);
    squares += v * v;
  }
  out.least = nan ? NAN : least;
  out.largest = nan ? NAN : largest;
  out.norm = std::sqrt(squares);
  return out;
}

}  // namespace

Recording numbers_of_calls(const CallFolder& folder) {
  Recording out{.path = folder.path, .tool = folder.kind, .precision = "all digits", .ops = {}, .notes = folder.notes};
  for (const DumpedCall& call : folder.calls) {
    OpRecord op{.name = call.name};
    for (const NamedTensor& named : tensors_of(call).tensors) {
      if (!is_float(named.tensor.dtype())) continue;
      (is_output(named.name) ? op.outputs : op.inputs).push_back(numbers_of(named));
    }
    out.ops.push_back(std::move(op));
  }
  if (std::none_of(out.ops.begin(), out.ops.end(), [](const OpRecord& op) { return !op.outputs.empty(); }))
    throw Error("[diagnose] '" + folder.path +
                "', got no tensor named y, result..., output... or out..., want outputs too "
                "(with a formula: ampcheck check --dump FILE --formula F)");
  return out;
}

}  // namespace ampcheck::checks::stacks
