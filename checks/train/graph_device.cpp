// SPDX-License-Identifier: Apache-2.0
// What a graph does to whole tensors: on the host at once, or on its stream by kernels of the same bits.
#include <algorithm>
#include <cstring>

#include "checks/case/launch.h"
#include "checks/train/graph_entry.h"
#include "kernels/tensor_ops.h"
#include "src/amp/blocks.h"

namespace ampcheck::checks::train {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Tensor numbers(const std::vector<std::int64_t>& values) {
  Tensor out = Tensor::uninitialized(Dtype::i64, {std::ssize(values)});
  std::copy(values.begin(), values.end(), out.span<std::int64_t>().begin());
  return out;
}

}  // namespace

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

bool accumulates(const OpDef& op, const std::string& name) {
  const auto& added = op.signature.launch.accumulates;
  return std::find(added.begin(), added.end(), name) != added.end();
}

void Graph::run(const kernels::KernelFn& kernel, const kernels::KernelCall& call) const {
  if (options_.stream != nullptr) return options_.stream->launch(kernel, call);
  const RunningLaunch running;  // a user's may never return
  kernel(call);
}

TensorView Graph::exact_of_cast(const TensorView& from, Dtype to, Tensor& held) const {
  if (!narrows(from.dtype, to)) return {};
  if (bytes(from.dtype) >= bytes(Dtype::fp32)) return from;
  held = converted(from, Dtype::fp32);
  return held.view();
}

void Graph::wait_to_put(const char* what, std::int64_t size) const {
  if (options_.stream == nullptr) return;
  const std::int64_t launched = options_.stream->launches() - launches_before_;
  if (launched > 0 && options_.observer != nullptr) {
    const std::string_view after = entries_.empty() ? std::string_view() : std::string_view(entries_.back().name);
    options_.observer->moved_late(
        {.step = options_.step, .what = what, .after = after, .launched = launched, .bytes = size});
  }
  wait();
}

Tensor Graph::converted(const TensorView& from, Dtype to) const {
  if (options_.stream == nullptr) return train::converted(from, to);
  Tensor out = Tensor::uninitialized(to, from.shape);
  run(kernels::convert_kernel, {.tensors = {{"x", from}, {"out", out.view()}}});
  return out;
}

/// x + y in a tensor of its own: x may be shared.
Tensor Graph::sum_of(const TensorView& x, const TensorView& y) const {
  if (options_.stream == nullptr) {
    Tensor out = train::converted(x, x.dtype);
    add_to(out.view(), y);
    return out;
  }
  Tensor out = Tensor::uninitialized(x.dtype, x.shape);
  run(kernels::sum_kernel, {.tensors = {{"x", x}, {"y", y}, {"out", out.view()}}});
  return out;
}

/// out[i] = x[map[i]].
Tensor Graph::picked(const TensorView& x, const std::vector<std::int64_t>& map, const Shape& shape) const {
  Tensor out = Tensor::uninitialized(x.dtype, shape);
  if (options_.stream != nullptr) {
    wait_to_put("map", std::ssize(map) * bytes(Dtype::i64));
    const Tensor index = numbers(map);
    run(kernels::take_kernel, {.tensors = {{"x", x}, {"index", index.view()}, {"out", out.view()}}});
    return out;
  }
  const auto size = at(bytes(x.dtype));
  for (std::size_t i = 0; i < map.size(); ++i)
    std::memcpy(static_cast<std::byte*>(out.data()) + i * size,
                static_cast<const std::byte*>(x.data) + at(map[i]) * size, size);
  return out;
}

/// out[map[i]] += x[i], in fp32 and rounded once.
Tensor Graph::spread(const TensorView& x, const std::vector<std::int64_t>& map, const Shape& shape) const {
  Tensor out = Tensor::uninitialized(x.dtype, shape);
  if (options_.stream != nullptr) {  // for each element of out, where its terms stand, in their order
    std::vector<std::int64_t> first(at(out.count()) + 1, 0), source(map.size());
    for (const std::int64_t to : map) ++first[at(to) + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<std::int64_t> next(first.begin(), first.end() - 1);
    for (std::size_t i = 0; i < map.size(); ++i) source[at(next[at(map[i])]++)] = static_cast<std::int64_t>(i);
    wait_to_put("map", (std::ssize(source) + std::ssize(first)) * bytes(Dtype::i64));
    const Tensor sources = numbers(source), firsts = numbers(first);
    run(kernels::spread_kernel,
        {.tensors = {{"x", x}, {"source", sources.view()}, {"first", firsts.view()}, {"out", out.view()}}});
    return out;
  }
  std::vector<float> sum(at(shape.count()), 0.0f), from(at(x.count()));
  load_block(x, 0, x.count(), from.data());
  for (std::size_t i = 0; i < from.size(); ++i) sum[at(map[i])] += from[i];
  store_block(out.view(), 0, out.count(), sum.data());
  return out;
}

/// For a kernel to write: zeros only where it adds to what is there.
Tensor Graph::written_whole(const OpDef& op, const std::string& name, Dtype dtype, const Shape& shape) const {
  if (!accumulates(op, name)) return Tensor::uninitialized(dtype, shape);
  if (options_.stream == nullptr) return {dtype, shape};
  Tensor out = Tensor::uninitialized(dtype, shape);
  run(kernels::zero_kernel, {.tensors = {{"out", out.view()}}});
  return out;
}

Tensor Graph::seed_of(const TensorView& loss, float value) const {
  wait();
  Tensor out(loss.dtype, loss.shape);
  store_block(out.view(), 0, 1, &value);
  return out;
}

/// The first gradient of a step is copied, as it may be a tensor of the graph.
void Graph::add_to_parameter(int id, const Tensor& grad) const {
  Parameter& parameter = *slots_[static_cast<std::size_t>(id)].parameter;
  TensorView more = grad.view();  // which a reshape may have left in another shape
  more.shape = parameter.value.shape();
  more.strides = row_major_strides(more.shape);
  Tensor before;
  if (parameter.grad.defined() && options_.observer != nullptr && options_.observer->wants_inputs())
    before = converted(parameter.grad.view(), parameter.grad.dtype());
  if (options_.stream == nullptr)
    ParameterSet::add_grad(parameter, grad);
  else
    parameter.grad = parameter.grad.defined() ? sum_of(parameter.grad.view(), more) : converted(more, more.dtype);
  if (before.defined()) tell_sum(id, parameter.grad.view(), before.view(), more);
}

}  // namespace ampcheck::checks::train
