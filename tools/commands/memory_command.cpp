// SPDX-License-Identifier: Apache-2.0
// `ampcheck memory`: what a step of a net takes, by strategy.
#include <fmt/format.h>

#include <algorithm>

#include "checks/train/memory.h"
#include "tools/choose/as_usage.h"
#include "tools/choose/net_choice.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/output.h"
#include "tools/workers/child.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

std::string bytes_text(std::int64_t bytes) {
  if (bytes >= 10'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
  if (bytes >= 10'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) * 1e-3);
  return fmt::format("{} B", bytes);
}

}  // namespace

ExitCode memory_command(const MemoryOptions& options) {
  const Dtype low = options.dtype.value_or(Dtype::fp16);
  if (low == Dtype::fp32) throw UsageError("[--dtype] got fp32, want fp16 or bf16: fp32 is the first row in any case");
  const std::string& model = options.model;
  const Net net = as_usage([&] { return choose_net(options, model, model.ends_with(".toml") ? model : "").made(); });
  const OptimizerChoice choice = as_usage([&] {
    return optimizer_of(net, {.name = options.optimizer, .momentum = options.momentum, .nesterov = options.nesterov})
        .with_defaults();
  });
  run_kernels_here(net.own_ops, options);
  // A net that does not fit together, or not these dtypes.
  const MemoryReport report = as_usage([&] { return memory_of(net, choice, low, options.seed); });
  if (options.json) {
    Json out = {{"schema", "ampcheck.memory/1"},   {"model", model},
                {"optimizer", choice.name},        {"momentum", std::max(choice.momentum, 0.0)},
                {"parameters", report.parameters}, {"strategies", Json::array()}};
    for (const MemoryUse& m : report.strategies)
      out["strategies"].push_back({{"strategy", m.strategy},
                                   {"weights", m.weights},
                                   {"masters", m.masters},
                                   {"gradients", m.gradients},
                                   {"moments", m.moments},
                                   {"activations", m.activations},
                                   {"total", m.total()},
                                   {"peak", m.peak}});
    write_stdout(json_text(out));
    return ExitCode::passed;
  }
  const Style style = stdout_style();
  std::string out = fmt::format(
      "{}{}: {} parameters, {}{}\n\n  {:<65}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}{:>11}\n", style.bold, model,
      report.parameters,
      choice.momentum > 0 ? fmt::format("{} with momentum {}", choice.name, choice.momentum) : choice.name, style.reset,
      "strategy", "weights", "masters", "gradients", "moments", "activations", "total", "peak");
  for (std::size_t i = 0; i < report.strategies.size(); ++i) {
    const MemoryUse& m = report.strategies[i];
    out += fmt::format("  {:<65}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}{:>11}\n", m.strategy, bytes_text(m.weights),
                       bytes_text(m.masters), bytes_text(m.gradients), bytes_text(m.moments), bytes_text(m.activations),
                       bytes_text(m.total()), bytes_text(m.peak));
  }
  out +=
      "\nBytes that a step of each allocated. Activations: every tensor kept from forward to backward, casts of "
      "weights among them, which\nstrategies with low-precision weights do not need. Total: their\nsum. Peak: the most "
      "held at any one time, with the gradients of activations.\n";
  write_stdout(out);
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
