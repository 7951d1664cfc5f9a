// SPDX-License-Identifier: Apache-2.0
// Fused linear cross-entropy: loss[n] = logsumexp(x[n] weight^T) - (x[n] weight^T)[target[n]], 0 for ignored rows. The
// logits are never in memory: forward goes over the vocabulary in chunks with an online logsumexp, backward makes each
// chunk of logits again and adds its part to the gradients of x and weight (Wijmans et al. 2024). Two broken versions
// beside it.
#include <ampcheck/op.h>

#include <cmath>
#include <limits>

namespace {

using ampcheck::op::Call;
using ampcheck::op::Expr;
using ampcheck::op::Op;
using ampcheck::op::Type;
using ampcheck::op::View;

enum class Version {
  right,
  scalar_cotangent,  // the cotangent of the first row for all, as if the loss were summed
  low_probability,   // the probability passes through the storage type before 1 is taken off at the target
};

constexpr std::int64_t kChunk = 24;  // columns of the vocabulary

template <class T>
struct Operands {
  explicit Operands(const Call& call)
      : x(call.view<const T>("x")),
        weight(call.view<const T>("weight")),
        target(call.view<const std::int64_t>("target")),
        ignored(static_cast<std::int64_t>(call.number("ignore_index"))) {}
  float logit(std::int64_t row, std::int64_t word) const {
    float dot = 0;
    for (std::int64_t k = 0; k < x.extent(1); ++k) dot += float(x(row, k)) * float(weight(word, k));
    return dot;
  }
  View<const T> x, weight;
  View<const std::int64_t> target;
  std::int64_t ignored;
};

/// Maximum and sum of exp(logit - maximum) over the chunks so far.
struct LogSumExp {
  float max = -std::numeric_limits<float>::infinity(), sum = 0;

  void add(const float* logits, std::int64_t count) {
    float chunk_max = max;
    for (std::int64_t i = 0; i < count; ++i)
      chunk_max = std::isnan(logits[i]) ? logits[i] : std::max(chunk_max, logits[i]);
    float chunk_sum = 0;
    for (std::int64_t i = 0; i < count; ++i) chunk_sum += std::exp(logits[i] - chunk_max);
    sum = (sum == 0 ? 0.0f : sum * std::exp(max - chunk_max)) + chunk_sum;
    max = chunk_max;
  }
  float value() const { return max + std::log(sum); }
};

template <class T>
void forward(const Call& call) {
  const Operands<T> in(call);
  const auto loss = call.view<float>("loss"), lse = call.view<float>("lse");
  const std::int64_t words = in.weight.extent(0);
  float logits[kChunk];
  for (std::int64_t row = 0; row < in.x.extent(0); ++row) {
    loss(row) = lse(row, 0) = 0;
    if (in.target(row) == in.ignored) continue;
    LogSumExp running;
    float at_target = 0;
    for (std::int64_t begin = 0; begin < words; begin += kChunk) {
      const std::int64_t count = std::min(kChunk, words - begin);
      for (std::int64_t i = 0; i < count; ++i) {
        logits[i] = in.logit(row, begin + i);
        if (in.target(row) == begin + i) at_target = logits[i];
      }
      running.add(logits, count);
    }
    lse(row, 0) = running.value();
    loss(row) = running.value() - at_target;
  }
}

template <class T>
void backward(const Call& call, Version version) {
  const Operands<T> in(call);
  const auto lse = call.view<const float>("lse"), dloss = call.view<const float>("dloss");
  const auto dx = call.view<T>("dx"), dweight = call.view<T>("dweight");
  const std::int64_t rows = dx.extent(0), width = dx.extent(1), words = dweight.extent(0);
  float* const dx_total = call.scratch<float>(rows * width);
  float* const chunk_total = call.scratch<float>(kChunk * width);
  for (std::int64_t begin = 0; begin < words; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, words - begin);
    std::fill_n(chunk_total, count * width, 0.0f);
    for (std::int64_t row = 0; row < rows; ++row) {
      if (in.target(row) == in.ignored) continue;
      const float g = dloss(version == Version::scalar_cotangent ? 0 : row);
      for (std::int64_t i = 0; i < count; ++i) {
        float p = std::exp(in.logit(row, begin + i) - lse(row, 0));
        if (version == Version::low_probability) p = float(T(p));
        const float dlogit = g * (in.target(row) == begin + i ? p - 1.0f : p);
        for (std::int64_t k = 0; k < width; ++k) {
          dx_total[row * width + k] += dlogit * float(in.weight(begin + i, k));
          chunk_total[i * width + k] += dlogit * float(in.x(row, k));
        }
      }
    }
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t k = 0; k < width; ++k) dweight(begin + i, k) = T(chunk_total[i * width + k]);
  }
  for (std::int64_t i = 0; i < rows * width; ++i) dx[i] = T(dx_total[i]);
}

void describe(Op& op, Version version) {
  op.summary("loss = -log(softmax(x weight^T))[target], without the logits in memory");
  op.input("x", "N H");
  op.input("weight", "V H").weight();
  op.input("target", "N").target("V");
  op.output("loss").type(AC_TYPE_FP32);
  op.saved("lse");
  op.attribute("ignore_index", -100, {1});
  op.dim("N", 5, 33, 2);
  op.dim("H", 7, 16, 65);
  op.dim("V", 11, 50, 129).least(1);
  op.rows("N", {"loss", "dx"});
  const auto formula = [](Expr x, Expr weight, Expr target, Expr ignore_index) {
    const Expr N = ampcheck::op::dim("N"), V = ampcheck::op::dim("V");
    const Expr ignored = reshape(target == ignore_index, {N, 1});
    const Expr logits = matmul(where(ignored, 0, x), weight, false, true);
    const Expr shift = stop_gradient(max(logits, -1));
    const Expr lse = stored("lse", where(ignored, 0, shift + log(sum(exp(logits - shift), -1))));
    const Expr hit = one_hot(target, V);
    const Expr value = with_adjoint(lse - sum(where(hit, logits, 0), -1), {logits},
                                    [=](Expr g) { return g * (exp(logits - lse) - hit); });
    return reshape(where(ignored, 0, value), {N});
  };
  op.formula(formula);
  op.form("one pass", formula, true);
  op.forward([]<class T>(Type<T>, const Call& call) { forward<T>(call); });
  op.backward([version]<class T>(Type<T>, const Call& call) { backward<T>(call, version); });
}

}  // namespace

AMPCHECK_OP(linear_cross_entropy, op) { describe(op, Version::right); }
AMPCHECK_OP(linear_cross_entropy_scalar_cotangent, op) { describe(op, Version::scalar_cotangent); }
AMPCHECK_OP(linear_cross_entropy_low_probability, op) { describe(op, Version::low_probability); }
