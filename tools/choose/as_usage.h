// SPDX-License-Identifier: Apache-2.0
// What is refused of the user's choices is the user's mistake.
#pragma once

#include "checks/doors/plugin.h"
#include "src/error.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

/// Runs `work`, which takes the user's choices: what it refuses becomes a UsageError. A kernel's failure and what the
/// machine lacks pass through.
template <class F>
auto as_usage(F work) {
  try {
    return work();
  } catch (const EnvironmentError&) {
    throw;
  } catch (const checks::KernelError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace ampcheck::tools
