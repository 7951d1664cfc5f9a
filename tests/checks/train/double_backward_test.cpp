// SPDX-License-Identifier: Apache-2.0
// Gradients of gradients in the training graph, and the gradient penalty made of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "checks/case/case_reference.h"
#include "checks/models/layers.h"
#include "checks/train/diagnosis.h"
#include "checks/train/double_backward.h"
#include "src/amp/autocast.h"
#include "src/error.h"
#include "src/random.h"
#include "tests/support/golden_coverage.h"
#include "tests/support/goldens.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::train {
namespace {

using models::Tape;
using models::Var;

std::vector<double> normals(const char* name, std::size_t n, std::uint64_t batch) {
  std::vector<double> out(n);
  Random(5, name).normals(batch * 1000, out);
  return out;
}

/// Between them the nets call every op that has a double backward, with moves, a tensor read twice and a parameter used
/// twice. Of norms and attention each has one: the balls of longer chains exclude nothing.
enum class Kind { values, classes, convolution, pooling, layer_norm, rms_norm, attention };
constexpr Kind kKinds[] = {Kind::values,     Kind::classes,  Kind::convolution, Kind::pooling,
                           Kind::layer_norm, Kind::rms_norm, Kind::attention};

/// [6, 8] by one of these between two trained layers.
Var one_layer(Tape& t, Kind kind, std::uint64_t at) {
  if (kind == Kind::convolution) {
    const Var image = t.data({2, 2, 4, 4}, normals("image", 64, at));
    return models::linear(t, "after",
                          t.reshape(models::unary(t, "gelu", models::conv3x3(t, "conv", image, 3)), {6, 16}), 8);
  }
  if (kind == Kind::pooling) {  // windows that overlap
    const Var image = t.data({2, 2, 4, 4}, normals("image", 64, at));
    const Var pooled = t.call("max_pool2d", {{"x", models::unary(t, "tanh", models::conv3x3(t, "conv", image, 3))}},
                              {{"kernel", 3}, {"stride", 1}});
    return models::linear(t, "after", t.reshape(pooled, {6, 4}), 8);
  }
  const Var x = t.data({6, 8}, normals("x", 48, at));
  if (kind != Kind::attention) {
    const Var h = models::linear(t, "before", x, 8);
    return models::linear(
        t, "after", kind == Kind::rms_norm ? models::rms_norm(t, "norm", h) : models::layer_norm(t, "norm", h), 8);
  }
  const auto heads = [&](const char* name) { return t.reshape(models::linear(t, name, x, 8), {1, 2, 3, 8}); };
  const Var q = heads("q"), k = heads("k"), v = heads("v");
  return t.reshape(t.call("attention", {{"q", q}, {"k", k}, {"v", v}}, {{"causal", 1}}), {6, 8});
}

Net every_op_net(Kind kind) {
  return {
      "every", 0.1, 0, [kind](Tape& t, std::int64_t batch) {
        const auto at = static_cast<std::uint64_t>(batch);
        if (kind > Kind::classes)
          return t.add_loss(
              t.call("mse_loss", {{"x", one_layer(t, kind, at)}, {"target", t.data({6, 8}, normals("z", 48, at))}}), 1);
        const std::vector<double> indices = {3, 0, 3, 1, 2, 0};
        const Var rows =
            t.call("embedding", {{"index", t.data({6}, indices)}, {"weight", t.weight("table", {4, 8}, 8)}});
        const Var x = models::add(t, rows, t.data({6, 8}, normals("x", 48, at)));
        const Var h = models::unary(t, "tanh", models::linear(t, "first", x, 8)),
                  r = models::unary(t, "relu", models::linear(t, "second", h, 8));
        const Var product = models::mul(t, r, h);
        const Var turned = t.reshape(models::exchanged(t, product, 1, 2, 3, 8, {6, 8}), {12, 4});
        const Var sums = models::row_sums(t, turned),
                  again = models::linear(
                      t, "third",
                      t.reshape(t.take(sums, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 3, 5, 5, 1, 2}, {18, 1}),
                                {6, 3}),
                      4);
        if (kind == Kind::classes)
          t.add_loss(models::mean_all(
                         t, t.call("cross_entropy", {{"x", again}, {"target", t.data({6}, {0, 3, 1, -100, 2, 1})}})),
                     1);
        else
          t.add_loss(t.call("mse_loss", {{"x", again}, {"target", t.data({6, 4}, normals("y", 24, at))}}), 1);
        t.add_loss(models::mean_all(t, t.reshape(h, {48})), 0.5);
      }};
}

/// A net recorded as one formula: what the reference bounds as a whole.
class FormulaTape final : public Tape {
 public:
  explicit FormulaTape(ParameterSet& parameters) : parameters_(parameters), loss(reference::constant(graph, 0.0)) {}

  Var data(const Shape& shape, std::vector<double> values) override {
    for (double& v : values) v = static_cast<double>(static_cast<float>(v));
    return leaf("data", shape, std::move(values));
  }
  Var parameter(const std::string& name, const Shape& shape, double, double) override {
    if (!trained.contains(name)) trained[name] = leaf(name, shape, to_doubles(parameters_.find(name)->value.view())).id;
    return {trained.at(name)};
  }
  Var call(const std::string& name, const std::vector<std::pair<std::string, Var>>& inputs,
           const std::vector<std::pair<std::string, double>>& attributes = {}) override {
    const OpDef& op = models::op_of_call(name);
    const models::RecordedCall bound = models::bind_call(name, inputs, attributes, [&](Var x) { return shape(x); });
    reference::FormulaCall formula(graph, bound.call.attributes);
    for (const auto& [input, id] : bound.inputs) {
      if (is_float(dtype_of(op.signature.input(input)->type, Dtype::fp32))) {
        formula.inputs_[input] = nodes_[static_cast<std::size_t>(id)];
        continue;
      }
      const std::vector<double>& values = values_.at(nodes_[static_cast<std::size_t>(id)].id);
      formula.integers_[input] = {values.begin(), values.end()};
      formula.integer_shapes_[input] = shape({id});
    }
    op.forms.front().formula(formula);
    return push(formula.outputs_.front().second);
  }
  Var reshape(Var x, const Shape& to) override { return push(reference::reshape(node(x), to)); }
  Var take(Var x, const std::vector<std::int64_t>& map, const Shape& to) override {
    return push(reference::take(node(x), map, to));
  }
  const Shape& shape(Var x) const override { return nodes_[static_cast<std::size_t>(x.id)].shape(); }
  void add_loss(Var value, double weight) override { loss = loss + weight * reference::reshape(node(value), {1}); }

  reference::Expr node(Var x) const { return nodes_[static_cast<std::size_t>(x.id)]; }
  reference::Graph graph;

 private:
  Var push(reference::Expr e) {
    nodes_.push_back(e);
    return {static_cast<int>(nodes_.size()) - 1};
  }
  Var leaf(const std::string& name, const Shape& shape, std::vector<double> values) {
    const Var out = push(graph.input(name, shape));
    values_[node(out).id] = std::move(values);
    return out;
  }
  ParameterSet& parameters_;
  std::vector<reference::Expr> nodes_;

 public:
  std::map<int, std::vector<double>> values_;  ///< of leaves, by node
  std::map<std::string, int> trained;
  reference::Expr loss;
};

/// Value and radius of the gradients of loss + penalty |gradient|, and of the norm: what fp32 kernels may compute, in
/// any order of their sums.
struct Bounds {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> of;
  double norm = 0, norm_radius = 0;
};
Bounds bounds_of(const Net& net, ParameterSet& parameters, double penalty) {
  FormulaTape tape(parameters);
  net.forward(tape, 0);
  using reference::Expr;
  std::vector<Expr> trained;
  for (const auto& [name, id] : tape.trained) trained.push_back(tape.node({id}));
  const Expr one = reference::indicator(tape.graph, {1}, {1}), loss = reference::reshape(tape.loss, {1});
  Expr squares = reference::constant(tape.graph, 0.0);
  for (const Expr& g : tape.graph.vjp({loss}, {one}, trained))
    squares = squares + reference::sum_all(reference::square(g));
  const Expr norm = reference::sqrt(squares);
  std::vector<Expr> targets = tape.graph.vjp({loss + penalty * norm}, {one}, trained);
  targets.push_back(norm);
  reference::BallEvaluator balls(tape.graph, {.math = own_math(), .saved = {}}, targets);
  for (const auto& [id, values] : tape.values_) balls.set(tape.graph.at(id), values);
  balls.run(targets);
  Bounds out;
  std::size_t k = 0;
  const auto radius = [](const reference::Ball& ball, std::int64_t i) { return ball.r ? ball.r[i] : 0; };
  for (const auto& [name, id] : tape.trained) {
    const reference::Ball& ball = balls.result(targets[k++]);
    auto& [values, radii] = out.of[name];
    for (std::int64_t i = 0; i < ball.count(); ++i) {
      values.push_back(ball.v[i]);
      radii.push_back(radius(ball, i));
    }
  }
  out.norm = balls.result(norm).v[0];
  out.norm_radius = radius(balls.result(norm), 0);
  return out;
}

/// Gradients of loss + penalty |gradient| by the kernels.
struct Computed {
  std::map<std::string, std::vector<double>> of;
  double norm = 0;
  /// Elements outside of the bounds.
  int outside(const Bounds& bounds) const {
    int count = 0;
    for (const auto& [name, got] : of)
      for (std::size_t i = 0; i < got.size(); ++i)
        count += std::fabs(got[i] - bounds.of.at(name).first[i]) <= bounds.of.at(name).second[i] ? 0 : 1;
    return count;
  }
};
void forward_in(std::optional<Dtype> dtype, const Net& net, Graph& graph) {
  const Autocast region(graph.device(), autocast_in(dtype.value_or(Dtype::fp32)));
  net.forward(graph, 0);
}

Computed computed(const Net& net, std::optional<Dtype> autocast, double penalty,
                  const std::function<void(const Event&)>& fault = nullptr) {
  ParameterSet parameters(net.name, 1);
  models::Recordings recordings;
  GraphOptions options;
  options.fault = fault;
  Graph graph(parameters, recordings, options);
  forward_in(autocast, net, graph);
  const Var norm = graph.norm(graph.gradients(graph.parameter_vars(), 1024, 1024), 1.0f / 1024);
  graph.add_loss(norm, penalty);
  graph.backward(1, 1);
  Computed out;
  out.norm = static_cast<double>(graph.view(norm).as<const float>()[0]);
  for (const Parameter& p : parameters.all()) out.of[p.name] = to_doubles(p.grad.view());
  return out;
}

Bounds bounds_of(const Net& net, double penalty) {
  ParameterSet parameters(net.name, 1);
  models::Recordings recordings;
  Graph graph(parameters, recordings, {});
  net.forward(graph, 0);  // which parameters there are
  return bounds_of(net, parameters, penalty);
}

/// The reference first: the gradient of the penalty along a direction against centred differences of the penalty.
TEST(DoubleBackward, TheFp64PenaltyIsTheSlopeOfTheNorm) {
  for (const Kind kind : kKinds) {
    const Net net = every_op_net(kind);
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
      for (std::size_t i = 0; i < g.size(); ++i) {
        length2 += std::pow(direction[name][i], 2);
        slope += (with.at(name)[i] - g[i]) * direction[name][i];
        sum += std::fabs((with.at(name)[i] - g[i]) * direction[name][i]);
      }
    }
    // One Richardson step leaves the fourth power of the way gone and u/h of the norm; no relu is as near to its kink.
    const double h = 0x1p-17, coarse = (norm_at(h, direction) - norm_at(-h, direction)) / (2 * h),
                 fine = (norm_at(h / 2, direction) - norm_at(-h / 2, direction)) / h;
    EXPECT_NEAR((4 * fine - coarse) / 3, slope, (std::pow(h * std::sqrt(length2), 4) + 16 * 0x1p-52 / h) * sum)
        << static_cast<int>(kind);
  }
}

/// The whole net as one formula, differentiated twice: its balls say what fp32 may make of it.
TEST(DoubleBackward, TheKernelsGradientsOfGradientsLieInTheBallsOfTheFormulas) {
  for (const Kind kind : kKinds) {
    const Net net = every_op_net(kind);
    const Bounds bounds = bounds_of(net, 2);
    const Computed fp32 = computed(net, std::nullopt, 2);
    EXPECT_NEAR(fp32.norm, bounds.norm, bounds.norm_radius);
    EXPECT_EQ(fp32.outside(bounds), 0) << static_cast<int>(kind);
    EXPECT_GT(computed(net, Dtype::bf16, 2).outside(bounds), 0) << "eight bits are seen";
    // A planted fault: one term of a product rule that is left out.
    using Spoiled = std::pair<const char*, const char*>;
    std::vector<Spoiled> all = {{"linear_2_backward", "dx"},
                                {"linear_2_backward", "dweight"},
                                {"tanh_1_backward", "dx"},
                                {"mul_1_backward", "dx"}};
    if (kind == Kind::convolution) all = {{"conv2d_1_backward", "ddy"}, {"gelu_1_backward", "dx"}};
    if (kind == Kind::pooling) all = {{"max_pool2d_1_backward", "ddy"}, {"conv2d_1_backward", "ddy"}};
    if (kind == Kind::layer_norm)
      all = {{"layer_norm_1_backward", "dx"}, {"layer_norm_1_backward", "dweight"}, {"layer_norm_1_backward", "ddy"}};
    if (kind == Kind::rms_norm)
      all = {{"rms_norm_1_backward", "dx"}, {"rms_norm_1_backward", "dweight"}, {"rms_norm_1_backward", "ddy"}};
    if (kind == Kind::attention)
      all = {{"attention_1_backward", "dq"},
             {"attention_1_backward", "dk"},
             {"attention_1_backward", "dv"},
             {"attention_1_backward", "ddo"}};
    for (const auto& [op, tensor] : all) {
      const Computed wrong = computed(net, std::nullopt, 2, [op = op, tensor = tensor](const Event& e) {
        if (e.op == op && e.tensor == tensor)
          std::memset(e.got.data, 0, static_cast<std::size_t>(e.got.count() * bytes(e.got.dtype)));
      });
      EXPECT_GT(wrong.outside(bounds), 0) << op << " " << tensor;
    }
  }
}

/// The local shadow sees which double backward is wrong.
TEST(DoubleBackward, AWrongOneIsNamedByTheTrace) {
  for (const bool wrong : {false, true}) {
    TrainOptions options;
    options.own_net = every_op_net(Kind::values);
    options.dtype = Dtype::fp32;
    options.scaler.enabled = false;
    options.rule.grad_penalty = 1;
    options.shadows = {.local = true, .carried = true};
    if (wrong)
      options.fault = [](const Event& e) {
        if (e.op == "tanh_1_backward" && e.tensor == "dx")
          for (std::int64_t i = 0; i < e.got.count(); ++i) e.got.as<float>()[i] /= 2;
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
      if (!key.op.ends_with("_backward") || tally.error2 + tally.exact2 == 0)
        continue;  // a linear op's gradient by its input is zero
      ++shadowed;
      if (!wrong) {
        EXPECT_LT(std::max(tally.local_error(), tally.carried_error()), kBf16.unit_roundoff())
            << key.str() << ": less than one rounding to bf16";
      }
    }
    EXPECT_GT(shadowed, 25);
  }
}

TEST(DoubleBackward, GradientsOnRecordHaveTheBitsOfBackward) {
  const Net net = every_op_net(Kind::classes);
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    ParameterSet parameters(net.name, 1);
    models::Recordings recordings;
    Graph graph(parameters, recordings, {});
    forward_in(dtype, net, graph);
    const std::vector<Var> trained = graph.parameter_vars(), gradients = graph.gradients(trained, 256, 256);
    graph.backward(256, 256, /*retain_graph=*/true);
    for (std::size_t i = 0; i < trained.size(); ++i)
      EXPECT_EQ(to_doubles(graph.view(gradients[i])), to_doubles(graph.grad(trained[i]).view())) << i;
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
    every_op_net(Kind::values).forward(graph, 0);
    try {
      work(graph);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string twice = message([](Graph& g) {
    g.backward(1, 1);
    g.backward(1, 1);
  });
  EXPECT_TRUE(contains(twice, "[graph] backward, got a graph that an earlier backward() freed") &&
              contains(twice, "retain_graph=true"))
      << twice;
  EXPECT_TRUE(contains(message([](Graph& g) {
                         g.backward(1, 1);
                         g.gradients(g.parameter_vars(), 1, 1);
                       }),
                       "retain_graph=true"));
  EXPECT_EQ(message([](Graph& g) {
              g.backward(1, 1, true);
              g.backward(1, 1, true);
              g.backward(1, 1);
            }),
            "");
  EXPECT_TRUE(contains(message([](Graph& g) {
                         g.add_loss(g.norm(g.gradients(g.parameter_vars(), 1, 1), 1), 1);
                         g.gradients(g.parameter_vars(), 1, 1);
                       }),
                       "no third order"));
  OpDef custom = *find_op("add");
  custom.signature.name = "custom";
  std::string unknown;
  try {
    double_backward(custom, {});
  } catch (const Error& error) {
    unknown = error.what();
  }
  EXPECT_EQ(unknown,
            "[grad] op custom has no double backward, known: add, attention, conv2d, cross_entropy, div, embedding, "
            "exp, gelu, gelu_tanh, layer_norm, linear, log, log_softmax, max_pool2d, mean, mse_loss, mul, relu, "
            "rms_norm, sigmoid, silu, softmax, sum, swiglu, tanh");
}

/// A net of every kind is trained with a penalty, which stays beside the fp64 run's, and whose double backwards the
/// local shadow confirms.
TEST(DoubleBackward, EveryNetTakesAPenalty) {
  for (const char* model : {"mlp", "conv", "transformer"}) {
    TrainOptions options;
    options.net.model = model;
    options.net.data = models::find_data("");
    options.dtype = Dtype::fp32;
    options.scaler.enabled = false;
    options.rule.grad_penalty = 0.1;
    options.shadows = {.local = true, .carried = true};
    Trainer trainer(options);
    const StepResult first = trainer.step();
    EXPECT_NEAR(*first.grad_norm, *first.fp64_grad_norm, *first.fp64_grad_norm * 0x1p-16)
        << model << ": some hundred roundings in fp32";
    int seconds = 0;
    for (const auto& [key, tally] : trainer.watch()->of_run()) {
      if (!key.op.ends_with("_backward") || tally.error2 + tally.exact2 == 0) continue;
      if (key.tensor == "grad_bias")
        continue;  // of keys, and of scores that a softmax takes, it is zero but for rounding
      ++seconds;
      EXPECT_LT(tally.local_error(), kFp16.unit_roundoff())
          << model << " " << key.str() << ": less than one rounding to fp16";
    }
    EXPECT_GT(seconds, 5) << model;
  }
}

/// Two linear layers of 8 and MSE, over the batches in turn.
Net penalised_net(const tests::Golden& data) {
  return {"two", 0, 0, [&data](Tape& t, std::int64_t batch) {
            const auto at = [&](const char* name) {
              return t.data(
                  {8, 8},
                  to_doubles(tests::tensor_of(data[static_cast<std::size_t>(batch) % data.size()].at(name)).view()));
            };
            t.add_loss(t.call("mse_loss", {{"x", models::linear(t, "1", models::linear(t, "0", at("input"), 8), 8)},
                                           {"target", at("target")}}),
                       1);
          }};
}

TrainOptions penalty_options(const tests::Golden& training, bool scaled) {
  const int skip = static_cast<int>(training.at("skip_iter").value);
  TrainOptions options;
  options.own_net = penalised_net(training.at("data"));
  options.dtype = Dtype::fp32;
  options.scaler.enabled = scaled;
  options.scaler.init_scale = tests::real(training.at("scaler").at("init_scale"));
  options.scaler.growth_interval = 1;
  options.rule.optimizer.lr = tests::real(training.at("optimizer").at("args").at("lr"));
  options.rule.grad_penalty = 1;
  if (scaled)
    options.fault = [skip](const Event& e) {
      if (e.step == skip && e.op == "linear_2" && e.tensor == "dweight")
        std::fill_n(e.got.as<float>(), e.got.count(), std::numeric_limits<float>::infinity());
    };
  return options;
}

/// 4 iterations of some tens of fp32 roundings each, in sums of other orders.
constexpr double kPenaltyClose = 0x1p-19;

void expect_near(const std::vector<double>& got, const Tensor& golden, const std::string& what) {
  const std::vector<double> want = to_doubles(golden.view());
  double error = 0, size = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    error = std::max(error, std::fabs(got[k] - want[k]));
    size = std::max(size, std::fabs(want[k]));
  }
  EXPECT_LE(error, size * kPenaltyClose) << what;
}

/// torch's own case of the penalty (test_grad_scaling_penalty): SGD 0.125, an infinity on one iteration.
void play_penalty(const tests::Golden& training) {
  if (training.at("kind").text != "penalty") return;
  for (const tests::Golden& batch : training.at("data"))
    for (const tests::Golden& tensor : batch) EXPECT_EQ(tests::dtype_of(tensor.at("dtype").text), Dtype::fp32);
  const int skip = static_cast<int>(training.at("skip_iter").value);
  for (const bool scaled : {true, false}) {
    const tests::Golden& run = training.at("runs").at(scaled ? "scaled" : "control");
    Trainer trainer(penalty_options(training, scaled));
    for (const std::string& name : run.at("init").keys) {
      const Tensor value = tests::tensor_of(run.at("init").at(name));
      trainer.set_parameter(name, value.shape(), to_doubles(value.view()));
    }
    for (int i = 0; i < static_cast<int>(run.at("iterations").size()); ++i) {
      SCOPED_TRACE(i);
      if (!scaled && i == skip) break;  // the control does not step there, which is the harness's doing
      const tests::Golden& want = run.at("iterations")[static_cast<std::size_t>(i)];
      const StepResult got = trainer.step();
      const double loss = tests::real(want.at("loss"));
      EXPECT_NEAR(got.loss + got.grad_norm.value_or(0), loss, loss * kPenaltyClose);
      if (scaled) {
        EXPECT_EQ(got.scale_after, tests::real(want.at("scale")));
        EXPECT_EQ(got.tracker, static_cast<std::int32_t>(want.at("tracker").value));
        EXPECT_EQ(got.stepped, i != skip);
      }
      for (Parameter& p : trainer.parameters().all()) {
        expect_near(to_doubles(p.value.view()), tests::tensor_of(want.at("params").at(p.name)), "value " + p.name);
        if (i == skip) continue;
        std::vector<double> grad = to_doubles(p.grad.view());
        for (double& g : grad) g *= got.scale;
        expect_near(grad, tests::tensor_of(want.at("grads_after_backward").at(p.name)), "gradient " + p.name);
      }
    }
  }
}
const tests::Played played_penalty("grad_scaler_traces.json", "training", play_penalty);

TEST(DoubleBackward, PenaltyOfTorchIsMatched) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "grad_scaler_traces.json");
  int seen = 0;
  for (const tests::Golden& training : golden.at("training")) {
    play_penalty(training);
    seen += training.at("kind").text == "penalty" ? 1 : 0;
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace ampcheck::checks::train
