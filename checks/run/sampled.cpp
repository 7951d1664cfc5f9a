// SPDX-License-Identifier: Apache-2.0
#include "checks/run/sampled.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "checks/define/rows.h"
#include "checks/judge/judge.h"
#include "checks/run/budget.h"
#include "checks/run/conclude.h"
#include "src/error.h"
#include "src/random.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kFewestRows = 64;  ///< of a case that is sampled at all
constexpr std::int64_t kFewestHeads = 4;  ///< the same of rows that are tensors themselves
constexpr std::int64_t kMostRows = 512;
constexpr std::int64_t kElements = 1 << 18;  ///< of the largest sampled input, about

std::int64_t leading_axes(const OpSignature& signature) {
  return static_cast<std::int64_t>(row_symbols(signature).size());
}

/// Two numbers of rows that the op takes: what is judged, and fewer, which show what depends on their number. {0, 0}:
/// none.
std::pair<std::int64_t, std::int64_t> sample_sizes(const OpSignature& signature, const OpCall& call) {
  const std::int64_t rows = rows_of(signature, call);
  std::int64_t width = 1;
  for (const TensorSpec& spec : signature.inputs)
    if (call.has(spec) && has_rows(signature, spec))
      width = std::max(width, call.shape(spec).count() / std::max<std::int64_t>(rows, 1));
  const auto valid = [&](std::int64_t n) {
    return !signature.valid || signature.valid(with_rows(signature, call, n).dims, call.attributes);
  };
  const std::int64_t least = leading_axes(signature) > 1 ? 2 : 8;
  std::int64_t all = std::min({std::clamp(kElements / width, least, kMostRows), rows / 2});
  while (all > 1 && !valid(all)) --all;
  std::int64_t fewer = all - 1;
  while (fewer > 0 && !valid(fewer)) --fewer;
  return fewer > 0 ? std::pair{all, fewer} : std::pair<std::int64_t, std::int64_t>{0, 0};
}

/// The first and the last row, and distinct ones between them, ascending.
std::vector<std::int64_t> drawn_rows(const OpCall& call, std::int64_t rows, std::int64_t count) {
  const Random random(call.seed, "sampled rows");
  std::set<std::int64_t> out = {0, rows - 1};
  for (std::uint64_t i = 0; static_cast<std::int64_t>(out.size()) < count; ++i)
    out.insert(static_cast<std::int64_t>(random.below(i, static_cast<std::uint64_t>(rows))));
  return {out.begin(), out.end()};
}

std::vector<double> take_rows(const std::vector<double>& values, std::int64_t rows,
                              std::span<const std::int64_t> which) {
  const auto width = static_cast<std::ptrdiff_t>(values.size()) / rows;
  std::vector<double> out;
  for (const std::int64_t row : which)
    out.insert(out.end(), values.begin() + row * width, values.begin() + (row + 1) * width);
  return out;
}

/// A shape at `rows` rows, from those at two other numbers of rows; the axis of the rows is where they differ. -1: no
/// axis.
int row_axis(const Shape& shape, const Shape& fewer) {
  for (int axis = 0; axis < shape.rank; ++axis)
    if (shape[axis] != fewer[axis]) return axis;
  return -1;
}

reference::Recording recorded(const OpDef& op, const OpCall& call) {
  NamedValues values;  // shapes are wanted: floats are known by theirs, and index 0 is valid
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec))
      values[spec.name] =
          std::vector<double>(is_float(call.dtype(spec)) ? 0 : static_cast<std::size_t>(call.shape(spec).count()), 0.0);
  return recorded(op, call, values);
}

class Sampled {
 public:
  Sampled(const OpDef& op, const OpCall& call, const RunOptions& options)
      : op_(op),
        call_(call),
        symbols_(row_symbols(op.signature)),
        leading_(static_cast<int>(symbols_.size())),
        rows_(rows_of(op.signature, call)),
        sizes_(sample_sizes(op.signature, call)),
        which_(drawn_rows(call, rows_, sizes_.first)),
        sub_call_(with_rows(op.signature, call, sizes_.first)),
        fewer_call_(with_rows(op.signature, call, sizes_.second)) {
    NamedValues sampled, fewer;
    for (const TensorSpec& spec : op.signature.inputs) {
      if (!call.has(spec)) continue;
      std::vector<double> values = input_values(op.signature, call, spec);
      GuardedTensor tensor(call.dtype(spec), call.shape(spec), Layout::dense, poison(call.dtype(spec), 0));
      tensor.assign(values);
      inputs_.emplace(spec.name, std::move(tensor));
      sampled[spec.name] = of_rows(values, has_rows(op.signature, spec));
      fewer[spec.name] = of_fewer(values, has_rows(op.signature, spec));
    }
    run_.emplace(op, sub_call_, options, std::move(sampled));
    fewer_.emplace(op, fewer_call_, options, std::move(fewer));
    for (std::size_t k = 0; k < run_->outputs.size(); ++k)
      outputs_.push_back(whole(run_->outputs[k], fewer_->outputs[k].shape));
    for (std::size_t k = 0; k < run_->gradients.size(); ++k)
      gradients_.push_back(whole(run_->gradients[k], fewer_->gradients[k].shape));
  }

  void run(CaseResult& result) {
    const LaunchResult forward = run_->run_forward(forward_tensors());
    judge_all({.kind = CheckId::Kind::forward}, outputs_, run_->outputs, forward, Pass::forward);
    find_dependent_gradients();
    for (int probe = 0; probe < probe_count(call_); ++probe) {
      const LaunchResult backward = run_->run_backward(backward_tensors(forward, probe));
      judge_all({.kind = CheckId::Kind::backward, .probe = probe}, gradients_, run_->gradients, backward,
                Pass::backward);
    }
    conclude(*run_, result);
    result.note = fmt::format("too large to judge whole: {} of {} rows along {} were judged", which_.size(), rows_,
                              op_.signature.launch.row_dim);
    if (!judged_ && !convicts(result.verdict)) {
      result.verdict = Verdict::skipped;
      result.note += ", and nothing that is written has rows of its own";
    }
  }

 private:
  std::vector<double> of_rows(const std::vector<double>& values, bool rows) const {
    return rows ? take_rows(values, rows_, which_) : values;
  }
  std::vector<double> of_fewer(const std::vector<double>& values, bool rows) const {
    return rows ? take_rows(values, rows_, std::span(which_).first(static_cast<std::size_t>(sizes_.second))) : values;
  }

  /// A written tensor at the full number of rows.
  Written whole(const Written& sampled, const Shape& fewer) const {
    Written out = sampled;
    if (const int axis = row_axis(sampled.shape, fewer); axis >= 0) {
      if (sampled.shape[axis] != sizes_.first || fewer[axis] != sizes_.second)
        throw Error("[" + op_.signature.name + "] '" + sampled.name +
                    "' has an extent that is not the number of rows but follows from it");
      if (leading_ == 1)
        out.shape[axis] = rows_;
      else if (axis != leading_ - 1)
        throw Error("[" + op_.signature.name + "] rows of '" + sampled.name + "' do not lie in front");
      else
        for (int k = 0; k < leading_; ++k) out.shape[k] = call_.dims.at(symbols_[static_cast<std::size_t>(k)]);
    }
    return out;
  }

  bool in_place(const std::string& name) const {
    return std::any_of(op_.signature.launch.in_place.begin(), op_.signature.launch.in_place.end(),
                       [&](const auto& p) { return p.first == name; });
  }

  GuardedTensor fresh(const Written& written) const {
    GuardedTensor tensor(written.dtype, written.shape, Layout::dense, poison(written.dtype, 0));
    if (run_->accumulates(written.name)) tensor.assign(run_->held(written));
    return tensor;
  }

  LaunchTensors forward_tensors() const {
    LaunchTensors out;
    for (const auto& [name, tensor] : inputs_) out.read.emplace(name, tensor.clone());
    for (const Written& output : outputs_)
      if (!in_place(output.name)) out.write.emplace(output.name, fresh(output));
    out.in_place = run_->overwritten(outputs_);
    return out;
  }

  /// Also gives the reference the cotangents of the sampled rows.
  LaunchTensors backward_tensors(const LaunchResult& forward, int probe) {
    LaunchTensors out;
    NamedValues sampled, fewer;
    for (const auto& [name, tensor] : inputs_) out.read.emplace(name, tensor.clone());
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      const Written& output = outputs_[k];
      if (output.reaches_backward()) out.read.emplace(output.name, forward.written.at(output.name).clone());
      if (output.saved) continue;
      const std::string name = gradient_name(output.name);
      const std::vector<double> values = cotangent_values(call_, output.name, output.shape, output.dtype, probe);
      GuardedTensor tensor(output.dtype, output.shape, Layout::dense, poison(output.dtype, 0));
      tensor.assign(values);
      out.read.emplace(name, std::move(tensor));
      const bool rows = in_front(row_axis(run_->outputs[k].shape, output.shape));
      sampled[name] = of_rows(values, rows);
      fewer[name] = of_fewer(values, rows);
    }
    for (const Written& gradient : gradients_)
      if (!in_place(gradient.name)) out.write.emplace(gradient.name, fresh(gradient));
    out.in_place = run_->overwritten(gradients_);
    run_->reference.set_cotangents(std::move(sampled));
    fewer_->reference.set_cotangents(std::move(fewer));
    return out;
  }

  /// The sampled rows of a written tensor, dense.
  GuardedTensor gathered(const GuardedTensor& from, const Written& sampled) const {
    GuardedTensor out(sampled.dtype, sampled.shape, Layout::dense, 0);
    const auto width = static_cast<std::size_t>(sampled.shape.count() / sizes_.first * bytes(sampled.dtype));
    for (std::size_t k = 0; k < which_.size(); ++k)
      std::memcpy(out.view().as<std::byte>() + k * width,
                  from.view().as<std::byte>() + static_cast<std::size_t>(which_[k]) * width, width);
    return out;
  }

  /// Whether the formula gives the same rows with fewer beside them: it mixes no rows, and does not count them.
  bool rows_alone(const Written& sampled, Pass pass) {
    const std::vector<double> all = run_->reference.values(pass, sampled.name),
                              fewer = fewer_->reference.values(pass, sampled.name);
    const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
    return fewer.size() <= all.size() && std::equal(fewer.begin(), fewer.end(), all.begin(), same);
  }

  /// At dense cotangents: zeros hide what depends on the number of rows.
  void find_dependent_gradients() {
    OpCall dense = sub_call_;
    dense.cotangent = "normal";
    NamedValues sampled, fewer;
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      const Written& output = run_->outputs[k];
      if (output.saved) continue;
      const std::string name = gradient_name(output.name);
      sampled[name] = cotangent_values(dense, output.name, output.shape, output.dtype, 0);
      fewer[name] = sampled[name];
      fewer[name].resize(static_cast<std::size_t>(fewer_->outputs[k].shape.count()));  // the first rows
    }
    run_->reference.set_cotangents(std::move(sampled));
    fewer_->reference.set_cotangents(std::move(fewer));
    for (const Written& gradient : run_->gradients)
      if (!rows_alone(gradient, Pass::backward)) dependent_.insert(gradient.name);
  }

  void judge_all(CheckId id, const std::vector<Written>& wholes, const std::vector<Written>& sampled,
                 const LaunchResult& result, Pass pass) {
    std::vector<GuardedTensor> rows;
    std::vector<Subject> subjects;
    std::vector<std::int64_t> counts;
    rows.reserve(wholes.size());
    for (std::size_t k = 0; k < wholes.size(); ++k) {
      const GuardedTensor& got = result.written.at(wholes[k].name);
      if (!in_place(wholes[k].name) && !run_->accumulates(wholes[k].name)) look_for_poison(wholes[k], got);
      id.tensor = wholes[k].name;
      const int axis = row_axis(sampled[k].shape, wholes[k].shape);
      if (!in_front(axis))
        add_unjudged(id, wholes[k],
                     axis > 0 ? "its rows do not lie in front" : "it has no rows of its own: it sums over them");
      else if (run_->accumulates(wholes[k].name))
        add_unjudged(id, wholes[k], "it is added to what its buffer held");
      else if (dependent_.contains(wholes[k].name) || !rows_alone(sampled[k], pass))
        add_unjudged(id, wholes[k], "a row of it depends on the other rows or on their number");
      else {
        rows.push_back(gathered(got, sampled[k]));
        subjects.push_back({id, &sampled[k], rows.back().view()});
        counts.push_back(wholes[k].shape.count());
      }
    }
    std::vector<CheckResult> checks = judge(*run_, subjects, pass, notes_);
    for (std::size_t k = 0; k < checks.size(); ++k) {
      checks[k].unjudged = counts[k] - checks[k].compared;
      for (Element& element : checks[k].worst) place_in_whole(element);
      judged_ |= checks[k].compared > 0;
      run_->add(std::move(checks[k]));
    }
  }

  bool in_front(int axis) const { return axis >= 0 && axis < leading_; }

  /// The index in the whole tensor of an element of the sampled rows.
  void place_in_whole(Element& element) const {
    if (element.index.empty()) return;
    std::int64_t row = which_[static_cast<std::size_t>(element.index[static_cast<std::size_t>(leading_ - 1)])];
    for (int k = leading_; k-- > 0;) {
      const std::int64_t extent = call_.dims.at(symbols_[static_cast<std::size_t>(k)]);
      element.index[static_cast<std::size_t>(k)] = row % extent;
      row /= extent;
    }
  }

  void add_unjudged(const CheckId& id, const Written& tensor, const char* why) {
    CheckResult check;
    check.id = id;
    check.dtype = tensor.dtype;
    check.verdict = Verdict::skipped;
    check.unjudged = tensor.shape.count();
    check.note = std::string("not judged: ") + why;
    run_->add(std::move(check));
  }

  /// No kernel computes a NaN with the payload of the fill: such elements were not written, in whatever row.
  void look_for_poison(const Written& tensor, const GuardedTensor& got) {
    if (!run_->reference.inputs_finite()) return;
    std::int64_t left = 0, first = -1;
    for (std::int64_t i = 0; i < tensor.shape.count(); ++i)
      if (bits_at(got.view(), i) == poison(tensor.dtype, 0) && ++left == 1) first = i;
    if (left > 0)
      run_->add_relation(
          {CheckId::Kind::written, tensor.name}, Code::ac401, left, left,
          fmt::format("{} elements were not written, first element {} of {}", left, first, tensor.shape.str()));
  }

  const OpDef& op_;
  const OpCall& call_;
  const std::vector<std::string> symbols_;  ///< of the axes of the rows, which lie in front
  const int leading_;
  const std::int64_t rows_;
  const std::pair<std::int64_t, std::int64_t> sizes_;
  const std::vector<std::int64_t> which_;
  const OpCall sub_call_, fewer_call_;
  std::map<std::string, GuardedTensor> inputs_;
  std::optional<CaseRun> run_, fewer_;        ///< of the sampled rows, and of the first of them
  std::vector<Written> outputs_, gradients_;  ///< at the full size
  std::set<std::string> dependent_;           ///< gradients whose rows depend on the other rows or on their number
  bool judged_ = false;
  Notes notes_;
};

}  // namespace

std::string why_not_sampled(const OpDef& op, const OpCall& call) {
  const OpSignature& signature = op.signature;
  if (op.forms.empty()) return "it has no formula";
  if (signature.launch.row_dim.empty()) return "its contract names no rows";
  if (rows_of(signature, call) < (leading_axes(signature) > 1 ? kFewestHeads : kFewestRows)) return "it has few rows";
  if (call.layout != "dense") return "its layout is not dense";
  if (std::string why = misplaced_rows(signature, call); !why.empty()) return why;
  return sample_sizes(signature, call).first == 0 ? "no smaller number of rows is valid" : "";
}

std::int64_t sampled_need(const OpDef& op, const OpCall& call) {
  const auto [all, fewer] = sample_sizes(op.signature, call);
  const OpCall sub = with_rows(op.signature, call, all);
  const double times = static_cast<double>(rows_of(op.signature, call)) / static_cast<double>(all);
  const reference::Recording recording = recorded(op, sub), less = recorded(op, with_rows(op.signature, call, fewer));
  double bytes_of_all = 0, largest = 0;
  const auto add = [&](double count, Dtype dtype, double copies) {
    bytes_of_all += count * bytes(dtype) * copies;
    largest = std::max(largest, count);
  };
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec))
      add(static_cast<double>(call.shape(spec).count()), call.dtype(spec),
          spec.has_gradient() ? 5 : 3);  // kept, read, copied; gradient, copied
  for (std::size_t k = 0; k < recording.outputs.size(); ++k) {
    const Shape shape = recording.outputs[k].second.shape();
    const bool rows = row_axis(shape, less.outputs[k].second.shape()) >= 0;
    add(static_cast<double>(shape.count()) * (rows ? times : 1), dtype_of(op.signature.outputs[k].type, call.storage),
        4);
  }
  constexpr double kValues = 2 * sizeof(double);  // one tensor at a time, as values and as they were drawn
  return static_cast<std::int64_t>(std::min(bytes_of_all + kValues * largest + 0x1p26, 0x1p62)) +
         memory_need(op, sub, std::int64_t{1} << 40);
}

CaseResult run_sampled(const OpDef& op, const OpCall& call, const RunOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  CaseResult result;
  result.name = call.str(op.signature);
  result.op = op.signature.name;
  result.plugin = op.plugin;
  result.dtype = name(call.storage);
  if (const std::string why = why_not_sampled(op, call); !why.empty()) {
    result.verdict = Verdict::skipped;
    result.note = "cannot be judged on sampled rows: " + why;
    return result;
  }
  try {
    Sampled(op, call, options).run(result);
  } catch (const EnvironmentError& error) {
    result.verdict = Verdict::skipped;
    result.note = error.what();
  } catch (const std::bad_alloc&) {  // of the judge, which says nothing of the kernel
    result.verdict = Verdict::skipped;
    result.note = kNoMemory;
  } catch (const std::exception& error) {
    CheckResult check;
    check.find(Code::ac501);
    result.code = check.code;
    result.verdict = check.verdict;
    check.compared = check.failed = 1;
    check.cause = error.what();
    result.checks.push_back(std::move(check));
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace ampcheck::checks
