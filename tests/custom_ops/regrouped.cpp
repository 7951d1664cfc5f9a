// SPDX-License-Identifier: Apache-2.0
// Small kernels in another grouping than their formula's, as most are written: 2 x dy for x x, a sum of four by pairs,
// a + t (b - a), a scale behind its sum, a norm with a floor. None declares a form. Broken versions beside them, and
// the scaled sum accumulated in bf16, of which the output and a gradient are wrong at once.
#include <ampcheck/op.h>

#include <cmath>

namespace {

using namespace ampcheck::op;

void sizes(Op& op) {
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024);
}

void describe_square(Op& op, float factor) {
  op.summary("y = x x, dx = 2 x dy");
  op.input("x", "N D");
  op.output("y");
  sizes(op);
  op.formula([](Expr x) { return x * x; });
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = T(float(x[i]) * float(x[i]));
  });
  op.backward([factor]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.size(); ++i) dx[i] = T(factor * float(x[i]) * float(dy[i]));
  });
}

void describe_four(Op& op, bool three) {
  op.summary("y = a + b + c + d");
  for (const char* name : {"a", "b", "c", "d"}) op.input(name, "N D");
  op.output("y");
  sizes(op);
  op.formula([](Expr a, Expr b, Expr c, Expr d) { return a + b + c + d; });
  op.forward([three]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b"), c = call.view<const T>("c"),
               d = call.view<const T>("d");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < y.size(); ++i)
      y[i] = T((float(a[i]) + float(b[i])) + (float(c[i]) + (three ? 0.0f : float(d[i]))));
  });
  op.backward([]<class T>(Type<T>, const Call& call) {
    const auto dy = call.view<const T>("dy");
    for (const char* name : {"da", "db", "dc", "dd"}) {
      const auto out = call.view<T>(name);
      for (std::int64_t i = 0; i < dy.size(); ++i) out[i] = dy[i];
    }
  });
}

void describe_lerp(Op& op, bool exchanged) {
  op.summary("y = (1 - t) a + t b");
  for (const char* name : {"a", "b", "t"}) op.input(name, "N D");
  op.output("y");
  sizes(op);
  op.formula([](Expr a, Expr b, Expr t) { return (1 - t) * a + t * b; });
  op.forward([exchanged]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b"), t = call.view<const T>("t");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < y.size(); ++i) {
      const float from = float(exchanged ? b[i] : a[i]), to = float(exchanged ? a[i] : b[i]);
      y[i] = T(from + float(t[i]) * (to - from));
    }
  });
  op.backward([]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b"), t = call.view<const T>("t"),
               dy = call.view<const T>("dy");
    const auto da = call.view<T>("da"), db = call.view<T>("db"), dt = call.view<T>("dt");
    for (std::int64_t i = 0; i < dy.size(); ++i) {
      const float g = float(dy[i]), part = float(t[i]) * g;
      da[i] = T(g - part);
      db[i] = T(part);
      dt[i] = T(g * (float(b[i]) - float(a[i])));
    }
  });
}

/// sum of f(i) g(i), whose partial sums are of type A.
template <class A, class F>
float total(std::int64_t n, const F& term) {
  A sum(0.0f);
  for (std::int64_t i = 0; i < n; ++i) sum = A(float(sum) + term(i));
  return float(sum);
}

template <class A>
void describe_scaled_dot(Op& op) {
  op.summary("y = sum(x w / sqrt(D)) along the last axis");
  op.input("x", "N D");
  op.input("w", "D").weight();
  op.output("y");
  op.dim("N", 5, 64, 700);
  op.dim("D", 7, 129, 1024).least(1);
  op.rows("N", {"y", "dx"});
  op.formula([](Expr x, Expr w) { return sum(x * w * rsqrt(dim("D")), -1); });
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), w = call.view<const T>("w");
    const auto y = call.view<T>("y");
    const float scale = 1 / std::sqrt(float(x.extent(1)));
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      y(i, 0) = T(scale * total<A>(x.extent(1), [&](std::int64_t j) { return float(x(i, j)) * float(w(j)); }));
  });
  op.backward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), w = call.view<const T>("w"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx"), dw = call.view<T>("dw");
    const float scale = 1 / std::sqrt(float(x.extent(1)));
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < x.extent(1); ++j) dx(i, j) = T(float(dy(i, 0)) * scale * float(w(j)));
    for (std::int64_t j = 0; j < x.extent(1); ++j)
      dw(j) = T(scale * total<A>(x.extent(0), [&](std::int64_t i) { return float(dy(i, 0)) * float(x(i, j)); }));
  });
}

/// `projects`: rows below the floor keep the gradient of the norm.
void describe_normalize(Op& op, bool projects) {
  op.summary("y = x / max(|x|, eps) along the last axis");
  op.input("x", "N D");
  op.output("y");
  op.saved("norm");
  op.attribute("eps", 1e-12, {1e-3});
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024).least(1);
  op.rows("N", {"y", "dx"});
  op.formula([](Expr x, Expr eps) { return x / stored("norm", maximum(sqrt(sum(x * x, -1)), eps)); });
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    const auto norm = call.view<float>("norm");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      const float size =
          std::sqrt(total<float>(x.extent(1), [&](std::int64_t j) { return float(x(i, j)) * float(x(i, j)); }));
      norm(i, 0) = size <= float(call.number("eps")) ? float(call.number("eps")) : size;
      for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = T(float(x(i, j)) / norm(i, 0));
    }
  });
  op.backward([projects]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto norm = call.view<const float>("norm");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      const bool floor = norm(i, 0) <= float(call.number("eps"));
      const float along =
          total<float>(x.extent(1), [&](std::int64_t j) { return float(dy(i, j)) * (float(x(i, j)) / norm(i, 0)); });
      for (std::int64_t j = 0; j < x.extent(1); ++j) {
        const float g = float(dy(i, j)) - (floor && !projects ? 0.0f : along * (float(x(i, j)) / norm(i, 0)));
        dx(i, j) = T(g / norm(i, 0));
      }
    }
  });
}

/// Welford's mean rounds otherwise than any order of one sum, and is as good, declared or not. `first`: of the
/// divisors.
void describe_running_mean(Op& op, bool declared, int first = 1) {
  op.summary("y = mean of x, one element after the other");
  op.input("x", "N D").no_gradient();
  op.output("y");
  sizes(op);
  op.formula("y = mean(x, -1)");
  if (declared) op.form("one pass", "y = mean(x, -1)", true);
  op.forward([first]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      float mean = x.extent(1) > 0 ? 0.0f : 0.0f / 0.0f;
      for (std::int64_t j = 0; j < x.extent(1); ++j) mean += (float(x(i, j)) - mean) / float(j + first);
      y(i, 0) = T(mean);
    }
  });
}

/// (1 + tanh(x/2)) / 2 cancels below zero, where 1 / (1 + exp(-x)) does not: a form says so, or the finding asks for
/// one.
void describe_logistic(Op& op, bool declared) {
  op.summary("y = 1 / (1 + exp(-x))");
  op.input("x", "N D").no_gradient();
  op.output("y");
  sizes(op);
  op.formula("y = 1 / (1 + exp(-x))");
  if (declared) op.form("by tanh", "y = (1 + tanh(x / 2)) / 2");
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = T(0.5f * (1 + std::tanh(0.5f * float(x[i]))));
  });
}

}  // namespace

AMPCHECK_OP(running_mean, op) { describe_running_mean(op, true); }
AMPCHECK_OP(running_mean_undeclared, op) { describe_running_mean(op, false); }
AMPCHECK_OP(running_mean_from_two, op) { describe_running_mean(op, false, 2); }
AMPCHECK_OP(logistic_by_tanh, op) { describe_logistic(op, true); }
AMPCHECK_OP(logistic_by_tanh_undeclared, op) { describe_logistic(op, false); }
AMPCHECK_OP(square_by_two, op) { describe_square(op, 2.0f); }
AMPCHECK_OP(square_without_two, op) { describe_square(op, 1.0f); }
AMPCHECK_OP(sum_of_four, op) { describe_four(op, false); }
AMPCHECK_OP(sum_of_four_takes_three, op) { describe_four(op, true); }
AMPCHECK_OP(lerp, op) { describe_lerp(op, false); }
AMPCHECK_OP(lerp_exchanged, op) { describe_lerp(op, true); }
AMPCHECK_OP(scaled_dot, op) { describe_scaled_dot<float>(op); }
AMPCHECK_OP(scaled_dot_in_bf16, op) { describe_scaled_dot<BFloat16>(op); }
AMPCHECK_OP(normalize, op) { describe_normalize(op, false); }
AMPCHECK_OP(normalize_below_floor, op) { describe_normalize(op, true); }
