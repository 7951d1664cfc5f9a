// SPDX-License-Identifier: Apache-2.0
// `ampcheck train`: a small net in mixed precision beside the same run in fp64.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "checks/doors/plugin.h"
#include "checks/models/real_data.h"
#include "checks/train/checkpoint.h"
#include "checks/train/diagnosis.h"
#include "checks/train/fault_ring.h"
#include "checks/train/net_toml.h"
#include "checks/train/trace_record.h"
#include "src/amp/error.h"
#include "src/file_bytes.h"
#include "src/freed_memory.h"
#include "src/parallel.h"
#include "tools/choose/as_usage.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/net_choice.h"
#include "tools/choose/plugins.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/report/progress.h"
#include "tools/trace/trace_file.h"
#include "tools/workers/child.h"
#include "tools/workers/interrupt.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

std::string power(int k) { return fmt::format("2^{}", k); }

std::string scale_text(double scale) {
  const int k = std::ilogb(scale);
  return scale > 0 && (k > 3 || k < -3) && std::ldexp(1.0, k) == scale ? power(k) : rounded_decimal(scale, 6);
}

/// The rule by name with what was asked for; UsageError for an unknown one.
void choose_scaler(const TrainChoices& chosen, TrainOptions& out) {
  // In fp32 it keeps what 16 bits on the wire, or a layer's own region, would flush.
  out.scaler.enabled = chosen.scaler.empty() ? out.dtype == Dtype::fp16 : chosen.scaler != "none";
  const auto interval = static_cast<std::int32_t>(std::min(chosen.growth_interval, 1e9));
  if (chosen.init_scale >= 0) out.scaler.init_scale = chosen.init_scale;
  if (interval >= 0) out.scaler.growth_interval = interval;
  if (chosen.scaler.empty() || chosen.scaler == "torch" || chosen.scaler == "none") return;
  std::string names;
  for (const ScaleRule& rule : scale_rules()) {
    names += std::string(rule.name) + ", ";
    if (chosen.scaler == rule.name) out.scale_rule = rule;
  }
  if (!out.scale_rule) throw UsageError("[--scaler] got '" + chosen.scaler + "', want " + names + "or none");
  if (chosen.init_scale >= 0) out.scale_rule->init_scale = chosen.init_scale;
  if (interval >= 0) out.scale_rule->window = interval;
}

void refuse(bool when, const char* flag, const char* want) {
  if (when) throw UsageError(std::string("[") + flag + "] got it where nothing uses it, want " + want);
}

/// Choices that this run would not use.
void require_used(const TrainChoices& chosen, const TrainOptions& out) {
  const char* const scaler = "a --scaler";
  refuse(!out.scaler.enabled && chosen.init_scale >= 0, "--init-scale", scaler);
  refuse(!out.scaler.enabled && chosen.growth_interval >= 0, "--growth-interval", scaler);
  const char* const ranks = "--ranks 2 or more";
  refuse(chosen.ranks == 1 && chosen.compress, "--compress", ranks);
  refuse(chosen.ranks == 1 && chosen.tree, "--reduce", ranks);
  refuse(chosen.ranks == 1 && chosen.divide_after, "--divide", ranks);
  refuse(chosen.ring >= 0 && chosen.record.empty(), "--ring", "--record FILE");
  refuse(chosen.spread_seeds >= 0 && chosen.shadow != "carried" && chosen.shadow != "both", "--spread-seeds",
         "--shadow carried or both");
}

TrainOptions train_options(const Options& options) {
  const TrainChoices& chosen = options.train;
  TrainOptions out;
  ChosenNet net = choose_net(options, chosen.model, chosen.config);
  if (net.own && chosen.shadow != "off")
    for (const checks::OpDef* op : net.own->own_ops) require_certified(*op);
  out.net = std::move(net.options), out.own_net = std::move(net.own), out.seed = options.first_seed;
  out.dtype = options.dtypes.empty() ? Dtype::fp16 : options.dtypes.front();
  out.autocast = chosen.autocast.value_or(out.autocast);
  choose_scaler(chosen, out);
  require_used(chosen, out);
  out.rule.optimizer = {.name = chosen.optimizer,
                        .lr = chosen.lr,
                        .momentum = chosen.momentum,
                        .weight_decay = chosen.weight_decay,
                        .nesterov = chosen.nesterov,
                        .fused = chosen.fused,
                        .weights = chosen.weights,
                        .moments = chosen.moments};
  out.keep_low_precision_grads = chosen.keep_low_precision_grads;
  out.rule.schedule = chosen.schedule;
  out.rule.ranks = chosen.ranks, out.sharding.on = chosen.sharded;
  out.reduce = {
      .divide = chosen.divide_after.value_or(false) ? ReduceOptions::Divide::post : ReduceOptions::Divide::pre,
      .order = chosen.tree.value_or(false) ? ReduceOptions::Order::tree : ReduceOptions::Order::ring,
      .compress = chosen.compress};
  out.rule.accumulate = chosen.accumulate, out.rule.clip_norm = chosen.clip_norm,
  out.rule.clip_value = chosen.clip_value, out.rule.loss_weight = chosen.loss_weight,
  out.rule.grad_penalty = chosen.grad_penalty;
  const bool sampled = !chosen.record.empty() && chosen.steps > kRecordWhole;
  out.sampling = {.every = chosen.every > 0 ? chosen.every
                           : sampled        ? kRecordEvery
                                            : 1,
                  .from = chosen.from,
                  .ops = chosen.ops};
  out.watched = !chosen.record.empty();
  out.shadows = {.local = chosen.shadow == "local" || chosen.shadow == "both",
                 .carried = chosen.shadow == "carried" || chosen.shadow == "both"};
  if (chosen.spread_seeds >= 0) out.spread_seeds = chosen.spread_seeds;
  if (options.device == Device::cuda) out.stream = kernels::make_cuda_stream;
  if (out.watched) out.gradient_errors = std::max(1, kGradientErrorsEvery / out.sampling.every);
  return out;
}

std::string place_text(const Place& place) {
  const Tally& t = place.tally;
  if (t.overflowed > 0)
    return fmt::format("{}  {} overflowed", place.where.str(),
                       percent(static_cast<double>(t.overflowed) / static_cast<double>(t.elements)));
  if (t.flushed > 0) return fmt::format("{}  {} flushed to zero", place.where.str(), percent(t.flushed_share()));
  return fmt::format("{}  error {}", place.where.str(), rounded_decimal(t.local_error(), 2));
}

std::string step_line(const StepResult& s, int steps, const std::optional<Place>& worst) {
  std::string out = fmt::format("step {:>{}}/{}  loss {:.4f}", s.step + 1, std::to_string(steps).size(), steps,
                                std::isnan(s.loss) ? NAN : s.loss);  // a NaN's sign says nothing
  if (s.fp64_loss) out += fmt::format("  fp64 {:.4f}", std::isnan(*s.fp64_loss) ? NAN : *s.fp64_loss);
  if (s.grad_norm) out += fmt::format("  gradient norm {}", rounded_decimal(*s.grad_norm, 4));
  out += fmt::format("  scale {}  skips {}", scale_text(s.scale), s.skips);
  if (worst) out += "   worst: " + place_text(*worst);
  return out;
}

/// What is run, above its steps.
std::string heading(const Trainer& trainer) {
  const TrainOptions& o = trainer.options();
  return fmt::format("{}, scaler {}, seed {}\n",
                     net_in(trainer.net().name, name(o.dtype), trainer.autocast_list(), kAutocastTablesVersion),
                     scaler_name(o), o.seed);
}

/// What a difference of the losses is compared with.
std::string allowed_text(const Trainer& trainer, const Compared& s) {
  std::string out =
      fmt::format("spread of {} fp64 seeds: {}", trainer.options().spread_seeds, rounded_decimal(*s.spread, 2));
  if (*s.rounding > *s.spread)
    out +=
        fmt::format("; rounding of the loss in {}: {}", name(trainer.options().dtype), rounded_decimal(*s.rounding, 2));
  return out;
}

std::string head_line(const Trainer& trainer, const std::vector<StepResult>& steps) {
  const char* dtype = name(trainer.options().dtype);
  const StepResult& last = steps.back();
  if (const auto& left = trainer.verdict().left) {
    const Compared& at = *left;
    if (!std::isfinite(at.loss))
      return fmt::format("The loss of the {} run is {} from step {} on.", dtype,
                         std::isnan(at.loss) ? "NaN" : "infinite", at.step + 1);
    return fmt::format(
        "The {} run left the fp64 run's loss at step {}: {} apart in the mean of {} steps ({}); at the end {:.4f}{}.",
        dtype, at.step + 1, rounded_decimal(std::fabs(at.apart), 2), Trainer::kSpreadSteps, allowed_text(trainer, at),
        last.loss, last.fp64_loss ? fmt::format(" against {:.4f}", *last.fp64_loss) : "");
  }
  if (!last.fp64_loss)
    return fmt::format("The {} run ended with loss {:.4f} (--shadow carried compares it with fp64).", dtype, last.loss);
  const Compared& most = *trainer.verdict().most;
  const std::string apart = fmt::format("apart than {} in the mean of {} steps",
                                        rounded_decimal(std::fabs(most.apart), 2), Trainer::kSpreadSteps);
  if (!most.spread)
    return fmt::format(
        "The {} run ended with loss {:.4f} against {:.4f} in fp64, never further {}. No spread of seeds is known "
        "(--spread-seeds 5): only a loss that is not finite would have left.",
        dtype, last.loss, *last.fp64_loss, apart);
  return fmt::format("The {} run stayed with the fp64 run: loss {:.4f} against {:.4f}, never further {} ({}).", dtype,
                     last.loss, *last.fp64_loss, apart, allowed_text(trainer, most));
}

std::string share_of(std::int64_t part, std::int64_t all) {
  return percent(static_cast<double>(part) / static_cast<double>(all));
}

/// The scale that a run with a scaler begins with.
double first_scale(const TrainOptions& options) {
  return options.scale_rule ? options.scale_rule->init_scale : options.scaler.init_scale;
}

/// What to try, given what went wrong: nothing that was given, or would be refused.
std::string advice(const Trainer& trainer, const Diagnosis& d, const std::vector<StepResult>& steps) {
  const Dtype dtype = trainer.options().dtype;
  const bool scaler = trainer.options().scaler.enabled;
  const OptimizerChoice& optimizer = trainer.options().rule.optimizer;
  const bool low_state = optimizer.moments ? *optimizer.moments != Dtype::fp32 : optimizer.weights == Weights::low;
  const bool low_gradients = optimizer.weights != Weights::fp32 || trainer.options().keep_low_precision_grads;
  if (d.left_at && low_state && d.updates.second_moment_zero > 0)
    return "--moments fp32: squares of gradients vanish, and divided by eps alone updates are as large as they like";
  if (d.left_at && d.updates.epsilon_zero > 0)
    return "--fused --moments fp32: eps is zero in the arithmetic of the weights";
  if (d.left_at && d.producer && steps.front().fp64_loss && !(*steps.back().fp64_loss <= *steps.front().fp64_loss))
    return "a smaller --lr: the fp64 run's loss grows too";
  if (d.producer && d.producer->where.phase == Phase::forward && dtype != Dtype::fp16 &&
      d.producer->where.dtype == Dtype::fp16)
    return "another dtype in the layer's region of autocast: its values leave fp16";
  if (d.producer && d.producer->where.phase == Phase::forward)
    return dtype == Dtype::fp16
               ? "--dtype bf16: the values of the forward pass leave fp16, and no loss scale changes them"
               : "a smaller --lr";
  if (!scaler && !d.vanished.empty() && d.vanished.front().where.dtype == Dtype::fp16)
    return dtype == Dtype::fp16 && low_gradients && !optimizer.is_fused() ? "--fused --scaler torch" : "--scaler torch";
  if (scaler && d.skipped.size() > 1 && trainer.options().scaler.growth_interval < 2000)
    return fmt::format(
        "a longer --growth-interval: the scale grew back to where it overflows, and {} steps were skipped",
        d.skipped.size());
  if (dtype == Dtype::fp16 && scaler && d.scale.known && !d.skipped.empty() && d.scale.overflows_at <= 24 &&
      d.scale.overflows_at > 0 && first_scale(trainer.options()) > std::ldexp(1.0, d.scale.overflows_at - 1))
    return fmt::format("--init-scale {}: {} step{} skipped while the scale came down",
                       number_text(std::ldexp(1.0, d.scale.overflows_at - 1)), d.skipped.size(),
                       d.skipped.size() == 1 ? " was" : "s were");
  if (optimizer.weights == Weights::low && 2 * d.updates.with_grad_stagnant > d.updates.with_grad)
    return fmt::format("--weights master: {} of the elements with a gradient did not move",
                       share_of(d.updates.with_grad_stagnant, d.updates.with_grad));
  if (d.left_at && !std::isfinite(steps.back().loss) && !trainer.options().shadows.local &&
      !trainer.options().shadows.carried)
    return "--shadow both: it names the op whose result is the first that is not finite";
  const bool all_known = steps.front().step == 0;  // of a resumed run nobody knows what vanished before
  if (d.left_at && all_known && dtype != Dtype::fp32 && d.vanished_share == 0 && d.skipped.empty() &&
      std::isfinite(steps.back().loss))
    return "a seed or two more (--seed): nothing vanished and nothing was skipped, so rounding alone moved it";
  if (d.left_at && dtype == Dtype::fp16 && d.vanished_share > 0 && scaler && d.scale.known && d.scale.best > 0 &&
      first_scale(trainer.options()) != std::ldexp(1.0, d.scale.best))
    return fmt::format("--init-scale {}", number_text(std::ldexp(1.0, d.scale.best)));
  return "";
}

/// What weights and moments in 16 bits lost, over the run: of the elements with a gradient.
std::string updates_text(const Trainer& trainer, const UpdateCounts& sum) {
  const OptimizerChoice& c = trainer.options().rule.optimizer;
  const bool low = c.weights != Weights::fp32 || (c.moments && *c.moments != Dtype::fp32);
  if (sum.with_grad == 0 || (!low && sum.second_moment_zero == 0 && sum.epsilon_zero == 0)) return "";
  std::string out =
      fmt::format("{} of the elements with a gradient did not move{}", share_of(sum.with_grad_stagnant, sum.with_grad),
                  c.weights == Weights::master ? " in the fp32 masters" : "");
  if (c.weights == Weights::master && sum.intended > 0)
    out += fmt::format(", {} not in their {} copies", share_of(sum.copy_stagnant, sum.intended),
                       name(trainer.options().dtype));
  if (sum.second_moment_zero > 0)
    out += fmt::format("; the second moment of {} was zero", share_of(sum.second_moment_zero, sum.with_grad));
  if (sum.epsilon_zero > 0) out += fmt::format("; eps is zero in {}", name(weights_dtype(trainer.options())));
  return out;
}

std::string summary(const Trainer& trainer, const Diagnosis& d, const std::vector<StepResult>& steps,
                    const Style& style) {
  std::string out =
      fmt::format("\n{}{}{}\n", d.left_at ? style.red : style.green, head_line(trainer, steps), style.reset);
  const std::size_t begin = out.size();
  const auto line = [&](const char* word, const std::string& text) { out += fmt::format("  {:<8}{}\n", word, text); };
  if (d.producer)
    line("fault",
         fmt::format("step {}: {} made finite values non-finite", d.producer->step + 1, d.producer->where.str()));
  if (d.killer)
    line("killed",
         fmt::format("step {}: {} is finite although what it read was not", d.killer->step + 1, d.killer->where.str()));
  const double smallest = d.vanished.empty() ? 0 : format(d.vanished.front().where.dtype).min_subnormal();
  for (std::size_t i = 0; i < std::min<std::size_t>(d.vanished.size(), 3); ++i)
    line(i == 0 ? "where" : "",
         fmt::format("{}: {} of non-zero elements became zero{}", d.vanished[i].where.str(),
                     percent(d.vanished[i].tally.flushed_share()),
                     i == 0 ? fmt::format(" (smallest kept {}); {} of all gradients in 16 bits",
                                          rounded_decimal(smallest, 2), percent(d.vanished_share))
                            : ""));
  if (d.vanished.empty() && d.worst) line("worst", place_text(*d.worst));
  if (d.scale.known && trainer.options().dtype == Dtype::fp16)
    line("scale", scale_advice(d.scale) + (trainer.options().shadows.local || trainer.options().shadows.carried
                                               ? ""
                                               : "; of casts alone (--shadow local sees the ops)"));
  if (const std::string lost = updates_text(trainer, d.updates); !lost.empty()) line("updates", lost);
  if (!d.skipped.empty()) {
    std::string list;
    for (std::size_t i = 0; i < std::min<std::size_t>(d.skipped.size(), 8); ++i)
      list += fmt::format(" {}", d.skipped[i] + 1);
    line("skipped",
         fmt::format("{} of {} steps:{}{}", d.skipped.size(), steps.size(), list, d.skipped.size() > 8 ? " ..." : ""));
  }
  if (const int before = steps.back().skips - static_cast<int>(d.skipped.size()); before > 0)
    line("before", fmt::format("{} of steps 1 to {} were skipped", before, steps.front().step));
  if (d.disagreed_at)
    line("ranks", fmt::format("from step {} on they disagree on what was found: some stepped, others did not",
                              *d.disagreed_at + 1));
  const std::string next = advice(trainer, d, steps);
  if (!next.empty()) line("try", next);
  // A checkpoint knows losses, scale and skips of the steps before it, not their tensors.
  if (steps.front().step > 0 && out.size() > begin)
    out.insert(begin, fmt::format("Of steps {} to {}, run since the checkpoint, alone:\n", steps.front().step + 1,
                                  steps.back().step + 1));
  return out;
}

Json place_json(const Place& p) {
  const Tally& t = p.tally;
  return {{"op", p.where.op},
          {"layer", p.where.layer},
          {"phase", checks::train::name(p.where.phase)},
          {"cast", p.where.cast},
          {"tensor", p.where.tensor},
          {"dtype", name(p.where.dtype)},
          {"elements", t.elements},
          {"nonzero", t.nonzero},
          {"flushed", t.flushed},
          {"overflowed", t.overflowed},
          {"local_error", json_number(t.local_error())},
          {"carried_error", json_number(t.carried_error())}};
}

Json fault_json(const FaultEvent& fault) {
  return {{"step", fault.step}, {"role", checks::train::name(fault.role)}, {"tensor", fault.where.str()}};
}

Json json_of(const Trainer& trainer, const Diagnosis& d, const std::vector<StepResult>& steps, double seconds) {
  const TrainOptions& o = trainer.options();
  Json out = {{"schema", "ampcheck.train/1"},
              {"model", trainer.net().name},
              {"dtype", name(o.dtype)},
              {"autocast", trainer.autocast_list()},
              {"autocast_tables", kAutocastTablesVersion},
              {"scaler", scaler_name(o)},
              {"seed", o.seed},
              {"device", o.stream ? "cuda" : "cpu"},
              {"local_shadow", o.shadows.local},
              {"carried_shadow", o.shadows.carried},
              {"seconds", seconds},
              {"steps", Json::array()}};
  for (const StepResult& s : steps) {
    Json entry = {{"step", s.step},
                  {"loss", json_number(s.loss)},
                  {"scale", json_number(s.scale)},
                  {"found_inf", s.found_inf},
                  {"stepped", s.stepped},
                  {"scale_after", json_number(s.scale_after)},
                  {"lr", s.lr},
                  {"stagnant_share", s.stagnant_share},
                  {"updates",
                   {{"intended", s.updates.intended},
                    {"stagnant", s.updates.stagnant},
                    {"copy_stagnant", s.updates.copy_stagnant},
                    {"with_grad", s.updates.with_grad},
                    {"with_grad_stagnant", s.updates.with_grad_stagnant},
                    {"second_moment_zero", s.updates.second_moment_zero},
                    {"epsilon_zero", s.updates.epsilon_zero}}}};
    if (s.grad_norm) entry["grad_norm"] = json_number(*s.grad_norm);
    if (s.fp64_grad_norm) entry["fp64_grad_norm"] = json_number(*s.fp64_grad_norm);
    if (s.fp64_loss)
      entry["fp64_loss"] = json_number(*s.fp64_loss), entry["apart"] = json_number(*s.apart),
      entry["rounding"] = json_number(*s.rounding);
    if (s.spread) entry["spread"] = json_number(*s.spread);
    out["steps"].push_back(std::move(entry));
  }
  out["of_steps"] = {
      steps.front().step,
      steps.back().step};  // what follows but for left_at and skips: a resumed run knows no tensors from before
  out["left_at"] = d.left_at ? Json(*d.left_at) : Json();
  out["skips"] = steps.back().skips;
  out["skipped"] = d.skipped;
  out["ranks_disagree_at"] = d.disagreed_at ? Json(*d.disagreed_at) : Json();
  out["vanished_share"] = d.vanished_share;
  out["vanished"] = Json::array(), out["least_exact"] = Json::array();
  for (const Place& p : d.vanished) out["vanished"].push_back(place_json(p));
  for (const Place& p : d.least_exact) out["least_exact"].push_back(place_json(p));
  out["producer"] = d.producer ? fault_json(*d.producer) : Json();
  out["killer"] = d.killer ? fault_json(*d.killer) : Json();
  if (d.scale.known)
    out["loss_scale"] = {{"lossless_low", d.scale.low},
                         {"lossless_high", d.scale.high},
                         {"best", d.scale.best},
                         {"best_share", d.scale.best_share},
                         {"unscaled_share", d.scale.unscaled_share},
                         {"flushes", d.scale.flushes},
                         {"overflows_at", d.scale.overflows_at},
                         {"overflows", d.scale.overflows}};
  out["try"] = advice(trainer, d, steps);
  return out;
}

/// Which steps the trace got, as text.
std::string write_ring(FaultRing& ring, const Trainer& trainer, const StepResult& last, TraceWriter& trace) {
  if (const std::optional<int> first = ring.write(trainer, last, trace))
    return *first > last.step ? "" : fmt::format(", of steps {} to {} all", *first + 1, last.step + 1);
  write_stderr(
      fmt::format("ampcheck: step {} came out with another loss when it was run again: this machine does not compute "
                  "the same each time\n",
                  last.step + 1));
  return "";
}

/// Outputs do not replace each other.
void require_apart(const TrainChoices& chosen) {
  std::error_code none;
  const std::string& save = chosen.save;
  if (save.empty() || chosen.record.empty() ||
      (std::filesystem::exists(save, none) && !std::filesystem::is_regular_file(save, none)))
    return;
  for (const std::string& record : {chosen.record, checks::train::statistics_path(chosen.record)})
    if (std::filesystem::equivalent(save, record, none) ||
        std::filesystem::weakly_canonical(save, none) == std::filesystem::weakly_canonical(record, none))
      throw UsageError("[--save] got '" + save + "', which is the trace, want another file");
}

/// A file that is there is replaced only by one of its kind: it may be a library, data, or anything else.
void require_own_kind(const TrainChoices& chosen) {
  const auto start_of = [](const std::string& path, std::size_t size) {
    std::error_code none;
    std::string start;
    if (path.empty() || !std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0)
      return start;
    start.resize(size);
    std::ifstream file(path, std::ios::binary);
    file.read(start.data(), static_cast<std::streamsize>(size));
    start.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 1)));
    return start;
  };
  constexpr std::string_view kTrace = "{\"schema\":\"ampcheck.trace/";
  const std::string trace = start_of(chosen.record, kTrace.size()), checkpoint = start_of(chosen.save, 9);
  if (!trace.empty() && trace != kTrace)
    throw UsageError("[--record] got '" + chosen.record +
                     "', which is there and no trace, want a new file or an old trace");
  const std::string beside = chosen.record.empty() || checks::train::statistics_inline(chosen.record)
                                 ? ""
                                 : checks::train::statistics_path(chosen.record);
  const std::string statistics = start_of(beside, kRecordMagic.size());
  if (!statistics.empty() && statistics != kRecordMagic)
    throw UsageError("[--record] got '" + chosen.record + "', whose statistics go to '" + beside +
                     "', which is there and holds none, want another name");
  // safetensors: eight bytes of length, then JSON.
  if (!checkpoint.empty() && (checkpoint.size() < 9 || checkpoint[8] != '{' || checkpoint[7] != '\0'))
    throw UsageError("[--save] got '" + chosen.save +
                     "', which is there and no checkpoint, want a new file or an old checkpoint");
}

}  // namespace

ExitCode train_command(const Options& options) {
  require_device(options.device);
  require_apart(options.train);
  require_own_kind(options.train);
  keep_freed_memory();
  set_threads(options.jobs);
  const TrainOptions wanted = as_usage([&] { return train_options(options); });
  if (wanted.own_net)
    if (const auto code = run_in_child(options, wanted.own_net->own_ops)) return *code;
  const std::unique_ptr<Trainer> made = as_usage([&] { return std::make_unique<Trainer>(wanted); });
  Trainer& trainer = *made;
  as_usage([&] { trainer.prepare(); });
  refuse(options.train.autocast && std::string_view(trainer.autocast_list()) == "none", "--autocast",
         "--dtype fp16 or bf16, or a layer with a region of its own");
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress;
  std::vector<StepResult> steps;
  std::atomic<int> done_steps = 0;
  const int count = options.train.steps;
  for (const std::string& path : {options.train.save, options.train.record})
    if (!path.empty()) require_writable(path);
  if (!options.train.resume.empty()) {
    require_readable(options.train.resume);
    as_usage([&] { resume(trainer, read_bytes(options.train.resume, "checkpoint"), options.train.resume); });
  }
  if (trainer.steps() >= count)
    throw UsageError(
        fmt::format("[--steps] got {}, want more than the {} that the checkpoint has done", count, trainer.steps()));
  std::optional<TraceWriter> trace;
  std::int64_t recorded = 0;
  if (!options.train.record.empty()) {
    if (trainer.steps() > 0) as_usage([&] { require_trace_of(options.train.record, trainer); });
    trace.emplace(options.train.record, trainer, count, trainer.steps() > 0);
    trainer.watch()->listen([&](const Event& e, const TensorKey& key, const Tally& tally, FaultRole role,
                                const TensorStats& stats) { trace->tensor(e, key, tally, role, stats), ++recorded; });
    trainer.watch()->listen_to_moves([&](const LateMove& move) { trace->moved_late(move); });
  }
  const Sampling& sampling = trainer.options().sampling;
  const int ring_steps = options.train.ring < 0 ? kRingSteps : options.train.ring;
  std::optional<FaultRing> ring;
  if (trace && ring_steps > 0 && (sampling.every > 1 || sampling.from > 0)) ring.emplace(ring_steps);
  if (!options.json) write_stdout(heading(trainer));
  // A step of a large net with its shadows may take longer than an interrupt waits.
  InterruptGuard guard([done = &done_steps, count] {
    write_stderr(fmt::format("\nampcheck: interrupted after {} of {} steps\n", done->load(), count));
  });
  std::string whole;  // what of a sampled trace is whole
  std::string ended;  // a rule may end the run at the floor of its scale
  for (int i = trainer.steps(); i < count && ended.empty() && !guard.interrupted(); ++i) {
    try {
      if (ring) ring->keep(trainer);
      steps.push_back(trainer.step());
    } catch (const AmpError& error) {
      ended = fmt::format("step {}: {}", i + 1, error.what());
      if (ring && !steps.empty()) whole += write_ring(*ring, trainer, steps.back(), *trace);
      continue;
    }
    ++done_steps;
    if (trace) trace->step(steps.back());
    if (ring && ring->faulted(steps.back())) whole += write_ring(*ring, trainer, steps.back(), *trace);
    const std::string line = step_line(
        steps.back(), count, trainer.watch() != nullptr ? worst_of(trainer.watch()->of_step()) : std::nullopt);
    if (progress.on())
      progress.show(static_cast<std::size_t>(i) + 1, static_cast<std::size_t>(count), 0, line);
    else if (!options.json)
      write_stdout(line + "\n");
  }
  progress.clear();
  guard.finish();
  if (guard.interrupted())
    write_stderr(fmt::format("ampcheck: interrupted after {} of {} steps\n", trainer.steps(), count));
  if (steps.empty() && guard.interrupted()) end_by_signal();
  if (!ended.empty()) write_stderr("ampcheck: the scaler ended the run at " + ended + "\n");
  if (steps.empty()) return ExitCode::findings;
  if (!options.train.save.empty()) write_file(options.train.save, checkpoint_bytes(trainer));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Diagnosis diagnosis = diagnose(trainer, steps);
  if (trace && recorded == 0)
    write_stderr(
        "ampcheck: the trace has no tensor: --ops, --from and --every leave none of these steps' ops and parameters\n");
  if (trace && !options.json) {
    const int every = trainer.options().sampling.every;
    write_stdout(
        fmt::format("\nTrace{1}: ampcheck trace {0}   or   ampcheck trace {0} -o html:run.html\n", options.train.record,
                    every > 1 ? fmt::format(" of every {}th step{} (--every 1 has all)", every, whole) : whole));
  }
  write_stdout(options.json ? json_text(json_of(trainer, diagnosis, steps, seconds))
                            : summary(trainer, diagnosis, steps, stdout_style()));
  if (guard.interrupted()) end_by_signal();
  return diagnosis.left_at || !ended.empty() ? ExitCode::findings : ExitCode::passed;
}

}  // namespace ampcheck::tools
