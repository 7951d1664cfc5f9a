// SPDX-License-Identifier: Apache-2.0
// A scaler in any language: a program that reads a line of JSON with calls and answers with a line of JSON.
#pragma once

#include <memory>
#include <string>

#include "checks/scaler/calls.h"

namespace ampcheck::tools {

/// Starts `command` in a shell. UsageError if it does not answer, or not as is wanted (`ampcheck explain loss-scale`).
std::unique_ptr<checks::scaler::Subject> scaler_program(const std::string& command);

}  // namespace ampcheck::tools
