// SPDX-License-Identifier: Apache-2.0
// -o FORMAT:FILE: each command writes what was asked for, or says which formats it has.
#include "tools/choose/report_formats.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::tools {
namespace {

using testing::ampcheck;
using testing::contains;
using testing::ProgramResult;
using testing::TemporaryFolder;

const std::string kDump =
    "check --formula rms_norm --dump " + tests::in_data_root("/tests/data/tensors/rms_norm.safetensors");

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What a file of each format begins with.
bool looks_like(const std::string& format, const std::string& text) {
  if (format == "json") return text.starts_with("{");
  if (format == "junit") return text.starts_with("<?xml");
  return format == "lines" && (text.starts_with("pass\t") || text.starts_with("fail\t") || text.starts_with("skip\t"));
}

/// The mistake that was made: lines of a dump came out as JUnit.
TEST(ReportFormats, EveryCommandWritesTheFormatThatWasAskedFor) {
  const TemporaryFolder folder;
  for (const std::string& command : {std::string("check 'relu(x=fp32[2,3],seed=1)'"), kDump}) {
    std::string line = command;
    for (const char* format : {"lines", "json", "junit"})
      line += " -o " + std::string(format) + ":" + folder.path() + "/" + format;
    const ProgramResult run = ampcheck(line);
    EXPECT_EQ(run.exit_code, 0) << line << run.out << run.err;
    for (const char* format : {"lines", "json", "junit"}) {
      const std::string text = read(folder.path() + "/" + format);
      EXPECT_TRUE(looks_like(format, text)) << line << "\n" << text.substr(0, 200);
      for (const char* other : {"lines", "json", "junit"})
        EXPECT_EQ(looks_like(other, text), std::string(other) == format) << other;
    }
  }
}

TEST(ReportFormats, WhatACommandHasNotIsRefusedWithWhatItHas) {
  for (const auto& [arguments, words] :
       {std::pair{kDump + " -o line:x", "got 'line' (did you mean 'lines'?), want json, junit, lines"},
        {std::string("trace x -o junit:x"), "got 'junit', which is a format of check, want html, csv, json"},
        {std::string("check relu -o xml:x"), "got 'xml' (did you mean 'junit'?), want json"},
        {std::string("check relu -o md:x"), "got 'md' (did you mean 'markdown'?), want json"},
        {std::string("trace x -o xml:x"), "got 'xml' (did you mean 'html'?), want html, csv, json"},
        {std::string("check relu -o json:a -o junit:./a"), "want a file of its own for each report"}}) {
    const ProgramResult run = ampcheck(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_TRUE(contains(run.err, words)) << arguments << "\n" << run.err;
    EXPECT_TRUE(run.out.empty()) << run.out;
  }
}

/// A name stands once for each kind of report: the table decides, and nothing else.
TEST(ReportFormats, TheTableHasNoNameTwice) {
  for (const ReportFormat& a : report_formats())
    for (const ReportFormat& b : report_formats())
      EXPECT_EQ(std::string(a.name) == b.name && a.writer.index() == b.writer.index(), &a == &b) << a.name;
}

/// Names of one file, some of which is not there yet: the second report was all that was left of two.
TEST(ReportFormats, TwoNamesOfOneFileAreSeen) {
  const TemporaryFolder folder;
  const std::string at = folder.path() + "/";
  std::filesystem::create_directory(at + "d");
  std::filesystem::create_symlink("d", at + "e");
  std::filesystem::create_symlink("new", at + "link");
  std::filesystem::create_symlink("link", at + "link_of_a_link");
  std::filesystem::create_symlink(at + "d/../new", at + "from_root");
  for (const auto& [one, other] : {std::pair{"new", "link"},
                                   {"link", "link_of_a_link"},
                                   {"from_root", "new"},
                                   {"d/x", "e/x"},
                                   {"d/../new", "new"}}) {
    for (const std::string& second :
         {" -o junit:" + at + other, " --journal " + at + other, " --run-file " + at + other}) {
      const ProgramResult run = ampcheck("check relu --shapes first --dtype fp32 -o json:" + at + one + second);
      EXPECT_EQ(run.exit_code, 2) << one << second << run.err;
      EXPECT_TRUE(contains(run.err, "want a file of its own for each")) << run.err;
      EXPECT_FALSE(std::filesystem::exists(at + "new") || std::filesystem::exists(at + "d/x")) << one << second;
    }
  }
  EXPECT_EQ(
      ampcheck("check relu --shapes first --dtype fp32 -o json:" + at + "link -o junit:" + at + "d/new").exit_code, 0);
  EXPECT_TRUE(read(at + "new").starts_with("{") && read(at + "d/new").starts_with("<?xml"));
}

}  // namespace
}  // namespace ampcheck::tools
