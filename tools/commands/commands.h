// SPDX-License-Identifier: Apache-2.0
// One function per verb. Results go to standard output, messages and progress to standard error.
#pragma once

#include <string>

#include "src/code.h"
#include "tools/choose/options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tensor_core {
struct Vectors;
}

namespace ampcheck::tools {

ExitCode list_command(const ListOptions& options);
/// list of a file of GPU kernels without its launch: the kernels in it.
bool lists_kernels(const ListOptions& options);
ExitCode list_kernels(const ListOptions& options);
ExitCode check_command(const CheckOptions& options);
/// The report of a check that could not run: what is found of its library alone.
ExitCode broken_library(const CheckOptions& options, const std::string& library, Code code, const std::string& why);
/// `check --dump`: tensors that somebody saved instead of a kernel.
ExitCode check_dump_command(const CheckOptions& options);
ExitCode replay_command(const ReplayOptions& options);
ExitCode certify_command(const CertifyOptions& options);
ExitCode formats_command(const FormatsOptions& options);
/// `mma GENERATION`: what its tensor cores compute of given vectors.
ExitCode mma_command(const MmaOptions& options);
/// Of vectors with scales.
ExitCode mma_scaled(const tensor_core::Vectors& vectors, bool as_json);
ExitCode explain_command(const ExplainOptions& options);
ExitCode doctor_command(const DoctorOptions& options);
ExitCode version_command(const VersionOptions& options);
ExitCode new_command(const NewOptions& options);
/// `gate`: a kernel's change against its accepted state.
ExitCode gate_command(const KernelGateOptions& options);
ExitCode accept_command(const AcceptOptions& options);
ExitCode review_command(const ReviewOptions& options);
/// `mutate`: small changes of a kernel's source, and whether the check sees them.
ExitCode mutate_command(const MutateOptions& options);
/// `merge`: the parts of a check that ran on several machines.
ExitCode merge_command(const MergeOptions& options);
ExitCode config_command(const ConfigOptions& options);
ExitCode completion_command(const CompletionOptions& options);
ExitCode compare_command(const CompareOptions& options);
/// `contract OP`: what the bits of a kernel say of its precision contract.
ExitCode contract_command(const ContractOptions& options);
ExitCode audit_command(const AuditOptions& options);
/// `audit gate`: options.words without the first.
ExitCode audit_gate_command(AuditOptions options);
/// `audit scaler`: a log, or a rule or program (options.words without the first).
ExitCode audit_scaler_command(const AuditOptions& options);
/// `audit autocast`: a net, a trace, a list of ops, or torch's lists (options.words without the first).
ExitCode audit_autocast_command(AuditOptions options);
/// `audit step`: a training loop (options.words without the first).
ExitCode audit_step_command(const AuditOptions& options);
/// `audit diagnose`: how often diagnoses are right, measured on planted runs (options.words without the first).
ExitCode audit_diagnose_command(const AuditOptions& options);
ExitCode train_command(const TrainOptions& options);
/// `diagnose`: why a run in mixed precision goes wrong.
ExitCode diagnose_command(const DiagnoseOptions& options);
ExitCode trace_command(const TraceOptions& options);
/// `autocast lists`: torch's lists.
ExitCode autocast_command(const AutocastListsOptions& options);
ExitCode facts_command(const FactsOptions& options);
ExitCode memory_command(const MemoryOptions& options);

}  // namespace ampcheck::tools
