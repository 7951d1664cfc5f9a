// SPDX-License-Identifier: Apache-2.0
// Lines of logs: each grammar by its example, and what consoles do to lines.
#include <gtest/gtest.h>

#include <cmath>

#include "checks/scaler/answers.h"
#include "checks/scaler/log.h"
#include "checks/scaler/log_lines.h"

namespace ampcheck::checks::scaler {
namespace {

double of(const Log& log, Quantity q, std::size_t reading = 0) {
  return log.get(log.readings.at(reading), q).value_or(-99);
}

TEST(LogGrammars, EachReadsItsOwnExampleAndAllThatItNames) {
  int number = 0;
  for (const Grammar& grammar : log_grammars()) {
    SCOPED_TRACE(grammar.name);
    const Log log = read_log(std::string(grammar.example) + "\n");
    ASSERT_EQ(log.readings.size(), 1u);
    EXPECT_EQ(log.readings[0].grammar, number) << "an earlier row takes this line: " << log.readings[0].grammar;
    EXPECT_EQ(log.readings[0].event, grammar.event);
    EXPECT_TRUE(log.torn.empty());
    for (const Grammar::Field& field : grammar.fields)
      EXPECT_TRUE(!field.must || log.readings[0].has(field.quantity)) << field.before;
    ++number;
  }
}

TEST(LogGrammars, NumbersAreThoseOfTheLine) {
  const Log log = read_log(
      " iteration     3380/    8000 | consumed samples:       216320 | elapsed time per iteration (ms): 7613.1 | "
      "learning rate: 6.680E-06 | global batch size:    64 | lm loss: 7.300000E-01 | loss scale: 65536.0 | grad norm: "
      "0.752 | number of skipped iterations:   2 | number of nan iterations:   1 |\n");
  EXPECT_EQ(of(log, Quantity::step), 3380);
  EXPECT_EQ(of(log, Quantity::samples), 216320);
  EXPECT_EQ(of(log, Quantity::lr), 6.68e-06);
  EXPECT_EQ(of(log, Quantity::loss), 0.73);
  EXPECT_EQ(of(log, Quantity::scale), 65536);
  EXPECT_EQ(of(log, Quantity::norm), 0.752);
  EXPECT_EQ(of(log, Quantity::skipped_here), 2);
  EXPECT_EQ(of(log, Quantity::nan_here), 1);
  const Log epochs = read_log(
      "05/18 06:40:12 - mmengine - INFO - Epoch(train)  [3][   50/1000]  lr: 1.0000e-04  grad_norm: nan  loss: 51.3\n");
  EXPECT_EQ(of(epochs, Quantity::step), 2050) << "counted from the first epoch";
  EXPECT_TRUE(std::isnan(of(epochs, Quantity::mean_norm)));
  EXPECT_EQ(of(read_log("x step_loss=1 step=3 loss_scale=1e-320 loss=2\n"), Quantity::loss), 2) << "a word of its own";
}

TEST(LogLines, ColoursBarsAndRanksAreSeenThrough) {
  const Log log = read_log(
      "[rank2]: \x1b[1mstep=10 loss=2.5 \x1b[31mloss_scale=65536.0\x1b[0m skipped=0\r\n"
      "[x] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 8, reducing to 4\r"
      "Steps:   0%|          | 7/2000 [00:01<2:11:07,  4.12s/it, lr=1e-5, step_loss=nan]\n");
  ASSERT_EQ(log.readings.size(), 2u);
  EXPECT_EQ(of(log, Quantity::rank), 2);
  EXPECT_EQ(of(log, Quantity::scale), 65536);
  EXPECT_EQ(log.readings[1].event, Event::skip);
  EXPECT_EQ(of(log, Quantity::step, 1), 7) << "the bar's step is the overflow's";
  EXPECT_TRUE(std::isnan(of(log, Quantity::loss, 1)));
  EXPECT_EQ(prefixed_rank("3: step=1"), 3);
  EXPECT_EQ(prefixed_rank("[default11]:x"), 11);
  EXPECT_EQ(prefixed_rank("2021-03-01 10:00:00 | x"), std::nullopt);
}

TEST(LogLines, WhatIsNotReadIsSaid) {
  const std::string megatron = log_grammars()[9].example;
  const Log log = read_log("hello\n\n" + megatron + "\n" + megatron.substr(0, 150) + "\nworld\n{\"step\": 3, \"loss\n");
  EXPECT_EQ(log.readings.size(), 1u);
  EXPECT_EQ(log.torn, (std::vector<std::int64_t>{4, 6}));
  EXPECT_EQ(log.unread, 2);
  EXPECT_EQ(log.first_unread, 1);
  EXPECT_FALSE(log.cut_off);
  EXPECT_TRUE(read_log("step=1 loss_scale=2").cut_off);
  EXPECT_TRUE(read_log("").readings.empty());
}

TEST(LogLines, NumbersNeverComeFromWords) {
  EXPECT_EQ(leading_number(" 'nan'").has_value(), true);
  EXPECT_EQ(leading_number("information"), std::nullopt);
  EXPECT_EQ(leading_number("nano"), std::nullopt);
  EXPECT_EQ(leading_number("1.2.3"), std::nullopt);
  EXPECT_EQ(leading_number("[1e-5, 2"), 1e-5);
  EXPECT_EQ(leading_number("+4.0|"), 4.0);
  EXPECT_EQ(leading_number("1e-400"), 0.0);
  EXPECT_EQ(leading_number("4.9e-324"), 4.9e-324);
}

TEST(LogColumns, CsvAndJsonByTheirNames) {
  const Log csv =
      read_log("epoch,global_step,train/loss,Grad Scale,found_inf\n1,5,2.5,65536,True\n1,6,,32768,False\n1,7\n");
  ASSERT_EQ(csv.readings.size(), 2u);
  EXPECT_EQ(csv.columns, "CSV");
  EXPECT_EQ(of(csv, Quantity::step), 5);
  EXPECT_EQ(of(csv, Quantity::skipped), 1);
  EXPECT_EQ(of(csv, Quantity::loss, 1), -99) << "an empty cell says nothing";
  EXPECT_EQ(csv.torn, (std::vector<std::int64_t>{4}));
  const std::string plain = R"({"amp": {"s": 8.0, "loss_scale": 4}, "it": 3, "tags": [1, 2], "ok": null})"
                            "\n";
  const Log json = read_log(plain, {{"s", Quantity::scale}, {"it", Quantity::step}});
  EXPECT_EQ(of(json, Quantity::scale), 8) << "the user's name goes before a usual one";
  EXPECT_EQ(of(json, Quantity::step), 3);
  const Log escaped = read_log(R"({"step": 4, "name": "a \"b\"", "loss": "nan", "scale": 1e3})"
                               "\n");
  EXPECT_EQ(of(escaped, Quantity::scale), 1000);
  EXPECT_TRUE(std::isnan(of(escaped, Quantity::loss)));
}

TEST(LogColumns, JsonAsPythonWritesIt) {
  const Log log =
      read_log(R"({"step": 1, "loss": NaN, "loss_scale": Infinity})"
               "\n"
               R"({ "step": 2, "tags": ["NaN"], "note": "a \"NaN\" here", "loss": NaN, "grad_norm": -Infinity})"
               "\n"
               R"({"step": 3, "loss": Nan, "loss_scale": 2})"
               "\n");
  ASSERT_EQ(log.readings.size(), 2u);
  EXPECT_TRUE(std::isnan(of(log, Quantity::loss)));
  EXPECT_EQ(of(log, Quantity::scale), HUGE_VAL);
  EXPECT_TRUE(std::isnan(of(log, Quantity::loss, 1)));
  EXPECT_EQ(of(log, Quantity::norm, 1), -HUGE_VAL);
  EXPECT_EQ(log.torn, (std::vector<std::int64_t>{3})) << "no word of JSON, nor of Python";
  std::string run;
  for (int step = 1; step <= 40; ++step)
    run += "{\"step\": " + std::to_string(step) + ", \"loss_scale\": 1024, \"loss\": " + (step < 20 ? "2.5" : "NaN") +
           "}\n";
  EXPECT_EQ(std::string(audit_log(run).headline().question), "nan");
  EXPECT_EQ(audit_log(run).headline().health, Health::broken) << "the bad steps are not lost";
}

TEST(LogAnswers, ErrorsOfTorchsScalerAreExplained) {
  const auto scaler_of = [](const std::string& text) { return audit_log(text).answers.at(5); };
  const std::string steps = "step=1 loss=2.5 loss_scale=1024\nstep=2 loss=2.5 loss_scale=1024\n";
  EXPECT_EQ(scaler_of(steps + "RuntimeError: CUDA out of memory.\n").health, Health::harmless);
  for (const Refusal& refusal : refusals()) {
    SCOPED_TRACE(refusal.message);
    if (!refusal.ends) continue;
    for (const std::string& before : {steps, std::string()}) {
      const LogAudit audit =
          audit_log(before + "Traceback (most recent call last):\nError: " + refusal.message + ".\n");
      EXPECT_EQ(std::string(audit.headline().question), "scaler");
      EXPECT_EQ(audit.headline().kind, "refused");
      EXPECT_EQ(audit.headline().health, Health::broken);
      EXPECT_EQ(audit.headline().advice, refusal.cure);
      EXPECT_EQ(audit.headline().evidence.at(0).line, before.empty() ? 2 : 4);
    }
  }
}

/// A run with a warning went on; an error behind it counts more.
TEST(LogAnswers, AScheduleAheadOfTheFirstUpdateIsSeen) {
  const std::string warned =
      "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, ...\n"
      "step=1 loss=2.5 loss_scale=1024\nstep=2 loss=2.5 loss_scale=1024\n";
  const Answer seen = audit_log(warned).answers.at(5);
  EXPECT_EQ(seen.health, Health::losing);
  EXPECT_EQ(seen.kind, "warned");
  EXPECT_TRUE(seen.advice.find("scaler.get_scale() >= before") != std::string::npos) << seen.advice;
  EXPECT_EQ(seen.evidence.at(0).line, 1);
  const Answer ended = audit_log(warned + "ValueError: Attempting to unscale FP16 gradients.\n").answers.at(5);
  EXPECT_EQ(ended.kind, "refused");
  EXPECT_EQ(ended.evidence.at(0).line, 4);
}

TEST(LogAnswers, ARuleIsToldFromOthersWhereTheyDiffer) {
  const std::string text =
      "step,scale,skipped\n1,8,0\n2,8,0\n3,16,0\n4,8,1\n5,8,0\n6,8,0\n7,16,0\n8,16,0\n9,16,0\n10,32,0\n";
  const auto rule_of = [&](const char* rule) { return audit_log(text, rule).answers.at(0); };
  EXPECT_EQ(rule_of("torch").kind, "follows");
  EXPECT_EQ(rule_of("torch").health, Health::harmless);
  EXPECT_TRUE(rule_of("torch").text.find("flax (window 2)") != std::string::npos) << "the same moves by another number";
  const Answer deepspeed = rule_of("deepspeed");
  EXPECT_EQ(deepspeed.health, Health::broken) << "hysteresis holds the scale at the first overflow";
  EXPECT_EQ(deepspeed.kind, "departs");
  ASSERT_EQ(deepspeed.evidence.size(), 1u);
  EXPECT_EQ(deepspeed.evidence[0].step, 4);
  EXPECT_THROW(audit_log(text, "tensorflow"), std::runtime_error);
}

TEST(LogAnswers, TheHeadlineExplainsTheOthers) {
  const LogAudit audit = audit_log(
      "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4, reducing to 2\r 1%| | 1/9 [x, loss=nan]\n"
      "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1\r 1%| | 2/9 [x, loss=nan]\n"
      "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n");
  EXPECT_EQ(std::string(audit.headline().question), "nan");
  EXPECT_EQ(audit.headline().health, Health::broken);
  EXPECT_EQ(audit.answers.at(1).kind, "floor_reached");
}

}  // namespace
}  // namespace ampcheck::checks::scaler
