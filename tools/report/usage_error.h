// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace ampcheck::tools {

/// The command line asks for something that does not exist: exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace ampcheck::tools
