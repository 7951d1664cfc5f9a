// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>

namespace ampcheck {

/// Freed tensors stay with the process: giving pages back and clearing them again costs more than judging or training with what is in them.
inline void keep_freed_memory() { mallopt(M_TRIM_THRESHOLD, 1 << 30), mallopt(M_MMAP_THRESHOLD, 1 << 25); }  // 32 MiB: the most that glibc takes

}  // namespace ampcheck
