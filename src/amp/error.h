// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/error.h"

namespace ampcheck {

/// A call that torch.amp or torch.optim would refuse. what() is torch's own text, so that a message can be searched
/// for; type is the Python exception's name (ValueError, RuntimeError, AssertionError, KeyError, NotImplementedError).
struct AmpError : Error {
  AmpError(const char* type_name, const std::string& text) : Error(text), type(type_name) {}
  const char* type;
};

}  // namespace ampcheck
