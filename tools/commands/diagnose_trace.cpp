// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/diagnose_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/report/numbers.h"
#include "tools/report/shell_word.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

using checks::stacks::LogDiagnosis;
using checks::stacks::LogTrouble;

/// Of the gradients in 16 bits: with as many at zero a parameter may not be trained.
constexpr double kMuch = 0.1;

/// What a scaler skips is its business.
bool is_caught(const Trace& trace, const TracedTensor& t) {
  const auto step =
      std::find_if(trace.steps.begin(), trace.steps.end(), [&](const TracedStep& s) { return s.step == t.step; });
  return t.phase != "forward" && step != trace.steps.end() && !step->stepped;
}

const TracedTensor* first_producer(const Trace& trace) {
  const auto found = std::find_if(trace.tensors.begin(), trace.tensors.end(),
                                  [&](const TracedTensor& t) { return t.role == "producer" && !is_caught(trace, t); });
  return found == trace.tensors.end() ? nullptr : &*found;
}

std::string command_of(const Trace& trace) {
  return fmt::format(
      "with the same options this makes the run again and tries what would mend it: ampcheck diagnose {} --dtype {} "
      "--scaler {} --seed {}",
      trace.net.empty() ? "NET" : shell_word(trace.net), trace.dtype_text(), trace.scaler, trace.seed);
}

}  // namespace

bool is_trace(std::string_view text) { return text.starts_with("{\"schema\":\"ampcheck.trace/"); }

void look_at_tensors(LogDiagnosis& found, const std::string& path) {
  const Trace trace = read_trace(path);
  StepFlushes flushes;
  for (const TracedTensor& t : trace.tensors) flushes.add(t);
  found.read += ", steps counted from 0";
  found.unknown.clear();  // gradients and their ops are in the trace
  if (const TracedTensor* const producer = first_producer(trace)) {
    found.left.insert(found.left.begin(),
                      fmt::format("step {}: {} made finite values non-finite", producer->step, producer->name()));
  }
  if (found.trouble == LogTrouble::none && flushes.share() >= kMuch) {
    found.trouble = LogTrouble::no_gradient;
    found.kind = "gradients_vanish";
    const auto step = std::find_if(found.steps.begin(), found.steps.end(),
                                   [&](const auto& s) { return s.step && *s.step == flushes.worst->step; });
    found.first_bad = step == found.steps.end() ? 0 : step - found.steps.begin();
    found.what =
        fmt::format("step {}: {} of {} became zero, {} of all gradients in 16 bits over the run", flushes.worst->step,
                    percent(flushes.worst->flushed_share()), flushes.worst->name(), percent(flushes.share()));
  }
  if (found.trouble == LogTrouble::none) return;
  found.next = {command_of(trace), "ampcheck trace " + shell_word(path) + " has every tensor of the steps"};
}

}  // namespace ampcheck::tools
