// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/data/extent_cases.h"

#include <algorithm>

namespace ampcheck::checks {

namespace {

bool valid(const OpSignature& signature, const OpCall& call) {
  if (signature.valid && !signature.valid(call.dims, call.attributes)) return false;
  for (const TensorSpec& spec : signature.inputs) {
    const auto bound = call.dims.find(spec.index_dim);
    if (bound != call.dims.end() && bound->second == 0 && call.has(spec) && call.shape(spec).count() > 0) return false;
  }
  return true;
}

/// Gives the dimensions that neither vary nor are fixed their least extents with which the op takes the call.
bool complete(const OpSignature& signature, const std::string& varies, const Dims& fixed, OpCall& call) {
  const std::int64_t extent = call.dims.at(varies);
  const auto with = [&](const auto& other) {
    for (const DimSpec& dim : signature.dims)
      if (dim.symbol != varies && !fixed.contains(dim.symbol)) call.dims[dim.symbol] = other(dim);
    return valid(signature, call);
  };
  for (const std::int64_t small : {2, 1})
    if (with([&](const DimSpec&) { return small; })) return true;
  for (const std::size_t k : {0u, 1u, 2u})
    if (with([&](const DimSpec& dim) { return dim.standard[k]; })) return true;
  return with([&](const DimSpec&) { return extent; });
}

}  // namespace

std::vector<OpCall> cases_of_extents(const OpSignature& signature, Dtype storage,
                                     std::map<std::string, ExtentRange> ranges, const Dims& fixed, std::uint64_t seed) {
  const std::vector<Dtype>& allowed = signature.precision.storage;
  if (std::find(allowed.begin(), allowed.end(), storage) == allowed.end()) return {};
  if (ranges.empty())
    for (const DimSpec& dim : signature.dims) ranges[dim.symbol] = {};
  std::vector<OpCall> out;
  for (const DimSpec& dim : signature.dims) {
    const auto range = ranges.find(dim.symbol);
    if (range == ranges.end()) continue;
    for (std::int64_t extent = range->second.first; extent <= range->second.last; ++extent) {
      OpCall call = default_call(signature, storage);
      call.seed = seed;
      for (const auto& [symbol, value] : fixed)
        if (call.dims.contains(symbol)) call.dims[symbol] = value;
      call.dims[dim.symbol] = extent;
      if (complete(signature, dim.symbol, fixed, call)) out.push_back(std::move(call));
    }
  }
  return out;
}

}  // namespace ampcheck::checks
