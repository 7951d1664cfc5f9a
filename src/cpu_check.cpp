// SPDX-License-Identifier: Apache-2.0
// Compiled for plain x86-64 (tools/cmake/flags.cmake); includes nothing with inline functions, which the linker might
// take from here or from a file built for x86-64-v3.
#include "src/cpu_check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace ampcheck {

const char* missing_cpu_feature() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return "AVX2";
  if (!__builtin_cpu_supports("fma")) return "FMA";
  if (!__builtin_cpu_supports("bmi")) return "BMI1";
  if (!__builtin_cpu_supports("bmi2")) return "BMI2";
#endif
  return nullptr;
}

void require_cpu() {
  const char* const missing = missing_cpu_feature();
  if (missing == nullptr) return;
  const char* const parts[] = {"ampcheck: this processor has no ", missing,
                               "; want x86-64-v3 (AVX2 and FMA: Intel Haswell 2013, AMD Zen 2017, or later)\n"};
  for (const char* part : parts)
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  _exit(6);
}

namespace {
// Static constructors of other files are built for x86-64-v3, and main() would come after them.
[[gnu::constructor(101)]] void require_cpu_first() { require_cpu(); }
}  // namespace

}  // namespace ampcheck
