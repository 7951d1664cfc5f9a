// SPDX-License-Identifier: Apache-2.0
// Define-by-run training with the kernels: each call runs at once, in the region of autocast that its thread has open
// (src/amp/autocast.h), and backward() walks the calls in reverse with the kernels' own backwards. Casts are nodes of
// their own, whose backward is the cast in the other direction, so that a gradient arrives in the dtype of its
// parameter. Backward ops run in the dtypes of the forward.
//
// A gradient that several ops contribute to is the sum in the tensor's dtype, rounded at each addition, last op first
// (as torch accumulates).
//
// Outside of autocast an op runs in the widest of its inputs' dtypes. In a region torch's lists decide, and its cache
// keeps the casts of weights: until the outermost region ends, one cast serves all uses, in other graphs too, and sees
// no update of its weight (src/amp/autocast.h). What is called under NoGrad, or from what needs no gradient, keeps
// nothing for a backward; what is made under InferenceMode is refused by calls that would.
//
// gradients() puts the backward itself on record, so that what is computed from gradients has gradients too: a gradient
// penalty.
//
// On a stream the ops' kernels, casts, sums of gradients and moves of elements run there, and the graph's tensors lie
// in its memory. The host waits for the stream, and works on that memory itself, for: data and integer tensors put in,
// the maps of take(), the seeds of the backward, the loss, norm() and its backward, double backwards, and all that an
// observer or a fault looks at.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checks/models/bound_call.h"
#include "checks/models/evaluation.h"
#include "checks/train/event.h"
#include "checks/train/fp8.h"
#include "checks/train/live.h"
#include "checks/train/parameters.h"
#include "kernels/stream.h"

namespace ampcheck::checks::train {

struct GraphOptions {
  Observer* observer = nullptr;
  std::function<void(const Event&)> fault =
      nullptr;                    ///< changes a tensor that was just written, before anything reads it: a planted fault
  CallObserver* calls = nullptr;  ///< hears of each call with all its tensors
  /// Ops by name that run another kernel: a planted fault.
  const std::map<std::string, const OpDef*>* kernels_of = nullptr;
  int step = 0, rank = 0;  ///< as events name them
  bool keep_low_precision_grads =
      false;  ///< a gradient that reaches an fp32 parameter through its cast to 16 bits stays in these
  AutocastDevice autocast =
      AutocastDevice::cuda;  ///< whose regions and lists its calls follow, wherever they run: the host stands for a GPU
  bool keep_activations = false;  ///< recompute() computes once and keeps all
  Fp8Rank* fp8 = nullptr;         ///< linear layers in an enabled region read fp8; on the host, and without gradients()
  kernels::Stream* stream = nullptr;  ///< where kernels run; null: on the host, at once
  TensorMemory* memory = nullptr;     ///< where tensors lie; null: in the stream's, or the host's
};

class Graph final : public models::Tape {
 public:
  using Var = models::Var;
  /// Both outlive the graph, and so does the stream. After any call with a stream the host waits before it reads a
  /// tensor.
  Graph(ParameterSet& parameters, models::Recordings& recordings, GraphOptions options);
  ~Graph() override;

  Var data(const Shape& shape, std::vector<double> values) override;
  Var parameter(const std::string& name, const Shape& shape, double offset, double scale) override;
  Var call(const std::string& op, const std::vector<std::pair<std::string, Var>>& inputs,
           const std::vector<std::pair<std::string, double>>& attributes = {}) override;
  Var reshape(Var x, const Shape& shape) override;
  Var take(Var x, const std::vector<std::int64_t>& map, const Shape& shape) override;
  Var to(Var x, Dtype dtype) override;
  Dtype dtype(Var x) const override { return slots_[static_cast<std::size_t>(x.id)].view.dtype; }
  AutocastDevice device() const override { return options_.autocast; }
  /// Whether a call so far ran in an enabled region.
  bool used_autocast() const { return used_autocast_; }
  const Shape& shape(Var x) const override { return slots_[static_cast<std::size_t>(x.id)].view.shape; }
  void add_loss(Var value, double weight) override;
  /// The second time is at once, as weights do not change before the backward: its calls have the names of the first.
  Var recompute(const std::function<Var(bool again)>& block) override;
  Var infer(const std::function<Var()>& block) override;

  /// The weighted losses so far, in fp32.
  float loss() const { return loss_; }
  /// Each of them without its weight, in the order in which they were added.
  std::vector<float> losses() const;
  /// Gradients of `seed` times the losses that were added since the last backward(); if none were, of the same losses
  /// again. Adds those of the parameters to Parameter::grad, as torch's backward() of one loss after another does.
  /// `scale`: the part of the seed that is a loss scale, for events. Once: Error for a second time, unless every time
  /// but the last retains the graph.
  void backward(float seed, double scale, bool retain_graph = false);
  /// The same of loss k alone.
  void backward_of(std::size_t k, float seed, double scale, bool retain_graph);
  /// Gradients of `seed` times the losses that a backward() would take now by `inputs`, as tensors of this graph that
  /// depend on what they were computed from (torch's autograd.grad with create_graph); id -1 for an input that the
  /// losses do not depend on. The backwards are the same kernels, with the same bits. backward() then runs their double
  /// backwards: Error there for an op that has none, or for a gradient of a gradient of a gradient.
  std::vector<Var> gradients(const std::vector<Var>& inputs, float seed, double scale);
  /// Whether the loss so far depends on a parameter that takes a gradient.
  bool trains() const {
    return std::any_of(losses_.begin(), losses_.end(),
                       [&](const auto& loss) { return slots_[static_cast<std::size_t>(loss.first)].needs_grad; });
  }
  /// The trained tensors of the graph so far, by name.
  std::vector<Var> parameter_vars() const;
  /// What the last backward() gave for each parameter.
  std::vector<std::pair<std::string, Tensor>> parameter_gradients() const;
  /// The 2-norm of all of `tensors` together, each times `factor`, in fp32: one element. Its gradient is not finite at
  /// zero, as sqrt's.
  Var norm(const std::vector<Var>& tensors, float factor);

  /// Bytes that this graph allocated and holds until backward: every tensor but the parameters, saved tensors among
  /// them.
  std::int64_t bytes_kept() const;
  /// Of these, what calls keep because a backward may come: inputs, outputs and saved tensors of what needs gradients.
  std::int64_t bytes_for_backward() const;

  /// For tests and reports: the tensors by number, and their gradients after backward().
  std::size_t size() const { return slots_.size(); }
  const TensorView& view(Var x) const { return slots_[static_cast<std::size_t>(x.id)].view; }
  bool requires_grad(Var x) const { return slots_[static_cast<std::size_t>(x.id)].needs_grad; }
  const Tensor& grad(Var x) const { return slots_[static_cast<std::size_t>(x.id)].grad; }
  /// The var that the latest call of that name ("linear_1") wrote.
  Var output_of(const std::string& call) const;

 private:
  struct Slot {
    Tensor memory;
    TensorView view;
    bool needs_grad = false;
    bool inference = false;  ///< made under InferenceMode
    int cast_of = -1;        ///< the tensor that it is in another dtype
    int source = -1;         ///< number of the tensor that it is a reshape of, or its own
    Parameter* parameter = nullptr;
    std::optional<bool> finite = {};     ///< once looked at
    std::optional<double> largest = {};  ///< finite magnitude, if it was asked for with that
    Tensor grad = {};
    std::optional<Seen> grad_seen = {};  ///< of `grad` as it is now
  };
  struct Entry;

  Slot& slot(int id) { return slots_[static_cast<std::size_t>(id)]; }
  // graph_device.cpp
  void run(const kernels::KernelFn& kernel, const kernels::KernelCall& call) const;
  /// Until the host may touch the tensors.
  void wait() const {
    if (options_.stream != nullptr) options_.stream->wait();
  }
  /// The same, before the host puts `bytes` of its own numbers there: tells the observer where the device has begun.
  void wait_to_put(const char* what, std::int64_t bytes) const;
  /// What a cast is compared with: what was cast, in fp32 or wider, which `held` holds; nothing where the cast is
  /// exact.
  TensorView exact_of_cast(const TensorView& from, Dtype to, Tensor& held) const;
  Tensor converted(const TensorView& from, Dtype to) const;
  Tensor sum_of(const TensorView& x, const TensorView& y) const;
  Tensor picked(const TensorView& x, const std::vector<std::int64_t>& map, const Shape& shape) const;
  Tensor spread(const TensorView& x, const std::vector<std::int64_t>& map, const Shape& shape) const;
  Tensor written_whole(const OpDef& op, const std::string& name, Dtype dtype, const Shape& shape) const;
  Tensor seed_of(const TensorView& loss, float value) const;
  /// `id`: the parameter's slot.
  void add_to_parameter(int id, const Tensor& grad) const;
  int push(Tensor memory, const Shape& shape, bool needs_grad);
  /// Keeps what a backward of its output needs, if any is wanted.
  void keep(Entry entry);
  /// `by_autocast`: not asked for by the caller, so that the cache may keep it.
  int cast(int id, Dtype to, const std::string& op, const std::string& layer, const std::string& label,
           bool by_autocast);
  enum class CastFrom { made, made_for_cache, cache };
  int put_cast(Entry entry, Tensor value, CastFrom from);
  int as_integer(int id);
  std::vector<std::pair<std::string, int>> autocast_inputs(const OpDef& op, const models::RecordedCall& call,
                                                           const std::string& layer);
  // graph_fp8.cpp
  bool runs_in_fp8(const OpDef& op) const;
  std::vector<std::pair<std::string, int>> fp8_inputs(const OpDef& op, const Entry& call);
  /// What a product reads of a tensor: rounded to fp8 and widened again, and told. `cast`: to be kept with it.
  Tensor read_in_fp8(Entry& cast, Phase phase, const std::string& tensor, const TensorView& from);
  void backward_quantized(Entry& entry);
  std::string layer_of(const models::RecordedCall& call) const;
  bool finite(int id);
  /// The same, and what a cast is compared with: its size too, in one pass.
  bool finite_and_largest(int id);
  bool grad_finite(int id);
  bool watched(const std::string& op) const;
  bool shadowed(const std::string& op) const;
  /// What was found, if somebody looked.
  std::optional<Seen> tell(const Entry& entry, Phase phase, const std::string& tensor, const TensorView& got,
                           const TensorView& exact, bool inputs_finite, bool cotangent_finite = true);
  /// The op of a call: the built-in one, one of use_op(), or the planted one of that name.
  const OpDef& kernel_of(const std::string& op_name) const;
  /// Tells the observer of calls; `gradients`: what the backward wrote, of a call that had one.
  void tell_call(const Entry& entry, const TensorView* cotangent,
                 const std::vector<std::pair<std::string, Tensor>>& gradients);
  void tell_cast(const Entry& entry, bool backward, const std::string& tensor, const TensorView& from,
                 const TensorView& got);
  std::optional<Seen> see_with_inputs(const Entry& entry, Phase phase, Event& event);
  void note_made(const Entry& call);
  /// The calls from made_[from] on against those from made_[second] on.
  void compare_passes(std::size_t from, std::size_t second);
  void compare_inference();
  Var stand_in(Var value, Var gradient);
  void require_kept(const char* what) const;
  std::span<const std::pair<int, double>> losses_to_take() const;
  void add_grad(int id, const Tensor& grad, std::optional<Seen> seen = {});
  /// Tells an observer that wants them of a sum of two gradients of a tensor.
  void tell_sum(int id, const TensorView& got, const TensorView& first, const TensorView& second) const;
  TensorView cotangent_view(const Entry& entry, const TensorView& cotangent) const;
  using Which = std::function<bool(const std::string& input)>;
  std::vector<std::pair<std::string, Tensor>> run_backward(const Entry& entry, const TensorView& cotangent,
                                                           const Which& which);
  /// Of the inputs that `which` names.
  void backward_of_call(Entry& entry, const Tensor& cotangent, const Which& which);
  bool inputs_finite(const Entry& entry);
  void backward_call(Entry& entry);
  void backward_cast(Entry& entry);
  void backward_move(Entry& entry);
  void backward_norm(Entry& entry);
  void backward_gradient(Entry& entry);
  // Of gradients(): the backward of an entry as an entry of its own; `cotangents` by tensor.
  void record_backward(std::size_t index, std::vector<int>& cotangents);
  void record_call_backward(std::size_t index, std::vector<int>& cotangents);
  void accumulate(std::vector<int>& cotangents, int id, int more);

  ParameterSet& parameters_;
  models::Recordings& recordings_;
  GraphOptions options_;
  std::vector<Slot> slots_;
  std::vector<Entry> entries_;
  std::map<std::string, int> counts_;
  std::map<std::string, int> parameter_slots_;
  std::map<std::pair<int, Dtype>, int> casts_;  ///< of parameters: the latest that autocast's cache gave
  std::map<std::string, int> outputs_;
  /// A call by name, with its layer and its output.
  struct Made {
    std::string op, layer;
    int output;
  };
  std::vector<Made> made_, inferred_;
  bool again_ = false, inferring_ = false;
  std::vector<std::pair<int, double>> losses_;
  std::size_t taken_from_ = 0, taken_to_ = 0;  ///< of losses_, by the last backward()
  std::optional<std::size_t> only_loss_ = {};  ///< that a backward is of
  float loss_ = 0;
  std::int64_t launches_before_ = 0;       ///< of the stream, when the graph began
  double scale_ = 1, gradient_scale_ = 1;  ///< of backward(), of gradients()
  bool freed_ = false, used_autocast_ = false;
};

}  // namespace ampcheck::checks::train
