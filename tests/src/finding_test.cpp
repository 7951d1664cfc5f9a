// SPDX-License-Identifier: Apache-2.0
#include "src/finding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/error.h"

namespace ampcheck {
namespace {

using Kind = CheckId::Kind;

/// One of each kind, with all that its text may say.
std::vector<CheckId> one_of_each() {
  return {{Kind::backward, "dx"},
          {.kind = Kind::backward, .tensor = "dx", .probe = 0},
          {.kind = Kind::backward, .tensor = "dx", .probe = 0, .at_saved = true},
          {Kind::batch_invariance, "y"},
          {Kind::bias, "y"},
          {.kind = Kind::bias_untested, .dim = "D"},
          {Kind::call},
          {Kind::correlation, "y"},
          {Kind::forward, "y"},
          {Kind::guards, "x"},
          {Kind::homogeneity, "dx"},
          {Kind::inputs_unchanged, "x"},
          {Kind::jvp, "y.tangent"},
          {Kind::jvp_product},
          {Kind::loss_scale},
          {Kind::poison, "y"},
          {Kind::printed},
          {Kind::range, "dx"},
          {.kind = Kind::range, .tensor = "dx", .loss_scale = -15},
          {Kind::repeats, "y"},
          {Kind::row_independence, "y"},
          {.kind = Kind::simulated, .dim = "race"},
          {Kind::written, "y"}};
}

TEST(CheckIds, PrintWhatTheyAreAbout) {
  std::vector<std::string> texts;
  for (const CheckId& id : one_of_each()) texts.push_back(name(id));
  EXPECT_EQ(texts, (std::vector<std::string>{"backward dx",
                                             "backward dx probe 0",
                                             "backward dx probe 0 at saved",
                                             "batch_invariance y",
                                             "bias y",
                                             "bias along D",
                                             "call",
                                             "correlation y",
                                             "forward y",
                                             "guards x",
                                             "homogeneity dx",
                                             "inputs unchanged x",
                                             "jvp y.tangent",
                                             "jvp dot product",
                                             "loss scale",
                                             "poison y",
                                             "printed",
                                             "range dx",
                                             "range dx at loss scale 2^-15",
                                             "repeats y",
                                             "row_independence y",
                                             "simulated race",
                                             "written y"}));
}

TEST(CheckIds, AreOrderedByKindAsTheirTextsAre) {
  const std::vector<CheckId> all = one_of_each();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_FALSE(all[i - 1] == all[i]) << i;
    const CheckId a{all[i - 1].kind}, b{all[i].kind};  // their first words alone
    EXPECT_EQ(a < b, name(a) < name(b)) << name(a) << ", " << name(b);
  }
}

TEST(CheckIds, ASubjectIsTheSameForAllProbes) {
  CheckResult first, second;
  first.id = {.kind = Kind::backward, .tensor = "dx", .probe = 0};
  second.id = {.kind = Kind::backward, .tensor = "dx", .probe = 2, .at_saved = true};
  EXPECT_EQ(subject_of(first), subject_of(second));
  EXPECT_EQ(ampcheck::name(subject_of(second)), "backward dx");
  second.id.tensor = "dy";
  EXPECT_FALSE(subject_of(first) == subject_of(second));
}

TEST(Codes, EachHasItsNameAndOneRowOfTheTable) {
  std::vector<std::string> names;
  for (const CodeText& text : code_texts()) {
    EXPECT_EQ(&text_of(text.code), &text);
    EXPECT_EQ(read_code(text.name), text.code);
    EXPECT_STREQ(name(text.code), text.name);
    names.push_back(text.name);
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_STREQ(name(Code::none), "");
  EXPECT_EQ(read_code(""), Code::none);
}

TEST(Codes, ANameThatNoneHasIsRefused) {
  for (const char* text : {"AC100", "AC1010", "ac101", "AC", " "}) {
    EXPECT_EQ(find_code(text), nullptr) << text;
    EXPECT_THROW(read_code(text), Error) << text;
  }
}

TEST(Codes, GroupsAreThoseOfTheirNames) {
  for (const CodeText& text : code_texts()) {
    const std::string name = text.name;
    EXPECT_EQ(is_contract_departure(text.code), name.starts_with("AC3")) << name;
    EXPECT_EQ(is_contract_departure(text.code), text.verdict == Verdict::precision_contract) << name;
    EXPECT_EQ(is_wrong_number(text.code), name == "AC101" || name == "AC102") << name;
    EXPECT_EQ(is_stray_write(text.code), name == "AC402" || name == "AC403") << name;
  }
  EXPECT_FALSE(is_contract_departure(Code::none) || is_wrong_number(Code::none) || is_stray_write(Code::none));
}

}  // namespace
}  // namespace ampcheck
