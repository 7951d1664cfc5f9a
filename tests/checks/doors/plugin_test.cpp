// SPDX-License-Identifier: Apache-2.0
// Descriptions of plug-ins: a right one becomes an op like any other; whatever is wrong in one is told with its place.
#include "checks/doors/plugin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "src/finding.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/choose/plugins.h"

namespace ampcheck::checks {
namespace {

// DLPack's DLTensor, field by field.
static_assert(sizeof(ac_dltensor) == 48 && offsetof(ac_dltensor, device) == 8 && offsetof(ac_dltensor, ndim) == 16 &&
              offsetof(ac_dltensor, dtype) == 20 && offsetof(ac_dltensor, shape) == 24 &&
              offsetof(ac_dltensor, strides) == 32 && offsetof(ac_dltensor, byte_offset) == 40);

float load(const ac_tensor* t, std::int64_t i) { return static_cast<const float*>(t->dl.data)[i]; }

std::int64_t count(const ac_tensor* t) {
  std::int64_t n = 1;
  for (int i = 0; i < t->dl.ndim; ++i) n *= t->dl.shape[i];
  return n;
}

/// y = scale x + offset, fp32, dense.
std::int32_t forward(const ac_call* call) {
  const auto scale = static_cast<float>(call->attributes[0].value);
  for (std::int64_t i = 0; i < count(call->inputs[0]); ++i)
    static_cast<float*>(call->outputs[0]->dl.data)[i] =
        scale * load(call->inputs[0], i) + (call->inputs[1] != nullptr ? load(call->inputs[1], i) : 0.0f);
  return 0;
}

std::int32_t backward(const ac_call* call) {
  const auto scale = static_cast<float>(call->attributes[0].value);
  for (std::int64_t i = 0; i < count(call->inputs[0]); ++i) {
    static_cast<float*>(call->gradients[0]->dl.data)[i] = scale * load(call->cotangents[0], i);
    if (call->gradients[1] != nullptr)
      static_cast<float*>(call->gradients[1]->dl.data)[i] = load(call->cotangents[0], i);
  }
  return 0;
}

/// A right description whose every part a test can change.
struct Description {
  std::array<ac_input, 2> inputs = {};
  std::array<ac_output, 1> outputs = {};
  std::array<ac_output, 1> saved = {};
  std::array<ac_attribute, 1> attributes = {};
  std::array<ac_dim, 2> dims = {};
  std::array<ac_form, 2> forms = {};
  std::array<std::int32_t, 1> storage = {AC_FP32};
  std::array<double, 1> others = {3};
  ac_contract contract = {};
  ac_math math = {};
  ac_op op = {};
  ac_plugin plugin = {};

  Description() {
    for (ac_input& input : inputs) input.struct_size = sizeof input;
    for (ac_form& form : forms) form.struct_size = sizeof form;
    for (ac_dim& dim : dims) {
      dim.struct_size = sizeof dim;
      dim.samples[0] = 5;
      dim.samples[1] = 7;
      dim.samples[2] = 2;
    }
    inputs[0].name = "x";
    inputs[0].dims = "N D";
    inputs[0].flags = AC_ROW_INDEPENDENT;
    inputs[1].name = "offset";
    inputs[1].dims = "N D";
    inputs[1].flags = AC_OPTIONAL;
    outputs[0].struct_size = saved[0].struct_size = sizeof(ac_output);
    outputs[0].name = "y";
    saved[0].name = "kept";
    attributes[0].struct_size = sizeof(ac_attribute);
    attributes[0].name = "scale";
    attributes[0].default_value = 2;
    attributes[0].other_values = others.data();
    attributes[0].other_count = 1;
    dims[0].symbol = "N";
    dims[1].symbol = "D";
    forms[0].name = "affine";
    forms[0].formula = "s = scale * x; y = given(offset, s + offset, s)";
    forms[1].formula = "y = given(offset, offset + x * scale, x * scale)";
    contract.struct_size = sizeof contract;
    contract.storage = storage.data();
    contract.storage_count = 1;
    math.struct_size = sizeof math;
    op.struct_size = sizeof op;
    op.name = "affine";
    op.row_dim = "N";
    op.contract = &contract;
    op.inputs = inputs.data();
    op.input_count = 2;
    op.outputs = outputs.data();
    op.output_count = 1;
    op.attributes = attributes.data();
    op.attribute_count = 1;
    op.dims = dims.data();
    op.dim_count = 2;
    op.forms = forms.data();
    op.form_count = 2;
    op.forward = forward;
    op.backward = backward;
    plugin.struct_size = sizeof plugin;
    plugin.abi = AMPCHECK_OP_ABI;
    plugin.ops = &op;
    plugin.op_count = 1;
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  std::vector<OpDef> read() const { return ops_of(&plugin, "libx.so"); }
};

std::set<std::string> codes_of(const OpDef& op) {
  std::set<std::string> out;
  for (const Dtype storage : op.signature.precision.storage)
    for (const OpCall& call : cases_of(op.signature, storage, CaseSet::quick, 1)) {
      const CaseResult result = run_case(op, call, {});
      if (convicts(result.verdict)) out.insert(ampcheck::name(result.code));
    }
  return out;
}

TEST(Plugin, ARightDescriptionIsAnOpLikeAnyOther) {
  const Description description;
  const std::vector<OpDef> ops = description.read();
  ASSERT_EQ(ops.size(), 1u);
  const OpSignature& signature = ops[0].signature;
  EXPECT_EQ(signature.name, "affine");
  EXPECT_EQ(signature.inputs.size(), 2u);
  EXPECT_TRUE(signature.inputs[1].optional);
  EXPECT_EQ(signature.launch.row_independent, std::vector<std::string>({"dx"}));
  EXPECT_EQ(signature.precision.math.name, "glibc");
  EXPECT_EQ(ops[0].forms[1].name, "form 2");
  EXPECT_FALSE(signature.launch.strided);
  EXPECT_EQ(codes_of(ops[0]), std::set<std::string>());
}

struct Wrong {
  const char* part;  ///< of the message
  std::function<void(Description&)> spoil;
};

void expect_refused(const std::vector<Wrong>& all) {
  for (const auto& [part, spoil] : all) {
    Description description;
    spoil(description);
    try {
      description.read();
      ADD_FAILURE() << "accepted: " << part;
    } catch (const PluginError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "want " << part << "\ngot  " << error.what();
    }
  }
}

TEST(Plugin, EveryWrongFieldIsToldWithItsPlace) {
  using D = Description;
  expect_refused({
      {"[libx.so] struct_size, got 4", [](D& d) { d.plugin.struct_size = 4; }},
      {"[libx.so] struct_size, got 4294967295", [](D& d) { d.plugin.struct_size = 0xffffffff; }},
      {"abi, got 99, want 1", [](D& d) { d.plugin.abi = 99; }},
      {"[libx.so] error, got a control character", [](D& d) { d.plugin.error = "no\x1b[2J"; }},
      {"[libx.so] cannot", [](D& d) { d.plugin.error = "cannot"; }},
      {"ops, got none", [](D& d) { d.plugin.op_count = 0; }},
      {"op count, got -1, want 0 to 10000", [](D& d) { d.plugin.op_count = -1; }},
      {"ops, got a null pointer and count 1", [](D& d) { d.plugin.ops = nullptr; }},
      {"[libx.so: op 1] struct_size, got 8", [](D& d) { d.op.struct_size = 8; }},
      {"[libx.so: op 1] name, got 'my op', want letters", [](D& d) { d.op.name = "my op"; }},
      {"[libx.so: op 1] name, got '', want letters", [](D& d) { d.op.name = nullptr; }},
      {"[libx.so: op 1] name, got '?'", [](D& d) { d.op.name = "\xff"; }},
      {"[libx.so: op 1 'affine'] flags, got the unknown bits 256", [](D& d) { d.op.flags = 256; }},
      {"summary, got a control character", [](D& d) { d.op.summary = "a\nb"; }},
      {"devices, got 8", [](D& d) { d.op.devices = 8; }},
      {"forward, got a null pointer", [](D& d) { d.op.forward = nullptr; }},
      {"backward, got a null pointer", [](D& d) { d.op.backward = nullptr; }},
  });
}

TEST(Plugin, AWrongTensorIsToldWithItsPlace) {
  using D = Description;
  expect_refused({
      {"input count, got 65, want 0 to 64", [](D& d) { d.op.input_count = 65; }},
      {"inputs, got none", [](D& d) { d.op.input_count = 0; }},
      {"input 2] struct_size, got 40, want", [](D& d) { d.inputs[1].struct_size = 40; }},
      {"input 1 'x'] dims, got 'Q', want one of the dims N, D", [](D& d) { d.inputs[0].dims = "N Q"; }},
      {"input 2 'x'] name, got 'x' a second time", [](D& d) { d.inputs[1].name = "x"; }},
      {"input 1 'seed'] name, got 'seed', which is reserved", [](D& d) { d.inputs[0].name = "seed"; }},
      {"output 1] name, got 'dx' a second time", [](D& d) { d.outputs[0].name = "dx"; }},
      {"input 1 'x'] role, got 77", [](D& d) { d.inputs[0].role = 77; }},
      {"input 1 'x'] type, got -1", [](D& d) { d.inputs[0].type = -1; }},
      {"input 1 'x'] role and type, want AC_TYPE_I64", [](D& d) { d.inputs[0].role = AC_INDEX; }},
      {"index_dim, got 'N' for an input that is no index", [](D& d) { d.inputs[0].index_dim = "N"; }},
      {"got a promise for the gradient of an input that has none", [](D& d) { d.inputs[0].flags |= AC_NO_GRADIENT; }},
      {"in_place, got 'z', want an input", [](D& d) { d.outputs[0].in_place = "z"; }},
      {"output 1] type, got 3", [](D& d) { d.outputs[0].type = AC_TYPE_I64; }},
  });
}

TEST(Plugin, AWrongDimOrContractIsToldWithItsPlace) {
  using D = Description;
  expect_refused({
      {"dim 1] sample extent, got 0, want 1 to", [](D& d) { d.dims[0].samples[0] = 0; }},
      {"sample extent, got 5, want 1 to 16777216, a multiple of 2", [](D& d) { d.dims[0].multiple_of = 2; }},
      {"multiple_of, least and most, got -1", [](D& d) { d.dims[0].multiple_of = -1; }},
      {"row_dim, got 'K', want one of the dims", [](D& d) { d.op.row_dim = "K"; }},
      {"batch_invariant, got it beside atomics",
       [](D& d) {
         d.op.flags |= AC_OP_BATCH_INVARIANT;
         d.contract.atomics = 1;
       }},
      {"batch_invariant, got it without rows",
       [](D& d) {
         d.op.flags |= AC_OP_BATCH_INVARIANT;
         d.inputs[0].flags = 0;
       }},
      {"row_dim, got none", [](D& d) { d.op.row_dim = nullptr; }},
      {"other_values, got count 1 and a null pointer", [](D& d) { d.attributes[0].other_values = nullptr; }},
      {"default_value, got a number that is not finite", [](D& d) { d.attributes[0].default_value = NAN; }},
      {"contract] storage, got 99, want AC_FP64, AC_FP32", [](D& d) { d.storage[0] = 99; }},
      {"contract] compute, got 1, want AC_FP32", [](D& d) { d.contract.compute = AC_FP64; }},
      {"contract] summation_depth, got -3", [](D& d) { d.contract.summation_depth = -3; }},
      {"contract, math] ulps, got 0.25",
       [](D& d) {
         d.contract.math = &d.math;
         d.math.exp = 0.25;
       }},
  });
}

TEST(Plugin, AFormThatDoesNotFitIsToldWithItsPlace) {
  using D = Description;
  expect_refused({
      {"output 1] dims, got none, want its symbols", [](D& d) { d.op.form_count = 0; }},
      {"output 1] dims, got 'Q', want one of the dims N, D", [](D& d) { d.outputs[0].dims = "Q"; }},
      {"dims, got 'D N', want those of 'x', which it overwrites",
       [](D& d) {
         d.op.form_count = 0;
         d.outputs[0].dims = "D N";
         d.outputs[0].in_place = "x";
       }},
      {"form 'affine'] formula, got a null pointer", [](D& d) { d.forms[0].formula = nullptr; }},
      {"form 'affine'] [formula] line 1, column 5: got unknown name 'z'", [](D& d) { d.forms[0].formula = "y = z"; }},
      {"form 'affine'] [formula] line 1, column 7: got the optional input 'offset'",
       [](D& d) { d.forms[0].formula = "y = x+offset"; }},
      {"form 'affine'] [formula] line 1, column 7: shapes do not broadcast",
       [](D& d) {
         d.forms[0].formula = "y = x + transpose(x)";
         d.dims[0].samples[0] = d.dims[1].samples[0] = 4;
       }},
      {"got no stored(kept, ...)",
       [](D& d) {
         d.op.saved = d.saved.data();
         d.op.saved_count = 1;
       }},
      {"shape of 'y', got [5,1], want that of 'x'",
       [](D& d) {
         d.outputs[0].in_place = "x";
         d.forms[0].formula = "y = sum(x, 1)";
       }},
  });
}

/// One op that is wrong is refused with its place; the others are looked at, and the exit code is that of a bad
/// definition.
TEST(Plugin, AnOpThatIsRefusedLeavesTheOthers) {
  using testing::contains;
  const std::string library = tests::in_build("/custom_ops/one_refused.so");
  const Plugin& plugin = load_plugin(library);
  ASSERT_EQ(plugin.ops.size(), 2u);
  ASSERT_EQ(plugin.refused.size(), 1u);
  EXPECT_EQ(plugin.refused[0].name, "does_not_parse");
  const std::string place = "op 2 'does_not_parse', form 'formula'] [formula] line 1, column 9: got unknown name 'z'";
  const auto all = testing::ampcheck("check " + library + " --shapes first");
  EXPECT_EQ(all.exit_code, 2);
  EXPECT_TRUE(contains(all.err, place) && contains(all.err, "the other ops of the library are looked at")) << all.err;
  EXPECT_TRUE(contains(all.out, "BUG  AC101  thrice_wrong") && contains(all.out, "  thrice ") &&
              !contains(all.out, "printed"))
      << all.out;
  EXPECT_EQ(testing::ampcheck("check " + library + " thrice --shapes first").exit_code, 0)
      << "nobody asked for the other";
  EXPECT_EQ(testing::ampcheck("check " + library + " thrice_wrong --shapes first").exit_code, 1);
  const auto refused = testing::ampcheck("check " + library + " does_not_parse");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.err, place) && refused.out.empty()) << refused.err;
}

TEST(Plugin, AFormThatIsOtherMathematicsJudgesNothing) {
  const struct {
    const char *first, *second, *part;
  } kWrong[] = {
      {"y = scale * x + given(offset, offset, 0)", "y = scale * x * 1.0000001 + given(offset, offset, 0)",
       "form 'form 2' is not the formula"},
      {"y = scale * x + given(offset, offset, 0)", "t = scale * x with dx = 3 * dt; y = t + given(offset, offset, 0)",
       "form 'form 2' is not the formula"},
      {"t = scale * x with dx = 3 * dt; y = t + given(offset, offset, 0)", nullptr,
       "gradient of form 'affine' with respect to 'x'"},
  };
  for (const auto& [first, second, part] : kWrong) {
    Description description;
    description.forms[0].formula = first;
    description.forms[1].formula = second;
    if (second == nullptr) description.op.form_count = 1;
    try {
      tools::require_certified(description.read()[0]);
      ADD_FAILURE() << "accepted: " << part;
    } catch (const tools::UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  const Description right;
  EXPECT_NO_THROW(tools::require_certified(right.read()[0]));
  Description flat;  // nothing to differentiate
  flat.inputs[0].flags = AC_NO_GRADIENT;
  flat.inputs[1].flags |= AC_NO_GRADIENT;
  EXPECT_NO_THROW(tools::require_certified(flat.read()[0]));
}

TEST(Plugin, FieldsThatTheFirstVersionHadNotReadAsZero) {
  Description description;
  description.outputs[0].struct_size = offsetof(ac_output, dims);
  description.outputs[0].dims = "beyond the struct";
  EXPECT_EQ(description.read()[0].signature.outputs[0].dims, "");
}

TEST(Plugin, FieldsOfALaterVersionAreSkipped) {
  struct LaterInput {
    ac_input known;
    std::uint64_t fresh;
  } inputs[2] = {};
  Description description;
  for (std::size_t i = 0; i < 2; ++i) {
    inputs[i] = {description.inputs[i], ~std::uint64_t{0}};
    inputs[i].known.struct_size = sizeof(LaterInput);
  }
  description.op.inputs = &inputs[0].known;
  EXPECT_EQ(description.read()[0].signature.inputs[1].name, "offset");
}

TEST(Plugin, AKernelThatReportsOrThrowsIsACrashOfItsCase) {
  const ac_kernel kBad[] = {
      [](const ac_call* call) -> std::int32_t {
        call->host->set_error(call->host->context, "out of\nluck");
        return 7;
      },
      [](const ac_call*) -> std::int32_t { throw 42; },
      [](const ac_call*) -> std::int32_t { throw std::runtime_error("thrown"); },
  };
  const char* const kWords[] = {"forward returned 7: out of luck", "threw something that is no std::exception",
                                "forward threw: thrown"};
  for (std::size_t i = 0; i < 3; ++i) {
    Description description;
    description.op.forward = kBad[i];
    const OpDef op = description.read()[0];
    const CaseResult result = run_case(op, default_call(op.signature, Dtype::fp32), {});
    EXPECT_EQ(result.verdict, Verdict::crash);
    EXPECT_EQ(result.code, Code::ac501);
    ASSERT_FALSE(result.checks.empty());
    EXPECT_NE(result.checks.back().cause.find(kWords[i]), std::string::npos) << result.checks.back().cause;
  }
}

TEST(Plugin, TensorsCarryWhatDlpackCarries) {
  Description description;
  description.op.forward = [](const ac_call* call) -> std::int32_t {
    const ac_dltensor& x = call->inputs[0]->dl;
    const bool right = call->struct_size == sizeof(ac_call) && call->storage == AC_FP32 &&
                       call->device.type == AC_CPU && x.ndim == 2 && x.shape[0] == 5 && x.shape[1] == 5 &&
                       x.strides[0] == 5 && x.strides[1] == 1 && x.byte_offset == 0 && x.dtype.code == AC_DL_FLOAT &&
                       x.dtype.bits == 32 && x.dtype.lanes == 1 && std::strcmp(call->inputs[0]->name, "x") == 0 &&
                       call->input_count == 2 && call->outputs != nullptr && call->cotangents == nullptr &&
                       std::strcmp(call->attributes[0].name, "scale") == 0;
    auto* scratch = static_cast<char*>(call->host->alloc(call->host->context, 100, 256));
    const bool aligned = scratch != nullptr && reinterpret_cast<std::uintptr_t>(scratch) % 256 == 0;
    return right && aligned ? forward(call) : 1;
  };
  const OpDef op = description.read()[0];
  const CaseResult result = run_case(op, default_call(op.signature, Dtype::fp32), {});
  EXPECT_EQ(result.verdict, Verdict::rounding) << (result.checks.empty() ? "" : result.checks.back().cause);
}

TEST(Plugin, ADeviceThatTheOpHasNotIsASkip) {
  Description description;
  description.op.devices = AC_ON_CUDA;
  const OpDef op = description.read()[0];
  EXPECT_EQ(run_case(op, default_call(op.signature, Dtype::fp32), {}).verdict, Verdict::skipped);
}

TEST(Plugin, WhatIsNoLibraryIsTold) {
  EXPECT_THROW(load_plugin("./no_such_library.so"), EnvironmentError);
  EXPECT_THROW(load_plugin(tests::in_data_root("/README.md")), EnvironmentError);
}

}  // namespace
}  // namespace ampcheck::checks
