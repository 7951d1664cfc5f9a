// SPDX-License-Identifier: Apache-2.0
// Scalers and training loops in shared libraries: right ones, broken ones, and libraries that are none.
#include "checks/scaler/library.h"

#include <gtest/gtest.h>

#include "checks/scaler/loop_checks.h"
#include "tests/support/paths.h"

namespace ampcheck::checks::scaler {
namespace {

std::string built(const std::string& name) { return tests::in_build("/custom_ops/" + name + ".so"); }

std::string found(const CallAudit& audit) {
  const CheckResult* head = audit.headline();
  return head == nullptr ? "none" : std::string(head->check->code) + " " + head->says;
}

struct Planted {
  const char* fault;
  const char* code;
};

TEST(LibraryScaler, TheRightOnePassesAndFaultsAreFoundByTheirCode) {
  for (const Planted& planted : {Planted{"none", "none"},
                                 {"divides_by_half", "S13"},
                                 {"last_unchecked", "S7"},
                                 {"unscales_twice", "S14"},
                                 {"state_without_count", "S18"},
                                 {"grows_late", "S1"},
                                 {"not_finite", "S2"}}) {
    const auto scaler = library_scaler(built(std::string("my_scaler_") + planted.fault));
    const std::string got = found(audit_calls(*scaler, scale_rule("torch"), 5));
    EXPECT_TRUE(got.starts_with(planted.code)) << planted.fault << ": " << got;
  }
}

TEST(LibraryScaler, RefusalsCarryTheirReason) {
  const auto scaler = library_scaler(built("my_scaler_none"));
  const Call unscale{Op::unscale};
  const std::vector<Reply> got = scaler->run({}, std::span(&unscale, 1));
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(got[0].error);
  EXPECT_EQ(got[0].text, "unscale before scale");
}

TEST(LibraryLoop, TheRightOnePassesAndFaultsAreFoundByTheirCode) {
  for (const Planted& planted :
       {Planted{"NONE", "none"}, {"CLIPS_SCALED", "L15"}, {"COUNTS_SKIPS", "L7"}, {"SAVES_NO_MOMENTS", "L19"}}) {
    const auto loop = library_loop(built(std::string("my_loop_") + planted.fault));
    const std::string got = found(audit_loop(*loop, scale_rule("torch")));
    EXPECT_TRUE(got.starts_with(planted.code)) << planted.fault << ": " << got;
  }
}

template <class Error>
std::string refusal(const std::string& path) {
  try {
    library_scaler(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LibraryScaler, WhatIsNoneIsSaid) {
  EXPECT_EQ(refusal<EnvironmentError>("no_such.so"),
            "[scaler] got 'no_such.so', which is no file, want a shared library");
  const std::string loop = built("my_loop_NONE");
  EXPECT_EQ(refusal<LibraryError>(loop), "[" + loop +
                                             "] got a library without the function ampcheck_scaler_v1, want one built "
                                             "with ampcheck/ampcheck_scaler.h");
  EXPECT_TRUE(refusal<EnvironmentError>(tests::in_source("/README.md")).starts_with("[scaler] got "));
}

}  // namespace
}  // namespace ampcheck::checks::scaler
