// SPDX-License-Identifier: Apache-2.0
// fp64 functions over arrays. glibc's libmvec where it is there (4 ulp of fp64, far inside the inflation of u), else
// libm.
#include <cmath>
#include <cstring>

#include "reference/ball/ball_rules.h"

#if defined(__AVX2__) && defined(__GLIBC__)
#include <immintrin.h>
extern "C" {
__m256d _ZGVdN4v_exp(__m256d);
__m256d _ZGVdN4v_expm1(__m256d);
__m256d _ZGVdN4v_log(__m256d);
__m256d _ZGVdN4v_log1p(__m256d);
__m256d _ZGVdN4v_tanh(__m256d);
__m256d _ZGVdN4v_erf(__m256d);
__m256d _ZGVdN4v_erfc(__m256d);
}
#define AMPCHECK_VECTOR_FUNCTION(name, safe)                                                     \
  void vector_##name(const double* x, double* y, int n) {                                        \
    int i = 0;                                                                                   \
    for (; i + 4 <= n; i += 4) _mm256_storeu_pd(y + i, _ZGVdN4v_##name(_mm256_loadu_pd(x + i))); \
    if (i < n) {                                                                                 \
      alignas(32) double tail[4] = {safe, safe, safe, safe};                                     \
      std::memcpy(tail, x + i, static_cast<std::size_t>(n - i) * sizeof(double));                \
      _mm256_store_pd(tail, _ZGVdN4v_##name(_mm256_load_pd(tail)));                              \
      std::memcpy(y + i, tail, static_cast<std::size_t>(n - i) * sizeof(double));                \
    }                                                                                            \
  }
#else
#define AMPCHECK_VECTOR_FUNCTION(name, safe)              \
  void vector_##name(const double* x, double* y, int n) { \
    for (int i = 0; i < n; ++i) y[i] = std::name(x[i]);   \
  }
#endif

namespace ampcheck::reference {

AMPCHECK_VECTOR_FUNCTION(exp, 0.0)
AMPCHECK_VECTOR_FUNCTION(expm1, 0.0)
AMPCHECK_VECTOR_FUNCTION(log, 1.0)
AMPCHECK_VECTOR_FUNCTION(log1p, 0.0)
AMPCHECK_VECTOR_FUNCTION(tanh, 0.0)
AMPCHECK_VECTOR_FUNCTION(erf, 0.0)
AMPCHECK_VECTOR_FUNCTION(erfc, 0.0)

void vector_sin(const double* x, double* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = std::sin(x[i]);
}
void vector_cos(const double* x, double* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = std::cos(x[i]);
}

}  // namespace ampcheck::reference
