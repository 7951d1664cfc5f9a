// SPDX-License-Identifier: Apache-2.0
// Audits of loss scales: a log of a million lines, and the search through all sequences of calls.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "checks/scaler/answers.h"
#include "checks/scaler/call_checks.h"
#include "src/amp/scale_rule.h"
#include "tests/bench/figures.h"

namespace ampcheck::bench {

namespace {

constexpr int kLines = 1'000'000;

/// A run with a skip in each window of 2000, a line for each step. `form`: of the step, the loss scale, the norm, and
/// whether the step was skipped.
template <class Form>
std::string long_log(const Form& form) {
  std::string out;
  double scale = 32768;
  for (int step = 1; step <= kLines; ++step) {
    const bool skip = step % 2001 == 0;
    if (step % 2001 == 2000) scale *= 2;
    if (skip) scale /= 2;
    out += form(step, scale, 0.5 + (step % 97) * 1e-3, skip);
  }
  return out;
}

void log_figure(const std::string& kind, const std::function<std::string()>& write) {
  add_figure("scaler/log/" + kind, 5, [=](benchmark::State& state) {
    const std::string text = write();
    double best = 1e30;
    for (auto _ : state) {
      const double seconds = seconds_of([&] { benchmark::DoNotOptimize(checks::scaler::audit_log(text)); });
      best = std::min(best, seconds);
      state.SetIterationTime(seconds);
    }
    record_figure("audit of a log of 10^6 lines, " + kind, Goal::at_most, 2, best, "s");
  });
}

void search_figure() {
  add_figure("scaler/search", 5, [](benchmark::State& state) {
    double fastest = 0;
    for (auto _ : state) {
      const auto subject = checks::scaler::built_in_scaler(scale_rule("torch"));
      checks::scaler::CallAudit audit;
      const double seconds = seconds_of([&] { audit = checks::scaler::audit_calls(*subject, scale_rule("torch")); });
      fastest = std::max(fastest, static_cast<double>(audit.calls) / seconds);
      state.SetIterationTime(seconds);
    }
    record_figure("search through all sequences of calls of a scaler, by what is due", Goal::at_least, 1e6, fastest,
                  "calls/s");
  });
}

std::string csv_log() {
  return "step,scale,grad_norm,skipped\n" + long_log([](int step, double scale, double norm, bool skip) {
           return fmt::format("{},{},{},{}\n", step, scale, norm, skip ? 1 : 0);
         });
}

std::string json_log() {
  return long_log([](int step, double scale, double norm, bool skip) {
    return fmt::format("{{\"step\": {}, \"loss_scale\": {}, \"grad_norm\": {}, \"skipped\": {}}}\n", step, scale, norm,
                       skip ? 1 : 0);
  });
}

std::string megatron_log() {
  return long_log([](int step, double scale, double norm, bool skip) {
    return fmt::format(
        " iteration {:8}/ {:8} | consumed samples: {:12} | elapsed time per iteration (ms): 761.1 | learning rate: "
        "6.680E-06 | global batch size:    64 | lm loss: 7.300000E-01 | loss scale: {:.1f} | grad norm: {:.3f} | "
        "number "
        "of skipped iterations: {:3} | number of nan iterations:   0 |\n",
        step, kLines, 64 * step, scale, norm, skip ? 1 : 0);
  });
}

bool register_all() {
  log_figure("CSV", csv_log);
  log_figure("JSON lines", json_log);
  log_figure("Megatron", megatron_log);
  search_figure();
  return true;
}

const bool registered = register_all();

}  // namespace

}  // namespace ampcheck::bench
