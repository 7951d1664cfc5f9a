// SPDX-License-Identifier: Apache-2.0
// ampcheck/check.h: ops that a program describes itself, with kernels that are functions of its own.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "src/api/ampcheck/ampcheck_op.h"
#include "src/api/ampcheck/check.h"
#include "tests/support/run_program.h"

namespace ampcheck::check {
namespace {

using testing::contains;

/// y = factor x, and dx = factor dy; counts its calls.
struct Scale {
  float factor = 2;
  int calls = 0;
};

std::int32_t scale(const ac_tensor& from, const ac_tensor& to, Scale& user) {
  std::int64_t count = 1;
  for (std::int32_t axis = 0; axis < from.dl.ndim; ++axis) count *= from.dl.shape[axis];
  for (std::int64_t i = 0; i < count; ++i)
    static_cast<float*>(to.dl.data)[i] = user.factor * static_cast<const float*>(from.dl.data)[i];
  ++user.calls;
  return 0;
}

std::int32_t forward(const ac_call* call) {
  return scale(*call->inputs[0], *call->outputs[0], *static_cast<Scale*>(call->user));
}

std::int32_t backward(const ac_call* call) {
  return scale(*call->cotangents[0], *call->gradients[0], *static_cast<Scale*>(call->user));
}

/// The library with the one op; nothing of the description outlives this function.
Library described(Scale& user, const std::string& formula = "y = 2 * x") {
  const std::string name = "scale";
  const std::int32_t storage[] = {AC_FP32};
  ac_contract contract = {};
  contract.struct_size = sizeof contract;
  contract.storage = storage;
  contract.storage_count = 1;
  ac_input x = {};
  x.struct_size = sizeof x;
  x.name = "x";
  x.dims = "N D";
  ac_output y = {};
  y.struct_size = sizeof y;
  y.name = "y";
  const ac_dim dims[] = {{sizeof(ac_dim), 0, "N", {3, 5, 9}, 1, 0}, {sizeof(ac_dim), 0, "D", {4, 7, 33}, 1, 0}};
  ac_form form = {};
  form.struct_size = sizeof form;
  form.formula = formula.c_str();
  ac_op op = {};
  op.struct_size = sizeof op;
  op.flags = AC_OP_SERIAL;
  op.name = name.c_str();
  op.inputs = &x;
  op.input_count = 1;
  op.outputs = &y;
  op.output_count = 1;
  op.dims = dims;
  op.dim_count = 2;
  op.forms = &form;
  op.form_count = 1;
  op.contract = &contract;
  op.forward = forward;
  op.backward = backward;
  op.user = &user;
  const ac_plugin plugin = {sizeof plugin, AMPCHECK_OP_ABI, "mine", nullptr, 1, 0, &op};
  return describe(plugin, "mine");
}

Options quick() {
  Options out;
  out.regimes = Regimes::quick;
  return out;
}

TEST(Describe, ARightOpPassesAndAWrongOneIsFound) {
  Scale right, wrong{.factor = 2.0001F};
  const Library library = described(right);
  ASSERT_EQ(library.ops.size(), 1u);
  EXPECT_EQ(library.ops.front().library(), "mine");
  const Report passed = run(library.ops.front(), quick());
  EXPECT_TRUE(passed.passed()) << to_text(passed);
  EXPECT_GT(right.calls, 20);
  const Report failed = run(described(wrong).ops.front(), quick());
  ASSERT_FALSE(failed.findings().empty());
  EXPECT_EQ(failed.findings().front().code, "AC101");
  EXPECT_TRUE(contains(to_text(failed), "constant factor")) << to_text(failed);
}

TEST(Describe, TheOpLivesAsLongAsItsLastCopy) {
  Scale user;
  auto library = std::make_unique<Library>(described(user));
  const Op op = library->ops.front();
  library.reset();
  EXPECT_EQ(op.name(), "scale");
  EXPECT_TRUE(run(op, quick()).passed());
}

TEST(Describe, InputsOfACase) {
  Scale user{.factor = 3};
  const Library library = described(user);
  const Report report = run(library.ops.front(), quick());
  ASSERT_FALSE(report.findings().empty());
  const std::vector<CaseTensor> inputs = inputs_of(library.ops.front(), report.findings().front().case_name);
  ASSERT_EQ(inputs.size(), 1u);
  EXPECT_EQ(inputs[0].name, "x");
  EXPECT_EQ(inputs[0].dtype, "fp32");
  ASSERT_EQ(inputs[0].shape.size(), 2u);
  EXPECT_EQ(inputs[0].values.size(), static_cast<std::size_t>(inputs[0].shape[0] * inputs[0].shape[1]));
  const Element& worst = report.findings().front().worst.front();
  const auto at = static_cast<std::size_t>(worst.index[0] * inputs[0].shape[1] + worst.index[1]);
  if (report.findings().front().tensor == "forward y") {
    EXPECT_EQ(static_cast<float>(3 * inputs[0].values[at]), worst.got);
  }
  EXPECT_THROW(inputs_of(library.ops.front(), "scale(x=fp32[1"), UsageError);
  const std::optional<Op> built_in = find_op("softmax");
  ASSERT_TRUE(built_in.has_value());
  EXPECT_EQ(inputs_of(*built_in, "softmax(x=fp16[5,7],seed=1)").front().values.size(), 35u);
}

TEST(Describe, AgainSaysHowTheProgramRunsACase) {
  Scale user{.factor = 3};
  Options options = quick();
  options.again = "my_checks --case \"{}\"";
  const std::string text = to_text(run(described(user).ops.front(), options));
  EXPECT_TRUE(contains(text, "again   my_checks --case \"scale(x=")) << text;
}

TEST(Describe, MisuseIsSaid) {
  Scale user;
  EXPECT_THROW(described(user, "y = 2 * z"), UsageError);
  const ac_plugin none = {sizeof none, AMPCHECK_OP_ABI, "mine", nullptr, 0, 0, nullptr};
  EXPECT_THROW(describe(none, "mine"), UsageError);
  EXPECT_THROW(describe(none, ""), UsageError);
}

}  // namespace
}  // namespace ampcheck::check
