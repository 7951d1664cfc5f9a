// SPDX-License-Identifier: Apache-2.0
// What a graph computes twice: activations that are not kept for the backward, and an inference beside the training.
#include <utility>

#include "checks/train/graph_entry.h"
#include "src/amp/grad_mode.h"

namespace ampcheck::checks::train {

void Graph::note_made(const Entry& call) {
  if (!inferring_) outputs_[call.name] = call.to;
  (inferring_ ? inferred_ : made_).push_back({call.name, call.layer, call.to});
}

void Graph::compare_passes(std::size_t from, std::size_t second) {
  if (options_.observer == nullptr || !options_.observer->wants_twice()) return;
  wait();
  for (std::size_t i = 0; from + i < second && second + i < made_.size(); ++i) {
    const Made &one = made_[from + i], &two = made_[second + i];
    if (one.op != two.op || !(slot(one.output).view.shape == slot(two.output).view.shape)) return;  // another block
    options_.observer->see_twice(
        {options_.step, options_.rank, false, one.op, one.layer, slot(one.output).view, slot(two.output).view});
  }
}

void Graph::compare_inference() {
  if (options_.observer == nullptr || !options_.observer->wants_twice()) return;
  wait();
  for (const Made& by_inference : inferred_) {
    const auto own = outputs_.find(by_inference.op);
    if (own == outputs_.end()) continue;
    const TensorView &one = slot(own->second).view, &two = slot(by_inference.output).view;
    if (one.shape == two.shape)
      options_.observer->see_twice({options_.step, options_.rank, true, by_inference.op, by_inference.layer, one, two});
  }
  inferred_.clear();
}

/// The values of one tensor, whose gradient goes to another.
models::Var Graph::stand_in(Var value, Var gradient) {
  if (value.id == gradient.id) return value;
  Entry entry;
  entry.from = gradient.id;
  const bool same_type = slot(value.id).view.dtype == slot(gradient.id).view.dtype;
  entry.kind = same_type ? Entry::Kind::move : Entry::Kind::cast;
  entry.name = "recompute_" + std::to_string(++counts_["recompute"]);
  entry.label = "y";
  entry.to = push(slot(value.id).memory, slot(value.id).view.shape, slot(gradient.id).needs_grad);
  slot(entry.to).finite = slot(value.id).finite;
  slot(entry.to).source = slot(value.id).source;
  const Var out{entry.to};
  keep(std::move(entry));
  return out;
}

models::Var Graph::recompute(const std::function<Var(bool again)>& block) {
  if (options_.keep_activations || !grad_enabled() || again_) return block(false);
  const std::map<std::string, int> before = counts_;
  const std::size_t first = made_.size();
  Var value;
  {
    const NoGrad off;
    value = block(false);
  }
  const std::size_t second = made_.size();
  counts_ = before;
  again_ = true;
  const Var gradient = block(true);
  again_ = false;
  compare_passes(first, second);
  return stand_in(value, gradient);
}

models::Var Graph::infer(const std::function<Var()>& block) {
  const NoGrad off;
  std::map<std::string, int> counts = std::exchange(counts_, {});
  inferring_ = true;
  const Var out = block();
  inferring_ = false;
  counts_ = std::move(counts);
  return out;
}

}  // namespace ampcheck::checks::train
