// SPDX-License-Identifier: Apache-2.0
// Data on which formulas are certified.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/certify.h"
#include "src/error.h"
#include "src/random.h"

namespace ampcheck::reference {

namespace {

bool is_integer(const TensorSpec& spec) {
  return spec.type == TypeRule::i64 || spec.type == TypeRule::u8;
}

/// A value with a full mantissa: the generator's normal numbers have 20 bits.
double generic_value(const TensorSpec& spec, const Random& random, std::uint64_t index) {
  const double fill = random.uniform(index + (std::uint64_t{1} << 40)) - 0.5;
  const double normal = random.normal(index) + fill * 0x1p-12;
  if (spec.domain == Domain::unit_interval) return (random.uniform(index) + 0x1p-8) * (1.0 - 0x1p-7);
  if (spec.domain == Domain::positive || spec.role == Role::probability) return 0.25 + std::fabs(normal);
  return spec.role == Role::weight ? 1.0 + 0.25 * normal : normal;
}

}  // namespace

Dims certification_dims(const OpSignature& signature) {
  Attributes attributes;
  for (const AttributeSpec& spec : signature.attributes) attributes.set(spec.name, spec.default_value);
  std::vector<std::string> symbols;
  for (const DimSpec& dim : signature.dims) symbols.push_back(dim.symbol);
  // The last two axes carry reductions and products: 3 there, where a mean and a variance say something.
  for (std::int64_t more = 0; more <= 6; ++more) {
    Dims dims;
    for (std::size_t i = 0; i < symbols.size(); ++i) dims[symbols[i]] = (i + 2 < symbols.size() || i == 0 ? 2 : 3) + more;
    if (symbols.size() == 1) dims[symbols[0]] = 3 + more;
    if (!signature.valid || signature.valid(dims, attributes)) return dims;
  }
  Dims dims;
  for (const DimSpec& dim : signature.dims) dims[dim.symbol] = dim.standard[0];
  return dims;
}

CertificationCase certification_case(const OpSignature& signature, const Dims& dims, bool optional, std::uint64_t seed) {
  CertificationCase data;
  for (const TensorSpec& spec : signature.inputs) {
    if (spec.optional && !optional) continue;
    const Random random(seed, "certify/" + spec.name);
    std::vector<std::int64_t> extents;
    for (const std::string& symbol : OpSignature::symbols(spec)) extents.push_back(dims.at(symbol));
    const Shape shape{std::span<const std::int64_t>(extents)};
    const auto count = static_cast<std::size_t>(shape.count());
    if (is_integer(spec)) {
      const std::int64_t bound = spec.index_dim.empty() ? 2 : dims.at(spec.index_dim);
      auto& integers = data.inputs.integers[spec.name];
      data.inputs.integer_shapes[spec.name] = shape;
      for (std::size_t i = 0; i < count; ++i)
        integers.push_back(static_cast<std::int64_t>(random.below(i, static_cast<std::uint64_t>(bound))));
    } else {
      data.inputs.shapes[spec.name] = shape;
      auto& values = data.values[spec.name];
      for (std::size_t i = 0; i < count; ++i) values.push_back(generic_value(spec, random, i));
    }
  }
  return data;
}

std::vector<double> certification_weights(const std::string& name, std::int64_t count, std::uint64_t seed) {
  const Random random(seed, "certify/weights/" + name);
  std::vector<double> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const double size = 0.5 + random.uniform(2 * static_cast<std::uint64_t>(i));
    out.push_back(random.below(2 * static_cast<std::uint64_t>(i) + 1, 2) == 0 ? -size : size);
  }
  return out;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace ampcheck::reference
