// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/train_choice.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "checks/train/trace_record.h"
#include "src/ptx/gpu.h"
#include "tools/choose/net_choice.h"
#include "tools/choose/plugins.h"
#include "tools/choose/scaler_choice.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;
using TrainerOptions = checks::train::TrainOptions;

/// Choices that this run would not use.
void require_used(const TrainOptions& chosen, const TrainerOptions& out) {
  const char* const scaler = "a --scaler";
  refuse_unused(!out.scaler.enabled && chosen.init_scale >= 0, "--init-scale", scaler);
  refuse_unused(!out.scaler.enabled && chosen.growth_interval >= 0, "--growth-interval", scaler);
  const char* const ranks = "--ranks 2 or more";
  refuse_unused(chosen.ranks == 1 && chosen.compress, "--compress", ranks);
  refuse_unused(chosen.ranks == 1 && chosen.tree, "--reduce", ranks);
  refuse_unused(chosen.ranks == 1 && chosen.divide_after, "--divide", ranks);
  refuse_unused(chosen.ring >= 0 && chosen.record.empty(), "--ring", "--record FILE");
  refuse_unused(chosen.spread_seeds >= 0 && chosen.shadow != "carried" && chosen.shadow != "both", "--spread-seeds",
                "--shadow carried or both");
  refuse_unused(!chosen.save_case.empty() && chosen.judge == JudgeMode::none, "--save-case", "--judge sampled or all");
}

/// Outputs do not replace each other.
void require_apart(const TrainOptions& chosen) {
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
void require_own_kind(const TrainOptions& chosen) {
  const auto start_of = [](const std::string& path, std::size_t size) {
    std::error_code none;
    std::string start;
    if (path.empty() || !std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0)
      return start;
    start.resize(size);
    std::ifstream file(path, std::ios::binary);
    if (!file) throw EnvironmentError("[train] cannot open '" + path + "': " + std::strerror(errno));
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

void refuse_unused(bool when, const char* flag, const char* want) {
  if (when) throw UsageError(std::string("[") + flag + "] got it where nothing uses it, want " + want);
}

TrainerOptions trainer_options(const TrainOptions& chosen) {
  TrainerOptions out;
  ChosenNet net = choose_net(chosen, chosen.model, chosen.config);
  if (net.own && chosen.shadow != "off")
    for (const checks::OpDef* op : net.own->own_ops) require_certified(*op);
  out.net = std::move(net.options);
  out.own_net = std::move(net.own);
  out.seed = chosen.seed;
  out.dtype = chosen.dtype.value_or(Dtype::fp16);
  out.autocast = chosen.autocast.value_or(out.autocast);
  refuse_unused(!chosen.fp8 && !chosen.fp8_recipe.empty(), "--fp8", "--dtype fp8");
  if (chosen.fp8) out.fp8 = read_fp8_recipe(chosen.fp8_recipe.empty() ? "delayed" : chosen.fp8_recipe);
  choose_scaler(chosen.scaler, chosen.init_scale, chosen.growth_interval, out);
  require_used(chosen, out);
  out.rule.optimizer = {.name = chosen.optimizer,
                        .lr = chosen.lr,
                        .momentum = chosen.momentum,
                        .weight_decay = chosen.weight_decay,
                        .nesterov = chosen.nesterov,
                        .fused = chosen.fused,
                        .weights = chosen.weights,
                        .moments = chosen.moments,
                        .second_moment = chosen.second_moment};
  out.rule.further = chosen.further;
  out.rule.backward_each = chosen.backward_each.value_or(false);
  out.keep_low_precision_grads = chosen.keep_low_precision_grads;
  out.rule.schedule = chosen.schedule;
  out.rule.ranks = chosen.ranks;
  out.sharding.on = chosen.sharded;
  out.reduce = {
      .divide = chosen.divide_after.value_or(false) ? ReduceOptions::Divide::post : ReduceOptions::Divide::pre,
      .order = chosen.tree.value_or(false) ? ReduceOptions::Order::tree : ReduceOptions::Order::ring,
      .compress = chosen.compress};
  out.rule.accumulate = chosen.accumulate;
  out.rule.clip_norm = chosen.clip_norm;
  out.rule.clip_value = chosen.clip_value;
  out.rule.loss_weight = chosen.loss_weight;
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
  const bool shadowed = out.shadows.local || out.shadows.carried;
  out.judge = chosen.judge.value_or(shadowed ? JudgeMode::sampled : JudgeMode::none);
  out.check_steps = out.judge != JudgeMode::none;
  if (chosen.spread_seeds >= 0) out.spread_seeds = chosen.spread_seeds;
  if (chosen.device == Device::cuda && ptx::simulates_gpu())
    throw UsageError("[--device] got ptx, want cpu or cuda: no training runs there");
  if (chosen.device == Device::cuda) out.stream = kernels::make_cuda_stream;
  if (out.watched) out.gradient_errors = std::max(1, kGradientErrorsEvery / out.sampling.every);
  return out;
}

void require_outputs(const TrainOptions& chosen) {
  require_apart(chosen);
  require_own_kind(chosen);
}

}  // namespace ampcheck::tools
