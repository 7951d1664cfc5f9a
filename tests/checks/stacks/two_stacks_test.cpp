// SPDX-License-Identifier: Apache-2.0
// Two stacks: each planted difference is found and named, and no twin is flagged.
#include <gtest/gtest.h>

#include <memory>

#include "checks/data/file_tensors.h"
#include "checks/run/dump.h"
#include "checks/stacks/dump_side.h"
#include "checks/stacks/op_pair.h"
#include "tests/support/planted_stacks.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::stacks {
namespace {

using testing::contains;
using testing::StackData;
using testing::StackOp;
using testing::StackWay;

struct DumpedSide {
  OpDef op;
  std::vector<OpCall> calls;
  TensorFile file;
  Side side;
};

std::unique_ptr<DumpedSide> side_of(TensorFile file, const std::string& formula) {
  auto out = std::make_unique<DumpedSide>();
  out->file = std::move(file);
  out->op = op_of_formula(out->file, formula, {.storage = {}, .accumulate = Dtype::fp32, .math = cuda_math()});
  OpCall call = file_call(out->op, data_of_file(out->file), out->op.signature.precision.storage.front());
  require_file_call(out->op, call, true);
  out->calls = {call};
  out->side = {.op = &out->op, .calls = &out->calls, .wrote = written_in(out->op, out->calls.front(), out->file)};
  out->side.judged = judge_dump(out->op, out->calls.front(), out->file).result.checks;
  return out;
}

OpPair compared(const StackOp& op, const StackWay& a, const StackWay& b, const StackData& of_a, const StackData& of_b) {
  const auto side_a = side_of(testing::stack_dump(op, a, of_a), op.formula),
             side_b = side_of(testing::stack_dump(op, b, of_b), op.formula);
  return compare_op(op.name, side_a->side, side_b->side, differing_inputs(side_a->op, side_a->file, side_b->file),
                    HowRead::all);
}

const StackWay& way(const StackOp& op, const std::string& name) {
  for (const StackWay& one : op.ways)
    if (one.name == name) return one;
  throw Error("no way " + name);
}
const StackOp& op_named(const std::string& name) {
  for (const StackOp& one : testing::stack_ops())
    if (one.name == name) return one;
  throw Error("no op " + name);
}

TEST(TwoStacks, EveryPlantedDifferenceIsMadeAndNamedAndNoTwinIsFlagged) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16})
    for (const StackOp& op : testing::stack_ops()) {
      const StackData data = testing::stack_data(7, dtype);
      for (const StackWay& other : op.ways) {
        SCOPED_TRACE(op.name + "." + other.name + " in " + name(dtype));
        const OpPair pair = compared(op, op.ways.front(), other, data, data);
        ASSERT_EQ(pair.tensors.size(), 1u);
        const TensorPair& y = pair.tensors.front();
        EXPECT_TRUE(y.sides[0].follows()) << y.sides[0].cause;
        EXPECT_EQ(y.sides[1].follows(), other.follows) << y.sides[1].outside << " " << y.sides[1].cause;
        EXPECT_TRUE(contains(y.sides[0].contract, "rounds once, at the end")) << y.sides[0].contract;
        EXPECT_TRUE(contains(y.sides[1].contract, other.says)) << y.sides[1].contract;
        const bool twin = y.origin == Origin::equal || y.origin == Origin::order;
        EXPECT_EQ(twin, other.follows) << stacks::name(y.origin) << " " << y.sides[1].contract;
        EXPECT_EQ(y.origin == Origin::made, !other.follows) << stacks::name(y.origin);
        EXPECT_TRUE(other.follows || !y.boundary.empty());
      }
    }
}

TEST(TwoStacks, RoundingBoundariesAreOneLine) {
  const StackOp& op = op_named("rms_norm");
  const StackData data = testing::stack_data(3);
  EXPECT_EQ(compared(op, way(op, "before_weight"), way(op, "fused"), data, data).tensors.front().boundary,
            "A rounds before weight, B after");
  EXPECT_EQ(compared(op, way(op, "fused"), way(op, "before_weight"), data, data).tensors.front().boundary,
            "A rounds after weight, B before");
  const StackOp& gated = op_named("gated");
  EXPECT_EQ(compared(gated, way(gated, "silu_rounded"), way(gated, "before_add"), data, data).tensors.front().boundary,
            "A rounds x * sigmoid(x) to bf16, B rounds (x * sigmoid(x)) * gate");
}

/// The inputs differ by one unit here and there: what the op brings along is told from what it makes.
TEST(TwoStacks, InheritedDifferencesAreToldFromMadeOnes) {
  for (const StackOp& op : testing::stack_ops()) {
    const StackData of_a = testing::stack_data(11);
    StackData of_b = of_a;
    for (std::size_t i = 0; i < of_b.x.size(); i += 5)
      of_b.x[i] = testing::rounded(of_b.x[i] * (1 + 0x1p-7f), Dtype::bf16);
    for (const StackWay& one : op.ways) {
      SCOPED_TRACE(op.name + "." + one.name);
      const OpPair alike = compared(op, one, one, of_a, of_b);
      EXPECT_FALSE(alike.differing_inputs.empty());
      EXPECT_EQ(alike.tensors.front().origin, Origin::inherited) << alike.tensors.front().boundary;
      if (one.follows) continue;
      const OpPair made = compared(op, op.ways.front(), one, of_a, of_b);
      EXPECT_EQ(made.tensors.front().origin, Origin::made);
      EXPECT_GT(made.tensors.front().made, 0);
    }
  }
}

TEST(TwoStacks, TheSameBitsAreEqualWhateverTheyAre) {
  for (const StackOp& op : testing::stack_ops())
    for (const StackWay& one : op.ways) {
      const StackData data = testing::stack_data(5);
      EXPECT_EQ(compared(op, one, one, data, data).origin(), Origin::equal) << op.name << "." << one.name;
    }
}

TEST(TwoStacks, RowsOfALargeDumpAreThoseOfTheWhole) {
  const StackOp& op = op_named("rms_norm");
  const StackData data = testing::stack_data(5);
  const TensorFile whole = testing::stack_dump(op, op.ways.front(), data);
  const auto part = rows_of(whole, data.rows, 3, 2);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->find("weight")->count(), data.cols);
  const std::vector<double> all = to_doubles(whole.find("y")->view()), some = to_doubles(part->find("y")->view());
  ASSERT_EQ(std::ssize(some), 2 * data.cols);
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i], all[i + static_cast<std::size_t>(3 * data.cols)]);
  EXPECT_FALSE(rows_of(whole, 7, 0, 1));
}

}  // namespace
}  // namespace ampcheck::checks::stacks
