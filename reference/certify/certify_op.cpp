// SPDX-License-Identifier: Apache-2.0
// The certificate of an op: all of its variants, and the worst over them.
#include <algorithm>
#include <cmath>

#include "reference/certify/certify.h"
#include "src/op_call.h"

namespace ampcheck::reference {

namespace {

/// One thing that can differ from the default: an attribute's values, or an optional input given or absent.
struct Choice {
  const AttributeSpec* attribute = nullptr;
  const TensorSpec* optional = nullptr;
  std::size_t count = 1;  ///< values to choose from; 0 is the default
};

std::vector<Choice> choices_of(const OpSignature& signature) {
  std::vector<Choice> out;
  for (const TensorSpec& spec : signature.inputs)
    if (spec.optional) out.push_back({.optional = &spec, .count = 2});
  for (const AttributeSpec& spec : signature.attributes)
    if (!spec.other_values.empty()) out.push_back({.attribute = &spec, .count = 1 + spec.other_values.size()});
  return out;
}

std::string text_of(const AttributeValue& value) {
  const double* const number = std::get_if<double>(&value);
  return number != nullptr ? number_text(*number) : std::get<std::string>(value);
}

/// The variant of chosen values, by position in `choices`.
FormulaVariant variant_of(const OpSignature& signature, const std::vector<Choice>& choices,
                          const std::vector<std::size_t>& chosen) {
  FormulaVariant out{.attributes = default_attributes(signature)};
  for (std::size_t k = 0; k < choices.size(); ++k) {
    if (chosen[k] == 0) continue;
    out.name += out.name.empty() ? "" : ",";
    if (const TensorSpec* const spec = choices[k].optional) {
      out.absent.push_back(spec->name);
      out.name += spec->name + "=none";
    } else {
      const AttributeSpec& attribute = *choices[k].attribute;
      const AttributeValue& value = attribute.other_values[chosen[k] - 1];
      out.attributes.set(attribute.name, value);
      out.name += attribute.name + "=" + text_of(value);
    }
  }
  return out;
}

/// Positions in `choices` of every variant, the default first.
std::vector<std::vector<std::size_t>> combinations(const std::vector<Choice>& choices) {
  constexpr std::size_t kMostCombined = 64;
  std::size_t all = 1;
  for (const Choice& choice : choices) all = std::min(all * choice.count, kMostCombined + 1);
  std::vector<std::vector<std::size_t>> out = {std::vector<std::size_t>(choices.size(), 0)};
  for (std::size_t k = 0; k < choices.size(); ++k) {
    const std::size_t before = all > kMostCombined ? 1 : out.size();
    for (std::size_t value = 1; value < choices[k].count; ++value)
      for (std::size_t i = 0; i < before; ++i) {
        out.push_back(out[i]);
        out.back()[k] = value;
      }
  }
  return out;
}

bool has_slope(const FormulaCertificate& certificate, const std::string& input) {
  return std::any_of(certificate.points.begin(), certificate.points.end(), [&](const CertifiedPoint& point) {
    return point.input == input && (point.adjoint != 0 || point.difference != 0);
  });
}

FormulaCertificate certify_variant(const OpSignature& signature, const std::vector<Form>& forms,
                                   const FormulaVariant& variant, int samples, std::uint64_t seed) {
  constexpr int kRoundsForASlope = 4;
  FormulaCertificate out;
  SampleCounts wanted;
  for (const TensorSpec& spec : signature.inputs) {
    const bool given = std::find(variant.absent.begin(), variant.absent.end(), spec.name) == variant.absent.end();
    if (spec.has_gradient() && given) wanted[spec.name] = samples;
  }
  for (int round = 0; !wanted.empty(); ++round) {
    const std::uint64_t at = seed + static_cast<std::uint64_t>(round);
    const CertificationCase data = certification_case(signature, variant, at);
    out.merge(certify(signature, forms, variant.attributes, data, wanted, at));
    for (auto& [name, left] : wanted) {
      const auto values = data.values.find(name);
      const std::size_t count = values == data.values.end() ? 0 : values->second.size();
      left = count == 0 ? 0 : left - static_cast<int>(std::min(count, static_cast<std::size_t>(left)));
      if (left == 0 && count > 0 && round < kRoundsForASlope && !has_slope(out, name)) left = 1;
    }
    std::erase_if(wanted, [](const auto& item) { return item.second == 0; });
  }
  out.conclude();
  for (CertifiedPoint& point : out.points) point.variant = variant.name;
  return out;
}

void add_each(std::vector<std::string>& into, const std::vector<std::string>& more) {
  for (const std::string& item : more)
    if (std::find(into.begin(), into.end(), item) == into.end()) into.push_back(item);
}

}  // namespace

std::vector<FormulaVariant> formula_variants(const OpSignature& signature) {
  const std::vector<Choice> choices = choices_of(signature);
  std::vector<FormulaVariant> out;
  for (const std::vector<std::size_t>& chosen : combinations(choices)) {
    FormulaVariant variant = variant_of(signature, choices, chosen);
    const std::optional<Dims> dims = certification_dims(signature, variant.attributes);
    if (!dims) continue;
    variant.dims = *dims;
    out.push_back(std::move(variant));
  }
  return out;
}

FormulaCertificate certify(const OpSignature& signature, const std::vector<Form>& forms,
                           const std::vector<FormulaVariant>& variants, int samples, std::uint64_t seed) {
  FormulaCertificate out;
  bool all_compared = !variants.empty();
  for (const FormulaVariant& variant : variants) {
    const int wanted = &variant == &variants.front() ? samples : std::min(samples, std::max(2, samples / 2));
    const FormulaCertificate found = certify_variant(signature, forms, variant, wanted, seed);
    all_compared = all_compared && !found.points.empty();
    out.variants.push_back({variant.name, found.digits, found.error_ratio,
                            static_cast<std::int64_t>(found.points.size()), found.kinks, found.flat,
                            found.conventions});
    out.merge(found);
  }
  out.conclude();
  if (!all_compared) out.digits = 0;  // a branch of which nothing was compared is not certified
  return out;
}

void FormulaCertificate::merge(const FormulaCertificate& more) {
  points.insert(points.end(), more.points.begin(), more.points.end());
  kinks += more.kinks;
  flat += more.flat;
  add_each(conventions, more.conventions);
  for (const FormAgreement& form : more.forms) {
    const auto known = std::find_if(forms.begin(), forms.end(), [&](const auto& f) { return f.form == form.form; });
    if (known == forms.end()) {
      forms.push_back(form);
    } else {
      known->forward_digits = std::min(known->forward_digits, form.forward_digits);
      known->gradient_digits = std::min(known->gradient_digits, form.gradient_digits);
    }
  }
}

void FormulaCertificate::conclude() {
  double worst = points.empty() && forms.empty() ? 0 : HUGE_VAL;
  std::vector<double> ratios;
  for (const CertifiedPoint& point : points) {
    worst = std::min(worst, point.digits);
    ratios.push_back(point.error_ratio);
  }
  for (const FormAgreement& form : forms) worst = std::min({worst, form.forward_digits, form.gradient_digits});
  digits = worst;
  error_ratio = median(std::move(ratios));
}

}  // namespace ampcheck::reference
