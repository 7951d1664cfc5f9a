// SPDX-License-Identifier: Apache-2.0
// Exceptions of the public headers in place of ours.
#pragma once

#include "src/error.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

/// Runs `work`. What is the caller's mistake becomes a Usage, what the machine lacks an Environment; all other
/// exceptions pass through.
template <class Usage, class Environment, class F>
auto with_public_errors(F work) {
  try {
    return work();
  } catch (const UsageError& error) {
    throw Usage(error.what());
  } catch (const EnvironmentError& error) {
    throw Environment(error.what());
  } catch (const WriteError& error) {
    throw Environment(error.what());
  } catch (const Error& error) {
    throw Usage(error.what());
  }
}

}  // namespace ampcheck::tools
