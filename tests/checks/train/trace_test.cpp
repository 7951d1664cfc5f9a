// SPDX-License-Identifier: Apache-2.0
// `ampcheck trace` as a user sees it, the trace file, and checkpoints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "checks/train/checkpoint.h"
#include "checks/train/fault_ring.h"
#include "tests/support/paths.h"
#include "tests/support/trace_file_test.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;
using tools::read_trace;
using tools::Trace;

TEST_F(TraceFile, HoldsEveryTensorOfEveryStepInOrder) {
  const Trace trace = read_trace(record("--dtype fp16"));
  EXPECT_EQ(trace.model, "mlp");
  ASSERT_EQ(trace.steps.size(), 6u);
  std::set<std::string> phases;
  int step = 0, seq = -1;
  for (const auto& t : trace.tensors) {
    if (t.step != step) {
      step = t.step;
      seq = -1;
    }
    EXPECT_EQ(t.seq, ++seq);
    phases.insert(t.phase);
    std::int64_t counted = t.zero + t.inf + t.nan;
    for (const std::int64_t n : t.exponents) counted += n;
    EXPECT_EQ(counted, t.elements) << t.name();
    EXPECT_TRUE(t.phase != "backward" || t.op != "linear_1" || t.cast || t.dtype == Dtype::fp16) << t.name();
    EXPECT_TRUE(t.phase != "optimizer" || t.intended > 0) << t.op;
  }
  EXPECT_EQ(phases, (std::set<std::string>{"forward", "backward", "unscale", "optimizer"}));
}

TEST_F(TraceFile, SamplingLeavesOutStepsAndOps) {
  const Trace trace = read_trace(record("--every 2 --from 2 --ops 'linear_*'"));
  ASSERT_EQ(trace.steps.size(), 6u) << "the loss of every step stays";
  std::set<int> steps;
  for (const auto& t : trace.tensors) {
    EXPECT_TRUE(t.op.starts_with("linear_")) << t.op;
    steps.insert(t.step);
  }
  EXPECT_EQ(steps, (std::set<int>{1, 3, 5}));
}

TEST_F(TraceFile, ALongRunIsSampledUnlessToldOtherwise) {
  const std::string path = folder_.path() + "/run.trace",
                    common = "train --shadow off --batch 4 --ops linear_1 --record " + path + " --steps ";
  const auto steps = [&](const std::string& arguments) {
    EXPECT_EQ(ampcheck(common + arguments).exit_code, 0);
    std::set<int> out;
    for (const auto& t : read_trace(path).tensors) out.insert(t.step);
    return out;
  };
  EXPECT_EQ(steps("101"), (std::set<int>{0, 50, 100}));
  EXPECT_EQ(steps("101 --every 1").size(), 101u);
  EXPECT_EQ(steps("100").size(), 100u) << "a short run is recorded whole";
}

/// Lines of tensors of some steps, with the length and the checksum of their statistics, wherever these stand.
std::string tensor_lines(const std::string& path, int first, int last) {
  std::ifstream file(path);
  std::string out;
  for (std::string line; std::getline(file, line);) {
    json j = json::parse(line);
    if (!j.contains("seq") || j["step"] < first || j["step"] > last) continue;
    j["at"].erase(0);
    out += j.dump() + "\n";
  }
  return out;
}

TEST_F(TraceFile, ASampledRunHasTheStepsBeforeAFaultWhole) {
  struct Case {
    const char* arguments;
    int fault;
  };  // the step, by the reason: the loss leaves the fp64 run, is not finite, all is skipped
  for (const Case& c :
       {Case{"--shadow both --scaler none --optimizer adam --lr 0.003 --loss-weight 1e-6 --steps 12", 10},
        Case{"--shadow off --scaler none --lr 8 --batch 16 --steps 7", 5},
        Case{"--shadow off --init-scale 1e30 --steps 9 --batch 8 --ops 'linear_*'", 7}}) {
    const std::string common = std::string("train ") + c.arguments + " --record " + folder_.path();
    const ProgramResult all = ampcheck(common + "/all.trace"),
                        some = ampcheck(common + "/some.trace --every 50 --ring 3"),
                        none = ampcheck(common + "/none.trace --every 50 --ring 0");
    EXPECT_EQ(some.exit_code, all.exit_code) << some.err;
    const Trace trace = read_trace(folder_.path() + "/some.trace");
    std::set<int> steps;
    for (const auto& t : trace.tensors) steps.insert(t.step);
    EXPECT_EQ(steps, (std::set<int>{0, c.fault - 2, c.fault - 1, c.fault})) << c.arguments;
    EXPECT_EQ(trace.steps.size(), read_trace(folder_.path() + "/all.trace").steps.size());
    const std::string lines = tensor_lines(folder_.path() + "/some.trace", 0, 99);
    EXPECT_TRUE(lines == tensor_lines(folder_.path() + "/all.trace", 0, 0) +
                             tensor_lines(folder_.path() + "/all.trace", c.fault - 2, c.fault))
        << c.arguments;
    EXPECT_EQ(tensor_lines(folder_.path() + "/none.trace", 1, 99), "") << c.arguments;
  }
}

TEST_F(TraceFile, ATornLastLineCostsItsStepAlone) {
  const std::string path = record("--dtype bf16");
  const Trace whole = read_trace(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 20);
  const Trace torn = read_trace(path);
  EXPECT_TRUE(torn.torn);
  EXPECT_EQ(torn.steps.size(), whole.steps.size() - 1);
  EXPECT_EQ(torn.tensors.back().step, torn.steps.back().step);
  const ProgramResult shown = ampcheck("trace " + path);
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_TRUE(contains(shown.out, "5 of 6 steps")) << shown.out;
  std::ofstream(path, std::ios::app) << "\n{\"step\":5,\"seq\"\n";
  EXPECT_EQ(ampcheck("trace " + path).exit_code, 2) << "a broken line in the middle is an error";
}

TEST_F(TraceFile, IsShownAsTablesCsvJsonAndOnePage) {
  const std::string path = record("--dtype fp16 --scaler none"), page = folder_.path() + "/run.html";
  const ProgramResult text = ampcheck("trace " + path + " -o html:" + page);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* word :
       {"mlp in fp16, autocast cuda (torch 2.15.0), scaler none", "moves the loss, by its fp64 gradient", "gradient of",
        "Decisions by argmax of linear_3 (layer2) forward y", "linear_1 (layer0) backward dweight", "layer0.weight",
        "Casts in a forward pass: 1 fp16 to fp32, 7 fp32 to fp16",
        "cancels: of its inputs' accuracy, bits                      mean          most",
        "Casts in a backward pass: 6 fp16 to fp32, 1 fp32 to fp16; of the 19 tensors that it writes: 11 fp16, 8 fp32"})
    EXPECT_TRUE(contains(text.out, word)) << word << text.out;
  const std::string csv = ampcheck("trace --csv " + path).out;
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')), read_trace(path).tensors.size() + 1);
  EXPECT_TRUE(contains(csv.substr(0, csv.find('\n')),
                       ",rank,from,headroom,footroom,scale_low,scale_high,cancelled,most_cancelled,copy_stagnant,"
                       "second_moment_zero,epsilon_zero,gradient of layer0.weight,"));
  const json summary = json::parse(ampcheck("trace --json " + path).out);
  EXPECT_EQ(summary["schema"], "ampcheck.trace_summary/1");
  ASSERT_EQ(summary["gradient_error"].size(), 6u);
  for (const json& p : summary["gradient_error"]) {
    double shares = 0;
    for (const json& share : p["shares"]) shares += share["share"].get<double>();
    EXPECT_NEAR(shares, 1, 1e-12) << p["parameter"];
    EXPECT_GT(p["error"].get<double>(), 0);
  }
  const std::string html = read_text(page);
  for (const char* remote : {"http://", "https://", "src=", "<script", "@import", "url("})
    EXPECT_FALSE(contains(html, remote)) << "the page is whole by itself: " << remote;
  for (const char* part : {"<h2>Loss</h2>", "<h2>Gradients flushed to zero</h2>", "<h2>Headroom</h2>",
                           "<h2>Exponents</h2>", "Between the dashed lines no gradient loses anything"})
    EXPECT_TRUE(contains(html, part)) << part;
  const auto count = [&](const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = html.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count("<svg"), count("</svg>"));
  EXPECT_EQ(count("<rect"), count("<title>step") + count("</title></rect>"));
}

TEST_F(TraceFile, ATensorThatIsCastAgainAndAgainIsNamed) {
  const ProgramResult shown = ampcheck("trace " + record("--model transformer --dtype bf16 --shadow off"));
  EXPECT_TRUE(contains(shown.out, "one tensor cast to bf16 3 times: the input 'x' of linear_1, linear_2, linear_3"))
      << shown.out;
  for (const char* clean : {"", " --accumulate 2", " --ranks 2"}) {  // another micro-batch or rank is another pass
    const std::string out = ampcheck("trace " + record("--dtype bf16 --shadow off" + std::string(clean))).out;
    EXPECT_FALSE(contains(out, "one tensor cast")) << clean << out;
    EXPECT_TRUE(contains(out, "Casts in a forward pass: 1 bf16 to fp32, 7 fp32 to bf16\n")) << clean << out;
  }
}

TEST_F(TraceFile, AResumedRunHasTheSameBitsAndTheSameTrace) {
  const std::string at = folder_.path() + "/";
  const std::string common = "train --growth-interval 5 --accumulate 2 --clip-norm 0.5 --optimizer adam --lr 0.003 ";
  ampcheck(common + "--steps 6 --save " + at + "whole.st --record " + at + "whole.trace");
  ampcheck(common + "--steps 3 --save " + at + "half.st --record " + at + "half.trace");
  std::ofstream(at + "half.trace", std::ios::app) << "{\"step\":3,\"seq\":0,\"ph";  // the run died while writing
  EXPECT_LE(
      ampcheck(common + "--steps 6 --resume " + at + "half.st --save " + at + "rest.st --record " + at + "half.trace")
          .exit_code,
      1);
  EXPECT_FALSE(read_text(at + "whole.st").empty());
  EXPECT_EQ(read_text(at + "whole.st"), read_text(at + "rest.st"));
  const std::string whole = read_text(at + "whole.trace");
  std::string joined = read_text(at + "half.trace");
  const std::string longer =
      whole.substr(0, whole.find('\n') + 1);  // that it goes on for six steps stands where it does
  const std::size_t again = joined.find(longer);
  ASSERT_NE(again, std::string::npos);
  joined.erase(again, longer.size());
  EXPECT_EQ(whole.substr(whole.find('\n')), joined.substr(joined.find('\n')));
  EXPECT_TRUE(!read_text(at + "whole.trace.bin").empty() &&
              read_text(at + "whole.trace.bin") == read_text(at + "half.trace.bin"));
  EXPECT_TRUE(contains(ampcheck("trace " + at + "half.trace").out, ": 6 of 6 steps"));
  const ProgramResult other = ampcheck("train --steps 6 --resume " + at + "half.st");
  EXPECT_EQ(other.exit_code, 2) << other.err;
  EXPECT_TRUE(contains(other.err, "got a run with 'optimizer adam', want 'optimizer sgd'")) << other.err;
}

/// The lines below the verdict are of the steps since the checkpoint, and say so; a whole run's say nothing.
TEST_F(TraceFile, AResumedRunsSummarySaysOfWhichStepsItIs) {
  const std::string at = folder_.path() + "/", common = "train --init-scale 4194304 --steps ";
  const std::string whole = ampcheck(common + "6 --save " + at + "half.st").out,
                    rest = ampcheck(common + "9 --resume " + at + "half.st").out;
  const json all = json::parse(ampcheck(common + "9 --json").out),
             part = json::parse(ampcheck(common + "9 --json --resume " + at + "half.st").out);
  EXPECT_FALSE(contains(whole, "since the checkpoint"));
  EXPECT_TRUE(contains(whole, "\n  skipped ")) << whole;
  EXPECT_TRUE(contains(rest, "\nOf steps 7 to 9, run since the checkpoint, alone:\n  ")) << rest;
  const int skips = all["skips"];
  const auto now = part["skipped"].size();
  EXPECT_GT(skips, static_cast<int>(now));
  EXPECT_EQ(part["skips"], skips);
  EXPECT_TRUE(contains(
      rest, "\n  before  " + std::to_string(skips - static_cast<int>(now)) + " of steps 1 to 6 were skipped\n"))
      << rest;
  EXPECT_FALSE(contains(rest, "nothing was skipped")) << rest;
  EXPECT_EQ(part["of_steps"], json({6, 8}));
  EXPECT_EQ(all["of_steps"], json({0, 8}));
}

/// Its loss scale first, too large, then right: the run left the fp64 run's loss before it was saved, and has done so
/// when it goes on.
TEST_F(TraceFile, AResumedRunIsJudgedWhole) {
  const std::string at = folder_.path() + "/", common = "train --json --scaler megatron --init-scale 4194304 ";
  const ProgramResult whole = ampcheck(common + "--steps 20 --save " + at + "whole.st"),
                      half = ampcheck(common + "--steps 11 --save " + at + "half.st");
  const ProgramResult rest = ampcheck(common + "--steps 20 --save " + at + "rest.st --resume " + at + "half.st");
  EXPECT_EQ(whole.exit_code, 1);
  EXPECT_EQ(rest.exit_code, 1);
  const json a = json::parse(whole.out), b = json::parse(rest.out);
  EXPECT_LT(a["left_at"], 11);
  EXPECT_EQ(a["left_at"], b["left_at"]);
  EXPECT_TRUE(!read_text(at + "whole.st").empty() && read_text(at + "whole.st") == read_text(at + "rest.st"));
  const auto head = [&](const std::string& arguments) {
    const std::string out = ampcheck("train --scaler megatron --steps 20 " + arguments).out;
    const std::size_t from = out.find("\nThe fp16 run");
    return out.substr(from, out.find('\n', from + 1) - from);
  };
  EXPECT_EQ(head("--init-scale 4194304"), head("--init-scale 4194304 --resume " + at + "half.st"));
  EXPECT_TRUE(contains(head("--init-scale 4194304 --shadow off --resume " + at + "half.st"),
                       "diverged from the fp64 run at step"));
  ampcheck("train --scaler megatron --steps 11 --init-scale 65536 --save " + at + "stayed.st");
  EXPECT_EQ(head("--init-scale 65536"), head("--init-scale 65536 --resume " + at + "stayed.st"))
      << "how far apart it ever was";
}

TEST_F(TraceFile, ACheckpointGoesOnWithItsOwnSettingsAlone) {
  const std::string at = folder_.path() + "/";
  ASSERT_EQ(ampcheck("train --steps 2 --save " + at + "a.st").exit_code, 0);
  const std::string resume = "train --steps 3 --resume " + at + "a.st ";
  EXPECT_EQ(ampcheck(resume + "--batch 64 --loss cross_entropy --lr 0.1 --momentum 0.9 --weight-decay 0 --lr-schedule "
                              "constant --init-scale 65536 --growth-interval 2000")
                .exit_code,
            0)
      << "the defaults by their names";
  const struct {
    const char *arguments, *want;
  } cases[] = {
      {"--batch 32", "got a run with 'batch 64', want 'batch 32' as this one has"},
      {"--init-scale 1024", "got a run with 'init_scale 65536', want 'init_scale 1024' as this one has"},
      {"--growth-interval 7", "got a run with 'growth_interval 2000', want 'growth_interval 7' as this one has"},
      {"--weight-decay 0.1", "got a run with 'weight_decay 0', want 'weight_decay 0.1' as this one has"}};
  for (const auto& c : cases) {
    const ProgramResult run = ampcheck(resume + c.arguments);
    EXPECT_EQ(run.exit_code, 2) << c.arguments;
    EXPECT_TRUE(contains(run.err, c.want)) << run.err;
  }
  std::string text = read_text(at + "a.st");  // as earlier versions wrote it: no tensor of that name
  text.replace(text.find("\"format\""), 8, "\"farmat\"");
  std::ofstream(at + "a.st", std::ios::binary) << text;
  const ProgramResult old = ampcheck(resume);
  EXPECT_EQ(old.exit_code, 2);
  EXPECT_TRUE(contains(
      old.err, "got one of an earlier ampcheck, which does not say how the run stood, want ampcheck.checkpoint/2"))
      << old.err;
}

/// Steps that were meant: of the last part of a run, whether it came to its end or not.
TEST_F(TraceFile, AResumedTraceKnowsHowManyStepsAreMeant) {
  const std::string at = folder_.path() + "/", common = "train --shadow off --batch 4 --record " + at +
                                                        "run.trace --save " + at + "run.st --steps ";
  const auto shown = [&] { return ampcheck("trace " + at + "run.trace").out; };
  const auto heads = [&] {
    const std::string text = read_text(at + "run.trace");
    int n = 0;
    for (std::size_t i = 0; (i = text.find("{\"schema\"", i)) != std::string::npos; ++i) ++n;
    return n;
  };
  ASSERT_EQ(ampcheck(common + "3").exit_code, 0);
  std::filesystem::copy(at + "run.st", at + "three.st");
  ASSERT_EQ(ampcheck(common + "50 --resume " + at + "three.st").exit_code, 0);
  EXPECT_TRUE(contains(shown(), ": 50 of 50 steps"));
  EXPECT_EQ(heads(), 2);
  ASSERT_EQ(ampcheck(common + "60 --resume " + at + "three.st").exit_code, 0);
  EXPECT_EQ(heads(), 2) << "what is cut off is not left behind";
  ASSERT_EQ(ampcheck(common + "60 --resume " + at + "three.st").exit_code, 0);
  EXPECT_TRUE(contains(shown(), ": 60 of 60 steps"));
  const std::string text = read_text(at + "run.trace");  // cut off in its tenth step
  std::filesystem::resize_file(at + "run.trace", text.find("{\"step\":9,") + 40);
  EXPECT_TRUE(contains(shown(), ": 9 of 60 steps")) << shown();
  std::string old = text;  // as earlier versions wrote it: nothing but the first line
  old.erase(old.find("{\"schema\"", 1), old.find('\n', old.find("{\"schema\"", 1)) + 1 - old.find("{\"schema\"", 1));
  std::ofstream(at + "run.trace") << old;
  EXPECT_TRUE(contains(shown(), ": 60 of 60 steps")) << shown();
}

TEST_F(TraceFile, OutputsReplaceNoInputAndATraceGoesOnInItsOwnFileAlone) {
  const std::string at = folder_.path() + "/";
  const auto refused = [](const std::string& arguments, const char* want) {
    const ProgramResult run = ampcheck("train " + arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments << run.err;
    EXPECT_TRUE(contains(run.err, want)) << run.err;
  };
  std::ofstream(at + "net.toml") << "[[layers]]\ntype = 'linear'\n";
  const std::string net = read_text(at + "net.toml");
  refused(at + "net.toml --steps 1 --record " + at + "net.toml", "which is there and no trace");
  refused(at + "net.toml --steps 1 --save " + at + "./net.toml", "which is there and no checkpoint");
  refused("--steps 1 --save " + at + "one --record " + at + "one", "which is the trace");
  EXPECT_EQ(read_text(at + "net.toml"), net);
  ASSERT_EQ(ampcheck("train --steps 1 --save " + at + "a.st --record " + at + "a.trace").exit_code, 0);
  const std::string checkpoint = read_text(at + "a.st"), resume = "--steps 2 --resume " + at + "a.st --record " + at;
  std::ofstream(at + "notes") << "mine\n";
  refused(resume + "notes", "which is there and no trace");
  refused(resume + "a.st", "which is there and no trace");
  ASSERT_EQ(ampcheck("train --model conv --steps 1 --record " + at + "conv.trace").exit_code, 0);
  refused(resume + "conv.trace", "no trace of this run");
  EXPECT_EQ(read_text(at + "notes"), "mine\n");
  EXPECT_EQ(read_text(at + "a.st"), checkpoint);
  EXPECT_EQ(ampcheck("train " + resume + "a.trace --save " + at + "a.st").exit_code, 0)
      << "a checkpoint may follow itself";
  EXPECT_NE(read_text(at + "a.st"), checkpoint);
  refused(at, "got the folder");
}

TEST_F(TraceFile, ManyFaultsHaveTheirHeadingNamesTheirQuotesAndAnEmptyTraceItsWord) {
  const std::string shown = ampcheck("trace " + record("--lr 3000 --steps 60")).out;
  EXPECT_TRUE(contains(shown, "Non-finite values:\n  step 2")) << shown;
  EXPECT_TRUE(contains(shown, "more (--csv has all)")) << shown;
  std::ofstream(folder_.path() + "/net.toml") << "[[layers]]\ntype = 'linear'\nname = 'a,\"b\"'\n";
  const std::string csv = ampcheck("trace --csv " + record(folder_.path() + "/net.toml")).out;
  EXPECT_TRUE(contains(csv, ",\"a,\"\"b\"\"\",")) << csv.substr(0, 2000);
  const std::string ranks = ampcheck("trace --csv " + record("--ranks 2 --shadow off")).out;
  EXPECT_TRUE(contains(ranks, ",none,1,,")) << ranks.substr(0, 2000);
  record("--ops 'nope*'");
  EXPECT_TRUE(contains(run_.err, "the trace has no tensor")) << run_.err;
}

/// Rates of the updates, and of the fp64 run's; a scale so large that the first steps are skipped.
TEST_F(TraceFile, ALearningRateScheduleWaitsWhileStepsAreSkippedAndGoesOnAfterACheckpoint) {
  const std::string at = folder_.path() + "/",
                    common =
                        "train --json --lr 0.4 --lr-schedule step:2:0.5 --init-scale 2e6 --shadow carried --batch 8 ";
  const json whole = json::parse(ampcheck(common + "--steps 12 --save " + at + "whole.st").out);
  int updates = 0, skipped = 0;
  for (const json& step : whole["steps"]) {
    EXPECT_EQ(step["lr"].get<double>(), std::ldexp(0.4, -(updates / 2))) << step;
    updates += step["stepped"].get<bool>() ? 1 : 0;
    skipped += step["stepped"].get<bool>() ? 0 : 1;
  }
  EXPECT_GT(skipped, 1) << "the scale must come down first";
  EXPECT_GT(updates, 4);
  ampcheck(common + "--steps " + std::to_string(skipped + 3) + " --save " + at + "half.st");
  ampcheck(common + "--steps 12 --resume " + at + "half.st --save " + at + "rest.st");
  EXPECT_TRUE(!read_text(at + "whole.st").empty() && read_text(at + "whole.st") == read_text(at + "rest.st"));
  EXPECT_EQ(ampcheck("train --steps 12 --lr 0.4 --init-scale 2e6 --shadow carried --batch 8 --resume " + at + "half.st")
                .exit_code,
            2)
      << "another schedule";
  for (const char* wrong : {"stp:2", "step", "step:x", "step:2:3", "cosine:10:0.5x", "warmup:10:5", "step:0",
                            "step:2:nan", "cosine:10:nan", "cosine:10:inf"}) {
    const ProgramResult run = ampcheck("train --steps 1 --lr-schedule " + std::string(wrong));
    EXPECT_EQ(run.exit_code, 2) << wrong;
    EXPECT_TRUE(contains(run.err, "want")) << run.err;
  }
}

/// A fault that is not there when the steps are run again is no fault of the formats: nothing is written.
TEST_F(TraceFile, AStepThatComesOutDifferentTheSecondTimeIsToldApart) {
  using namespace checks::train;
  const std::string path = folder_.path() + "/run.trace";
  for (const bool once : {true, false}) {
    int calls = 0;
    TrainOptions options;
    options.net.data = tests::in_source("/tests/data");
    options.scaler.enabled = false;
    options.watched = true;
    options.sampling.every = 50;
    options.fault = [&](const Event& e) {
      if (e.step == 2 && !e.cast && e.op == "relu_1" && e.phase == Phase::forward && (++calls == 1 || !once))
        static_cast<std::uint16_t*>(e.got.data)[5] = 0x7e00;
    };
    Trainer trainer(options);
    trainer.prepare();
    TraceWriter trace(path, trainer, 3, false);
    FaultRing ring(2, 2);
    for (int i = 0; i < 3; ++i) {
      ring.keep(trainer);
      const StepResult result = trainer.step();
      trace.step(result);
      ASSERT_EQ(ring.faulted(result), i == 2);
      if (i == 2) {
        EXPECT_EQ(ring.write(trainer, result, trace), once ? std::nullopt : std::optional(1));
        const std::string written = tensor_lines(path, 1, 2);
        if (!once) {
          EXPECT_EQ(ring.write(trainer, result, trace), 3) << "a second fault nearby";
        }
        EXPECT_TRUE(written == tensor_lines(path, 1, 2));
      }
    }
    EXPECT_EQ(tensor_lines(path, 1, 2).empty(), once);
    EXPECT_EQ(read_trace(path).steps.size(), 3u);
  }
}

}  // namespace
}  // namespace ampcheck::testing
