// SPDX-License-Identifier: Apache-2.0
// A user's op, autocast and no_grad in the layers of a net, and weights in 16 bits, as a user of `ampcheck train` meets
// them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

const std::string kOps = tests::in_build("/custom_ops/");

class OwnLayer : public ::testing::Test {
 protected:
  /// 64 inputs, a layer of 16, the layer in question, 10 classes.
  std::string net(const std::string& layer, const std::string& more = "") {
    const std::string path = folder_.path() + "/net.toml";
    std::ofstream(path) << "[[layers]]\ntype = 'linear'\noutputs = 16\nname = 'first'\n[[layers]]\n" + layer +
                               "\n[[layers]]\ntype = 'linear'\nname = 'last'\n" + more;
    return path;
  }
  json result(const std::string& arguments) {
    const ProgramResult run = ampcheck("train --json --steps 4 " + arguments);
    EXPECT_LE(run.exit_code, 1) << run.err;
    json out = json::parse(run.out);
    out.erase("seconds");
    return out;
  }
  /// What a tensor was in the first step: its dtype, or nothing.
  std::string dtype_of(const std::string& arguments, const std::string& op, const std::string& phase,
                       const std::string& tensor) {
    const std::string path = folder_.path() + "/run.trace";
    const ProgramResult run = ampcheck("train --steps 1 --record " + path + " " + arguments);
    EXPECT_LE(run.exit_code, 1) << run.err;
    for (const tools::TracedTensor& t : tools::read_trace(path).tensors)
      if (t.op == op && t.phase == phase && t.tensor == tensor && !t.cast) return name(t.dtype);
    return "";
  }
  TemporaryFolder folder_;
};

/// The same mathematics by a library's kernel and by the built-in one.
TEST_F(OwnLayer, AnOpOfALibraryTrainsBesideItsFormula) {
  for (const char* const file : {"my_rms_norm.so", "rms_norm_launchers.toml"}) {
    const json own = result(net("type = 'op'\nname = 'n'\nlibrary = '" + kOps + file + "'") + " --dtype fp32");
    const json built_in = result(net("type = 'rms_norm'\nname = 'n'") + " --dtype fp32");
    for (int i = 0; i < 4; ++i) {
      const double a = own["steps"][i]["fp64_loss"], b = built_in["steps"][i]["fp64_loss"],
                   loss = own["steps"][i]["loss"];
      EXPECT_NEAR(a, b, 1e-12) << file << ": the formulas are one";
      EXPECT_NEAR(loss, a, 1e-5) << file << ": some hundred roundings of fp32";
    }
    EXPECT_TRUE(own["left_at"].is_null());
  }
}

/// A planted fault in the backward of a user's op is what a run beside fp64 names: its own error, at its own inputs.
TEST_F(OwnLayer, AWrongOpIsWhatTheRunNames) {
  const auto error_of = [&](const std::string& op) {
    const std::string path = folder_.path() + "/run.trace";
    EXPECT_LE(ampcheck("train --steps 2 --dtype bf16 --record " + path + " " +
                       net("type = 'op'\nname = 'n'\nlibrary = '" + kOps + "grouped_rms_norm.so'\nop = '" + op + "'"))
                  .exit_code,
              1);
    double worst = 0;
    for (const tools::TracedTensor& t : tools::read_trace(path).tensors)
      if (t.op == op + "_1" && t.phase == "backward" && t.local_error) worst = std::max(worst, *t.local_error);
    return worst;
  };
  EXPECT_LT(error_of("grouped_rms_norm"), 0x1p-7) << "a rounding to bf16 and little more";
  EXPECT_GT(error_of("grouped_rms_norm_whole_row_dot"), 0.05);
}

TEST_F(OwnLayer, AKernelThatEndsItsProcessOrHangsIsNamed) {
  const auto run = [&](const std::string& op, const std::string& more) {
    return ampcheck("train --steps 2 --batch 17 --dtype fp32 " + more + " " +
                    net("type = 'op'\nname = 'n'\nlibrary = '" + kOps + "hostile.so'\nop = '" + op + "'"));
  };
  const std::string saved = folder_.path() + "/end.st";
  const ProgramResult crash = run("segfault", "--save " + saved);
  EXPECT_EQ(crash.exit_code, 1) << crash.err;
  EXPECT_TRUE(contains(crash.err, "CRASH (AC501): a kernel of '") && contains(crash.err, "Segmentation fault"))
      << crash.err;
  EXPECT_TRUE(read_text(saved).empty());
  const ProgramResult hangs = run("loops", "--timeout 1");
  EXPECT_EQ(hangs.exit_code, 1) << hangs.err;
  EXPECT_TRUE(contains(hangs.err, "TIMEOUT (AC502)")) << hangs.err;
  const ProgramResult throws = run("throws", "");
  EXPECT_EQ(throws.exit_code, 1) << throws.err;
  EXPECT_TRUE(contains(throws.err, "AC501")) << throws.err;
  EXPECT_EQ(run("throws", "--batch 16").exit_code, 0) << "at other shapes it behaves";
  EXPECT_EQ(ampcheck("memory " + folder_.path() + "/net.toml").exit_code, 2) << "it takes fp32 alone";
  const std::string err =
      refused_training(net("type = 'op'\nname = 'n'\nlibrary = '" + kOps + "hostile.so'\nop = 'throws'"));
  EXPECT_TRUE(contains(err, "op 'throws', got fp16, want fp32, which it declares")) << err;
}

TEST_F(OwnLayer, CastInputsDecideTheDtypesOfForwardAndBackward) {
  const std::string layer = "type = 'op'\nname = 'n'\nlibrary = '" + kOps + "my_rms_norm.so'";
  const std::string as_is = net(layer) + " --dtype bf16";
  EXPECT_EQ(dtype_of(as_is, "my_rms_norm_1", "forward", "y"), "fp32")
      << "bf16 from a linear layer beside an fp32 weight";
  const std::string narrowed = net(layer + "\ncast_inputs = 'bf16'") + " --dtype fp16";
  EXPECT_EQ(dtype_of(narrowed, "my_rms_norm_1", "forward", "y"), "bf16");
  EXPECT_EQ(dtype_of(narrowed, "my_rms_norm_1", "backward", "dx"), "bf16");
  EXPECT_EQ(dtype_of(narrowed, "my_rms_norm_1", "backward", "dweight"), "bf16");
  EXPECT_EQ(dtype_of(narrowed, "linear_1", "backward", "dweight"), "fp16") << "what comes before runs as it did";
  EXPECT_EQ(dtype_of(net(layer + "\ncast_inputs = 'bf16'") + " --dtype fp32", "my_rms_norm_1", "forward", "y"), "fp32")
      << "outside of autocast nothing is cast";
}

TEST_F(OwnLayer, AnOpOfALibraryIsNamedByItsLayerAndByTheDtypesThatItCosts) {
  const std::string path = folder_.path() + "/run.trace",
                    layer = "type = 'op'\nname = 'mine'\nlibrary = '" + kOps + "my_rms_norm.so'";
  const auto shown = [&](const std::string& more) {
    EXPECT_LE(ampcheck("train --steps 1 --record " + path + " " + net(layer + more)).exit_code, 1);
    return ampcheck("trace " + path).out;
  };
  EXPECT_TRUE(contains(shown(""), "my_rms_norm_1     runs in fp32 and widens 'x', because another input is fp32"));
  const std::string cast = shown("\ncast_inputs = 'bf16'");
  EXPECT_TRUE(contains(cast, "my_rms_norm_1 (mine) forward y")) << cast;
}

TEST_F(OwnLayer, ARegionThatIsOffKeepsALayerInFp32) {
  EXPECT_EQ(dtype_of(net("type = 'linear'\noutputs = 16"), "linear_2", "forward", "y"), "fp16");
  const std::string off = net("type = 'linear'\noutputs = 16\nautocast = 'off'");
  EXPECT_EQ(dtype_of(off, "linear_2", "forward", "y"), "fp32");
  EXPECT_EQ(dtype_of(off, "linear_2", "backward", "dweight"), "fp32");
  EXPECT_EQ(dtype_of(off, "linear_3", "forward", "y"), "fp16") << "the region ends with the layer";
  EXPECT_EQ(dtype_of(net("type = 'linear'\noutputs = 16\nautocast = 'bf16'"), "linear_2", "forward", "y"), "bf16");
  const json fp32 = result(net("type = 'linear'\noutputs = 16\nautocast = 'off'") + " --dtype fp32"),
             plain = result(net("type = 'linear'\noutputs = 16") + " --dtype fp32");
  EXPECT_EQ(fp32["steps"], plain["steps"]) << "without autocast there is nothing to turn off";
}

TEST_F(OwnLayer, WhatIsUnderNoGradStaysAsItWas) {
  const std::string frozen = folder_.path() + "/frozen.toml";
  std::ofstream(frozen) << "[[layers]]\ntype = 'linear'\noutputs = 16\nname = 'first'\nno_grad = "
                           "true\n[[layers]]\ntype = 'tanh'\n[[layers]]\ntype = 'linear'\nname = 'last'\n";
  const json run = result(frozen + " --optimizer adamw --record " + folder_.path() + "/frozen.trace");
  EXPECT_TRUE(run["left_at"].is_null()) << "the fp64 run stands still there too";
  bool first = false, last = false;
  for (const tools::TracedTensor& t : tools::read_trace(folder_.path() + "/frozen.trace").tensors)
    if (t.phase == "optimizer") {
      first |= t.op == "first.weight";
      last |= t.op == "last.weight";
    }
  EXPECT_FALSE(first) << "no update, not even weight decay";
  EXPECT_TRUE(last);
}

TEST_F(OwnLayer, WhatDoesNotFitIsNamed) {
  const std::string library = "type = 'op'\nlibrary = '" + kOps;
  const struct {
    std::string layer, want;
  } cases[] = {{"type = 'op'", "op, got neither it nor a library"},
               {"type = 'op'\nop = 'rms_nrm'", "got 'rms_nrm' (did you mean 'rms_norm'?"},
               {library + "grouped_rms_norm.so'", "op, got none, want one of grouped_rms_norm, "},
               {library + "my_rms_norm.so'\nop = 'other'", "op, got 'other', want one of my_rms_norm"},
               {library + "my_rms_norm.so'\nattributes = { epz = 1e-5 }", "got unknown key 'epz' (did you mean 'eps'?"},
               {library + "no_formula.so'\nop = 'no_such'", "want one of "},
               {library + "rope.so'", "op, got none, want one of rope, "},
               {"type = 'op'\nop = 'rms_norm'\noutputs = 5", "outputs, got 5, want none"},
               {"type = 'relu'\nlibrary = 'x.so'", "library, got it in a layer of type relu, want it in op alone"},
               {"type = 'op'\nop = 'mul'", "input 'y', got an op that needs it"},
               {"type = 'relu'\nautocast = 'fp8'", "autocast, got 'fp8'"}};
  for (const auto& c : cases) {
    const std::string err = refused_training(net(c.layer));
    EXPECT_TRUE(contains(err, c.want)) << c.layer << "\n" << err;
    EXPECT_TRUE(contains(err, "net.toml:")) << c.layer << "\n" << err;
  }
  EXPECT_EQ(ampcheck("train " + net("type = 'op'\nlibrary = 'no_such.so'")).exit_code, 6);
  EXPECT_TRUE(contains(refused_training(net("type = 'op'\nlibrary = '" + kOps + "no_formula.so'")), "want"));
}

/// fp16's smallest number is 2^-24: squares of gradients below 2^-12.5 are zero, and m / (0 + eps) is as large as one
/// likes.
TEST_F(OwnLayer, MomentsInFp16AreNamedAsWhatEndsTheRun) {
  const std::string adam = "--model mlp --optimizer adam --lr 0.003 --steps 8 ";
  const ProgramResult vanished = ampcheck("train " + adam + "--weights master --moments fp16");
  EXPECT_EQ(vanished.exit_code, 1) << vanished.out;
  EXPECT_TRUE(contains(vanished.out, "updates ") && contains(vanished.out, "; the second moment of ")) << vanished.out;
  EXPECT_TRUE(contains(vanished.out, "try     --moments fp32")) << vanished.out;
  const ProgramResult kept = ampcheck("train " + adam + "--weights master --moments fp32");
  EXPECT_EQ(kept.exit_code, 0) << kept.out;
  EXPECT_FALSE(contains(kept.out, "second moment")) << kept.out;
  const ProgramResult eps = ampcheck("train " + adam + "--weights low --scaler none");
  EXPECT_EQ(eps.exit_code, 1);
  EXPECT_TRUE(contains(eps.out, "eps is zero in fp16")) << eps.out;
}

TEST_F(OwnLayer, MastersMoveWhereLowWeightsStand) {
  const auto stood = [&](const std::string& weights) {
    json run = result("--model mlp --dtype bf16 --steps 8 --lr 0.001 --weights " + weights);
    std::int64_t with_grad = 0, stagnant = 0, copies = 0;
    for (const json& s : run["steps"]) {
      with_grad += s["updates"]["with_grad"].get<std::int64_t>();
      stagnant += s["updates"]["with_grad_stagnant"].get<std::int64_t>();
      copies += s["updates"]["copy_stagnant"].get<std::int64_t>();
    }
    return std::pair{static_cast<double>(stagnant) / static_cast<double>(with_grad),
                     static_cast<double>(copies) / static_cast<double>(with_grad)};
  };
  const auto [low, none] = stood("low");
  const auto [master, copies] = stood("master");
  EXPECT_EQ(none, 0);
  EXPECT_GT(low, 0.3) << "an update of less than half a place of a bf16 weight is none";
  EXPECT_LT(master, 0.3 * low);
  EXPECT_GT(copies, 0.3) << "the copies that the ops read wait for it";
}

TEST_F(OwnLayer, ARunWithMastersGoesOnFromItsCheckpointAlone) {
  const std::string at = folder_.path() + "/",
                    common = "--model mlp --optimizer adam --lr 0.003 --weights master --moments bf16 ";
  const json whole = result(common + "--steps 6 --save " + at + "whole.st");
  result(common + "--steps 3 --save " + at + "half.st");
  EXPECT_EQ(result(common + "--steps 6 --resume " + at + "half.st --save " + at + "rest.st")["steps"][2],
            whole["steps"][5]);
  EXPECT_TRUE(!read_text(at + "whole.st").empty() && read_text(at + "whole.st") == read_text(at + "rest.st"));
  EXPECT_TRUE(
      contains(refused_training("--model mlp --optimizer adam --lr 0.003 --weights low --fused --steps 6 --resume " +
                                at + "half.st"),
               "got a run with 'weights master', want 'weights low' as this one has"));
}

/// A fused optimizer gets fp16 gradients as they are, scale and all: powers of two change nothing until one overflows
/// or vanishes.
TEST_F(OwnLayer, KeptGradientsGiveTheSameRunAsWidenedOnes) {
  const json kept = result("--model mlp --fused --keep-low-precision-grads --steps 6"),
             widened = result("--model mlp --fused --steps 6");
  for (int i = 0; i < 6; ++i) EXPECT_EQ(kept["steps"][i]["loss"], widened["steps"][i]["loss"]) << i;
}

/// As apex: gradients are widened, unscaled and clipped. A bound that nothing reaches changes no bit.
TEST_F(OwnLayer, Fp16GradientsAreClippedInFp32) {
  const std::string common = "--model mlp --steps 6 --weights master --clip-norm ";
  json loose = result(common + "1e9")["steps"];
  for (json& step : loose) {
    EXPECT_EQ(step["clip_factor"], 1);
    for (const char* const said : {"norm", "clip_factor", "clipped"}) step[said] = nullptr;
  }
  EXPECT_EQ(loose, result("--model mlp --steps 6 --weights master")["steps"]);
  EXPECT_NE(result(common + "0.01")["steps"], result(common + "1e9")["steps"]);
}

TEST_F(OwnLayer, NothingIsReplacedThatIsNoTraceOrCheckpoint) {
  const std::string at = folder_.path() + "/";
  std::filesystem::copy_file(kOps + "my_rms_norm.so", at + "mine.so");
  const std::string path = net("type = 'op'\nlibrary = 'mine.so'"), library = read_text(at + "mine.so");
  EXPECT_TRUE(contains(refused_training(path + " --record " + at + "mine.so"), "which is there and no trace"));
  EXPECT_TRUE(contains(refused_training(path + " --save " + at + "mine.so"), "which is there and no checkpoint"));
  EXPECT_EQ(read_text(at + "mine.so"), library);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(ampcheck("train --steps 1 " + path + " --record " + at + "a.trace --save " + at + "a.st").exit_code, 0)
        << "its own kind is replaced";
  const std::string trace = read_text(at + "a.trace");
  EXPECT_EQ(ampcheck("trace " + at + "a.trace -o html:" + at + "a.trace").exit_code, 2);
  EXPECT_EQ(read_text(at + "a.trace"), trace);
}

/// fp16 and bf16 each lack what the other has.
TEST_F(OwnLayer, ACastBetweenTwo16BitTypesIsNotExact) {
  const std::string path = folder_.path() + "/run.trace",
                    layers = net("type = 'linear'\noutputs = 16\nautocast = 'fp16'");
  EXPECT_LE(ampcheck("train " + layers + " --dtype bf16 --loss-weight 1e-7 --steps 2 --record " + path).exit_code, 1);
  const ProgramResult shown = ampcheck("trace --json " + path);
  double flushed = 0, lost = 0;
  const json tensors = json::parse(shown.out)["tensors"];
  for (const json& t : tensors) {
    if (!t["cast"].get<bool>() || t["from"] != "bf16" || t["dtype"] != "fp16") continue;
    if (t["phase"] == "backward")
      flushed = std::max(flushed, t["flushed_share"].get<double>());
    else
      lost = std::max(lost, t["local_error"].is_null() ? -1 : t["local_error"].get<double>());
  }
  EXPECT_EQ(flushed, 1) << "gradients of 1e-7 leave fp16";
  EXPECT_EQ(lost, 0) << "activations near 1 fit: bf16 has fewer digits";
}

/// 2^16 overflows in a step that a sampled run does not look at: no larger scale is advised.
TEST_F(OwnLayer, NoScaleIsAdvisedAtWhichAStepWasSkipped) {
  const json run = result("--model mlp --steps 120 --seed 1 --init-scale 131072 --growth-interval 3 --record " +
                          folder_.path() + "/run.trace --every 60 --ring 0");
  ASSERT_FALSE(run["skipped"].empty());
  double least = 1e30;
  for (const json& s : run["steps"])
    if (!s["stepped"].get<bool>() && s["found_inf"].get<bool>()) least = std::min(least, s["scale"].get<double>());
  EXPECT_LE(run["loss_scale"]["overflows_at"].get<int>(), std::ilogb(least));
  EXPECT_LT(run["loss_scale"]["best"], run["loss_scale"]["overflows_at"]);
  EXPECT_EQ(json::parse(ampcheck("trace --json " + folder_.path() + "/run.trace").out)["loss_scales"]["run"],
            run["loss_scale"]);
}

TEST_F(OwnLayer, WhatFp16GradientsDoNotGoWithIsRefused) {
  const struct {
    const char *arguments, *want;
  } cases[] = {{"--weights low", "Attempting to unscale FP16 gradients."},
               {"--keep-low-precision-grads", "Attempting to unscale FP16 gradients."},
               {"--weights master --dtype fp32", "got dtype fp32, want fp16 or bf16"},
               {"--weights bf16", "got 'bf16', want fp32, master, low"}};
  for (const auto& c : cases) EXPECT_TRUE(contains(refused_training(c.arguments), c.want)) << c.arguments;
  EXPECT_EQ(ampcheck("train --steps 2 --weights low --dtype bf16 --clip-norm 1 --scaler torch").exit_code, 0)
      << "bf16 gradients are unscaled and clipped";
}

TEST_F(OwnLayer, ChoicesThatNothingUsesAreRefused) {
  const struct {
    const char *arguments, *want;
  } cases[] = {{"--scaler none --init-scale 4", "[--init-scale] got it where nothing uses it, want a --scaler"},
               {"--dtype bf16 --growth-interval 4", "[--growth-interval] got it"},
               {"--compress fp16", "want --ranks 2 or more"},
               {"--reduce-dtype bf16", "want --ranks 2 or more"},
               {"--reduce tree", "want --ranks 2 or more"},
               {"--divide post", "want --ranks 2 or more"},
               {"--reduce ring", "want --ranks 2 or more"},
               {"--width 64", "want model tutorial"},
               {"--model conv --loss mse", "[--loss] got it where nothing uses it, want model mlp"},
               {"--model tutorial --loss mse", "[--loss] got it"},
               {"--dtype fp32 --growth-interval 4", "[--growth-interval] got it"},
               {"--ring 3", "want --record FILE"}};
  for (const auto& c : cases) EXPECT_TRUE(contains(refused_training(c.arguments), c.want)) << c.arguments;
  EXPECT_EQ(ampcheck("train --steps 1 --ranks 2 --reduce-dtype bf16").exit_code, 0);
}

/// Gradients that fp16 on the wire would flush are kept by a scaler in fp32 too, and nothing is advised that was given
/// or is refused.
TEST_F(OwnLayer, AdviceIsWhatWasNotGivenAndIsNotRefused) {
  const std::string wire = "--dtype fp32 --ranks 2 --compress fp16 --loss-weight 1e-6 --batch 16";
  const json bare = result(wire), scaled = result(wire + " --scaler torch"),
             alone = result("--dtype fp32 --scaler apex --batch 16");
  EXPECT_EQ(bare["try"], "--scaler torch");
  EXPECT_EQ(scaled["scaler"], "torch");
  EXPECT_EQ(scaled["steps"][0]["scale"], 65536);
  EXPECT_NE(scaled["try"], "--scaler torch");
  EXPECT_LT(scaled["vanished_share"].get<double>(), 0.01 * bare["vanished_share"].get<double>());
  EXPECT_EQ(alone["scaler"], "apex");
  const std::string stuck = "--dtype bf16 --lr 0.001 --steps 40 --weights ";
  EXPECT_TRUE(contains(result(stuck + "low")["try"].get<std::string>(), "--weights master: 92 %"));
  EXPECT_FALSE(contains(result(stuck + "master")["try"].get<std::string>(), "--weights"));
  const json unfused = result("--weights low --scaler none --loss-weight 1e-7");
  EXPECT_EQ(unfused["try"], "") << "what was tried and does not help is no advice";
  EXPECT_TRUE(contains(ampcheck("train --weights low --scaler none --loss-weight 1e-7").out,
                       "no help --fused --scaler torch (tried for "));
  const auto fused = ampcheck("train --steps 1 --weights low --fused --scaler torch --loss-weight 1e-7");
  EXPECT_EQ(fused.exit_code, 1) << "it is taken; 16-bit weights do not move all the same";
  EXPECT_TRUE(contains(fused.out, "TR203"));
  const json first = result("--init-scale 8388608 --steps 12");
  const std::string next = first["try"];
  ASSERT_TRUE(next.starts_with("--init-scale ")) << next;
  EXPECT_FALSE(
      contains(result(next.substr(0, next.find(':')) + " --steps 12")["try"].get<std::string>(), "--init-scale"));
}

TEST_F(OwnLayer, ANetThatTrainsNothingIsRefused) {
  const std::string path = folder_.path() + "/fixed.toml";
  std::ofstream(path) << "[[layers]]\ntype = 'linear'\nno_grad = true\n";
  for (const char* dtype : {"fp16", "bf16", "fp32"})
    EXPECT_TRUE(contains(refused_training(path + " --dtype " + dtype),
                         "net, got none of its 2 parameters with a gradient, want one to train"))
        << dtype;
}

TEST(TrainCommand, ANetThatDoesNotFitIntoMemoryIsNoErrorOfTheProgram) {
  if (testing::kSanitized) GTEST_SKIP() << "the address sanitizer wants all addresses for itself";
  const ProgramResult run =
      ampcheck("train --model tutorial --width 1000000 --batch 1 --steps 1", "ulimit -v 4000000;");
  EXPECT_EQ(run.exit_code, 6) << run.err;
  EXPECT_TRUE(contains(run.err, "not enough memory")) << run.err;
}

TEST(MemoryCommand, TakesANetOfYourOwn) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/net.toml") << "[[layers]]\ntype = 'linear'\n";
  const json out =
      json::parse(ampcheck("memory --json --dtype bf16 --optimizer adam " + folder.path() + "/net.toml").out);
  EXPECT_EQ(out["parameters"], 650);
  ASSERT_EQ(out["strategies"].size(), 7u);
  EXPECT_EQ(out["strategies"][4]["masters"], 4 * 650);
  for (const json& s : out["strategies"])
    EXPECT_GE(s["peak"].get<int>(),
              s["weights"].get<int>() + s["masters"].get<int>() + s["gradients"].get<int>() + s["moments"].get<int>());
  EXPECT_EQ(ampcheck("memory no_such.toml").exit_code, 2);
}

/// Moments are those of the optimizer that train has: the net's own momentum, or what the file's [train] says.
TEST(MemoryCommand, CountsTheOptimizerThatTrainUses) {
  const TemporaryFolder folder;
  const std::string net = folder.path() + "/net.toml";
  std::ofstream(net)
      << "[[layers]]\ntype = 'linear'\n[train]\noptimizer = 'adam'\nbatch = 8\nsteps = 3\nlr_schedule = 'step:2'\n";
  const auto moments = [](const std::string& arguments) {
    return json::parse(ampcheck("memory --json " + arguments).out)["strategies"][0]["moments"].get<int>();
  };
  const int width = 16, tutorial = 3 * (width * width + width);
  EXPECT_EQ(moments("tutorial --width 16"), 0);
  EXPECT_EQ(moments("tutorial --width 16 --momentum 0.9"), 4 * tutorial);
  EXPECT_EQ(moments("conv") + moments("transformer"), 0);
  EXPECT_EQ(moments("mlp"), 4 * 8970);
  EXPECT_EQ(moments("mlp --momentum 0"), 0);
  EXPECT_EQ(moments(net), 2 * 4 * 650 + 2 * 4) << "two moments, and a counter for each tensor";
  EXPECT_EQ(moments(net + " --optimizer sgd"), 0);
  const auto activations = [](const std::string& arguments) {
    return json::parse(ampcheck("memory --json " + arguments).out)["strategies"][0]["activations"].get<int>();
  };
  EXPECT_EQ(activations(net), activations(net + " --batch 8")) << "rows of the file's batch";
  EXPECT_LT(activations(net), activations(net + " --batch 64"));
  for (const char* unused : {"--fused", "--moments bf16", "--weights low", "--clip-norm 1", "--accumulate 4",
                             "--ranks 2", "--record x", "--model mlp", "--lr 1"}) {
    const ProgramResult run = ampcheck(std::string("memory mlp ") + unused);
    EXPECT_EQ(run.exit_code, 2) << unused;
    EXPECT_TRUE(contains(run.err, "got unknown option")) << run.err;
  }
  EXPECT_EQ(ampcheck("memory " + net + " --width 8").exit_code, 2);
  EXPECT_EQ(ampcheck("memory " + net + " --dtype fp32").exit_code, 2);
  std::ofstream(net, std::ios::app) << "dtype = 'fp32'\n";
  EXPECT_EQ(moments(net), 2 * 4 * 650 + 2 * 4) << "trained in fp32, and asked what 16 bits would take";
}

}  // namespace
}  // namespace ampcheck::testing
