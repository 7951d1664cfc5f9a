// SPDX-License-Identifier: Apache-2.0
// Records the graph of a formula in text at one case.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reference/graph/formula.h"
#include "reference/text/formula_constants.h"
#include "reference/text/formula_parse.h"
#include "reference/text/formula_text.h"

namespace ampcheck::reference {

/// What is known once, when the text is read: a case only walks over it.
struct FormulaSource {
  ParsedFormula formula;
  OpSignature signature;
  std::int64_t most_elements = kMaxFormulaElements;
  std::vector<std::vector<std::string>> symbols = {};  ///< of each input
  std::vector<FormulaConstant> constants = {};         ///< of each term
  std::map<std::string, int, std::less<>> slots = {};  ///< of every name of a value
  std::vector<int> slot_of_term = {};                  ///< of terms that are names; -1

  int slot(const std::string& name) { return slots.try_emplace(name, static_cast<int>(slots.size())).first->second; }
  int slot_of(std::string_view name) const {
    const auto found = slots.find(name);
    return found == slots.end() ? -1 : found->second;
  }
};

/// What is known of a case beside its tensors.
struct FormulaCase {
  std::map<std::string, double> numbers;        ///< attributes
  std::map<std::string, std::int64_t> extents;  ///< by dimension symbol
  std::map<std::string, std::vector<std::int64_t>> integers;
  std::map<std::string, Shape> integer_shapes;
  mutable std::size_t counted = 0;  ///< nodes of the graph whose maps are counted in `listed`
  mutable std::int64_t listed = 0;  ///< elements of maps, which take memory before anything is computed
};

/// Everything a formula may refer to at one case. Copied into the rules of own adjoints, which run after the recording.
struct FormulaScope {
  Graph* graph = nullptr;
  std::shared_ptr<const FormulaSource> source;
  std::shared_ptr<const FormulaCase> facts;
  std::vector<Expr> values;  ///< by slot: inputs and statements; undefined where there is none
};

class FormulaEvaluator {
 public:
  explicit FormulaEvaluator(FormulaScope scope)
      : scope_(std::move(scope)), source_(*scope_.source), formula_(source_.formula), facts_(*scope_.facts) {}

  void statement(const FormulaStatement& statement);

  Expr output(const std::string& name) { return at(name); }

 private:
  Graph& graph() const { return *scope_.graph; }
  Expr& at(const std::string& name) { return scope_.values[static_cast<std::size_t>(source_.slot_of(name))]; }

  Expr with_adjoint(const FormulaStatement& statement, Expr inner);

  /// Errors of `make` with the place in the text.
  template <class F>
  std::invoke_result_t<F> pointed(std::size_t at, F make) const {
    try {
      return make();
    } catch (const FormulaError&) {
      throw;
    } catch (const EnvironmentError&) {
      throw;
    } catch (const Error& error) {
      const std::string what = error.what(), prefix = "[formula] ";
      formula_.fail(at, what.starts_with(prefix) ? what.substr(prefix.size()) : what);
    }
  }

  Expr value(int index);

  Expr checked(const FormulaTerm& term, Expr out) const;

  Expr constant_value(int index, const FormulaTerm& term);

  Expr plain_value(const FormulaTerm& term);

  std::size_t slot(const FormulaTerm& term) const;

  Expr name(const FormulaTerm& term) const;

  /// A case that the reference cannot hold is none of the kernel's faults: it is skipped.
  [[noreturn]] void fail_too_large(std::size_t at, const std::string& what) const;

  [[noreturn]] void absent(const FormulaTerm& term) const;

  Expr binary(const FormulaTerm& term);

  // ---- whole numbers: axes, extents, counts ----

  std::int64_t whole(int index);

  /// The whole number that an earlier statement names, "h = E / 2"; nothing if there is no such statement.
  std::optional<std::int64_t> whole_statement(const std::string& name);

  std::int64_t whole_binary(const FormulaTerm& term);
  /// Functions whose result is a whole number.
  static bool is_whole(std::string_view f) { return f == "size" || f == "floor"; }
  std::int64_t whole_call(const FormulaTerm& term);
  /// floor(m / n) of whole numbers.
  std::int64_t floored(const FormulaTerm& term);

  int axis(Expr x, int index);

  std::int64_t keyword(const FormulaTerm& term, std::string_view key, std::int64_t otherwise);

  // ---- functions ----

  Expr call(const FormulaTerm& term);

  std::int64_t size(const FormulaTerm& term);

  static Expr unary(const std::string& f, Expr x);

  Expr reduce(const FormulaTerm& term, Expr x);

  Expr whole_tensor(const FormulaTerm& term);

  /// gather: rows of [V, D] at each index; scatter_add: rows of [index..., D] added up at each index of [rows, D].
  Expr indexed(const FormulaTerm& term, Expr x);

  Expr moved(const FormulaTerm& term, Expr x);

  Expr reshaped(const FormulaTerm& term, Expr x);

  Expr transposed(const FormulaTerm& term, Expr x);

  Expr sliced(const FormulaTerm& term, Expr x);

  Expr joined(const FormulaTerm& term, Expr x);
  Expr extended(const FormulaTerm& term, Expr x);

  FormulaScope scope_;
  const FormulaSource& source_;
  const ParsedFormula& formula_;
  const FormulaCase& facts_;
  std::map<std::string, std::int64_t> wholes_;  ///< whole numbers of statements, by name
  int nested_ = 0;                              ///< statements that are read as whole numbers now
};

}  // namespace ampcheck::reference
