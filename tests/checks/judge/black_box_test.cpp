// SPDX-License-Identifier: Apache-2.0
// Ops without a formula, through two doors: broken backwards are convicted, right ones never, and the report says how
// little it could see.
#include "checks/judge/black_box.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "checks/data/regimes.h"
#include "checks/doors/launcher_toml.h"
#include "checks/doors/plugin.h"
#include "checks/run/runner.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::checks {
namespace {

using testing::contains;

const std::string kFolder = tests::in_build("/custom_ops/");

const OpDef& op_named(const std::string& name) {
  for (const OpDef& op : load_plugin(kFolder + "no_formula.so").ops)
    if (op.signature.name == name) return op;
  throw Error("[test] no op " + name);
}

/// The launchers of tests/custom_ops/rms_norm_launchers.toml without formula.
TomlOp launched(const std::string& backward) {
  std::ifstream in(kFolder + "rms_norm_launchers.toml");
  std::stringstream read;
  read << in.rdbuf();
  std::string text = read.str();
  const std::size_t begin = text.find("formula = \"\"\""), end = text.find("\"\"\"", begin + 14) + 3;
  text.erase(begin, end - begin);
  for (std::size_t at = 0; (at = text.find("rms_norm_backward_", at)) != std::string::npos; at += backward.size())
    text.replace(at, 18, backward + "_");
  return op_of_toml(text, kFolder + "x.toml");
}

struct Seen {
  int cases = 0, convicted = 0;
  std::int64_t compared = 0, blind = 0;
  std::map<std::string, int> codes;
  std::vector<double> visible;
};
Seen seen_of(const OpDef& op, CaseSet set, Dtype storage, std::uint64_t seed, std::size_t most_elements = 1 << 20) {
  Seen out;
  for (const OpCall& call : cases_of(op.signature, storage, set, seed)) {
    std::int64_t elements = 1;
    for (const auto& [symbol, extent] : call.dims) elements *= extent;
    if (call.range != "normal" || elements > static_cast<std::int64_t>(most_elements)) continue;
    const CaseResult result = run_case(op, call, {});
    ++out.cases;
    out.convicted += convicts(result.verdict);
    if (convicts(result.verdict)) ++out.codes[ampcheck::name(result.code)];
    for (const CheckResult& check : result.checks) {
      if (!check.name().starts_with("backward ")) continue;
      out.compared += check.compared;
      out.blind += check.blind;
      if (check.visible > 0) out.visible.push_back(check.visible);
    }
  }
  return out;
}

class RightBlackBox : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, RightBlackBox,
                         ::testing::Values("plain_softmax", "gated_square", "plain_softmax_tangent",
                                           "gated_square_tangent"));

constexpr std::uint64_t kSeeds = testing::kSanitized ? 10 : 200;

TEST_P(RightBlackBox, IsNotFlaggedIn200Seeds) {
  const OpDef& op = op_named(GetParam());
  ASSERT_TRUE(op.forms.empty());
  for (const Dtype storage : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    Seen all;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Seen seen = seen_of(op, CaseSet::quick, storage, seed, seed % 100 == 1 ? 1 << 14 : 64);
      EXPECT_EQ(seen.convicted, 0) << name(storage) << " seed " << seed << " "
                                   << (seen.codes.empty() ? "" : seen.codes.begin()->first);
      all.compared += seen.compared;
      all.blind += seen.blind;
      all.visible.insert(all.visible.end(), seen.visible.begin(), seen.visible.end());
    }
    EXPECT_GT(all.compared, static_cast<std::int64_t>(5 * kSeeds));
    EXPECT_LT(all.blind, all.compared * 9 / 10) << name(storage) << ": it would pass anything";
    ASSERT_FALSE(all.visible.empty());
    std::sort(all.visible.begin(), all.visible.end());
    RecordProperty(std::string("visible_") + name(storage), std::to_string(all.visible[all.visible.size() / 2]));
    std::printf("%s %s: %lld coordinates, %lld blind, would have shown %.2g %%\n", GetParam(), name(storage),
                static_cast<long long>(all.compared), static_cast<long long>(all.blind),
                100 * all.visible[all.visible.size() / 2]);
  }
}

TEST(BlackBox, BrokenOnesAreConvicted) {
  for (const char* broken : {"plain_softmax_sign", "plain_softmax_drops_tail", "gated_square_forgets_two"})
    for (const Dtype storage : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
      const Seen seen = seen_of(op_named(broken), CaseSet::quick, storage, 1, 1 << 9);
      EXPECT_GT(seen.convicted, 0) << broken << " " << name(storage) << ", " << seen.blind << " of " << seen.compared
                                   << " blind";
      EXPECT_TRUE(seen.convicted == 0 || seen.codes.contains("AC104")) << broken << " " << seen.codes.begin()->first;
    }
}

/// The dot-product test: <v, J u> by forward mode is <J^T v, u> by the backward, and differences say which of the two
/// is wrong.
TEST(BlackBox, ForwardModeIsHeldAgainstTheBackward) {
  const auto products = [](const char* op, Dtype storage) {
    std::vector<CheckResult> out;
    for (const OpCall& call : cases_of(op_named(op).signature, storage, CaseSet::quick, 1))
      if (call.range == "normal" && call.dims.at("N") * call.dims.at("D") <= 1 << 9)
        for (const CheckResult& check : run_case(op_named(op), call, {}).checks)
          if (check.name() == "jvp dot product") out.push_back(check);
    return out;
  };
  for (const Dtype storage : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    for (const char* right : {"plain_softmax_tangent", "gated_square_tangent"}) {
      std::int64_t sharp = 0;
      for (const CheckResult& check : products(right, storage)) {
        sharp += check.blind == 0;
        EXPECT_EQ(check.code, Code::none) << right << " " << name(storage) << " " << check.cause;
      }
      EXPECT_GT(sharp, 0) << right << " " << name(storage) << ": it would pass anything";
    }
    struct Broken {
      const char *op, *wrong, *right;
    };
    for (const Broken& broken :
         {Broken{"plain_softmax_tangent_of_mean", "forward mode is wrong", "the backward is wrong"},
          {"gated_square_tangent_negated", "forward mode is wrong", "the backward is wrong"},
          {"plain_softmax_sign_tangent", "the backward is wrong", "forward mode is wrong"}}) {
      std::int64_t found = 0, named = 0;
      for (const CheckResult& check : products(broken.op, storage)) {
        found += check.code == Code::ac106;
        named += contains(check.cause, broken.wrong);
        EXPECT_FALSE(contains(check.cause, broken.right)) << broken.op << " " << name(storage) << " " << check.cause;
      }
      EXPECT_GT(found, 0) << broken.op << " " << name(storage);
      EXPECT_GT(2 * named, found) << broken.op << " " << name(storage);
    }
  }
}

TEST(BlackBox, ExplainShowsWhatIsPrinted) {
  const auto tangent =
      testing::ampcheck("replay " + kFolder + "no_formula.so 'plain_softmax_tangent_of_mean(x=fp32[5,7],seed=1)'");
  EXPECT_TRUE(tangent.out.starts_with(find_code("AC106")->transcript)) << tangent.out;
  const auto run = testing::ampcheck("replay " + kFolder + "no_formula.so 'plain_softmax_sign(x=fp32[5,7],seed=1)'");
  EXPECT_TRUE(run.out.starts_with(find_code("AC104")->transcript)) << run.out;
}

TEST(BlackBox, LaunchersWithoutFormula) {
  const TomlOp right = launched("rms_norm_backward");
  ASSERT_TRUE(right.op.forms.empty());
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
    const Seen seen = seen_of(right.op, CaseSet::standard, storage, 1, 64);
    EXPECT_EQ(seen.convicted, 0) << name(storage) << " " << (seen.codes.empty() ? "" : seen.codes.begin()->first);
    EXPECT_GT(seen.compared, 20);
    const TomlOp broken = launched("rms_norm_forgets_norm"), strides = launched("rms_norm_strides_of_x");
    EXPECT_TRUE(seen_of(broken.op, CaseSet::quick, storage, 1, 64).codes.contains("AC104")) << name(storage);
    OpCall call = default_call(strides.op.signature, storage);
    EXPECT_FALSE(convicts(run_case(strides.op, call, {}).verdict)) << "dense tensors have the same strides";
    call.layout = "padded:dy";
    EXPECT_EQ(run_case(strides.op, call, {}).code, Code::ac406) << name(storage);
  }
}

TEST(BlackBox, TheReportSaysThatItIsTheWeakMode) {
  const std::string library = kFolder + "no_formula.so";
  const auto right = testing::ampcheck("check " + library + " plain_softmax --regimes quick --shapes first");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  for (const char* words :
       {"ROUNDING (weak mode)", "note: plain_softmax has no formula: the weak mode. Forward values are not judged.",
        "would have shown a relative error of", "cannot be seen"})
    EXPECT_TRUE(contains(right.out, words)) << words << "\n" << right.out;
  EXPECT_FALSE(contains(right.out, "Reference certified")) << right.out;
  const auto wrong =
      testing::ampcheck("check " + library + " gated_square_forgets_two --regimes quick --shapes first --dtype bf16");
  EXPECT_EQ(wrong.exit_code, 1);
  for (const char* words : {"BUG  AC104  gated_square_forgets_two backward dx", "differences of the op itself, step",
                            "again   ampcheck replay"})
    EXPECT_TRUE(contains(wrong.out, words)) << words << "\n" << wrong.out;
  const auto certify = testing::ampcheck("certify " + library + " plain_softmax");
  EXPECT_EQ(certify.exit_code, 2);
  EXPECT_TRUE(contains(certify.err, "which has no formula")) << certify.err;
  EXPECT_EQ(testing::ampcheck("list " + library).exit_code, 0);
}

TEST(BlackBox, ShapesOfOutputsHaveToBeSaid) {
  std::ifstream in(kFolder + "rms_norm_launchers.toml");
  std::stringstream read;
  read << in.rdbuf();
  std::string text = read.str();
  const std::size_t begin = text.find("formula = \"\"\""), end = text.find("\"\"\"", begin + 14) + 3;
  text.erase(begin, end - begin);
  text.replace(text.find("{ y = \"N D\" }"), 13, "{ y = {} }");
  try {
    op_of_toml(text, "my_op.toml");
    ADD_FAILURE() << "no error";
  } catch (const PluginError& error) {
    EXPECT_TRUE(contains(error.what(), "[my_op.toml:8:13] dims, got none, want its symbols")) << error.what();
  }
}

}  // namespace
}  // namespace ampcheck::checks
