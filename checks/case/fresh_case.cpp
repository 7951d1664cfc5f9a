// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/case/fresh_case.h"

#include <algorithm>
#include <cmath>

#include "checks/case/form_comparison.h"
#include "src/launch_facts.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kLargest = 1 << 16;       ///< elements of the tensor: of more a call costs too much
constexpr double kMostWork = 1 << 18;            ///< product of all other extents
constexpr std::uint64_t kApart = 0x9e3779b9ULL;  ///< seeds

/// What a simulated GPU says of launches of the case itself stays, and of these it says nothing.
class KeptFacts {
 public:
  KeptFacts() : kept_(launch_facts()) {}
  KeptFacts(const KeptFacts&) = delete;
  KeptFacts& operator=(const KeptFacts&) = delete;
  ~KeptFacts() {
    forget_launch_facts();
    for (LaunchFact& fact : kept_) keep_launch_fact(std::move(fact));
  }

 private:
  std::vector<LaunchFact> kept_;
};

const Written* written_as(const CaseRun& run, const std::string& tensor) {
  for (const auto* list : {&run.outputs, &run.gradients})
    for (const Written& written : *list)
      if (written.name == tensor) return &written;
  return nullptr;
}

void launch(CaseRun& run, const Written& tensor, Pass pass, int probe, std::vector<double>& got) {
  const LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
  if (pass == Pass::forward) {
    got = to_doubles(forward.written.at(tensor.name).view());
    return;
  }
  NamedValues saved;
  for (const Written& output : run.outputs)
    if (output.reaches_backward()) saved[output.name] = to_doubles(forward.written.at(output.name).view());
  if (!saved.empty()) run.reference.set_saved(std::move(saved));
  const NamedValues& cotangents = run.cotangents(std::max(probe, 0));
  const LaunchResult backward = run.run_backward(run.backward_tensors(run.reference.inputs(), forward, cotangents, 0));
  got = to_doubles(backward.written.at(tensor.name).view());
}

}  // namespace

bool FreshCases::may_call(const std::string& tensor) const {
  const Written* const written = written_as(of_, tensor);
  return of_.op.kernel.forward && of_.op.kernel.backward && of_.call.data == nullptr && written != nullptr &&
         written->shape.count() <= kLargest && !of_.accumulates(tensor);
}

std::unique_ptr<FreshTensor> FreshCases::made(const OpCall& call, const std::string& tensor, Pass pass) const {
  const KeptFacts kept;
  auto out = std::make_unique<FreshTensor>();
  out->options = of_.options;
  out->options.relations = out->options.power = out->options.first = false;
  out->call = call;
  try {
    out->run = std::make_unique<CaseRun>(of_.op, out->call, out->options);
    CaseRun& run = *out->run;
    const Written* const written = written_as(run, tensor);
    if (written == nullptr) return nullptr;
    out->tensor = *written;
    const Pass of = pass == Pass::forward ? pass : Pass::backward;
    launch(run, out->tensor, of, of_.probe(), out->got);
    FormComparison with_forms = compare_with_forms(run, out->tensor, of, out->got);
    if (with_forms.comparison.outside.empty()) return nullptr;
    out->interval = std::move(with_forms.nearest);
    out->comparison = std::move(with_forms.comparison);
    out->part = some_rows(out->whole(of));
    return out;
  } catch (const std::bad_alloc&) {  // not theirs
    throw;
  } catch (const std::exception&) {  // it does not run so: that is told where it is checked
    return nullptr;
  }
}

FreshTensor* FreshCases::again(const std::string& tensor, Pass pass, int which) {
  if (!may_call(tensor)) return nullptr;
  const auto [at, is_new] =
      made_.try_emplace({tensor, pass == Pass::forward ? pass : Pass::backward, of_.probe(), which});
  if (is_new) {
    OpCall call = of_.call;
    call.seed += kApart * (first_ * 16 + static_cast<std::uint64_t>(which));
    if (which == 1 && call.range == "normal") call.range = "integers9";  // what fits near zero alone shows there
    at->second = made(call, tensor, pass);
  }
  return at->second.get();
}

const std::vector<OpCall>& FreshCases::other_extents() {
  if (std::exchange(listed_, true)) return elsewhere_;
  const OpSignature& signature = of_.op.signature;
  const auto take = [&](auto extent) {
    OpCall call = of_.call;
    double work = 1;
    bool other = false;
    for (const DimSpec& dim : signature.dims) {
      const auto at = call.dims.find(dim.symbol);
      if (at == call.dims.end()) continue;
      const std::int64_t n = extent(dim, at->second);
      other |= n != at->second;
      at->second = n;
      work *= static_cast<double>(n);
    }
    if (!other || work > kMostWork || (signature.valid && !signature.valid(call.dims, call.attributes)) ||
        std::ranges::any_of(elsewhere_, [&](const OpCall& known) { return known.dims == call.dims; }))
      return;
    call.seed += kApart * (first_ * 16 + 8 + elsewhere_.size());
    elsewhere_.push_back(std::move(call));
  };
  take([](const DimSpec& dim, std::int64_t) { return dim.standard[0]; });
  take([](const DimSpec&, std::int64_t n) { return 2 * n + 1; });
  take([](const DimSpec& dim, std::int64_t) { return dim.standard[2]; });
  take([](const DimSpec&, std::int64_t n) { return n + 2; });
  take([](const DimSpec& dim, std::int64_t) { return dim.standard[1]; });
  take([](const DimSpec&, std::int64_t n) { return 2 * n; });
  return elsewhere_;
}

FreshTensor* FreshCases::elsewhere(const std::string& tensor, Pass pass, int which) {
  // Of a kernel that someone else brought, what happens at other extents belongs to the cases of these extents: it
  // might crash there.
  if (of_.op.kernel.host != nullptr || !of_.op.plugin.empty() || !may_call(tensor)) return nullptr;
  const std::vector<OpCall>& calls = other_extents();
  if (which >= std::ssize(calls)) return nullptr;
  const auto [at, is_new] =
      made_.try_emplace({tensor, pass == Pass::forward ? pass : Pass::backward, of_.probe(), -1 - which});
  if (is_new) at->second = made(calls[static_cast<std::size_t>(which)], tensor, pass);
  return at->second.get();
}

FreshCases& fresh_cases_of(CaseRun& run) {
  CaseRun& whole = run.part_of != nullptr ? *run.part_of : run;
  if (!whole.fresh) whole.fresh = std::make_shared<FreshCases>(whole);
  return *whole.fresh;
}

}  // namespace ampcheck::checks
