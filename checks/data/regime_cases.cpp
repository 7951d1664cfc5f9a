// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Which cases an op gets, most productive first. In trials on correct and defective kernels odd shapes alone found 71
// %, attributes 10 % more, strided runs 6 %, extremes and specials 5 %, the rest little each, but nothing was
// redundant.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "checks/data/regime_tables.h"
#include "checks/data/regimes.h"
#include "src/extent.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kOddExtents[] = {17, 1, 67, 0, 257, 3, 1030, 31, 8, 129, 2, 9, 13, 16, 300, 7};
/// Extents of the last two axes, many by wide: whole vectors, warps and tiles, with more rows than a block takes.
constexpr std::int64_t kTiles[][2] = {{130, 64}, {257, 32}, {35, 256}, {64, 128}, {17, 520}, {8, 1024}, {3, 2600}};
constexpr std::int64_t kEqualExtents[] = {6, 4, 8, 3, 5, 16};
constexpr const char* kAttributeRegimes[] = {"normal", "integers9", "sweep20", "subnormal",
                                             "spike",  "negative",  "zeros",   "mean30"};

/// Of each set, the first ones are run by `quick`.
constexpr const char* kStandardRegimes[] = {"integers9",
                                            "spike",
                                            "specials",
                                            "mean30",
                                            "near_max",
                                            "scale-9",
                                            "zeros",
                                            "zeros.weights",
                                            "negative",
                                            "constant_row",
                                            "neg_inf_rows",
                                            "sentinels",
                                            "same_index",
                                            "mask_ones",
                                            "specials.rest",
                                            "scale+4",
                                            "subnormal",
                                            "confident",
                                            "sweep20",
                                            "mask_zeros",
                                            "all_sentinels",
                                            "antisymmetric",
                                            "loguniform8",
                                            "repeated_columns",
                                            "scale-20",
                                            "end_indices",
                                            "two_spikes",
                                            "near30",
                                            "spike.first",
                                            "ascending",
                                            "signed_zeros",
                                            "mean300",
                                            "integers1",
                                            "near_max_equal_sign",
                                            "scale+8",
                                            "minus_infinities",
                                            "near_max.weights",
                                            "descending",
                                            "mean2.5",
                                            "sweep120"};
constexpr const char* kStandardCotangents[] = {"zero_sum", "near_max",    "row_constant", "near_subnormal",
                                               "big",      "integers255", "last_column",  "full"};

/// How many cases of each kind, and how large they may be: tensor elements, and product of all extents as a measure
/// of the work of ops that contract.
struct Plan {
  std::size_t shapes, odd, equal, attributes, optional, layouts, regimes, cotangents;
  std::int64_t tensor, work;
};
constexpr std::size_t kNoEnd = 1000000;
constexpr Plan kQuick = {2, 6, 1, 3, 2, 2, 5, 2, 2100, 1 << 16};
constexpr Plan kStandard = {3, 28, 3, 16, 5, 8, 24, 6, 9000, 1 << 18};
constexpr Plan kAll = {3, kNoEnd, kNoEnd, kNoEnd, kNoEnd, kNoEnd, kNoEnd, kNoEnd, 70000, 1 << 22};
constexpr std::int64_t kMostTensor = 1 << 20, kMostWork = 1 << 24;  ///< whatever an op's fixed extents are
/// An op whose smallest case lies beyond those has a few cases up to here. The product counts extents twice that follow
/// from each other (of an image, and of what is added to it upsampled).
constexpr std::int64_t kHuge = 1 << 23, kHugeWork = 1 << 28;
constexpr std::size_t kFloors = 4, kTilePairs = 2;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kAbove16Bits = (1 << 16) + 1;

class CaseList {
 public:
  CaseList(const OpSignature& signature, Dtype storage, CaseSet set, std::uint64_t seed)
      : signature_(signature),
        set_(set),
        plan_(set == CaseSet::quick      ? kQuick
              : set == CaseSet::standard ? kStandard
                                         : kAll),
        base_(default_call(signature, storage)) {
    base_.seed = seed;
    for (std::size_t k = 0; k < 3; ++k) {
      OpCall call = base_;
      for (const DimSpec& dim : signature.dims) call.dims[dim.symbol] = dim.standard[k];
      standard_.push_back(call);
    }
    widen_for_large_ops();
    middle_ = base_;
    if (!signature.inputs.empty() && !signature.inputs[0].dims.empty())
      if (const std::string last = OpSignature::symbols(signature.inputs[0]).back(); has_dim(signature, last))
        middle_.dims[last] = 67;
    if (!fits(middle_, plan_.tensor)) middle_ = base_;
  }

  std::vector<OpCall> make() {
    add_shapes();
    add_attributes();
    if (set_ != CaseSet::quick) {
      add_tiles();
      add_floors();
    }
    add_optional();
    add_layouts();
    add_regimes();
    add_cotangents();
    if (set_ != CaseSet::quick) add_large();
    return std::move(cases_);
  }

 private:
  /// An op whose fixed extents are large has no case within the limits: then its own smallest shape is the limit.
  void widen_for_large_ops() {
    if (std::any_of(standard_.begin(), standard_.end(), [&](const OpCall& c) { return fits(c, plan_.tensor); })) return;
    const auto smallest = std::min_element(standard_.begin(), standard_.end(),
                                           [](const OpCall& a, const OpCall& b) { return work_of(a) < work_of(b); });
    const std::int64_t tensor = largest_tensor(*smallest), work = work_of(*smallest);
    if ((tensor > kMostTensor || work > kMostWork) && tensor <= kHuge && work <= kHugeWork) {
      plan_ = kQuick;
      plan_.tensor = tensor;
      plan_.work = work;
      return;
    }
    plan_.tensor = std::max(plan_.tensor, std::min(tensor, kMostTensor));
    plan_.work = std::max(plan_.work, std::min(work, kMostWork));
  }

  std::int64_t largest_tensor(const OpCall& call) const {
    std::int64_t largest = 0;
    for (const TensorSpec& spec : signature_.inputs)
      if (call.has(spec)) largest = std::max(largest, call.shape(spec).count());
    return largest;
  }

  /// Product of all extents.
  static std::int64_t work_of(const OpCall& call) {
    double work = 1;  // many fixed extents leave the range of integers
    for (const auto& [symbol, extent] : call.dims) work *= static_cast<double>(std::max<std::int64_t>(extent, 1));
    return static_cast<std::int64_t>(std::min(work, 0x1p60));
  }

  bool fits(const OpCall& call, std::int64_t tensor_limit) const {
    if (signature_.valid && !signature_.valid(call.dims, call.attributes)) return false;
    // A case that may be large in its tensors may also be in its work.
    const std::int64_t work_limit = tensor_limit > plan_.tensor ? std::max(plan_.work, 16 * tensor_limit) : plan_.work;
    if (work_of(call) > work_limit || largest_tensor(call) > tensor_limit) return false;
    return std::none_of(signature_.inputs.begin(), signature_.inputs.end(), [&](const TensorSpec& spec) {
      const auto bound = call.dims.find(spec.index_dim);
      return bound != call.dims.end() && bound->second == 0 && call.has(spec) && call.shape(spec).count() > 0;
    });
  }

  /// False if the case is invalid, too large or there already, or the section is full.
  bool add(const OpCall& call, std::int64_t tensor_limit = 0) {
    if (cases_.size() >= end_ || !fits(call, tensor_limit != 0 ? tensor_limit : plan_.tensor)) return false;
    if (!names_.insert(call.str(signature_)).second) return false;
    cases_.push_back(call);
    return true;
  }

  void section(std::size_t size) { end_ = cases_.size() + size; }

  void add_shapes() {
    section(plan_.shapes);
    for (const std::size_t k : {0u, 2u, 1u}) add(standard_[k], std::max<std::int64_t>(plan_.tensor, 1 << 14));
    section(plan_.equal);
    add_equal(kEqualExtents[0]);
    for (const std::int64_t extent : {1, 0}) add_equal(extent);
    for (const std::int64_t extent : kEqualExtents) add_equal(extent);
    section(plan_.odd);
    for (const std::int64_t extent : kOddExtents)
      for (auto dim = signature_.dims.rbegin(); dim != signature_.dims.rend(); ++dim) {
        OpCall call = base_;
        call.dims[dim->symbol] = extent;
        add(call);
      }
  }

  void add_tiles() {
    std::set<std::pair<std::string, std::string>> seen;
    std::size_t pairs = 0;
    for (const TensorSpec& spec : signature_.inputs) {
      const std::vector<std::string> symbols = OpSignature::symbols(spec);
      if (symbols.size() < 2 || is_index(spec)) continue;
      const std::string& rows = symbols[symbols.size() - 2];
      const std::string& columns = symbols.back();
      if (rows == columns || !base_.dims.contains(rows) || !base_.dims.contains(columns) ||
          !seen.insert({rows, columns}).second)
        continue;
      section(std::size(kTiles));
      for (const auto& [many, wide] : kTiles)
        for (const std::int64_t others : {kNoLimit, std::int64_t{2}, std::int64_t{1}}) {
          OpCall call = base_;
          for (auto& [symbol, extent] : call.dims)
            extent = symbol == rows ? many : symbol == columns ? wide : std::min(extent, others);
          if (add(call)) break;
        }
      if (++pairs == kTilePairs) break;
    }
    section(1);
    add_equal(32);
  }

  void add_equal(std::int64_t extent) {
    OpCall call = base_;
    for (auto& [symbol, value] : call.dims) value = extent;
    add(call);
  }

  void add_attributes() {
    section(plan_.attributes);
    // Every value once before any value twice.
    for (const char* regime : kAttributeRegimes)
      for (const std::size_t shape : {0u, 1u})
        for (const AttributeSpec& attribute : signature_.attributes)
          for (const AttributeValue& value : attribute.other_values) {
            OpCall call = shape == 0 ? base_ : set_ == CaseSet::all ? standard_[1] : middle_;
            call.attributes.set(attribute.name, value);
            call.range = regime;
            // A value that the first standard shape does not admit is tried at the others.
            if (!add(call) && shape == 0 && cases_.size() < end_) {
              for (const std::size_t other : {1u, 2u}) {
                call.dims = standard_[other].dims;
                if (add(call)) break;
              }
            }
            if (shape == 0 && regime == kAttributeRegimes[0] && is_last_value(attribute, value)) add_two_attributes();
          }
  }

  bool is_last_value(const AttributeSpec& attribute, const AttributeValue& value) const {
    const auto last = std::find_if(signature_.attributes.rbegin(), signature_.attributes.rend(),
                                   [](const AttributeSpec& spec) { return !spec.other_values.empty(); });
    return last != signature_.attributes.rend() && &*last == &attribute && &value == &attribute.other_values.back();
  }

  /// Neighbours in the list off their defaults at once: a kernel that confuses two of them is right where one is 1.
  void add_two_attributes() {
    const AttributeSpec* before = nullptr;
    for (const AttributeSpec& attribute : signature_.attributes) {
      if (attribute.other_values.empty()) continue;
      if (before != nullptr) {
        OpCall call = set_ == CaseSet::all ? standard_[1] : middle_;
        call.attributes.set(before->name, before->other_values.front());
        call.attributes.set(attribute.name, attribute.other_values.front());
        add(call);
      }
      before = &attribute;
    }
  }

  /// A small attribute is mostly a floor, max(norm, eps): data below it, where it decides, at each of its values.
  void add_floors() {
    constexpr double kSmall = 0.1;
    section(kFloors);
    for (const AttributeSpec& attribute : signature_.attributes) {
      std::vector<AttributeValue> values = attribute.other_values;
      values.insert(values.begin(), attribute.default_value);
      for (const AttributeValue& value : values) {
        const double* const floor = std::get_if<double>(&value);
        if (floor == nullptr || !(*floor > 0 && *floor < kSmall)) continue;
        OpCall call = base_;
        call.attributes.set(attribute.name, value);
        call.range = "scale" + std::to_string(std::ilogb(*floor) - 4);  // so that the norm of a short row lies below it
        if (in_format(call.range)) add(call);
      }
    }
  }

  void add_optional() {
    section(plan_.optional);
    OpCall none = base_, fp32 = base_;
    std::vector<OpCall> single;
    for (const TensorSpec& spec : signature_.inputs) {
      if (spec.type == TypeRule::parameter && base_.storage != Dtype::fp32) fp32.dtypes[spec.name] = Dtype::fp32;
      if (!spec.optional) continue;
      none.absent.push_back(spec.name);
      single.push_back(base_);
      single.back().absent.push_back(spec.name);
    }
    if (!fp32.dtypes.empty()) add(fp32);
    if (!none.absent.empty()) add(none);
    for (const OpCall& call : single) add(call);
    for (OpCall call : {fp32, none})
      if (!call.dtypes.empty() || !call.absent.empty())
        for (const char* regime : {"integers9", "mean30"}) {
          call.range = regime;
          call.dims = middle_.dims;
          add(call);
        }
  }

  void add_layouts() {
    if (!signature_.launch.strided) return;
    section(plan_.layouts);
    const auto with = [&](const std::string& layout, const char* cotangent = "mixed") {
      OpCall call = base_;
      call.layout = layout;
      call.cotangent = cotangent;
      return add(call);
    };
    with("last2");
    with("transposed");
    for (const OutputSpec& output : signature_.outputs) with("expanded:" + gradient_name(output.name), "row_constant");
    std::vector<std::string> tensors;
    for (const OutputSpec& output : signature_.outputs) tensors.push_back(gradient_name(output.name));
    std::set<std::string> rank_one;  // where exchanging the last two dimensions changes nothing
    for (const TensorSpec& spec : signature_.inputs) {
      tensors.push_back(spec.name);
      if (OpSignature::symbols(spec).size() < 2) rank_one.insert({spec.name, gradient_name(spec.name)});
    }
    for (const TensorSpec& spec : signature_.inputs)
      if (spec.has_gradient()) tensors.push_back(gradient_name(spec.name));
    for (const OutputSpec& output : signature_.outputs) tensors.push_back(output.name);
    const char* alone[] = {"last2:", "transposed:", "padded:"};
    for (std::size_t k = 0; k < 3; ++k) {
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        const bool line = rank_one.contains(tensors[t]) && (t + k) % 3 == 1;
        with(alone[line ? 0 : (t + k) % 3] + tensors[t]);
      }
      if (k == 0) with("padded");
    }
    for (const OutputSpec& output : signature_.outputs) with("expanded:" + gradient_name(output.name), "ones");
  }

  bool applies(const std::string& regime) const {
    const std::vector<TensorSpec>& inputs = signature_.inputs;
    const auto any = [&](auto test) { return std::any_of(inputs.begin(), inputs.end(), test); };
    const bool sentinel = std::any_of(signature_.attributes.begin(), signature_.attributes.end(),
                                      [](const auto& a) { return a.is_sentinel(); });
    if (regime.ends_with("sentinels")) return sentinel && any(is_index);
    const bool quantized = any([](const TensorSpec& spec) { return spec.role == Role::quantized; });
    if (regime == "same_index" || regime == "end_indices")
      return any(is_index) || (quantized && regime == "end_indices");
    if (regime.starts_with("mask_")) return any([](const TensorSpec& spec) { return spec.role == Role::mask; });
    if (!in_format(regime)) return false;
    if (regime.ends_with(".weights")) return any(is_weight);
    if (regime.ends_with(".first") || regime.ends_with(".rest"))
      return std::count_if(inputs.begin(), inputs.end(), is_data) > 1;
    return any(is_data) || (regime.starts_with("integers") && any(is_weight));
  }

  /// Whether the format holds such numbers, apart from a few that saturate or vanish.
  bool in_format(const std::string& regime) const {
    const FloatFormat& type = format(base_.storage);
    if (regime.starts_with("scale")) {
      const int power = std::atoi(regime.c_str() + 5);
      return power <= type.max_exponent() - 4 && std::ldexp(1.0, power) >= 16 * type.min_subnormal();
    }
    return !regime.starts_with("loguniform30") || type.max_exponent() > 30;
  }

  void add_regime(const std::string& regime, std::size_t turn) {
    if (!applies(regime)) return;
    OpCall call = turn % 3 == 0 ? base_ : turn % 3 == 1 ? middle_ : standard_[2];
    if (!fits(call, plan_.tensor)) call = middle_;
    call.range = regime;
    add(call);
  }

  /// What a search begins with shows where a line has no other number, or none that is finite.
  void add_lines_of_one() {
    section(1);
    OpCall call = base_;
    const std::vector<std::string> symbols =
        signature_.inputs.empty() ? std::vector<std::string>() : OpSignature::symbols(signature_.inputs[0]);
    if (symbols.size() < 2 || !has_dim(signature_, symbols.back())) return;
    call.dims[symbols.back()] = 1;
    call.range = "specials";
    if (applies(call.range)) add(call);
  }
  /// And windows of one element, or along another axis. What a word or a whole number says moves elements; a factor
  /// among infinities and zeros makes NaN where the formula has none to be judged by.
  void add_attributes_at_specials() {
    section(4);
    if (!applies("specials")) return;
    for (const AttributeSpec& attribute : signature_.attributes)
      for (const AttributeValue& value : attribute.other_values) {
        const double* const number = std::get_if<double>(&value);
        if (number != nullptr && (*number == 0 || *number != std::floor(*number))) continue;
        OpCall call = base_;
        call.attributes.set(attribute.name, value);
        call.range = "specials";
        add(call);
      }
  }

  void add_regimes() {
    section(plan_.regimes);
    std::size_t turn = 0;
    for (const char* regime : kStandardRegimes) add_regime(regime, turn++);
    if (set_ == CaseSet::standard) {  // numbers far apart in a long row: a maximum of a part of it is not that of all
      section(1);
      add_regime("scale+8", 2);
      section(2);  // rows far below zero: below the number at which a maximum starts
      add_regime("mean-300", 0);
      add_regime("mean-30000", 1);
      add_lines_of_one();
      add_attributes_at_specials();
    }
    if (set_ != CaseSet::all) return;
    for (const RegimeText& regime : data_regimes()) add_regime(regime.name, turn++);
    for (const DataFamily& family : data_families()) {
      if (family.fill == nullptr) continue;
      for (const char* number : family.numbers.empty() ? std::vector<const char*>{""} : family.numbers) {
        const std::string regime = std::string(family.prefix) + number;
        add_regime(regime + ".first", turn++);
        add_regime(regime + ".rest", turn++);
        if (family.extreme || family.weights_too) add_regime(regime + ".weights", turn++);
      }
    }
    for (const char* regime : kStandardRegimes) {  // once more where a row is long
      add_regime(regime, 1);
      add_regime(regime, 2);
    }
  }

  void add_cotangents() {
    section(plan_.cotangents);
    const auto add_cotangent = [&](const std::string& name, const OpCall& at) {
      OpCall call = at;
      call.cotangent = name;
      add(call);
    };
    for (const char* name : kStandardCotangents) add_cotangent(name, middle_);
    if (set_ != CaseSet::all) return;
    for (const RegimeText& regime : cotangent_regimes()) add_cotangent(regime.name, base_);
    for (const RegimeText& regime : cotangent_regimes()) add_cotangent(regime.name, middle_);
  }

  /// Above 2^16 elements, where a 16-bit index wraps and a grid that is too small leaves a tail, which shows along its
  /// own extent alone; that extent is long where the others are least. The default set pays for the cheapest two of
  /// first and last axes (a middle one may count twice, as the sequence of attention does), once, not for each dtype.
  void add_large() {
    section(set_ == CaseSet::all ? signature_.dims.size() : 2);
    if (set_ != CaseSet::all && base_.storage != signature_.precision.storage.front()) return;
    std::vector<OpCall> candidates;
    for (const DimSpec& dim : signature_.dims) {
      std::optional<OpCall> large;
      for (const std::int64_t others : {std::int64_t{2}, kNoLimit})
        if (!large) large = long_along(dim.symbol, others);
      if (large) candidates.push_back(*large);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const OpCall& a, const OpCall& b) { return work_of(a) < work_of(b); });
    for (const OpCall& call : candidates) add(call, 2 * kAbove16Bits);
  }

  std::optional<OpCall> long_along(const std::string& symbol, std::int64_t others) const {
    OpCall call = base_;
    call.cotangent = "normal";
    for (auto& [other, extent] : call.dims) extent = std::min(extent, others);
    call.dims[symbol] = 1;
    std::int64_t unit = 0;  // elements for each step of this extent
    bool outermost = false;
    for (const TensorSpec& spec : signature_.inputs) {
      const std::vector<std::string> symbols = OpSignature::symbols(spec);
      if (std::find(symbols.begin(), symbols.end(), symbol) != symbols.end())
        unit = std::max(unit, call.shape(spec).count());
      outermost |= !symbols.empty() && (symbols.front() == symbol || symbols.back() == symbol);
    }
    if (unit == 0 || (set_ != CaseSet::all && !outermost)) return std::nullopt;
    // Itself, or the elements alone; of a square tensor the root of them.
    const auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(kAbove16Bits / unit)));
    for (const std::int64_t extent : {kAbove16Bits, kAbove16Bits / unit + 1, root + 1}) {
      call.dims[symbol] = extent;
      if (fits(call, 2 * kAbove16Bits)) return call;
    }
    return std::nullopt;
  }

  const OpSignature& signature_;
  CaseSet set_;
  Plan plan_;
  OpCall base_, middle_;
  std::vector<OpCall> standard_;
  std::vector<OpCall> cases_;
  std::set<std::string> names_;
  std::size_t end_ = 0;
};

}  // namespace

std::vector<OpCall> cases_of(const OpSignature& signature, Dtype storage, CaseSet set, std::uint64_t seed) {
  const std::vector<Dtype>& allowed = signature.precision.storage;
  if (std::find(allowed.begin(), allowed.end(), storage) == allowed.end()) return {};
  return CaseList(signature, storage, set, seed).make();
}

}  // namespace ampcheck::checks
