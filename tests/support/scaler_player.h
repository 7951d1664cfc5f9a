// SPDX-License-Identifier: Apache-2.0
// Plays one recorded scenario of calls to torch's GradScaler through ours.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/amp/clip.h"
#include "src/amp/error.h"
#include "src/amp/grad_scaler.h"
#include "src/amp/lr_schedule.h"
#include "tests/support/golden_optimizers.h"
#include "tests/support/goldens.h"

namespace ampcheck::tests {

inline Tensor tensor(Dtype dtype, const Shape& shape, std::vector<double> values) {
  Tensor made(dtype, shape);
  from_doubles(values, made.view());
  return made;
}

inline GradScalerOptions scaler_options(const Golden& args) {
  GradScalerOptions options;
  options.init_scale = argument(args, "init_scale", options.init_scale);
  options.growth_factor = argument(args, "growth_factor", options.growth_factor);
  options.backoff_factor = argument(args, "backoff_factor", options.backoff_factor);
  options.growth_interval = static_cast<std::int32_t>(argument(args, "growth_interval", options.growth_interval));
  options.enabled = argument(args, "enabled", 1.0) != 0.0;
  return options;
}

/// torch's test optimizers: one that records what it sees, one that claims to handle the scale and does not.
class RecordingOptimizer : public Optimizer {
 public:
  using Optimizer::Optimizer;
  bool supports_amp_scaling() const override { return true; }
  std::optional<float> saw_grad_scale, saw_found_inf;

 protected:
  bool update() override {
    saw_grad_scale = grad_scale;
    saw_found_inf = found_inf;
    return true;
  }
};

class NoScaleOptimizer : public Optimizer {
 public:
  using Optimizer::Optimizer;
  bool supports_amp_scaling() const override { return true; }

 protected:
  bool update() override {
    for (Parameter* parameter : parameters_) {
      const auto grad = parameter->grad.span<float>();
      const auto value = parameter->value.span<float>();
      for (std::size_t i = 0; i < value.size(); ++i) value[i] -= static_cast<float>(lr_) * grad[i];
    }
    return true;
  }
};

/// Plays one recorded scenario and compares everything that was recorded, after every call.
class Player {
 public:
  explicit Player(const Golden& scenario) : scenario_(scenario) {
    const Golden& params = scenario.at("params");
    for (std::size_t i = 0; i < params.size(); ++i) {
      Parameter& parameter = params_[params.keys[i]];
      parameter.name = params.keys[i];
      parameter.value = tensor_of(params[i]);
      expected_["param " + params.keys[i]] = &params[i];
    }
    const Golden& optimizers = scenario.at("optimizers");
    for (std::size_t i = 0; i < optimizers.size(); ++i) add_optimizer(optimizers.keys[i], optimizers[i]);
  }

  /// Why this call has no counterpart in C++; empty if it has one.
  static std::string python_only(const Golden& scenario) {
    const Golden& optimizers = scenario.at("optimizers");
    for (const Golden& optimizer : optimizers)
      if (optimizer.at("class").text == "PassItselfOptimizer") return "the deprecated keyword grad_scaler= of step()";
    for (const Golden& call : scenario.at("calls")) {
      const Golden& what = call.at("do");
      if (what.at("call").text == "scale_bad" && what.at("what").text != "none" &&
          what.at("what").text != "list_of_none")
        return "no such argument compiles";
      if (what.contains("form") && what.at("form").text == "int")
        return "an int converts to double here, torch raises AttributeError";
    }
    return "";
  }

  void play() {
    for (const Golden& call : scenario_.at("calls")) {
      const Golden& what = call.at("do");
      SCOPED_TRACE(scenario_.at("name").text + ", call " + std::to_string(number_++) + " " + what.at("call").text);
      const Golden* error = call.find("error");
      call_ = &call;
      static const Golden none;  // what is asked of it throws
      const Golden* const result = call.find("result");
      result_ = result != nullptr ? result : &none;
      std::string got_error;
      try {
        perform(what);
      } catch (const AmpError& e) {
        got_error = std::string(e.type) + ": " + e.what();
      }
      const std::string want_error = error == nullptr ? "" : error->at("type").text + ": " + error->at("message").text;
      EXPECT_EQ(got_error, keyword_ ? "" : want_error);
      keyword_ = false;
      const Golden* after = call.find("after");
      if (!scaler_) {  // it could not be constructed, and no call follows
        EXPECT_EQ(after, nullptr);
        return;
      }
      if (after != nullptr) compare(*after);
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  void add_optimizer(const std::string& name, const Golden& spec) {
    std::vector<Parameter*> mine;
    for (const Golden& param : spec.at("params")) mine.push_back(&params_.at(param.text));
    const std::string& kind = spec.at("class").text;
    const double lr = argument(spec.at("args"), "lr", 1e-3);
    if (kind == "AttributeOptimizer")
      optimizers_[name] = std::make_unique<RecordingOptimizer>(mine, lr);
    else if (kind == "NoScaleOptimizer")
      optimizers_[name] = std::make_unique<NoScaleOptimizer>(mine, lr);
    else
      optimizers_[name] = make_optimizer(kind, spec.at("args"), mine);
  }

  static void set_grad(Parameter& parameter, const Golden& spec) {
    parameter.clear_grad();
    if (spec.is_null()) return;
    if (const Golden* indices = spec.find("indices")) {
      parameter.grad = tensor_of(spec.at("values"));
      parameter.sparse_rows.emplace();
      for (const Golden& row : (*indices)[0]) parameter.sparse_rows->push_back(static_cast<std::int64_t>(row.value));
    } else {
      parameter.grad = tensor_of(spec);
    }
  }

  static void accumulate(Parameter& parameter, const Tensor& grad) {
    if (!parameter.grad.defined()) {
      parameter.grad = grad;
      return;
    }
    std::vector<double> sum = to_doubles(parameter.grad.view());
    const std::vector<double> more = to_doubles(grad.view());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
    from_doubles(sum, parameter.grad.view());
  }

  std::vector<Parameter*> named(const Golden& names) {
    std::vector<Parameter*> list;
    for (const Golden& name : names) list.push_back(&params_.at(name.text));
    return list;
  }

  /// loss = sum(w * c) in the loss's dtype; its gradient enters as the scaler says.
  void backward(const Golden& what) {
    Parameter& w = params_.at(what.at("param").text);
    const Tensor c = tensor_of(what.at("coefficients"));
    float sum = 0.0f;
    for (std::size_t i = 0; i < c.span<float>().size(); ++i) sum += w.value.span<float>()[i] * c.span<float>()[i];
    Shape shape;
    if (const Golden* extents = what.find("loss_shape"))
      for (const Golden& extent : *extents) shape.extent[shape.rank++] = static_cast<std::int64_t>(extent.value);
    const Tensor loss = tensor(dtype_of(what.at("loss_dtype").text), shape, {static_cast<double>(sum)});
    EXPECT_TRUE(same_tensor(loss, result_->at("loss")));
    EXPECT_TRUE(same_tensor(scaler_->scale(loss), result_->at("scaled")));
    const auto incoming = static_cast<float>(to_doubles(scaler_->loss_gradient(loss).view())[0]);
    Tensor grad(Dtype::fp32, c.shape());
    for (std::size_t i = 0; i < c.span<float>().size(); ++i) grad.span<float>()[i] = incoming * c.span<float>()[i];
    accumulate(w, grad);
  }

  using Call = void (Player::*)(const Golden& what);

  void perform(const Golden& what) {
    static const std::map<std::string, Call> kCalls = {{"construct", &Player::construct},
                                                       {"new_scaler", &Player::construct},
                                                       {"scale", &Player::scale},
                                                       {"scale_nested", &Player::scale_nested},
                                                       {"scale_generator", &Player::scale_generator},
                                                       {"scale_bad", &Player::scale_bad},
                                                       {"set_grads", &Player::set_grads},
                                                       {"add_grads", &Player::add_grads},
                                                       {"backward", &Player::backward},
                                                       {"penalty", &Player::penalty},
                                                       {"unscale_", &Player::unscale},
                                                       {"clip_grad_norm_", &Player::clip_grad_norm},
                                                       {"clip_grad_value_", &Player::clip_grad_value},
                                                       {"step", &Player::step},
                                                       {"update", &Player::update},
                                                       {"setter", &Player::setter},
                                                       {"getters", &Player::getters},
                                                       {"state_dict", &Player::state_dict},
                                                       {"load_state_dict", &Player::load_state_dict},
                                                       {"pickle", &Player::pickle},
                                                       {"zero_grad", &Player::zero_grad},
                                                       {"new_optimizer", &Player::new_optimizer},
                                                       {"set_optimizer_attribute", &Player::set_grad_scale},
                                                       {"optimizer_step_directly", &Player::step_directly},
                                                       {"make_scheduler", &Player::make_scheduler},
                                                       {"scheduler_step", &Player::scheduler_step}};
    const auto call = kCalls.find(what.at("call").text);
    ASSERT_TRUE(call != kCalls.end()) << "unknown call " << what.at("call").text;
    (this->*call->second)(what);
  }

  void construct(const Golden& what) {
    scaler_.emplace(scaler_options(what.at("args")));
    const Golden* enabled = result_->find("enabled");
    EXPECT_TRUE(enabled == nullptr || scaler_->is_enabled() == enabled->truth);
  }

  void scale(const Golden& what) {
    const Tensor scaled = scaler_->scale(tensor_of(what.at("outputs")));  // where it throws there is no result
    EXPECT_TRUE(same_tensor(scaled, result_->at("output")));
  }
  void scale_nested(const Golden& what) {
    const Tensor output = tensor_of(what.at("outputs"));
    const std::tuple nested{output, std::tuple{output, std::vector{output}}};
    const auto scaled = scaler_->scale(nested);
    EXPECT_TRUE(same_tensor(std::get<0>(scaled), result_->at("outputs")[0]));
    EXPECT_TRUE(same_tensor(std::get<0>(std::get<1>(scaled)), result_->at("outputs")[1]));
    EXPECT_TRUE(same_tensor(std::get<1>(std::get<1>(scaled))[0], result_->at("outputs")[2]));
  }
  void scale_generator(const Golden& what) {
    const std::vector outputs{tensor_of(what.at("outputs"))};
    const auto lazy = scaler_->scale_lazily(outputs);
    EXPECT_EQ(!scaler_->scale_value().has_value(), result_->at("scale_still_none_before_iteration").truth);
    for (const Tensor scaled : lazy) EXPECT_TRUE(same_tensor(scaled, result_->at("outputs")[0]));
  }
  void scale_bad(const Golden& what) {
    if (what.at("what").text == "none")
      scaler_->scale(Tensor());
    else
      scaler_->scale(std::vector<Tensor>(1));
  }

  void set_grads(const Golden& what) {
    const Golden& grads = what.at("grads");
    for (std::size_t i = 0; i < grads.size(); ++i) set_grad(params_.at(grads.keys[i]), grads[i]);
  }
  void add_grads(const Golden& what) {
    const Golden& grads = what.at("grads");
    for (std::size_t i = 0; i < grads.size(); ++i) accumulate(params_.at(grads.keys[i]), tensor_of(grads[i]));
  }

  /// Double backward is the training loop's: the scaler's part is played with its gradients.
  void penalty(const Golden&) {
    penalty_ = true;
    const Tensor incoming = scaler_->loss_gradient(tensor(Dtype::fp32, {}, {1.0}));
    EXPECT_EQ(incoming.span<float>()[0], *scaler_->scale_value());
  }

  void unscale(const Golden& what) { scaler_->unscale_(optimizer(what)); }
  void clip_grad_norm(const Golden& what) {
    const bool strict = argument(what, "error_if_nonfinite", 0.0) != 0.0;
    const Tensor norm = clip_grad_norm_(named(what.at("params")), real(what.at("max_norm")), 2.0, strict);
    EXPECT_TRUE(same_number(to_doubles(norm.view())[0], real(result_->at("total_norm"))));
  }
  void clip_grad_value(const Golden& what) { clip_grad_value_(named(what.at("params")), real(what.at("clip_value"))); }

  void setter(const Golden& what) {
    const std::string& field = what.at("what").text;
    const double value = real(what.at("value"));
    if (field == "growth_factor") scaler_->set_growth_factor(value);
    if (field == "backoff_factor") scaler_->set_backoff_factor(value);
    if (field == "growth_interval") scaler_->set_growth_interval(static_cast<std::int32_t>(value));
  }

  void state_dict(const Golden&) {
    saved_ = scaler_->state_dict();
    const Golden& want = result_->at("state_dict");
    ASSERT_EQ(saved_.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(same_number(saved_.at(want.keys[i]), real(want[i]))) << want.keys[i];
  }
  void load_state_dict(const Golden& what) {
    GradScaler::StateDict fields = saved_;
    if (const Golden* given = what.find("fields")) {
      fields.clear();
      for (std::size_t i = 0; i < given->size(); ++i) fields[given->keys[i]] = real((*given)[i]);
    }
    scaler_->load_state_dict(fields);
  }
  void pickle(const Golden&) {
    scaler_ = scaler_->pickled();
    const Golden* none = result_->find("scale_tensor_is_none");
    EXPECT_TRUE(none == nullptr || none->truth == (scaler_->is_enabled() && !scaler_->scale_value()))
        << "a disabled one has no such attribute in torch";
  }

  void zero_grad(const Golden& what) { optimizer(what).zero_grad(); }
  void new_optimizer(const Golden& what) { add_optimizer(what.at("opt").text, what.at("spec")); }
  void set_grad_scale(const Golden& what) { optimizer(what).grad_scale = static_cast<float>(real(what.at("value"))); }
  void step_directly(const Golden& what) { optimizer(what).step(); }

  void make_scheduler(const Golden& what) {
    schedule_ = std::make_unique<LrSchedule>(optimizer(what), step_lr(1, 0.5), LrSchedule::Follows::calls);
  }
  void scheduler_step(const Golden&) {
    schedule_->step();
    EXPECT_TRUE(same_number(schedule_->lr(), real(result_->at("lr"))));
    const Golden* warnings = call_->find("warnings");
    if (++schedule_steps_ == 1) {
      EXPECT_EQ(schedule_->stepped_too_early(),
                warnings != nullptr && warnings->items[0].at("message").text.starts_with("Detected call"));
    }
  }

  Optimizer& optimizer(const Golden& what) { return *optimizers_.at(what.at("opt").text); }

  void step(const Golden& what) {
    int closure_calls = 0;
    Closure closure;
    if (const Golden* form = what.find("closure")) {
      if (form->text == "keyword" &&
          scaler_->is_enabled()) {  // a keyword is a matter of Python; the positional form is ours
        keyword_ = true;
        return;
      }
      closure = [&] {
        ++closure_calls;
        return 7.0;
      };
    }
    Optimizer& stepped = optimizer(what);
    const std::optional<double> returned = scaler_->step(stepped, closure);
    EXPECT_EQ(returned.has_value(), !result_->at("returned").is_null());
    if (returned && !result_->at("returned").is_null()) {
      EXPECT_EQ(*returned, real(result_->at("returned")));
    }
    if (const Golden* calls = result_->find("closure_called")) {
      EXPECT_EQ(closure_calls, static_cast<int>(calls->value));
    }
    if (const Golden* saw = result_->find("optimizer_saw")) {
      const auto& recorder = dynamic_cast<const RecordingOptimizer&>(stepped);
      EXPECT_EQ(recorder.saw_grad_scale.has_value(), !saw->at("grad_scale").is_null());
      if (recorder.saw_grad_scale) {
        EXPECT_EQ(static_cast<double>(*recorder.saw_grad_scale), real(saw->at("grad_scale").at("hex")[0]));
      }
      EXPECT_EQ(static_cast<double>(recorder.saw_found_inf.value()), real(saw->at("found_inf").at("hex")[0]));
      EXPECT_EQ(saw->at("found_inf").at("dtype").text, "float32") << "as ours are";
      EXPECT_TRUE(saw->at("grad_scale").is_null() || saw->at("grad_scale").at("dtype").text == "float32");
      EXPECT_FALSE(stepped.grad_scale.has_value() || stepped.found_inf.has_value());
    }
  }

  void update(const Golden& what) {
    const Golden* form = what.find("form");
    if (form == nullptr) return scaler_->update();
    const Golden& value = what.at("new_scale");
    if (form->text != "tensor") return scaler_->update(real(value));
    std::vector<double> values;
    if (value.is_list())
      for (const Golden& item : value) values.push_back(real(item));
    else
      values.push_back(real(value));
    Shape shape;
    if (value.is_list() || what.contains("shape")) shape = Shape{static_cast<std::int64_t>(values.size())};
    const Golden* dtype = what.find("dtype");
    Tensor new_scale = tensor(dtype == nullptr ? Dtype::fp32 : dtype_of(dtype->text), shape, values);
    scaler_->update(new_scale, argument(what, "requires_grad", 0.0) != 0.0);
    if (const Golden* later = what.find("then_change_to")) from_doubles(std::vector{real(*later)}, new_scale.view());
  }

  void getters(const Golden&) {
    EXPECT_TRUE(same_number(scaler_->get_scale(), real(result_->at("get_scale"))));
    EXPECT_EQ(scaler_->is_enabled(), result_->at("is_enabled").truth);
    EXPECT_EQ(scaler_->get_growth_tracker(), static_cast<std::int32_t>(real(result_->at("tracker"))));
    if (!scaler_->is_enabled()) return;  // torch's disabled scaler lacks the attributes and raises AttributeError
    EXPECT_EQ(scaler_->get_growth_factor(), real(result_->at("get_growth_factor")));
    EXPECT_EQ(scaler_->get_backoff_factor(), real(result_->at("get_backoff_factor")));
    EXPECT_EQ(scaler_->get_growth_interval(), static_cast<std::int32_t>(real(result_->at("get_growth_interval"))));
  }

  void compare(const Golden& after) {
    const Golden& scale = after.at("scale");
    EXPECT_EQ(scaler_->scale_value().has_value(), !scale.is_null());
    if (scaler_->scale_value() && !scale.is_null()) {
      EXPECT_TRUE(same_number(static_cast<double>(*scaler_->scale_value()), real(scale)));
    }
    const Golden& tracker = after.at("tracker");
    EXPECT_EQ(scaler_->growth_tracker().has_value(), !tracker.is_null());
    if (scaler_->growth_tracker() && !tracker.is_null()) {
      EXPECT_EQ(*scaler_->growth_tracker(), static_cast<std::int32_t>(tracker.value));
    }
    EXPECT_TRUE(same_number(scaler_->get_scale(), real(after.at("get_scale"))));
    const Golden& optimizers = after.at("optimizers");
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
      const Optimizer& mine = *optimizers_.at(optimizers.keys[i]);
      EXPECT_EQ(name(scaler_->stage(mine)), optimizers[i].at("stage").text);
      const auto found = scaler_->found_inf(mine);
      const Golden& want = optimizers[i].at("found_inf");
      EXPECT_EQ(found.empty(), want.is_null());
      ASSERT_EQ(found.size(), want.size());
      if (!found.empty()) {
        EXPECT_TRUE(same_number(static_cast<double>(found.begin()->second), real(want[0])));
      }
    }
    const Golden& calls = after.at("step_calls");
    for (std::size_t i = 0; i < calls.size(); ++i)
      EXPECT_EQ(optimizers_.at(calls.keys[i])->step_calls(), static_cast<std::int64_t>(calls[i].value));
    for (const auto& [kind, prefix] :
         {std::pair("params", "param "), std::pair("grads", "grad "), std::pair("optimizer_state", "state ")})
      if (const Golden* changed = after.find(kind))
        for (std::size_t i = 0; i < changed->size(); ++i) expected_[prefix + changed->keys[i]] = &(*changed)[i];
    if (penalty_) {
      set_grad(params_.at("w"), *expected_.at("grad w"));
      penalty_ = false;
    }
    for (const auto& [key, want] : expected_) compare_tensor(key, *want);
  }

  void compare_tensor(const std::string& key, const Golden& want) {
    const std::size_t space = key.find(' ');
    const std::string kind = key.substr(0, space), rest = key.substr(space + 1);
    if (kind == "param") {
      EXPECT_TRUE(same_tensor(params_.at(rest).value, want)) << key;
    } else if (kind == "grad") {
      const Parameter& parameter = params_.at(rest);
      EXPECT_EQ(parameter.grad.defined(), !want.is_null()) << key;
      if (!want.is_null() && parameter.grad.defined()) {
        EXPECT_TRUE(same_tensor(parameter.grad, want.contains("values") ? want.at("values") : want)) << key;
        std::vector<double> rows, wanted;
        if (parameter.sparse_rows) rows.assign(parameter.sparse_rows->begin(), parameter.sparse_rows->end());
        if (const Golden* indices = want.find("indices"))
          for (const Golden& row : (*indices)[0]) wanted.push_back(row.value);
        EXPECT_EQ(rows, wanted) << key;
        const Golden* sparse = want.find("sparse");
        EXPECT_EQ(parameter.sparse_rows.has_value(), sparse != nullptr && sparse->truth) << key;
      }
    } else {
      const std::size_t a = rest.find(' '), b = rest.rfind(' ');
      Optimizer& owner = *optimizers_.at(rest.substr(0, a));
      const std::string param = rest.substr(a + 1, b - a - 1), field = rest.substr(b + 1);
      for (std::size_t i = 0; i < owner.parameters().size(); ++i)
        if (owner.parameters()[i]->name == param && !want.is_null()) compare_state(owner, i, field, want, key);
    }
  }

  static void compare_state(Optimizer& owner, std::size_t i, const std::string& field, const Golden& want,
                            const std::string& key) {
    const auto held = owner.state(i).find(field);
    ASSERT_NE(held, owner.state(i).end()) << key;
    EXPECT_TRUE(same_tensor(held->second, want)) << key;
  }

  const Golden& scenario_;
  const Golden *call_ = nullptr, *result_ = nullptr;
  std::map<std::string, Parameter> params_;
  std::map<std::string, std::unique_ptr<Optimizer>> optimizers_;
  std::map<std::string, const Golden*> expected_;
  std::optional<GradScaler> scaler_;
  GradScaler::StateDict saved_;
  std::unique_ptr<LrSchedule> schedule_;
  int number_ = 0, schedule_steps_ = 0;
  bool penalty_ = false, keyword_ = false;
};

}  // namespace ampcheck::tests
