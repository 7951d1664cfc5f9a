// SPDX-License-Identifier: Apache-2.0
// A training loop in any language: a program that reads a line of JSON with steps and answers with a line of JSON.
#pragma once

#include <memory>
#include <string>

#include "checks/scaler/loop.h"

namespace ampcheck::tools {

/// Starts `command` in a shell. UsageError if it does not answer, or not as is wanted (`ampcheck explain
/// training-step`).
std::unique_ptr<checks::scaler::Loop> step_program(const std::string& command);

}  // namespace ampcheck::tools
