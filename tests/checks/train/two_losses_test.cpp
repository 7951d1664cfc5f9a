// SPDX-License-Identifier: Apache-2.0
// Several losses and backwards of one graph, against torch's arithmetic: l0.backward(retain_graph=True) and then
// l1.backward() add the gradients of l0 and of l1 to .grad, each once, and the same loss backward again adds its
// gradients again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "checks/models/fp64_tape.h"
#include "checks/models/layers.h"
#include "checks/train/graph.h"
#include "src/error.h"

namespace ampcheck::checks::train {
namespace {

using models::Tape;
using models::Var;

/// A weight that both losses reach, and one each.
struct Net {
  Net() : graph(parameters, recordings, {}) {
    std::vector<double> x;
    for (int i = 0; i < 32; ++i) x.push_back(0.25 * (i % 7) - 0.6);
    h = models::unary(graph, "tanh", models::linear(graph, "shared", graph.data({4, 8}, x), 8));
    losses = {models::mean_all(graph, models::linear(graph, "first", h, 3)),
              models::mean_all(graph, models::unary(graph, "tanh", models::linear(graph, "second", h, 5)))};
  }
  ParameterSet parameters{"two losses", 1};
  models::Recordings recordings;
  Graph graph;
  Var h;
  std::vector<Var> losses;

  void add(int which) { graph.add_loss(losses[static_cast<std::size_t>(which)], which == 0 ? 1 : 0.75); }
  std::vector<std::vector<float>> grads() {
    std::vector<std::vector<float>> out;
    for (Parameter& parameter : parameters.all())
      out.push_back(parameter.grad.defined()
                        ? std::vector<float>(parameter.grad.span<float>().begin(), parameter.grad.span<float>().end())
                        : std::vector<float>(static_cast<std::size_t>(parameter.value.count()), 0.0f));
    return out;
  }
};

/// In fp32, as torch adds to .grad.
std::vector<std::vector<float>> sum(std::vector<std::vector<float>> x, const std::vector<std::vector<float>>& y) {
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t k = 0; k < x[i].size(); ++k) x[i][k] += y[i][k];
  return x;
}

std::vector<std::vector<float>> of_one(int which) {
  Net net;
  net.add(which);
  net.graph.backward(1, 1);
  return net.grads();
}

double largest(const std::vector<float>& values) {
  double out = 0;
  for (const float v : values) out = std::max(out, std::fabs(static_cast<double>(v)));
  return out;
}

TEST(TwoLosses, EachBackwardTakesTheLossesAddedSinceTheLast) {
  for (const int first : {0, 1}) {
    Net net;
    net.add(first);
    net.graph.backward(1, 1, /*retain_graph=*/true);
    net.add(1 - first);
    net.graph.backward(1, 1);
    EXPECT_EQ(net.grads(), sum(of_one(first), of_one(1 - first))) << "first " << first;
    EXPECT_NE(net.grads(), sum(of_one(first), sum(of_one(first), of_one(1 - first)))) << "the first counted twice";
  }
}

/// One backward of l0 + l1 adds before the shared layer's backward and not after it: the same up to rounding.
TEST(TwoLosses, TogetherTheyAreOneBackwardOfTheSum) {
  Net net;
  net.add(0);
  net.add(1);
  net.graph.backward(1, 1);
  const auto together = net.grads(), apart = sum(of_one(0), of_one(1));
  ASSERT_EQ(together.size(), apart.size());
  for (std::size_t i = 0; i < together.size(); ++i) {
    const double scale = largest(of_one(0)[i]) + largest(of_one(1)[i]);
    EXPECT_GT(scale, 0);
    // Sums of 4 and 8 terms, of which each is rounded some ten times on its way.
    for (std::size_t k = 0; k < together[i].size(); ++k)
      EXPECT_NEAR(together[i][k], apart[i][k], 32 * 0x1p-24 * scale) << i << " " << k;
  }
}

TEST(TwoLosses, TheSameLossAgainDoubles) {
  Net net;
  net.add(0);
  net.graph.backward(1, 1, true);
  net.graph.backward(1, 1, true);
  EXPECT_EQ(net.grads(), sum(of_one(0), of_one(0)));
  net.add(1);
  net.graph.backward(1, 1, true);
  const auto three = sum(sum(of_one(0), of_one(0)), of_one(1));
  EXPECT_EQ(net.grads(), three);
  net.graph.backward(1, 1);
  EXPECT_EQ(net.grads(), sum(three, of_one(1))) << "again what the last one took: the second loss alone";
}

/// torch.autograd.grad(l1, h) after l0.backward(retain_graph=True) is of l1 alone.
TEST(TwoLosses, GradientsAreOfWhatABackwardWouldTake) {
  Net alone, after;
  alone.add(1);
  after.add(0);
  after.graph.backward(1, 1, true);
  after.add(1);
  const auto of_h = [](Net& net) {
    const TensorView view = net.graph.view(net.graph.gradients({net.h}, 1, 1).front());
    return std::vector<float>(view.as<const float>(), view.as<const float>() + view.count());
  };
  EXPECT_EQ(of_h(after), of_h(alone));
  after.graph.backward(1, 1);
  EXPECT_EQ(after.grads(), sum(of_one(0), of_one(1))) << "gradients() takes no loss away";
}

TEST(TwoLosses, LossIsTheSumOfAll) {
  Net net;
  net.add(0);
  const float first = net.graph.loss();
  net.graph.backward(1, 1, true);
  net.add(1);
  EXPECT_NE(net.graph.loss(), first);
}

/// The tape in fp64 lets go of what its backward needed.
TEST(TwoLosses, Fp64TapeRefusesASecondBackward) {
  models::Parameters parameters("two losses", 1);
  models::Fp64Tape tape(parameters);
  const Var y = models::linear(tape, "only", tape.data({1, 2}, {1, 2}), 1);
  tape.add_loss(models::mean_all(tape, y), 1);
  tape.backward();
  EXPECT_THROW(tape.backward(), Error);
}

}  // namespace
}  // namespace ampcheck::checks::train
