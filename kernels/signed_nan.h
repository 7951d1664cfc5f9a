// SPDX-License-Identifier: Apache-2.0
// Conversions as src/rounding.h has them, which keep a NaN's sign; those of kernels/storage.h have one NaN.
#pragma once

#include "kernels/storage.h"
#include "src/dtype.h"

namespace ampcheck::kernels {

/// Element `at` as fp32: fp32 bit for bit, a NaN of 16 bits as the quiet NaN of its sign.
AMPCHECK_HD float load_signed(const void* data, Dtype dtype, std::int64_t at) {
  if (dtype == Dtype::fp32) return static_cast<const float*>(data)[at];
  const std::uint32_t code = static_cast<const std::uint16_t*>(data)[at];
  const float value = dtype == Dtype::bf16 ? to_float(Bf16{static_cast<std::uint16_t>(code)})
                                           : to_float(Fp16{static_cast<std::uint16_t>(code)});
  return value != value ? math::from_bits(math::kNanBits | ((code & 0x8000u) << 16)) : value;
}

/// Rounds into element `at`: fp32 bit for bit, a NaN as the format's of its sign.
AMPCHECK_HD void store_signed(void* data, Dtype dtype, std::int64_t at, float value) {
  if (dtype == Dtype::fp32) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  const std::uint16_t code = dtype == Dtype::bf16 ? from_float<Bf16>(value).bits : from_float<Fp16>(value).bits;
  const std::uint32_t sign = value != value ? math::to_bits(value) >> 16 & 0x8000u : 0u;
  static_cast<std::uint16_t*>(data)[at] = static_cast<std::uint16_t>(code | sign);
}

}  // namespace ampcheck::kernels
