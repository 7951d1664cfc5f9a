// SPDX-License-Identifier: Apache-2.0
#include "checks/explain/departures.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "checks/explain/launch_formats.h"
#include "checks/explain/odds.h"
#include "reference/graph/node_text.h"
#include "reference/graph/row_plan.h"
#include "reference/replay/changes.h"
#include "reference/replay/value_slips.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

using reference::Ball;
using reference::Expr;
using reference::Graph;
using reference::Node;
using reference::Primitive;
using Departing = CaseReference::Departing;

constexpr double kUnit = 0x1p-24;  ///< unit roundoff of fp32

double radius_of(const Ball& ball, std::int64_t i) { return ball.r ? ball.r[i] : 0.0; }

/// What is not finite stays as it is: an element that leaves the range is judged by no interval.
bool kept_as_it_is(const Ball& own, std::int64_t i, std::span<double> v, std::span<double> r) {
  if (std::isfinite(own.v[i]) && std::isfinite(radius_of(own, i))) return false;
  const auto at = static_cast<std::size_t>(i);
  v[at] = own.v[i];
  r[at] = radius_of(own, i);
  return true;
}

/// A ball's arrays as they are, with zeros for radii that it has none of: loops over them vectorise.
struct Plain {
  Plain(const Ball& ball, std::size_t n)
      : none(ball.r ? 0 : n, 0.0), values(ball.v.get()), radii(ball.r ? ball.r.get() : none.data()) {}
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  const std::vector<double> none;
  const double *values, *radii;
};
/// Without a branch: one of both is infinite or NaN.
bool not_finite(double a, double b) { return !(std::fabs(a) < HUGE_VAL) | !(std::fabs(b) < HUGE_VAL); }

/// Whatever stands in the ball, rounded: its ends, since rounding keeps their order. False where one alone leaves the
/// format's range.
Departing::Make rounded_to(const FloatFormat& f, Rounding rounding) {
  return [&f, rounding](const Ball& own, const Ball&, std::span<double> v, std::span<double> r) {
    std::vector<double> low(v.size()), high(v.size());
    const Plain ball(own, v.size());
    const double *const values = ball.values, *const radii = ball.radii;
    for (std::size_t i = 0; i < v.size(); ++i) {
      const double wide = radii[i] == 0 ? 0 : radii[i] * (1 + 0x1p-40) + std::fabs(values[i]) * 0x1p-51;
      low[i] = values[i] - wide;
      high[i] = values[i] + wide;
    }
    for (std::vector<double>* const ends : {&low, &high}) round_values(f, {.rounding = rounding}, *ends, *ends);
    std::int64_t left = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {  // selects instead of branches: it vectorises
      const double half = (high[i] - low[i]) / 2, middle = low[i] + half;
      const bool kept = not_finite(values[i], radii[i]);
      const bool out = not_finite(low[i], high[i]);
      left += out > kept ? 1 : 0;
      v[i] = kept ? values[i] : middle;
      r[i] = kept ? radii[i] : half * (1 + 0x1p-40);  // zero where the ends are one
    }
    return left == 0;
  };
}

/// exp(x) as exp2(x log2(e)), as fast-math has it: 2 + 1.173 |x| ulp (__expf in the CUDA C++ Programming Guide; 2 ulp
/// of exp2, and half an ulp of the product, which the exponent takes as ln 2 times its size). Of a sigmoid, 1 / (1 +
/// exp(-x)).
Departing::Make exp_by_exp2(bool sigmoid) {
  return [sigmoid](const Ball& own, const Ball& of, std::span<double> v, std::span<double> r) {
    for (std::size_t i = 0; i < v.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (kept_as_it_is(own, at, v, r) || !std::isfinite(radius_of(of, at)) || !std::isfinite(of.v[at])) {
        v[i] = own.v[at];
        r[i] = radius_of(own, at);
        continue;
      }
      const double size = std::fabs(of.v[at]) + radius_of(of, at), error = 2 * kUnit * (2 + 1.173 * size);
      v[i] = own.v[at];
      r[i] = radius_of(own, at) +
             error * (1 + error) * std::fabs(own.v[at]) * (sigmoid ? std::max(1 - own.v[at], 0.0) : 1.0);
    }
    return true;
  };
}

/// Any number within that share of the right one, and as far again as `near`.
Departing::Make within(double share, double near = 0) {
  return [share, near](const Ball& own, const Ball&, std::span<double> v, std::span<double> r) {
    const Plain ball(own, v.size());
    const double *const values = ball.values, *const radii = ball.radii;
    for (std::size_t i = 0; i < v.size(); ++i) {
      const double size = std::fabs(values[i]), wide = radii[i] * (1 + share) + share * size + near;
      const bool kept = not_finite(size, radii[i]);
      v[i] = values[i];
      r[i] = kept ? radii[i] : wide;
    }
    return true;
  };
}

/// 1/sqrt(x) from the bits of x and Newton's method (Lomont 2003).
double root_by_bits(double x, int steps) {
  const auto from = static_cast<float>(x);
  double y = static_cast<double>(std::bit_cast<float>(0x5f3759dfu - (std::bit_cast<std::uint32_t>(from) >> 1)));
  for (int k = 0; k < steps; ++k) y *= 1.5 - 0.5 * x * y * y;
  return y;
}

/// Each step rounds five times. Its relative error is at most 3/2 the square of that before, 0.035 at the start, and
/// changes with x by less than a tenth of x's own.
Departing::Make root_of_bits(int steps) {
  return [steps](const Ball& own, const Ball& of, std::span<double> v, std::span<double> r) {
    for (std::size_t i = 0; i < v.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (kept_as_it_is(own, at, v, r)) continue;
      const double x = of.v[at], share = radius_of(of, at) / x;
      if (!(x >= 0x1p-100 && x <= 0x1p100 && share < 0.25)) return false;
      v[i] = root_by_bits(x, steps);
      r[i] = v[i] * (0.6 * share * (1 + share) + (5 * steps + 2) * kUnit);
    }
    return true;
  };
}

/// The nodes that a target follows from; leaves are where it starts.
std::vector<char> cone_of(const Graph& graph, Expr target) {
  std::vector<char> needed(graph.nodes().size(), 0);
  needed[static_cast<std::size_t>(target.id)] = 1;
  for (std::size_t id = needed.size(); id-- > 0;)
    if (needed[id])
      for (const int arg : graph.node(static_cast<int>(id)).args) needed[static_cast<std::size_t>(arg)] = 1;
  return needed;
}

class Departures {
 public:
  Departures(const reference::Recording& recording, Expr target, Dtype storage)
      : graph_(*recording.graph),
        target_(target),
        storage_(storage),
        needed_(cone_of(graph_, target)),
        data_(needed_.size(), 0) {
    for (const auto& [name, node] : recording.outputs)
      for (int at = node.id;; at = graph_.node(at).args[0]) {  // and what it is a view of
        names_.emplace(at, name);
        if (!reference::moves_nothing(graph_.node(at).primitive)) break;
      }
    for (std::size_t id = 0; id < data_.size(); ++id) {  // what follows from data, and from no constant alone
      const Node& node = graph_.node(static_cast<int>(id));
      data_[id] = node.primitive == Primitive::input ||
                  std::ranges::any_of(node.args, [&](int arg) { return data_[static_cast<std::size_t>(arg)] != 0; });
    }
  }

  /// Every node anywhere within what the coarsest departure makes of it (bf16, truncated, and fp16's smallest number):
  /// a number outside of that refutes them all at once.
  std::vector<Departing> anywhere() const {
    std::vector<Departing> out;
    for (std::size_t id = 0; id < needed_.size(); ++id) {
      const int at = static_cast<int>(id);
      if (needed_[id] && (kept(at) || (is_leaf(at) && holds_data(at)))) out.push_back({at, within(0x1p-7, 0x1p-24)});
    }
    return out;
  }

  std::vector<Departure> all() {
    functions();
    for (std::size_t id = needed_.size(); id-- > 0;)
      if (needed_[id]) node_in_16_bits(static_cast<int>(id));
    operands();
    every_node();
    return std::move(out_);
  }

 private:
  const Node& node(int id) const { return graph_.node(id); }
  std::string text(int id) const { return reference::text_of(graph_, id, names_); }
  bool holds_data(int id) const { return data_[static_cast<std::size_t>(id)] != 0; }
  bool is_leaf(int id) const { return node(id).primitive == Primitive::input; }

  bool sums(int id) const {
    const Node& n = node(id);
    if (reference::moves_nothing(n.primitive) ||
        (n.primitive == Primitive::mul && node(n.args[1]).primitive == Primitive::constant))
      return sums(n.args[0]);
    return n.primitive == Primitive::sum || n.primitive == Primitive::matmul || n.primitive == Primitive::put_add ||
           n.primitive == Primitive::cumsum;
  }

  /// Whether a kernel may keep it: no view, no mask, no number that it has anyway.
  bool kept(int id) const {
    const Node& n = node(id);
    if (!holds_data(id) || n.args.empty() || n.primitive == Primitive::neg) return false;
    if (reference::moves_nothing(n.primitive) && n.primitive != Primitive::stored) return false;
    if (n.primitive == Primitive::less || n.primitive == Primitive::less_equal || n.primitive == Primitive::equal ||
        n.primitive == Primitive::first_max || n.primitive == Primitive::sign)
      return false;
    return !reference::silent(graph_, n) || n.primitive == Primitive::stored;
  }

  void node_in_16_bits(int id) {
    if (!kept(id)) return;
    for (const Dtype low : {Dtype::bf16, Dtype::fp16}) {
      if (!may_keep(low)) continue;
      if (id == target_.id && format(low).precision >= format(storage_).precision) continue;
      out_.push_back({fmt::format("keeps {} in {}", text(id), name(low)),
                      Departure::Kind::narrowed,
                      sums(id),
                      {{id, rounded_to(format(low), Rounding::nearest_even)}},
                      "",
                      &format(low)});
    }
  }

  void together(const std::vector<int>& ids, const std::string& words) {
    struct Low {
      const FloatFormat* format;
      Rounding rounding;
      const char* words;
    };
    const Low all[] = {{&format(storage_), Rounding::nearest_even, name(storage_)},
                       {&kTf32, Rounding::nearest_even, "tf32"},
                       {&kTf32, Rounding::nearest_away, "tf32 (ties away from zero)"},
                       {&kTf32, Rounding::toward_zero, "tf32 (truncated)"},
                       {&kBf16, Rounding::nearest_even, "bf16"},
                       {&kFp16, Rounding::nearest_even, "fp16"},
                       {&kBf16, Rounding::toward_zero, "bf16 (truncated)"}};
    for (std::size_t k = bytes(storage_) < 4 ? 0 : 1; k < std::size(all); ++k) {
      const Low& low = all[k];
      if ((low.format == &kFp16 && !may_keep(Dtype::fp16)) || (low.format == &kBf16 && !may_keep(Dtype::bf16)))
        continue;
      if (k > 0 && low.format == all[0].format && low.rounding == all[0].rounding) continue;
      std::vector<Departing> nodes;
      for (const int id : ids) nodes.push_back({id, rounded_to(*low.format, low.rounding)});
      out_.push_back({fmt::format("{} in {}", words, low.words), Departure::Kind::narrowed, false, std::move(nodes), "",
                      nullptr, ids.size() > 1 ? -0.5 : 0.0});
    }
  }

  /// Of products of matrices both operands, and all leaves.
  void operands() {
    std::vector<int> leaves, products;
    for (std::size_t id = 0; id < needed_.size(); ++id) {
      const int at = static_cast<int>(id);
      if (!needed_[id]) continue;
      if (is_leaf(at)) leaves.push_back(at);
      if (node(at).primitive != Primitive::matmul) continue;
      for (const int arg : node(at).args)
        if (holds_data(arg) && std::ranges::find(products, arg) == products.end()) products.push_back(arg);
    }
    std::ranges::sort(products);
    for (const int id : leaves) together({id}, "takes " + text(id));
    if (!products.empty()) together(products, "takes the operands of its matrix products");
    if (leaves.size() > 1 && leaves != products) together(leaves, "takes its operands");
  }

  /// As a program of one kernel an operation leaves them, each in the storage type.
  void every_node() {
    for (const Dtype low : {Dtype::bf16, Dtype::fp16}) {
      if (!may_keep(low)) continue;
      std::vector<Departing> nodes;
      for (std::size_t id = 0; id < needed_.size(); ++id)
        if (needed_[id] && kept(static_cast<int>(id)))
          nodes.push_back({static_cast<int>(id), rounded_to(format(low), Rounding::nearest_even)});
      if (nodes.size() > 1)
        out_.push_back({fmt::format("keeps every intermediate in {}", name(low)), Departure::Kind::narrowed, false,
                        std::move(nodes), "", nullptr, -3});
    }
  }

  void functions() {
    std::vector<int> exps, roots;
    for (std::size_t id = 0; id < needed_.size(); ++id) {
      const Primitive p = node(static_cast<int>(id)).primitive;
      if (!needed_[id] || !holds_data(static_cast<int>(id))) continue;
      if (p == Primitive::exp || p == Primitive::sigmoid) exps.push_back(static_cast<int>(id));
      if (p == Primitive::rsqrt) roots.push_back(static_cast<int>(id));
    }
    const auto add = [&](const std::vector<int>& ids, Departure::Kind kind, const char* function,
                         const std::string& words, const auto& make) {
      if (ids.empty()) return;
      std::vector<Departing> nodes;
      for (const int id : ids) nodes.push_back({id, make(node(id).primitive)});
      out_.push_back({words, kind, false, std::move(nodes), function});
    };
    using enum Departure::Kind;
    add(exps, few_ulps, "exp", "fast-math exp, exp(x) as exp2(x log2(e)): 2 + 1.173 |x| ulp",
        [](Primitive p) { return exp_by_exp2(p == Primitive::sigmoid); });
    for (const int steps : {1, 2})
      add(roots, function, "rsqrt",
          fmt::format("fast rsqrt, 1/sqrt(v) from the bits of v and {} of Newton",
                      steps == 1 ? "one step" : "two steps"),
          [=](Primitive) { return root_of_bits(steps); });
    add(roots, few_ulps, "rsqrt", "fast rsqrt, within 2^-21 of 1/sqrt(v)", [](Primitive) { return within(0x1p-21); });
    add(roots, bounded, "rsqrt", "fast rsqrt, within 1.5 * 2^-12 of 1/sqrt(v), as rsqrtps",
        [](Primitive) { return within(1.5 * 0x1p-12); });
  }

  const Graph& graph_;
  Expr target_;
  Dtype storage_;
  std::vector<char> needed_, data_;
  reference::NodeNames names_;
  std::vector<Departure> out_;
};

/// log10 of the number of storage numbers from low to high.
double numbers_between(const FloatFormat& f, double low, double high) {
  const double steps = ulp_distance(f, low, high);
  return std::isfinite(steps) ? std::log10(steps + 1) : f.bits() * std::log10(2.0);
}

/// What a node loses in fewer bits, in words: "3 of 128 underflow to 0".
std::string loss_of(CaseRun& run, std::size_t form, Pass pass, const Departure& departure) {
  if (departure.low == nullptr) return "";
  const Graph& graph = *run.reference.recording(form).graph;
  const std::vector<double> exact = reference::evaluate_plainly(
      graph, run.reference.leaves(form, pass), Expr{const_cast<Graph*>(&graph), departure.nodes.front().node});
  std::vector<double> rounded = exact;
  round_values(*departure.low, RoundingMode{}, rounded, rounded);
  return reference::lost(exact, rounded);
}

/// Scalar operations of one evaluation, about.
std::int64_t cost_of(const Graph& graph, Expr target) {
  const std::vector<char> needed = cone_of(graph, target);
  std::int64_t out = 0;
  for (std::size_t id = 0; id < needed.size(); ++id) {
    const Node& node = graph.node(static_cast<int>(id));
    if (!needed[id] || node.args.empty()) continue;
    const std::int64_t inner =
        node.primitive == Primitive::matmul ? graph.node(node.args[0]).shape.last(node.transpose_a ? 1 : 0) : 1;
    out += std::max(node.shape.count() * inner, graph.node(node.args[0]).shape.count());
  }
  return out;
}

}  // namespace

reference::Expr target_of(const reference::Recording& recording, Pass pass, const std::string& tensor) {
  for (const auto& [name, node] : nodes_of(recording, pass))
    if (name == tensor) return node;
  const auto saved = recording.stored.find(tensor);
  return pass == Pass::forward && saved != recording.stored.end() ? saved->second : Expr{};
}

std::vector<Departure> departures_of(const reference::Recording& recording, Expr target, Dtype storage) {
  return Departures(recording, target, storage).all();
}

Explained explained_by(const Interval& departing, const Interval& declared, const std::vector<double>& got) {
  Explained out;
  const FloatFormat& f = format(departing.dtype);
  std::vector<double> nearest(declared.value.begin(), declared.value.end());
  round_values(f, RoundingMode{}, nearest, nearest);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const auto open = [&](const Interval& interval) {
      return !interval.how.empty() && interval.how[i] != Judgement::interval;
    };
    if (open(departing) || open(declared)) {
      ++out.open;
      continue;
    }
    if (!admits(departing, at, got[i]))
      ++out.outside;
    else {
      const double numbers = numbers_between(f, departing.low[i], departing.high[i]);
      out.likelihood -= numbers;
      const bool telling = !admits(departing, at, nearest[i]);
      if (numbers == 0) {
        ++out.sharp;
        out.sharp_telling += telling;
      }
      if (telling) {
        ++out.telling;
        out.bits += std::max(0.0, numbers_between(f, got[i], nearest[i]) - numbers) / std::log10(2.0);
      }
    }
    if (!admits(declared, at, got[i])) ++(std::fabs(got[i]) > std::fabs(declared.value[i]) ? out.above : out.below);
  }
  return out;
}

bool tells(const Explained& seen, Departure::Kind kind, bool last) {
  constexpr std::int64_t kTelling = 8;  // elements that chance does not give
  constexpr double kBits = 24, kChoice = 16;
  const std::int64_t errors = seen.above + seen.below;
  const bool either_sign = 8 * std::min(seen.above, seen.below) >= errors;
  if (kind == Departure::Kind::bounded) return last && errors >= kTelling && either_sign;
  if (kind == Departure::Kind::few_ulps) return last && (errors < kTelling || either_sign);
  if (kind == Departure::Kind::function && last) return true;
  // Which elements it moves to another number and which not: bits of that choice.
  const double share =
      static_cast<double>(seen.sharp_telling) / static_cast<double>(std::max<std::int64_t>(seen.sharp, 1));
  const double choice = share > 0 && share < 1 ? -static_cast<double>(seen.sharp) *
                                                     (share * std::log2(share) + (1 - share) * std::log2(1 - share))
                                               : 0;
  return seen.telling >= kTelling || (seen.telling >= 2 && (seen.bits >= kBits || choice >= kChoice));
}

Departed explained_by_departure(const WrongTensor& wrong, bool last, const std::set<std::string>& known) {
  constexpr std::int64_t kMost = 1 << 23;  // scalar operations of all
  if (wrong.pass == Pass::jvp || wrong.tensor.shape.count() > kLargestExplained ||
      wrong.run.accumulates(wrong.tensor.name) || wrong.comparison.outside.empty())
    return {};
  Departed best{.refuted = true};
  double likeliest = -HUGE_VAL;
  for (const std::size_t form : wrong.run.reference.forms()) {
    const reference::Recording& recording = wrong.run.reference.recording(form);
    const Expr target = target_of(recording, wrong.pass, wrong.tensor.name);
    if (!target.defined()) continue;
    std::int64_t left = kMost;
    const std::optional<Interval> anywhere =
        wrong.run.reference.interval_departing(form, wrong.pass, wrong.tensor.name, wrong.tensor.dtype,
                                               Departures(recording, target, wrong.tensor.dtype).anywhere());
    if (anywhere && explained_by(*anywhere, wrong.interval, wrong.got).outside > 0) continue;
    for (const Departure& departure : departures_of(recording, target, wrong.tensor.dtype)) {
      if (departure.of_sum ||
          (last ? departure.kind == Departure::Kind::narrowed : departure.kind > Departure::Kind::function))
        continue;  // of sums explained_by_low_accumulation() says more
      best.refuted &= (left -= cost_of(*recording.graph, target)) >= 0;
      if (left < 0) break;
      const std::optional<Interval> departing = wrong.run.reference.interval_departing(
          form, wrong.pass, wrong.tensor.name, wrong.tensor.dtype, departure.nodes);
      best.refuted &= departing.has_value();
      if (!departing) continue;
      const Explained seen = explained_by(*departing, wrong.interval, wrong.got);
      best.refuted &= seen.outside > 0;
      if (seen.outside > 0 || 20 * seen.open > std::ssize(wrong.got) ||
          seen.likelihood + departure.prior <= likeliest + 1e-6)
        continue;
      if (!known.contains(departure.words) && !tells(seen, departure.kind, last)) continue;
      likeliest = seen.likelihood + departure.prior;
      const std::string& declared = departure.kind == Departure::Kind::narrowed
                                        ? std::string(name(wrong.run.op.signature.precision.compute))
                                        : wrong.run.op.signature.precision.math.name;
      const Odds odds = odds_of(wrong, [&](std::size_t i) {
        return Expected{departing->value[i], departing->radius[i]};
      });
      best = {departure.code(),
              departure.words + loss_of(wrong.run, form, wrong.pass, departure) + " " + against(declared, odds),
              departure.words, odds.log10};
    }
    if (best.code != Code::none) break;
  }
  return best;
}

}  // namespace ampcheck::checks
