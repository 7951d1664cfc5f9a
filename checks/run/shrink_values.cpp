// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/shrink_values.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "checks/case/case_run.h"
#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "checks/judge/judge.h"
#include "src/elements.h"
#include "src/index.h"

namespace ampcheck::checks {

namespace {

constexpr std::size_t kFew = 4;  ///< numbers that a reader can take in

/// The values that are wrong, and how.
struct Failure {
  CheckId id;
  Code code;
  Pass pass = Pass::forward;
};

std::optional<Failure> failure_of(const CaseResult& result) {
  const CheckResult* const check = deciding_check(result);
  if (check == nullptr || check->failed == 0 || !is_of_pass(check->id)) return std::nullopt;
  Code code = is_contract_departure(check->code) ? Code::ac101 : check->code;
  if (code == Code::ac203) code = Code::ac102;  // as it is without an explanation
  if (code < Code::ac101 || code > Code::ac104) return std::nullopt;
  const Pass pass = check->id.kind == CheckId::Kind::forward ? Pass::forward
                    : check->id.at_saved                     ? Pass::backward_at_saved
                                                             : Pass::backward;
  return Failure{check->id, code, pass};
}

/// Numbers of one tensor that may be changed, and what they become where they do not matter.
struct Reducible {
  std::string name;
  bool cotangent;
  Shape shape;
  double base;
};

class Reducer {
 public:
  Reducer(const OpDef& op, const OpCall& call, Failure failure, const RunOptions& options, int tries)
      : op_(op), call_(call), failure_(std::move(failure)), options_(options), tries_(tries) {
    options_.explain = options_.power = options_.relations = options_.brief = false;
    CaseRun run(op_, call_, options_);
    inputs_ = run.reference.inputs();
    if (failure_.pass != Pass::forward) {
      cotangents_ = run.cotangents(std::max(failure_.id.probe, 0));
      for (const Written& output : run.outputs)
        if (!output.saved) tensors_.push_back({gradient_name(output.name), true, output.shape, 0});
    }
    for (const TensorSpec& spec : op_.signature.inputs) {
      if (!call_.has(spec)) continue;
      const bool numbers = is_float(call_.dtype(spec)) && (spec.role == Role::data || spec.role == Role::weight ||
                                                           spec.role == Role::bias || spec.role == Role::angle);
      if (numbers)
        tensors_.push_back({spec.name, false, call_.shape(spec),
                            spec.domain == Domain::positive        ? 1.0
                            : spec.domain == Domain::unit_interval ? 0.5
                                                                   : 0.0});
      else
        kept_.push_back(spec.name);
    }
  }

  std::string words() {
    if (!take([](const Reducible& tensor, double) { return tensor.base; })) {
      bool others = true;
      for (const Reducible& tensor : tensors_)
        others &= to_base(tensor, 0, values(tensor).size(), others && &tensor == &tensors_.back());
    }
    if (left().size() > kFew) return "";
    if (left().size() > 1)
      for (const auto& [tensor, i] : left())
        to_base(*tensor, i, i + 1, false);  // what mattered only beside others that are gone
    simplify([](double) { return 1.0; });
    simplify([](double v) { return std::copysign(std::ldexp(1.0, std::ilogb(v)), v); });
    return sentence();
  }

 private:
  using Place = std::pair<const Reducible*, std::size_t>;

  std::vector<double>& values(const Reducible& tensor) {
    return (tensor.cotangent ? cotangents_ : inputs_).at(tensor.name);
  }

  /// The places that differ from what does not matter.
  std::vector<Place> left() {
    std::vector<Place> out;
    for (const Reducible& tensor : tensors_)
      for (std::size_t i = 0; i < values(tensor).size(); ++i)
        if (values(tensor)[i] != tensor.base) out.emplace_back(&tensor, i);
    return out;
  }

  /// Changes places of one tensor; takes it back if the case no longer fails alike.
  template <class Change>
  bool take(const Reducible& tensor, std::size_t begin, std::size_t end, const Change& change) {
    const std::vector<double> before = values(tensor);
    std::vector<double>& now = values(tensor);
    for (std::size_t i = begin; i < end; ++i) now[i] = change(tensor, now[i]);
    if (now == before || fails()) return true;
    values(tensor) = before;
    return false;
  }

  /// All places of all tensors at once.
  template <class Change>
  bool take(const Change& change) {
    const NamedValues inputs = inputs_, cotangents = cotangents_;
    for (const Reducible& tensor : tensors_)
      for (double& v : values(tensor)) v = change(tensor, v);
    if (fails()) return true;
    inputs_ = inputs;
    cotangents_ = cotangents;
    return false;
  }

  /// Whether all these places could be given up. `needed`: it is known that they cannot, so only parts are tried.
  bool to_base(const Reducible& tensor, std::size_t begin, std::size_t end, bool needed) {
    if (begin == end || (!needed && take(tensor, begin, end, [](const Reducible& t, double) { return t.base; })))
      return true;
    if (end - begin == 1 || tries_ <= 0) return false;
    const std::size_t middle = begin + (end - begin) / 2;
    const bool first = to_base(tensor, begin, middle, false);
    to_base(tensor, middle, end, first);  // without the first half, the second is the whole
    return false;
  }

  /// The numbers that are left become what `simple` makes of them, one by one; but for what is not finite.
  template <class Simple>
  void simplify(const Simple& simple) {
    for (const auto& [tensor, i] : left()) {
      const double v = values(*tensor)[i];
      if (v != 0 && std::isfinite(v) && std::fabs(v) != 1)
        take(*tensor, i, i + 1, [&](const Reducible&, double was) { return simple(was); });
    }
  }

  bool fails() {
    if (tries_-- <= 0) return false;
    try {
      CaseRun run(op_, call_, options_, inputs_);
      const LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
      if (failure_.pass == Pass::forward) return judged_alike(run, run.outputs, forward);
      NamedValues saved;
      for (const Written& output : run.outputs)
        if (output.reaches_backward()) saved[output.name] = to_doubles(forward.written.at(output.name).view());
      if (failure_.pass == Pass::backward_at_saved) run.reference.set_saved(std::move(saved));
      run.reference.set_cotangents(cotangents_);
      return judged_alike(run, run.gradients,
                          run.run_backward(run.backward_tensors(run.reference.inputs(), forward, cotangents_, 0)));
    } catch (const std::exception&) {  // another failure
      return false;
    }
  }

  bool judged_alike(CaseRun& run, const std::vector<Written>& written, const LaunchResult& result) const {
    for (const Written& tensor : written) {
      if (tensor.name != failure_.id.tensor) continue;
      const CheckResult check =
          judge(run, {{failure_.id, &tensor, result.written.at(tensor.name).view()}}, failure_.pass).front();
      return check.failed > 0 && check.code == failure_.code;
    }
    return false;
  }

  std::string sentence() {
    std::string out, based;
    for (const auto& [tensor, i] : left())
      out += (out.empty() ? "" : ", ") + tensor->name + index_text(tensor->shape, static_cast<std::int64_t>(i)) +
             " = " + number_text(values(*tensor)[i]);
    for (const Reducible& tensor : tensors_)
      if (tensor.base != 0) based += (based.empty() ? "" : ", ") + tensor.name + " " + number_text(tensor.base);
    std::string kept;
    for (const std::string& name : kept_) kept += (kept.empty() ? "; not reduced: " : ", ") + name;
    return (out.empty() ? "every value is 0" : out + ", the rest 0") + (based.empty() ? "" : " (" + based + ")") + kept;
  }

  const OpDef& op_;
  const OpCall& call_;
  const Failure failure_;
  RunOptions options_;
  int tries_;
  NamedValues inputs_, cotangents_;
  std::vector<Reducible> tensors_;  ///< cotangents first: an op's backward is linear in them
  std::vector<std::string> kept_;
};

}  // namespace

std::string values_that_matter(const OpDef& op, const OpCall& call, const CaseResult& result, const RunOptions& options,
                               int most_tries) {
  const std::optional<Failure> failure = failure_of(result);
  if (!failure || op.forms.empty() || call.layout != "dense" || is_file_range(call.range) ||
      is_real_range(call.range) || result.unjudged() > 0)
    return "";
  return Reducer(op, call, *failure, options, most_tries).words();
}

}  // namespace ampcheck::checks
