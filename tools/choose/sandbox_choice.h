// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/choose/run_options.h"

namespace ampcheck::tools {

/// From now on libraries run in a process that reads nothing but libraries, writes nothing and has no network
/// (tools/workers/sandbox.h), of this process and of those that it starts; neither opens one itself.
void sandbox_libraries();
bool libraries_are_sandboxed();
/// The same if the process that started this one has done it.
void sandbox_libraries_as_asked();
/// UsageError where kernels of a library would run in the judge's process.
void require_own_processes(const IsolationOptions& isolation, Device device);

}  // namespace ampcheck::tools
