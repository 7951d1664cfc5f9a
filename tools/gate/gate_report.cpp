// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/gate/gate_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

std::string power_text(const OpGate& gate) {
  return gate.power ? fmt::format("{} of {}", gate.power->found, gate.power->defects) : "-";
}

const char* colour_of(const OpGate& gate, const Style& style) {
  if (gate.code() == ExitCode::findings) return style.red;
  return gate.code() == ExitCode::passed && !gate.worse() ? style.green : style.yellow;
}

std::string change_line(const GatedTensorChange& t, const Style& style) {
  const checks::TensorChange& c = t.change;
  std::string out =
      fmt::format("    {:<12} {} case{} changed: rms {} -> {} ulp, largest {} -> {} ulp", t.tensor, c.changed,
                  c.changed == 1 ? "" : "s", rounded_decimal(c.rms_was, 3), rounded_decimal(c.rms_now, 3),
                  rounded_decimal(c.max_was, 3), rounded_decimal(c.max_now, 3));
  if (!t.worse.empty()) return out + fmt::format("; {}worse{}\n", style.red, style.reset);
  return out + fmt::format("; larger in {}, smaller in {}\n", c.larger, c.smaller);
}

}  // namespace

std::string gate_text(const std::vector<OpGate>& gates, const Style& style) {
  std::size_t width = 8;
  for (const OpGate& gate : gates) width = std::max(width, gate.op->op->signature.name.size());
  std::string out = fmt::format("  {}{:<{}}{:>8}{:>14}{:>12}    {}{}\n", style.bold, "op", width, "cases",
                                "bits changed", "power", "verdict", style.reset);
  for (const OpGate& gate : gates)
    out += fmt::format("  {:<{}}{:>8}{:>14}{:>12}    {}{}{}\n", gate.op->op->signature.name, width,
                       gate.op->calls.size(), gate.known ? std::to_string(gate.changed) : "-", power_text(gate),
                       colour_of(gate, style), gate.verdict(), style.reset);
  for (const OpGate& gate : gates) {
    const bool quiet = gate.tensors.empty() && gate.failures.empty() && gate.stale.empty() && gate.missing.empty() &&
                       gate.notes.empty();
    if (quiet) continue;
    out += fmt::format("\n{}{}{}\n", style.bold, gate.op->op->signature.name, style.reset);
    for (const std::string& line : gate.failures)
      out += fmt::format("  {}FAILED{}  {}\n", style.red, style.reset, line);
    for (const std::string& line : gate.stale)
      out += fmt::format("  {}STALE{}   {}\n", style.yellow, style.reset, line);
    if (!gate.missing.empty())
      out += fmt::format("  {}NOT RUN{} {} of the baseline's cases, first '{}'\n", style.yellow, style.reset,
                         gate.missing.size(), gate.missing.front());
    for (const GatedTensorChange& t : gate.tensors) out += change_line(t, style);
    for (const std::string& line : gate.notes) out += "  " + line + "\n";
  }
  return out;
}

namespace {

std::string speed_text(const checks::Speed& speed) {
  if (speed.cases == 0) return "-";
  return fmt::format("{:<6} {:.2f} ({:.2f} to {:.2f})", checks::name(speed.pace), speed.ratio, speed.low, speed.high);
}

Json speed_json(const checks::Speed& speed) {
  return {{"pace", checks::name(speed.pace)},
          {"ratio", json_number(speed.ratio)},
          {"low", json_number(speed.low)},
          {"high", json_number(speed.high)},
          {"base_seconds", json_number(speed.seconds[0])},
          {"seconds", json_number(speed.seconds[1])},
          {"cases", speed.cases}};
}

}  // namespace

std::string speeds_text(const std::vector<OpGate>& gates, const Style& style) {
  std::size_t width = 8;
  for (const OpGate& gate : gates) width = std::max(width, gate.op->op->signature.name.size());
  std::string out;
  for (const OpGate& gate : gates) {
    if (!gate.speed) continue;
    if (out.empty())
      out = fmt::format("\n  {}{:<{}}  {:<28}{}{}\n", style.bold, "time / base", width + 3, "forward", "backward",
                        style.reset);
    out += fmt::format("  {:<{}}  {:<28}{}\n", gate.op->op->signature.name, width + 3, speed_text(gate.speed->forward),
                       speed_text(gate.speed->backward));
  }
  return out;
}

Json gate_json(const std::vector<OpGate>& gates) {
  Json out = Json::array();
  for (const OpGate& gate : gates) {
    Json entry = {{"op", gate.op->op->signature.name},
                  {"verdict", gate.verdict()},
                  {"exit_code", static_cast<int>(gate.code())},
                  {"cases", gate.op->calls.size()},
                  {"compared", gate.compared},
                  {"bits_equal", gate.equal},
                  {"bits_changed", gate.changed},
                  {"bits_unknown", gate.unknown},
                  {"failures", gate.failures},
                  {"stale", gate.stale},
                  {"not_run", gate.missing},
                  {"notes", gate.notes},
                  {"power", nullptr},
                  {"speed", nullptr},
                  {"tensors", Json::array()},
                  {"findings", Json::array()}};
    if (gate.power)
      entry["power"] = {{"defects", gate.power->defects}, {"found", gate.power->found}, {"missed", gate.power->missed}};
    if (gate.speed)
      entry["speed"] = {{"forward", speed_json(gate.speed->forward)}, {"backward", speed_json(gate.speed->backward)}};
    for (const GatedTensorChange& t : gate.tensors)
      entry["tensors"].push_back({{"tensor", t.tensor},
                                  {"changed", t.change.changed},
                                  {"rms", {hex_float(t.change.rms_was), hex_float(t.change.rms_now)}},
                                  {"largest", {hex_float(t.change.max_was), hex_float(t.change.max_now)}},
                                  {"larger_in", t.change.larger},
                                  {"smaller_in", t.change.smaller},
                                  {"worse", t.worse}});
    for (const GatedFinding& f : gate.findings)
      entry["findings"].push_back({{"code", name(f.found.code)},
                                   {"cases", f.found.cases},
                                   {"first", f.found.first},
                                   {"waived", f.let_through()}});
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace ampcheck::tools
