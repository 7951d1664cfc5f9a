// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/text/formula_text.h"

#include "reference/text/formula_evaluator.h"
#include "reference/text/formula_resolve.h"

namespace ampcheck::reference {

namespace {

FormulaScope scope_of(const FormulaCall& call, const std::shared_ptr<const FormulaSource>& source) {
  auto facts = std::make_shared<FormulaCase>();
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
  FormulaScope out{&call.graph(), source, std::move(facts), std::vector<Expr>(source->slots.size())};
  for (const auto& [name, input] : call.inputs_)
    if (const int slot = source->slot_of(name); slot >= 0) out.values[static_cast<std::size_t>(slot)] = input;
  return out;
}

/// All that does not depend on a case.
void prepare(FormulaSource& source) {
  const ParsedFormula& formula = source.formula;
  for (const TensorSpec& spec : source.signature.inputs) {
    source.symbols.push_back(OpSignature::symbols(spec));
    source.slot(spec.name);
  }
  for (const FormulaStatement& statement : formula.statements) {
    source.slot(statement.target);
    source.slot("d" + statement.target);
    for (const FormulaAdjoint& adjoint : statement.adjoints) source.slot(adjoint.of);
  }
  for (std::size_t i = 0; i < formula.terms.size(); ++i) {
    const FormulaTerm& term = formula.terms[i];
    source.slot_of_term.push_back(term.kind == FormulaTerm::Kind::name ? source.slot(term.text) : -1);
    source.constants.push_back(constant_of(formula, static_cast<int>(i)));
  }
}

}  // namespace

Form form_from_text(const OpSignature& signature, std::string name, std::string text, bool one_pass,
                    std::int64_t most_elements) {
  const auto source =
      std::make_shared<FormulaSource>(FormulaSource{parse_formula(std::move(text)), signature, most_elements});
  resolve_formula(source->formula, signature);
  prepare(*source);
  return {std::move(name),
          [source = std::shared_ptr<const FormulaSource>(source)](FormulaCall& call) {
            FormulaEvaluator evaluator(scope_of(call, source));
            for (const FormulaStatement& statement : source->formula.statements) evaluator.statement(statement);
            for (const OutputSpec& output : source->signature.outputs)
              call.output(output.name, evaluator.output(output.name));
          },
          one_pass};
}

}  // namespace ampcheck::reference
