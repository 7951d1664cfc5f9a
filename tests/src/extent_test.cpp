// SPDX-License-Identifier: Apache-2.0
#include "src/extent.h"

#include <gtest/gtest.h>

#include "src/error.h"

namespace ampcheck {
namespace {

using Texts = std::vector<std::string>;

Attributes with_k(double k) {
  Attributes out;
  out.set("k", k);
  return out;
}

std::string refusal(const std::string& extent) {
  try {
    names_in_extent(extent);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Extent, ListsAreDividedAtBlanksThatAreNotBesideAnOperator) {
  EXPECT_EQ(extents_in("N D/2"), (Texts{"N", "D/2"}));
  EXPECT_EQ(extents_in("  N\tD / 2 k "), (Texts{"N", "D/2", "k"}));
  EXPECT_EQ(extents_in("n n"), (Texts{"n", "n"}));
  EXPECT_EQ(extents_in("(N + 1) * 2 D"), (Texts{"(N+1)*2", "D"}));
  EXPECT_EQ(extents_in("(N D)"), (Texts{"(ND)"}));
  EXPECT_EQ(extents_in("#64 #64"), (Texts{"#64", "#64"}));
  EXPECT_EQ(extents_in(" "), Texts{});
}

TEST(Extent, ValuesRoundDownAndLeaveOutWhatHasNone) {
  const Dims dims = {{"N", 5}, {"D", 7}, {"#64", 64}};
  const Attributes k = with_k(3);
  EXPECT_EQ(extent_value("D", dims, k), 7);
  EXPECT_EQ(extent_value("#64", dims, k), 64);
  EXPECT_EQ(extent_value("D/2", dims, k), 3);
  EXPECT_EQ(extent_value("(0-D)/2", dims, k), -4);
  EXPECT_EQ(extent_value("-D/2", dims, k), -4);
  EXPECT_EQ(extent_value("2*N+D/k-1", dims, k), 11);
  EXPECT_EQ(extent_value("k", dims, k), 3);
  EXPECT_EQ(extent_value("k", dims, with_k(2.5)), std::nullopt);
  EXPECT_EQ(extent_value("D/k", dims, with_k(0)), std::nullopt);
  EXPECT_EQ(extent_value("E", dims, k), std::nullopt);
  EXPECT_EQ(extent_value("D*1099511627776*2", dims, k), std::nullopt);
  EXPECT_TRUE(extents_exist({"D/2", "k"}, dims, k));
  EXPECT_FALSE(extents_exist({"D/2", "N-D"}, dims, k));
  EXPECT_EQ(extent_origin("D/k", dims, k), "D/k of D=7, k=3");
  EXPECT_EQ(extent_origin("k", dims, k), "k=3");
  EXPECT_EQ(extent_origin("D", dims, k), "");
}

TEST(Extent, WhatIsNoneIsRefusedWithItsPlace) {
  EXPECT_EQ(names_in_extent("D/2+D*k"), (Texts{"D", "k"}));
  EXPECT_EQ(refusal("D/"), "got the end, want a symbol, an attribute or a whole number, behind 'D/'");
  EXPECT_EQ(refusal("D//2"), "got '/', want a symbol, an attribute or a whole number, behind 'D/'");
  EXPECT_EQ(refusal("(D"), "got the end, want ')', behind '(D'");
  EXPECT_EQ(refusal("D)"), "got ')', want an operator or the end, behind 'D'");
  EXPECT_EQ(refusal("D/2.5"), "got '2.5', want a whole number up to 2^40, behind 'D/'");
  EXPECT_EQ(refusal("2D"), "got '2D', want a whole number up to 2^40");
  EXPECT_EQ(refusal("9999999999999999999999"), "got '9999999999999999999999', want a whole number up to 2^40");
  EXPECT_NE(refusal(std::string(100, '(')).find("nested deeper than 64"), std::string::npos);
  EXPECT_NE(refusal(std::string(100, '-') + "D").find("nested deeper than 64"), std::string::npos);
}

}  // namespace
}  // namespace ampcheck
