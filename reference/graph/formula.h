// SPDX-License-Identifier: Apache-2.0
// A formula of an op: how its outputs follow from its inputs. Recorded anew for each case, at that case's shapes and
// integer inputs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reference/graph/expr.h"
#include "src/op_signature.h"

namespace ampcheck::reference {

/// What a formula sees of a case.
class FormulaCall {
 public:
  FormulaCall(Graph& graph, const Attributes& attributes) : graph_(graph), attributes_(attributes) {}

  /// A floating input; undefined Expr for an absent optional one.
  Expr operator[](const std::string& name) const {
    const auto found = inputs_.find(name);
    return found == inputs_.end() ? Expr{} : found->second;
  }
  bool has(const std::string& name) const { return inputs_.contains(name); }
  /// The values of an integer input.
  const std::vector<std::int64_t>& integers(const std::string& name) const { return integers_.at(name); }
  double number(const std::string& name) const { return attributes_.number(name); }
  const std::string& text(const std::string& name) const { return attributes_.text(name); }
  /// A number attribute as a node: a ball of its own rounding unless representable.
  Expr attribute(const std::string& name) const { return constant(graph_, number(name)); }
  Graph& graph() const { return graph_; }

  /// Declares an output.
  void output(const std::string& name, Expr value) { outputs_.emplace_back(name, value); }

  std::map<std::string, Expr> inputs_;
  std::map<std::string, std::vector<std::int64_t>> integers_;
  std::map<std::string, Shape> integer_shapes_;
  std::vector<std::pair<std::string, Expr>> outputs_;

 private:
  Graph& graph_;
  const Attributes& attributes_;
};

/// One admitted algebra of an op. The first form of an op is its definition; the others are proved equal to it in 100
/// digits, forward and adjoint.
struct Form {
  std::string name;
  std::function<void(FormulaCall&)> formula;
  bool one_pass = false;  ///< sums by running rescaling
};

/// A recorded form at one case: outputs, cotangent leaves and gradients as nodes of one graph.
struct Recording {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::map<std::string, Expr> inputs;  ///< floating inputs
  std::vector<std::pair<std::string, Expr>> outputs;
  std::map<std::string, Expr> stored;                   ///< by name, what the kernel may save
  std::map<std::string, Expr> cotangents;               ///< "dy" by output
  std::vector<std::pair<std::string, Expr>> gradients;  ///< "dx", of the inputs that have one
  std::map<std::string, Expr> tangents;  ///< "x.tangent" by input that has a gradient; of an op with forward mode alone
  std::vector<std::pair<std::string, Expr>> jvps;  ///< "y.tangent": the adjoint of the gradients by the cotangents
  bool one_pass = false;
  std::string form;

  /// Throws Error for an output that the formula has not.
  Expr output(const std::string& name) const;
  std::vector<Expr> output_nodes() const;
  std::vector<Expr> gradient_nodes() const;
  std::vector<Expr> jvp_nodes() const;
};

/// Shapes of the floating inputs, values and shapes of the integer ones.
struct CaseInputs {
  std::map<std::string, Shape> shapes;
  std::map<std::string, std::vector<std::int64_t>> integers;
  std::map<std::string, Shape> integer_shapes;
};

/// Records forward and adjoint of a form. Gradients are recorded for the signature's differentiable inputs; with
/// signature.forward_mode, the tangents of the outputs too.
Recording record(const OpSignature& signature, const Form& form, const Attributes& attributes,
                 const CaseInputs& inputs);

}  // namespace ampcheck::reference
