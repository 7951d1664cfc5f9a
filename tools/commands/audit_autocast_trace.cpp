// SPDX-License-Identifier: Apache-2.0
// `audit autocast RUN`: what a trace tells of the dtypes that autocast chose, and of what was lost at its casts; and
// the smallest change of the policy, tried on the run's net where that is at hand.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "checks/autocast/actions.h"
#include "checks/define/op_def.h"
#include "src/float_format.h"
#include "tools/choose/as_usage.h"
#include "tools/commands/audit_autocast.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

using namespace checks::autocast;

/// "linear" of "linear_3".
std::string op_of(const std::string& call) { return call.substr(0, call.rfind('_')); }

/// Another recorder names modules: "layernorm" is layer_norm, "mseloss" mse_loss. The word itself if it is no op.
std::string known_op(const std::string& word) {
  if (checks::find_op(word) != nullptr) return word;
  for (const checks::OpDef& op : checks::all_ops()) {
    std::string plain = op.signature.name;
    std::erase(plain, '_');
    if (plain == word || plain + "loss" == word) return op.signature.name;
  }
  return word;
}

/// What went wrong with an op in 16 bits.
struct Wrong {
  int step = 0;               ///< the first one
  std::int64_t elements = 0;  ///< of its results in the first step that has them
};

class Rows {
 public:
  Rows(const Trace& trace, const AutocastList& list, AutocastDevice device)
      : trace_(trace),
        list_(list),
        device_(device),
        run_(trace.dtype == name(Dtype::bf16) ? Dtype::bf16 : Dtype::fp16) {}

  std::vector<OpRow> made() {
    for (const TracedTensor& t : trace_.tensors) {
      if (!trace_.local) find_producer(t);
      if (t.phase == "forward" && !t.cast)
        forward(t);
      else if (t.phase == "forward")
        forward_cast(t);
      else if (t.phase == "backward" && t.cast && t.dtype != Dtype::fp32)
        gradient(t);
    }
    for (OpRow& row : rows_) expect(row);
    return rows_;
  }

  /// By op, of those that more bits may cure.
  std::map<std::string, Wrong> wrong() const {
    std::map<std::string, Wrong> out;
    for (const OpRow& row : rows_) {
      if (!is_ill(row)) continue;
      const auto first = first_wrong_.find(row.call);
      const int step = first == first_wrong_.end() ? 0 : first->second;
      Wrong& of = out.try_emplace(row.op, Wrong{.step = step}).first->second;
      of.step = std::min(of.step, step);
    }
    for (const OpRow& row : rows_)
      if (const auto of = out.find(row.op); of != out.end()) {
        const auto elements = elements_.find(row.call);
        of->second.elements += elements == elements_.end() ? 0 : elements->second;
      }
    return out;
  }

 private:
  /// Without exact values beside it: the first result of a pass that is not finite was made by its op, as far as is
  /// recorded.
  void find_producer(const TracedTensor& t) {
    if (t.phase != "forward") return;
    if (t.step != step_ || t.rank != rank_) {
      step_ = t.step;
      rank_ = t.rank;
      finite_ = true;
    }
    if (!finite_ || t.inf + t.nan == 0) return;
    finite_ = false;
    if (t.dtype != Dtype::fp16 && t.dtype != Dtype::bf16) return;  // no policy makes it wider
    if (op_of(t.op) == "to") return;                               // which the net asked for itself
    OpRow& row = row_of(t.op);
    (t.cast ? row.cast_overflowed : row.overflowed) += t.inf + t.nan;
    first_wrong_.try_emplace(t.op, t.step);
  }

  OpRow& row_of(const std::string& call) {
    const auto [at, fresh] = places_.try_emplace(call, rows_.size());
    if (fresh) {
      OpRow row;
      row.call = call;
      row.op = known_op(op_of(call));
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
    elements_.try_emplace(t.op, t.elements);
    if (is_ill(row)) first_wrong_.try_emplace(t.op, t.step);
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
  std::map<std::string, int> first_wrong_;                    ///< by call: the step
  std::map<std::string, std::int64_t> elements_;              ///< by call: of its result
  int step_ = -1, rank_ = -1;
  bool finite_ = true;  ///< all results of this pass so far
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

/// What a trace does not tell, from the net that was run again.
void add_of_net(const NetAgain& again, Results& results) {
  for (const PolicyResult& r : again.audit->results.all())
    if (results.at(r.check->code).outcome == Outcome::not_asked && r.outcome != Outcome::not_asked)
      results.add(r.check->code, r.outcome, r.says.empty() ? "" : "on the net: " + r.says, r.places);
}

std::string again_text(const NetAgain& again, const Trace& trace) {
  return fmt::format(
             "\nThe run's net taken up again: '{}', seed {}, {} batches with its first weights, loss scale {}.\n",
             again.net, trace.seed, again.batches, rounded_decimal(again.audit->scale, 6)) +
         custom_text(*again.audit) + advice_text(*again.audit);
}

/// From statistics alone: which ops, since when, and what it takes. Their results are all that is known of bytes.
std::string recommended_text(const std::map<std::string, Wrong>& wrong, const std::vector<OpRow>& rows,
                             const NetAgain& again, const Trace& trace) {
  std::string out = fmt::format("\nNothing was tried: {}.\n", again.why);
  const std::string on_the_net =
      fmt::format("tried on the net: ampcheck audit autocast {} NET.toml (ampcheck explain training)", trace.path);
  if (wrong.empty()) {
    const OpRow* nearest = nullptr;
    for (const OpRow& row : rows)
      if (row.is_low() && row.headroom && (nearest == nullptr || *row.headroom < *nearest->headroom)) nearest = &row;
    out += "What was recorded asks for no change of the policy.";
    if (nearest != nullptr)
      out += fmt::format(" The nearest to overflow is {} with {:.1f} binades left.", nearest->call, *nearest->headroom);
    return out + fmt::format("\nChanges are {}.\n", on_the_net);
  }
  out += "Recommended from what was recorded:\n";
  for (const auto& [op, of] : wrong)
    out +=
        fmt::format("  {:<22} in fp32: it first went wrong in step {}; its results take {} bytes and would take {}\n",
                    op, of.step + 1, grouped(2 * of.elements), grouped(4 * of.elements));
  return out + fmt::format(
                   "A trace holds no tensors, so errors before and after are not known. The change is {}. On the "
                   "op's own tensors: save them in step {} and ask ampcheck check --dump FILE --formula {} "
                   "(ampcheck explain dumps).\n",
                   on_the_net, wrong.begin()->second.step + 1, wrong.begin()->first);
}

Json run_json(const std::map<std::string, Wrong>& wrong, const NetAgain& again) {
  Json out = {{"net", again.net}, {"tried", again.audit.has_value()}, {"why_not", again.why}};
  out["recommended"] = Json::array();
  for (const auto& [op, of] : wrong)
    out["recommended"].push_back(
        {{"op", op}, {"step", of.step}, {"bytes_before", 2 * of.elements}, {"bytes_after", 4 * of.elements}});
  return out;
}

}  // namespace

ExitCode audit_autocast_trace(const AuditOptions& options, const std::string& path, const std::string& net) {
  const Trace trace = as_usage([&] { return read_trace(path); });
  if (trace.dtype != name(Dtype::fp16) && trace.dtype != name(Dtype::bf16))
    throw UsageError("[audit autocast] '" + path + "', got a run in " + trace.dtype +
                     ", want one in fp16 or bf16: without autocast there is no policy to audit");
  const bool known = trace.autocast == name(AutocastDevice::cpu) || trace.autocast == name(AutocastDevice::cuda);
  const AutocastDevice device =
      list_device("--device", options.autocast.device.empty() && known ? trace.autocast : options.autocast.device);
  const AutocastList list = torch_list(options.autocast.torch, device);
  Rows made(trace, list, device);
  std::vector<OpRow> rows = made.made();
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
  const std::map<std::string, Wrong> wrong = made.wrong();
  std::set<std::string> suspects;
  for (const auto& [op, of] : wrong) suspects.insert(op);
  const NetAgain again = net_of_trace(options, trace, net, rows, suspects);
  if (again.audit) add_of_net(again, results);
  const std::string heading = fmt::format("{} in {}, autocast of {}", trace.model, trace.dtype, list.title);
  if (options.json) {
    Json out = head_json(results, "trace", path, list.title);
    out["dtype"] = trace.dtype;
    out["ops"] = rows_json(rows);
    out["run"] = run_json(wrong, again);
    if (again.audit) add_net_json(out, *again.audit, again.batches);
    write_stdout(json_text(out));
  } else {
    const Style style = stdout_style();
    write_stdout(
        fmt::format("{}{}{}: {} steps of '{}'\n\n", style.bold, heading, style.reset, trace.steps.size(), path) +
        rows_text(rows) + "\n" + results_text(results) +
        (again.audit ? again_text(again, trace) : recommended_text(wrong, rows, again, trace)) + "\n" +
        verdict_text(results, heading));
  }
  return results.headline() != nullptr ? ExitCode::findings : ExitCode::passed;
}

}  // namespace ampcheck::tools
