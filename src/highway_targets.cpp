// SPDX-License-Identifier: Apache-2.0
// What the dispatch of Highway's headers asks its library for. Version 1.0's library spends 4 ms before main() on the
// rate of a clock, in each of the many processes of a run, so that it is not linked (CMakeLists.txt).
#include <hwy/highway.h>

#if HWY_MAJOR == 1 && HWY_MINOR == 0 && HWY_ARCH_X86_64

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace hwy {

// Weak: a program that has Highway's library too takes either.
[[gnu::weak]] std::int64_t SupportedTargets();
[[gnu::weak]] void SetSupportedTargetsForTest(std::int64_t targets);
[[gnu::weak]] ChosenTarget& GetChosenTarget();
[[gnu::weak]] void Abort(const char* file, int line, const char* format, ...);

namespace {

std::atomic<std::int64_t> for_test{0};

/// The compiler's own answers, which know what the system saves of the registers.
std::int64_t of_this_machine() {
  __builtin_cpu_init();
  std::int64_t out = HWY_STATIC_TARGET;
  const auto has = [&out](bool there, std::int64_t target) {
    if (there) out |= target;
    return there;
  };
  if (!has(__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul"),
           HWY_SSE4))
    return out;
  if (!has(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
               __builtin_cpu_supports("bmi2"),
           HWY_AVX2))
    return out;
  if (!has(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd"),
           HWY_AVX3))
    return out;
  has(__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("vpclmulqdq") &&
          __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
          __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bitalg") &&
          __builtin_cpu_supports("gfni") && __builtin_cpu_supports("vaes"),
      HWY_AVX3_DL);
  return out;
}

}  // namespace

std::int64_t SupportedTargets() {
  static const std::int64_t machine = of_this_machine();
  const std::int64_t forced = for_test.load();
  return forced != 0 ? forced : machine;
}

void SetSupportedTargetsForTest(std::int64_t targets) {
  for_test.store(targets);
  GetChosenTarget().DeInit();
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

void Abort(const char* file, int line, const char* format, ...) {
  std::fprintf(stderr, "%s:%d: ", file, line);
  std::va_list rest;
  va_start(rest, format);
  std::vfprintf(stderr, format, rest);
  va_end(rest);
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace hwy

#endif
