// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/device.h"

namespace ampcheck::tools {

/// Throws EnvironmentError if this build or machine has no such device. Returns what a reader should know of the
/// choice.
std::string require_device(Device device);

}  // namespace ampcheck::tools
