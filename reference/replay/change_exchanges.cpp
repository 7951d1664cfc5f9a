// SPDX-License-Identifier: Apache-2.0
// Changes that follow from the graph alone: each operand exchanged for every other number at hand, each function for
// every other one, something put in between. They are many, so that each has to show more before it explains anything.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "reference/graph/row_plan.h"
#include "reference/replay/formula_changes.h"
#include "reference/replay/plain_loops.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

namespace {

using Values = std::vector<double>;

struct Function {
  const char* text;
  double (*of)(double v);
  Primitive approximates = Primitive::input;  ///< which function, with fewer digits
};

double clipped(double v, double low, double high) { return v != v ? v : std::fmin(std::fmax(v, low), high); }

/// What is taken for another function of one number, approximations of it among them.
constexpr Function kFunctions[] = {
    {"|v|", [](double v) { return std::fabs(v); }},
    {"v^2", [](double v) { return v * v; }},
    {"sqrt(v)", [](double v) { return std::sqrt(v); }},
    {"1/sqrt(v)", [](double v) { return 1 / std::sqrt(v); }},
    {"1/v", [](double v) { return 1 / v; }},
    {"exp(v)", [](double v) { return std::exp(v); }},
    {"exp(v) - 1", [](double v) { return std::expm1(v); }},
    {"log(v)", [](double v) { return std::log(v); }},
    {"log(1 + v)", [](double v) { return std::log1p(v); }},
    {"tanh(v)", [](double v) { return std::tanh(v); }},
    {"sigmoid(v)", [](double v) { return 1 / (1 + std::exp(-v)); }},
    {"sigmoid(|v|)", [](double v) { return 1 / (1 + std::exp(-std::fabs(v))); }},
    {"sigmoid(1.702 v)", [](double v) { return 1 / (1 + std::exp(-1.702 * v)); }},
    {"erf(v)", [](double v) { return std::erf(v); }},
    {"max(v, 0)", [](double v) { return std::fmax(v, 0.0); }},
    {"sin(v)", [](double v) { return std::sin(v); }},
    {"v clipped at -1 and 1", [](double v) { return clipped(v, -1, 1); }},
    {"v/6 + 1/2 clipped at 0 and 1, a hard sigmoid", [](double v) { return clipped(v / 6 + 0.5, 0, 1); }},
    {"v/5 + 1/2 clipped at 0 and 1, a hard sigmoid", [](double v) { return clipped(v / 5 + 0.5, 0, 1); }},
    {"v/4 + 1/2 clipped at 0 and 1, a hard sigmoid", [](double v) { return clipped(v / 4 + 0.5, 0, 1); }},
    {"v / (1 + |v|)", [](double v) { return v / (1 + std::fabs(v)); }},
    {"the fraction v (27 + v^2) / (27 + 9 v^2)", [](double v) { return v * (27 + v * v) / (27 + 9 * v * v); },
     Primitive::tanh},
    {"the fraction v (15 + v^2) / (15 + 6 v^2)", [](double v) { return v * (15 + v * v) / (15 + 6 * v * v); },
     Primitive::tanh},
    {"the fraction v (945 + 105 v^2 + v^4) / (945 + 420 v^2 + 15 v^4)",
     [](double v) {
       const double s = v * v;
       return v * (945 + s * (105 + s)) / (945 + s * (420 + 15 * s));
     },
     Primitive::tanh},
    {"the fraction v (135135 + 17325 v^2 + 378 v^4 + v^6) / (135135 + 62370 v^2 + 3150 v^4 + 28 v^6)",
     [](double v) {
       const double s = v * v;
       return v * (135135 + s * (17325 + s * (378 + s))) / (135135 + s * (62370 + s * (3150 + 28 * s)));
     },
     Primitive::tanh},
    {"the fraction (2 + v) / (2 - v)", [](double v) { return (2 + v) / (2 - v); }, Primitive::exp},
    {"the fraction (12 + 6 v + v^2) / (12 - 6 v + v^2)",
     [](double v) { return (12 + v * (6 + v)) / (12 + v * (v - 6)); }, Primitive::exp},
    {"the fraction (120 + 60 v + 12 v^2 + v^3) / (120 - 60 v + 12 v^2 - v^3)",
     [](double v) { return (120 + v * (60 + v * (12 + v))) / (120 - v * (60 - v * (12 - v))); }, Primitive::exp},
    {"the power (1 + v/256)^256", [](double v) { return std::pow(1 + v / 256, 256); }, Primitive::exp},
    {"the power (1 + v/1024)^1024", [](double v) { return std::pow(1 + v / 1024, 1024); }, Primitive::exp},
    {"the polynomial of degree 3 of exp(v)", [](double v) { return 1 + v * (1 + v / 2 * (1 + v / 3)); },
     Primitive::exp},
    {"the polynomial of degree 4 of exp(v)", [](double v) { return 1 + v * (1 + v / 2 * (1 + v / 3 * (1 + v / 4))); },
     Primitive::exp},
    {"the fraction 1/2 + v / (2 (1 + |v|))", [](double v) { return 0.5 + 0.5 * v / (1 + std::fabs(v)); },
     Primitive::sigmoid},
    {"the fraction 1/2 + v / (4 (1 + |v|/2))", [](double v) { return 0.5 + 0.25 * v / (1 + std::fabs(v) / 2); },
     Primitive::sigmoid},
    {"tanh(sqrt(2/pi) sqrt(2) v)", [](double v) { return std::tanh(2 / std::sqrt(M_PI) * v); }, Primitive::erf},
    {"the polynomial v - v^3/3", [](double v) { return v - v * v * v / 3; }, Primitive::tanh},
    {"the polynomial 1 + v + v^2/2", [](double v) { return 1 + v + v * v / 2; }, Primitive::exp},
    {"the polynomial v - v^2/2", [](double v) { return v - v * v / 2; }},
};

/// What is done to a number on its way to where it is used.
constexpr Function kBetween[] = {
    {"1 + v", [](double v) { return 1 + v; }},
    {"1 - v", [](double v) { return 1 - v; }},
    {"v - 1", [](double v) { return v - 1; }},
    {"|v|, without its sign,", [](double v) { return std::fabs(v); }},
    {"max(v, 0)", [](double v) { return std::fmax(v, 0.0); }},
    {"-v", [](double v) { return -v; }},
    {"1/v", [](double v) { return 1 / v; }},
    {"v^2", [](double v) { return v * v; }},
    {"v^3", [](double v) { return v * v * v; }},
    {"sqrt(|v|)", [](double v) { return std::sqrt(std::fabs(v)); }},
    {"the sign of v", [](double v) { return v > 0   ? 1.0
                                            : v < 0 ? -1.0
                                                    : v; }},
    {"half the sign of v, the slope of |v| for that of its square,",
     [](double v) { return v > 0   ? 0.5
                           : v < 0 ? -0.5
                                   : v; }},
    {"exp(v)", [](double v) { return std::exp(v); }},
    {"log(v)", [](double v) { return std::log(v); }},
    {"ones", [](double) { return 1.0; }},
    {"v clipped at -1 and 1", [](double v) { return clipped(v, -1, 1); }},
    {"v cut to a whole number", [](double v) { return std::trunc(v); }},
    {"v rounded to a whole number", [](double v) { return std::nearbyint(v); }},
    {"v rounded down to a whole number", [](double v) { return std::floor(v); }},
    {"15 tanh(v/15), a soft cap,", [](double v) { return 15 * std::tanh(v / 15); }},
    {"30 tanh(v/30), a soft cap,", [](double v) { return 30 * std::tanh(v / 30); }},
    {"50 tanh(v/50), a soft cap,", [](double v) { return 50 * std::tanh(v / 50); }},
    {"0 where |v| < 1e-4, flushed,", [](double v) { return std::fabs(v) < 1e-4 ? 0 : v; }},
};

/// Bits of choice among the changes of a kind, about.
constexpr double kOfFunctions = 6, kOfBetween = 8, kOfOperands = 10;

bool is_condition(Primitive p) { return p == Primitive::less || p == Primitive::less_equal || p == Primitive::equal; }
bool is_function(Primitive p) {
  return p == Primitive::square || (p >= Primitive::exp && p <= Primitive::rsqrt) || p == Primitive::sigmoid ||
         p == Primitive::abs || p == Primitive::sign;
}
bool is_elementwise(Primitive p) { return p >= Primitive::add && p <= Primitive::maximum; }

Values computed(Primitive primitive, const Shape& shape, const Values& a, const Shape& of_a, const Values& b,
                const Shape& of_b) {
  Node node;
  node.primitive = primitive;
  node.shape = shape;
  const Values* const args[] = {&a, &b};
  const Shape* const shapes[] = {&of_a, &of_b};
  return plain_elementwise(node, args, shapes);
}

}  // namespace

std::vector<int> FormulaChanges::numbers_at_hand() {
  std::vector<int> out;
  const auto take = [&](int id) {
    const Node& node = graph_.node(id);
    if ((node.shape.count() < 2 && id != target_.id) || is_condition(node.primitive) ||
        node.primitive == Primitive::constant || std::ranges::any_of(out, [&](int other) {
          return graph_.node(other).shape == node.shape && values(other) == values(id);
        }))
      return;
    out.push_back(id);
  };
  for (const int id : given_)
    if (graph_.node(id).primitive == Primitive::input) take(id);
  for (const auto& [id, name] : names_) take(id);
  for (std::size_t id = needed_.size(); id-- > 0;)
    if (needed_[id] && graph_.node(static_cast<int>(id)).primitive == Primitive::stored) take(static_cast<int>(id));
  for (std::size_t id = 0; id < needed_.size(); ++id)
    if (needed_[id] && (!moves_nothing(graph_.node(static_cast<int>(id)).primitive))) take(static_cast<int>(id));
  return out;
}

void FormulaChanges::functions_exchanged(int id) {
  const Node& node = graph_.node(id);
  const std::string own = name(node.primitive);
  const auto say = [&](Values other, const std::string& is, const std::string& was) {
    with(id, std::move(other), chosen(fmt::format("with {} for {}: another function", is, was), kOfFunctions));
  };
  if (is_function(node.primitive)) {
    const std::string of = text(node.args[0]);
    for (const Function& f : kFunctions) {
      const bool approximates = f.approximates == node.primitive;
      Change change = chosen(fmt::format("with {} for {}(v) of {}: {}", f.text, own, of,
                                         approximates ? "an approximation of few digits" : "another function"),
                             kOfFunctions);
      change.approximates = approximates;
      with(id, map(values(node.args[0]), f.of), std::move(change));
    }
    return;
  }
  if (node.args.size() != 2 || !is_elementwise(node.primitive) || is_condition(node.primitive)) return;
  struct Operator {
    Primitive primitive;
    const char* words;
  };
  static constexpr Operator kOperators[] = {{Primitive::add, "the sum"},
                                            {Primitive::sub, "the difference"},
                                            {Primitive::mul, "the product"},
                                            {Primitive::div, "the quotient"},
                                            {Primitive::maximum, "the larger"}};
  const Node &a = graph_.node(node.args[0]), &b = graph_.node(node.args[1]);
  const Values &of_a = values(node.args[0]), &of_b = values(node.args[1]);
  const std::string operands = fmt::format("{} and {}", text(node.args[0]), text(node.args[1]));
  for (const Operator& other : kOperators)
    if (other.primitive != node.primitive)
      say(computed(other.primitive, node.shape, of_a, a.shape, of_b, b.shape),
          fmt::format("{} of {}", other.words, operands), text(id));
  Values least = spread(node, 0);
  const Values second = spread(node, 1);
  for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::fmin(least[i], second[i]);
  say(std::move(least), "the smaller of " + operands, text(id));
}

void FormulaChanges::put_between(int id) {
  const std::string what = text(id);
  for (const Function& f : kBetween) {
    Change change = chosen(fmt::format("with {} for v of {}", f.text, what), kOfBetween);
    if (may_try(change.words)) with(id, map(values(id), f.of), std::move(change));
  }
}

void FormulaChanges::operands_exchanged(int id, const std::vector<int>& at_hand) {
  const Node& node = graph_.node(id);
  for (std::size_t k = 0; k < node.args.size() && going_; ++k) {
    const Node& arg = graph_.node(node.args[k]);
    if (is_condition(arg.primitive)) continue;
    const bool spreads = is_elementwise(node.primitive) && arg.shape.count() > 1;
    for (const int other : at_hand) {
      const Node& instead = graph_.node(other);
      if (!(instead.shape == arg.shape) && !(spreads && repeats_to(instead.shape, node.shape))) continue;
      if (values(other) == values(node.args[k])) continue;
      std::string words =
          fmt::format("with {} for {} in {}: another operand", text(other), text(node.args[k]), text(id));
      if (!going_ || !wanted(words)) continue;
      if (instead.shape == arg.shape) {
        with(id, evaluator_.value_if_argument(id, k, values(other)), chosen(std::move(words), kOfOperands));
        continue;
      }
      if (node.args.size() != 2) continue;
      const Node& kept = graph_.node(node.args[1 - k]);
      Values out =
          k == 0 ? computed(node.primitive, node.shape, values(other), instead.shape, values(node.args[1]), kept.shape)
                 : computed(node.primitive, node.shape, values(node.args[0]), kept.shape, values(other), instead.shape);
      with(id, std::move(out), chosen(std::move(words), kOfOperands));
    }
  }
}

void FormulaChanges::leaves_exchanged(const std::vector<int>& at_hand) {
  for (const int leaf : given_) {
    const Node& node = graph_.node(leaf);
    if (!needed_[static_cast<std::size_t>(leaf)] || node.primitive != Primitive::input) continue;
    const Values own = values(leaf);
    for (const int other : at_hand) {
      if (!(graph_.node(other).shape == node.shape) || other == leaf) continue;
      Change change =
          chosen(fmt::format("with {} for {}: another operand in its place", text(other), text(leaf)), kOfFunctions);
      change.leaf = node.name;
      with(leaf, values(other), change);
      if (!given(other) || other < leaf) continue;
      change.words = fmt::format("with {} and {} exchanged", text(leaf), text(other));
      all_with({{leaf, values(other)}, {other, own}}, change);
    }
  }
}

void FormulaChanges::taken_for(int id, const std::vector<int>& at_hand) {
  if (given(id)) return;  // leaves_exchanged() has it
  const Shape& shape = graph_.node(id).shape;
  for (const int other : at_hand)
    if (going_ && other != id && graph_.node(other).shape == shape)
      with(id, values(other),
           chosen(fmt::format("with {} for {}: another number in its place", text(other), text(id)), kOfOperands));
}

void FormulaChanges::joined(int id, const std::vector<int>& at_hand) {
  struct Way {
    Primitive primitive;
    const char* words;
  };
  static constexpr Way kWays[] = {{Primitive::mul, "with {0} times {1} for {0}"},
                                  {Primitive::div, "with {0} divided by {1} for {0}"},
                                  {Primitive::add, "with {1} added to {0}"},
                                  {Primitive::sub, "with {1} taken from {0}"}};
  const Shape& shape = graph_.node(id).shape;
  for (const int other : at_hand) {
    const Shape& of = graph_.node(other).shape;
    if (other == id || !repeats_to(of, shape)) continue;
    for (const Way& way : kWays) {
      std::string words = fmt::format(fmt::runtime(way.words), text(id), text(other));
      if (going_ && wanted(words))
        with(id, computed(way.primitive, shape, values(id), shape, values(other), of),
             chosen(std::move(words), kOfOperands));
    }
    if (going_ && of == shape)
      with(id, computed(Primitive::sub, shape, values(other), of, values(id), shape),
           chosen(fmt::format("with {1} less {0} for {0}: turned round", text(id), text(other)), kOfOperands));
  }
}

void FormulaChanges::factor_moved(int id) {
  const Node& node = graph_.node(id);
  const Shape& whole = graph_.node(target_.id).shape;
  if (id == target_.id || (node.primitive != Primitive::mul && node.primitive != Primitive::div)) return;
  for (const std::size_t k : {std::size_t{1}, std::size_t{0}}) {
    const Node& factor = graph_.node(node.args[k]);
    if ((node.primitive == Primitive::div && k == 0) || factor.shape.count() < 2 || !repeats_to(factor.shape, whole))
      continue;
    std::string words =
        fmt::format("with the factor {} on all of it, not on {} alone", text(node.args[k]), text(node.args[1 - k]));
    if (!going_ || !wanted(words)) return;
    left_ -= cost_;
    if (left_ < 0) {
      going_ = false;
      return;
    }
    const Values out = evaluator_.value_if({{id, spread(node, 1 - k)}}, target_);
    const Primitive back = node.primitive == Primitive::mul ? Primitive::mul : Primitive::div;
    with(target_.id, computed(back, whole, out, whole, values(node.args[k]), factor.shape),
         chosen(std::move(words), kOfFunctions));
  }
}

void FormulaChanges::constant_moved(int id, const std::vector<int>& at_hand) {
  const Node& node = graph_.node(id);
  if (node.primitive != Primitive::mul && node.primitive != Primitive::div) return;
  std::vector<Site> sites;
  for (const int other : at_hand)
    if (other != id && needed_[static_cast<std::size_t>(other)]) sites.push_back({other, -1});
  for (std::size_t k = 0; k < needed_.size(); ++k)
    if (const Node& function = graph_.node(static_cast<int>(k)); needed_[k] && !given(static_cast<int>(k)) &&
                                                                 is_function(function.primitive) &&
                                                                 graph_.node(function.args[0]).shape.count() > 1)
      sites.push_back({function.args[0], static_cast<int>(k)});
  for (const std::size_t k : {std::size_t{1}, std::size_t{0}}) {
    const Node& factor = graph_.node(node.args[k]);
    if ((node.primitive == Primitive::div && k == 0) || factor.primitive != Primitive::constant || is_share(factor))
      continue;
    const double times = node.primitive == Primitive::mul ? factor.value : 1 / factor.value;
    const int kept = node.args[1 - k];
    for (const Site& site : sites) {
      const int changed = site.user < 0 ? site.id : site.user;
      if (!going_ || (left_ -= cost_) < 0) return;
      const std::string where = site.user < 0 ? text(site.id) : fmt::format("{} in {}", text(site.id), text(site.user));
      Change change = chosen(fmt::format("with the factor {} on {}, not on {}", text(node.args[k]), where, text(kept)),
                             kOfOperands);
      if (changed < id) {  // the other operand may follow from it
        auto others = with_number(site, Way::factor, times);
        Values without = evaluator_.value_if(others, {target_.graph, kept});
        if (without.size() != values(id).size()) continue;
        others.emplace_back(id, std::move(without));
        all_with(std::move(others), change);
      } else if (site.user < 0) {
        Values without = spread(node, 1 - k);
        Values behind =
            map(evaluator_.value_if({{id, without}}, {target_.graph, site.id}), [=](double v) { return times * v; });
        all_with({{id, std::move(without)}, {site.id, std::move(behind)}}, change);
      }
    }
  }
}

void FormulaChanges::repeats() {
  const std::vector<int> at_hand = numbers_at_hand();
  if (enters(-1)) {
    other_geometry();
    counts_of_other_axes();
    branch_taken(at_hand);
  }
  for (std::size_t id = needed_.size(); id-- > 0 && going_;) {
    const auto node = static_cast<int>(id);
    if (!needed_[id] || given(node) || graph_.node(node).args.empty() || !enters(node)) continue;
    laid_along_another_axis(node);
    other_centre(node);
    rescaled_sums(node);
    other_borders(node);
  }
  if (enters(-1)) statistics_exchanged();
  for (const int leaf : given_)
    if (needed_[static_cast<std::size_t>(leaf)] && graph_.node(leaf).primitive == Primitive::input && enters(leaf))
      other_layouts(leaf);
  for (const int id : at_hand)
    if (needed_[static_cast<std::size_t>(id)] && enters(id)) joined_in_one_use(id, at_hand);
}

void FormulaChanges::systematic() {
  const std::vector<int> at_hand = numbers_at_hand();
  std::vector<int> inner;
  for (std::size_t id = needed_.size(); id-- > 0;) {
    const auto node = static_cast<int>(id);
    if (needed_[id] && !given(node) && !graph_.node(node).args.empty()) inner.push_back(node);
  }
  if (enters(-1)) leaves_exchanged(at_hand);
  for (const int id : inner) {
    if (!going_) return;
    if (!enters(id)) continue;
    functions_exchanged(id);
    factor_moved(id);
    constant_moved(id, at_hand);
  }
  for (const int id : at_hand)
    if (needed_[static_cast<std::size_t>(id)] && enters(id)) put_between(id);
  for (const int id : inner)
    if (!moves_nothing(graph_.node(id).primitive) && enters(id)) operands_exchanged(id, at_hand);
  for (const int id : at_hand)
    if (needed_[static_cast<std::size_t>(id)] && enters(id)) joined(id, at_hand);
  for (const int id : at_hand)
    if (needed_[static_cast<std::size_t>(id)] && enters(id)) taken_for(id, at_hand);
}

}  // namespace ampcheck::reference
