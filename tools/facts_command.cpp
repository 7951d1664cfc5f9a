// SPDX-License-Identifier: Apache-2.0
// `ampcheck facts` and `ampcheck memory`: what is said about mixed precision, measured.
#include <fmt/format.h>

#include <algorithm>

#include "checks/models/real_data.h"
#include "checks/plugin.h"
#include "checks/train/facts.h"
#include "checks/train/memory.h"
#include "checks/train/net_toml.h"
#include "src/file_bytes.h"
#include "tools/child.h"
#include "tools/commands.h"
#include "tools/json.h"
#include "tools/output.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

constexpr std::size_t kColumns = 116;
constexpr std::int64_t kTimesMiddle = 512;  ///< `--times`: eight extents either way

/// Words of `text` in lines of at most kColumns, each after the first indented.
std::string wrapped(const std::string& first, const std::string& text) {
  std::string out, line = first;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::string word = text.substr(start, end - start);
    if (line.size() + word.size() + 1 > kColumns) out += line + "\n", line = std::string(first.size(), ' ');
    line += (line.size() == first.size() ? "" : " ") + word;
    start = end + 1;
  }
  return out + line + "\n";
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes >= 10'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
  if (bytes >= 10'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) * 1e-3);
  return fmt::format("{} B", bytes);
}

/// One of the nets that come with the program, or the user's own.
Net net_of(const Options& options) {
  const std::string& model = options.words.front();
  NetOptions out{.model = model, .loss = options.train.loss, .batch = options.train.batch, .width = options.train.width, .seed = options.first_seed, .data = {}};
  if (model.ends_with(".toml")) {
    require_readable(model);
    try {
      return read_net(TomlFile(read_bytes(model, "net"), model), out, options.data);
    } catch (const EnvironmentError&) {
      throw;
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  }
  const auto info = std::find_if(nets().begin(), nets().end(), [&](const NetInfo& net) { return net.name == model; });
  if (info == nets().end()) throw UsageError("[memory] got '" + model + "', want mlp, conv, transformer, tutorial or a net's FILE.toml");
  const bool named = options.data == info->data;
  if (info->data != "random") out.data = checks::models::find_data(named ? "" : options.data);
  return make_net(out);
}

/// Times of products, and per multiplication against that of kTimesMiddle.
std::string times_table(const std::vector<ProductTime>& times) {
  const ProductTime& base = *std::find_if(times.begin(), times.end(), [](const ProductTime& t) { return t.n == kTimesMiddle; });
  const Style style = stdout_style();
  std::string out = fmt::format("y = x weight^T on the CPU, x [{}, n], weight [n, n]; the fastest of {}; share: per multiplication, of n = {}\n\n  {}{:>5}{:>18}{:>12}{:>8}{:>12}{:>8}{}\n", kProductRows, kProductRounds, kTimesMiddle, style.bold, "n", "multiple of 8",
                                "fp16", "share", "fp32", "share", style.reset);
  const auto cells = [](double seconds, const ProductTime& t, double of, const ProductTime& middle) {
    const double share = seconds / static_cast<double>(t.multiplications()) / (of / static_cast<double>(middle.multiplications()));
    return fmt::format("{:>12}{:>8.2f}", fmt::format("{:.3g} ms", 1e3 * seconds), share);
  };
  for (const ProductTime& t : times) out += fmt::format("  {:>5}{:>18}{}{}\n", t.n, t.n % 8 == 0 ? "yes" : "no", cells(t.fp16, t, base.fp16, base), cells(t.fp32, t, base.fp32, base));
  return out;
}

ExitCode show_times(bool json) {
  const std::vector<ProductTime> times = product_times(kTimesMiddle - 8, kTimesMiddle + 8);
  if (!json) {
    write_stdout(times_table(times));
    return ExitCode::passed;
  }
  Json out = {{"schema", "ampcheck.facts/1"}, {"times", Json::array()}};
  for (const ProductTime& t : times) out["times"].push_back({{"n", t.n}, {"rows", kProductRows}, {"fp16_seconds", t.fp16}, {"fp32_seconds", t.fp32}});
  write_stdout(json_text(out));
  return ExitCode::passed;
}

}  // namespace

ExitCode facts_command(const Options& options) {
  if (options.times) return show_times(options.json);
  const std::vector<Fact> facts = measured_facts(checks::models::find_data(options.data));
  if (options.json) {
    Json out = {{"schema", "ampcheck.facts/1"}, {"facts", Json::array()}};
    for (const Fact& f : facts) out["facts"].push_back({{"claim", f.claim}, {"holds", f.holds}, {"measured", f.measured}, {"command", f.command}});
    write_stdout(json_text(out));
    return ExitCode::passed;
  }
  const Style style = stdout_style();
  std::string out;
  for (const Fact& f : facts)
    out += fmt::format("{}{}{}\"{}\"{}\n", f.holds ? style.green : style.red, f.holds ? "holds  " : "wrong  ", style.bold, f.claim, style.reset) + wrapped("       ", f.measured) + "       see    " + f.command + "\n";
  write_stdout(out);
  return ExitCode::passed;
}

ExitCode memory_command(const Options& options) {
  const Dtype low = options.dtypes.empty() || options.dtypes.front() == Dtype::fp32 ? Dtype::fp16 : options.dtypes.front();
  const TrainChoices& t = options.train;
  const OptimizerChoice choice{.name = t.optimizer, .lr = t.lr, .momentum = t.momentum < 0 && t.optimizer == "sgd" ? 0.9 : t.momentum, .weight_decay = t.weight_decay, .nesterov = t.nesterov};
  const auto refuse = [](bool when, const char* flag) {
    if (when) throw UsageError(std::string("[") + flag + "] got it where nothing uses it: memory runs two steps of each strategy");
  };
  refuse(!t.record.empty(), "--record"), refuse(!t.save.empty(), "--save"), refuse(!t.resume.empty(), "--resume"), refuse(t.ranks > 1, "--ranks"), refuse(t.sharded, "--sharded");
  if (!options.dtypes.empty() && options.dtypes.front() == Dtype::fp32) throw UsageError("[--dtype] got fp32, want fp16 or bf16: fp32 is the first row in any case");
  const Net net = net_of(options);
  if (const auto code = run_in_child(options, net.own_ops)) return *code;
  const MemoryReport report = [&] {
    try {
      return memory_of(net, choice, low, options.first_seed);
    } catch (const EnvironmentError&) {
      throw;
    } catch (const checks::KernelError&) {
      throw;
    } catch (const Error& error) {  // a net that does not fit together, or not these dtypes
      throw UsageError(error.what());
    }
  }();
  if (options.json) {
    Json out = {{"schema", "ampcheck.memory/1"}, {"model", options.words.front()}, {"optimizer", choice.name}, {"parameters", report.parameters}, {"strategies", Json::array()}};
    for (const MemoryUse& m : report.strategies)
      out["strategies"].push_back({{"strategy", m.strategy}, {"weights", m.weights}, {"masters", m.masters}, {"gradients", m.gradients}, {"moments", m.moments}, {"activations", m.activations}, {"total", m.total()}, {"peak", m.peak}});
    write_stdout(json_text(out));
    return ExitCode::passed;
  }
  const Style style = stdout_style();
  std::string out = fmt::format("{}{}: {} parameters, {}{}\n\n  {:<65}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}{:>11}\n", style.bold, options.words.front(), report.parameters, choice.name, style.reset, "strategy", "weights", "masters", "gradients",
                                "moments", "activations", "total", "peak");
  for (std::size_t i = 0; i < report.strategies.size(); ++i) {
    const MemoryUse& m = report.strategies[i];
    out += fmt::format("  {:<65}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}{:>11}\n", m.strategy, bytes_text(m.weights), bytes_text(m.masters), bytes_text(m.gradients), bytes_text(m.moments), bytes_text(m.activations), bytes_text(m.total()), bytes_text(m.peak));
  }
  out += "\nBytes that a step of each allocated. Activations: every tensor kept from forward to backward, casts of weights among them, which\nstrategies with low-precision weights do not need. Total: their\nsum. Peak: the most held at any one time, with the gradients of activations.\n";
  write_stdout(out);
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
