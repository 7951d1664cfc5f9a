// SPDX-License-Identifier: Apache-2.0
// Data on which formulas are certified.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/certify/certify.h"
#include "src/error.h"
#include "src/extent.h"
#include "src/random.h"

namespace ampcheck::reference {

namespace {

bool is_integer(const TensorSpec& spec) { return spec.type == TypeRule::i64 || spec.type == TypeRule::u8; }

/// A value with a full mantissa: the generator's normal numbers have 20 bits.
double generic_value(const TensorSpec& spec, const Random& random, std::uint64_t index) {
  const double fill = random.uniform(index + (std::uint64_t{1} << 40)) - 0.5;
  const double normal = random.normal(index) + fill * 0x1p-12;
  const double inside = (random.uniform(index) + 0x1p-8) * (1.0 - 0x1p-7);  // of [0, 1]
  if (spec.domain == Domain::unit_interval || spec.role == Role::probability) return inside;
  if (spec.role == Role::angle) return 2 * inside - 1;
  if (spec.role == Role::log_probability) return -4 * inside;
  if (spec.domain == Domain::positive) return 0.25 + std::fabs(normal);
  return spec.role == Role::weight ? 1.0 + 0.25 * normal : normal;
}

}  // namespace

Attributes default_attributes(const OpSignature& signature) {
  Attributes out;
  for (const AttributeSpec& spec : signature.attributes) out.set(spec.name, spec.default_value);
  return out;
}

Dims standard_dims(const OpSignature& signature, std::size_t which) {
  Dims dims;
  for (const DimSpec& dim : signature.dims) dims[dim.symbol] = dim.standard[which];
  return dims;
}

namespace {

/// Elements of the largest input; in double, since a described op may ask for more than 2^63.
double largest_input(const OpSignature& signature, const Dims& dims, const Attributes& attributes) {
  double largest = 0;
  for (const TensorSpec& spec : signature.inputs) {
    double count = 1;
    for (const std::string& extent : OpSignature::symbols(spec))
      count *= static_cast<double>(extent_value(extent, dims, attributes).value_or(0));
    largest = std::max(largest, count);
  }
  return largest;
}

}  // namespace

std::optional<Dims> certification_dims(const OpSignature& signature, const Attributes& attributes) {
  constexpr double kSmall = 256;
  const auto valid = [&](const Dims& dims) { return !signature.valid || signature.valid(dims, attributes); };
  if (const Dims dims = standard_dims(signature, 0);
      signature.valid && largest_input(signature, dims, attributes) <= kSmall && valid(dims))
    return dims;
  // The last two axes carry reductions and products: 3 there, where a mean and a variance say something.
  const std::size_t count = signature.dims.size();
  for (std::int64_t more = 0; more <= 6; ++more) {
    Dims dims;
    for (std::size_t i = 0; i < count; ++i)
      dims[signature.dims[i].symbol] = (count == 1 || (i > 0 && i + 2 >= count) ? 3 : 2) + more;
    if (valid(dims)) return dims;
  }
  for (std::size_t which = 0; which < 3; ++which)
    if (const Dims dims = standard_dims(signature, which); valid(dims)) return dims;
  return std::nullopt;
}

namespace {

/// Uniform in [0, bound). Where a sentinel is right for the input, one index holds it and one does not, so that both
/// branches of the formula are met; of a single index every other seed.
std::vector<std::int64_t> index_values(const OpSignature& signature, const FormulaVariant& variant,
                                       const TensorSpec& spec, const Random& random, std::size_t count) {
  const std::int64_t bound = spec.role == Role::quantized ? 256
                             : spec.index_dim.empty()     ? 2
                                                          : variant.dims.at(spec.index_dim);
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(static_cast<std::int64_t>(random.below(i, static_cast<std::uint64_t>(bound))));
  if ((spec.role != Role::index && spec.role != Role::target) || count == 0) return out;
  for (const AttributeSpec& attribute : signature.attributes) {
    const auto value = variant.attributes.all().find(attribute.name);
    const double* const number =
        value == variant.attributes.all().end() ? nullptr : std::get_if<double>(&value->second);
    if (!attribute.is_sentinel() || number == nullptr) continue;
    const auto sentinel = static_cast<std::int64_t>(*number);
    const bool inside = sentinel >= 0 && sentinel < bound;
    if (spec.role == Role::index && !inside) continue;  // an index addresses memory
    const std::uint64_t at = random.below(std::uint64_t{1} << 41, std::max<std::size_t>(count, 2));
    if (at < count) out[at] = sentinel;
    const std::uint64_t other = (at + 1) % std::max<std::size_t>(count, 2);
    if (other < count && out[other] == sentinel && bound > 1) out[other] = (sentinel + 1) % bound;
  }
  return out;
}

}  // namespace

namespace {

Random random_of(const TensorSpec& spec, std::uint64_t seed) { return {seed, "certify/" + spec.name}; }

}  // namespace

CaseInputs certification_inputs(const OpSignature& signature, const FormulaVariant& variant, std::uint64_t seed) {
  CaseInputs out;
  for (const TensorSpec& spec : signature.inputs) {
    if (std::find(variant.absent.begin(), variant.absent.end(), spec.name) != variant.absent.end()) continue;
    std::vector<std::int64_t> extents;
    for (const std::string& extent : OpSignature::symbols(spec))
      extents.push_back(extent_value(extent, variant.dims, variant.attributes).value_or(0));
    const Shape shape{std::span<const std::int64_t>(extents)};
    if (is_integer(spec)) {
      const auto count = static_cast<std::size_t>(shape.count());
      out.integers[spec.name] = index_values(signature, variant, spec, random_of(spec, seed), count);
      out.integer_shapes[spec.name] = shape;
    } else {
      out.shapes[spec.name] = shape;
    }
  }
  return out;
}

CertificationCase certification_case(const OpSignature& signature, const FormulaVariant& variant, std::uint64_t seed) {
  CertificationCase data;
  data.inputs = certification_inputs(signature, variant, seed);
  for (const TensorSpec& spec : signature.inputs) {
    const auto shape = data.inputs.shapes.find(spec.name);
    if (shape == data.inputs.shapes.end()) continue;
    const Random random = random_of(spec, seed);
    auto& values = data.values[spec.name];
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape->second.count()); ++i)
      values.push_back(generic_value(spec, random, i));
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
