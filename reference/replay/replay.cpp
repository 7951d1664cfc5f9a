// SPDX-License-Identifier: Apache-2.0
#include "reference/replay/replay.h"

#include <bit>
#include <cstdint>

#include "reference/replay/plain_evaluator.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::reference {

namespace {

struct ReplayPolicy {
  using Real = float;
  ReplayPolicy() = default;
  explicit ReplayPolicy(ReplayOptions chosen)
      : options(chosen), random(chosen.seed, "replay scatter"), sides(chosen.seed, "replay sides") {
    if (options.accumulate == nullptr) return;
    min_normal = static_cast<float>(std::max(options.accumulate->min_normal(), kFp32.min_normal()));
    max_safe = static_cast<float>(std::min(options.accumulate->max_finite(), kFp32.max_finite()) / 2);
  }
  ReplayOptions options = {};
  Random random{0, "replay scatter"}, sides{0, "replay sides"};
  mutable std::uint64_t drawn = 0;
  float min_normal = 0, max_safe = 0;  ///< where a narrower accumulator rounds without leaving its range

  static float constant(double v) { return static_cast<float>(v); }
  static float divide(float a, float b) { return a / b; }
  static float exp(float x) { return std::exp(x); }
  static float expm1(float x) { return std::expm1(x); }
  static float log(float x) { return std::log(x); }
  static float log1p(float x) { return std::log1p(x); }
  static float tanh(float x) { return std::tanh(x); }
  static float erf(float x) { return std::erf(x); }
  static float erfc(float x) { return std::erfc(x); }
  static float sin(float x) { return std::sin(x); }
  static float cos(float x) { return std::cos(x); }
  static float sqrt(float x) { return std::sqrt(x); }
  static float pow(float x, float p) { return std::pow(x, p); }
  static float round(float x) { return x; }
  float product(float x) const { return options.products ? narrow(x) : x; }
  /// Whether an elementwise operation is that of fp32 and no more.
  bool plain() const { return options.scatter == 0; }
  float erring(Primitive primitive, float x) const {
    if (options.scatter == 0 || x == 0 || !std::isfinite(x)) return x;
    const bool function = primitive >= Primitive::exp && primitive <= Primitive::sigmoid;
    const std::uint64_t bits =
        options.one_sided && function ? sides.bits(static_cast<std::uint64_t>(primitive)) : random.bits(drawn++);
    const double by = std::ldexp(options.scatter, std::max(std::ilogb(x), -126) - 23);
    return static_cast<float>(static_cast<double>(x) + ((bits & 1) != 0 ? by : -by));
  }
  static std::vector<float> stored(const std::string&, const std::vector<float>& v) { return v; }

  float narrow(float x) const {
    if (options.accumulate == nullptr) return x;
    if (x == 0 || !std::isfinite(x)) return x;
    const int drop = kFp32.precision - options.accumulate->precision;
    const float size = std::fabs(x);
    if (drop > 0 && size >= min_normal && size <= max_safe) {  // RNE on the pattern: the exponent carries by itself
      std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
      bits += (std::uint32_t{1} << (drop - 1)) - 1 + (bits >> drop & 1);
      return std::bit_cast<float>(bits >> drop << drop);
    }
    double wide = static_cast<double>(x);
    round_values(*options.accumulate, RoundingMode{}, {&wide, 1}, {&wide, 1});
    return static_cast<float>(wide);
  }
  /// Terms of a sum: numbers, or products that are added unrounded.
  struct Numbers {
    const std::vector<float>& t;
    std::size_t size() const { return t.size(); }
    float onto(float s, std::size_t i) const { return s + t[i]; }
  };
  struct Products {
    const std::vector<float>&a, &b;
    std::size_t size() const { return a.size(); }
    float onto(float s, std::size_t i) const { return std::fma(a[i], b[i], s); }
  };
  template <class Terms>
  float chain(const Terms& t, std::size_t begin, std::size_t end, std::size_t step) const {
    float s = 0;
    for (std::size_t i = begin; i < end; i += step) s = narrow(t.onto(s, i));
    return s;
  }
  template <class Terms>
  float pairwise(const Terms& t, std::size_t begin, std::size_t end) const {
    if (end - begin <= 2) return chain(t, begin, end, 1);
    const std::size_t middle = begin + (end - begin) / 2;
    return narrow(pairwise(t, begin, middle) + pairwise(t, middle, end));
  }
  bool fuses() const { return options.fused && options.parts == 0 && options.dropped == 0; }
  float sum_of_products(const std::vector<float>& a, const std::vector<float>& b) const {
    return in_order(Products{a, b});
  }
  float sum(const std::vector<float>& all) const {
    if (options.dropped == 0) return ordered(all);
    const auto width = static_cast<std::size_t>(std::max(options.dropped, 1));
    const std::size_t kept =
        options.dropped < 0 ? all.size() - std::min<std::size_t>(1, all.size()) : all.size() / width * width;
    return ordered(std::vector<float>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept)));
  }
  /// Sums of blocks in fp32, narrowed; and their sum.
  float in_parts(const std::vector<float>& t) const {
    const std::size_t n = t.size(), count = static_cast<std::size_t>(-std::min(options.parts, 0));
    const std::size_t block =
        options.parts > 0 ? static_cast<std::size_t>(options.parts) : std::max<std::size_t>(1, (n + count - 1) / count);
    float s = 0;
    for (std::size_t begin = 0; begin < n; begin += block) {
      float part = 0;
      for (std::size_t i = begin; i < std::min(n, begin + block); ++i) part += t[i];
      s = options.parts > 0 ? narrow(s + part) : s + narrow(part);
    }
    return s;
  }
  float ordered(const std::vector<float>& t) const { return options.parts != 0 ? in_parts(t) : in_order(Numbers{t}); }
  /// Cumulative sums of t, in place: as sum() takes its terms, where an order of a sum is one of all its prefixes too.
  void run(std::vector<float>& t) const {
    if (options.dropped != 0) {
      const auto width = static_cast<std::size_t>(std::max(options.dropped, 1));
      const std::size_t kept =
          options.dropped < 0 ? t.size() - std::min<std::size_t>(1, t.size()) : t.size() / width * width;
      std::fill(t.begin() + static_cast<std::ptrdiff_t>(kept), t.end(), 0.0f);
    }
    // What a scan carries over is the sum of a short block, however long the row is.
    if (options.parts != 0)
      return run_blocks(t, static_cast<std::size_t>(std::max(options.parts, -16 * options.parts)));
    switch (options.order) {
      case SumOrder::sequential:
        for (std::size_t i = 0; i < t.size(); ++i) t[i] = narrow((i > 0 ? t[i - 1] : 0.0f) + t[i]);
        return;
      case SumOrder::pairwise: return run_doubling(t, 0, t.size());
      case SumOrder::lanes32: return run_lanes(t, 32);
      case SumOrder::reversed: return run_lanes(t, 256);
    }
  }
  /// Hillis and Steele 1986: each number takes the one 1, 2, 4, ... before it.
  void run_doubling(std::vector<float>& t, std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) t[i] = narrow(t[i]);
    for (std::size_t step = 1; step < end - begin; step *= 2)
      for (std::size_t i = end; i-- > begin + step;) t[i] = narrow(t[i - step] + t[i]);
  }
  /// Blocks that are scanned so, and what came before added to each.
  void run_lanes(std::vector<float>& t, std::size_t lanes) const {
    for (std::size_t begin = 0; begin < t.size(); begin += lanes) {
      const std::size_t end = std::min(t.size(), begin + lanes);
      const float before = begin > 0 ? t[begin - 1] : 0.0f;
      run_doubling(t, begin, end);
      for (std::size_t i = begin; begin > 0 && i < end; ++i) t[i] = narrow(before + t[i]);
    }
  }
  /// Blocks in fp32; what is carried from one to the next is narrowed.
  void run_blocks(std::vector<float>& t, std::size_t block) const {
    float before = 0;
    for (std::size_t begin = 0; begin < t.size(); begin += block) {
      const std::size_t end = std::min(t.size(), begin + block);
      float part = 0;
      for (std::size_t i = begin; i < end; ++i) {
        part += t[i];
        t[i] = before + part;
      }
      before = options.parts > 0 ? narrow(before + part) : before + narrow(part);
    }
  }
  template <class Terms>
  float in_order(const Terms& t) const {
    switch (options.order) {
      case SumOrder::sequential: return chain(t, 0, t.size(), 1);
      case SumOrder::pairwise: return pairwise(t, 0, t.size());
      case SumOrder::reversed: {
        float s = 0;
        for (std::size_t i = t.size(); i-- > 0;) s = narrow(t.onto(s, i));
        return s;
      }
      case SumOrder::lanes32: {
        std::vector<float> lanes(32);
        for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] = chain(t, lane, t.size(), 32);
        for (std::size_t half = 16; half > 0; half /= 2)
          for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = narrow(lanes[lane] + lanes[lane + half]);
        return lanes[0];
      }
    }
    return 0;
  }
};

}  // namespace

std::vector<std::vector<double>> replay(const Graph& graph,
                                        const std::vector<std::pair<Expr, std::vector<double>>>& leaves,
                                        const std::vector<Expr>& targets, const ReplayOptions& options) {
  PlainEvaluator<ReplayPolicy> evaluator(graph, ReplayPolicy{options});
  for (const auto& [leaf, values] : leaves) evaluator.set(leaf, std::vector<float>(values.begin(), values.end()));
  std::vector<std::vector<double>> out;
  for (const Expr& target : targets) {
    const std::vector<float>& v = evaluator.value(target);
    out.emplace_back(v.begin(), v.end());
  }
  return out;
}

}  // namespace ampcheck::reference
