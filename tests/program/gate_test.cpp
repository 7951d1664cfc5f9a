// SPDX-License-Identifier: Apache-2.0
// A change of a kernel on its way into a repository: gate, review, accept, as a person and as CI see them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/gated_repository.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

TEST_F(Gate, WithoutABaselineIsSevenAndLeavesItPending) {
  const ProgramResult first = gate();
  EXPECT_EQ(first.exit_code, 7) << first.out << first.err;
  EXPECT_TRUE(contains(first.out, "NO BASELINE")) << first.out;
  EXPECT_TRUE(exists("base/gated_sum.json.pending"));
  EXPECT_FALSE(exists("base/gated_sum.json"));
}

/// Who answers for a state, what it was measured with, and what was accepted before it.
TEST_F(Gate, AnAcceptedStateSaysItsOriginAndKeepsItsHistory) {
  shell("cd '" + folder_.path() + "'; git init -q .; git config user.name 'A. Person'; git config user.email " +
        "a@example.org; git commit -q --allow-empty -m first");
  const std::string commit = shell("cd '" + folder_.path() + "'; git rev-parse HEAD").out.substr(0, 40);
  use("one_chain");
  accept_now();
  const json first = json::parse(read("base/gated_sum.json"));
  EXPECT_EQ(first["accepted"]["who"], "A. Person <a@example.org>");
  EXPECT_EQ(first["accepted"]["commit"], commit);
  EXPECT_EQ(first["measured"]["library"].get<std::string>().size(), 32u);
  EXPECT_FALSE(first["measured"]["cpu"].get<std::string>().empty());
  EXPECT_FALSE(first["measured"]["ampcheck"].get<std::string>().empty());
  EXPECT_FALSE(first["measured"]["compiler"].get<std::string>().empty()) << "the library's .comment names it";
  EXPECT_FALSE(first.contains("history"));
  double largest = 0;
  for (const json& stored : first["cases"])
    largest = std::max(largest, std::strtod(stored["tensors"]["y"]["max"].get<std::string>().c_str(), nullptr));
  use("none");
  const ProgramResult changed = gate("-o html:gate.html");
  EXPECT_EQ(changed.exit_code, 0) << changed.out << changed.err;
  const std::string page = read("gate.html");
  EXPECT_TRUE(contains(page, "<h2>History</h2>")) << "of the state before this run, too";
  EXPECT_TRUE(contains(page, ": as measured</title>"));
  EXPECT_FALSE(json::parse(read("base/gated_sum.json.pending")).contains("history"));
  accept_now();
  const json second = json::parse(read("base/gated_sum.json"));
  ASSERT_EQ(second["history"].size(), 1u);
  EXPECT_EQ(second["history"][0]["commit"], commit);
  EXPECT_EQ(std::strtod(second["history"][0]["largest"]["y"].get<std::string>().c_str(), nullptr), largest);
  EXPECT_EQ(in_ci().exit_code, 0) << "a state with a history is unchanged";
}

TEST_F(Gate, UnchangedIsZero) {
  accept_now();
  const ProgramResult same = in_ci();
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_TRUE(contains(same.out, "UNCHANGED")) << same.out;
  EXPECT_EQ(in_ci("--strict --strict-bits").exit_code, 0);
}

/// Four kernels of one op, all right: three of them with bits of their own.
TEST_F(Gate, VariantsAreJudgedAndSortedByTheirBits) {
  const ProgramResult check = run("check ./gated_sum.so --regimes quick --variants");
  EXPECT_EQ(check.exit_code, 0) << check.out << check.err;
  EXPECT_TRUE(contains(check.out, "gated_sum: 4 variants, 3 bit classes, all inside")) << check.out;
  EXPECT_TRUE(contains(check.out, "  1   gated_sum, gated_sum.lanes\n")) << check.out;
  EXPECT_FALSE(contains(run("check ./gated_sum.so --regimes quick").out, "gated_sum.lanes")) << "unless asked for";
  accept_now("");
  EXPECT_EQ(in_ci("--variants").exit_code, 7) << "nobody accepted the variants";
  gate("--variants");
  ASSERT_EQ(run("accept --baseline base --reason 'kernels of the autotuner'").exit_code, 0);
  const ProgramResult gated = in_ci("--variants");
  EXPECT_EQ(gated.exit_code, 0) << gated.out << gated.err;
  EXPECT_TRUE(contains(gated.out, "gated_sum: 4 variants, 3 bit classes, all inside")) << gated.out;
  EXPECT_TRUE(exists("base/gated_sum.other.json"));
  const json found = json::parse(in_ci("--variants --json").out)["variants"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["count"], 4);
  EXPECT_EQ(found[0]["classes"].size(), 3u) << found;
  const ProgramResult one = run("check ./gated_sum.so gated_sum.other --regimes quick");
  EXPECT_EQ(one.exit_code, 0) << one.out << one.err;
  EXPECT_TRUE(contains(run("check ./no_such.so --variants").err, "no_such.so"));
  EXPECT_TRUE(contains(run("check add --variants --shapes first").err, "[--variants] got ops without variants"));
}

/// Forty times the work is slower on any machine; what is as fast as before is never called slow for sure here, since
/// other programs run beside.
TEST_F(Gate, ASlowerBuildIsAdvisedAndFailsWhereAsked) {
  // On a busy machine a comparison may stay UNSURE: then it is made again.
  const auto sure = [&](const std::string& gate, const std::string& word) {
    ProgramResult out;
    for (int i = 0; i < 8 && !contains(out.out, word); ++i) out = run(gate);
    return out;
  };
  use("slow");
  const std::string base = " --regimes quick --dtype fp32 --base " + tests::in_build("/custom_ops/gated_sum_none.so");
  const ProgramResult advised = sure("gate ./gated_sum.so" + base, "SLOW");
  EXPECT_EQ(advised.exit_code, 0) << advised.out << advised.err;
  EXPECT_TRUE(contains(advised.out, "SLOW")) << advised.out;
  const ProgramResult strict = sure("gate ./gated_sum.so --strict-perf" + base, "forward is slower: ");
  EXPECT_EQ(strict.exit_code, 1) << strict.out << strict.err;
  EXPECT_TRUE(contains(strict.out, "forward is slower: ") && contains(strict.out, "(--strict-perf)")) << strict.out;
  use("none");
  const std::string slow = " --regimes quick --dtype fp32 --base " + tests::in_build("/custom_ops/gated_sum_slow.so");
  const ProgramResult fast = sure("gate ./gated_sum.so --strict-perf --json" + slow, "\"FAST\"");
  EXPECT_EQ(fast.exit_code, 0) << fast.out << fast.err;
  const json speed = json::parse(fast.out)["ops"][0]["speed"];
  EXPECT_EQ(speed["forward"]["pace"], "FAST") << speed;
  EXPECT_LT(speed["forward"]["high"], 1);
  EXPECT_NE(speed["backward"]["pace"], "SLOW") << speed;
  EXPECT_TRUE(contains(run("gate ./gated_sum.so --strict-perf --baseline b").err, "[--strict-perf] got no library"));
}

/// As mpirun starts them: the variables of two ranks.
TEST_F(Gate, RanksGiveTheGateOfOneRun) {
  accept_now();
  for (const char* const change : {"reassociated", "dropped_tail"}) {
    use(change);
    const ProgramResult whole = in_ci("--json");
    const std::string job = std::string("--json --engine mpi --run-file job_") + change;
    const ProgramResult ranks = run(
        "gate ./gated_sum.so --regimes quick --baseline base " + job + " >rank0; code=$?; wait; cat rank0; exit $code",
        "export CI=true OMPI_COMM_WORLD_SIZE=2; OMPI_COMM_WORLD_RANK=1 \"$AMPCHECK\" gate ./gated_sum.so --regimes "
        "quick --baseline base " +
            job + " >rank1 2>err1 & OMPI_COMM_WORLD_RANK=0");
    EXPECT_EQ(ranks.exit_code, whole.exit_code) << ranks.err;
    EXPECT_EQ(ranks.out, whole.out) << "rank 0 alone reports";
    EXPECT_EQ(read("rank1"), "");
    EXPECT_TRUE(contains(ranks.err, "2 ranks")) << ranks.err;
    EXPECT_EQ(in_ci(job).out, whole.out) << "the same command again runs nothing anew";
  }
  for (const char* const wrong : {"--engine mpi", "--run-file j", "--engine mip --run-file j"})
    EXPECT_EQ(in_ci(wrong).exit_code, 2) << wrong;
}

/// One of two ops has no kernel for the device: the other one does not make it green.
TEST_F(Gate, AnOpOfWhichNothingRanIsFour) {
  if (shell("c++ --version").exit_code != 0) GTEST_SKIP() << "there is no c++ here";
  std::ofstream(folder_.path() + "/two.cpp") << R"(#include <ampcheck/op.h>
using namespace ampcheck::op;
static void describe(Op& op) {
  op.input("x", "N").no_gradient();
  op.output("y");
  op.dim("N", 5, 64, 130);
  op.storage({AC_FP32});
  op.formula([](Expr x) { return x * 2; });
  op.forward([](auto, const Call& call) {
    const auto x = call.view<const float>("x");
    const auto y = call.view<float>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = 2 * x(i);
  });
}
AMPCHECK_OP(here, op) { describe(op); }
AMPCHECK_OP(elsewhere, op) { describe(op.devices(AC_ON_CUDA)); }
)";
  const ProgramResult built = shell("cd '" + folder_.path() + "'; c++ -std=c++20 -shared -fPIC -I '" +
                                    tests::in_source("/src/api") + "' two.cpp -o libtwo.so");
  ASSERT_EQ(built.exit_code, 0) << built.err;
  const std::string gate = "--device cpu --record run.json";  // some cases have no element: nothing to run there
  const ProgramResult both = run("gate ./libtwo.so " + gate);
  EXPECT_EQ(both.exit_code, 4) << both.out << both.err;
  EXPECT_TRUE(contains(both.out, "NOTHING RAN") && contains(both.out, "UNCHANGED")) << both.out;
  const ProgramResult one = run("gate ./libtwo.so here " + gate);
  EXPECT_EQ(one.exit_code, 0) << one.out << one.err;
  for (const char* const command :
       {"gate ./libtwo.so elsewhere --device cpu --record run.json", "check ./libtwo.so elsewhere --device cpu"}) {
    const ProgramResult none = run(command);
    EXPECT_EQ(none.exit_code, 4) << command << none.out << none.err;
  }
}

TEST_F(Gate, AWrongVariantFailsAndIsNamed) {
  use("bad_variant");
  const ProgramResult check = run("check ./gated_sum.so --regimes quick --variants");
  EXPECT_EQ(check.exit_code, 1) << check.out << check.err;
  EXPECT_TRUE(contains(check.out, "outside: gated_sum.other")) << check.out;
  EXPECT_TRUE(contains(check.out, "replay ./gated_sum.so 'gated_sum.other(")) << check.out;
  EXPECT_EQ(run("check ./gated_sum.so --regimes quick").exit_code, 0) << "the op's own kernel is right";
  gate("--variants");
  const ProgramResult gated = in_ci("--variants");
  EXPECT_EQ(gated.exit_code, 1) << gated.out << gated.err;
  EXPECT_TRUE(contains(gated.out, "4 variants, 3 bit classes, outside: gated_sum.other")) << gated.out;
}

TEST_F(Gate, AReassociatedSumIsZeroWithBitsChanged) {
  accept_now();
  use("reassociated");
  const ProgramResult changed = in_ci();
  EXPECT_EQ(changed.exit_code, 0) << changed.out << changed.err;
  EXPECT_TRUE(contains(changed.out, "BITS CHANGED")) << changed.out;
  EXPECT_TRUE(contains(changed.out, "Exit code 0: no number is wrong; too few bits changed to tell")) << changed.out;
  EXPECT_FALSE(contains(changed.out, "no worse")) << "of one changed case nothing can be told: " << changed.out;
  EXPECT_EQ(in_ci("--strict").exit_code, 0) << "nothing is worse";
  const ProgramResult strict = in_ci("--strict-bits");
  EXPECT_EQ(strict.exit_code, 1) << strict.out;
  EXPECT_TRUE(contains(strict.out, "(--strict-bits)")) << strict.out;
}

TEST_F(Gate, ADroppedTailIsOne) {
  accept_now();
  use("dropped_tail");
  const ProgramResult broken = in_ci("-o junit:j.xml -o sarif:s.json -o github:g.txt -o html:p.html");
  EXPECT_EQ(broken.exit_code, 1) << broken.out << broken.err;
  EXPECT_TRUE(contains(broken.out, "FINDINGS") && contains(broken.out, "AC101") &&
              contains(broken.out, "ampcheck replay"))
      << broken.out;
  EXPECT_TRUE(contains(read("j.xml"), "type=\"BUG AC101\"")) << read("j.xml").substr(0, 2000);
  EXPECT_TRUE(contains(read("s.json"), "\"ruleId\":\"AC101\"") || contains(read("s.json"), "\"ruleId\": \"AC101\""))
      << read("s.json").substr(0, 2000);
  EXPECT_TRUE(contains(read("g.txt"), "AC101")) << read("g.txt");
  for (const char* const words : {"BUG AC101", "an element outside; the larger a square", "FINDINGS"})
    EXPECT_TRUE(contains(read("p.html"), words)) << words << read("p.html").substr(0, 3000);
}

TEST_F(Gate, ABf16AccumulatorIsOne) {
  accept_now();
  use("bf16_sum");
  const ProgramResult broken = in_ci();
  EXPECT_EQ(broken.exit_code, 1) << broken.out << broken.err;
  EXPECT_TRUE(contains(broken.out, "AC301")) << broken.out;
}

/// What is right but worse: every number is inside what rounding may do.
TEST_F(Gate, LargerErrorsInsideTheBoundAreANoteAndStrictFails) {
  const std::string cases = "--seeds 6 --dtype fp32 --regimes standard";
  gate(cases);
  ASSERT_EQ(run("accept --baseline base --reason first").exit_code, 0);
  use("one_chain");
  const ProgramResult worse = in_ci(cases + " -o github:-");
  EXPECT_EQ(worse.exit_code, 0) << worse.out << worse.err;
  for (const char* const words :
       {"WORSE", "the usual error is larger in", "errors are worse than accepted: --strict", "\n::warning file="})
    EXPECT_TRUE(contains(worse.out, words)) << words << worse.out;
  const ProgramResult strict = in_ci(cases + " --strict -o github:-");
  EXPECT_EQ(strict.exit_code, 1) << strict.out << strict.err;
  EXPECT_TRUE(contains(strict.out, "  FAILED  y is worse: ") && contains(strict.out, "\n::error file=")) << strict.out;
  EXPECT_EQ(run("check ./gated_sum.so --seeds 6 --dtype fp32").exit_code, 0) << "no number of it is wrong";
  use("reassociated");
  EXPECT_EQ(in_ci(cases + " --strict").exit_code, 0) << "another order of the same kind is no worse";
}

/// What nobody runs any more is no green line. Of a library of another name the folder may hold states, too.
TEST_F(Gate, AStateOfAnOpThatTheLibraryHasNoMoreIsSeven) {
  accept_now();
  json gone = json::parse(read("base/gated_sum.json"));
  gone["op"] = "gated_mean";
  std::ofstream(folder_.path() + "/base/gated_mean.json") << gone.dump(2);
  const ProgramResult stale = in_ci();
  EXPECT_EQ(stale.exit_code, 7) << stale.out;
  EXPECT_TRUE(contains(stale.out, "'base/gated_mean.json' is the state of 'gated_mean', an op that 'gated_sum.so'"))
      << stale.out;
  gone["measured"]["file"] = "other.so";
  std::ofstream(folder_.path() + "/base/gated_mean.json") << gone.dump(2);
  EXPECT_EQ(in_ci().exit_code, 0);
  gone["measured"]["file"] = "gated_sum.so";
  gone["op"] = "gated_sum.lanes";  // a variant, which --variants runs
  std::ofstream(folder_.path() + "/base/gated_mean.json") << gone.dump(2);
  EXPECT_EQ(in_ci().exit_code, 0);
}

TEST_F(Gate, CiWritesNothing) {
  accept_now();
  use("reassociated");
  const std::string before = shell("cd '" + folder_.path() + "'; ls -l --full-time base").out;
  in_ci();
  EXPECT_EQ(shell("cd '" + folder_.path() + "'; ls -l --full-time base").out, before);
  const ProgramResult accept = run("accept --baseline base --reason x", "CI=1");
  EXPECT_EQ(accept.exit_code, 2) << accept.out;
  EXPECT_FALSE(exists("base/gated_sum.json.pending"));
}

TEST_F(Gate, ACommittedPendingFileIsSeven) {
  accept_now();
  use("reassociated");
  gate();
  ASSERT_TRUE(exists("base/gated_sum.json.pending"));
  const ProgramResult ci = in_ci();
  EXPECT_EQ(ci.exit_code, 7) << ci.out;
  EXPECT_TRUE(contains(ci.out, "a pending file was committed")) << ci.out;
}

TEST_F(Gate, AnAcceptedChangeIsAReadableDiff) {
  accept_now();
  const std::string before = read("base/gated_sum.json");
  use("reassociated");
  EXPECT_EQ(gate().exit_code, 0);
  const ProgramResult review = run("review --baseline base -o markdown:review.md");
  EXPECT_EQ(review.exit_code, 0) << review.err;
  EXPECT_TRUE(contains(review.out, "gated_sum: 1 of 48 cases changed")) << review.out;
  EXPECT_TRUE(contains(review.out, "rms 0.447 -> 0 ulp")) << review.out;
  EXPECT_TRUE(contains(read("review.md"), "| y | 1 | 0.447 -> 0 |")) << read("review.md");
  ASSERT_EQ(run("accept --baseline base --reason 'from the other end'").exit_code, 0);
  std::ofstream(folder_.path() + "/old.json") << before;
  const std::string diff = shell("cd '" + folder_.path() + "'; diff old.json base/gated_sum.json").out;
  EXPECT_LE(std::count(diff.begin(), diff.end(), '\n'), 50) << diff;
  EXPECT_TRUE(contains(diff, "<     \"reason\": \"as measured\",\n---\n>     \"reason\": \"from the other end\","))
      << diff;
  EXPECT_EQ(in_ci("--strict --strict-bits").exit_code, 0);
}

TEST_F(Gate, ABaselineHoldsHexFloatsInSortedKeysAndNoBound) {
  accept_now();
  const std::string text = read("base/gated_sum.json");
  const json state = json::parse(text);  // sorts its keys
  EXPECT_EQ(state.at("schema"), "ampcheck.baseline/1");
  std::size_t at = 0;
  for (const auto& [name, entry] : state.at("cases").items()) {
    const std::size_t found = text.find(json(name).dump() + ": {", at);
    ASSERT_NE(found, std::string::npos) << name;
    at = found;
    for (const auto& [tensor, profile] : entry.at("tensors").items())
      for (const char* key : {"max", "p9999", "p99", "rms", "bias"})
        EXPECT_TRUE(contains(profile.at(key), "0x")) << profile;
    EXPECT_LE(entry.dump(2).size(), 4096u) << name;
  }
  for (const char* word : {"bound", "radius", "interval", "low", "high", "tolerance"})
    EXPECT_FALSE(contains(text, "\"" + std::string(word))) << word;
}

TEST_F(Gate, AWaiverLetsAFindingThroughUntilItsDay) {
  accept_now();
  use("bf16_sum");
  EXPECT_EQ(gate().exit_code, 1);
  const ProgramResult refused = run("accept --baseline base --reason 'later'");
  EXPECT_EQ(refused.exit_code, 1) << refused.out;
  EXPECT_TRUE(contains(refused.out, "not accepted gated_sum: AC301")) << refused.out;
  ASSERT_EQ(run("accept --baseline base --waive AC301 --until 2099-06-30 --reason 'issue 7'").exit_code, 0);
  const ProgramResult waived = in_ci();
  EXPECT_EQ(waived.exit_code, 0) << waived.out;
  EXPECT_TRUE(contains(waived.out, "let through until 2099-06-30") && contains(waived.out, "issue 7")) << waived.out;
  EXPECT_FALSE(contains(waived.out, "no number is wrong")) << waived.out;
  EXPECT_EQ(in_ci("--today 2099-06-30").exit_code, 0) << "its last day";
  const ProgramResult expired = in_ci("--today 2099-07-01");
  EXPECT_EQ(expired.exit_code, 7) << expired.out;
  EXPECT_TRUE(contains(expired.out, "the waiver of AC301 expired on 2099-06-30")) << expired.out;
  use("none");
  const ProgramResult unused = in_ci();
  EXPECT_EQ(unused.exit_code, 7) << unused.out;
  EXPECT_TRUE(contains(unused.out, "the waiver of AC301 is not needed")) << unused.out;
  use("dropped_tail");
  EXPECT_EQ(in_ci().exit_code, 1) << "another finding is new";
}

TEST_F(Gate, AWaiverNeedsAReasonACodeAndADayToCome) {
  accept_now();
  for (const auto& [arguments, words] :
       {std::pair{"accept --baseline base", "got no --reason"},
        {"accept --baseline base --reason ' '", "got no --reason"},
        {"accept --baseline base --reason x --waive AC301", "got --waive or --until alone"},
        {"accept --baseline base --reason x --waive AC310 --until 2099-01-01", "(did you mean 'AC"},
        {"accept --baseline base --reason x --waive AC301 --until 2001-01-01", "want a day to come"},
        {"accept --baseline base --reason x --waive AC301 --until 2099-02-30", "want a day, as 2026-12-31"}}) {
    const ProgramResult refused = run(arguments);
    EXPECT_EQ(refused.exit_code, 2) << arguments << refused.out;
    EXPECT_TRUE(contains(refused.err, words)) << arguments << refused.err;
  }
  EXPECT_EQ(run("accept --baseline base --reason x").exit_code, 4) << "nothing is pending";
}

TEST_F(Gate, AStaleBaselineIsSeven) {
  accept_now();
  const std::string text = read("base/gated_sum.json");
  const auto with = [&](auto change) {
    json state = json::parse(text);
    change(state);
    std::ofstream(folder_.path() + "/base/gated_sum.json") << state.dump(2);
    return in_ci();
  };
  const std::string first = json::parse(text).at("cases").begin().key();
  const ProgramResult inputs = with([&](json& s) { s["cases"][first]["inputs"] = std::string(32, '0'); });
  EXPECT_EQ(inputs.exit_code, 7) << inputs.out;
  EXPECT_TRUE(contains(inputs.out, "has other inputs than the baseline's")) << inputs.out;
  EXPECT_EQ(with([&](json& s) { s["cases"].erase(first); }).exit_code, 7) << "a case is not in it";
  EXPECT_EQ(with([&](json& s) { s["cases"]["gone"] = s["cases"][first]; }).exit_code, 7) << "a case is in it alone";
  EXPECT_EQ(with([&](json& s) { s["schema"] = "ampcheck.baseline/9"; }).exit_code, 7);
  EXPECT_EQ(with([&](json& s) { s["cases"][first]["tensors"]["y"]["rms"] = 0.5; }).exit_code, 7) << "no hex float";
  EXPECT_EQ(with([&](json& s) { s["op"] = "other"; }).exit_code, 7);
  std::ofstream(folder_.path() + "/base/gated_sum.json") << "{\"op\": 1, \"op\": 2}";
  EXPECT_TRUE(contains(in_ci().out, "got 'op' twice"));
  std::ofstream(folder_.path() + "/base/gated_sum.json") << text;
  EXPECT_EQ(in_ci().exit_code, 0);
}

TEST_F(Gate, TheStateIsTheSameOnAnyNumberOfCores) {
  gate("-j 1");
  const std::string one = read("base/gated_sum.json.pending");
  gate("-j 2");
  EXPECT_TRUE(read("base/gated_sum.json.pending") == one);
  gate("--isolation none");
  EXPECT_TRUE(read("base/gated_sum.json.pending") == one);
}

/// What a kernel does to its process is a finding of its case; what it prints stands in no answer.
TEST_F(Gate, AKernelThatMisbehavesIsHeldAway) {
  const std::string cases = "gate '" + tests::in_build("/custom_ops/hostile.so") + "' ",
                    more = " --regimes quick --dtype fp32 --timeout 4 --baseline base --json";
  for (const char* op : {"segfault", "exits", "loops", "closes_descriptors"}) {
    const ProgramResult crash = run(cases + op + more);
    EXPECT_EQ(crash.exit_code, 1) << op << crash.out << crash.err;
    ASSERT_TRUE(json::accept(crash.out)) << op << crash.out;
    const json gate = json::parse(crash.out).at("ops").at(0);
    ASSERT_EQ(gate.at("findings").size(), 1u) << crash.out;
    EXPECT_TRUE(contains(gate.at("findings").at(0).at("first"), "x=fp32[17,")) << "where it misbehaves";
    EXPECT_EQ(gate.at("findings").at(0).at("code"), std::string(op) == "loops" ? "AC502" : "AC501");
    const json state = json::parse(read("base/" + std::string(op) + ".json.pending"));
    EXPECT_EQ(state.at("cases").size() + 1, gate.at("cases").get<std::size_t>()) << "the others have a profile";
  }
  const ProgramResult prints = run(cases + "prints" + more);
  EXPECT_EQ(prints.exit_code, 7) << prints.out << prints.err;
  EXPECT_TRUE(json::accept(prints.out)) << prints.out;
}

TEST_F(Gate, NothingSelectedIsFour) {
  accept_now();
  const ProgramResult nothing = in_ci("--dtype e5m2");
  EXPECT_EQ(nothing.exit_code, 4) << nothing.out << nothing.err;
  EXPECT_EQ(run("gate ./gated_sum.so").exit_code, 2) << "neither --baseline nor --base";
}

TEST_F(Gate, FewerCasesAreComparedWithTheirOwn) {
  accept_now();
  const ProgramResult part = in_ci("--dtype bf16");
  EXPECT_EQ(part.exit_code, 0);
  EXPECT_TRUE(contains(part.out, " cases are not among those selected")) << part.out << "nobody takes it for the whole";
  EXPECT_FALSE(contains(in_ci().out, "not among those selected"));
  use("dropped_tail");
  EXPECT_EQ(in_ci("--dtype bf16").exit_code, 1);
}

TEST_F(Gate, BitsOfAnotherArchitectureAreNotCompared) {
  accept_now();
  json state = json::parse(read("base/gated_sum.json"));
  for (auto& [name, entry] : state.at("cases").items()) {
    const json own = entry["bits"].begin().value();
    entry["bits"] = {{"cuda-sm_90", own}};
  }
  std::ofstream(folder_.path() + "/base/gated_sum.json") << state.dump(2);
  const ProgramResult other = in_ci();
  EXPECT_EQ(other.exit_code, 0) << other.out;
  EXPECT_TRUE(contains(other.out, "errors are compared")) << other.out;
  gate();
  ASSERT_EQ(run("accept --baseline base --reason 'also here'").exit_code, 0);
  EXPECT_EQ(json::parse(read("base/gated_sum.json")).at("cases").begin().value().at("bits").size(), 2u);
}

TEST_F(Gate, AnotherBuildOrARecordIsABase) {
  const std::string old = tests::in_build("/custom_ops/gated_sum_none.so"),
                    plain = "gate ./gated_sum.so --regimes quick ";
  use("reassociated");
  const ProgramResult build = run(plain + "--base '" + old + "' --record run.json");
  EXPECT_EQ(build.exit_code, 0) << build.out << build.err;
  EXPECT_TRUE(contains(build.out, "BITS CHANGED")) << build.out;
  EXPECT_TRUE(contains(run(plain + "--base run.json").out, "UNCHANGED"));
  use("dropped_tail");
  EXPECT_EQ(run(plain + "--base run.json").exit_code, 1);
  std::ofstream(folder_.path() + "/run.json") << "[]";
  EXPECT_EQ(run(plain + "--base run.json").exit_code, 7);
  EXPECT_EQ(run(plain + "--base ./none.json").exit_code, 2);
}

TEST_F(Gate, ThePowerOfTheCasesIsShownAndAsked) {
  ASSERT_EQ(run("gate relu --regimes quick --baseline base").exit_code, 7);
  ASSERT_EQ(run("accept --baseline base --reason first").exit_code, 0);
  const std::string few = "gate 'relu(x=fp32[5,7],seed=1)' --baseline base ";
  const ProgramResult whole = run("gate relu --regimes quick --baseline base --min-power 0.9 --json"),
                      one = run(few + "--json");
  EXPECT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  const auto power = [](const ProgramResult& result) {
    const json p = json::parse(result.out).at("ops").at(0).at("power");
    EXPECT_EQ(p.at("defects").get<std::size_t>(), p.at("found").get<std::size_t>() + p.at("missed").size());
    return p.at("found").get<double>() / p.at("defects").get<double>();
  };
  EXPECT_GE(power(whole), 0.9);
  EXPECT_LT(power(one), power(whole)) << "one case finds less than all";
  const ProgramResult weak = run(few + "--min-power 1");
  EXPECT_EQ(weak.exit_code, 1) << weak.out;
  EXPECT_TRUE(contains(weak.out, "--min-power wants 100 %")) << weak.out;
  EXPECT_EQ(gate("--min-power 0").exit_code, 1) << "of a library's op no defects are planted";
  EXPECT_EQ(gate("--min-power 2").exit_code, 2);
}

TEST_F(Gate, ReportsSayWhatTheGateSays) {
  accept_now();
  use("reassociated");
  const ProgramResult run =
      in_ci("--strict-bits -o junit:j.xml -o github:g.txt -o markdown:m.md -o sarif:s.json -o tap:t.tap");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(contains(read("j.xml"), "<testsuite name=\"gate\" tests=\"1\" failures=\"1\""))
      << read("j.xml").substr(0, 400);
  EXPECT_TRUE(contains(read("g.txt"), "custom_ops/gated_sum.cpp,line=58,title=ampcheck gate gated_sum::bits changed"))
      << "at AMPCHECK_OP: " << read("g.txt");
  EXPECT_TRUE(contains(read("m.md"), "| gated\\_sum | FAILED | bits changed in 1 of 48 cases")) << read("m.md");
  EXPECT_EQ(json::parse(read("s.json"))["runs"][0]["results"].size(), 1u);
  const json place = json::parse(read("s.json"))["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
  EXPECT_TRUE(std::string(place["artifactLocation"]["uri"]).ends_with("custom_ops/gated_sum.cpp")) << place;
  EXPECT_EQ(place["region"]["startLine"], 58);
  const ProgramResult shown = in_ci("--strict-bits -o github:- | cat");
  EXPECT_TRUE(contains(shown.out, "\n::error file=")) << "where GitHub reads it: " << shown.out << shown.err;
  EXPECT_EQ(in_ci("--json -o github:-").exit_code, 2);
  EXPECT_EQ(in_ci("-o csv:-").exit_code, 2);
  EXPECT_TRUE(contains(read("t.tap"), "not ok 49 - gate gated_sum: bits changed")) << read("t.tap");
}

/// A run of the gate is cut off by force, and its ranks go on to the bytes of one run.
TEST_F(Gate, KilledAndResumedGivesTheSameBytes) {
  accept_now();
  use("bf16_sum");
  const ProgramResult whole = in_ci("--json");
  ASSERT_EQ(whole.exit_code, 1) << whole.err;
  const std::string job = "--json --engine mpi --run-file job";
  const ProgramResult killed = run("gate ./gated_sum.so --regimes quick --baseline base " + job +
                                       " >lost 2>&1 & pid=$!; until ls job/*.run >none 2>&1; do sleep 0.01; done; "
                                       "sleep 0.1; kill -9 $pid; wait $pid",
                                   "export CI=true;");
  EXPECT_EQ(killed.exit_code, 137) << read("lost");
  const ProgramResult resumed = in_ci(job);
  EXPECT_EQ(resumed.exit_code, 1) << resumed.err;
  EXPECT_EQ(resumed.out, whole.out);
}

}  // namespace
}  // namespace ampcheck::testing
