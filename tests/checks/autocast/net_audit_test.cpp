// SPDX-License-Identifier: Apache-2.0
// The audit of a net's policy: planted faults, each found by its code, and right nets.
#include "checks/autocast/net_audit.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <thread>

#include "checks/diagnose/planted_nets.h"
#include "checks/models/bound_call.h"
#include "checks/models/forwarding_tape.h"
#include "src/amp/autocast.h"
#include "src/error.h"

namespace ampcheck::checks::autocast {
namespace {

using diagnose::class_net;
using models::Tape;
using models::Var;

NetSubject subject_of(train::Net net, Dtype dtype = Dtype::bf16, AutocastDevice device = AutocastDevice::cuda) {
  NetSubject out;
  out.net = std::move(net);
  out.dtype = dtype;
  out.device = device;
  out.list = autocast_list("", device);
  out.batches = 1;
  out.scale = 256;
  return out;
}

/// An op of every class, and a mean that no list names.
Var all_classes(Tape& t, Var x) {
  const Var h = models::unary(t, "gelu", models::rms_norm(t, "norm", x));
  const Var p = models::unary(t, "softmax", models::layer_norm(t, "norm2", h));
  const Var m = models::repeated(t, t.call("mean", {{"x", h}}), t.shape(h)[0], t.shape(h)[1]);
  return models::add(t, models::mul(t, h, p), m);
}

std::string said(const NetAudit& audit) {
  std::string out;
  for (const PolicyResult& r : audit.results.all())
    if (r.outcome != Outcome::not_asked)
      out += std::string("  ") + r.check->code + " " + name(r.outcome) + ": " + r.says + "\n";
  for (const OpRow& row : audit.rows)
    out += "  " + row.call + " " + ampcheck::name(row.computes) + " " + ampcheck::name(row.gives) + " excess " +
           std::to_string(row.excess.value_or(-1)) + "\n";
  return out;
}

void expect_code(const NetAudit& audit, const std::string& code) {
  const PolicyResult* const head = audit.results.headline();
  EXPECT_EQ(head == nullptr ? "none" : head->check->code, code) << said(audit);
}

const OpRow& row_of(const NetAudit& audit, const std::string& call) {
  for (const OpRow& row : audit.rows)
    if (row.call == call) return row;
  throw Error("[test] no call " + call);
}

TEST(AutocastNet, ARightNetPassesOnBothListsInBothTypes) {
  for (const AutocastDevice device : {AutocastDevice::cuda, AutocastDevice::cpu})
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      SCOPED_TRACE(std::string(ampcheck::name(device)) + " " + ampcheck::name(dtype));
      const NetAudit audit = audit_net(subject_of(class_net(all_classes), dtype, device));
      expect_code(audit, "none");
      for (const OpRow& row : audit.rows) EXPECT_EQ(row.bits, Bits::same) << row.call;
      EXPECT_FALSE(audit.ill);
      EXPECT_FALSE(audit.advice);
      EXPECT_FALSE(audit.each.empty());
      EXPECT_LT(audit.each.front().error_after, audit.error) << "an op in fp32 makes gradients better";
      EXPECT_GT(audit.held, 0) << "cast weights are kept";
      const bool cuda = device == AutocastDevice::cuda;
      EXPECT_EQ(row_of(audit, "softmax_1").gives, cuda ? Dtype::fp32 : dtype) << "the CPU does not list it";
      EXPECT_EQ(row_of(audit, "linear_1").computes, dtype);
      EXPECT_EQ(row_of(audit, "rms_norm_1").computes, cuda ? Dtype::fp32 : dtype);
      EXPECT_EQ(audit.results.at("A12").outcome, Outcome::weak);
      EXPECT_EQ(audit.results.at("A14").outcome, cuda ? Outcome::weak : Outcome::passed) << "rms_norm came late";
      EXPECT_EQ(audit.results.at("A13").outcome, Outcome::passed);
    }
}

TEST(AutocastNet, AnotherReleasesListIsFollowedByHand) {
  NetSubject subject = subject_of(class_net(all_classes));
  subject.list = autocast_list("2.10", AutocastDevice::cuda);
  const NetAudit audit = audit_net(subject);
  expect_code(audit, "none");
  EXPECT_EQ(row_of(audit, "rms_norm_1").computes, Dtype::bf16);
  EXPECT_EQ(row_of(audit, "rms_norm_1").policy, CastPolicy::unlisted);
}

/// Between the net and the graph: some op runs otherwise than its list says.
class WrongTape final : public models::ForwardingTape {
 public:
  WrongTape(models::Tape& inner, std::string op, Dtype dtype)
      : ForwardingTape(inner), op_(std::move(op)), dtype_(dtype) {}
  Var call(const std::string& op, const std::vector<std::pair<std::string, Var>>& inputs,
           const std::vector<std::pair<std::string, double>>& attributes = {}) override {
    if (op != op_) return inner_.call(op, inputs, attributes);
    const Autocast off(inner_.device(), {.enabled = false});
    std::vector<std::pair<std::string, Var>> cast;
    for (const auto& [name, var] : inputs) cast.emplace_back(name, inner_.to(var, dtype_));
    return inner_.call(op, cast, attributes);
  }

 private:
  std::string op_;
  Dtype dtype_;
};

TEST(AutocastNet, AListThatIsNotFollowedIsFound) {
  for (const auto& [op, dtype] : {std::pair{"linear", Dtype::fp32}, std::pair{"layer_norm", Dtype::bf16}}) {
    SCOPED_TRACE(op);
    NetSubject subject = subject_of(class_net(all_classes));
    subject.between = [op = op, dtype = dtype](Tape& inner) { return std::make_unique<WrongTape>(inner, op, dtype); };
    const NetAudit audit = audit_net(subject);
    expect_code(audit, "A2");
    EXPECT_NE(audit.results.at("A2").says.find(op), std::string::npos) << said(audit);
  }
}

/// Casts that cut off in place of rounding, forward or backward.
void truncate(const train::Event& e) {
  if (e.got.dtype != Dtype::bf16 || !e.has_exact()) return;
  const std::vector<double> exact = to_doubles(e.exact);
  std::vector<double> cut;
  for (const double x : exact)
    cut.push_back(
        static_cast<double>(std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) & 0xffff0000u)));
  from_doubles(cut, e.got);
}

TEST(AutocastNet, CastsThatCutOffAreFoundByTheirBits) {
  NetSubject subject = subject_of(class_net(all_classes));
  subject.fault = [](const train::Event& e) {
    if (e.cast && e.phase == train::Phase::forward) truncate(e);
  };
  const NetAudit forward = audit_net(subject);
  expect_code(forward, "A2");
  EXPECT_EQ(row_of(forward, "linear_1").bits, Bits::differ);
  EXPECT_EQ(forward.results.at("A13").outcome, Outcome::failed) << "and by what casts have to give";
  subject.fault = [](const train::Event& e) {
    if (e.cast && e.phase == train::Phase::backward) truncate(e);
  };
  const NetAudit backward = audit_net(subject);
  expect_code(backward, "A2");
  EXPECT_NE(backward.results.at("A2").says.find("gradient"), std::string::npos) << said(backward);
}

/// A built-in op with another kernel, for as long as the tests run.
const OpDef& planted(const char* base, const std::function<void(OpDef&)>& change) {
  static std::deque<OpDef> kept;
  kept.push_back(*find_op(base));
  change(kept.back());
  return kept.back();
}

TEST(AutocastNet, AnUnlistedSumIn16BitsIsFoundAndTheAdviceIsThatOpAlone) {
  const OpDef& mean = planted("mean", [](OpDef& op) {
    const kernels::KernelFn right = op.kernel.forward;
    op.kernel.forward = [right](const kernels::KernelCall& call) {
      right(call);
      const TensorView &x = call.at("x"), &y = call.at("y");
      if (x.dtype == Dtype::fp32) return;
      const std::vector<double> in = to_doubles(x);
      const auto columns = static_cast<std::size_t>(x.shape.last());
      std::vector<double> out;
      for (std::size_t at = 0; at < in.size(); at += columns) {
        double sum = 0;
        for (std::size_t i = 0; i < columns; ++i) {
          const float next = static_cast<float>(sum + in[at + i]);
          sum = static_cast<double>(std::bit_cast<float>(std::bit_cast<std::uint32_t>(next) & 0xffff0000u));
        }
        out.push_back(sum / static_cast<double>(columns));
      }
      from_doubles(out, y);
    };
  });
  NetSubject subject = subject_of(class_net([](Tape& t, Var x) {
    const Var h = models::unary(t, "sigmoid", x);
    const Var m = models::repeated(t, t.call("mean", {{"x", h}}), t.shape(h)[0], t.shape(h)[1]);
    return models::add(t, h, m);
  }));
  subject.kernels_of = {{"mean", &mean}};
  const NetAudit audit = audit_net(subject);
  expect_code(audit, "A3");
  EXPECT_EQ(audit.results.at("A3").places, std::vector<std::string>{"mean_1"});
  EXPECT_NE(audit.results.at("A3").says.find("unlisted: sum"), std::string::npos) << said(audit);
  ASSERT_TRUE(audit.advice);
  EXPECT_EQ(audit.advice->ops, std::set<std::string>{"mean"});
  EXPECT_NE(audit.advice->bytes_after, audit.advice->bytes_before);
  subject.kernels_of.clear();
  expect_code(audit_net(subject), "none");
}

TEST(AutocastNet, OverflowOfAnUnlistedOpIsCuredByIt) {
  const auto net = [](double gain) {
    return class_net([gain](Tape& t, Var x) {
      const Var wide = t.call("clamp", {{"x", x}}, {{"min", gain}, {"max", 2 * gain}});
      const Var square = models::mul(t, wide, wide);
      return models::layer_norm(t, "norm", square);
    });
  };
  const NetAudit audit = audit_net(subject_of(net(300), Dtype::fp16));
  expect_code(audit, "A3");
  ASSERT_TRUE(audit.advice) << said(audit);
  EXPECT_EQ(audit.advice->ops, std::set<std::string>{"mul"}) << said(audit);
  expect_code(audit_net(subject_of(net(100), Dtype::fp16)), "none");
}

TEST(AutocastNet, ACastThatLosesFiniteNumbersIsFound) {
  const auto net = [](double gain) {
    train::Net out = class_net(all_classes, [gain](std::int64_t) { return gain; });
    return out;
  };
  const NetAudit audit = audit_net(subject_of(net(60000), Dtype::fp16));
  EXPECT_EQ(audit.results.at("A4").outcome, Outcome::failed) << said(audit);
  ASSERT_TRUE(audit.advice) << said(audit);
  EXPECT_TRUE(audit.advice->ops.contains("linear"));
  EXPECT_NE(audit_net(subject_of(net(60000), Dtype::bf16)).results.at("A4").outcome, Outcome::failed);
}

TEST(AutocastNet, GradientsThatVanishAtACastAreCounted) {
  NetSubject subject = subject_of(class_net(all_classes), Dtype::fp16);
  subject.scale = 0x1p-20;
  const NetAudit lost = audit_net(subject);
  expect_code(lost, "A8");
  subject.scale = 0x1p-8;
  EXPECT_EQ(audit_net(subject).results.at("A8").outcome, Outcome::weak) << "some";
  subject.scale = 0x1p30;
  const NetAudit halved = audit_net(subject);
  EXPECT_GT(halved.halved, 0) << "as a scaler would";
  EXPECT_LT(halved.scale, 0x1p30);
  EXPECT_NE(halved.results.at("A8").outcome, Outcome::failed) << said(halved);
}

TEST(AutocastNet, ABannedOpIsNamedWithItsSafeForm) {
  const OpDef& banned = planted("mse_loss", [](OpDef& op) {
    op.signature.name = "bce";
    op.signature.torch_op = "binary_cross_entropy";
  });
  models::use_op(banned);
  train::Net net = class_net([](Tape&, Var x) { return x; });
  net.forward = [](Tape& t, std::int64_t) {
    const Var x = models::linear(t, "in", t.data({4, 4}, std::vector<double>(16, 0.5)), 4);
    t.add_loss(t.call("bce", {{"x", x}, {"target", t.data({4, 4}, std::vector<double>(16, 1))}}), 1);
  };
  const NetAudit audit = audit_net(subject_of(net));
  expect_code(audit, "A7");
  EXPECT_NE(audit.results.at("A7").says.find("binary_cross_entropy_with_logits"), std::string::npos) << said(audit);
  expect_code(audit_net(subject_of(net, Dtype::bf16, AutocastDevice::cpu)), "none");
}

TEST(AutocastNet, AWrongBackwardIsNoMatterOfThePolicy) {
  const OpDef& gelu = planted("gelu", [](OpDef& op) {
    const kernels::KernelFn right = op.kernel.backward;
    op.kernel.backward = [right](const kernels::KernelCall& call) {
      right(call);
      std::vector<double> dx = to_doubles(call.at("dx"));
      for (double& g : dx) g *= 1.25;
      from_doubles(dx, call.at("dx"));
    };
  });
  NetSubject subject = subject_of(class_net(all_classes));
  subject.kernels_of = {{"gelu", &gelu}};
  const NetAudit audit = audit_net(subject);
  expect_code(audit, "A13");
  EXPECT_EQ(audit.results.at("A13").places.front(), "gelu_1");
}

/// A weight that two calls share.
train::Net tied_net() {
  return class_net([](Tape& t, Var x) {
    const Var w = t.weight("tied.weight", {t.shape(x)[1], t.shape(x)[1]}, t.shape(x)[1]);
    const Var b = t.constant_start("tied.bias", {t.shape(x)[1]}, 0);
    const Var h = t.call("linear", {{"x", x}, {"weight", w}, {"bias", b}});
    return t.call("linear", {{"x", h}, {"weight", w}, {"bias", b}});
  });
}

/// Hands every call a copy of its weights: leaves of their own, which the cache keeps apart.
class CopyingTape final : public models::ForwardingTape {
 public:
  using ForwardingTape::ForwardingTape;
  Var parameter(const std::string& name, const Shape& shape, double offset, double scale) override {
    const Var out = inner_.parameter(name, shape, offset, scale);
    made_[out.id] = name;
    return out;
  }
  Var call(const std::string& op, const std::vector<std::pair<std::string, Var>>& inputs,
           const std::vector<std::pair<std::string, double>>& attributes = {}) override {
    std::vector<std::pair<std::string, Var>> copied = inputs;
    for (auto& [name, var] : copied)
      if (const auto weight = made_.find(var.id); weight != made_.end())
        var = inner_.parameter(weight->second + "_" + std::to_string(++copies_), inner_.shape(var), 0, 1);
    return inner_.call(op, copied, attributes);
  }

 private:
  std::map<int, std::string> made_;
  int copies_ = 0;
};

TEST(AutocastNet, ACacheThatHoldsMoreThanACastOfEveryWeightIsFound) {
  NetSubject subject = subject_of(tied_net());
  const NetAudit right = audit_net(subject);
  expect_code(right, "none");
  EXPECT_GT(right.held, 0);
  EXPECT_NE(right.results.at("A10").says.find("each once, and none behind it"), std::string::npos) << said(right);
  subject.between = [](Tape& inner) { return std::make_unique<CopyingTape>(inner); };
  const NetAudit copies = audit_net(subject);
  EXPECT_EQ(copies.results.at("A10").outcome, Outcome::failed) << said(copies);
  EXPECT_GT(copies.held, right.held);
}

/// A region around a training loop is open when a step ends: on a thread of its own, since nothing ends it here.
TEST(AutocastNet, ARegionThatStaysOpenBehindAStepIsFound) {
  std::thread([] {
    NetSubject subject = subject_of(class_net(all_classes));
    std::optional<Autocast> open;
    subject.between = [&](Tape& inner) {
      if (!open) open.emplace(subject.device);
      return std::make_unique<models::ForwardingTape>(inner);
    };
    const NetAudit audit = audit_net(subject);
    expect_code(audit, "A10");
    EXPECT_NE(audit.results.at("A10").says.find("a region stays open"), std::string::npos) << said(audit);
  }).join();
}

TEST(AutocastNet, ACustomOpsDtypesAreShown) {
  const OpDef& own = planted("rms_norm", [](OpDef& op) {
    op.signature.name = "own_norm";
    op.signature.torch_op = "";
    op.signature.cast = CastPolicy::fp32;
  });
  models::use_op(own);
  const NetAudit audit = audit_net(subject_of(class_net([](Tape& t, Var x) {
    return t.call("own_norm", {{"x", x}, {"weight", t.constant_start("n.weight", {t.shape(x)[1]}, 1)}});
  })));
  expect_code(audit, "none");
  EXPECT_EQ(audit.results.at("A11").places, std::vector<std::string>{"own_norm_1 fp32"});
  ASSERT_EQ(audit.custom.size(), 5u) << "as it is, fp32, bf16, fp16, fp64";
  EXPECT_EQ(audit.custom[0].computes, Dtype::fp32);
  EXPECT_EQ(audit.custom[1].computes, Dtype::fp32);
  EXPECT_EQ(audit.custom[2].computes, Dtype::bf16);
  EXPECT_EQ(audit.custom[3].computes, Dtype::fp16) << "the other 16-bit type";
  EXPECT_EQ(audit.custom[0].error, audit.custom[1].error) << "its class is fp32";
  EXPECT_NE(audit.custom[1].error, audit.custom[2].error);
  EXPECT_NE(audit.custom[4].refused.find("got fp64, want fp32, fp16, bf16"), std::string::npos)
      << audit.custom[4].refused;
  EXPECT_THROW(audit_net(subject_of(class_net(all_classes), Dtype::fp32)), Error);
}

}  // namespace
}  // namespace ampcheck::checks::autocast
