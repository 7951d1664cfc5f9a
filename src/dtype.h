// SPDX-License-Identifier: Apache-2.0
// The one list of element types a tensor can hold.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/float_format.h"

namespace ampcheck {

enum class Dtype : std::uint8_t { fp64, fp32, fp16, bf16, e4m3fn, e5m2, i32, i64, u8 };

struct DtypeInfo {
  Dtype dtype;
  const char* name;
  int bytes;
  const FloatFormat* format;  ///< null for integers
};

/// Facts of a dtype; the row's name is what case names and reports print.
const DtypeInfo& info(Dtype dtype);
/// The dtype of that name, or null.
const DtypeInfo* find_dtype(std::string_view name);

inline const char* name(Dtype dtype) { return info(dtype).name; }
inline int bytes(Dtype dtype) { return info(dtype).bytes; }
inline bool is_float(Dtype dtype) { return info(dtype).format != nullptr; }
/// Format of a floating dtype; undefined for integers.
inline const FloatFormat& format(Dtype dtype) { return *info(dtype).format; }

}  // namespace ampcheck
