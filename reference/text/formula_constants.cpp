// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/text/formula_constants.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace ampcheck::reference {

namespace {

using Kind = FormulaTerm::Kind;

/// Constants that 100 digits know under these names; in text sqrt(2*pi) stands for "sqrt(2 pi)".
constexpr const char* kNamedConstants[] = {"1/sqrt(2)", "2/sqrt(pi)", "sqrt(2/pi)", "1/sqrt(2 pi)",
                                           "log(2)",    "1/log(2)",   "pi"};

/// Whether a fraction with a denominator that divides a power of ten is a double.
bool is_double(std::int64_t above, std::int64_t below) {
  while (below % 5 == 0 && above % 5 == 0) {
    below /= 5;
    above /= 5;
  }
  return (below & (below - 1)) == 0 && above <= (std::int64_t{1} << 53);
}

/// Finds the terms that are numbers.
class Constants {
 public:
  explicit Constants(const ParsedFormula& formula) : formula_(formula) {}

  FormulaConstant of(int index) const {
    using K = FormulaConstant::Kind;
    const FormulaTerm& term = formula_.term(index);
    if (term.kind == Kind::number) return number(term);
    if (term.kind == Kind::name && term.text == "inf") return {K::value, std::numeric_limits<double>::infinity()};
    const std::string text = text_of(index);
    if (text.empty()) return {};
    for (const char* name : kNamedConstants)
      if (text == name) return {K::named, 0, name};
    const auto whole = whole_fraction(term);
    if (!whole) return {};
    if (whole->second == 0) return {K::division_by_zero};
    return {K::named, 0, std::to_string(whole->first) + "/" + std::to_string(whole->second)};
  }

 private:
  static FormulaConstant number(const FormulaTerm& term) {
    using K = FormulaConstant::Kind;
    double value = 0;
    const auto end = std::from_chars(term.text.data(), term.text.data() + term.text.size(), value);
    if (end.ec != std::errc{}) return {K::out_of_range};
    const auto exact = decimal_fraction(term.text);
    if (!exact || is_double(exact->first, exact->second)) return {K::value, value};
    return {K::named, 0, std::to_string(exact->first) + "/" + std::to_string(exact->second)};
  }

  /// "1/sqrt(2)" of a term made of numbers alone; empty for any other.
  std::string text_of(int index) const {
    const FormulaTerm& term = formula_.term(index);
    if (term.kind == Kind::number) return term.text;
    if (term.kind == Kind::name) return term.text == "pi" ? term.text : "";
    if (term.kind == Kind::call && (term.text == "sqrt" || term.text == "log") && term.keywords.empty()) {
      const std::string inner = text_of(term.args[0]);
      return inner.empty() ? "" : term.text + "(" + inner + ")";
    }
    if (term.kind != Kind::binary || (term.text != "/" && term.text != "*")) return "";
    const std::string left = text_of(term.args[0]);
    if (left.empty()) return "";
    const std::string right = text_of(term.args[1]);
    return right.empty() ? "" : left + (term.text == "*" ? " " : "/") + right;
  }

  /// "1/3" of two whole numbers as written.
  std::optional<std::pair<std::int64_t, std::int64_t>> whole_fraction(const FormulaTerm& term) const {
    if (term.kind != Kind::binary || term.text != "/") return std::nullopt;
    const FormulaTerm &above = formula_.term(term.args[0]), &below = formula_.term(term.args[1]);
    if (above.kind != Kind::number || below.kind != Kind::number) return std::nullopt;
    const auto a = decimal_fraction(above.text), b = decimal_fraction(below.text);
    if (!a || !b || a->second != 1 || b->second != 1) return std::nullopt;
    return std::pair{a->first, b->first};
  }

  const ParsedFormula& formula_;
};

}  // namespace

std::optional<std::pair<std::int64_t, std::int64_t>> decimal_fraction(const std::string& text) {
  constexpr std::int64_t kMost = 100'000'000'000'000'000;  // 1e17: ten times it still fits
  std::int64_t digits = 0, scale = 1;
  bool point = false;
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  for (std::size_t i = 0; i < e; ++i) {
    if (text[i] == '.') {
      point = true;
      continue;
    }
    if (digits > kMost || scale > kMost) return std::nullopt;
    digits = 10 * digits + (text[i] - '0');
    if (point) scale *= 10;
  }
  int exponent = 0;
  const char* first = text.data() + std::min(e + 1, text.size());
  if (first < text.data() + text.size() && *first == '+') ++first;
  std::from_chars(first, text.data() + text.size(), exponent);
  for (; exponent < 0; ++exponent)
    if (scale > kMost)
      return std::nullopt;
    else
      scale *= 10;
  for (; exponent > 0 && digits != 0; --exponent)
    if (digits > kMost)
      return std::nullopt;
    else
      digits *= 10;
  while (scale % 10 == 0 && digits % 10 == 0 && digits != 0) {
    scale /= 10;
    digits /= 10;
  }
  return std::pair{digits, digits == 0 ? 1 : scale};
}

FormulaConstant constant_of(const ParsedFormula& formula, int term) { return Constants(formula).of(term); }

}  // namespace ampcheck::reference
