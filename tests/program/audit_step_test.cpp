// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit step` and `audit scaler` of a library, as a user calls them; the loop in Python is the manual's.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

/// The manual's loop and adapter in a folder.
void write_manuals_files(const std::string& folder) {
  const std::string page = read_text(tests::in_source("/tools/manual/training-step.md"));
  for (const std::string file : {"my_loop.py", "step_adapter.py"}) {
    const std::string head = "```python " + file + "\n";
    const std::size_t at = page.find(head) + head.size();
    std::ofstream(folder + "/" + file) << page.substr(at, page.find("```", at) - at);
  }
}

struct Change {
  const char *from, *to, *code;
};

TEST(AuditStep, FaultsOfALoopInPythonAreFoundByTheirCode) {
  const TemporaryFolder folder;
  write_manuals_files(folder.path());
  std::string right = read_text(folder.path() + "/my_loop.py");
  const auto change = [](std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  right = change(right, "        self.schedule += 1   ", "        if not self.skipped: self.schedule += 1  ");
  const Change changes[] = {
      {"", "", ""},
      {"all(math.isfinite(g)", "all(g == g", "L3"},
      {"self.skipped = not", "self.grads = [g if abs(g) < 1e30 else 0.0 for g in self.grads]; self.skipped = not",
       "L4"},
      {"if self.skipped: self.scale", "if self.skipped: self.weights = [0.9 * w for w in self.weights]; self.scale",
       "L5"},
      {"if self.skipped: self.scale, self.clean = self.scale / 2, 0", "if self.skipped: self.clean = 0", "L13"},
      {"[g / self.scale for g in self.grads]", "self.grads", "L14"},
      {"norm > self.clip:", "norm * self.scale > self.clip:", "L15"},
      {"dict(vars(self))", "dict(vars(self), scale=65536.0)", "L18"},
      {"dict(vars(self))", "dict(vars(self), moments=[0.0] * 3)", "L19"},
  };
  for (const Change& one : changes) {
    std::ofstream(folder.path() + "/my_loop.py") << change(right, one.from, one.to);
    const ProgramResult got =
        shell("cd " + folder.path() + " && \"$AMPCHECK\" audit step 'python3 step_adapter.py' --json");
    EXPECT_EQ(got.exit_code, *one.code == '\0' ? 0 : 1) << got.out << got.err;
    EXPECT_EQ(nlohmann::json::parse(got.out)["code"], one.code) << one.to << "\n" << got.out;
  }
}

TEST(AuditStep, LibrariesAreAuditedToo) {
  const std::string ops = tests::in_build("/custom_ops/");
  const ProgramResult right = ampcheck("audit step " + ops + "my_loop_NONE.so");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_TRUE(contains(right.out, "RIGHT: ")) << right.out;
  const ProgramResult wrong = ampcheck("audit step " + ops + "my_loop_CLIPS_SCALED.so");
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_TRUE(contains(wrong.out, "L15 explains the others: with clipping ")) << wrong.out;
  EXPECT_EQ(ampcheck("audit scaler " + ops + "my_scaler_none.so").exit_code, 0);
  const ProgramResult scaler = ampcheck("audit scaler " + ops + "my_scaler_state_without_count.so");
  EXPECT_EQ(scaler.exit_code, 1);
  EXPECT_TRUE(contains(scaler.out, "S18 explains the others: ")) << scaler.out;
}

struct Deed {
  const char *fault, *says;
};

TEST(AuditStep, WhatALibraryDoesToItsProcessIsAFinding) {
  for (const auto& [fault, says] : {Deed{"crashes", "ended its process by signal 6 (Aborted) in these calls: "},
                                    Deed{"exits", "ended its process by itself with exit code 0 in these calls: "},
                                    Deed{"hangs", "took more than 1 s (--timeout) in these calls: "}}) {
    const ProgramResult got =
        ampcheck("audit scaler " + tests::in_build("/custom_ops/my_scaler_") + fault + ".so --timeout 1");
    EXPECT_EQ(got.exit_code, 1) << fault << got.err;
    EXPECT_EQ(got.out, "") << fault;
    EXPECT_TRUE(contains(got.err, "ampcheck: [audit scaler] '") && contains(got.err, says)) << fault << got.err;
    EXPECT_TRUE(contains(got.err, "update")) << "the call that did it: " << got.err;
  }
}

/// Sequences go to the process many at a time: the one that ended it is named all the same.
TEST(AuditStep, TheCallsAreNamedAmongManySequences) {
  const ProgramResult got = ampcheck("audit scaler " + tests::in_build("/custom_ops/my_scaler_crashes_late.so"));
  EXPECT_EQ(got.exit_code, 1) << got.out;
  EXPECT_TRUE(contains(got.err, "by signal 6 (Aborted) in these calls: scale, scale, scale, scale, scale, scale\n"))
      << got.err;
}

/// The library lies apart from what judges and reports, which says the same as with both in one process.
TEST(AuditStep, ALibraryRunsInAProcessOfItsOwn) {
  const std::string ops = tests::in_build("/custom_ops/");
  const ProgramResult printed = ampcheck("audit scaler " + ops + "my_scaler_prints.so --json");
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_TRUE(nlohmann::json::parse(printed.out).at("passed")) << "what it prints is not in the report";
  EXPECT_TRUE(contains(printed.err, "ampcheck --audited scaler " + ops)) << printed.err.substr(0, 200);
  for (const std::string& one :
       {"scaler " + ops + "my_scaler_none.so", "scaler " + ops + "my_scaler_divides_by_half.so",
        "scaler " + ops + "my_scaler_state_without_count.so", "scaler " + ops + "my_scaler_grows_late.so",
        "scaler " + ops + "my_scaler_wrong_late.so", "step " + ops + "my_loop_NONE.so",
        "step " + ops + "my_loop_CLIPS_SCALED.so"}) {
    const ProgramResult apart = ampcheck("audit " + one + " --json"),
                        here = ampcheck("audit " + one + " --json --isolation none");
    EXPECT_EQ(apart.out, here.out) << one;
    EXPECT_EQ(apart.exit_code, here.exit_code) << one << apart.err;
  }
}

TEST(AuditStep, WrongUseIsSaid) {
  const std::string ops = tests::in_build("/custom_ops/");
  const auto refused = [](const std::string& arguments, int code, const std::string& says) {
    const ProgramResult got = ampcheck("audit " + arguments);
    EXPECT_EQ(got.exit_code, code) << arguments;
    EXPECT_TRUE(contains(got.err, says)) << got.err;
  };
  refused("step", 2, "[audit step] got nothing to audit, want a program in quotes or a library");
  refused("step a b", 2, "got 'b' too");
  refused("step true", 2, "'true' ended before it answered");
  refused("step 'echo hello; cat >/dev/null'", 2, "wants to answer with a line of JSON, got 'hello'");
  refused("step 'echo {}; cat >/dev/null'", 2, "wants to answer with {\"has\": [...]}");
  refused(R"(step 'echo "{\"has\": [\"resumes\"]}"; cat >/dev/null')", 2,
          "says that it has 'resumes' (did you mean 'resume'?)");
  refused(R"(step 'echo "{\"has\": []}"; echo "{\"replies\": [{\"state\": 3}]}"; cat >/dev/null')", 2,
          "an object as state, got 3");
  refused("step 'true' --rule torhc", 2, "did you mean 'torch'?");
  refused("step ./no_such.so", 6, "got './no_such.so', which is no file, want a shared library");
  refused("step " + ops + "my_scaler_none.so", 2, "got a library without the function ampcheck_loop_v1");
  refused("scaler " + ops + "my_loop_NONE.so", 2, "got a library without the function ampcheck_scaler_v1");
}

}  // namespace
}  // namespace ampcheck::testing
