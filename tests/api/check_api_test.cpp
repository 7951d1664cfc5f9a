// SPDX-License-Identifier: Apache-2.0
// ampcheck/check.h: the same cases, verdicts and JSON as the program's, misuse as exceptions, and wrong kernels never.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "src/api/ampcheck/check.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::check {
namespace {

using nlohmann::json;
using testing::contains;

const std::string kLibrary = tests::in_build("/custom_ops/my_rms_norm.so");
const std::string kHostile = tests::in_build("/custom_ops/hostile.so");
const std::string kProgram = tests::in_build("/ampcheck");

Op op(const std::string& name) {
  const std::optional<Op> found = find_op(name);
  if (!found) throw std::runtime_error("no op '" + name + "'");
  return *found;
}

/// A small run: generated data, the quick set, one dtype.
Options quick(const std::string& dtype = "fp16") {
  Options out;
  out.dtypes = {dtype};
  out.regimes = Regimes::quick;
  out.real_tensors = RealTensors::off;
  return out;
}

/// A report without what differs from run to run.
json without_times(const std::string& text) {
  json out = json::parse(text);
  out.erase("seconds");
  for (json& entry : out.at("cases")) entry.erase("seconds");
  return out;
}

template <class F>
std::string usage_error_of(F work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CheckApi, OpsByName) {
  const std::vector<Op> all = built_in_ops();
  EXPECT_GE(all.size(), 25u);
  for (const Op& each : all) EXPECT_EQ(op(each.name()).name(), each.name());
  const Op softmax = op("softmax");
  EXPECT_EQ(softmax.inputs(), (std::vector<std::string>{"x"}));
  EXPECT_EQ(softmax.outputs(), (std::vector<std::string>{"y"}));
  EXPECT_EQ(softmax.dtypes(), (std::vector<std::string>{"fp32", "fp16", "bf16"}));
  EXPECT_EQ(softmax.library(), "");
  EXPECT_FALSE(find_op("softmac"));
  EXPECT_TRUE(find_op("softmax.dropped_tail"));
}

TEST(CheckApi, ARightKernelHasNoFinding) {
  const Report report = run(op("softmax"), quick());
  EXPECT_TRUE(report.passed());
  EXPECT_TRUE(report.findings().empty());
  EXPECT_FALSE(report.interrupted());
  const Totals totals = report.totals();
  EXPECT_GT(totals.cases, 3);
  EXPECT_EQ(totals.failed, 0);
  EXPECT_EQ(totals.cases, totals.passed + totals.skipped);
  EXPECT_EQ(static_cast<std::size_t>(totals.cases), report.cases().size());
}

TEST(CheckApi, APlantedFaultIsAFindingThatRunsAgain) {
  const Report report = run(op("softmax.dropped_tail"), quick());
  EXPECT_FALSE(report.passed());
  ASSERT_FALSE(report.findings().empty());
  const Finding& finding = report.findings().front();
  EXPECT_TRUE(convicts(finding.verdict)) << name(finding.verdict);
  EXPECT_EQ(finding.code.substr(0, 2), "AC");
  EXPECT_EQ(finding.op, "softmax.dropped_tail");
  EXPECT_EQ(finding.case_name.find("softmax.dropped_tail("), 0u) << finding.case_name;
  EXPECT_FALSE(finding.tensor.empty());
  EXPECT_FALSE(finding.cause.empty());
  ASSERT_FALSE(finding.worst.empty());
  for (const Element& element : finding.worst) {
    EXPECT_FALSE(element.got >= element.low && element.got <= element.high) << element.got;
    EXPECT_FALSE(element.interval_from.empty());
  }
  Options again;
  again.cases = {finding.case_name};
  const Report one = run(op("softmax.dropped_tail"), again);
  ASSERT_EQ(one.cases().size(), 1u);
  ASSERT_EQ(one.findings().size(), 1u);
  EXPECT_EQ(one.findings().front().code, finding.code);
  EXPECT_EQ(one.findings().front().tensor, finding.tensor);
  EXPECT_EQ(one.findings().front().worst.front().got_bits, finding.worst.front().got_bits);
}

TEST(CheckApi, JsonIsThatOfTheProgram) {
  Options options = quick("bf16");
  const std::string words = " --dtype bf16 --regimes quick --real off --json";
  EXPECT_EQ(without_times(to_json(run(op("softmax.dropped_tail"), options))),
            without_times(testing::ampcheck("check softmax.dropped_tail" + words).out));
  const Library library = load_plugin(kLibrary);
  EXPECT_EQ(without_times(to_json(run(library.ops, options))),
            without_times(testing::ampcheck("check " + kLibrary + words + " --isolation none").out));
}

TEST(CheckApi, PluginsAreLoadedOnceAndKeepTheirPath) {
  const Library library = load_plugin(kLibrary);
  ASSERT_EQ(library.ops.size(), 1u);
  EXPECT_EQ(library.ops.front().name(), "my_rms_norm");
  EXPECT_EQ(library.ops.front().library(), kLibrary);
  EXPECT_TRUE(library.find("my_rms_norm"));
  EXPECT_FALSE(library.find("softmax"));
  const Report report = run(library.ops, quick());
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.cases().front().library, kLibrary);
}

TEST(CheckApi, MisuseIsAnException) {
  EXPECT_TRUE(contains(usage_error_of([] { run(std::vector<Op>{}); }), "got no op"));
  EXPECT_TRUE(contains(usage_error_of([] { run(op("softmax"), quick("fp17")); }), "got 'fp17'"));
  EXPECT_TRUE(contains(usage_error_of([] { run(op("softmax"), quick("e4m3fn")); }), "nothing selected"));
  EXPECT_TRUE(contains(usage_error_of([] {
                         Options options;
                         options.cases = {"softmax(x=fp16[5,7]"};
                         run(op("softmax"), options);
                       }),
                       "case name"));
  EXPECT_TRUE(contains(usage_error_of([] {
                         Options options;
                         options.cases = {"relu"};  // an op, and not among these
                         run(op("softmax"), options);
                       }),
                       "nothing selected"));
  EXPECT_TRUE(contains(usage_error_of([] {
                         const Library library = load_plugin(kLibrary);
                         run({op("softmax"), library.ops.front()});
                       }),
                       "want those of one library"));
  EXPECT_TRUE(contains(usage_error_of([] {
                         Options options = quick();
                         options.extents = {{"Q", 3}};
                         run(op("softmax"), options);
                       }),
                       "got 'Q'"));
  EXPECT_THROW(load_plugin("./no_such_library.so"), EnvironmentError);
  Options missing;
  missing.inputs = "no_such_file.npz";
  EXPECT_THROW(run(op("softmax"), missing), EnvironmentError);
}

/// In a process of its own a kernel that ends it is a finding.
TEST(CheckApi, AKernelThatEndsItsProcessIsAFinding) {
  const Library library = load_plugin(kHostile);
  Options options = quick("fp32");
  options.worker_program = kProgram;
  const Report report = run(*library.find("aborts"), options);
  ASSERT_FALSE(report.findings().empty());
  EXPECT_EQ(report.findings().front().verdict, Verdict::crash);
  EXPECT_TRUE(contains(report.findings().front().cause, "signal 6")) << report.findings().front().cause;
  EXPECT_GT(report.totals().passed, 0) << "its neighbours";
  options.worker_program = "/no/such/program";
  EXPECT_THROW(run(*library.find("aborts"), options), EnvironmentError);
}

TEST(CheckApi, ProgressIsToldAndCancelStops) {
  std::atomic<bool> cancel = false;
  std::size_t seen = 0, all = 0;
  Options options = quick();
  options.jobs = 1;
  options.progress = [&](const Progress& progress) {
    ++seen;
    all = progress.all;
    EXPECT_EQ(progress.done, seen);
    EXPECT_FALSE(progress.last_failed);
    if (seen == 2) cancel = true;
  };
  options.cancel = &cancel;
  const Report report = run(op("softmax"), options);
  EXPECT_GT(all, 4u);
  EXPECT_LT(report.cases().size(), all);
  EXPECT_TRUE(report.interrupted());
  EXPECT_FALSE(report.passed());
}

/// Two runs with different ops, dtypes, jobs and numbers of seeds, each as if it were alone.
TEST(CheckApi, TwoRunsAtTheSameTime) {
  Options first = quick("fp16"), second = quick("bf16");
  first.jobs = 1;
  second.jobs = 2;
  second.first_seed = 7;
  const json alone_first = without_times(to_json(run(op("softmax"), first))),
             alone_second = without_times(to_json(run(op("layer_norm.mean_term_missing"), second)));
  json first_json, second_json;
  std::thread other([&] { second_json = without_times(to_json(run(op("layer_norm.mean_term_missing"), second))); });
  first_json = without_times(to_json(run(op("softmax"), first)));
  other.join();
  EXPECT_EQ(first_json, alone_first);
  EXPECT_EQ(second_json, alone_second);
}

/// The same with tensors of files: each run has its own.
TEST(CheckApi, TwoRunsOnTwoFilesAtTheSameTime) {
  const std::string folder = tests::in_data_root("/tests/data/tensors/");
  Options first, second;
  first.inputs = folder + "softmax.npz";
  second.inputs = folder + "rms_norm.safetensors";
  const auto judged = [](const char* name, const Options& options) {
    return without_times(to_json(run(op(name), options)));
  };
  const json alone_first = judged("softmax", first), alone_second = judged("rms_norm", second);
  EXPECT_GT(alone_first.at("summary").at("elements"), 0);
  EXPECT_GT(alone_second.at("summary").at("elements"), 0);
  json second_json;
  std::thread other([&] { second_json = judged("rms_norm", second); });
  EXPECT_EQ(judged("softmax", first), alone_first);
  other.join();
  EXPECT_EQ(second_json, alone_second);
}

}  // namespace
}  // namespace ampcheck::check
