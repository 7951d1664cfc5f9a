// SPDX-License-Identifier: Apache-2.0
// What a person who reviews a pending state is told.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/gated_repository.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

/// A chain was accepted, and eight lanes err less: until they are accepted, a chain would pass again.
TEST_F(Gate, WhatBecameBetterIsProposed) {
  const std::string cases = "--seeds 5 --dtype fp32";  // enough of them to tell
  const auto gate_now = [&](const std::string& change) {
    use(change);
    run("gate ./gated_sum.so --baseline base " + cases);
  };
  const auto accept_all = [&] { return run("accept --baseline base --reason 'as measured'").exit_code; };
  gate_now("one_chain");
  ASSERT_EQ(accept_all(), 0);
  gate_now("none");
  const ProgramResult better = run("review --tighten --baseline base");
  EXPECT_EQ(better.exit_code, 0) << better.out << better.err;
  EXPECT_TRUE(contains(better.out, "gated_sum: better than accepted")) << better.out;
  EXPECT_TRUE(contains(better.out, "  y was worse: ")) << better.out;
  EXPECT_TRUE(contains(better.out, "ampcheck accept gated_sum --baseline base --reason TEXT")) << better.out;
  EXPECT_EQ(json::parse(run("review --baseline base --json -o markdown:better.md").out)["ops"][0]["better"].size(), 1u);
  EXPECT_TRUE(contains(read("better.md"), "- y was worse: ")) << read("better.md");
  EXPECT_TRUE(contains(read("better.md"), "accept gated\\_sum --baseline base --reason TEXT")) << read("better.md");
  ASSERT_EQ(accept_all(), 0);
  gate_now("one_chain");  // and back: whoever reviews it is told
  const ProgramResult back = run("review --baseline base -o markdown:worse.md");
  EXPECT_TRUE(contains(back.out, "\n  y is worse: ")) << back.out;
  EXPECT_TRUE(contains(read("worse.md"), "- y is worse: ")) << read("worse.md");
  const json both = json::parse(run("review --baseline base --json").out)["ops"][0];
  EXPECT_TRUE(both["worse"].size() == 1 && both["better"].empty()) << both;
  gate_now("reassociated");
  const ProgramResult other = run("review --baseline base");
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_FALSE(contains(other.out, "worse")) << other.out;
  const ProgramResult same = run("review --tighten --baseline base");
  EXPECT_EQ(same.exit_code, 4) << same.out << "errors of the same kind are no improvement";
}

/// Of a finding: the smallest case, the cause, and whether the usual test would have seen it.
TEST_F(Gate, ReviewSaysWhatAFindingIs) {
  accept_now();
  use("bf16_sum");
  gate();
  const ProgramResult review = run("review --baseline base -o markdown:review.md");
  for (const char* const words :
       {"\n  AC301: smallest case that fails 'gated_sum(x=", "\n  AC301: accumulates in bf16",
        "\n  AC301: torch.allclose, with the tolerances of torch.testing, would have seen it in "})
    EXPECT_TRUE(contains(review.out, words)) << words << review.out;
  EXPECT_TRUE(contains(read("review.md"), "- AC301: torch.allclose")) << read("review.md");
  const json finding = json::parse(read("base/gated_sum.json.pending"))["findings"][0];
  EXPECT_GT(finding["seen_by_allclose"], 0);
  EXPECT_LT(finding["seen_by_allclose"], finding["cases"]) << "some of its errors are inside that tolerance";
  use("dropped_tail");
  gate();
  EXPECT_TRUE(contains(run("review --baseline base").out, "would have seen it in each case"));
  const ProgramResult refused = run("accept --baseline base --reason 'looks fine'");  // all of it is said at once
  EXPECT_EQ(refused.exit_code, 1);
  const json pending = json::parse(read("base/gated_sum.json.pending"));
  EXPECT_FALSE(pending["findings"].empty());
  for (const json& finding : pending["findings"])
    EXPECT_TRUE(contains(refused.out, finding["code"].get<std::string>() + " in ")) << refused.out;
}

/// Where the pending file cannot be written, what was found is said all the same.
TEST_F(Gate, AFindingIsSaidWhereNothingCanBeLeftPending) {
  accept_now();
  use("dropped_tail");
  std::filesystem::create_directories(folder_.path() + "/base/gated_sum.json.pending/x");
  const ProgramResult broken = gate("--json -o junit:broken.xml");
  EXPECT_EQ(broken.exit_code, 8) << broken.out << broken.err;
  EXPECT_TRUE(contains(broken.err, "cannot write 'base/gated_sum.json.pending'")) << broken.err;
  EXPECT_EQ(json::parse(broken.out)["ops"][0]["verdict"], "FINDINGS") << broken.out;
  EXPECT_TRUE(contains(read("broken.xml"), "type=\"BUG AC101\"")) << read("broken.xml");
}

}  // namespace
}  // namespace ampcheck::testing
