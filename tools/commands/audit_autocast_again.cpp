// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// The net of a recorded run taken up again, so that a change of its policy is tried and not only recommended.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "checks/autocast/scenarios.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "src/freed_memory.h"
#include "src/parallel.h"
#include "tools/choose/as_usage.h"
#include "tools/choose/net_choice.h"
#include "tools/commands/audit_autocast.h"
#include "tools/workers/child.h"

namespace ampcheck::tools {

namespace {

using namespace checks::autocast;

/// A file as it is named, or beside the trace: a run may have been recorded elsewhere. Empty: neither is there.
std::string net_file(const std::string& named, const std::string& trace) {
  std::error_code none;
  if (std::filesystem::is_regular_file(named, none)) return named;
  const std::filesystem::path beside =
      std::filesystem::path(trace).parent_path() / std::filesystem::path(named).filename();
  return std::filesystem::is_regular_file(beside, none) ? beside.string() : "";
}

NetSubject subject_of(const AuditOptions& options, const Trace& trace, const std::string& net) {
  NetOptions chosen;
  chosen.verb = "audit autocast";
  chosen.data = options.data;
  chosen.seed = trace.seed;
  chosen.batch = trace.batch;
  chosen.width = trace.width;
  chosen.loss = trace.loss_kind;
  const ChosenNet made = choose_net(chosen, net, net.ends_with(".toml") ? net : "");
  if (made.own) run_kernels_here(made.own->own_ops, options);
  NetSubject out;
  out.net = as_usage([&] { return made.made(); });
  const bool known = trace.autocast == name(AutocastDevice::cpu) || trace.autocast == name(AutocastDevice::cuda);
  out.device =
      list_device("--device", options.autocast.device.empty() && known ? trace.autocast : options.autocast.device);
  out.list = torch_list(options.autocast.torch, out.device);
  out.dtype = trace.dtype == name(Dtype::bf16) ? Dtype::bf16 : Dtype::fp16;
  out.seed = trace.seed;
  out.batches = options.autocast.batches;
  out.scale = options.autocast.scale;
  if (out.scale <= 0 && !trace.steps.empty()) out.scale = trace.steps.front().scale;
  return out;
}

/// A call of the run that the net has not; empty: it has all.
std::string missing_call(const std::vector<OpRow>& run, const std::vector<OpRow>& net) {
  for (const OpRow& row : run)
    if (std::ranges::find(net, row.call, &OpRow::call) == net.end()) return row.call;
  return "";
}

}  // namespace

NetAudit audit_net_and_rules(const NetSubject& subject) {
  NetAudit out = as_usage([&] { return audit_net(subject); });
  const auto own = built_in_autocast(subject.device);
  out.results.add(audit_rules(*own, autocast_list("", subject.device), subject.device).results);
  return out;
}

NetAgain net_of_trace(const AuditOptions& options, const Trace& trace, const std::string& net,
                      const std::vector<OpRow>& rows, const std::set<std::string>& suspects) {
  NetAgain out;
  out.batches = options.autocast.batches;
  out.net = net.empty() ? trace.net : net;
  if (out.net.empty()) {
    out.why = "the trace says no net that is known here";
    return out;
  }
  if (net.empty() && out.net.ends_with(".toml")) {
    const std::string file = net_file(out.net, trace.path);
    if (file.empty()) {
      out.why = fmt::format("its net '{}' is not here", out.net);
      return out;
    }
    out.net = file;
    if (as_usage([&] { return read_bytes(file, "net"); }).find("library") != std::string::npos) {
      out.why = fmt::format("its net '{}' loads a library, which only you can ask for", file);
      return out;
    }
  }
  keep_freed_memory();
  set_threads(options.jobs);
  const auto run = [&] {
    NetSubject subject = subject_of(options, trace, out.net);
    subject.suspects = suspects;
    out.audit = audit_net_and_rules(subject);
  };
  if (!net.empty()) {
    run();
  } else {
    try {
      run();
    } catch (const UsageError& error) {  // its file has changed
      out.why = error.what();
    } catch (const EnvironmentError& error) {  // its data is not there
      out.why = error.what();
    }
  }
  if (!out.audit) return out;
  const std::string missing = missing_call(rows, out.audit->rows);
  if (missing.empty()) return out;
  const std::string why =
      fmt::format("'{}' has no {}, which the run has: it is another net, or has changed since", out.net, missing);
  if (!net.empty()) throw UsageError("[audit autocast] " + why);
  out.audit.reset();
  out.why = why;
  return out;
}

}  // namespace ampcheck::tools
