// SPDX-License-Identifier: Apache-2.0
// Layers as objects, and in sequence: `Sequential{Linear{"in", 64}, Unary{"gelu"}, Linear{"out", 10}}(tape, x)`.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "checks/models/layers.h"

namespace ampcheck::checks::models {

/// What a layer makes of one tensor. Names of layers are those of their trained tensors: one layer called twice shares
/// them.
using Module = std::function<Var(Tape&, Var)>;

/// [N, K] to [N, outputs].
struct Linear {
  std::string name;
  std::int64_t outputs;
  Var operator()(Tape& t, Var x) const { return linear(t, name, x, outputs); }
};

/// An op of one input without weights, at any shape: "relu", "gelu", "softmax", ...
struct Unary {
  std::string op;
  Var operator()(Tape& t, Var x) const { return unary(t, op.c_str(), x); }
};

/// Over the columns of [N, D].
struct LayerNorm {
  std::string name;
  Var operator()(Tape& t, Var x) const { return layer_norm(t, name, x); }
};
struct RmsNorm {
  std::string name;
  Var operator()(Tape& t, Var x) const { return rms_norm(t, name, x); }
};

/// Indices [N] below `rows` to [N, columns].
struct Embedding {
  std::string name;
  std::int64_t rows, columns;
  Var operator()(Tape& t, Var index) const {
    return t.call("embedding", {{"weight", t.weight(name + ".weight", {rows, columns}, 4)}, {"index", index}});
  }
};

/// Self-attention over [passages * time, D], each row seeing those of its passage before it.
struct CausalAttention {
  std::string name;
  std::int64_t heads, time;
  Var operator()(Tape& t, Var x) const { return causal_attention(t, name, x, heads, time); }
};

/// x + inside(x).
struct Residual {
  Module inside;
  Var operator()(Tape& t, Var x) const { return add(t, x, inside(t, x)); }
};

/// One after the other; a Module itself.
class Sequential {
 public:
  Sequential(std::initializer_list<Module> modules) : modules_(modules) {}
  Var operator()(Tape& t, Var x) const {
    for (const Module& module : modules_) x = module(t, x);
    return x;
  }

 private:
  std::vector<Module> modules_;
};

}  // namespace ampcheck::checks::models
