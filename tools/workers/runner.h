// SPDX-License-Identifier: Apache-2.0
// Kernels of a library run in a process that knows their tensors and nothing else: neither what is expected of them,
// nor where the answer goes. The judge calls it as it would call the kernels.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "tools/choose/run_options.h"
#include "tools/report/exit_code.h"
#include "tools/workers/kernel_arena.h"

namespace ampcheck::tools {

/// Which kernel of an op.
enum class KernelPass : std::uint8_t { forward, backward, jvp };

class KernelRunner {
 public:
  /// Starts this program with --runner LIBRARY. `silent`: what kernels print on standard output is no part of an
  /// answer. EnvironmentError if it cannot be started.
  explicit KernelRunner(const std::string& library, bool silent = false);
  KernelRunner(const KernelRunner&) = delete;
  KernelRunner& operator=(const KernelRunner&) = delete;

  /// The ops with kernels that run there; the guarded tensors of this process lie in shared memory from now on.
  const std::deque<checks::OpDef>& take_over(const std::vector<const checks::OpDef*>& ops);

  /// Runs a kernel of the op in that place of the library's list, one at a time. Throws what it threw. If its process
  /// ended, this one ends in the same way: whoever waits for it sees how.
  void call(std::size_t op, KernelPass pass, const kernels::KernelCall& call);

 private:
  bool answers();
  [[noreturn]] void end_as_it_did();

  std::mutex mutex_;
  KernelArena arena_;
  std::deque<checks::OpDef> ops_;
  pid_t process_ = 0;
  int status_ = 0;  ///< of its end
  int requests_ = -1, replies_ = -1;
};

/// Whether the kernels of a library run apart from their judge: those of a CPU do. Those of a simulated GPU are no code
/// of this machine, and on a real one they do not see its memory.
bool kernels_run_apart(const std::string& library, Device device);
/// In the child (tools/workers/child.h) of a command that runs kernels many times over: from now on they run in a
/// process of their own, whose end is the child's. `ops`: all of the library; they become ops whose kernels do.
void take_kernels_apart(std::vector<const checks::OpDef*>& ops, const IsolationOptions& options,
                        Device device = Device::cpu);

/// The runner's main: `ampcheck --runner LIBRARY` reads calls from descriptor 3, answers on 4, and shares the memory of
/// descriptor 6.
ExitCode runner_main(int argc, char** argv);

}  // namespace ampcheck::tools
