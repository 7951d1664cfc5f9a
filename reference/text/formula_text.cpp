// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/text/formula_text.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <type_traits>

#include "reference/graph/node_text.h"
#include "reference/text/formula_functions.h"
#include "reference/text/formula_resolve.h"

namespace ampcheck::reference {

namespace {

using Kind = FormulaTerm::Kind;

/// Constants that 100 digits know under these names; in text sqrt(2*pi) stands for "sqrt(2 pi)".
constexpr const char* kNamedConstants[] = {"1/sqrt(2)", "2/sqrt(pi)", "sqrt(2/pi)", "1/sqrt(2 pi)",
                                           "log(2)",    "1/log(2)",   "pi"};

/// A term that is a number whatever the case: a double, or one that 100 digits know by name.
struct Constant {
  enum class Kind : std::uint8_t { none, value, named, out_of_range, division_by_zero } kind = Kind::none;
  double value = 0;
  std::string name = {};
};

/// What is known once, when the text is read: a case only walks over it.
struct Source {
  ParsedFormula formula;
  OpSignature signature;
  std::int64_t most_elements = kMaxFormulaElements;
  std::vector<std::vector<std::string>> symbols = {};  ///< of each input
  std::vector<Constant> constants = {};                ///< of each term
  std::map<std::string, int, std::less<>> slots = {};  ///< of every name of a value
  std::vector<int> slot_of_term = {};                  ///< of terms that are names; -1

  int slot(const std::string& name) { return slots.try_emplace(name, static_cast<int>(slots.size())).first->second; }
  int slot_of(std::string_view name) const {
    const auto found = slots.find(name);
    return found == slots.end() ? -1 : found->second;
  }
};

/// What is known of a case beside its tensors.
struct CaseFacts {
  std::map<std::string, double> numbers;        ///< attributes
  std::map<std::string, std::int64_t> extents;  ///< by dimension symbol
  std::map<std::string, std::vector<std::int64_t>> integers;
  std::map<std::string, Shape> integer_shapes;
  mutable std::size_t counted = 0;  ///< nodes of the graph whose maps are counted in `listed`
  mutable std::int64_t listed = 0;  ///< elements of maps, which take memory before anything is computed
};

/// Everything a formula may refer to at one case. Copied into the rules of own adjoints, which run after the recording.
struct Scope {
  Graph* graph = nullptr;
  std::shared_ptr<const Source> source;
  std::shared_ptr<const CaseFacts> facts;
  std::vector<Expr> values;  ///< by slot: inputs and statements; undefined where there is none
};

/// Numerator and denominator of a decimal, where both fit; the value is exact.
std::optional<std::pair<std::int64_t, std::int64_t>> fraction(const std::string& text) {
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
  while (scale % 10 == 0 && digits % 10 == 0 && digits != 0) scale /= 10, digits /= 10;
  return std::pair{digits, digits == 0 ? 1 : scale};
}

/// Whether a fraction with a denominator that divides a power of ten is a double.
bool is_double(std::int64_t above, std::int64_t below) {
  while (below % 5 == 0 && above % 5 == 0) below /= 5, above /= 5;
  return (below & (below - 1)) == 0 && above <= (std::int64_t{1} << 53);
}

/// Finds the terms that are numbers.
class Constants {
 public:
  explicit Constants(const ParsedFormula& formula) : formula_(formula) {}

  Constant of(int index) const {
    using K = Constant::Kind;
    const FormulaTerm& term = formula_.term(index);
    if (term.kind == Kind::number) return number(term);
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
  static Constant number(const FormulaTerm& term) {
    using K = Constant::Kind;
    double value = 0;
    const auto end = std::from_chars(term.text.data(), term.text.data() + term.text.size(), value);
    if (end.ec != std::errc{}) return {K::out_of_range};
    const auto exact = fraction(term.text);
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
    const auto a = fraction(above.text), b = fraction(below.text);
    if (!a || !b || a->second != 1 || b->second != 1) return std::nullopt;
    return std::pair{a->first, b->first};
  }

  const ParsedFormula& formula_;
};

class Evaluator {
 public:
  explicit Evaluator(Scope scope)
      : scope_(std::move(scope)), source_(*scope_.source), formula_(source_.formula), facts_(*scope_.facts) {}

  void statement(const FormulaStatement& statement) {
    Expr out = value(statement.value);
    if (!statement.adjoints.empty()) out = with_adjoint(statement, out);
    at(statement.target) = out;
  }

  Expr output(const std::string& name) { return at(name); }

 private:
  Graph& graph() const { return *scope_.graph; }
  Expr& at(const std::string& name) { return scope_.values[static_cast<std::size_t>(source_.slot_of(name))]; }

  Expr with_adjoint(const FormulaStatement& statement, Expr inner) {
    std::vector<Expr> arguments;
    std::vector<FormulaAdjoint> present;
    for (const FormulaAdjoint& adjoint : statement.adjoints) {
      const Expr argument = at(adjoint.of);
      if (!argument.defined()) continue;  // an absent optional input
      arguments.push_back(argument);
      present.push_back(adjoint);
    }
    Scope inside = scope_;
    inside.values[static_cast<std::size_t>(source_.slot_of(statement.target))] = inner;
    const auto cotangent = static_cast<std::size_t>(source_.slot_of("d" + statement.target));
    return own_adjoint(
        inner, arguments, [inside = std::move(inside), present = std::move(present), arguments, cotangent](Expr g) {
          Scope at = inside;
          at.graph = g.graph;
          at.values[cotangent] = g;
          Evaluator evaluator(at);
          std::vector<Expr> parts;
          for (std::size_t i = 0; i < present.size(); ++i) {
            parts.push_back(evaluator.value(present[i].value));
            evaluator.pointed(present[i].at,
                              [&] { return broadcast_shape(parts.back().shape(), arguments[i].shape()); });
          }
          return parts;
        });
  }

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

  Expr value(int index) {
    const FormulaTerm& term = formula_.term(index);
    return pointed(term.at,
                   [&] { return checked(term, constant_value(index, term)); });  // costs nothing unless it throws
  }

  Expr checked(const FormulaTerm& term, Expr out) const {
    const std::int64_t most = source_.most_elements;
    if (out.shape().count() > most)
      fail_too_large(term.at, "got a value of shape " + out.shape().str() + ", want at most " + std::to_string(most) +
                                  " elements");
    for (; facts_.counted < graph().nodes().size(); ++facts_.counted)
      if (const Map& map = graph().nodes()[facts_.counted].map) facts_.listed += static_cast<std::int64_t>(map->size());
    if (facts_.listed > 4 * most)
      fail_too_large(term.at, "got " + std::to_string(facts_.listed) +
                                  " elements that are listed or moved one by one so far, want at most " +
                                  std::to_string(4 * most));
    return out;
  }

  Expr constant_value(int index, const FormulaTerm& term) {
    const Constant& known = source_.constants[static_cast<std::size_t>(index)];
    switch (known.kind) {
      case Constant::Kind::none: break;
      case Constant::Kind::value: return constant(graph(), known.value);
      case Constant::Kind::named: return named_constant(graph(), known.name);
      case Constant::Kind::out_of_range:
        formula_.fail(term.at, "got '" + term.text + "', want a number in the range of fp64");
      case Constant::Kind::division_by_zero: formula_.fail(term.at, "got a division by zero");
    }
    return plain_value(term);
  }

  Expr plain_value(const FormulaTerm& term) {
    switch (term.kind) {
      case Kind::name: return name(term);
      case Kind::negate: return -value(term.args[0]);
      case Kind::binary: return binary(term);
      default: return call(term);
    }
  }

  std::size_t slot(const FormulaTerm& term) const {
    return static_cast<std::size_t>(source_.slot_of_term[static_cast<std::size_t>(&term - formula_.terms.data())]);
  }

  Expr name(const FormulaTerm& term) const {
    if (const Expr found = scope_.values[slot(term)]; found.defined()) return found;
    if (const auto found = facts_.integers.find(term.text); found != facts_.integers.end())
      return named(indicator(graph(), facts_.integer_shapes.at(term.text), found->second), term.text);
    if (const auto found = facts_.numbers.find(term.text); found != facts_.numbers.end())
      return constant(graph(), found->second);
    if (const auto found = facts_.extents.find(term.text); found != facts_.extents.end())
      return constant(graph(), static_cast<double>(found->second));
    absent(term);
  }

  /// A case that the reference cannot hold is none of the kernel's faults: it is skipped.
  [[noreturn]] void fail_too_large(std::size_t at, const std::string& what) const {
    try {
      formula_.fail(at, what);
    } catch (const Error& error) {
      throw EnvironmentError(error.what());
    }
  }

  [[noreturn]] void absent(const FormulaTerm& term) const {
    if (scope_.source->signature.input(term.text) == nullptr)
      formula_.fail(term.at, "got '" + term.text + "', whose extent no tensor of this case gives");
    formula_.fail(term.at, "got the optional input '" + term.text + "', which is absent in some cases, want given(" +
                               term.text + ", ..., ...)");
  }

  Expr binary(const FormulaTerm& term) {
    const Expr a = value(term.args[0]);
    if (term.text == "^") return square(a);
    const Expr b = value(term.args[1]);
    checked(term, Expr(a));
    if (term.text != "@" && broadcast_shape(a.shape(), b.shape()).count() > source_.most_elements)
      fail_too_large(term.at, "got operands of shapes " + a.shape().str() + " and " + b.shape().str() +
                                  ", which broadcast to too many elements");
    if (term.text == "+") return a + b;
    if (term.text == "-") return a - b;
    if (term.text == "*") return a * b;
    if (term.text == "/") return a / b;
    if (term.text == "@") return matmul(a, b);
    if (term.text == "<") return less(a, b);
    if (term.text == "<=") return less_equal(a, b);
    if (term.text == ">") return less(b, a);
    if (term.text == ">=") return less_equal(b, a);
    return equal(a, b);
  }

  // ---- whole numbers: axes, extents, counts ----

  std::int64_t whole(int index) {
    const FormulaTerm& term = formula_.term(index);
    if (term.kind == Kind::number) {
      const auto exact = fraction(term.text);
      if (exact && exact->second == 1 && exact->first <= (std::int64_t{1} << 40)) return exact->first;
    } else if (term.kind == Kind::negate) {
      return -whole(term.args[0]);
    } else if (term.kind == Kind::name) {
      if (const auto found = facts_.extents.find(term.text); found != facts_.extents.end()) return found->second;
      const auto found = facts_.numbers.find(term.text);
      if (found != facts_.numbers.end() && found->second >= -0x1p40 && found->second <= 0x1p40 &&
          found->second == static_cast<double>(static_cast<std::int64_t>(found->second)))
        return static_cast<std::int64_t>(found->second);
      if (const std::optional<std::int64_t> named = whole_statement(term.text)) return *named;
    } else if (term.kind == Kind::call && term.text == "size") {
      const Expr x = value(term.args[0]);
      return x.shape()[axis(x, term.args[1])];
    } else if (term.kind == Kind::binary) {
      return whole_binary(term);
    }
    formula_.fail(term.at, "got no whole number, want one known from shapes and attributes");
  }

  /// The whole number that an earlier statement names, "h = E / 2"; nothing if there is no such statement.
  std::optional<std::int64_t> whole_statement(const std::string& name) {
    constexpr int kMostNested = 64;
    const auto found = std::find_if(formula_.statements.begin(), formula_.statements.end(),
                                    [&](const FormulaStatement& s) { return s.target == name; });
    if (found == formula_.statements.end() || !found->adjoints.empty() || nested_ == kMostNested) return std::nullopt;
    if (const auto known = wholes_.find(name); known != wholes_.end()) return known->second;
    ++nested_;
    const std::int64_t out = whole(found->value);
    --nested_;
    return wholes_[name] = out;
  }

  std::int64_t whole_binary(const FormulaTerm& term) {
    const std::int64_t a = whole(term.args[0]), b = term.args.size() > 1 ? whole(term.args[1]) : a;
    std::int64_t out = 0;
    bool overflow = false;
    if (term.text == "+")
      overflow = __builtin_add_overflow(a, b, &out);
    else if (term.text == "-")
      overflow = __builtin_sub_overflow(a, b, &out);
    else if (term.text == "*" || term.text == "^")
      overflow = __builtin_mul_overflow(a, b, &out);
    else if (term.text == "/" && b != 0 && a % b == 0)
      out = a / b;
    else
      formula_.fail(term.at, "got '" + term.text + "' of " + std::to_string(a) + " and " + std::to_string(b) +
                                 ", want a whole number");
    if (overflow || out > (std::int64_t{1} << 40) || out < -(std::int64_t{1} << 40))
      formula_.fail(term.at, "got a whole number beyond 2^40");
    return out;
  }

  int axis(Expr x, int index) {
    const std::int64_t at = whole(index), rank = x.shape().rank;
    if (at < -rank || at >= rank)
      formula_.fail(formula_.term(index).at, "got axis " + std::to_string(at) + " of shape " + x.shape().str() +
                                                 ", want one from " + std::to_string(-rank) + " to " +
                                                 std::to_string(rank - 1));
    return static_cast<int>(at < 0 ? at + rank : at);
  }

  std::int64_t keyword(const FormulaTerm& term, std::string_view key, std::int64_t otherwise) {
    for (const auto& [name, index] : term.keywords)
      if (name == key) return whole(index);
    return otherwise;
  }

  // ---- functions ----

  Expr call(const FormulaTerm& term) {
    const std::string& f = term.text;
    if (f == "given") {
      const FormulaTerm& input = formula_.term(term.args[0]);
      return value(term.args[scope_.values[slot(input)].defined() || facts_.integers.contains(input.text) ? 1 : 2]);
    }
    if (f == "stored") return stored(formula_.term(term.args[0]).text, value(term.args[1]));
    if (f == "size") return constant(graph(), static_cast<double>(size(term)));
    if (f == "arange" || f == "one_hot") return whole_tensor(term);
    const Expr x = value(term.args[0]);
    if (f == "sum" || f == "mean" || f == "max" || f == "min" || f == "first_max") return reduce(term, x);
    if (f == "matmul")
      return matmul(x, value(term.args[1]), keyword(term, "transpose_a", 0) != 0, keyword(term, "transpose_b", 0) != 0);
    if (f == "gather" || f == "scatter_add") return indexed(term, x);
    if (term.args.size() == 1 && f != "reshape" && f != "transpose" && f != "concat") return unary(f, x);
    if (f == "maximum") return maximum(x, value(term.args[1]));
    if (f == "minimum") return -maximum(-x, -value(term.args[1]));
    if (f == "where") {
      const Expr yes = value(term.args[1]);
      return where(x, yes, value(term.args[2]));
    }
    return moved(term, x);
  }

  std::int64_t size(const FormulaTerm& term) {
    const Expr x = value(term.args[0]);
    return x.shape()[axis(x, term.args[1])];
  }

  static Expr unary(const std::string& f, Expr x) {
    static const std::map<std::string, Expr (*)(Expr)> kUnary = {{"exp", exp},
                                                                 {"expm1", expm1},
                                                                 {"log", log},
                                                                 {"log1p", log1p},
                                                                 {"tanh", tanh},
                                                                 {"erf", erf},
                                                                 {"erfc", erfc},
                                                                 {"sqrt", sqrt},
                                                                 {"rsqrt", rsqrt},
                                                                 {"sigmoid", sigmoid},
                                                                 {"abs", abs},
                                                                 {"square", square},
                                                                 {"stop_gradient", stop_gradient}};
    return kUnary.at(f)(x);
  }

  Expr reduce(const FormulaTerm& term, Expr x) {
    if (term.args.size() == 1) {
      const Expr total = sum_all(x);
      return term.text == "sum" ? total : total * named_constant(graph(), "1/" + std::to_string(x.shape().count()));
    }
    for (std::size_t i = 1; i < term.args.size(); ++i) {
      const int at = axis(x, term.args[i]);
      if (term.text == "sum")
        x = sum(x, at);
      else if (term.text == "mean")
        x = mean(x, at);
      else if (term.text == "max")
        x = max(x, at);
      else if (term.text == "min")
        x = -max(-x, at);
      else
        x = first_max(x, at);
    }
    return x;
  }

  Expr whole_tensor(const FormulaTerm& term) {
    const bool hot = term.text == "one_hot";
    const std::string index = hot ? formula_.term(term.args[0]).text : "";
    if (hot && !facts_.integers.contains(index)) absent(formula_.term(term.args[0]));
    const std::int64_t n = whole(term.args[hot ? 1 : 0]);
    Shape shape = hot ? facts_.integer_shapes.at(index) : Shape{};
    if (n < 0) formula_.fail(term.at, "got " + std::to_string(n) + " elements in " + term.text);
    if (n > source_.most_elements || shape.count() * n > source_.most_elements)
      fail_too_large(term.at, "got " + std::to_string(n) + " elements in " + term.text);
    if (shape.rank == kMaxRank) formula_.fail(term.at, "got more than 8 dimensions");
    shape[shape.rank++] = n;
    std::vector<std::int64_t> values;
    if (hot)
      for (const std::int64_t at : facts_.integers.at(index))
        for (std::int64_t i = 0; i < n; ++i) values.push_back(i == at);
    else
      for (std::int64_t i = 0; i < n; ++i) values.push_back(i);
    return named(indicator(graph(), shape, std::move(values)),
                 term.text + "(" + (hot ? index : formula_.term(term.args[0]).text) + ")");
  }

  /// gather: rows of [V, D] at each index; scatter_add: rows of [index..., D] added up at each index of [rows, D].
  Expr indexed(const FormulaTerm& term, Expr x) {
    const FormulaTerm& index = formula_.term(term.args[1]);
    if (!facts_.integers.contains(index.text)) absent(index);
    const std::vector<std::int64_t>& at = facts_.integers.at(index.text);
    if (x.shape().rank < 2) formula_.fail(term.at, "got shape " + x.shape().str() + ", want at least 2 dimensions");
    const bool gathers = term.text == "gather";
    const std::int64_t rows = gathers ? x.shape()[0] : whole(term.args[2]), width = x.shape().last();
    for (const std::int64_t row : at)
      if (row >= rows)
        formula_.fail(index.at, "got index " + std::to_string(row) + " of " + std::to_string(rows) + " rows");
    if (gathers) {
      if (x.shape().rank != 2)
        formula_.fail(term.at, "got a table of shape " + x.shape().str() + ", want 2 dimensions");
      Shape shape = facts_.integer_shapes.at(index.text);
      if (shape.rank == kMaxRank) formula_.fail(term.at, "got more than 8 dimensions");
      shape[shape.rank++] = width;
      return reshape(gather_rows(x, at), shape);
    }
    if (x.shape().count() != static_cast<std::int64_t>(at.size()) * width || rows < 0 || rows > source_.most_elements ||
        rows * std::max<std::int64_t>(width, 1) > source_.most_elements)
      formula_.fail(term.at, "got " + x.shape().str() + " and " + std::to_string(at.size()) +
                                 " indices, want one index for each row");
    std::vector<std::int64_t> map;
    for (const std::int64_t row : at)
      for (std::int64_t d = 0; d < width; ++d) map.push_back(row < 0 ? -1 : row * width + d);
    return put_add(x, std::move(map), Shape{rows, width});
  }

  Expr moved(const FormulaTerm& term, Expr x) {
    const std::string& f = term.text;
    if (f == "reshape") return reshaped(term, x);
    if (f == "transpose") return transposed(term, x);
    if (f == "squeeze") {
      const int at = axis(x, term.args[1]);
      Shape shape;
      for (int i = 0; i < x.shape().rank; ++i)
        if (i != at) shape[shape.rank++] = x.shape()[i];
      if (x.shape()[at] != 1)
        formula_.fail(term.at, "got extent " + std::to_string(x.shape()[at]) + " in squeeze, want 1");
      return reshape(x, shape);
    }
    if (f == "slice") return sliced(term, x);
    if (f == "concat") return joined(term, x);
    const auto small = [&](std::int64_t v) {
      if (v < 0 || v > 4096) formula_.fail(term.at, "got " + std::to_string(v) + " in unfold, want 0 to 4096");
      return static_cast<int>(v);
    };
    const int kh = small(whole(term.args[1])), kw = small(whole(term.args[2]));
    const int stride = small(keyword(term, "stride", 1)), padding = small(keyword(term, "padding", 0));
    if (x.shape().rank != 4 || kh == 0 || kw == 0 || stride == 0)
      formula_.fail(term.at, "got shape " + x.shape().str() + ", want unfold of [N,C,H,W] with positive extents");
    const Shape& s = x.shape();
    const std::int64_t windows = window_extent(s[2], kh, stride, padding) * window_extent(s[3], kw, stride, padding);
    const double all = static_cast<double>(s[0]) * static_cast<double>(s[1]) * kh * kw *
                       static_cast<double>(std::max<std::int64_t>(windows, 1));
    if (all > static_cast<double>(source_.most_elements)) fail_too_large(term.at, "got too many windows in unfold");
    return unfold(x, kh, kw, stride, padding);
  }

  Expr reshaped(const FormulaTerm& term, Expr x) {
    Shape shape;
    int inferred = -1;
    std::int64_t known = 1;
    for (std::size_t i = 1; i < term.args.size(); ++i) {
      const std::int64_t extent = whole(term.args[i]);
      if (shape.rank == kMaxRank) formula_.fail(term.at, "got more than 8 dimensions in reshape");
      if (extent < -1 || (extent == -1 && inferred >= 0))
        formula_.fail(formula_.term(term.args[i]).at,
                      "got extent " + std::to_string(extent) + " in reshape, want one -1 at most");
      if (extent == -1)
        inferred = shape.rank;
      else if (__builtin_mul_overflow(known, extent, &known))
        formula_.fail(term.at, "got too many elements in reshape");
      shape[shape.rank++] = extent;
    }
    if (inferred >= 0) {
      if (known == 0 || x.shape().count() % known != 0)
        formula_.fail(term.at, "got no extent for -1 in reshape of " + x.shape().str());
      shape[inferred] = x.shape().count() / known;
    }
    return reshape(x, shape);
  }

  Expr transposed(const FormulaTerm& term, Expr x) {
    const int rank = x.shape().rank;
    std::vector<int> order;
    for (std::size_t i = 1; i < term.args.size(); ++i) order.push_back(axis(x, term.args[i]));
    if (order.empty()) {
      for (int i = 0; i < rank; ++i) order.push_back(i);
      if (rank >= 2) std::swap(order[static_cast<std::size_t>(rank) - 1], order[static_cast<std::size_t>(rank) - 2]);
    }
    std::vector<int> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (int i = 0; i < rank; ++i)
      if (static_cast<int>(sorted.size()) != rank || sorted[static_cast<std::size_t>(i)] != i)
        formula_.fail(term.at, "got an order of axes for " + x.shape().str() + ", want each axis once");
    return transpose(x, order);
  }

  Expr sliced(const FormulaTerm& term, Expr x) {
    const int at = axis(x, term.args[1]);
    const std::int64_t extent = x.shape()[at];
    std::int64_t begin = whole(term.args[2]), end = whole(term.args[3]);
    if (begin < 0) begin += extent;
    if (end < 0) end += extent;
    if (begin < 0 || begin > end || end > extent)
      formula_.fail(term.at, "got slice [" + std::to_string(begin) + ", " + std::to_string(end) + ") of extent " +
                                 std::to_string(extent));
    return slice(x, at, begin, end);
  }

  Expr joined(const FormulaTerm& term, Expr x) {
    std::vector<Expr> parts = {x};
    for (std::size_t i = 1; i < term.args.size(); ++i) parts.push_back(value(term.args[i]));
    const std::int64_t rank = x.shape().rank, wanted = keyword(term, "axis", -1),
                       at = wanted < 0 ? wanted + rank : wanted;
    if (at < 0 || at >= rank)
      formula_.fail(term.at, "got axis " + std::to_string(wanted) + " of shape " + x.shape().str());
    std::int64_t elements = 0;
    for (const Expr& part : parts) elements += part.shape().count();
    if (elements > source_.most_elements)
      fail_too_large(term.at, "got " + std::to_string(elements) + " elements in concat");
    for (const Expr& part : parts)
      for (int i = 0; i < rank; ++i)
        if (part.shape().rank != rank || (i != at && part.shape()[i] != x.shape()[i]))
          formula_.fail(term.at,
                        "got parts of shapes " + x.shape().str() + " and " + part.shape().str() + " in concat");
    return concat(parts, static_cast<int>(at));
  }

  Scope scope_;
  const Source& source_;
  const ParsedFormula& formula_;
  const CaseFacts& facts_;
  std::map<std::string, std::int64_t> wholes_;  ///< whole numbers of statements, by name
  int nested_ = 0;                              ///< statements that are read as whole numbers now
};

Scope scope_of(const FormulaCall& call, const std::shared_ptr<const Source>& source) {
  auto facts = std::make_shared<CaseFacts>();
  facts->integers = call.integers_;
  facts->integer_shapes = call.integer_shapes_;
  for (const AttributeSpec& spec : source->signature.attributes)
    if (std::holds_alternative<double>(spec.default_value)) facts->numbers[spec.name] = call.number(spec.name);
  for (std::size_t k = 0; k < source->symbols.size(); ++k) {
    const std::string& name = source->signature.inputs[k].name;
    const auto integer = call.integer_shapes_.find(name);
    const Expr floating = call[name];
    if (!floating.defined() && integer == call.integer_shapes_.end()) continue;
    const Shape& shape = floating.defined() ? floating.shape() : integer->second;
    for (std::size_t i = 0; i < source->symbols[k].size(); ++i)
      facts->extents[source->symbols[k][i]] = shape[static_cast<int>(i)];
  }
  Scope out{&call.graph(), source, std::move(facts), std::vector<Expr>(source->slots.size())};
  for (const auto& [name, input] : call.inputs_)
    if (const int slot = source->slot_of(name); slot >= 0) out.values[static_cast<std::size_t>(slot)] = input;
  return out;
}

/// All that does not depend on a case.
void prepare(Source& source) {
  const ParsedFormula& formula = source.formula;
  for (const TensorSpec& spec : source.signature.inputs)
    source.symbols.push_back(OpSignature::symbols(spec)), source.slot(spec.name);
  for (const FormulaStatement& statement : formula.statements) {
    source.slot(statement.target), source.slot("d" + statement.target);
    for (const FormulaAdjoint& adjoint : statement.adjoints) source.slot(adjoint.of);
  }
  const Constants constants(formula);
  for (std::size_t i = 0; i < formula.terms.size(); ++i) {
    const FormulaTerm& term = formula.terms[i];
    source.slot_of_term.push_back(term.kind == Kind::name ? source.slot(term.text) : -1);
    source.constants.push_back(constants.of(static_cast<int>(i)));
  }
}

}  // namespace

Form form_from_text(const OpSignature& signature, std::string name, std::string text, bool one_pass,
                    std::int64_t most_elements) {
  const auto source = std::make_shared<Source>(Source{parse_formula(std::move(text)), signature, most_elements});
  resolve_formula(source->formula, signature);
  prepare(*source);
  return {std::move(name),
          [source = std::shared_ptr<const Source>(source)](FormulaCall& call) {
            Evaluator evaluator(scope_of(call, source));
            for (const FormulaStatement& statement : source->formula.statements) evaluator.statement(statement);
            for (const OutputSpec& output : source->signature.outputs)
              call.output(output.name, evaluator.output(output.name));
          },
          one_pass};
}

}  // namespace ampcheck::reference
