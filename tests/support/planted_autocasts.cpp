// SPDX-License-Identifier: Apache-2.0
#include "tests/support/planted_autocasts.h"

#include <algorithm>
#include <utility>

namespace ampcheck::tests {

namespace {

using namespace checks::autocast;

/// A thread's state, as torch keeps it.
struct State {
  bool on = false, cache = true;
  Dtype dtype = Dtype::fp16;
};

struct Kept {
  Dtype dtype = Dtype::fp16;
  int value = 0;
  bool grad = true;
};

bool low(Dtype dtype) { return dtype == Dtype::fp16 || dtype == Dtype::bf16; }

class Small {
 public:
  Small(const AutocastList& list, AutocastDevice device, const std::string& fault) : list_(list), fault_(fault) {
    now_.dtype =
        is("default_dtype_swapped") == (default_autocast_dtype(device) == Dtype::bf16) ? Dtype::fp16 : Dtype::bf16;
    first_ = now_;
  }

  Reply take(const Action& a) {
    Reply reply;
    switch (a.what) {
      case Do::enter: enter(a); break;
      case Do::leave: leave(); break;
      case Do::raise: raise(); break;
      case Do::call: call(a, reply); break;
      case Do::use: use(a, reply); break;
      case Do::update: ++weight_; break;
      case Do::clear:
        if (!is("clear_does_nothing")) kept_.clear();
        break;
      case Do::custom: custom(a, reply); break;
    }
    reply.enabled = now_.on;
    reply.dtype = now_.dtype;
    reply.held = std::ssize(kept_);
    return reply;
  }

 private:
  bool is(const char* fault) const { return fault_ == fault; }
  bool eligible(Dtype d) const {
    return d == Dtype::fp32 || low(d) || (d == Dtype::fp64 && is("casts_fp64")) ||
           (d == Dtype::i64 && is("casts_integers"));
  }

  void enter(const Action& a) {
    before_.push_back(now_);
    if (a.enabled || !is("off_does_nothing")) now_.on = a.enabled;
    now_.dtype = a.dtype.value_or(is("inner_forgets_dtype") ? first_.dtype : now_.dtype);
    now_.cache = a.cache || is("cache_false_ignored");
  }

  void leave() {
    if (before_.empty()) return;
    const Dtype dtype = now_.dtype;
    now_ = before_.back();
    if (is("leave_keeps_dtype")) now_.dtype = dtype;
    if (is("leave_turns_off")) now_.on = false;
    before_.pop_back();
    if ((before_.empty() && !is("outermost_keeps_cache")) || is("inner_leave_clears")) kept_.clear();
  }

  void raise() {
    if (is("exception_keeps_region")) {
      before_.clear();
      kept_.clear();
      return;
    }
    while (!before_.empty()) leave();
  }

  State state_for(const Action& a) const {
    if (a.thread == Thread::fresh) return is("new_thread_inherits") ? now_ : first_;
    if (a.thread == Thread::handed && is("handed_thread_forgets")) return first_;
    return now_;
  }

  CastPolicy policy(const std::string& op) const {
    if (is("list_lacks_linear") && op == "linear") return CastPolicy::unlisted;
    if (is("list_has_relu") && op == "relu") return CastPolicy::lower_precision_fp;
    if (is("list_has_mse_low") && op == "mse_loss") return CastPolicy::lower_precision_fp;
    const CastPolicy of = list_.policy(op);
    return of == CastPolicy::banned && is("bans_nothing") ? CastPolicy::unlisted : of;
  }

  void call(const Action& a, Reply& reply) const {
    const State s = state_for(a);
    const CastPolicy p = policy(a.op);
    reply.inputs = a.inputs;
    reply.given = a.given;
    if (p == CastPolicy::banned && (s.on || is("bans_everywhere"))) reply.error = true;
    const bool bypasses =
        (a.form == Form::in_place && !is("casts_in_place")) || (a.form == Form::out && !is("casts_out"));
    if (!s.on || bypasses || reply.error) return;
    apply(p, s, a, reply);
  }

  void cast_all(Reply& reply, Dtype to) const {
    for (std::size_t i = 0; i < reply.inputs.size(); ++i)
      if (eligible(reply.inputs[i]) && (i == 0 || !is("casts_first_argument_only"))) reply.inputs[i] = to;
  }

  void apply(CastPolicy p, const State& s, const Action& a, Reply& reply) const {
    const auto foreign = [&](Dtype d) { return low(d) && d != s.dtype; };
    if (p == CastPolicy::lower_precision_fp) {
      if (is("refuses_foreign") && std::ranges::any_of(a.inputs, foreign)) reply.error = true;
      cast_all(reply, s.dtype);
    } else if (p == CastPolicy::fp32) {
      const bool all_low = std::ranges::all_of(a.inputs, low);
      if (!all_low || !is("fp32_class_keeps_low")) cast_all(reply, Dtype::fp32);
    } else if (p == CastPolicy::fp32_set_opt_dtype || p == CastPolicy::fp32_append_dtype) {
      const Dtype first = a.inputs.front();
      if (a.given && !is("overrides_given_dtype")) return;
      if (low(first) && is("sets_no_dtype_for_low")) return;
      if (eligible(first))
        reply.given = Dtype::fp32;
      else if (p == CastPolicy::fp32_append_dtype)
        reply.given = first;
    } else if (p == CastPolicy::promote) {
      bool wide = false;
      for (const Dtype d : a.inputs) {
        if (foreign(d) && !wide && !is("promotes_foreign")) reply.error = true;
        wide |= d == Dtype::fp32;
      }
      if (is("promotes_to_first")) wide = a.inputs.front() == Dtype::fp32;
      cast_all(reply, wide ? Dtype::fp32 : s.dtype);
    }
  }

  void use(const Action& a, Reply& reply) {
    const State s = state_for(a);
    reply.used = s.on ? s.dtype : Dtype::fp32;
    reply.value = weight_;
    reply.grad = !a.no_grad;
    if (is("gradient_in_16_bits") && s.on) reply.grad_dtype = s.dtype;
    const bool caches = s.on && s.cache && !before_.empty() && a.thread != Thread::fresh;
    if (!caches) return;
    auto found =
        std::ranges::find_if(kept_, [&](const Kept& k) { return k.dtype == s.dtype || is("key_without_dtype"); });
    if (found == kept_.end())
      found = kept_.insert(kept_.end(), {s.dtype, weight_, !a.no_grad || !is("no_grad_cast_kept")});
    reply.used = found->dtype;
    reply.value = found->value;
    reply.grad = reply.grad && found->grad;
  }

  void custom(const Action& a, Reply& reply) const {
    const bool casts = a.given && (now_.on || is("custom_casts_outside")) && !is("custom_ignores_cast_inputs");
    reply.inside = now_.on && (!casts || is("custom_leaves_autocast_on"));
    reply.inside_dtype = now_.dtype;
    for (const Dtype d : a.inputs)
      reply.inputs.push_back(casts && (eligible(d) || (d == Dtype::fp64 && is("custom_casts_fp64"))) ? *a.given : d);
    reply.backward = now_.on && !casts && !is("custom_backward_is_off");
    reply.backward_dtype = is("custom_backward_in_default_dtype") ? first_.dtype : now_.dtype;
  }

  const AutocastList& list_;
  const std::string& fault_;
  State now_, first_;
  std::vector<State> before_;
  std::vector<Kept> kept_;
  int weight_ = 1;
};

class SmallSubject final : public Subject {
 public:
  SmallSubject(AutocastList list, AutocastDevice device, std::string fault)
      : list_(std::move(list)), device_(device), fault_(std::move(fault)) {}
  std::vector<Reply> run(std::span<const Action> actions) override {
    Small small(list_, device_, fault_);
    std::vector<Reply> out;
    for (const Action& action : actions) {
      out.push_back(small.take(action));
      if (out.back().error) break;
    }
    return out;
  }

 private:
  AutocastList list_;
  AutocastDevice device_;
  std::string fault_;
};

}  // namespace

const std::vector<PlantedAutocast>& planted_autocasts() {
  static const std::vector<PlantedAutocast> kAll = {
      {"list_lacks_linear", "A1"},
      {"list_has_relu", "A1"},
      {"list_has_mse_low", "A1"},
      {"casts_first_argument_only", "A2"},
      {"fp32_class_keeps_low", "A2"},
      {"sets_no_dtype_for_low", "A2"},
      {"promotes_to_first", "A2"},
      {"promotes_foreign", "A4"},
      {"refuses_foreign", "A4"},
      {"casts_fp64", "A5"},
      {"casts_integers", "A5"},
      {"casts_in_place", "A6"},
      {"casts_out", "A6"},
      {"overrides_given_dtype", "A6"},
      {"bans_nothing", "A7"},
      {"bans_everywhere", "A7"},
      {"default_dtype_swapped", "A9"},
      {"off_does_nothing", "A9"},
      {"inner_forgets_dtype", "A9"},
      {"leave_keeps_dtype", "A9"},
      {"leave_turns_off", "A9"},
      {"exception_keeps_region", "A9"},
      {"new_thread_inherits", "A9"},
      {"handed_thread_forgets", "A9"},
      {"gradient_in_16_bits", "A9"},
      {"cache_false_ignored", "A10"},
      {"outermost_keeps_cache", "A10"},
      {"inner_leave_clears", "A10"},
      {"clear_does_nothing", "A10"},
      {"no_grad_cast_kept", "A10"},
      {"key_without_dtype", "A10"},
      {"custom_ignores_cast_inputs", "A11"},
      {"custom_casts_outside", "A11"},
      {"custom_leaves_autocast_on", "A11"},
      {"custom_casts_fp64", "A11"},
      {"custom_backward_is_off", "A11"},
      {"custom_backward_in_default_dtype", "A11"},
  };
  return kAll;
}

std::unique_ptr<Subject> small_autocast(const AutocastList& list, AutocastDevice device, const std::string& fault) {
  return std::make_unique<SmallSubject>(list, device, fault);
}

}  // namespace ampcheck::tests
