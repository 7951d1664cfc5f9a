// SPDX-License-Identifier: Apache-2.0
// The backward pass of a graph, and the backward pass put on record.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "checks/train/double_backward.h"
#include "checks/train/graph_entry.h"
#include "src/amp/autocast.h"
#include "src/amp/blocks.h"
#include "src/error.h"

namespace ampcheck::checks::train {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
bool every_input(const std::string&) { return true; }

}  // namespace

void Graph::require_kept(const char* what) const {
  if (freed_)
    throw Error(std::string("[graph] ") + what +
                ", got a graph that an earlier backward() freed, want retain_graph=true there, or a new forward pass");
}

std::span<const std::pair<int, double>> Graph::losses_to_take() const {
  const std::span<const std::pair<int, double>> all = losses_;
  if (only_loss_) return all.subspan(*only_loss_, 1);
  if (all.size() > taken_to_) return all.subspan(taken_to_);
  return all.subspan(taken_from_);
}

void Graph::add_grad(int id, const Tensor& grad, std::optional<Seen> seen) {
  Slot& s = slot(id);
  if (!s.needs_grad) return;
  s.grad_seen.reset();
  if (!s.grad.defined()) {
    s.grad = grad;
    s.grad_seen = std::move(seen);
    return;
  }
  // The first contribution may be shared with the tensor that it came from. Of two dtypes, where low ones are kept, the
  // wider is the sum's.
  const Dtype wide = promoted_dtype(std::array{s.grad.dtype(), grad.dtype()});
  const auto in_wide = [&](const Tensor& x) { return x.dtype() == wide ? x : converted(x.view(), wide); };
  const Tensor first = in_wide(s.grad), second = in_wide(grad);
  s.grad = sum_of(first.view(), second.view());
  tell_sum(id, s.grad.view(), first.view(), second.view());
}

void Graph::tell_sum(int id, const TensorView& got, const TensorView& first, const TensorView& second) const {
  if (options_.observer == nullptr || !options_.observer->wants_inputs()) return;
  while (slots_[at(id)].cast_of >= 0) id = slots_[at(id)].cast_of;
  if (const Parameter* const parameter = slots_[at(id)].parameter) {
    wait();
    return options_.observer->see_sum({parameter->name, true, got, first, second, scale_});
  }
  for (const Entry& entry : entries_) {
    if (entry.kind != Entry::Kind::call || slots_[at(entry.to)].source != slots_[at(id)].source) continue;
    wait();
    return options_.observer->see_sum({entry.name, false, got, first, second, scale_});
  }
}

void Graph::backward_move(Entry& entry) {
  const Tensor& g = slot(entry.to).grad;
  if (entry.map.empty())
    add_grad(entry.from, g);
  else if (entry.kind == Entry::Kind::move)
    add_grad(entry.from, spread(g.view(), entry.map, slot(entry.from).view.shape));
  else
    add_grad(entry.from, picked(g.view(), entry.map, slot(entry.from).view.shape));
}

void Graph::backward_cast(Entry& entry) {
  if (entry.in_fp8) return backward_quantized(entry);
  const Tensor& g = slot(entry.to).grad;
  if (options_.keep_low_precision_grads && slot(entry.from).parameter != nullptr &&
      narrows(slot(entry.from).view.dtype, g.dtype()))
    return add_grad(entry.from, g);
  const Tensor out = converted(g.view(), slot(entry.from).view.dtype);
  std::optional<Seen> seen;
  if (watched(entry.name) || options_.fault) {
    Tensor held;
    const TensorView exact = exact_of_cast(g.view(), out.dtype(), held);
    seen = tell(entry, Phase::backward, gradient_name(entry.label), out.view(), exact, grad_finite(entry.to),
                grad_finite(entry.to));
  }
  tell_cast(entry, true, gradient_name(entry.label), g.view(), out.view());
  add_grad(entry.from, out, std::move(seen));
}

/// A cotangent in the shape of the call's output: a reshape may have left it in another.
TensorView Graph::cotangent_view(const Entry& entry, const TensorView& cotangent) const {
  TensorView out = cotangent;
  out.shape = slots_[at(entry.to)].view.shape;
  out.strides = slots_[at(entry.to)].view.strides;
  return out;
}

bool Graph::inputs_finite(const Entry& entry) {
  bool all = true;
  for (const auto& [name, id] : entry.call.inputs) all &= finite(id);
  return all;
}

/// The gradients of a call by input, those that something asks for.
std::vector<std::pair<std::string, Tensor>> Graph::run_backward(const Entry& entry, const TensorView& cotangent,
                                                                const Which& which) {
  kernels::KernelCall kernel;
  kernel.attributes = &entry.call.call.attributes;
  for (const auto& [name, id] : entry.call.inputs) kernel.tensors.emplace_back(name, slot(id).view);
  for (const auto& [name, tensor] : entry.saved) kernel.tensors.emplace_back(name, tensor.view());
  kernel.tensors.emplace_back(gradient_name(entry.call.output_name), cotangent_view(entry, cotangent));
  std::vector<std::pair<std::string, Tensor>> gradients;
  for (const auto& [name, id] : entry.call.inputs) {
    if (!slot(id).needs_grad || !entry.op->signature.input(name)->has_gradient() || !which(name)) continue;
    gradients.emplace_back(name,
                           written_whole(*entry.op, gradient_name(name), slot(id).view.dtype, slot(id).view.shape));
    kernel.tensors.emplace_back(gradient_name(name), gradients.back().second.view());
  }
  run(entry.op->kernel.backward, kernel);
  if (entry.exact) {
    wait();
    entry.exact->set_cotangent(to_doubles(cotangent));
  }
  return gradients;
}

void Graph::backward_of_call(Entry& entry, const Tensor& cotangent, const Which& which) {
  const bool told = watched(entry.name) || options_.fault != nullptr, cotangent_finite = !told || grad_finite(entry.to),
             all_finite = cotangent_finite && (!told || inputs_finite(entry));
  const auto gradients = run_backward(entry, cotangent.view(), which);
  for (const auto& [name, gradient] : gradients) {
    std::optional<Seen> found;
    if (told)
      found = tell(entry, Phase::backward, gradient_name(name), gradient.view(),
                   entry.exact ? view_of(entry.exact->gradient(name), gradient.shape()) : TensorView(), all_finite,
                   cotangent_finite);
    const auto input = std::find_if(entry.call.inputs.begin(), entry.call.inputs.end(),
                                    [&, wanted = std::string_view(name)](const auto& i) { return i.first == wanted; });
    add_grad(input->second, gradient, std::move(found));
  }
  const TensorView given = cotangent_view(entry, cotangent.view());
  tell_call(entry, &given, gradients);
}

/// In fp8 what is multiplied reads e5m2; a bias gets its sum from the gradient before that.
void Graph::backward_call(Entry& entry) {
  const Tensor cotangent = slot(entry.to).grad;
  if (!entry.in_fp8) return backward_of_call(entry, cotangent, every_input);
  const auto is_bias = [&](const std::string& name) { return entry.op->signature.input(name)->role == Role::bias; };
  Entry cast;
  cast.name = entry.name;
  cast.layer = entry.layer;
  cast.from = cast.to = entry.to;
  const Tensor read = read_in_fp8(cast, Phase::backward, gradient_name(entry.call.output_name),
                                  cotangent_view(entry, cotangent.view()));
  backward_of_call(entry, read, [&](const std::string& name) { return !is_bias(name); });
  const auto& inputs = entry.call.inputs;
  if (std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) { return is_bias(input.first); }))
    backward_of_call(entry, cotangent, is_bias);
}

void Graph::tell_cast(const Entry& entry, bool backward, const std::string& tensor, const TensorView& from,
                      const TensorView& got) {
  if (options_.calls == nullptr) return;
  wait();
  options_.calls->see_cast(
      {options_.step, options_.rank, backward || entry.of_backward, entry.name, entry.layer, tensor, from, got});
}

void Graph::tell_call(const Entry& entry, const TensorView* cotangent,
                      const std::vector<std::pair<std::string, Tensor>>& gradients) {
  if (options_.calls == nullptr || inferring_) return;
  wait();
  LiveCall live{options_.step, options_.rank, entry.name, entry.layer, *entry.op, entry.call.call, {}, {}};
  const auto shadow = [&](const TensorView& got, const std::vector<double>& exact) {
    live.shadowed.push_back({got, view_of(exact, got.shape)});
  };
  for (const auto& [name, id] : entry.call.inputs) live.tensors.emplace_back(name, slot(id).view);
  live.tensors.emplace_back(entry.call.output_name, slot(entry.to).view);
  for (const auto& [name, tensor] : entry.saved) live.tensors.emplace_back(name, tensor.view());
  if (entry.exact) shadow(slot(entry.to).view, entry.exact->output());
  if (cotangent != nullptr) live.tensors.emplace_back(gradient_name(entry.call.output_name), *cotangent);
  for (const auto& [name, gradient] : gradients) {
    live.tensors.emplace_back(gradient_name(name), gradient.view());
    if (entry.exact) shadow(gradient.view(), entry.exact->gradient(name));
  }
  options_.calls->see_call(live);
}

models::Var Graph::norm(const std::vector<Var>& tensors, float factor) {
  Entry entry;
  entry.kind = Entry::Kind::norm;
  entry.name = "norm_" + std::to_string(++counts_["norm"]);
  entry.factor = factor;
  bool needs_grad = false, all = true;
  double sum = 0;
  const MemoryScope scope(options_.memory);
  wait();
  for (const Var x : tensors) {
    if (x.id < 0) continue;
    entry.parts.push_back(x.id);
    needs_grad |= slot(x.id).needs_grad;
    float part[kBlock];
    for (std::int64_t i = 0; i < slot(x.id).view.count(); i += kBlock) {
      const std::int64_t n = std::min<std::int64_t>(kBlock, slot(x.id).view.count() - i);
      load_block(slot(x.id).view, i, n, part);
      for (std::int64_t k = 0; k < n; ++k) {
        const float v = factor * part[k];
        sum += static_cast<double>(v) * static_cast<double>(v);
      }
    }
    if (watched(entry.name) || options_.fault) all &= finite(x.id);
  }
  const auto value = static_cast<float>(std::sqrt(sum));
  Tensor out = seed_of({nullptr, Dtype::fp32, Shape{1}, row_major_strides(Shape{1})}, value);
  entry.to = push(out, out.shape(), needs_grad);
  if (watched(entry.name) || options_.fault) tell(entry, Phase::forward, "y", slot(entry.to).view, TensorView(), all);
  entries_.push_back(std::move(entry));
  return {entries_.back().to};
}

/// Of n = |f x|: dx = dn f (f x) / n.
void Graph::backward_norm(Entry& entry) {
  float dn = 0, n = 0;
  wait();
  load_block(slot(entry.to).grad.view(), 0, 1, &dn);
  load_block(slot(entry.to).view, 0, 1, &n);
  for (const int id : entry.parts) {
    Tensor out = Tensor::uninitialized(slot(id).view.dtype, slot(id).view.shape);
    float part[kBlock];
    for (std::int64_t i = 0; i < out.count(); i += kBlock) {
      const std::int64_t count = std::min<std::int64_t>(kBlock, out.count() - i);
      load_block(slot(id).view, i, count, part);
      for (std::int64_t k = 0; k < count; ++k) part[k] = dn * (entry.factor * part[k] / n) * entry.factor;
      store_block(out.view(), i, count, part);
    }
    add_grad(id, out);
  }
}

void Graph::backward_gradient(Entry& entry) {
  const Entry& forward = entries_[entry.forward];
  const std::string dy = gradient_name(forward.call.output_name);
  kernels::KernelCall kernel;
  kernel.attributes = &forward.call.call.attributes;
  const bool told = watched(entry.name) || options_.fault != nullptr;
  bool cotangents_finite = true, all = !told || (inputs_finite(forward) && finite(entry.cotangent));
  std::vector<std::pair<std::string, Tensor>> read, written;
  for (const auto& [name, id] : forward.call.inputs) kernel.tensors.emplace_back(name, slot(id).view);
  for (const auto& [name, tensor] : forward.saved) kernel.tensors.emplace_back(name, tensor.view());
  kernel.tensors.emplace_back(dy, cotangent_view(forward, slot(entry.cotangent).view));
  for (const auto& [name, id] : entry.gradients) {
    if (!slot(id).grad.defined()) continue;
    if (told) cotangents_finite &= grad_finite(id);
    TensorView g = slot(id).grad.view();  // which a reshape may have left in another shape
    g.shape = slot(id).view.shape;
    g.strides = slot(id).view.strides;
    kernel.tensors.emplace_back("dgrad_" + name, g);
  }
  std::vector<std::pair<int, Tensor>> out;
  const auto add = [&](const std::string& name, int id, const Shape& shape) {
    out.emplace_back(id, Tensor(slot(id).view.dtype, shape));
    written.emplace_back(name, out.back().second);
    kernel.tensors.emplace_back(name, out.back().second.view());
  };
  for (const auto& [name, id] : forward.call.inputs)
    if (slot(id).needs_grad && forward.op->signature.input(name)->has_gradient())
      add(gradient_name(name), id, slot(id).view.shape);
  if (slot(entry.cotangent).needs_grad) add(gradient_name(dy), entry.cotangent, slot(forward.to).view.shape);
  wait();
  double_backward(*forward.op, kernel);
  std::unique_ptr<models::SecondEvaluation> exact;
  if (shadowed(entry.name)) {
    const auto integers = [&](const std::string& name) { return to_doubles(kernel.at(name)); };
    exact =
        std::make_unique<models::SecondEvaluation>(recordings_.second_order(*forward.op, forward.call.call, integers));
    for (const auto& [name, view] : kernel.tensors)
      if (is_float(view.dtype) &&
          std::none_of(written.begin(), written.end(),
                       [&, wanted = std::string_view(name)](const auto& w) { return w.first == wanted; }))
        exact->set(name, to_doubles(view));
  }
  all &= cotangents_finite;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto& [name, tensor] = written[i];
    if (told)
      tell(entry, Phase::backward, name, tensor.view(),
           exact ? view_of(exact->gradient(name), tensor.shape()) : TensorView(), all, cotangents_finite);
    add_grad(out[i].first, tensor);
  }
}

void Graph::backward(float seed_value, double scale, bool retain_graph) {
  require_kept("backward");
  const MemoryScope scope(options_.memory);
  compare_inference();
  scale_ = scale;
  for (Slot& s : slots_) {
    s.grad = {};
    s.grad_seen.reset();
  }
  for (const auto& [id, weight] : losses_to_take())
    if (slot(id).needs_grad) add_grad(id, seed_of(slot(id).view, seed_value * static_cast<float>(weight)));
  taken_from_ = only_loss_ ? *only_loss_ : losses_.size() - losses_to_take().size();
  taken_to_ = losses_.size();
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    using enum Entry::Kind;
    const bool asked = entry->kind == gradient
                           ? std::any_of(entry->gradients.begin(), entry->gradients.end(),
                                         [&](const auto& g) { return slot(g.second).grad.defined(); })
                           : slot(entry->to).grad.defined();
    if (asked) {
      switch (entry->kind) {
        case call: backward_call(*entry); break;
        case cast: backward_cast(*entry); break;
        case move:
        case spread: backward_move(*entry); break;
        case add:
          add_grad(entry->from, slot(entry->to).grad);
          add_grad(entry->other, slot(entry->to).grad);
          break;
        case norm: backward_norm(*entry); break;
        case gradient: backward_gradient(*entry); break;
      }
    }
    if (!retain_graph) {
      entry->saved.clear();
      entry->exact.reset();
    }
  }
  freed_ = !retain_graph;
  for (auto& [name, id] : parameter_slots_) {
    Slot& s = slot(id);
    if (!s.grad.defined()) continue;
    // A gradient that nothing else will read is the parameter's as it is.
    const bool alone = !retain_graph && !s.parameter->grad.defined() && s.grad.shape() == s.view.shape &&
                       std::count_if(slots_.begin(), slots_.end(), [&](const Slot& other) {
                         return other.grad.defined() && other.grad.data() == s.grad.data();
                       }) == 1;
    if (alone)
      s.parameter->grad = s.grad;
    else
      add_to_parameter(id, s.grad);
  }
}

void Graph::backward_of(std::size_t k, float seed_value, double scale, bool retain_graph) {
  only_loss_ = k;
  backward(seed_value, scale, retain_graph);
  only_loss_.reset();
}

std::vector<float> Graph::losses() const {
  wait();
  std::vector<float> out;
  for (const auto& [id, weight] : losses_) out.push_back(static_cast<float>(to_doubles(slots_[at(id)].view).front()));
  return out;
}

std::vector<models::Var> Graph::parameter_vars() const {
  std::vector<Var> out;
  for (const auto& [name, id] : parameter_slots_) out.push_back({id});
  return out;
}

std::vector<std::pair<std::string, Tensor>> Graph::parameter_gradients() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const auto& [name, id] : parameter_slots_)
    if (const Slot& s = slots_[at(id)]; s.grad.defined()) out.emplace_back(s.parameter->name, s.grad);
  return out;
}

std::vector<models::Var> Graph::gradients(const std::vector<Var>& inputs, float seed_value, double scale) {
  require_kept("gradients");
  const MemoryScope scope(options_.memory);
  gradient_scale_ = scale;
  std::vector<int> cotangents(slots_.size(), -1);
  for (const auto& [id, weight] : losses_to_take())
    if (slot(id).needs_grad)
      accumulate(cotangents, id,
                 push(seed_of(slot(id).view, seed_value * static_cast<float>(weight)), slot(id).view.shape, false));
  for (std::size_t i = entries_.size(); i-- > 0;) record_backward(i, cotangents);
  std::vector<Var> out;
  for (const Var x : inputs) out.push_back({cotangents[at(x.id)]});
  return out;
}

void Graph::accumulate(std::vector<int>& cotangents, int id, int more) {
  if (!slot(id).needs_grad) return;
  int& sum = cotangents[at(id)];
  if (sum < 0) {
    sum = more;
    return;
  }
  Entry entry;
  entry.kind = Entry::Kind::add;
  entry.of_backward = true;
  entry.from = sum;
  entry.other = more;
  Tensor value = sum_of(slot(sum).view, slot(more).view);
  sum = entry.to = push(value, slot(sum).view.shape, slot(sum).needs_grad || slot(more).needs_grad);
  entries_.push_back(std::move(entry));
}

void Graph::record_backward(std::size_t index, std::vector<int>& cotangents) {
  using enum Entry::Kind;
  const Entry& forward = entries_[index];
  const bool again =
      forward.kind == gradient && std::any_of(forward.gradients.begin(), forward.gradients.end(),
                                              [&](const auto& g) { return cotangents[at(g.second)] >= 0; });
  if (again || (forward.kind == norm && cotangents[at(forward.to)] >= 0))
    throw Error(
        "[graph] gradients, got a loss that depends on gradients or on norm(), want it before they come in: no third "
        "order");
  if (forward.kind == gradient || cotangents[at(forward.to)] < 0) return;
  const int g = cotangents[at(forward.to)];
  Entry entry;
  entry.of_backward = true;
  entry.from = g;
  switch (forward.kind) {
    case call: return record_call_backward(index, cotangents);
    case cast: {
      entry.name = forward.name + "_backward";
      entry.layer = forward.layer;
      entry.label = "grad_" + forward.label;
      const int from = forward.from,
                out = put_cast(std::move(entry), converted(slot(g).view, slot(from).view.dtype), CastFrom::made);
      return accumulate(cotangents, from, out);
    }
    case add: {
      const int from = forward.from, other = forward.other;
      accumulate(cotangents, from, g);
      return accumulate(cotangents, other, g);
    }
    default: break;
  }
  const Shape shape = slot(forward.from).view.shape;
  const int from = forward.from;
  entry.kind = forward.map.empty() || forward.kind == spread ? move : spread;
  entry.map = forward.map;
  const Tensor value = forward.map.empty()  ? slot(g).memory
                       : entry.kind == move ? picked(slot(g).view, entry.map, shape)
                                            : this->spread(slot(g).view, entry.map, shape);
  const int out = entry.to = push(value, shape, slot(g).needs_grad);
  entries_.push_back(std::move(entry));
  accumulate(cotangents, from, out);
}

void Graph::record_call_backward(std::size_t index, std::vector<int>& cotangents) {
  Entry entry;
  entry.kind = Entry::Kind::gradient;
  entry.of_backward = true;
  entry.forward = index;
  entry.name = entries_[index].name + "_backward";
  entry.layer = entries_[index].layer;
  entry.call.output_name = entries_[index].call.output_name;
  entry.cotangent = cotangents[at(entries_[index].to)];
  const Entry& forward = entries_[index];
  const bool told = watched(entry.name) || options_.fault != nullptr,
             cotangent_finite = !told || finite(entry.cotangent),
             all = cotangent_finite && (!told || inputs_finite(forward));
  std::vector<std::pair<int, int>> parts;
  for (auto& [name, gradient] : run_backward(forward, slot(entry.cotangent).view, every_input)) {
    if (told)
      tell(entry, Phase::forward, "grad_" + name, gradient.view(),
           forward.exact ? view_of(forward.exact->gradient(name), gradient.shape()) : TensorView(), all,
           cotangent_finite);
    const auto input = std::find_if(forward.call.inputs.begin(), forward.call.inputs.end(),
                                    [&, wanted = std::string_view(name)](const auto& i) { return i.first == wanted; });
    const Shape shape = gradient.shape();
    const int id = push(std::move(gradient), shape, true);
    entry.gradients.emplace_back(name, id);
    parts.emplace_back(input->second, id);
  }
  entries_.push_back(std::move(entry));
  for (const auto& [input, id] : parts) accumulate(cotangents, input, id);
}

}  // namespace ampcheck::checks::train
