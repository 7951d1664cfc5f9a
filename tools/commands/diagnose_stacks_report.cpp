// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// What `diagnose A B` prints.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/commands/diagnose_stacks.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

namespace stacks = checks::stacks;
using stacks::OpPair;
using stacks::Origin;
using stacks::SideReading;
using stacks::TensorPair;

const char* colour(Origin origin, const Style& style) {
  return origin == Origin::made ? style.red : origin == Origin::equal ? style.green : style.yellow;
}

std::string which_follows(const TensorPair& t) {
  const bool a = t.sides[0].follows(), b = t.sides[1].follows();
  return a && b ? "both follow the declared contract"
         : a    ? fmt::format("A follows the declared contract; B does not in {} elements ({})",
                              grouped(t.sides[1].outside), t.sides[1].code)
         : b    ? fmt::format("B follows the declared contract; A does not in {} elements ({})",
                              grouped(t.sides[0].outside), t.sides[0].code)
                : fmt::format("neither follows the declared contract: A is outside in {} elements ({}), B in {} ({})",
                              grouped(t.sides[0].outside), t.sides[0].code, grouped(t.sides[1].outside), t.sides[1].code);
}

std::string bits_text(const TensorPair& t) {
  if (t.differ == 0) return fmt::format("{}, all {} elements have the same bits", name(t.dtype), grouped(t.elements));
  return fmt::format("{}, {} of {} elements differ, at most {} ulp, at {}: {} against {}", name(t.dtype),
                     grouped(t.differ), grouped(t.elements), rounded_decimal(t.worst_ulp, 3), t.worst_index,
                     short_decimal(format(t.dtype), t.worst_a), short_decimal(format(t.dtype), t.worst_b));
}

std::string origin_text(const OpPair& op, const TensorPair& t) {
  std::string inputs;
  for (const std::string& one : op.differing_inputs) inputs += (inputs.empty() ? "" : ", ") + one;
  switch (t.origin) {
    case Origin::equal: return "";
    case Origin::order:
      return "made here, within one contract: the order of a sum, another algebra, or functions of the same accuracy";
    case Origin::made:
      return inputs.empty() ? "made here: the inputs have the same bits"
                            : fmt::format("made here in at least {} elements, beside what the inputs bring along ({})",
                                          grouped(t.made), inputs);
    case Origin::inherited: return "inherited: both compute alike, the inputs differ in " + inputs;
    case Origin::unknown: return "inherited or made: the inputs differ in " + inputs;
  }
  return "";
}

std::string tensor_text(const OpPair& op, const TensorPair& t, const Style& style) {
  std::string out = fmt::format("{}{:<11}{} {} {}  {}\n", colour(t.origin, style), name(t.origin), style.reset, op.name,
                                t.tensor, bits_text(t));
  const auto line = [&](const char* word, const std::string& text) {
    if (!text.empty()) out += fmt::format("  {:<9} {}\n", word, text);
  };
  line("where", origin_text(op, t));
  if (t.sides[0].contract == t.sides[1].contract && !t.sides[0].contract.empty()) {
    line("A and B", t.sides[0].contract);
  } else {
    line("A", t.sides[0].contract);
    line("B", t.sides[1].contract);
  }
  line("line", t.boundary);
  if (t.differ > 0 || !t.sides[0].follows() || !t.sides[1].follows()) line("declared", which_follows(t));
  return out;
}

/// What is said of a tensor beside counts: tensors of other layers with the same words are one entry.
std::string alike_key(const TensorPair& t) {
  return std::string(name(t.origin)) + t.tensor + t.sides[0].contract + "|" + t.sides[1].contract + t.boundary +
         (t.sides[0].follows() ? "1" : "0") + (t.sides[1].follows() ? "1" : "0");
}

struct Entry {
  const OpPair* op;
  const TensorPair* tensor;
  std::vector<std::string> also;
};

/// Grave ones first, in the order of the calls; a tensor like one before only adds its name.
std::vector<Entry> entries_of(const StacksResult& r) {
  std::vector<Entry> out;
  for (const Origin origin : {Origin::made, Origin::order, Origin::unknown, Origin::inherited, Origin::equal})
    for (const OpPair& op : r.ops)
      for (const TensorPair& t : op.tensors) {
        if (t.origin != origin) continue;
        const auto same =
            std::find_if(out.begin(), out.end(), [&](const Entry& e) { return alike_key(*e.tensor) == alike_key(t); });
        if (same == out.end())
          out.push_back({&op, &t, {}});
        else
          same->also.push_back(op.name);
      }
  return out;
}

std::string also_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  if (names.empty()) return "";
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return fmt::format("  {:<9} {}\n", "also", out);
}

std::string ops_text(const StacksResult& r) {
  return fmt::format("{} {}", r.ops.size(), r.ops.size() == 1 ? "op" : "ops");
}

std::string head_text(const StacksResult& r, const Style& style) {
  const OpPair* const first = r.first_made();
  std::int64_t equal = 0;
  for (const OpPair& op : r.ops) equal += op.origin() == Origin::equal;
  if (first == nullptr && equal == std::ssize(r.ops))
    return fmt::format("{}EQUAL{}: {}, all bits the same.\n", style.green, style.reset, ops_text(r));
  if (first == nullptr)
    return fmt::format(
        "{}INHERITED{}: {}, {} with the same bits; no op makes a difference, the inputs differ "
        "before the first of them.\n",
        style.yellow, style.reset, ops_text(r), equal);
  const auto t = std::ranges::find_if(first->tensors, [](const TensorPair& one) { return one.origin == Origin::made; });
  if (t == first->tensors.end())
    return fmt::format(
        "{}ORDER{}: {}, {} with the same bits; one contract throughout. The first op with other bits "
        "is {}: the order of a sum, another algebra, or functions of the same accuracy.\n",
        style.yellow, style.reset, ops_text(r), equal, first->name);
  return fmt::format("{}MADE{}: {}, {} with the same bits. The first difference is made in {} {}: {}; {}.\n", style.red,
                     style.reset, ops_text(r), equal, first->name, t->tensor, t->boundary, which_follows(*t));
}

std::string listed(const char* words, const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& one : names) out += fmt::format("  {}{}\n", words, one);
  return out;
}

Json side_json(const SideReading& side) {
  return {{"contract", side.contract},
          {"explained", side.explained},
          {"log10_surety", json_number(side.surety)},
          {"follows_declared", side.follows()},
          {"outside_declared", side.outside},
          {"verdict", side.verdict},
          {"code", side.code},
          {"cause", side.cause}};
}

}  // namespace

std::string stacks_text(const StacksResult& r) {
  const Style style = stdout_style();
  std::string out = head_text(r, style) + fmt::format("  A  {}\n  B  {}\n\n", r.a, r.b);
  for (const Entry& entry : entries_of(r)) {
    if (entry.tensor->origin == Origin::equal && r.ops.size() > 1 && entry.tensor->sides[0].follows()) {
      std::vector<std::string> names{entry.op->name};
      names.insert(names.end(), entry.also.begin(), entry.also.end());
      out += fmt::format("{}{:<11}{} {} {}\n", style.green, "EQUAL", style.reset, entry.tensor->tensor,
                         also_text(names).substr(12));
      out.erase(out.size() - 1);
      continue;
    }
    out += tensor_text(*entry.op, *entry.tensor, style) + also_text(entry.also);
    for (const std::string& note : entry.op->notes) out += fmt::format("  {:<9} {}\n", "note", note);
  }
  out += listed("only in A  ", r.only_a) + listed("only in B  ", r.only_b) + listed("not read   ", r.unread) +
         listed("note       ", r.notes);
  return out;
}

Json stacks_json(const StacksResult& r) {
  const OpPair* const first = r.first_made();
  Json out = {{"schema", "ampcheck.diagnose_stacks/1"},
              {"a", r.a},
              {"b", r.b},
              {"first_made", first == nullptr ? Json(nullptr) : Json(first->name)},
              {"ops", Json::array()},
              {"only_a", r.only_a},
              {"only_b", r.only_b},
              {"unread", r.unread},
              {"notes", r.notes}};
  for (const OpPair& op : r.ops) {
    Json entry = {{"op", op.name},
                  {"formula", op.formula},
                  {"cases", op.cases},
                  {"differing_inputs", op.differing_inputs},
                  {"origin", name(op.origin())},
                  {"tensors", Json::array()},
                  {"notes", op.notes}};
    for (const TensorPair& t : op.tensors)
      entry["tensors"].push_back({{"tensor", t.tensor},
                                  {"dtype", name(t.dtype)},
                                  {"elements", t.elements},
                                  {"differ", t.differ},
                                  {"made", t.made},
                                  {"worst_ulp", json_number(t.worst_ulp)},
                                  {"worst_index", t.worst_index},
                                  {"worst_a", json_number(t.worst_a)},
                                  {"worst_b", json_number(t.worst_b)},
                                  {"origin", name(t.origin)},
                                  {"boundary", t.boundary},
                                  {"a", side_json(t.sides[0])},
                                  {"b", side_json(t.sides[1])}});
    out["ops"].push_back(std::move(entry));
  }
  return out;
}

ExitCode stacks_exit(const StacksResult& r) {
  for (const OpPair& op : r.ops)
    for (const TensorPair& t : op.tensors)
      if (t.origin == Origin::made || !t.sides[0].follows() || !t.sides[1].follows()) return ExitCode::findings;
  if (!r.unread.empty() || !r.only_a.empty() || !r.only_b.empty()) return ExitCode::incomplete;
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
