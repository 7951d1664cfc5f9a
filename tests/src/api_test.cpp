// SPDX-License-Identifier: Apache-2.0
// The headers that a plug-in is built with: formulas in C++ as text, and storage types.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/text/formula_text.h"
#include "src/api/ampcheck/expr.h"
#include "src/api/ampcheck/op.h"
#include "src/api/ampcheck/storage_types.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck {
namespace {

using op::Expr;
using op::detail::formula_text;

template <class F>
std::string text(F formula, const std::vector<std::string>& inputs = {"x", "w"},
                 const std::vector<std::string>& attributes = {"eps"},
                 const std::vector<std::string>& outputs = {"y"}) {
  return formula_text(formula, inputs, attributes, outputs);
}

TEST(ApiExpr, WritesWhatWasWritten) {
  EXPECT_EQ(text([](Expr x, Expr w) { return x + w; }), "y = x + w\n");
  EXPECT_EQ(text([](Expr x, Expr w) { return x - (w - 1) * 2; }), "y = x - ((w - 1) * 2)\n");
  EXPECT_EQ(text([](Expr x, Expr) { return -x / -0.1; }), "y = (-x) / (-0.1)\n");
  EXPECT_EQ(text([](Expr x, Expr, Expr eps) { return rsqrt(mean(square(x), -1) + eps); }),
            "y = rsqrt(mean(square(x), -1) + eps)\n");
  EXPECT_EQ(text([](Expr x, Expr w) { return where(x < w, x, maximum(x, 0)); }),
            "y = where(x < w, x, maximum(x, 0))\n");
  EXPECT_EQ(text([](Expr x, Expr w) {
              return given(w, matmul(x, w, false, true), op::concat({x, x}, 0));
            }),
            "y = given(w, matmul(x, w, transpose_b=1), concat(x, x, axis=0))\n");
  EXPECT_EQ(text([](Expr x, Expr) {
              return reshape(slice(x, -1, 0, op::dim("D") / 2), {op::size(x, 0), -1});
            }),
            "y = reshape(slice(x, -1, 0, D / 2), size(x, 0), -1)\n");
}

TEST(ApiExpr, NamesWhatIsUsedTwice) {
  EXPECT_EQ(text([](Expr x, Expr) {
              const Expr e = exp(x);
              return e / sum(e, -1);
            }),
            "_1 = exp(x)\ny = _1 / sum(_1, -1)\n");
  EXPECT_EQ(text(
                [](Expr x, Expr w) {
                  const Expr h = x + w;
                  return std::vector<Expr>{h * h, h};
                },
                {"x", "w"}, {}, {"y", "h"}),
            "_1 = x + w\ny = _1 * _1\nh = _1\n");
}

TEST(ApiExpr, LongChainsAreParsed) {  // beyond the depth that the text may have
  OpSignature signature;
  signature.inputs = {{.name = "x", .dims = "N"}};
  signature.outputs = {{.name = "y"}};
  signature.dims = {{"N", {2, 3, 4}}};
  const std::string chain = text(
      [](Expr x) {
        for (int i = 0; i < 1000; ++i) x = tanh(x) + 1;
        return x;
      },
      {"x"}, {});
  EXPECT_NO_THROW(reference::form_from_text(signature, "chain", chain));
  const std::string wide = text(
      [](Expr x) {
        for (int i = 0; i < 200; ++i) x = x * x + x;
        return x;
      },
      {"x"}, {});
  EXPECT_LT(wide.size(), 20'000u) << "shared values are written once";
}

TEST(ApiExpr, ExtentsMayBeShared) {
  OpSignature signature;
  signature.inputs = {{.name = "x", .dims = "N E"}};
  signature.outputs = {{.name = "y"}};
  signature.dims = {{"N", {5, 64, 3}}, {"E", {6, 128, 1026}}};
  const auto recorded = [&](const std::string& formula) {
    reference::CaseInputs inputs;
    inputs.shapes["x"] = Shape{2, 6};
    reference::record(signature, reference::form_from_text(signature, "gated", formula), {}, inputs);
  };
  EXPECT_NO_THROW(recorded(text(
      [](Expr x) {
        const Expr h = op::dim("E") / 2;
        return tanh(slice(x, 1, 0, h)) * slice(x, 1, h, op::dim("E")) / h;
      },
      {"x"}, {})));
  EXPECT_THROW(recorded(text(
                   [](Expr x) {
                     const Expr h = sum(x);
                     return slice(x, 1, 0, h) * slice(x, 1, h, op::dim("E"));
                   },
                   {"x"}, {})),
               reference::FormulaError);
}

TEST(ApiExpr, AdjointsOfTheirOwnAreStatements) {
  const std::string got = text([](Expr x, Expr w) {
    const Expr n = x * w;
    return with_adjoint(n, {x, w}, [=](Expr g) { return std::vector<Expr>{g * w, g * x}; }) + n;
  });
  EXPECT_NE(got.find(" = _1 with dx = d_w"), std::string::npos) << got;
  EXPECT_NE(got.find(", dw = d_w"), std::string::npos) << got;
}

TEST(ApiExpr, MisuseIsTold) {
  EXPECT_THROW(text([](Expr x) { return x; }), std::invalid_argument) << "two inputs";
  EXPECT_THROW(text([](Expr x, Expr) { return std::vector<Expr>{x, x}; }), std::invalid_argument) << "one output";
  EXPECT_THROW(text([](Expr x, Expr) { return x * INFINITY; }), std::invalid_argument);
  EXPECT_THROW(text([](Expr x, Expr) {
                 return with_adjoint(x, {x}, [](Expr g) {
                   for (int i = 0; i < 100; ++i) g = g * g;
                   return g;
                 });
               }),
               std::length_error);
}

TEST(ApiCall, AnUnknownNameIsToldWithThoseThatAreThere) {
  std::int64_t shape[] = {1}, strides[] = {1};
  float value = 3;
  const auto tensor = [&](const char* name) {
    return ac_tensor{
        sizeof(ac_tensor), AC_FP32, name, {&value, {AC_CPU, 0}, 1, {AC_DL_FLOAT, 32, 1}, shape, strides, 0}};
  };
  const ac_tensor x = tensor("x"), dy = tensor("dy"), dx = tensor("dx");
  const ac_tensor *inputs[] = {&x, nullptr}, *cotangents[] = {&dy}, *gradients[] = {&dx, nullptr};
  const ac_attribute_value eps = {sizeof(ac_attribute_value), 0, "eps", 0.5};
  ac_call raw = {};
  raw.struct_size = sizeof raw;
  raw.input_count = 2;
  raw.output_count = 1;
  raw.attribute_count = 1;
  raw.inputs = inputs;
  raw.cotangents = cotangents;
  raw.gradients = gradients;
  raw.attributes = &eps;
  const op::Call call(&raw);
  const auto error = [](auto work) {
    try {
      work();
      return std::string("no error");
    } catch (const std::runtime_error& thrown) {
      return std::string(thrown.what());
    }
  };
  EXPECT_EQ(error([&] { call.view<float>("dx"); }), "no error");
  EXPECT_EQ(error([&] { call.view<float>("d_x"); }), "no tensor 'd_x' in this call, which has x, dy, dx");
  EXPECT_FALSE(call.find<float>("bias"));
  EXPECT_EQ(call.number("eps"), 0.5);
  EXPECT_EQ(error([&] { call.number("epsilon"); }), "no attribute 'epsilon', the op has eps");
}

template <class T>
void expect_rounding(const FloatFormat& format, const std::vector<float>& values) {
  for (const float value : values) {
    double want = static_cast<double>(value);
    round_values(format, RoundingMode{}, {&want, 1}, {&want, 1});
    const auto got = static_cast<double>(static_cast<float>(T(value)));
    const bool right = std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want);
    EXPECT_TRUE(right) << std::hexfloat << value << " became " << got << ", want " << want;
  }
}

template <class T>
void expect_codes(const FloatFormat& format) {
  for (std::uint32_t bits = 0; bits < 256; ++bits) {
    T x;
    x.bits = static_cast<std::uint8_t>(bits);
    const float value = x;
    const double want = decode_scalar(format, bits);
    EXPECT_TRUE(std::isnan(want) ? std::isnan(value) : static_cast<double>(value) == want && T(value).bits == bits)
        << format.name << " " << bits << " " << value;
  }
}

TEST(ApiStorageTypes, EveryCodeOf8Bits) {
  expect_codes<op::Float8E4M3>(kE4m3fn);
  expect_codes<op::Float8E5M2>(kE5m2);
}

TEST(ApiStorageTypes, EveryPatternSurvives) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    op::Half half;
    op::BFloat16 bfloat;
    half.bits = bfloat.bits = static_cast<std::uint16_t>(bits);
    const float h = half, b = bfloat;
    if (h == h) {
      EXPECT_EQ(op::Half(h).bits, bits);
    } else {
      EXPECT_TRUE(std::isnan(static_cast<float>(op::Half(h))));
    }
    if (b == b) {
      EXPECT_EQ(op::BFloat16(b).bits, bits);
    } else {
      EXPECT_TRUE(std::isnan(static_cast<float>(op::BFloat16(b))));
    }
  }
}

TEST(ApiStorageTypes, RoundToNearestEven) {
  std::vector<float> values = {0.0f,      -0.0f,           65504.0f,    65519.99f, 65520.0f,     -65536.0f,
                               1e38f,     3.3961775e38f,   INFINITY,    -INFINITY, NAN,          0x1p-24f,
                               0x1p-25f,  0x1.000002p-25f, 0x1.8p-24f,  0x1p-14f,  0x1.ffep-15f, 0x1.ffcp-15f,
                               0x1p-133f, 0x1p-134f,       0x1.8p-133f, 1e-45f};
  const Random random(1, "storage types");
  for (std::uint64_t i = 0; i < 200'000; ++i) {  // any bits, and the ties of every exponent
    values.push_back(op::detail::bits_as<float>(static_cast<std::uint32_t>(random.below(i, std::uint64_t{1} << 32))));
    const auto high = static_cast<std::uint32_t>(random.below(i + 1'000'000, 1 << 19)) << 13;
    values.push_back(op::detail::bits_as<float>(high | (i % 2 == 0 ? 0x1000u : 0x8000u)));
  }
  expect_rounding<op::Half>(kFp16, values);
  expect_rounding<op::BFloat16>(kBf16, values);
  // The ties of every exponent of 8 bits, and their neighbours: a tie of one is a number of the other, or is far from
  // it.
  for (std::uint32_t high = 0; high < 1u << 13; ++high)
    for (const std::uint32_t low : {0u, 1u, 0x7ffffu, 0x40000u})
      values.push_back(op::detail::bits_as<float>((high << 19) | low));
  expect_rounding<op::Float8E4M3>(kE4m3fn, values);
  expect_rounding<op::Float8E5M2>(kE5m2, values);
}

}  // namespace
}  // namespace ampcheck
