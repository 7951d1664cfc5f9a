// SPDX-License-Identifier: Apache-2.0
#include "checks/data/regimes.h"
#include "checks/data/cotangents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "checks/define/op_def.h"
#include "src/error.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::checks {
namespace {

TensorSpec tensor(const char* name, const char* dims, Role role = Role::data, TypeRule type = TypeRule::storage) {
  TensorSpec spec;
  spec.name = name;
  spec.dims = dims;
  spec.role = role;
  spec.type = type;
  return spec;
}

/// Shaped like layer norm: optional parameters that may be fp32 beside 16-bit data, one attribute.
OpSignature norm_like() {
  OpSignature s;
  s.name = "norm_like";
  s.inputs = {tensor("x", "N D"), tensor("weight", "D", Role::weight, TypeRule::parameter),
              tensor("bias", "D", Role::bias, TypeRule::parameter)};
  s.inputs[1].optional = s.inputs[2].optional = true;
  s.outputs = {{"y"}};
  s.attributes = {{"eps", 1e-5, {0.0, 0.1}}};
  s.dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}};
  return s;
}

/// Shaped like a loss over classes with a weight table looked up first: integers before the first stored tensor.
OpSignature lookup_like() {
  OpSignature s;
  s.name = "lookup_like";
  s.inputs = {tensor("ids", "N", Role::index, TypeRule::i64),
              tensor("table", "V D", Role::weight),
              tensor("target", "N", Role::target, TypeRule::i64),
              tensor("mask", "N", Role::mask, TypeRule::u8),
              tensor("code", "V D", Role::quantized, TypeRule::u8),
              tensor("p", "N D", Role::probability),
              tensor("s", "N D"),
              tensor("logp", "N D", Role::log_probability)};
  s.inputs[0].index_dim = "V";
  s.inputs[2].index_dim = "D";
  s.inputs[6].domain = Domain::positive;
  s.outputs = {{"loss"}, {"z", TypeRule::fp32}};
  s.attributes = {{"ignore_index", -100.0, {1.0}},
                  {"padding_idx", -1.0, {2.0}},
                  {"reduction", std::string("mean"), {std::string("sum")}}};
  s.dims = {{"N", {6, 33, 2}}, {"V", {5, 12, 3}}, {"D", {4, 9, 65}}};
  return s;
}

/// Shaped like a window op: many dimensions, some of them invalid together.
OpSignature window_like() {
  OpSignature s;
  s.name = "window_like";
  s.inputs = {tensor("x", "N C H W"), tensor("weight", "O C R S", Role::weight)};
  s.outputs = {{"y"}};
  s.attributes = {{"stride", 1.0, {2.0}}, {"groups", 1.0, {2.0}}};
  s.dims = {{"N", {2, 1, 3}}, {"C", {3, 4, 2}}, {"H", {6, 9, 5}}, {"W", {5, 9, 8}},
            {"O", {4, 2, 6}}, {"R", {3, 3, 1}}, {"S", {2, 3, 1}}};
  s.valid = [](const Dims& d, const Attributes& a) {
    return d.at("R") > 0 && d.at("S") > 0 && d.at("R") <= d.at("H") && d.at("S") <= d.at("W") &&
           d.at("C") % a.integer("groups") == 0;
  };
  return s;
}

std::vector<OpSignature> signatures() {
  std::vector<OpSignature> out = {norm_like(), lookup_like(), window_like()};
  for (const OpDef& op : all_ops()) out.push_back(op.signature);
  return out;
}

const Dtype kStorages[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};

std::vector<double> data(const std::string& range, Dtype storage = Dtype::fp32, std::int64_t rows = 6,
                         std::int64_t columns = 10, const char* name = "x") {
  const OpSignature s = norm_like();
  OpCall call = default_call(s, storage);
  call.dims = {{"N", rows}, {"D", columns}};
  call.range = range;
  return input_values(s, call, *s.input(name));
}

std::vector<double> cotangent(const std::string& regime, const Shape& shape, Dtype dtype = Dtype::bf16, int probe = 0) {
  OpCall call = default_call(norm_like(), dtype);
  call.cotangent = regime;
  return cotangent_values(call, "y", shape, dtype, probe);
}

bool representable(Dtype dtype, double value) {
  if (!is_float(dtype)) return value == std::nearbyint(value);
  if (std::isnan(value)) return true;
  const FloatFormat& f = format(dtype);
  return decode_scalar(f, encode_scalar(f, value)) == value;
}

bool same_call(const OpCall& a, const OpCall& b) {
  return a.op == b.op && a.storage == b.storage && a.dims == b.dims && a.dtypes == b.dtypes && a.absent == b.absent &&
         a.attributes.all() == b.attributes.all() && a.range == b.range && a.cotangent == b.cotangent &&
         a.layout == b.layout && a.seed == b.seed;
}

TEST(Cases, CountsUniqueValidAndReadBack) {
  for (const OpSignature& s : signatures())
    for (const Dtype storage : kStorages) {
      std::size_t counts[3] = {};
      for (const CaseSet set : {CaseSet::quick, CaseSet::standard, CaseSet::all}) {
        std::set<std::string> names;
        for (const OpCall& call : cases_of(s, storage, set, 3)) {
          const std::string name = call.str(s);
          EXPECT_TRUE(names.insert(name).second) << name;
          EXPECT_EQ(name.find(' '), std::string::npos) << name;
          EXPECT_TRUE(!s.valid || s.valid(call.dims, call.attributes)) << name;
          EXPECT_TRUE(same_call(parse_call(name, s), call)) << name << "\n" << parse_call(name, s).str(s);
        }
        counts[static_cast<int>(set)] = names.size();
      }
      EXPECT_GE(counts[0], 12u) << s.name;
      EXPECT_LE(counts[0], 28u) << s.name;
      EXPECT_GE(counts[1], 50u) << s.name;
      EXPECT_LE(counts[1], 120u) << s.name;
      EXPECT_GE(counts[2], 150u) << s.name;
    }
}

TEST(Cases, DefaultSetsStaySmall) {
  for (const OpSignature& s : signatures()) {
    std::int64_t elements = 0, cases = 0;
    for (const Dtype storage : kStorages)
      for (const OpCall& call : cases_of(s, storage, CaseSet::standard, 1)) {
        ++cases;
        std::int64_t largest = 0;
        for (const TensorSpec& spec : s.inputs)
          if (call.has(spec)) largest = std::max(largest, call.shape(spec).count());
        elements += largest;
      }
    EXPECT_LE(elements / cases, 3500) << s.name;
  }
}

TEST(Cases, LargestIsAbove16BitsAndNoneIsHuge) {
  for (const OpSignature& s : signatures()) {
    std::int64_t largest = 0;
    for (const OpCall& call : cases_of(s, s.precision.storage.front(), CaseSet::standard, 1))
      for (const TensorSpec& spec : s.inputs)
        if (call.has(spec)) largest = std::max(largest, call.shape(spec).count());
    EXPECT_GT(largest, 1 << 16) << s.name;
    EXPECT_LE(largest, 1 << 18) << s.name;
  }
}

TEST(Cases, CoverWhatTheSignatureOffers) {
  const OpSignature s = norm_like();
  const std::vector<OpCall> cases = cases_of(s, Dtype::bf16, CaseSet::standard, 1);
  const auto some = [&](auto test) { return std::any_of(cases.begin(), cases.end(), test); };
  EXPECT_TRUE(same_call(cases.front(), default_call(s, Dtype::bf16)));
  EXPECT_TRUE(some([](const OpCall& c) { return c.absent == std::vector<std::string>{"weight", "bias"}; }));
  EXPECT_TRUE(some([](const OpCall& c) { return c.absent == std::vector<std::string>{"bias"}; }));
  EXPECT_TRUE(some([](const OpCall& c) { return c.dtypes.size() == 2 && c.dtypes.at("weight") == Dtype::fp32; }));
  EXPECT_TRUE(some([](const OpCall& c) { return c.attributes.number("eps") == 0.1; }));
  EXPECT_TRUE(some([](const OpCall& c) { return c.dims.at("N") == 0 && c.dims.at("D") == 7; }));
  EXPECT_TRUE(some([](const OpCall& c) { return c.dims.at("N") == 1030; }));
  EXPECT_TRUE(some([](const OpCall& c) { return c.dims.at("N") == 6 && c.dims.at("D") == 6; }));
  // Whole vectors, warps and tiles with more rows than a block takes, and a tail behind them.
  for (const auto& shape :
       {std::pair{130, 64}, {257, 32}, {35, 256}, {64, 128}, {17, 520}, {8, 1024}, {3, 2600}, {32, 32}})
    EXPECT_TRUE(some([&](const OpCall& c) { return c.dims.at("N") == shape.first && c.dims.at("D") == shape.second; }))
        << shape.first << " x " << shape.second;
  EXPECT_TRUE(some([](const OpCall& c) { return c.attributes.number("eps") == 0.1 && c.range == "sweep20"; }));
  for (const char* layout : {"last2", "transposed", "padded:weight", "last2:dy", "expanded:dy", "transposed:x"})
    EXPECT_TRUE(some([&](const OpCall& c) { return c.layout == layout; })) << layout;
  for (const OpCall& call : cases_of(s, Dtype::fp32, CaseSet::all, 1)) EXPECT_TRUE(call.dtypes.empty());
  OpSignature dense = s;
  dense.launch.strided = false;
  for (const OpCall& call : cases_of(dense, Dtype::fp32, CaseSet::all, 1)) EXPECT_EQ(call.layout, "dense");
  dense.precision.storage = {Dtype::bf16};
  EXPECT_TRUE(cases_of(dense, Dtype::fp32, CaseSet::all, 1).empty());
}

TEST(Cases, AllRunsEveryRegimeThatTheFormatHolds) {
  std::set<std::string> ranges, cotangents, tables;
  for (const OpSignature& s : {norm_like(), lookup_like()})
    for (const OpCall& call : cases_of(s, Dtype::fp32, CaseSet::all, 1)) {
      ranges.insert(call.range);
      cotangents.insert(call.cotangent);
    }
  for (const RegimeText& regime : data_regimes()) EXPECT_TRUE(ranges.contains(regime.name)) << regime.name;
  for (const RegimeText& regime : cotangent_regimes()) EXPECT_TRUE(cotangents.contains(regime.name)) << regime.name;
  for (const auto* table : {&data_regimes(), &cotangent_regimes(), &layouts()}) {
    tables.clear();
    for (const RegimeText& text : *table) {
      EXPECT_TRUE(tables.insert(text.name).second) << text.name;
      EXPECT_EQ(text.name.find_first_of(" ,()=[]:"), std::string::npos) << text.name;
      EXPECT_FALSE(text.purpose.empty());
    }
  }
}

TEST(Values, RepresentableFiniteAndInTheirDomain) {
  const std::set<std::string> with_specials = {"specials", "nans", "infinities", "minus_infinities", "neg_inf_rows"};
  for (const OpSignature& s : signatures())
    for (const Dtype storage : kStorages)
      for (const RegimeText& regime : data_regimes())
        for (const char* part : {"", ".first", ".rest", ".weights"}) {
          OpCall call = default_call(s, storage);
          call.range = regime.name + part;
          for (const TensorSpec& spec : s.inputs) {
            const std::vector<double> values = input_values(s, call, spec);
            ASSERT_EQ(static_cast<std::int64_t>(values.size()), call.shape(spec).count());
            for (const double value : values) {
              ASSERT_TRUE(representable(call.dtype(spec), value)) << call.str(s) << " " << spec.name << " " << value;
              if (!with_specials.contains(regime.name)) {
                ASSERT_TRUE(std::isfinite(value)) << call.str(s);
              }
              if (spec.domain == Domain::positive) {
                ASSERT_FALSE(value <= 0) << call.str(s);
              }
              if (spec.role == Role::probability) {
                ASSERT_FALSE(value <= 0 || value >= 1) << call.str(s) << value;
              }
              if (spec.role == Role::log_probability) {
                ASSERT_FALSE(value > 0) << call.str(s);
              }
              if (spec.role == Role::mask) {
                ASSERT_TRUE(value == 0 || value == 1);
              }
              if (spec.role == Role::quantized) {
                ASSERT_TRUE(value >= 0 && value <= 255 && value == std::floor(value));
              }
              if (spec.role == Role::index) {
                ASSERT_TRUE(value >= 0 && value < static_cast<double>(call.dims.at(spec.index_dim)));
              }
            }
          }
        }
}

TEST(Values, EmptyShapes) {
  for (const RegimeText& regime : data_regimes())
    for (const auto& [rows, columns] : {std::pair{0, 5}, {5, 0}, {0, 0}}) {
      EXPECT_TRUE(data(regime.name, Dtype::bf16, rows, columns).empty());
      EXPECT_EQ(data(regime.name, Dtype::bf16, 1, 1).size(), 1u);
    }
  for (const RegimeText& regime : cotangent_regimes()) {
    EXPECT_TRUE(cotangent(regime.name, {0, 5}).empty());
    EXPECT_TRUE(cotangent(regime.name, {5, 0}).empty());
    EXPECT_EQ(cotangent(regime.name, {}).size(), 1u);
  }
}

TEST(Values, RegimesDoWhatTheirNamesSay) {
  const auto at = [](const std::vector<double>& x, int row, int column) {
    return x[static_cast<std::size_t>(row * 10 + column)];
  };
  const auto specials = data("specials");
  EXPECT_TRUE(std::any_of(specials.begin(), specials.end(), [](double v) { return std::isnan(v); }));
  EXPECT_TRUE(std::count(specials.begin(), specials.end(), HUGE_VAL) > 0 &&
              std::count(specials.begin(), specials.end(), -HUGE_VAL) > 0);
  for (int c = 0; c < 10; ++c) EXPECT_TRUE(std::isfinite(at(specials, 3, c)));
  const auto neg_inf = data("neg_inf_rows");
  const auto antisymmetric = data("antisymmetric"), down = data("antisymmetric_columns"), ascending = data("ascending");
  const auto repeated = data("repeated_columns"), constant = data("constant_row"), nearly = data("nearly_constant_row");
  const auto spikes = data("two_spikes");
  for (int r = 0; r < 6; ++r) {
    std::map<double, int> large;
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (int c = 0; c < 10; ++c) {
      EXPECT_EQ(at(neg_inf, r, c) == -HUGE_VAL, r % 2 == 0);
      if (c < 5) {
        EXPECT_EQ(at(antisymmetric, r, c), -at(antisymmetric, r, c + 5));
      }
      if (r < 3) {
        EXPECT_EQ(at(down, r, c), -at(down, r + 3, c));
      }
      if (c > 0) {
        EXPECT_GT(at(ascending, r, c), at(ascending, r, c - 1));
      }
      if (c % 2 == 1) {
        EXPECT_EQ(at(repeated, r, c), at(repeated, r, c - 1));
      }
      EXPECT_EQ(at(constant, r, c), at(constant, r, 0));
      low = std::min(low, at(nearly, r, c));
      high = std::max(high, at(nearly, r, c));
      if (std::fabs(at(spikes, r, c)) >= 4) ++large[at(spikes, r, c)];
    }
    EXPECT_LE(high - low, 0x1p-21);
    ASSERT_EQ(large.size(), 1u);
    EXPECT_EQ(large.begin()->second, 2);
    EXPECT_LE(std::fabs(large.begin()->first), 200);
  }
  for (const double v : data("near_max")) EXPECT_GE(std::fabs(v), kFp32.max_finite() / 2);
  for (const double v : data("subnormal", Dtype::fp16)) EXPECT_LE(std::fabs(v), kFp16.min_normal());
  for (const double v : data("integers9")) EXPECT_TRUE(v == std::floor(v) && std::fabs(v) <= 9);
  for (const double v : data("integers9", Dtype::fp32, 6, 10, "weight")) EXPECT_EQ(v, std::floor(v));
  for (const double v : data("scale-20")) EXPECT_LT(std::fabs(v), 0x1p-17);
  for (const double v : data("mean-30")) EXPECT_LT(std::fabs(v + 30), 6);
  for (const double v : data("zeros.weights", Dtype::fp32, 6, 10, "bias")) EXPECT_EQ(v, 0);
  for (const double v : data("zeros", Dtype::fp32, 6, 10, "weight")) EXPECT_NE(v, 0);
  const auto zeros = data("signed_zeros");
  EXPECT_TRUE(std::any_of(zeros.begin(), zeros.end(), [](double v) { return v == 0 && std::signbit(v); }));
  EXPECT_TRUE(std::any_of(zeros.begin(), zeros.end(), [](double v) { return v == 0 && !std::signbit(v); }));
  const auto sweep = data("sweep20");
  EXPECT_LT(sweep.front(), -19);
  EXPECT_GT(sweep.back(), 19);
}

TEST(Values, PartsOfSeveralInputs) {
  OpSignature s;
  s.name = "two";
  s.inputs = {tensor("a", "N"), tensor("b", "N")};
  s.outputs = {{"y"}};
  s.dims = {{"N", {30, 64, 2}}};
  const auto is_zero = [&](const char* range, const char* name) {
    OpCall call = default_call(s, Dtype::fp32);
    call.range = range;
    const std::vector<double> values = input_values(s, call, *s.input(name));
    return std::count(values.begin(), values.end(), 0.0) == 30;
  };
  EXPECT_TRUE(is_zero("zeros", "a") && is_zero("zeros", "b"));
  EXPECT_TRUE(is_zero("zeros.first", "a") && !is_zero("zeros.first", "b"));
  EXPECT_TRUE(!is_zero("zeros.rest", "a") && is_zero("zeros.rest", "b"));
}

TEST(Values, Sentinels) {
  const OpSignature s = lookup_like();
  OpCall call = default_call(s, Dtype::fp32);
  call.dims["N"] = 1000;
  const auto share = [&](const char* range, const char* name, double value) {
    call.range = range;
    const std::vector<double> values = input_values(s, call, *s.input(name));
    return static_cast<double>(std::count(values.begin(), values.end(), value)) / 1000;
  };
  EXPECT_GT(share("normal", "target", -100), 0.01);
  EXPECT_LT(share("normal", "target", -100), 0.1);
  EXPECT_GT(share("sentinels", "target", -100), 0.15);
  EXPECT_EQ(share("all_sentinels", "target", -100) + share("all_sentinels", "target", -1), 1);
  EXPECT_EQ(share("sentinels", "ids", -1), 0);  // would address memory outside the table
  call.attributes.set("padding_idx", 2.0);
  EXPECT_EQ(share("all_sentinels", "ids", 2), 1);
  EXPECT_EQ(share("mask_zeros", "mask", 0), 1);
  call.attributes.set("padding_idx", -1.0);
  EXPECT_EQ(share("end_indices", "ids", 0) + share("end_indices", "ids", 4), 1);
  call.range = "same_index";
  const std::vector<double> same = input_values(s, call, *s.input("ids"));
  EXPECT_EQ(std::count(same.begin(), same.end(), same[0]), 1000);
}

/// Made part by part: the same values as one at a time, their bits and their extremes, over the edges of parts and
/// vectors.
TEST(Cotangents, BitsAndExtremesAreThoseOfTheValues) {
  for (const std::string_view target : simd_targets())
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::e4m3fn})
      for (const RegimeText& regime : cotangent_regimes())
        for (const Shape& shape : {Shape{1, 1}, Shape{3, 700}, Shape{41, 101}}) {
          set_simd_target(target);
          OpCall call = default_call(norm_like(), dtype);
          call.cotangent = regime.name;
          const FloatFormat& f = format(dtype);
          std::vector<std::byte> codes(static_cast<std::size_t>(shape.count() * f.storage_bytes())), want(codes.size());
          CotangentBits bits{codes.data(), {}};
          const std::vector<double> values = cotangent_values(call, "y", shape, dtype, 1, {}, bits);
          encode(f, {}, values, want.data());
          EXPECT_EQ(codes, want) << regime.name;
          const reference::Extremes extremes = reference::extremes_of(values);
          EXPECT_EQ(bits.range.largest, extremes.largest) << regime.name;
          EXPECT_EQ(bits.range.smallest, extremes.smallest) << regime.name;
          EXPECT_EQ(bits.range.zero, extremes.zero) << regime.name;
          EXPECT_EQ(bits.range.finite, extremes.finite) << regime.name;
          for (std::size_t i = 0; bits.range.grid > 0 && i < values.size(); ++i)
            ASSERT_EQ(values[i] / bits.range.grid, std::floor(values[i] / bits.range.grid)) << regime.name;
          EXPECT_EQ(bits.range.grid > 0, regime.name == "powers") << regime.name;
        }
  set_simd_target("");
  const std::vector<double> rows = cotangent("row_constant", {41, 101});  // parts begin within rows
  for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], rows[i - i % 101]);
}

TEST(Cotangents, RepresentableAndAsNamed) {
  const Shape shape = {6, 9};
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::e4m3fn})
    for (const RegimeText& regime : cotangent_regimes()) {
      OpCall call = default_call(norm_like(), dtype);
      call.cotangent = regime.name;
      for (int probe = 0; probe < probe_count(call); ++probe)
        for (const double value : cotangent_values(call, "y", shape, dtype, probe))
          ASSERT_TRUE(std::isfinite(value) && representable(dtype, value)) << regime.name;
    }
  for (const std::int64_t columns : {1, 2, 3, 8, 9})
    for (int row = 0; row < 4; ++row) {
      const std::vector<double> g = cotangent("zero_sum", {4, columns});
      double sum = 0, magnitude = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        const double v = g[static_cast<std::size_t>(row * columns + c)];
        sum += v;
        magnitude += std::fabs(v);
      }
      EXPECT_EQ(sum, 0) << columns;
      EXPECT_EQ(magnitude == 0, columns == 1);
    }
  const std::vector<double> one_hot = cotangent("one_hot", shape), single = cotangent("single", shape);
  for (int row = 0; row < 6; ++row)
    EXPECT_EQ(std::count(one_hot.begin() + row * 9, one_hot.begin() + row * 9 + 9, 0.0), row % 4 == 3 ? 9 : 8);
  EXPECT_EQ(std::count(single.begin(), single.end(), 0.0), 53);
  const std::vector<double> last = cotangent("last_column", shape), constant = cotangent("row_constant", shape);
  for (std::size_t i = 0; i < 54; ++i) {
    EXPECT_EQ(last[i] != 0, i % 9 == 8);
    EXPECT_EQ(constant[i], constant[i - i % 9]);
  }
  for (const double v : cotangent("powers", shape)) {
    const double odd = std::ldexp(std::fabs(v), 1 - std::ilogb(v));
    EXPECT_TRUE(odd == 2 || odd == 3) << v;
  }
  for (const double v : cotangent("integers255", shape)) EXPECT_TRUE(v == std::floor(v) && std::fabs(v) <= 255);
  for (const double v : cotangent("near_max", shape, Dtype::fp16)) EXPECT_GE(std::fabs(v), 32000);
}

TEST(Cotangents, FullMantissasAreFull) {
  for (const char* name : {"normal", "positive", "negative", "row_constant", "last_column"}) {
    int filled = 0, all = 0;
    for (const double v : cotangent(name, {40, 3}, Dtype::fp32)) {
      all += v != 0;
      filled += v * 0x1p16 != std::floor(v * 0x1p16);
    }
    EXPECT_GT(all, 0) << name;
    EXPECT_GT(10 * filled, 9 * all)
        << name;  // multiples of 2^-16, as the generator's own numbers are, add up exactly in fp32
  }
}

TEST(Cotangents, Probes) {
  OpCall call = default_call(norm_like(), Dtype::fp32);
  EXPECT_EQ(probe_count(call), 4);
  EXPECT_FALSE(full_mantissas(call, 0));
  EXPECT_TRUE(full_mantissas(call, 1));
  const std::vector<double> zero = cotangent_values(call, "y", {3, 4}, Dtype::fp32, 3);
  EXPECT_EQ(std::count(zero.begin(), zero.end(), 0.0), 12);
  call.cotangent = "full";
  EXPECT_EQ(probe_count(call), 6);
  EXPECT_NE(cotangent_values(call, "y", {3, 4}, Dtype::fp32, 1), cotangent_values(call, "y", {3, 4}, Dtype::fp32, 3));
  EXPECT_NE(cotangent_values(call, "y", {3, 4}, Dtype::fp32, 1), cotangent_values(call, "z", {3, 4}, Dtype::fp32, 1));
  call.cotangent = "normal";
  EXPECT_EQ(probe_count(call), 1);
}

TEST(Cotangents, LargeProbesOfOneRegimeAreItsNumbersElsewhereWithOtherSigns) {
  OpCall call = default_call(norm_like(), Dtype::bf16);
  call.cotangent = "full";
  const auto sizes = [](std::vector<double> values) {
    for (double& v : values) v = std::fabs(v);
    return values;
  };
  const auto sorted = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values;
  };
  const Shape large = {64, 257};
  for (const auto& [first, later] : {std::pair{0, 2}, {1, 3}, {1, 5}}) {
    ASSERT_EQ(probe_like(call, later), first);
    const std::vector<double> a = cotangent_values(call, "y", large, Dtype::bf16, first),
                              b = cotangent_values(call, "y", large, Dtype::bf16, later);
    EXPECT_EQ(sorted(sizes(a)), sorted(sizes(b)));
    CotangentBits bits;
    const Drawn kept{a, reference::extremes_of(a)};
    EXPECT_EQ(cotangent_values(call, "y", large, Dtype::bf16, later, {}, bits, &kept), b) << "from what was kept";
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {  // and their codes, from codes
      const FloatFormat& f = format(dtype);
      const std::vector<double> of_first = cotangent_values(call, "y", large, dtype, first);
      std::vector<std::byte> from(static_cast<std::size_t>(large.count() * f.storage_bytes())), codes(from.size()),
          want(from.size());
      encode(f, {}, of_first, from.data());
      CotangentBits with_codes{codes.data(), {}};
      const Drawn both{of_first, reference::extremes_of(of_first), from.data()};
      encode(f, {}, cotangent_values(call, "y", large, dtype, later, {}, with_codes, &both), want.data());
      EXPECT_EQ(codes, want) << name(dtype);
    }
    // Along rows and columns, at the same place and at the next ones, they are strangers: correlations of 16448 numbers
    // are below 5/sqrt(16448).
    for (const std::int64_t apart : {0, 1, 2, 256, 257, 258}) {
      double both = 0, one = 0, other = 0;
      for (std::size_t i = 0; i + static_cast<std::size_t>(apart) < a.size(); ++i) {
        both += a[i] * b[i + static_cast<std::size_t>(apart)];
        one += a[i] * a[i];
        other += b[i] * b[i];
      }
      EXPECT_LT(std::fabs(both), 5 / std::sqrt(16448.0) * std::sqrt(one * other)) << later << " apart " << apart;
    }
  }
  EXPECT_NE(sorted(sizes(cotangent_values(call, "y", large, Dtype::bf16, 3))),
            sorted(sizes(cotangent_values(call, "y", large, Dtype::bf16, 4))));
  EXPECT_NE(sorted(sizes(cotangent_values(call, "y", {5, 7}, Dtype::bf16, 1))),
            sorted(sizes(cotangent_values(call, "y", {5, 7}, Dtype::bf16, 3))))
      << "few are drawn anew";
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Regimes, UnknownNamesSayWhatWasMeant) {
  EXPECT_NE(message([] { data("spikes"); }).find("did you mean 'spike'"), std::string::npos);
  EXPECT_NE(message([] { data("scale"); }).find("unknown regime, got 'scale'"), std::string::npos);
  EXPECT_NE(message([] { data("mean30x"); }).find("did you mean 'mean30'"), std::string::npos);
  EXPECT_NE(message([] { cotangent("zerosum", {2, 2}); }).find("did you mean 'zero_sum'"), std::string::npos);
  EXPECT_EQ(message([] { data("scale+5"); }), "");
  EXPECT_EQ(message([] { data("mean2.5.weights"); }), "");
}

TEST(Regimes, TheSameBitsEverywhere) {
  const auto hash = [](const std::vector<double>& values) {
    std::uint64_t h = 0;
    for (const double value : values)
      h = (h ^ (std::isnan(value) ? 1 : std::bit_cast<std::uint64_t>(value))) * 0x100000001b3ull;
    return h;
  };
  EXPECT_EQ(hash(data("normal")), hash(data("normal")));
  EXPECT_NE(hash(data("normal")), hash(data("positive")));
  EXPECT_EQ(hash(data("normal", Dtype::bf16)), 0x73e1e00000000000u);
  EXPECT_EQ(hash(data("loguniform8", Dtype::fp16)), 0x82496c0000000000u);
  EXPECT_EQ(hash(data("specials", Dtype::fp32)), 0x4ccbd5be340f5819u);
  EXPECT_EQ(hash(cotangent("zero_sum", {6, 9})), 0x940c000000000000u);
  EXPECT_EQ(hash(cotangent("mixed", {6, 9})), 0x83d0000000000000u);
}

TEST(CaseName, IntegersBeforeTheFirstStoredTensor) {
  const OpSignature s = lookup_like();
  OpCall call = default_call(s, Dtype::bf16);
  EXPECT_EQ(call.str(s), "lookup_like(ids=i64[6],table=bf16[5,4],seed=1)");
  EXPECT_EQ(parse_call(call.str(s), s).storage, Dtype::bf16);
  EXPECT_NE(
      message([&] { parse_call("lookup_like(ids=fp32[6],table=bf16[5,4])", s); }).find("got fp32 for 'ids', want i64"),
      std::string::npos);
}

}  // namespace
}  // namespace ampcheck::checks
