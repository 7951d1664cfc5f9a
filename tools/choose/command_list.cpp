// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/command_list.h"

namespace ampcheck::tools {

namespace {

using enum ExitCode;

const std::vector<ExitCode> kOfText = {passed, usage, internal, not_written};
const std::vector<ExitCode> kOfKernels = {passed,      findings,   usage,       internal,
                                          nothing_ran, incomplete, environment, not_written};
const std::vector<ExitCode> kOfAnswers = {passed, findings, usage, internal, nothing_ran, environment, not_written};

constexpr const char* kJsonOfSteps =
    "results as JSON on standard output; JSON, CSV and traces count steps from 0, the text counts from 1";

const CommandRow kRows[] = {
    {"list",
     "The built-in ops, or those of a library; with --cases, the names of their cases",
     {{"ampcheck list", "ops, with what they compute"},
      {"ampcheck list 'layer_norm(*' --cases", "names of cases, by a pattern"}},
     {passed, usage, internal, nothing_ran, environment, not_written}},
    {"check",
     "Judge ops: forward, backward and exact relations",
     {{"ampcheck check softmax --dtype bf16", "one op in one storage type"},
      {"ampcheck check ./libmy_op.so -o junit:check.xml", "the ops of a library, with a report for CI"},
      {"ampcheck check --dump step.npz --formula rms_norm", "tensors that somebody saved, without a kernel"}},
     kOfKernels},
    {"replay",
     "Run one case again, and save its tensors",
     {{"ampcheck replay 'softmax(x=bf16[8,33],seed=1)' --save case", "a case by the name that check printed"}},
     kOfKernels},
    {"certify",
     "How surely the reference is right: 100-digit differences",
     {{"ampcheck certify softmax", "one op"}},
     {passed, findings, usage, internal, environment, not_written}},
    {"formats",
     "Facts of the float formats; with VALUE, what each makes of a number",
     {{"ampcheck formats", "the formats"}, {"ampcheck formats 0.1 --format bf16", "0.1 in bf16"}},
     kOfText},
    {"explain",
     "What a finding code means and what to do; the pages of the manual",
     {{"ampcheck explain AC301", "one code"}, {"ampcheck explain tutorial", "a page of the manual"}},
     kOfText},
    {"new",
     "Write an example to begin with: ampcheck new op NAME",
     {{"ampcheck new op my_op", "a kernel with its formula, in the folder my_op"}},
     kOfText},
    {"compare",
     "Two builds of the same ops: both right? which is nearer, where do bits differ, is one faster",
     {{"ampcheck compare ./libold.so ./libnew.so", "all ops of two builds of a library"}},
     kOfAnswers},
    {"contract",
     "What a kernel's bits say of its precision contract, and the line to declare it by",
     {{"ampcheck contract softmax --dtype bf16", "of one op in one storage type"}},
     kOfAnswers},
    {"audit",
     "Tests the judges: audit zoo how often ampcheck is right, audit gate what a tolerance rule of yours lets pass",
     {{"ampcheck audit gate softmax --atol 1e-2 --rtol 1e-2", "what this rule accepts and rejects"},
      {"ampcheck audit zoo 'rms_norm.*'", "the verdicts on planted defects and on correct kernels"}},
     kOfAnswers},
    {"train",
     "Train a small net in mixed precision and in fp64, and say what low precision did",
     {{"ampcheck train --model mlp --dtype fp16 --steps 20", "a net that comes with the program"},
      {"ampcheck train --record run.trace", "also write a trace for ampcheck trace"}},
     {passed, findings, usage, internal, environment, not_written},
     kJsonOfSteps},
    {"trace",
     "What a recorded training run met: tables, CSV, JSON, or one HTML file with plots",
     {{"ampcheck trace run.trace -o html:run.html", "tables here, plots in a page"}},
     {passed, usage, internal, nothing_ran, incomplete, not_written},
     kJsonOfSteps},
    {"facts",
     "What is often written about mixed precision, and what this machine measures",
     {{"ampcheck facts", "claims beside measurements"}},
     {passed, usage, internal, environment, not_written}},
    {"memory",
     "Bytes of weights, masters, gradients, moments and activations, by strategy",
     {{"ampcheck memory mlp --optimizer adam", "of a net that comes with the program"}},
     {passed, findings, usage, internal, environment, not_written}},
    {"doctor",
     "What this machine and this build can check, and what will be skipped",
     {{"ampcheck doctor", "device, libraries, data"}},
     kOfText},
    {"version", "Version and build", {{"ampcheck version", "version and build"}}, kOfText},
};

}  // namespace

std::span<const CommandRow> command_rows() { return kRows; }

}  // namespace ampcheck::tools
