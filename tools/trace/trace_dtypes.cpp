// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include "checks/define/op_def.h"
#include "src/amp/autocast_tables.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

/// A call in a forward pass: its output and the casts of its inputs.
struct Call {
  const TracedTensor* output = nullptr;
  std::vector<const TracedTensor*> widened, narrowed;
  bool in_fp8 = false;
  bool asked = false;  ///< the net itself cast to fp32 for it: cast_inputs, or a region that is off
};

std::string inputs_text(const std::vector<const TracedTensor*>& casts) {
  std::string out;
  for (const TracedTensor* t : casts) out += (out.empty() ? "'" : ", '") + t->tensor + "'";
  return out;
}

/// "relu" of "relu_3".
const checks::OpDef* op_of_call(const std::string& name) { return checks::find_op(name.substr(0, name.rfind('_'))); }

/// The tensors of one forward pass: of the first step looked at, its first micro-batch and its first rank.
std::vector<const TracedTensor*> forward_pass(const Trace& trace) {
  std::vector<const TracedTensor*> out;
  for (const TracedTensor& t : trace.tensors) {
    if (t.step != trace.tensors.front().step || t.phase != "forward")
      break;  // each runs backward before the next begins
    out.push_back(&t);
  }
  return out;
}

using Narrowed = std::map<int, const TracedTensor*>;  ///< by the tensor: the first cast to 16 bits

std::vector<Call> calls_of(const Trace& trace, Narrowed& narrowed) {
  std::vector<Call> calls;
  std::vector<const TracedTensor*> casts;  // of the call that follows them
  for (const TracedTensor* t : forward_pass(trace)) {
    if (t->cast) {
      casts.push_back(t);
      if (t->dtype != Dtype::fp32) narrowed.try_emplace(t->source, t);
      continue;
    }
    Call& call = calls.emplace_back();
    call.output = t;
    for (const TracedTensor* cast : casts) {
      call.asked |= cast->op.starts_with("to_") && cast->dtype == Dtype::fp32;
      call.in_fp8 |= cast->op == t->op && bytes(cast->dtype) == 1;
      if (cast->op == t->op) (cast->dtype == Dtype::fp32 ? call.widened : call.narrowed).push_back(cast);
    }
    casts.clear();
  }
  return calls;
}

}  // namespace

CastNotes cast_notes(const Trace& trace) {
  CastNotes out;
  std::map<std::pair<int, Dtype>, std::vector<const TracedTensor*>> by_source;
  for (const TracedTensor* t : forward_pass(trace)) {
    if (!t->cast) continue;
    ++out.kinds[t->from + " to " + name(t->dtype)];
    by_source[{t->source, t->dtype}].push_back(t);
  }
  for (const auto& [source, casts] : by_source) {
    if (casts.size() < 2) continue;
    CastNotes::Repeated& repeated =
        out.repeated.emplace_back(CastNotes::Repeated{source.second, casts.front()->tensor, {}});
    for (const TracedTensor* t : casts) repeated.ops.push_back(t->op);
  }
  return out;
}

std::vector<DtypeNote> dtype_notes(const Trace& trace) {
  std::vector<DtypeNote> out;
  if (trace.tensors.empty() || trace.dtype == name(Dtype::fp32)) return out;
  Narrowed narrowed;
  const std::vector<Call> calls = calls_of(trace, narrowed);
  const AutocastDevice list = trace.autocast == name(AutocastDevice::cpu) ? AutocastDevice::cpu : AutocastDevice::cuda;
  for (const Call& call : calls) {
    const TracedTensor& y = *call.output;
    const checks::OpDef* const op = op_of_call(y.op);
    const auto reader = narrowed.find(y.source);
    if (y.dtype != Dtype::fp32 || call.in_fp8) continue;  // products of fp8 numbers are added up in fp32
    const CastPolicy policy = op != nullptr ? cast_policy(list, op->signature)
                                            : CastPolicy::promote;  // a library's op has no list to stand in
    const std::string back =
        reader == narrowed.end() ? "" : reader->second->op + " reads it in " + name(reader->second->dtype);
    if (call.asked && call.widened.empty()) {
      out.push_back({"asked", y.op, "runs in fp32" + (back.empty() ? back : "; " + back)});
    } else if (policy == CastPolicy::promote || policy == CastPolicy::unlisted) {  // by its inputs alone
      if (!call.widened.empty())
        out.push_back({"widened", y.op,
                       "runs in fp32 and widens " + inputs_text(call.widened) + ", because another input is fp32"});
      else if (y.elements > 1)
        out.push_back({"fp32", y.op, "runs in fp32: nothing casts what it reads back"});
      if (!back.empty()) out.push_back({"narrowed", y.op, "has a result in fp32; " + back});
    } else if (!back.empty()) {
      if (call.widened.empty())
        out.push_back({"narrowed", y.op, "has a result in fp32; " + back});
      else
        out.push_back({"island", y.op,
                       "runs in fp32 between ops of 16 bits: " + inputs_text(call.widened) + " widened, " + back});
    }
  }
  return out;
}

}  // namespace ampcheck::tools
