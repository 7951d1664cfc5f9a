// SPDX-License-Identifier: Apache-2.0
#include "tests/support/planted_logs.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>

#include "src/amp/error.h"
#include "src/amp/scale_rule.h"
#include "src/random.h"

namespace ampcheck::tests {

namespace {

using checks::scaler::Health;

struct Step {
  std::int64_t step = 0;
  double before = 0, after = 0, loss = 0, norm = 0, lr = 0;
  bool skip = false, raised = false;
  int hysteresis = 0;
};

struct Run {
  std::vector<Step> steps;
  std::vector<double> other_rank;  ///< scale after each step, where a second rank differs
  std::size_t resumed_at = 0;
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Between -1 and 1, the same in every run.
double noise(std::uint64_t i) {
  std::uint64_t x = i * 0x9E3779B97F4A7C15u + 0x1234567u;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 29;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1;
}

/// log2 of the largest scale at which step i does not overflow.
double room(Fate fate, std::int64_t i, std::int64_t steps) {
  switch (fate) {
    case Fate::steady: return 60;
    case Fate::runaway:
    case Fate::infinite_scale: return 2000;
    case Fate::ratchet: return i % 40 == 39 ? 15.5 - 12.0 * static_cast<double>(i) / static_cast<double>(steps) : 60;
    case Fate::burst: return i >= steps / 2 && i < steps / 2 + 5 ? 7.5 : 12.5;
    case Fate::gradient_nan:
    case Fate::nan_later: return i >= steps / 3 ? -1e9 : 12.5;
    case Fate::nan_from_start: return -1e9;
    default: return 12.5;
  }
}

bool loss_is_nan(Fate fate, std::int64_t i, std::int64_t steps) {
  return fate == Fate::nan_from_start || (fate == Fate::nan_later && i >= steps / 3) ||
         (fate == Fate::bf16_nan && i >= steps / 2) || (fate == Fate::nan_at_times && i % 977 == 500);
}

ScaleRule rule_for(Fate fate, const char* name) {
  ScaleRule rule = scale_rule(name);
  rule.init_scale = 65536;
  if (fate == Fate::runaway) rule.window = 100;
  if (fate == Fate::infinite_scale) rule.window = 20;
  if (fate == Fate::bf16 || fate == Fate::bf16_nan) rule.init_scale = 1;
  if (fate == Fate::steady) rule.init_scale = 4096;
  return rule;
}

Run play(Fate fate, const char* rule_name, std::int64_t steps) {
  ScaleRule rule = rule_for(fate, rule_name);
  LossScale scale(rule);
  Run out;
  const bool fixed = fate == Fate::bf16 || fate == Fate::bf16_nan;
  for (std::int64_t i = 0; i < steps; ++i) {
    if (fate == Fate::reset && i == steps / 2) {
      out.resumed_at = out.steps.size();
      scale = LossScale(rule);
    }
    Step s;
    s.step = i + 1;
    s.before = scale.scale();
    s.hysteresis = scale.hysteresis();
    s.loss = loss_is_nan(fate, i, steps)
                 ? kNan
                 : 2 + 3 * std::exp(-static_cast<double>(i) / 800) + 0.02 * noise(static_cast<std::uint64_t>(i));
    const bool nan_now = std::isnan(s.loss);
    const double most = room(fate, i, steps);
    s.skip = !fixed && (nan_now || most < -1e6 || std::log2(s.before) > most);
    if (!fixed) {
      try {
        scale.update(s.skip);
      } catch (const AmpError&) {
        s.raised = true;
      }
    }
    s.after = scale.scale();
    s.norm = (1 + 0.1 * noise(static_cast<std::uint64_t>(i) + 7777)) * (fate == Fate::scaled_norm ? s.after : 1.0);
    if (s.skip || nan_now) s.norm = kNan;
    s.lr = 1e-4;
    out.steps.push_back(s);
    if (fate == Fate::ranks_differ) out.other_rank.push_back(i > steps / 2 ? s.after / 2 : s.after);
    if (s.raised) break;
  }
  return out;
}

std::string number(double x) { return std::isnan(x) ? "nan" : fmt::format("{}", x); }

enum Caps : unsigned {
  kScale = 1,
  kSkip = 2,
  kStep = 4,
  kLoss = 8,
  kNorm = 16,
  kRank = 32,
  kEach = 64,
  kCounters = 128,
  kFalls = 256
};

struct Format {
  const char* name;
  const char* rule;
  unsigned caps;
  int interval;  ///< of lines that say steps
  std::function<std::string(const Run&)> write;
};

std::string deepspeed(const Run& run, const char* tag, bool bars) {
  std::string out;
  std::int64_t skipped = 0;
  for (const Step& s : run.steps) {
    skipped += s.skip ? 1 : 0;
    if (s.raised) {
      out += "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n";
      break;
    }
    if (s.skip) {
      out += fmt::format(
          "[2025-02-01 09:00:00,001] [INFO] [loss_scaler.py:183:update_scale] [{}] OVERFLOW! Rank 0 "
          "Skipping step. Attempted loss scale: {}, ",
          tag, s.before);
      out += s.hysteresis > 1
                 ? fmt::format("but hysteresis is {}. Reducing hysteresis to {}", s.hysteresis, s.hysteresis - 1)
                 : fmt::format("reducing to {}", s.after);
      if (!bars) out += "\n";
    }
    if (bars)
      out += fmt::format(
          "{}Steps:   0%|\u258f         | {}/9000 [00:01<2:11:07,  4.12s/it, lr=1e-5, step_loss={}, td=0.05s]\n",
          s.skip ? "\r" : "", s.step, number(s.loss));
    else if (s.step % 10 == 0)
      out += fmt::format(
          "[2025-02-01 09:00:00,001] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped={}, "
          "lr=[9.65e-06, 9.65e-06], mom=[(0.9, 0.95), (0.9, 0.95)]\n",
          s.step, skipped);
  }
  return out;
}

std::string deepspeed_fused(const Run& run) {
  std::string out;
  for (const Step& s : run.steps) {
    if (s.skip)
      out += fmt::format(
          "[2020-05-20 10:00:00,000] [INFO] [fused_optimizer.py:364:_update_scale] Grad overflow on "
          "iteration {}\n[2020-05-20 10:00:00,000] [INFO] [fused_optimizer.py:366:_update_scale] "
          "Reducing dynamic loss scale from {} to {}\n",
          s.step, s.before, s.after);
    else if (s.after > s.before)
      out += fmt::format(
          "[2020-05-20 10:00:00,000] [INFO] [fused_optimizer.py:370:_update_scale] Increasing dynamic "
          "loss scale from {} to {}\n",
          s.before, s.after);
    if (s.step % 10 == 0)
      out += fmt::format("  1%|#         | {}/9000 [00:01<2:11:07, loss={}]\n", s.step, number(s.loss));
  }
  return out;
}

std::string megatron(const Run& run, int interval, bool neox, bool counts) {
  std::string out;
  int skipped = 0, nans = 0;
  for (const Step& s : run.steps) {
    skipped += s.skip && counts ? 1 : 0;
    nans += std::isnan(s.loss) && counts ? 1 : 0;
    if (s.step % interval != 0) continue;
    if (neox) out += " samples/sec: 100.120 |";
    out += fmt::format(" iteration {:8}/    9000 | ", s.step);
    if (!neox) out += fmt::format("consumed samples: {:12} | ", 64 * s.step);
    out += fmt::format("elapsed time per iteration (ms): 7613.1 | learning rate: {:.3E} | ", s.lr);
    if (!s.skip && !std::isnan(s.loss)) out += fmt::format("{}: {:.6E} | ", neox ? "lm_loss" : "lm loss", s.loss);
    out += fmt::format("loss scale: {:.1f} | ", s.after);
    if (!neox && !s.skip) out += fmt::format("grad norm: {} | ", number(s.norm));
    out += fmt::format("number of skipped iterations: {:3} | number of nan iterations: {:3} |\n", skipped, nans);
    skipped = nans = 0;
  }
  return out;
}

std::string apex(const Run& run, int ranks) {
  std::string out;
  for (const Step& s : run.steps) {
    if (s.skip)
      for (int r = 0; r < ranks; ++r)
        out += fmt::format("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}\n", s.after);
    else if (s.step % 50 == 0)
      out += "Test: accuracy 0.51, some table | that | no grammar knows\n";
  }
  return out;
}

std::string fairseq(const Run& run) {
  std::string out;
  std::int64_t updates = 0;
  for (const Step& s : run.steps) {
    if (s.raised)
      return out + "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.\n";
    if (s.skip) {
      out += fmt::format(
          "2021-03-01 10:00:00 | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring "
          "gradient, setting loss scale to: {}\n",
          s.after);
      continue;
    }
    if (++updates % 10 == 0)
      out += fmt::format(
          "2021-03-01 10:00:00 | INFO | train_inner | epoch 001:  {:5} / 9000 loss={:.3f}, ppl=30, "
          "num_updates={}, lr={}, gnorm={:.3f}, loss_scale={:.3f}, train_wall=10, wall=12\n",
          updates, s.loss, updates, s.lr, s.norm, s.after);
  }
  return out;
}

/// A line for each step, by a format of its fields.
std::string per_step(const Run& run, const std::function<std::string(const Step&, std::int64_t)>& line) {
  std::string out;
  std::int64_t skipped = 0;
  for (const Step& s : run.steps) {
    if (s.raised) break;  // the run is over before it prints this
    skipped += s.skip ? 1 : 0;
    out += line(s, skipped) + "\n";
  }
  return out;
}

std::string internevo(const Step& s, std::int64_t skipped) {
  return fmt::format(
      "2024-01-20 10:00:00,000\tINFO train.py:300 in record -- tgs=4000 step={} loss={} lr={} "
      "loss_scale={} grad_norm={{'0_default': {}, '1_fp32': 0.0}} inf_nan_skip_batches={}",
      s.step, number(s.loss), s.lr, s.after, s.skip ? "-1" : number(s.norm), skipped);
}

std::string huggingface(const Step& s, std::int64_t) {
  return fmt::format("{{'loss': {:.4f}, 'grad_norm': {}, 'learning_rate': {:.3e}, 'epoch': {:.2f}}}",
                     std::isnan(s.loss) ? 0.0 : s.loss, number(s.norm), s.lr, static_cast<double>(s.step) / 500);
}

std::string swin(const Step& s, std::int64_t) {
  return fmt::format(
      "[2022-01-01 10:00:00 swin] (main.py 220): INFO Train: [1/300][{}/9999] eta 0:10:00 lr {} wd 0.05 "
      "time 0.51 (0.60) loss {:.4f} ({:.4f}) grad_norm {:.4f} (nan) loss_scale {:.4f} (65536.0000) mem 8000MB",
      s.step, s.lr, s.loss, s.loss, s.norm, s.after);
}

std::string paddle(const Step& s, std::int64_t) {
  return fmt::format(
      "[2024-11-22 09:46:02,799] [    INFO] - global step {}, loss: {:.6f}, speed: 2.88 steps/s, learning "
      "rate: {:.5e}, loss_scaling: {:.2f}, incr_count: {:.2f}, decr_count: 0.00",
      s.step, s.loss, s.lr, s.after, static_cast<double>(s.step % 2000));
}

std::string insightface(const Step& s, std::int64_t) {
  return fmt::format(
      "Training: 2021-06-01 10:00:00,000-Speed 3000.00 samples/sec   Loss {:.4f}   LearningRate {:.4f}   "
      "Epoch: 0   Global Step: {}   Fp16 Grad Scale: {:6.0f}   Required: 10 hours",
      s.loss, s.lr, s.step, s.after);
}

std::string dllogger(const Step& s, std::int64_t) {
  return fmt::format(
      "DLL 2020-11-01 10:00:00.000000 - Training Epoch: 0 Training Iteration: {}  step_loss : {} "
      "learning_rate : {} loss_scale : {:.1f}",
      s.step, number(s.loss), s.lr, s.after);
}

std::string lmops(const Step& s, std::int64_t) {
  return fmt::format(
      "train | epoch   0 | Iter: {:6}/  9000 | global iter: {:6}/  9000 | loss: {:.4f} | ds_loss: 0.0 | lr: "
      "{:.4e} | scale: {:10.4f} | micro time: 0.100 | step time: 0.000",
      s.step, s.step, s.loss, s.lr, s.after);
}

std::string flashlight(const Step& s, std::int64_t) {
  return fmt::format("epoch:        1 | nupdates: {:12} | lr: {:.6f} | train-loss: {:.4f} | scale-factor: {:.1f}",
                     s.step, s.lr, s.loss, s.after);
}

std::string metaseq(const Step& s, std::int64_t) {
  return fmt::format(
      "2022-05-01 10:00:00 | INFO | train_inner | {{\"epoch\": 1, \"actv_norm\": \"10.1\", \"loss\": \"{}\", \"lr\": "
      "\"{}\", \"gnorm\": \"{:.3f}\", \"num_updates\": \"{}\", \"loss_scale\": \"{}\", \"wall\": \"12\"}}",
      number(s.loss), s.lr, s.norm, s.step, s.after);
}

std::string keras(const Step& s, std::int64_t) {
  return fmt::format(
      "\x1b[1m{:4}/9999\x1b[0m [=>............................] - ETA: 5:12 - loss: {} - accuracy: 0.1 - "
      "loss_scale: {}",
      s.step, number(s.loss), s.after);
}

/// mmengine's lines, or mmcv's before it.
std::string mmengine(const Run& run, bool mmcv) {
  std::string out;
  double norm = 0;
  for (const Step& s : run.steps) {
    norm += s.norm / 50;
    if (s.step % 50 != 0) continue;
    if (mmcv) {
      out += fmt::format(
          "2021-05-18 06:40:12,000 - mmdet - INFO - Epoch [1][{}/7330]  lr: {:.3e}, eta: 1 day, time: 0.5, loss_cls: "
          "1.05, loss: {:.4f}, grad_norm: {:.4f}\n",
          s.step, s.lr, s.loss, norm);
      norm = 0;
      continue;
    }
    out += fmt::format(
        "05/18 06:40:12 - mmengine - \x1b[4m\x1b[97mINFO\x1b[0m - Epoch(train)  [1][{:5}/29572]  lr: {:.4e}  eta: 2 "
        "days, "
        "18:26:28  time: 0.6741  memory: 11829  grad_norm: {:.4f}  loss: {:.4f}  loss_cls: 1.0562\n",
        s.step, s.lr, norm, s.loss);
    norm = 0;
  }
  return out;
}

std::string json_lines(const Run& run, bool ranks) {
  std::string out;
  const auto value = [](double x) {
    return std::isnan(x) ? std::string("\"nan\"") : std::isinf(x) ? "\"inf\"" : fmt::format("{}", x);
  };
  for (std::size_t i = 0; i < run.steps.size(); ++i)
    for (int rank = 0; rank < (ranks ? 2 : 1); ++rank) {
      const Step& s = run.steps[i];
      const double scale = rank == 1 && !run.other_rank.empty() ? run.other_rank[i] : s.after;
      out += fmt::format(
                 R"({{"step": {}, "train": {{"loss": {}, "grad_norm": {}}}, "loss_scale": {}, "found_inf": {}{}}})",
                 s.step, value(s.loss), value(s.norm), value(scale), s.skip ? "true" : "false",
                 ranks ? fmt::format(", \"rank\": {}", rank) : "") +
             "\n";
    }
  return out;
}

std::string csv(const Run& run) {
  std::string out = "step,train/loss,grad_norm,amp_scale,skipped,lr\n";
  for (const Step& s : run.steps)
    out += fmt::format("{},{},{},{},{},{}\n", s.step, number(s.loss), s.skip ? "" : number(s.norm), s.after,
                       s.skip ? 1 : 0, s.lr);
  return out;
}

std::string own_line(const Run& run) {
  std::string out;
  for (std::size_t i = 0; i < run.steps.size(); ++i)
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const Step& s = run.steps[i];
      const double scale = rank == 1 && !run.other_rank.empty() ? run.other_rank[i] : s.after;
      out += fmt::format("[rank{}]: step={} loss={} loss_scale={} grad_norm={} skipped={}\n", rank, s.step,
                         number(s.loss), scale, number(s.norm), s.skip ? 1 : 0);
    }
  return out;
}

std::string own_trace(const Run& run) {
  std::string out = R"({"schema":"ampcheck.trace/2","model":"mlp","dtype":"fp16","scaler":"torch","steps":9000})"
                    "\n";
  for (const Step& s : run.steps) {
    out +=
        fmt::format(R"({{"step":{},"seq":0,"phase":"forward","op":"linear_1","tensor":"x","scale":1,"loss_error":0}})"
                    "\n",
                    s.step - 1);
    out += fmt::format(R"({{"step":{},"loss":{},"scale":{},"scale_after":{},"tracker":1,"found_inf":{},"stepped":{}}})"
                       "\n",
                       s.step - 1, std::isnan(s.loss) ? "\"nan\"" : number(s.loss), s.before,
                       std::isinf(s.after) ? "\"inf\"" : number(s.after), s.skip, !s.skip);
  }
  return out;
}

std::string colossal(const Run& run) {
  std::string out;
  for (const Step& s : run.steps)
    if (s.skip) out += "[03/01/24 10:00:00] INFO     colossalai - colossalai - INFO: Found overflow. Skip step.\n";
  return out;
}

std::vector<Format> formats() {
  const auto lines = [](auto line) { return [line](const Run& run) { return per_step(run, line); }; };
  constexpr unsigned kAll = kScale | kStep | kLoss | kEach;
  return {
      {"deepspeed", "deepspeed", kScale | kSkip | kStep, 10,
       [](const Run& r) { return deepspeed(r, "deepspeed", false); }},
      {"deepspeed_bars", "deepspeed", kAll | kSkip | kFalls, 1,
       [](const Run& r) { return deepspeed(r, "deepspeed", true); }},
      {"deepscale", "deepspeed", kScale | kSkip | kStep, 10,
       [](const Run& r) { return deepspeed(r, "deepscale", false); }},
      {"deepspeed_fused", "torch", kScale | kSkip | kStep | kLoss | kFalls, 10, deepspeed_fused},
      {"megatron", "megatron", kAll | kSkip | kNorm | kCounters, 1,
       [](const Run& r) { return megatron(r, 1, false, true); }},
      {"megatron_10", "megatron", kScale | kStep | kLoss, 10,
       [](const Run& r) { return megatron(r, 10, false, true); }},
      {"neox", "megatron", kAll | kSkip | kCounters, 1, [](const Run& r) { return megatron(r, 1, true, true); }},
      {"apex", "torch", kScale | kSkip, 0, [](const Run& r) { return apex(r, 1); }},
      {"apex_4_ranks", "torch", kScale | kSkip, 0, [](const Run& r) { return apex(r, 4); }},
      {"fairseq", "fairseq", kScale | kSkip | kStep, 10, fairseq},
      {"internevo", "torch", kAll | kSkip | kNorm, 1, lines(internevo)},
      {"huggingface", "torch", kLoss, 1, lines(huggingface)},
      {"mmengine", "torch", kLoss | kStep, 50, [](const Run& r) { return mmengine(r, false); }},
      {"mmcv", "torch", kLoss | kStep, 50, [](const Run& r) { return mmengine(r, true); }},
      {"swin", "torch", kAll | kNorm, 1, lines(swin)},
      {"paddlenlp", "paddle", kAll, 1, lines(paddle)},
      {"insightface", "torch", kAll, 1, lines(insightface)},
      {"dllogger", "torch", kAll, 1, lines(dllogger)},
      {"lmops", "deepspeed", kAll, 1, lines(lmops)},
      {"flashlight", "torch", kAll, 1, lines(flashlight)},
      {"metaseq", "fairseq", kAll | kNorm, 1, lines(metaseq)},
      {"keras", "keras", kAll, 1, lines(keras)},
      {"json", "torch", kAll | kSkip | kNorm, 1, [](const Run& r) { return json_lines(r, false); }},
      {"json_ranks", "torch", kAll | kSkip | kNorm | kRank, 1, [](const Run& r) { return json_lines(r, true); }},
      {"csv", "torch", kAll | kSkip | kNorm, 1, csv},
      {"own_line", "torch", kAll | kSkip | kNorm | kRank, 1, own_line},
      {"trace", "torch", kAll | kSkip, 1, own_trace},
      {"colossalai", "torch", kSkip, 0, colossal},
  };
}

struct Due {
  Health health;
  const char* question = "";
  const char* kind = "";
};

std::optional<Due> if_shown(bool shown, Health health, const char* question, const char* kind) {
  return shown ? std::optional(Due{health, question, kind}) : std::nullopt;
}

std::optional<Due> due_of_healthy(Fate fate, const Format& f) {
  const auto has = [&](unsigned caps) { return (f.caps & caps) == caps; };
  if (fate == Fate::bf16) return if_shown(has(kCounters), Health::harmless, "skips", "no_skips");
  if (fate == Fate::steady) {
    if (f.interval == 0) return std::nullopt;                               // no line at all
    if (has(kFalls)) return Due{Health::cannot_tell, "skips", "not_said"};  // a scale only where it falls
    const bool seen = has(kScale) || has(kSkip);
    return Due{seen ? Health::harmless : Health::cannot_tell, "skips", seen ? "no_skips" : "not_said"};
  }
  if (!has(kScale)) return Due{Health::cannot_tell, "skips", ""};
  return Due{Health::harmless, "skips", fate == Fate::probes ? "start_up_and_probes" : "start_up"};
}

std::optional<Due> due_of_nan(Fate fate, const Format& f) {
  const auto has = [&](unsigned caps) { return (f.caps & caps) == caps; };
  if (fate == Fate::bf16_nan) return if_shown(has(kCounters), Health::broken, "nan", "nan_for_good");
  if (fate == Fate::nan_at_times)
    return if_shown(has(kLoss | kEach) && !has(kCounters), Health::losing, "nan", "nan_now_and_then");
  if (fate == Fate::gradient_nan) {
    if (std::string(f.name) == "swin") return Due{Health::broken, "nan", "nan_for_good"};  // it shows the norm
    return if_shown(has(kScale), Health::broken, "nan", "nan_at_any_scale");
  }
  if (has(kLoss) && !has(kCounters) && f.interval != 10) return Due{Health::broken, "nan", "nan_for_good"};
  return if_shown(has(kScale), Health::broken, "nan", "");
}

/// What a log of that grammar can show of a fate. None: nothing.
std::optional<Due> due(Fate fate, const Format& f) {
  const auto has = [&](unsigned caps) { return (f.caps & caps) == caps; };
  const std::string name = f.name;
  switch (fate) {
    case Fate::steady:
    case Fate::start_up:
    case Fate::probes:
    case Fate::bf16: return due_of_healthy(fate, f);
    case Fate::ratchet: return if_shown(has(kScale | kStep), Health::losing, "skips", "ratchet");
    case Fate::burst: return if_shown(has(kScale), Health::losing, "skips", "burst");
    case Fate::scaled_norm: return if_shown(has(kScale | kNorm), Health::losing, "norm", "scaled");
    case Fate::reset: return if_shown(has(kScale | kStep), Health::losing, "reset", "reset");
    case Fate::ranks_differ: return if_shown(has(kRank), Health::broken, "ranks", "disagree");
    case Fate::runaway:
      return if_shown(has(kScale | kStep | kEach) && name != "deepspeed_bars", Health::losing, "skips", "runaway");
    case Fate::infinite_scale: return if_shown(name == "keras", Health::broken, "skips", "scale_not_finite");
    default: return due_of_nan(fate, f);
  }
}

constexpr Fate kFates[] = {Fate::steady,         Fate::start_up,    Fate::probes,         Fate::bf16,
                           Fate::nan_from_start, Fate::nan_later,   Fate::gradient_nan,   Fate::ratchet,
                           Fate::burst,          Fate::scaled_norm, Fate::reset,          Fate::ranks_differ,
                           Fate::bf16_nan,       Fate::runaway,     Fate::infinite_scale, Fate::nan_at_times};

bool is_healthy(Fate fate) {
  return fate == Fate::steady || fate == Fate::start_up || fate == Fate::probes || fate == Fate::bf16;
}

std::int64_t steps_of(Fate fate) {
  return fate == Fate::start_up || fate == Fate::bf16 || fate == Fate::bf16_nan ? 900
         : fate == Fate::ratchet                                                ? 1500
         : fate == Fate::steady                                                 ? 600
                                                                                : 7000;
}

}  // namespace

const char* name(Fate fate) {
  constexpr const char* kNames[] = {"steady",         "start_up",    "probes",         "bf16",
                                    "nan_from_start", "nan_later",   "gradient_nan",   "ratchet",
                                    "burst",          "scaled_norm", "reset",          "ranks_differ",
                                    "bf16_nan",       "runaway",     "infinite_scale", "nan_at_times"};
  return kNames[static_cast<std::size_t>(fate)];
}

std::vector<PlantedLog> planted_logs() {
  std::vector<PlantedLog> out;
  for (const Format& format : formats())
    for (const Fate fate : kFates) {
      const std::optional<Due> what = due(fate, format);
      if (!what) continue;
      Run run = play(fate, format.rule, steps_of(fate));
      std::string text = format.write(run);
      if (fate == Fate::bf16_nan) text = megatron(run, 1, std::string(format.name) == "neox", false);
      out.push_back({std::string(format.name) + "." + name(fate), std::move(text), what->health, what->question,
                     what->kind, is_healthy(fate)});
    }
  return out;
}

std::string long_log(const std::string& format, int steps) {
  for (const Format& known : formats())
    if (format == known.name) return known.write(play(Fate::probes, known.rule, steps));
  return "";
}

}  // namespace ampcheck::tests
