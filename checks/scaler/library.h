// SPDX-License-Identifier: Apache-2.0
// A scaler or a training loop in a shared library (src/api/ampcheck/ampcheck_scaler.h).
#pragma once

#include <memory>
#include <string>

#include "checks/scaler/calls.h"
#include "checks/scaler/loop.h"
#include "src/error.h"

namespace ampcheck::checks::scaler {

/// The library is there, but what it exports is no scaler or loop, or does not keep to the interface.
struct LibraryError : Error {
  using Error::Error;
};

/// Loads a library for the life of the process. Its optimizer is SGD with momentum 1/2 and learning rate 1/16 on three
/// zeros, made by ampcheck. Throws EnvironmentError if it cannot be loaded, LibraryError if it is no scaler.
std::unique_ptr<Subject> library_scaler(const std::string& path);

/// The same of a training loop.
std::unique_ptr<Loop> library_loop(const std::string& path);

}  // namespace ampcheck::checks::scaler
