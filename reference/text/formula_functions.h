// SPDX-License-Identifier: Apache-2.0
// The functions of formulas in text: their names and arguments, for the parser's checks and error messages, and the
// manual.
#pragma once

#include <string_view>
#include <vector>

namespace ampcheck::reference {

struct FormulaFunction {
  const char* name;
  int least, most;  ///< positional arguments; most -1: any number
  const char* usage;
  std::vector<const char*> keywords = {};
  int names = -1;  ///< which argument is a bare name, not a value: 0 the first
};

/// Null for an unknown name.
const FormulaFunction* find_formula_function(std::string_view name);
const std::vector<FormulaFunction>& formula_functions();

}  // namespace ampcheck::reference
