// SPDX-License-Identifier: Apache-2.0
// What a model is written against: calls of built-in ops on tensors, moves of elements, and a loss. The same model then
// runs on any tape: in fp64 by the formulas (checks/models/fp64_tape.h), or by the kernels under autocast
// (checks/train/graph.h). Regions of autocast (src/amp/autocast.h) and of no_grad (src/amp/grad_mode.h) that a model
// opens hold on every tape; fp64 is exempt from the former.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/amp/autocast_tables.h"
#include "src/tensor.h"

namespace ampcheck::checks::models {

/// A tensor on the tape.
struct Var {
  int id = -1;
};

class Tape {
 public:
  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  virtual ~Tape() = default;

  virtual Var data(const Shape& shape, std::vector<double> values) = 0;
  /// A trained tensor that starts at `offset` + `scale` times normal numbers of its own stream.
  virtual Var parameter(const std::string& name, const Shape& shape, double offset, double scale) = 0;
  /// Calls a built-in op, or one of use_op(), on its inputs by name; attributes not given have their defaults.
  /// EnvironmentError if this build has no such op, Error for inputs that do not fit its signature.
  virtual Var call(const std::string& op, const std::vector<std::pair<std::string, Var>>& inputs,
                   const std::vector<std::pair<std::string, double>>& attributes = {}) = 0;
  /// The same elements under another shape.
  virtual Var reshape(Var x, const Shape& shape) = 0;
  /// y[i] = x[map[i]]: transposed, repeated or picked elements.
  virtual Var take(Var x, const std::vector<std::int64_t>& map, const Shape& shape) = 0;
  virtual const Shape& shape(Var x) const = 0;
  /// The same elements in another dtype, as a tensor's .to() or .float(); itself where it has that dtype, and on a tape
  /// in fp64.
  virtual Var to(Var x, Dtype) { return x; }
  virtual Dtype dtype(Var) const { return Dtype::fp64; }
  /// Whose regions of autocast its calls follow.
  virtual AutocastDevice device() const { return AutocastDevice::cpu; }
  /// Adds `weight` times a tensor of one element to the loss.
  virtual void add_loss(Var value, double weight) = 0;
  /// What `block` computes, keeping nothing of it for the backward: it is computed again there (torch's checkpoint).
  /// `again` tells the block which time it is. A tape in fp64 computes it once.
  virtual Var recompute(const std::function<Var(bool again)>& block) { return block(false); }
  /// What `block` computes, without gradients, as an inference engine would beside the training of the same net. It
  /// computes the net from its first op on: its calls go by the names of the training's, with which they are compared.
  virtual Var infer(const std::function<Var()>& block);

  /// A trained tensor: normal numbers / sqrt(fan_in) at the start.
  Var weight(const std::string& name, const Shape& shape, std::int64_t fan_in);
  /// A trained tensor that starts at one value throughout.
  Var constant_start(const std::string& name, const Shape& shape, double value) {
    return parameter(name, shape, value, 0);
  }
};

/// The values that a parameter starts at: a stream of its own for each net, name and seed.
std::vector<double> initial_values(const std::string& net, std::uint64_t seed, const std::string& name,
                                   const Shape& shape, double offset, double scale);

}  // namespace ampcheck::checks::models
