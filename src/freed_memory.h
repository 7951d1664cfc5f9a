// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>

namespace ampcheck {

/// Freed tensors of at most `largest` bytes (32 MiB: the most that glibc takes) stay with the process: giving pages
/// back and clearing them again costs more than judging or training with what is in them. Kept buffers of many sizes
/// pile up, though: what has them asks for less.
inline void keep_freed_memory(int largest = 1 << 25) {
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, largest);
}

}  // namespace ampcheck
