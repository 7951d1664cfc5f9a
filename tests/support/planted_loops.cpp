// SPDX-License-Identifier: Apache-2.0
#include "tests/support/planted_loops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace ampcheck::tests {

namespace {

using namespace checks::scaler;

constexpr std::size_t kWeights = 4;
using Weights = std::array<float, kWeights>;

/// What a checkpoint holds.
struct Saved {
  Weights weights = {0.5f, -0.25f, 1.0f, 0.125f}, average = weights, first{}, second{};
  std::int64_t steps = 0, schedule = 0, buffer = 0;
  std::uint64_t random = 7;
};

class Rank {
 public:
  Rank(const LoopVariant& variant, const LoopSetup& setup, const std::string& fault)
      : variant_(variant), setup_(setup), fault_(fault), scale_(rule_of(variant, setup)) {}

  /// Gradients of all micro-batches, times the scale, and the poison.
  void backward(const LoopCall& call, bool poisoned) {
    if (!is("gradients_kept_after_skip") || !skipped_) grads_ = {};
    scales_.clear();
    micro_bad_ = last_bad_ = false;
    loss_ = 0;
    for (int micro = 0; micro < setup_.accumulate; ++micro) {
      const bool put = poisoned && call.micro_batch == micro;
      micro_batch(call.batch * setup_.accumulate + micro, micro, put ? call.poison : std::nullopt, call.last);
      if (is("update_each_micro_batch") && micro + 1 < setup_.accumulate) move_scale(false);
    }
    running_ = 0.9f * running_ + 0.1f * loss_;
  }

  bool finds() const {
    if (is("last_micro_batch_checked")) return last_bad_;
    if (is("bad_micro_batch_dropped")) return setup_.accumulate == 1 && micro_bad_;
    const auto bad = [&](float g) {
      return is("no_check")                  ? false
             : is("infinity_checked_alone")  ? std::isinf(g)
             : is("nan_checked_alone")       ? std::isnan(g)
             : is("positive_infinity_alone") ? (std::isinf(g) && g > 0) || std::isnan(g)
                                             : !std::isfinite(g);
    };
    const std::size_t looked_at = is("first_gradient_checked") ? 1 : kWeights;
    return std::any_of(grads_.begin(), grads_.begin() + looked_at, bad);
  }

  /// Unscaling, clipping and the update, or a skip. `found`: by any rank.
  void update(bool found) {
    skipped_ = found;
    const auto divisor = static_cast<float>(scale_.scale());
    if (is("clips_scaled")) clip();
    for (float& g : grads_) g /= is("no_unscale") ? 1 : is("unscales_by_first_scale") ? first_scale() : divisor;
    if (is("unscales_twice"))
      for (float& g : grads_) g /= divisor;
    if (!is("clips_scaled")) clip();
    if (found ? is("averages_on_skip") : true)
      for (std::size_t i = 0; i < kWeights; ++i) at_.average[i] = 0.75f * at_.average[i] + 0.25f * at_.weights[i];
    if (found)
      skip();
    else if (!is("never_steps"))
      step();
    if (!variant_.scaler) return;
    if (is("updates_before_unscale")) return;
    move_scale(found);
  }

  void move_scale(bool found) {
    if (!variant_.scaler) return;
    if (is("scale_stays_on_skip") && found) return;
    if (is("scale_falls_twice") && found) scale_.update(true);
    if (is("growth_late") && !found && late_++ == 0) return;
    if (is("never_grows") && !found) return;
    if (is("count_kept_on_skip") && found) {
      kept_ = scale_.tracker();
      scale_.update(true);
      for (std::int64_t i = 0; i < kept_; ++i) scale_.update(false);
      return;
    }
    scale_.update(found);
  }

  void set_bad_to(float value) {
    for (float& g : grads_)
      if (!std::isfinite(g)) g = value;
  }
  void clamp() {
    for (float& g : grads_)
      if (!std::isnan(g)) g = std::clamp(g, -1e6f, 1e6f);
  }
  /// The norm of an infinite gradient makes a factor of 0, and 0 of what is not a number.
  void clip_before_check() {
    if (setup_.clip > 0) set_bad_to(0);
  }
  void clear_bad_micro() {
    if (setup_.accumulate > 1) set_bad_to(0);
  }

  RankReply reply() const {
    RankReply out;
    out.loss = static_cast<double>(loss_);
    out.scales = scales_;
    if (variant_.says_skipped) out.skipped = skipped_;
    const auto put = [&](State& state, const char* part, std::vector<double> numbers) {
      StatePart& to = state[part];
      if (variant_.digests)
        for (const double x : numbers) to.digest += std::to_string(std::bit_cast<std::uint64_t>(x)) + " ";
      else
        to.numbers = std::move(numbers);
    };
    const auto all = [](const Weights& w) { return std::vector<double>(w.begin(), w.end()); };
    put(out.state, "weights", all(at_.weights));
    put(out.forward, "running", {static_cast<double>(running_), static_cast<double>(dropout_ >> 40)});
    if (variant_.plain) return out;
    std::vector<double> moments = all(at_.first);
    moments.insert(moments.end(), at_.second.begin(), at_.second.end());
    put(out.state, "moments", moments);
    put(out.state, "ema", all(at_.average));
    put(out.state, "steps", {static_cast<double>(at_.steps)});
    put(out.state, "schedule", {static_cast<double>(at_.schedule)});
    put(out.state, "buffer", {static_cast<double>(at_.buffer)});
    put(out.state, "random", {static_cast<double>(at_.random >> 11)});
    return out;
  }

  /// A new loop that loads what this one saved.
  Rank reloaded() const {
    Rank out(variant_, setup_, fault_);
    const Saved fresh;
    out.at_ = at_;
    if (is("resume_without_moments")) out.at_.first = out.at_.second = {};
    if (is("resume_without_average")) out.at_.average = at_.weights;
    if (is("resume_without_count")) out.at_.steps = 0;
    if (is("resume_without_schedule")) out.at_.schedule = 0;
    if (is("resume_without_random_state")) out.at_.random = fresh.random;
    if (is("resume_of_rounded_weights"))
      for (float& w : out.at_.weights) w = static_cast<float>(std::lround(w * 256)) / 256;
    if (!is("resume_without_scale")) out.scale_ = scale_;
    if (is("resume_without_clean_count")) {
      ScaleRule rule = scale_.rule();
      rule.init_scale = scale_.scale();
      out.scale_ = LossScale(rule);
    }
    out.running_ = is("resume_without_running_statistics") ? 0 : running_;
    out.dropout_ = dropout_;
    return out;
  }

  bool is(const char* fault) const { return fault_ == fault; }

 private:
  static ScaleRule rule_of(const LoopVariant& variant, const LoopSetup& setup) {
    ScaleRule rule = scale_rule(variant.rule);
    rule.init_scale = setup.scale;
    rule.window = setup.growth_interval;
    return rule;
  }
  float first_scale() const { return static_cast<float>(setup_.scale); }

  void micro_batch(int number, int micro, std::optional<double> poison, bool last) {
    const bool unscaled = is("last_micro_batch_scaled") && micro + 1 < setup_.accumulate;
    const double scale = unscaled ? 1 : scale_.scale();
    scales_.push_back(scale_.scale());
    const auto factor = static_cast<float>(scale) / static_cast<float>(setup_.accumulate);
    for (std::size_t i = 0; i < kWeights; ++i) {
      const auto target = static_cast<float>(std::sin(1.7 * number + 0.9 * static_cast<double>(i)));
      if (variant_.dropout && (draw(dropout_) & 1u) != 0) continue;
      const float g = at_.weights[i] - target;
      loss_ += g * g / 2;
      grads_[i] += g * factor;
    }
    if (is("unseeded")) grads_[0] += static_cast<float>(draw(unseeded_) % 4) * factor;
    if (!poison) {
      last_bad_ = false;
      return;
    }
    grads_[last ? kWeights - 1 : 0] = static_cast<float>(*poison);
    micro_bad_ = last_bad_ = true;
  }

  static std::uint64_t draw(std::uint64_t& state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
  }

  void clip() {
    if (!(setup_.clip > 0)) return;
    float norm = 0;
    for (const float g : grads_) norm += g * g;
    norm = std::sqrt(norm);
    const float most = static_cast<float>(setup_.clip) * (is("clip_times_65536") ? 65536 / scale32() : 1);
    if (norm * (is("limit_of_scaled_norm") ? scale32() : 1) > most)
      for (float& g : grads_) g *= most / norm;
  }
  float scale32() const { return static_cast<float>(scale_.scale()); }

  void step() {
    ++at_.steps;
    if (is("counts_twice")) ++at_.steps;
    ++at_.schedule;
    ++at_.buffer;
    draw(at_.random);
    const float lr = 0.0625f / static_cast<float>(1 + at_.schedule / 4);
    for (std::size_t i = 0; i < kWeights; ++i) {
      const float g = grads_[i];
      at_.first[i] = 0.5f * at_.first[i] + g;
      at_.second[i] = 0.75f * at_.second[i] + g * g;
      if (variant_.decay) at_.weights[i] -= lr * 0.125f * at_.weights[i];
      at_.weights[i] -= lr * (variant_.adam ? at_.first[i] / (std::sqrt(at_.second[i]) + 1e-8f) : at_.first[i]);
    }
  }

  void skip() {
    if (is("decays_on_skip"))
      for (float& w : at_.weights) w *= 0.99f;
    if (is("moves_by_momentum_on_skip"))
      for (std::size_t i = 0; i < kWeights; ++i) at_.weights[i] -= 0.0625f * (at_.first[i] + 0.5f);
    if (is("moments_decay_on_skip"))
      for (float& m : at_.first) m *= 0.5f;
    if (is("moments_cleared_on_skip")) at_.first = {};
    if (is("counts_on_skip")) ++at_.steps;
    if (is("schedule_on_skip")) ++at_.schedule;
    if (is("buffer_on_skip")) ++at_.buffer;
    if (is("random_on_skip")) draw(at_.random);
  }

  LoopVariant variant_;
  LoopSetup setup_;
  std::string fault_;
  LossScale scale_;
  Saved at_;
  Weights grads_{};
  std::vector<double> scales_;
  float loss_ = 0, running_ = 0;
  bool skipped_ = false, micro_bad_ = false, last_bad_ = false;
  std::uint64_t dropout_ = 11;
  std::int64_t kept_ = 0;
  int late_ = 0;
  static inline std::uint64_t unseeded_ = 1;
};

class Small : public Loop {
 public:
  Small(const LoopVariant& variant, std::string fault) : variant_(variant), fault_(std::move(fault)) {}

  std::vector<LoopReply> run(const LoopSetup& setup, std::span<const LoopCall> calls) override {
    std::vector<Rank> ranks(static_cast<std::size_t>(setup.ranks), Rank(variant_, setup, fault_));
    std::vector<LoopReply> out;
    for (const LoopCall& call : calls) {
      if (call.op == LoopOp::reload)
        for (Rank& rank : ranks) rank = rank.reloaded();
      if (call.op == LoopOp::step) step(ranks, call);
      out.emplace_back();
      for (const Rank& rank : ranks) out.back().ranks.push_back(rank.reply());
    }
    return out;
  }
  bool has(Ability ability) const override {
    return !variant_.plain && (ability != Ability::scaler || variant_.scaler);
  }

 private:
  static void replace(Rank& rank) {
    if (rank.is("nan_to_num")) rank.set_bad_to(std::numeric_limits<float>::max());
    if (rank.is("bad_gradients_cleared")) rank.set_bad_to(0);
    if (rank.is("gradients_clamped")) rank.clamp();
    if (rank.is("clips_before_check")) rank.clip_before_check();
    if (rank.is("bad_micro_batch_dropped") || rank.is("last_micro_batch_checked")) rank.clear_bad_micro();
  }

  static void step(std::vector<Rank>& ranks, const LoopCall& call) {
    std::vector<bool> found;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ranks[i].backward(call, call.poison && call.rank == static_cast<int>(i));
      replace(ranks[i]);
      found.push_back(ranks[i].finds());
    }
    const bool any = std::ranges::find(found, true) != found.end();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      Rank& rank = ranks[i];
      const bool mine = rank.is("ranks_skip_alone") ? found[i] : rank.is("rank_0_decides") ? found[0] : any;
      if (rank.is("updates_before_unscale")) {
        rank.move_scale(mine);
        rank.update(mine);
      } else if (rank.is("ranks_scale_alone") && ranks.size() > 1) {
        rank.update(any);
        if (found[i]) rank.move_scale(true);
      } else {
        rank.update(mine);
      }
    }
  }

  LoopVariant variant_;
  std::string fault_;
};

}  // namespace

const std::vector<LoopVariant>& loop_variants() {
  static const std::vector<LoopVariant> all = {
      {.name = "adam"},
      {.name = "sgd", .adam = false},
      {.name = "no_decay", .decay = false},
      {.name = "dropout", .dropout = true},
      {.name = "digests", .digests = true},
      {.name = "silent", .says_skipped = false},
      {.name = "fixed_scale", .scaler = false},
      {.name = "plain", .plain = true},
      {.name = "megatron", .rule = "megatron"},
      {.name = "flax", .rule = "flax"},
      {.name = "deepspeed", .rule = "deepspeed"},
  };
  return all;
}

const std::vector<PlantedLoop>& planted_loops() {
  static const std::vector<PlantedLoop> all = {
      {"unseeded", "L1"},
      {"never_steps", "L2"},
      {"counts_twice", "L2"},
      {"no_check", "L3"},
      {"first_gradient_checked", "L3"},
      {"infinity_checked_alone", "L3"},
      {"nan_checked_alone", "L3"},
      {"positive_infinity_alone", "L3"},
      {"nan_to_num", "L4"},
      {"bad_gradients_cleared", "L4"},
      {"gradients_clamped", "L4"},
      {"decays_on_skip", "L5"},
      {"moves_by_momentum_on_skip", "L5"},
      {"moments_decay_on_skip", "L6"},
      {"moments_cleared_on_skip", "L6"},
      {"counts_on_skip", "L7"},
      {"averages_on_skip", "L8"},
      {"schedule_on_skip", "L9"},
      {"buffer_on_skip", "L10"},
      {"random_on_skip", "L11"},
      {"gradients_kept_after_skip", "L12"},
      {"scale_stays_on_skip", "L13"},
      {"scale_falls_twice", "L13"},
      {"growth_late", "L13"},
      {"never_grows", "L13"},
      {"count_kept_on_skip", "L13"},
      {"no_unscale", "L14"},
      {"unscales_twice", "L14"},
      {"unscales_by_first_scale", "L14"},
      {"updates_before_unscale", "L14"},
      {"clips_scaled", "L15"},
      {"clips_before_check", "L15"},
      {"clip_times_65536", "L15"},
      {"limit_of_scaled_norm", "L15"},
      {"update_each_micro_batch", "L16"},
      {"last_micro_batch_scaled", "L16"},
      {"last_micro_batch_checked", "L17"},
      {"bad_micro_batch_dropped", "L17"},
      {"resume_without_scale", "L18"},
      {"resume_without_clean_count", "L18"},
      {"resume_without_moments", "L19"},
      {"resume_without_average", "L19"},
      {"resume_without_count", "L19"},
      {"resume_without_schedule", "L19"},
      {"resume_without_random_state", "L19"},
      {"resume_without_running_statistics", "L19"},
      {"resume_of_rounded_weights", "L19"},
      {"ranks_skip_alone", "L20"},
      {"ranks_scale_alone", "L20"},
      {"rank_0_decides", "L20"},
  };
  return all;
}

std::unique_ptr<Loop> small_loop(const LoopVariant& variant, const std::string& fault) {
  return std::make_unique<Small>(variant, fault);
}

}  // namespace ampcheck::tests
