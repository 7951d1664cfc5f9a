// SPDX-License-Identifier: Apache-2.0
// `audit autocast RUN`: what a trace tells of the dtypes that autocast chose, and of what was lost at its casts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checks/autocast/actions.h"
#include "checks/define/op_def.h"
#include "src/float_format.h"
#include "tools/choose/as_usage.h"
#include "tools/commands/audit_autocast.h"
#include "tools/report/output.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

using namespace checks::autocast;

/// "linear" of "linear_3".
std::string op_of(const std::string& call) { return call.substr(0, call.rfind('_')); }

class Rows {
 public:
  Rows(const Trace& trace, const AutocastList& list, AutocastDevice device)
      : trace_(trace),
        list_(list),
        device_(device),
        run_(trace.dtype == name(Dtype::bf16) ? Dtype::bf16 : Dtype::fp16) {}

  std::vector<OpRow> made() {
    for (const TracedTensor& t : trace_.tensors) {
      if (t.phase == "forward" && !t.cast)
        forward(t);
      else if (t.phase == "forward")
        forward_cast(t);
      else if (t.phase == "backward" && t.cast && t.dtype != Dtype::fp32)
        gradient(t);
    }
    for (OpRow& row : rows_) expect(row);
    return std::move(rows_);
  }

 private:
  OpRow& row_of(const std::string& call) {
    const auto [at, fresh] = places_.try_emplace(call, rows_.size());
    if (fresh) {
      OpRow row;
      row.call = call;
      row.op = op_of(call);
      rows_.push_back(std::move(row));
    }
    return rows_[at->second];
  }

  void forward(const TracedTensor& t) {
    OpRow& row = row_of(t.op);
    row.layer = t.layer;
    row.gives = row.computes = t.dtype;
    for (const auto& [input, cast] : casts_[t.op]) row.computes = cast.to;
    if (t.headroom()) row.headroom = std::min(row.headroom.value_or(*t.headroom()), *t.headroom());
    if (t.local_error) {
      row.error = std::max(row.error.value_or(0), *t.local_error);
      // Of a wide result that of the run's 16 bits, as ampcheck diagnose has it.
      const double unit = format(t.dtype == Dtype::fp32 ? run_ : t.dtype).unit_roundoff();
      row.excess = std::max(row.excess.value_or(0), *t.local_error / unit);
    }
    row.overflowed += t.overflowed;
  }

  void forward_cast(const TracedTensor& t) {
    if (op_of(t.op) == "to") return;  // which the net asked for itself
    for (const Dtype from : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
      if (t.from == name(from)) casts_[t.op][t.tensor] = {from, t.dtype};
    if (t.dtype == Dtype::fp32) return;
    OpRow& row = row_of(t.op);
    row.cast_elements += t.elements;
    row.cast_overflowed += t.overflowed;
  }

  void gradient(const TracedTensor& t) {
    if (op_of(t.op) == "to") return;
    OpRow& row = row_of(t.op);
    row.grad_elements += t.nonzero;
    row.grad_flushed += t.flushed;
    row.grad_overflowed += t.overflowed;
  }

  /// What the list says of the op's dtypes. An input for which nothing was cast has the dtype that the op computes in.
  void expect(OpRow& row) {
    const checks::OpDef* const op = checks::find_op(row.op);
    row.policy = op != nullptr ? policy_of(list_, device_, op->signature) : CastPolicy::unlisted;
    if (op == nullptr) return;
    if (row.policy == CastPolicy::unlisted || row.policy == CastPolicy::promote) row.hazard = hazard_of(*op);
    const auto& casts = casts_[row.call];
    const TypeRule gives = op->signature.outputs.front().type;
    if (casts.empty() && gives != TypeRule::storage) return;
    for (const TensorSpec& input : op->signature.inputs) {
      if (input.type != TypeRule::storage) continue;
      const auto cast = casts.find(input.name);
      if (cast != casts.end())
        row.handed.push_back(cast->second.from);
      else if (!input.optional)
        row.handed.push_back(row.computes);
    }
    row.due_computes = decide(row.policy, true, run_, row.handed).computes();
    row.due_gives = dtype_of(gives, *row.due_computes);
    row.enabled = !casts.empty() || *row.due_computes == row.computes;
  }

  struct Cast {
    Dtype from = Dtype::fp32, to = Dtype::fp32;
  };
  const Trace& trace_;
  const AutocastList& list_;
  AutocastDevice device_;
  Dtype run_;
  std::vector<OpRow> rows_;
  std::map<std::string, std::size_t> places_;
  std::map<std::string, std::map<std::string, Cast>> casts_;  ///< by call and input
};

/// A listed op in another dtype, without a cast of autocast's: its region was off, which a trace does not tell from a
/// list that was not followed.
void settle_regions(std::vector<OpRow>& rows, Results& results) {
  std::vector<std::string> off;
  for (OpRow& row : rows) {
    if (row.enabled) continue;
    off.push_back(row.call);
    row.due_computes = row.due_gives = std::nullopt;
  }
  if (!off.empty())
    results.add("A9", Outcome::weak,
                off.front() + " is listed and nothing was cast for it: its region was off, or its list not followed",
                off);
}

}  // namespace

ExitCode audit_autocast_trace(const AuditOptions& options, const std::string& path) {
  const Trace trace = as_usage([&] { return read_trace(path); });
  if (trace.dtype != name(Dtype::fp16) && trace.dtype != name(Dtype::bf16))
    throw UsageError("[audit autocast] '" + path + "', got a run in " + trace.dtype +
                     ", want one in fp16 or bf16: without autocast there is no policy to audit");
  const bool known = trace.autocast == name(AutocastDevice::cpu) || trace.autocast == name(AutocastDevice::cuda);
  const AutocastDevice device =
      list_device("--device", options.autocast.device.empty() && known ? trace.autocast : options.autocast.device);
  const AutocastList list = torch_list(options.autocast.torch, device);
  std::vector<OpRow> rows = Rows(trace, list, device).made();
  if (rows.empty()) {
    write_stderr("ampcheck: '" + path + "' holds no tensor of a forward pass: there is nothing to audit\n");
    return ExitCode::nothing_ran;
  }
  Results results;
  settle_regions(rows, results);
  judge_rows(rows, device, results);
  if (!trace.autocast_tables.empty() && list.title.find(trace.autocast_tables) == std::string::npos)
    results.add("A14", Outcome::weak,
                fmt::format("the run followed the lists of {}, and is held against those of {}", trace.autocast_tables,
                            list.title));
  const std::string heading = fmt::format("{} in {}, autocast of {}", trace.model, trace.dtype, list.title);
  if (options.json) {
    Json out = head_json(results, "trace", path, list.title);
    out["dtype"] = trace.dtype;
    out["ops"] = rows_json(rows);
    write_stdout(json_text(out));
  } else {
    const Style style = stdout_style();
    write_stdout(
        fmt::format("{}{}{}: {} steps of '{}'\n\n", style.bold, heading, style.reset, trace.steps.size(), path) +
        rows_text(rows) + "\n" + results_text(results) + "\n" + verdict_text(results, heading));
  }
  return results.headline() != nullptr ? ExitCode::findings : ExitCode::passed;
}

}  // namespace ampcheck::tools
