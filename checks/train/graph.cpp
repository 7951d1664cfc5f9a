// SPDX-License-Identifier: Apache-2.0
#include "checks/train/graph.h"

#include <algorithm>
#include <cstring>

#include "src/amp/autocast.h"
#include "src/amp/blocks.h"
#include "src/error.h"
#include "src/rounding.h"

namespace ampcheck::checks::train {

namespace {

using models::Evaluation;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Rounded to nearest even, into memory of its own.
Tensor converted(const TensorView& from, Dtype to) {
  Tensor out = Tensor::uninitialized(to, from.shape);
  float buffer[kBlock];
  for (std::int64_t i = 0; i < from.count(); i += kBlock) {
    const std::int64_t part = std::min<std::int64_t>(kBlock, from.count() - i);
    load_block(from, i, part, buffer);
    store_block(out.view(), i, part, buffer);
  }
  return out;
}

/// Whether a cast may change a value.
bool narrows(Dtype from, Dtype to) { return bytes(to) < bytes(from); }

/// sum += more, rounded to the dtype of both.
void add_to(const TensorView& sum, const TensorView& more) {
  float a[kBlock], b[kBlock];
  for (std::int64_t i = 0; i < sum.count(); i += kBlock) {
    const std::int64_t part = std::min<std::int64_t>(kBlock, sum.count() - i);
    load_block(sum, i, part, a);
    load_block(more, i, part, b);
    for (std::int64_t k = 0; k < part; ++k) a[k] += b[k];
    store_block(sum, i, part, a);
  }
}

/// The dtype in which an op of floating inputs of these dtypes runs in a region of `low`.
Dtype autocast_dtype(CastPolicy policy, Dtype low, const std::vector<Dtype>& inputs) {
  return decide_casts(policy, {.enabled = true, .dtype = low}, inputs).inputs.front();
}

}  // namespace

namespace {

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

}  // namespace

bool all_finite(const TensorView& view) {
  switch (view.dtype) {
    case Dtype::fp64: return none_special<std::uint64_t>(view.as<const std::uint64_t>(), view.count(), 0x7ff0000000000000u);
    case Dtype::fp32: return none_special<std::uint32_t>(view.as<const std::uint32_t>(), view.count(), 0x7f800000u);
    case Dtype::fp16: return none_special<std::uint16_t>(view.as<const std::uint16_t>(), view.count(), 0x7c00u);
    case Dtype::bf16: return none_special<std::uint16_t>(view.as<const std::uint16_t>(), view.count(), 0x7f80u);
    default: throw Error(std::string("[train] tensor, got ") + ampcheck::name(view.dtype) + ", want fp64, fp32, fp16 or bf16");
  }
}

TensorView view_of(std::span<const double> values, const Shape& shape) {
  return {const_cast<double*>(values.data()), Dtype::fp64, shape, row_major_strides(shape)};  // it is only read
}

const char* name(Phase phase) {
  constexpr const char* kNames[kPhases] = {"forward", "backward", "unscale", "clip", "optimizer"};
  return kNames[static_cast<int>(phase)];
}

struct Graph::Entry {
  enum class Kind { call, cast, move } kind = Kind::call;
  int from = -1, to = -1;         ///< cast, move; of a call `to` is its output
  std::vector<std::int64_t> map;  ///< move; empty: the same elements
  std::string name;               ///< call, or the call that asked for the cast
  std::string layer, label;       ///< label: what is cast
  const OpDef* op = nullptr;
  models::RecordedCall call;      ///< inputs as the kernel read them, after casts
  std::vector<std::pair<std::string, Tensor>> saved;
  std::unique_ptr<Evaluation> exact;  ///< of a call with a local shadow
};

Graph::Graph(ParameterSet& parameters, models::Recordings& recordings, GraphOptions options)
    : parameters_(parameters), recordings_(recordings), options_(std::move(options)) {}
Graph::~Graph() = default;

int Graph::push(Tensor memory, const Shape& shape, bool needs_grad) {
  Slot fresh;
  fresh.view = memory.view();
  fresh.view.shape = shape;
  fresh.view.strides = row_major_strides(shape);
  fresh.memory = std::move(memory);
  fresh.needs_grad = needs_grad;
  fresh.source = static_cast<int>(slots_.size());
  slots_.push_back(std::move(fresh));
  return static_cast<int>(slots_.size()) - 1;
}

models::Var Graph::data(const Shape& shape, std::vector<double> values) {
  if (std::ssize(values) != shape.count()) throw Error("[graph] values, got " + std::to_string(values.size()) + ", want " + shape.str());
  Tensor tensor = Tensor::uninitialized(Dtype::fp32, shape);
  from_doubles(values, tensor.view());
  return {push(std::move(tensor), shape, false)};
}

models::Var Graph::parameter(const std::string& name, const Shape& shape, double offset, double scale) {
  const auto known = parameter_slots_.find(name);
  if (known != parameter_slots_.end()) return {known->second};
  Parameter& parameter = parameters_.get(name, shape, offset, scale);
  const int id = push(parameter.value, shape, true);
  slot(id).parameter = &parameter;
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

std::int64_t Graph::bytes_of_weight_casts() const {
  std::int64_t out = 0;
  for (const auto& [key, id] : casts_) out += slots_[at(id)].memory.count() * bytes(key.second);
  return out;
}

bool Graph::finite(int id) {
  Slot& s = slot(id);
  if (!is_float(s.view.dtype)) return true;
  if (!s.finite) s.finite = all_finite(s.view);
  return *s.finite;
}

bool Graph::grad_finite(int id) {
  Slot& s = slot(id);
  if (!s.grad_finite) s.grad_finite = all_finite(s.grad.view());
  return *s.grad_finite;
}

bool Graph::watched(const std::string& op) const { return options_.observer != nullptr && options_.observer->wants(op); }
bool Graph::shadowed(const std::string& op) const { return options_.observer != nullptr && options_.observer->wants_exact(op); }

void Graph::tell(const Entry& entry, Phase phase, const std::string& tensor, const TensorView& got, const TensorView& exact, bool inputs_finite, bool cotangent_finite) {
  Event event;
  event.step = options_.step;
  event.phase = phase;
  event.cast = entry.kind == Entry::Kind::cast;
  event.op = entry.name;
  event.layer = entry.layer;
  event.tensor = tensor;
  event.got = got;
  if (event.cast) event.from = phase == Phase::forward ? slots_[at(entry.from)].view.dtype : slots_[at(entry.to)].view.dtype;
  if (phase == Phase::forward) event.source = slots_[at(event.cast ? entry.from : entry.to)].source;
  event.exact = exact;
  event.scale = phase == Phase::backward ? scale_ : 1;
  event.inputs_finite = inputs_finite;
  event.cotangent_finite = cotangent_finite;
  if (options_.fault) options_.fault(event);
  if (watched(entry.name)) options_.observer->see(event);
}

int Graph::cast(int id, Dtype to, const std::string& op, const std::string& layer, const std::string& label) {
  if (slot(id).view.dtype == to) return id;
  const bool cached = slot(id).parameter != nullptr;
  if (const auto known = casts_.find({id, to}); cached && known != casts_.end()) return known->second;
  const int out = push(converted(slot(id).view, to), slot(id).view.shape, slot(id).needs_grad);
  if (cached) casts_[{id, to}] = out;
  Entry entry;
  entry.kind = Entry::Kind::cast;
  entry.from = id, entry.to = out;
  entry.name = op;
  entry.layer = layer;
  entry.label = label;
  if (watched(op) || options_.fault) {
    tell(entry, Phase::forward, label, slot(out).view, narrows(slot(id).view.dtype, to) ? slot(id).view : TensorView(), finite(id));
  }
  entries_.push_back(std::move(entry));
  return out;
}

int Graph::as_integer(int id) {
  Tensor whole = Tensor::uninitialized(Dtype::i64, slot(id).view.shape);
  from_doubles(to_doubles(slot(id).view), whole.view());
  return push(whole, slot(id).view.shape, false);
}

std::string Graph::layer_of(const models::RecordedCall& call) const {
  for (const auto& [name, id] : call.inputs)
    if (const Parameter* parameter = slots_[at(id)].parameter) return parameter->name.substr(0, parameter->name.rfind('.'));
  return {};
}

std::vector<std::pair<std::string, int>> Graph::autocast_inputs(const OpDef& op, const models::RecordedCall& call, const std::string& layer) {
  std::vector<Dtype> dtypes;
  for (const auto& [name, id] : call.inputs)
    if (op.signature.input(name)->type == TypeRule::storage) dtypes.push_back(slot(id).view.dtype);
  const Dtype storage = options_.autocast ? autocast_dtype(op.signature.cast, *options_.autocast, dtypes) : Dtype::fp32;
  std::vector<std::pair<std::string, int>> out;
  for (const auto& [name, id] : call.inputs) {
    const TypeRule rule = op.signature.input(name)->type;
    const bool keeps = rule == TypeRule::parameter && op.signature.cast != CastPolicy::lower_precision_fp;
    const Dtype wanted = keeps ? (storage == Dtype::fp32 ? Dtype::fp32 : slot(id).view.dtype) : dtype_of(rule, storage);
    out.emplace_back(name, is_float(wanted) ? cast(id, wanted, call.name, layer, name) : as_integer(id));
  }
  return out;
}

models::Var Graph::call(const std::string& op_name, const std::vector<std::pair<std::string, Var>>& inputs,
                        const std::vector<std::pair<std::string, double>>& attributes) {
  const OpDef& op = models::op_of_call(op_name);
  Entry entry;
  entry.op = &op;
  entry.call = models::bind_call(op_name, inputs, attributes, [this](Var x) { return shape(x); });
  entry.name = entry.call.name = op_name + "_" + std::to_string(++counts_[op_name]);
  entry.layer = layer_of(entry.call);
  entry.call.inputs = autocast_inputs(op, entry.call, entry.layer);
  bool needs_grad = false, inputs_finite = true;
  const bool told = watched(entry.name) || options_.fault != nullptr;
  kernels::KernelCall kernel;
  for (const auto& [name, id] : entry.call.inputs) {
    const TensorSpec& spec = *op.signature.input(name);
    if (spec.type == TypeRule::storage) entry.call.call.storage = slot(id).view.dtype;
    else if (spec.type == TypeRule::parameter) entry.call.call.dtypes[name] = slot(id).view.dtype;
    needs_grad |= slot(id).needs_grad && spec.has_gradient();
    if (told) inputs_finite &= finite(id);
    kernel.tensors.emplace_back(name, slot(id).view);
  }
  const auto integers = [&](const std::string& name) {
    for (const auto& [key, id] : entry.call.inputs)
      if (key == name) return to_doubles(slot(id).view);
    return std::vector<double>{};
  };
  const auto add = [&](const OutputSpec& spec) {
    const Shape& shape = recordings_.shape(op, entry.call.call, spec.name, integers);
    Tensor tensor(dtype_of(spec.type, entry.call.call.storage), shape);
    kernel.tensors.emplace_back(spec.name, tensor.view());
    return tensor;
  };
  const OutputSpec& output = op.signature.outputs.front();
  Tensor y = add(output);
  for (const OutputSpec& spec : op.signature.saved) entry.saved.emplace_back(spec.name, add(spec));
  kernel.attributes = &entry.call.call.attributes;
  op.kernel.forward(kernel);
  entry.call.output_name = output.name;
  entry.to = entry.call.output = push(y, y.shape(), needs_grad);
  outputs_[entry.name] = entry.to;
  if (shadowed(entry.name)) {
    entry.exact = std::make_unique<Evaluation>(recordings_.of(op, entry.call.call, integers));
    for (const auto& [name, id] : entry.call.inputs)
      if (is_float(slot(id).view.dtype)) entry.exact->set_input(name, to_doubles(slot(id).view));
  }
  if (told) tell(entry, Phase::forward, output.name, slot(entry.to).view, entry.exact ? view_of(entry.exact->output(), slot(entry.to).view.shape) : TensorView(), inputs_finite);
  entries_.push_back(std::move(entry));
  return {entries_.back().to};
}

models::Var Graph::reshape(Var x, const Shape& shape) {
  if (shape.count() != slot(x.id).view.count()) throw Error("[graph] reshape, got " + slot(x.id).view.shape.str() + ", want as many elements as " + shape.str());
  Entry entry;
  entry.kind = Entry::Kind::move;
  entry.from = x.id;
  entry.to = push(slot(x.id).memory, shape, slot(x.id).needs_grad);
  slot(entry.to).finite = slot(x.id).finite;
  slot(entry.to).source = slot(x.id).source;
  entries_.push_back(std::move(entry));
  return {entries_.back().to};
}

models::Var Graph::take(Var x, const std::vector<std::int64_t>& map, const Shape& shape) {
  const TensorView from = slot(x.id).view;
  const auto size = at(bytes(from.dtype));
  Tensor out = Tensor::uninitialized(from.dtype, shape);
  for (std::size_t i = 0; i < map.size(); ++i)
    std::memcpy(static_cast<std::byte*>(out.data()) + i * size, static_cast<const std::byte*>(from.data) + at(map[i]) * size, size);
  Entry entry;
  entry.kind = Entry::Kind::move;
  entry.from = x.id;
  entry.map = map;
  entry.to = push(std::move(out), shape, slot(x.id).needs_grad);
  entries_.push_back(std::move(entry));
  return {entries_.back().to};
}

void Graph::add_loss(Var value, double weight) {
  if (shape(value).count() != 1) throw Error("[graph] loss, got " + shape(value).str() + ", want one element");
  loss_ += static_cast<float>(weight) * static_cast<float>(to_doubles(slot(value.id).view).front());
  losses_.emplace_back(value.id, weight);
}

void Graph::add_grad(int id, const Tensor& grad) {
  Slot& s = slot(id);
  if (!s.needs_grad) return;
  s.grad_finite.reset();
  if (!s.grad.defined()) {
    s.grad = grad;
    return;
  }
  // The first contribution may be shared with the tensor that it came from.
  Tensor sum = converted(s.grad.view(), s.grad.dtype());
  add_to(sum.view(), grad.view());
  s.grad = sum;
}

void Graph::backward_move(Entry& entry) {
  const Tensor& g = slot(entry.to).grad;
  if (entry.map.empty()) {
    add_grad(entry.from, g);
    return;
  }
  std::vector<float> sum(at(slot(entry.from).view.count()), 0.0f), from(at(g.count()));
  load_block(g.view(), 0, g.count(), from.data());
  for (std::size_t i = 0; i < from.size(); ++i) sum[at(entry.map[i])] += from[i];
  Tensor out = Tensor::uninitialized(g.dtype(), slot(entry.from).view.shape);
  store_block(out.view(), 0, out.count(), sum.data());
  add_grad(entry.from, out);
}

void Graph::backward_cast(Entry& entry) {
  const Tensor& g = slot(entry.to).grad;
  const Tensor out = converted(g.view(), slot(entry.from).view.dtype);
  if (watched(entry.name) || options_.fault) {
    tell(entry, Phase::backward, gradient_name(entry.label), out.view(), narrows(g.dtype(), out.dtype()) ? g.view() : TensorView(), grad_finite(entry.to), grad_finite(entry.to));
  }
  add_grad(entry.from, out);
}

void Graph::backward_call(Entry& entry) {
  kernels::KernelCall kernel;
  kernel.attributes = &entry.call.call.attributes;
  const bool told = watched(entry.name) || options_.fault != nullptr;
  const bool cotangent_finite = !told || grad_finite(entry.to);
  bool inputs_finite = cotangent_finite;
  for (const auto& [name, id] : entry.call.inputs) {
    kernel.tensors.emplace_back(name, slot(id).view);
    if (told) inputs_finite &= finite(id);
  }
  for (const auto& [name, tensor] : entry.saved) kernel.tensors.emplace_back(name, tensor.view());
  TensorView cotangent = slot(entry.to).grad.view();  // which a reshape may have left in another shape
  cotangent.shape = slot(entry.to).view.shape, cotangent.strides = slot(entry.to).view.strides;
  kernel.tensors.emplace_back(gradient_name(entry.call.output_name), cotangent);
  std::vector<std::pair<std::string, Tensor>> gradients;  // by input
  for (const auto& [name, id] : entry.call.inputs) {
    if (!slot(id).needs_grad || !entry.op->signature.input(name)->has_gradient()) continue;
    gradients.emplace_back(name, Tensor(slot(id).view.dtype, slot(id).view.shape));
    kernel.tensors.emplace_back(gradient_name(name), gradients.back().second.view());
  }
  entry.op->kernel.backward(kernel);
  if (entry.exact) entry.exact->set_cotangent(to_doubles(slot(entry.to).grad.view()));
  for (const auto& [name, gradient] : gradients) {
    if (told)
      tell(entry, Phase::backward, gradient_name(name), gradient.view(), entry.exact ? view_of(entry.exact->gradient(name), gradient.shape()) : TensorView(), inputs_finite, cotangent_finite);
    const auto input = std::find_if(entry.call.inputs.begin(), entry.call.inputs.end(), [&](const auto& i) { return i.first == name; });
    add_grad(input->second, gradient);
  }
  entry.exact.reset();
}

void Graph::backward(float seed_value, double scale) {
  scale_ = scale;
  for (const auto& [id, weight] : losses_) {
    if (!slot(id).needs_grad) continue;
    Tensor seed(slot(id).view.dtype, slot(id).view.shape);
    const float value = seed_value * static_cast<float>(weight);
    store_block(seed.view(), 0, 1, &value);
    add_grad(id, seed);
  }
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (!slot(entry->to).grad.defined()) continue;
    switch (entry->kind) {
      case Entry::Kind::call: backward_call(*entry); break;
      case Entry::Kind::cast: backward_cast(*entry); break;
      case Entry::Kind::move: backward_move(*entry); break;
    }
  }
  for (auto& [name, id] : parameter_slots_)
    if (slot(id).grad.defined()) ParameterSet::add_grad(*slot(id).parameter, slot(id).grad);
}

}  // namespace ampcheck::checks::train
