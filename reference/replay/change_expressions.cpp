// SPDX-License-Identifier: Apache-2.0
// Short expressions of numbers at hand, in the place of the target or of one of its terms: c a f(b), or a c + b d. No
// slip of one place leads there; kernels that took another formula do.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/graph/row_plan.h"
#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

/// A number at hand, as often as the target has elements.
struct FormulaChanges::Spread {
  std::string text;
  Values values;
};

/// What is looked for: the target, or one of its terms if all else is as it should be. target = rest + sign * due.
struct FormulaChanges::Place {
  Values due, rest;
  double sign = 1;
  std::string words = "all of it";

  /// Adds an expression to the rest. A quotient of zeros says nothing: what it stands for has a limit there, which is
  /// taken from what was written. False where too much is left open so.
  template <class Of>
  bool fill(Values& out, const Values& got, Of of) const {
    std::size_t open = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double v = of(i);
      const bool says_nothing = std::isnan(v) && !std::isnan(got[i]);
      open += says_nothing;
      out[i] = says_nothing ? got[i] : out[i] + sign * v;
    }
    return 8 * open <= out.size();
  }
};

namespace {

using Values = std::vector<double>;

struct Function {
  const char* text;
  double (*of)(double v);
};

constexpr Function kFunctionsOfOne[] = {
    {"v", [](double v) { return v; }},
    {"1/v", [](double v) { return 1 / v; }},
    {"v^2", [](double v) { return v * v; }},
    {"1/v^2", [](double v) { return 1 / (v * v); }},
    {"v^3", [](double v) { return v * v * v; }},
    {"sqrt(v)", [](double v) { return std::sqrt(v); }},
    {"1/sqrt(v)", [](double v) { return 1 / std::sqrt(v); }},
    {"|v|", [](double v) { return std::fabs(v); }},
    {"1 - v", [](double v) { return 1 - v; }},
    {"1 + v", [](double v) { return 1 + v; }},
    {"1 - v^2", [](double v) { return 1 - v * v; }},
    {"1 + v^2", [](double v) { return 1 + v * v; }},
    {"v (1 - v)", [](double v) { return v * (1 - v); }},
    {"exp(v)", [](double v) { return std::exp(v); }},
    {"exp(-v)", [](double v) { return std::exp(-v); }},
    {"log(v)", [](double v) { return std::log(v); }},
    {"tanh(v)", [](double v) { return std::tanh(v); }},
    {"1/(1 + exp(-v))", [](double v) { return 1 / (1 + std::exp(-v)); }},
    {"the slope of tanh at v", [](double v) { return 1 - std::tanh(v) * std::tanh(v); }},
    {"the slope of the sigmoid at v",
     [](double v) {
       const double s = 1 / (1 + std::exp(-v));
       return s * (1 - s);
     }},
    {"the sign of v", [](double v) { return v > 0   ? 1.0
                                            : v < 0 ? -1.0
                                                    : 0.0; }},
    {"(v > 0)", [](double v) { return v > 0 ? 1.0 : 0.0; }},
    {"max(v, 0)", [](double v) { return std::fmax(v, 0.0); }},
};

/// Elements at which most expressions show that they are none.
constexpr std::size_t kSamples = 8;
using Samples = std::array<double, kSamples>;

/// The wrong elements at which to look, from the first to the last; fewer where there are not so many.
std::vector<std::size_t> sampled(const std::vector<std::int64_t>& outside, const Values& got) {
  std::vector<std::size_t> all, out;
  for (const std::int64_t at : outside)
    if (const auto i = static_cast<std::size_t>(at); std::isfinite(got[i]) && got[i] != 0) all.push_back(i);
  const std::size_t n = std::min(kSamples, all.size());
  for (std::size_t k = 0; k < n; ++k) out.push_back(all[k * (all.size() - 1) / std::max<std::size_t>(n - 1, 1)]);
  return out;
}

Values repeated_to(const Shape& shape, const Shape& own, const Values& from) {
  Values out(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = from[static_cast<std::size_t>(operand_index(shape, own, static_cast<std::int64_t>(i)))];
  return out;
}

Values ramp(const Shape& shape, int axis, bool backwards) {
  const Axis a = split(shape, axis);
  Values out(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<double>(static_cast<std::int64_t>(i) / a.inner % a.n);
    out[i] = backwards ? static_cast<double>(a.n) - at : at + 1;
  }
  return out;
}

/// A number that has a name, and times a small whole number.
struct Known {
  double value;
  std::string words;  ///< empty: 1
};

std::vector<Known> multipliers(const std::vector<std::pair<double, std::string>>& known) {
  std::vector<Known> out{{1, ""},        {-1, "-1"},     {2, "2"},        {-2, "-2"}, {0.5, "1/2"},
                         {-0.5, "-1/2"}, {4, "4"},       {0.25, "1/4"},   {3, "3"},   {1e-4, "1e-4"},
                         {1e-3, "1e-3"}, {1e-2, "1e-2"}, {1.0 / 3, "1/3"}};
  for (const auto& [value, words] : known)
    if (std::ranges::none_of(out, [v = value](const Known& other) { return other.value == v; }))
      out.push_back({value, words});
  return out;
}

std::string times(const Known& number, const std::string& what) {
  return number.words.empty() ? what : fmt::format("{} times {}", number.words, what);
}

/// Tries expressions at the samples; say(words, value of an element) of those that fit there, until it returns false.
/// `all`: of each, as what is known of it is its words.
template <class Spread, class Place>
class Expressions {
 public:
  Expressions(std::vector<Spread> numbers, std::vector<Known> known, const std::vector<std::size_t>& at, bool all,
              const WrittenNumbers& written)
      : numbers_(std::move(numbers)), known_(std::move(known)), at_(at), all_(all), written_(written) {}

  template <class Say>
  bool products(const Place& place, Say say) const {
    for (const bool alone : {true, false})  // the shortest first
      for (const Spread& b : numbers_)
        for (const Function& f : kFunctionsOfOne)
          if (!(alone ? function(place, b, f, say) : function_times(place, b, f, say))) return false;
    return true;
  }

  template <class Say>
  bool sums(const Place& place, Say say) const {
    for (const Spread& a : numbers_)
      for (const Spread& b : numbers_) {
        if (&a == &b) continue;
        for (const Known& c : known_) {
          const double d_due = (place.due[at_[0]] - c.value * a.values[at_[0]]) / b.values[at_[0]];
          for (const Known& d : known_) {
            if (!all_ && std::fabs(d.value - d_due) * std::fabs(b.values[at_[0]]) > written_.room(at_[0])) continue;
            const auto sum = [&](std::size_t i) { return c.value * a.values[i] + d.value * b.values[i]; };
            if (!fits(place, sum)) continue;
            if (!say(fmt::format("{} plus {}", times(c, a.text), times(d, b.text)), sum)) return false;
          }
        }
      }
    return true;
  }

 private:
  template <class Of>
  bool fits(const Place& place, Of of) const {
    return all_ ||
           std::ranges::all_of(at_, [&](std::size_t i) { return std::fabs(of(i) - place.due[i]) <= written_.room(i); });
  }

  static std::string words(const Spread& b, const Function& f) {
    return std::string_view(f.text) == "v" ? b.text : fmt::format("{} for v of {}", f.text, b.text);
  }

  Samples at_samples(const Spread& b, const Function& f) const {
    Samples out{};
    for (std::size_t s = 0; s < at_.size(); ++s) out[s] = f.of(b.values[at_[s]]);
    return out;
  }

  template <class Say>
  bool function(const Place& place, const Spread& b, const Function& f, Say say) const {
    const auto of = [&](std::size_t i) { return f.of(b.values[i]); };
    return product(place, at_samples(b, f), words(b, f), nullptr, of, say);
  }

  template <class Say>
  bool function_times(const Place& place, const Spread& b, const Function& f, Say say) const {
    const Samples of_b = at_samples(b, f);
    const std::string what = words(b, f);
    for (const Spread& a : numbers_) {
      Samples both = of_b;
      for (std::size_t s = 0; s < at_.size(); ++s) both[s] *= a.values[at_[s]];
      if (!product(
              place, both, what, &a, [&](std::size_t i) { return a.values[i] * f.of(b.values[i]); }, say))
        return false;
    }
    return true;
  }

  /// With each factor that has a name; none where the samples ask for different ones.
  template <class Of, class Say>
  bool product(const Place& place, const Samples& there, const std::string& what, const Spread* a, Of of,
               Say say) const {
    const auto factor = [&](std::size_t s) { return place.due[at_[s]] / there[s]; };
    const auto room = [&](std::size_t s) { return std::fabs(written_.room(at_[s]) / there[s]); };
    if (!all_ && !(std::fabs(factor(0) - factor(1)) <= room(0) + room(1))) return true;
    for (const Known& c : known_) {
      if (!all_ && !(std::fabs(c.value - factor(0)) <= room(0))) continue;
      const auto value = [&](std::size_t i) { return c.value * of(i); };
      if (!fits(place, value)) continue;
      if (!say(times(c, a == nullptr ? what : fmt::format("{} times {}", a->text, what)), value)) return false;
    }
    return true;
  }

  std::vector<Spread> numbers_;
  std::vector<Known> known_;
  const std::vector<std::size_t>& at_;
  bool all_;
  const WrittenNumbers& written_;
};

}  // namespace

std::vector<FormulaChanges::Place> FormulaChanges::places_of_expressions() {
  const Node& last = graph_.node(below(target_.id));
  std::vector<Place> out{{.due = written_->got, .rest = Values(written_->got.size(), 0.0)}};
  const bool difference = last.primitive == Primitive::sub;
  if ((!difference && last.primitive != Primitive::add) || std::ssize(written_->got) != last.shape.count()) return out;
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    Place place{.due = written_->got, .rest = spread(last, 1 - k), .sign = k == 1 && difference ? -1.0 : 1.0};
    place.words = "the term " + text(last.args[k]);
    for (std::size_t i = 0; i < place.rest.size(); ++i) {
      if (k == 0 && difference) place.rest[i] = -place.rest[i];
      place.due[i] = place.sign * (written_->got[i] - place.rest[i]);
    }
    out.push_back(std::move(place));
  }
  return out;
}

std::vector<FormulaChanges::Spread> FormulaChanges::numbers_of_expressions(const std::vector<int>& at_hand) {
  constexpr std::size_t kMostNumbers = 80;
  const Shape& shape = graph_.node(target_.id).shape;
  std::vector<Spread> out;
  const auto add = [&](std::string text, Values of) {
    if (only_ != nullptr && only_->words.find(text) == std::string::npos) return;
    if (out.size() < kMostNumbers) out.push_back({std::move(text), std::move(of)});
  };
  std::size_t leaves = 0;
  for (const bool leaf : {true, false}) {
    for (const int id : at_hand)
      if (const Node& node = graph_.node(id); given(id) != leaf)
        continue;
      else if (node.shape.count() == shape.count())
        add(text(id), values(id));
      else if (repeats_to(node.shape, shape))
        add(text(id), repeated_to(shape, node.shape, values(id)));
    if (leaf) leaves = out.size();
  }
  // A vector that is laid along another axis, or along all numbers in turn.
  for (const int id : at_hand) {
    const Values& own = values(id);
    if (!given(id) || own.size() < 2 || own.size() >= written_->got.size()) continue;
    Values turns(written_->got.size());
    for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = own[i % own.size()];
    add(text(id) + " repeated in turn", std::move(turns));
    for (int axis = 0; axis < shape.rank; ++axis) {
      const Axis a = split(shape, axis);
      Values along(written_->got.size());
      for (std::size_t i = 0; i < along.size(); ++i)
        along[i] = own[i / static_cast<std::size_t>(a.inner) % static_cast<std::size_t>(a.n) % own.size()];
      add(fmt::format("{} laid along axis {}", text(id), axis), std::move(along));
    }
  }
  for (int axis = 0; axis < shape.rank; ++axis)
    if (shape[axis] > 2) {
      add(fmt::format("the place along axis {}, from 1 on,", axis), ramp(shape, axis, false));
      add(fmt::format("the places left along axis {}", axis), ramp(shape, axis, true));
    }
  const std::size_t plain = std::min(out.size(), at_hand.size());
  for (std::size_t a = 0; a < plain; ++a) {
    Values square = out[a].values;
    for (double& v : square) v *= v;
    add(fmt::format("{}^2", out[a].text), std::move(square));
  }
  // A gradient is a cotangent times something, which is a third number beside two others.
  const std::size_t singles = out.size();
  for (std::size_t a = 0; a < leaves; ++a)
    for (std::size_t b = a + 1; b < singles; ++b) {
      Values product = out[a].values;
      for (std::size_t i = 0; i < product.size(); ++i) product[i] *= out[b].values[i];
      add(fmt::format("({} * {})", out[a].text, out[b].text), std::move(product));
    }
  return out;
}

void FormulaChanges::short_expressions(const std::vector<int>& at_hand) {
  constexpr double kOfExpressions = 20;  // bits of choice: the numbers, the function, the factor
  constexpr std::int64_t kMostElements = 1 << 13;
  const Shape& shape = graph_.node(target_.id).shape;
  if (written_ == nullptr || shape.count() < 4 || shape.count() > kMostElements) return;
  if (only_ != nullptr && !only_->words.ends_with(": another expression")) return;
  const std::vector<std::size_t> at = sampled(written_->outside, written_->got);
  if (at.size() < 3) return;
  const Expressions<Spread, Place> search(numbers_of_expressions(at_hand), multipliers(written_->known), at,
                                          only_ != nullptr, *written_);
  for (const Place& place : places_of_expressions()) {
    const auto say = [&](const std::string& expression, auto of) {
      const std::string words = fmt::format("with {} in the place of {}: another expression", expression, place.words);
      if (!going_ || (left_ -= shape.count()) < 0) return false;
      if (!wanted(words)) return true;
      Values out = place.rest;
      if (place.fill(out, written_->got, of)) with(target_.id, std::move(out), chosen(words, kOfExpressions));
      return going_;
    };
    if (!search.products(place, say) || !search.sums(place, say)) return;
  }
}

}  // namespace ampcheck::reference
