// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/stacks/dump_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "checks/case/case_run.h"
#include "checks/data/file_tensors.h"

namespace ampcheck::checks::stacks {

namespace {

/// What the tensor stores: its own type, or the op's where a wider tensor holds nothing else.
Dtype stored_in(const Tensor& tensor, const std::vector<double>& values, Dtype declared) {
  const bool holds = bytes(tensor.dtype()) > bytes(declared) && first_inexact(values, declared) < 0;
  return holds ? declared : tensor.dtype();
}

std::optional<Wrote> taken(const OpCall& call, Pass pass, const Written& like, const TensorFile& dump, Dtype declared) {
  const Tensor* const tensor = dump.find(like.name);
  if (tensor == nullptr || !is_float(tensor->dtype()) || tensor->count() != like.shape.count()) return std::nullopt;
  std::vector<double> values = to_doubles(tensor->view());
  const Dtype dtype = stored_in(*tensor, values, declared);
  return Wrote{&call, pass, {like.name, dtype, like.shape, false}, std::move(values), {}};
}

bool same_numbers(const Tensor& a, const Tensor& b, std::int64_t& differ) {
  const std::vector<double> x = to_doubles(a.view()), y = to_doubles(b.view());
  if (x.size() != y.size()) {
    differ = static_cast<std::int64_t>(std::max(x.size(), y.size()));
    return false;
  }
  differ = 0;
  for (std::size_t i = 0; i < x.size(); ++i) differ += !same(x[i], y[i]);
  return differ == 0;
}

}  // namespace

std::vector<Wrote> written_in(const OpDef& op, const OpCall& call, const TensorFile& dump) {
  const RunOptions options;
  CaseRun run(op, call, options);
  std::vector<Wrote> out;
  NamedValues cotangents;
  bool all = true;
  for (const Written& output : run.outputs) {
    if (output.saved) continue;
    if (auto wrote = taken(call, Pass::forward, output, dump, call.storage)) out.push_back(std::move(*wrote));
    const Tensor* const given = dump.find(gradient_name(output.name));
    all &= given != nullptr && given->count() == output.shape.count();
    if (given != nullptr) cotangents[gradient_name(output.name)] = to_doubles(given->view());
  }
  for (const Written& gradient : run.gradients) {
    if (!all) break;
    auto wrote = taken(call, Pass::backward, gradient, dump, gradient.dtype);
    if (!wrote) continue;
    wrote->cotangents = cotangents;
    out.push_back(std::move(*wrote));
  }
  return out;
}

std::vector<std::string> differing_inputs(const OpDef& op, const TensorFile& a, const TensorFile& b) {
  std::vector<std::string> names, out;
  for (const TensorSpec& spec : op.signature.inputs) names.push_back(spec.name);
  for (const OutputSpec& spec : op.signature.outputs) names.push_back(gradient_name(spec.name));
  for (const std::string& name : names) {
    const Tensor *const x = a.find(name), *const y = b.find(name);
    if (x == nullptr || y == nullptr) {
      if (x != y) out.push_back(name + " (on one side only)");
      continue;
    }
    std::int64_t differ = 0;
    if (!same_numbers(*x, *y, differ)) out.push_back(fmt::format("{} ({} of {} elements)", name, differ, x->count()));
  }
  return out;
}

std::optional<TensorFile> rows_of(const TensorFile& dump, std::int64_t extent, std::int64_t begin, std::int64_t count) {
  TensorFile out{dump.path, {}};
  bool any = false;
  for (const NamedTensor& named : dump.tensors) {
    const Tensor& whole = named.tensor;
    if (whole.shape().rank < 2 || whole.shape()[0] != extent) {
      out.tensors.push_back(named);
      continue;
    }
    any = true;
    Shape shape = whole.shape();
    shape[0] = count;
    Tensor part(whole.dtype(), shape);
    const std::size_t row =
        static_cast<std::size_t>(whole.count() / extent) * static_cast<std::size_t>(bytes(whole.dtype()));
    std::memcpy(part.data(), static_cast<const std::byte*>(whole.data()) + static_cast<std::size_t>(begin) * row,
                static_cast<std::size_t>(count) * row);
    out.tensors.push_back({named.name, std::move(part)});
  }
  if (!any) return std::nullopt;
  return out;
}

bool by_rows(const OpDef& op, const OpCall& call, const std::vector<Wrote>& wrote) {
  const RunOptions options;
  CaseRun run(op, call, options);
  return std::all_of(wrote.begin(), wrote.end(), [&](const Wrote& w) {
    return w.pass == Pass::forward && run.reference.by_row(0, w.pass, w.tensor.name);
  });
}

}  // namespace ampcheck::checks::stacks
