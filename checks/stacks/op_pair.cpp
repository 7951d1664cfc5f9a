// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/stacks/op_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/judge/judge.h"
#include "checks/stacks/ways.h"

namespace ampcheck::checks::stacks {

namespace {

using reference::SumOrder;

const char* order_words(SumOrder order) {
  switch (order) {
    case SumOrder::sequential: return "one after the other";
    case SumOrder::lanes32: return "32 lanes, then a butterfly";
    case SumOrder::pairwise: return "pairwise";
    case SumOrder::reversed: return "backwards";
  }
  return "";
}

std::vector<Wrote> of_tensor(const std::vector<Wrote>& all, const std::string& name) {
  std::vector<Wrote> out;
  for (const Wrote& w : all)
    if (w.tensor.name == name) out.push_back(w);
  return out;
}

/// One side's tensor: the ways that the formula allows, the best of them, and what `contract` says.
struct Read {
  std::vector<Wrote> wrote;
  std::unique_ptr<Ways> ways;
  Ways::Best best;
  bool adds = false;
  bool fits() const { return best.fit.outside == 0; }
};

/// Whether several terms are added up on the way to a tensor.
bool sums_up(CaseRun& run, const Wrote& w) {
  const reference::Recording& recording = run.reference.recording();
  const reference::Expr target = target_of(recording, w.pass, w.tensor.name);
  const auto& nodes = recording.graph->nodes();
  std::vector<char> needed(nodes.size(), 0);
  needed[static_cast<std::size_t>(target.id)] = 1;
  for (std::size_t id = needed.size(); id-- > 0;) {
    if (needed[id] == 0) continue;
    using enum reference::Primitive;
    const reference::Primitive p = nodes[id].primitive;
    if (p == sum || p == matmul || p == put_add || p == cumsum) return true;
    for (const int arg : nodes[id].args) needed[static_cast<std::size_t>(arg)] = 1;
  }
  return false;
}

Read read_ways(const OpDef& op, std::vector<Wrote> wrote) {
  Read out;
  out.wrote = std::move(wrote);
  out.ways = std::make_unique<Ways>(op, out.wrote);
  out.best = out.ways->best();
  const RunOptions options;
  CaseRun run(op, *out.wrote.front().call, options);
  out.adds = sums_up(run, out.wrote.front());
  return out;
}

/// "one after the other": where nearly all elements that tell have those bits.
std::string order_of(const ContractReading& reading) {
  if (reading.orders.empty() || 10 * reading.orders.front().equal < 9 * reading.told) return "";
  const OrderReading& best = reading.orders.front();
  const auto other = std::find_if(reading.orders.begin(), reading.orders.end(),
                                  [&](const OrderReading& o) { return o.order != best.order; });
  if (other != reading.orders.end() && other->equal == best.equal) return "";
  return order_words(best.order);
}

/// What a side follows, by the intervals of its best way; where none fits, by the contract's code.
void describe(const OpDef& op, const std::vector<OpCall>& calls, const Read& read, bool repeats, SideReading& out) {
  ContractReading contract;
  contract.repeats = repeats;
  const bool fits = read.fits();
  if (!fits)
    read_written(op, calls, read.wrote, contract);
  else if (read.adds && read.best.way.rounded.empty())
    read_order(op, read.wrote, contract);
  if (fits) {
    const bool plain = read.best.way.rounded.empty();
    if (read.adds && plain) out.order = order_of(contract);
    out.contract = read.ways->words(read.best.way) + (read.adds ? "; sums in fp32" : "") +
                   (out.order.empty() ? "" : ", " + out.order);
    out.precision = !plain ? read.ways->words(read.best.way) : read.adds ? "sums in fp32" : "rounds once, at the end";
    out.explained = true;
    out.plain = plain;
    out.surety = read.best.fit.score() - read.best.next.score();
    return;
  }
  const TensorReading& t = contract.tensors.front();
  if (out.follows() && t.departure.empty() && (t.unexplained > 0 || t.accumulators.front().words == "fp32")) {
    // The judge admits such numbers by a regrouping of the formula, which no single form's interval holds.
    out.contract = "within the declared contract, by another grouping of the formula";
    out.precision = "groups the formula otherwise";
    out.explained = true;
    out.plain = true;
    return;
  }
  if (!t.departure.empty() && t.unexplained == 0) {
    out.contract = t.departure;
    out.explained = true;
    out.surety = t.departure_surety;
  } else if (t.unexplained == 0) {
    out.contract = "accumulates in " + t.accumulators.front().words;
    out.explained = true;
    out.surety = ContractReading::surety(t.accumulators);
  } else {
    out.contract =
        out.cause.empty() ? fmt::format("no contract explains {} of its elements", t.unexplained) : out.cause;
  }
  // Without what is of these numbers alone: "accumulates in bf16" of "accumulates in bf16: the errors are 1.7 times
  // ...".
  out.precision = out.contract.substr(0, std::min(out.contract.find(": "), out.contract.find(" (")));
}

/// The declared contract over all calls of a tensor, where no dump was judged as a whole.
void judge_declared(const Side& side, const std::vector<Wrote>& wrote, SideReading& out) {
  const auto take = [&](const CheckResult& check) {
    out.outside += check.failed;
    if (check.failed == 0 || !out.code.empty()) return;
    out.verdict = name(check.verdict);
    out.code = name(check.code);
    out.cause = check.cause;
  };
  const CheckId::Kind kind = wrote.front().pass == Pass::forward ? CheckId::Kind::forward : CheckId::Kind::backward;
  if (!side.judged.empty()) {
    for (const CheckResult& check : side.judged)
      if (check.id.kind == kind && check.id.tensor == wrote.front().tensor.name) take(check);
    return;
  }
  RunOptions options;
  options.relations = options.power = false;
  for (const Wrote& w : wrote) {
    options.explain = out.code.empty();
    CaseRun run(*side.op, *w.call, options);
    if (w.pass == Pass::backward) run.reference.set_cotangents(w.cotangents);
    GuardedTensor tensor(w.tensor.dtype, w.tensor.shape, Layout::dense, poison(w.tensor.dtype, 0));
    tensor.assign(w.got);
    take(judge(run, {{{kind, w.tensor.name}, &w.tensor, tensor.view()}}, w.pass).front());
  }
}

std::string index_text(const Shape& shape, std::int64_t at) {
  std::string out;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    out = std::to_string(at % shape[axis]) + (out.empty() ? "" : ",") + out;
    at /= shape[axis];
  }
  return "[" + out + "]";
}

/// How far the bits are apart.
void count_bits(const std::vector<Wrote>& a, const std::vector<Wrote>& b, TensorPair& out) {
  for (std::size_t k = 0; k < a.size(); ++k) {
    const Dtype shorter = bytes(a[k].tensor.dtype) < bytes(b[k].tensor.dtype) ? a[k].tensor.dtype : b[k].tensor.dtype;
    for (std::size_t i = 0; i < a[k].got.size(); ++i) {
      ++out.elements;
      const double x = a[k].got[i], y = b[k].got[i];
      if (same(x, y)) continue;
      ++out.differ;
      const double ulp = ulp_distance(format(shorter), x, y);
      if (ulp <= out.worst_ulp && !out.worst_index.empty()) continue;
      out.worst_ulp = ulp;
      out.worst_index = index_text(a[k].tensor.shape, static_cast<std::int64_t>(i));
      out.worst_a = x;
      out.worst_b = y;
    }
  }
}

/// Whether the ways of one side are the other's: then each may be tried at the other's numbers.
bool comparable(const Read& a, const Read& b) {
  return a.wrote.front().tensor.dtype == b.wrote.front().tensor.dtype &&
         a.wrote.front().call->storage == b.wrote.front().call->storage && a.ways->same_as(*b.ways);
}

/// How many elements one side's way cannot give at the other's inputs.
std::int64_t refuted(Read& way_of, Read& numbers_of) {
  return way_of.fits() ? numbers_of.ways->fit(way_of.best.way).outside : 0;
}

/// Whether the sides follow contracts that differ. `cross`: elements that one side's way cannot give at the other's
/// inputs.
bool are_unlike(const Read& a, const Read& b, const TensorPair& t, std::int64_t cross) {
  if (t.sides[0].plain && t.sides[1].plain) return false;  // another algebra in the same precision
  if (a.fits() && b.fits()) return cross > 0;
  return t.sides[0].precision != t.sides[1].precision;
}

void decide(Read& a, Read& b, bool inputs_equal, TensorPair& out) {
  if (out.differ == 0) return;
  const bool may = comparable(a, b);
  const std::int64_t cross = may ? std::max(refuted(a, b), refuted(b, a)) : 0;
  const bool unlike = !may || are_unlike(a, b, out, cross);
  if (inputs_equal)
    out.origin = unlike ? Origin::made : Origin::order;
  else if (!may)
    out.origin = Origin::unknown;
  else
    out.origin = unlike ? Origin::made : Origin::inherited;
  if (out.origin == Origin::made) {
    out.made = inputs_equal ? out.differ : cross;
    if (a.fits() && b.fits() && may) out.boundary = boundary_line(*a.ways, a.best.way, *b.ways, b.best.way);
    if (out.boundary.empty() && !may)
      out.boundary =
          fmt::format("A stores {}, B {}", name(a.wrote.front().tensor.dtype), name(b.wrote.front().tensor.dtype));
    if (out.boundary.empty()) out.boundary = "A " + out.sides[0].precision + ", B " + out.sides[1].precision;
  }
  if (out.origin != Origin::order) return;
  const std::string &of_a = out.sides[0].order, &of_b = out.sides[1].order;
  if (!of_a.empty() && !of_b.empty() && of_a != of_b)
    out.boundary = "A sums " + of_a + ", B " + of_b;
  else if (a.fits() && b.fits() && a.best.way.form != b.best.way.form)
    out.boundary =
        "A computes as '" + a.ways->form_name(a.best.way.form) + "', B as '" + b.ways->form_name(b.best.way.form) + "'";
}

int gravity(Origin origin) {
  switch (origin) {
    case Origin::equal: return 0;
    case Origin::inherited: return 1;
    case Origin::unknown: return 2;
    case Origin::order: return 3;
    case Origin::made: return 4;
  }
  return 0;
}

}  // namespace

const char* name(Origin origin) {
  switch (origin) {
    case Origin::equal: return "EQUAL";
    case Origin::order: return "ORDER";
    case Origin::made: return "MADE";
    case Origin::inherited: return "INHERITED";
    case Origin::unknown: return "CANNOT TELL";
  }
  return "";
}

const TensorPair* OpPair::deciding() const {
  const auto worst = std::max_element(tensors.begin(), tensors.end(), [](const TensorPair& a, const TensorPair& b) {
    return gravity(a.origin) < gravity(b.origin);
  });
  return worst == tensors.end() ? nullptr : &*worst;
}

Origin OpPair::origin() const {
  const TensorPair* const worst = deciding();
  return worst == nullptr ? Origin::equal : worst->origin;
}

OpPair compare_op(const std::string& name, Side& a, Side& b, std::vector<std::string> inputs_differ, HowRead reading) {
  OpPair out;
  out.name = name;
  out.cases = std::ssize(*a.calls);
  out.differing_inputs = std::move(inputs_differ);
  const OpDef &by_a = a.read_by == nullptr ? *a.op : *a.read_by, &by_b = b.read_by == nullptr ? *b.op : *b.read_by;
  const OpDef of_a = with_orders_of_products(by_a), of_b = with_orders_of_products(by_b);
  std::vector<std::string> seen;
  for (const Wrote& first : a.wrote) {
    const std::string& tensor = first.tensor.name;
    if (std::find(seen.begin(), seen.end(), tensor) != seen.end()) continue;
    seen.push_back(tensor);
    TensorPair pair{.tensor = tensor, .pass = first.pass, .dtype = first.tensor.dtype};
    std::vector<Wrote> wrote_a = of_tensor(a.wrote, tensor), wrote_b = of_tensor(b.wrote, tensor);
    if (wrote_a.size() != wrote_b.size()) continue;
    count_bits(wrote_a, wrote_b, pair);
    judge_declared(a, wrote_a, pair.sides[0]);
    judge_declared(b, wrote_b, pair.sides[1]);
    if (reading == HowRead::none) {
      if (pair.differ > 0) pair.origin = out.differing_inputs.empty() ? Origin::made : Origin::unknown;
      pair.made = pair.origin == Origin::made ? pair.differ : 0;
    } else {
      Read read_a = read_ways(of_a, std::move(wrote_a));
      describe(by_a, *a.calls, read_a, a.repeats, pair.sides[0]);
      if (pair.differ == 0 && out.differing_inputs.empty()) {
        SideReading& other = pair.sides[1];
        const SideReading& own = pair.sides[0];
        other.precision = own.precision;
        other.order = own.order;
        other.contract = own.contract;
        other.explained = own.explained;
        other.surety = own.surety;
      } else {
        Read read_b = read_ways(of_b, std::move(wrote_b));
        describe(by_b, *b.calls, read_b, b.repeats, pair.sides[1]);
        decide(read_a, read_b, out.differing_inputs.empty(), pair);
      }
    }
    out.tensors.push_back(std::move(pair));
  }
  return out;
}

}  // namespace ampcheck::checks::stacks
