// SPDX-License-Identifier: Apache-2.0
// Gradients of gradients in the training graph, and the gradient penalty made of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "checks/models/layers.h"
#include "checks/train/diagnosis.h"
#include "src/error.h"
#include "src/random.h"
#include "tests/goldens.h"
#include "tests/run_program.h"

namespace ampcheck::checks::train {
namespace {

using models::Tape;
using models::Var;

std::vector<double> normals(const char* name, std::size_t n, std::uint64_t batch) {
  std::vector<double> out(n);
  Random(5, name).normals(batch * 1000, out);
  return out;
}

/// Every op that has a double backward and needs no data, with moves, a tensor read twice and a parameter used twice. `classes`: cross_entropy.
Net every_op_net(bool classes) {
  return {"every", 0.1, 0, [classes](Tape& t, std::int64_t batch) {
            const auto at = static_cast<std::uint64_t>(batch);
            const std::vector<double> indices = {3, 0, 3, 1, 2, 0};
            const Var rows = t.call("embedding", {{"index", t.data({6}, indices)}, {"weight", t.weight("table", {4, 8}, 8)}});
            const Var x = models::add(t, rows, t.data({6, 8}, normals("x", 48, at)));
            const Var h = models::unary(t, "tanh", models::linear(t, "first", x, 8)), r = models::unary(t, "relu", models::linear(t, "second", h, 8));
            const Var product = models::mul(t, r, h);
            const Var turned = t.reshape(models::exchanged(t, product, 1, 2, 3, 8, {6, 8}), {12, 4});
            const Var sums = models::row_sums(t, turned), again = models::linear(t, "third", t.reshape(t.take(sums, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 3, 5, 5, 1, 2}, {18, 1}), {6, 3}), 4);
            if (classes) t.add_loss(models::mean_all(t, t.call("cross_entropy", {{"x", again}, {"target", t.data({6}, {0, 3, 1, -100, 2, 1})}})), 1);
            else t.add_loss(t.call("mse_loss", {{"x", again}, {"target", t.data({6, 4}, normals("y", 24, at))}}), 1);
            t.add_loss(models::mean_all(t, t.reshape(h, {48})), 0.5);
          }};
}

/// Gradients of loss + penalty |gradient| by the kernels, and in fp64.
struct Both {
  std::map<std::string, std::vector<double>> graph, fp64;
  double norm = 0, norm64 = 0;
};
Both both(const Net& net, std::optional<Dtype> autocast, double penalty, const std::function<void(const Event&)>& fault = nullptr) {
  ParameterSet parameters(net.name, 1);
  models::Recordings recordings;
  GraphOptions options;
  options.autocast = autocast, options.fault = fault;
  Graph graph(parameters, recordings, options);
  net.forward(graph, 0);
  models::Parameters values(net.name);
  for (const Parameter& p : parameters.all()) values.values()[p.name] = to_doubles(p.value.view());
  const Var norm = graph.norm(graph.gradients(graph.parameter_vars(), 1024, 1024), 1.0f / 1024);
  graph.add_loss(norm, penalty);
  graph.backward(1, 1);
  Both out;
  out.norm = static_cast<double>(graph.view(norm).as<const float>()[0]);
  for (const Parameter& p : parameters.all()) out.graph[p.name] = to_doubles(p.grad.view());
  models::Fp64Tape tape(values);
  net.forward(tape, 0);
  out.norm64 = tape.backward_with_penalty(1, penalty);
  out.fp64 = tape.gradients();
  return out;
}

/// Largest difference of a parameter's gradients relative to the largest gradient of all, in the 2-norm.
double apart(const Both& b) {
  double worst = 0, largest = 0;
  for (const auto& [name, want] : b.fp64) {
    double error = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) error += std::pow(b.graph.at(name)[i] - want[i], 2), size += want[i] * want[i];
    worst = std::max(worst, std::sqrt(error)), largest = std::max(largest, std::sqrt(size));
  }
  return worst / largest;
}

/// The reference first: the gradient of the penalty along a direction against centred differences of the penalty.
TEST(DoubleBackward, TheFp64PenaltyIsTheSlopeOfTheNorm) {
  for (const bool classes : {false, true}) {
    const Net net = every_op_net(classes);
    models::Parameters values(net.name);
    const auto norm_at = [&](double step, const std::map<std::string, std::vector<double>>& direction) {
      models::Parameters moved(net.name);
      for (const auto& [name, v] : values.values()) {
        std::vector<double>& to = moved.values()[name] = v;
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += step * direction.at(name)[i];
      }
      models::Fp64Tape tape(moved);
      net.forward(tape, 0);
      return tape.backward_with_penalty(1, 0);
    };
    models::Fp64Tape tape(values);
    net.forward(tape, 0);
    tape.backward_with_penalty(1, 1);
    const auto with = tape.gradients();
    models::Fp64Tape plain(values);
    net.forward(plain, 0);
    plain.backward();
    std::map<std::string, std::vector<double>> direction;
    double slope = 0, sum = 0, length2 = 0;
    for (const auto& [name, g] : plain.gradients()) {
      direction[name] = normals(name.c_str(), g.size(), 1);
      for (std::size_t i = 0; i < g.size(); ++i) length2 += std::pow(direction[name][i], 2), slope += (with.at(name)[i] - g[i]) * direction[name][i], sum += std::fabs((with.at(name)[i] - g[i]) * direction[name][i]);
    }
    // One Richardson step leaves the fourth power of the way gone and u/h of the norm; no relu is as near to its kink.
    const double h = 0x1p-11, coarse = (norm_at(h, direction) - norm_at(-h, direction)) / (2 * h), fine = (norm_at(h / 2, direction) - norm_at(-h / 2, direction)) / h;
    EXPECT_NEAR((4 * fine - coarse) / 3, slope, (std::pow(h * std::sqrt(length2), 4) + 16 * 0x1p-52 / h) * sum) << classes;
  }
}

TEST(DoubleBackward, TheKernelsGradientsOfGradientsAreThoseOfTheFormulas) {
  for (const bool classes : {false, true}) {
    const Both fp32 = both(every_op_net(classes), std::nullopt, 2);
    EXPECT_NEAR(fp32.norm, fp32.norm64, 64 * 0x1p-24 * fp32.norm64) << "as many roundings as the longest chain of ops has";
    EXPECT_LE(apart(fp32), 512 * 0x1p-24) << "twice as many, and sums of 48 terms that partly cancel";
    const Both fp16 = both(every_op_net(classes), Dtype::fp16, 2);
    EXPECT_LE(apart(fp16), 64 * 0x1p-11);
    EXPECT_GT(apart(fp16), apart(fp32));
    // A planted fault: one term of a product rule that is left out.
    for (const char* op : {"linear_2_backward", "tanh_1_backward", "mul_1_backward"}) {
      const Both wrong = both(every_op_net(classes), std::nullopt, 2, [op](const Event& e) {
        if (e.op == op && (e.tensor == "dx" || e.tensor == "dweight")) std::memset(e.got.data, 0, static_cast<std::size_t>(e.got.count() * bytes(e.got.dtype)));
      });
      EXPECT_GT(apart(wrong), 64 * 0x1p-11) << op;
    }
  }
}

/// The local shadow sees which double backward is wrong.
TEST(DoubleBackward, AWrongOneIsNamedByTheTrace) {
  for (const bool wrong : {false, true}) {
    TrainOptions options;
    options.own_net = every_op_net(false);
    options.dtype = Dtype::fp32, options.scaler.enabled = false, options.rule.grad_penalty = 1;
    options.shadows = {.local = true, .carried = true};
    if (wrong) options.fault = [](const Event& e) {
      if (e.op == "tanh_1_backward" && e.tensor == "dx") for (std::int64_t i = 0; i < e.got.count(); ++i) e.got.as<float>()[i] /= 2;
    };
    Trainer trainer(options);
    std::vector<StepResult> steps = {trainer.step(), trainer.step()};
    const Diagnosis diagnosis = diagnose(trainer, steps);
    ASSERT_TRUE(diagnosis.worst);
    EXPECT_EQ(diagnosis.worst->tally.local_error() > 0.1, wrong);
    if (wrong) {
      EXPECT_EQ(diagnosis.worst->where.str(), "tanh_1_backward backward dx");
    }
    int shadowed = 0;
    for (const auto& [key, tally] : trainer.watch()->of_run()) {
      if (!key.op.ends_with("_backward") || tally.error2 + tally.exact2 == 0) continue;  // a linear op's gradient by its input is zero
      ++shadowed;
      if (!wrong) {
        EXPECT_LE(tally.local_error(), 64 * 0x1p-24) << key.str();
        EXPECT_LE(tally.carried_error(), 512 * 0x1p-24) << key.str();
      }
    }
    EXPECT_GT(shadowed, 25);
  }
}

TEST(DoubleBackward, GradientsOnRecordHaveTheBitsOfBackward) {
  const Net net = every_op_net(true);
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    ParameterSet parameters(net.name, 1);
    models::Recordings recordings;
    GraphOptions options;
    options.autocast = dtype;
    Graph graph(parameters, recordings, options);
    net.forward(graph, 0);
    const std::vector<Var> trained = graph.parameter_vars(), gradients = graph.gradients(trained, 256, 256);
    graph.backward(256, 256, /*retain_graph=*/true);
    for (std::size_t i = 0; i < trained.size(); ++i) EXPECT_EQ(to_doubles(graph.view(gradients[i])), to_doubles(graph.grad(trained[i]).view())) << i;
    std::vector<std::vector<double>> once;
    for (const Parameter& p : parameters.all()) once.push_back(to_doubles(p.grad.view()));
    graph.backward(256, 256);  // once more into the same gradients: doubled, which is exact
    std::size_t at = 0;
    for (const Parameter& p : parameters.all()) {
      std::vector<double>& want = once[at++];
      for (double& v : want) v *= 2;
      EXPECT_EQ(to_doubles(p.grad.view()), want) << p.name;
    }
  }
}

TEST(DoubleBackward, WrongUseNamesTheWayOut) {
  const auto message = [](const std::function<void(Graph&)>& work) -> std::string {
    ParameterSet parameters("every", 1);
    models::Recordings recordings;
    Graph graph(parameters, recordings, {});
    every_op_net(false).forward(graph, 0);
    try {
      work(graph);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string twice = message([](Graph& g) { g.backward(1, 1), g.backward(1, 1); });
  EXPECT_TRUE(contains(twice, "[graph] backward, got a graph that an earlier backward() freed") && contains(twice, "retain_graph=true")) << twice;
  EXPECT_TRUE(contains(message([](Graph& g) { g.backward(1, 1), g.gradients(g.parameter_vars(), 1, 1); }), "retain_graph=true"));
  EXPECT_EQ(message([](Graph& g) { g.backward(1, 1, true), g.backward(1, 1, true), g.backward(1, 1); }), "");
  EXPECT_TRUE(contains(message([](Graph& g) {
    g.add_loss(g.norm(g.gradients(g.parameter_vars(), 1, 1), 1), 1);
    g.gradients(g.parameter_vars(), 1, 1);
  }), "no third order"));
  const std::string unknown = message([](Graph& g) {
    const Var h = models::unary(g, "gelu", models::linear(g, "more", g.data({2, 4}, std::vector<double>(8, 0.5)), 4));
    g.add_loss(models::mean_all(g, g.reshape(h, {1, 8})), 1);
    g.add_loss(g.norm(g.gradients(g.parameter_vars(), 1, 1), 1), 1);
    g.backward(1, 1);
  });
  EXPECT_EQ(unknown, "[grad] op gelu has no double backward, known: add, cross_entropy, embedding, linear, mean, mse_loss, mul, relu, sum, tanh");
  const auto conv = ampcheck::testing::ampcheck("train --model conv --steps 1 --grad-penalty 0.1");
  EXPECT_EQ(conv.exit_code, 2) << conv.err;
  EXPECT_TRUE(contains(conv.err, "[grad] op conv2d has no double backward")) << conv.err;
}

/// torch's own case of the penalty (test_grad_scaling_penalty): two linear layers of 8, MSE, SGD 0.125, an infinity on one iteration.
TEST(DoubleBackward, PenaltyOfTorchIsMatched) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "grad_scaler_traces.json");
  int seen = 0;
  for (const tests::Golden& training : golden.at("training")) {
    if (training.at("kind").text != "penalty") continue;
    ++seen;
    for (const bool scaled : {true, false}) {
      const tests::Golden &run = training.at("runs").at(scaled ? "scaled" : "control"), &data = training.at("data");
      const int skip = static_cast<int>(training.at("skip_iter").value);
      TrainOptions options;
      options.own_net = Net{"two", 0, 0, [&data](Tape& t, std::int64_t batch) {
        const auto at = [&](const char* name) { return t.data({8, 8}, to_doubles(tests::tensor_of(data[static_cast<std::size_t>(batch) % data.size()].at(name)).view())); };
        t.add_loss(t.call("mse_loss", {{"x", models::linear(t, "1", models::linear(t, "0", at("input"), 8), 8)}, {"target", at("target")}}), 1);
      }};
      options.dtype = Dtype::fp32;
      options.scaler.enabled = scaled;
      options.scaler.init_scale = tests::real(training.at("scaler").at("init_scale"));
      options.scaler.growth_interval = 1;
      options.rule.optimizer.lr = tests::real(training.at("optimizer").at("args").at("lr"));
      options.rule.grad_penalty = 1;
      if (scaled) options.fault = [skip](const Event& e) {
        if (e.step == skip && e.op == "linear_2" && e.tensor == "dweight") std::fill_n(e.got.as<float>(), e.got.count(), std::numeric_limits<float>::infinity());
      };
      Trainer trainer(options);
      for (const std::string& name : run.at("init").keys) {
        const Tensor value = tests::tensor_of(run.at("init").at(name));
        trainer.set_parameter(name, value.shape(), to_doubles(value.view()));
      }
      for (int i = 0; i < static_cast<int>(run.at("iterations").size()); ++i) {
        SCOPED_TRACE(i);
        if (!scaled && i == skip) break;  // the control does not step there, which is the harness's doing
        const tests::Golden& want = run.at("iterations")[static_cast<std::size_t>(i)];
        const StepResult got = trainer.step();
        // 4 iterations of some tens of fp32 roundings each, in sums of other orders.
        const double close = 0x1p-19;
        const double loss = tests::real(want.at("loss"));
        EXPECT_NEAR(got.loss + got.grad_norm.value_or(0), loss, loss * close);
        if (scaled) {
          EXPECT_EQ(got.scale_after, tests::real(want.at("scale")));
          EXPECT_EQ(got.tracker, static_cast<std::int32_t>(want.at("tracker").value));
          EXPECT_EQ(got.stepped, i != skip);
        }
        for (Parameter& p : trainer.parameters().all()) {
          const auto compare = [&](const std::vector<double>& a, const std::vector<double>& b, const char* what) {
            double error = 0, size = 0;
            for (std::size_t k = 0; k < a.size(); ++k) error = std::max(error, std::fabs(a[k] - b[k])), size = std::max(size, std::fabs(b[k]));
            EXPECT_LE(error, size * close) << what << " " << p.name;
          };
          compare(to_doubles(p.value.view()), to_doubles(tests::tensor_of(want.at("params").at(p.name)).view()), "value");
          if (i == skip) continue;
          std::vector<double> grad = to_doubles(p.grad.view());
          for (double& g : grad) g *= got.scale;
          compare(grad, to_doubles(tests::tensor_of(want.at("grads_after_backward").at(p.name)).view()), "gradient");
        }
      }
    }
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace ampcheck::checks::train
