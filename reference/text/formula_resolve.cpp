// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// What a formula in text may name: functions with their arguments, and tensors, attributes and statements.
#include <algorithm>
#include <set>

#include "reference/text/formula_functions.h"
#include "reference/text/formula_resolve.h"
#include "reference/text/formula_text.h"
#include "src/suggestion.h"

namespace ampcheck::reference {

const std::vector<FormulaFunction>& formula_functions() {
  static const std::vector<FormulaFunction> kFunctions = {
      {"exp", 1, 1, "exp(x)"},
      {"expm1", 1, 1, "expm1(x)"},
      {"log", 1, 1, "log(x)"},
      {"log1p", 1, 1, "log1p(x)"},
      {"tanh", 1, 1, "tanh(x)"},
      {"erf", 1, 1, "erf(x)"},
      {"erfc", 1, 1, "erfc(x)"},
      {"sin", 1, 1, "sin(x)"},
      {"cos", 1, 1, "cos(x)"},
      {"sqrt", 1, 1, "sqrt(x)"},
      {"rsqrt", 1, 1, "rsqrt(x)"},
      {"sigmoid", 1, 1, "sigmoid(x)"},
      {"softplus", 1, 1, "softplus(x)"},
      {"abs", 1, 1, "abs(x)"},
      {"square", 1, 1, "square(x)"},
      {"stop_gradient", 1, 1, "stop_gradient(x)"},
      {"pow", 2, 2, "pow(x, exponent)"},
      {"maximum", 2, 2, "maximum(a, b)"},
      {"minimum", 2, 2, "minimum(a, b)"},
      {"where", 3, 3, "where(condition, yes, no)"},
      {"sum", 1, -1, "sum(x, axis...)"},
      {"mean", 1, -1, "mean(x, axis...)"},
      {"max", 2, -1, "max(x, axis...)"},
      {"min", 2, -1, "min(x, axis...)"},
      {"first_max", 2, 2, "first_max(x, axis)"},
      {"cumsum", 2, 2, "cumsum(x, axis, reversed=0)", {"reversed"}},
      {"matmul", 2, 2, "matmul(a, b, transpose_a=0, transpose_b=0)", {"transpose_a", "transpose_b"}},
      {"gather", 2, 2, "gather(table, index)", {}, 1},
      {"scatter_add", 3, 3, "scatter_add(x, index, rows)", {}, 1},
      {"one_hot", 2, 2, "one_hot(index, n)", {}, 0},
      {"arange", 1, 1, "arange(n)"},
      {"reshape", 1, -1, "reshape(x, extents...)"},
      {"transpose", 1, -1, "transpose(x, order...)"},
      {"squeeze", 2, 2, "squeeze(x, axis)"},
      {"slice", 4, 4, "slice(x, axis, begin, end)"},
      {"concat", 1, -1, "concat(a, b, ..., axis=-1)", {"axis"}},
      {"pad", 4, 4, "pad(x, axis, before, after)"},
      {"repeat", 3, 3, "repeat(x, axis, n)"},
      {"unfold", 3, 3, "unfold(image, kh, kw, stride=1, padding=0)", {"stride", "padding"}},
      {"stored", 2, 2, "stored(name, x)", {}, 0},
      {"rounded", 1, 1, "rounded(x)"},
      {"given", 3, 3, "given(input, a, b)", {}, 0},
      {"size", 2, 2, "size(x, axis)"},
      {"floor", 1, 1, "floor(m / n)"},
  };
  return kFunctions;
}

const FormulaFunction* find_formula_function(std::string_view name) {
  const auto& all = formula_functions();
  const auto found = std::find_if(all.begin(), all.end(), [&](const FormulaFunction& f) { return f.name == name; });
  return found == all.end() ? nullptr : &*found;
}

namespace {

class Resolver {
 public:
  Resolver(const ParsedFormula& formula, const OpSignature& signature) : formula_(formula), signature_(signature) {
    for (const TensorSpec& spec : signature.inputs) known_.insert(spec.name);
    for (const AttributeSpec& spec : signature.attributes)
      if (std::holds_alternative<double>(spec.default_value)) known_.insert(spec.name);
    for (const DimSpec& dim : signature.dims) known_.insert(dim.symbol);
    known_.insert({"pi", "inf"});
  }

  void run() {
    for (const FormulaStatement& statement : formula_.statements) {
      if (known_.contains(statement.target))
        formula_.fail(statement.at, "got a second meaning for '" + statement.target + "', want a new name");
      value(statement.value);
      for (const FormulaAdjoint& adjoint : statement.adjoints) own_adjoint(statement, adjoint);
      known_.insert(statement.target);
    }
    std::string missing;
    for (const OutputSpec& output : signature_.outputs)
      if (!defines(output.name)) missing += (missing.empty() ? "'" : ", '") + output.name + "'";
    if (!missing.empty()) formula_.fail(formula_.text.size(), "got no statement for the output " + missing);
    for (const OutputSpec& saved : signature_.saved)
      if (!stored_.contains(saved.name))
        formula_.fail(formula_.text.size(), "got no stored(" + saved.name + ", ...), want one for each saved tensor");
  }

 private:
  bool defines(const std::string& name) const {
    return std::any_of(formula_.statements.begin(), formula_.statements.end(),
                       [&](const auto& s) { return s.target == name; });
  }

  void own_adjoint(const FormulaStatement& statement, const FormulaAdjoint& adjoint) {
    const TensorSpec* input = signature_.input(adjoint.of);
    const bool variable = std::any_of(formula_.statements.begin(), formula_.statements.end(),
                                      [&](const auto& s) { return &s < &statement && s.target == adjoint.of; });
    if (!variable && (input == nullptr || !input->has_gradient()))
      formula_.fail(adjoint.at, "got the gradient of '" + adjoint.of +
                                    "', want that of a differentiable input or an earlier statement");
    // Inside, the value itself and its cotangent have names.
    const std::string cotangent = "d" + statement.target;
    if (known_.contains(cotangent))
      formula_.fail(statement.at,
                    "got '" + cotangent + "' as a name and as the cotangent of '" + statement.target + "'");
    known_.insert({statement.target, cotangent});
    value(adjoint.value);
    known_.erase(statement.target);
    known_.erase(cotangent);
  }

  [[noreturn]] void unknown_name(const FormulaTerm& term) const {
    if (defines(term.text)) formula_.fail(term.at, "got '" + term.text + "' before its statement");
    std::vector<std::string> names(known_.begin(), known_.end());
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    formula_.fail(term.at,
                  "got unknown name '" + term.text + "'" + did_you_mean(term.text, names) + ", want one of " + list);
  }

  void value(int index) {
    const FormulaTerm& term = formula_.term(index);
    if (term.kind == FormulaTerm::Kind::name && !known_.contains(term.text)) unknown_name(term);
    if (term.kind == FormulaTerm::Kind::call) return call(term);
    for (const int arg : term.args) value(arg);
  }

  void call(const FormulaTerm& term) {
    const FormulaFunction* function = find_formula_function(term.text);
    if (function == nullptr) {
      std::vector<std::string> names;
      for (const FormulaFunction& f : formula_functions()) names.push_back(f.name);
      formula_.fail(term.at, "got unknown function '" + term.text + "'" + did_you_mean(term.text, names));
    }
    const int count = static_cast<int>(term.args.size());
    if (count < function->least || (function->most >= 0 && count > function->most))
      formula_.fail(term.at, "got " + std::to_string(count) + " argument" + (count == 1 ? "" : "s") + " for " +
                                 term.text + ", want " + function->usage);
    for (const auto& [key, arg] : term.keywords) {
      if (std::none_of(function->keywords.begin(), function->keywords.end(),
                       [&, k = &key](const char* known) { return *k == known; }))
        formula_.fail(formula_.term(arg).at, "got '" + key + "=' in " + term.text + ", want " + function->usage);
      value(arg);
    }
    for (int i = 0; i < count; ++i) {
      const int arg = term.args[static_cast<std::size_t>(i)];
      if (i == function->names)
        bare_name(term, formula_.term(arg), function->usage);
      else
        value(arg);
    }
  }

  void bare_name(const FormulaTerm& call, const FormulaTerm& name, const char* usage) {
    if (name.kind != FormulaTerm::Kind::name) formula_.fail(name.at, std::string("got a value, want a name: ") + usage);
    if (call.text == "stored") {
      if (std::none_of(signature_.saved.begin(), signature_.saved.end(),
                       [&](const OutputSpec& s) { return s.name == name.text; }) &&
          std::none_of(signature_.outputs.begin(), signature_.outputs.end(),
                       [&](const OutputSpec& s) { return s.to_backward && s.name == name.text; }))
        formula_.fail(name.at, "got stored('" + name.text + "'), want a saved tensor of the op");
      if (!stored_.insert(name.text).second) formula_.fail(name.at, "got a second stored(" + name.text + ", ...)");
      return;
    }
    const TensorSpec* input = signature_.input(name.text);
    if (input == nullptr) formula_.fail(name.at, "got '" + name.text + "', want an input");
    const bool integer = input->type == TypeRule::i64 || input->type == TypeRule::u8;
    if (call.text == "given" ? !input->optional : !integer)
      formula_.fail(name.at,
                    "got '" + name.text + "', want an " + (call.text == "given" ? "optional" : "integer") + " input");
  }

  const ParsedFormula& formula_;
  const OpSignature& signature_;
  std::set<std::string> known_, stored_;
};

}  // namespace

void resolve_formula(const ParsedFormula& formula, const OpSignature& signature) { Resolver(formula, signature).run(); }

}  // namespace ampcheck::reference
