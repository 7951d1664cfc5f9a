// SPDX-License-Identifier: Apache-2.0
/// @file
/// A net of one's own, trained in mixed precision beside fp64: what `ampcheck train` does, from a C++ program.
///
///     #include <ampcheck/train.h>
///     using namespace ampcheck::train;
///
///     int main() {
///       Net net;
///       net.name = "my_net";
///       net.forward = [](Tape& t, std::int64_t batch) {  // runs on the kernels' tape and on the one in fp64
///         const std::uint64_t first = static_cast<std::uint64_t>(batch) * 10'000;
///         const Var x = t.data({64, 32}, normals(1, "x", first, 64 * 32));
///         const Var y = t.data({64, 4}, normals(1, "y", first, 64 * 4));
///         const Sequential body{Linear{"in", 48}, Unary{"gelu"}, Linear{"out", 4}};
///         t.add_loss(t.call("mse_loss", {{"x", body(t, x)}, {"target", y}}), 1);
///       };
///       Options options;
///       options.dtype = Dtype::fp16;
///       Trainer trainer(net, options);
///       for (int i = 0; i < 20; ++i) trainer.step();
///       return trainer.diagnosis().left_at ? 1 : 0;
///     }
///
/// CMake: `find_package(ampcheck REQUIRED COMPONENTS train)`, `target_link_libraries(my_program PRIVATE
/// ampcheck::train)`. C++20.
///
/// A run that low precision spoils is a result, never an exception. Exceptions are for misuse (UsageError), for what
/// the machine lacks (EnvironmentError), and for what ends a run (RunError). A trainer and its tapes are one thread's
/// at a time; different trainers may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ampcheck::checks::models {
class Tape;
}

/// Nets in mixed precision beside fp64.
namespace ampcheck::train {

// ---- Errors ---------------------------------------------------------------------------------------------------------

/// What all exceptions of this header are. what() says where, what was got and what was wanted.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The caller asks for what there is not: an unknown op or rule, shapes that do not fit, a file of another run.
struct UsageError : Error {
  using Error::Error;
};

/// A file, a library or a device that was asked for is not there, or a file cannot be written.
struct EnvironmentError : Error {
  using Error::Error;
};

/// The run cannot go on: a kernel of a library failed, or a loss scale's rule ends the run (DeepSpeed's at the floor of
/// its scale).
struct RunError : Error {
  using Error::Error;
};

// ---- Tensors and the tape -------------------------------------------------------------------------------------------

/// What the elements of a tensor are. i64 and u8 are integers.
enum class Dtype : std::uint8_t { fp64, fp32, fp16, bf16, e4m3fn, e5m2, i32, i64, u8 };

/// Extents of a tensor, outermost first; row-major everywhere. At most 8.
using Shape = std::vector<std::int64_t>;

/// A tensor on a tape: a number that means something on that tape alone.
struct Var {
  int id = -1;  ///< -1: none.
};

/// Inputs of a call by the op's names.
using Inputs = std::vector<std::pair<std::string, Var>>;
/// Attributes of a call by the op's names.
using Attributes = std::vector<std::pair<std::string, double>>;

/// What a net is written against: calls of ops on tensors, moves of elements, and a loss. The same net runs on any
/// tape: by the kernels under autocast, and in fp64 by the formulas. All functions throw UsageError for shapes, dtypes
/// or names that do not fit. A tape is given to Net::forward, and is valid during that call.
class Tape {
 public:
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// A tensor without gradient, fp32 (fp64 on that tape); row-major values, as many as the shape has elements. An op's
  /// integer input takes such a tensor of whole numbers too.
  Var data(const Shape& shape, std::vector<double> values);
  /// A trained tensor that starts at `offset` + `scale` times normal numbers, which follow from the net's name, the
  /// trainer's seed and `name`. The same name again is the same tensor. fp32, or what Optimizer::weights says.
  Var parameter(const std::string& name, const Shape& shape, double offset, double scale);
  /// A trained tensor that starts at normal numbers divided by sqrt(fan_in).
  Var weight(const std::string& name, const Shape& shape, std::int64_t fan_in);
  /// A trained tensor that starts at one value throughout.
  Var constant_start(const std::string& name, const Shape& shape, double value);

  /// Calls a built-in op (`ampcheck list` has them), or one of use_library(). Attributes that are not given have their
  /// defaults. In a region of autocast the op runs in the dtype that torch's lists say; else in the widest of its
  /// inputs' dtypes. Returns its output.
  Var call(const std::string& op, const Inputs& inputs, const Attributes& attributes = {});
  /// The same elements under another shape of as many elements.
  Var reshape(Var x, const Shape& shape);
  /// y[i] = x[map[i]], row-major: transposed, repeated or picked elements. As many indices as `shape` has elements.
  Var take(Var x, const std::vector<std::int64_t>& map, const Shape& shape);
  /// The same elements in another dtype, rounded to nearest even, as torch's x.to(dtype). Itself on the tape in fp64.
  Var to(Var x, Dtype dtype);

  Shape shape(Var x) const;  ///< Extents of a tensor.
  Dtype dtype(Var x) const;  ///< fp64 for all floating tensors of the tape in fp64.

  /// Adds `weight` times a tensor of one element to the loss of this batch.
  void add_loss(Var value, double weight = 1);

 private:
  friend struct Internals;
  explicit Tape(checks::models::Tape& tape) : tape_(tape) {}
  checks::models::Tape& tape_;
};

// ---- Regions --------------------------------------------------------------------------------------------------------

/// What a region of autocast sets.
struct AutocastOptions {
  bool enabled = true;              ///< false: ops run in the dtypes of their inputs.
  std::optional<Dtype> dtype = {};  ///< fp16 or bf16; none: the enclosing region's, outermost the device's default.
  std::optional<bool> cache_enabled = {};  ///< Whether casts of weights are kept for their next use; none: as it is.
};

/// torch.autocast: a region from construction to the end of the scope. Trainer opens one around Net::forward, in
/// Options::dtype; a net may open further ones inside.
class Autocast {
 public:
  /// Opens a region for the calls of this thread on that tape; the one in fp64 is exempt.
  explicit Autocast(const Tape& tape, const AutocastOptions& options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// torch.no_grad: in its scope calls keep nothing for a backward, and their results have no gradient.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// ---- Layers ---------------------------------------------------------------------------------------------------------
// Names of layers are those of their trained tensors ("in" has "in.weight" and "in.bias"): a layer that is called twice
// shares them.

/// x [N, K] to x weight^T + bias [N, outputs]. Weights start at normal numbers / sqrt(K), the bias at 0.
Var linear(Tape& t, const std::string& name, Var x, std::int64_t outputs);
/// An op of one input "x" without weights ("relu", "gelu", "softmax"), at any shape; rows are those of the last axes
/// together.
Var unary(Tape& t, const std::string& op, Var x);
/// Over the columns of [N, D], with weight (from 1) and bias (from 0).
Var layer_norm(Tape& t, const std::string& name, Var x);
/// Over the columns of [N, D], with weight (from 1).
Var rms_norm(Tape& t, const std::string& name, Var x);
/// x [N, C, H, W] to [N, outputs, H, W] by windows of 3 x 3, zeros around it.
Var conv3x3(Tape& t, const std::string& name, Var x, std::int64_t outputs);
/// Self-attention over [passages * time, D] by heads; each row sees those of its passage up to itself. D is a multiple
/// of `heads`.
Var causal_attention(Tape& t, const std::string& name, Var x, std::int64_t heads, std::int64_t time);
/// Rows `index` [N] of a trained table [rows, columns]: [N, columns].
Var embedding(Tape& t, const std::string& name, Var index, std::int64_t rows, std::int64_t columns);
Var add(Tape& t, Var x, Var y);  ///< x + y, of one shape.
Var mul(Tape& t, Var x, Var y);  ///< x * y, of one shape.
Var mean_all(Tape& t, Var x);    ///< The mean of all elements: one element.

/// What a layer makes of one tensor.
using Module = std::function<Var(Tape&, Var)>;

/// linear() as a Module.
struct Linear {
  std::string name;                                                             ///< Of its trained tensors.
  std::int64_t outputs = 0;                                                     ///< Columns of its result.
  Var operator()(Tape& t, Var x) const { return linear(t, name, x, outputs); }  ///< See linear().
};
/// unary() as a Module.
struct Unary {
  std::string op;                                                   ///< "gelu", ...
  Var operator()(Tape& t, Var x) const { return unary(t, op, x); }  ///< See unary().
};
/// layer_norm() as a Module.
struct LayerNorm {
  std::string name;                                                        ///< Of its trained tensors.
  Var operator()(Tape& t, Var x) const { return layer_norm(t, name, x); }  ///< See layer_norm().
};
/// rms_norm() as a Module.
struct RmsNorm {
  std::string name;                                                      ///< Of its trained tensors.
  Var operator()(Tape& t, Var x) const { return rms_norm(t, name, x); }  ///< See rms_norm().
};
/// embedding() as a Module.
struct Embedding {
  std::string name;          ///< Of its trained tensors.
  std::int64_t rows = 0;     ///< Of its table.
  std::int64_t columns = 0;  ///< Of its table.
  Var operator()(Tape& t, Var index) const { return embedding(t, name, index, rows, columns); }  ///< See embedding().
};
/// causal_attention() as a Module.
struct CausalAttention {
  std::string name;        ///< Of its trained tensors.
  std::int64_t heads = 1;  ///< Divides the columns.
  std::int64_t time = 1;   ///< Rows of a passage.
  Var operator()(Tape& t, Var x) const {
    return causal_attention(t, name, x, heads, time);
  }  ///< See causal_attention().
};
/// x + inside(x).
struct Residual {
  Module inside;                                                            ///< What x is added to.
  Var operator()(Tape& t, Var x) const { return add(t, x, inside(t, x)); }  ///< x + inside(x).
};
/// One after the other; a Module itself.
class Sequential {
 public:
  /// These, in their order.
  Sequential(std::initializer_list<Module> modules) : modules_(modules) {}
  /// Each module at what the one before it made.
  Var operator()(Tape& t, Var x) const {
    for (const Module& module : modules_) x = module(t, x);
    return x;
  }

 private:
  std::vector<Module> modules_;
};

/// From now on nets may call the ops of this shared library or launcher's TOML file (ampcheck/op.h), for the life of
/// the process. Their kernels train, their formulas run beside it. Not while a trainer runs.
/// @return The names of its ops.
/// @throws EnvironmentError if it cannot be loaded.
/// @throws UsageError if it describes no valid op, an op has no backward or formula or an uncertified one, or a name is
///   taken by another library's.
std::vector<std::string> use_library(const std::string& path);

/// Normal random numbers `first` to `first` + `count` - 1 of a stream: the same on every machine, in any order of
/// asking. Irwin-Hall: sums of twelve uniform bytes, less their mean and with finer digits below, so that each is a
/// multiple of 2^-16 with mean 0 and variance 1. Bits from Philox4x32 (Salmon, Moraes, Dror, Shaw, SC 2011), 7 rounds.
std::vector<double> normals(std::uint64_t seed, std::string_view stream, std::uint64_t first, std::size_t count);

// ---- What is trained and how ----------------------------------------------------------------------------------------

/// A net with its data.
struct Net {
  std::string name;     ///< Names it in reports and checkpoints; parameters' start follows from it.
  double rate = 0.1;    ///< Learning rate, where Optimizer::lr asks for none.
  double momentum = 0;  ///< Of sgd, where Optimizer::momentum asks for none.
  /// Forward and loss on batch 0, 1, 2, ...; the same batch is asked for several times and must be the same each time.
  std::function<void(Tape& tape, std::int64_t batch)> forward;
  /// Of a net that adds several losses: what each is, in the order of Tape::add_loss(); StepResult::losses has them
  /// then.
  std::vector<std::string> losses = {};
};

/// What the trained tensors are.
enum class Weights : std::uint8_t {
  fp32,
  master,  ///< Of Options::dtype, with fp32 masters that the optimizer moves (apex O2).
  low,     ///< Of Options::dtype alone.
};

/// Torch's optimizers, in torch's arithmetic. Negative numbers stand for the net's own, then for torch's default.
struct Optimizer {
  std::string name = "sgd";                 ///< "sgd", "adam", "adamw", "adagrad" or "rmsprop".
  double lr = -1;                           ///< Learning rate.
  double momentum = -1;                     ///< Of sgd and rmsprop.
  double weight_decay = -1;                 ///< Factor of the weights in the gradient; of adamw in the update.
  bool nesterov = false;                    ///< Of sgd.
  bool fused = false;                       ///< torch's fused arithmetic, which divides by the loss scale itself.
  Weights weights = Weights::fp32;          ///< What the trained tensors are.
  std::optional<Dtype> moments = {};        ///< Dtype of its state; none: that of the weights, or fp32 beside masters.
  std::optional<Dtype> second_moment = {};  ///< Dtype of averages of squared gradients, where it is another.
  /// Of the learning rate, by updates: "step:30:0.1", "cosine:100:0.1", "warmup:10:200"; empty: constant.
  std::string schedule;
};

/// An optimizer beside the first one, of some layers alone. It skips a step by itself, when one of its own gradients is
/// not finite; the loss scale moves with what any of them found. How it computes (fused, weights, moments) and its
/// schedule are those of the first.
struct LayerOptimizer {
  std::vector<std::string> layers;  ///< Names of layers or of parameters, with * and ?.
  std::string name = "sgd";         ///< As Optimizer::name.
  double lr = -1;                   ///< As Optimizer::lr.
  double momentum = -1;             ///< As Optimizer::momentum.
  double weight_decay = -1;         ///< As Optimizer::weight_decay.
  bool nesterov = false;            ///< Of sgd.
  /// Largest 2-norm of its gradients together, unscaled; these are then no part of Options::clip_norm. Negative:
  /// clipped with all others.
  double clip_norm = -1;
  double clip_value = -1;  ///< The same of a largest magnitude of each element.
};

/// How the loss is scaled.
struct Scaler {
  /// "torch", "apex", "apex_hysteresis", "deepspeed", "deepspeed_consecutive", "megatron", "flax", "jmp", "keras" or
  /// "none"; empty: torch in fp16, none otherwise.
  std::string rule;
  double init_scale = -1;             ///< Negative: the rule's own (torch: 65536).
  std::int32_t growth_interval = -1;  ///< Steps without overflow after which it grows; negative: the rule's own (2000).
};

/// Where the kernels of the run go.
enum class Device : std::uint8_t { cpu, cuda };

/// A run. The defaults are those of `ampcheck train`.
struct Options {
  Dtype dtype = Dtype::fp16;                 ///< Of autocast: fp16 or bf16; fp32: no autocast.
  Scaler scaler;                             ///< Of the loss.
  Optimizer optimizer;                       ///< What moves the weights.
  std::vector<LayerOptimizer> further = {};  ///< Further optimizers; `optimizer` moves what these leave.
  /// With several losses: a backward for each, one after the other; or one of their sum.
  bool backward_each = false;
  std::uint64_t seed = 1;      ///< Of the parameters' start.
  int accumulate = 1;          ///< Micro-batches of a step; the loss of each counts 1/accumulate.
  double clip_norm = 0;        ///< Largest 2-norm of all gradients together, unscaled; 0: not clipped.
  double clip_value = 0;       ///< Largest magnitude of a gradient's element, unscaled; 0: not clipped.
  double loss_weight = 1;      ///< The gradient is that of this times the loss.
  double grad_penalty = 0;     ///< This times the 2-norm of the loss's gradient is added to the loss; 0: none.
  bool local_shadow = true;    ///< Each op's formula in fp64 at the op's own inputs: the error that is made there.
  bool carried_shadow = true;  ///< The whole run in fp64 beside it: the error that is inherited.
  /// Runs in fp64 of the carried shadow, itself among them: their spread is what losses of other seeds differ by. 0 or
  /// 1: it alone, and no run is said to have left it.
  int spread_seeds = 5;
  int every = 1;       ///< Of how many steps one is looked at by the shadows, from the first on.
  bool norms = false;  ///< StepResult::norms and scaled_norms are wanted.
  /// File to which each step's tensors are appended (`ampcheck trace FILE` prints it; its statistics lie in FILE.bin);
  /// empty: none. A file that is there must be this run's, and the run resumed.
  std::string record;
  int planned_steps = 0;        ///< Number of steps that are meant, which the record names.
  Device device = Device::cpu;  ///< Where the kernels run; the fp64 run stays on the host.
};

// ---- What a step and a run made -------------------------------------------------------------------------------------

/// One step. Losses and norms are without the loss scale.
struct StepResult {
  int step = 0;                          ///< From 0.
  double loss = 0;                       ///< Mean over the step's micro-batches, before the update.
  std::optional<double> fp64_loss = {};  ///< With the carried shadow: the fp64 run's.
  std::optional<double> apart = {};      ///< Mean of loss - fp64_loss over the last 10 steps.
  std::optional<double> spread = {};     ///< Largest less smallest loss of the fp64 runs of all seeds, over 10 steps.
  /// What rounding of these very weights may move the loss by, to first order: |cotangent| |value| unit roundoff,
  /// summed over what the loss is computed from; mean of 10 steps.
  std::optional<double> rounding = {};
  std::optional<double> allowed = {};     ///< How far apart the losses may be: the larger of spread and rounding.
  bool left = false;                      ///< Further apart than allowed, or no finite loss.
  std::optional<double> grad_norm = {};   ///< With a gradient penalty: 2-norm of the loss's gradient.
  double scale = 1;                       ///< Loss scale of this step's backward.
  double scale_after = 1;                 ///< The next step's.
  bool found_inf = false;                 ///< A gradient was not finite.
  bool stepped = true;                    ///< Whether the optimizer moved the weights; else the step was skipped.
  int skips = 0;                          ///< Steps skipped so far.
  double lr = 0;                          ///< Learning rate of this step's update.
  double stagnant_share = 0;              ///< Of the elements that the optimizer meant to move: those that stayed.
  std::vector<double> scaled_norms = {};  ///< If asked for: 2-norm of each parameter's gradient, with the loss scale.
  std::vector<double> norms = {};         ///< The same without it.
  std::vector<double> losses = {};        ///< Of a net that names several: each without its weight.
  /// 2-norm of the gradients that are clipped together, before it; none: not clipped to a norm.
  std::optional<double> clipped_norm = {};
  double clip_factor = 1;  ///< By which clipping to a norm multiplied them.
  /// What one of several optimizers did.
  struct OfOptimizer {
    bool found_inf = false;                   ///< A gradient of its own was not finite.
    bool stepped = true;                      ///< It moved its weights.
    int skips = 0;                            ///< Steps that it skipped so far.
    double lr = 0;                            ///< Learning rate of this step's update.
    std::optional<double> clipped_norm = {};  ///< Of one that clips its gradients alone.
    double clip_factor = 1;                   ///< See clipped_norm.
  };
  std::vector<OfOptimizer> optimizers = {};  ///< Of several, the first one first.
};

/// One tensor of a run, and what it met over all steps that were looked at.
struct Place {
  std::string text;             ///< "linear_1 (layer0) backward dweight"
  std::string op;               ///< "linear_1": op and count.
  std::string layer;            ///< Name of its trained tensors; empty without one.
  std::string phase;            ///< "forward", "backward", "unscale", "clip", "optimizer".
  std::string tensor;           ///< "y", "dweight"; of a cast what is cast.
  bool cast = false;            ///< The tensor is another one in another dtype.
  Dtype dtype = Dtype::fp32;    ///< Of the tensor.
  std::int64_t elements = 0;    ///< That were looked at.
  std::int64_t nonzero = 0;     ///< Exact values that are not zero nor noise.
  std::int64_t flushed = 0;     ///< Of these: became zero.
  std::int64_t overflowed = 0;  ///< Elements that are not finite where the exact value is.
  double local_error = 0;       ///< Relative error in the 2-norm, against the formula at the op's own inputs.
  double carried_error = 0;     ///< The same against the fp64 run.
};

/// Which loss scales the gradients in 16 bits bear, by the exponents of their exact values.
struct ScaleAdvice {
  bool known = false;         ///< Some gradient was looked at; else the rest says nothing.
  int low = 0;                ///< 2^low to 2^high lose nothing; low > high: no loss scale keeps everything.
  int high = -1;              ///< See low.
  int best = 0;               ///< 2^best loses least of those without overflow.
  double best_share = 0;      ///< Of the non-zero elements: flushed to zero at 2^best.
  double unscaled_share = 0;  ///< The same at scale 1.
  std::string flushes;        ///< The tensor that loses the largest share below 2^low.
  std::string overflows;      ///< The tensor that overflows at the smallest scale.
};

/// What low precision did to a run.
struct Diagnosis {
  std::optional<int> left_at = {};  ///< The first step with StepResult::left.
  std::optional<Place> worst = {};  ///< By what overflowed, then the share flushed to zero, then local error.
  std::vector<Place> vanished;      ///< Gradients with elements that became zero, largest share first.
  std::vector<Place> least_exact;   ///< Tensors by local error, largest first.
  std::string producer;             ///< First op that made finite values non-finite; empty: none.
  std::string killer;               ///< First op whose result is finite although what it read was not.
  double vanished_share = 0;        ///< Of all non-zero gradient elements in 16 bits: became zero.
  std::vector<int> skipped;         ///< Steps that were skipped.
  ScaleAdvice scale;                ///< Which loss scales would have been right.
};

/// The loop of the AMP tutorials: forward under autocast, scaled backward, unscale, clip, step, update; beside it the
/// same training in fp64.
class Trainer {
 public:
  /// @throws UsageError for an unknown rule or optimizer, settings that do not go together, or a net without forward.
  /// @throws EnvironmentError for a device that is not there.
  Trainer(Net net, const Options& options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;             ///< The run goes over; nothing may be asked of what it came from.
  Trainer& operator=(Trainer&&) noexcept;  ///< The same.

  /// Starts from these values, row-major, in place of Tape::parameter()'s; before the first step.
  void set_parameter(const std::string& name, const Shape& shape, const std::vector<double>& values);

  /// One step on the next Options::accumulate batches: forward and backward of each under autocast with the loss
  /// scaled, the same in fp64, then unscale, clip, the optimizer's update unless a gradient is not finite, and the
  /// scaler's. Appends to the record.
  /// @throws UsageError for what Net::forward does wrong; an exception of its own passes through.
  /// @throws RunError where the run cannot go on.
  /// @throws EnvironmentError if the record cannot be written.
  StepResult step();

  int steps() const;                               ///< Steps that are done.
  const std::vector<StepResult>& results() const;  ///< Of the steps that this trainer has done itself.
  Diagnosis diagnosis() const;                     ///< Of the same steps; wants one at least.

  std::vector<std::string> parameters() const;           ///< Names of the trained tensors, in the order of their use.
  Shape parameter_shape(const std::string& name) const;  ///< Extents of a trained tensor.
  std::vector<double> parameter(const std::string& name) const;  ///< Its values, row-major.
  /// Its gradient of the last step as the optimizer got it, row-major; empty if it has none.
  std::vector<double> gradient(const std::string& name) const;

  /// Writes a checkpoint, from which a trainer of the same net and options goes on bit for bit.
  /// @throws EnvironmentError if it cannot be written.
  void save(const std::string& path) const;
  /// Takes a fresh trainer to where the other one was.
  /// @throws UsageError if the file is no checkpoint, or one of another net or other options.
  /// @throws EnvironmentError if it is not there.
  void resume(const std::string& path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ampcheck::train
