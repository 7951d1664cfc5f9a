// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// The program's own autocast (src/amp/autocast.h) and the graph that trains under it, as a subject.
#include <exception>
#include <thread>
#include <utility>

#include "checks/autocast/actions.h"
#include "checks/train/graph.h"
#include "src/amp/autocast.h"
#include "src/amp/error.h"
#include "src/amp/grad_mode.h"

namespace ampcheck::checks::autocast {

namespace {

constexpr char kWeight[] = "layer.weight";

struct Raised {};

/// Runs `work` on a thread of its own, and hands on what it throws.
template <class Work>
void on_thread(const Work& work) {
  std::exception_ptr thrown;
  std::thread thread([&] {
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  thread.join();
  if (thrown) std::rethrow_exception(thrown);
}

class Player {
 public:
  Player(AutocastDevice device, std::span<const Action> actions) : device_(device), actions_(actions) {
    parameters_.set(kWeight, {1, 1}, {1});
  }

  std::vector<Reply> play() {
    while (at_ < actions_.size() && !refused_) {
      try {
        play_region(true);
      } catch (const Raised&) {
        note({});
      }
    }
    return std::move(replies_);
  }

 private:
  /// Until the region ends: each region is a scope, as it is in a program.
  void play_region(bool outermost) {
    while (at_ < actions_.size() && !refused_) {
      const Action& action = actions_[at_];
      if (action.what == Do::leave && !outermost) return;
      if (action.what == Do::raise) throw Raised();
      if (action.what != Do::enter) {
        note(take(action));
        continue;
      }
      {
        const Autocast region(device_,
                              {.dtype = action.dtype, .enabled = action.enabled, .cache_enabled = action.cache});
        note({});
        play_region(false);
      }
      if (at_ < actions_.size() && !refused_ && actions_[at_].what == Do::leave) note({});
    }
  }

  void note(Reply reply) {
    const AutocastState state = autocast_state(device_);
    reply.enabled = state.enabled;
    reply.dtype = state.dtype;
    reply.held = static_cast<std::int64_t>(cached_casts());
    refused_ = reply.error;
    replies_.push_back(std::move(reply));
    ++at_;
  }

  Reply take(const Action& action) {
    Reply reply;
    const auto act = [&] {
      switch (action.what) {
        case Do::call: return call(action, reply);
        case Do::use: return use(action, reply);
        case Do::custom: return custom(action, reply);
        case Do::update: parameters_.find(kWeight)->value.span<float>()[0] += 1; return;
        case Do::clear: clear_autocast_cache(); return;
        default: return;
      }
    };
    try {
      if (action.thread == Thread::here)
        act();
      else if (action.thread == Thread::fresh)
        on_thread(act);
      else
        on_thread(with_autocast(act));
    } catch (const AmpError& error) {
      reply.error = true;
      reply.text = error.what();
    }
    return reply;
  }

  void call(const Action& action, Reply& reply) const {
    const CallForm form = action.form == Form::functional ? CallForm::functional
                          : action.form == Form::in_place ? CallForm::in_place
                                                          : CallForm::out;
    CastDecision decision = decide_casts(device_, action.op, action.inputs, action.given, form);
    reply.inputs = std::move(decision.inputs);
    reply.given = decision.dtype;
  }

  void use(const Action& action, Reply& reply) {
    train::Graph graph(parameters_, recordings_, {.autocast = device_});
    const auto product = [&] {
      const models::Var weight = graph.parameter(kWeight, {1, 1}, 0, 0);
      return graph.call("linear", {{"x", graph.data({1, 1}, {1})}, {"weight", weight}});
    };
    models::Var y;
    if (action.no_grad) {
      const NoGrad off;
      y = product();
    } else {
      y = product();
    }
    reply.used = graph.dtype(y);
    reply.value = static_cast<int>(to_doubles(graph.view(y)).front());
    if (action.no_grad) return;
    parameters_.clear_grads();
    graph.add_loss(y, 1);
    graph.backward(1, 1);
    const Tensor& grad = parameters_.find(kWeight)->grad;
    reply.grad = grad.defined() && to_doubles(grad.view()).front() == 1;
    if (grad.defined()) reply.grad_dtype = grad.dtype();
  }

  void custom(const Action& action, Reply& reply) const {
    CustomOpContext context;
    {
      const CustomForward forward(device_, action.given);
      context = forward.context();
      for (const Dtype input : action.inputs) reply.inputs.push_back(forward.input_dtype(input));
      reply.inside = autocast_state(device_).enabled;
      reply.inside_dtype = autocast_state(device_).dtype;
    }
    on_thread([&] {
      const CustomBackward backward(context);
      reply.backward = autocast_state(device_).enabled;
      reply.backward_dtype = autocast_state(device_).dtype;
    });
  }

  AutocastDevice device_;
  std::span<const Action> actions_;
  std::size_t at_ = 0;
  bool refused_ = false;
  std::vector<Reply> replies_;
  train::ParameterSet parameters_{"audit", 1};
  models::Recordings recordings_;
};

class BuiltIn final : public Subject {
 public:
  explicit BuiltIn(AutocastDevice device) : device_(device) {}
  std::vector<Reply> run(std::span<const Action> actions) override {
    std::vector<Reply> out;
    on_thread([&] { out = Player(device_, actions).play(); });
    return out;
  }

 private:
  AutocastDevice device_;
};

}  // namespace

std::unique_ptr<Subject> built_in_autocast(AutocastDevice device) { return std::make_unique<BuiltIn>(device); }

}  // namespace ampcheck::checks::autocast
