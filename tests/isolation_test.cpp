// SPDX-License-Identifier: Apache-2.0
// Hostile plug-ins: whatever a kernel does to its process is a finding of its own case; its neighbours pass.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/error.h"
#include "tests/run_program.h"
#include "tools/wire.h"

namespace ampcheck::tools {
namespace {

using nlohmann::json;
using testing::contains;
using testing::ProgramResult;

const std::string kHostile = AMPCHECK_BINARY_DIR "/custom_ops/hostile.so";

struct Deed {
  const char* op;
  const char* verdict;  ///< where x has 17 rows
  const char* words;    ///< of the cause
  int timeout = 60;     ///< seconds: long where no case is to run into it, on the slowest machine
};
constexpr Deed kDeeds[] = {
    {"segfault", "CRASH", "signal 11"},
    {"aborts", "CRASH", "signal 6"},
    {"exits", "CRASH", "ended by itself with exit code 0"},
    {"loops", "TIMEOUT", "no answer in 4 s", 4},
    {"overflows_stack", "CRASH", "signal 11"},
    {"takes_memory", "CRASH", "forward returned 12"},
    {"closes_descriptors", "CRASH", "ended by itself"},
    {"prints", "ROUNDING", ""},
    {"forks", "ROUNDING", ""},
    {"leaves_a_child", "CRASH", "signal 6"},
    {"throws", "CRASH", "no std::exception"},
    {"writes_after", "STRUCTURAL", ""},
    {"writes_before", "STRUCTURAL", ""},
    {"returns_garbage", "CRASH", "forward returned -123456789"},
    {"floods", "CRASH", "it had printed: "},
};

class Hostile : public ::testing::TestWithParam<Deed> {};
INSTANTIATE_TEST_SUITE_P(All, Hostile, ::testing::ValuesIn(kDeeds), [](const auto& info) { return std::string(info.param.op); });

TEST_P(Hostile, IsPinnedToItsCase) {
  const Deed& deed = GetParam();
#ifdef __SANITIZE_ADDRESS__
  if (std::string(deed.op) == "takes_memory") GTEST_SKIP() << "a sanitizer's shadow is larger than any limit of memory";
#endif
  const ProgramResult run = testing::ampcheck("check " + kHostile + " " + deed.op + " --regimes quick --json --timeout " + std::to_string(deed.timeout));
  const bool guilty = std::string(deed.verdict) != "ROUNDING";
  EXPECT_EQ(run.exit_code, guilty ? 1 : 0) << run.err;
  const json report = json::parse(run.out);
  int there = 0, elsewhere = 0;
  for (const json& c : report.at("cases")) {
    const std::string name = c.at("case");
    if (contains(name, "x=fp32[17,")) {
      ++there;
      EXPECT_EQ(c.at("verdict"), deed.verdict) << name;
      EXPECT_TRUE(contains(c.dump(), deed.words)) << c.dump();
    } else {
      ++elsewhere;
      EXPECT_TRUE(c.at("verdict") == "ROUNDING" || c.at("verdict") == "EMPTY" || c.at("verdict") == "RANGE") << name << c.at("verdict");
    }
  }
  EXPECT_GT(there, 0);
  EXPECT_GT(elsewhere, 10);
}

TEST(Isolation, ACrashIsReplayedWithoutEndingTheProgram) {
  const ProgramResult run = testing::ampcheck("replay " + kHostile + " 'segfault(x=fp32[17,7],seed=1)'");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "CRASH  AC501")) << run.out;
  EXPECT_TRUE(contains(run.out, "killed by signal 11")) << run.out;
  // Without isolation the process itself dies.
  EXPECT_EQ(testing::ampcheck("replay " + kHostile + " 'segfault(x=fp32[17,7],seed=1)' --isolation none").exit_code, 128 + 11);
}

// A kernel that asks should_cancel ends by itself once its time is up; one that does not is killed.
TEST(Isolation, ACoOperatingKernelReturnsAtItsTimeout) {
  const testing::TemporaryFolder folder;
  const std::string mark = folder.path() + "/mark";
  const ProgramResult run = testing::ampcheck("replay " + kHostile + " 'returns_when_asked(x=fp32[17,7],seed=1)' --timeout 1", "AMPCHECK_TEST_MARK=" + mark);
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "TIMEOUT  AC502")) << run.out;
  EXPECT_TRUE(contains(run.out, "its kernel returned when asked to (should_cancel)")) << run.out;
  EXPECT_TRUE(std::filesystem::exists(mark));
  const ProgramResult deaf = testing::ampcheck("replay " + kHostile + " 'loops(x=fp32[17,7],seed=1)' --timeout 1");
  EXPECT_TRUE(contains(deaf.out, "it did not within 2 s and was killed")) << deaf.out;
}

TEST(Isolation, ACoOperatingKernelReturnsOnAnInterrupt) {
  for (const std::string isolation : {"worker", "none"}) {
    const testing::TemporaryFolder folder;
    const std::string mark = folder.path() + "/mark";
    const ProgramResult run = testing::shell("AMPCHECK_TEST_MARK=" + mark + " $AMPCHECK check " + kHostile + " 'returns_when_asked(x=fp32[17,7],seed=1)' --isolation " + isolation +
                                             " & pid=$!\nsleep 1; kill -INT $pid; wait $pid");
    EXPECT_EQ(run.exit_code, 130) << isolation << run.out << run.err;
    EXPECT_TRUE(contains(run.out, "Interrupted after 0 of 1 cases")) << isolation << run.out;
    EXPECT_TRUE(std::filesystem::exists(mark)) << isolation;
  }
}

TEST(Isolation, ResultsAreThoseOfThisProcess) {
  const std::string selection = "check " AMPCHECK_BINARY_DIR "/custom_ops/rope.so --regimes quick --shapes first --json ";
  const auto cases = [&](const std::string& options) {
    json out = json::parse(testing::ampcheck(selection + options).out).at("cases");
    for (json& c : out) c.erase("seconds");
    return out;
  };
  const json here = cases("--isolation none"), there = cases("--isolation worker");
  EXPECT_GT(here.size(), 20u);
  EXPECT_EQ(here, there);
}

TEST(Wire, KeepsEveryBit) {
  CaseResult in;
  in.name = "op(x=fp32[2],seed=1)", in.op = "op", in.plugin = "./a b.so", in.dtype = "bf16", in.verdict = Verdict::structural, in.code = "AC402", in.note = "a \"note\"\n";
  in.seconds = 0.1;
  CheckResult check{.name = "forward y", .verdict = Verdict::bug, .code = "AC101", .dtype = Dtype::bf16, .compared = 5, .blind = 4, .unusual = 3, .range = 2, .failed = 1,
                    .max_ratio = std::numeric_limits<double>::infinity(), .worst = {}, .cause = "c", .note = "n"};
  check.worst.push_back({{1, 2}, -0.0, std::nan(""), 0xffffffffffffffffull, 7, 1e-310, 0.1, -std::numeric_limits<double>::infinity(), "from"});
  in.checks.push_back(check);
  const std::string text = wire_text(in);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const CaseResult out = from_wire(text);
  EXPECT_EQ(wire_text(out), text);
  EXPECT_EQ(out.verdict, Verdict::structural);
  EXPECT_TRUE(std::signbit(out.checks.at(0).worst.at(0).got));
  EXPECT_TRUE(std::isnan(out.checks[0].worst[0].want));
  EXPECT_EQ(out.checks[0].worst[0].low, 0.1);
  for (const char* wrong : {"", "{}", "[]", "[1,2,3]", "[\"a\",\"b\",\"c\",\"d\",99,\"e\",\"f\",[],0]", "\xff\xfe"}) EXPECT_THROW(from_wire(wrong), Error) << wrong;
}

}  // namespace
}  // namespace ampcheck::tools
