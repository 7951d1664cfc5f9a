// SPDX-License-Identifier: Apache-2.0
// The reference side of one case: every form's recording and balls, evaluated only when asked for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checks/case/interval.h"
#include "checks/define/case_inputs.h"
#include "checks/define/op_def.h"
#include "reference/ball/ball.h"
#include "reference/replay/quad.h"
#include "reference/replay/regrouped.h"
#include "src/op_call.h"

namespace ampcheck::checks {

/// The rules' view of a precision contract for a case, on that device: a built-in op's products on CUDA may be
/// cuBLAS's.
reference::Arithmetic arithmetic_of(const OpSignature& signature, const OpCall& call, Device device = Device::cpu);
/// The same with the tensor cores on which cuBLAS runs, if it does.
reference::Arithmetic arithmetic_of(const OpSignature& signature, const OpCall& call, TensorCore cublas);

/// What of a case is evaluated: outputs and saved tensors, gradients, gradients from the kernel's own saved values, or
/// the tangents of the outputs.
enum class Pass { forward, backward, backward_at_saved, jvp };

/// The tensors of a pass by name: outputs, gradients or tangents.
const std::vector<std::pair<std::string, reference::Expr>>& nodes_of(const reference::Recording& recording, Pass pass);

/// Values of nodes, to replay from.
using Leaves = std::vector<std::pair<reference::Expr, std::vector<double>>>;
/// Adds what the backward takes from the forward, replayed in fp32: then only sums of the backward are narrowed.
void give_forward(const reference::Recording& recording, Leaves& leaves);

using Ranges = std::map<std::string, reference::Extremes>;

class CaseReference {
 public:
  /// `inputs`: exact values of every present input, integers too. `device`: where the kernel runs.
  CaseReference(const OpDef& op, const OpCall& call, NamedValues inputs, Device device = Device::cpu);

  /// The forms of the op in the order in which the judge tries them.
  std::vector<std::size_t> forms() const;
  /// From now on the formula is the only form.
  void take_formula_alone() { formula_alone_ = true; }
  const reference::Recording& recording(std::size_t form = 0) { return form_at(form).recording; }

  /// Starts a new probe: cotangents by name ("dy").
  void set_cotangents(NamedValues cotangents);
  /// The same, with their extremes.
  void set_cotangents(NamedValues cotangents, const Ranges& ranges);
  /// Which cotangents these are: another number for each that were set.
  int probe() const { return probe_; }
  /// Gives the tangents of the inputs by name ("x.tangent"), once.
  void set_tangents(NamedValues tangents);
  /// Gives the kernel's own saved values; gradients of `at_saved` then start from them.
  void set_saved(NamedValues saved);

  /// Takes a part of tensor names[which]; `first` is the row-major index of its first element.
  using Part = std::function<void(std::size_t which, std::int64_t first, const reference::Ball& part)>;
  /// Hands over the balls of the named tensors in blocks of rows, which stay in cache. `rows`, where given, marks the
  /// only ones of interest (of row_count()); tensors that follow from all rows come whole nevertheless. False: not by
  /// blocks; then interval() is to be used. `elements`: of these rows some elements alone, one a part, where
  /// takes_elements().
  bool stream(std::size_t form, Pass pass, const std::vector<std::string>& names, const Part& part,
              const std::vector<char>* rows = nullptr, const reference::RowElements* elements = nullptr);
  /// Whether these tensors can be evaluated at some elements of their rows, the same of each tensor.
  bool takes_elements(std::size_t form, Pass pass, const std::vector<std::string>& names);
  /// As stream() over all rows, with one radius for all elements of a part (Ball::all), which bounds theirs. False: not
  /// by blocks, or there is no such bound.
  bool stream_uniform(std::size_t form, Pass pass, const std::vector<std::string>& names, const Part& part);
  /// The values of a tensor by the first form, without keeping what they follow from where it goes by rows.
  std::vector<double> values(Pass pass, const std::string& name);
  /// Inside that stream: a sharper bound for element `at` of the part, see BallEvaluator::radius_at().
  double radius_at(std::size_t form, Pass pass, const std::string& name, std::int64_t at,
                   const reference::RadiusTest& enough);
  /// The balls of some elements of a tensor, where they can be evaluated without the others: see
  /// BallEvaluator::columns().
  std::optional<reference::Ball> columns(std::size_t form, Pass pass, const std::string& name,
                                         std::span<const std::int64_t> columns);
  /// Into how many rows streams of a form divide the tensors whose elements follow from their own row alone.
  std::int64_t row_count(std::size_t form) { return evaluator(form_at(form), Pass::forward).of->rows().rows; }
  /// Whether an element of this tensor follows from its own row alone.
  bool by_row(std::size_t form, Pass pass, const std::string& name);

  /// The balls of a whole output, saved tensor or gradient of the current probe, and its interval. `held`: what an
  /// accumulating buffer held before; empty where nothing is added to.
  const reference::Ball& ball(std::size_t form, Pass pass, const std::string& name);
  Interval interval(std::size_t form, Pass pass, const std::string& name, Dtype dtype,
                    std::span<const double> held = {});
  /// In a case of fp64: the interval if the kernel computed in fp32 and wrote fp64.
  Interval interval_computed_in_fp32(std::size_t form, Pass pass, const std::string& name);
  /// The interval if the contract allowed flushing of subnormals, evaluated anew.
  Interval interval_flushing(std::size_t form, Pass pass, const std::string& name, Dtype dtype);
  /// The interval if every input were anywhere within these radii of its values; by input, of those that are not exact.
  Interval interval_around(std::size_t form, Pass pass, const std::string& name, Dtype dtype, const NamedValues& radii,
                           std::span<const double> held = {});
  /// Whether none of these nodes of the form has more than one value for such inputs.
  bool decided_around(std::size_t form, Pass pass, const std::vector<reference::Expr>& nodes, const NamedValues& radii);
  /// One node as a kernel has it that departs from its contract: values and radii in place of its ball, made from that
  /// and from the ball of its first operand (of a leaf, itself). False where there are none.
  struct Departing {
    using Make = std::function<bool(const reference::Ball& own, const reference::Ball& operand,
                                    std::span<double> values, std::span<double> radii)>;
    int node;
    Make make;
  };
  /// The interval of a kernel that departs so at these nodes, in ascending order, evaluated anew; it says nothing of
  /// elements that the declared interval leaves open. Nothing where a node has no such values.
  std::optional<Interval> interval_departing(std::size_t form, Pass pass, const std::string& name, Dtype dtype,
                                             std::span<const Departing> nodes);
  /// Leaves of a form with their values, from which a pass is evaluated; at the kernel's own saved values these too.
  Leaves leaves(std::size_t form, Pass pass);
  /// The wider bounds for what lies outside of a form's interval (reference/replay/regrouped.h); nothing where the
  /// contract fixes the order of sums, or where they would take longer than a few tenths of a second.
  std::optional<reference::Regrouped> regrouped(std::size_t form, Pass pass, const std::string& name,
                                                std::span<const double> held = {});
  /// Whether there is something to regroup on the way to a tensor.
  bool adds_up(std::size_t form, Pass pass, const std::string& name);
  /// Elements of a gradient that the formula leaves open, since a choice stands between them and an input that is not
  /// finite.
  std::vector<char> behind_choices(std::size_t form, Pass pass, const std::string& name);
  /// The interval of a part that stream() handed over.
  Interval interval_of_part(std::size_t form, Pass pass, const reference::Ball& part, Dtype dtype,
                            std::span<const double> held);

  /// Whether every intermediate of all that was evaluated so far stays far from the ends of the range.
  bool tame();
  bool inputs_finite() const { return inputs_finite_; }
  const NamedValues& inputs() const { return inputs_; }
  const NamedValues& cotangents() const { return cotangents_; }
  /// Gives up the cotangents of the current probe; set_cotangents() must follow.
  NamedValues release_cotangents() { return std::move(cotangents_); }
  const NamedValues& tangents() const { return tangents_; }
  const OpDef& op() const { return op_; }
  const OpCall& call() const { return call_; }

  static Shape shape_of(const std::vector<std::pair<std::string, reference::Expr>>& nodes, const std::string& name);

 private:
  struct Evaluated {
    reference::Recording recording;
    struct Balls {
      std::unique_ptr<reference::BallEvaluator> of;
      int probe = 0;
    };
    /// Of a case of fp64: values in more digits, from the inputs, at saved values, forward mode.
    struct Exact {
      std::unique_ptr<reference::QuadEvaluator> of;
      int probe = 0;
    };
    Exact exact[3];
    Balls balls[3][2];  ///< from the inputs, at saved values, forward mode; radii of each element, uniform
    Balls& at(Pass pass, reference::Radii radii) { return balls[kind(pass)][radii == reference::Radii::uniform]; }
    static int kind(Pass pass) { return pass == Pass::jvp ? 2 : pass == Pass::backward_at_saved; }
  };
  Evaluated& form_at(std::size_t form);
  /// Whether the kernel computes in fp64, whose roundings are 2^-29 of those that the rules take for theirs.
  bool in_fp64() const { return call_.storage == Dtype::fp64; }
  std::vector<double> exact_values(Evaluated& form, Pass pass, reference::Expr node);
  /// Whether partial sums have the range of fp16, which ends at 65,504.
  bool sums_in_fp16() const { return op_.signature.precision.accumulate == Accumulator(Dtype::fp16); }
  /// Leaves open what some order of such sums makes infinite or NaN.
  void open_overflows_in_fp16(std::size_t form, Pass pass, const std::string& name, Interval& interval);
  std::unique_ptr<reference::BallEvaluator> around(Evaluated& form, Pass pass,
                                                   const std::vector<reference::Expr>& targets,
                                                   const NamedValues& radii);
  /// The evaluator of a pass, with whatever cotangents it had last.
  Evaluated::Balls& evaluator(Evaluated& form, Pass pass, reference::Radii radii = reference::Radii::each);
  /// The same with all its leaves set.
  reference::BallEvaluator& ready(Evaluated& form, Pass pass, reference::Radii radii = reference::Radii::each);
  bool stream_with(reference::Radii radii, std::size_t form, Pass pass, const std::vector<std::string>& names,
                   const Part& part, const std::vector<char>* rows, const reference::RowElements* elements);
  bool measure(const NamedValues& values);  ///< whether all are finite
  static reference::Expr node_of(const Evaluated& form, Pass pass, const std::string& name);

  const OpDef& op_;
  OpCall call_;
  Device device_;
  NamedValues inputs_, cotangents_, saved_, tangents_;
  Ranges ranges_;  ///< of all these, measured once for every evaluator
  std::vector<std::unique_ptr<Evaluated>> evaluated_;
  /// Every node that a tensor follows from as it is declared: departures from it begin here.
  struct Declared {
    std::size_t form = 0;
    Pass pass = Pass::forward;
    std::string name;
    std::unique_ptr<reference::BallEvaluator> balls;
  };
  Declared declared_;
  bool formula_alone_ = false;
  const reference::BallEvaluator& declared(std::size_t form, Pass pass, const std::string& name);
  int probe_ = 0;
  bool inputs_finite_ = true, cotangents_finite_ = true, tangents_finite_ = true;
};

}  // namespace ampcheck::checks
