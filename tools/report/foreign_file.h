// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/error.h"

namespace ampcheck::tools {

/// A file that is not what this run goes on from: of another program, run or kernel. Exit code 7.
struct ForeignFileError : Error {
  using Error::Error;
};

}  // namespace ampcheck::tools
