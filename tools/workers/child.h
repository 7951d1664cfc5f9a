// SPDX-License-Identifier: Apache-2.0
// A command that loads a library runs as a whole in a process of its own: what the library does to its process as it is
// loaded, described or unloaded, and what a kernel does that is run many times over, is a finding and no answer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "checks/doors/loading.h"
#include "src/code.h"
#include "tools/choose/run_options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// How a command in a child ended.
struct ChildEnd {
  ExitCode code = ExitCode::passed;
  Code found = Code::none;   ///< none: the command's own end
  bool reported = false;     ///< the command was done before: its reports are written
  std::string library, why;  ///< of a finding
};

/// Runs this command line again in a child, which loads `library`. `timeout`: seconds that loading it may take, or
/// unloading, or a kernel that runs in the child itself. EnvironmentError if no process can be started.
ChildEnd run_in_child(const std::string& library, double timeout);
/// Whether this process is such a child.
bool is_child();

/// In the child, before anything is loaded: watches how long that takes, and ends with its parent. `outside`: what
/// describes libraries in a process of their own (LoadingHooks::outside), and `kernels` what runs them there; null:
/// they are loaded here.
void become_child(double timeout, std::function<std::optional<checks::OutsideDescription>(const std::string&)> outside,
                  std::function<void(const std::string&, std::vector<checks::OpDef>&)> kernels);
/// In the child of ops of a library, before their kernels run for this very process: limits its memory, and counts how
/// long a kernel takes. Elsewhere nothing.
void run_kernels_here(const std::vector<const checks::OpDef*>& ops, const IsolationOptions& options,
                      Device device = Device::cpu);
/// In the child, once the command is done: tells the parent how it ended. Only unloading follows.
void child_is_done(ExitCode code);

}  // namespace ampcheck::tools
