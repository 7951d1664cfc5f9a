// SPDX-License-Identifier: Apache-2.0
// The tables behind regimes.h: how each regime fills a tensor. Only checks/regime*.cpp include this.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "src/float_format.h"
#include "src/op_signature.h"
#include "src/random.h"
#include "src/tensor.h"

namespace ampcheck::checks {

/// Where an element stands. Lines run along the last axis; slabs are the indices of the first axis. A tensor of rank
/// below two is one slab; a scalar is one line of one column.
struct Frame {
  std::int64_t count, columns, lines, slabs, slab_size;

  explicit Frame(const Shape& shape);
  std::int64_t column(std::int64_t i) const { return i % columns; }
  std::int64_t line(std::int64_t i) const { return i / columns; }
  std::int64_t slab(std::int64_t i) const { return i / slab_size; }
};

/// What a fill works with. Numbers are unrounded; the caller rounds them to the format.
struct Fill {
  FloatFormat format;
  Random values;   ///< one number an element
  Random choices;  ///< positions, signs and numbers that several elements share
  Frame frame;
  double number;  ///< K of "scaleK", 0 where the regime has none

  /// Whose range the numbers keep to. Nobody judges fp64 beyond the range of fp32 (checks/case/interval.h).
  const FloatFormat& range() const { return format == kFp64 ? kFp32 : format; }
  double normal(std::int64_t i) const { return values.normal(static_cast<std::uint64_t>(i)); }
  double uniform(std::int64_t i) const { return values.uniform(static_cast<std::uint64_t>(i)); }
  double choice(std::int64_t i) const { return choices.uniform(static_cast<std::uint64_t>(i)); }
  /// +1 or -1, independent of the other numbers of that index.
  double sign(std::int64_t i) const { return (choices.bits(static_cast<std::uint64_t>(i)) & 1) != 0 ? -1.0 : 1.0; }
  /// Uniform in [0, n).
  std::int64_t below(std::int64_t i, std::int64_t n) const {
    return static_cast<std::int64_t>(choices.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(n)));
  }
  /// (1 + u) 2^k with k uniform in [low, high): log-uniform but for the shape inside a binade, and without libm.
  double log_uniform(std::int64_t i, int low, int high) const;
};

/// The number of element i; null where the regime is the default data (regimes of indices and masks).
using FillFunction = double (*)(const Fill&, std::int64_t i);

/// One regime, or one for each of `numbers` ("scale-9": prefix and number as printed).
struct DataFamily {
  const char* prefix;
  const char* purpose;
  FillFunction fill;
  std::vector<const char*> numbers = {};
  bool weights_too = false;  ///< weights and biases follow without being asked for
  bool extreme = false;      ///< worth a case in which weights and biases alone are such
};
std::span<const DataFamily> data_families();

/// The numbers of elements first, first + 1, ...: the same as the fill function's, many at a time.
using BulkFunction = void (*)(const Fill&, std::int64_t first, std::span<double> out);

struct CotangentRegime {
  const char* name;
  const char* purpose;
  FillFunction fill;  ///< null: a list of probes
  bool full_mantissas = false;
  std::vector<const char*> probes = {};  ///< regimes of the probes, in order
  BulkFunction bulk = nullptr;           ///< where one element at a time would cost more than the check
  bool representable = false;            ///< in every storage type: nothing to round
  double grid = 0;                       ///< Extremes::grid of all its numbers
};
std::span<const CotangentRegime> cotangent_table();

struct AimedInput;
/// The number of element i of an input that is aimed (checks/data/aimed_range.h).
double aimed_value(const Fill& fill, std::int64_t i, const AimedInput& aim);

/// Inputs that the data regimes govern.
inline bool is_data(const TensorSpec& spec) {
  return spec.role == Role::data || spec.role == Role::probability || spec.role == Role::log_probability;
}
/// Inputs that ".weights" governs.
inline bool is_weight(const TensorSpec& spec) { return spec.role == Role::weight || spec.role == Role::bias; }
inline bool is_index(const TensorSpec& spec) { return spec.role == Role::index || spec.role == Role::target; }

/// Signed powers of two times 1 to 3, at most 12 in magnitude.
double signed_power(const Fill& fill, std::int64_t i);
/// Magnitude in [max_finite / 2, max_finite].
double near_max(const Fill& fill, std::int64_t i);

}  // namespace ampcheck::checks
