// SPDX-License-Identifier: Apache-2.0
// ampcheck's own GradScaler and SGD as a subject of the audit.
#include <cmath>

#include "checks/scaler/calls.h"
#include "src/amp/error.h"
#include "src/amp/optimizers.h"
#include "src/amp/scale_rule.h"

namespace ampcheck::checks::scaler {

namespace {

/// A run's objects: two optimizers of one parameter each.
class Session {
 public:
  Session(const ScaleRule& rule, const Setup& setup) : rule_(configured(rule, setup)), setup_(setup) {
    scaler_ = std::make_unique<RuleGradScaler>(rule_, setup.enabled);
    for (std::size_t i = 0; i < 2; ++i) {
      parameters_[i].name = "w";
      parameters_[i].value = Tensor(Dtype::fp32, {kElements});
      SgdOptions options;
      options.lr = 0.0625;
      options.momentum = 0.5;
      options.fused = setup.fused;
      optimizers_[i] = std::make_unique<Sgd>(std::vector<Parameter*>{&parameters_[i]}, options);
    }
  }

  void take(const Call& call, Reply& reply) {
    const auto number = static_cast<std::size_t>(call.optimizer);
    try {
      act(call, parameters_[number], *optimizers_[number], reply);
    } catch (const AmpError& error) {
      reply.error = true;
      reply.text = error.what();
    }
    reply.scale = reply.other_scale = scaler_->get_scale();
    reply.steps = optimizers_[number]->updates();
    read(parameters_[number].value, reply.weights);
    if (parameters_[number].grad.defined()) read(parameters_[number].grad, reply.grads);
  }

 private:
  static void read(const Tensor& tensor, Values& to) {
    const auto from = tensor.span<float>();
    for (std::size_t i = 0; i < kElements; ++i) to[i] = static_cast<double>(from[i]);
  }

  void act(const Call& call, Parameter& parameter, Sgd& optimizer, Reply& reply) {
    switch (call.op) {
      case Op::scale: {
        Tensor loss(Dtype::fp32, {});
        loss.span<float>()[0] = 1;
        factor_ = scaler_->scale(loss).span<float>()[0];
        reply.scaled = static_cast<double>(factor_);
        break;
      }
      case Op::scale_half: {  // what backward starts from
        const Tensor loss(Dtype::fp16, {});
        scaler_->scale(loss);
        reply.scaled = to_doubles(scaler_->loss_gradient(loss).view()).at(0);
        break;
      }
      case Op::backward: backward(call, parameter); break;
      case Op::unscale: scaler_->unscale_(optimizer); break;
      case Op::corrupt: parameter.grad.span<float>()[0] = INFINITY; break;
      case Op::step: scaler_->step(optimizer); break;
      case Op::update: scaler_->update(); break;
      case Op::zero:
        for (auto& each : optimizers_) each->zero_grad();
        break;
      case Op::set_window: scaler_->set_growth_interval(call.window); break;
      case Op::reload: {
        const GradScaler::StateDict state = scaler_->state_dict();
        scaler_ = std::make_unique<RuleGradScaler>(rule_, setup_.enabled);
        scaler_->load_state_dict(state);
        break;
      }
      case Op::schedule: break;
    }
  }

  void backward(const Call& call, Parameter& parameter) const {
    const bool first = !parameter.grad.defined();
    if (first) parameter.grad = Tensor(Dtype::fp32, {kElements});
    const auto grads = parameter.grad.span<float>();
    for (std::size_t i = 0; i < kElements; ++i) {
      const double more = call.grads[i] * (call.raw ? 1.0 : static_cast<double>(factor_));
      grads[i] = static_cast<float>((first ? 0.0 : static_cast<double>(grads[i])) + more);
    }
  }

  ScaleRule rule_;
  Setup setup_;
  std::unique_ptr<RuleGradScaler> scaler_;
  std::array<Parameter, 2> parameters_;
  std::array<std::unique_ptr<Sgd>, 2> optimizers_;
  float factor_ = 1;
};

class BuiltIn : public Subject {
 public:
  explicit BuiltIn(const ScaleRule& rule) : rule_(rule) {}
  std::vector<Reply> run(const Setup& setup, std::span<const Call> calls) override {
    Session session(rule_, setup);
    std::vector<Reply> out;
    for (const Call& call : calls) {
      out.emplace_back();
      session.take(call, out.back());
      if (out.back().error) break;
    }
    return out;
  }
  bool has_fused() const override { return true; }
  bool has_half() const override { return true; }

 private:
  ScaleRule rule_;
};

}  // namespace

std::unique_ptr<Subject> built_in_scaler(const ScaleRule& rule) { return std::make_unique<BuiltIn>(rule); }

}  // namespace ampcheck::checks::scaler
