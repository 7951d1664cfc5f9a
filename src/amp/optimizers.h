// SPDX-License-Identifier: Apache-2.0
// SGD, Adam, AdamW, Adagrad and RMSprop, by torch's rules, names and defaults (torch 2.15).
//
// Every update walks the tensors once, by blocks that stay in the first cache: gradients of any dtype are widened for
// the block at hand alone. Two arithmetics:
// - reference: torch's single-tensor implementation, operation by operation, each result rounded to the parameter's
//   dtype. Its bits are torch's, except behind a square root of fp32 and fp64: torch takes MKL's, which may be one ulp
//   off, ours is rounded correctly. (torch's foreach has these bits in fp32 and fp64, and others in 16 bits.)
// - fused: torch's fused kernels, to the bit. All of an element's update in fp32 (fp64 for fp64 parameters), one
//   rounding per store; it divides by grad_scale, skips by found_inf and writes the unscaled gradient back if
//   grad_scale is given.
// Both are those of torch's CPU kernels for AVX2 on one thread: what lies in whole vectors is rounded in another order
// than what is left behind them (multi_tensor.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/amp/multi_tensor.h"
#include "src/amp/optimizer.h"

namespace ampcheck {

/// Where an update computes and what it keeps.
struct UpdateOptions {
  bool fused = false;
  /// Fused only: the state holds an fp32 "master_param", which moves; the parameter is its copy in low precision.
  bool master_weights = false;
  /// Dtype of the moments. None: the parameter's, or fp32 with master weights. Reference arithmetic takes no other.
  std::optional<Dtype> moments;
  std::optional<Dtype> second_moment;  ///< of Adam's exp_avg_sq and its like, where it is another
  SkipRule skip = SkipRule::nonzero;   ///< fused only
  /// To the bit as torch: what lies behind the last whole vector of its kernels is rounded in another order
  /// (multi_tensor.h). False: every element as in a whole vector, so that a part of a tensor has the bits of the whole.
  bool by_place = true;
  bool count = false;  ///< fill UpdateCounts (reads the old weight again: some per cent)
};

/// What became of the update of each element, summed over all parameters and steps since the last reset. Exact, in any
/// order.
struct UpdateCounts {
  std::int64_t intended = 0;  ///< elements whose update was not zero
  std::int64_t stagnant = 0;  ///< of these, elements whose weight (master weight) did not change
  std::int64_t copy_stagnant =
      0;  ///< of the intended, elements whose low-precision copy did not change (master weights)
  std::int64_t with_grad = 0,
               with_grad_stagnant =
                   0;  ///< elements whose gradient was not zero; of these, elements whose weight did not change
  std::int64_t second_moment_zero = 0;  ///< v == 0 although the gradient is not zero: g*g vanished
  std::int64_t epsilon_zero = 0;  ///< updates of parameters whose dtype rounds eps to zero (0/0 on a zero gradient)
  std::int64_t non_finite =
      0;  ///< elements whose gradient was infinite or NaN (those that a device updated at once are not counted)

  void add(const UpdateCounts& other);
};

struct SgdOptions : UpdateOptions {
  double lr = 1e-3, momentum = 0.0, dampening = 0.0, weight_decay = 0.0;
  bool nesterov = false, maximize = false;
};
struct AdamOptions : UpdateOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  bool amsgrad = false, maximize = false;
};
struct AdamWOptions : AdamOptions {
  AdamWOptions() { weight_decay = 1e-2; }
};
struct AdagradOptions : UpdateOptions {
  double lr = 1e-2, lr_decay = 0.0, weight_decay = 0.0, initial_accumulator_value = 0.0, eps = 1e-10;
  bool maximize = false;
};
struct RmspropOptions : UpdateOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0.0, momentum = 0.0;
  bool centered = false, maximize = false;
};

/// One block of one parameter while it is updated; pointers to n numbers each.
template <class T>
struct UpdateBlock {
  std::int64_t n = 0;
  std::int64_t whole = 0;  ///< of these, in whole vectors (multi_tensor.h): the first ones
  T* parameter = nullptr;
  T* grad = nullptr;  ///< becomes the direction of the update: not zero where something should move
  T* moment[3] = {};  ///< in the order of moment_names()
  const FloatFormat* rounds_to = nullptr;  ///< reference arithmetic below fp32: every result is rounded to this
};

/// What the five have in common: the walk over parameters and blocks, state, skipping, counting.
class BlockOptimizer : public Optimizer {
 public:
  bool supports_amp_scaling() const override { return common_.fused; }
  const UpdateCounts& counts() const { return counts_; }
  /// Of parameter i alone.
  const UpdateCounts& counts(std::size_t i) const { return by_parameter_[i]; }
  void reset_counts() {
    counts_ = {};
    by_parameter_.assign(parameters_.size(), {});
  }
  /// All dense tensors at once, by a device, where the rule is one that it has; the others by the host, here.
  void set_multi_tensor(MultiTensorUpdate update) { multi_tensor_ = std::move(update); }

 protected:
  BlockOptimizer(std::vector<Parameter*> parameters, double lr, const UpdateOptions& common);
  bool update() override;

  virtual std::vector<std::string> moment_names() const = 0;
  /// False: no step counter in the state (SGD).
  virtual bool counts_steps() const { return true; }
  virtual double initial_moment() const { return 0.0; }
  /// Scalars of this step, worked out once per parameter in fp64 as torch does in Python.
  virtual void begin_parameter(double step, bool first) = 0;
  virtual void update_block(const UpdateBlock<float>& block) const = 0;
  virtual void update_block(const UpdateBlock<double>& block) const = 0;
  virtual double epsilon() const { return 1.0; }
  /// Index of the second moment among the moments; none: -1.
  virtual int second_moment() const { return -1; }
  virtual bool takes_sparse() const { return false; }
  /// For a device; none: the host's alone. Not what all optimizers have in common.
  virtual std::optional<UpdateRule> rule() const { return std::nullopt; }
  /// The scalars of begin_parameter().
  virtual void fill(TensorUpdate&) const {}

  UpdateOptions common_;

 private:
  struct Walk;
  bool skipped() const;
  bool prepare_state(std::size_t i);
  Walk tensors_of(std::size_t i);
  bool updates_at_once() const;
  void refuse_unfit_gradients() const;
  TensorUpdate update_of(std::size_t i, bool first);
  void run_at_once(std::span<const TensorUpdate> updates, std::span<const std::size_t> numbers);
  void update_parameter(std::size_t i, bool first);
  template <class T>
  struct Buffers;
  template <class T>
  UpdateBlock<T> load(const Walk& tensors, std::int64_t at, std::int64_t n, Buffers<T>& buffers) const;
  template <class T>
  void store(const Walk& tensors, std::int64_t at, const UpdateBlock<T>& block, Buffers<T>& buffers, bool reload) const;
  template <class T>
  void count_update(const Walk& tensors, std::int64_t at, const UpdateBlock<T>& block, const Buffers<T>& buffers,
                    UpdateCounts& counts) const;
  template <class T>
  void walk(const Walk& tensors, std::int64_t begin, std::int64_t end, UpdateCounts& counts) const;
  void update_sparse(std::size_t i);

  UpdateCounts counts_;
  std::vector<UpdateCounts> by_parameter_;
  MultiTensorUpdate multi_tensor_;
};

class Sgd : public BlockOptimizer {
 public:
  Sgd(std::vector<Parameter*> parameters, const SgdOptions& options = {});

 protected:
  std::vector<std::string> moment_names() const override;
  bool counts_steps() const override { return false; }
  bool takes_sparse() const override;
  std::optional<UpdateRule> rule() const override;
  void fill(TensorUpdate& update) const override { update.first = first_; }
  void begin_parameter(double step, bool first) override;
  void update_block(const UpdateBlock<float>& block) const override { apply(block); }
  void update_block(const UpdateBlock<double>& block) const override { apply(block); }

 private:
  template <class T>
  void apply(const UpdateBlock<T>& block) const;
  SgdOptions options_;
  bool first_ = false;
};

class Adam : public BlockOptimizer {
 public:
  Adam(std::vector<Parameter*> parameters, const AdamOptions& options = {})
      : Adam(std::move(parameters), options, false) {}

 protected:
  Adam(std::vector<Parameter*> parameters, const AdamOptions& options, bool decoupled);
  std::vector<std::string> moment_names() const override;
  void begin_parameter(double step, bool first) override;
  void update_block(const UpdateBlock<float>& block) const override { apply(block); }
  void update_block(const UpdateBlock<double>& block) const override { apply(block); }
  double epsilon() const override { return options_.eps; }
  int second_moment() const override { return 1; }
  std::optional<UpdateRule> rule() const override;
  void fill(TensorUpdate& update) const override {
    update.step_size = step_size_;
    update.correction = bias_correction2_sqrt_;
  }

 private:
  template <class T>
  void apply(const UpdateBlock<T>& block) const;
  template <class T>
  void apply_fused(const UpdateBlock<T>& block) const;
  AdamOptions options_;
  bool decoupled_;  ///< AdamW: the decay does not pass through the moments
  double step_size_ = 0.0, bias_correction2_sqrt_ = 1.0;
};

class AdamW : public Adam {
 public:
  AdamW(std::vector<Parameter*> parameters, const AdamWOptions& options = {})
      : Adam(std::move(parameters), options, true) {}
};

class Adagrad : public BlockOptimizer {
 public:
  Adagrad(std::vector<Parameter*> parameters, const AdagradOptions& options = {});

 protected:
  std::vector<std::string> moment_names() const override { return {"sum"}; }
  double initial_moment() const override { return options_.initial_accumulator_value; }
  void begin_parameter(double step, bool first) override;
  void update_block(const UpdateBlock<float>& block) const override { apply(block); }
  void update_block(const UpdateBlock<double>& block) const override { apply(block); }
  double epsilon() const override { return options_.eps; }
  int second_moment() const override { return 0; }

 private:
  template <class T>
  void apply(const UpdateBlock<T>& block) const;
  AdagradOptions options_;
  double decayed_lr_ = 0.0;
};

class Rmsprop : public BlockOptimizer {
 public:
  Rmsprop(std::vector<Parameter*> parameters, const RmspropOptions& options = {});

 protected:
  std::vector<std::string> moment_names() const override;
  void begin_parameter(double step, bool first) override;
  void update_block(const UpdateBlock<float>& block) const override { apply(block); }
  void update_block(const UpdateBlock<double>& block) const override { apply(block); }
  double epsilon() const override { return options_.eps; }
  int second_moment() const override { return 0; }

 private:
  template <class T>
  void apply(const UpdateBlock<T>& block) const;
  RmspropOptions options_;
};

}  // namespace ampcheck
