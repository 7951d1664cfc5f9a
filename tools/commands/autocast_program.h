// SPDX-License-Identifier: Apache-2.0
// An autocast in any language: a program that reads a line of JSON with actions and answers with a line of JSON.
#pragma once

#include <memory>
#include <string>

#include "checks/autocast/actions.h"

namespace ampcheck::tools {

/// Starts `command` in a shell. UsageError if it does not answer, or not as is wanted (`ampcheck explain autocast`).
std::unique_ptr<checks::autocast::Subject> autocast_program(const std::string& command);

}  // namespace ampcheck::tools
