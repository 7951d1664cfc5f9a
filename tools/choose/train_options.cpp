// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/train_options.h"

#include <algorithm>
#include <cmath>

#include "checks/train/losses.h"
#include "tools/choose/option_parsing.h"

namespace ampcheck::tools {

namespace {

constexpr std::array kModels = {Named<const char*>{"mlp", "mlp"}, Named<const char*>{"conv", "conv"},
                                Named<const char*>{"transformer", "transformer"},
                                Named<const char*>{"tutorial", "tutorial"}};
constexpr std::array kOptimizerNames = {Named<const char*>{"sgd", "sgd"}, Named<const char*>{"adam", "adam"},
                                        Named<const char*>{"adamw", "adamw"}, Named<const char*>{"adagrad", "adagrad"},
                                        Named<const char*>{"rmsprop", "rmsprop"}};
constexpr std::array kShadows = {Named<const char*>{"off", "off"}, Named<const char*>{"local", "local"},
                                 Named<const char*>{"carried", "carried"}, Named<const char*>{"both", "both"}};

constexpr std::array kAutocastLists = {Named<AutocastDevice>{"cuda", AutocastDevice::cuda},
                                       Named<AutocastDevice>{"cpu", AutocastDevice::cpu}};
constexpr std::array kReduceOrders = {Named<bool>{"ring", false}, Named<bool>{"tree", true}};
constexpr std::array kBackwards = {Named<bool>{"sum", false}, Named<bool>{"each", true}};
constexpr std::array kDivides = {Named<bool>{"pre", false}, Named<bool>{"post", true}};

using checks::train::Weights;
constexpr std::array kWeights = {Named<Weights>{"fp32", Weights::fp32}, Named<Weights>{"master", Weights::master},
                                 Named<Weights>{"low", Weights::low}};

using checks::train::JudgeMode;
constexpr std::array kJudgeModes = {Named<JudgeMode>{"sampled", JudgeMode::sampled},
                                    Named<JudgeMode>{"all", JudgeMode::all}, Named<JudgeMode>{"none", JudgeMode::none}};

/// Losses as text, once they are known to be such.
std::string loss_list(const std::string& text) {
  try {
    if (checks::train::read_losses(text).empty()) throw UsageError("[--loss] got nothing, want a loss");
  } catch (const Error& error) {
    const std::string what = error.what();
    throw UsageError("[--loss]" + what.substr(what.find(", got") + 1));
  }
  return text;
}

std::vector<std::string> parts_of(const std::string& list, char between) {
  std::vector<std::string> out;
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t to = std::min(list.find(between, from), list.size());
    out.push_back(list.substr(from, to - from));
    from = to + 1;
  }
  return out;
}

/// What a key of an optimizer behind the first one sets; null: nothing.
double* number_of(checks::train::LayerOptimizer& of, const std::string& key) {
  if (key == "lr") return &of.choice.lr;
  if (key == "momentum") return &of.choice.momentum;
  if (key == "weight_decay") return &of.choice.weight_decay;
  if (key == "clip_norm") return &of.clip_norm;
  return key == "clip_value" ? &of.clip_value : nullptr;
}

/// "adam,lr=0.003@head+tail".
checks::train::LayerOptimizer layer_optimizer(const std::string& text) {
  const std::size_t at = text.find('@');
  checks::train::LayerOptimizer out;
  out.layers = parts_of(text.substr(at + 1), '+');
  if (std::find(out.layers.begin(), out.layers.end(), "") != out.layers.end())
    throw UsageError("[--optimizer] got '" + text + "', want the names of layers behind @");
  const std::vector<std::string> words = parts_of(text.substr(0, at), ',');
  out.choice.name = choose("--optimizer", words.front(), kOptimizerNames);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = std::min(words[i].find('='), words[i].size());
    const std::string key = words[i].substr(0, equals), value = words[i].substr(std::min(equals + 1, words[i].size()));
    if (key == "nesterov" && value.empty())
      out.choice.nesterov = true;
    else if (double* const number = number_of(out, key))
      *number = parse_positive("--optimizer", value);
    else
      throw UsageError("[--optimizer] got '" + words[i] + "' in '" + text +
                       "', want lr=X, momentum=X, weight_decay=X, clip_norm=X, clip_value=X or nesterov");
  }
  return out;
}

/// "bf16", "first=bf16", "second=bf16", "first=bf16,second=fp16".
void take_moments(const std::string& text, TrainOptions& o) {
  if (text.find('=') == std::string::npos) {
    o.moments = choose("--moments", text, kComputeTypes);
    o.second_moment.reset();
    return;
  }
  constexpr std::array kWhich = {Named<bool>{"first", false}, Named<bool>{"second", true}};
  o.moments = o.second_moment = Dtype::fp32;
  for (const std::string& part : parts_of(text, ',')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const bool second = choose("--moments", part.substr(0, equals), kWhich);
    (second ? o.second_moment : o.moments) =
        choose("--moments", part.substr(std::min(equals + 1, part.size())), kComputeTypes);
  }
}

void add_above_zero(CLI::App* command, const char* flag, const char* help, double& value) {
  each(command, flag, "X", help, [flag, &value](const std::string& text) {
    value = parse_positive(flag, text);
    if (value == 0) throw UsageError(std::string("[") + flag + "] got 0, want a number above 0");
  });
}

/// fp8 is of the products of linear layers; between them is bf16.
constexpr std::array kTrainTypes = {Named<Dtype>{"fp32", Dtype::fp32}, Named<Dtype>{"fp16", Dtype::fp16},
                                    Named<Dtype>{"bf16", Dtype::bf16}, Named<Dtype>{"fp8", Dtype::bf16}};

/// What a step takes memory for: the net, its batch, and what the optimizer keeps.
void add_net_options(CLI::App* command, NetOptions& o, const char* dtype_help) {
  each(command, "--loss", "L",
       "loss of mlp, or of a TOML net on digits: cross_entropy (default) or mse, with *WEIGHT and @LAYER if wanted. "
       "Given more than once, or with commas: several losses, each of that layer's output",
       [&o](const std::string& s) { o.loss += (o.loss.empty() ? "" : ",") + loss_list(s); });
  each(command, "--dtype", "T", dtype_help, [&o](const std::string& s) {
    o.dtype = choose("--dtype", s, kTrainTypes);
    o.fp8 = s == "fp8";
  });
  each(command, "--optimizer", "O",
       "sgd (default), adam, adamw, adagrad or rmsprop. Given again as 'adam,lr=0.003@head': a further optimizer, of "
       "the layers behind @ (lr, momentum, weight_decay and nesterov may be set, clip_norm and clip_value of its own "
       "gradients alone; layers with + between, and * and ?)",
       [&o](const std::string& s) {
         if (s.find('@') == std::string::npos)
           o.optimizer = choose("--optimizer", s, kOptimizerNames);
         else
           o.further.push_back(layer_optimizer(s));
       });
  add_number(command, "--momentum", "momentum of sgd and rmsprop (the model's own)", o.momentum);
  add_flag(command, "--nesterov", o.nesterov, "Nesterov momentum, for sgd");
  add_whole(command, "--batch", "rows of a batch: images, or passages of text (the model's own)", o.batch);
  add_whole(command, "--width", "width of the tutorial net's layers (4096)", o.width);
  add_seed_option(command, "seed of the initial weights (1)", o.seed);
  text_option(command, "--data", "DATA",
              "data of a TOML net: digits, text or random; or the folder that holds the digits and the text", o.data);
  add_isolation_options(command, o, "seconds that a call of a library's kernel may take (60)");
}

void add_fp8_option(CLI::App* command, TrainOptions& o) {
  text_option(command, "--fp8", "RECIPE",
              "of --dtype fp8, in TransformerEngine's words: delayed (default) or current scaling, with "
              ",amax_history_len=1024 ,amax_compute_algo=max ,margin=0 and ,fp8_format=HYBRID behind it where they "
              "differ",
              o.fp8_recipe);
}

/// The loss scale.
void add_loss_scale_options(CLI::App* command, TrainOptions& o) {
  each(command, "--scaler", "RULE",
       "loss scale: torch (GradScaler's; default for fp16), apex, deepspeed, megatron, flax, jmp, keras, ... or none",
       [&o](const std::string& s) { o.scaler = s; });
  add_above_zero(command, "--init-scale", "first loss scale (the rule's own; torch's 65536)", o.init_scale);
  add_number(command, "--growth-interval", "clean steps after which the scale grows (the rule's own; torch's 2000)",
             o.growth_interval);
}

/// How long it runs, and what runs beside it.
void add_length_options(CLI::App* command, TrainOptions& o) {
  add_whole(command, "--steps", "number of steps (50)", o.steps);
  each(command, "--shadow", "S",
       "fp64 runs to compare with: each op at its own inputs (local), a whole run (carried), both (default) or off",
       [&o](const std::string& s) { o.shadow = choose("--shadow", s, kShadows); });
  each(command, "--spread-seeds", "N",
       "number of whole fp64 runs, each with another seed. They show how far losses differ for other reasons than "
       "precision (default 5, which cost 5 to 20 times the fp32 step). With 1 or 0 there is one fp64 run (up to 4 "
       "times), and only a loss that is not finite counts as diverged",
       [&o](const std::string& s) { o.spread_seeds = static_cast<int>(parse_count("--spread-seeds", s, 0, 1000)); });
}

/// What is judged on the way.
void add_judge_options(CLI::App* command, TrainOptions& o) {
  each(command, "--judge", "WHICH",
       "judge ops at the tensors that they meet, as check does: those of steps 1, 2, 4, 8, ... and whose error grows "
       "(sampled; default with a shadow), all, or none (default without)",
       [&o](const std::string& s) { o.judge = choose("--judge", s, kJudgeModes); });
  text_option(command, "--save-case", "DIR",
              "write the tensors of each wrong call to DIR, one safetensors file each (check --dump judges it again)",
              o.save_case);
}

/// How weights move.
void add_update_options(CLI::App* command, TrainOptions& o) {
  add_number(command, "--lr", "learning rate (the model's own)", o.lr);
  text_option(
      command, "--lr-schedule", "S",
      "constant (default), step:STEPS[:GAMMA], cosine:STEPS[:FLOOR] or warmup:STEPS[:TOTAL]. A skipped step does "
      "not count",
      o.schedule);
  add_number(command, "--weight-decay", "weight decay (the optimizer's default)", o.weight_decay);
  add_flag(command, "--fused", o.fused,
           "the optimizer computes as torch's fused one: all in fp32, with one rounding for each number stored. It "
           "divides by the loss scale itself");
  each(command, "--weights", "W",
       "weights in fp32 (default). low: in the 16 bits of --dtype. master: in 16 bits too, but the optimizer updates "
       "fp32 copies of them (apex O2)",
       [&o](const std::string& s) { o.weights = choose("--weights", s, kWeights); });
  each(command, "--moments", "T",
       "the optimizer's state in fp32, fp16 or bf16; implies --fused (the type of the weights; fp32 with masters). "
       "first=T or second=T: that of gradients or that of their squares alone, the other one in fp32",
       [&o](const std::string& s) { take_moments(s, o); });
  add_flag(command, "--keep-low-precision-grads", o.keep_low_precision_grads,
           "gradients of fp32 weights stay in the 16 bits that they were computed in");
}

/// Micro-batches and ranks.
void add_rank_options(CLI::App* command, TrainOptions& o) {
  add_whole(command, "--accumulate", "micro-batches in a step (1)", o.accumulate);
  each(command, "--ranks", "N",
       "data-parallel ranks, up to 1024. Each has its own batches; the gradients are averaged (1)",
       [&o](const std::string& s) { o.ranks = static_cast<int>(parse_count("--ranks", s, 1, 1024)); });
  add_flag(command, "--sharded", o.sharded,
           "each rank holds a part of parameters, gradients and optimizer state (FSDP). The ranks agree on which "
           "steps are skipped");
  each(command, "--reduce", "ORDER", "order of the sum over ranks: ring (default) or tree",
       [&o](const std::string& s) { o.tree = choose("--reduce", s, kReduceOrders); });
  each(command, "--divide", "WHEN",
       "when to divide by the number of ranks: pre (before the sum, as DDP; default) or post",
       [&o](const std::string& s) { o.divide_after = choose("--divide", s, kDivides); });
  each(command, "--compress,--reduce-dtype", "T",
       "ranks send gradients in this type: fp16 or bf16, as torch's compression hooks and FSDP's reduce_dtype do, or "
       "fp32 for gradients that are in 16 bits (the type that they have)",
       [&o](const std::string& s) { o.compress = choose("--compress", s, kComputeTypes); });
}

/// What is done with gradients before an update.
void add_gradient_options(CLI::App* command, TrainOptions& o) {
  add_above_zero(command, "--clip-norm",
                 "largest norm of all gradients together (but of optimizers that clip theirs), after unscaling",
                 o.clip_norm);
  add_above_zero(command, "--clip-value", "largest magnitude of a gradient's element, after unscaling", o.clip_value);
  add_above_zero(command, "--loss-weight",
                 "the loss is multiplied by this before backward, as in an average over many tokens or ranks (1)",
                 o.loss_weight);
  each(command, "--backward", "HOW",
       "of several losses: one backward of their sum (sum; default), or one for each, on the same graph (each)",
       [&o](const std::string& s) { o.backward_each = choose("--backward", s, kBackwards); });
  add_number(command, "--grad-penalty",
             "adds this times the 2-norm of the gradient to the loss, as in torch's AMP recipe; needs gradients of "
             "gradients (0)",
             o.grad_penalty);
}

/// What is written, and which steps and ops are looked at.
void add_record_options(CLI::App* command, TrainOptions& o) {
  text_option(command, "--record", "FILE",
              "write a trace of every tensor, FILE and FILE.bin (ampcheck trace FILE shows it)", o.record);
  text_option(command, "--save", "FILE", "write a checkpoint at the end (a safetensors file)", o.save);
  text_option(command, "--resume", "FILE",
              "go on from a checkpoint, bit for bit. --steps still counts from the start of the run", o.resume);
  add_whole(
      command, "--every",
      "observe only every N-th step (1; with --record and more than 100 steps: 50, which costs a few per cent of time)",
      o.every);
  each(
      command, "--ring", "N",
      "if the loss diverges or many steps in a row are skipped, the last N steps are run again and recorded whole (10; "
      "0: none)",
      [&o](const std::string& s) { o.ring = static_cast<int>(parse_count("--ring", s, 0, 1'000'000)); });
  each(command, "--from", "STEP", "observe no step before this one; the first step is 1 (1)",
       [&o](const std::string& s) { o.from = static_cast<int>(parse_count("--from", s, 1, 1'000'000)) - 1; });
  text_option(command, "--ops", "GLOB", "observe only these ops: a pattern with * and ?, such as 'linear_*'", o.ops);
}

}  // namespace

void add_options(CLI::App* command, TrainOptions& o) {
  add_word(
      command, "CONFIG", o.config,
      "a TOML file with the layers of a net, or mlp, conv, transformer or tutorial. The file's table [train] may set "
      "the options below; an option given here overrides it",
      false, "CONFIG.toml");
  each(command, "--model", "M", "mlp (default), conv, transformer or tutorial",
       [&o](const std::string& s) { o.model = choose("--model", s, kModels); });
  add_net_options(command, o,
                  "autocast to fp16 (default) or bf16; fp32: no autocast; fp8: bf16, with products of linear layers in "
                  "fp8");
  add_fp8_option(command, o);
  each(command, "--autocast", "LIST", "which of torch's autocast lists to use: cuda (default, also on the CPU) or cpu",
       [&o](const std::string& s) { o.autocast = choose("--autocast", s, kAutocastLists); });
  add_loss_scale_options(command, o);
  add_length_options(command, o);
  add_judge_options(command, o);
  add_update_options(command, o);
  add_rank_options(command, o);
  add_gradient_options(command, o);
  add_record_options(command, o);
  add_device_option(command, o.device);
  add_jobs_option(command, o.jobs);
}

void add_options(CLI::App* command, DiagnoseOptions& o) {
  add_words(command, "WHAT", o.words,
            "a training run: mlp, conv, transformer, tutorial, or a TOML file with the layers of a net, whose table "
            "[train] may set the options below; or two stacks (libraries, ops, dumps or recordings of other tools), or "
            "one recording or training log",
            Words::one_or_two);
  add_net_options(command, o,
                  "autocast to fp16 (default) or bf16; fp32: no autocast; fp8: bf16, with products of linear layers in "
                  "fp8");
  add_fp8_option(command, o);
  each(command, "--autocast", "LIST", "which of torch's autocast lists to use: cuda (default, also on the CPU) or cpu",
       [&o](const std::string& s) { o.autocast = choose("--autocast", s, kAutocastLists); });
  add_loss_scale_options(command, o);
  add_whole(command, "--steps", "number of steps (50)", o.steps);
  add_update_options(command, o);
  add_rank_options(command, o);
  add_gradient_options(command, o);
  each(command, "-o,--output", "html:FILE",
       "also write the page of the run's trace, with the causal chain marked; of a training run",
       [&o](const std::string& s) {
         if (!s.starts_with("html:") || s.size() == 5 || s == "html:-")
           throw UsageError("[-o] got '" + s + "', want html:FILE");
         o.page = s.substr(5);
       });
  add_jobs_option(command, o.jobs);
  add_other_data_options(command, o.other);
}

void add_options(CLI::App* command, MemoryOptions& o) {
  add_word(command, "MODEL", o.model,
           "mlp, conv, transformer, tutorial, or a TOML file with the layers of a net; of its table [train] the "
           "options below are used",
           false);
  each(command, "--parameters", "N", "in place of a model: gradients of so many parameters, such as 7.5e9",
       [&o](const std::string& s) {
         o.parameters = parse_positive("--parameters", s);
         if (!(o.parameters >= 1 && o.parameters <= 1e15) || o.parameters != std::floor(o.parameters))
           throw UsageError("[--parameters] got " + s + ", want a whole number from 1 to 1e15");
       });
  each(command, "--share", "X",
       "share of the gradients that an update has in fp32 at a time, above 0 and up to 1: says what that takes beside "
       "16-bit gradients",
       [&o](const std::string& s) {
         o.share = parse_positive("--share", s);
         if (!(o.share > 0 && o.share <= 1)) throw UsageError("[--share] got " + s + ", want above 0 and up to 1");
       });
  add_net_options(command, o, "type of the strategies in low precision: fp16 (default) or bf16");
}

}  // namespace ampcheck::tools
