// SPDX-License-Identifier: Apache-2.0
// Hostile plug-ins: whatever a kernel does to its process is a finding of its own case; its neighbours pass.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/error.h"
#include "src/tensor_file.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"
#include "tools/workers/wire.h"

namespace ampcheck::tools {
namespace {

using nlohmann::json;
using testing::contains;
using testing::ProgramResult;

const std::string kHostile = tests::in_build("/custom_ops/hostile.so");

struct Deed {
  const char* op;
  const char* verdict;  ///< where x has 17 rows
  const char* words;    ///< of the cause
  int timeout = 60;     ///< seconds: long where no case is to run into it, on the slowest machine
};
void PrintTo(const Deed& deed, std::ostream* out) { *out << deed.op; }
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
    {"writes_far_behind", "CRASH", "memory was touched 8192 bytes behind the last element of 'y'"},
    {"reads_far_before", "CRASH", "memory was touched 12000 bytes before the first element of 'y'"},
    {"answers_itself", "CRASH", "ended by itself with exit code 0"},
    {"leaves_state", "ROUNDING", "forward left the rounding mode toward zero, the locale C.UTF-8, the blocked signals"},
    {"leaves_a_session", "ROUNDING", ""},
    {"raises", "CRASH", "signal 11"},
    {"kills_its_judge", "CRASH", "signal 9"},
};

class Hostile : public ::testing::TestWithParam<Deed> {};
INSTANTIATE_TEST_SUITE_P(All, Hostile, ::testing::ValuesIn(kDeeds),
                         [](const auto& info) { return std::string(info.param.op); });

TEST_P(Hostile, IsPinnedToItsCase) {
  const Deed& deed = GetParam();
  if (testing::kSanitized && std::string(deed.op) == "takes_memory")
    GTEST_SKIP() << "a sanitizer's shadow is larger than any limit of memory";
  const ProgramResult run = testing::ampcheck("check " + kHostile + " " + deed.op +
                                              " --regimes quick --json --timeout " + std::to_string(deed.timeout));
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
      EXPECT_TRUE(c.at("verdict") == "ROUNDING" || c.at("verdict") == "EMPTY" || c.at("verdict") == "RANGE")
          << name << c.at("verdict");
    }
  }
  EXPECT_GT(there, 0);
  EXPECT_GT(elsewhere, 10);
}

/// A crash behind a call for memory that failed says nothing of the kernel, and is no pass either.
TEST(Isolation, ACrashForWantOfMemoryIsLeftOut) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer ends the process of what asks for too much";
  const ProgramResult run = testing::ampcheck("check " + kHostile + " trusts_malloc --regimes quick");
  EXPECT_EQ(run.exit_code, 5) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "skipped: [memory]")) << run.out;
  EXPECT_FALSE(contains(run.out, "CRASH")) << run.out;
  const ProgramResult alone = testing::ampcheck("check " + kHostile + " 'trusts_malloc(x=fp32[17,7],seed=1)'");
  EXPECT_EQ(alone.exit_code, 4) << alone.out << alone.err;
}

TEST(Isolation, WhatIsPrintedIsSaidOfItsOwnOp) {
  const ProgramResult run =
      testing::ampcheck("check " + kHostile + " prints leaves_a_child --regimes quick --jobs 1 --json");
  const json report = json::parse(run.out);
  std::string notes;
  for (const json& note : report.at("notes")) notes += note.get<std::string>() + "\n";
  EXPECT_TRUE(contains(notes, "prints: printed in ")) << notes;
  EXPECT_TRUE(contains(notes, "the kernel printed: <script> [31mhello")) << notes;
  EXPECT_FALSE(contains(notes, "leaves_a_child: printed")) << notes;
  for (const json& c : report.at("cases"))
    EXPECT_FALSE(c.at("op") == "leaves_a_child" && contains(c.dump(), "printed")) << c.dump();
}

TEST(Isolation, ACrashIsReplayedWithoutEndingTheProgram) {
  const ProgramResult run = testing::ampcheck("replay " + kHostile + " 'segfault(x=fp32[17,7],seed=1)'");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "CRASH  AC501")) << run.out;
  EXPECT_TRUE(contains(run.out, "killed by signal 11")) << run.out;
  EXPECT_TRUE(run.out.starts_with(find_code("AC501")->transcript)) << "what explain shows is what is printed\n"
                                                                   << run.out;
  // Without isolation the process itself dies.
  EXPECT_EQ(testing::ampcheck("replay " + kHostile + " 'segfault(x=fp32[17,7],seed=1)' --isolation none").exit_code,
            128 + 11);
}

// A kernel that asks should_cancel ends by itself once its time is up; one that does not is killed.
TEST(Isolation, ACoOperatingKernelReturnsAtItsTimeout) {
  const testing::TemporaryFolder folder;
  const std::string mark = folder.path() + "/mark";
  const ProgramResult run = testing::ampcheck(
      "replay " + kHostile + " 'returns_when_asked(x=fp32[17,7],seed=1)' --timeout 1", "AMPCHECK_TEST_MARK=" + mark);
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "TIMEOUT  AC502")) << run.out;
  EXPECT_TRUE(contains(run.out, "its kernel returned when asked to (should_cancel)")) << run.out;
  EXPECT_TRUE(std::filesystem::exists(mark));
  const ProgramResult deaf = testing::ampcheck("replay " + kHostile + " 'loops(x=fp32[17,7],seed=1)' --timeout 1");
  EXPECT_TRUE(contains(deaf.out, "it did not within 2 s and was killed")) << deaf.out;
  EXPECT_TRUE(deaf.out.starts_with(find_code("AC502")->transcript)) << deaf.out;
}

// The judge takes longer than a second for so many elements. The kernel does not.
TEST(Isolation, ASlowJudgeIsNoTimeoutOfTheKernel) {
  const ProgramResult run = testing::ampcheck("replay " + kHostile + " 'loops(x=fp32[1500,1501],seed=1)' --timeout 1");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_GT(run.seconds, 1) << "else this case shows nothing";
}

TEST(Isolation, ACoOperatingKernelReturnsOnAnInterrupt) {
  for (const std::string isolation : {"worker", "none"}) {
    const testing::TemporaryFolder folder;
    const std::string mark = folder.path() + "/mark";
    const ProgramResult run =
        testing::shell("AMPCHECK_TEST_MARK=" + mark + " $AMPCHECK check " + kHostile +
                       " 'returns_when_asked(x=fp32[17,7],seed=1)' --journal " + mark + ".journal --isolation " +
                       isolation + " & pid=$!\nfor i in $(seq 600); do [ -s " + mark +
                       ".journal ] && break; sleep 0.1; done; sleep 1; kill -INT $pid; wait $pid");
    EXPECT_EQ(run.exit_code, 130) << isolation << run.out << run.err;
    EXPECT_TRUE(contains(run.out, "Interrupted after 0 of 1 cases")) << isolation << run.out;
    EXPECT_TRUE(std::filesystem::exists(mark)) << isolation;
  }
}

// The journal has a line before and one after each case; of one that took the whole program with it, only the first.
TEST(Isolation, TheJournalNamesWhatRan) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/journal";
  const auto lines = [&] {
    std::vector<json> out;
    std::istringstream text(testing::read_text(file));
    for (std::string line; std::getline(text, line);) out.push_back(json::parse(line));
    return out;
  };
  const std::string cases =
      " 'segfault(x=fp32[2,5],seed=1)' 'segfault(x=fp32[17,7],seed=1)' 'segfault(x=fp32[3,4],seed=1)' -j 1 --journal " +
      file;
  EXPECT_EQ(testing::ampcheck("check " + kHostile + cases).exit_code, 1);
  std::vector<json> run = lines();
  std::string again;  // what ran in search of a smaller case stands there too, and says so
  std::erase_if(run, [&](const json& line) {
    if (line.value("again", false))
      again = line.at("case");
    else if (again.empty() || line.value("case", "") != again)
      return false;
    return true;
  });
  ASSERT_EQ(run.size(), 8u);
  EXPECT_EQ(run.front().at("schema"), "ampcheck.journal/1");
  EXPECT_EQ(run.back().at("event"), "end");
  for (std::size_t i = 1; i < 7; i += 2) {
    EXPECT_EQ(run[i].at("event"), "start");
    EXPECT_EQ(run[i + 1].at("event"), "done");
    EXPECT_EQ(run[i].at("case"), run[i + 1].at("case"));
    EXPECT_EQ(run[i + 1].at("verdict") == "CRASH", contains(run[i].at("case"), "[17,7]"));
  }
  EXPECT_EQ(testing::ampcheck("check " + kHostile + cases + " --isolation none").exit_code, 128 + 11);
  const std::vector<json> more = lines();
  ASSERT_GT(more.size(), run.size()) << "appended";
  EXPECT_EQ(more.back().at("event"), "start");
  EXPECT_TRUE(contains(more.back().at("case"), "[17,7]")) << more.back();
  EXPECT_EQ(testing::ampcheck("check relu --regimes quick --shapes first --journal /proc/nothing").exit_code, 8);
}

TEST(Isolation, ACrashSaysWhereItsInputsAre) {
  const std::string crash = kHostile + " 'segfault(x=fp32[17,7],seed=1)'";
  const ProgramResult run = testing::ampcheck("replay " + crash);
  EXPECT_TRUE(contains(run.out, "its inputs and cotangents follow from the case name, bit for bit")) << run.out;
  const testing::TemporaryFolder folder;
  const ProgramResult saving = testing::ampcheck("replay " + crash + " --save " + folder.path() + "/in.safetensors");
  EXPECT_EQ(saving.exit_code, 1) << saving.err;
  EXPECT_TRUE(contains(saving.err, "ended its process by signal 11")) << saving.err;
  const TensorFile saved = read_tensors(folder.path() + "/in.safetensors");
  ASSERT_NE(saved.find("x"), nullptr) << saved.names();
  EXPECT_EQ(saved.find("x")->shape(), Shape({17, 7}));
  // The same inputs from that file: the finding names it.
  const ProgramResult again =
      testing::ampcheck("check " + kHostile + " segfault --inputs " + folder.path() + "/in.safetensors");
  EXPECT_EQ(again.exit_code, 1) << again.out << again.err;
  EXPECT_TRUE(contains(again.out, "its inputs are those of '" + folder.path() + "/in.safetensors'")) << again.out;
}

TEST(Isolation, ResultsAreThoseOfThisProcess) {
  const std::string selection =
      "check " + tests::in_build("/custom_ops/rope.so") + " --regimes quick --shapes first --json ";
  const auto cases = [&](const std::string& options) {
    json out = json::parse(testing::ampcheck(selection + options).out).at("cases");
    for (json& c : out) {
      c.erase("seconds");
      json kept = json::array();  // calls after other calls take a process that can be started anew
      for (const json& check : c["checks"])
        if (!contains(check["name"].get<std::string>(), "history ")) kept.push_back(check);
      c["checks"] = kept;
    }
    return out;
  };
  const json here = cases("--isolation none"), there = cases("--isolation worker");
  EXPECT_GT(here.size(), 20u);
  EXPECT_EQ(here, there);
}

// The worker that runs a case reduces its values too; what crashed is not run once more for them.
TEST(Isolation, WorkersReduceValues) {
  const std::string rope = tests::in_build("/custom_ops/rope.so");
  const auto wrong = testing::ampcheck("check " + rope + " 'rope_rotates_forward(x=fp32[2,3,4],seed=1)'");
  EXPECT_TRUE(contains(wrong.out, "  minimal data: dy[") && contains(wrong.out, ", the rest 0\n")) << wrong.out;
  const auto here =
      testing::ampcheck("check " + rope + " 'rope_rotates_forward(x=fp32[2,3,4],seed=1)' --isolation none");
  const auto values = [](const std::string& out) {
    return out.substr(std::min(out.size(), out.find("  minimal data: "))).substr(0, 60);
  };
  EXPECT_EQ(values(here.out), values(wrong.out));
  EXPECT_FALSE(
      contains(testing::ampcheck("check " + kHostile + " 'segfault(x=fp32[2,5],seed=1)'").out, "  minimal data: "));
}

/// A result with something in every field.
CaseResult full_result() {
  CaseResult in;
  in.name = "op(x=fp32[2],seed=1)";
  in.op = "op";
  in.plugin = "./a b.so";
  in.dtype = "bf16";
  in.verdict = Verdict::structural;
  in.code = Code::ac402;
  in.note = "a \"note\"\n";
  in.seconds = 0.1;
  in.values = "x[0,1] = 1, the rest 0";
  CheckResult check{.id = {.kind = CheckId::Kind::backward, .tensor = "dx", .probe = 2, .at_saved = true},
                    .verdict = Verdict::bug,
                    .code = Code::ac101,
                    .dtype = Dtype::bf16,
                    .compared = 5,
                    .blind = 4,
                    .unusual = 3,
                    .range = 2,
                    .failed = 1,
                    .max_ratio = std::numeric_limits<double>::infinity(),
                    .worst = {},
                    .cause = "c",
                    .note = "n",
                    .unjudged = 17};
  check.worst.push_back({{1, 2},
                         -0.0,
                         std::nan(""),
                         0xffffffffffffffffull,
                         7,
                         1e-310,
                         0.1,
                         -std::numeric_limits<double>::infinity(),
                         "from"});
  in.checks.push_back(check);
  return in;
}

TEST(Wire, KeepsEveryBit) {
  const CaseResult in = full_result();
  const std::string text = wire_text(in);
  const CaseResult out = from_wire(text);
  EXPECT_EQ(wire_text(out), text);
  EXPECT_EQ(out.verdict, Verdict::structural);
  EXPECT_EQ(out.values, in.values);
  EXPECT_EQ(out.checks.at(0).id, in.checks.at(0).id);
  EXPECT_TRUE(std::signbit(out.checks.at(0).worst.at(0).got));
  EXPECT_TRUE(std::isnan(out.checks[0].worst[0].want));
  EXPECT_EQ(out.checks[0].worst[0].low, 0.1);
  EXPECT_EQ(out.checks[0].unjudged, 17);
}

/// Cut anywhere, longer, or with a length, verdict, code or dtype that cannot be.
TEST(Wire, RefusesWhatCannotBe) {
  const std::string text = wire_text(full_result());
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_THROW(from_wire(std::string_view(text).substr(0, size)), Error) << size;
  EXPECT_THROW(from_wire(text + "x"), Error);
  const auto spoiled = [&](std::size_t at) {
    std::string copy = text;
    copy.at(at + 6) = '\x7f';
    return copy;
  };
  const std::size_t dtype = text.find("bf16", text.find("AC101"));
  EXPECT_THROW(from_wire(spoiled(0)), Error);
  EXPECT_THROW(from_wire(spoiled(text.find("AC402") - 16)), Error) << "the verdict";
  std::string code = text;
  code.replace(code.find("AC402"), 5, "AC499");
  EXPECT_THROW(from_wire(code), Error) << "no code has that name";
  EXPECT_THROW(from_wire(text.substr(0, dtype) + "bf61" + text.substr(dtype + 4)), Error);
}

// Commands that run kernels many times and name no case do so in one child.
TEST(Isolation, AKernelThatEndsTheProcessOfContractIsACrash) {
  const std::pair<const char*, const char*> deeds[] = {
      {"segfault", "by signal 11"}, {"aborts", "by signal 6"}, {"exits", "by itself with exit code 0"}};
  for (const auto& [op, how] : deeds) {
    const ProgramResult run = testing::ampcheck("contract " + kHostile + " " + op + " --dtype fp32");
    EXPECT_EQ(run.exit_code, 1) << op << run.out << run.err;
    EXPECT_TRUE(contains(run.err, "CRASH (AC501)") && contains(run.err, how)) << op << run.err;
  }
  for (const std::string command : {"contract ", "gate --record /dev/null --regimes quick "}) {
    const ProgramResult run = testing::ampcheck(command + kHostile + " answers_itself --dtype fp32");
    EXPECT_NE(run.exit_code, 0) << command << run.out << run.err;
  }
  const ProgramResult failing = testing::ampcheck("contract " + kHostile + " returns_garbage --dtype fp32");
  EXPECT_EQ(failing.exit_code, 1) << failing.err;
  EXPECT_TRUE(contains(failing.err, "CRASH (AC501)") && contains(failing.err, "forward returned")) << failing.err;
  const ProgramResult right = testing::ampcheck("contract " + kHostile + " prints --dtype fp32");
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_TRUE(contains(right.out, "accumulate = \"fp32\"")) << right.out;
  EXPECT_EQ(testing::ampcheck("contract " + kHostile + " no_such_op").exit_code, 2);
}

TEST(Isolation, AKernelOfContractThatDoesNotReturnIsATimeout) {
  const ProgramResult run = testing::ampcheck("contract " + kHostile + " loops --dtype fp32 --timeout 1");
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(contains(run.err, "TIMEOUT (AC502)") && contains(run.err, "in 1 s (--timeout)")) << run.err;
}

TEST(Isolation, ContractEndsWithItsChild) {
  const ProgramResult run =
      testing::shell("$AMPCHECK contract " + kHostile +
                     " loops --dtype fp32 & pid=$!\n"
                     "(sleep 60; kill -9 $pid) & keeper=$!; for i in $(seq 200); do children=$(pgrep -P $pid) && "
                     "break; sleep 0.1; done; sleep 0.5; kill -INT $pid; wait $pid; code=$?; kill $keeper\n"
                     "[ -n \"$children\" ] || exit 98\n"  // other tests run such processes too: these alone count
                     "for child in $children; do tr -d '\\0' < /proc/$child/cmdline 2>/dev/null | grep -q . && exit "
                     "99; done; exit $code");
  EXPECT_EQ(run.exit_code, 130) << run.out << run.err;
}

}  // namespace
}  // namespace ampcheck::tools
