// SPDX-License-Identifier: Apache-2.0
// A net of one's own, trained in fp16 beside fp64 by a program of one's own: my_net [RATE]. Exits 1 if the run leaves
// the fp64 run.
#include <cstdio>
#include <cstdlib>

#include "checks/train/train.h"

using namespace ampcheck;
using namespace ampcheck::checks;
using namespace ampcheck::checks::train;

int main(int count, char** words) {
  Net net;
  net.name = "my_net", net.rate = count > 1 ? std::atof(words[1]) : 0.05;
  net.forward = [](models::Tape& t, std::int64_t batch) {  // runs on the kernels' tape and on the one in fp64
    std::vector<double> x(64 * 32), y(64 * 4);
    Random(1, "x").normals(static_cast<std::uint64_t>(batch) * 10'000, x);
    Random(1, "y").normals(static_cast<std::uint64_t>(batch) * 10'000, y);
    const models::Sequential body{models::Linear{"in", 48}, models::Unary{"gelu"},
                                  models::Residual{models::Linear{"middle", 48}}};
    models::Var h = body(t, t.data({64, 32}, x));
    {
      const Autocast off(t.device(), {.enabled = false});  // this layer in fp32
      h = models::layer_norm(t, "norm", t.to(h, Dtype::fp32));
    }
    t.add_loss(t.call("mse_loss", {{"x", models::linear(t, "out", h, 4)}, {"target", t.data({64, 4}, y)}}), 1);
  };
  TrainOptions options;
  options.own_net = net;
  options.dtype = Dtype::fp16;
  options.shadows = {.local = true, .carried = true};
  Trainer trainer(options);
  std::vector<StepResult> steps;
  for (int i = 0; i < 20; ++i) steps.push_back(trainer.step());
  const Diagnosis diagnosis = diagnose(trainer, steps);
  std::printf("loss %.4f, fp64 %.4f: %s; worst: %s\n", steps.back().loss, *steps.back().fp64_loss,
              diagnosis.left_at ? "left" : "stayed", diagnosis.worst->where.str().c_str());
  return diagnosis.left_at ? 1 : 0;
}
