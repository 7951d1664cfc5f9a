// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/train/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "checks/models/layers.h"
#include "checks/train/facts_of_loops.h"
#include "checks/train/facts_of_runs.h"
#include "checks/train/graph.h"
#include "reference/certify/certify.h"
#include "src/amp/unscale.h"
#include "src/rounding.h"

namespace ampcheck::checks::train {

namespace {

double rounded(const FloatFormat& format, double value) { return decode_scalar(format, encode_scalar(format, value)); }

std::string power(double value) { return fmt::format("2^{}", std::ilogb(value)); }

/// Largest power of two p for which `is(p)`; powers are tried from 2^20 down.
template <class F>
double largest_power(F is) {
  for (double p = 0x1p20; p > 0; p /= 2)
    if (is(p)) return p;
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
  const double gone = largest_power([](double p) { return rounded(kFp16, p) == 0; }),
               next = std::nextafter(float(gone), 1.0f);
  return {.claim = "fp16 underflows to zero below 6e-5",
          .holds = gone >= kFp16.min_normal() / 2,
          .measured = fmt::format("zero begins at {} = {:.3g}: the next fp32 number above becomes {:.3g}. 6.1e-05 = {} "
                                  "is the smallest normal number; below it digits go one by one",
                                  power(gone), gone, rounded(kFp16, next), power(kFp16.min_normal())),
          .command = fmt::format("ampcheck formats 6e-5 {:a} {:a} --format fp16", gone, next)};
}

Fact small_update() {
  const auto lost = [](const FloatFormat& f) {
    return largest_power([&](double u) { return rounded(f, 1 + u) == 1; });
  };
  const double fp16 = lost(kFp16), bf16 = lost(kBf16), fp32 = lost(kFp32);
  return {.claim = "an fp16 weight keeps its update while lr*grad is above 2^-24",
          .holds = fp16 <= 0x1p-24,
          .measured = fmt::format(
              "a weight of 1 does not move for an update of {} in fp16, {} in bf16, {} in fp32: the weight's last "
              "place decides, not the smallest number (the update {} itself is exact in fp16)",
              power(fp16), power(bf16), power(fp32), power(fp16)),
          .command = fmt::format("ampcheck formats {:a} {} {} --format fp16 --format bf16 --format fp32", fp16,
                                 1 + fp16, 1 + bf16)};
}

Fact running_sum() {
  double ones = 0, total = 0;
  for (int i = 0; i < 4096; ++i) ones = rounded(kFp16, ones + 1);
  for (int i = 0; i < 8; ++i) total = rounded(kFp16, total + 1e4);
  const double mean = rounded(kFp16, total / 8), share = 4096 / ones;
  const std::vector<double> kernel = {run_kernel("sum", {1, 4096}, std::vector<double>(4096, 1)).front(),
                                      run_kernel("mean", {1, 8}, std::vector<double>(8, 1e4)).front()};
  return {.claim = "a sum, a mean or a softmax's sum is safe in fp16 as long as the result fits",
          .holds = ones == 4096 && share == 1 && std::isfinite(mean),
          .measured = fmt::format("added up in fp16, 4096 ones are {}, so that a softmax of 4096 equal logits is {} "
                                  "times too large; the mean of eight 10000s is {}. The kernels here add up in fp32: "
                                  "{} and {}. The command judges three kernels that do not",
                                  ones, share, mean, kernel[0], kernel[1]),
          .command =
              "ampcheck check 'sum.in_fp16(x=fp16[1,4096],range=positive,seed=1)' "
              "'mean.total_in_fp16(x=fp16[1,8],range=mean10000,seed=1)' "
              "'softmax.sum_in_fp16(x=fp16[1,4096],range=zeros,seed=1)'"};
}

Fact exponential() {
  const auto limit = [](const FloatFormat& format, double terms) {
    double most = 0;
    for (double x = 0; std::isfinite(rounded(format, terms * std::exp(x))); x += 0x1p-10) most = x;
    return most;
  };
  const double one = limit(kFp16, 1), thousand = limit(kFp16, 1000), fp32 = limit(kFp32, 1);
  const auto below = [](double x) { return std::floor(10 * x) / 10; };
  const auto above = [](double x) { return std::ceil(10 * x) / 10; };
  const double fits = std::exp(below(one)), over = std::exp(above(one)), sum = 1000 * std::exp(below(thousand)),
               sum_over = 1000 * std::exp(above(thousand));
  const std::vector<double> shifted = run_kernel("softmax", {1, 3}, {1000, 999, 0});
  return {.claim = "softmax needs its largest logit taken off only where logits exceed 88",
          .holds = one >= fp32,
          .measured =
              fmt::format("{:.1f} is the limit of exp(x) in fp32. In fp16 exp({:.1f}) = {:.1f} fits and exp({:.1f}) = "
                          "{:.1f} is {}; a sum of 1000 terms exp({:.1f}) is {:.1f}, of exp({:.1f}) {}. With the "
                          "largest logit taken off, softmax of (1000, 999, 0) is ({:.3f}, {:.3f}, {:.0f})",
                          fp32, below(one), fits, above(one), over, rounded(kFp16, over), below(thousand), sum,
                          above(thousand), rounded(kFp16, sum_over), shifted[0], shifted[1], shifted[2]),
          .command = fmt::format("ampcheck formats {:.1f} {:.1f} {:.1f} {:.1f} --format fp16; ampcheck replay "
                                 "'softmax(x=fp16[4,64],range=mean10000,seed=1)'",
                                 fits, over, sum, sum_over)};
}

Fact division() {
  const double eps = rounded(kFp16, 1e-8),
               least = largest_power([](double x) { return std::isinf(rounded(kFp16, 1 / x)); });
  const double square = largest_power([](double g) { return rounded(kFp16, g * g) == 0; });
  return {
      .claim = "dividing by eps = 1e-8 guards against a division by zero in fp16 too",
      .holds = eps > 0,
      .measured = fmt::format("1e-8 is {} in fp16, so g / (sqrt(v) + eps) is 0/0 where g and v are 0, and v = g*g is 0 "
                              "for g = {} = {:.2g} already; 1/x is infinite from x = {} down: 1/x = {} does not fit",
                              eps, power(square), square, power(least), 1 / least),
      .command = fmt::format("ampcheck formats 1e-8 {:a} {} --format fp16", square * square, 1 / least)};
}

Fact gradcheck_step() {
  constexpr double kRtol = 1e-3;  // torch.autograd.gradcheck's own
  const OpDef& op = models::op_of_call("gelu");
  std::string text;
  bool useful = true;
  for (const auto& lesson : reference::difference_lessons(op.signature, op.forms.front(),
                                                          reference::formula_variants(op.signature).front(), 1)) {
    if (lesson.arithmetic != "fp64") useful &= !lesson.step_vanishes && lesson.error_at_1e_6 < kRtol;
    text += fmt::format(
        "{}{}: {}", text.empty() ? "" : ", ", lesson.arithmetic,
        lesson.step_vanishes ? "x + h is x, so that it reads 0" : fmt::format("error {:.1g}", lesson.error_at_1e_6));
  }
  return {.claim = "gradcheck with a step of 1e-6 can check an fp32 or 16-bit op",
          .holds = useful,
          .measured = fmt::format("a centred difference of gelu with h = 1e-6 in {}; gradcheck allows {}. The step "
                                  "must be large against the distance of the numbers next to x",
                                  text, kRtol),
          .command = "ampcheck certify gelu"};
}

Fact collapse() {
  float scale = 65536;
  std::int32_t tracker = 0;
  int infinite = 0, zero = 0;
  for (int skip = 1; zero == 0 && skip < 1000; ++skip) {
    update_scale(scale, tracker, 1, 2, 0.5, 2000);
    if (infinite == 0 && std::isinf(inverse_scale(scale))) infinite = skip;
    if (scale == 0) zero = skip;
  }
  return {.claim = "a dynamic loss scale recovers from any number of overflows",
          .holds = zero == 0,
          .measured = fmt::format("torch's rule halves without a floor: after {} skipped steps in a row 1/scale is "
                                  "infinite in fp32, after {} the scale is 0 for ever",
                                  infinite, zero),
          .command = "ampcheck train --lr 1e9 --steps 200 --shadow off"};
}

Fact loss_in_fp16() {
  const double seed = rounded(kFp16, 65536),
               works = largest_power([](double p) { return std::isfinite(rounded(kFp16, p)); });
  return {.claim = "the default scale 65536 suits an fp16 loss",
          .holds = std::isfinite(seed),
          .measured = fmt::format("65536 is {} in fp16: the gradient of an fp16 loss starts there, so every gradient "
                                  "is non-finite; {} works, and 65536 with a loss in fp32",
                                  seed, works),
          .command = fmt::format("ampcheck formats 65536 {} --format fp16 --format fp32", works)};
}

/// A product of [kProductRows, n] by [n, n], to be run again and again.
class Product {
 public:
  Product(Dtype dtype, std::int64_t n)
      : x_(dtype, {kProductRows, n}), weight_(dtype, {n, n}), y_(dtype, {kProductRows, n}) {}

  double seconds() const {
    kernels::KernelCall call;
    call.attributes = &none_;
    call.tensors = {{"x", x_.view()}, {"weight", weight_.view()}, {"y", y_.view()}};
    const auto start = std::chrono::steady_clock::now();
    models::op_of_call("linear").kernel.forward(call);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  Tensor x_, weight_, y_;
  Attributes none_;
};

Fact multiples_of_eight() {
  const std::vector<ProductTime> times = product_times(512, 513);
  const auto cost = [](const ProductTime& t) { return t.fp16 / static_cast<double>(t.multiplications()); };
  const double ratio = cost(times[1]) / cost(times[0]);
  return {.claim = "extents that are no multiples of eight make fp16 several times slower",
          .holds = ratio >= 2,
          .measured = fmt::format(
              "on this CPU a product with 513 instead of 512 takes {:.2f} times as long per multiplication (fp16, "
              "fastest of {}). A GPU, whose libraries choose kernels by alignment, is not measured here",
              ratio, kProductRounds),
          .command = "ampcheck facts --times"};
}

}  // namespace

std::int64_t ProductTime::multiplications() const { return kProductRows * n * n; }

std::vector<ProductTime> product_times(std::int64_t first, std::int64_t last) {
  std::vector<ProductTime> out;
  std::vector<std::pair<Product, Product>> products;
  for (std::int64_t n = first; n <= last; ++n) {
    out.push_back({.n = n, .fp16 = INFINITY, .fp32 = INFINITY});
    products.emplace_back(Product(Dtype::fp16, n), Product(Dtype::fp32, n));
  }
  for (int round = 0; round < kProductRounds;
       ++round)  // all extents in each round: what else the machine does meets them alike
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i].fp16 = std::min(out[i].fp16, products[i].first.seconds());
      out[i].fp32 = std::min(out[i].fp32, products[i].second.seconds());
    }
  return out;
}

std::vector<Fact> measured_facts(const std::filesystem::path& data) {
  std::vector<Fact> out = {underflow(), small_update(),   running_sum(), exponential(),
                           division(),  gradcheck_step(), collapse(),    loss_in_fp16()};
  for (Fact& fact : facts_of_runs(data)) out.push_back(std::move(fact));
  for (Fact& fact : facts_of_loops(data)) out.push_back(std::move(fact));
  out.push_back(multiples_of_eight());
  return out;
}

}  // namespace ampcheck::checks::train
