// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "checks/models/cancellation.h"
#include "checks/train/graph.h"

namespace ampcheck::checks::train {
namespace {

/// What an observer hears of the op called.
struct Heard final : Observer {
  std::map<std::string, std::pair<double, double>> bits;
  bool wants(std::string_view) const override { return true; }
  bool wants_exact(std::string_view) const override { return true; }
  bool wants_cancellation() const override { return true; }
  Seen see(const Event& e) override {
    if (e.phase == Phase::forward && !e.cast) bits[std::string(e.op)] = {e.cancelled, e.most_cancelled};
    return {all_finite(e.got)};
  }
};

struct Calls {
  Calls()
      : graph(parameters, recordings, [this] {
          GraphOptions options;
          options.observer = &heard;
          return options;
        }()) {}
  models::Var data(const Shape& shape, std::vector<double> values) { return graph.data(shape, std::move(values)); }
  Heard heard;
  ParameterSet parameters{"cancellation", 1};
  models::Recordings recordings;
  Graph graph;
};

TEST(Cancellation, ASumIsMeasuredByItsTerms) {
  Calls c;
  // Row 0 looks at column 0, row 1 at column 1.
  c.graph.call("add", {{"x", c.data({2, 2}, {1, 9, 9, 1})}, {"y", c.data({2, 2}, {-1 + 0x1p-10, 9, 9, 3})}});
  const auto [mean, most] = c.heard.bits.at("add_1");
  EXPECT_DOUBLE_EQ(most, std::log2((2 - 0x1p-10) / 0x1p-10)) << "terms of 2 against 2^-10";
  EXPECT_DOUBLE_EQ(mean, most / 2) << "1 + 3 loses nothing";
  c.graph.call("add", {{"x", c.data({1, 2}, {5, 1})}, {"y", c.data({1, 2}, {-5, 1})}});
  EXPECT_TRUE(std::isinf(c.heard.bits.at("add_2").second)) << "all of it";
  c.graph.call("add", {{"x", c.data({1, 2}, {5, 1})}, {"y", c.data({1, 2}, {7, 1})}});
  EXPECT_EQ(c.heard.bits.at("add_3"), (std::pair{0.0, 0.0}));
}

TEST(Cancellation, SumsOfProductsMeansAndNormsToo) {
  Calls c;
  const std::vector<double> x = {1, 2, 3, 4};
  c.graph.call("linear", {{"x", c.data({1, 4}, x)}, {"weight", c.data({1, 4}, {1, 1, 1, -1.5 + 0x1p-6})}});
  // 1 + 2 + 3 - 6 + 2^-4, of terms that are 12 - 2^-4 together.
  EXPECT_NEAR(c.heard.bits.at("linear_1").second, std::log2((12 - 0x1p-4) / 0x1p-4), 1e-12);
  c.graph.call("linear",
               {{"x", c.data({2, 4}, {1, 2, 3, 4, 1, 2, 3, 4})}, {"weight", c.data({1, 4}, {1, 1, 1, -1.5 + 0x1p-6})}});
  EXPECT_NEAR(c.heard.bits.at("linear_2").second, std::log2((12 - 0x1p-4) / 0x1p-4), 1e-12);
  c.graph.call("mean", {{"x", c.data({1, 4}, {100, -100, 1, 1})}});
  EXPECT_NEAR(c.heard.bits.at("mean_1").second, std::log2(202.0 / 2), 1e-12);
  c.graph.call("relu", {{"x", c.data({1, 4}, {-1, -2, 1, 2})}});
  EXPECT_EQ(c.heard.bits.at("relu_1").second, 0) << "zero of no terms";
  // A norm of numbers far from zero takes their mean off.
  c.graph.call("layer_norm", {{"x", c.data({1, 4}, {1000, 1001, 1002, 1003})},
                              {"weight", c.data({4}, {1, 1, 1, 1})},
                              {"bias", c.data({4}, {0, 0, 0, 0})}});
  EXPECT_GT(c.heard.bits.at("layer_norm_1").second, 9);
  c.graph.call("layer_norm", {{"x", c.data({1, 4}, {-3, -1, 1, 3})},
                              {"weight", c.data({4}, {1, 1, 1, 1})},
                              {"bias", c.data({4}, {0, 0, 0, 0})}});
  EXPECT_LT(c.heard.bits.at("layer_norm_2").second, 2);
}

TEST(Cancellation, DoesNotChangeTheShadowsGradients) {
  const auto gradient = [](bool asks) {
    Calls c;
    struct Quiet final : Observer {
      bool asks = false;
      std::vector<double> exact;
      bool wants(std::string_view) const override { return true; }
      bool wants_exact(std::string_view) const override { return true; }
      bool wants_cancellation() const override { return asks; }
      Seen see(const Event& e) override {
        if (e.phase == Phase::backward && e.tensor == "dweight") exact = to_doubles(e.exact);
        return {true};
      }
    } quiet;
    quiet.asks = asks;
    GraphOptions options;
    options.observer = &quiet;
    Graph graph(c.parameters, c.recordings, options);
    const models::Var y =
        graph.call("linear", {{"x", graph.data({2, 2}, {1, 2, 3, 4})}, {"weight", graph.weight("w", {2, 2}, 2)}});
    graph.add_loss(graph.call("mse_loss", {{"x", y}, {"target", graph.data({2, 2}, {0, 1, 0, 1})}}), 1);
    graph.backward(1, 1);
    return quiet.exact;
  };
  EXPECT_EQ(gradient(true), gradient(false));
  EXPECT_FALSE(gradient(true).empty());
}

}  // namespace
}  // namespace ampcheck::checks::train
