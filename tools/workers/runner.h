// SPDX-License-Identifier: Apache-2.0
// Kernels of a library run in a process that knows their tensors and nothing else: neither what is expected of them,
// nor where the answer goes. The judge calls it as it would call the kernels.
#pragma once

#include <sys/types.h>

#include <deque>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "tools/report/exit_code.h"
#include "tools/workers/kernel_arena.h"

namespace ampcheck::tools {

/// Which kernel of an op.
enum class KernelPass : std::uint8_t { forward, backward, jvp };

class KernelRunner {
 public:
  /// Starts `program --runner LIBRARY`. EnvironmentError if it cannot be started.
  explicit KernelRunner(const std::string& library);
  KernelRunner(const KernelRunner&) = delete;
  KernelRunner& operator=(const KernelRunner&) = delete;

  /// The ops with kernels that run there; the guarded tensors of this process lie in shared memory from now on.
  const std::deque<checks::OpDef>& take_over(const std::vector<const checks::OpDef*>& ops);

  /// Runs a kernel of the op in that place of the library's list. Throws what it threw. If its process ended, this one
  /// ends in the same way: whoever waits for it sees how.
  void call(std::size_t op, KernelPass pass, const kernels::KernelCall& call);

 private:
  bool answers();
  [[noreturn]] void end_as_it_did();

  KernelArena arena_;
  std::deque<checks::OpDef> ops_;
  pid_t process_ = 0;
  int status_ = 0;  ///< of its end
  int requests_ = -1, replies_ = -1;
};

/// The runner's main: `ampcheck --runner LIBRARY` reads calls from descriptor 3, answers on 4, and shares the memory of
/// descriptor 6.
ExitCode runner_main(int argc, char** argv);

}  // namespace ampcheck::tools
