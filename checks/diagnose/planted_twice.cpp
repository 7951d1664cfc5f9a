// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Runs that compute something twice: activations again for the backward, or an inference beside the training.
#include <optional>

#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_nets.h"
#include "src/amp/autocast.h"
#include "src/amp/grad_mode.h"

namespace ampcheck::checks::diagnose {

namespace {

Var block(Tape& t, Var h) {
  return models::unary(t, "gelu", models::linear(t, "block", models::layer_norm(t, "norm", h), 64));
}

/// A mask that keeps half of the elements, doubled.
Var dropped(Tape& t, Var h, std::int64_t stream) {
  const Shape shape = t.shape(h);
  std::vector<double> mask = normals("mask", stream, shape.count());
  for (double& value : mask) value = value > 0 ? 2 : 0;
  return models::mul(t, h, t.data(shape, std::move(mask)));
}

/// Dropout inside of a block that is computed again: the mask comes from a stream that has gone on, or is kept.
Subject dropout(bool keeps_stream, Dtype dtype) {
  return subject_of(class_net([=](Tape& t, Var h) {
                      return t.recompute([&](bool again) { return dropped(t, block(t, h), again && !keeps_stream); });
                    }),
                    dtype);
}

/// The backward runs outside of the region of autocast in which the forward was.
Subject outside_autocast(bool same, Dtype dtype) {
  return subject_of(class_net([=](Tape& t, Var h) {
                      return t.recompute([&](bool again) {
                        if (!again || same) return block(t, h);
                        const Autocast off(t.device(), {.enabled = false});
                        return block(t, t.to(h, Dtype::fp32));
                      });
                    }),
                    dtype);
}

/// Rows weighted by the ratio of the probabilities that training and inference give their classes.
train::Net weighted_net(const std::function<Var(Tape&, Var)>& inference) {
  train::Net net;
  net.name = "planted";
  net.rate = 0.05;
  net.forward = [inference](Tape& t, std::int64_t number) {
    const Batch batch = batch_of(number);
    const Var x = t.data({kRows, kColumns}, batch.x), target = t.data({kRows}, batch.classes);
    const auto losses = [&](Var logits) {
      return t.reshape(t.call("cross_entropy", {{"x", logits}, {"target", target}}), {kRows, 1});
    };
    const Var theirs = t.infer([&] { return inference(t, x); });
    const Var own = models::linear(t, "out", block(t, models::linear(t, "in", x, 64)), kClasses);
    Var ratio;
    {
      const NoGrad off;
      const Var minus = t.data({kRows, 1}, std::vector<double>(static_cast<std::size_t>(kRows), -1));
      ratio = models::unary(t, "exp", models::add(t, losses(theirs), models::mul(t, losses(own), minus)));
    }
    t.add_loss(models::mean_all(t, models::mul(t, losses(own), ratio)), 1);
  };
  return net;
}

Var whole(Tape& t, Var x) { return models::linear(t, "out", block(t, models::linear(t, "in", x, 64)), kClasses); }

Subject beside_inference(Dtype training, std::optional<Dtype> inference) {
  return subject_of(weighted_net([=](Tape& t, Var x) {
                      std::optional<Autocast> region;
                      if (inference) region.emplace(t.device(), autocast_in(*inference));
                      return whole(t, x);
                    }),
                    training, 25);
}

}  // namespace

std::vector<PlantedRun> planted_twice() {
  using enum Cause;
  return {
      {"dropout_again",
       recompute_differs,
       "dropout computed again from a stream that went on",
       {"mul_1"},
       -1,
       [] { return dropout(false, Dtype::fp16); }},
      {"dropout_again_bf16",
       recompute_differs,
       "the same in bf16",
       {"mul_1"},
       -1,
       [] { return dropout(false, Dtype::bf16); }},
      {"recomputed_in_fp32",
       recompute_differs,
       "computed again without autocast",
       {"layer_norm_1", "linear_2"},
       -1,
       [] { return outside_autocast(false, Dtype::bf16); }},
      {"inference_in_bf16",
       two_stacks,
       "training in fp16, inference in bf16",
       {"linear_1"},
       -1,
       [] { return beside_inference(Dtype::fp16, Dtype::bf16); }},
      {"inference_in_fp32",
       two_stacks,
       "training in bf16, inference in fp32",
       {"linear_1"},
       -1,
       [] { return beside_inference(Dtype::bf16, Dtype::fp32); }},
      {"healthy_recomputed", none, "healthy", {}, -1, [] { return outside_autocast(true, Dtype::fp16); }},
      {"healthy_dropout", none, "healthy", {}, -1, [] { return dropout(true, Dtype::bf16); }},
      {"healthy_inference", none, "healthy", {}, -1, [] { return beside_inference(Dtype::fp16, std::nullopt); }},
  };
}

}  // namespace ampcheck::checks::diagnose
