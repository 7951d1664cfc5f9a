// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/train_options.h"

#include "tools/choose/option_parsing.h"

namespace ampcheck::tools {

namespace {

constexpr std::array kModels = {Named<const char*>{"mlp", "mlp"}, Named<const char*>{"conv", "conv"},
                                Named<const char*>{"transformer", "transformer"},
                                Named<const char*>{"tutorial", "tutorial"}};
constexpr std::array kLosses = {Named<const char*>{"cross_entropy", "cross_entropy"}, Named<const char*>{"mse", "mse"}};
constexpr std::array kOptimizerNames = {Named<const char*>{"sgd", "sgd"}, Named<const char*>{"adam", "adam"},
                                        Named<const char*>{"adamw", "adamw"}, Named<const char*>{"adagrad", "adagrad"},
                                        Named<const char*>{"rmsprop", "rmsprop"}};
constexpr std::array kShadows = {Named<const char*>{"off", "off"}, Named<const char*>{"local", "local"},
                                 Named<const char*>{"carried", "carried"}, Named<const char*>{"both", "both"}};

constexpr std::array kAutocastLists = {Named<AutocastDevice>{"cuda", AutocastDevice::cuda},
                                       Named<AutocastDevice>{"cpu", AutocastDevice::cpu}};
constexpr std::array kReduceOrders = {Named<bool>{"ring", false}, Named<bool>{"tree", true}};
constexpr std::array kDivides = {Named<bool>{"pre", false}, Named<bool>{"post", true}};

using checks::train::Weights;
constexpr std::array kWeights = {Named<Weights>{"fp32", Weights::fp32}, Named<Weights>{"master", Weights::master},
                                 Named<Weights>{"low", Weights::low}};

using checks::train::JudgeMode;
constexpr std::array kJudgeModes = {Named<JudgeMode>{"sampled", JudgeMode::sampled},
                                    Named<JudgeMode>{"all", JudgeMode::all}, Named<JudgeMode>{"none", JudgeMode::none}};

void add_above_zero(CLI::App* command, const char* flag, const char* help, double& value) {
  each(command, flag, "X", help, [flag, &value](const std::string& text) {
    value = parse_positive(flag, text);
    if (value == 0) throw UsageError(std::string("[") + flag + "] got 0, want a number above 0");
  });
}

/// What a step takes memory for: the net, its batch, and what the optimizer keeps.
void add_net_options(CLI::App* command, NetOptions& o, const char* dtype_help) {
  each(command, "--loss", "L", "loss of mlp, or of a TOML net on digits: cross_entropy (default) or mse",
       [&o](const std::string& s) { o.loss = choose("--loss", s, kLosses); });
  each(command, "--dtype", "T", dtype_help,
       [&o](const std::string& s) { o.dtype = choose("--dtype", s, kComputeTypes); });
  each(command, "--optimizer", "O", "sgd (default), adam, adamw, adagrad or rmsprop",
       [&o](const std::string& s) { o.optimizer = choose("--optimizer", s, kOptimizerNames); });
  add_number(command, "--momentum", "momentum of sgd and rmsprop (the model's own)", o.momentum);
  add_flag(command, "--nesterov", o.nesterov, "Nesterov momentum, for sgd");
  add_whole(command, "--batch", "rows of a batch: images, or passages of text (the model's own)", o.batch);
  add_whole(command, "--width", "width of the tutorial net's layers (4096)", o.width);
  add_seed_option(command, "seed of the initial weights (1)", o.seed);
  text_option(command, "--data", "DATA",
              "data of a TOML net: digits, text or random; or the folder that holds the digits and the text", o.data);
  add_isolation_options(command, o, "seconds that a call of a library's kernel may take (60)");
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
       "the optimizer's state in fp32, fp16 or bf16; implies --fused (the type of the weights; fp32 with masters)",
       [&o](const std::string& s) { o.moments = choose("--moments", s, kComputeTypes); });
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
  add_above_zero(command, "--clip-norm", "largest norm of all gradients together, after unscaling", o.clip_norm);
  add_above_zero(command, "--clip-value", "largest magnitude of a gradient's element, after unscaling", o.clip_value);
  add_above_zero(command, "--loss-weight",
                 "the loss is multiplied by this before backward, as in an average over many tokens or ranks (1)",
                 o.loss_weight);
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
  add_net_options(command, o, "autocast to fp16 (default) or bf16; fp32: no autocast");
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
  add_net_options(command, o, "autocast to fp16 (default) or bf16; fp32: no autocast");
  each(command, "--autocast", "LIST", "which of torch's autocast lists to use: cuda (default, also on the CPU) or cpu",
       [&o](const std::string& s) { o.autocast = choose("--autocast", s, kAutocastLists); });
  add_loss_scale_options(command, o);
  add_whole(command, "--steps", "number of steps (50)", o.steps);
  add_update_options(command, o);
  add_rank_options(command, o);
  add_gradient_options(command, o);
  add_jobs_option(command, o.jobs);
  add_other_data_options(command, o.other);
}

void add_options(CLI::App* command, MemoryOptions& o) {
  add_word(command, "MODEL", o.model,
           "mlp, conv, transformer, tutorial, or a TOML file with the layers of a net; of its table [train] the "
           "options below are used",
           true);
  add_net_options(command, o, "type of the strategies in low precision: fp16 (default) or bf16");
}

}  // namespace ampcheck::tools
