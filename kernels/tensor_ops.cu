// SPDX-License-Identifier: Apache-2.0
#include "kernels/tensor_ops.h"

#include "kernels/for_each.h"
#include "kernels/signed_nan.h"

namespace ampcheck::kernels {

namespace {

struct Convert {
  const void* x;
  void* out;
  Dtype from, to;
  template <class Io>
  AMPCHECK_HD void operator()(const Io&, std::int64_t i) const {
    store_signed(out, to, i, load_signed(x, from, i));
  }
};

struct Add {
  const void *x, *y;
  void* out;
  Dtype dtype;
  template <class Io>
  AMPCHECK_HD void operator()(const Io&, std::int64_t i) const {
    store_signed(out, dtype, i, load_signed(x, dtype, i) + load_signed(y, dtype, i));
  }
};

/// Copies element `from` of x to element `to` of out, or zero if x is null.
AMPCHECK_HD void move_element(const void* x, std::int64_t from, void* out, std::int64_t to, int size) {
  const auto move = [&](auto type) {
    using T = decltype(type);
    static_cast<T*>(out)[to] = x == nullptr ? T(0) : static_cast<const T*>(x)[from];
  };
  switch (size) {
    case 1: return move(std::uint8_t{});
    case 2: return move(std::uint16_t{});
    case 4: return move(std::uint32_t{});
    default: return move(std::uint64_t{});
  }
}

struct Move {
  const void* x;
  const std::int64_t* index;
  void* out;
  int size;
  template <class Io>
  AMPCHECK_HD void operator()(const Io&, std::int64_t i) const {
    move_element(x, index == nullptr ? i : index[i], out, i, size);
  }
};

struct Spread {
  const void* x;
  const std::int64_t *source, *first;
  void* out;
  Dtype dtype;
  template <class Io>
  AMPCHECK_HD void operator()(const Io&, std::int64_t i) const {
    float sum = 0;
    for (std::int64_t k = first[i]; k < first[i + 1]; ++k) sum += load_signed(x, dtype, source[k]);
    store_signed(out, dtype, i, sum);
  }
};

}  // namespace

void convert_kernel(const KernelCall& call) {
  const TensorView &x = call.at("x"), &out = call.at("out");
  for_each(call, out.count(), Convert{x.data, out.data, x.dtype, out.dtype});
}

void sum_kernel(const KernelCall& call) {
  const TensorView& out = call.at("out");
  for_each(call, out.count(), Add{call.at("x").data, call.at("y").data, out.data, out.dtype});
}

void zero_kernel(const KernelCall& call) {
  const TensorView& out = call.at("out");
  for_each(call, out.count(), Move{nullptr, nullptr, out.data, static_cast<int>(bytes(out.dtype))});
}

void take_kernel(const KernelCall& call) {
  const TensorView& out = call.at("out");
  for_each(
      call, out.count(),
      Move{call.at("x").data, call.at("index").as<const std::int64_t>(), out.data, static_cast<int>(bytes(out.dtype))});
}

void spread_kernel(const KernelCall& call) {
  const TensorView& out = call.at("out");
  for_each(call, out.count(),
           Spread{call.at("x").data, call.at("source").as<const std::int64_t>(),
                  call.at("first").as<const std::int64_t>(), out.data, out.dtype});
}

}  // namespace ampcheck::kernels
