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
    "results as JSON on standard output. JSON, CSV and traces count steps from 0, the text counts from 1";

const CommandRow kRows[] = {
    {"list",
     "List the built-in ops, or those of a library; with --cases the names of their cases",
     {{"ampcheck list", "ops, with what they compute"},
      {"ampcheck list 'layer_norm(*' --cases", "names of cases, by a pattern"}},
     {passed, usage, internal, nothing_ran, environment, not_written},
     {"command-line"}},
    {"check",
     "Judge ops, forward and backward: is every number right within rounding?",
     {{"ampcheck check softmax --dtype bf16", "one op in one storage type"},
      {"ampcheck check ./libmy_op.so -o junit:check.xml", "the ops of a library, with a report for CI"},
      {"ampcheck check --dump step.npz --formula rms_norm", "saved tensors; no kernel runs"}},
     kOfKernels,
     {"own-op", "dumps", "ci", "findings"}},
    {"replay",
     "Run one case again, and save its tensors",
     {{"ampcheck replay 'softmax(x=bf16[8,33],seed=1)' --save case", "a case by the name that check printed"}},
     kOfKernels,
     {"tutorial", "findings"}},
    {"certify",
     "Test the reference itself with finite differences in 100-digit arithmetic",
     {{"ampcheck certify softmax", "one op"}},
     {passed, findings, usage, internal, environment, not_written},
     {"how-it-judges"}},
    {"formats",
     "Show facts about float formats; with VALUE, how each of them rounds this number",
     {{"ampcheck formats", "the formats"}, {"ampcheck formats 0.1 --format bf16", "0.1 in bf16"}},
     kOfText,
     {"training"}},
    {"explain",
     "Say what a finding code means and what to do; show a page of the manual",
     {{"ampcheck explain AC301", "one code"}, {"ampcheck explain tutorial", "a page of the manual"}},
     kOfText,
     {"command-line"}},
    {"new",
     "Write an example op for you to change: ampcheck new op NAME",
     {{"ampcheck new op my_op", "a kernel with its formula, in the folder my_op"}},
     kOfText,
     {"own-op", "formulas"}},
    {"compare",
     "Compare two builds of the same ops: are both right, which is nearer, where do bits differ, which is faster",
     {{"ampcheck compare ./libold.so ./libnew.so", "all ops of two builds of a library"}},
     kOfAnswers,
     {"own-op"}},
    {"contract",
     "Find out in what precision a kernel computes, and print the line that declares it",
     {{"ampcheck contract softmax --dtype bf16", "one op in one storage type"}},
     kOfAnswers,
     {"own-op"}},
    {"audit",
     "Test a judge: audit zoo measures how often ampcheck is right, audit gate what your tolerance lets pass, audit "
     "scaler whether a loss scale is healthy",
     {{"ampcheck audit gate softmax --atol 1e-2 --rtol 1e-2", "what this rule accepts and rejects"},
      {"ampcheck audit zoo rms_norm", "verdicts on kernels with planted defects, and on correct ones"},
      {"ampcheck audit scaler --log train.log", "is the loss scale of this run healthy?"}},
     kOfAnswers,
     {"dumps", "how-it-judges", "loss-scale"}},
    {"train",
     "Train a small net in mixed precision and in fp64, and say where low precision did harm",
     {{"ampcheck train --model mlp --dtype fp16 --steps 20", "a net that comes with the program"},
      {"ampcheck train --record run.trace", "also write a trace for ampcheck trace"}},
     {passed, findings, usage, internal, environment, not_written},
     {"training", "torch"},
     kJsonOfSteps},
    {"trace",
     "Show what a training run recorded: tables, CSV, JSON, or one HTML file with plots",
     {{"ampcheck trace run.trace -o html:run.html", "tables here, plots in a page"}},
     {passed, usage, internal, nothing_ran, incomplete, not_written},
     {"training", "trace"},
     kJsonOfSteps},
    {"facts",
     "Measure claims that are often made about mixed precision",
     {{"ampcheck facts", "claims beside measurements"}},
     {passed, usage, internal, environment, not_written},
     {"training"}},
    {"memory",
     "Count the memory of weights, masters, gradients, moments and activations, by strategy",
     {{"ampcheck memory mlp --optimizer adam", "a net that comes with the program"}},
     {passed, findings, usage, internal, environment, not_written},
     {"training"}},
    {"doctor",
     "Say what this machine and this build can check, and what will be skipped",
     {{"ampcheck doctor", "device, libraries, data"}},
     kOfText,
     {"limits"}},
    {"version",
     "Show the version and the build",
     {{"ampcheck version", "version and build"}},
     kOfText,
     {"command-line"}},
};

}  // namespace

std::span<const CommandRow> command_rows() { return kRows; }

}  // namespace ampcheck::tools
