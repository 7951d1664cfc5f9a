// SPDX-License-Identifier: Apache-2.0
// The oracle is certified before it judges: centred differences of a formula's forward in 100 digits, at two steps and
// with one Richardson step, against its adjoint graph in 100 digits; and every further form against the first.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/graph/formula.h"

namespace ampcheck::reference {

/// Agreement below which a formula and its adjoint, or two forms, are not the same mathematics.
inline constexpr double kCertifiedDigits = 25;

/// One sampled coordinate of one input.
struct CertifiedPoint {
  std::string variant = {};  ///< see FormulaVariant::name
  std::string form, input;   ///< input: "x"; at second order also a cotangent, "dy"
  std::int64_t index = 0;
  double x = 0;  ///< value of the coordinate
  double adjoint = 0, difference = 0;
  double digits = 0;       ///< agreement relative to sum_j |g_j dy_j/dx|, at most what the arithmetic carries
  double error_ratio = 0;  ///< distance from the adjoint at h over that at h/2: 4 at order two; NaN where both vanish
};

struct FormAgreement {
  std::string form;
  double forward_digits = 0, gradient_digits = 0;
};

/// What was found of one variant of an op.
struct VariantCertificate {
  std::string name;
  double digits = 0, error_ratio = 0;  ///< as of FormulaCertificate
  std::int64_t points = 0;
  int kinks = 0, flat = 0;
  std::vector<std::string> conventions = {};
};

struct FormulaCertificate {
  std::vector<CertifiedPoint> points;
  std::vector<FormAgreement> forms;  ///< agreement of each further form with the first, value by value
  double digits = 0;                 ///< worst of all; 0 if nothing was compared
  double error_ratio = 0;            ///< median over the points that have one; NaN if none has
  int kinks = 0;                     ///< coordinates redrawn because one-sided limits differ
  int flat = 0;                      ///< points where adjoint and difference are both zero: weak evidence
  double step = 1e-33;               ///< h; the second step is h/2
  /// What has no gradient by convention although the value depends on it (no_gradient marks): held fixed while
  /// differencing.
  std::vector<std::string> conventions = {};
  std::vector<VariantCertificate> variants = {};  ///< of an op: each of its branches

  /// Adds what `more` found; of a form seen before the worse agreement stays.
  void merge(const FormulaCertificate& more);
  /// Sets `digits` and `error_ratio` from points and forms.
  void conclude();
};

/// Data of one case: integer inputs and the values of the floating ones, row-major.
struct CertificationCase {
  CaseInputs inputs;
  std::map<std::string, std::vector<double>> values;
};

/// One branch that the formulas of an op can take: attribute values, and the optional inputs that are left out.
struct FormulaVariant {
  std::string name = {};  ///< what is not default, as case names print it: "bias=none,padding=1"; empty for the default
  Attributes attributes = {};
  std::vector<std::string> absent = {};
  Dims dims = {};  ///< of the certificate
};

/// Every combination of the values that the signature names for its attributes with each optional input given or
/// absent, the default first; where these are more than 64, one departure from the default at a time. Combinations that
/// the op's rule of valid extents admits nowhere are no cases and are left out.
std::vector<FormulaVariant> formula_variants(const OpSignature& signature);

/// Attributes at their defaults.
Attributes default_attributes(const OpSignature& signature);

/// The extents of the signature's standard shape 0, 1 or 2.
Dims standard_dims(const OpSignature& signature, std::size_t which);

/// Extents of 2 and 3, so that a certificate takes milliseconds, as much larger as the op's rule of valid extents
/// wants. An op with such a rule has its first standard shape, where that is small: windows must be several for a
/// stride to matter. Empty where no extents tried are valid with these attributes.
std::optional<Dims> certification_dims(const OpSignature& signature, const Attributes& attributes);

/// Generic data: normal numbers with full mantissas, inside each input's domain; weights about 1; integers uniform in
/// the range of their index_dim, but where an attribute is a sentinel for them (ignore_index) one index holds it and
/// one not.
CertificationCase certification_case(const OpSignature& signature, const FormulaVariant& variant, std::uint64_t seed);
/// Of that its shapes and integers alone: what a formula is recorded at.
CaseInputs certification_inputs(const OpSignature& signature, const FormulaVariant& variant, std::uint64_t seed);

/// Weights of an output or a gradient in the sum that is differentiated: signed, between 1/2 and 3/2 in size.
std::vector<double> certification_weights(const std::string& name, std::int64_t count, std::uint64_t seed);

/// The upper median; NaN are left out, NaN if nothing is left.
double median(std::vector<double> values);

/// Certifies all forms of an op in every variant at generic values. Per differentiable input and form the first variant
/// gets `samples` coordinates and each other half as many, at least two; half of them where the adjoint is not zero; on
/// fresh values when a tensor is used up or its derivatives were all zero. A form that records the same graph as an
/// earlier one of its variant shares that one's points. Numbers of the result are the worst over the variants.
FormulaCertificate certify(const OpSignature& signature, const std::vector<Form>& forms,
                           const std::vector<FormulaVariant>& variants, int samples, std::uint64_t seed);

/// How many coordinates of each input are wanted, by name.
using SampleCounts = std::map<std::string, int>;

/// All forms at given data, at most once per coordinate. A coordinate at a kink moves to a new value. Nodes marked
/// no_gradient keep the values that they have there while an input is moved.
FormulaCertificate certify(const OpSignature& signature, const std::vector<Form>& forms, const Attributes& attributes,
                           const CertificationCase& data, const SampleCounts& samples, std::uint64_t seed);

/// Second order: the adjoint graph of the gradients against centred differences of the gradients, by every input and
/// every cotangent, in 100 digits.
FormulaCertificate certify_second_order(const OpSignature& signature, const Form& form, const Attributes& attributes,
                                        const CertificationCase& data, int samples, std::uint64_t seed);

/// A function of the certificate's arithmetic at a decimal number: `digits` significant digits, scientific.
std::string function_in_digits(Primitive function, const std::string& x, int digits);

/// What a centred difference of the formula can give in a narrower arithmetic (research: step h* = (3 e_f /
/// |f'''|)^(1/3)).
struct DifferenceLesson {
  std::string arithmetic;                ///< "fp64", "fp32", "fp16", "bf16"
  double best_step = 0, best_error = 0;  ///< over a ladder of power-of-two steps, relative error of the derivative
  double error_at_1e_6 = 0;              ///< relative error with h = 1e-6
  bool step_vanishes = false;            ///< x + 1e-6 == x in this arithmetic
};
/// Every operation is rounded to the format (evaluated in fp64 first); median over at most nine coordinates whose
/// derivative is not zero, against the adjoint in fp64. Ladder: 2^2 ... 2^-52, divided by the step really taken.
std::vector<DifferenceLesson> difference_lessons(const OpSignature& signature, const Form& form,
                                                 const FormulaVariant& variant, std::uint64_t seed);

}  // namespace ampcheck::reference
