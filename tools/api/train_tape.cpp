// SPDX-License-Identifier: Apache-2.0
// The tape, regions and layers of ampcheck/train.h: each is one of ours.
#include <algorithm>

#include "checks/models/bound_call.h"
#include "checks/models/layers.h"
#include "checks/models/modules.h"
#include "src/amp/autocast.h"
#include "src/amp/grad_mode.h"
#include "src/random.h"
#include "tools/api/train_types.h"

namespace ampcheck::train {

namespace models = checks::models;

namespace {

models::Tape& inner(Tape& tape) { return Internals::of(tape); }
models::Var inner(Var x) { return {x.id}; }
Var outer(models::Var x) { return {x.id}; }

/// Where the tensors of a tape are of another, or of none, a number alone does not say.
void require_var(Var x, const char* what) {
  if (x.id < 0) throw UsageError(std::string("[tape] ") + what + ", got no tensor, want one of this tape");
}

/// The op, and each name that is given is one of its own.
void require_call(const std::string& name, const Inputs& inputs, const Attributes& attributes) {
  const OpSignature* signature = nullptr;
  try {
    signature = &models::op_of_call(name).signature;
  } catch (const ampcheck::EnvironmentError&) {
    throw UsageError("[tape] call, got unknown op '" + name + "', want a built-in one or one of use_library()");
  }
  for (const auto& [input, x] : inputs) {
    if (signature->input(input) == nullptr)
      throw UsageError("[tape] call of " + name + ", got input '" + input + "', which it does not have");
    require_var(x, input.c_str());
  }
  for (const auto& given : attributes)
    if (std::none_of(signature->attributes.begin(), signature->attributes.end(),
                     [&](const AttributeSpec& spec) { return spec.name == given.first; }))
      throw UsageError("[tape] call of " + name + ", got attribute '" + given.first + "', which it does not have");
}

}  // namespace

Var Tape::data(const Shape& shape, std::vector<double> values) {
  return with_public_errors([&] {
    const ampcheck::Shape extents = inner_shape(shape);
    if (std::ssize(values) != extents.count())
      throw UsageError("[tape] data, got " + std::to_string(values.size()) + " values, want " + extents.str());
    return outer(tape_.data(extents, std::move(values)));
  });
}

Var Tape::parameter(const std::string& name, const Shape& shape, double offset, double scale) {
  return with_public_errors([&] { return outer(tape_.parameter(name, inner_shape(shape), offset, scale)); });
}

Var Tape::weight(const std::string& name, const Shape& shape, std::int64_t fan_in) {
  if (fan_in < 1) throw UsageError("[tape] fan_in, got " + std::to_string(fan_in) + ", want at least 1");
  return with_public_errors([&] { return outer(tape_.weight(name, inner_shape(shape), fan_in)); });
}

Var Tape::constant_start(const std::string& name, const Shape& shape, double value) {
  return parameter(name, shape, value, 0);
}

Var Tape::call(const std::string& op, const Inputs& inputs, const Attributes& attributes) {
  return with_public_errors([&] {
    require_call(op, inputs, attributes);
    std::vector<std::pair<std::string, models::Var>> ours;
    for (const auto& [name, x] : inputs) ours.emplace_back(name, inner(x));
    return outer(tape_.call(op, ours, attributes));
  });
}

Var Tape::reshape(Var x, const Shape& shape) {
  require_var(x, "reshape");
  return with_public_errors([&] {
    const ampcheck::Shape to = inner_shape(shape), from = tape_.shape(inner(x));
    if (to.count() != from.count())
      throw UsageError("[tape] reshape, got " + to.str() + ", want the elements of " + from.str());
    return outer(tape_.reshape(inner(x), to));
  });
}

Var Tape::take(Var x, const std::vector<std::int64_t>& map, const Shape& shape) {
  require_var(x, "take");
  return with_public_errors([&] {
    const ampcheck::Shape to = inner_shape(shape);
    const std::int64_t count = tape_.shape(inner(x)).count();
    if (std::ssize(map) != to.count())
      throw UsageError("[tape] take, got " + std::to_string(map.size()) + " indices, want " + to.str());
    for (const std::int64_t i : map)
      if (i < 0 || i >= count)
        throw UsageError("[tape] take, got index " + std::to_string(i) + ", want 0 to " + std::to_string(count - 1));
    return outer(tape_.take(inner(x), map, to));
  });
}

Var Tape::to(Var x, Dtype dtype) {
  require_var(x, "to");
  return with_public_errors([&] { return outer(tape_.to(inner(x), inner_dtype(dtype))); });
}

Shape Tape::shape(Var x) const {
  require_var(x, "shape");
  return public_shape(tape_.shape(inner(x)));
}

Dtype Tape::dtype(Var x) const {
  require_var(x, "dtype");
  return public_dtype(tape_.dtype(inner(x)));
}

void Tape::add_loss(Var value, double weight) {
  require_var(value, "add_loss");
  with_public_errors([&] { tape_.add_loss(inner(value), weight); });
}

struct Autocast::State {
  State(AutocastDevice device, const ampcheck::AutocastOptions& options) : region(device, options) {}
  ampcheck::Autocast region;
};

Autocast::Autocast(const Tape& tape, const AutocastOptions& options) {
  with_public_errors([&] {
    ampcheck::AutocastOptions ours{.dtype = {}, .enabled = options.enabled, .cache_enabled = options.cache_enabled};
    if (options.dtype) ours.dtype = inner_dtype(*options.dtype);
    state_ = std::make_unique<State>(Internals::of(tape).device(), ours);
  });
}
Autocast::~Autocast() = default;

struct NoGrad::State {
  ampcheck::NoGrad region;
};
NoGrad::NoGrad() : state_(std::make_unique<State>()) {}
NoGrad::~NoGrad() = default;

namespace {

/// One of our layers on the tape that the public one stands for.
template <class Layer>
Var layer(Tape& t, Var x, Layer make) {
  require_var(x, "layer");
  return with_public_errors([&] { return outer(make(inner(t), inner(x))); });
}

}  // namespace

Var linear(Tape& t, const std::string& name, Var x, std::int64_t outputs) {
  return layer(t, x, models::Linear{name, outputs});
}
Var unary(Tape& t, const std::string& op, Var x) { return layer(t, x, models::Unary{op}); }
Var layer_norm(Tape& t, const std::string& name, Var x) { return layer(t, x, models::LayerNorm{name}); }
Var rms_norm(Tape& t, const std::string& name, Var x) { return layer(t, x, models::RmsNorm{name}); }
Var conv3x3(Tape& t, const std::string& name, Var x, std::int64_t outputs) {
  return layer(t, x, [&](models::Tape& tape, models::Var in) { return models::conv3x3(tape, name, in, outputs); });
}
Var causal_attention(Tape& t, const std::string& name, Var x, std::int64_t heads, std::int64_t time) {
  return layer(t, x, models::CausalAttention{name, heads, time});
}
Var embedding(Tape& t, const std::string& name, Var index, std::int64_t rows, std::int64_t columns) {
  return layer(t, index, models::Embedding{name, rows, columns});
}
Var add(Tape& t, Var x, Var y) { return t.call("add", {{"x", x}, {"y", y}}); }
Var mul(Tape& t, Var x, Var y) { return t.call("mul", {{"x", x}, {"y", y}}); }
Var mean_all(Tape& t, Var x) {
  return layer(t, x, [](models::Tape& tape, models::Var in) { return models::mean_all(tape, in); });
}

std::vector<double> normals(std::uint64_t seed, std::string_view stream, std::uint64_t first, std::size_t count) {
  std::vector<double> out(count);
  Random(seed, stream).normals(first, out);
  return out;
}

}  // namespace ampcheck::train
