// SPDX-License-Identifier: Apache-2.0
// Kernels of a plug-in run in worker processes: what they do to their process is a finding of their case, and the run
// goes on. A worker is this program again (posix_spawn, never fork), keeps its library loaded, and takes one case at a
// time.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "checks/run/runner.h"
#include "tools/choose/run_options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// What a worker is to know of a run.
struct WorkerSetup {
  std::string library;  ///< empty: no worker is wanted
  Device device = Device::cpu;
  bool relations = true, as_written = false;
  std::string inputs = {};                 ///< file of the user's tensors; empty: none
  double timeout = 60;                     ///< seconds that the kernel of a case may take
  std::string program = "/proc/self/exe";  ///< whose processes the workers are: this program, or `ampcheck`
};
/// Of ops of a library; without them, and with --isolation none, no worker is wanted.
WorkerSetup worker_setup(const std::vector<const checks::OpDef*>& ops, const RunningOptions& options,
                         const std::string& inputs);

/// Workers of one library, started when they are needed, at most as many as threads ask at a time.
class WorkerPool {
 public:
  /// Once `cancel` is set, cases that run are ended.
  explicit WorkerPool(const WorkerSetup& setup, const std::atomic<bool>* cancel = nullptr);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Runs a case in a worker. A worker that dies is a CRASH, one whose kernel takes longer than setup.timeout seconds
  /// a TIMEOUT; either is replaced. The judge's own time does not count. Before a worker is killed, its kernel is asked
  /// to return (should_cancel). EnvironmentError if no worker can be started, checks::Interrupted once cancelled.
  CaseResult run(const checks::OpDef& op, const OpCall& call, const checks::How& how = {});

 private:
  class Worker;
  std::unique_ptr<Worker> take();
  void give(std::unique_ptr<Worker> worker);

  struct State;
  std::unique_ptr<State> state_;
};

/// The hook of checks::RunOptions; none where no worker is wanted. Copies of it share their workers.
std::function<CaseResult(const checks::OpDef&, const OpCall&, const checks::How&)> isolated_run(
    const WorkerSetup& setup, const std::atomic<bool>* cancel = nullptr);

/// The worker's main: `ampcheck --worker LIBRARY DEVICE HOW INPUTS` reads case names from descriptor 3, each
/// behind two letters of worker_channel.h, and answers on 4.
ExitCode worker_main(int argc, char** argv);

}  // namespace ampcheck::tools
