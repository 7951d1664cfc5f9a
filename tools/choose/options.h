// SPDX-License-Identifier: Apache-2.0
// The command line as data: one struct for each command, declared beside the words that set it (*_options.h here).
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "tools/choose/audit_options.h"
#include "tools/choose/gate_options.h"
#include "tools/choose/info_options.h"
#include "tools/choose/mutate_options.h"
#include "tools/choose/op_options.h"
#include "tools/choose/train_options.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

/// The options of the command that was given.
using AnyOptions = std::variant<ListOptions, CheckOptions, ReplayOptions, CertifyOptions, FormatsOptions, MmaOptions,
                                ExplainOptions, NewOptions, CompareOptions, KernelGateOptions, AcceptOptions,
                                ReviewOptions, MutateOptions, MergeOptions, ContractOptions, AuditOptions, TrainOptions,
                                TraceOptions, DiagnoseOptions, AutocastListsOptions, FactsOptions, MemoryOptions,
                                ConfigOptions, CompletionOptions, DoctorOptions, VersionOptions>;

/// Reads a command line, and the settings of ampcheck.toml. Text for the user (help) is returned in `help`, and nothing
/// is to be run then. Throws UsageError with "did you mean" for whatever is unknown.
AnyOptions parse_options(int argc, char** argv, std::optional<std::string>& help);

}  // namespace ampcheck::tools
