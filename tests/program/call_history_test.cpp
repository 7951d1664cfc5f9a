// SPDX-License-Identifier: Apache-2.0
// Kernels that remember, or work on after they have returned, checked as a user does: in a process of their own.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

struct Remembering {
  const char* op;
  const char* code;  ///< empty for a right kernel
  const char* words;
};
void PrintTo(const Remembering& one, std::ostream* out) { *out << one.op; }

constexpr Remembering kOps[] = {
    {"kept_by_shape", "AC410", "kept by the shapes"},
    {"kept_by_address", "AC410", "kept by the addresses"},
    {"counts_calls", "AC410", "the same for the first 3000 calls"},
    {"writes_later", "AC411", "after the call has returned"},
    {"joins_its_thread", "", ""},
    {"kept_by_all_values", "", ""},
};

json checked(const std::string& words) {
  return json::parse(
      ampcheck("check " + tests::in_build("/custom_ops/remembering.so") + " " + words + " --regimes quick --json").out);
}

class CallHistory : public ::testing::TestWithParam<Remembering> {};
INSTANTIATE_TEST_SUITE_P(All, CallHistory, ::testing::ValuesIn(kOps),
                         [](const auto& info) { return std::string(info.param.op); });

TEST_P(CallHistory, IsNamedAndHonestKernelsAreNot) {
  const json report = checked(GetParam().op);
  EXPECT_GT(report["cases"].size(), 10u);
  int named = 0;
  for (const json& one : report["cases"]) {
    const std::string code = one.value("code", "");
    const bool fails = one["verdict"] != "ROUNDING" && one["verdict"] != "RANGE" && one["verdict"] != "EMPTY";
    EXPECT_TRUE(!fails || code == GetParam().code) << code << " in " << one["case"];
    for (const json& check : one["checks"])
      named += check.value("code", "") == GetParam().code && *GetParam().code != '\0' &&
               contains(check.value("cause", ""), GetParam().words);
  }
  EXPECT_EQ(named > 0, *GetParam().code != '\0') << report.dump(1).substr(0, 3000);
}

TEST(CallHistory, OfOneOpIsNotThatOfAnother) {  // threads of the first are at an end before the second is called
  const json report = checked("writes_later joins_its_thread");
  for (const json& one : report["cases"]) {
    if (one["op"] != "joins_its_thread") continue;
    EXPECT_NE(one["verdict"], "CRASH") << one["case"];
    EXPECT_NE(one["verdict"], "STRUCTURAL") << one["case"];
  }
}

}  // namespace
}  // namespace ampcheck::testing
