// SPDX-License-Identifier: Apache-2.0
#include "checks/train/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "checks/models/layers.h"
#include "checks/train/trainer.h"
#include "reference/certify.h"
#include "src/amp/autocast.h"
#include "src/amp/unscale.h"
#include "src/rounding.h"

namespace ampcheck::checks::train {

namespace {

double rounded(const FloatFormat& format, double value) { return decode_scalar(format, encode_scalar(format, value)); }

std::string power(double value) { return fmt::format("2^{}", std::ilogb(value)); }

/// Largest power of two p for which `vanishes(p)`; powers are tried from 1 down.
template <class F>
double largest_power(F vanishes) {
  for (double p = 1; p > 0; p /= 2)
    if (vanishes(p)) return p;
  return 0;
}

/// The first output of an op's kernel at one input "x" in fp32.
std::vector<double> run_kernel(const char* op, const Shape& shape, const std::vector<double>& x) {
  ParameterSet none("facts", 1);
  models::Recordings recordings;
  Graph graph(none, recordings, {});
  return to_doubles(graph.view(graph.call(op, {{"x", graph.data(shape, x)}})));
}

Fact underflow() {
  Fact fact{.claim = "fp16 underflows to zero below 6e-5", .command = "ampcheck formats 2^-25 --format fp16"};
  const double gone = largest_power([](double p) { return rounded(kFp16, p) == 0; });
  const double kept = rounded(kFp16, std::nextafter(gone, 1.0));
  fact.holds = gone >= kFp16.min_normal() / 2;
  fact.command = fmt::format("ampcheck formats {} --format fp16", gone);
  fact.measured = fmt::format("zero begins at {} = {:.3g}: the next number above becomes {:.3g}. 6.1e-05 = {} is the smallest normal number; below it digits go one by one", power(gone), gone, kept, power(kFp16.min_normal()));
  return fact;
}

Fact small_update() {
  Fact fact{.claim = "an fp16 weight keeps its update while lr*grad is above 2^-24", .command = "ampcheck formats 1.00048828125 --format fp16"};
  const auto lost = [](const FloatFormat& f) { return largest_power([&](double u) { return rounded(f, 1 + u) == 1; }); };
  const double fp16 = lost(kFp16), bf16 = lost(kBf16), fp32 = lost(kFp32);
  fact.holds = fp16 <= 0x1p-24;
  fact.measured = fmt::format("a weight of 1 does not move for an update of {} in fp16, {} in bf16, {} in fp32: the weight's last place decides, not the smallest number", power(fp16), power(bf16), power(fp32));
  return fact;
}

Fact running_sum() {
  Fact fact{.claim = "a sum, a mean or a softmax's sum is safe in fp16 as long as the result fits", .command = "ampcheck check sum mean softmax --dtype fp16"};
  double naive = 0, mean = 0;
  for (int i = 0; i < 4096; ++i) naive = rounded(kFp16, naive + 1);
  for (int i = 0; i < 8; ++i) mean = rounded(kFp16, mean + 1e4);
  const double kernel = run_kernel("mean", {1, 8}, std::vector<double>(8, 1e4)).front();
  fact.holds = naive == 4096 && std::isfinite(mean);
  fact.measured = fmt::format("4096 ones summed in fp16 give {}; the mean of eight 10000s, summed in fp16, is {}; the kernels here accumulate in fp32: {}", naive, rounded(kFp16, mean / 8), kernel);
  return fact;
}

Fact exponential() {
  Fact fact{.claim = "softmax overflows in fp16 only for huge logits", .command = "ampcheck formats 65520 --format fp16"};
  double most = 0;
  for (double x = 0; std::isfinite(rounded(kFp16, std::exp(x))); x += 0x1p-6) most = x;
  const std::vector<double> shifted = run_kernel("softmax", {1, 3}, {1000, 999, 0});
  fact.holds = most > 100;
  fact.measured = fmt::format("exp(x) in fp16 is infinite above x = {:.1f}, a sum of 1000 such terms above {:.1f}; with the largest logit taken off, softmax of (1000, 999, 0) is ({:.3f}, {:.3f}, {:.0f})", most,
                              std::log(65504.0 / 1000), shifted[0], shifted[1], shifted[2]);
  return fact;
}

Fact division() {
  Fact fact{.claim = "dividing by eps = 1e-8 guards against a division by zero in fp16 too", .command = "ampcheck formats 1e-8 --format fp16"};
  const double eps = rounded(kFp16, 1e-8), least = largest_power([](double x) { return std::isinf(rounded(kFp16, 1 / x)); });
  fact.holds = eps > 0;
  fact.measured = fmt::format("1e-8 is {} in fp16, so g / (sqrt(v) + eps) is 0/0 where v is 0; and 1/x is infinite from x = {} down; g*g is 0 for |g| below {:.3g}", eps, power(least), std::sqrt(0x1p-25));
  return fact;
}

/// Counts dtypes in the backward pass of one step of the MLP.
struct BackwardDtypes final : Observer {
  int tensors = 0, low = 0;
  std::int64_t elements = 0, representable = 0;

  bool wants(std::string_view) const override { return true; }
  bool wants_exact(std::string_view) const override { return false; }
  bool see(const Event& e) override {
    const bool backward = e.phase == Phase::backward;
    if (backward) ++tensors, low += e.got.dtype == Dtype::fp16;
    if (backward && e.cast && e.got.dtype == Dtype::fp32)  // a parameter's gradient as it arrives
      for (const double g : to_doubles(e.got)) ++elements, representable += rounded(kFp16, g) == g;
    return all_finite(e.got);
  }
};

void see_backward_of_mlp(const std::filesystem::path& data, BackwardDtypes& seen) {
  NetOptions options;
  options.data = data;
  const Net net = make_net(options);
  ParameterSet parameters(net.name, 1);
  models::Recordings recordings;
  GraphOptions graph_options;
  graph_options.observer = &seen;
  Graph graph(parameters, recordings, graph_options);
  {
    const Autocast region(graph.device(), autocast_in(Dtype::fp16));
    net.forward(graph, 0);
  }
  graph.backward(65536, 65536);
}

Fact gradients_are_fp32(const std::filesystem::path& data) {
  Fact fact{.claim = "with autocast and fp32 weights the gradients are computed in fp32", .command = "ampcheck train --steps 1 --record one.trace; ampcheck trace one.trace --csv"};
  BackwardDtypes seen;
  see_backward_of_mlp(data, seen);
  fact.holds = seen.representable < seen.elements;
  fact.measured = fmt::format("of the {} elements of the MLP's weight gradients, held in fp32, {} are fp16 numbers: they were produced in fp16 and only stored in fp32", seen.elements, seen.representable);
  return fact;
}

Fact backward_is_fp32(const std::filesystem::path& data) {
  Fact fact{.claim = "fp16 is not used in backward, since autocast is off there", .command = "ampcheck train --steps 1 --record one.trace; ampcheck trace one.trace"};
  BackwardDtypes seen;
  see_backward_of_mlp(data, seen);
  fact.holds = seen.low == 0;
  fact.measured = fmt::format("{} of the {} tensors that a backward pass of the MLP writes are fp16: backward ops run in the dtype of their forward ops", seen.low, seen.tensors);
  return fact;
}

Fact bf16_is_for_the_cpu(const std::filesystem::path& data) {
  Fact fact{.claim = "bf16 is for the CPU and fp16 for the GPU", .command = "ampcheck train --dtype bf16; ampcheck train --dtype fp16"};
  double loss[2] = {};
  for (int i = 0; i < 2; ++i) {
    TrainOptions options;
    options.net.data = data;
    options.dtype = i == 0 ? Dtype::bf16 : Dtype::fp16;
    options.scaler.enabled = i == 1;
    Trainer trainer(options);
    for (int step = 0; step < 20; ++step) loss[i] = trainer.step().loss;
  }
  const auto ops = all_ops();
  const auto both = std::count_if(ops.begin(), ops.end(), [](const OpDef& op) {
    const auto& s = op.signature.precision.storage;
    return std::count(s.begin(), s.end(), Dtype::bf16) + std::count(s.begin(), s.end(), Dtype::fp16) == 2;
  });
  fact.holds = both == 0;
  fact.measured = fmt::format("both run on both: {} of {} ops here take either; the same MLP reaches loss {:.3f} in bf16 and {:.3f} in fp16 after 20 steps. Only the default of a region without a dtype differs", both, ops.size(), loss[0], loss[1]);
  return fact;
}

Fact gradcheck_step() {
  Fact fact{.claim = "gradcheck with a step of 1e-6 can check an fp32 or 16-bit op", .command = "ampcheck certify gelu"};
  const OpDef& op = models::op_of_call("gelu");
  std::string text;
  fact.holds = true;
  for (const auto& lesson : reference::difference_lessons(op.signature, op.forms.front(), reference::formula_variants(op.signature).front(), 1)) {
    const bool useful = !lesson.step_vanishes && lesson.error_at_1e_6 < 1e-3;
    if (lesson.arithmetic != "fp64") fact.holds &= useful;
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", lesson.arithmetic, lesson.step_vanishes ? "x + h == x" : fmt::format("error {:.1g}", lesson.error_at_1e_6));
  }
  fact.measured = "a centred difference of gelu with h = 1e-6 in " + text + ": the step must be large against the ulp of x";
  return fact;
}

Fact collapse() {
  Fact fact{.claim = "a dynamic loss scale finds back after any number of overflows", .command = "ampcheck train --lr 1e9 --steps 200"};
  float scale = 65536;
  std::int32_t tracker = 0;
  int infinite = 0, zero = 0;
  for (int skip = 1; zero == 0 && skip < 1000; ++skip) {
    update_scale(scale, tracker, 1, 2, 0.5, 2000);
    if (infinite == 0 && std::isinf(inverse_scale(scale))) infinite = skip;
    if (scale == 0) zero = skip;
  }
  fact.holds = zero == 0;
  fact.measured = fmt::format("torch's rule halves without a floor: after {} skipped steps in a row 1/scale is infinite in fp32, after {} the scale is 0 for ever", infinite, zero);
  return fact;
}

Fact loss_in_fp16() {
  Fact fact{.claim = "the default scale 65536 suits an fp16 loss", .command = "ampcheck formats 65536 --format fp16"};
  const double seed = rounded(kFp16, 65536);
  fact.holds = std::isfinite(seed);
  fact.measured = fmt::format("65536 is {} in fp16: the gradient of an fp16 loss starts there, so every gradient is non-finite; 32768 works, and so does a loss in fp32", seed);
  return fact;
}

/// Seconds of a product of [m, k] by [n, k], the fastest of some.
double product_seconds(std::int64_t m, std::int64_t k, std::int64_t n) {
  Tensor x(Dtype::fp16, {m, k}), w(Dtype::fp16, {n, k}), y(Dtype::fp16, {m, n});
  kernels::KernelCall call;
  const Attributes none;
  call.attributes = &none;
  call.tensors = {{"x", x.view()}, {"weight", w.view()}, {"y", y.view()}};
  const auto& forward = models::op_of_call("linear").kernel.forward;
  double best = INFINITY;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    forward(call);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

Fact multiples_of_eight() {
  Fact fact{.claim = "extents that are no multiples of eight make fp16 several times slower", .command = "ampcheck check linear --dtype fp16 --shapes N=128,K=513,M=513"};
  const double even = product_seconds(128, 512, 512) / (512.0 * 512), odd = product_seconds(128, 513, 513) / (513.0 * 513);
  fact.holds = odd > 2 * even;
  fact.measured = fmt::format("here, on the CPU, a product with 513 instead of 512 takes {:.2f} times as long per multiplication; on a GPU it depends on whether the library finds a tensor-core kernel for that alignment", odd / even);
  return fact;
}

}  // namespace

std::vector<Fact> measured_facts(const std::filesystem::path& data) {
  return {underflow(), small_update(), running_sum(), exponential(), division(), gradients_are_fp32(data), backward_is_fp32(data), bf16_is_for_the_cpu(data), gradcheck_step(), collapse(), loss_in_fp16(), multiples_of_eight()};
}

}  // namespace ampcheck::checks::train
