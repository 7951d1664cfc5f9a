// SPDX-License-Identifier: Apache-2.0
// The formulas: each op's definition against values from an independent source (tests/data/formula_values.json: mpmath,
// 50 digits, scalar loops), and every further form against the definition, forward and gradients.
//
// How near is near enough follows from the balls: a radius is a bound for any correct fp32 evaluation and, but for
// underflow, proportional to the unit roundoff; an evaluation in fp64 keeps within 2^-29 of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "checks/define/op_def.h"
#include "reference/ball/ball.h"
#include "reference/replay/plain_evaluator.h"
#include "reference/replay/plain_loops.h"
#include "src/error.h"
#include "src/op_call.h"
#include "src/random.h"
#include "tests/support/paths.h"

namespace ampcheck::checks {
namespace {

using reference::Expr;
using reference::Recording;

constexpr double kFp64OverFp32 = 0x1p-29;  // ratio of the unit roundoffs
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A recorded form with values for its leaves.
struct Case {
  Attributes attributes;
  reference::CaseInputs inputs;
  std::map<std::string, std::vector<double>> values;  // cotangents too
};

/// Values in fp64 and radii of fp32 compute.
struct Evaluated {
  std::vector<double> value, radius;
};

Attributes defaults(const OpSignature& signature) {
  Attributes attributes;
  for (const AttributeSpec& spec : signature.attributes) attributes.set(spec.name, spec.default_value);
  return attributes;
}

/// Full-mantissa numbers of fp32.
std::vector<double> normals(std::int64_t count, std::uint64_t seed, const std::string& stream) {
  const Random random(seed, stream);
  std::vector<double> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<double>(static_cast<float>(random.normal(static_cast<std::uint64_t>(i)))));
  return out;
}

Case random_case(const OpSignature& signature, const Dims& dims, const Attributes& attributes, std::uint64_t seed) {
  Case made{attributes, {}, {}};
  for (const TensorSpec& spec : signature.inputs) {
    Shape shape;
    for (const std::string& symbol : OpSignature::symbols(spec)) shape[shape.rank++] = dims.at(symbol);
    if (spec.role == Role::index || spec.role == Role::target) {
      const Random random(seed, spec.name);
      auto& integers = made.inputs.integers[spec.name];
      for (std::int64_t i = 0; i < shape.count(); ++i)
        integers.push_back(static_cast<std::int64_t>(
            random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(dims.at(spec.index_dim)))));
      continue;
    }
    made.inputs.shapes[spec.name] = shape;
    auto& values = made.values[spec.name] = normals(shape.count(), seed, spec.name);
    if (spec.domain == Domain::positive)
      for (double& v : values) v = std::fabs(v) + 0.125;
  }
  return made;
}

/// Another type than Fp64Policy, for which PlainEvaluator has its vectorised loops (reference/replay/plain_loops.h):
/// the general ones.
struct GeneralPolicy : reference::Fp64Policy {};

/// Evaluates nodes of a recording. Cotangents that the case has not get normal numbers, the same for every form.
std::vector<Evaluated> evaluate(const Recording& recording, const OpSignature& signature, const Case& in,
                                const std::vector<Expr>& nodes) {
  reference::PlainEvaluator<reference::Fp64Policy> plain(*recording.graph);
  reference::PlainEvaluator<GeneralPolicy> general(*recording.graph);
  reference::Arithmetic arithmetic;
  arithmetic.math = signature.precision.math;
  arithmetic.one_pass = recording.one_pass;
  reference::BallEvaluator balls(*recording.graph, arithmetic, nodes);
  const auto give = [&](Expr leaf, const std::vector<double>& values) {
    plain.set(leaf, values);
    general.set(leaf, values);
    balls.set(leaf, values);
  };
  for (const auto& [name, leaf] : recording.inputs) give(leaf, in.values.at(name));
  for (const auto& [name, leaf] : recording.cotangents)
    give(leaf, in.values.contains(name) ? in.values.at(name) : normals(leaf.shape().count(), 7, name));
  balls.run(nodes);
  for (const Expr node : nodes) {
    const std::vector<double>&got = plain.value(node), &want = general.value(node);
    EXPECT_TRUE(got.size() == want.size() &&
                (got.empty() || std::memcmp(got.data(), want.data(), got.size() * sizeof(double)) == 0))
        << signature.name << ": the vectorised loops have other bits";
  }
  std::vector<Evaluated> out;
  for (const Expr& node : nodes) {
    const auto& ball = balls.result(node);
    const auto n = static_cast<std::size_t>(node.shape().count());
    Evaluated e{plain.value(node), std::vector<double>(n, 0.0)};
    if (ball.r) e.radius.assign(ball.r.get(), ball.r.get() + n);
    out.push_back(std::move(e));
  }
  return out;
}

std::vector<Evaluated> forward(const OpDef& op, const reference::Form& form, const Case& in) {
  const Recording recording = record(op.signature, form, in.attributes, in.inputs);
  return evaluate(recording, op.signature, in, recording.output_nodes());
}

std::vector<Evaluated> gradients(const OpDef& op, const reference::Form& form, const Case& in) {
  const Recording recording = record(op.signature, form, in.attributes, in.inputs);
  return evaluate(recording, op.signature, in, recording.gradient_nodes());
}

/// Whether element i is no farther from `want` than its rounding in fp64 allows, or no number in either: outside the
/// domain, as of a root of a negative number.
bool agrees(const Evaluated& got, const Evaluated& want, std::size_t i) {
  if (std::isnan(got.value[i]) && std::isnan(want.value[i])) return true;
  const double allowed = (got.radius[i] + want.radius[i]) * kFp64OverFp32;
  return allowed < kInf && std::fabs(got.value[i] - want.value[i]) <= allowed;
}

/// Number of elements of `got` that do not agree with `want`.
std::size_t disagreements(const Evaluated& got, const Evaluated& want) {
  std::size_t count = got.value.size() == want.value.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(got.value.size(), want.value.size()); ++i) count += agrees(got, want, i) ? 0 : 1;
  return count;
}

std::string at(const Evaluated& got, const Evaluated& want) {
  std::string text;
  for (std::size_t i = 0; i < std::min(got.value.size(), want.value.size()); ++i) {
    if (agrees(got, want, i)) continue;
    text += " [" + std::to_string(i) + "] got " + number_text(got.value[i]) + ", want " + number_text(want.value[i]) +
            ", radius " + number_text(got.radius[i] + want.radius[i]);
    if (text.size() > 300) break;
  }
  return text;
}

const nlohmann::json& source_cases() {
  static const nlohmann::json kCases = [] {
    std::ifstream file(tests::in_data_root("/tests/data/formula_values.json"));
    return nlohmann::json::parse(file).at("cases");
  }();
  return kCases;
}

/// A case of the independent source, and its values with half an ulp of their own for reading decimals.
std::pair<Case, Evaluated> read_case(const OpSignature& signature, const nlohmann::json& entry) {
  Case in{defaults(signature), {}, {}};
  for (const auto& [name, value] : entry.at("attributes").items()) in.attributes.set(name, value.get<double>());
  for (const auto& [name, value] : entry.at("integers").items())
    in.inputs.integers[name] = value.get<std::vector<std::int64_t>>();
  for (const auto& [name, value] : entry.at("inputs").items()) {
    const auto extents = value.at("shape").get<std::vector<std::int64_t>>();
    in.inputs.shapes[name] = Shape(std::span<const std::int64_t>(extents));
    in.values[name] = value.at("values").get<std::vector<double>>();
  }
  Evaluated want;
  for (const auto& text : entry.at("values")) {
    want.value.push_back(std::stod(text.get<std::string>()));
    const bool exact = static_cast<double>(static_cast<float>(want.value.back())) == want.value.back();
    want.radius.push_back(exact ? 0.0 : std::fabs(want.value.back()) * 0x1p-24);
  }
  return {std::move(in), std::move(want)};
}

TEST(Formulas, MatchAnIndependentSource) {
  std::map<std::string, std::size_t> compared;
  for (const auto& entry : source_cases()) {
    const OpDef* op = find_op(entry.at("op").get<std::string>());
    if (op == nullptr) continue;
    const auto [in, want] = read_case(op->signature, entry);
    for (const reference::Form& form : op->forms) {
      const Recording recording = record(op->signature, form, in.attributes, in.inputs);
      const Expr output = recording.output(entry.at("output").get<std::string>());
      const Evaluated got = evaluate(recording, op->signature, in, {output}).front();
      EXPECT_EQ(disagreements(got, want), 0u) << op->signature.name << ", form '" << form.name << "':" << at(got, want);
    }
    compared[op->signature.name] += want.value.size();
  }
  for (const auto& [op, count] : compared) EXPECT_GE(count, 5u) << op;  // of which op there are none: wanting_test.cpp
  EXPECT_GE(compared.size(), 20u);
}

TEST(Formulas, AWrongConstantIsSeen) {
  const OpDef* op = find_op("gelu");
  ASSERT_NE(op, nullptr);
  const reference::Form wrong{"1/sqrt(2) to nine digits", [](reference::FormulaCall& call) {
                                const Expr x = call["x"];
                                call.output("y", 0.5 * x * (1.0 + erf(x * 0.707106781)));
                              }};
  std::size_t seen = 0;
  for (const auto& entry : source_cases())
    if (entry.at("op") == "gelu") {
      const auto [in, want] = read_case(op->signature, entry);
      seen += disagreements(forward(*op, wrong, in).front(), want);
    }
  EXPECT_GT(seen, 0u);
}

/// Every attribute at its default, and each other value alone.
std::vector<Attributes> attribute_choices(const OpSignature& signature) {
  std::vector<Attributes> out = {defaults(signature)};
  for (const AttributeSpec& spec : signature.attributes)
    for (const AttributeValue& value : spec.other_values) {
      out.push_back(defaults(signature));
      out.back().set(spec.name, value);
    }
  return out;
}

TEST(Formulas, EveryFormEqualsTheFirst) {
  for (const OpDef& op : all_ops()) {
    Dims dims;
    for (const DimSpec& dim : op.signature.dims) dims[dim.symbol] = dim.standard[0];
    std::size_t cases = 0;
    for (const Attributes& attributes : attribute_choices(op.signature)) {
      if (op.signature.valid && !op.signature.valid(dims, attributes)) continue;
      for (std::uint64_t seed = 1; seed <= 3; ++seed, ++cases) {
        const Case in = random_case(op.signature, dims, attributes, seed);
        const std::vector<Evaluated> y = forward(op, op.forms.front(), in), dx = gradients(op, op.forms.front(), in);
        for (const Evaluated& output : y)
          EXPECT_FALSE(std::ranges::all_of(output.value, [](double v) { return std::isnan(v); })) << op.signature.name;
        for (std::size_t k = 1; k < op.forms.size(); ++k) {
          const reference::Form& form = op.forms[k];
          const std::vector<Evaluated> y2 = forward(op, form, in), dx2 = gradients(op, form, in);
          ASSERT_EQ(y2.size(), y.size());
          ASSERT_EQ(dx2.size(), dx.size());
          for (std::size_t i = 0; i < y.size(); ++i)
            EXPECT_EQ(disagreements(y2[i], y[i]), 0u)
                << op.signature.name << ", form '" << form.name << "', output " << i << at(y2[i], y[i]);
          for (std::size_t i = 0; i < dx.size(); ++i)
            EXPECT_EQ(disagreements(dx2[i], dx[i]), 0u)
                << op.signature.name << ", form '" << form.name << "', gradient " << i << at(dx2[i], dx[i]);
        }
      }
    }
    EXPECT_GE(cases, 3u) << op.signature.name << ": no valid case at the first standard shape";
  }
}

TEST(Formulas, AWrongAdjointIsSeen) {
  const OpDef* op = find_op("layer_norm");
  ASSERT_NE(op, nullptr);
  const reference::Form wrong{
      "mean(g) forgotten", [](reference::FormulaCall& call) {
        const Expr x = call["x"], centred = x - mean(x, -1);
        const Expr inv_std = rsqrt(mean(square(centred), -1) + call.attribute("eps")), n = centred * inv_std;
        call.output(
            "y", own_adjoint(n, {x},
                             [n, inv_std](Expr g) { return std::vector<Expr>{inv_std * (g - n * mean(g * n, -1))}; }) *
                         call["weight"] +
                     call["bias"]);
      }};
  const Case in = random_case(op->signature, {{"N", 5}, {"D", 7}}, defaults(op->signature), 1);
  EXPECT_EQ(disagreements(forward(*op, wrong, in)[0], forward(*op, op->forms[0], in)[0]), 0u);
  EXPECT_GT(disagreements(gradients(*op, wrong, in)[0], gradients(*op, op->forms[0], in)[0]), 0u);
}

TEST(Formulas, StoredIntermediatesAreTheDeclaredOnes) {
  for (const OpDef& op : all_ops()) {
    Dims dims;
    for (const DimSpec& dim : op.signature.dims) dims[dim.symbol] = dim.standard[0];
    const Case in = random_case(op.signature, dims, defaults(op.signature), 1);
    for (const reference::Form& form : op.forms) {
      const Recording recording = record(op.signature, form, in.attributes, in.inputs);
      EXPECT_EQ(recording.stored.size(), op.signature.saved.size())
          << op.signature.name << ", form '" << form.name << "'";
      for (const OutputSpec& saved : op.signature.saved)
        EXPECT_TRUE(recording.stored.contains(saved.name))
            << op.signature.name << ", form '" << form.name << "', " << saved.name;
    }
  }
}

// ---- conventions and what stays out ---------------------------------------------------------------------------------

TEST(Formulas, ReluHasSlopeZeroAtZeroAndKeepsNan) {
  const OpDef* op = find_op("relu");
  ASSERT_NE(op, nullptr);
  Case in{{}, {{{"x", Shape{1, 4}}}, {}}, {{"x", {0.0, -0.0, 1.0, kNan}}, {"dy", {3.0, 3.0, 3.0, 3.0}}}};
  const Evaluated y = forward(*op, op->forms[0], in)[0], dx = gradients(*op, op->forms[0], in)[0];
  EXPECT_TRUE(std::isnan(y.value[3]));
  EXPECT_EQ((std::vector<double>{dx.value[0], dx.value[1], dx.value[2]}), (std::vector<double>{0.0, 0.0, 3.0}));
}

TEST(Formulas, MaxPoolGivesTheGradientToTheFirstAmongEquals) {
  const OpDef* op = find_op("max_pool2d");
  ASSERT_NE(op, nullptr);
  Case in{
      defaults(op->signature), {{{"x", Shape{1, 1, 2, 4}}}, {}}, {{"x", {5, 5, -7, -7, 5, 5, -7, -7}}, {"dy", {1, 2}}}};
  EXPECT_EQ(gradients(*op, op->forms[0], in)[0].value, (std::vector<double>{1, 0, 2, 0, 0, 0, 0, 0}));
  // With padding 1 each window has one cell inside, and padding never wins, however negative the image is.
  in.attributes.set("padding", 1.0);
  in.inputs.shapes["x"] = Shape{1, 1, 2, 2};
  in.values = {{"x", {-1e30, -2, -kInf, -4}}, {"dy", {1, 2, 3, 4}}};
  EXPECT_EQ(forward(*op, op->forms[0], in)[0].value, (std::vector<double>{-1e30, -2, -kInf, -4}));
  EXPECT_EQ(gradients(*op, op->forms[0], in)[0].value, (std::vector<double>{1, 2, 3, 4}));
}

TEST(Formulas, IgnoredRowsOfCrossEntropyGiveNothing) {
  const OpDef* op = find_op("cross_entropy");
  ASSERT_NE(op, nullptr);
  for (const Attributes& attributes : attribute_choices(op->signature)) {
    Case in{attributes, {{{"x", Shape{2, 3}}}, {}}, {{"x", {kNan, kInf, 1, 0.5, 0.25, 2}}}};
    in.inputs.integers["target"] = {static_cast<std::int64_t>(attributes.number("ignore_index")), 2};
    for (const reference::Form& form : op->forms) {
      const Evaluated loss = forward(*op, form, in)[0], dx = gradients(*op, form, in)[0];
      EXPECT_EQ(loss.value[0], 0.0) << form.name;
      EXPECT_EQ(loss.radius[0], 0.0) << form.name;
      EXPECT_TRUE(std::isfinite(loss.value[1])) << form.name;
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(dx.value[i], 0.0) << form.name << " " << i;
    }
  }
}

TEST(Formulas, CrossEntropyRefusesATargetOutOfRange) {
  const OpDef* op = find_op("cross_entropy");
  ASSERT_NE(op, nullptr);
  Case in{defaults(op->signature), {{{"x", Shape{1, 3}}}, {{"target", {3}}}}, {{"x", {1, 2, 3}}}};
  EXPECT_THROW(forward(*op, op->forms[0], in), Error);
}

TEST(Formulas, ThePaddingRowOfAnEmbeddingHasNoGradient) {
  const OpDef* op = find_op("embedding");
  ASSERT_NE(op, nullptr);
  Case in{defaults(op->signature),
          {{{"weight", Shape{3, 2}}}, {{"index", {1, 2, 1}}}},
          {{"weight", {1, 2, 3, 4, 5, 6}}, {"dy", {1, 2, 4, 8, 16, 32}}}};
  EXPECT_EQ(gradients(*op, op->forms[0], in)[0].value, (std::vector<double>{0, 0, 17, 34, 4, 8}));
  in.attributes.set("padding_idx", 1.0);
  EXPECT_EQ(forward(*op, op->forms[0], in)[0].value, (std::vector<double>{3, 4, 5, 6, 3, 4}));
  EXPECT_EQ(gradients(*op, op->forms[0], in)[0].value, (std::vector<double>{0, 0, 0, 0, 4, 8}));
}

TEST(Formulas, HiddenKeysCanStayOutOfAttention) {
  const OpDef* op = find_op("attention");
  ASSERT_NE(op, nullptr);
  const Shape shape{1, 1, 3, 1};
  Case in{defaults(op->signature),
          {{{"q", shape}, {"k", shape}, {"v", shape}}, {}},
          {{"q", {1, 2, 3}}, {"k", {0.5, 1, kNan}}, {"v", {1, 2, kInf}}, {"do", {1, 1, 0}}}};
  const Evaluated o = forward(*op, op->forms.back(), in)[0], multiplied = forward(*op, op->forms.front(), in)[0];
  EXPECT_TRUE(std::isfinite(o.value[0]) && std::isfinite(o.value[1]));
  EXPECT_TRUE(std::isnan(o.value[2]));
  EXPECT_TRUE(std::isnan(multiplied.value[0])) << "0 inf in the product form";
}

TEST(Formulas, CellsOutsideTheImageCanStayOutOfAConvolution) {
  const OpDef* op = find_op("conv2d");
  ASSERT_NE(op, nullptr);
  Case in{defaults(op->signature),
          {{{"x", Shape{1, 1, 1, 2}}, {"weight", Shape{1, 1, 1, 2}}}, {}},
          {{"x", {1, 2}}, {"weight", {kInf, 1}}}};
  in.attributes.set("padding", 1.0);
  // One row of padding above and below; along the row the windows are (0 1) (1 2) (2 0).
  const Evaluated inside = forward(*op, op->forms.back(), in)[0], all = forward(*op, op->forms.front(), in)[0];
  EXPECT_EQ(inside.value, (std::vector<double>{0, 0, 0, 1, kInf, kInf, 0, 0, 0}));
  EXPECT_TRUE(std::isnan(all.value[3]));
}

/// Beyond one tile, one panel and one depth, whole and with edges, whatever the processor's vectors.
TEST(Formulas, ProductsOfMatricesHaveTheBitsOfTheirSumsInOrder) {
  for (const auto& [n, k, m] :
       {std::array<std::int64_t, 3>{13, 300, 71}, {6, 256, 32}, {1, 513, 33}, {7, 1, 8}, {64, 0, 5}})
    for (const bool turned_a : {false, true})
      for (const bool turned_b : {false, true}) {
        const std::vector<double> a = normals(n * k, 1, "a"), b = normals(k * m, 2, "b");
        std::vector<double> got(static_cast<std::size_t>(n * m), 7.0);
        reference::plain_matmul({n, k, m, turned_a, turned_b}, a.data(), b.data(), got.data());
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < m; ++j) {
            double sum = 0;
            for (std::int64_t p = 0; p < k; ++p) {
              const double product = a[static_cast<std::size_t>(turned_a ? p * n + i : i * k + p)] *
                                     b[static_cast<std::size_t>(turned_b ? j * k + p : p * m + j)];
              sum += product;
            }
            ASSERT_EQ(got[static_cast<std::size_t>(i * m + j)], sum)
                << n << " x " << k << " x " << m << (turned_a ? ", a turned" : "") << (turned_b ? ", b turned" : "")
                << " at " << i << ", " << j;
          }
      }
}

}  // namespace
}  // namespace ampcheck::checks
