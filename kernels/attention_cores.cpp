// SPDX-License-Identifier: Apache-2.0
// Attention with its products on tensor cores. The algebra of attention.cu; exp(s - max) and ds are rounded to the
// storage type before they meet v, k, q and do, as flash attention has it; hidden positions take part as zeros.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cores.h"
#include "kernels/matmul.h"
#include "kernels/row_reduce.h"
#include "src/parallel.h"
#include "src/rounding.h"

namespace ampcheck::kernels {

namespace {

using Floats = std::vector<float>;
std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// A dense matrix in the storage type.
struct Stored {
  std::vector<std::uint8_t> bytes;
  Matrix matrix;

  Stored(Dtype dtype, const Floats& values, std::int64_t rows, std::int64_t columns)
      : bytes(values.size() * size(ampcheck::bytes(dtype))) {
    encode(format(dtype), {}, std::span<const float>(values), bytes.data());
    matrix.data = bytes.data();
    matrix.dtype = dtype;
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.row_stride = columns;
    matrix.column_stride = 1;
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;
};

/// One head of one call.
class Head {
 public:
  Head(const KernelCall& call, const Cores& cores, std::int64_t head)
      : call_(call),
        cores_(cores),
        head_(head),
        length_(call.at("q").shape[2]),
        width_(call.at("q").shape[3]),
        scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(width_)))),
        causal_(call.attributes->integer("causal") != 0),
        q_(tensor("q")),
        k_(tensor("k")),
        v_(tensor("v")) {}

  void forward() const {
    Floats e = scores(), totals(size(length_)), lse(totals);
    for (std::int64_t t = 0; t < length_; ++t) {
      float* const row = e.data() + t * length_;
      const std::int64_t n = seen(t);
      const float shift = join_in_lanes(
          n, Max::kStart, [&](std::int64_t j) { return row[j]; }, Max{});
      for (std::int64_t j = 0; j < n; ++j) row[j] = math::exp(row[j] - shift);
      std::fill(row + n, row + length_, 0.0f);
      totals[size(t)] = join_in_lanes(
          n, Sum::kStart, [&](std::int64_t j) { return row[j]; }, Sum{});
      lse[size(t)] = shift + math::log(totals[size(t)]);
    }
    Floats o = product(stored(e).matrix, v_.matrix);
    for (std::int64_t i = 0; i < length_ * width_; ++i) o[size(i)] = math::divide(o[size(i)], totals[size(i / width_)]);
    put(call_.find("o"), o, width_);
    put(call_.find("lse"), lse, 1);
  }

  void backward() const {
    const Stored dout(call_.at("q").dtype, floats(call_.at("do"), width_), length_, width_);
    const Floats lse = floats(call_.at("lse"), 1), dp = product(dout.matrix, v_.matrix.transposed());
    Floats p = scores(), ds(p.size(), 0.0f);
    for (std::int64_t t = 0; t < length_; ++t) {
      const std::int64_t n = seen(t);
      const std::size_t first = size(t * length_);
      for (std::int64_t j = 0; j < n; ++j) p[first + size(j)] = math::exp(p[first + size(j)] - lse[size(t)]);
      for (std::int64_t j = n; j < length_; ++j) p[first + size(j)] = 0;
      const float delta = join_in_lanes(
          n, Sum::kStart, [&](std::int64_t j) { return p[first + size(j)] * dp[first + size(j)]; }, Sum{});
      for (std::int64_t j = 0; j < n; ++j) ds[first + size(j)] = p[first + size(j)] * (dp[first + size(j)] - delta);
    }
    const Stored in_p = stored(p), in_ds = stored(ds);
    if (const TensorView* dq = call_.find("dq")) put(dq, scaled(product(in_ds.matrix, k_.matrix)), width_);
    if (const TensorView* dk = call_.find("dk")) put(dk, scaled(product(in_ds.matrix.transposed(), q_.matrix)), width_);
    if (const TensorView* dv = call_.find("dv")) put(dv, product(in_p.matrix.transposed(), dout.matrix), width_);
  }

 private:
  std::int64_t seen(std::int64_t t) const { return causal_ ? t + 1 : length_; }

  /// This head of a tensor with `columns` numbers a position.
  Floats floats(const TensorView& view, std::int64_t columns) const {
    const std::int64_t n = length_ * columns;
    Floats out(size(n));
    const float* const data = read(Operand(view), head_ * n, n, out.data());
    if (data != out.data()) std::copy_n(data, n, out.begin());
    return out;
  }
  Stored tensor(const char* name) const {
    return {call_.at(name).dtype, floats(call_.at(name), width_), length_, width_};
  }
  /// [T,T] in the storage type.
  Stored stored(const Floats& values) const { return {call_.at("q").dtype, values, length_, length_}; }

  Floats product(const Matrix& a, const Matrix& b) const {
    Floats out(size(a.rows * b.columns));
    core_matmul(cores_, a, b, out.data(), true);
    return out;
  }
  Floats scaled(Floats values) const {
    for (float& value : values) value *= scale_;
    return values;
  }
  Floats scores() const { return scaled(product(q_.matrix, k_.matrix.transposed())); }

  void put(const TensorView* view, const Floats& values, std::int64_t columns) const {
    if (view != nullptr) write(Operand(*view), head_ * length_ * columns, length_ * columns, values.data());
  }

  const KernelCall& call_;
  const Cores& cores_;
  std::int64_t head_, length_, width_;
  float scale_;
  bool causal_;
  Stored q_, k_, v_;
};

}  // namespace

bool attention_on_cores(const KernelCall& call, bool backward) {
  const Cores* const cores = cores_of_thread();
  if (cores == nullptr) return false;
  const TensorView& q = call.at("q");
  float nothing = 0;
  Stored one(q.dtype, {0.0f}, 1, 1);
  if (!core_matmul(*cores, one.matrix, one.matrix, &nothing, true)) return false;
  parallel_for(q.shape[0] * q.shape[1], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) {
      const Head each(call, *cores, head);
      backward ? each.backward() : each.forward();
    }
  });
  return true;
}

}  // namespace ampcheck::kernels
