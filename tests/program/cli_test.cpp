// SPDX-License-Identifier: Apache-2.0
// The program as a user and as a CI job see it: exit codes, streams, formats, interruption.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "checks/define/op_def.h"
#include "src/finding.h"
#include "src/npy.h"
#include "src/tensor_file.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

constexpr const char* kQuick = "--regimes quick --shapes first --dtype bf16";

TEST(Cli, ACleanOpPasses) {
  const ProgramResult run = ampcheck(std::string("check add softmax ") + kQuick);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "All clear")) << run.out;
  EXPECT_TRUE(contains(run.out, "ROUNDING"));
  EXPECT_TRUE(run.err.empty()) << "no progress off a terminal: " << run.err;
}

TEST(Cli, APlantedFaultIsFoundAndItsLinesReproduceIt) {
  const ProgramResult run = ampcheck(std::string("check softmax.dropped_tail ") + kQuick);
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  const std::size_t again = run.out.find("ampcheck replay '");
  ASSERT_NE(again, std::string::npos) << run.out;
  const std::string line = run.out.substr(again + 9, run.out.find('\n', again) - again - 9);
  const ProgramResult replayed = ampcheck(line);
  EXPECT_EQ(replayed.exit_code, 1) << line << replayed.out << replayed.err;
  EXPECT_TRUE(contains(run.out, "ampcheck explain AC"));
}

TEST(Cli, AFailureHasAtMostTwelveLines) {
  const ProgramResult run = ampcheck(std::string("check softmax.sign ") + kQuick);
  const std::size_t start = run.out.find("\nBUG  AC101");
  ASSERT_NE(start, std::string::npos) << run.out;
  const std::string block = run.out.substr(start + 1, run.out.find("\n\n", start + 1) - start);
  EXPECT_LE(std::count(block.begin(), block.end(), '\n'), 12) << block;
  for (const char* word : {"case    '", "got ", "want ", "ulp", "where", "again", "why"})
    EXPECT_TRUE(contains(block, word)) << word << block;
}

TEST(Cli, CheckJsonKeepsItsSchema) {
  const ProgramResult run = ampcheck(std::string("check softmax.sign add --json ") + kQuick);
  EXPECT_EQ(run.exit_code, 1);
  const json out = json::parse(run.out);
  EXPECT_EQ(out.at("schema"), "ampcheck.check/1");
  const json& summary = out.at("summary");
  for (const char* key : {"cases", "passed", "failed", "skipped", "elements", "blind", "unusual"})
    EXPECT_TRUE(summary.at(key).is_number_integer()) << key;
  EXPECT_EQ(summary.at("cases"), out.at("cases").size());
  EXPECT_EQ(summary.at("cases").get<int>(),
            summary.at("passed").get<int>() + summary.at("failed").get<int>() + summary.at("skipped").get<int>());
  std::int64_t judged = 0, related = 0;  // relations compare bits of two runs: no interval, no element that was judged
  for (const json& item : out.at("cases"))
    for (const json& check : item.at("checks")) {
      const std::string name = check.at("name");
      (name.starts_with("forward ") || name.starts_with("backward ") ? judged : related) +=
          check.at("compared").get<std::int64_t>();
    }
  EXPECT_EQ(summary.at("elements").get<std::int64_t>(), judged);
  EXPECT_GT(judged, 0);
  EXPECT_GT(related, 0);
  std::size_t worst_seen = 0;
  for (const json& item : out.at("cases")) {
    for (const char* key : {"case", "op", "verdict", "code"}) EXPECT_TRUE(item.at(key).is_string()) << key;
    for (const json& check : item.at("checks")) {
      for (const char* key : {"compared", "blind", "unusual"}) EXPECT_TRUE(check.at(key).is_number_integer()) << key;
      EXPECT_FALSE(check.at("max_ratio").is_null());
      for (const json& element : check.at("worst")) {
        ++worst_seen;
        EXPECT_TRUE(element.at("index").is_array());
        for (const char* key : {"got", "want", "got_bits", "want_bits", "interval_from"})
          EXPECT_TRUE(element.at(key).is_string()) << key;
        EXPECT_EQ(element.at("interval").size(), 2u);
        EXPECT_EQ(element.at("got_bits").get<std::string>().size(), 6u);  // bf16: 0x and four digits
      }
    }
  }
  EXPECT_GT(worst_seen, 0u);
  EXPECT_FALSE(contains(run.out, "null")) << "a bare NaN or infinity would be null";
}

TEST(Cli, TrainTakesANetByItsNameAsTheOtherCommandsDo) {
  const ProgramResult word = ampcheck("train conv --steps 1 --shadow off --json");
  EXPECT_EQ(word.exit_code, 0) << word.err;
  EXPECT_TRUE(contains(word.out, "\"model\": \"conv\"")) << word.out.substr(0, 300);
}

TEST(Cli, UsageErrorsAreTwoAndNameTheNearestWord) {
  const struct {
    const char *arguments, *wanted;
  } kErrors[] = {
      {"check sotfmax", "did you mean 'softmax'?"},
      {"chekc", "did you mean 'check'?"},
      {"check --dtyp fp32", "got unknown option '--dtyp' (did you mean '--dtype'?); ampcheck check --help"},
      {"check --dtype fp23", "got 'fp23' (did you mean 'fp32'?), want fp32"},
      {"check 'softmax(x=fp32[3,4],rnage=wide)'", "did you mean 'range'?"},
      {"check 'softmax(x=fp32[3,4],range=confidnt)'", "did you mean 'confident'?"},
      {"check 'softmax(x=fp32[3])'", "too few extents"},
      {"check --seeds -3", "want a whole number"},
      {"check add --seeds 1000000", "[check] --seeds, got 1000000, which makes more than 2,000,000 cases, want fewer"},
      {"check --shapes first,", "want"},
      {"check relu --real only --shapes N=3", "[--shapes] got shapes beside '--real only'"},
      {"check --shapes 64,8", "or extents of your own as N=64,D=1025"},
      {"check softmax add --shapes rosw=64", "[--shapes] got 'rosw', want a dimension of what is selected: N, D"},
      {"list 'soft*' --cases --shapes n=64",
       "[--shapes] got 'n' (did you mean 'N'?), want a dimension of what is selected: N, D"},
      {"check -o jsno:x", "did you mean 'json'?"},
      {"check -o json", "want FORMAT:FILE"},
      {"explain AC1011", "did you mean 'AC101'"},
      {"formats 0.1.2", "want a number"},
      {"formats --format bf61", "did you mean 'bf16'?"},
      {"replay", "CASE"},
      {"version extra", "no further argument"},
      {"", "got no command"},
      {"check relu --memory x", "want a size, as 8GB or 500MB"},
      {"check relu --memory 0", "want a size, as 8GB or 500MB"},
      {"check relu --time-budget 0", "[--time-budget] got '0'"},
      {"train mlpp", "[train] got 'mlpp', want mlp, conv, transformer, tutorial or a net's FILE.toml"},
      {"train mlp --model conv", "[--model] got 'conv' beside 'mlp', want one of them"},
      {"train nothing.toml", "got no 'nothing.toml'"},
      {"train --scaler tourch", "[--scaler] got 'tourch' (did you mean 'torch'?), want "},
  };
  for (const auto& error : kErrors) {
    const ProgramResult run = ampcheck(error.arguments);
    EXPECT_EQ(run.exit_code, 2) << error.arguments << "\n" << run.out << run.err;
    EXPECT_TRUE(contains(run.err, error.wanted)) << error.arguments << "\n" << run.err;
    EXPECT_FALSE(contains(run.err, "?,")) << run.err;
    EXPECT_TRUE(run.out.empty()) << error.arguments;
  }
}

TEST(Cli, NothingSelectedIsFour) {
  EXPECT_EQ(ampcheck("check 'no_such*'").exit_code, 4);
  EXPECT_EQ(ampcheck("check 'softmax(x=bf16[2,3],seed=1)' --dtype fp32").exit_code, 4);
  const ProgramResult run = ampcheck("check 'no_such*' --json");
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_EQ(json::parse(run.out).at("summary").at("cases"), 0);
  const ProgramResult undeclared = ampcheck("check linear --dtype e4m3fn");
  EXPECT_EQ(undeclared.exit_code, 4);
  EXPECT_TRUE(contains(undeclared.err, "linear is not declared for e4m3fn, but for fp32, fp16, bf16"))
      << undeclared.err;
  EXPECT_FALSE(contains(ampcheck("check 'relu(x=fp32[2,3],seed=1)' --dtype bf16").err, "not declared"));
}

TEST(Cli, HelpIsNoErrorWhereverItStands) {
  for (const char* const arguments :
       {"new op --help", "new --help", "contract --help", "compare a.so --help", "replay --help"}) {
    const ProgramResult run = ampcheck(arguments);
    EXPECT_EQ(run.exit_code, 0) << arguments << run.err;
    EXPECT_TRUE(contains(run.out, "Usage: ampcheck")) << arguments << run.out;
  }
  const ProgramResult nameless = ampcheck("new op");
  EXPECT_EQ(nameless.exit_code, 2);
  EXPECT_TRUE(contains(nameless.err, "want op NAME")) << nameless.err;
}

TEST(Cli, ExtentsOutsideAnOpsDomainAreTold) {
  const std::string rope =
      "check " + tests::in_build("/custom_ops/rope.so") + " rope --regimes quick --dtype fp32 --shapes ";
  const ProgramResult run = ampcheck(rope + "S=3,D=7");
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_TRUE(contains(run.err, "rope takes no D = 7, the nearest that it takes: 6 and 8")) << run.err;
  EXPECT_EQ(ampcheck(rope + "S=3,D=8").exit_code, 0);
}

TEST(Cli, AMissingDeviceIsSix) {
  const json doctor = json::parse(ampcheck("doctor --json").out);
  if (doctor.at("cuda").at("usable").get<bool>()) GTEST_SKIP() << "this machine has a CUDA device";
  for (const std::string verb : {"check add", "replay 'add(x=fp32[2,3],seed=1)'", "train --steps 1"}) {
    const ProgramResult run = ampcheck(verb + " --device cuda");
    EXPECT_EQ(run.exit_code, 6) << run.err;
    EXPECT_TRUE(contains(run.err, doctor.at("cuda").at("reason").get<std::string>())) << run.err;
  }
}

TEST(Cli, AFullDiskIsEight) {
  EXPECT_EQ(ampcheck("list > /dev/full").exit_code, 8);
  EXPECT_EQ(ampcheck("formats --json > /dev/full").exit_code, 8);
  EXPECT_EQ(ampcheck(std::string("check add -o json:/dev/full ") + kQuick).exit_code, 8);
  const ProgramResult both = ampcheck(std::string("check softmax.sign -o junit:/dev/full ") + kQuick);
  EXPECT_EQ(both.exit_code, 8) << "an output that is missing outranks a finding";
  EXPECT_TRUE(contains(both.out, "BUG")) << "the other outputs are still written";
  EXPECT_EQ(ampcheck("check add -o json:/nonexistent/folder/x.json").exit_code, 8);
}

TEST(Cli, AClosedPipeIsEight) {
  const ProgramResult run = shell("(sleep 0.3; $AMPCHECK list; echo $? >&2) | true");
  EXPECT_TRUE(contains(run.err, "Broken pipe")) << run.err;
  EXPECT_TRUE(contains(run.err, "\n8\n")) << run.err;
}

TEST(Cli, FilesAreWrittenWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/check.json";
  ASSERT_EQ(
      ampcheck(std::string("check add -o json:'") + file + "' -o 'junit:" + folder.path() + "/check.xml' " + kQuick)
          .exit_code,
      0);
  EXPECT_EQ(json::parse(read_text(file)).at("schema"), "ampcheck.check/1");
  EXPECT_TRUE(contains(read_text(folder.path() + "/check.xml"), "<testsuites name=\"ampcheck\""));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 2u) << "no temporary file stays";
}

TEST(Cli, ColoursOnlyOnATerminalWithoutNoColor) {
  if (shell("command -v script").exit_code != 0) GTEST_SKIP() << "no 'script' program to make a terminal";
  if (shell("script -qec true /dev/null").exit_code != 0)
    GTEST_SKIP() << "'script' can make no terminal here (no /dev/pts)";
  const auto on_terminal = [](const std::string& environment) {
    return shell("export TERM=xterm; " + environment + " script -qec \"$AMPCHECK list\" /dev/null").out;
  };
  EXPECT_TRUE(contains(on_terminal(""), "\x1b[1m"));
  EXPECT_FALSE(contains(on_terminal("NO_COLOR=1"), "\x1b["));
  EXPECT_TRUE(contains(on_terminal("NO_COLOR="), "\x1b[1m")) << "an empty NO_COLOR does not count";
  EXPECT_FALSE(contains(ampcheck("list", "TERM=xterm").out, "\x1b["));
}

TEST(Cli, AnInterruptEndsWithinASecondWithASummary) {
  for (const std::string signal : {"INT", "TERM"}) {
    const ProgramResult run = shell(
        "$AMPCHECK check softmax add --regimes all --seeds 100 & pid=$!\n"
        "(sleep 60; kill -9 $pid) & keeper=$!; sleep 2\n"
        "start=$(date +%s%N); kill -" +
        signal +
        " $pid; wait $pid; code=$?; kill $keeper\n"
        "echo took $(( ($(date +%s%N) - start) / 1000000 )) >&2; exit $code");
    EXPECT_EQ(run.exit_code, signal == "INT" ? 130 : 143) << run.out << run.err;
    EXPECT_TRUE(contains(run.out, "Interrupted after ")) << run.out.substr(0, 2000);
    const std::size_t took = run.err.find("took ");
    ASSERT_NE(took, std::string::npos) << run.err;
    EXPECT_LT(std::stoi(run.err.substr(took + 5)), 1500) << "one second, and slack for a busy machine";
  }
}

TEST(Cli, AnInterruptedTrainingSaysWhatItDid) {
  const TemporaryFolder folder;
  const ProgramResult run = shell(
      "$AMPCHECK train --model mlp --steps 100000 --record '" + folder.path() + "/trace' --save '" + folder.path() +
      "/at.safetensors' & pid=$!\n"
      "(sleep 60; kill -9 $pid) & keeper=$!; sleep 2; kill -INT $pid; wait $pid; code=$?; kill $keeper; exit $code");
  EXPECT_EQ(run.exit_code, 130) << run.err;
  EXPECT_TRUE(contains(run.err, "interrupted after ")) << run.err;
  EXPECT_TRUE(contains(run.out, "The fp16 run ")) << "the summary of the steps that were done";
  EXPECT_EQ(ampcheck("trace '" + folder.path() + "/trace'").exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/at.safetensors"));
}

TEST(Cli, AnInterruptedZooPrintsTheScoreSoFar) {
  const ProgramResult run = shell(
      "$AMPCHECK audit zoo --dtype bf16 & pid=$!\n"
      "(sleep 60; kill -9 $pid) & keeper=$!; sleep 4; kill -INT $pid; wait $pid; code=$?; kill $keeper; exit $code");
  EXPECT_EQ(run.exit_code, 130) << run.err;
  EXPECT_TRUE(contains(run.err, "interrupted after ")) << run.err;
  EXPECT_LT(run.seconds, 15) << "a long case does not hold it up";
  const bool slow = contains(run.err, "interrupted after 0 runs");  // a sanitizer's build, on a busy machine
  EXPECT_TRUE(slow || contains(run.out, "torch allclose")) << run.out;
}

TEST(Cli, CertifyAndReplaySayWhatAnInterruptCutOff) {
  const ProgramResult certify = shell(
      "$AMPCHECK certify --json --samples 100000 & pid=$!\n(sleep 60; kill -9 $pid) & keeper=$!; sleep 1; kill -INT "
      "$pid; wait $pid; code=$?; kill $keeper; exit $code");
  EXPECT_EQ(certify.exit_code, 130) << certify.err;
  EXPECT_TRUE(contains(certify.err, "interrupted after ") &&
              contains(certify.err, " of " + std::to_string(checks::all_ops().size()) + " ops"))
      << certify.err;
  const json report = json::parse(certify.out);
  EXPECT_TRUE(report.at("interrupted") == true && report.at("certified") == false) << "what was not certified is not";
  const ProgramResult replay = shell(
      "$AMPCHECK replay 'softmax(x=bf16[3000,4097],seed=1)' -j 1 & pid=$!\n(sleep 60; kill -9 $pid) & keeper=$!; sleep "
      "1; kill -INT $pid; wait $pid; code=$?; kill $keeper; exit $code");
  EXPECT_EQ(replay.exit_code, 130) << replay.err;
  EXPECT_TRUE(contains(replay.err, "interrupted before the case was judged")) << replay.err;
}

TEST(Cli, ALongCaseDoesNotHoldUpTheEnd) {
  const TemporaryFolder folder;
  const ProgramResult run = shell("$AMPCHECK check 'softmax(x=bf16[3000,4097],seed=1)' -j 1 -o 'json:" + folder.path() +
                                  "/check.json' & pid=$!\n"
                                  "sleep 1; kill -INT $pid; wait $pid");
  EXPECT_EQ(run.exit_code, 130) << run.out << run.err;
  EXPECT_LT(run.seconds, 3) << "the case itself takes longer";
  EXPECT_TRUE(contains(run.out, "Interrupted after 0 of 1 cases")) << run.out;
  EXPECT_EQ(json::parse(read_text(folder.path() + "/check.json")).at("summary").at("interrupted"), true);
}

TEST(Cli, ReplaySavesWhatItJudged) {
  const TemporaryFolder folder;
  const std::string name = "softmax(x=bf16[2,9],seed=3)";
  const ProgramResult run = ampcheck("replay '" + name + "' --save '" + folder.path() + "/tensors'");
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const json about = json::parse(read_text(folder.path() + "/tensors/case.json"));
  EXPECT_EQ(about.at("case"), name);
  std::set<std::string> names;
  for (const json& tensor : about.at("tensors")) {
    names.insert(tensor.at("tensor").get<std::string>());
    const NpyArray array = read_npy(folder.path() + "/tensors/" + tensor.at("file").get<std::string>());
    EXPECT_EQ(array.shape, Shape({2, 9}));
  }
  for (const char* tensor : {"x", "dy", "y.got", "y.want", "y.low", "y.high", "dx.got", "dx.want", "dx.low", "dx.high"})
    EXPECT_TRUE(names.contains(tensor)) << tensor;
  const NpyArray got = read_npy(folder.path() + "/tensors/y.got.npy"),
                 low = read_npy(folder.path() + "/tensors/y.low.npy"),
                 high = read_npy(folder.path() + "/tensors/y.high.npy");
  for (std::size_t i = 0; i < got.values.size(); ++i)
    EXPECT_TRUE(low.values[i] <= got.values[i] && got.values[i] <= high.values[i]);
  EXPECT_EQ(ampcheck("replay '" + name + "' --save /proc/nothing").exit_code, 8);
  for (const std::string file : {"t.safetensors", "t.npz"}) {
    const ProgramResult one = ampcheck("replay '" + name + "' --save '" + folder.path() + "/" + file + "'");
    ASSERT_EQ(one.exit_code, 0) << one.out << one.err;
    const TensorFile tensors = read_tensors(folder.path() + "/" + file);
    std::set<std::string> found;
    for (const NamedTensor& tensor : tensors.tensors) found.insert(tensor.name);
    EXPECT_EQ(found, names) << file;
    EXPECT_EQ(to_doubles(tensors.find("y.got")->view()), got.values) << file;
    EXPECT_EQ(tensors.find("x")->dtype(), file == "t.npz" ? Dtype::fp32 : Dtype::bf16) << "NumPy has no bf16";
  }
}

TEST(Cli, FormatsKnowValuesByHeart) {
  const json out = json::parse(ampcheck("formats --json 0.1 65520 -inf -0x1p-149 nan", "LC_ALL=de_DE.UTF-8").out);
  const auto made = [&](std::size_t value, const std::string& format) {
    for (const json& row : out.at("values").at(value).at("formats"))
      if (row.at("format") == format) return row;
    return json();
  };
  EXPECT_EQ(made(0, "bf16").at("bits"), "0x3dcd");
  EXPECT_EQ(made(0, "fp16").at("bits"), "0x2e66");
  EXPECT_EQ(made(0, "fp32").at("bits"), "0x3dcccccd");
  EXPECT_EQ(made(0, "fp64").at("bits"), "0x3fb999999999999a");
  EXPECT_EQ(made(0, "fp64").at("ulp"), 0.0);
  EXPECT_EQ(made(1, "fp16").at("bits"), "0x7c00") << "65520 is the first number that overflows fp16";
  EXPECT_EQ(made(1, "fp16").at("ulp"), "inf");
  EXPECT_EQ(made(2, "bf16").at("bits"), "0xff80");
  EXPECT_EQ(made(2, "e4m3fn").at("value"), "-nan");
  EXPECT_EQ(made(3, "fp32").at("bits"), "0x80000001");
  EXPECT_EQ(made(4, "fp16").at("bits"), "0x7e00");
  const json facts = json::parse(ampcheck("formats --json").out).at("formats");
  EXPECT_GE(facts.size(), 15u);
  for (const json& format : facts)
    if (format.at("name") == "fp16") {
      EXPECT_EQ(format.at("max_finite"), "0x1.ffcp+15");
    }
}

TEST(Cli, PrintedNamesWithPartsAndLayoutsReRun) {
  for (const char* name : {"div(x=fp32[5,7],range=scale-64.rest,seed=1)", "add(x=bf16[3,5],layout=last2:dx,seed=1)",
                           "softmax(x=fp16[5,7],cotangent=ones,layout=expanded:dy,seed=2)"}) {
    const ProgramResult run = ampcheck("replay '" + std::string(name) + "'");
    EXPECT_EQ(run.exit_code, 0) << name << run.err;
  }
  EXPECT_EQ(ampcheck("replay 'add(x=bf16[3,5],layout=last2:dq,seed=1)'").exit_code, 2);
  EXPECT_EQ(ampcheck("replay 'add(x=bf16[3,5],range=nomal,seed=1)'").exit_code, 2);
}

TEST(Cli, ASetOfCasesSaysWhatItLeavesOut) {
  const std::string quick = ampcheck("check softmax add --regimes quick").out;
  EXPECT_NE(quick.find("note: --regimes quick runs "), std::string::npos) << quick;
  EXPECT_NE(quick.find(" cases of --regimes standard and may miss what only the rest shows: data "), std::string::npos)
      << quick;
  EXPECT_NE(quick.find("neg_inf_rows"), std::string::npos) << quick;
  EXPECT_EQ(ampcheck("check add").out.find("may miss"), std::string::npos);
  EXPECT_NE(ampcheck("check add --verbose").out.find(" cases of --regimes all and may miss"), std::string::npos);
  for (const char* all : {"check add --regimes all", "check 'add(x=fp32[2,3],seed=1)' --regimes quick"})
    EXPECT_EQ(ampcheck(all).out.find("may miss"), std::string::npos) << all;
}

TEST(Cli, AReplayShowsWhichErrorsWouldBeSeen) {
  const ProgramResult run = ampcheck("replay 'softmax(x=bf16[5,67],seed=1)'");
  EXPECT_NE(run.out.find("  0.1 %    1 %   10 %  100 %"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("    0 %  100 %  100 %  100 %"), std::string::npos) << "half an ulp of bf16 is 0.2 to 0.4 %\n"
                                                                             << run.out;
  const ProgramResult blind = ampcheck("replay 'softmax(x=fp32[5,67],range=near_max,seed=1)'");
  EXPECT_NE(blind.out.find("AC202  every element is blind here; 100 % of it would be judged at 'softmax("),
            std::string::npos)
      << blind.out;
}

TEST(Cli, CertifyPrintsDigits) {
  const ProgramResult run = ampcheck("certify softmax --json");
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const json out = json::parse(run.out);
  EXPECT_GE(out.at("digits").get<double>(), 25);
  EXPECT_EQ(out.at("ops").at(0).at("op"), "softmax");
  EXPECT_NEAR(out.at("ops").at(0).at("error_ratio").get<double>(), 4, 1e-3);
}

TEST(Cli, CertifyCoversTheVariants) {
  const json out = json::parse(ampcheck("certify layer_norm embedding --samples 4 --json").out).at("ops");
  const json& norm = out.at(0).at("variants");
  EXPECT_EQ(norm.size(), 16u);  // four eps, weight and bias given or not
  EXPECT_EQ(norm.at(0).at("variant"), "");
  double worst = 1000;
  std::set<std::string> names;
  for (const json& variant : norm) {
    worst = std::min(worst, variant.at("digits").get<double>());
    names.insert(variant.at("variant"));
    EXPECT_GT(variant.at("points").get<int>(), variant.at("flat").get<int>());
  }
  EXPECT_TRUE(names.contains("weight=none,bias=none,eps=1e-12"));
  EXPECT_EQ(out.at(0).at("digits").get<double>(), worst);
  EXPECT_EQ(out.at(1).at("conventions"), json({"rows of weight at padding_idx"}));
  const ProgramResult text = ampcheck("certify layer_norm embedding --samples 4");
  EXPECT_TRUE(contains(text.out, "in each of 16 variants (weight given or not, bias given or not, 4 values of eps)"))
      << text.out;
  EXPECT_TRUE(contains(text.out,
                       "by convention without gradient, held fixed while differencing: rows of weight at padding_idx"))
      << text.out;
  // The certificate of `check` is the same one.
  const json checked =
      json::parse(ampcheck(std::string("check embedding --json ") + kQuick).out).at("certificates").at(0);
  EXPECT_EQ(checked.at("variants"), 2);
  EXPECT_EQ(checked.at("conventions").size(), 1u);
  EXPECT_GE(checked.at("digits").get<double>(), 25);
}

TEST(Cli, ListStartsAtOnceAndNamesRunAgain) {
  const ProgramResult run = ampcheck("list");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_TRUE(contains(run.out, "softmax"));
  const json ops = json::parse(ampcheck("list --json").out).at("ops");
  EXPECT_GE(ops.size(), 2u);
  const json cases = json::parse(ampcheck(std::string("list --cases softmax --json ") + kQuick).out).at("cases");
  ASSERT_FALSE(cases.empty());
  const std::set<std::string> unique(cases.begin(), cases.end());
  EXPECT_EQ(unique.size(), cases.size());
  const json again =
      json::parse(ampcheck("list --cases --json '" + cases.back().get<std::string>() + "'").out).at("cases");
  EXPECT_EQ(again, json::array({cases.back()}));
}

TEST(Cli, PatternsReachCaseNames) {
  const json cases = json::parse(ampcheck("list --cases --json 'softmax(x=bf16*range=c*'").out).at("cases");
  ASSERT_FALSE(cases.empty());
  for (const json& name : cases) EXPECT_TRUE(name.get<std::string>().starts_with("softmax(x=bf16")) << name;
}

TEST(Cli, APatternWithADotReachesThePlantedFaults) {
  const json faults = json::parse(ampcheck("list --planted --json softmax").out).at("ops");
  ASSERT_GE(faults.size(), 5u);
  for (const json& fault : faults) EXPECT_TRUE(fault.at("op").get<std::string>().starts_with("softmax.")) << fault;
  const ProgramResult run = ampcheck("check 'softmax.s*' --dtype bf16 --shapes first --json");
  EXPECT_EQ(run.exit_code, 1);
  std::set<std::string> judged;
  const json cases = json::parse(run.out).at("cases");
  for (const json& one : cases) judged.insert(one.at("op").get<std::string>());
  // All that list --planted shows of that name: planted faults, and kernels of the zoo.
  std::set<std::string> meant;
  for (const json& fault : faults)
    if (const std::string name = fault.at("op"); name.starts_with("softmax.s")) meant.insert(name);
  EXPECT_EQ(judged, meant);
  EXPECT_TRUE(meant.contains("softmax.sign") && meant.size() > 2) << meant.size();
  const ProgramResult norms = ampcheck("list --cases 'layer_norm.*' --dtype fp32 --shapes first --regimes quick");
  EXPECT_EQ(norms.exit_code, 0) << norms.err;
  EXPECT_TRUE(contains(norms.out, "layer_norm.eps_missing(")) << norms.out.substr(0, 400);
  EXPECT_EQ(ampcheck("list --planted no_such").exit_code, 4);
  // The zoo's kernels are among them, defects and correct ones, by name too.
  const json all = json::parse(ampcheck("list --planted --json").out).at("ops"),
             one = json::parse(ampcheck("list --planted --json add.truncates").out).at("ops");
  EXPECT_GT(all.size(), 370u);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one.at(0).at("due"), "PRECISION_CONTRACT");
  EXPECT_EQ(one.at(0).at("defect_class"), 29);
  const std::string text = ampcheck("list --planted add").out;
  EXPECT_TRUE(contains(text, "add.truncates") && contains(text, "  PRECISION_CONTRACT  stores toward zero") &&
              contains(text, "  correct  "))
      << text;
}

TEST(Cli, NoReportReplacesAnotherOrALink) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/out", same = folder.path() + "/./out", link = folder.path() + "/link";
  const ProgramResult both = ampcheck("check add --dtype bf16 --shapes first -o json:" + file + " -o junit:" + same);
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_TRUE(contains(both.err, "want a file of its own for each report")) << both.err;
  EXPECT_FALSE(std::filesystem::exists(file)) << "nothing was run";
  std::filesystem::create_symlink(file, link);
  EXPECT_EQ(ampcheck("check add --dtype bf16 --shapes first -o json:" + link + " -o junit:" + folder.path() + "/other")
                .exit_code,
            0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(json::parse(read_text(file)).at("schema"), "ampcheck.check/1");
}

TEST(Cli, AttributesOutsideTheirDomainAreUsageErrors) {
  for (const char* name :
       {"sum(x=bf16[2,2],axis=7)", "mean(x=bf16[2,2],axis=nan)",
        "conv2d(x=bf16[1,1,4,4],weight=bf16[1,1,3,3],stride=1.5)", "attention(q=bf16[1,1,2,2],causal=2)",
        "cross_entropy(x=bf16[2,2],label_smoothing=inf)", "max_pool2d(x=bf16[1,1,4,4],kernel=1.5)"}) {
    const ProgramResult run = ampcheck(std::string("check '") + name + "'");
    EXPECT_EQ(run.exit_code, 2) << name << run.out << run.err;
    EXPECT_FALSE(contains(run.err, "error of ampcheck itself")) << run.err;
  }
  EXPECT_EQ(ampcheck("check 'sum(x=bf16[2,2],axis=0)' 'cross_entropy(x=bf16[2,2],label_smoothing=0.25)'").exit_code, 0);
}

TEST(Cli, WhatNobodyJudgedIsSaid) {
  const std::string blind = "'sum.without_last(x=bf16[2,65537],seed=1)'";
  EXPECT_TRUE(contains(ampcheck("check " + blind).out,
                       "note: sum.without_last forward y: every interval would accept both 0 and twice the value, so "
                       "it was not judged (AC202)"))
      << "all of it is blind";
  EXPECT_FALSE(contains(ampcheck("check 'sum(x=bf16[5,7],seed=1)'").out, "it was not judged"));
  const ProgramResult none = ampcheck("check softmax --dtype bf16 --shapes N=0,D=0");
  EXPECT_TRUE(contains(none.out, "Nothing to judge: ")) << none.out;
  EXPECT_FALSE(contains(none.out, "All clear"));
}

TEST(Cli, TheJudgesOwnWantOfMemoryConvictsNobody) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer reserves more memory than the test allows";
  const ProgramResult run =
      ampcheck("check 'softmax(x=fp32[2048,4096],seed=1)' --jobs 1 --memory 100GB", "ulimit -v 600000;");
  EXPECT_EQ(run.exit_code, 4) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "SKIPPED")) << run.out;
  EXPECT_FALSE(contains(run.out, "CRASH")) << run.out;
}

TEST(Cli, ExplainDoctorVersionSpeakJson) {
  EXPECT_EQ(json::parse(ampcheck("explain AC101 --json").out).at("codes").at(0).at("verdict"), "BUG");
  EXPECT_GE(json::parse(ampcheck("explain --json").out).at("codes").size(), 10u);
  EXPECT_TRUE(contains(ampcheck("explain ac101").out, "What to do"));
  for (const CodeText& code : code_texts()) {  // each page has an example, which shows that code
    const std::string page = ampcheck(std::string("explain ") + code.name).out;
    const std::size_t example = page.find("  Example, ");
    ASSERT_NE(example, std::string::npos) << page;
    EXPECT_TRUE(contains(page.substr(example), std::string(" ") + code.name)) << page;
    if (code.example == nullptr) continue;  // of a library: those tests compare it with what that prints
    // Every line of it is one that replay prints.
    const std::string replayed = ampcheck(std::string("replay '") + code.example + "'").out;
    std::istringstream lines(page.substr(page.find('\n', example) + 1));
    int shown = 0;
    for (std::string line; std::getline(lines, line); ++shown)
      EXPECT_TRUE(contains("\n" + replayed, "\n" + line.substr(std::min<std::size_t>(2, line.size())) + "\n"))
          << code.name << ": " << line << "\n"
          << replayed;
    EXPECT_GE(shown, 4) << page;
  }
  EXPECT_TRUE(json::parse(ampcheck("doctor --json").out).contains("cuda"));
  EXPECT_TRUE(json::parse(ampcheck("version --json").out).contains("version"));
  EXPECT_TRUE(ampcheck("--version").out.starts_with("ampcheck "));
  EXPECT_EQ(ampcheck("check --help").exit_code, 0);
}

}  // namespace
}  // namespace ampcheck::testing
