// SPDX-License-Identifier: Apache-2.0
// Misuse is an exception; a numeric failure is a Finding (src/finding.h), never an exception.
#pragma once

#include <stdexcept>
#include <string>

namespace ampcheck {

/// Bad input: the message says where, what was got and what was wanted ("[where] what, got X, want Y").
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An output that could not be written or flushed (full disk, closed pipe): exit code 8.
struct WriteError : Error {
  using Error::Error;
};

/// A device, library or file the user asked for is not there: exit code 6.
struct EnvironmentError : Error {
  using Error::Error;
};

}  // namespace ampcheck
