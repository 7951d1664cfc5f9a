// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/diagnose_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "checks/data/file_tensors.h"
#include "checks/doors/plugin.h"
#include "checks/run/compare_builds.h"
#include "checks/run/dump.h"
#include "checks/stacks/call_folder.h"
#include "checks/stacks/dump_side.h"
#include "tools/choose/as_usage.h"
#include "tools/choose/plugins.h"
#include "tools/choose/user_tensors.h"
#include "tools/report/output.h"
#include "tools/workers/child.h"

namespace ampcheck::tools {

namespace {

namespace stacks = checks::stacks;
using stacks::OpPair;
using stacks::Origin;
using stacks::Side;

constexpr std::int64_t kReadElements = 8192;  ///< of a dumped tensor, from which its contract is read

// Kernels: libraries, or ops by name.

std::vector<const checks::OpDef*> kernels_of(const std::string& word) {
  if (const checks::OpDef* const op = checks::find_op(word); op != nullptr) return {op};
  std::vector<const checks::OpDef*> out;
  try {
    for (const checks::OpDef& op : checks::load_plugin(word).ops) out.push_back(&op);
  } catch (const checks::PluginError& error) {
    throw UsageError(error.what());
  }
  return out;
}

bool is_kernel(const std::string& word) {
  return checks::find_op(word) != nullptr || word.ends_with(".so") || word.ends_with(".toml");
}

/// The op of that name on the other side; the only one where both have one.
const checks::OpDef* counterpart(const checks::OpDef& op, const std::vector<const checks::OpDef*>& own,
                                 const std::vector<const checks::OpDef*>& others) {
  for (const checks::OpDef* const other : others)
    if (other->signature.name == op.signature.name) return other;
  return own.size() == 1 && others.size() == 1 ? others.front() : nullptr;
}

OpPair compare_kernels(const checks::OpDef& a, const checks::OpDef& b, Dtype storage, bool several) {
  const std::vector<OpCall> calls = checks::contract_calls(a, storage, 1);
  checks::ContractReading ran[2];
  // Both are read by A's formula, and each is judged by its own.
  Side side_a{.op = &a, .calls = &calls, .wrote = checks::run_for_contract(a, calls, ran[0])},
      side_b{.op = &b, .calls = &calls, .wrote = checks::run_for_contract(b, calls, ran[1])};
  side_b.read_by = &a;
  side_a.repeats = ran[0].repeats;
  side_b.repeats = ran[1].repeats;
  OpPair out = stacks::compare_op(a.signature.name + (several ? std::string(" in ") + name(storage) : ""), side_a,
                                  side_b, {}, stacks::HowRead::all);
  out.formula = a.signature.summary;
  if (!side_a.repeats || !side_b.repeats)
    out.notes.push_back(std::string(side_a.repeats ? "B" : "A") + " gives other bits at the same call: atomics");
  return out;
}

void compare_all_kernels(const std::string& a, const std::string& b, const OtherDataOptions& options,
                         StacksResult& out) {
  const std::vector<const checks::OpDef*> ops_a = kernels_of(a), ops_b = kernels_of(b);
  std::set<const checks::OpDef*> met;
  for (const checks::OpDef* const op : ops_a) {
    const checks::OpDef* const other = counterpart(*op, ops_a, ops_b);
    if (other == nullptr) {
      out.only_a.push_back(op->signature.name);
      continue;
    }
    met.insert(other);
    const auto base = [](const checks::OpDef& one) {
      return one.signature.name.substr(0, one.signature.name.find('.'));
    };
    if (op->plugin.empty() && other->plugin.empty() && base(*op) != base(*other))
      throw UsageError("[diagnose] got '" + op->signature.name + "' and '" + other->signature.name +
                       "', want one op of two implementations");
    const std::string differ = checks::signature_difference(op->signature, other->signature);
    if (!differ.empty())
      throw UsageError("[diagnose] got ops '" + op->signature.name + "' that differ in " + differ +
                       ", want the same signature");
    if (op->forms.empty()) {
      out.unread.push_back(op->signature.name + ": it has no formula, so nothing says what its bits should be");
      continue;
    }
    for (const checks::OpDef* const one : {op, other})
      if (!one->plugin.empty()) require_certified(*one);
    const auto& storages = op->signature.precision.storage;
    for (const Dtype storage : storages)
      if (options.dtypes.empty() || std::ranges::find(options.dtypes, storage) != options.dtypes.end())
        out.ops.push_back(compare_kernels(*op, *other, storage, storages.size() > 1));
  }
  for (const checks::OpDef* const op : ops_b)
    if (!met.contains(op)) out.only_b.push_back(op->signature.name);
}

// Dumps.

/// The formula that the user gave for a call, that its function has, or the op that its name names; empty if none.
std::string formula_of(const stacks::DumpedCall& call, const OtherDataOptions& options) {
  for (const std::string& given : options.formulas) {
    const std::size_t colon = given.find(": ");
    if (colon == std::string::npos) return given;
    if (matches(given.substr(0, colon), call.name)) return given.substr(colon + 2);
  }
  if (const std::string known = stacks::known_formula(call); !known.empty()) return known;
  std::string best;
  for (const checks::OpDef& op : checks::all_ops()) {
    const std::string& name = op.signature.name;
    const std::size_t at = call.name.rfind(name);
    const auto joins = [&](std::size_t i) { return i < call.name.size() && std::isalnum(call.name[i]) != 0; };
    if (at == std::string::npos || joins(at + name.size()) || (at > 0 && std::isalpha(call.name[at - 1]) != 0))
      continue;
    if (name.size() > best.size()) best = name;
  }
  return best;
}

/// One side of a dumped call, kept where its parts point to each other.
struct DumpSide {
  TensorFile file;
  DumpedOp judged;
  std::vector<OpCall> calls;
  Side side;
};

std::unique_ptr<DumpSide> dump_side(const TensorFile& file, const std::string& formula, const OtherDataOptions& options,
                                    std::vector<std::string>& notes) {
  CaseOptions cases;
  cases.dtypes = options.dtypes;
  DumpOptions dump;
  dump.formula = formula;
  dump.accumulator = options.accumulator;
  dump.math = options.math;
  auto out = std::make_unique<DumpSide>();
  out->file = file;
  out->judged = dumped_op(cases, dump, file, notes);
  out->calls = {out->judged.call};
  out->side.op = &out->judged.op;
  out->side.calls = &out->calls;
  out->side.wrote = checks::stacks::written_in(out->judged.op, out->calls.front(), out->file);
  return out;
}

/// Only what both sides wrote, in the same order.
void pair_up(Side& a, Side& b) {
  const auto has = [](const Side& side, const checks::Wrote& like) {
    return std::ranges::any_of(side.wrote, [&](const checks::Wrote& w) {
      return w.tensor.name == like.tensor.name && w.got.size() == like.got.size();
    });
  };
  std::erase_if(a.wrote, [&](const checks::Wrote& w) { return !has(b, w); });
  std::erase_if(b.wrote, [&](const checks::Wrote& w) { return !has(a, w); });
}

/// Rows around the first that differs, where the whole is too large to try many ways of it.
std::optional<std::pair<TensorFile, TensorFile>> some_rows(const DumpSide& a, const DumpSide& b) {
  const checks::Wrote& first = a.side.wrote.front();
  const std::int64_t rows = first.tensor.shape[0], elements = std::ssize(first.got);
  const std::int64_t row = elements / std::max<std::int64_t>(rows, 1),
                     count = std::max<std::int64_t>(1, kReadElements / row);
  if (first.tensor.shape.rank < 2 || count >= rows || !stacks::by_rows(a.judged.op, a.calls.front(), a.side.wrote))
    return std::nullopt;
  std::size_t at = 0;
  while (at < first.got.size() && checks::same(first.got[at], b.side.wrote.front().got[at])) ++at;
  const std::int64_t begin = std::min(static_cast<std::int64_t>(at) / row, rows - count);
  auto of_a = stacks::rows_of(a.file, rows, begin, count), of_b = stacks::rows_of(b.file, rows, begin, count);
  if (!of_a || !of_b) return std::nullopt;
  return std::pair{std::move(*of_a), std::move(*of_b)};
}

/// Takes over what some rows say of how a side computes; counts stay those of the whole.
void take_readings(const OpPair& rows, OpPair& whole) {
  for (stacks::TensorPair& t : whole.tensors)
    for (const stacks::TensorPair& part : rows.tensors) {
      if (part.tensor != t.tensor || t.origin == Origin::equal) continue;
      for (std::size_t k = 0; k < 2; ++k) {
        t.sides[k].contract = part.sides[k].contract;
        t.sides[k].explained = part.sides[k].explained;
        t.sides[k].surety = part.sides[k].surety;
      }
      t.origin = part.origin == Origin::equal ? t.origin : part.origin;
      t.boundary = part.boundary;
      t.made = whole.differing_inputs.empty() ? t.differ : part.made;
    }
}

/// NumPy has no bf16: such numbers come in fp32 arrays.
void note_narrow(const DumpSide& a, const DumpSide& b, std::vector<std::string>& notes) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
    const auto fits = [&](const DumpSide& side) {
      return std::ranges::all_of(side.side.wrote, [&](const checks::Wrote& w) {
        return w.tensor.dtype == Dtype::fp32 && checks::first_inexact(w.got, dtype) < 0;
      });
    };
    if (!fits(a) || !fits(b)) continue;
    notes.push_back(fmt::format("every output is a {0} number in an fp32 array: if the op stores {0}, say --dtype {0}",
                                name(dtype)));
    return;
  }
}

OpPair compare_dumped(const std::string& name, const TensorFile& a, const TensorFile& b, const std::string& formula,
                      const OtherDataOptions& options) {
  std::vector<std::string> notes, ignored;
  const auto side_a = dump_side(a, formula, options, notes), side_b = dump_side(b, formula, options, ignored);
  pair_up(side_a->side, side_b->side);
  if (side_a->side.wrote.empty()) throw Error("[diagnose] '" + name + "', got no output that both dumps have");
  for (DumpSide* const side : {side_a.get(), side_b.get()})
    side->side.judged = checks::judge_dump(side->judged.op, side->calls.front(), side->file).result.checks;
  const std::vector<std::string> inputs = stacks::differing_inputs(side_a->judged.op, a, b);
  std::int64_t largest = 0;
  for (const checks::Wrote& w : side_a->side.wrote) largest = std::max<std::int64_t>(largest, std::ssize(w.got));
  OpPair out;
  if (largest <= kReadElements) {
    out = stacks::compare_op(name, side_a->side, side_b->side, inputs, stacks::HowRead::all);
  } else {
    out = stacks::compare_op(name, side_a->side, side_b->side, inputs, stacks::HowRead::none);
    if (out.origin() != Origin::equal) {
      if (const auto rows = some_rows(*side_a, *side_b)) {
        const auto part_a = dump_side(rows->first, formula, options, ignored),
                   part_b = dump_side(rows->second, formula, options, ignored);
        take_readings(stacks::compare_op(name, part_a->side, part_b->side,
                                         stacks::differing_inputs(part_a->judged.op, rows->first, rows->second),
                                         stacks::HowRead::all),
                      out);
        notes.push_back(fmt::format("contracts are read from {} elements around the first difference",
                                    std::ssize(part_a->side.wrote.front().got)));
      } else {
        notes.push_back("too large to read how each side computes: dump fewer rows of this call");
      }
    }
  }
  out.formula = formula;
  note_narrow(*side_a, *side_b, notes);
  out.notes.insert(out.notes.end(), notes.begin(), notes.end());
  return out;
}

/// Calls of both sides, matched by name; by their place where no name is shared and there are as many.
std::vector<std::pair<const stacks::DumpedCall*, const stacks::DumpedCall*>> matched(const stacks::CallFolder& a,
                                                                                     const stacks::CallFolder& b,
                                                                                     StacksResult& out) {
  std::vector<std::pair<const stacks::DumpedCall*, const stacks::DumpedCall*>> pairs;
  std::set<const stacks::DumpedCall*> met;
  for (const stacks::DumpedCall& call : a.calls) {
    const auto other = std::ranges::find(b.calls, call.name, &stacks::DumpedCall::name);
    if (other == b.calls.end()) continue;
    pairs.emplace_back(&call, &*other);
    met.insert({&call, &*other});
  }
  if (pairs.empty() && a.calls.size() == b.calls.size()) {
    for (std::size_t i = 0; i < a.calls.size(); ++i) pairs.emplace_back(&a.calls[i], &b.calls[i]);
    if (a.calls.size() > 1)
      out.notes.push_back("no call has the same name on both sides: they are matched by their order");
    return pairs;
  }
  for (const stacks::DumpedCall& call : a.calls)
    if (!met.contains(&call)) out.only_a.push_back(call.name);
  for (const stacks::DumpedCall& call : b.calls)
    if (!met.contains(&call)) out.only_b.push_back(call.name);
  return pairs;
}

void compare_dumps(const std::string& a, const std::string& b, const OtherDataOptions& options, StacksResult& out) {
  const stacks::CallFolder calls_a = as_usage([&] { return stacks::list_calls(a); }),
                           calls_b = as_usage([&] { return stacks::list_calls(b); });
  for (const stacks::CallFolder* const folder : {&calls_a, &calls_b})
    out.notes.insert(out.notes.end(), folder->notes.begin(), folder->notes.end());
  for (const auto& [call_a, call_b] : matched(calls_a, calls_b, out)) {
    const std::string formula = formula_of(*call_a, options);
    if (formula.empty()) {
      out.unread.push_back(call_a->name + ": no formula; give one with --formula '" + call_a->name + ": F'");
      continue;
    }
    try {
      const bool one_name = call_a->name == call_b->name || checks::find_op(formula) == nullptr;
      out.ops.push_back(compare_dumped(one_name ? call_a->name : formula, stacks::tensors_of(*call_a),
                                       stacks::tensors_of(*call_b), formula, options));
    } catch (const UsageError& error) {
      out.unread.push_back(call_a->name + ": " + error.what());
    } catch (const EnvironmentError&) {
      throw;
    } catch (const Error& error) {
      out.unread.push_back(call_a->name + ": " + error.what());
    }
  }
}

}  // namespace

const OpPair* StacksResult::first_made() const {
  for (const Origin wanted : {Origin::made, Origin::order})
    for (const OpPair& op : ops)
      if (std::ranges::any_of(op.tensors, [&](const stacks::TensorPair& t) { return t.origin == wanted; })) return &op;
  return nullptr;
}

bool is_stack(const std::string& word) {
  if (is_kernel(word)) return true;
  const std::filesystem::path path(word);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return !std::filesystem::exists(path / "dump.json");
  const std::string extension = path.extension().string();
  return extension == ".safetensors" || extension == ".npz" || extension == ".npy" || extension == ".pt";
}

ExitCode diagnose_stacks(const std::string& a, const std::string& b, bool json, const OtherDataOptions& options) {
  StacksResult out{.a = a, .b = b};
  if (is_kernel(a) != is_kernel(b))
    throw UsageError("[diagnose] got kernels ('" + (is_kernel(a) ? a : b) + "') and tensors ('" +
                     (is_kernel(a) ? b : a) + "'), want two of the same kind");
  if (is_kernel(a)) {
    std::vector<const checks::OpDef*> ops;
    for (const std::string* const word : {&a, &b})
      if (checks::find_op(*word) == nullptr)
        for (const checks::OpDef* const op : kernels_of(*word)) ops.push_back(op);
    run_kernels_here(ops, options);
    compare_all_kernels(a, b, options, out);
  } else {
    compare_dumps(a, b, options, out);
  }
  if (out.ops.empty()) {
    std::string why;
    for (const std::string& one : out.unread) why += "\nampcheck: " + one;
    write_stderr("ampcheck: [diagnose] nothing compared: no op that both sides have was read" + why + "\n");
    return ExitCode::nothing_ran;
  }
  write_stdout(json ? json_text(stacks_json(out)) : stacks_text(out));
  return stacks_exit(out);
}

}  // namespace ampcheck::tools
