// SPDX-License-Identifier: Apache-2.0
// What a process that runs kernels of a library may take of the machine.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "src/device.h"

namespace ampcheck::tools {

inline void limit(__rlimit_resource_t resource, rlim_t most) {
  rlimit now{};
  if (getrlimit(resource, &now) != 0) return;
  now.rlim_cur = std::min(now.rlim_max, most);
  setrlimit(resource, &now);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kReservesAddresses = true;  // a sanitizer's shadow is larger than any memory
#else
inline constexpr bool kReservesAddresses = false;
#endif

/// No core files, no more memory than there is. CUDA reserves more addresses than that.
inline void limit_memory(Device device) {
  const auto memory = static_cast<rlim_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  limit(RLIMIT_CORE, 0);
  if (device == Device::cpu && !kReservesAddresses) limit(RLIMIT_AS, memory + (rlim_t{1} << 30));
}

}  // namespace ampcheck::tools
