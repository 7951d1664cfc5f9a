// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "checks/autocast/scenarios.h"

namespace ampcheck::checks::autocast {

namespace {

constexpr char kKept[] = " are";

std::string dtypes_text(const std::vector<Dtype>& dtypes) {
  std::string out;
  for (const Dtype dtype : dtypes) out += (out.empty() ? "" : ", ") + std::string(ampcheck::name(dtype));
  return "(" + out + ")";
}

std::string given_text(const std::optional<Dtype>& given) { return given ? ampcheck::name(*given) : "none"; }

std::string state_text(bool enabled, Dtype dtype) {
  return enabled ? "on in " + std::string(ampcheck::name(dtype)) : "off";
}

std::string call_difference(const Reply& got, const Reply& due) {
  if (got.inputs != due.inputs)
    return fmt::format("the arguments have to become {}, and become {}", dtypes_text(due.inputs),
                       dtypes_text(got.inputs));
  if (got.given != due.given)
    return fmt::format("dtype= has to be {}, and is {}", given_text(due.given), given_text(got.given));
  return "";
}

std::string use_difference(const Reply& got, const Reply& due) {
  if (got.used != due.used)
    return fmt::format("the product has to run in {}, and runs in {}", ampcheck::name(due.used),
                       ampcheck::name(got.used));
  if (got.value != due.value) return fmt::format("the product has to see weight {}, and sees {}", due.value, got.value);
  if (got.grad != due.grad)
    return due.grad ? "the weight has to get a gradient, and gets none" : "the weight gets a gradient under no_grad";
  if (due.grad && got.grad_dtype != due.grad_dtype)
    return fmt::format("the weight's gradient has to be {}, and is {}", ampcheck::name(due.grad_dtype),
                       ampcheck::name(got.grad_dtype));
  return "";
}

std::string custom_difference(const Reply& got, const Reply& due) {
  if (const std::string text = call_difference(got, due); !text.empty()) return text;
  const auto differs = [](bool a, Dtype of_a, bool b, Dtype of_b) { return a != b || (a && of_a != of_b); };
  if (differs(got.inside, got.inside_dtype, due.inside, due.inside_dtype))
    return fmt::format("autocast has to be {} in forward, and is {}", state_text(due.inside, due.inside_dtype),
                       state_text(got.inside, got.inside_dtype));
  if (differs(got.backward, got.backward_dtype, due.backward, due.backward_dtype))
    return fmt::format("autocast has to be {} in backward, and is {}", state_text(due.backward, due.backward_dtype),
                       state_text(got.backward, got.backward_dtype));
  return "";
}

/// How a reply differs from what is due; nothing if it does not.
std::string difference(const Action& action, const Reply& got, const Reply& due) {
  if (got.error != due.error)
    return due.error ? fmt::format("it has to be refused ({}), and is not", due.text)
                     : fmt::format("it is refused ({}), and has to be done", got.text.substr(0, got.text.find('\n')));
  if (got.error) return "";
  std::string text = action.what == Do::call     ? call_difference(got, due)
                     : action.what == Do::use    ? use_difference(got, due)
                     : action.what == Do::custom ? custom_difference(got, due)
                                                 : "";
  if (!text.empty()) return text;
  if (got.enabled != due.enabled || (due.enabled && got.dtype != due.dtype))
    return fmt::format("autocast has to be {}, and is {}", state_text(due.enabled, due.dtype),
                       state_text(got.enabled, got.dtype));
  if (got.held >= 0 && got.held != due.held)
    return fmt::format("{} casts have to be kept, and {}{}", due.held, got.held, kKept);
  return "";
}

class Auditor {
 public:
  Auditor(Subject& subject, const AutocastList& list, AutocastDevice device)
      : subject_(subject), list_(list), device_(device) {}

  RulesAudit audit(int sequences) {
    for (const Scenario& scenario : scenarios(list_, subject_)) run(scenario);
    for (const Ideal& ideal : ideals(subject_)) run(ideal);
    if (out_.results.headline() == nullptr) search(subject_.is_fast() ? sequences : sequences / 10);
    return std::move(out_);
  }

 private:
  /// The first action that differs, and how.
  std::string first_difference(const std::vector<Action>& actions, std::size_t& at) {
    const std::vector<Reply> due = what_is_due(list_, device_, actions), got = subject_.run(actions);
    ++out_.sequences;
    out_.actions += static_cast<std::int64_t>(got.size());
    for (at = 0; at < std::min(due.size(), got.size()); ++at) {
      std::string text = difference(actions[at], got[at], due[at]);
      if (!text.empty()) return text;
    }
    return "";
  }

  void run(const Scenario& s) {
    if (out_.results.at(s.code).outcome == Outcome::failed) return;
    std::size_t at = 0;
    const std::string text = first_difference(s.actions, at);
    if (text.empty())
      out_.results.add(s.code, Outcome::passed);
    else
      report(code_of(s.actions[at].what, text, s.code), s.actions, at);
  }

  /// What a difference is about, whatever the sequence was made for: what is kept, a region, or an action.
  static const char* code_of(Do what, const std::string& text, const char* code) {
    if (text.ends_with(kKept)) return "A10";
    return what == Do::enter || what == Do::leave || what == Do::raise ? "A9" : code;
  }

  void run(const Ideal& ideal) {
    const std::vector<Reply> got = subject_.run(ideal.actions);
    ++out_.sequences;
    out_.actions += static_cast<std::int64_t>(got.size());
    if (std::string text = ideal.judge(got); !text.empty())
      out_.results.add(ideal.code, Outcome::weak, std::move(text), texts(ideal.actions));
  }

  static std::vector<std::string> texts(const std::vector<Action>& actions) {
    std::vector<std::string> out;
    for (const Action& action : actions) out.push_back(action.str());
    return out;
  }

  /// Drops actions while it still differs.
  void report(const char* code, std::vector<Action> actions, std::size_t at) {
    actions.resize(at + 1);
    for (bool shorter = true; shorter;) {
      shorter = false;
      for (std::size_t i = 0; i < actions.size() && !shorter; ++i) {
        std::vector<Action> less = actions;
        less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
        std::size_t where = 0;
        if (first_difference(less, where).empty()) continue;
        less.resize(where + 1);
        actions = std::move(less);
        shorter = true;
      }
    }
    const std::string says = first_difference(actions, at);
    out_.results.add(code, Outcome::failed, actions.back().str() + ": " + says, texts(actions));
  }

  /// Actions at random, of which nothing is left out that could follow one another.
  void search(int sequences) {
    std::uint64_t state = 0x9E3779B97F4A7C15u;
    const auto draw = [&state](std::size_t of) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::size_t>((state >> 33) % of);
    };
    std::vector<Action> alphabet = letters();
    std::erase_if(alphabet, [&](const Action& a) {
      return (a.what == Do::call && !subject_.has_calls()) || (a.what == Do::custom && !subject_.has_custom()) ||
             (a.thread != Thread::here && !subject_.has_threads());
    });
    for (int i = 0; i < sequences; ++i) {
      std::vector<Action> actions;
      while (actions.size() < 16) actions.push_back(alphabet[draw(alphabet.size())]);
      std::size_t at = 0;
      if (first_difference(actions, at).empty()) continue;
      const Do what = actions[at].what;
      return report(what == Do::use ? "A10" : what == Do::custom ? "A11" : what == Do::call ? "A2" : "A9", actions, at);
    }
  }

  static std::vector<Action> letters() {
    using enum Do;
    return {{.what = enter},
            {.what = enter, .dtype = Dtype::fp16},
            {.what = enter, .dtype = Dtype::bf16},
            {.what = enter, .enabled = false},
            {.what = enter, .cache = false},
            {.what = leave},
            {.what = leave},
            {.what = leave},
            {.what = raise},
            {.what = call, .op = "linear", .inputs = {Dtype::fp32, Dtype::fp32}},
            {.what = call, .op = "relu", .inputs = {Dtype::fp16}},
            {.what = call, .op = "linear", .inputs = {Dtype::fp32}, .thread = Thread::fresh},
            {.what = use},
            {.what = use, .no_grad = true},
            {.what = use, .thread = Thread::handed},
            {.what = update},
            {.what = clear},
            {.what = custom, .inputs = {Dtype::fp32}},
            {.what = custom, .inputs = {Dtype::fp32}, .given = Dtype::bf16}};
  }

  Subject& subject_;
  const AutocastList& list_;
  AutocastDevice device_;
  RulesAudit out_;
};

}  // namespace

RulesAudit audit_rules(Subject& subject, const AutocastList& list, AutocastDevice device, int sequences) {
  return Auditor(subject, list, device).audit(sequences);
}

std::string Action::str() const {
  const std::string on = thread == Thread::fresh    ? " on a new thread"
                         : thread == Thread::handed ? " on a thread that was handed the regions"
                                                    : "";
  switch (what) {
    case Do::enter:
      return enabled
                 ? "autocast(" + (dtype ? std::string(ampcheck::name(*dtype)) : "") + (cache ? ")" : " without cache)")
                 : "autocast(off)";
    case Do::leave: return "leave";
    case Do::raise: return "an exception leaves all regions";
    case Do::call:
      return (form == Form::in_place ? op + "_" : op) + dtypes_text(inputs) +
             (given ? " dtype=" + given_text(given) : "") + (form == Form::out ? " out=" : "") + on;
    case Do::use: return std::string("product with the weight") + (no_grad ? " under no_grad" : "") + on;
    case Do::update: return "update of the weight in place";
    case Do::clear: return "clear the cache";
    case Do::custom: return "custom op" + dtypes_text(inputs) + (given ? " cast_inputs=" + given_text(given) : "");
  }
  return "";
}

}  // namespace ampcheck::checks::autocast
