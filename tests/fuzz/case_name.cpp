// SPDX-License-Identifier: Apache-2.0
// Case names: what is parsed is printed, and the printed name gives the same call.
#include "src/error.h"
#include "src/op_call.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;

namespace {

const OpSignature& signature() {
  static const OpSignature kSignature = {
      .name = "op",
      .inputs = {{.name = "x", .dims = "N D"},
                 {.name = "weight", .dims = "D", .role = Role::weight, .type = TypeRule::parameter, .optional = true},
                 {.name = "index", .dims = "N", .role = Role::index, .type = TypeRule::i64, .index_dim = "V"},
                 {.name = "mask", .dims = "N K", .role = Role::mask, .type = TypeRule::u8, .optional = true},
                 {.name = "table", .dims = "V D"}},
      .outputs = {{.name = "y"}},
      .attributes = {{"eps", 1e-5}, {"mode", std::string("none")}, {"causal", 1.0}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}, {"K", {3, 4, 5}}, {"V", {2, 3, 4}}},
  };
  return kSignature;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const OpCall call = parse_call(fuzz::text_of(data, size), signature());
    const std::string printed = call.str(signature());
    fuzz::require(parse_call(printed, signature()).str(signature()) == printed, "a printed name gives the same call");
    for (const TensorSpec& spec : signature().inputs)
      if (call.has(spec)) call.shape(spec);
  } catch (const Error&) {
  }
  return 0;
}
