// SPDX-License-Identifier: Apache-2.0
// What both nets are made of: trained layers and one-input ops.
#pragma once

#include <string>
#include <vector>

#include "checks/models/tape.h"
#include "src/error.h"

namespace ampcheck::checks::models {

/// An op of one input "x", at any shape.
inline Var unary(Tape& t, const char* op, Var x) {
  const Shape shape = t.shape(x);
  const bool flat = shape.rank == 2;
  const Var y = t.call(op, {{"x", flat ? x : t.reshape(x, {shape[0], shape.count() / shape[0]})}});
  return flat ? y : t.reshape(y, shape);
}

inline Var add(Tape& t, Var x, Var y) { return t.call("add", {{"x", x}, {"y", y}}); }
inline Var mul(Tape& t, Var x, Var y) { return t.call("mul", {{"x", x}, {"y", y}}); }

/// x [N, K] to [N, outputs].
inline Var linear(Tape& t, const std::string& name, Var x, std::int64_t outputs) {
  const std::int64_t inputs = t.shape(x)[1];
  return t.call("linear", {{"x", x},
                           {"weight", t.weight(name + ".weight", {outputs, inputs}, inputs)},
                           {"bias", t.constant_start(name + ".bias", {outputs}, 0)}});
}

/// x [N, C, H, W] to [N, outputs, H, W] by 3x3 windows.
inline Var conv3x3(Tape& t, const std::string& name, Var x, std::int64_t outputs) {
  const std::int64_t inputs = t.shape(x)[1];
  return t.call("conv2d",
                {{"x", x},
                 {"weight", t.weight(name + ".weight", {outputs, inputs, 3, 3}, 9 * inputs)},
                 {"bias", t.constant_start(name + ".bias", {outputs}, 0)}},
                {{"padding", 1}});
}

inline Var layer_norm(Tape& t, const std::string& name, Var x) {
  const std::int64_t d = t.shape(x)[1];
  return t.call("layer_norm", {{"x", x},
                               {"weight", t.constant_start(name + ".weight", {d}, 1)},
                               {"bias", t.constant_start(name + ".bias", {d}, 0)}});
}

inline Var rms_norm(Tape& t, const std::string& name, Var x) {
  return t.call("rms_norm", {{"x", x}, {"weight", t.constant_start(name + ".weight", {t.shape(x)[1]}, 1)}});
}

/// Sums of the rows: [N, D] to [N, 1].
inline Var row_sums(Tape& t, Var x) { return t.call("sum", {{"x", x}}); }

/// Mean of [N, 1] or [N]: one element.
inline Var mean_all(Tape& t, Var x) { return t.call("mean", {{"x", t.reshape(x, {1, t.shape(x).count()})}}); }

/// [N, 1], or one element, to [N, columns] by repetition.
inline Var repeated(Tape& t, Var x, std::int64_t rows, std::int64_t columns) {
  const bool one = t.shape(x).count() == 1;
  std::vector<std::int64_t> map;
  for (std::int64_t i = 0; i < rows * columns; ++i) map.push_back(one ? 0 : i / columns);
  return t.take(x, map, {rows, columns});
}

/// [a, b, c, d] to [a, c, b, d] with the two middle axes exchanged, seen as `shape`.
inline Var exchanged(Tape& t, Var x, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d,
                     const Shape& shape) {
  std::vector<std::int64_t> map;
  for (std::int64_t i = 0; i < a; ++i)
    for (std::int64_t k = 0; k < c; ++k)
      for (std::int64_t j = 0; j < b; ++j)
        for (std::int64_t l = 0; l < d; ++l) map.push_back(((i * b + j) * c + k) * d + l);
  return t.take(x, map, shape);
}

/// Self-attention over [passages * time, D] by heads, each row seeing those of its passage before it.
inline Var causal_attention(Tape& t, const std::string& name, Var x, std::int64_t heads, std::int64_t time) {
  const std::int64_t rows = t.shape(x)[0] / time, width = t.shape(x)[1], each = width / heads;
  if (width % heads != 0)
    throw Error("heads, got " + std::to_string(heads) + " of " + std::to_string(width) + " columns, want a divisor");
  if (t.shape(x)[0] % time != 0)
    throw Error("input, got " + t.shape(x).str() + ", want passages of " + std::to_string(time) + " rows");
  const auto by_heads = [&](const char* which) {
    return exchanged(t, linear(t, name + "." + which, x, width), rows, time, heads, each, {rows, heads, time, each});
  };
  const Var q = by_heads("q"), k = by_heads("k"), v = by_heads("v");
  const Var o = t.call("attention", {{"q", q}, {"k", k}, {"v", v}});
  return linear(t, name + ".out", exchanged(t, o, rows, heads, time, each, {rows * time, width}), width);
}

}  // namespace ampcheck::checks::models
