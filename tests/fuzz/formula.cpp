// SPDX-License-Identifier: Apache-2.0
// Formulas in text: parsed, resolved, and recorded with their adjoint at small shapes.
#include "reference/text/formula_text.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;

namespace {

const OpSignature& signature() {
  static const OpSignature kSignature = {
      .name = "op",
      .inputs = {{.name = "x", .dims = "N D"},
                 {.name = "w", .dims = "D", .role = Role::weight, .type = TypeRule::parameter, .optional = true},
                 {.name = "i", .dims = "N", .role = Role::index, .type = TypeRule::i64, .index_dim = "N"}},
      .outputs = {{.name = "y"}},
      .saved = {},
      .attributes = {{"eps", 1e-5}},
      .dims = {{"N", {2, 2, 2}}, {"D", {3, 3, 3}}},
  };
  return kSignature;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    constexpr std::int64_t kMost = 4096;  // larger ones would take the fuzzer's time, on the same way
    const reference::Form form =
        reference::form_from_text(signature(), "fuzz", std::string(fuzz::text_of(data, size)), false, kMost);
    Attributes attributes;
    attributes.set("eps", 1e-5);
    const reference::CaseInputs inputs{{{"x", {2, 3}}, {"w", {3}}}, {{"i", {1, 0}}}, {{"i", {2}}}};
    reference::record(signature(), form, attributes, inputs);
  } catch (const Error&) {
  }
  return 0;
}
