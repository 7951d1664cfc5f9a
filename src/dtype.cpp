// SPDX-License-Identifier: Apache-2.0
#include "src/dtype.h"

#include <array>

namespace ampcheck {

namespace {
constexpr std::array<DtypeInfo, 9> kDtypes = {{
    {Dtype::fp64, "fp64", 8, &kFp64},
    {Dtype::fp32, "fp32", 4, &kFp32},
    {Dtype::fp16, "fp16", 2, &kFp16},
    {Dtype::bf16, "bf16", 2, &kBf16},
    {Dtype::e4m3fn, "e4m3fn", 1, &kE4m3fn},
    {Dtype::e5m2, "e5m2", 1, &kE5m2},
    {Dtype::i32, "i32", 4, nullptr},
    {Dtype::i64, "i64", 8, nullptr},
    {Dtype::u8, "u8", 1, nullptr},
}};
}  // namespace

const DtypeInfo& info(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)]; }

const DtypeInfo* find_dtype(std::string_view name) {
  for (const DtypeInfo& row : kDtypes)
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace ampcheck
