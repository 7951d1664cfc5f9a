#include <ampcheck/op.h>  // SPDX-License-Identifier: Apache-2.0
using namespace ampcheck::op;
AMPCHECK_OP(my_rms_norm, op) {
  op.input("x", "N D");
  op.input("weight", "D").weight();
  op.output("y");
  op.saved("inv_rms");
  op.attribute("eps", 1e-6, {1e-3});
  op.dim("N", 5, 64, 2);
  op.dim("D", 7, 129, 1025).least(1);
  op.formula([](Expr x, Expr weight, Expr eps) {
    Expr inv_rms = stored("inv_rms", rsqrt(mean(x * x, -1) + eps)), n = x * inv_rms;
    return with_adjoint(n, {x}, [=](Expr g) { return inv_rms * (g - n * mean(g * n, -1)); }) * weight;
  });
  op.forward([]<class T>(Type<T>, const Call& call) {
    auto x = call.view<const T>("x"), w = call.view<const T>("weight");
    auto y = call.view<T>("y");
    auto inv_rms = call.view<float>("inv_rms");
    for (int i = 0; i < x.extent(0); ++i) {
      float sum = 0;
      for (int j = 0; j < x.extent(1); ++j) sum += float(x(i, j)) * float(x(i, j));
      inv_rms(i, 0) = 1 / std::sqrt(sum / float(x.extent(1)) + float(call.number("eps")));
      for (int j = 0; j < x.extent(1); ++j) y(i, j) = T(float(x(i, j)) * inv_rms(i, 0) * float(w(j)));
    }
  });
  op.backward([]<class T>(Type<T>, const Call& call) {
    auto x = call.view<const T>("x"), w = call.view<const T>("weight"), dy = call.view<const T>("dy");
    auto inv_rms = call.view<const float>("inv_rms");
    auto dx = call.view<T>("dx"), dweight = call.view<T>("dweight");
    float* total = call.scratch<float>(w.size());
    for (int i = 0; i < x.extent(0); ++i) {
      float dot = 0;
      for (int j = 0; j < x.extent(1); ++j) dot += float(dy(i, j)) * float(w(j)) * (float(x(i, j)) * inv_rms(i, 0));
      for (int j = 0; j < x.extent(1); ++j) {
        const float n = float(x(i, j)) * inv_rms(i, 0);
        dx(i, j) = T(inv_rms(i, 0) * (float(dy(i, j)) * float(w(j)) - n * (dot / float(x.extent(1)))));
        total[j] += float(dy(i, j)) * n;
      }
    }
    for (int j = 0; j < x.extent(1); ++j) dweight(j) = T(total[j]);
  });
}
