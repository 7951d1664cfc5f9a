// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/gate/gate_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <mutex>

#include "checks/run/run_case.h"
#include "src/parallel.h"
#include "src/ptx/gpu.h"
#include "src/thread_scope.h"
#include "tools/choose/check_plan.h"
#include "tools/report/environment.h"

namespace ampcheck::tools {

namespace {

using Key = std::pair<const checks::OpDef*, std::string>;

/// Profiles of cases, put in from several threads.
class Profiles {
 public:
  /// Runs a case here and keeps its profile.
  CaseResult run(const checks::OpDef& op, const OpCall& call, const checks::RunOptions& options) {
    checks::Dump dump;
    CaseResult result = checks::run_case(op, call, options, &dump);
    if (dump.entries.empty()) return result;
    checks::CaseProfile profile = checks::profile_of(dump);
    const std::lock_guard lock(mutex_);
    kept_[{&op, result.name}] = std::move(profile);
    return result;
  }
  void put(const Key& key, checks::CaseProfile profile) { kept_[key] = std::move(profile); }
  /// There will be none of this case.
  void leave_out(const Key& key, const std::string& why) {
    const std::lock_guard lock(mutex_);
    left_out_[key] = why;
  }
  const std::map<Key, std::string>& left_out() const { return left_out_; }
  checks::CaseProfile* find(const Key& key) {
    const auto at = kept_.find(key);
    return at == kept_.end() ? nullptr : &at->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, checks::CaseProfile> kept_;
  std::map<Key, std::string> left_out_;
};

checks::RunOptions plain_options(const KernelGateOptions& options, const std::atomic<bool>* cancel) {
  checks::RunOptions run;
  run.device = options.device;
  run.jobs = options.jobs;
  run.relations = options.relations;
  run.as_written = options.as_written;
  run.memory = options.memory;
  run.time_budget = options.time_budget;
  run.cancel = cancel;
  return run;
}

bool ran_whole(const CaseResult& result) {
  return result.verdict != Verdict::crash && result.verdict != Verdict::timeout && result.verdict != Verdict::skipped &&
         result.unjudged() == 0;
}

/// While it lives, standard output leads nowhere: what a kernel prints is no part of an answer.
class NoOutput {
 public:
  NoOutput() : kept_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 64)), nowhere_(open("/dev/null", O_WRONLY | O_CLOEXEC)) {
    std::fflush(stdout);
    if (kept_ >= 0 && nowhere_ >= 0) dup2(nowhere_, STDOUT_FILENO);
  }
  ~NoOutput() {
    std::cout.flush();
    std::fflush(stdout);
    if (kept_ >= 0 && nowhere_ >= 0) dup2(kept_, STDOUT_FILENO);
    close(kept_);
    close(nowhere_);
  }
  NoOutput(const NoOutput&) = delete;
  NoOutput& operator=(const NoOutput&) = delete;

 private:
  int kept_, nowhere_;
};

/// The judged cases of a library once more in this process, for their tensors.
void profile_here(const Selection& selection, const Report& report, const checks::RunOptions& plain,
                  Profiles& profiles) {
  std::map<std::string, const CaseResult*> results;
  for (const CaseResult& result : report.cases) results[result.op + " " + result.name] = &result;
  checks::RunOptions run = plain;
  run.run = nullptr;
  run.relations = false;
  run.explain = false;
  const NoOutput quiet;
  const ThreadScope scope(plain.jobs);
  parallel_for(static_cast<std::int64_t>(selection.cases.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const checks::Case& item = selection.cases[i];
      const auto at = results.find(item.op->signature.name + " " + item.call.str(item.op->signature));
      if (at == results.end() || !ran_whole(*at->second) || profiles.find({item.op, at->second->name}) != nullptr)
        continue;
      try {
        const CaseResult again = profiles.run(*item.op, item.call, run);
        if (checks::is_left_out(again)) profiles.leave_out({item.op, at->second->name}, again.note);
      } catch (const checks::Interrupted&) {
        return;
      }
    }
  });
}

/// Profiles and findings by op, in the order of the selection.
void sort_by_op(const Selection& selection, Profiles& profiles, const Report& report, std::vector<GatedOp>& ops) {
  std::map<const checks::OpDef*, std::size_t> place;
  for (const checks::Case& item : selection.cases) {
    const auto [at, fresh] = place.try_emplace(item.op, ops.size());
    if (fresh) ops.emplace_back().op = item.op;
    GatedOp& gated = ops[at->second];
    gated.calls.push_back(item.call);
    const std::string name = item.call.str(item.op->signature);
    if (checks::CaseProfile* profile = profiles.find({item.op, name}))
      gated.cases[name] = std::move(*profile);
    else
      ++gated.unprofiled;
  }
  for (GatedOp& gated : ops) {
    for (const CaseResult& result : report.cases) {
      if (result.op != gated.op->signature.name) continue;
      if (result.verdict == Verdict::skipped) ++gated.skipped;
      if (result.verdict == Verdict::empty) ++gated.empty;
      if (convicts(result.verdict)) gated.convicted.push_back(&result);
      if (checks::is_left_out(result)) gated.left_out.push_back(result.note);
    }
    for (const auto& [key, why] : profiles.left_out())
      if (key.first == gated.op) gated.left_out.push_back(why);
  }
}

}  // namespace

std::string arch_of(Device device) {
  if (device == Device::cuda && ptx::simulates_gpu()) return "cuda-ptx";
  if (device == Device::cuda) {
    const CudaFacts facts = cuda_facts();
    if (!facts.devices.empty())
      return fmt::format("cuda-sm_{}{}", facts.devices.front().major, facts.devices.front().minor);
  }
#if defined(__aarch64__)
  return "cpu-aarch64";
#else
  return "cpu-x86_64";
#endif
}

WorkerSetup workers_of(const KernelGateOptions& options, const Selection& selection) {
  return worker_setup(
      selection.cases.empty() ? std::vector<const checks::OpDef*>() : std::vector{selection.cases.front().op}, options,
      options.inputs);
}

GateRun gate_run(const KernelGateOptions& options, const Selection& selection, const std::atomic<bool>* cancel,
                 const std::function<void(std::size_t, std::size_t, const CaseResult&)>& progress,
                 const KnownRun& known) {
  GateRun out;
  out.arch = arch_of(options.device);
  Profiles profiles;
  const checks::RunOptions plain = plain_options(options, cancel);
  checks::RunOptions run = plain;
  run.brief = true;
  run.progress = progress;
  run.run = known.workers != nullptr ? known.workers : isolated_run(workers_of(options, selection), cancel);
  const bool elsewhere = run.run != nullptr;
  if (!elsewhere)
    run.run = [&](const checks::OpDef& op, const OpCall& call, const checks::How& how) {
      if (how.sampled || how.again || how.values) return checks::run_one({&op, call}, how, plain);
      checks::RunOptions own = plain;
      own.explain = how.explain;
      own.power = how.power;
      own.first = how.first;
      return profiles.run(op, call, own);
    };
  if (known.part) run.explain = run.aim = false;
  if (known.find != nullptr || known.keep != nullptr)
    run.run = [inner = run.run, &known](const checks::OpDef& op, const OpCall& call, const checks::How& how) {
      if (known.find != nullptr)
        if (auto result = known.find(op, call.str(op.signature), how)) return std::move(*result);
      CaseResult result = inner(op, call, how);
      if (known.keep != nullptr) known.keep(result, how);
      return result;
    };
  for (const checks::Case& item : selection.cases) {
    const std::string name = item.call.str(item.op->signature);
    if (const auto at = known.profiles.find(name); at != known.profiles.end())
      profiles.put({item.op, name}, at->second);
  }
  out.report = run_selection(selection, run);
  if (elsewhere) profile_here(selection, out.report, plain, profiles);
  sort_by_op(selection, profiles, out.report, out.ops);
  return out;
}

std::vector<GatedOp> profiled(const Selection& selection, const Report& report, const checks::RunOptions& run) {
  Profiles profiles;
  profile_here(selection, report, run, profiles);
  std::vector<GatedOp> out;
  sort_by_op(selection, profiles, report, out);
  return out;
}

std::vector<VariantClasses> variant_classes(const std::vector<GatedOp>& ops) {
  using Bits = std::map<std::string, std::map<std::string, std::string>>;  // by case without the op's name, by tensor
  const auto bits_of = [](const GatedOp& op) {
    Bits out;
    for (const auto& [name, profile] : op.cases)
      for (const auto& [tensor, p] : profile.tensors) out[name.substr(name.find('('))][tensor] = p.bits;
    return out;
  };
  std::vector<VariantClasses> out;
  for (const GatedOp& own : ops) {
    const std::string& name = own.op->signature.name;
    if (is_variant(*own.op)) continue;
    VariantClasses& of = out.emplace_back();
    of.op = name;
    std::vector<Bits> known;
    for (const GatedOp& each : ops) {
      const std::string& kernel = each.op->signature.name;
      if (kernel != name && !kernel.starts_with(name + ".")) continue;
      ++of.kernels;
      if (!each.convicted.empty()) of.outside.push_back(kernel);
      Bits bits = bits_of(each);
      if (bits.empty()) {
        of.unknown.push_back(kernel);
        continue;
      }
      const auto at = std::find(known.begin(), known.end(), bits);
      if (at == known.end()) {
        known.push_back(std::move(bits));
        of.classes.push_back({kernel});
      } else {
        of.classes[static_cast<std::size_t>(at - known.begin())].push_back(kernel);
      }
    }
    if (of.kernels == 1) out.pop_back();
  }
  return out;
}

void require_variants(const CaseOptions& options, const Selection& selection) {
  if (options.variants && std::none_of(selection.cases.begin(), selection.cases.end(),
                                       [](const checks::Case& item) { return is_variant(*item.op); }))
    throw UsageError(
        "[--variants] got ops without variants, want a library whose op has some: op.variant(\"tile128\") "
        "(ampcheck explain gate)");
}

}  // namespace ampcheck::tools
