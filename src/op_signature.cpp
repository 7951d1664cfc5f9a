// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "src/op_signature.h"

#include "src/error.h"
#include "src/extent.h"

namespace ampcheck {

double Attributes::number(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw Error("[attribute] no attribute named '" + name + "'");
  const double* value = std::get_if<double>(&found->second);
  if (value == nullptr) throw Error("[attribute] '" + name + "' is text, want a number");
  return *value;
}

const std::string& Attributes::text(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw Error("[attribute] no attribute named '" + name + "'");
  const std::string* value = std::get_if<std::string>(&found->second);
  if (value == nullptr) throw Error("[attribute] '" + name + "' is a number, want text");
  return *value;
}

const TensorSpec* OpSignature::input(std::string_view wanted) const {
  for (const TensorSpec& spec : inputs)
    if (spec.name == wanted) return &spec;
  return nullptr;
}

std::vector<std::string> OpSignature::symbols(const TensorSpec& spec) { return extents_in(spec.dims); }

Dtype dtype_of(TypeRule rule, Dtype storage) {
  switch (rule) {
    case TypeRule::fp32: return storage == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;
    case TypeRule::i64: return Dtype::i64;
    case TypeRule::u8: return Dtype::u8;
    case TypeRule::fp16: return Dtype::fp16;
    case TypeRule::bf16: return Dtype::bf16;
    case TypeRule::e4m3fn: return Dtype::e4m3fn;
    case TypeRule::e5m2: return Dtype::e5m2;
    case TypeRule::storage:
    case TypeRule::parameter: break;
  }
  return storage;
}

}  // namespace ampcheck
