// SPDX-License-Identifier: Apache-2.0
// The loop of the AMP tutorials: forward under autocast, scaled backward, unscale, clip, step, update; beside it the
// same training in fp64.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checks/train/clip_and_decay.h"
#include "checks/train/fp64_run.h"
#include "checks/train/fp8.h"
#include "checks/train/gradient_errors.h"
#include "checks/train/graph.h"
#include "checks/train/ranks.h"
#include "checks/train/same_weights.h"
#include "checks/train/sharded.h"
#include "checks/train/step_check.h"
#include "checks/train/watch.h"
#include "src/amp/scale_rule.h"

namespace ampcheck::checks::train {

struct Shadows {
  bool local = false;    ///< each op's formula on the op's own inputs
  bool carried = false;  ///< the whole run in fp64, and more from other seeds for the spread of its loss
};

/// Between the stages of a step: where a fault may be planted in what the next one reads.
enum class Stage : std::uint8_t {
  accumulated,  ///< a micro-batch was added; the parameters are a rank's
  summed,       ///< over micro-batches and ranks
  unscaled,
  clipped,
};

struct TrainOptions {
  NetOptions net;
  std::optional<Net> own_net = {};                 ///< instead of `net`
  Dtype dtype = Dtype::fp16;                       ///< of autocast; fp32: no autocast
  std::optional<Fp8Recipe> fp8 = {};               ///< linear layers read fp8; `dtype` is what lies between
  AutocastDevice autocast = AutocastDevice::cuda;  ///< GraphOptions::autocast
  GradScalerOptions scaler = {};
  std::optional<ScaleRule> scale_rule = {};  ///< moves the scale instead of torch's rule
  StepRule rule = {};
  ReduceOptions reduce =
      {};  ///< of 16-bit weights and kept gradients too: how the gradients of rule.ranks ranks become one
  ShardingOptions sharding =
      {};  ///< parameters, gradients and optimizer state sharded over these ranks; with torch's scaler rule or none
  std::uint64_t seed = 1;
  Shadows shadows = {};
  int spread_seeds =
      5;  ///< fp64 runs of the carried shadow, itself among them; 0 or 1: it alone, and no spread is known
  Sampling sampling = {};   ///< of the shadows and of what is recorded
  int gradient_errors = 0;  ///< with both shadows: of every so many-th step that is looked at, which op's error is in
                            ///< each parameter's gradient; 0: none
  bool keep_low_precision_grads = false;  ///< GraphOptions::keep_low_precision_grads
  bool keep_activations = false;          ///< GraphOptions::keep_activations
  bool norms = false;    ///< StepResult has the norms of the gradients: of every element twice, for who reads them
  bool watched = false;  ///< a watch even without a shadow, for listeners
  JudgeMode judge = JudgeMode::none;
  /// StepCheck of every step (of large nets of steps 1, 2, 4, 8, ...), and with the carried shadow SameWeights.
  bool check_steps = false;
  std::function<void(const LiveCall&)> hear_calls = nullptr;  ///< of judged runs: each call
  // Planted faults: other kernels by the op's name, changed gradients, another optimizer than the rule's.
  std::map<std::string, const OpDef*> kernels_of = {};
  std::function<void(Stage, ParameterSet&, double scale)> plant = nullptr;
  std::optional<OptimizerChoice> planted_optimizer = {};
  std::optional<Fp8Fault> planted_fp8 = {};
  std::function<void(const Event&)> fault = nullptr;  ///< GraphOptions::fault
  /// The device that the run is on (kernels::make_cuda_stream), of one rank; null: the host. Of a step the host still
  /// does, on the device's memory, what GraphOptions and kernels/multi_tensor.h leave to it: norms, clipping, Adagrad
  /// and RMSprop, and what is watched.
  std::function<std::unique_ptr<kernels::Stream>()> stream = nullptr;
};

/// What the parameters of such a run are.
inline Dtype weights_dtype(const TrainOptions& options) {
  return options.rule.optimizer.weights == Weights::fp32 ? Dtype::fp32 : options.dtype;
}

/// "fp8", or that of autocast.
inline const char* dtype_name(const TrainOptions& options) { return options.fp8 ? "fp8" : name(options.dtype); }

/// "none", "torch", or the rule's.
inline const char* scaler_name(const TrainOptions& options) {
  return !options.scaler.enabled ? "none" : options.scale_rule ? options.scale_rule->name : "torch";
}

struct StepResult {
  int step = 0;
  double loss = 0;
  std::optional<double> fp64_loss,
      spread;  ///< largest less smallest loss of the fp64 runs of all seeds, over the last kSpreadSteps steps
  std::optional<double> apart;     ///< loss less fp64 loss, mean of the last kSpreadSteps steps
  std::optional<double> rounding;  ///< loss_rounding() of the fp64 run, mean of the last kSpreadSteps steps
  std::optional<double> grad_norm,
      fp64_grad_norm;  ///< with a gradient penalty, which `loss` is without: 2-norm of the loss's gradient
  std::optional<double> loss_drift;  ///< how far weights that had come apart from the fp64 run's move this step's loss,
                                     ///< to first order; of steps that are looked at, without a penalty
  double scale = 1;                  ///< of this step's backward
  bool found_inf = false, stepped = true;  ///< stepped: every optimizer
  /// Of several, each.
  std::vector<OptimizerStep> optimizers = {};
  std::vector<double> losses = {};  ///< of a net that names several, each without its weight
  double scale_after = 1;
  std::int32_t tracker = 0;
  int skips = 0;                ///< so far
  bool ranks_disagree = false;  ///< sharded: some ranks stepped or have another scale
  double lr = 0;                ///< of this step's update
  std::vector<double> scaled_norms,
      norms;  ///< if asked for: of each parameter's gradient, before and after unscale_ (2-norm, in fp64)
  std::vector<GradientError> gradient_errors;  ///< if asked for; before clipping; without a penalty
  std::optional<Clipping> clipping;            ///< of the gradients that no optimizer clips alone
  std::optional<DecayCount> decay;             ///< of weights in 16 bits alone that decay; of steps that are looked at
  double stagnant_share = 0;                   ///< of the elements that the optimizer meant to move
  UpdateCounts updates;                        ///< what became of them
  /// Further apart than the spread and than rounding of the loss alone can be, or no finite loss. One step alone says
  /// little: a batch that is hard for one run may come later for the other.
  bool left() const;
  /// How far apart it may be: the larger of the spread and the rounding; unknown without a spread.
  std::optional<double> allowed() const;
};

/// The losses at a step, and what they are compared with: StepResult's.
struct Compared {
  int step = 0;
  double loss = 0, apart = 0;
  std::optional<double> spread = {}, rounding = {};
};

/// What is said of a whole run at its end, however often it was resumed.
struct Verdict {
  std::optional<Compared> left;  ///< the first step that was StepResult::left()
  std::optional<Compared> most;  ///< the one that was furthest apart
};

/// Whether the steps so far did anything.
struct Progress {
  struct OfParameter {
    std::string name;
    bool gradient = false, fp64_gradient = false;  ///< was ever more than zero, in fp64 than noise
    std::int64_t intended = 0, moved = 0;          ///< elements over all updates
  };
  std::vector<OfParameter> parameters;
  int steps = 0, skipped = 0, updates = 0;
  std::vector<int> skipped_by = {};          ///< of several optimizers, each
  std::vector<std::string> optimizers = {};  ///< their names
  std::vector<double> losses = {}, fp64_losses = {};
  bool norms = false;  ///< gradients were looked at

  std::vector<RunFinding> findings() const;
};

class Trainer {
 public:
  static constexpr std::size_t kSpreadSteps = 10;  ///< curves cross: at one step alone they may meet
  explicit Trainer(const TrainOptions& options);
  ~Trainer();

  /// Starts from these values instead of the seed's; before the first step.
  void set_parameter(const std::string& name, const Shape& shape, const std::vector<double>& values) {
    const MemoryScope scope(stream_.get());
    parameters_.set(name, shape, values);
  }
  StepResult step();
  int steps() const { return step_; }
  ParameterSet& parameters() { return parameters_; }
  /// Of the first rank, where every rank has its own.
  GradScaler& scaler() { return sharded_ ? sharded_->scaler(0) : *scaler_; }
  OptimizerSet& optimizers() { return sharded_ ? sharded_->optimizers(0) : *optimizers_; }
  const OptimizerSet& optimizers() const { return sharded_ ? sharded_->optimizers(0) : *optimizers_; }
  /// Null unless the run is sharded; from prepare() on.
  ShardedRanks* sharded() { return sharded_.get(); }
  Watch* watch() { return watch_.get(); }
  const Watch* watch() const { return watch_.get(); }
  /// Null where steps are not checked.
  const StepCheck* step_check() const { return step_check_.get(); }
  /// What moments in 16 bits lost, of sharded runs on all ranks; empty where steps are not checked.
  std::vector<MomentLoss> moment_losses() const;
  /// What is wrong with the run so far: ops, steps, and whether anything was trained.
  std::vector<RunFinding> findings() const;
  /// Null where no op is judged.
  const LiveJudge* judge() const { return judge_.get(); }
  /// Null on the host.
  kernels::Stream* stream() { return stream_.get(); }
  // For checkpoints.
  /// Null unless the run is in fp8.
  const Fp8State* fp8() const { return fp8_.get(); }
  void restore_fp8(const std::string& tensor, const Fp8State::Of& of);
  /// Makes parameters, optimizer and fp64 runs, which come to be with the first step otherwise.
  void prepare();
  int skips() const { return skips_; }
  /// Of each optimizer.
  const std::vector<int>& skips_by_optimizer() const { return skips_of_; }
  const std::vector<double>& spreads() const { return spreads_; }
  const std::vector<double>& differences() const { return differences_; }
  const std::vector<double>& roundings() const { return roundings_; }
  std::vector<std::unique_ptr<Fp64Run>>& reference() { return reference_; }
  const Verdict& verdict() const { return verdict_; }
  void resume_at(int step, int skips, std::vector<int> skips_of, std::vector<double> spreads,
                 std::vector<double> differences, std::vector<double> roundings, Verdict verdict);

  /// "none": no region of autocast is open at any call of the net (known from prepare() on); or "cuda", "cpu": whose
  /// lists it follows.
  const char* autocast_list() const {
    return options_.dtype == Dtype::fp32 && !own_regions_ ? "none" : ampcheck::name(options_.autocast);
  }

  const Net& net() const { return net_; }
  const TrainOptions& options() const { return options_; }

 private:
  void run_fp64(StepResult& result);
  /// fp16 ones with a scaler, which no unscale_ takes: they stay scaled until the optimizer divides, or are widened
  /// where something clips.
  bool low_gradients() const;
  bool scaled_until_update() const;
  /// Whether this step is compared with the fp64 run to first order: with a penalty it is not.
  bool compares() const;
  /// Adds the penalty to the loss, and returns the norm of the gradient; `seed`: what the gradients are multiplied by
  /// on their way.
  float add_penalty(Graph& graph, float seed);
  double run_micro_batches(StepResult& result);
  void start_counting();
  void compare_losses(StepResult& result);
  bool wants_norms() const;
  void unscale();
  void unscale_gradients(StepResult& result);
  void update(StepResult& result);
  void end_fp8();
  void begin_checks();
  void repeat_with_other_rounding();
  void plant(Stage stage, ParameterSet& parameters);
  void before_update(double scale);
  void after_update(const StepResult& result);
  std::vector<StepCheck::Part> updated_parts() const;
  /// Of the next update of optimizer k, by the rule.
  double lr_by_rule(std::size_t k) const;
  void backward(Graph& graph, int rank, int batch, float seed, double scale, bool told);
  /// Whether optimizer k, on every rank, moved something in this step.
  bool stepped(std::size_t k) const { return sharded_ ? sharded_->stepped(k) : optimizers_->stepped(k); }
  void count_optimizers(StepResult& result);
  void count(StepResult& result);
  void count_progress(const StepResult& result);
  void clip_gradients(StepResult& result);
  void step_optimizer(StepResult& result);
  struct Rank;
  void run_rank(Rank& rank, int number, float scale, bool told);
  void reduce_gradients(float scale);
  /// Tells the watch of every gradient or value. By parameter: whether its gradient was finite before (looked at if not
  /// given).
  void tell(Phase phase, const std::vector<bool>& finite_before = {});

  TrainOptions options_;
  Net net_;
  std::unique_ptr<kernels::Stream> stream_;
  ParameterSet parameters_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<Fp8State> fp8_;
  std::unique_ptr<GradScaler> scaler_;
  std::unique_ptr<OptimizerSet> optimizers_;
  std::unique_ptr<ShardedRanks> sharded_;  ///< has optimizers, schedules and scalers of its own
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<LiveJudge> judge_;
  std::unique_ptr<StepCheck> step_check_;
  Progress progress_;
  std::unique_ptr<SameWeights> same_weights_;
  std::function<void(const Event&)> nudge_ = nullptr;  ///< while a step is repeated with other rounding
  std::vector<std::unique_ptr<Fp64Run>> reference_;    ///< the first is the carried shadow
  std::vector<std::vector<double>>
      apart_;  ///< of each parameter, before this step: less the fp64 run's; where compares()
  std::vector<double> spreads_, differences_, roundings_;  ///< of the last kSpreadSteps steps
  int step_ = 0, skips_ = 0;
  std::vector<int> skips_of_;  ///< by optimizer
  double scale_before_ = 0;    ///< the loss scale of the step before
  Verdict verdict_;
  bool own_regions_ = false;  ///< the net opens regions of autocast itself
};

}  // namespace ampcheck::checks::train
