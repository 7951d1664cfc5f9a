// SPDX-License-Identifier: Apache-2.0
// The formula of one call in fp64: its output, and its gradients at a cotangent.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checks/models/bound_call.h"
#include "reference/graph/formula.h"

namespace ampcheck::checks::models {

class Evaluation {
 public:
  explicit Evaluation(std::shared_ptr<const reference::Recording> recording);
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  ~Evaluation();

  const reference::Recording& recording() const;
  /// Values of a floating input; integer inputs are in the recording, and are ignored here.
  void set_input(const std::string& name, std::vector<double> values);
  /// The same, but they stay where they are and must outlive this evaluation.
  void borrow_input(const std::string& name, const std::vector<double>& values);
  /// As it was set; of a floating input.
  const std::vector<double>& input(const std::string& name);
  /// Of the first output.
  const std::vector<double>& output();
  void set_cotangent(std::vector<double> values);
  /// By the name of the input that it is the gradient of.
  const std::vector<double>& gradient(const std::string& input);
  /// The same, given away.
  std::vector<double> give_gradient(const std::string& input);

 private:
  struct State;
  reference::Expr gradient_node(const std::string& input) const;
  std::unique_ptr<State> state_;
};

/// The gradients of a call's gradients.
class SecondEvaluation {
 public:
  explicit SecondEvaluation(std::shared_ptr<const SecondOrder> recording);
  SecondEvaluation(const SecondEvaluation&) = delete;
  SecondEvaluation& operator=(const SecondEvaluation&) = delete;
  ~SecondEvaluation();

  /// Values of an input, the cotangent or a "dgrad_x", which is zero unless given; another name is ignored.
  void set(const std::string& name, std::vector<double> values);
  /// "dx" or "ddy".
  const std::vector<double>& gradient(const std::string& name);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ampcheck::checks::models
