// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A diagnosis as text.
#include <fmt/format.h>

#include "checks/diagnose/chain.h"
#include "tools/commands/diagnose_report.h"
#include "tools/report/loss_decimal.h"

namespace ampcheck::tools {

namespace {

using namespace checks::diagnose;

std::string joined(const Ops& ops) {
  std::string out;
  for (const std::string& op : ops) out += (out.empty() ? "" : ", ") + op;
  return out;
}

std::string line(const char* what, const std::string& text) {
  return text.empty() ? "" : fmt::format("  {:<10} {}\n", what, text);
}

std::string lines(const char* what, const std::vector<std::string>& all) {
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i) out += line(i == 0 ? what : "", all[i]);
  return out;
}

std::string finding_text(const Finding& f, const Style& style) {
  const CauseInfo& known = info(f.cause);
  std::string out = fmt::format("{}{} {}{} ({}, {}): {}\n", style.bold, known.number, known.name, style.reset,
                                checks::diagnose::name(known.kind), checks::diagnose::name(f.weight), known.what);
  out += line("op", f.tensor.empty() ? f.op : f.tensor);
  if (f.precursor >= 0 && f.step > f.precursor)
    out += line("first", fmt::format("step {}, {} step{} before it showed at step {}", f.precursor + 1,
                                     f.step - f.precursor, f.step - f.precursor == 1 ? "" : "s", f.step + 1));
  else if (f.step >= 0)
    out += line("first", fmt::format("step {}", f.step + 1));
  return out + lines("for", f.speaks_for) + lines("against", f.speaks_against);
}

std::string smallest_text(const SmallestSet& s) {
  if (!s.known) return "";
  std::string out = line("raise", fmt::format("{} to fp32: the smallest set, {} set{} tried", joined(s.ops), s.runs,
                                              s.runs == 1 ? "" : "s"));
  return out + line("costs", fmt::format("{} more bytes in a step; {:.2f} ms a step instead of {:.2f} here",
                                         s.more_bytes, 1e3 * s.step_after, 1e3 * s.step_before));
}

std::string symptoms_text(const Subject& subject, const Observation& seen, const checks::diagnose::Report& report) {
  const Symptoms& s = report.symptoms;
  const std::string run = fmt::format("The {} run", checks::train::dtype_name(subject.options));
  if (!seen.ended.empty()) return run + " was ended by its scaler: " + seen.ended;
  if (s.lost >= 0) return fmt::format("{} has no finite loss at step {}.", run, s.lost + 1);
  if (s.left >= 0) return fmt::format("{} diverged from the fp64 run at step {}.", run, s.left + 1);
  if (s.storm >= 0) return fmt::format("{} skips every step from step {} on.", run, s.storm + 1);
  if (s.bad_op >= 0) return fmt::format("{} goes wrong at step {}; its loss does not show it yet.", run, s.bad_op + 1);
  return fmt::format("{} is well: {} steps, loss {}.", run, seen.steps.size(), loss_decimal(seen.steps.back().loss));
}

std::string open_text(const checks::diagnose::Report& report) {
  if (!report.inconclusive) return "";
  std::string out = "INCONCLUSIVE: no cause that ampcheck knows is supported by what was seen.\n";
  return out + smallest_text(report.smallest) +
         line("record",
              "ampcheck train ... --record run.trace --every 1, and look at the steps before the first bad one");
}

}  // namespace

std::string diagnose_text(const Subject& subject, const Observation& seen, const checks::diagnose::Report& report,
                          const Style& style) {
  std::string out = symptoms_text(subject, seen, report) + "\n";
  for (std::size_t i = 0; i < report.findings.size() && i < 3; ++i) {
    out += i == 1 ? "\nLess likely, or what follows from it:\n" : i == 0 ? "\n" : "";
    const Finding& f = report.findings[i];
    out += finding_text(f, style);
    if (i > 0) continue;
    out += smallest_text(report.smallest) + line("change", f.paste) + line("", report.cure_tried);
    const std::vector<Link> chain = causal_chain(seen, report);
    for (std::size_t k = 0; k < chain.size(); ++k)
      out += line(k == 0 ? "chain" : "",
                  fmt::format("step {}: {}{}", chain[k].step + 1, chain[k].tensor.empty() ? "" : chain[k].tensor + ": ",
                              chain[k].what));
    if (f.weight == Weight::possible) out += line("record", std::string(info(f.cause).record));
  }
  out += open_text(report);
  for (const Finding& f : report.notes)
    out += fmt::format("\nHarmless: {} {}: {}\n", info(f.cause).number, info(f.cause).what,
                       f.speaks_for.empty() ? "" : f.speaks_for.front());
  if (!report.healthy()) {
    out += "\nExperiments\n";
    for (const Tried& t : report.tried) out += fmt::format("  {:<3} {}: {}\n", t.experiment, t.what, t.result);
  }
  return out + fmt::format("\n{} runs, {:.1f} s\n", report.runs + 1, report.seconds);
}

}  // namespace ampcheck::tools
