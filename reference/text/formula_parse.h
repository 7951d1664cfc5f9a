// SPDX-License-Identifier: Apache-2.0
// The syntax of formulas in text: what reference/text/formula_text.h evaluates. Nothing here knows a function or a
// tensor.
//
//   formula    = statement { (";" | newline) statement }         "#" starts a comment
//   statement  = name "=" expression [ "with" "d"name "=" expression { "," "d"name "=" expression } ]
//   expression = sum [ ("<" | "<=" | ">" | ">=" | "==") sum ]
//   sum        = product { ("+" | "-") product }
//   product    = factor { ("*" | "/" | "@") factor }
//   factor     = "-" factor | atom [ "^" "2" ]
//   atom       = number | name | name "(" [ argument { "," argument } ] ")" | "(" expression ")"
//   argument   = [ name "=" ] expression
//
// A newline ends a statement unless it stands in brackets, after an operator, or before one or before "with".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/error.h"

namespace ampcheck::reference {

/// "[formula] line 2, column 9: got X, want Y", the line itself, and a caret below the column.
struct FormulaError : Error {
  using Error::Error;
};

/// What a text may hold; beyond it is a FormulaError.
inline constexpr std::size_t kMaxFormulaLength = 64 * 1024;
inline constexpr std::size_t kMaxFormulaTerms = 8192;
inline constexpr int kMaxFormulaDepth = 256;

/// A node of the syntax tree.
struct FormulaTerm {
  enum class Kind : std::uint8_t { number, name, negate, binary, call };
  Kind kind = Kind::number;
  std::string text;       ///< number as written; name; "+", "<=", "^", ...; function of a call
  std::vector<int> args;  ///< indices into ParsedFormula::terms
  std::vector<std::pair<std::string, int>> keywords;  ///< of a call: "axis=-1"
  std::size_t at = 0;                                 ///< offset in the text
  int depth = 1;
};

/// "with dx = ...": an adjoint of its own for the value of a statement.
struct FormulaAdjoint {
  std::string of;  ///< "x"
  int value = 0;
  std::size_t at = 0;
};

struct FormulaStatement {
  std::string target;
  int value = 0;
  std::vector<FormulaAdjoint> adjoints = {};
  std::size_t at = 0;
};

struct ParsedFormula {
  std::string text;
  std::vector<FormulaTerm> terms = {};
  std::vector<FormulaStatement> statements = {};

  const FormulaTerm& term(int index) const { return terms[static_cast<std::size_t>(index)]; }
  /// Throws FormulaError that points at an offset of the text.
  [[noreturn]] void fail(std::size_t at, const std::string& what) const;
};

/// Throws FormulaError.
ParsedFormula parse_formula(std::string text);

}  // namespace ampcheck::reference
