// SPDX-License-Identifier: Apache-2.0
#include "reference/replay/changes.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "reference/graph/row_plan.h"
#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

FormulaChanges::FormulaChanges(const Graph& graph, const std::vector<std::pair<Expr, Values>>& leaves, Expr target,
                               const NodeNames& names, std::int64_t most,
                               const std::function<bool(const Change&, const Values&)>& see, const OneChange* only,
                               const WrittenNumbers* written)
    : graph_(graph),
      target_(target),
      most_(most),
      left_(most),
      see_(see),
      only_(only),
      written_(written),
      evaluator_(graph) {
  for (const auto& [leaf, values] : leaves) {
    evaluator_.set(leaf, values);
    given_.push_back(leaf.id);
  }
  evaluator_.value(target);
  for (const auto& [id, text] : names)
    for (int at = id;; at = graph.node(at).args[0]) {  // and what they are views of
      names_.emplace(at, text);
      if (!moves_nothing(graph.node(at).primitive)) break;
    }
  needed_.assign(graph.nodes().size(), 0);
  needed_[static_cast<std::size_t>(target.id)] = 1;
  for (std::size_t id = needed_.size(); id-- > 0;) {
    if (!needed_[id] || given(static_cast<int>(id))) continue;
    for (const int arg : graph.node(static_cast<int>(id)).args) needed_[static_cast<std::size_t>(arg)] = 1;
    cost_ += cost(graph.node(static_cast<int>(id)));
    const Node& node = graph.node(static_cast<int>(id));
    if (is_share(node)) counts_.insert(std::round(1 / node.value));
    // The formula's own eps may stand at a second place.
    if (node.primitive != Primitive::add) continue;
    const Node& term = graph.node(node.args[1]);
    if (term.primitive == Primitive::constant && term.value > 0 && term.value < 1) eps_.insert(term.value);
  }
}

void FormulaChanges::run() {
  // The last nodes first: of two changes that give the same, the nearer one is the simpler to say.
  for (std::size_t id = needed_.size(); id-- > 0 && going_;)
    if (needed_[id] && enters(static_cast<int>(id))) change(static_cast<int>(id));
  if (enters(-1)) shares_together();
  if (enters(-1)) whole_factors();
  afresh();
  for (std::size_t id = needed_.size(); id-- > 0 && going_;)
    if (needed_[id] && enters(static_cast<int>(id))) narrow(static_cast<int>(id));
  if (enters(-1)) narrow_saved();
  if (enters(-1)) narrow_operands();
}

void FormulaChanges::run_further() {
  places();
  afresh();
  if (going_) repeats();
  afresh();
  if (going_) systematic();
  afresh();
  if (enters(-1)) short_expressions(numbers_at_hand());
  afresh();
  if (going_) one_use_each();
  afresh();
  if (enters(-1)) numbers();
}

void FormulaChanges::afresh() {
  if (left_ <= 0) going_ = true;
  left_ = std::max(left_, most_ / 2);
}

std::int64_t FormulaChanges::cost(const Node& node) const {
  if (node.primitive == Primitive::matmul)
    return node.shape.count() * graph_.node(node.args[0]).shape.last(node.transpose_a ? 1 : 0);
  const bool gathers =
      node.primitive == Primitive::sum || node.primitive == Primitive::put_add || node.primitive == Primitive::max;
  return gathers ? graph_.node(node.args[0]).shape.count() : node.shape.count();
}

std::int64_t FormulaChanges::followed_cost() const {
  std::int64_t out = 0;
  for (const std::size_t id : evaluator_.followed()) out += cost(graph_.node(static_cast<int>(id)));
  return out;
}

FormulaChanges::Values FormulaChanges::spread(const Node& node, std::size_t k) {
  const Shape& shape = graph_.node(node.args[k]).shape;
  const Values& from = values(node.args[k]);
  if (shape == node.shape) return from;
  Values out(static_cast<std::size_t>(node.shape.count()));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = from[static_cast<std::size_t>(operand_index(node.shape, shape, static_cast<std::int64_t>(i)))];
  return out;
}

void FormulaChanges::all_with(std::vector<std::pair<int, Values>> others, const Change& change) {
  if (!may_try(change.words)) return;
  const Values& changed = evaluator_.value_if(std::move(others), target_);
  if (written_ == nullptr)
    left_ -= cost_;
  else  // of so many changes, those near the target cost little
    left_ -= graph_.node(target_.id).shape.count() + followed_cost();
  Change placed = change;
  placed.site = site_;
  going_ = see_(placed, changed);
}

void FormulaChanges::change(int id) {
  const Node& node = graph_.node(id);
  if (node.args.empty() || given(id)) return leaf(id);
  const auto arg = [&](std::size_t k) { return text(node.args[k]); };
  switch (node.primitive) {
    case Primitive::add:
    case Primitive::sub: return terms_change(id, node);
    case Primitive::mul: return product_change(id, node);
    case Primitive::div: return quotient_change(id, node);
    case Primitive::less:
    case Primitive::less_equal: return condition_change(id, node);
    case Primitive::max: return max_change(id, node);
    case Primitive::where:
      with(id, spread(node, 1), "without the condition " + arg(0));
      with(id, spread(node, 2), "as if " + arg(0) + " never held");
      return;
    case Primitive::maximum:
      with(id, spread(node, 0), "without max(., " + arg(1) + ")");
      with(id, spread(node, 1), "without max(., " + arg(0) + ")");
      return;
    case Primitive::sum: return sum_change(id, node);
    case Primitive::cumsum: return cumsum_change(id, node);
    case Primitive::matmul: return matmul_change(id, node);
    case Primitive::take: return take_change(id, node);
    case Primitive::first_max: return ties_change(id, node);
    case Primitive::put_add: return put_change(id, node);
    case Primitive::stored: return other_rows(id);
    case Primitive::stop_gradient: with(id, Values(values(id).size(), 0.0), "without the shift " + arg(0)); return;
    default: return function_change(id, node);
  }
}

void FormulaChanges::function_change(int id, const Node& node) {
  const auto arg = [&] { return text(node.args[0]); };
  switch (node.primitive) {
    case Primitive::neg: with(id, values(node.args[0]), "with the other sign of " + arg()); return;
    case Primitive::square: with(id, values(node.args[0]), "with " + arg() + " not squared"); return;
    case Primitive::sqrt:
      with(id, values(node.args[0]), "without the square root of " + arg());
      for (const double eps : eps_)
        with(id, map(values(node.args[0]), [=](double v) { return std::sqrt(v + eps); }),
             fmt::format("with an eps of {} added to {}", eps, arg()));
      return;
    case Primitive::rsqrt: return root_change(id, node);
    case Primitive::pow: return pow_change(id, node);
    case Primitive::log: return logarithm_change(id, node);
    case Primitive::exp: return exponential_change(id, node);
    case Primitive::tanh:
      with(id, values(node.args[0]), "with " + arg() + " for its tanh, as without a softcap");
      return;
    case Primitive::erf:
      with(id,
           map(values(node.args[0]),
               [](double z) {
                 return std::tanh(std::sqrt(2 / M_PI) * (M_SQRT2 * z + 0.044715 * std::pow(M_SQRT2 * z, 3)));
               }),
           "with the tanh approximation for erf");
      return;
    default: return;
  }
}

void FormulaChanges::product_change(int id, const Node& node) {
  with(id, spread(node, 0), "without the factor " + text(node.args[1]));
  with(id, spread(node, 1), "without the factor " + text(node.args[0]));
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    own_term(id, node, k);
    other_power(id, node, k);
  }
}

void FormulaChanges::terms_change(int id, const Node& node) {
  logarithm_of_probability(id);
  const auto arg = [&](std::size_t k) { return text(node.args[k]); };
  const double sign = node.primitive == Primitive::add ? 1 : -1;
  const Values a = spread(node, 0), b = spread(node, 1);
  if (const double times = ratio(a, b); times != 0)  // equal terms, as of x^2 or x^3: a power rule without its factor
    for (const double other : {1.0, times, times - sign, times + 2 * sign})
      with(id, map(b, [=](double v) { return other * v; }),
           fmt::format("with a factor of {} for {} of {}", other, times + sign, arg(1)));
  equal_terms(id, node);
  with(id, a, "without the term " + arg(1));
  with(id, map(b, [=](double v) { return sign * v; }), "without the term " + arg(0));
  Values turned = a;
  for (std::size_t i = 0; i < turned.size(); ++i) turned[i] -= sign * b[i];
  with(id, std::move(turned), "with the other sign of the term " + arg(1));
  Values twice = a;
  for (std::size_t i = 0; i < twice.size(); ++i) twice[i] += 2 * sign * b[i];
  with(id, std::move(twice), "with the term " + arg(1) + " twice");
  if (node.primitive == Primitive::sub) shift_change(id, node);
  first_term(id, node);
  if (node.primitive == Primitive::add) weights_exchanged(id, node);
}

void FormulaChanges::weights_exchanged(int id, const Node& node) {
  std::size_t of[2] = {};
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    const Node& product = graph_.node(below(node.args[k]));
    if (product.primitive != Primitive::mul || product.shape.count() != node.shape.count()) return;
    const auto one = [&](std::size_t m) { return graph_.node(product.args[m]).shape.count() == 1; };
    if (one(0) == one(1)) return;
    of[k] = one(0) ? 0 : 1;
  }
  const Node &a = graph_.node(below(node.args[0])), &b = graph_.node(below(node.args[1]));
  const double of_a = values(a.args[of[0]])[0], of_b = values(b.args[of[1]])[0];
  if (of_a == of_b || of_a == 0 || of_b == 0) return;
  Values out = spread(node, 0);
  const Values second = spread(node, 1);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = out[i] / of_a * of_b + second[i] / of_b * of_a;
  with(id, std::move(out), fmt::format("with the factors {:.6g} and {:.6g} of its two terms exchanged", of_a, of_b));
}

void FormulaChanges::quotient_change(int id, const Node& node) {
  const auto arg = [&](std::size_t k) { return text(node.args[k]); };
  const Values a = spread(node, 0), b = spread(node, 1);
  with(id, a, "without dividing by " + arg(1));
  // A count that is no constant of its own, as D - 1.
  const Values& divisor = values(node.args[1]);
  if (const double n = divisor.size() == 1 ? divisor[0] : 0; n >= 2 && n == std::floor(n))
    for (const double other : {n + 1, n - 1})
      with(id, map(a, [=](double v) { return v / other; }),
           fmt::format("with 1/{} for 1/{}: the count is off by one", other, n));
  for (const double eps : eps_) {
    Values guarded = a;
    for (std::size_t i = 0; i < guarded.size(); ++i) guarded[i] /= b[i] + eps;
    with(id, std::move(guarded), fmt::format("with an eps of {} added to {}", eps, arg(1)));
  }
  for (const double eps : eps_) {
    Values guarded = a;
    for (std::size_t i = 0; i < guarded.size(); ++i) guarded[i] /= std::max(b[i], eps);
    with(id, std::move(guarded), fmt::format("with at least {} for {}: it is clipped, a floor", eps, arg(1)));
  }
  Values times = a;
  for (std::size_t i = 0; i < times.size(); ++i) times[i] *= b[i];
  with(id, std::move(times), fmt::format("with times {0} for divided by {0}", arg(1)));
  Values inverse = b;
  for (std::size_t i = 0; i < inverse.size(); ++i) inverse[i] /= a[i];
  with(id, std::move(inverse), fmt::format("with {} divided by {}, the inverse", arg(1), arg(0)));
}

void FormulaChanges::logarithm_change(int id, const Node& node) {
  const auto arg = [&](std::size_t k) { return text(node.args[k]); };
  for (const double eps : eps_)
    with(id, map(values(node.args[0]), [=](double v) { return std::log(v + eps); }),
         fmt::format("with an eps of {} added to {}", eps, arg(0)));
  floored(
      id, arg(0), [](double v) { return std::log(v); }, values(node.args[0]));
  with(id, map(values(node.args[0]), [](double v) { return std::log2(v); }),
       "with the logarithm to base 2 of " + arg(0));
  with(id, map(values(node.args[0]), [](double v) { return std::log10(v); }),
       "with the logarithm to base 10 of " + arg(0));
  with(id, map(values(node.args[0]), [](double v) { return std::log1p(v); }),
       "with log(1 + v) for log(v) of " + arg(0) + ": 1 is added, another function");
}

void FormulaChanges::exponential_change(int id, const Node& node) {
  const auto arg = [&](std::size_t k) { return text(node.args[k]); };
  tail_change(id, node);
  with(id, map(values(node.args[0]), [](double v) { return std::exp2(v); }), "with 2^v for e^v of " + arg(0));
  for (const double factor : {1.4, 1.44, 1.443, 1.4427, 1.44269})  // of 1.442695
    with(id, map(values(node.args[0]), [=](double v) { return std::exp2(factor * v); }),
         fmt::format("with 2^({} v) for e^v of {}: log2(e) is slightly off", factor, arg(0)));
}

void FormulaChanges::tail_change(int id, const Node& node) {
  if (node.shape.rank == 0) return;
  const std::int64_t n = node.shape.last();
  for (const std::int64_t block : {4, 8, 16, 32, 64, 128, 256}) {
    if (block >= n) break;
    const std::int64_t full = n / block * block;
    if (full == n) continue;
    Values out = values(id);
    for (std::size_t i = 0; i < out.size(); ++i)
      if (static_cast<std::int64_t>(i) % n >= full) out[i] = 0;
    const std::string what = n - full == 1 ? "the last of " + text(id) + ", or what follows its last full vector"
                                           : fmt::format("{} after the last full vector of {}", text(id), block);
    with(id, std::move(out), Change{.words = "without " + what + ", in all of its sums", .exact = true});
  }
}

void FormulaChanges::root_change(int id, const Node& node) {
  const auto arg = [&](std::size_t k) { return text(node.args[k]); };
  with(id, map(values(node.args[0]), [](double v) { return 1 / v; }), "with 1/v for 1/sqrt(v) of " + arg(0));
  outside_root(id, graph_.node(node.args[0]));
  floored(
      id, arg(0), [](double v) { return 1 / std::sqrt(v); }, values(node.args[0]));
  with(id, map(values(node.args[0]), [](double v) { return std::sqrt(v); }), "with sqrt(v) for 1/sqrt(v) of " + arg(0));
}

void FormulaChanges::pow_change(int id, const Node& node) {
  const std::string base = text(node.args[0]), exponent = text(node.args[1]);
  const Values x = spread(node, 0), p = spread(node, 1);
  const auto power = [&](auto of, std::string words) {
    Values out = x;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = of(x[i], p[i]);
    with(id, std::move(out), std::move(words));
  };
  for (const double by : {-1.0, 1.0})
    power([=](double v, double q) { return std::pow(v, q + by); },
          fmt::format("with {} to the power of {} {} 1: another exponent", base, exponent, by < 0 ? "-" : "+"));
  power([](double v, double q) { return std::pow(std::fabs(v), q); },
        fmt::format("with |v|^{0} for v^{0} of {1}, without its sign", exponent, base));
  power([](double v, double q) { return v < 0 ? std::nan("") : std::pow(v, q); },
        fmt::format("with exp({0} log(v)) for v^{0} of {1}: no number where it is negative", exponent, base));
  power([](double v, double q) { return std::copysign(std::pow(std::fabs(v), q), v); },
        fmt::format("with sign(v) |v|^{0} for v^{0} of {1}: the sign of an odd exponent", exponent, base));
  power([](double v, double q) { return std::pow(v, -q); },
        fmt::format("with the other sign of the exponent {} of {}", exponent, base));
  power([](double v, double q) { return std::pow(v, q / 2); },
        fmt::format("with half of the exponent {} of {}", exponent, base));
  power([](double v, double q) { return std::pow(v, std::trunc(q)); },
        fmt::format("with the exponent {} of {} cut to a whole number", exponent, base));
  power([](double v, double q) { return v * q; }, fmt::format("with {} times {} for its power", base, exponent));
  power([](double v, double) { return v; }, fmt::format("with {} not raised to {}", base, exponent));
  power([](double v, double) { return v * v; },
        fmt::format("with exponent 2 for {} of {}: a fixed exponent", exponent, base));
  for (const double eps : eps_)
    power([=](double v, double q) { return std::pow(v + eps, q); },
          fmt::format("with an eps of {} added to {}", eps, base));
}

void FormulaChanges::other_power(int id, const Node& node, std::size_t k) {
  Values over = spread(node, 1 - k), twice = over;
  const Values factor = spread(node, k);
  for (std::size_t i = 0; i < over.size(); ++i) {
    over[i] /= factor[i];
    twice[i] *= factor[i] * factor[i];
  }
  with(id, std::move(over), fmt::format("divided by {0} for times {0}", text(node.args[k])));
  with(id, std::move(twice), fmt::format("with the factor {} twice", text(node.args[k])));
}

void FormulaChanges::first_term(int id, const Node& node) {
  int first = below(node.args[0]), left = 1;
  for (; graph_.node(first).primitive == Primitive::add || graph_.node(first).primitive == Primitive::sub; ++left)
    first = below(graph_.node(first).args[0]);
  if (left < 2 || graph_.node(first).shape.count() != node.shape.count()) return;
  with(id, values(first), fmt::format("with only the term {}, without the terms that follow it", text(first)));
}

void FormulaChanges::equal_terms(int id, const Node& node) {
  if (node.primitive != Primitive::add) return;
  const Values term = spread(node, 1);
  int times = 1, others = 0;
  for (int at = below(node.args[0]);; at = below(graph_.node(at).args[0])) {
    const Node& chain = graph_.node(at);
    const bool on = chain.primitive == Primitive::add && chain.shape == node.shape;
    ++(ratio(on ? spread(chain, 1) : values(at), term) == 1 ? times : others);
    if (!on) break;
  }
  if (times < 2 || others == 0) return;
  Values out = values(id);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] -= (times - 1) * term[i];
  with(id, std::move(out), fmt::format("with a factor of 1 for {} of {}", times, text(node.args[1])));
}

void FormulaChanges::condition_change(int id, const Node& node) {
  const Values a = spread(node, 0), b = spread(node, 1);
  const bool strict = node.primitive == Primitive::less;
  Values other = a, turned = values(id);
  for (std::size_t i = 0; i < other.size(); ++i) {
    other[i] = strict ? a[i] <= b[i] : a[i] < b[i];
    turned[i] = 1 - turned[i];
  }
  with(id, std::move(other),
       fmt::format("with {} {} {}: another convention where they are equal, as at zero", text(node.args[0]),
                   strict ? "<=" : "<", text(node.args[1])));
  with(id, std::move(turned),
       fmt::format("with the condition {} {} {} turned round", text(node.args[0]),
                   strict ? "<" : "<=", text(node.args[1])));
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) other_mask(id, node, k);
}

void FormulaChanges::other_mask(int id, const Node& node, std::size_t k) {
  if (graph_.node(node.args[k]).primitive == Primitive::constant) return;
  const Values kept = spread(node, 1 - k);
  for (const int leaf : given_) {
    const Node& other = graph_.node(leaf);
    if (leaf == node.args[k] || other.primitive != Primitive::input || !(other.shape == node.shape)) continue;
    const Values& in_place = values(leaf);
    Values out = kept;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double a = k == 0 ? in_place[i] : kept[i], b = k == 0 ? kept[i] : in_place[i];
      out[i] = node.primitive == Primitive::less ? a < b : a <= b;
    }
    with(id, std::move(out),
         fmt::format("with the mask of another input: {} for {} in the condition {}", text(leaf), text(node.args[k]),
                     text(id)));
  }
}

void FormulaChanges::outside_root(int id, const Node& sum) {
  if (sum.primitive != Primitive::add || graph_.node(sum.args[1]).primitive != Primitive::constant) return;
  const double c = graph_.node(sum.args[1]).value;
  const std::string eps = names_.contains(sum.args[1]) ? text(sum.args[1]) : "eps " + text(sum.args[1]);
  with(id, map(spread(sum, 0), [=](double v) { return 1 / (std::sqrt(v) + c); }),
       fmt::format("with the {} outside the root", eps));
  with(id, map(spread(sum, 0), [=](double v) { return 1 / std::sqrt(v) + c; }),
       fmt::format("with the {} outside the root, added to its reciprocal", eps));
}

namespace {

bool in_number(char c) { return (c >= '0' && c <= '9') || c == '.'; }

/// The number that begins at `at`, which moves behind it; a comma or stop of the sentence is none of it.
double number_at(const std::string& text, std::size_t& at) {
  double out = 0;
  const auto read = std::from_chars(text.data() + at, text.data() + text.size(), out);
  at = read.ec == std::errc() ? static_cast<std::size_t>(read.ptr - text.data()) : at + 1;
  return out;
}

}  // namespace

bool same_change(const std::string& words, const OneChange& one, Match match) {
  constexpr double kSame = 0x1p-7;
  std::size_t a = 0, b = 0;
  while (a < words.size() && b < one.words.size()) {
    if (in_number(words[a]) && in_number(one.words[b])) {
      const double x = number_at(words, a), y = number_at(one.words, b);
      if (!one.extents.contains(y) && std::fabs(x - y) > kSame * std::fabs(y)) return false;
    } else if (words[a++] != one.words[b++]) {
      return false;
    }
  }
  return a == words.size() && (b == one.words.size() || match == Match::beginning);
}

std::vector<double> evaluate_plainly(const Graph& graph,
                                     const std::vector<std::pair<Expr, std::vector<double>>>& leaves, Expr node) {
  PlainEvaluator<Fp64Policy> evaluator(graph);
  for (const auto& [leaf, values] : leaves) evaluator.set(leaf, values);
  return evaluator.value(node);
}

void for_each_change(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves, Expr target,
                     const NodeNames& names, std::int64_t most,
                     const std::function<bool(const Change&, const std::vector<double>&)>& see, const OneChange* only) {
  FormulaChanges(graph, leaves, target, names, most, see, only, nullptr).run();
}

void for_each_further_change(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves,
                             Expr target, const NodeNames& names, std::int64_t most, const WrittenNumbers& written,
                             const std::function<bool(const Change&, const std::vector<double>&)>& see,
                             const OneChange* only) {
  FormulaChanges(graph, leaves, target, names, most, see, only, &written).run_further();
}

}  // namespace ampcheck::reference
