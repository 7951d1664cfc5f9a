// SPDX-License-Identifier: Apache-2.0
// Which cast policy each op has under autocast, per device: torch's lists as data.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/cast_policy.h"
#include "src/dtype.h"

namespace ampcheck {

struct OpSignature;

/// The torch whose lists these are. Print it beside every answer: lists change between releases.
inline constexpr char kAutocastTablesVersion[] = "torch 2.15.0";

enum class AutocastDevice : std::uint8_t { cpu, cuda, xpu, mtia, maia };
inline constexpr int kAutocastDevices = 5;

const char* name(AutocastDevice device);
const char* name(CastPolicy policy);
/// fp16 or bf16: what a region without a dtype computes in.
Dtype default_autocast_dtype(AutocastDevice device);

/// Policy of an aten operator, "conv_transpose2d.input" or without its overload ("conv_transpose2d") if all listed
/// overloads agree.
CastPolicy cast_policy(AutocastDevice device, std::string_view op);
/// The listed operators of a device with this policy, sorted.
std::vector<std::string_view> listed_ops(AutocastDevice device, CastPolicy policy);
/// An unlisted operator made of others: the listed one that it inherits its casts from; "" if none is known.
/// From such an op low-precision arithmetic comes although no list names it.
std::string_view inherits_casts_of(AutocastDevice device, std::string_view op);
/// Policy of an op definition: that of torch's operator which it is, or of the one which that inherits it from; none of
/// torch's: its own.
CastPolicy cast_policy(AutocastDevice device, const OpSignature& op);

}  // namespace ampcheck
