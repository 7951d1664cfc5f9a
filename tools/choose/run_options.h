// SPDX-License-Identifier: Apache-2.0
// Options that say how kernels run: on what, in how many threads, in which process, with how much memory and time.
#pragma once

#include <cstdint>
#include <string>

#include "src/device.h"

namespace CLI {
class App;
}

namespace ampcheck::tools {

/// Where kernels of a library run.
struct IsolationOptions {
  bool isolation = true;  ///< in processes of their own
  double timeout = 60;    ///< seconds that a case, or a call, may take there
};

/// Built-in ops whose products run on the model of a GPU's tensor cores.
struct CoresOptions {
  std::string accumulate = {};  ///< "h100", "h100,split=2,promote=4"; empty: fp32 chains
};
void add_accumulate_option(CLI::App* command, CoresOptions& o);

struct RunningOptions : IsolationOptions {
  Device device = Device::cpu;
  int jobs = 0;
  bool relations = true;
  bool as_written = false;  ///< by the formula alone: no further form, no regrouping
  std::int64_t memory = 0;  ///< bytes that the cases that run at a time may take; 0: four fifths of what is free
  double time_budget = 0;   ///< seconds after which no further case starts; 0: none
};

void add_device_option(CLI::App* command, Device& device);
void add_jobs_option(CLI::App* command, int& jobs);
void add_isolation_options(CLI::App* command, IsolationOptions& o, const char* what_ends);
/// --sandbox, of a command whose libraries run in processes of their own.
void add_sandbox_option(CLI::App* command);
/// --device, --jobs, --isolation, --timeout, --sandbox, --no-relations, --as-written.
void add_run_options(CLI::App* command, RunningOptions& o);
/// --lines, of a command that shows them.
void add_lines_option(CLI::App* command);
/// --fuse, of a command that runs kernels on device ptx.
void add_fuse_option(CLI::App* command);
void add_memory_option(CLI::App* command, RunningOptions& o);
/// Of a command that runs many cases and says which it left out: --memory, --time-budget.
void add_budget_options(CLI::App* command, RunningOptions& o);

}  // namespace ampcheck::tools
