// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/cores_choice.h"

#include <deque>
#include <optional>

#include "checks/define/op_def.h"
#include "kernels/cores.h"
#include "tools/choose/option_parsing.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

[[noreturn]] void fail(const std::string& text) {
  throw UsageError("[--accumulate] got '" + text +
                   "', want v100, turing, a100, ada, h100, h200 or b200, and after it ',split=N' or ',promote=N'");
}

/// "h100,split=2,promote=4".
kernels::Cores parse_cores(const std::string& text) {
  kernels::Cores out;
  std::size_t begin = 0;
  for (bool first = true; begin <= text.size(); first = false) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    if (first) {
      Accumulator found;
      if (!find_accumulator("tensor_core(" + part + ")", found) || found.core == TensorCore::any) fail(text);
      out.generation = found.core;
      continue;
    }
    const std::size_t equal = part.find('=');
    const auto value = equal == std::string::npos ? std::nullopt : parse_whole(part.substr(equal + 1));
    if (!value || *value < 1 || *value > 1'000'000) fail(text);
    const std::string word = part.substr(0, equal);
    if (word == "split")
      out.order.split = static_cast<int>(*value);
    else if (word == "promote")
      out.order.promote = static_cast<int>(*value);
    else
      fail(text);
  }
  return out;
}

}  // namespace

void add_accumulate_option(CLI::App* command, CoresOptions& o) {
  text_option(
      command, "--accumulate", "CORES",
      "linear (matmul) and attention with their products on the model of a GPU's tensor cores, to the bit: v100, "
      "turing, a100, ada, h100 or b200; after it ',split=N' for N sums over parts of k, ',promote=N' to add to "
      "fp32 every N instructions",
      o.accumulate);
}

void put_on_cores(OpOptions& options, const std::string& accumulate, Device device, Declares declares) {
  if (accumulate.empty()) return;
  const kernels::Cores cores = parse_cores(accumulate);
  if (!options.plugin_ops.empty())
    throw UsageError(
        "[--accumulate] got ops of a library, want built-in ones: a library's own contract says on what its "
        "kernels run");
  if (device != Device::cpu)
    throw UsageError("[--accumulate] got --device cuda, want cpu: the model of tensor cores runs there");
  static std::deque<checks::OpDef> kept;  // as long as the program: cases point to them
  for (const char* name : {"linear", "attention"}) {
    checks::OpDef op = *checks::find_op(name);
    op.kernel = kernels::on_cores(op.kernel, cores);
    if (declares == Declares::yes) op.signature.precision.accumulate = cores.generation;
    options.plugin_ops.push_back(&kept.emplace_back(std::move(op)));
  }
  for (std::string& word : options.words)
    if (word == "matmul" || word.starts_with("matmul(")) word.replace(0, 6, "linear");
}

std::string accumulate_words(const std::string& accumulate) {
  return accumulate.empty() ? "" : " --accumulate " + accumulate;
}

}  // namespace ampcheck::tools
