// SPDX-License-Identifier: Apache-2.0
// Formulas as text: the same graphs as the built-in formulas in C++, certificates, and what a wrong text is told.
#include "reference/text/formula_text.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <limits>
#include <sstream>

#include "checks/define/op_def.h"
#include "reference/certify/certify.h"
#include "reference/replay/plain_evaluator.h"
#include "reference/text/formula_functions.h"
#include "src/op_call.h"
#include "src/random.h"
#include "tests/support/small_formula.h"

namespace ampcheck::reference {
namespace {

/// Whether two values are the same expression of the same leaves.
bool same(Expr a, Expr b, std::map<std::pair<int, int>, bool>& seen) {
  const auto known = seen.find({a.id, b.id});
  if (known != seen.end()) return known->second;
  const Node &x = a.graph->node(a.id), &y = b.graph->node(b.id);
  bool equal = x.primitive == y.primitive && x.shape == y.shape && x.value == y.value && x.axis == y.axis &&
               x.name == y.name && x.transpose_a == y.transpose_a && x.transpose_b == y.transpose_b &&
               x.reversed == y.reversed && x.args.size() == y.args.size() && (x.map == nullptr) == (y.map == nullptr) &&
               (x.map == nullptr || *x.map == *y.map);
  const auto args_agree = [&](bool swapped) {
    for (std::size_t i = 0; i < x.args.size(); ++i)
      if (!same(a.graph->at(x.args[i]), b.graph->at(y.args[swapped ? x.args.size() - 1 - i : i]), seen)) return false;
    return true;
  };
  // C++ may record the operands of a sum in either order, and so the parts of a gradient.
  const bool commutes = x.primitive == Primitive::add || x.primitive == Primitive::mul;
  equal = equal && (args_agree(false) || (commutes && args_agree(true)));
  return seen[{a.id, b.id}] = equal;
}

struct Twin {
  const char* op;
  const char* form;  ///< of the op in C++
  const char* text;
};

constexpr Twin kTwins[] = {
    {"rms_norm", "derived",
     "inv = stored(inv_rms, rsqrt(mean(x^2, -1) + eps)); n = x * inv; y = given(weight, n * weight, n)"},
    {"rms_norm", "inv_rms (g - n mean(g n))",
     "inv = stored(inv_rms, rsqrt(mean(square(x), -1) + eps))\n"
     "n = x * inv  with dx = inv * (dn - n * mean(dn * n, -1))   # Zhang & Sennrich 2019\n"
     "y = given(weight, n * weight, n)"},
    {"layer_norm", "two passes",
     "c = x - stored(mean, mean(x, -1)); n = c * stored(inv_std, rsqrt(mean(c^2, -1) + eps));"
     "s = given(weight, n * weight, n); y = given(bias, s + bias, s)"},
    {"layer_norm", "inv_std (g - mean g - n mean(g n))",
     "c = x - stored(mean, mean(x, -1))\n r = stored(inv_std, rsqrt(mean(c**2, -1) + eps))\n"
     "n = c * r\n   with dx = r * (dn - mean(dn, -1) - n * mean(dn * n, -1))\n"
     "s = given(weight, n * weight, n)\n y = given(bias, s + bias, s)"},
    {"softmax", "e/l", "e = exp(x - stop_gradient(max(x, -1))); y = e / sum(e, -1)"},
    {"softmax", "y (g - sum g y)",
     "e = exp(x - stop_gradient(max(x, -1))); y = e / sum(e, -1) with dx = y * (dy - sum(dy * y, -1))"},
    {"pow", "x^p", "y = pow(x, exponent)"},
    {"cumsum", "running sum", "y = cumsum(x, -1)"},
    {"gelu", "erf", "y = 0.5 * x * (1 + erf(x * (1 / sqrt(2))))"},
    {"gelu", "erfc", "y = 0.5 * x * erfc(-(x * (1/sqrt(2))))"},
    {"swiglu", "x s", "y = gate * sigmoid(gate) * up"},
    {"swiglu", "x / (1 + exp(-x))",
     "a = gate / (1 + exp(-gate)) with dgate = da * (sigmoid(gate) + gate * sigmoid(gate) * (1 - sigmoid(gate)))\ny = "
     "a * up"},
};

const Form& form_of(const checks::OpDef& op, const std::string& name) {
  for (const Form& form : op.forms)
    if (form.name == name) return form;
  throw Error("[test] no form " + name);
}

/// Values of a recording's nodes in fp64, leaves being normal numbers; what is no number (a root of a negative one) as
/// one that no value is, so that it equals itself.
std::vector<std::vector<double>> values(const Recording& recording, const CertificationCase& data,
                                        const std::vector<Expr>& nodes) {
  PlainEvaluator<Fp64Policy> plain(*recording.graph);
  for (const auto& [name, leaf] : recording.inputs) plain.set(leaf, data.values.at(name));
  for (const auto& [name, leaf] : recording.cotangents)
    plain.set(leaf, certification_weights(name, leaf.shape().count(), 1));
  std::vector<std::vector<double>> out;
  for (const Expr& node : nodes) {
    out.push_back(plain.value(node));
    for (double& v : out.back()) v = std::isnan(v) ? std::numeric_limits<double>::infinity() : v;
  }
  return out;
}

TEST(FormulaText, RecordsTheGraphOfTheFormulaInCpp) {
  int compared = 0;
  for (const Twin& twin : kTwins) {
    const checks::OpDef& op = *checks::find_op(twin.op);
    const Form text = form_from_text(op.signature, "text", twin.text);
    for (const FormulaVariant& variant : formula_variants(op.signature)) {
      const Attributes& attributes = variant.attributes;
      const CertificationCase data = certification_case(op.signature, variant, 1);
      const Recording want = record(op.signature, form_of(op, twin.form), attributes, data.inputs);
      const Recording got = record(op.signature, text, attributes, data.inputs);
      std::map<std::pair<int, int>, bool> seen;
      for (std::size_t i = 0; i < want.outputs.size(); ++i, ++compared)
        EXPECT_TRUE(same(got.outputs[i].second, want.outputs[i].second, seen)) << twin.op << ": " << twin.text;
      ASSERT_EQ(got.gradients.size(), want.gradients.size());
      for (std::size_t i = 0; i < want.gradients.size(); ++i, ++compared)
        EXPECT_TRUE(same(got.gradients[i].second, want.gradients[i].second, seen))
            << twin.op << ", " << want.gradients[i].first << ": " << twin.text;
      EXPECT_EQ(values(got, data, got.output_nodes()), values(want, data, want.output_nodes()));
      EXPECT_EQ(values(got, data, got.gradient_nodes()), values(want, data, want.gradient_nodes())) << twin.text;
      EXPECT_EQ(got.stored.size(), op.signature.saved.size());
    }
  }
  EXPECT_GE(compared, 40);
}

TEST(FormulaText, HasACertificateAsAnyFormula) {
  for (const Twin& twin : kTwins) {
    const checks::OpDef& op = *checks::find_op(twin.op);
    const std::vector<Form> forms = {op.forms.front(), form_from_text(op.signature, "text", twin.text)};
    const FormulaCertificate certificate = certify(op.signature, forms, formula_variants(op.signature), 3, 1);
    EXPECT_GE(certificate.digits, kWantedDigits) << twin.text;
    EXPECT_GT(certificate.points.size(), 0u);
  }
}

/// A signature of inputs with their dims, for outputs "y" or those given.
OpSignature signature_of(const std::vector<std::pair<const char*, const char*>>& inputs,
                         const std::vector<const char*>& outputs = {"y"}) {
  OpSignature out;
  out.name = "text";
  for (const auto& [name, dims] : inputs) out.inputs.push_back({.name = name, .dims = dims});
  for (const char* name : outputs) out.outputs.push_back({.name = name});
  for (const char* symbol : {"A", "B", "C"}) out.dims.push_back({symbol, {2, 3, 4}});
  return out;
}

/// A formula at extents A = 2, B = 3, C = 4, x of each input 1, 2, 3, ...
class Evaluated {
 public:
  Evaluated(const OpSignature& signature, const std::string& text,
            const std::map<std::string, std::vector<std::int64_t>>& integers = {})
      : recording_(made(signature, text, integers)), plain_(*recording_.graph) {
    for (const auto& [name, leaf] : recording_.inputs) {
      std::vector<double> values;
      for (std::int64_t i = 0; i < leaf.shape().count(); ++i) values.push_back(static_cast<double>(i + 1));
      plain_.set(leaf, values);
    }
  }
  std::vector<double> operator[](std::size_t output) { return plain_.value(recording_.outputs.at(output).second); }
  Shape shape(std::size_t output = 0) const { return recording_.outputs.at(output).second.shape(); }
  /// How many elements all maps list.
  std::size_t listed() const {
    std::size_t out = 0;
    for (const Node& node : recording_.graph->nodes()) out += node.map ? node.map->size() : 0;
    return out;
  }

 private:
  static Recording made(const OpSignature& signature, const std::string& text,
                        const std::map<std::string, std::vector<std::int64_t>>& integers) {
    CaseInputs inputs;
    const Dims dims = {{"A", 2}, {"B", 3}, {"C", 4}};
    for (const TensorSpec& spec : signature.inputs) {
      Shape shape;
      for (const std::string& symbol : OpSignature::symbols(spec)) shape[shape.rank++] = dims.at(symbol);
      if (!integers.contains(spec.name))
        inputs.shapes[spec.name] = shape;
      else {
        inputs.integers[spec.name] = integers.at(spec.name);
        inputs.integer_shapes[spec.name] = shape;
      }
    }
    return record(signature, form_from_text(signature, "text", text), default_call(signature, Dtype::fp32).attributes,
                  inputs);
  }
  Recording recording_;
  PlainEvaluator<Fp64Policy> plain_;
};

using Values = std::vector<double>;

TEST(FormulaText, OperatorsBindAsInPython) {
  const OpSignature one = signature_of({{"x", ""}});  // x = 1
  const auto value = [&](const std::string& text) { return Evaluated(one, "y = " + text)[0].front(); };
  EXPECT_EQ(value("x + 2 * 3"), 7);
  EXPECT_EQ(value("(x + 2) * 3"), 9);
  EXPECT_EQ(value("10 - 4 - x"), 5);
  EXPECT_EQ(value("8 / 2 / 4 * x"), 1);
  EXPECT_EQ(value("-(x + 2)^2"), -9);
  EXPECT_EQ(value("2 * -x"), -2);
  EXPECT_EQ(value("x + 1 < 3"), 1);
  EXPECT_EQ(value("x >= 1"), 1);
  EXPECT_EQ(value("x > 1"), 0);
  EXPECT_EQ(value("x == 1"), 1);
  EXPECT_EQ(value("minimum(x, 0.25) + maximum(x, 3)"), 3.25);
  EXPECT_EQ(value("where(x < 0, 5, 7)"), 7);
  EXPECT_EQ(value("1.5e2 * x + .5"), 150.5);
  EXPECT_EQ(value("(x +\n 1) # comment; y = 3\n + 1"), 3);
}

TEST(FormulaText, ShapesFollowNumPy) {
  const OpSignature xs = signature_of({{"x", "A B"}, {"w", "B"}, {"z", "A B C"}});
  EXPECT_EQ(Evaluated(xs, "y = x + w + 0 * sum(z)")[0], (Values{2, 4, 6, 5, 7, 9}));
  EXPECT_EQ(Evaluated(xs, "y = sum(x, -1) + 0 * sum(w) + 0 * sum(z)")[0], (Values{6, 15}));
  EXPECT_EQ(Evaluated(xs, "y = mean(x, 0) + 0 * sum(w) + 0 * sum(z)")[0], (Values{2.5, 3.5, 4.5}));
}

TEST(FormulaText, ManyPartsListTheirElementsFewTimes) {
  const OpSignature xs = signature_of({{"x", "A B"}});
  const auto listed = [&](const std::string& part) {
    std::string text = "y = concat(" + part;
    for (int i = 1; i < 200; ++i) text += ", " + part;
    const Evaluated joined(xs, text + ", axis=0)");
    return joined.listed();
  };
  EXPECT_LE(listed("slice(x, 0, 0, 1)"), 200 * 3 * 4) << "one take of all parts";
  EXPECT_LE(listed("-slice(x, 0, 0, 1)"), 200 * 3 * 40) << "by halves: each part in all was 200 times as many";
}

TEST(FormulaText, MovesElements) {
  const OpSignature xs = signature_of({{"x", "A B"}});
  EXPECT_EQ(Evaluated(xs, "y = transpose(x)")[0], (Values{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(Evaluated(xs, "y = transpose(x, 1, 0)")[0], (Values{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(Evaluated(xs, "y = reshape(x, B, -1)").shape(), (Shape{3, 2}));
  EXPECT_EQ(Evaluated(xs, "y = slice(x, -1, 1, size(x, 1))")[0], (Values{2, 3, 5, 6}));
  EXPECT_EQ(Evaluated(xs, "y = slice(x, -1, -1, B)")[0], (Values{3, 6}));
  EXPECT_EQ(Evaluated(xs, "h = B - 1; k = h / 2; y = slice(x, -1, k, h)")[0], (Values{2, 5}))
      << "extents may have names";
  EXPECT_EQ(Evaluated(xs, "h = B - 1; y = slice(x, -1, 0, h) / h")[0], (Values{0.5, 1, 2, 2.5}))
      << "and be numbers too";
  EXPECT_EQ(Evaluated(xs, "y = concat(-slice(x, -1, 1, 3), slice(x, -1, 0, 1))")[0], (Values{-2, -3, 1, -5, -6, 4}));
  EXPECT_EQ(Evaluated(xs, "y = concat(slice(pad(x, 1, 1, 0), 1, 0, 3), transpose(reshape(x, B, A)), -x, axis=0)")[0],
            (Values{0, 1, 2, 0, 4, 5, 1, 3, 5, 2, 4, 6, -1, -2, -3, -4, -5, -6}))
      << "parts of one tensor are read from it, others beside them";
  EXPECT_EQ(Evaluated(xs, "y = squeeze(sum(x, 1), 1)").shape(), (Shape{2}));
  EXPECT_EQ(Evaluated(xs, "y = x @ transpose(x)")[0], (Values{14, 32, 32, 77}));
  EXPECT_EQ(Evaluated(xs, "y = matmul(x, x, transpose_b=1)")[0], (Values{14, 32, 32, 77}));
  EXPECT_EQ(Evaluated(xs, "y = where(arange(B) < 1, x, 0)")[0], (Values{1, 0, 0, 4, 0, 0}));
  EXPECT_EQ(Evaluated(xs, "y = sum(x, 0, 1)")[0], (Values{21}));
  EXPECT_EQ(Evaluated(xs, "y = min(x, 1)")[0], (Values{1, 4}));
}

TEST(FormulaText, IndicesGatherAndScatter) {
  OpSignature table = signature_of({{"table", "B A"}, {"index", "C"}});
  table.inputs[1].role = Role::index;
  table.inputs[1].type = TypeRule::i64;
  const std::map<std::string, std::vector<std::int64_t>> at = {{"index", {2, 0, -1, 2}}};
  EXPECT_EQ(Evaluated(table, "y = gather(table, index)", at)[0], (Values{5, 6, 1, 2, 0, 0, 5, 6}));
  EXPECT_EQ(Evaluated(table, "y = scatter_add(gather(table, index), index, B)", at)[0], (Values{1, 2, 0, 0, 10, 12}));
  EXPECT_EQ(Evaluated(table, "y = one_hot(index, B) + 0 * sum(table)", at).shape(), (Shape{4, 3}));
  EXPECT_EQ(Evaluated(table, "y = sum(one_hot(index, B), 0) + 0 * sum(table)", at)[0], (Values{1, 0, 2}));
  EXPECT_EQ(Evaluated(table, "y = index * sum(table)", {{"index", {1, 0, 0, 1}}})[0], (Values{21, 0, 0, 21}));
}

TEST(FormulaText, EveryFunctionOfTheListCanBeUsed) {
  OpSignature op = signature_of({{"x", "A B"}, {"w", "B"}, {"index", "C"}, {"image", "A A B B"}});
  op.inputs[1].optional = true;
  op.inputs[2].role = Role::index;
  op.inputs[2].type = TypeRule::i64;
  op.saved = {{"name", TypeRule::fp32}};
  const std::map<std::string, const char*> kArguments = {{"pow", "x, 3"},
                                                         {"cumsum", "x, 1, reversed=1"},
                                                         {"maximum", "x, w"},
                                                         {"minimum", "x, w"},
                                                         {"where", "x < 2, x, w"},
                                                         {"max", "x, 0"},
                                                         {"min", "x, 0"},
                                                         {"first_max", "x, 1"},
                                                         {"matmul", "x, x, transpose_b=1"},
                                                         {"gather", "x, index"},
                                                         {"scatter_add", "gather(x, index), index, A"},
                                                         {"one_hot", "index, 2"},
                                                         {"arange", "3"},
                                                         {"reshape", "x, B, A"},
                                                         {"squeeze", "sum(x, 1), 1"},
                                                         {"slice", "x, 1, 0, 2"},
                                                         {"concat", "x, x, axis=0"},
                                                         {"pad", "x, 1, 1, 2"},
                                                         {"repeat", "x, 0, 3"},
                                                         {"unfold", "image, 2, 2, stride=1, padding=1"},
                                                         {"stored", "name, x"},
                                                         {"given", "w, w, x"},
                                                         {"size", "x, 1"},
                                                         {"floor", "7 / 2"}};
  for (const FormulaFunction& function : formula_functions()) {
    const auto found = kArguments.find(function.name);
    const std::string name = function.name, stored = name == "stored" ? "" : "kept = stored(name, x); ";
    const std::string call = name + "(" + (found == kArguments.end() ? "x" : found->second) + ")";
    Evaluated value(op, stored + "y = " + call + " + 0", {{"index", {0, 1, 1, 0}}});
    for (const double v : value[0]) EXPECT_TRUE(std::isfinite(v)) << call;
  }
}

TEST(FormulaText, ARoundedValueIsTheValueAndNoTensor) {
  const OpSignature op = signature_of({{"x", "A B"}});
  EXPECT_EQ(Evaluated(op, "y = rounded(x + 1) * 2")[0], Evaluated(op, "y = (x + 1) * 2")[0]);
  EXPECT_EQ(Evaluated(op, "y = rounded(x + rounded(x))")[0], Evaluated(op, "y = 2 * x")[0]) << "as often as one likes";
}

TEST(FormulaText, PadPutsZerosAndRepeatTakesEachElementAgain) {
  const OpSignature op = signature_of({{"x", "A B"}});  // [[1, 2, 3], ...] in rows of B
  const Values plain = Evaluated(op, "y = x")[0];
  const Shape shape = Evaluated(op, "y = x").shape();
  Evaluated padded(op, "y = pad(x, 1, 1, 2)");
  EXPECT_EQ(padded.shape(), (Shape{shape[0], shape[1] + 3}));
  Evaluated back(op, "y = slice(pad(x, 1, 1, 2), 1, 1, 1 + B) + 0 * sum(pad(x, 0, 2, 0), 0)");
  EXPECT_EQ(back[0], plain);
  Evaluated sums(op, "y = sum(pad(x, 0, 2, 1)) - sum(x)");
  EXPECT_EQ(sums[0], Values{0});
  Evaluated rows(op, "y = repeat(x, 1, 2)");
  EXPECT_EQ(rows.shape(), (Shape{shape[0], 2 * shape[1]}));
  EXPECT_EQ(rows[0][0], plain[0]);
  EXPECT_EQ(rows[0][1], plain[0]);
  EXPECT_EQ(rows[0][2], plain[1]);
  const Values columns = Evaluated(op, "y = repeat(x, 0, 2)")[0];
  EXPECT_EQ(Values(columns.begin(), columns.begin() + shape[1]),
            Values(columns.begin() + shape[1], columns.begin() + 2 * shape[1]));
}

TEST(FormulaText, MatmulBroadcastsItsBatchAsNumPyDoes) {
  const OpSignature op = signature_of({{"x", "A B"}});
  const Values square = Evaluated(op, "y = x @ transpose(x)")[0];
  const Values one_matrix = Evaluated(op, "y = reshape(x, 1, A, B) @ transpose(x)")[0];
  EXPECT_EQ(one_matrix, square);
  Evaluated both(op, "y = reshape(concat(x, x, axis=0), 2, A, B) @ reshape(transpose(x), 1, B, A)");
  const Values twice = both[0];
  ASSERT_EQ(twice.size(), 2 * square.size());
  EXPECT_EQ(Values(twice.begin(), twice.begin() + static_cast<std::ptrdiff_t>(square.size())), square);
  Evaluated left(op, "y = x @ reshape(concat(x, x, axis=0), 2, B, A)");
  EXPECT_EQ(left.shape().rank, 3);
}

TEST(FormulaText, SeveralOutputsComeInTheOrderOfTheSignature) {
  Evaluated both(signature_of({{"x", "A"}}, {"low", "high"}), "high = x + 1; t = high - 2; low = t");
  EXPECT_EQ(both[0], (Values{0, 1}));
  EXPECT_EQ(both[1], (Values{2, 3}));
}

TEST(FormulaText, DecimalsAndFractionsAreExactInHundredDigits) {
  const OpSignature one = signature_of({{"x", ""}});
  const auto constants = [&](const std::string& text) {
    CaseInputs inputs;
    inputs.shapes["x"] = Shape{};
    const Recording recording = record(one, form_from_text(one, "text", text), {}, inputs);
    std::vector<std::string> names;
    for (const Node& node : recording.graph->nodes())
      if (node.primitive == Primitive::constant)
        names.push_back(node.name.empty() ? number_text(node.value) : node.name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(constants("y = 0.1 * x"), Names({"1/10"}));
  EXPECT_EQ(constants("y = 0.044715 * x"), Names({"44715/1000000"}));
  EXPECT_EQ(constants("y = 1e-5 * x"), Names({"1/100000"}));
  EXPECT_EQ(constants("y = 0.625 * x"), Names({"0.625"})) << "is a double";
  EXPECT_EQ(constants("y = 1/3 * x"), Names({"1/3"}));
  EXPECT_EQ(constants("y = 1/sqrt(2*pi) * x"), Names({"1/sqrt(2 pi)"}));
  EXPECT_EQ(constants("y = x * log(2)"), Names({"log(2)"}));
  EXPECT_EQ(constants("y = 1e-300 * x").size(), 1u);
  EXPECT_EQ(constants("y = where(x > 0, x, -inf)"), Names({"0", "inf", "0"}));
}

TEST(FormulaText, NumbersDoNotFollowTheLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"}) std::setlocale(LC_ALL, name);
  EXPECT_EQ(Evaluated(signature_of({{"x", ""}}), "y = x + 1.5")[0].front(), 2.5);
  std::setlocale(LC_ALL, before.c_str());
}

std::string error_of(const OpSignature& signature, const std::string& text) {
  try {
    Evaluated(signature, text)[0];
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FormulaText, ErrorsPointAtTheirPlace) {
  OpSignature op = signature_of({{"x", "A B"}, {"w", "B"}});
  op.inputs[1].optional = true;
  const auto error = [&](const std::string& text) { return error_of(op, text); };
  EXPECT_EQ(error("y = x * * w"), "[formula] line 1, column 9: got '*', want a value\n  y = x * * w\n          ^");
  EXPECT_EQ(error("t = x\ny = t + ("),
            "[formula] line 2, column 10: got the end of the formula, want a value\n  y = t + (\n           ^");
  const struct {
    const char* text;
    const char* part;
  } kWrong[] = {
      {"", "got no statement"},
      {"x", "want '=' after 'x'"},
      {"y = x;; z", "column 10: got the end of the formula"},
      {"y = xx", "got unknown name 'xx' (did you mean 'x'?"},
      {"y = sofmax(x)", "got unknown function 'sofmax'"},
      {"y = sigmod(x)", "did you mean 'sigmoid'?"},
      {"y = exp(x, x)", "got 2 arguments for exp, want exp(x)"},
      {"z = x", "got no statement for the output 'y'"},
      {"y = x; y = x", "got a second meaning for 'y'"},
      {"x = 1; y = x", "got a second meaning for 'x'"},
      {"y = t; t = x", "got 't' before its statement"},
      {"y = x^3", "got '3', want 2 after '^'"},
      {"y = 3x", "got 'x' after a number"},
      {"y = 1.2.3", "got '.' after a number"},
      {"y = 1e * x", "without digits in its exponent"},
      {"y = 1e999 * x", "in the range of fp64"},
      {"y = x $ 2", "got '$'"},
      {"y = x \xc3\x97 2", "column 7: got a character that is not ASCII"},
      {"y = x @ x", "column 7: matmul shapes do not fit, got [2,3] and [2,3]"},
      {"y = sum(x, 2)", "column 12: got axis 2 of shape [2,3], want one from -2 to 1"},
      {"y = sum(x, 0.5)", "got no whole number"},
      {"y = x + slice(x, 1, 0, 2)", "column 7: shapes do not broadcast, got [2,3] and [2,2]"},
      {"y = slice(x, 1, 0, 4)", "got slice [0, 4) of extent 3"},
      {"h = x; y = slice(x, 1, 0, h)", "got no whole number"},
      {"h = B / 2; y = slice(x, 1, 0, h)", "got '/' of 3 and 2, want a whole number"},
      {"y = reshape(x, 4)", "reshape changes the count"},
      {"y = transpose(x, 0, 0)", "want each axis once"},
      {"y = stored(t, x)", "want a saved tensor of the op"},
      {"y = given(x, x, x)", "want an optional input"},
      {"y = x with dz = dy", "want that of a differentiable input or an earlier statement"},
      {"y = mean(x, -1, keepdim=1)", "got 'keepdim=' in mean"},
      {"y = x / (1/0)", "got a division by zero"},
      {"y = arange(1000000000) + sum(x)", "got 1000000000 elements"},
      {"y = (x", "want ')' for the '(' before"},
      {"y = x < 1 < 2", "want an operator, ';' or the end of the line"},
  };
  for (const auto& [text, part] : kWrong)
    EXPECT_NE(error(text).find(part), std::string::npos) << text << "\n" << error(text);
}

TEST(FormulaText, AnAbsentOptionalInputIsTold) {
  OpSignature op = signature_of({{"x", "A B"}, {"w", "B"}});
  op.inputs[1].optional = true;
  const Form form = form_from_text(op, "text", "y = x * w");
  CaseInputs inputs;
  inputs.shapes["x"] = Shape{2, 3};
  try {
    record(op, form, {}, inputs);
    FAIL() << "want an error";
  } catch (const FormulaError& error) {
    EXPECT_NE(std::string(error.what()).find("want given(w, ..., ...)"), std::string::npos) << error.what();
  }
}

TEST(FormulaText, SizeAndDepthAreLimited) {
  const OpSignature op = signature_of({{"x", "A"}});
  std::string deep = "y = ", chain = "y = x";
  for (int i = 0; i < 100'000; ++i) deep += "(";
  EXPECT_NE(error_of(op, deep).find("[formula]"), std::string::npos);
  deep = "y = ";
  for (int i = 0; i < 400; ++i) deep += "(";
  EXPECT_NE(error_of(op, deep).find("nested deeper than 256"), std::string::npos);
  for (int i = 0; i < 400; ++i) chain += " + x";
  EXPECT_NE(error_of(op, chain).find("nested deeper than 256"), std::string::npos);
  std::string many = "y = x";
  for (int i = 0; i < 6000; ++i) many += "\nt" + std::to_string(i) + " = -x";
  EXPECT_NE(error_of(op, many).find("more than 8192 terms"), std::string::npos);
  EXPECT_NE(error_of(op, std::string(70'000, ' ')).find("want at most 65536"), std::string::npos);
}

/// Each list is small enough, all of them together would take the machine's memory: such a case is skipped.
TEST(FormulaText, ListsAreBoundedTogether) {
  const OpSignature op = signature_of({{"x", "A B"}});
  const auto recorded = [&](int lists) {
    std::string text = "y = x";
    for (int i = 0; i < lists; ++i) text += " + sum(arange(100))";
    record(op, form_from_text(op, "text", text, false, 100), {}, {{{"x", Shape{2, 3}}}, {}, {}});
  };
  EXPECT_NO_THROW(recorded(4));
  try {
    recorded(5);
    ADD_FAILURE() << "500 elements were taken";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(
        std::string(error.what()).find("got 500 elements that are listed or moved one by one so far, want at most 400"),
        std::string::npos)
        << error.what();
  }
}

/// Words of formulas, and some that are none, with bars between them.
constexpr const char* kWords =
    "x|w|index|y|t|A|B|=|=|;|\n|(|)|(|)|,|+|-|*|/|@|^2|<|==|with|dx|dt|dy|0|1|-1|2|0.1|1e308|pi|inf|axis=|#|exp(|sum(|"
    "mean(|max(x, -1)|slice(|concat(|reshape(|transpose(|gather(|one_hot(index, 3)|arange(|size(x, 0)|given(w, |"
    "where(|matmul(|squeeze(|scatter_add(|unfold(|stop_gradient(|\xff|$|3x|y = x|t = x * x";

TEST(FormulaText, GarbageIsRefusedAndNothingElse) {
  OpSignature op = signature_of({{"x", "A B"}, {"w", "B"}, {"index", "C"}});
  op.inputs[1].optional = true;
  op.inputs[2].role = Role::index;
  op.inputs[2].type = TypeRule::i64;
  std::vector<std::string> words;
  std::istringstream bars(kWords);
  for (std::string word; std::getline(bars, word, '|');) words.push_back(word);
  std::size_t refused = 0, recorded = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const Random random(i, "garbage");
    std::string text = random.below(0, 2) == 0 ? "y = " : "t = x + 1; y = ";
    for (std::uint64_t k = 1, n = 1 + random.below(1, 12); k <= n; ++k)
      text += words[random.below(k + 1, words.size())] + (random.below(k + 100, 3) == 0 ? "" : " ");
    try {
      const Evaluated value(op, text, {{"index", {0, 1, 0, 1}}});
      ++recorded;
    } catch (const FormulaError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000u);
  EXPECT_GT(recorded, 100u);
}

TEST(FormulaText, AWrongAdjointOfItsOwnLosesTheCertificate) {
  const checks::OpDef& op = *checks::find_op("rms_norm");
  const Form wrong =
      form_from_text(op.signature, "text",
                     "inv = stored(inv_rms, rsqrt(mean(x^2, -1) + eps)); n = x * inv with dx = inv * dn\n"
                     "y = given(weight, n * weight, n)");
  const FormulaCertificate certificate =
      certify(op.signature, {op.forms.front(), wrong}, formula_variants(op.signature), 3, 1);
  EXPECT_LT(certificate.digits, 3);
}

}  // namespace
}  // namespace ampcheck::reference
