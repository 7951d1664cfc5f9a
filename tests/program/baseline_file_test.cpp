// SPDX-License-Identifier: Apache-2.0
// Files of baselines as somebody may leave them: cut, with bytes changed, or made to harm.
#include "tools/gate/baseline.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "tests/support/run_program.h"
#include "tools/gate/history.h"
#include "tools/gate/measured.h"

namespace ampcheck::tools {
namespace {

using testing::TemporaryFolder;

Baseline example() {
  Baseline out;
  out.op = "a/../\"b";
  out.settings = "regimes quick";
  out.accepted = {"2026-01-31", "line\nbreak", "A <a@b>", "00ff", {}};
  out.measured = {"0.2.0", "GCC: (x) 12", "a processor", "ff00", "libb.so"};
  out.history = {{"2025-01-31", "first", "", "", {{"y", 0.1}}}};
  out.waivers = {{Code::ac301, "2026-12-31", "issue 7"}};
  out.findings = {{Code::ac101, 3, "a(x=fp32[1])", "a(x=fp32[0])", "why", 2}};
  StoredCase& stored = out.cases["a(x=fp32[1])"];
  stored.inputs = "00ff";
  stored.bits["cpu-x86_64"]["y"] = "aa";
  checks::TensorProfile& y = stored.tensors["y"];
  y.elements = 7;
  y.max = 0.1;
  y.rms = 1e-300;
  y.bias = -0.0;
  y.histogram = {{-3, 2}, {4, 1}};
  y.worst = {{"[0]", 1, 2, 16}};
  return out;
}

std::string text_of(const Baseline& baseline) { return diffable_text(json_of(baseline)); }

TEST(BaselineFile, ComesBackToTheBit) {
  const TemporaryFolder folder;
  const std::string path = baseline_path(folder.path(), "a/../\"b");
  EXPECT_EQ(path, folder.path() + "/a%2F..%2F%22b.json") << "no name leads out of the folder";
  write_baseline(path, example());
  Baseline back = read_baseline(path);
  EXPECT_EQ(back.cases.begin()->second.tensors.at("y").histogram,
            example().cases.begin()->second.tensors.at("y").histogram);
  back.cases.begin()->second.tensors.at("y").worst = example().cases.begin()->second.tensors.at("y").worst;
  EXPECT_EQ(text_of(back), text_of(example()));
}

TEST(BaselineFile, KeepsTwentyStatesOfItsHistory) {
  Baseline state = example();
  for (int i = 0; i < 30; ++i) {
    Baseline next = example();
    next.accepted.reason = std::to_string(i);
    remember(state, next);
    state = next;
  }
  ASSERT_EQ(state.history.size(), 20u);
  EXPECT_EQ(state.history.back().reason, "28");
  EXPECT_EQ(state.history.back().largest, (std::map<std::string, double>{{"y", 0.1}}));
  Baseline first, pending;
  remember(pending, first);
  EXPECT_TRUE(first.history.empty()) << "nobody accepted what was before";
}

TEST(BaselineFile, TheCompilerOfALibraryIsReadFromItsBytes) {
  using namespace std::string_view_literals;
  EXPECT_EQ(compiler_named_in("\x7f ELF\0GCC: (Debian 12.2.0-14) 12.2.0\0.text"sv), "GCC: (Debian 12.2.0-14) 12.2.0");
  EXPECT_EQ(compiler_named_in("clang version \1 x\0Debian clang version 14.0.6\0"sv), "clang version 14.0.6");
  EXPECT_EQ(compiler_named_in("GCC: ("), "");
  EXPECT_EQ(compiler_named_in(""), "");
}

TEST(BaselineFile, NamesOfFilesStayApartAndInside) {
  EXPECT_EQ(baseline_path("d", ".."), "d/%2E..json");
  EXPECT_EQ(baseline_path("d", ".hidden"), "d/%2Ehidden.json");
  EXPECT_NE(baseline_path("d", "a.pending"), pending_path("d", "a"));
  EXPECT_NE(baseline_path("d", "a%2F"), baseline_path("d", "a/"));
}

/// Read, or refused as what it is: nothing else.
void expect_read_or_refused(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  try {
    read_baseline(path);
  } catch (const ForeignFileError& error) {
    EXPECT_FALSE(std::string(error.what()).empty());
  }
}

TEST(BaselineFile, WhateverStandsInItIsReadOrRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.json", text = text_of(example());
  for (std::size_t end = 0; end < text.size(); end += 3) expect_read_or_refused(path, text.substr(0, end));
  std::mt19937_64 random(1);
  for (int k = 0; k < 3000; ++k) {
    std::string changed = text;
    for (int n = 0; n < 1 + k % 4; ++n) changed[random() % changed.size()] = static_cast<char>(random());
    expect_read_or_refused(path, changed);
  }
  for (const char* bad :
       {"[]", "null", "1", "\"a\"", "{}", "{\"schema\":null}", "{\"schema\":\"ampcheck.baseline/1\"}"}) {
    std::ofstream(path) << bad;
    EXPECT_THROW(read_baseline(path), ForeignFileError) << bad;
  }
  for (const std::string& deep : {std::string(100'000, '['), std::string(100'000, '{')}) {
    std::ofstream(path) << deep;
    EXPECT_THROW(read_baseline(path), ForeignFileError);
  }
}

TEST(BaselineFile, IsReadAsAnyJsonIs) {
  const std::string texts[] = {text_of(example()),
                               "[]",
                               "{}",
                               "null",
                               " 1e3 ",
                               "-7",
                               "18446744073709551615",
                               "\"\\u00e9\"",
                               "[[],{},[{\"a\":[1,2,{\"b\":null}]}],true,\"x\"]",
                               "{\"a\":{\"a\":1},\"b\":[{\"a\":2},{\"a\":3}]}",
                               std::string(64, '[') + std::string(64, ']')};
  for (const std::string& text : texts) EXPECT_EQ(parse_json(text, "a.json"), nlohmann::json::parse(text)) << text;
}

TEST(BaselineFile, WhatAValueWouldHideIsRefused) {
  const auto said = [](const std::string& text) -> std::string {
    try {
      parse_json(text, "a.json");
    } catch (const ForeignFileError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said("{\"a\":{\"b\":1,\"c\":2,\"b\":1}}"), "['a.json'] got 'b' twice");
  EXPECT_EQ(said("[{\"x\":[]},{\"x\":[],\"x\":{}}]"), "['a.json'] got 'x' twice");
  EXPECT_EQ(said(std::string(65, '[') + std::string(65, ']')), "['a.json'] got more than 64 levels");
  for (const char* const text : {"", "{", "[1,]", "{\"a\"}", "1 2", "1e999", "\"\xff\"", "{}x"})
    EXPECT_TRUE(said(text).starts_with("['a.json'] is no JSON: ")) << text << "\n" << said(text);
}

/// A baseline of so many cases that a look at all of them for each would be seen.
TEST(BaselineFile, TimeGrowsAsTheFileDoes) {
  const auto seconds = [](int cases) {
    std::string text = "{";
    for (int i = 0; i < cases; ++i)
      text += (i == 0 ? "" : ",") + ("\"" + std::to_string(i)) + "\":{\"a\":{},\"b\":[{}]}";
    text += "}";
    double best = 1e30;
    for (int k = 0; k < 3; ++k) {
      const std::clock_t start = std::clock();
      parse_json(text, "a.json");
      best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return best;
  };
  const double few = seconds(2'000), many = seconds(40'000);
  EXPECT_LT(many, 20 * 6 * (few + 0.001))
      << few << " s and " << many << " s; with looks at all it is 400 times as long";
}

}  // namespace
}  // namespace ampcheck::tools
