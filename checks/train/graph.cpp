// SPDX-License-Identifier: Apache-2.0
#include "checks/train/graph.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

#include "checks/models/cancellation.h"
#include "checks/train/graph_entry.h"
#include "src/amp/autocast.h"
#include "src/amp/blocks.h"
#include "src/amp/error.h"
#include "src/amp/grad_mode.h"
#include "src/error.h"
#include "src/rounding.h"

namespace ampcheck::checks::train {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The dtype in which an op of floating inputs of these dtypes runs: that of its dtype argument where the policy sets
/// one, as it widens before it computes. Policies without a rule leave the inputs as they are; kernels take one dtype.
Dtype autocast_dtype(CastPolicy policy, const AutocastState& state, const std::vector<Dtype>& inputs) {
  const CastDecision decision = decide_casts(policy, state, inputs);
  return decision.dtype.value_or(promoted_dtype(decision.inputs));
}

std::string joined(const std::vector<Dtype>& dtypes) {
  std::string out;
  for (const Dtype dtype : dtypes) out += std::string(out.empty() ? "" : ", ") + ampcheck::name(dtype);
  return out;
}

/// The dtype that a call read an input in, where its signature leaves it open.
void note_dtype(const TensorSpec& spec, Dtype dtype, OpCall& call) {
  if (spec.type == TypeRule::storage)
    call.storage = dtype;
  else if (spec.type == TypeRule::parameter)
    call.dtypes[spec.name] = dtype;
}

/// No code has all bits of the exponent set.
template <class Code>
bool none_special(const Code* codes, std::int64_t n, Code exponent) {
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t end = std::min<std::int64_t>(n, at + kBlock);
    Code bad = 0;
    for (std::int64_t i = at; i < end; ++i) bad |= (codes[i] & exponent) == exponent ? Code{1} : Code{0};
    if (bad != 0) return false;
  }
  return true;
}

/// As signed integers codes order as magnitudes do, and have a vectorised maximum.
template <class Float, class Code, Code kExponent>
Magnitudes magnitudes_of(const Code* codes, std::int64_t n) {
  Code top = 0, most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const Code size = codes[i] & std::numeric_limits<Code>::max(),
               kept = static_cast<Code>(size & -static_cast<Code>(size < kExponent));
    top = kept > top ? kept : top;
    most = size > most ? size : most;
  }
  return {std::bit_cast<Float>(top), most < kExponent};
}

}  // namespace

Magnitudes magnitudes(const TensorView& view) {
  if (view.dtype == Dtype::fp32)
    return magnitudes_of<float, std::int32_t, 0x7f800000>(view.as<const std::int32_t>(), view.count());
  return magnitudes_of<double, std::int64_t, 0x7ff0000000000000>(view.as<const std::int64_t>(), view.count());
}

bool all_finite(const TensorView& view) {
  switch (view.dtype) {
    case Dtype::fp64:
      return none_special<std::uint64_t>(view.as<const std::uint64_t>(), view.count(), 0x7ff0000000000000u);
    case Dtype::fp32: return none_special<std::uint32_t>(view.as<const std::uint32_t>(), view.count(), 0x7f800000u);
    case Dtype::fp16: return none_special<std::uint16_t>(view.as<const std::uint16_t>(), view.count(), 0x7c00u);
    case Dtype::bf16: return none_special<std::uint16_t>(view.as<const std::uint16_t>(), view.count(), 0x7f80u);
    case Dtype::e4m3fn: return none_special<std::uint8_t>(view.as<const std::uint8_t>(), view.count(), 0x7fu);
    case Dtype::e5m2: return none_special<std::uint8_t>(view.as<const std::uint8_t>(), view.count(), 0x7cu);
    default: throw Error(std::string("[train] tensor, got ") + ampcheck::name(view.dtype) + ", want a floating dtype");
  }
}

TensorView view_of(std::span<const double> values, const Shape& shape) {
  return {const_cast<double*>(values.data()), Dtype::fp64, shape, row_major_strides(shape)};  // it is only read
}

const char* name(Phase phase) {
  constexpr const char* kNames[kPhases] = {"forward", "backward", "all_reduce", "unscale", "clip", "optimizer"};
  return kNames[static_cast<int>(phase)];
}

Graph::Graph(ParameterSet& parameters, models::Recordings& recordings, GraphOptions options)
    : parameters_(parameters), recordings_(recordings), options_(std::move(options)) {
  if (options_.memory == nullptr) options_.memory = options_.stream;
  if (options_.stream != nullptr) launches_before_ = options_.stream->launches();
}
Graph::~Graph() = default;

int Graph::push(Tensor memory, const Shape& shape, bool needs_grad) {
  Slot fresh;
  fresh.view = memory.view();
  fresh.view.shape = shape;
  fresh.view.strides = row_major_strides(shape);
  fresh.memory = std::move(memory);
  fresh.needs_grad = needs_grad && grad_enabled();
  fresh.inference = inference_mode();
  fresh.source = static_cast<int>(slots_.size());
  slots_.push_back(std::move(fresh));
  return static_cast<int>(slots_.size()) - 1;
}

models::Var Graph::data(const Shape& shape, std::vector<double> values) {
  if (std::ssize(values) != shape.count())
    throw Error("[graph] values, got " + std::to_string(values.size()) + ", want " + shape.str());
  const MemoryScope scope(options_.memory);
  Tensor tensor = Tensor::uninitialized(Dtype::fp32, shape);
  wait_to_put("data", tensor.count() * bytes(Dtype::fp32));
  from_doubles(values, tensor.view());
  return {push(std::move(tensor), shape, false)};
}

models::Var Graph::parameter(const std::string& name, const Shape& shape, double offset, double scale) {
  const auto known = parameter_slots_.find(name);
  if (known != parameter_slots_.end()) return {known->second};
  const MemoryScope scope(options_.memory);
  Parameter& parameter = parameters_.get(name, shape, offset, scale);
  const int id = push(parameter.value, shape, true);
  slot(id).parameter = &parameter;
  slot(id).needs_grad = true;
  slot(id).inference = false;  // it was there before any region
  parameter_slots_[name] = id;
  return {id};
}

models::Var Graph::output_of(const std::string& call) const {
  const auto found = outputs_.find(call);
  if (found == outputs_.end()) throw Error("[graph] call, got '" + call + "', want one of this step");
  return {found->second};
}

std::int64_t Graph::bytes_kept() const {
  std::map<const void*, std::int64_t> held;  // a reshape shares its memory
  const auto hold = [&](const Tensor& tensor) { held[tensor.data()] = tensor.count() * bytes(tensor.dtype()); };
  for (const Slot& s : slots_)
    if (s.parameter == nullptr) hold(s.memory);
  for (const Entry& entry : entries_)
    for (const auto& [name, tensor] : entry.saved) hold(tensor);
  std::int64_t out = 0;
  for (const auto& [address, size] : held) out += size;
  return out;
}

std::int64_t Graph::bytes_for_backward() const {
  std::map<const void*, std::int64_t> held;
  const auto hold = [&](const Tensor& tensor) {
    if (tensor.defined()) held[tensor.data()] = tensor.count() * bytes(tensor.dtype());
  };
  for (const Entry& entry : entries_) {
    if (entry.kind != Entry::Kind::call) continue;
    for (const auto& [name, tensor] : entry.saved) hold(tensor);
    for (const auto& [name, id] : entry.call.inputs)
      if (slots_[at(id)].parameter == nullptr) hold(slots_[at(id)].memory);
  }
  std::int64_t out = 0;
  for (const auto& [address, size] : held) out += size;
  return out;
}

bool Graph::finite(int id) {
  Slot& s = slot(id);
  if (!is_float(s.view.dtype)) return true;
  if (!s.finite) {
    wait();
    s.finite = all_finite(s.view);
  }
  return *s.finite;
}

bool Graph::finite_and_largest(int id) {
  Slot& s = slot(id);
  if (s.view.dtype != Dtype::fp32 || s.finite) return finite(id);
  wait();
  const Magnitudes sizes = magnitudes(s.view);
  s.largest = sizes.largest_finite;
  s.finite = sizes.all_finite;
  return sizes.all_finite;
}

bool Graph::grad_finite(int id) {
  Slot& s = slot(id);
  if (!s.grad_seen) {
    wait();
    s.grad_seen = Seen{all_finite(s.grad.view())};
  }
  return s.grad_seen->all_finite;
}

bool Graph::watched(const std::string& op) const {
  return options_.observer != nullptr && options_.observer->wants(op);
}
bool Graph::shadowed(const std::string& op) const {
  return options_.observer != nullptr && options_.observer->wants_exact(op);
}

namespace {

void note(const models::Cancellation& lost, Event& event) {
  if (lost.elements > 0) {
    event.cancelled = lost.mean;
    event.most_cancelled = lost.most;
  }
}

}  // namespace

/// `phase`: which way an entry runs. An entry of gradients() belongs to the backward pass either way: what it writes is
/// a gradient times that pass's scale; the other way round comes the gradient by that gradient, of which the scale
/// cancels.
std::optional<Seen> Graph::tell(const Entry& entry, Phase phase, const std::string& tensor, const TensorView& got,
                                const TensorView& exact, bool inputs_finite, bool cotangent_finite) {
  Event event;
  event.step = options_.step;
  event.rank = options_.rank;
  event.phase = entry.of_backward ? Phase::backward : phase;
  event.cast = entry.kind == Entry::Kind::cast;
  event.op = entry.name;
  event.layer = entry.layer;
  event.tensor = tensor;
  event.got = got;
  if (event.cast)
    event.from = phase == Phase::forward ? slots_[at(entry.from)].view.dtype : slots_[at(entry.to)].view.dtype;
  if (event.phase == Phase::forward) event.source = slots_[at(event.cast ? entry.from : entry.to)].source;
  event.exact = exact;
  if (event.cast && phase == Phase::forward && exact.data == slots_[at(entry.from)].view.data)
    event.largest_exact = slots_[at(entry.from)].largest;
  event.by_gradient = entry.of_backward && phase == Phase::backward &&
                      (event.cast || tensor == gradient_name(gradient_name(entry.call.output_name)));
  if (event.phase == Phase::backward)
    event.scale = event.by_gradient ? scale_ / gradient_scale_ : phase == Phase::forward ? gradient_scale_ : scale_;
  event.scale *= entry.quantized_by;
  if (event.cast && phase == Phase::backward && !options_.fault)  // which might plant another number
    if (const Slot& low = slots_[at(entry.to)]; low.grad_seen && low.grad_seen->stats) {
      event.narrow = low.grad.view();
      event.narrow_stats = low.grad_seen->stats.get();
    }
  event.inputs_finite = inputs_finite;
  event.cotangent_finite = cotangent_finite;
  if (phase == Phase::forward && entry.exact && options_.observer->wants_cancellation())
    note(models::cancellation(*entry.op, entry.call, *entry.exact), event);
  wait();
  if (options_.fault) options_.fault(event);
  return see_with_inputs(entry, phase, event);
}

/// With an op's inputs and its incoming gradient, where they are asked for. Of what is computed twice the first alone.
std::optional<Seen> Graph::see_with_inputs(const Entry& entry, Phase phase, Event& event) {
  if (!watched(entry.name) || (phase == Phase::forward && (again_ || inferring_))) return std::nullopt;
  std::vector<std::pair<std::string, TensorView>> inputs;
  if (entry.kind == Entry::Kind::call && !entry.of_backward && options_.observer->wants_inputs()) {
    for (const auto& [name, id] : entry.call.inputs) inputs.emplace_back(name, slot(id).view);
    event.inputs = &inputs;
    if (phase == Phase::backward) event.cotangent = cotangent_view(entry, slot(entry.to).grad.view());
  }
  return options_.observer->see(event);
}

void Graph::keep(Entry entry) {
  if (!grad_enabled() || !slot(entry.to).needs_grad) return;
  bool inference = entry.from >= 0 && slot(entry.from).inference;
  for (const auto& [name, id] : entry.call.inputs) inference |= slot(id).inference;
  if (inference)
    throw AmpError("RuntimeError",
                   "Inference tensors cannot be saved for backward. To work around you can make a clone to get a "
                   "normal tensor and use it in autograd.");
  entries_.push_back(std::move(entry));
}

/// The cast that `entry` describes, from entry.from.
int Graph::put_cast(Entry entry, Tensor value, CastFrom from) {
  const int id = entry.from, out = entry.to = push(std::move(value), slot(id).view.shape, slot(id).needs_grad);
  const Dtype to = slot(out).view.dtype;
  entry.kind = Entry::Kind::cast;
  slot(out).cast_of = id;
  if (from != CastFrom::cache && (watched(entry.name) || options_.fault)) {
    Tensor held;
    const TensorView exact = exact_of_cast(slot(id).view, to, held);
    const bool input_finite = exact.data == nullptr ? finite(id) : finite_and_largest(id);
    if (const auto seen = tell(entry, Phase::forward, entry.label, slot(out).view, exact, input_finite))
      slot(out).finite = seen->all_finite;
  }
  if (from != CastFrom::cache) tell_cast(entry, false, entry.label, slot(id).view, slot(out).view);
  if (from == CastFrom::made) {
    keep(std::move(entry));
    return out;
  }
  slot(out).needs_grad = slot(id).needs_grad;  // under no_grad too: it may serve calls that want gradients
  entries_.push_back(std::move(entry));
  return out;
}

models::Var Graph::to(Var x, Dtype dtype) {
  const MemoryScope scope(options_.memory);
  if (slot(x.id).view.dtype == dtype) return x;
  const Parameter* const parameter = slot(x.id).parameter;
  return {cast(x.id, dtype, "to_" + std::to_string(++counts_["to"]),
               parameter != nullptr ? parameter->name.substr(0, parameter->name.rfind('.')) : "", "x", false)};
}

int Graph::cast(int id, Dtype to, const std::string& op, const std::string& layer, const std::string& label,
                bool by_autocast) {
  if (slot(id).view.dtype == to) return id;
  Entry entry;
  entry.from = id;
  entry.name = op;
  entry.layer = layer;
  entry.label = label;
  const bool weight = slot(id).parameter != nullptr;
  const CastSource source{.tensor = slot(id).memory, .requires_grad = weight, .is_leaf = weight};
  if (!by_autocast || !keeps_cast(device(), source, to))
    return put_cast(std::move(entry), converted(slot(id).view, to), CastFrom::made);
  CastFrom from = CastFrom::cache;
  Tensor kept = autocast_cast(device(), source, to, [&] {
    from = CastFrom::made_for_cache;
    return converted(slot(id).view, to);
  });
  int& known = casts_.try_emplace({id, to}, -1).first->second;
  if (known < 0 || slot(known).memory.data() != kept.data()) known = put_cast(std::move(entry), std::move(kept), from);
  return known;
}

int Graph::as_integer(int id) {
  wait_to_put("integers", slot(id).view.count() * bytes(Dtype::i64));
  Tensor whole = Tensor::uninitialized(Dtype::i64, slot(id).view.shape);
  from_doubles(to_doubles(slot(id).view), whole.view());
  return push(whole, slot(id).view.shape, false);
}

std::string Graph::layer_of(const models::RecordedCall& call) const {
  for (auto [name, id] : call.inputs) {
    while (slots_[at(id)].cast_of >= 0) id = slots_[at(id)].cast_of;
    if (const Parameter* parameter = slots_[at(id)].parameter)
      return parameter->name.substr(0, parameter->name.rfind('.'));
  }
  return {};
}

std::vector<std::pair<std::string, int>> Graph::autocast_inputs(const OpDef& op, const models::RecordedCall& call,
                                                                const std::string& layer) {
  std::vector<Dtype> dtypes;
  for (const auto& [name, id] : call.inputs)
    if (op.signature.input(name)->type == TypeRule::storage) dtypes.push_back(slot(id).view.dtype);
  const AutocastState state = autocast_state(device());
  const CastPolicy policy = cast_policy(device(), op.signature);
  used_autocast_ |= state.enabled;
  const Dtype storage = autocast_dtype(policy, state, dtypes);
  const std::vector<Dtype>& taken = op.signature.precision.storage;
  if (std::find(taken.begin(), taken.end(), storage) == taken.end())
    throw Error("[graph] op '" + op.signature.name + "', got " + ampcheck::name(storage) + ", want " + joined(taken) +
                ", which it declares (custom_fwd's cast_inputs, or a region of autocast that is off, widen)");
  std::vector<std::pair<std::string, int>> out;
  for (const auto& [name, id] : call.inputs) {
    const TypeRule rule = op.signature.input(name)->type;
    const bool keeps = rule == TypeRule::parameter && (!state.enabled || policy != CastPolicy::lower_precision_fp);
    const Dtype wanted = keeps ? (storage == Dtype::fp32 ? Dtype::fp32 : slot(id).view.dtype) : dtype_of(rule, storage);
    out.emplace_back(name, is_float(wanted) ? cast(id, wanted, call.name, layer, name, state.enabled) : as_integer(id));
  }
  return out;
}

const OpDef& Graph::kernel_of(const std::string& op_name) const {
  if (options_.kernels_of != nullptr)
    if (const auto planted = options_.kernels_of->find(op_name); planted != options_.kernels_of->end())
      return *planted->second;
  return models::op_of_call(op_name);
}

models::Var Graph::call(const std::string& op_name, const std::vector<std::pair<std::string, Var>>& inputs,
                        const std::vector<std::pair<std::string, double>>& attributes) {
  const OpDef& op = kernel_of(op_name);
  const MemoryScope scope(options_.memory);
  Entry entry;
  entry.op = &op;
  entry.call = models::bind_call(op_name, inputs, attributes, [this](Var x) { return shape(x); });
  entry.name = entry.call.name = op_name + "_" + std::to_string(++counts_[op_name]);
  entry.layer = layer_of(entry.call);
  entry.in_fp8 = runs_in_fp8(op);
  if (entry.in_fp8) entry.between = autocast_state(device()).dtype;
  entry.call.inputs = entry.in_fp8 ? fp8_inputs(op, entry) : autocast_inputs(op, entry.call, entry.layer);
  bool needs_grad = false, inputs_finite = true;
  const bool told = watched(entry.name) || options_.fault != nullptr;
  kernels::KernelCall kernel;
  for (const auto& [name, id] : entry.call.inputs) {
    const TensorSpec& spec = *op.signature.input(name);
    note_dtype(spec, slot(id).view.dtype, entry.call.call);
    needs_grad |= slot(id).needs_grad && spec.has_gradient();
    if (told) inputs_finite &= finite(id);
    kernel.tensors.emplace_back(name, slot(id).view);
  }
  const auto integers = [&](const std::string& name) {
    wait();
    for (const auto& [key, id] : entry.call.inputs)
      if (key == name) return to_doubles(slot(id).view);
    return std::vector<double>{};
  };
  const auto add = [&](const OutputSpec& spec) {
    const Shape& shape = recordings_.shape(op, entry.call.call, spec.name, integers);
    const Tensor tensor = written_whole(op, spec.name, dtype_of(spec.type, entry.call.call.storage), shape);
    kernel.tensors.emplace_back(spec.name, tensor.view());
    return tensor;
  };
  const OutputSpec& output = op.signature.outputs.front();
  Tensor y = add(output);
  if (output.to_backward) entry.saved.emplace_back(output.name, y);
  for (const OutputSpec& spec : op.signature.saved) entry.saved.emplace_back(spec.name, add(spec));
  kernel.attributes = &entry.call.call.attributes;
  run(op.kernel.forward, kernel);
  entry.call.output_name = output.name;
  entry.to = entry.call.output = push(y, y.shape(), needs_grad);
  note_made(entry);
  if (shadowed(entry.name)) {
    wait();
    entry.exact = std::make_unique<models::Evaluation>(recordings_.of(op, entry.call.call, integers));
    for (const auto& [name, id] : entry.call.inputs)
      if (is_float(slot(id).view.dtype)) entry.exact->set_input(name, to_doubles(slot(id).view));
  }
  if (told)
    if (const auto seen =
            tell(entry, Phase::forward, output.name, slot(entry.to).view,
                 entry.exact ? view_of(entry.exact->output(), slot(entry.to).view.shape) : TensorView(), inputs_finite))
      slot(entry.to).finite = seen->all_finite;
  const Var out{entry.to};
  const auto [in_fp8, between, asked, layer] = std::tuple(entry.in_fp8, entry.between, entry.name, entry.layer);
  if (!grad_enabled() || !slot(entry.to).needs_grad) tell_call(entry, nullptr, {});  // no backward will tell
  keep(std::move(entry));
  return in_fp8 ? Var{cast(out.id, between, asked, layer, output.name, false)} : out;
}

models::Var Graph::reshape(Var x, const Shape& shape) {
  if (shape.count() != slot(x.id).view.count())
    throw Error("[graph] reshape, got " + slot(x.id).view.shape.str() + ", want as many elements as " + shape.str());
  Entry entry;
  entry.kind = Entry::Kind::move;
  entry.from = x.id;
  entry.to = push(slot(x.id).memory, shape, slot(x.id).needs_grad);
  slot(entry.to).finite = slot(x.id).finite;
  slot(entry.to).source = slot(x.id).source;
  const Var out{entry.to};
  keep(std::move(entry));
  return out;
}

models::Var Graph::take(Var x, const std::vector<std::int64_t>& map, const Shape& shape) {
  const MemoryScope scope(options_.memory);
  Tensor out = picked(slot(x.id).view, map, shape);
  Entry entry;
  entry.kind = Entry::Kind::move;
  entry.from = x.id;
  entry.map = map;
  const Var y{entry.to = push(std::move(out), shape, slot(x.id).needs_grad)};
  keep(std::move(entry));
  return y;
}

void Graph::add_loss(Var value, double weight) {
  if (shape(value).count() != 1) throw Error("[graph] loss, got " + shape(value).str() + ", want one element");
  wait();
  loss_ += static_cast<float>(weight) * static_cast<float>(to_doubles(slot(value.id).view).front());
  losses_.emplace_back(value.id, weight);
}

}  // namespace ampcheck::checks::train
