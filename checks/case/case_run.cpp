// SPDX-License-Identifier: Apache-2.0
#include "checks/case/case_run.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "checks/data/cotangents.h"
#include "checks/data/regimes.h"
#include "src/random.h"
#include "src/state_left.h"

namespace ampcheck::checks {

namespace {

NamedValues all_inputs(const OpSignature& signature, const OpCall& call) {
  NamedValues out;
  for (const TensorSpec& spec : signature.inputs)
    if (call.has(spec)) out[spec.name] = input_values(signature, call, spec);
  return out;
}

/// The shape of an output of an op without a formula.
Shape declared_shape(const OutputSpec& spec, const OpCall& call) {
  return call.shape(TensorSpec{.name = spec.name, .dims = spec.dims});
}

/// Only a cotangent can be expanded: a tensor whose elements share memory cannot hold different values.
Layout tensor_layout(const OpCall& call, const std::string& tensor) {
  const Layout layout = layout_of(call.layout, tensor);
  return layout == Layout::expanded ? Layout::dense : layout;
}

}  // namespace

CaseRun::CaseRun(const OpDef& op_in, const OpCall& call_in, const RunOptions& options_in)
    : CaseRun(op_in, call_in, options_in, all_inputs(op_in.signature, call_in)) {}

CaseRun::CaseRun(const OpDef& op_in, const OpCall& call_in, const RunOptions& options_in, NamedValues inputs)
    : op(op_in), call(call_in), options(options_in), reference(op_in, call_in, std::move(inputs), options_in.device) {
  begin_schedules();
  if (options.as_written) reference.take_formula_alone();
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec)) input_tensors_[spec.name] = input_tensor(spec, reference.inputs());
  if (op.forms.empty()) {
    for (const OutputSpec& spec : op.signature.outputs)
      outputs.push_back(
          {spec.name, dtype_of(spec.type, call.storage), declared_shape(spec, call), false, spec.to_backward});
    for (const OutputSpec& spec : op.signature.saved)
      outputs.push_back({spec.name, dtype_of(spec.type, call.storage), declared_shape(spec, call), true});
    for (const TensorSpec& spec : op.signature.inputs)
      if (call.has(spec) && spec.has_gradient() && is_float(call.dtype(spec)))
        gradients.push_back({gradient_name(spec.name), call.dtype(spec), call.shape(spec)});
    if (op.signature.forward_mode && !gradients.empty())
      for (const OutputSpec& spec : op.signature.outputs)
        tangents.push_back({tangent_name(spec.name), dtype_of(spec.type, call.storage), declared_shape(spec, call)});
    return;
  }
  const reference::Recording& recording = reference.recording();
  for (const OutputSpec& spec : op.signature.outputs)
    outputs.push_back({spec.name, dtype_of(spec.type, call.storage),
                       CaseReference::shape_of(recording.outputs, spec.name), false, spec.to_backward});
  for (const OutputSpec& spec : op.signature.saved)
    outputs.push_back({spec.name, dtype_of(spec.type, call.storage), recording.stored.at(spec.name).shape(), true});
  for (const auto& [name, node] : recording.gradients) {
    const TensorSpec& spec = *op.signature.input(name.substr(1));
    gradients.push_back({name, call.dtype(spec), node.shape()});
  }
  for (const auto& [name, node] : recording.jvps)
    for (const OutputSpec& spec : op.signature.outputs)
      if (tangent_name(spec.name) == name) tangents.push_back({name, dtype_of(spec.type, call.storage), node.shape()});
}

GuardedTensor CaseRun::input_tensor(const TensorSpec& spec, const NamedValues& inputs) const {
  const auto known = input_tensors_.find(spec.name);
  if (&inputs == &reference.inputs() && known != input_tensors_.end()) return known->second;
  const Dtype dtype = call.dtype(spec);
  GuardedTensor tensor(dtype, call.shape(spec), tensor_layout(call, spec.name), poison(dtype, 0));
  tensor.assign(inputs.at(spec.name));
  return tensor;
}

bool CaseRun::accumulates(const std::string& name) const {
  const auto& list = op.signature.launch.accumulates;
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::vector<double> CaseRun::held(const Written& tensor) const {
  const Random random(call.seed, "held " + tensor.name);
  std::vector<double> values(static_cast<std::size_t>(tensor.shape.count()));
  // Small multiples of 1/4: exact in every storage format, and never zero.
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<double>(random.below(i, 15)) - 7.5) / 4;
  return values;
}

std::map<std::string, std::string> CaseRun::overwritten(const std::vector<Written>& written) const {
  std::map<std::string, std::string> out;
  for (const auto& [name, over] : op.signature.launch.in_place)
    if (std::any_of(written.begin(), written.end(), [&, of = name](const Written& w) { return w.name == of; }))
      out[name] = over;
  return out;
}

LaunchTensors CaseRun::forward_tensors(const NamedValues& inputs, int fill) const {
  LaunchTensors out;
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec)) out.read.emplace(spec.name, input_tensor(spec, inputs));
  out.in_place = overwritten(outputs);
  return refilled(out, outputs, fill);
}

LaunchTensors CaseRun::backward_tensors(const NamedValues& inputs, const LaunchResult& forward,
                                        const NamedValues& cotangents_in, int fill) const {
  LaunchTensors out;
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec)) out.read.emplace(spec.name, input_tensor(spec, inputs));
  for (const Written& output : outputs) {
    if (output.reaches_backward()) out.read.emplace(output.name, forward.written.at(output.name));
    if (!output.saved) out.read.emplace(gradient_name(output.name), cotangent_tensor(output, cotangents_in));
  }
  out.in_place = overwritten(gradients);
  return refilled(out, gradients, fill);
}

/// One that backward overwrites has memory for each element.
Layout CaseRun::cotangent_layout(const std::string& cotangent) const {
  const auto& in_place = op.signature.launch.in_place;
  const bool over =
      std::any_of(in_place.begin(), in_place.end(), [&](const auto& pair) { return pair.second == cotangent; });
  return over ? tensor_layout(call, cotangent) : layout_of(call.layout, cotangent);
}

GuardedTensor CaseRun::cotangent_tensor(const Written& output, const NamedValues& cotangents) const {
  const std::string name = gradient_name(output.name);
  const auto known = cotangent_tensors_.find(name);
  if (&cotangents == &reference.cotangents() && cotangent_tensors_of_ == reference.probe() &&
      known != cotangent_tensors_.end())
    return known->second;
  GuardedTensor tensor(output.dtype, output.shape, cotangent_layout(name), poison(output.dtype, 0));
  tensor.assign(cotangents.at(name));
  return tensor;
}

LaunchTensors CaseRun::refilled(const LaunchTensors& tensors, const std::vector<Written>& written, int fill) const {
  LaunchTensors out{tensors.read, {}, tensors.in_place};
  for (const Written& output : written) {
    if (out.in_place.contains(output.name)) continue;
    const bool adds = accumulates(output.name);
    const auto known = poisoned_.find({output.name, fill});
    if (!adds && known != poisoned_.end()) {
      out.write.emplace(output.name, known->second);
      continue;
    }
    GuardedTensor tensor(output.dtype, output.shape, tensor_layout(call, output.name), poison(output.dtype, fill));
    if (adds)
      tensor.assign(held(output));
    else
      poisoned_[{output.name, fill}] = tensor;
    out.write.emplace(output.name, std::move(tensor));
  }
  return out;
}

void CaseRun::note_memory(const LaunchResult& result, const std::string& where) {
  for (const std::string& name : result.overrun)
    add_relation({CheckId::Kind::guards, name}, Code::ac402, 1, 1,
                 where + " wrote outside of '" + name + "': " + result.overrun_where.at(name));
  for (const std::string& name : result.clobbered)
    add_relation({CheckId::Kind::inputs_unchanged, name}, Code::ac403, 1, 1,
                 "'" + name + "' holds other bits after " + where);
  for (const LaunchNote& note : result.notes) {
    if (note.what == kStateLeft) {
      const CheckId id{.kind = CheckId::Kind::call, .dim = kStateLeft};
      add_relation(id, Code::none, 1, 0, "");
      for (CheckResult& check : checks)
        if (check.id == id) check.note = note.text;
      continue;
    }
    add_relation({.kind = CheckId::Kind::simulated, .dim = note.what}, note.code, 1, note.code == Code::none ? 0 : 1,
                 where + ": " + note.text);
  }
}

void CaseRun::stop_if_cancelled() const {
  if (options.cancel != nullptr && options.cancel->load()) throw Interrupted{};
}

/// What a kernel wrote or said after it was asked to stop is no result.
LaunchResult CaseRun::launched(const kernels::KernelFn& kernel, const LaunchTensors& tensors, const char* pass) {
  stop_if_cancelled();
  LaunchResult result;
  try {
    result = launch(kernel, tensors, call.attributes, options.device, options.cancel, &copies_);
  } catch (const KernelWithoutMemory&) {
    stop_if_cancelled();
    if (op.plugin.empty())
      throw std::bad_alloc();  // a kernel of ours asks for what it needs: memory is what is missing
    throw;
  } catch (const std::exception&) {
    stop_if_cancelled();
    throw;
  }
  stop_if_cancelled();
  note_memory(result, pass);
  return result;
}

LaunchResult CaseRun::run_forward(const LaunchTensors& tensors) {
  return launched(op.kernel.forward, tensors, "forward");
}
LaunchResult CaseRun::run_backward(const LaunchTensors& tensors) {
  return launched(op.kernel.backward, tensors, "backward");
}

LaunchResult CaseRun::run_jvp(const LaunchTensors& tensors) { return launched(op.kernel.jvp, tensors, "jvp"); }

/// The memory of the cotangents at hand, for the next ones; unless later probes are like them: then they are kept.
NamedValues CaseRun::release_cotangents() {
  const bool as_drawn = cotangents_probe_ >= 0 && cotangent_tensors_of_ == reference.probe() && call.layout == "dense";
  NamedValues all = reference.release_cotangents();
  int later = cotangents_probe_ + 1;
  while (as_drawn && later < probe_count(call) && probe_like(call, later) != cotangents_probe_) ++later;
  if (!as_drawn || later == probe_count(call)) return all;
  for (auto& [name, values] : all) {
    Drawn& drawn = drawn_[cotangents_probe_][name] = {std::move(values), cotangent_ranges_.at(name)};
    const auto tensor = cotangent_tensors_.find(name);
    if (tensor != cotangent_tensors_.end())
      drawn.bits = drawn_tensors_.emplace_back(tensor->second).view().as<const std::byte>();
  }
  return {};
}

const NamedValues& CaseRun::cotangents(int probe) {
  if (probe == cotangents_probe_) return reference.cotangents();
  NamedValues all = release_cotangents();
  cotangents_probe_ = probe;
  const auto like = drawn_.find(probe_like(call, probe));
  Ranges& ranges = cotangent_ranges_;
  cotangent_tensors_.clear();
  for (const Written& output : outputs) {
    if (output.saved) continue;
    const std::string name = gradient_name(output.name);
    GuardedTensor tensor(output.dtype, output.shape, cotangent_layout(name), poison(output.dtype, 0));
    CotangentBits bits;
    const bool at_once = tensor.view().is_dense() && is_float(output.dtype);
    if (at_once) bits.to = tensor.view().as<std::byte>();
    std::vector<double> values =
        cotangent_values(call, output.name, output.shape, output.dtype, probe, std::move(all[name]), bits,
                         like == drawn_.end() || like->first == probe ? nullptr : &like->second.at(name));
    // An expanded cotangent repeats its first column: what the kernel reads must be what the reference gets.
    const bool expanded = cotangent_layout(name) == Layout::expanded && output.shape.rank > 0;
    for (std::size_t i = 0; expanded && i < values.size(); ++i)
      values[i] = values[i - i % static_cast<std::size_t>(output.shape.last())];
    if (expanded) bits.range = ampcheck::reference::extremes_of(values);
    if (at_once && !expanded) cotangent_tensors_.emplace(name, std::move(tensor));
    ranges[name] = bits.range;
    all[name] = std::move(values);
  }
  reference.set_cotangents(std::move(all), ranges);
  cotangent_tensors_of_ = reference.probe();
  return reference.cotangents();
}

CheckResult& CaseRun::add(CheckResult check) {
  checks.push_back(std::move(check));
  return checks.back();
}

void CaseRun::add_relation(const CheckId& id, Code code, std::int64_t compared, std::int64_t failed,
                           const std::string& cause, std::vector<Element> worst) {
  // One line a relation: repeated breaks of the same one add up.
  for (CheckResult& known : checks)
    if (known.id == id) {
      known.compared += compared;
      known.failed += failed;
      if (failed > 0 && known.code == Code::none) {
        known.find(code);
        known.cause = cause;
        known.worst = std::move(worst);
      }
      return;
    }
  CheckResult check;
  check.id = id;
  for (const auto* const list : {&outputs, &gradients, &tangents})
    for (const Written& written : *list)
      if (written.name == id.tensor) check.dtype = written.dtype;
  for (const TensorSpec& spec : op.signature.inputs)
    if (spec.name == id.tensor && call.has(spec)) check.dtype = call.dtype(spec);
  check.compared = compared;
  check.failed = failed;
  if (failed > 0) {
    check.find(code);
    check.cause = cause;
    check.worst = std::move(worst);
  }
  checks.push_back(std::move(check));
}

}  // namespace ampcheck::checks
