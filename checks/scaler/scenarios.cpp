// SPDX-License-Identifier: Apache-2.0
#include "checks/scaler/scenarios.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace ampcheck::checks::scaler {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");
const Values kBad = {1, kNan, 1};  // in the middle, as most loops over ends forget elsewhere

using Calls = std::vector<Call>;

Call bad() { return {.op = Op::backward, .grads = kBad}; }

/// One step of a training loop; `explicitly`: with unscale_ before it, as for clipping.
void step(Calls& to, const Call& backward, bool explicitly = false) {
  to.push_back({Op::scale});
  to.push_back(backward);
  if (explicitly) to.push_back({Op::unscale});
  to.push_back({Op::step});
  to.push_back({Op::update});
  to.push_back({Op::zero});
}

/// "..X": clean, clean, overflow.
Calls steps(std::string_view pattern, bool explicitly = false) {
  Calls out;
  for (const char c : pattern) step(out, c == 'X' ? bad() : Call{Op::backward}, explicitly);
  return out;
}

Scenario about_scale(const char* code, Setup setup, Calls calls) {
  return {.code = code, .setup = setup, .calls = std::move(calls), .scales = true};
}

void add_trajectories(std::vector<Scenario>& out, const ScaleRule& rule) {
  out.push_back(about_scale("S1", {.window = 3}, steps("...........")));
  out.push_back(about_scale("S1", {.window = 1}, steps("....")));
  if (rule.hysteresis == 1) {
    out.push_back(about_scale("S1", {.window = 3}, steps("..X....XX......X.X...")));
    out.push_back(about_scale("S1", {.window = 2}, steps("X.X..X...X")));
    out.push_back(about_scale("S1", {.growth_factor = 4, .backoff_factor = 0.25, .window = 2}, steps("..X..XX")));
  } else {
    for (const char* pattern : {"XXXX", "XX.XX", "X.X.X.X", "X...XX", "..X....XX......X.X..."})
      out.push_back(about_scale("S5", {.window = 3}, steps(pattern)));
    out.push_back(about_scale("S5", {.window = 100}, steps("X.X.XX..X")));
  }
  if (rule.storage == Dtype::fp32) {  // a Python number has no such end
    out.push_back(about_scale("S2", {.init_scale = 0x1p126, .window = 1}, steps("......")));
    out.push_back(about_scale("S2", {.init_scale = 0x1p120, .growth_factor = 256, .window = 2}, steps("......X....")));
  }
  const double start = rule.floor > 0 ? 8 * rule.floor : 8;
  Scenario floor = about_scale("S3", {.init_scale = start, .window = 2}, steps("XXXXXXXX..X.."));
  floor.errors = rule.raises_at_floor;
  out.push_back(std::move(floor));
}

void add_gradients(std::vector<Scenario>& out, const Subject& subject) {
  for (const double scale : {52428.8, 3.0, 1000.0, 10000.0}) {
    Setup setup{.init_scale = scale};
    Scenario s{.code = "S6", .setup = setup, .calls = {}, .grads = true, .ulps = 1};
    step(s.calls, {.op = Op::backward, .grads = {1.2345678806304932, -0.3333333432674408, 0x1.8p-14}}, true);
    out.push_back(std::move(s));
  }
  Scenario one{.code = "S8", .setup = {.init_scale = 1}, .calls = {}, .grads = true};
  step(one.calls, {.op = Op::backward, .grads = {1.2345678806304932, -0.3333333432674408, 0x1.8p-100}}, true);
  out.push_back(std::move(one));
  for (const bool explicitly : {true, false})
    for (const bool fused : {false, true}) {
      if (fused && !subject.has_fused()) continue;
      const Setup setup{.init_scale = 8, .window = 2, .fused = fused};
      out.push_back({.code = "S11", .setup = setup, .calls = steps(".X.X..", explicitly), .weights = true});
      const Setup still{.init_scale = 8, .window = 100, .fused = fused};
      out.push_back({.code = "S13",
                     .setup = still,
                     .calls = steps("..", explicitly),
                     .factors = true,
                     .grads = true,
                     .weights = true});
      out.push_back({.code = "S13",
                     .setup = {.init_scale = 8, .window = 1, .fused = fused},
                     .calls = steps("....", explicitly),
                     .grads = true,
                     .weights = true});
    }
  Calls fallen = steps("XX");
  for (const Call& call : steps("..", true)) fallen.push_back(call);
  out.push_back({.code = "S13", .setup = {.init_scale = 64}, .calls = std::move(fallen), .grads = true});
  for (const double scale : {1.0, 256.0, 65536.0}) {
    for (const bool explicitly : {true, false})
      out.push_back({.code = "S12",
                     .setup = {.init_scale = scale, .window = 50},
                     .calls = steps("....", explicitly),
                     .weights = true});
  }
}

/// The same batch again and again: an overflow goes away when the scale falls, a NaN is skipped at scale 1 too.
void add_causes(std::vector<Scenario>& out, const ScaleRule& rule) {
  const Setup setup{.init_scale = 8, .window = 100};
  Calls overflow, nan = steps("XXX");
  LossScale scale(configured(rule, setup));
  for (int i = 0; i < 5; ++i) {  // as fp32 has it, also where a scaler works on fp64
    const double times = scale.scale(), first = static_cast<double>(static_cast<float>(0x1p126 * times));
    step(overflow, {.op = Op::backward, .grads = {first, times, times}, .raw = true});
    scale.update(std::isinf(first));
  }
  nan.resize(nan.size() - 2);  // at a floor some rules end the run
  out.push_back({.code = "S21", .setup = setup, .calls = std::move(overflow), .weights = true});
  out.push_back({.code = "S21", .setup = {.init_scale = 2, .window = 100}, .calls = std::move(nan), .weights = true});
}

void add_order(std::vector<Scenario>& out) {
  const auto add = [&](Calls calls) {
    out.push_back({.code = "S14", .setup = {.init_scale = 8}, .calls = std::move(calls), .errors = true});
  };
  const Call scale{Op::scale}, backward{Op::backward}, unscale{Op::unscale}, step{Op::step}, update{Op::update},
      zero{Op::zero};
  add({scale, backward, unscale, unscale});
  add({scale, backward, step, unscale});
  add({scale, backward, step, step});
  add({scale, backward, unscale, step, step});
  add({scale, update});
  add({scale, backward, step, update, update});
  add({backward, unscale});
  add({backward, step});
  add({scale, step});
  add({scale, backward, unscale, step, update, zero, scale, backward, unscale, step, update});
  add({scale, backward, unscale, update});
}

void add_windows(std::vector<Scenario>& out) {
  const Call scale{Op::scale}, backward{Op::backward}, step{Op::step}, update{Op::update}, zero{Op::zero};
  Calls spoiled = {scale, bad(),    scale, backward, step, update, zero,
                   scale, backward, scale, backward, step, update, zero};
  out.push_back(
      {.code = "S17", .setup = {.init_scale = 8}, .calls = spoiled, .scales = true, .factors = true, .weights = true});
  Calls last = {scale, backward, scale, backward, scale, bad(), step, update, zero, scale, backward, step, update};
  out.push_back(
      {.code = "S17", .setup = {.init_scale = 8}, .calls = last, .scales = true, .factors = true, .weights = true});
  for (const char* pattern : {"..", ".X", "X.", "...", "XX."}) {
    Calls calls = steps(pattern);
    calls.push_back({Op::reload});
    for (const Call& call : steps("..X...")) calls.push_back(call);
    out.push_back({.code = "S18",
                   .setup = {.init_scale = 64, .window = 3},
                   .calls = std::move(calls),
                   .scales = true,
                   .factors = true});
  }
  Calls off = steps(".X.", true);
  for (const Call& call : steps("..")) off.push_back(call);
  out.push_back({.code = "S19",
                 .setup = {.enabled = false},
                 .calls = off,
                 .errors = true,
                 .scales = true,
                 .factors = true,
                 .grads = true,
                 .weights = true});
}

void add_several(std::vector<Scenario>& out, const Subject& subject) {
  const Call second{.op = Op::step, .optimizer = 1};
  const Call bad_second{.op = Op::backward, .optimizer = 1, .grads = kBad};
  const Call clean_second{.op = Op::backward, .optimizer = 1};
  const Call scale{Op::scale}, backward{Op::backward}, step{Op::step}, update{Op::update}, zero{Op::zero};
  const auto add = [&](const char* code, Setup setup, Calls calls) {
    out.push_back({.code = code, .setup = setup, .calls = std::move(calls), .scales = true, .weights = true});
  };
  add("S15", {.init_scale = 8},
      {scale, backward, bad_second, step, second, update, zero, scale, backward, clean_second, step, second, update});
  add("S15", {.init_scale = 8},
      {scale, bad(), clean_second, step, second, update, zero, scale, backward, clean_second, step, second, update});
  add("S15", {.init_scale = 8}, {scale, bad(), bad_second, step, second, update});
  for (const bool fused : {false, true}) {
    if (fused && !subject.has_fused()) continue;
    const Call two{.op = Op::backward, .grads = {kNan, kNan, 1}},
        three{.op = Op::backward, .grads = {kNan, kNan, kNan}};
    for (const Call& call : {two, three})
      add("S10", {.init_scale = 8, .fused = fused}, {scale, call, {Op::unscale}, step, update});
  }
  if (subject.has_ranks()) {
    const Call other{.op = Op::backward, .rank = 1}, other_step{.op = Op::step, .rank = 1};
    add("S20", {.init_scale = 8, .ranks = 2},
        {scale, bad(), other, step, other_step, update, zero, scale, backward, other, step, other_step, update});
    add("S20", {.init_scale = 8, .window = 1, .ranks = 2}, {scale, backward, other, step, other_step, update});
    const Call other_bad{.op = Op::backward, .rank = 1, .grads = kBad};
    add("S20", {.init_scale = 8, .ranks = 2}, {scale, backward, other_bad, step, other_step, update});
  }
  if (subject.has_schedule()) {
    Calls calls;
    for (const char c : std::string_view(".X.XX.")) {
      for (const Call& call : {scale, c == 'X' ? bad() : backward, step, Call{Op::schedule}, update, zero})
        calls.push_back(call);
    }
    out.push_back({.code = "S22", .setup = {.init_scale = 64}, .calls = std::move(calls), .schedule = true});
  }
}

/// Whether the step was made although a gradient is not finite, and the scale did not fall either.
std::string unseen(const std::vector<Reply>& got, std::size_t step, double before) {
  if (got.size() <= step + 1) return "";
  const bool moved = got[step].weights != Values{};
  return moved && !(got[step + 1].scale < before) ? "the step is made, and the scale does not fall" : "";
}

void add_detection(std::vector<Ideal>& out) {
  for (const double value : {kInf, -kInf, kNan})
    for (std::size_t at = 0; at < kElements; ++at) {
      Call call{Op::backward};
      call.grads[at] = value;
      out.push_back({"S7",
                     {.init_scale = 8, .window = 100},
                     {{Op::scale}, call, {Op::step}, {Op::update}},
                     true,
                     [value, at](const std::vector<Reply>& got) {
                       const std::string text = unseen(got, 2, 8);
                       return text.empty()
                                  ? text
                                  : fmt::format("{} in element {} of 3: {}",
                                                std::isnan(value) ? "nan" : fmt::format("{}", value), at + 1, text);
                     }});
    }
  // Opposite infinities, and finite numbers whose sum is not finite.
  out.push_back({"S7",
                 {.init_scale = 8, .window = 100},
                 {{Op::scale}, {.op = Op::backward, .grads = {kInf, -kInf, 1}}, {Op::step}, {Op::update}},
                 true,
                 [](const std::vector<Reply>& got) { return unseen(got, 2, 8); }});
  out.push_back({"S7",
                 {.init_scale = 8, .window = 100},
                 {{Op::scale}, {.op = Op::backward, .grads = {3e38, 3e38, 1}, .raw = true}, {Op::step}, {Op::update}},
                 true,
                 [](const std::vector<Reply>& got) {
                   const bool taken = got.size() > 3 && got[2].weights == Values{};
                   return taken ? std::string("finite gradients whose sum overflows are taken for an overflow")
                                : std::string();
                 }});
}

}  // namespace

std::vector<Scenario> scenarios(const ScaleRule& rule, const Subject& subject) {
  std::vector<Scenario> out;
  add_trajectories(out, rule);
  add_gradients(out, subject);
  add_causes(out, rule);
  add_order(out);
  add_windows(out);
  add_several(out, subject);
  return out;
}

std::vector<Ideal> ideals(const ScaleRule& rule, const Subject& subject) {
  std::vector<Ideal> out;
  add_detection(out);
  const bool hysteresis = rule.hysteresis > 1;
  if (rule.count != GrowthCount::stable_since_overflow && subject.sets_window()) {
    Calls late = steps("...");
    late.push_back({.op = Op::set_window, .window = 2});
    for (const Call& call : steps(".......")) late.push_back(call);
    out.push_back(
        {"S4", {.init_scale = 8, .window = 4}, late, false, [](const std::vector<Reply>& got) {
           return !got.empty() && !got.back().error && got.back().scale == 8
                      ? std::string(
                            "after 3 clean steps the window is set to 2, and the scale never grows again: the "
                            "count is compared for equality")
                      : std::string();
         }});
  }
  out.push_back({"S2", {.init_scale = 0x1p127, .window = 1}, steps("....."), false, [](const std::vector<Reply>& got) {
                   return !got.empty() && !std::isfinite(got.back().scale)
                              ? std::string("the scale becomes infinite, and stays so")
                              : std::string();
                 }});
  if (rule.floor < 1e-6)  // flax's 2^-126 is none
    out.push_back({"S3",
                   {.init_scale = 1, .window = 100},
                   steps(hysteresis ? "XXXXXX" : "XXXX"),
                   false,
                   [](const std::vector<Reply>& got) {
                     return !got.empty() && got.back().scale < 1
                                ? fmt::format("no floor holds it: the scale falls to {:g}, and on", got.back().scale)
                                : std::string();
                   }});
  out.push_back({"S9",
                 {.init_scale = 0x1p-20, .window = 100},
                 {{Op::scale}, {.op = Op::backward, .grads = {1e37, 1, 1}, .raw = true}, {Op::step}},
                 false,
                 [](const std::vector<Reply>& got) {
                   return got.size() == 3 && !std::isfinite(got[2].weights[0])
                              ? std::string("a finite gradient becomes infinite by unscaling, and the step is made")
                              : std::string();
                 }});
  out.push_back({"S16",
                 {.init_scale = 8},
                 {{Op::scale}, {Op::backward}, {Op::unscale}, {Op::corrupt}, {Op::step}},
                 false,
                 [](const std::vector<Reply>& got) {
                   return got.size() == 5 && !std::isfinite(got[4].weights[0])
                              ? std::string("infinity that comes between unscale and step reaches the weights")
                              : std::string();
                 }});
  if (subject.has_half())
    out.push_back({"S23", {.init_scale = 65536}, {{Op::scale_half}}, false, [](const std::vector<Reply>& got) {
                     return got.size() == 1 && !(std::abs(got[0].scaled) <= 65504)
                                ? std::string(
                                      "a loss of 1 in fp16 times the first scale, 65536, leaves fp16: the first step "
                                      "is always skipped")
                                : std::string();
                   }});
  return out;
}

}  // namespace ampcheck::checks::scaler
