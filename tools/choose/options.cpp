// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "src/file_bytes.h"
#include "src/op_call.h"
#include "src/suggestion.h"
#include "src/toml_file.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

constexpr const char* kAbout =
    "Is this low-precision number wrong, or only rounded?\n"
    "Judges kernels forward and backward, each element against an interval derived from the op's formula.";

constexpr const char* kSelectors =
    "op, case name, or a pattern of either with * and ?; none: all built-in ops. A shared library or TOML file first "
    "(./libmy_op.so): its ops";

constexpr const char* kFooter =
    "Exit codes: 0 all passed; 1 findings; 2 usage; 3 internal error; 4 nothing ran; 5 incomplete; 6 no such device;\n"
    "8 an output could not be written; 128+n ended by signal n.";

template <class T>
using Named = std::pair<const char*, T>;

template <class T, std::size_t N>
T choose(const char* flag, const std::string& word, const std::array<Named<T>, N>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (word == name) return value;
    names.push_back(name);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw UsageError(std::string("[") + flag + "] got '" + word + "'" + did_you_mean(word, names) + ", want " + list);
}

constexpr std::array kDevices = {Named<Device>{"cpu", Device::cpu}, Named<Device>{"cuda", Device::cuda}};
constexpr std::array kSets = {Named<checks::CaseSet>{"quick", checks::CaseSet::quick},
                              Named<checks::CaseSet>{"standard", checks::CaseSet::standard},
                              Named<checks::CaseSet>{"all", checks::CaseSet::all}};
constexpr std::array kReports = {Named<ReportFile::Format>{"json", ReportFile::Format::json},
                                 Named<ReportFile::Format>{"junit", ReportFile::Format::junit},
                                 Named<ReportFile::Format>{"lines", ReportFile::Format::lines}};
constexpr std::array kDtypes = {Named<Dtype>{"fp32", Dtype::fp32},     Named<Dtype>{"fp16", Dtype::fp16},
                                Named<Dtype>{"bf16", Dtype::bf16},     Named<Dtype>{"fp64", Dtype::fp64},
                                Named<Dtype>{"e4m3fn", Dtype::e4m3fn}, Named<Dtype>{"e5m2", Dtype::e5m2}};
constexpr std::array kRoundings = {Named<Rounding>{"nearest_even", Rounding::nearest_even},
                                   Named<Rounding>{"toward_zero", Rounding::toward_zero},
                                   Named<Rounding>{"up", Rounding::up},
                                   Named<Rounding>{"down", Rounding::down},
                                   Named<Rounding>{"nearest_away", Rounding::nearest_away},
                                   Named<Rounding>{"to_odd", Rounding::to_odd},
                                   Named<Rounding>{"stochastic", Rounding::stochastic}};
constexpr std::array kOverflows = {
    Named<Overflow>{"default", Overflow::format_default}, Named<Overflow>{"infinity", Overflow::infinity},
    Named<Overflow>{"nan", Overflow::nan}, Named<Overflow>{"saturate", Overflow::saturate}};

constexpr std::array kIsolations = {Named<bool>{"worker", true}, Named<bool>{"none", false}};
constexpr std::array kDoors = {Named<const char*>{"cpp", "cpp"}, Named<const char*>{"c", "c"},
                               Named<const char*>{"toml", "toml"}};

constexpr std::array kMaths = {Named<const char*>{"cuda", "cuda"}, Named<const char*>{"glibc", "glibc"},
                               Named<const char*>{"own", "own"}};

constexpr std::array kReal = {Named<RealTensors>{"on", RealTensors::on}, Named<RealTensors>{"only", RealTensors::only},
                              Named<RealTensors>{"off", RealTensors::off}};

Accumulator parse_accumulator(const std::string& text) {
  Accumulator out;
  if (!find_accumulator(text, out)) throw UsageError("[--accumulate] " + unknown_accumulator(text));
  return out;
}

ShapeFilter parse_shapes(const std::string& text) {
  if (text.find('=') == std::string::npos) {
    using Kind = ShapeFilter::Kind;
    constexpr std::array kKinds = {Named<Kind>{"first", Kind::first}, Named<Kind>{"standard", Kind::standard},
                                   Named<Kind>{"all", Kind::all}};
    try {
      return {choose("--shapes", text, kKinds)};
    } catch (const UsageError& error) {
      throw UsageError(std::string(error.what()) + ", or extents of your own as N=64,D=1025");
    }
  }
  ShapeFilter filter{ShapeFilter::Kind::extents};
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string item = text.substr(start, comma - start);
    const std::size_t equal = std::min(item.find('='), item.size());
    const std::optional<std::int64_t> extent = equal < item.size() ? parse_whole(item.substr(equal + 1)) : std::nullopt;
    if (equal == 0 || !extent || *extent < 0 || *extent > (std::int64_t{1} << 40))
      throw UsageError("[--shapes] got '" + item + "', want a dimension with its extent, as N=64");
    filter.extents[item.substr(0, equal)] = *extent;
    start = comma + 1;
  }
  return filter;
}

constexpr std::array kTraceReports = {Named<ReportFile::Format>{"html", ReportFile::Format::html},
                                      Named<ReportFile::Format>{"csv", ReportFile::Format::csv},
                                      Named<ReportFile::Format>{"json", ReportFile::Format::json}};

template <std::size_t N>
ReportFile parse_report(const std::string& text, const std::array<Named<ReportFile::Format>, N>& formats) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon + 1 == text.size())
    throw UsageError("[-o] got '" + text + "', want FORMAT:FILE, as json:check.json or junit:check.xml");
  ReportFile report{choose("-o", text.substr(0, colon), formats), text.substr(colon + 1)};
  if (report.path == "-") throw UsageError("[-o] got '-'; for JSON on standard output use --json");
  return report;
}

/// Two reports in one file would leave the second alone.
void add_report(std::vector<ReportFile>& reports, ReportFile report) {
  const auto place = [](const std::string& path) {
    std::error_code error;
    const std::filesystem::path out = std::filesystem::weakly_canonical(path, error);
    return error ? std::filesystem::path(path) : out;
  };
  for (const ReportFile& other : reports)
    if (place(other.path) == place(report.path))
      throw UsageError("[-o] got '" + other.path + "' and '" + report.path +
                       "', want a file of its own for each report");
  reports.push_back(std::move(report));
}

std::uint64_t parse_count(const char* flag, const std::string& text, std::int64_t low, std::int64_t high) {
  const std::optional<std::int64_t> value = parse_whole(text);
  if (!value || *value < low || *value > high)
    throw UsageError(std::string("[") + flag + "] got '" + text + "', want a whole number from " + std::to_string(low) +
                     " to " + std::to_string(high));
  return static_cast<std::uint64_t>(*value);
}

using Texts = std::vector<std::string>;

/// An option whose every value is handled by `take`, which throws UsageError.
template <class F>
CLI::Option* each(CLI::App* verb, const char* name, const char* meta, const char* help, F take) {
  return verb
      ->add_option_function<Texts>(
          name,
          [take](const Texts& values) {
            for (const auto& v : values) take(v);
          },
          help)
      ->type_name(meta)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

/// Bytes, with the usual units; kB, MB, ... are powers of 1024.
std::int64_t parse_size(const char* flag, const std::string& text) {
  std::string number = text;
  bool size = false;
  try {
    size = CLI::AsSizeValue(false)(number).empty() && number != "0";
  } catch (const CLI::Error&) {  // an unknown unit
  }
  if (!size) throw UsageError(std::string("[") + flag + "] got '" + text + "', want a size, as 8GB or 500MB");
  return static_cast<std::int64_t>(parse_count(flag, number, 1, std::int64_t{1} << 62));
}

/// The user's own tensors.
void add_inputs_option(CLI::App* verb, Options& o) {
  verb->add_option("--inputs", o.inputs,
                   "check one op at these tensors: safetensors or npz with its inputs by name, cotangents as d and the "
                   "output's name")
      ->type_name("FILE");
}

void add_dump_options(CLI::App* verb, Options& o) {
  verb->add_option(
          "--dump", o.dump,
          "judge outputs and gradients that somebody saved: safetensors, npz, or a folder (ampcheck explain dump)")
      ->type_name("FILE");
  verb->add_option("--formula", o.formula, "of --dump: an op's name, or a formula as text (ampcheck explain formula)")
      ->type_name("F");
  each(verb, "--accumulate", "T",
       "of --dump: the declared accumulator, fp32 (default), fp16, bf16 or tensor_core(GPU) with v100, turing, a100, "
       "ada, h100, b200 or any",
       [&o](const std::string& t) { o.accumulate = parse_accumulator(t); });
  each(verb, "--math", "M", "of --dump: the declared functions, cuda (default), glibc or own",
       [&o](const std::string& t) { o.math = choose("--math", t, kMaths); });
}

/// A rule; without one of these it is torch's default for the type.
void add_gate_options(CLI::App* verb, Options& o) {
  const auto number = [&](const char* flag, const char* help, std::optional<double>& to) {
    each(verb, flag, "X", help, [flag, &to](const std::string& t) {
      to = parse_number(t);
      if (!to) throw UsageError(std::string("[") + flag + "] got '" + t + "', want a number");
    });
  };
  number("--atol", "of gate: |got - want| <= atol + rtol |want|; without any rule torch's default of the type",
         o.gate.atol);
  number("--rtol", "of gate: see --atol", o.gate.rtol);
  number("--matched", "of gate: atol and rtol must hold at this share of the elements", o.gate.matched);
  number("--mean", "of gate: mean |got - want| at most this", o.gate.mean);
  number("--nmse", "of gate: sum (got - want)^2 at most this share of sum want^2", o.gate.nmse);
  number("--cosine", "of gate: cosine of the angle between got and want at least this", o.gate.cosine);
  number("--factor", "of gate: largest error at most this many times that of the op's own kernel", o.gate.factor);
  verb->add_option("--rules", o.gate.rules,
                   "of gate: TOML file with tables [fp32], [fp16], [bf16] of atol and rtol, or of rule and limit")
      ->type_name("FILE");
  verb->add_option("--range", o.gate.range, "of gate: data regime of the cases (normal)")->type_name("R");
  verb->add_flag("--rounded-reference", o.gate.rounded_reference,
                 "of gate: the rule compares with the reference rounded to the storage type");
  add_dump_options(verb, o);
}

void add_data_option(CLI::App* verb, Options& o) {
  verb->add_option("--data", o.data, "folder with the data of the real runs")->type_name("DIR");
}

/// Storage types, seeds and regimes.
void add_set_options(CLI::App* verb, Options& o) {
  each(verb, "--dtype", "T", "only this storage type: fp32, fp16, bf16, or e4m3fn, e5m2 (may be repeated)",
       [&o](const std::string& t) { o.dtypes.push_back(choose("--dtype", t, kDtypes)); });
  each(verb, "--seeds", "N", "number of seeds (1)",
       [&o](const std::string& t) { o.seeds = parse_count("--seeds", t, 1, 1'000'000); });
  each(verb, "--seed", "S", "the first seed (1)",
       [&o](const std::string& t) { o.first_seed = parse_count("--seed", t, 0, std::int64_t{1} << 53); });
  each(verb, "--regimes", "SET", "quick, standard or all data and cotangent regimes (standard)",
       [&o](const std::string& t) { o.set = choose("--regimes", t, kSets); });
}

void add_case_options(CLI::App* verb, Options& o) {
  add_set_options(verb, o);
  each(verb, "--shapes", "WHICH", "first, standard or all (all); or extents of your own: N=64,D=1025",
       [&o](const std::string& t) { o.shapes = parse_shapes(t); });
  each(verb, "--real", "WHEN", "tensors of real runs: on, only or off (on where their data is found)",
       [&o](const std::string& t) { o.real = choose("--real", t, kReal); });
  add_data_option(verb, o);
}

void add_jobs_option(CLI::App* verb, Options& o) {
  each(verb, "--jobs,-j", "N", "cores to use (all)",
       [&o](const std::string& t) { o.jobs = static_cast<int>(parse_count("--jobs", t, 1, 4096)); });
}

void add_isolation_options(CLI::App* verb, Options& o, const char* what_ends) {
  each(verb, "--isolation", "I",
       "kernels of a library run in a worker process (default), or none: in this one, for a debugger",
       [&o](const std::string& t) { o.isolation = choose("--isolation", t, kIsolations); });
  each(verb, "--timeout", "S", what_ends,
       [&o](const std::string& t) { o.timeout = static_cast<double>(parse_count("--timeout", t, 1, 1'000'000)); });
}

void add_device_option(CLI::App* verb, Options& o) {
  each(verb, "--device", "D", "cpu or cuda (cpu)",
       [&o](const std::string& t) { o.device = choose("--device", t, kDevices); });
}

void add_run_options(CLI::App* verb, Options& o) {
  add_device_option(verb, o);
  add_jobs_option(verb, o);
  add_isolation_options(verb, o, "seconds that a case may take in a worker (60)");
  verb->add_flag_function(
      "--no-relations", [&o](std::int64_t) { o.relations = false; }, "values only: leave out the exact relations");
}

void add_memory_option(CLI::App* verb, Options& o) {
  each(verb, "--memory", "SIZE",
       "that the cases that run at a time may take, as 8GB or 500MB (4/5 of what is free); of a larger one rows are "
       "sampled, or it is skipped",
       [&o](const std::string& t) { o.memory = parse_size("--memory", t); });
}

/// Of a verb that runs many cases and says which it left out.
void add_budget_options(CLI::App* verb, Options& o) {
  add_memory_option(verb, o);
  each(verb, "--time-budget", "S",
       "seconds after which no further case starts; of each op, what finds most comes first",
       [&o](const std::string& t) {
         o.time_budget = static_cast<double>(parse_count("--time-budget", t, 1, 1'000'000));
       });
}

void add_format_options(CLI::App* verb, Options& o) {
  each(verb, "--format", "F", "only this format; also one of your own, as e5m7 or e4m3b11fnuz (may be repeated)",
       [&o](const std::string& t) { o.formats.push_back(t); });
  each(verb, "--rounding", "R", "nearest_even (default), toward_zero, up, down, nearest_away, to_odd, stochastic",
       [&o](const std::string& t) { o.rounding.rounding = choose("--rounding", t, kRoundings); });
  each(verb, "--overflow", "O", "default, infinity, nan or saturate",
       [&o](const std::string& t) { o.rounding.overflow = choose("--overflow", t, kOverflows); });
  verb->add_flag_function(
      "--flush", [&o](std::int64_t) { o.rounding.subnormals = Subnormals::flush; }, "subnormal numbers become zero");
}

double parse_positive(const char* flag, const std::string& text) {
  const std::optional<double> value = parse_number(text);
  if (!value || !(*value >= 0) || !std::isfinite(*value))
    throw UsageError(std::string("[") + flag + "] got '" + text + "', want a number from 0 on");
  return *value;
}

constexpr std::array kModels = {Named<const char*>{"mlp", "mlp"}, Named<const char*>{"conv", "conv"},
                                Named<const char*>{"transformer", "transformer"},
                                Named<const char*>{"tutorial", "tutorial"}};
constexpr std::array kLosses = {Named<const char*>{"cross_entropy", "cross_entropy"}, Named<const char*>{"mse", "mse"}};
constexpr std::array kOptimizerNames = {Named<const char*>{"sgd", "sgd"}, Named<const char*>{"adam", "adam"},
                                        Named<const char*>{"adamw", "adamw"}, Named<const char*>{"adagrad", "adagrad"},
                                        Named<const char*>{"rmsprop", "rmsprop"}};
constexpr std::array kShadows = {Named<const char*>{"off", "off"}, Named<const char*>{"local", "local"},
                                 Named<const char*>{"carried", "carried"}, Named<const char*>{"both", "both"}};
constexpr std::array kTrainDtypes = {Named<Dtype>{"fp32", Dtype::fp32}, Named<Dtype>{"fp16", Dtype::fp16},
                                     Named<Dtype>{"bf16", Dtype::bf16}};

constexpr std::array kAutocastLists = {Named<AutocastDevice>{"cuda", AutocastDevice::cuda},
                                       Named<AutocastDevice>{"cpu", AutocastDevice::cpu}};
constexpr std::array kReduceOrders = {Named<bool>{"ring", false}, Named<bool>{"tree", true}};
constexpr std::array kDivides = {Named<bool>{"pre", false}, Named<bool>{"post", true}};

using checks::train::Weights;
constexpr std::array kWeights = {Named<Weights>{"fp32", Weights::fp32}, Named<Weights>{"master", Weights::master},
                                 Named<Weights>{"low", Weights::low}};

void add_number(CLI::App* verb, const char* flag, const char* help, double& value) {
  each(verb, flag, "X", help, [flag, &value](const std::string& text) { value = parse_positive(flag, text); });
}

void add_whole(CLI::App* verb, const char* flag, const char* help, auto& value) {
  each(verb, flag, "N", help, [flag, &value](const std::string& text) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(parse_count(flag, text, 1, 1'000'000));
  });
}

/// What a step takes memory for: the net, its batch, and what the optimizer keeps.
void add_net_options(CLI::App* verb, Options& o, const char* dtype_help) {
  TrainChoices& t = o.train;
  each(verb, "--loss", "L", "of mlp, or a net's TOML file on digits: cross_entropy (default) or mse",
       [&t](const std::string& s) { t.loss = choose("--loss", s, kLosses); });
  each(verb, "--dtype", "T", dtype_help,
       [&o](const std::string& s) { o.dtypes = {choose("--dtype", s, kTrainDtypes)}; });
  each(verb, "--optimizer", "O", "sgd (default), adam, adamw, adagrad or rmsprop",
       [&t](const std::string& s) { t.optimizer = choose("--optimizer", s, kOptimizerNames); });
  add_number(verb, "--momentum", "of sgd and rmsprop (the model's own)", t.momentum);
  verb->add_flag("--nesterov", t.nesterov, "of sgd");
  add_whole(verb, "--batch", "rows of a batch: images, passages of text (the model's own)", t.batch);
  add_whole(verb, "--width", "of the tutorial net's layers (4096)", t.width);
  each(verb, "--seed", "S", "of the initial weights (1)",
       [&o](const std::string& s) { o.first_seed = parse_count("--seed", s, 0, std::int64_t{1} << 53); });
  verb->add_option("--data", o.data,
                   "digits, text or random, which the model decides; or the folder that holds digits and text")
      ->type_name("DATA");
  add_isolation_options(verb, o, "seconds that a call of a library's kernel may take (60)");
}

/// What is trained, and how.
void add_train_options(CLI::App* verb, Options& o) {
  TrainChoices& t = o.train;
  const auto number = [&](const char* flag, const char* help, double& value) { add_number(verb, flag, help, value); };
  const auto whole = [&](const char* flag, const char* help, auto& value) { add_whole(verb, flag, help, value); };
  const auto above_zero = [&](const char* flag, const char* help, double& value) {
    each(verb, flag, "X", help, [flag, &value](const std::string& text) {
      value = parse_positive(flag, text);
      if (value == 0) throw UsageError(std::string("[") + flag + "] got 0, want a number above 0");
    });
  };
  each(verb, "--model", "M", "mlp (default), conv, transformer or tutorial",
       [&t](const std::string& s) { t.model = choose("--model", s, kModels); });
  add_net_options(verb, o, "autocast to fp16 (default) or bf16; fp32: no autocast");
  each(
      verb, "--autocast", "LIST",
      "whose list says which ops it runs in which dtype: cuda (default, on the CPU too, which stands for a GPU) or cpu",
      [&t](const std::string& s) { t.autocast = choose("--autocast", s, kAutocastLists); });
  each(verb, "--scaler", "RULE",
       "loss scale: torch (GradScaler's; default for fp16), apex, deepspeed, megatron, flax, jmp, keras, ... or none",
       [&t](const std::string& s) { t.scaler = s; });
  above_zero("--init-scale", "first loss scale (the rule's own; torch's 65536)", t.init_scale);
  number("--growth-interval", "clean steps after which the scale grows (the rule's own; torch's 2000)",
         t.growth_interval);
  whole("--steps", "how many (50)", t.steps);
  each(verb, "--shadow", "S",
       "fp64 beside it: each op at its own inputs (local), the whole run (carried), both (default) or off",
       [&t](const std::string& s) { t.shadow = choose("--shadow", s, kShadows); });
  each(verb, "--spread-seeds", "N",
       "fp64 runs of the carried shadow, of as many seeds: how far a loss may stray for other reasons than precision "
       "(5, at 5 to 20 times\nthe cost of the fp32 step); 1 or 0: the shadow alone, at up to 4 times, by which a run "
       "leaves with a loss that is not finite alone",
       [&t](const std::string& s) { t.spread_seeds = static_cast<int>(parse_count("--spread-seeds", s, 0, 1000)); });
  number("--lr", "learning rate (the model's own)", t.lr);
  verb->add_option("--lr-schedule", t.schedule,
                   "constant (default), step:STEPS[:GAMMA], cosine:STEPS[:FLOOR] or warmup:STEPS[:TOTAL]; a skipped "
                   "step does not advance it")
      ->type_name("S");
  number("--weight-decay", "(the optimizer's default)", t.weight_decay);
  verb->add_flag("--fused", t.fused,
                 "the optimizer in torch's fused arithmetic: all in fp32, one rounding per number stored; it divides "
                 "by the loss scale itself");
  each(verb, "--weights", "W",
       "fp32 (default); low: in the 16 bits of --dtype; master: so, with fp32 masters that the optimizer moves (apex "
       "O2)",
       [&t](const std::string& s) { t.weights = choose("--weights", s, kWeights); });
  each(verb, "--moments", "T",
       "the optimizer's state in fp32, fp16 or bf16 (as the weights; fp32 beside masters); fused",
       [&t](const std::string& s) { t.moments = choose("--moments", s, kTrainDtypes); });
  verb->add_flag("--keep-low-precision-grads", t.keep_low_precision_grads,
                 "gradients of fp32 weights stay in the 16 bits that they were computed in");
  whole("--accumulate", "micro-batches a step (1)", t.accumulate);
  each(verb, "--ranks", "N",
       "data-parallel ranks, up to 1024, each with batches of its own; their gradients are averaged (1)",
       [&t](const std::string& s) { t.ranks = static_cast<int>(parse_count("--ranks", s, 1, 1024)); });
  verb->add_flag("--sharded", t.sharded,
                 "parameters, gradients and optimizer state are sharded over the ranks (FSDP), whose scalers agree on "
                 "what is skipped");
  each(verb, "--reduce", "ORDER", "of the sum over ranks: ring (default) or tree",
       [&t](const std::string& s) { t.tree = choose("--reduce", s, kReduceOrders); });
  each(verb, "--divide", "WHEN", "by the number of ranks: pre (before the sum, as DDP; default) or post",
       [&t](const std::string& s) { t.divide_after = choose("--divide", s, kDivides); });
  each(verb, "--compress,--reduce-dtype", "T",
       "gradients go between ranks in fp16 or bf16, as with torch's compression hooks, or FSDP's reduce_dtype; fp32: "
       "gradients that are in 16 bits (as they are)",
       [&t](const std::string& s) { t.compress = choose("--compress", s, kTrainDtypes); });
  above_zero("--clip-norm", "largest norm of all gradients together, after unscaling", t.clip_norm);
  above_zero("--clip-value", "largest magnitude of a gradient's element, after unscaling", t.clip_value);
  above_zero("--loss-weight", "the loss times this is differentiated, as in an average over many tokens or ranks (1)",
             t.loss_weight);
  number("--grad-penalty",
         "this times the 2-norm of the loss's gradient is added to the loss: a gradient of gradients, by the AMP "
         "recipe (0)",
         t.grad_penalty);
  verb->add_option("--record", t.record,
                   "write a trace of every tensor, FILE and FILE.bin (ampcheck trace FILE shows it)")
      ->type_name("FILE");
  verb->add_option("--save", t.save, "write a checkpoint at the end, a safetensors file")->type_name("FILE");
  verb->add_option("--resume", t.resume,
                   "go on from a checkpoint, bit for bit; --steps counts from the start of the run")
      ->type_name("FILE");
  whole("--every",
        "look at every N-th step alone (1; with --record and more than 100 steps 50, which costs some per cent)",
        t.every);
  each(verb, "--ring", "N",
       "after a fault (the loss left, or steps skipped on end) a sampled trace gets the last N steps whole, run again "
       "(10; 0: none)",
       [&t](const std::string& s) { t.ring = static_cast<int>(parse_count("--ring", s, 0, 1'000'000)); });
  each(verb, "--from", "STEP", "look at nothing before this step (1)",
       [&t](const std::string& s) { t.from = static_cast<int>(parse_count("--from", s, 1, 1'000'000)) - 1; });
  verb->add_option("--ops", t.ops, "look at these ops alone: pattern with * and ?, as 'linear_*'")->type_name("GLOB");
}

CLI::App* add_verb(CLI::App& app, Options& o, const char* name, const char* help) {
  CLI::App* verb = app.add_subcommand(name, help);
  verb->add_flag("--json", o.json, "results as JSON on standard output");
  verb->callback([&o, name] { o.verb = name; });
  return verb;
}

void describe(CLI::App& app, Options& o) {
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_help_flag("-h,--help", "this text; after a verb: the options of that verb");

  CLI::App* list =
      add_verb(app, o, "list", "The built-in ops, or those of a library; with --cases, the names of their cases");
  list->add_option("SELECTOR", o.words, kSelectors);
  list->add_flag("--cases", o.cases, "case names instead of ops");
  list->add_flag("--planted", o.planted,
                 "the planted faults that check must catch, and correct variants that it must not flag");
  add_case_options(list, o);

  CLI::App* check = add_verb(app, o, "check", "Judge ops: forward, backward and exact relations");
  check->add_option("SELECTOR", o.words, kSelectors);
  add_case_options(check, o);
  add_inputs_option(check, o);
  add_dump_options(check, o);
  add_run_options(check, o);
  add_budget_options(check, o);
  each(check, "-o,--output", "FORMAT:FILE", "also write json:FILE, junit:FILE or lines:FILE (may be repeated)",
       [&o](const std::string& t) { add_report(o.reports, parse_report(t, kReports)); });
  check
      ->add_option("--journal", o.journal,
                   "append a JSON line before and after each case: what ran when the machine went down")
      ->type_name("FILE");
  check->add_flag("-v,--verbose", o.verbose,
                  "every failing case, and the share of each primitive in the radius of each op");

  CLI::App* replay = add_verb(app, o, "replay", "Run one case again, and save its tensors");
  replay->add_option("CASE", o.words, "case name as printed by check; the library of the op first")
      ->required()
      ->expected(1, 2);
  replay
      ->add_option("--save", o.save,
                   "inputs, got, want and interval: to a folder as .npy, or to one FILE.safetensors or FILE.npz")
      ->type_name("DIR");
  add_data_option(replay, o);
  add_inputs_option(replay, o);
  add_run_options(replay, o);
  add_memory_option(replay, o);

  CLI::App* certify = add_verb(app, o, "certify", "How surely the reference is right: 100-digit differences");
  certify->add_option("OP", o.words, "op or pattern; none: all; a shared library first: its ops");
  each(certify, "--samples", "N", "coordinates per input and form (8); of further variants half as many",
       [&o](const std::string& t) { o.samples = static_cast<int>(parse_count("--samples", t, 1, 1'000'000)); });
  each(certify, "--seed", "S", "seed of the values (1)",
       [&o](const std::string& t) { o.first_seed = parse_count("--seed", t, 0, std::int64_t{1} << 53); });

  CLI::App* formats =
      add_verb(app, o, "formats", "Facts of the float formats; with VALUE, what each makes of a number");
  formats->add_option("VALUE", o.words, "decimal, hexadecimal (0x1.8p-3), inf or nan");
  add_format_options(formats, o);

  CLI::App* explain = add_verb(app, o, "explain", "What a finding code means and what to do");
  explain->add_option("CODE", o.words,
                      "as AC101; none: all codes; formula: the language of formulas in text; dump: what --dump reads; "
                      "trace: what --record writes; torch: what of torch is not repeated");

  CLI::App* fresh = add_verb(app, o, "new", "Write an example to begin with: ampcheck new op NAME");
  fresh->add_option("WHAT", o.words, "op NAME: a kernel of your own with its formula, in a folder NAME")
      ->required()
      ->expected(1, 2);
  each(fresh, "--door", "D", "cpp (header-only C++), c (C11) or toml (launchers of a library, no code)",
       [&o](const std::string& t) { o.door = choose("--door", t, kDoors); });

  CLI::App* compare =
      add_verb(app, o, "compare",
               "Two builds of the same ops: both right? which is nearer, where do bits differ, is one faster");
  compare->add_option("A B SELECTOR", o.words, "two shared libraries or TOML files, then selectors")->required();
  add_case_options(compare, o);
  add_run_options(compare, o);

  CLI::App* contract =
      add_verb(app, o, "contract", "What a kernel's bits say of its precision contract, and the line to declare it by");
  contract->add_option("OP", o.words, "ops or patterns; a library or TOML file first if they are of one")->required();
  each(contract, "--dtype", "T", "only this storage type: fp32, fp16, bf16, or e4m3fn, e5m2 (may be repeated)",
       [&o](const std::string& t) { o.dtypes.push_back(choose("--dtype", t, kDtypes)); });
  add_isolation_options(contract, o, "seconds that a call of a library's kernel may take (60)");
  each(contract, "--seed", "S", "seed of the data (1)",
       [&o](const std::string& t) { o.first_seed = parse_count("--seed", t, 0, std::int64_t{1} << 53); });

  CLI::App* audit = add_verb(
      app, o, "audit",
      "Tests the judges: audit zoo how often ampcheck is right, audit gate what a tolerance rule of yours lets pass");
  audit
      ->add_option("WHAT", o.words,
                   "zoo, then names of its kernels or patterns (none: all); or gate, then ops or case names, a library "
                   "or TOML file first if they are of one")
      ->required();
  add_set_options(audit, o);
  add_jobs_option(audit, o);
  add_isolation_options(audit, o, "of gate: seconds that a call of a library's kernel may take (60)");
  audit->add_flag("-v,--verbose", o.verbose, "of zoo: every kernel with what was due and what was found");
  add_gate_options(audit, o);

  CLI::App* train =
      add_verb(app, o, "train",
               "Train a small net in mixed precision beside the same run in fp64, and say what low precision did");
  train
      ->add_option("CONFIG", o.train.config,
                   "the net as a TOML file of layers, with settings by the names below in [train]; options given here "
                   "come first")
      ->type_name("CONFIG.toml");
  add_train_options(train, o);
  add_device_option(train, o);
  add_jobs_option(train, o);

  CLI::App* trace =
      add_verb(app, o, "trace", "What a recorded training run met: tables, CSV, JSON, or one HTML file with plots");
  trace->add_option("FILE", o.words, "as train --record wrote it")->required()->expected(1);
  trace->add_flag("--csv", o.csv, "one row for each tensor of each step");
  each(trace, "-o,--output", "FORMAT:FILE", "also write html:FILE, csv:FILE or json:FILE (may be repeated)",
       [&o](const std::string& t) { add_report(o.reports, parse_report(t, kTraceReports)); });

  CLI::App* facts =
      add_verb(app, o, "facts", "What is often written about mixed precision, and what this machine measures");
  facts->add_option("--data", o.data, "folder with digits and text")->type_name("DIR");
  facts->add_flag("--times", o.times,
                  "instead: how long products take on the CPU, by extent, whether a multiple of eight or not");

  CLI::App* memory =
      add_verb(app, o, "memory", "Bytes of weights, masters, gradients, moments and activations, by strategy");
  memory
      ->add_option("MODEL", o.words,
                   "mlp, conv, transformer, tutorial, or a net's TOML file, with the settings of its [train] that are "
                   "options here")
      ->required()
      ->expected(1);
  add_net_options(memory, o, "of the strategies in low precision: fp16 (default) or bf16");

  add_verb(app, o, "doctor", "What this machine and this build can check, and what will be skipped");
  add_verb(app, o, "version", "Version and build");
}

std::vector<std::string> flags_of(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// CLI11's message, or for an unknown word our own with the nearest known one.
[[noreturn]] void fail_parse(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App* const verb = chosen.empty() ? &app : chosen.front();
  const std::string where = chosen.empty() ? "" : " " + verb->get_name();
  for (const std::string& word : app.remaining(true)) {
    if (word.empty() || word == "--") continue;
    if (word.front() == '-')
      throw UsageError("[" + (chosen.empty() ? "ampcheck" : verb->get_name()) + "] got unknown option '" + word + "'" +
                       did_you_mean(word, flags_of(verb)) + "; ampcheck" + where + " --help lists them");
    throw UsageError("[" + (chosen.empty() ? "ampcheck" : verb->get_name()) + "] got '" + word +
                     "', want no further argument");
  }
  throw UsageError("[" + (chosen.empty() ? "ampcheck" : verb->get_name()) + "] " + error.what() + " (see ampcheck" +
                   where + " --help)");
}

void require_verb(const CLI::App& app, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (!word.empty() && word.front() == '-') return;
  std::vector<std::string> verbs;
  std::string list;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == word) return;
    verbs.push_back(verb->get_name());
    list += (list.empty() ? "" : ", ") + verb->get_name();
  }
  if (word.empty())
    throw UsageError("got no verb, want " + list +
                     "\n(ampcheck check judges all built-in ops; ampcheck --help says more)");
  throw UsageError("got unknown verb '" + word + "'" + did_you_mean(word, verbs) + ", want " + list);
}

/// A negative infinity or NaN looks like an option; a blank in front makes it a value.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> out(argv + 1, argv + argc);
  if (!out.empty() && out.front() == "formats")
    for (std::string& word : out)
      if (word.starts_with("-") && parse_number(word)) word.insert(0, " ");
  std::reverse(out.begin(), out.end());  // CLI11 takes them from the back
  return out;
}

}  // namespace

namespace {

/// A value as it would stand on the command line; nothing for a flag that is off.
std::optional<std::string> as_argument(const TomlSection& section, const TomlEntry& entry, bool flag) {
  const TomlNode& value = entry.value;
  if (flag != (value.kind == TomlNode::Kind::boolean))
    section.fail(entry.key, std::string("got ") + kind_name(value.kind) + ", want " +
                                (flag ? "true or false" : "a string or a number"));
  switch (value.kind) {
    case TomlNode::Kind::boolean: return value.boolean ? std::optional<std::string>("true") : std::nullopt;
    case TomlNode::Kind::integer: return std::to_string(value.integer);
    case TomlNode::Kind::number: return number_text(value.number);
    case TomlNode::Kind::text: return section.text(entry.key);
    default: section.fail(entry.key, std::string("got ") + kind_name(value.kind) + ", want a string or a number");
  }
}

/// Takes the settings in [train] of a net's file: options of `train` by name, with _ for -, which `verb` has too and
/// the command line does not give.
void take_settings(const CLI::App& train, const CLI::App& verb, const TomlFile& file) {
  const auto table = std::find_if(file.root().entries.begin(), file.root().entries.end(),
                                  [](const TomlEntry& e) { return e.key == "train"; });
  if (table == file.root().entries.end()) return;
  std::map<std::string, CLI::Option*> known;
  std::vector<std::string> keys;
  for (CLI::Option* option : const_cast<CLI::App&>(train).get_options()) {
    if (option->get_lnames().empty()) continue;
    std::string key = option->get_lnames().front();
    if (key == "help" || key == "json" || key == "model" || key == "width" || key == "data") continue;
    std::replace(key.begin(), key.end(), '-', '_');
    known[key] = option, keys.push_back(key);
  }
  const TomlSection section(file, table->value, "train", keys);
  for (const TomlEntry& entry : table->value.entries) {
    CLI::Option* const option = known.at(entry.key);
    const std::optional<std::string> argument = as_argument(section, entry, option->get_items_expected_max() == 0);
    const CLI::Option* const given = verb.get_option_no_throw(option->get_name());
    if (given == nullptr || given->count() > 0 || !argument) continue;
    try {
      option->add_result(*argument);
      option->run_callback();
    } catch (const UsageError& error) {
      const std::string what = error.what();
      section.fail(entry.key, what.substr(std::min(what.size(), what.find("] ") + 2)));
    } catch (const CLI::Error& error) {
      section.fail(entry.key, error.what());
    }
  }
}

}  // namespace

Options parse_options(int argc, char** argv, std::optional<std::string>& help) {
  Options options;
  CLI::App app(kAbout, "ampcheck");
  describe(app, options);
  bool version = false;
  app.add_flag("--version", version, "version, as the verb of that name");
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    options.verb = "version";
    return options;
  }
  require_verb(app, argc, argv);
  try {
    app.parse(arguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    help = app.help();
  } catch (const CLI::ParseError& error) {
    fail_parse(app, error);
  }
  const bool memory = options.verb == "memory" && !help && options.words.front().ends_with(".toml");
  const std::string net = memory ? options.words.front() : options.verb == "train" && !help ? options.train.config : "";
  if (!net.empty()) {
    const CLI::App &train = *app.get_subcommand("train"), &verb = *app.get_subcommand(options.verb);
    for (const char* flag : {"--model", "--width"})  // the file says both
      if (const CLI::Option* const given = verb.get_option_no_throw(flag); given != nullptr && given->count() > 0)
        throw UsageError(std::string("[") + flag + "] got one beside '" + net + "', want one of the two");
    require_readable(net);
    try {
      const std::size_t given = verb.get_option("--dtype")->count();
      take_settings(train, verb, TomlFile(read_bytes(net, "net"), net));
      if (memory && given == 0 && options.dtypes == std::vector{Dtype::fp32})
        options.dtypes.clear();  // a net that is trained in fp32: what 16 bits would take is asked
    } catch (const TomlError& error) {
      throw UsageError(error.what());
    }
  }
  if (options.real == RealTensors::only && options.shapes.kind != ShapeFilter::Kind::all)
    throw UsageError(
        "[--shapes] got shapes beside '--real only', want one of the two: tensors of real runs have the shapes they "
        "have");
  for (std::string& word : options.words)
    if (word.starts_with(" ")) word.erase(0, 1);
  return options;
}

}  // namespace ampcheck::tools
