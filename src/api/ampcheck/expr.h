// SPDX-License-Identifier: Apache-2.0
/// @file
/// Formulas in C++ for the header-only door: an Expr writes the text of the formula language and computes nothing.
///
///     op.formula([](Expr x, Expr weight, Expr eps) {
///       Expr inv_rms = stored("inv_rms", rsqrt(mean(x * x, -1) + eps));
///       return x * inv_rms * weight;
///     });
///
/// Arguments are the inputs in their order, then the attributes if the lambda takes them. Broadcasting is NumPy's;
/// reductions keep their axis with extent 1. Several outputs: return a std::vector<Expr>. `ampcheck explain formula`
/// shows the language. Mistakes in shapes are reported by ampcheck, where the text is read; what can be seen here
/// throws std::invalid_argument.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ampcheck {
namespace op __attribute__((visibility("hidden"))) {

  namespace detail {

  /// One text of several. (gcc 12 warns of std::string's own operator+, PR105651.)
  inline std::string joined(std::initializer_list<std::string_view> parts) {
    std::string out;
    for (const std::string_view part : parts) out.append(part);
    return out;
  }

  }  // namespace detail

  /// A value in a formula: a number, an input, or what is made of them.
  class Expr {
   public:
    /// A number: exact as written in decimal ("0.1" is one tenth).
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    Expr(T value) : Expr(leaf(text_of(static_cast<double>(value)))) {}

    /// What it is made of.
    struct Node {
      std::string head;                 ///< leaf: its text; else "+" or the name of a function
      std::vector<Expr> args = {};      ///< operands
      std::string keywords = {};        ///< ", axis=0"
      std::string name = {};            ///< fixed name of a value with an adjoint of its own
      std::vector<Expr> wrt = {};       ///< of with_adjoint(): what has adjoints
      std::vector<Expr> adjoints = {};  ///< and these
      bool in_adjoint = false;          ///< depends on a cotangent: cannot be a statement of its own
    };
    const Node* node() const { return node_.get(); }  ///< What it is made of.

    /// A name or a number as text.
    static Expr leaf(std::string text, bool in_adjoint = false) {
      Node node{std::move(text)};
      node.in_adjoint = in_adjoint;
      return Expr(std::make_shared<const Node>(std::move(node)));
    }
    /// An operator or a function of `args`.
    static Expr apply(std::string head, std::vector<Expr> args, std::string keywords = "") {
      Node node{std::move(head), std::move(args), std::move(keywords)};
      for (const Expr& arg : node.args) node.in_adjoint = node.in_adjoint || arg.node()->in_adjoint;
      return Expr(std::make_shared<const Node>(std::move(node)));
    }
    /// A node as an Expr.
    static Expr adopt(Node node) { return Expr(std::make_shared<const Node>(std::move(node))); }

   private:
    explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

    static std::string text_of(double value) {
      if (!std::isfinite(value)) throw std::invalid_argument("a formula holds a number that is not finite");
      char buffer[40];
      const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::fabs(value));  // never the locale's
      const std::string digits(buffer, end.ptr);
      return std::signbit(value) ? detail::joined({"(-", digits, ")"}) : digits;
    }

    std::shared_ptr<const Node> node_;
  };

  /// Sum, element by element.
  inline Expr operator+(Expr a, Expr b) { return Expr::apply("+", {a, b}); }
  /// Difference.
  inline Expr operator-(Expr a, Expr b) { return Expr::apply("-", {a, b}); }
  /// Product, element by element.
  inline Expr operator*(Expr a, Expr b) { return Expr::apply("*", {a, b}); }
  /// Quotient.
  inline Expr operator/(Expr a, Expr b) { return Expr::apply("/", {a, b}); }
  /// -x.
  inline Expr operator-(Expr x) { return Expr::apply("neg", {x}); }
  /// 1 where a < b, else 0; no gradient.
  inline Expr operator<(Expr a, Expr b) { return Expr::apply("<", {a, b}); }
  /// 1 where a <= b, else 0.
  inline Expr operator<=(Expr a, Expr b) { return Expr::apply("<=", {a, b}); }
  /// 1 where a > b, else 0.
  inline Expr operator>(Expr a, Expr b) { return Expr::apply(">", {a, b}); }
  /// 1 where a >= b, else 0.
  inline Expr operator>=(Expr a, Expr b) { return Expr::apply(">=", {a, b}); }
  /// 1 where a == b, else 0.
  inline Expr operator==(Expr a, Expr b) { return Expr::apply("==", {a, b}); }

  inline Expr exp(Expr x) { return Expr::apply("exp", {x}); }      ///< e^x
  inline Expr expm1(Expr x) { return Expr::apply("expm1", {x}); }  ///< e^x - 1
  inline Expr log(Expr x) { return Expr::apply("log", {x}); }      ///< The natural logarithm.
  inline Expr log1p(Expr x) { return Expr::apply("log1p", {x}); }  ///< log(1 + x)
  inline Expr tanh(Expr x) { return Expr::apply("tanh", {x}); }    ///< The hyperbolic tangent.
  /// 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.
  inline Expr erf(Expr x) { return Expr::apply("erf", {x}); }
  inline Expr erfc(Expr x) { return Expr::apply("erfc", {x}); }        ///< 1 - erf(x)
  inline Expr sin(Expr x) { return Expr::apply("sin", {x}); }          ///< The sine of radians.
  inline Expr cos(Expr x) { return Expr::apply("cos", {x}); }          ///< The cosine of radians.
  inline Expr sqrt(Expr x) { return Expr::apply("sqrt", {x}); }        ///< The square root.
  inline Expr rsqrt(Expr x) { return Expr::apply("rsqrt", {x}); }      ///< 1 / sqrt(x)
  inline Expr sigmoid(Expr x) { return Expr::apply("sigmoid", {x}); }  ///< 1 / (1 + e^-x)
  inline Expr abs(Expr x) { return Expr::apply("abs", {x}); }          ///< |x|
  inline Expr square(Expr x) { return Expr::apply("square", {x}); }    ///< x^2
  /// x^exponent: NaN where x < 0 and the exponent is no whole number, 1 where it is 0.
  inline Expr pow(Expr x, Expr exponent) { return Expr::apply("pow", {x, exponent}); }
  /// x, without a gradient: a shift that cancels.
  inline Expr stop_gradient(Expr x) { return Expr::apply("stop_gradient", {x}); }

  /// The larger of both, element by element.
  inline Expr maximum(Expr a, Expr b) { return Expr::apply("maximum", {a, b}); }
  /// The smaller of both, element by element.
  inline Expr minimum(Expr a, Expr b) { return Expr::apply("minimum", {a, b}); }
  /// yes where the condition is not 0, else no.
  inline Expr where(Expr condition, Expr yes, Expr no) { return Expr::apply("where", {condition, yes, no}); }
  /// Along one axis (negative: from the end); without axis over all elements.
  inline Expr sum(Expr x, int axis) { return Expr::apply("sum", {x, axis}); }
  /// The sum of all elements.
  inline Expr sum(Expr x) { return Expr::apply("sum", {x}); }
  /// The mean along one axis (negative: from the end).
  inline Expr mean(Expr x, int axis) { return Expr::apply("mean", {x, axis}); }
  /// The mean of all elements.
  inline Expr mean(Expr x) { return Expr::apply("mean", {x}); }
  /// The largest along one axis; the first of equal ones has its gradient.
  inline Expr max(Expr x, int axis) { return Expr::apply("max", {x, axis}); }
  /// The smallest along one axis; the first of equal ones has its gradient.
  inline Expr min(Expr x, int axis) { return Expr::apply("min", {x, axis}); }
  /// 1 at the first of the largest along an axis, else 0; of the extents of x, without a gradient.
  inline Expr first_max(Expr x, int axis) { return Expr::apply("first_max", {x, axis}); }
  /// Sums of the elements up to each one along an axis (negative: from the end); reversed: from each one on.
  inline Expr cumsum(Expr x, int axis, bool reversed = false) {
    return Expr::apply("cumsum", {x, axis}, reversed ? ", reversed=1" : "");
  }
  /// Product of matrices over the last two axes, of either its transpose; leading axes are batches.
  inline Expr matmul(Expr a, Expr b, bool transpose_a = false, bool transpose_b = false) {
    return Expr::apply("matmul", {a, b},
                       detail::joined({transpose_a ? ", transpose_a=1" : "", transpose_b ? ", transpose_b=1" : ""}));
  }
  /// Rows of a table [V, D] by an integer input; its adjoint-like opposite adds rows up.
  inline Expr gather(Expr table, Expr index) { return Expr::apply("gather", {table, index}); }
  /// Rows of x added up in a table of `rows` rows, each at its index: the opposite of gather().
  inline Expr scatter_add(Expr x, Expr index, Expr rows) { return Expr::apply("scatter_add", {x, index, rows}); }
  /// 1 at the index, else 0: one axis of n more.
  inline Expr one_hot(Expr index, Expr n) { return Expr::apply("one_hot", {index, n}); }
  /// 0, 1, ..., n - 1.
  inline Expr arange(Expr n) { return Expr::apply("arange", {n}); }
  /// The extent of a dimension symbol or of an axis.
  inline Expr dim(const std::string& symbol) { return Expr::leaf(symbol); }
  /// The extent of an axis (negative: from the end).
  inline Expr size(Expr x, int axis) { return Expr::apply("size", {x, axis}); }
  /// m / n of extents or whole numbers, rounded down.
  inline Expr floor_div(Expr m, Expr n) { return Expr::apply("floor", {m / n}); }
  /// The same elements under other extents, row-major.
  inline Expr reshape(Expr x, std::vector<Expr> extents) {
    extents.insert(extents.begin(), x);
    return Expr::apply("reshape", std::move(extents));
  }
  /// The last two axes exchanged.
  inline Expr transpose(Expr x) { return Expr::apply("transpose", {x}); }
  /// The axes in another order.
  inline Expr transpose(Expr x, std::initializer_list<int> order) {
    std::vector<Expr> args = {x};
    for (const int axis : order) args.push_back(axis);
    return Expr::apply("transpose", std::move(args));
  }
  /// Elements begin to end - 1 along an axis.
  inline Expr slice(Expr x, int axis, Expr begin, Expr end) { return Expr::apply("slice", {x, axis, begin, end}); }
  /// Without an axis of extent 1.
  inline Expr squeeze(Expr x, int axis) { return Expr::apply("squeeze", {x, axis}); }
  /// One behind the other along an axis (negative: from the end).
  inline Expr concat(std::vector<Expr> parts, int axis = -1) {
    return Expr::apply("concat", std::move(parts), detail::joined({", axis=", std::to_string(axis)}));
  }
  /// The kernel may keep this value as its saved tensor of that name.
  inline Expr stored(const std::string& name, Expr x) { return Expr::apply("stored", {Expr::leaf(name), x}); }
  /// a where the optional input is there, else b.
  inline Expr given(Expr input, Expr a, Expr b) { return Expr::apply("given", {input, a, b}); }

  /// `value` with an adjoint of its own, as a kernel writes it: `rule` takes the cotangent and returns what each of
  /// `wrt` receives (an Expr, or a std::vector<Expr>).
  template <class F>
  Expr with_adjoint(Expr value, std::vector<Expr> wrt, F rule) {
    static thread_local int count = 0;
    Expr::Node node{"with", {value}};
    node.name = detail::joined({"_w", std::to_string(++count)});
    node.wrt = std::move(wrt);
    const Expr cotangent = Expr::leaf(detail::joined({"d", node.name}), true);
    if constexpr (std::is_convertible_v<std::invoke_result_t<F, Expr>, Expr>)
      node.adjoints = {rule(cotangent)};
    else
      node.adjoints = rule(cotangent);
    if (node.adjoints.size() != node.wrt.size())
      throw std::invalid_argument("with_adjoint: one adjoint for each value");
    node.in_adjoint = value.node()->in_adjoint;
    return Expr::adopt(std::move(node));
  }

  namespace detail {

  /// Writes the statements of an expression graph: what is used twice gets a name, the rest stands inside.
  class FormulaWriter {
   public:
    std::string write(const std::vector<std::string>& outputs, const std::vector<Expr>& values) {
      if (outputs.size() != values.size())
        throw std::invalid_argument(
            joined({"the formula returns ", std::to_string(values.size()), " values, want one for each of ",
                    std::to_string(outputs.size()), " outputs"}));
      for (const Expr& value : values) count(value);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::string text = bare(text_of(values[i]));
        statements_.append(joined({outputs[i], " = ", text, "\n"}));
      }
      return statements_;
    }

   private:
    static constexpr int kInline = 12;  ///< nesting beyond which a value gets a name

    static bool is_leaf(const Expr& x) { return x.node()->args.empty(); }

    void count(const Expr& x) {
      if (is_leaf(x) || uses_[x.node()]++ > 0) return;
      for (const Expr& arg : x.node()->args) count(arg);
      for (const Expr& adjoint : x.node()->adjoints) count(adjoint);
      for (const Expr& wrt : x.node()->wrt) {
        count(wrt);
        named_.insert(wrt.node());
      }
    }

    static std::string bare(const std::string& text) {
      return text.size() > 2 && text.front() == '(' && closes_at_end(text) ? text.substr(1, text.size() - 2) : text;
    }
    static bool closes_at_end(const std::string& text) {
      int depth = 0;
      for (std::size_t i = 0; i < text.size(); ++i) {
        depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
        if (depth == 0) return i + 1 == text.size();
      }
      return false;
    }

    std::string text_of(const Expr& x) {
      const Expr::Node* node = x.node();
      if (is_leaf(x)) return node->head;
      if (const auto known = names_.find(node); known != names_.end()) return known->second;
      if (node->head == "with") return define_with(x);
      const std::string text = built(x);
      const bool shared = uses_[node] > 1 || named_.count(node) != 0 || depth_[node] > kInline;
      if (!shared || node->in_adjoint) return text;
      const std::string name = joined({"_", std::to_string(names_.size() + 1)});
      statements_.append(joined({name, " = ", bare(text), "\n"}));
      depth_[node] = 0;
      return names_[node] = name;
    }

    std::string built(const Expr& x) {
      const Expr::Node& node = *x.node();
      std::vector<std::string> args;
      for (const Expr& arg : node.args) args.push_back(text_of(arg));
      int depth = 0;
      for (const Expr& arg : node.args) depth = std::max(depth, depth_[arg.node()]);
      depth_[&node] = depth + 1;
      if (node.head == "neg") return joined({"(-", args[0], ")"});
      const char first = node.head.front();
      if (first < 'A' || first > 'z') {
        if (args[0].size() + args[1].size() > 65536) throw std::length_error("the formula is too long as text");
        return joined({"(", args[0], " ", node.head, " ", args[1], ")"});
      }
      std::string text = joined({node.head, "("});
      for (std::size_t i = 0; i < args.size(); ++i) text.append(joined({i == 0 ? "" : ", ", bare(args[i])}));
      if (text.size() > 65536)
        throw std::length_error("the formula is too long as text");  // shared parts of an adjoint repeat
      return text.append(joined({node.keywords, ")"}));
    }

    std::string define_with(const Expr& x) {
      const Expr::Node& node = *x.node();
      std::string text = joined({node.name, " = ", bare(text_of(node.args[0])), " with "});
      for (std::size_t i = 0; i < node.wrt.size(); ++i) {
        const std::string of = text_of(node.wrt[i]), adjoint = bare(text_of(node.adjoints[i]));
        text.append(joined({i == 0 ? "d" : ", d", of, " = ", adjoint}));
      }
      statements_.append(joined({text, "\n"}));  // what it names was written before
      return names_[&node] = node.name;
    }

    std::map<const Expr::Node*, int> uses_, depth_;
    std::map<const Expr::Node*, std::string> names_;
    std::set<const Expr::Node*> named_;
    std::string statements_;
  };

  /// @cond
  /// Number of arguments of a lambda.
  template <class F>
  struct ArityOf : ArityOf<decltype(&F::operator())> {};
  template <class C, class R, class... A>
  struct ArityOf<R (C::*)(A...) const> : std::integral_constant<std::size_t, sizeof...(A)> {};
  template <class R, class... A>
  struct ArityOf<R (*)(A...)> : std::integral_constant<std::size_t, sizeof...(A)> {};
  /// @endcond

  template <class F, std::size_t... I>
  std::vector<Expr> call_formula(const F& formula, const std::vector<Expr>& args, std::index_sequence<I...>) {
    if constexpr (std::is_convertible_v<decltype(formula(args[I]...)), Expr>)
      return {formula(args[I]...)};
    else
      return formula(args[I]...);
  }

  /// The text of a formula as a lambda of the inputs, and of the attributes if it takes them.
  template <class F>
  std::string formula_text(const F& formula, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& attributes, const std::vector<std::string>& outputs) {
    constexpr std::size_t kArity = ArityOf<F>::value;
    std::vector<Expr> args;
    for (const std::string& name : inputs) args.push_back(Expr::leaf(name));
    if (kArity != inputs.size())
      for (const std::string& name : attributes) args.push_back(Expr::leaf(name));
    if (kArity != args.size())
      throw std::invalid_argument(
          joined({"the formula takes ", std::to_string(kArity), " arguments, want the ", std::to_string(inputs.size()),
                  " inputs, or these and the ", std::to_string(attributes.size()), " attributes"}));
    return FormulaWriter().write(outputs, call_formula(formula, args, std::make_index_sequence<kArity>{}));
  }

  }  // namespace detail

}  // namespace )
}  // namespace ampcheck
