// SPDX-License-Identifier: Apache-2.0
// The oracle is certified before it judges: centred differences of a formula's forward in 100 digits, at two steps and
// with one Richardson step, against its adjoint graph in 100 digits; and every further form against the first.
#pragma once

#include <string>
#include <vector>

#include "reference/formula.h"

namespace ampcheck::reference {

/// One sampled coordinate of one input.
struct CertifiedPoint {
  std::string form, input;
  std::int64_t index = 0;
  double x = 0;            ///< value of the coordinate
  double adjoint = 0, difference = 0;
  double digits = 0;       ///< agreement relative to the sum of absolute terms
  double error_ratio = 0;  ///< error at h over error at h/2: 4 at order two; NaN where both vanish
};

struct FormAgreement {
  std::string form;
  double forward_digits = 0, gradient_digits = 0;
};

struct FormulaCertificate {
  std::vector<CertifiedPoint> points;
  std::vector<FormAgreement> forms;  ///< agreement of each further form with the first, value by value
  double digits = 0;                 ///< worst of all
  double error_ratio = 0;            ///< median over the points
  int kinks = 0;                     ///< coordinates redrawn because one-sided limits differ
  double step = 1e-33;               ///< h; the second step is h/2
};

/// Certifies all forms of an op at one small case with generic values. `samples` coordinates per input and form.
FormulaCertificate certify(const OpSignature& signature, const std::vector<Form>& forms, const Attributes& attributes,
                           const Dims& dims, int samples, std::uint64_t seed);

/// What a centred difference of the formula can give in a narrower arithmetic (research: step h* = (3 e_f / |f'''|)^(1/3)).
struct DifferenceLesson {
  std::string arithmetic;   ///< "fp64", "fp32", "fp16", "bf16"
  double best_step = 0, best_error = 0;    ///< over a ladder of power-of-two steps, relative error of the derivative
  double error_at_1e_6 = 0;                ///< relative error with h = 1e-6
  bool step_vanishes = false;              ///< x + 1e-6 == x in this arithmetic
};
std::vector<DifferenceLesson> difference_lessons(const OpSignature& signature, const Form& form, const Attributes& attributes,
                                                 const Dims& dims, std::uint64_t seed);

}  // namespace ampcheck::reference
