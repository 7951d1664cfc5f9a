// SPDX-License-Identifier: Apache-2.0
// The terms of a formula that are numbers whatever the case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "reference/text/formula_parse.h"

namespace ampcheck::reference {

/// A term that is a number whatever the case: a double, or one that 100 digits know by name.
struct FormulaConstant {
  enum class Kind : std::uint8_t { none, value, named, out_of_range, division_by_zero } kind = Kind::none;
  double value = 0;
  std::string name = {};
};

/// Numerator and denominator of a decimal, where both fit; the value is exact.
std::optional<std::pair<std::int64_t, std::int64_t>> decimal_fraction(const std::string& text);

/// The number that a term is; Kind::none where it is no number, or not one in every case.
FormulaConstant constant_of(const ParsedFormula& formula, int term);

}  // namespace ampcheck::reference
