// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/dump.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "checks/case/case_run.h"
#include "checks/data/file_tensors.h"
#include "checks/explain/further_causes.h"
#include "checks/judge/judge.h"
#include "checks/run/conclude.h"
#include "src/error.h"

namespace ampcheck::checks {

namespace {

std::string quoted(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "'" : ", '") + name + "'";
  return out;
}

/// A tensor of the dump that is judged: its place among what the op writes, and its elements.
struct Dumped {
  Written written;
  Tensor tensor;
};

class DumpJudge {
 public:
  DumpJudge(CaseRun& run, const TensorFile& dump, std::vector<std::string>& notes)
      : run_(run), dump_(dump), notes_(notes) {}

  void forward() {
    std::vector<Dumped> tensors;
    std::vector<std::string> missing;
    for (const Written& output : run_.outputs) {
      if (output.saved && dump_.find(output.name) == nullptr) continue;
      if (is_output(tensors, output.name)) continue;  // saved under an output's name
      if (dump_.find(output.name) == nullptr)
        missing.push_back(output.name);
      else
        tensors.push_back(take(output, output.saved ? output.dtype : run_.call.storage));
    }
    if (!missing.empty()) notes_.push_back("not judged, since the dump has no " + quoted(missing));
    judge_all(CheckId::Kind::forward, tensors, Pass::forward);
  }

  void backward() {
    NamedValues cotangents;
    std::vector<std::string> given, missing;
    for (const Written& output : run_.outputs) {
      const std::string name = gradient_name(output.name);
      if (output.saved || cotangents.contains(name)) continue;
      const Tensor* tensor = dump_.find(name);
      if (tensor != nullptr) require(name, *tensor, output.shape);
      (tensor == nullptr ? missing : given).push_back(name);
      // An output that nothing was asked of has a zero cotangent.
      cotangents[name] = tensor == nullptr ? std::vector<double>(static_cast<std::size_t>(output.shape.count()), 0.0)
                                           : to_doubles(tensor->view());
    }
    std::vector<Dumped> tensors;
    std::vector<std::string> absent;
    for (const Written& gradient : run_.gradients) {
      if (dump_.find(gradient.name) == nullptr)
        absent.push_back(gradient.name);
      else
        tensors.push_back(take(gradient, gradient.dtype));
    }
    if (!tensors.empty() && given.empty())
      throw Error("[dump '" + dump_.path + "'] got the gradient '" + tensors.front().written.name +
                  "' and no cotangent, want " + quoted(missing) +
                  " too (what the backward was given; ones for the gradient of a sum)");
    if (tensors.empty()) {
      if (!run_.gradients.empty())
        notes_.push_back("only the forward is judged: the dump has no gradient " + quoted(absent));
      return;
    }
    if (!absent.empty()) notes_.push_back("not judged, since the dump has no " + quoted(absent));
    if (!missing.empty()) notes_.push_back("taken as zero, since the dump has no cotangent " + quoted(missing));
    run_.reference.set_cotangents(std::move(cotangents));
    judge_all(CheckId::Kind::backward, tensors, Pass::backward);
  }

  void unused() {
    std::set<std::string> known;
    for (const TensorSpec& spec : run_.op.signature.inputs) known.insert(spec.name);
    for (const Written& output : run_.outputs)
      known.insert({output.name, output.saved ? output.name : gradient_name(output.name)});
    for (const Written& gradient : run_.gradients) known.insert(gradient.name);
    std::vector<std::string> names;
    for (const NamedTensor& tensor : dump_.tensors)
      if (!known.contains(tensor.name)) names.push_back(tensor.name);
    if (!names.empty()) notes_.push_back("not used of the dump: " + quoted(names));
  }

 private:
  static bool is_output(const std::vector<Dumped>& tensors, const std::string& name) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const Dumped& t) { return t.written.name == name; });
  }

  void require(const std::string& name, const Tensor& tensor, const Shape& shape) const {
    if (!is_float(tensor.dtype()))
      throw Error("[dump '" + dump_.path + "'] tensor '" + name + "', got " + ampcheck::name(tensor.dtype()) +
                  ", want floating numbers");
    if (!alike(tensor.shape(), shape))
      throw Error("[dump '" + dump_.path + "'] tensor '" + name + "', got shape " + tensor.shape().str() + ", want " +
                  shape.str() + " of the formula");
  }

  /// One number is a scalar to some and a vector of one element to others: a loss is written as either.
  static bool alike(const Shape& a, const Shape& b) {
    return a == b || (a.rank <= 1 && b.rank <= 1 && a.count() == 1 && b.count() == 1);
  }

  static Tensor in_shape(const Tensor& from, const Shape& shape) {
    Tensor out(from.dtype(), shape);
    from_doubles(to_doubles(from.view()), out.view());
    return out;
  }

  /// In its own type; in the declared one, where it is held in a wider type that shows no more than that.
  Dumped take(const Written& like, Dtype declared) {
    Tensor tensor = *dump_.find(like.name);
    require(like.name, tensor, like.shape);
    if (!(tensor.shape() == like.shape)) tensor = in_shape(tensor, like.shape);
    if (tensor.dtype() != declared && bytes(tensor.dtype()) > bytes(declared)) {
      const std::vector<double> values = to_doubles(tensor.view());
      const Dtype held = tensor.dtype();
      const bool fits = first_inexact(values, declared) < 0;
      if (fits && converted()) {
        tensor = Tensor(declared, like.shape);
        from_doubles(values, tensor.view());
      }
      notes_.push_back("'" + like.name + "' is held in " + name(held) + " and judged in " + name(tensor.dtype()));
    }
    return {{like.name, tensor.dtype(), like.shape, like.saved}, tensor};
  }

  /// Whether the user said what is stored (--dtype), so that the dump's own types are only how it is held.
  bool converted() const {
    for (const TensorSpec& spec : run_.op.signature.inputs)
      if (const Tensor* tensor = dump_.find(spec.name); tensor != nullptr && tensor->dtype() == run_.call.storage)
        return false;
    return true;
  }

  void judge_all(CheckId::Kind kind, const std::vector<Dumped>& tensors, Pass pass) {
    std::vector<Subject> subjects;
    for (const Dumped& tensor : tensors)
      subjects.push_back({{kind, tensor.written.name}, &tensor.written, tensor.tensor.view()});
    if (subjects.empty()) return;
    std::vector<CheckResult> checks = judge(run_, subjects, pass, explained_);
    explain_further(run_, subjects, pass, explained_, checks);
    for (std::size_t k = 0; k < checks.size(); ++k) {
      if (convicts(checks[k].verdict)) checks[k].note = narrower(tensors[k].tensor);
      run_.add(std::move(checks[k]));
    }
  }

  /// A hint where a wide tensor holds nothing but narrow numbers: then its type is not what the op stores.
  static std::string narrower(const Tensor& tensor) {
    if (bytes(tensor.dtype()) < 4) return "";
    const std::vector<double> values = to_doubles(tensor.view());
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16})
      if (first_inexact(values, dtype) < 0)
        return std::string("every value is a ") + name(dtype) + " number: if that is what the op stores, say --dtype " +
               name(dtype);
    return "";
  }

  CaseRun& run_;
  const TensorFile& dump_;
  std::vector<std::string>& notes_;
  Notes explained_;
};

}  // namespace

DumpResult judge_dump(const OpDef& op, const OpCall& call, const TensorFile& dump, bool as_written) {
  const auto start = std::chrono::steady_clock::now();
  DumpResult out;
  out.result.name = call.str(op.signature);
  out.result.op = op.signature.name;
  out.result.plugin = op.plugin;
  out.result.dtype = name(call.storage);
  const RunOptions options{.as_written = as_written};
  CaseRun run(op, call, options);
  DumpJudge judge(run, dump, out.notes);
  judge.forward();
  judge.backward();
  judge.unused();
  if (run.checks.empty())
    throw Error("[dump '" + dump.path + "'] got " + dump.names() + ", want an output or a gradient of " +
                op.signature.name);
  conclude(run, out.result);
  out.result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace ampcheck::checks
