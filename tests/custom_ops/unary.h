// SPDX-License-Identifier: Apache-2.0
// What the ops of one input and one output in this folder share: tensors, and loops over y = f(x) and dx = gradient(x,
// dy), for fp32, fp16 and bf16 unless other types are named.
#pragma once

#include <ampcheck/op.h>

template <class... Types, class F, class G>
void describe_unary(ampcheck::op::Op& op, const F& f, const G& gradient) {
  using namespace ampcheck::op;
  op.input("x", "N D");
  op.output("y");
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024);
  op.forward<Types...>([f]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = T(f(float(x[i])));
  });
  op.backward<Types...>([gradient]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.size(); ++i) dx[i] = T(gradient(float(x[i]), float(dy[i])));
  });
}
