// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ampcheck::tools {

/// Whether a CI system runs this: CI is set, and neither 0 nor false. Then nothing is written beside a baseline.
bool in_ci();

}  // namespace ampcheck::tools
