// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/doors/description_extents.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/certify/certify.h"
#include "src/error.h"
#include "src/extent.h"
#include "src/op_call.h"

namespace ampcheck::checks::description {

namespace {

/// Whether an input that is always there, or with `any` some input, has this symbol by itself.
bool stands_alone(const OpSignature& signature, const std::string& symbol, bool any) {
  return std::any_of(signature.inputs.begin(), signature.inputs.end(), [&](const TensorSpec& spec) {
    const std::vector<std::string> extents = OpSignature::symbols(spec);
    return (any || !spec.optional) && std::find(extents.begin(), extents.end(), symbol) != extents.end();
  });
}

void require_whole(const AttributeSpec& spec, const std::string& extent, const Place& at) {
  std::vector<AttributeValue> values = spec.other_values;
  values.push_back(spec.default_value);
  for (const AttributeValue& value : values)
    if (const double number = std::get<double>(value); number != std::floor(number))
      at.fail("dims, got " + number_text(number) + " for the attribute '" + spec.name +
              "', want whole numbers: the extent '" + extent + "' follows from it");
}

}  // namespace

void require_dim(const OpSignature& signature, const std::string& symbol, const char* what, const Place& place) {
  std::string list;
  for (const DimSpec& dim : signature.dims) list += (list.empty() ? "" : ", ") + dim.symbol;
  if (!has_dim(signature, symbol))
    place.fail(std::string(what) + ", got '" + symbol + "', want " +
               (list.empty() ? "a dim of that name (the op has none)" : "one of the dims " + list));
}

void FurtherExtents::note(const std::string& dims, const OpSignature& signature, const Place& at) {
  const std::vector<std::string> extents = extents_in(dims);
  if (extents.size() > static_cast<std::size_t>(kMaxRank))
    at.fail("dims, got " + std::to_string(extents.size()) + " dimensions, want at most 8");
  for (const std::string& extent : extents)
    if (!has_dim(signature, extent)) all_.push_back({extent, at});
}

void FurtherExtents::require_names(const Further& further, OpSignature& signature) {
  std::vector<std::string> names;
  try {
    names = names_in_extent(further.extent);
  } catch (const Error& error) {
    further.at.fail("dims, '" + further.extent + "', " + error.what());
  }
  for (const std::string& name : names) {
    const auto attribute = std::find_if(signature.attributes.begin(), signature.attributes.end(),
                                        [&](const AttributeSpec& spec) { return spec.name == name; });
    if (attribute != signature.attributes.end()) {
      require_whole(*attribute, further.extent, further.at);
      attribute->whole = true;
      continue;
    }
    require_dim(signature, name, "dims", further.at);
    if (!stands_alone(signature, name, false))
      further.at.fail("dims, got '" + further.extent + "', want '" + name +
                      "' by itself in an input that is not optional: its extent is read there");
  }
}

void FurtherExtents::settle(OpSignature& signature, const Place& op) const {
  for (const Further& further : all_) require_names(further, signature);
  for (const DimSpec& dim : signature.dims)
    if (!stands_alone(signature, dim.symbol, true)) op.fail("dim '" + dim.symbol + "', got no input that has it");
  if (all_.empty()) return;
  const Attributes defaults = reference::default_attributes(signature);
  std::vector<std::string> extents;
  for (const Further& further : all_) {
    extents.push_back(further.extent);
    for (std::size_t which = 0; which < 3; ++which)
      if (const Dims dims = reference::standard_dims(signature, which);
          !extents_exist({further.extent}, dims, defaults))
        further.at.fail("dims, got no extent of 0 or more for " + extent_origin(further.extent, dims, defaults) +
                        ", at sample shape " + std::to_string(which + 1));
  }
  signature.valid = [limits = std::move(signature.valid), extents](const Dims& dims, const Attributes& attributes) {
    return limits(dims, attributes) && extents_exist(extents, dims, attributes);
  };
}

void require_small_inputs(const OpSignature& signature, const Dims& dims, const Attributes& attributes,
                          const Place& place) {
  for (const TensorSpec& spec : signature.inputs) {
    std::string shape;
    double count = 1;  // a product of eight extents below 2^40 is one
    for (const std::string& extent : OpSignature::symbols(spec)) {
      const std::int64_t value = extent_value(extent, dims, attributes).value_or(0);
      shape += (shape.empty() ? "" : ",") + std::to_string(value);
      count *= static_cast<double>(value);
    }
    if (count > static_cast<double>(kMostExtent))
      place.fail("sample shape of '" + spec.name + "', got [" + shape + "], want at most 2^24 elements");
  }
}

}  // namespace ampcheck::checks::description
