// SPDX-License-Identifier: Apache-2.0
// --accumulate: built-in ops with their matrix products on the model of a GPU's tensor cores.
#pragma once

#include <string>

#include "tools/choose/case_options.h"
#include "tools/choose/run_options.h"

namespace ampcheck::tools {

/// Puts linear and attention, with kernels and contract on these cores, in place of the built-in ops. Nothing where
/// `accumulate` is empty. `matmul` among the words is linear. Throws UsageError for a text that names no cores, ops of
/// a library, whose own contract says what they run on, and the CUDA device.
enum class Declares { yes, no };  ///< `no`: the contract says fp32, for a command that reads it off the bits
void put_on_cores(OpOptions& options, const std::string& accumulate, Device device, Declares declares = Declares::yes);

/// " --accumulate TEXT" for the line that runs a case again; empty where there is none.
std::string accumulate_words(const std::string& accumulate);

}  // namespace ampcheck::tools
