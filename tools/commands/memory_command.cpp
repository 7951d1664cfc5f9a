// SPDX-License-Identifier: Apache-2.0
// `ampcheck memory`: what a step of a net takes, by strategy.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
  if (bytes >= 1'000'000'000) return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
  if (bytes >= 10'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
  if (bytes >= 10'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) * 1e-3);
  return fmt::format("{} B", bytes);
}

/// How the bytes of a chunked update follow.
std::string chunks_text(const ChunkedUpdate& c, double share, Dtype low, const Style& style) {
  std::string out = fmt::format("{}gradients of {} parameters, widened to fp32 {} at a time{}\n\n", style.bold,
                                c.parameters, share == 1 ? "all" : fmt::format("a share of {}", share), style.reset);
  const auto line = [&](const std::string& what, const std::string& how, std::int64_t size) {
    out += fmt::format("  {:<34}{:<32}{:>12}\n", what, how, bytes_text(size));
  };
  line("in fp32", fmt::format("4 B x {}", c.parameters), c.in_fp32);
  line(fmt::format("in {}", name(low)), fmt::format("2 B x {}", c.parameters), c.in_low);
  line("and a share of them in fp32", fmt::format("4 B x {}", c.chunk), c.widened);
  line(fmt::format("together, {} update{} a step", c.updates, c.updates == 1 ? "" : "s"),
       fmt::format("{} + {}", bytes_text(c.in_low), bytes_text(c.widened)), c.together());
  return out;
}

Json chunks_json(const ChunkedUpdate& c, double share) {
  return {{"parameters", c.parameters}, {"share", share},     {"chunk", c.chunk},     {"updates", c.updates},
          {"in_fp32", c.in_fp32},       {"in_low", c.in_low}, {"widened", c.widened}, {"together", c.together()}};
}

ExitCode memory_of_parameters(const MemoryOptions& options, Dtype low) {
  const double share = options.share > 0 ? options.share : 1;
  const ChunkedUpdate chunks = chunked_update(std::llround(options.parameters), share, low);
  if (options.json)
    write_stdout(json_text({{"schema", "ampcheck.memory/1"}, {"chunked_update", chunks_json(chunks, share)}}));
  else
    write_stdout(chunks_text(chunks, share, low, stdout_style()));
  return ExitCode::passed;
}

}  // namespace

ExitCode memory_command(const MemoryOptions& options) {
  if (options.fp8) throw UsageError("[--dtype] got fp8, want fp32, fp16 or bf16 for memory");
  const Dtype low = options.dtype.value_or(Dtype::fp16);
  if (low == Dtype::fp32) throw UsageError("[--dtype] got fp32, want fp16 or bf16: fp32 is the first row in any case");
  const std::string& model = options.model;
  if (model.empty() == (options.parameters == 0))
    throw UsageError(std::string("[memory] got ") + (model.empty() ? "neither a model nor" : "a model and") +
                     " --parameters, want one of the two");
  if (model.empty()) return memory_of_parameters(options, low);
  const Net net = as_usage([&] { return choose_net(options, model, model.ends_with(".toml") ? model : "").made(); });
  StepRule rule;
  rule.further = options.further;
  rule.optimizer = as_usage([&] {
    return optimizer_of(net, {.name = options.optimizer, .momentum = options.momentum, .nesterov = options.nesterov})
        .with_defaults();
  });
  const OptimizerChoice& choice = rule.optimizer;
  run_kernels_here(net.own_ops, options);
  // A net that does not fit together, or not these dtypes.
  const MemoryReport report = as_usage([&] { return memory_of(net, rule, low, options.seed); });
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
    if (options.share > 0)
      out["chunked_update"] = chunks_json(chunked_update(report.parameters, options.share, low), options.share);
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
  if (options.share > 0)
    out += "\n" + chunks_text(chunked_update(report.parameters, options.share, low), options.share, low, style);
  write_stdout(out);
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
