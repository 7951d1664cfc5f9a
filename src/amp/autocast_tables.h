// SPDX-License-Identifier: Apache-2.0
// Which cast policy each op has under autocast, per device: torch's lists as data.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/dtype.h"

namespace ampcheck {

/// The torch whose lists these are. Print it beside every answer: lists change between releases.
inline constexpr char kAutocastTablesVersion[] = "torch 2.15.0";

enum class AutocastDevice : std::uint8_t { cpu, cuda, xpu, mtia, maia };
inline constexpr int kAutocastDevices = 5;

/// torch's words.
enum class AutocastPolicy : std::uint8_t {
  lower_precision_fp,  ///< every eligible argument in the region's dtype
  fp32,                ///< every eligible argument in fp32
  fp32_set_opt_dtype,  ///< arguments as they are; dtype=fp32 if not given and the first argument is eligible
  fp32_append_dtype,   ///< arguments as they are; the result in fp32 (the norms)
  promote,             ///< the widest of fp32 and the region's dtype
  banned,              ///< an error
  unlisted             ///< nothing: runs in its arguments' dtypes, but what it is made of may be listed
};

const char* name(AutocastDevice device);
const char* name(AutocastPolicy policy);
/// fp16 or bf16: what a region without a dtype computes in.
Dtype default_autocast_dtype(AutocastDevice device);

/// Policy of an aten operator, "conv_transpose2d.input" or without its overload ("conv_transpose2d") if all listed overloads agree.
AutocastPolicy cast_policy(AutocastDevice device, std::string_view op);
/// The listed operators of a device with this policy, sorted.
std::vector<std::string_view> listed_ops(AutocastDevice device, AutocastPolicy policy);
/// An unlisted operator made of others: the listed one that it inherits its casts from (CPU); "" if none is known.
/// From such an op low-precision arithmetic comes although no list names it.
std::string_view inherits_casts_of(AutocastDevice device, std::string_view op);

}  // namespace ampcheck
