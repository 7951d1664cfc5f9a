// SPDX-License-Identifier: Apache-2.0
// The code of tile_lanes.h for vectors of 8, which every processor with AVX2 has, and of 16, for AVX-512.
#include "src/tensor_core/tile.h"

#include <hwy/base.h>  // HWY_PUSH_ATTRIBUTES
#if HWY_ARCH_X86_64
#include <immintrin.h>
#endif

#include <cstring>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors of 64 bytes as arguments: all of it is inlined
#endif

namespace ampcheck::tensor_core {

namespace eight {
constexpr int kLanes = 8;
#include "src/tensor_core/tile_lanes.h"
}  // namespace eight

std::int64_t tile_of_8(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                       std::int64_t end, float* c, std::int64_t stride) {
  return eight::tile(settings, a, b, begin, end, c, stride);
}

namespace sixteen_in_parts {
constexpr int kLanes = 16;
#include "src/tensor_core/tile_lanes.h"
}  // namespace sixteen_in_parts

std::int64_t tile_of_16_in_parts(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                                 std::int64_t end, float* c, std::int64_t stride) {
  return sixteen_in_parts::tile(settings, a, b, begin, end, c, stride);
}

#if HWY_ARCH_X86_64
HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512dq,avx512bw")
namespace sixteen {
constexpr int kLanes = 16;
constexpr __mmask16 kAll = 0xffff;  // of the form without a mask gcc 12 says that it reads what is not set
#define AMPCHECK_TO_FLOATS_TOWARD_ZERO(x) \
  bits_as<Floats>(_mm512_maskz_cvt_roundepi32_ps(kAll, bits_as<__m512i>(x), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC))
#include "src/tensor_core/tile_lanes.h"
#undef AMPCHECK_TO_FLOATS_TOWARD_ZERO
}  // namespace sixteen

std::int64_t tile_of_16(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                        std::int64_t end, float* c, std::int64_t stride) {
  return sixteen::tile(settings, a, b, begin, end, c, stride);
}
HWY_POP_ATTRIBUTES
#else
std::int64_t tile_of_16(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                        std::int64_t end, float* c, std::int64_t stride) {
  return tile_of_16_in_parts(settings, a, b, begin, end, c, stride);
}
#endif

}  // namespace ampcheck::tensor_core
