// SPDX-License-Identifier: Apache-2.0
// Maps of wrong elements: each lies in its bin, and a fault in the last row shows there and nowhere else, whatever
// process judged it.
#include "src/error_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck {
namespace {

using nlohmann::json;
using testing::contains;

TEST(ErrorMaps, EachElementLiesInItsBin) {
  const ElementOutside some[] = {{0, INFINITY}, {34, 1}, {33, 16}, {26, 17}, {19, 300}, {12, 70'000}, {34, 0.5}};
  const ErrorMap small = error_map({5, 7}, some);
  EXPECT_EQ(small.levels,
            "5000000"
            "0000050"
            "0000040"
            "0000030"
            "0000021");
  EXPECT_TRUE(is_whole(small));
  const ElementOutside corners[] = {{0, 1}, {64, 3}, {99 * 65, 20}, {100 * 65 - 1, 1000}};
  const ErrorMap large = error_map({10, 10, 65}, corners);
  EXPECT_EQ(std::tie(large.rows, large.columns, large.bin_rows, large.bin_columns), std::tuple(100, 65, 32, 32));
  EXPECT_EQ(large.levels[0], '1');
  EXPECT_EQ(large.levels[31], '2');
  EXPECT_EQ(large.levels[31 * 32], '3');
  EXPECT_EQ(large.levels[32 * 32 - 1], '4');
  EXPECT_EQ(std::ranges::count(large.levels, '0'), 32 * 32 - 4);
  const ElementOutside one[] = {{0, NAN}};
  EXPECT_EQ(error_map({}, one).levels, "5");
  EXPECT_EQ(error_map({3}, one).levels, "500");
}

TEST(ErrorMaps, WhatIsNoneIsRefused) {
  const ElementOutside one[] = {{0, 1}};
  const ErrorMap right = error_map({5, 7}, one);
  for (const auto change :
       {+[](ErrorMap& m) { m.levels += '0'; }, +[](ErrorMap& m) { m.levels[3] = '6'; },
        +[](ErrorMap& m) { m.bin_rows = 4; }, +[](ErrorMap& m) { m.rows = -5; }, +[](ErrorMap& m) { m.columns = 0; }}) {
    ErrorMap wrong = right;
    change(wrong);
    EXPECT_FALSE(is_whole(wrong));
  }
}

/// The maps of a check's JSON, by case and check.
std::map<std::string, json> maps_of(const std::string& arguments) {
  const testing::ProgramResult run = testing::ampcheck("check " + arguments + " --regimes quick --dtype fp32 --json");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  std::map<std::string, json> out;
  const json report = json::parse(run.out);
  for (const json& c : report.at("cases"))
    for (const json& check : c.at("checks")) {
      if (check.contains("map"))
        out[c.at("case").get<std::string>() + " " + check.at("name").get<std::string>()] = check.at("map");
      EXPECT_FALSE(check.contains("map") && check.at("failed") == 0) << check;
    }
  return out;
}

TEST(ErrorMaps, AFaultInTheLastRowShowsThereAlone) {
  const std::map<std::string, json> maps = maps_of("gelu.stale_last_row");
  EXPECT_GT(maps.size(), 3u);
  for (const auto& [check, map] : maps) {
    const std::string levels = map.at("levels");
    const auto columns = map.at("bin_columns").get<std::size_t>();
    EXPECT_NE(levels.find_first_not_of('0'), std::string::npos) << check;
    EXPECT_GE(levels.find_first_not_of('0'), levels.size() - columns) << check << map;
  }
}

TEST(ErrorMaps, OfAWorkerAreThoseOfOneProcess) {
  const std::string library = tests::in_build("/custom_ops/gated_sum_dropped_tail.so");
  const std::map<std::string, json> here = maps_of(library + " --isolation none");
  EXPECT_GT(here.size(), 3u);
  EXPECT_EQ(maps_of(library), here);
}

}  // namespace
}  // namespace ampcheck
