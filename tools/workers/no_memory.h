// SPDX-License-Identifier: Apache-2.0
// A process of ours that finds no memory, in a place where nothing catches that: it says so and ends, and no kernel is
// blamed for it.
#pragma once

#include <exception>

namespace ampcheck::tools {

/// Tells a judge's supervisor, or the judge of a process of kernels, that memory is what was missing.
[[noreturn]] void end_worker_without_memory();
[[noreturn]] void end_runner_without_memory();

/// Whether a library could not be loaded, could not say what it is, or its kernel could not do its work, since it found
/// no memory.
bool is_for_memory(const std::exception& error);

/// From here on a std::bad_alloc that nothing catches is that of a library: it ends the process as it ends any other.
void leave_memory_to_libraries();

}  // namespace ampcheck::tools
