// SPDX-License-Identifier: Apache-2.0
// Recordings of other tools: each format is read, the planted trouble is found, and healthy ones are not flagged.
#include <gtest/gtest.h>

#include <cmath>

#include "checks/stacks/op_records.h"
#include "checks/stacks/te_log.h"
#include "src/error.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::stacks {
namespace {

using testing::contains;

// In the form that the class prints, with numbers of our own.
constexpr const char* kFrames =
    "Some line of a trainer\n\n"
    "Detected inf/nan during batch_number=0\n"
    "Last 3 forward frames:\n"
    "abs min  abs max  metadata\n"
    "                  block.2.mlp.wi Linear\n"
    "2.10e-07 4.40e+00 weight\n"
    "1.80e-06 4.60e+00 input[0]\n"
    "2.60e-06 3.70e+01 output\n"
    "                  block.2.mlp.wo Linear\n"
    "1.00e-06 6.40e+00 weight\n"
    "0.00e+00 9.70e+03 input[0]\n"
    "3.20e-04 6.21e+04 output\n"
    "             None output[1]\n"
    "                  block.2.dropout Dropout\n"
    "3.20e-04 6.21e+04 input[0]\n"
    "0.00e+00      inf output\n";

TEST(Recordings, TheFrameThatMakesAnInfinityIsNamed) {
  const auto read = read_records(kFrames, "debug.txt");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->tool, "DebugUnderflowOverflow of Hugging Face");
  ASSERT_EQ(read->ops.size(), 3u);
  EXPECT_EQ(read->ops[1].name, "block.2.mlp.wo Linear");
  EXPECT_EQ(read->ops[1].inputs.size(), 2u);
  const RecordFinding found = judge_records(*read);
  EXPECT_EQ(found.trouble, Trouble::made);
  EXPECT_EQ(found.op, "block.2.dropout Dropout");
  EXPECT_EQ(found.line, 15);
  EXPECT_TRUE(contains(found.what, "95 % of fp16's largest number 65504")) << found.what;
  EXPECT_TRUE(contains(found.next, "run 'block.2.dropout' in fp32")) << found.next;
  EXPECT_EQ(found.before.size(), 2u);
}

TEST(Recordings, FiniteFramesAreNotFlagged) {
  std::string text = kFrames;
  text.replace(text.find("     inf"), 8, "6.21e+04");
  const RecordFinding found = judge_records(*read_records(text, "debug.txt"));
  EXPECT_EQ(found.trouble, Trouble::none) << "no type is said, so 6.21e+04 may be bf16: " << found.what;
}

TEST(Recordings, WhatCameInIsNotMade) {
  std::string text = kFrames;
  const std::string input = "1.80e-06 4.60e+00 input[0]";
  text.replace(text.find(input), input.size(), "     nan      nan input[0]");
  const RecordFinding found = judge_records(*read_records(text, "debug.txt"));
  EXPECT_EQ(found.trouble, Trouble::came_in);
  EXPECT_EQ(found.op, "block.2.mlp.wi Linear");
  EXPECT_EQ(found.killers.size(), 1u) << "a NaN came in and 37 came out";
}

/// One op of torchtitan's capture.
std::string block(const std::string& op, const std::string& norm, const std::string& hash, const std::string& inputs,
                  const std::string& dtype = "torch.bfloat16") {
  return "[" + op + "]\n  Shape: torch.Size([4, 256]), Dtype: " + dtype + "\n  L2 norm: " + norm +
         "\n  Min: -3.100000e+00\n  Max: 2.900000e+00\n  Mean: 1.200000e-02\n  Output hash: " + hash +
         "\n  Input hashes: " + inputs +
         "\n  Input producers: ;embed/op_0_embedding\n  Location: common/norm.py:12\n\n";
}
std::string titan(const std::vector<std::string>& blocks) {
  std::string out = "Total captured activations: " + std::to_string(blocks.size()) +
                    "\nExcluded ops dispatched: view\n" + std::string(80, '=') + "\n\n";
  for (const std::string& one : blocks) out += one;
  return out;
}

TEST(Recordings, TheFirstOpOfTorchtitanThatMakesADifferenceIsFound) {
  const std::string embed = block("embed/op_0_embedding", "3.141593e+01", "2.718282e+02", "1.000000e+00");
  const auto a = read_records(titan({embed, block("layers.0.norm/op_0_rms", "1.6e+01", "2.0e+02", "2.718282e+02"),
                                     block("layers.0.mlp/op_0_mm", "4.0e+01", "5.0e+02", "2.0e+02")}),
                              "a.log");
  const auto b = read_records(titan({embed, block("layers.0.norm/op_0_rms", "1.6001e+01", "2.0003e+02", "2.718282e+02"),
                                     block("layers.0.mlp/op_0_mm", "4.001e+01", "5.0008e+02", "2.0003e+02")}),
                              "b.log");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->tool, "torchtitan");
  ASSERT_EQ(a->ops.size(), 3u);
  EXPECT_EQ(a->ops[1].outputs.front().dtype, "bf16");
  EXPECT_EQ(a->ops[1].where, "common/norm.py:12");
  const RecordComparison compared = compare_records(*a, *b);
  ASSERT_EQ(compared.first_made, 1);
  EXPECT_EQ(compared.ops[1].name, "layers.0.norm/op_0_rms");
  EXPECT_FALSE(compared.ops[2].inputs_alike);
  EXPECT_EQ(compare_records(*a, *a).first_made, -1) << "a twin";
  EXPECT_EQ(judge_records(*a).trouble, Trouble::none);
}

TEST(Recordings, ACutOffCaptureSaysSo) {
  std::string text = titan({block("a/op_0_mm", "1", "1", "1"), block("b/op_0_mm", "1", "1", "1")});
  text.resize(text.find("[b/op_0_mm]"));
  const auto read = read_records(text, "a.log");
  ASSERT_TRUE(read);
  EXPECT_TRUE(contains(read->notes.front(), "ends early: 1 of the 2 ops")) << read->notes.front();
}

std::string tensor_json(const char* max, const char* norm, const char* dtype = "torch.float16") {
  return std::string(R"({"type": "torch.Tensor", "dtype": ")") + dtype + R"(", "shape": [2, 8], "Max": )" + max +
         R"(, "Min": -1.5, "Mean": 0.25, "Norm": )" + norm + R"(, "requires_grad": true})";
}
std::string msprobe(const std::string& mid_out, const std::string& next_out) {
  const std::string fine = tensor_json("2.5", "4.75");
  return R"({"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": "", "data": {
"Functional.linear.0.forward": {"input_args": [)" +
         fine + R"(], "input_kwargs": {}, "output": [)" + fine + R"(]},
"Tensor.square.0.forward": {"input_args": [)" +
         fine + R"(, 2], "input_kwargs": {}, "output": [)" + mid_out + R"(]},
"Functional.layer_norm.0.forward": {"input_args": [)" +
         mid_out + R"(], "input_kwargs": {}, "output": [)" + next_out + R"(]}}})";
}

TEST(Recordings, MsprobeWithBareNanIsReadAndTheMakerNamed) {
  const auto read = read_records(msprobe(tensor_json("Infinity", "Infinity"), tensor_json("NaN", "NaN")), "dump.json");
  ASSERT_TRUE(read);
  ASSERT_EQ(read->ops.size(), 3u) << "in the order of the file";
  EXPECT_EQ(read->ops.front().name, "Functional.linear.0.forward");
  const RecordFinding found = judge_records(*read);
  EXPECT_EQ(found.trouble, Trouble::made);
  EXPECT_EQ(found.op, "Tensor.square.0.forward");
}

TEST(Recordings, MsprobeTwinsAndPlantedDifferences) {
  const std::string fine = tensor_json("6.0", "9.5"), last = tensor_json("1.0", "4.0");
  const auto a = read_records(msprobe(fine, last), "a"),
             b = read_records(msprobe(tensor_json("6.0", "9.5001"), last), "b");
  EXPECT_EQ(compare_records(*a, *a).first_made, -1);
  const RecordComparison compared = compare_records(*a, *b);
  ASSERT_GE(compared.first_made, 0);
  EXPECT_EQ(compared.ops[static_cast<std::size_t>(compared.first_made)].name, "Tensor.square.0.forward");
  EXPECT_EQ(judge_records(*a).trouble, Trouble::none);
  EXPECT_EQ(judge_records(*read_records(msprobe(tensor_json("50000.0", "60000.0"), last), "c")).trouble,
            Trouble::near_range);
  EXPECT_EQ(
      judge_records(*read_records(msprobe(fine, R"({"type": "torch.Tensor", "dtype": "torch.float16", "shape": [2],
    "Max": 0.0, "Min": 0.0, "Mean": 0.0, "Norm": 0.0})"),
                                  "d"))
          .trouble,
      Trouble::all_zero);
}

TEST(Recordings, OtherTextIsNone) {
  EXPECT_FALSE(read_records("step=1 loss=2\n", "x"));
  EXPECT_FALSE(read_records(R"({"a": 1})", "x"));
  EXPECT_FALSE(read_records("", "x"));
  EXPECT_THROW(read_records("abs min  abs max  metadata\n", "x"), Error);
  EXPECT_THROW(read_records(R"({"task": "statistics", "data": {}})", "x"), Error);
}

std::string te(const char* name, int iteration, const char* value) {
  char number[16];
  std::snprintf(number, sizeof number, "%06d", iteration);
  return std::string("2026-01-01 10:00:00,000 - INFO - ") + name + " \t\t\t\t iteration=" + number +
         " \t\t\t\t value=" + value + "\n";
}

TEST(DebugLogs, FourDecimalsAreSaidToHide) {
  const auto log =
      read_debug_log(te("decoder.1.fc1_activation_cur_amax", 1, "3.2500") + te("decoder.1.fc1_wgrad_max", 1, "0.0000") +
                         te("decoder.1.fc1_wgrad_min", 1, "0.0000"),
                     "te.log");
  ASSERT_TRUE(log);
  EXPECT_EQ(log->stats.size(), 3u);
  EXPECT_EQ(log->stats[1].layer, "decoder.1.fc1");
  EXPECT_EQ(log->stats[1].tensor, "wgrad");
  EXPECT_EQ(log->stats[1].stat, "max");
  EXPECT_EQ(log->hidden, 1) << "a least value of 0.0000 may be a zero or a negative number";
  const auto found = judge_debug_log(*log);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().kind, "hidden");
  EXPECT_TRUE(contains(found.front().what, "below 5e-5")) << found.front().what;
  EXPECT_FALSE(found.front().wrong);
}

TEST(DebugLogs, TheGemmThatMakesANanIsNamedAndAHealthyLogIsNot) {
  std::string text;
  for (int i = 0; i < 4; ++i)
    for (const char* layer : {"decoder.0.fc1", "decoder.1.fc1"})
      for (const char* tensor : {"activation", "weight", "output"})
        text += te((std::string(layer) + "_" + tensor + "_cur_amax").c_str(), i, "2.1234");
  const auto healthy = read_debug_log(text, "te.log");
  ASSERT_TRUE(healthy);
  EXPECT_EQ(judge_debug_log(*healthy).front().kind, "nothing");
  const std::string wrong = text + te("decoder.1.fc1_activation_cur_amax", 4, "2.0000") +
                            te("decoder.1.fc1_output_cur_amax", 4, "inf") +
                            te("decoder.2.fc1_activation_cur_amax", 4, "nan");
  const auto found = judge_debug_log(*read_debug_log(wrong, "te.log"));
  EXPECT_EQ(found.front().kind, "not_finite");
  EXPECT_EQ(found.front().iteration, 4);
  EXPECT_TRUE(contains(found.front().what, "decoder.1.fc1 output cur_amax is inf")) << found.front().what;
  EXPECT_TRUE(contains(found.front().what, "activation of this layer is finite: the layer's GEMM made it"));
  EXPECT_TRUE(found.front().wrong);
}

TEST(DebugLogs, ShareThatSaturatesAndTwoLogs) {
  const std::string base =
      te("d.0_gradient_fp8_delayed_scaling_underflows%", 1, "0.0000") + te("d.0_gradient_overflows%", 2, "1.5000");
  const auto log = read_debug_log(base, "a");
  const auto found = judge_debug_log(*log);
  EXPECT_EQ(found.front().kind, "saturates");
  EXPECT_TRUE(found.front().wrong);
  const auto other = read_debug_log(
      te("d.0_gradient_fp8_delayed_scaling_underflows%", 1, "0.2500") + te("d.0_gradient_overflows%", 2, "1.5000"),
      "b");
  const DebugDifference difference = compare_debug_logs(*log, *other);
  EXPECT_EQ(difference.differ, 1);
  EXPECT_EQ(difference.first_a->iteration, 1);
  EXPECT_EQ(compare_debug_logs(*log, *log).differ, 0);
}

}  // namespace
}  // namespace ampcheck::checks::stacks
