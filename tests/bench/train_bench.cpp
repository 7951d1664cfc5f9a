// SPDX-License-Identifier: Apache-2.0
// A training step: what its trace and its shadows cost, against the same step alone; and the step itself against
// Eigen's in float.
#include <unistd.h>

#include <Eigen/Core>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checks/models/layers.h"
#include "checks/models/real_data.h"
#include "checks/train/checkpoint.h"
#include "checks/train/fault_ring.h"
#include "checks/train/judge_mode.h"
#include "src/parallel.h"
#include "src/random.h"
#include "tests/bench/figures.h"

namespace ampcheck::bench {

namespace {

using namespace checks::train;

constexpr std::int64_t kWidth = 1024, kBatch = 128;

TrainOptions options_of(const std::string& model, Dtype dtype) {
  TrainOptions out;
  out.net.model = model;
  out.net.width = kWidth;
  if (model != "tutorial") out.net.data = checks::models::find_data("");
  out.dtype = dtype;
  out.scaler.enabled = dtype == Dtype::fp16;
  out.scaler.init_scale = 1024;  // nothing is skipped: a skipped step is a short one
  return out;
}

void begin() { set_threads(1); }

/// A run with its trace, if it is watched.
class Run {
 public:
  explicit Run(const TrainOptions& options, bool recorded = false) : trainer_(options) {
    trainer_.prepare();
    if (!recorded) return;
    static int runs = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("ampcheck_bench." + std::to_string(getpid()) + "." + std::to_string(runs++) + ".trace"))
                .string();
    writer_ = std::make_unique<TraceWriter>(path_, trainer_, 1, false);
    trainer_.watch()->listen([this](const Event& e, const TensorKey& key, const Tally& tally, FaultRole role,
                                    const TensorStats& stats) { writer_->tensor(e, key, tally, role, stats); });
  }
  ~Run() {
    if (!path_.empty()) std::filesystem::remove(path_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  void step() {
    const StepResult result = trainer_.step();
    if (writer_) writer_->step(result);
  }
  Trainer& trainer() { return trainer_; }

 private:
  Trainer trainer_;
  std::string path_;
  std::unique_ptr<TraceWriter> writer_;
};

/// Fastest step of each in turn: alone, not sampled, in full; and a checkpoint for the steps before a fault.
struct Costs {
  double alone = 1e30, skipped = 1e30, full = 1e30, checkpoint = 1e30;
  double sampled() const {
    return ((full + (kRecordEvery - 1) * skipped) / kRecordEvery + checkpoint / kRecordEvery) / alone;
  }
};

Costs costs_of(benchmark::State& state, const std::string& model, bool local, bool recorded) {
  begin();
  const TrainOptions plain = options_of(model, Dtype::fp16);
  TrainOptions watched = plain;
  watched.watched = recorded;
  watched.shadows.local = local;
  TrainOptions unlooked = watched;
  unlooked.sampling.from = 1 << 30;
  constexpr int kRenew =
      10;  // turns: where its memory lies makes one run of the same work some percent faster than another
  std::optional<Run> alone, full, skipped;
  int turn = 0;
  Costs out;
  for (auto _ : state) {
    if (turn++ % kRenew == 0) {
      alone.emplace(plain);
      full.emplace(watched, recorded);
      skipped.emplace(unlooked, recorded);
      alone->step();
      full->step();
      skipped->step();
    }
    out.alone = std::min(out.alone, seconds_of([&] { alone->step(); }));
    out.skipped = std::min(out.skipped, seconds_of([&] { skipped->step(); }));
    out.checkpoint =
        std::min(out.checkpoint, seconds_of([&] { benchmark::DoNotOptimize(checkpoint_bytes(skipped->trainer())); }));
    const double t = seconds_of([&] { full->step(); });
    out.full = std::min(out.full, t);
    state.SetIterationTime(t);
  }
  set_threads(0);
  state.counters["alone_ms"] = out.alone * 1e3;
  state.counters["skipped_ms"] = out.skipped * 1e3;
  state.counters["checkpoint_ms"] = out.checkpoint * 1e3;
  state.counters["full_ms"] = out.full * 1e3;
  return out;
}

std::string net_text(const std::string& model) {
  return model == "tutorial" ? "the tutorial net (width 1024)" : "the small transformer";
}

void trace_figures(const std::string& model, double goal, int turns) {
  add_figure("train/trace/" + model, turns, [=](benchmark::State& state) {
    const Costs costs = costs_of(state, model, false, true);
    record_figure("trace of every tensor of every step / step of " + net_text(model), Goal::at_most, goal,
                  costs.full / costs.alone, "x");
    record_figure("a step that the trace does not look at / step of " + net_text(model), Goal::at_most, 1.01,
                  costs.skipped / costs.alone, "x");
    record_figure("trace at default sampling / step of " + net_text(model), Goal::at_most, 1.05, costs.sampled(), "x");
  });
}

void local_figure(const std::string& model, int turns) {
  add_figure("train/local/" + model, turns, [=](benchmark::State& state) {
    const Costs costs = costs_of(state, model, true, true);
    record_figure("trace with local shadows at default sampling / step of " + net_text(model), Goal::at_most, 2,
                  costs.sampled(), "x");
  });
}

/// The fp64 run alone, of which a carried shadow has one, and for the spread of its loss four more.
void carried_figure(const std::string& model, int turns) {
  add_figure("train/carried/" + model, turns, [=](benchmark::State& state) {
    begin();
    const TrainOptions options = options_of(model, Dtype::fp32);
    Run fp32(options);
    Fp64Run fp64(fp32.trainer().net(), fp32.trainer().options().rule, options.seed);
    const Pair pair = interleaved(
        state, 1, [&] { fp32.step(); }, [&] { fp64.step(); });
    set_threads(0);
    record_figure("carried fp64 shadow / fp32 step of " + net_text(model), Goal::at_most, 4,
                  pair.subject / pair.baseline, "x");
  });
}

/// What the verdict of a run costs at default sampling: a whole run with its shadows, and the same one that judges
/// nothing.
void verdict_figure(const std::string& model, int turns) {
  add_figure("train/verdict/" + model, turns, [=](benchmark::State& state) {
    constexpr int kSteps = 200;
    begin();
    const auto run = [&](bool judged) {
      TrainOptions options = options_of(model, Dtype::bf16);
      options.shadows.local = options.shadows.carried = true;
      options.judge = judged ? JudgeMode::sampled : JudgeMode::none;
      options.check_steps = judged;
      Trainer trainer(options);
      for (int step = 0; step < kSteps; ++step) benchmark::DoNotOptimize(trainer.step().loss);
    };
    const Pair pair = interleaved(
        state, 1, [&] { run(false); }, [&] { run(true); });
    set_threads(0);
    record_figure("verdict of " + std::to_string(kSteps) + " steps at default sampling / the run of " + net_text(model),
                  Goal::at_most, 1.15, pair.subject / pair.baseline, "x");
  });
}

using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// The tutorial net by hand: forward, backward and SGD in float, every buffer allocated beforehand.
struct EigenNet {
  Floats x, y, weight[3], h[3], dh[3], dweight[3];
  Eigen::RowVectorXf bias[3];
  void step(float rate) {
    for (int i = 0; i < 3; ++i) {
      h[i].noalias() = (i == 0 ? x : h[i - 1]) * weight[i].transpose();
      h[i].rowwise() += bias[i];
      if (i < 2) h[i] = h[i].cwiseMax(0.0f);
    }
    dh[2] = (h[2] - y) * (2.0f / static_cast<float>(y.size()));
    for (int i = 2; i >= 0; --i) {
      dweight[i].noalias() = dh[i].transpose() * (i == 0 ? x : h[i - 1]);
      if (i > 0) {
        dh[i - 1].noalias() = dh[i] * weight[i];
        dh[i - 1] = (h[i - 1].array() > 0).select(dh[i - 1], 0.0f);
      }
      weight[i] -= rate * dweight[i];
      bias[i] -= rate * dh[i].colwise().sum();
    }
  }
};

/// The same step on the same data, in fp32, without scaler or watch.
void eigen_figure() {
  add_figure("train/eigen", 25, [](benchmark::State& state) {
    begin();
    std::vector<double> x(kBatch * kWidth), y(kBatch * kWidth);
    Random(1, "x").normals(0, x);
    Random(1, "y").normals(0, y);
    TrainOptions options = options_of("tutorial", Dtype::fp32);
    options.own_net = Net{
        "tutorial", 1e-3, 0, [=](checks::models::Tape& t, std::int64_t) {
          using namespace checks::models;
          Var h = t.data({kBatch, kWidth}, x);
          for (const char* layer : {"layer0", "layer1"}) h = unary(t, "relu", linear(t, layer, h, kWidth));
          t.add_loss(
              t.call("mse_loss", {{"x", linear(t, "layer2", h, kWidth)}, {"target", t.data({kBatch, kWidth}, y)}}), 1);
        }};
    Run ours(options);
    const auto matrix = [](const auto& values, std::int64_t rows) {
      Floats out(rows, static_cast<Eigen::Index>(values.size()) / rows);
      for (Eigen::Index i = 0; i < out.size(); ++i)
        out.data()[i] = static_cast<float>(values[static_cast<std::size_t>(i)]);
      return out;
    };
    EigenNet eigen{
        .x = matrix(x, kBatch), .y = matrix(y, kBatch), .weight = {}, .h = {}, .dh = {}, .dweight = {}, .bias = {}};
    for (int i = 0; i < 3; ++i) {
      const Parameter& weight = *ours.trainer().parameters().find("layer" + std::to_string(i) + ".weight");
      eigen.weight[i] = matrix(weight.value.span<float>(), kWidth);
      eigen.bias[i] = Eigen::RowVectorXf::Zero(kWidth);
    }
    const Pair pair = interleaved(
        state, 1, [&] { eigen.step(1e-3f); }, [&] { ours.step(); });
    set_threads(0);
    record_figure("step of the tutorial net (width 1024, fp32) / the same in Eigen float", Goal::at_most, 1,
                  pair.subject / pair.baseline, "x");
  });
}

const bool registered = [] {
  trace_figures("tutorial", 1.3, 40);
  trace_figures("transformer", 2, 60);
  local_figure("tutorial", 10);
  local_figure("transformer", 40);
  carried_figure("tutorial", 12);
  carried_figure("transformer", 40);
  verdict_figure("transformer", 5);
  eigen_figure();
  return true;
}();

}  // namespace

}  // namespace ampcheck::bench
