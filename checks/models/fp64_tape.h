// SPDX-License-Identifier: Apache-2.0
// Define-by-run training in fp64: each call is evaluated by its op's formula, and backward() walks the tape with the
// adjoints of the same formulas. What every call met stays on record.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checks/models/bound_call.h"
#include "checks/models/tape.h"

namespace ampcheck::checks::models {

class Evaluation;
class SecondEvaluation;

/// fp64 values of the trained tensors by name.
class Parameters {
 public:
  explicit Parameters(std::string net, std::uint64_t seed = 1) : net_(std::move(net)), seed_(seed) {}
  /// The parameter of that name; at first use its initial_values().
  std::vector<double>& get(const std::string& name, const Shape& shape, double offset, double scale);
  /// Formulas recorded by earlier tapes over these parameters.
  Recordings& recordings() { return recordings_; }
  std::map<std::string, std::vector<double>>& values() { return values_; }

 private:
  std::string net_;
  std::uint64_t seed_;
  std::map<std::string, std::vector<double>> values_;
  Recordings recordings_;
};

/// Derivatives of a number that follows from the loss's gradients, to first order: by value number, by cotangent
/// number, by what a call alone makes of its input
/// ("linear_1 dx"). Empty where it does not depend on it.
struct GradientDerivative {
  std::vector<std::vector<double>> by_value, by_cotangent;
  std::map<std::string, std::vector<double>> by_input;
};

/// All that one training step met.
struct StepRecord {
  std::vector<RecordedCall> calls;
  std::vector<Shape> shapes;
  std::deque<std::vector<double>> values;       ///< each stays where it is: evaluations read them there
  std::vector<std::vector<double>> cotangents;  ///< of the loss; empty for integers and what the loss does not see
  std::map<int, int> moved;                     ///< results of reshape() and take(): of which value
  double loss = 0;
  std::map<std::string, std::vector<double>>
      gradients;  ///< "linear_1 dx": what a call added to its input's cotangent; if asked for

  GradientDerivative of_norm;  ///< of the 2-norm of the loss's gradient by all trained tensors, if traced

  const RecordedCall* find(std::string_view name) const;
};

class Fp64Tape final : public Tape {
 public:
  explicit Fp64Tape(Parameters& parameters);
  ~Fp64Tape() override;

  Var data(const Shape& shape, std::vector<double> values) override;
  Var parameter(const std::string& name, const Shape& shape, double offset, double scale) override;
  Var call(const std::string& op, const std::vector<std::pair<std::string, Var>>& inputs,
           const std::vector<std::pair<std::string, double>>& attributes = {}) override;
  Var reshape(Var x, const Shape& shape) override;
  Var take(Var x, const std::vector<std::int64_t>& map, const Shape& shape) override;
  const Shape& shape(Var x) const override { return record_.shapes[static_cast<std::size_t>(x.id)]; }
  void add_loss(Var value, double weight) override;
  /// Of the losses that follow, number k alone counts.
  void take_loss(std::size_t k) { taken_loss_ = k; }
  /// How many there were.
  std::size_t losses() const { return seen_losses_; }
  Var infer(const std::function<Var()>& block) override;

  /// Cotangents, of `weight` times the loss, of everything the loss depends on. Once: Error for a second time.
  void backward(double weight = 1);
  /// Cotangents of `weight` times (loss + penalty n), where n, which is returned, is the 2-norm of the loss's gradients
  /// by all trained tensors together. Not finite where n is zero, as the derivative of the square root.
  double backward_with_penalty(double weight, double penalty);
  /// Before backward(): puts StepRecord::norm_by_... on record, at about twice the cost of a step.
  void trace_gradient_norm();
  /// Instead of backward(): the cotangents of the loss itself, from which derivative_of_gradients() starts as often as
  /// wanted.
  void begin_derivatives();
  /// Of the sum over the trained tensors named of <direction, gradient of the loss>. Each at about the cost of two
  /// backwards.
  GradientDerivative derivative_of_gradients(const std::map<std::string, std::vector<double>>& directions);
  /// backward(), then one step of gradient descent on the parameters.
  void backward_and_update(double rate);
  /// After backward(): gradients of the trained tensors by name, of those that the loss depends on.
  std::map<std::string, std::vector<double>> gradients() const;
  /// The same one by one, by name, without copies of parameters that are taken once.
  void each_gradient(const std::function<void(const std::string&, const std::vector<double>&)>& use) const;
  /// Puts StepRecord::gradients on record too.
  void keep_call_gradients() { keep_gradients_ = true; }
  /// The last of a step: values of parameters go into the record and are no longer with the Parameters.
  void take_parameters() { takes_parameters_ = true; }
  /// Number and name of the trained tensors, as often as the net asked for them.
  const std::vector<std::pair<int, std::string>>& trained() const { return trained_; }
  /// Names and shapes of the trained tensors, in the order of their use.
  std::vector<std::pair<std::string, Shape>> trained_shapes() const;
  const StepRecord& record() const { return record_; }
  StepRecord take_record() { return std::move(record_); }

 private:
  struct Entry {
    int from = -1, to = -1;         ///< of a take
    std::vector<std::int64_t> map;  ///< empty: a reshape
    std::size_t call = 0;           ///< of a call
    std::unique_ptr<Evaluation> evaluation;
    std::unique_ptr<SecondEvaluation>
        second;  ///< once asked for: what does not change with the direction is evaluated once
    std::vector<std::string> directed = {};  ///< whose directions it has
  };
  int push(const Shape& shape, std::vector<double> values);
  std::vector<double>& cotangent(int id);
  void backward(Entry& entry, bool first_of_two);
  void walk_back(bool first_of_two);
  void trace_derivative(GradientDerivative& out);
  double begin_penalty(double weight, std::vector<std::vector<double>>& of_cotangents);
  void differentiate_backward(Entry& entry, std::vector<std::vector<double>>& of_cotangents,
                              std::vector<std::vector<double>>& of_values);

  Parameters& parameters_;
  StepRecord record_;
  std::vector<Entry> entries_;
  std::vector<std::pair<int, std::string>> trained_;
  bool takes_parameters_ = false;
  std::vector<std::pair<int, double>> losses_;
  std::optional<std::size_t> taken_loss_ = {};
  std::size_t seen_losses_ = 0;
  std::map<std::string, int> counts_;
  bool keep_gradients_ = false, freed_ = false, inferring_ = false;
  std::map<std::string, std::vector<double>>* by_input_ = nullptr;  ///< while a derivative is traced
};

}  // namespace ampcheck::checks::models
