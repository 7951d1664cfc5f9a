// SPDX-License-Identifier: Apache-2.0
// Linear layers whose products read fp8 (checks/train/fp8.h). The values are those of the codes divided by their
// scales, in fp32: what is left out beside a product of codes is the rounding of that division to fp32.
#include "checks/train/graph_entry.h"
#include "src/amp/autocast.h"

namespace ampcheck::checks::train {

bool Graph::runs_in_fp8(const OpDef& op) const {
  return options_.fp8 != nullptr && op.signature.torch_op == std::string_view("linear") &&
         autocast_state(device()).enabled;
}

Tensor Graph::read_in_fp8(Entry& cast, Phase phase, const std::string& tensor, const TensorView& from) {
  wait();
  const bool backward = phase == Phase::backward;
  const Fp8Rank::Cast made = options_.fp8->quantize(cast.name + "." + tensor, backward, from);
  cast.kind = Entry::Kind::cast;
  cast.quantized_by = static_cast<double>(made.scale);
  if (watched(cast.name) || options_.fault) {
    const bool finite = all_finite(from);
    tell(cast, phase, tensor, made.codes.view(), made.scaled.view(), finite, finite);
  }
  Tensor wide = options_.fp8->widened(made);
  if (options_.calls != nullptr)
    options_.calls->see_fp8({options_.step, options_.rank, backward, cast.name, cast.layer, tensor, from,
                             made.codes.view(), made.scale, wide.view()});
  return wide;
}

/// Activations are in 16 bits before, weights are taken as they are; a bias is added in fp32.
std::vector<std::pair<std::string, int>> Graph::fp8_inputs(const OpDef& op, const Entry& call) {
  used_autocast_ = true;
  std::vector<std::pair<std::string, int>> out;
  for (const auto& [name, id] : call.call.inputs) {
    const Role role = op.signature.input(name)->role;
    const int narrow = role == Role::weight ? id : cast(id, call.between, call.name, call.layer, name, true);
    if (role == Role::bias) {
      out.emplace_back(name, cast(narrow, Dtype::fp32, call.name, call.layer, name, false));
      continue;
    }
    Entry entry;
    entry.from = narrow;
    entry.name = call.name;
    entry.layer = call.layer;
    entry.label = name;
    entry.in_fp8 = true;
    entry.between = call.between;
    Tensor wide = read_in_fp8(entry, Phase::forward, name, slot(narrow).view);
    entry.to = push(std::move(wide), slot(narrow).view.shape, slot(narrow).needs_grad);
    slot(entry.to).cast_of = narrow;
    out.emplace_back(name, entry.to);
    keep(std::move(entry));
  }
  return out;
}

/// A gradient passes a rounding to fp8 as it is. It is written in 16 bits, whatever its parameter has.
void Graph::backward_quantized(Entry& entry) {
  const TensorView g = slot(entry.to).grad.view();
  const Tensor narrow = converted(g, entry.between);
  Entry cast;
  cast.kind = Entry::Kind::cast;
  cast.name = entry.name;
  cast.layer = entry.layer;
  cast.from = cast.to = entry.to;
  const std::string label = gradient_name(entry.label);
  std::optional<Seen> seen;
  if (watched(entry.name) || options_.fault)
    seen = tell(cast, Phase::backward, label, narrow.view(), g, grad_finite(entry.to), grad_finite(entry.to));
  tell_cast(cast, true, label, g, narrow.view());
  const Dtype wanted = slot(entry.from).view.dtype;
  const bool keeps = options_.keep_low_precision_grads && slot(entry.from).parameter != nullptr;
  if (wanted == entry.between || keeps) return add_grad(entry.from, narrow, std::move(seen));
  add_grad(entry.from, converted(narrow.view(), wanted));
}

}  // namespace ampcheck::checks::train
