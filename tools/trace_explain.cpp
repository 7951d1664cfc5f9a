// SPDX-License-Identifier: Apache-2.0
#include "tools/trace_explain.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "checks/train/trace.h"
#include "checks/train/trace_fields.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

constexpr const char* kHow = R"(A trace is what `ampcheck train --record run.trace` writes: a text file of JSON lines, one object to a line, to which each step is
appended when it ends. `ampcheck trace run.trace` makes tables, CSV, JSON or a page of it; this is for programs of your own.

A run may die at any moment. A last line without a newline is torn: leave it out, and with it all lines after the last one of kind "step".
No line is changed once it is written; a run that is resumed cuts off what is behind its checkpoint and goes on in the same file. After a
fault of a run that is looked at in some of its steps, the steps before it follow whole, out of order: they have a line "step" a second time.

  import json
  steps, tensors, new = {}, [], []
  for line in open("run.trace"):
      if not line.endswith("\n"):
          break                                  # torn
      j = json.loads(line)
      if "seq" in j:
          new.append(j)                          # tensor
      elif "loss" in j:
          steps[j["step"]] = j                   # step: what is new is whole now
          tensors += new
          new = []
  tensors.sort(key=lambda t: (t["step"], t["seq"]))

Numbers are decimals that read back to the same fp64. What is not finite is the text "inf", "-inf" or "nan"; what does not exist is null.
Fields may be added; leave out what you do not know. Fields with * stand only where they say something.
)";

constexpr const char* kKindBy[] = {"schema", "seq", "moved_late", "parameter", "loss"};  // the field that lines of a kind alone have

std::string_view first_word_of(const TraceLine& line) { return kKindBy[&line - trace_lines().data()]; }

/// The richest line of each kind, of one step of a small net; of a tensor that of a gradient.
std::vector<std::string> example_lines() {
  TrainOptions options;
  options.net = {.model = "tutorial", .batch = 4, .width = 4};
  options.shadows = {.local = true, .carried = true};
  options.watched = true, options.gradient_errors = 1;
  Trainer trainer(options);
  trainer.prepare();
  TraceWriter trace(trainer, 1);
  trainer.watch()->listen([&](const Event& e, const TensorKey& key, const Tally& tally, FaultRole role, const TensorStats& stats) { trace.tensor(e, key, tally, role, stats); });
  trace.moved_late({.what = "data", .after = "linear_3", .launched = 9, .bytes = 64});  // as of this net on a device
  trace.step(trainer.step());
  std::vector<std::string> out(trace_lines().size());
  std::vector<std::size_t> fields(out.size(), 0);
  std::string_view rest = trace.text();
  for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    const std::string line(rest.substr(0, end));
    const Json j = Json::parse(line);
    for (const TraceLine& kind : trace_lines()) {
      const auto i = static_cast<std::size_t>(&kind - trace_lines().data());
      const std::size_t has = j.size() * (j.contains("range") ? 2 : 1);
      if (j.contains(first_word_of(kind)) && has > fields[i]) out[i] = line, fields[i] = has;
    }
  }
  return out;
}

std::string field_text(const TraceField& f) {
  std::string out = fmt::format("  {:<15} {:<11} ", f.always ? f.key : std::string(f.key) + "*", f.unit);
  for (const char* c = f.meaning; *c != '\0'; ++c) out += *c == '\n' ? "\n" + std::string(30, ' ') : std::string(1, *c);
  return out + "\n";
}

}  // namespace

std::string trace_format_text() {
  std::string out = kHow;
  for (const TraceLine& line : trace_lines()) {
    out += fmt::format("\nLine \"{}\", which alone has \"{}\". {}.\n", line.kind, first_word_of(line), line.when);
    for (const TraceField& field : line.fields) out += field_text(field);
  }
  out += "\nA line of each kind, recorded just now (\"move\" as a device would have it):\n";
  for (const std::string& line : example_lines()) out += line + "\n";
  return out;
}

Json trace_format_json() {
  Json out = {{"schema", "ampcheck.trace_format/1"}, {"text", kHow}, {"lines", Json::array()}};
  const std::vector<std::string> examples = example_lines();
  for (const TraceLine& line : trace_lines()) {
    Json entry = {{"kind", line.kind}, {"has", first_word_of(line)}, {"when", line.when}, {"fields", Json::array()}};
    for (const TraceField& f : line.fields) entry["fields"].push_back({{"key", f.key}, {"unit", f.unit}, {"meaning", f.meaning}, {"always", f.always}});
    entry["example"] = Json::parse(examples[static_cast<std::size_t>(&line - trace_lines().data())]);
    out["lines"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace ampcheck::tools
