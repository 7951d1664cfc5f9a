// SPDX-License-Identifier: Apache-2.0
// One function per verb. Results go to standard output, messages and progress to standard error.
#pragma once

#include "tools/choose/options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

ExitCode list_command(const Options& options);
ExitCode check_command(const Options& options);
/// `check --dump`: tensors that somebody saved instead of a kernel.
ExitCode check_dump_command(const Options& options);
ExitCode replay_command(const Options& options);
ExitCode certify_command(const Options& options);
ExitCode formats_command(const Options& options);
ExitCode explain_command(const Options& options);
ExitCode doctor_command(const Options& options);
ExitCode version_command(const Options& options);
ExitCode new_command(const Options& options);
ExitCode compare_command(const Options& options);
/// `contract OP`: what the bits of a kernel say of its precision contract.
ExitCode contract_command(const Options& options);
ExitCode audit_command(const Options& options);
/// `audit gate`: options.words without the first.
ExitCode audit_gate_command(Options options);
ExitCode train_command(const Options& options);
ExitCode trace_command(const Options& options);
ExitCode facts_command(const Options& options);
ExitCode memory_command(const Options& options);

}  // namespace ampcheck::tools
