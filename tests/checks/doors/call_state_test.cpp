// SPDX-License-Identifier: Apache-2.0
#include "checks/doors/call_state.h"

#include <gtest/gtest.h>

#include <clocale>
#include <string>
#include <thread>

namespace ampcheck::checks {
namespace {

std::string locale_now() { return std::setlocale(LC_ALL, nullptr); }

TEST(CallState, NamesTheLocaleThatACallLeft) {
  const std::string before = locale_now();
  const CallState call;
  ASSERT_NE(std::setlocale(LC_ALL, "C.UTF-8"), nullptr);
  EXPECT_EQ(call.restore(), "the locale C.UTF-8");
  EXPECT_EQ(locale_now(), before);
  EXPECT_EQ(call.restore(), "");
}

// All threads of a process have one locale: the innocent call may be the first to see it changed, and the first to end.
TEST(CallState, ACallBesideAnotherIsNotBlamedForItsLocale) {
  const std::string before = locale_now();
  const CallState guilty;
  std::thread([&] {
    ASSERT_NE(std::setlocale(LC_ALL, "C.UTF-8"), nullptr);  // the guilty one's deed, before the other begins
    const CallState innocent;
    EXPECT_EQ(innocent.restore(), "");
    EXPECT_EQ(locale_now(), before) << "put back to what it was before both";
  }).join();
  EXPECT_EQ(guilty.restore(), "");
  ASSERT_NE(std::setlocale(LC_ALL, "C.UTF-8"), nullptr);
  EXPECT_EQ(guilty.restore(), "") << "another call ran meanwhile";
  EXPECT_EQ(locale_now(), before);
}

}  // namespace
}  // namespace ampcheck::checks
