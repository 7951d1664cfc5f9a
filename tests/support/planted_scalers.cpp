// SPDX-License-Identifier: Apache-2.0
#include "tests/support/planted_scalers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace ampcheck::tests {

namespace {

using namespace checks::scaler;

constexpr double kMax = std::numeric_limits<float>::max();

double fp32(double x) { return static_cast<double>(static_cast<float>(x)); }
double bf16(double x) {
  return std::isfinite(x) && x != 0 ? std::ldexp(std::round(std::ldexp(x, 7 - std::ilogb(x))), std::ilogb(x) - 7) : x;
}

/// One rank's view of one optimizer.
struct Opt {
  int stage = 0;  // 0 ready, 1 unscaled, 2 stepped
  bool graded = false, checked = false, own = false;
  int found = 0;  // how many bad elements
  Values grads{}, weights{}, momentum{};
  std::int64_t steps = 0;
};

/// What is saved.
struct Kept {
  double scale = 1;
  std::int64_t clean = 0;
  int left = 1, window = 1;
};

class Small {
 public:
  Small(const ScaleRule& rule, const Setup& setup, const std::string& fault)
      : rule_(rule), setup_(setup), fault_(fault) {
    for (Kept& kept : kept_) kept = fresh();
  }

  Reply take(const Call& call) {
    Reply reply;
    Opt& o = opts_[static_cast<std::size_t>(call.rank)][static_cast<std::size_t>(call.optimizer)];
    const std::string why = refused(call, o);
    if (!why.empty()) {
      reply.error = true;
      reply.text = why;
      return reply;
    }
    act(call, o, reply);
    reply.scale = setup_.enabled || is("disabled_moves") ? kept_[0].scale : 1;
    reply.other_scale = setup_.enabled ? kept_[1].scale : 1;
    reply.grads = o.grads;
    reply.weights = o.weights;
    reply.steps = o.steps;
    reply.schedule = schedule_;
    reply.error = raised_;
    return reply;
  }

 private:
  bool is(const char* fault) const { return fault_ == fault; }
  double stored(double x) const { return rule_.storage == Dtype::fp32 ? fp32(x) : x; }

  Kept fresh() const {
    return {stored(setup_.init_scale), 0, is("hysteresis_one_more") ? rule_.hysteresis + 1 : rule_.hysteresis,
            setup_.window};
  }

  std::string refused(const Call& call, const Opt& o) const {
    if (!setup_.enabled) return "";
    if (call.op == Op::unscale) {
      if (!scaled_ && !is("unscale_before_scale_accepted")) return "no scale";
      if (o.stage == 1 && !is("double_unscale_accepted")) return "unscaled twice";
      if (o.stage == 2 && !is("unscale_after_step_accepted")) return "unscale after step";
      if (is("unscale_refused_after_growth") && kept_[0].scale > setup_.init_scale) return "refused for nothing";
    }
    if (call.op == Op::step) {
      if (!scaled_ && !is("step_before_scale_accepted")) return "no scale";
      if (o.stage == 2 && !is("double_step_accepted")) return "stepped twice";
      if (!(o.stage == 0 ? o.graded : o.checked) && !is("step_without_gradients_accepted")) return "no gradients";
    }
    if (call.op == Op::update && !is("update_without_check_accepted")) {
      bool any = false;
      for (const auto& rank : opts_)
        for (const Opt& each : rank) any |= each.checked;
      if (!any || !scaled_) return "nothing checked";
    }
    return "";
  }

  void act(const Call& call, Opt& o, Reply& reply) {
    switch (call.op) {
      case Op::scale: reply.scaled = scaled(); break;
      case Op::scale_half: {
        const double start = kept_[0].scale;
        reply.scaled = is("half_loss") ? (start > 65504 ? HUGE_VAL : start) : std::min(start, 32768.0);
        break;
      }
      case Op::backward: backward(call, o); break;
      case Op::unscale:
        if (setup_.enabled || is("disabled_unscales")) unscale(call.rank, call.optimizer, true);
        break;
      case Op::corrupt: o.grads[0] = HUGE_VAL; break;
      case Op::step: step(call, o); break;
      case Op::schedule:
        if (!skipped_ || is("schedule_on_skip")) ++schedule_;
        break;
      case Op::update: update(); break;
      case Op::zero: zero(); break;
      case Op::set_window:
        for (Kept& kept : kept_) kept.window = call.window;
        break;
      case Op::reload: reload(); break;
    }
  }

  double scaled() {
    scaled_ = true;
    if (is("scale_grows_in_window") && window_open_) kept_[0].scale *= 2;
    window_open_ = true;
    factor_ = setup_.enabled || is("disabled_scales") ? kept_[0].scale : 1;
    if (is("scales_by_half") && setup_.enabled) factor_ /= 2;
    return factor_;
  }

  void backward(const Call& call, Opt& o) const {
    for (std::size_t i = 0; i < kElements; ++i) {
      const bool keep = o.graded && !is("last_batch_alone");
      o.grads[i] = fp32((keep ? o.grads[i] : 0) + call.grads[i] * (call.raw ? 1 : factor_));
    }
    o.graded = true;
  }

  void zero() {
    for (auto& rank : opts_)
      for (Opt& each : rank) {
        each.graded = false;
        each.grads = {};
      }
  }

  void reload() {
    reloaded_ = true;
    for (Kept& kept : kept_) {
      const Kept made = fresh();
      if (is("reload_forgets_scale")) kept.scale = made.scale;
      if (is("reload_forgets_count")) kept.clean = 0;
      if (is("reload_counts_one_more")) ++kept.clean;
      if (is("reload_halves")) kept.scale /= 2;
      if (is("reload_forgets_all")) kept = made;
      if (is("reload_window")) kept.window = 2000;
    }
  }

  int bad_elements(const Opt& o) const {
    int out = 0;
    double sum = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const double g = o.grads[i];
      sum = fp32(sum + g);
      bool bad = !std::isfinite(g);
      if (is("misses_infinity") && g == HUGE_VAL) bad = false;
      if (is("misses_minus_infinity") && g == -HUGE_VAL) bad = false;
      if (is("misses_nan") && std::isnan(g)) bad = false;
      if (is("misses_first") && i == 0) bad = false;
      if (is("misses_last") && i + 1 == kElements) bad = false;
      if (is("misses_middle") && i == 1) bad = false;
      if (is("compares_with_maximum")) bad = g > kMax;
      if (is("large_is_bad")) bad = !(std::abs(g) < 1e38);
      out += bad ? 1 : 0;
    }
    if (is("checks_sum")) return std::isfinite(sum) ? 0 : 1;
    return is("nan_to_num") ? 0 : out;
  }

  /// All ranks' gradients of that optimizer are checked; this rank's are divided.
  void unscale(int rank, int number, bool explicitly) {
    Opt& mine = opts_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(number)];
    int found = 0;
    for (int r = 0; r < setup_.ranks; ++r) {
      if (is("ranks_check_alone") && r != rank) continue;
      if (is("ranks_take_the_first") && r != 0) continue;
      const Opt& o = opts_[static_cast<std::size_t>(r)][static_cast<std::size_t>(number)];
      if (o.graded) found += bad_elements(o);
    }
    if (is("explicit_unscale_forgets") && explicitly) found = 0;
    divide(mine, explicitly);
    if (!is("product_unchecked") && found == 0)
      for (const double g : mine.grads) found += std::isfinite(g) ? 0 : 1;
    if (is("misses_infinity") || is("misses_minus_infinity") || is("misses_nan") || is("misses_first") ||
        is("misses_last") || is("misses_middle") || is("compares_with_maximum") || is("nan_to_num") || is("checks_sum"))
      found = std::min(found, bad_before_);
    mine.found = found;
    mine.own = bad_before_ > 0;
    mine.checked = mine.graded;
    mine.stage = 1;
  }

  void divide(Opt& o, bool explicitly) {
    bad_before_ = bad_elements(o);
    double by = kept_[0].scale;
    if (is("divides_by_new_scale")) by = next_scale();
    if (is("divides_by_first_scale")) by = setup_.init_scale;
    if (is("divides_by_scale_before")) by = last_scale_ > 0 ? last_scale_ : by;
    if (is("divides_by_16_bit_scale")) by = bf16(by);
    if (is("never_divides")) by = 1;
    if (is("implicit_never_divides") && !explicitly) by = 1;
    if (is("fused_never_divides") && setup_.fused) by = 1;
    if (is("clip_before_unscale")) clip(o, 100);
    for (double& g : o.grads) {
      if (is("nan_to_num") && !std::isfinite(g)) g = 0;
      g = is("inverse_in_bf16") ? fp32(g * bf16(1 / by)) : fp32(g / by);
      if (is("divides_twice")) g = fp32(g / by);
      if (is("rounds_at_1") && by == 1) g = bf16(g);
      if (is("flushes_at_1") && by == 1 && std::abs(g) < 1e-20) g = 0;
    }
  }

  static void clip(Opt& o, double most) {
    double norm = 0;
    for (const double g : o.grads) norm += g * g;
    norm = std::sqrt(norm);
    if (!std::isfinite(norm) || norm <= most) return;
    for (double& g : o.grads) g = fp32(g * most / norm);
  }

  double next_scale() const {
    const bool grows = kept_[0].clean + 1 >= kept_[0].window;
    return grows ? kept_[0].scale * setup_.growth_factor : kept_[0].scale;
  }

  bool skips(const Call& call, const Opt& o, bool explicitly) const {
    if (!setup_.enabled) return is("disabled_skips") && bad_elements(o) > 0;
    bool bad = o.found > 0;
    if (is("flag_is_a_sum") || (is("fused_flag_is_a_sum") && setup_.fused)) bad = o.found == 1;
    if (is("flag_is_a_parity")) bad = o.found % 2 == 1;
    const bool late = std::ranges::any_of(o.grads, [](double g) { return !std::isfinite(g); });
    if (explicitly && o.found == 0 && !is("late_infinity_applied")) bad |= late;
    if (is("one_bad_skips_all"))
      for (const Opt& each : opts_[static_cast<std::size_t>(call.rank)]) bad |= each.graded && bad_elements(each) > 0;
    return bad && !never_skips(call, explicitly);
  }

  bool never_skips(const Call& call, bool explicitly) const {
    if (is("applies_at_scale_1") && kept_[0].scale <= 1) return true;
    return is("never_skips") || (is("fused_never_skips") && setup_.fused) ||
           (is("explicit_never_skips") && explicitly) || (is("second_optimizer_never_skips") && call.optimizer == 1);
  }

  void step(const Call& call, Opt& o) {
    const bool explicitly = o.stage == 1;
    if (setup_.enabled && o.stage == 0) unscale(call.rank, call.optimizer, false);
    o.stage = 2;
    skipped_ = skips(call, o, explicitly);
    if (skipped_ && std::isinf(o.grads[0])) overflowed_ = true;
    if (is("skips_batch_that_overflowed") && overflowed_ && o.grads[0] > 1e30) skipped_ = true;
    if (skipped_) return skip(o);
    apply(o, o.grads);
    ++o.steps;
    if (is("counts_twice") && setup_.enabled) ++o.steps;
  }

  void skip(Opt& o) const {
    if (is("skip_decays")) decay(o);
    if (is("skip_moves_momentum"))
      for (double& m : o.momentum) m *= 0.5;
    if (is("skip_clears_momentum")) o.momentum = {};
    if (is("skip_counts")) ++o.steps;
    if (is("skip_applies_momentum")) apply(o, {});
    if (!is("skip_applies_finite_part")) return;
    Values finite = o.grads;
    for (double& g : finite) g = std::isfinite(g) ? g : 0;
    apply(o, finite);
  }

  static void decay(Opt& o) {
    for (double& w : o.weights) w *= 0.99;
  }
  static void apply(Opt& o, const Values& grads) {
    for (std::size_t i = 0; i < kElements; ++i) {
      o.momentum[i] = fp32(o.momentum[i] * 0.5 + grads[i]);
      o.weights[i] = fp32(o.weights[i] - o.momentum[i] / 16);
    }
  }

  void update() {
    window_open_ = false;
    if (!setup_.enabled && !is("disabled_moves")) return;
    bool all = false;
    std::array<bool, 2> own{};
    int bad = 0;
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (std::size_t number = 0; number < 2; ++number) {
        Opt& o = opts_[rank][number];
        const bool counts =
            !(is("second_optimizer_unseen") && number == 1) && !(is("first_optimizer_unseen") && number == 0);
        if (o.checked && o.found > 0 && counts) {
          ++bad;
          own[rank] = own[rank] || o.own;
          all = true;
        }
        o.checked = false;
        o.found = 0;
        o.stage = 0;
      }
    last_scale_ = kept_[0].scale;
    for (std::size_t rank = 0; rank < 2; ++rank)
      move(kept_[rank], is("ranks_scale_alone") || is("ranks_check_alone") ? own[rank] : all, bad);
  }

  void move(Kept& k, bool overflow, int bad) {
    if (overflow) {
      fall(k, bad);
      return;
    }
    if (rule_.refill == HysteresisRefill::clean_step || is("refills_each_step")) k.left = rule_.hysteresis;
    ++k.clean;
    if (!grows(k)) return;
    if (!is("never_refills")) k.left = rule_.hysteresis;
    grow(k);
  }

  void fall(Kept& k, int bad) {
    const bool suppressed = k.left > 1 && !is("hysteresis_ignored");
    if (!(is("count_survives_skip") || (is("count_survives_suppressed") && suppressed))) k.clean = 0;
    if (is("count_restarts_at_one")) k.clean = 1;
    if (suppressed) {
      --k.left;
      return;
    }
    if (is("refills_after_fall")) k.left = rule_.hysteresis;
    if (is("never_falls")) return;
    if (is("grows_on_skip")) {
      grow(k);
      return;
    }
    double floor = is("floor_ignored") ? 0 : is("floor_twice") ? 2 * rule_.floor : rule_.floor;
    if (is("reload_forgets_floor") && reloaded_) floor = 1;
    if (rule_.raises_at_floor && k.scale <= rule_.floor && !is("does_not_raise")) {
      raised_ = true;
      return;
    }
    if (is("floor_resets") && k.scale * setup_.backoff_factor < rule_.floor) {
      k.scale = setup_.init_scale;
      return;
    }
    double lower = k.scale * setup_.backoff_factor;
    if (is("falls_by_one")) lower = k.scale - 1;
    if (is("falls_by_square")) lower = k.scale * setup_.backoff_factor * setup_.backoff_factor;
    if (is("falls_by_half_always")) lower = k.scale * 0.5;
    if (is("falls_once_an_optimizer")) lower = k.scale * std::pow(setup_.backoff_factor, bad);
    if (is("falls_to_start")) lower = setup_.init_scale / 2;
    lower = stored(lower);
    k.scale = floor > 0 ? std::max(lower, floor) : lower;
  }

  bool grows(Kept& k) const {
    std::int64_t window = k.window;
    if (rule_.count != GrowthCount::equals_window || is("window_one_more")) ++window;
    if (is("window_one_less")) --window;
    if (is("window_twice")) window *= 2;
    if (is("never_grows")) return false;
    const bool due =
        is("window_compared_for_equality") ? k.clean == window : k.clean >= std::max<std::int64_t>(window, 1);
    if (!due) return false;
    // DeepSpeed grows each `window` steps from then on; flax and the others begin to count anew.
    if (!is("count_survives_growth"))
      k.clean = rule_.count == GrowthCount::stable_since_overflow ? window - k.window : 0;
    return true;
  }

  void grow(Kept& k) const {
    double higher = stored(k.scale * setup_.growth_factor);
    if (is("cap_ignored")) {
      k.scale = higher;
      return;
    }
    if (is("grows_by_one")) higher = k.scale + 1;
    if (is("grows_by_square")) higher = k.scale * setup_.growth_factor * setup_.growth_factor;
    if (is("grows_by_two_always")) higher = k.scale * 2;
    if (is("grows_to_65536_at_most")) higher = std::min(higher, std::max(65536.0, setup_.init_scale));
    higher = std::min(higher, rule_.cap);
    if (std::isfinite(higher) || (!rule_.finite_guard && !is("guard_where_none_is"))) {
      k.scale = higher;
      return;
    }
    if (is("no_guard")) k.scale = higher;
    if (is("guard_takes_largest")) k.scale = kMax;
    if (is("guard_falls")) k.scale *= setup_.backoff_factor;
    if (is("guard_resets")) k.scale = setup_.init_scale / 2;
  }

  ScaleRule rule_;
  Setup setup_;
  std::string fault_;
  std::array<std::array<Opt, 2>, 2> opts_;
  std::array<Kept, 2> kept_;
  double factor_ = 1, last_scale_ = 0;
  std::int64_t schedule_ = 0;
  int bad_before_ = 0;
  bool scaled_ = false, overflowed_ = false, skipped_ = false, raised_ = false, window_open_ = false, reloaded_ = false;
};

class SmallScaler : public Subject {
 public:
  SmallScaler(const ScaleRule& rule, std::string fault) : rule_(rule), fault_(std::move(fault)) {}
  std::vector<Reply> run(const Setup& setup, std::span<const Call> calls) override {
    Small small(rule_, setup, fault_);
    std::vector<Reply> out;
    out.reserve(calls.size());
    for (const Call& call : calls) {
      out.push_back(small.take(call));
      if (out.back().error) break;
    }
    return out;
  }
  bool has_ranks() const override { return true; }
  bool has_schedule() const override { return true; }
  bool has_fused() const override { return true; }
  bool has_half() const override { return true; }

 private:
  ScaleRule rule_;
  std::string fault_;
};

const std::vector<PlantedScaler> kPlanted = {
    {"window_one_more", "S1", "torch"},
    {"window_one_less", "S1", "torch"},
    {"window_twice", "S1", "jmp"},
    {"never_grows", "S1", "torch"},
    {"never_falls", "S1", "torch"},
    {"grows_on_skip", "S1", "torch"},
    {"count_survives_skip", "S1", "torch"},
    {"count_restarts_at_one", "S1", "keras"},
    {"count_survives_growth", "S1", "torch"},
    {"falls_by_one", "S1", "torch"},
    {"falls_by_square", "S1", "torch"},
    {"falls_by_half_always", "S1", "torch"},
    {"falls_to_start", "S1", "torch"},
    {"grows_by_one", "S1", "torch"},
    {"grows_by_square", "S1", "torch"},
    {"grows_by_two_always", "S1", "torch"},
    {"no_guard", "S2", "torch"},
    {"guard_takes_largest", "S2", "torch"},
    {"guard_falls", "S2", "jmp"},
    {"guard_resets", "S2", "torch"},
    {"grows_to_65536_at_most", "S2", "torch"},
    {"cap_ignored", "S2", "flax"},
    {"floor_ignored", "S3", "jmp"},
    {"floor_twice", "S3", "jmp"},
    {"floor_resets", "S3", "tf"},
    {"does_not_raise", "S3", "fairseq"},
    {"window_compared_for_equality", "S4", "torch"},
    {"hysteresis_ignored", "S5", "megatron"},
    {"hysteresis_one_more", "S5", "megatron"},
    {"refills_each_step", "S5", "megatron"},
    {"refills_after_fall", "S5", "megatron"},
    {"never_refills", "S5", "megatron"},
    {"count_survives_suppressed", "S5", "megatron"},
    {"divides_by_16_bit_scale", "S6", "torch"},
    {"inverse_in_bf16", "S6", "torch"},
    {"misses_infinity", "S7", "torch"},
    {"misses_minus_infinity", "S7", "torch"},
    {"misses_nan", "S7", "torch"},
    {"misses_first", "S7", "torch"},
    {"misses_middle", "S7", "torch"},
    {"misses_last", "S7", "torch"},
    {"compares_with_maximum", "S7", "torch"},
    {"large_is_bad", "S7", "torch"},
    {"checks_sum", "S7", "torch"},
    {"nan_to_num", "S7", "torch"},
    {"rounds_at_1", "S8", "torch"},
    {"flushes_at_1", "S8", "torch"},
    {"product_unchecked", "S9", "torch"},
    {"flag_is_a_sum", "S10", "torch"},
    {"flag_is_a_parity", "S10", "torch"},
    {"fused_flag_is_a_sum", "S10", "torch"},
    {"never_skips", "S11", "torch"},
    {"fused_never_skips", "S11", "torch"},
    {"explicit_never_skips", "S11", "torch"},
    {"skip_decays", "S11", "torch"},
    {"skip_moves_momentum", "S11", "torch"},
    {"skip_clears_momentum", "S11", "torch"},
    {"skip_counts", "S11", "torch"},
    {"skip_applies_momentum", "S11", "torch"},
    {"skip_applies_finite_part", "S11", "torch"},
    {"clip_before_unscale", "S12", "torch"},
    {"divides_by_new_scale", "S13", "torch"},
    {"divides_by_scale_before", "S13", "torch"},
    {"divides_by_first_scale", "S13", "torch"},
    {"divides_twice", "S13", "torch"},
    {"never_divides", "S13", "torch"},
    {"implicit_never_divides", "S13", "torch"},
    {"fused_never_divides", "S13", "torch"},
    {"scales_by_half", "S13", "torch"},
    {"counts_twice", "S13", "torch"},
    {"unscale_before_scale_accepted", "S14", "torch"},
    {"double_unscale_accepted", "S14", "torch"},
    {"unscale_after_step_accepted", "S14", "torch"},
    {"step_before_scale_accepted", "S14", "torch"},
    {"double_step_accepted", "S14", "torch"},
    {"step_without_gradients_accepted", "S14", "torch"},
    {"update_without_check_accepted", "S14", "torch"},
    {"one_bad_skips_all", "S15", "torch"},
    {"second_optimizer_never_skips", "S15", "torch"},
    {"second_optimizer_unseen", "S15", "torch"},
    {"falls_once_an_optimizer", "S15", "torch"},
    {"late_infinity_applied", "S16", "torch"},
    {"scale_grows_in_window", "S17", "torch"},
    {"last_batch_alone", "S17", "torch"},
    {"reload_forgets_scale", "S18", "torch"},
    {"reload_forgets_count", "S18", "torch"},
    {"reload_counts_one_more", "S18", "torch"},
    {"reload_halves", "S18", "torch"},
    {"reload_forgets_all", "S18", "megatron"},
    {"reload_window", "S18", "torch"},
    {"disabled_scales", "S19", "torch"},
    {"disabled_skips", "S19", "torch"},
    {"disabled_moves", "S19", "torch"},
    {"disabled_unscales", "S19", "torch"},
    {"ranks_check_alone", "S20", "torch"},
    {"ranks_scale_alone", "S20", "torch"},
    {"ranks_take_the_first", "S20", "torch"},
    {"applies_at_scale_1", "S21", "torch"},
    {"applies_at_scale_1", "S21", "deepspeed"},
    {"skips_batch_that_overflowed", "S21", "torch"},
    {"schedule_on_skip", "S22", "torch"},
    {"half_loss", "S23", "torch"},
};

}  // namespace

const std::vector<PlantedScaler>& planted_scalers() { return kPlanted; }

std::unique_ptr<Subject> small_scaler(const ScaleRule& rule, const std::string& fault) {
  return std::make_unique<SmallScaler>(rule, fault);
}

}  // namespace ampcheck::tests
