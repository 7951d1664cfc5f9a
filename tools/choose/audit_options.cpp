// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/audit_options.h"

#include "tools/choose/option_parsing.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

void add_gate_options(CLI::App* command, GateOptions& gate) {
  const auto number = [&](const char* flag, const char* help, std::optional<double>& to) {
    each(command, flag, "X", help, [flag, &to](const std::string& t) {
      to = parse_number(t);
      if (!to) throw UsageError(std::string("[") + flag + "] got '" + t + "', want a number");
    });
  };
  number("--atol", "for gate: |got - want| <= atol + rtol |want|. If no rule is given: torch's default for the type",
         gate.atol);
  number("--rtol", "for gate: see --atol", gate.rtol);
  number("--matched", "for gate: atol and rtol must hold for this share of the elements", gate.matched);
  number("--mean", "for gate: mean |got - want| is at most this", gate.mean);
  number("--nmse", "for gate: sum (got - want)^2 is at most this share of sum want^2", gate.nmse);
  number("--cosine", "for gate: the cosine of the angle between got and want is at least this", gate.cosine);
  number("--factor", "for gate: the largest error is at most this many times that of the built-in kernel", gate.factor);
  text_option(command, "--preset", "NAME",
              "for gate: the rule of a known project, on all ops or on those named: kernelbench, robust-kbench, sol, "
              "flashinfer-bench, flashinfer-moe, flashinfer-low-bit, gpumode, ggml, torch, te, flash-attention, onnx, "
              "cosine; all: a table of them",
              gate.preset);
  text_option(
      command, "--rules", "FILE",
      "for gate: a TOML file with tables [fp32], [fp16], [bf16], each with atol and rtol, or with rule and limit",
      gate.rules);
  text_option(command, "--range", "R", "for gate: kind of data of the cases (normal)", gate.range);
  add_flag(command, "--rounded-reference", gate.rounded_reference,
           "for gate: compare with the reference rounded to the storage type");
}

void add_scaler_options(CLI::App* command, ScalerAuditOptions& scaler) {
  text_option(command, "--log", "FILE",
              "for scaler: a training log, - for standard input. Console lines of DeepSpeed, Megatron, apex, fairseq, "
              "HF Trainer, mmengine and others, CSV or JSON lines with named columns, or a trace of ampcheck train",
              scaler.log);
  text_option(command, "--rule", "RULE",
              "for scaler and step: the rule that the scale should follow (of a log: that of the framework whose lines "
              "it has): torch, apex, "
              "deepspeed, megatron, flax, jmp, keras, tf, fairseq, paddle, ...",
              scaler.rule);
  each(command, "--columns", "QUANTITY=NAME,...",
       "for scaler: what columns of a CSV or keys of JSON lines are called, as scale=amp/s,step=it",
       [&scaler](const std::string& text) { parse_columns(text, scaler.columns); });
}

void add_autocast_options(CLI::App* command, AuditOptions& o) {
  text_option(command, "--torch", "VERSION", "for autocast: the release whose lists count (the newest that is known)",
              o.autocast.torch);
  text_option(command, "--device", "D", "for autocast: whose lists: cuda (default), cpu, xpu, mtia or maia",
              o.autocast.device);
  add_whole(command, "--batches", "for autocast: how many batches of a net are run (2)", o.autocast.batches);
  each(command, "--scale", "X", "for autocast: the loss scale of a net's gradients (65536 for fp16, 1 for bf16)",
       [&o](const std::string& t) { o.autocast.scale = parse_positive("--scale", t); });
  text_option(command, "--data", "DIR", "for autocast: folder with the data of the nets", o.data);
}

}  // namespace

void add_options(CLI::App* command, AuditOptions& o) {
  add_words(command, "WHAT", o.words,
            "zoo, then ops, kernels (softmax.dot_missing) or patterns, without: all; or gate, then ops or case "
            "names. For ops of a library or TOML file: gate, then this file; or scaler, then a rule, a library or a "
            "program in quotes; or step, then a program or library; or autocast, then a net, a net's TOML file, a "
            "trace (and its net), a list of ops, one or two of torch's lists (cuda, 2.6/cpu), or a program that is an "
            "autocast, "
            "without: ampcheck's own; or train, then ops or kernels, without: all, and defects of steps and healthy "
            "runs; or diagnose, then planted runs or causes (D5), without: all",
            Words::some);
  add_set_options(command, o);
  add_jobs_option(command, o.jobs);
  add_isolation_options(command, o, "for gate: seconds that a call of a library's kernel may take (60)");
  add_flag(command, "-v,--verbose", o.verbose,
           "for zoo, train and diagnose: show every kernel or run, what should be found and what was found");
  add_gate_options(command, o.gate);
  add_scaler_options(command, o.scaler);
  add_autocast_options(command, o);
  add_engine_option(command, o.ranks);
  text_option(command, "--run-file", "FOLDER", "for zoo with --engine mpi: a folder that all ranks see", o.run_file);
  add_flag(command, "--no-times", o.no_times, kNoTimes);
  add_log_output(command, o.reports);
  add_dump_options(command, o);
}

}  // namespace ampcheck::tools
