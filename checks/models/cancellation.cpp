// SPDX-License-Identifier: Apache-2.0
#include "checks/models/cancellation.h"

#include <algorithm>
#include <cmath>

#include "checks/define/rows.h"

namespace ampcheck::checks::models {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The leading symbols of dims are those of the rows.
bool begins_with(const std::vector<std::string>& dims, const std::vector<std::string>& rows) {
  return dims.size() >= rows.size() && std::equal(rows.begin(), rows.end(), dims.begin());
}

}  // namespace

Cancellation cancellation(const OpDef& op, const RecordedCall& call, Evaluation& evaluation) {
  const LaunchContract& launch = op.signature.launch;
  const std::vector<double> y = evaluation.output();
  const bool by_rows = holds(launch.row_independent, call.output_name) && rows_of(op.signature, call.call) > 0;
  const std::vector<std::string> symbols = OpSignature::symbols({.name = "", .dims = by_rows ? launch.row_dim : ""});
  std::int64_t rows = 1;
  for (const std::string& symbol : symbols) rows *= call.call.dims.at(symbol);
  Cancellation out;
  if (rows == 0 || y.empty() || std::ssize(y) % rows != 0) return out;
  const std::int64_t each = std::ssize(y) / rows;
  std::vector<double> cotangent(y.size(), 0.0), terms(at(rows), 0.0);
  const auto element = [&](std::int64_t row) { return at(row * each + row % each); };  // not one column throughout
  for (std::int64_t row = 0; row < rows; ++row) cotangent[element(row)] = 1;
  evaluation.set_cotangent(std::move(cotangent));
  bool any = false;
  for (const auto& [name, id] : call.inputs) {
    const TensorSpec& spec = *op.signature.input(name);
    const bool of_rows =
        holds(launch.row_independent, gradient_name(name)) && begins_with(OpSignature::symbols(spec), symbols);
    if (!spec.has_gradient() || (by_rows && !of_rows)) continue;
    const std::vector<double>&g = evaluation.gradient(name), &x = evaluation.input(name);
    const std::int64_t width = std::ssize(g) / rows;
    for (std::int64_t i = 0; i < std::ssize(g); ++i) terms[at(i / width)] += std::fabs(g[at(i)] * x[at(i)]);
    any = true;
  }
  std::int64_t finite = 0;
  for (std::int64_t row = 0; any && row < rows; ++row) {
    const double value = std::fabs(y[element(row)]), sum = terms[at(row)];
    if (!std::isfinite(value) || !std::isfinite(sum)) continue;
    const double bits = sum == 0 ? 0 : std::max(0.0, std::log2(sum / value));
    ++out.elements;
    out.most = std::max(out.most, bits);
    if (std::isfinite(bits)) {
      out.mean += bits;
      ++finite;
    }
  }
  if (finite > 0) out.mean /= static_cast<double>(finite);
  return out;
}

}  // namespace ampcheck::checks::models
