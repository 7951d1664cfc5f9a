// SPDX-License-Identifier: Apache-2.0
// Formulas written in a test, as ops of one output "y", certified at given shapes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference/certify/certify.h"

namespace ampcheck::reference {

inline constexpr double kWantedDigits = 25;  // what the design asks of every certificate
inline constexpr int kAllCoordinates = 1000;

/// An input of a small formula: name, extents, domain.
struct Tensor1 {
  std::string name;
  std::vector<std::int64_t> extents;
  Domain domain = Domain::any;
};

class SmallFormula {
 public:
  using Body = std::function<Expr(FormulaCall&)>;

  SmallFormula(const std::vector<Tensor1>& inputs, Body body)
      : SmallFormula(inputs, std::vector<Body>{std::move(body)}) {}
  SmallFormula(const std::vector<Tensor1>& inputs, std::vector<Body> bodies) {
    signature.name = "small";
    signature.outputs = {{.name = "y"}};
    for (const Tensor1& input : inputs) {
      TensorSpec spec{.name = input.name, .dims = "", .domain = input.domain};
      for (std::size_t axis = 0; axis < input.extents.size(); ++axis) {
        const std::string symbol = input.name + std::to_string(axis);
        spec.dims += (axis ? " " : "") + symbol;
        dims[symbol] = input.extents[axis];
      }
      signature.inputs.push_back(spec);
    }
    for (std::size_t i = 0; i < bodies.size(); ++i)
      forms.push_back(
          {"form " + std::to_string(i), [body = bodies[i]](FormulaCall& call) { call.output("y", body(call)); }});
  }

  CertificationCase data(std::uint64_t seed = 1) const { return certification_case(signature, variant(), seed); }
  FormulaVariant variant() const { return {.attributes = attributes, .dims = dims}; }
  /// With these optional inputs absent.
  FormulaVariant without(const std::vector<std::string>& absent) const {
    return {.name = "without", .attributes = attributes, .absent = absent, .dims = dims};
  }
  FormulaCertificate certify_some(int samples, std::uint64_t seed = 1) const {
    return certify(signature, forms, std::vector<FormulaVariant>{variant()}, samples, seed);
  }
  FormulaCertificate certify_all(std::uint64_t seed = 1) const { return certify_at(data(seed), seed); }
  FormulaCertificate certify_at(const CertificationCase& at, std::uint64_t seed = 1) const {
    SampleCounts all;
    for (const TensorSpec& spec : signature.inputs) all[spec.name] = kAllCoordinates;
    return certify(signature, forms, attributes, at, all, seed);
  }
  FormulaCertificate second_order(std::uint64_t seed = 1) const {
    return certify_second_order(signature, forms.front(), attributes, data(seed), kAllCoordinates, seed);
  }

  OpSignature signature;
  std::vector<Form> forms;
  Attributes attributes;
  Dims dims;
};

}  // namespace ampcheck::reference
