// SPDX-License-Identifier: Apache-2.0
// A net of one's own, trained in fp16 beside fp64 by a program of one's own: my_net [RATE]. Exits 1 if the run leaves
// the fp64 run.
#include <ampcheck/train.h>

#include <cstdio>
#include <cstdlib>

using namespace ampcheck::train;

int main(int count, char** words) {
  Net net;
  net.name = "my_net";
  net.rate = count > 1 ? std::atof(words[1]) : 0.05;
  net.forward = [](Tape& t, std::int64_t batch) {  // runs on the kernels' tape and on the one in fp64
    const std::uint64_t first = static_cast<std::uint64_t>(batch) * 10'000;
    const Var x = t.data({64, 32}, normals(1, "x", first, 64 * 32));
    const Var y = t.data({64, 4}, normals(1, "y", first, 64 * 4));
    const Sequential body{Linear{"in", 48}, Unary{"gelu"}, Residual{Linear{"middle", 48}}};
    Var h = body(t, x);
    {
      const Autocast off(t, {.enabled = false});  // this layer in fp32
      h = layer_norm(t, "norm", t.to(h, Dtype::fp32));
    }
    t.add_loss(t.call("mse_loss", {{"x", linear(t, "out", h, 4)}, {"target", y}}));
  };
  Options options;
  options.dtype = Dtype::fp16;
  Trainer trainer(net, options);
  for (int i = 0; i < 20; ++i) trainer.step();
  const StepResult& last = trainer.results().back();
  const Diagnosis diagnosis = trainer.diagnosis();
  std::printf("loss %.4f, fp64 %.4f: %s; worst: %s\n", last.loss, *last.fp64_loss,
              diagnosis.left_at ? "left" : "stayed", diagnosis.worst ? diagnosis.worst->text.c_str() : "none");
  return diagnosis.left_at ? 1 : 0;
}
