// SPDX-License-Identifier: Apache-2.0
// What an op takes, gives and promises, as data: the kernel, the formula and the checks all read it from here.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "src/accumulator.h"
#include "src/cast_policy.h"
#include "src/dtype.h"
#include "src/tensor.h"

namespace ampcheck {

/// What a tensor means, all that the regime generator knows about it.
enum class Role { data, weight, bias, mask, index, target, probability, log_probability, angle, quantized };

/// Which dtype a tensor has in a case.
enum class TypeRule {
  storage,    ///< the storage dtype of the case
  parameter,  ///< the storage dtype, or fp32 beside 16-bit data
  fp32,       ///< fp32 in every case; fp64 where the storage is fp64
  i64,
  u8,
  fp16,
  bf16,
  e4m3fn,
  e5m2,  ///< the same in every case
};

/// Values an input may take; the generator maps its numbers into the domain.
enum class Domain { any, positive, unit_interval };

struct TensorSpec {
  std::string name;
  std::string dims;  ///< one extent a dimension, "N D/2" (src/extent.h); empty for a scalar
  Role role = Role::data;
  TypeRule type = TypeRule::storage;
  bool optional = false;
  bool differentiable = true;  ///< ignored for integers and masks, which never have a gradient
  Domain domain = Domain::any;
  std::string index_dim = {};  ///< indices and targets: the symbol whose extent bounds the values

  bool has_gradient() const {
    return differentiable && role != Role::mask && role != Role::index && role != Role::target &&
           role != Role::quantized;
  }
};

/// Shape comes from the formula; of an op without one, from its symbols.
struct OutputSpec {
  std::string name;
  TypeRule type = TypeRule::storage;
  std::string dims = {};        ///< one extent a dimension; used where there is no formula
  bool takes_cotangent = true;  ///< false: no gradient flows back from it, as from running statistics
  bool to_backward = false;     ///< backward reads what forward wrote, as it reads a saved tensor
};

/// A number or text. Numbers of any type are kept as double: an int makes no double in braces by itself, so that
/// {0.5, 2} would not compile.
class AttributeValue : public std::variant<double, std::string> {
 public:
  AttributeValue() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  AttributeValue(T number) : variant(static_cast<double>(number)) {}  // NOLINT: meant to convert
  AttributeValue(std::string text) : variant(std::move(text)) {}      // NOLINT
  AttributeValue(const char* text) : variant(std::string(text)) {}    // NOLINT
};

/// Attributes of one call by name; numbers print shortest, booleans are 0 and 1.
class Attributes {
 public:
  void set(const std::string& name, AttributeValue value) { values_[name] = std::move(value); }
  /// Number of that name; Error if there is none or it is text.
  double number(const std::string& name) const;
  std::int64_t integer(const std::string& name) const { return static_cast<std::int64_t>(number(name)); }
  const std::string& text(const std::string& name) const;
  const std::map<std::string, AttributeValue>& all() const { return values_; }

 private:
  std::map<std::string, AttributeValue> values_;
};

/// One attribute: its default and the other values that the generator tries.
struct AttributeSpec {
  std::string name;
  AttributeValue default_value;
  std::vector<AttributeValue> other_values = {};
  bool whole = false;  ///< takes whole numbers alone

  /// Whether indices may hold its value: named after an index, as ignore_index and padding_idx are.
  bool is_sentinel() const { return name.find("index") != std::string::npos || name.find("idx") != std::string::npos; }
};

/// A dimension symbol and its extents in the three standard shapes.
struct DimSpec {
  std::string symbol;
  std::array<std::int64_t, 3> standard;
};

/// Extents by symbol, in the order of the signature.
using Dims = std::map<std::string, std::int64_t>;

/// Largest error of a function in ulps of its result (ulp of the compute type).
struct MathSet {
  std::string name;
  double exp = 1, expm1 = 1, log = 1, log1p = 1, tanh = 2, erf = 1, erfc = 3, rsqrt = 1, sqrt = 0.5, pow = 1;
};

/// What the kernel promises about its arithmetic; every interval is derived from this.
struct PrecisionContract {
  std::vector<Dtype> storage = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
  Dtype compute = Dtype::fp32;
  /// Of sums. Tensor cores add up products of matrices alone, whose operands they take in the storage type of the case
  /// (fp32: in tf32, and e4m3fn and e5m2 as they are): one that the formula computes is rounded to it. Other sums are
  /// fp32's.
  Accumulator accumulate = Dtype::fp32;
  /// The built-in ops': on the CUDA device cuBLAS multiplies matrices, on tensor cores where both are of one 16-bit
  /// type.
  bool cublas = false;
  /// 0: any order of summation. Otherwise the largest number of roundings that a term passes (depth of the tree).
  int summation_depth = 0;
  MathSet math;
  bool flushes_subnormals = false;
  bool atomics = false;  ///< repeats may differ within the interval
};

/// What the kernel promises about memory.
struct LaunchContract {
  std::vector<std::string> accumulates = {};  ///< outputs or gradients that are added to what their buffer holds
  std::string row_dim =
      {};  ///< symbols of the leading axes whose elements are independent rows, as "N" or "B H"; empty: none
  std::vector<std::string> row_independent = {};  ///< outputs and gradients for which that holds
  std::string row_axis = {};  ///< the attribute that names the axis along which rows lie; where it is not -1, the last
                              ///< one, the call has no rows of row_dim; empty: it always has
  bool batch_invariant =
      false;  ///< their bits depend neither on the number of rows nor on a row's place: the order of sums is fixed
  /// (output, input): the output overwrites the input; (gradient, cotangent): likewise in backward
  std::vector<std::pair<std::string, std::string>> in_place = {};
  bool strided = true;  ///< takes any strides; otherwise dense row-major only
};

/// Sizes at which the kernel promises to lose no number on the way whose correctly rounded value is representable; none
/// by default.
struct RangeContract {
  double largest_input = 0;  ///< of the finite floating inputs; 0: nothing declared
  double smallest_scale = 1,
         largest_scale =
             0;  ///< window of loss scales, powers of two, as GradScaler's are; largest_scale 0: nothing declared
  bool declared() const { return largest_input > 0 || largest_scale > 0; }
};

/// A value of an input at which the op has no derivative. The generator draws it, and the formula's gradient there is
/// the convention that the kernel is held to.
struct Kink {
  std::string input;
  double at = 0;
  std::string convention = {};  ///< in words: "gradient 0"
};

struct OpSignature {
  std::string name;
  std::string summary;  ///< one line for `ampcheck list`
  std::vector<TensorSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<OutputSpec> saved = {};  ///< written by forward, read by backward; named by stored() in the formula
  std::vector<AttributeSpec> attributes = {};
  std::vector<DimSpec> dims;
  PrecisionContract precision = {};
  LaunchContract launch = {};
  RangeContract range = {};
  /// The operator of torch that it is ("layer_norm"): autocast's lists have its policy, per device
  /// (src/amp/autocast_tables.h).
  std::string torch_op = {};
  CastPolicy cast = CastPolicy::lower_precision_fp;  ///< of an op that is none of torch's
  /// False for extents or attributes outside the op's domain (a window larger than the image); null: always true.
  std::function<bool(const Dims&, const Attributes&)> valid = nullptr;
  bool forward_mode = false;  ///< it has a jvp, and formulas record theirs
  std::vector<Kink> kinks = {};

  const TensorSpec* input(std::string_view name) const;
  /// Extents of the dims string: most are a symbol.
  static std::vector<std::string> symbols(const TensorSpec& spec);
};

/// "dx" for "x": names of gradients and cotangents.
inline std::string gradient_name(const std::string& tensor) { return "d" + tensor; }

/// "x.tangent" for "x": what forward mode reads and writes. No tensor of an op can be named so.
inline std::string tangent_name(const std::string& tensor) { return tensor + ".tangent"; }

/// dtype of a tensor of that rule when the case stores in `storage`.
Dtype dtype_of(TypeRule rule, Dtype storage);

}  // namespace ampcheck
