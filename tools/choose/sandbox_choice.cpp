// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/sandbox_choice.h"

#include <cstdlib>

#include "checks/doors/loading.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {
constexpr const char* kAsked = "AMPCHECK_SANDBOXED_LIBRARIES";  // in the environment of processes that this one starts
}

void sandbox_libraries() {
  checks::refuse_to_open("this process has no sandbox, want a library of ops on the CPU");
  setenv(kAsked, "1", 1);
}

bool libraries_are_sandboxed() { return std::getenv(kAsked) != nullptr; }

void sandbox_libraries_as_asked() {
  if (libraries_are_sandboxed()) sandbox_libraries();
}

void require_own_processes(const IsolationOptions& isolation, Device device) {
  if (!libraries_are_sandboxed()) return;
  if (!isolation.isolation)
    throw UsageError("[--sandbox] got --isolation none, want worker: a debugger's process has no sandbox");
  if (device != Device::cpu)
    throw UsageError(
        "[--sandbox] got another device, want --device cpu: launchers of a GPU's kernels run in the judge's process");
}

}  // namespace ampcheck::tools
