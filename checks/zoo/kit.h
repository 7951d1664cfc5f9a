// SPDX-License-Identifier: Apache-2.0
// What the zoo's kernels are made of: tensors as floats, sums in many orders and precisions, and slips that any kernel
// may make where it reads or writes a tensor. Kernels are plain loops on purpose: what is wrong with them should be
// seen at once.
#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checks/zoo/zoo.h"
#include "kernels/kernel.h"

namespace ampcheck::checks::zoo {

using kernels::Kernel;
using kernels::KernelCall;
using Values = std::vector<float>;

constexpr std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }

/// A value rounded to nearest even to a storage type, and back.
float rounded(Dtype dtype, float x);
inline float bf16(float x) { return rounded(Dtype::bf16, x); }
inline float fp16(float x) { return rounded(Dtype::fp16, x); }
/// Rounded to the 11 bits of tf32, ties away from zero, as cvt.rna.tf32 does.
float tf32(float x);

// ---- Sums. A term is a product, so that a dot product and a sum (b = 1) are one thing. ----

struct Term {
  float a = 0, b = 1;
  float product() const { return a * b; }
};
using Terms = std::vector<Term>;
using Sum = float (*)(std::span<const Term>);

// Correct in fp32 in any order.
float in_order(std::span<const Term>);
float backwards(std::span<const Term>);
float pairwise(std::span<const Term>);
float in_blocks(std::span<const Term>);      ///< of 32, then the block sums
float in_lanes(std::span<const Term>);       ///< 32 strided lanes, then a butterfly
float in_vectors(std::span<const Term>);     ///< 8 accumulators, the tail apart
float split_in_four(std::span<const Term>);  ///< split-K with fp32 partial sums
float compensated(std::span<const Term>);    ///< Kahan 1965
float fused(std::span<const Term>);          ///< fma chain
float in_double(std::span<const Term>);      ///< fp64, rounded once

// Defective.
float without_last(std::span<const Term>);
float without_first(std::span<const Term>);
float without_tail_of_8(std::span<const Term>);
float without_tail_of_32(std::span<const Term>);  ///< floor instead of ceil in the number of blocks
float last_block_alone(std::span<const Term>);    ///< blocks of 32 overwrite each other
float last_twice(std::span<const Term>);
float twice_in_overlap(std::span<const Term>);  ///< blocks of 32 that share their borders: 31 is counted twice
float in_bf16(std::span<const Term>);
float in_fp16(std::span<const Term>);
float split_in_bf16(std::span<const Term>);           ///< fp32 inside four parts, whose sums are stored in bf16
float blocks_in_storage_bf16(std::span<const Term>);  ///< blocks of 32 added up in a bf16 buffer
float truncating(std::span<const Term>);              ///< every addition toward zero
float of_tf32(std::span<const Term>);                 ///< products of tf32 operands
float of_bf16(std::span<const Term>);                 ///< products of bf16 operands
float racing(std::span<const Term>);                  ///< every third launch loses the term in the middle
float unordered(std::span<const Term>);               ///< atomics: another order at each launch

/// Sum of n terms given by a function of the index.
template <class F>
float total(Sum sum, std::int64_t n, F term) {
  Terms terms(index_of(n));
  for (std::int64_t i = 0; i < n; ++i) terms[index_of(i)] = term(i);
  return sum(terms);
}
/// Largest value, NaN if there is one, -inf of none.
float largest(std::span<const float> values);

// ---- Slips at the borders of a kernel. ----

enum class Io {
  none,
  // Reading `tensor`.
  read_dense,         ///< takes it for row-major
  read_with_strides,  ///< uses the strides of tensor `other`
  absolute,
  squared,
  positive,
  ones,           ///< |g|, g^2, max(g, 0), 1 in place of g
  first_for_all,  ///< the first element in place of every one
  first_row_for_all,
  read_in_bf16,     ///< rounded to bf16 on the way in
  read_in_storage,  ///< rounded to the storage type of the case
  // Writing `tensor`.
  write_dense,
  drop_last,
  drop_last_row,
  drop_tail_of_4,
  drop_tail_of_8_rows,
  drop_beyond_16_bits,
  drop_odd_column,
  overrun,
  add_to_buffer,
  overwrite_buffer,
  truncate,
  flush,
  saturate,
  nan_to_zero,
  through_bf16,
  through_fp16,
  zero,
  negate,
  scale,
  shift_by_ulp,
  wrap_16_bits,
  last_row_from_first,
  alternate,
  // Besides.
  clobber,  ///< writes into `tensor`, which it should only read
  throw_on_empty,
};

struct Slip {
  Io what = Io::none;
  std::string tensor = {};
  double factor = 1;       ///< of `scale`
  std::string other = {};  ///< of `read_with_strides`
};

/// A launch as the zoo's kernels see it: tensors in fp32, row-major.
class Call {
 public:
  Call(const KernelCall& call, const Slip& slip) : call_(call), slip_(slip) {}

  bool has(const std::string& name) const { return call_.find(name) != nullptr; }
  Values in(const std::string& name) const;
  std::vector<std::int64_t> whole(const std::string& name) const;
  /// Rounds and stores; an absent gradient is left out.
  void out(const std::string& name, const Values& values) const;
  const Shape& shape(const std::string& name) const { return call_.at(name).shape; }
  std::int64_t columns(const std::string& name) const { return shape(name).last(); }
  std::int64_t rows(const std::string& name) const {
    return columns(name) == 0 ? 0 : shape(name).count() / columns(name);
  }
  float number(const std::string& name) const { return static_cast<float>(call_.number(name)); }
  std::int64_t integer(const std::string& name) const { return call_.attributes->integer(name); }
  /// The storage type of the case: that of the first floating tensor among these names.
  Dtype dtype(const std::string& name) const { return call_.at(name).dtype; }
  /// What slips that touch no read or written value do to memory; called once, at the end of a launch.
  void finish() const;

 private:
  const KernelCall& call_;
  const Slip& slip_;
};

using Body = std::function<void(const Call&)>;
/// A kernel of two bodies, with a slip.
Kernel kernel_of(Body forward, Body backward, Slip slip = {});
/// The same of an object with both, forward(call) and backward(call).
template <class Op>
Kernel kernel_of_op(const Op& op) {
  return kernel_of([op](const Call& call) { op.forward(call); }, [op](const Call& call) { op.backward(call); });
}
/// The same of two functions (call, twist, of), as of a norm `of` a batch or of groups.
template <class Twist>
Kernel kernel_of_twist(void (*forward)(const Call&, Twist, bool), void (*backward)(const Call&, Twist, bool),
                       Twist twist, bool of) {
  return kernel_of([=](const Call& call) { forward(call, twist, of); },
                   [=](const Call& call) { backward(call, twist, of); });
}

// ---- Elementwise kernels. The last argument is the storage type of the case. ----

/// y = f(x), dx = df(x, dy).
Kernel unary(float (*f)(float x, Dtype), float (*df)(float x, float g, Dtype), Slip slip = {});
/// z = f(x, y) of two tensors a, b and their output.
struct BinaryNames {
  const char *a = "x", *b = "y", *out = "z";
};
using BinaryGradient = float (*)(float x, float y, float g, Dtype);
Kernel binary(float (*f)(float x, float y, Dtype), BinaryGradient da, BinaryGradient db, Slip slip = {},
              BinaryNames names = {});
/// y = f(x, a), dx = df(x, g, a), where a is an attribute, or 0 without a name.
Kernel elementwise(float (*f)(float x, float a), float (*df)(float x, float g, float a),
                   const char* attribute = nullptr);

/// x [N, D] seen along the attribute "axis": element i of line r stands at `at(r, i)`.
struct AxisLines {
  std::int64_t count, length, line_stride, step;
  /// `confused`: as of a kernel that takes the other axis of a square.
  explicit AxisLines(const Call& call, bool confused = false);
  std::size_t at(std::int64_t r, std::int64_t i) const { return index_of(r * line_stride + i * step); }
  Values line(const Values& x, std::int64_t r) const;
};

/// Row r of [.., D] values.
inline std::span<const float> row_of(const Values& values, std::int64_t r, std::int64_t columns) {
  return std::span(values).subspan(index_of(r * columns), index_of(columns));
}

// ---- Writing specimens down. ----

inline const std::vector<Dtype> kAllTypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
inline const std::vector<Dtype> kHalfTypes = {Dtype::fp16, Dtype::bf16};
inline const std::vector<Dtype> kFp32 = {Dtype::fp32};
inline const std::vector<Dtype> kFp16 = {Dtype::fp16};
inline const std::vector<Dtype> kBf16 = {Dtype::bf16};
inline const std::vector<Dtype> kNotBf16 = {Dtype::fp32, Dtype::fp16};

/// A defect as it is written down; `due` and `also` as in Specimen, `also` may be left out.
struct Defect {
  const char* name;
  int defect_class;
  const char* what;
  const char* regime;
  Verdict due;
  const char* cause;
  Kernel kernel;
  std::vector<Dtype> dtypes = kAllTypes;
  Verdict also = Verdict::rounding;
  const char* equivalent = "";
};
struct Variant {
  const char* name;
  const char* what;
  Kernel kernel;
  const char* form = "";
  std::vector<Dtype> dtypes = kAllTypes;
};
void add(std::vector<Specimen>& out, const char* op, std::vector<Defect> defects, std::vector<Variant> variants);

std::vector<Specimen> elementwise_specimens();
std::vector<Specimen> activation_specimens();
std::vector<Specimen> rectifier_specimens();
std::vector<Specimen> softmax_specimens();
std::vector<Specimen> cross_entropy_specimens();
std::vector<Specimen> norm_specimens();
std::vector<Specimen> channel_norm_specimens();
std::vector<Specimen> reduction_specimens();
std::vector<Specimen> running_sum_specimens();
std::vector<Specimen> extremum_specimens();
std::vector<Specimen> linear_specimens();
std::vector<Specimen> image_specimens();
std::vector<Specimen> attention_specimens();
std::vector<Specimen> embedding_specimens();
std::vector<Specimen> further_elementwise_specimens();
std::vector<Specimen> further_row_specimens();
std::vector<Specimen> further_sum_specimens();
std::vector<Specimen> slip_specimens();
std::vector<Specimen> row_slip_specimens();
std::vector<Specimen> common_elementwise_specimens();
std::vector<Specimen> common_rectifier_specimens();
std::vector<Specimen> common_softmax_specimens();
std::vector<Specimen> common_norm_specimens();
std::vector<Specimen> common_channel_specimens();
std::vector<Specimen> common_sum_specimens();
std::vector<Specimen> common_product_specimens();
std::vector<Specimen> common_attention_specimens();
std::vector<Specimen> common_image_specimens();
std::vector<Specimen> further_function_specimens();
std::vector<Specimen> further_branch_specimens();
std::vector<Specimen> further_loss_specimens();
std::vector<Specimen> further_norm_specimens();
std::vector<Specimen> further_channel_specimens();
std::vector<Specimen> further_axis_specimens();
std::vector<Specimen> further_product_specimens();
std::vector<Specimen> further_head_specimens();
std::vector<Specimen> further_window_specimens();
std::vector<Specimen> daily_elementwise_specimens();
std::vector<Specimen> daily_activation_specimens();
std::vector<Specimen> daily_softmax_specimens();
std::vector<Specimen> daily_loss_specimens();
std::vector<Specimen> daily_norm_specimens();
std::vector<Specimen> daily_sum_specimens();
std::vector<Specimen> shop_attention_specimens();
std::vector<Specimen> shop_product_specimens();
std::vector<Specimen> shop_lookup_specimens();
std::vector<Specimen> shop_window_specimens();
std::vector<Specimen> shop_channel_specimens();
std::vector<Specimen> shop_line_specimens();
std::vector<Specimen> unseen_elementwise_specimens();
std::vector<Specimen> unseen_activation_specimens();
std::vector<Specimen> unseen_softmax_specimens();
std::vector<Specimen> unseen_loss_specimens();
std::vector<Specimen> unseen_norm_specimens();
std::vector<Specimen> unseen_channel_specimens();
std::vector<Specimen> unseen_sum_specimens();
std::vector<Specimen> unseen_product_specimens();
std::vector<Specimen> unseen_attention_specimens();
std::vector<Specimen> unseen_image_specimens();
std::vector<Specimen> double_specimens();

}  // namespace ampcheck::checks::zoo
