// SPDX-License-Identifier: Apache-2.0
// Layer norm without weights in double, as most gradients are checked: right ones, and ones that lose digits or a term.
#include <ampcheck/op.h>

#include <cmath>

namespace {

using namespace ampcheck::op;

enum class Twist { none, through_float, float_rsqrt, no_eps, one_pass, lost_term, small_slope };

template <class X>
struct Row {
  double mean = 0, r = 0;
  Row(const X& x, std::int64_t i, Twist twist) {
    const auto n = static_cast<double>(x.extent(1));
    double squares = 0, variance = 0;
    for (std::int64_t j = 0; j < x.extent(1); ++j) {
      mean += x(i, j);
      squares += x(i, j) * x(i, j);
    }
    mean /= n;
    for (std::int64_t j = 0; j < x.extent(1); ++j) variance += (x(i, j) - mean) * (x(i, j) - mean);
    variance /= n;
    if (twist == Twist::one_pass) variance = squares / n - mean * mean;
    r = 1 / std::sqrt(variance + (twist == Twist::no_eps ? 0 : 1e-5));
    if (twist == Twist::float_rsqrt) r = 1 / std::sqrt(static_cast<float>(variance + 1e-5));
  }
};

void describe(Op& op, Twist twist) {
  op.summary("y = (x - mean) / sqrt(variance + eps), in fp64");
  op.input("x", "N D");
  op.output("y");
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024).least(2);
  op.rows("N", {"y", "dx"});
  op.storage({AC_FP64});
  op.formula("c = x - mean(x, -1); y = c * rsqrt(mean(c * c, -1) + 0.00001)");
  op.form("usual backward",
          "c = x - mean(x, -1); r = rsqrt(mean(c * c, -1) + 0.00001); n = c * r; "
          "y = n with dx = r * (dy - mean(dy, -1) - n * mean(dy * n, -1))");
  op.forward<double>([twist]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      const Row row(x, i, twist);
      for (std::int64_t j = 0; j < x.extent(1); ++j) {
        y(i, j) = (x(i, j) - row.mean) * row.r;
        if (twist == Twist::through_float) y(i, j) = static_cast<float>(y(i, j));
      }
    }
  });
  op.backward<double>([twist]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    const auto n = static_cast<double>(x.extent(1));
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      const Row row(x, i, Twist::none);
      double sum = 0, along = 0;
      for (std::int64_t j = 0; j < x.extent(1); ++j) {
        sum += dy(i, j);
        along += dy(i, j) * ((x(i, j) - row.mean) * row.r);
      }
      if (twist == Twist::lost_term) along = 0;
      if (twist == Twist::small_slope) along *= 1 + 1e-9;  // far below what fp32 rounds
      for (std::int64_t j = 0; j < x.extent(1); ++j)
        dx(i, j) = row.r * (dy(i, j) - sum / n - (x(i, j) - row.mean) * row.r * (along / n));
    }
  });
}

/// A gradient that is added to what its buffer holds, in double or through float.
void describe_adding(Op& op, bool in_float) {
  op.summary("y = x^2, with dx added to its buffer");
  op.input("x", "N");
  op.output("y");
  op.dim("N", 35, 1025, 3000);
  op.storage({AC_FP64});
  op.accumulates({"dx"});
  op.formula("y = x * x");
  op.forward<double>([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = x[i] * x[i];
  });
  op.backward<double>([in_float]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const double gradient = 2 * x[i] * dy[i];
      dx[i] += in_float ? static_cast<float>(gradient) : gradient;
    }
  });
}

}  // namespace

AMPCHECK_OP(adds64, op) { describe_adding(op, false); }
AMPCHECK_OP(adds64_in_float, op) { describe_adding(op, true); }
AMPCHECK_OP(norm64, op) { describe(op, Twist::none); }
AMPCHECK_OP(norm64_through_float, op) { describe(op, Twist::through_float); }
AMPCHECK_OP(norm64_float_rsqrt, op) { describe(op, Twist::float_rsqrt); }
AMPCHECK_OP(norm64_no_eps, op) { describe(op, Twist::no_eps); }
AMPCHECK_OP(norm64_one_pass, op) { describe(op, Twist::one_pass); }
AMPCHECK_OP(norm64_lost_term, op) { describe(op, Twist::lost_term); }
AMPCHECK_OP(norm64_small_slope, op) { describe(op, Twist::small_slope); }
