// SPDX-License-Identifier: Apache-2.0
// What the description of an op gained since the first plug-ins: forward mode, kinks, extensions. Each through the C++
// door, which fills the C structures.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include <ampcheck/op.h>
#include "checks/case/case_reference.h"
#include "checks/data/regimes.h"
#include "checks/doors/plugin.h"
#include "checks/run/runner.h"

namespace ampcheck::checks {
namespace {

std::vector<OpDef> read_all(const ac_op& op) {
  const ac_plugin plugin = {sizeof(ac_plugin), AMPCHECK_OP_ABI, "test", nullptr, 1, 0, &op};
  return ops_of(&plugin, "libx.so");
}
OpDef read(const ac_op& op) { return read_all(op).at(0); }

std::string refusal(const ac_op& op) {
  try {
    read(op);
  } catch (const PluginError& error) {
    return error.what();
  }
  return "";
}

/// Codes of the cases' findings, and the names of the checks that have one.
std::pair<std::set<std::string>, std::set<std::string>> findings(const OpDef& op, CaseSet set = CaseSet::quick) {
  std::pair<std::set<std::string>, std::set<std::string>> out;
  for (const Dtype storage : op.signature.precision.storage)
    for (const OpCall& call : cases_of(op.signature, storage, set, 1))
      for (const CheckResult& check : run_case(op, call, {}).checks)
        if (convicts(check.verdict)) {
          out.first.insert(ampcheck::name(check.code));
          out.second.insert(check.name());
        }
  return out;
}

// ---- forward mode ---------------------------------------------------------------------------------------------------

/// ty of y = x / sqrt(mean(x^2) + eps) * w as kernels may have it, and wrong ones.
enum class Tangent { right, other_algebra, no_weight_term, no_norm_term, wrong_mean };

template <class T>
void rms_jvp(const op::Call& call, Tangent how) {
  const auto x = call.view<const T>("x"), w = call.view<const T>("w"), tx = call.view<const T>("x.tangent"),
             tw = call.view<const T>("w.tangent");
  const auto ty = call.view<T>("y.tangent");
  const std::int64_t columns = x.extent(1);
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    float square = 0, cross = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      square += float(x(i, j)) * float(x(i, j));
      cross += float(x(i, j)) * float(tx(i, j));
    }
    const float inv = 1 / std::sqrt(square / float(columns) + float(call.number("eps")));
    const float mean = cross / float(how == Tangent::wrong_mean ? columns + 1 : columns);
    for (std::int64_t j = 0; j < columns; ++j) {
      const float n = float(x(i, j)) * inv;
      float tn = how == Tangent::other_algebra ? inv * float(tx(i, j)) - float(x(i, j)) * (inv * inv * inv * mean)
                                               : inv * (float(tx(i, j)) - n * (inv * mean));
      if (how == Tangent::no_norm_term) tn = inv * float(tx(i, j));
      ty(i, j) = T(how == Tangent::no_weight_term ? tn * float(w(j)) : tn * float(w(j)) + n * float(tw(j)));
    }
  }
}

void describe_rms(op::Op& op, Tangent how) {
  op.input("x", "N D");
  op.input("w", "D").weight();
  op.output("y");
  op.attribute("eps", 1e-6);
  op.dim("N", 5, 9, 2);
  op.dim("D", 7, 33, 64).least(1);
  op.formula("n = x * rsqrt(mean(x^2, -1) + eps); y = n * w");
  op.forward([]<class T>(op::Type<T>, const op::Call& call) {
    const auto x = call.view<const T>("x"), w = call.view<const T>("w");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      float square = 0;
      for (std::int64_t j = 0; j < x.extent(1); ++j) square += float(x(i, j)) * float(x(i, j));
      const float inv = 1 / std::sqrt(square / float(x.extent(1)) + float(call.number("eps")));
      for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = T(float(x(i, j)) * inv * float(w(j)));
    }
  });
  op.backward([]<class T>(op::Type<T>, const op::Call& call) {
    const auto x = call.view<const T>("x"), w = call.view<const T>("w"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx"), dw = call.view<T>("dw");
    float* const total = call.scratch<float>(w.size());
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      float square = 0, dot = 0;
      for (std::int64_t j = 0; j < x.extent(1); ++j) square += float(x(i, j)) * float(x(i, j));
      const float inv = 1 / std::sqrt(square / float(x.extent(1)) + float(call.number("eps")));
      for (std::int64_t j = 0; j < x.extent(1); ++j) dot += float(dy(i, j)) * float(w(j)) * (float(x(i, j)) * inv);
      for (std::int64_t j = 0; j < x.extent(1); ++j) {
        const float n = float(x(i, j)) * inv;
        dx(i, j) = T(inv * (float(dy(i, j)) * float(w(j)) - n * (dot / float(x.extent(1)))));
        total[j] += float(dy(i, j)) * n;
      }
    }
    for (std::int64_t j = 0; j < w.size(); ++j) dw[j] = T(total[j]);
  });
  op.form("fused",
          "n = x * rsqrt(mean(x^2, -1) + eps)  with dx = rsqrt(mean(x^2, -1) + eps) * (dn - n * mean(dn * n, -1)); y = "
          "n * w");
  op.jvp([how]<class T>(op::Type<T>, const op::Call& call) { rms_jvp<T>(call, how); });
}

TEST(ForwardMode, RightTangentsPass) {
  for (const Tangent how : {Tangent::right, Tangent::other_algebra}) {
    op::Op op("rms");
    describe_rms(op, how);
    const OpDef made = read(op.finish());
    EXPECT_EQ(findings(made).second, std::set<std::string>());
    const OpCall call = cases_of(made.signature, Dtype::bf16, CaseSet::quick, 1).front();
    std::int64_t compared = 0;
    for (const CheckResult& check : run_case(made, call, {}).checks)
      compared += check.name() == "jvp y.tangent" ? check.compared : 0;
    EXPECT_GT(compared, 0);
  }
}

TEST(ForwardMode, WrongTangentsAreConvictedAndNothingElse) {
  for (const Tangent how : {Tangent::no_weight_term, Tangent::no_norm_term, Tangent::wrong_mean}) {
    op::Op op("rms");
    describe_rms(op, how);
    EXPECT_EQ(findings(read(op.finish())).second, std::set<std::string>({"jvp y.tangent"})) << static_cast<int>(how);
  }
}

// <v, J u> = <J^T v, u>, with the formula's own values: forward mode is the transpose of the gradients, in every input
// at once.
TEST(ForwardMode, OfTheReferenceIsTheTransposeOfItsGradients) {
  op::Op op("rms");
  describe_rms(op, Tangent::right);
  const OpDef made = read(op.finish());
  for (const OpCall& call : cases_of(made.signature, Dtype::fp32, CaseSet::quick, 3)) {
    if (call.range != "normal") continue;
    NamedValues inputs, tangents, cotangents;
    for (const TensorSpec& spec : made.signature.inputs) {
      inputs[spec.name] = input_values(made.signature, call, spec);
      tangents[tangent_name(spec.name)] = cotangent_values(call, spec.name, call.shape(spec), Dtype::fp32, 0);
    }
    CaseReference reference(made, call, inputs);
    const Shape shape = reference.recording().output("y").shape();
    cotangents["dy"] = cotangent_values(call, "y", shape, Dtype::fp32, 0);
    reference.set_tangents(tangents);
    reference.set_cotangents(cotangents);
    for (const std::size_t form : {0u, 1u}) {
      double left = 0, right = 0, size = 0;
      const auto dot = [&](const Interval& of, const std::vector<double>& with, double& sum) {
        for (std::size_t i = 0; i < with.size(); ++i) {
          sum += of.value[i] * with[i];
          size += std::fabs(of.value[i] * with[i]);
        }
      };
      dot(reference.interval(form, Pass::jvp, "y.tangent", Dtype::fp32), cotangents.at("dy"), left);
      dot(reference.interval(form, Pass::backward, "dx", Dtype::fp32), tangents.at("x.tangent"), right);
      dot(reference.interval(form, Pass::backward, "dw", Dtype::fp32), tangents.at("w.tangent"), right);
      EXPECT_NEAR(left, right, 1e-12 * size) << call.str(made.signature) << " form " << form;
    }
  }
}

TEST(ForwardMode, WantsGradients) {
  op::Op op("plain");
  op.input("x", "N").no_gradient();
  op.output("y").dims("N");
  op.dim("N", 2, 3, 4);
  const auto nothing = [](const op::Call&) {};
  op.forward(nothing);
  op.jvp(nothing);
  EXPECT_NE(refusal(op.finish()).find("jvp, got one for an op without gradients"), std::string::npos)
      << refusal(op.finish());
}

TEST(ForwardMode, IsAbsentFromOlderDescriptions) {
  op::Op op("rms");
  describe_rms(op, Tangent::no_weight_term);
  ac_op old = op.finish();
  old.struct_size = offsetof(ac_op, jvp);  // as compiled before: what lies behind is not read
  const OpDef made = read(old);
  EXPECT_FALSE(made.signature.forward_mode);
  EXPECT_EQ(findings(made).second, std::set<std::string>());
  old.struct_size = offsetof(ac_op, jvp) - 1;
  EXPECT_NE(refusal(old).find("struct_size"), std::string::npos);
}

// ---- kinks ----------------------------------------------------------------------------------------------------------

/// min(x, 2.5), whose gradient at 2.5 is 0 by the formula; `through`: the kernel passes it on there.
void describe_clamp(op::Op& op, bool through, bool declared) {
  op.input("x", "N D");
  op.output("y");
  op.dim("N", 5, 9, 2);
  op.dim("D", 7, 33, 64);
  op.storage({AC_FP32});
  op.formula("y = where(x < 2.5, x, 2.5)");
  op.forward([](const op::Call& call) {
    const auto x = call.view<const float>("x");
    const auto y = call.view<float>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = x[i] < 2.5f ? x[i] : 2.5f;
  });
  op.backward([through](const op::Call& call) {
    const auto x = call.view<const float>("x"), dy = call.view<const float>("dy");
    const auto dx = call.view<float>("dx");
    for (std::int64_t i = 0; i < x.size(); ++i) dx[i] = x[i] < 2.5f || (through && x[i] == 2.5f) ? dy[i] : 0;
  });
  if (declared) op.kink("x", 2.5, "gradient 0");
}

TEST(Kinks, AConventionIsTestedWhereItIsDeclared) {
  const auto codes = [](bool through, bool declared, bool admitted = false) {
    op::Op op("clamp");
    describe_clamp(op, through, declared);
    if (admitted) op.form("gradient 1", "y = where(x <= 2.5, x, 2.5)");
    return findings(read(op.finish())).second.size();
  };
  EXPECT_EQ(codes(false, true), 0u);
  EXPECT_GT(codes(true, true), 0u) << "another convention than the formula's";
  EXPECT_EQ(codes(true, false), 0u) << "no data of the plain cases lies at 2.5";
  EXPECT_EQ(codes(true, true, true), 0u) << "a further form admits that convention";
}

TEST(Kinks, ThatAreNoneAreRefused) {
  const auto refused = [](const char* input, double at) {
    op::Op op("clamp");
    describe_clamp(op, false, false);
    op.kink(input, at);
    return refusal(op.finish());
  };
  EXPECT_NE(refused("w", 1).find("kink 1] input, got 'w'"), std::string::npos) << refused("w", 1);
  op::Op plain("plain");
  plain.input("x", "N");
  plain.output("y").dims("N");
  plain.dim("N", 2, 3, 4);
  plain.kink("x", 0);
  plain.forward([](const op::Call&) {});
  plain.backward([](const op::Call&) {});
  EXPECT_NE(refusal(plain.finish()).find("kinks, got some for an op without a form"), std::string::npos);
  EXPECT_NE(refused("x", std::nan("")).find("at, got"), std::string::npos) << refused("x", std::nan(""));
}

// ---- what is promised of the range
// ------------------------------------------------------------------------------------

/// y = 3 x; the backward goes by dy 2^100, or straight on.
void describe_triple(op::Op& op, bool detour) {
  op.input("x", "N D");
  op.output("y");
  op.dim("N", 5, 9, 2);
  op.dim("D", 7, 33, 64);
  op.storage({AC_BF16});
  op.formula("y = 3 * x");
  op.forward([](const op::Call& call) {
    const auto x = call.view<const op::BFloat16>("x");
    const auto y = call.view<op::BFloat16>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = op::BFloat16(3 * float(x[i]));
  });
  op.backward([detour](const op::Call& call) {
    const auto dy = call.view<const op::BFloat16>("dy");
    const auto dx = call.view<op::BFloat16>("dx");
    for (std::int64_t i = 0; i < dy.size(); ++i)
      dx[i] = op::BFloat16(detour ? float(dy[i]) * 0x1p100f * 3 * 0x1p-100f : 3 * float(dy[i]));
  });
}

TEST(Range, APromiseIsHeldTo) {
  for (const bool detour : {false, true}) {
    op::Op plain("triple"), promised("triple");
    describe_triple(plain, detour);
    describe_triple(promised, detour);
    promised.loss_scales(0x1p-20, 0x1p60);
    const OpDef made = read(promised.finish());
    const OpCall call = parse_call("triple(x=bf16[5,7],seed=1)", made.signature);
    const CaseResult with = run_case(made, call, {}), without = run_case(read(plain.finish()), call, {});
    EXPECT_EQ(with.code, detour ? Code::ac203 : Code::none);
    EXPECT_EQ(convicts(with.verdict), detour);
    EXPECT_FALSE(convicts(without.verdict)) << "nothing is promised";
  }
}

TEST(Range, IsAbsentFromOlderDescriptions) {
  op::Op op("triple");
  describe_triple(op, true);
  op.loss_scales(1, 65536).largest_input(100);
  ac_op now = op.finish();
  EXPECT_EQ(read(now).signature.range.largest_scale, 65536);
  EXPECT_EQ(read(now).signature.range.largest_input, 100);
  ac_contract old = *now.contract;
  old.struct_size = offsetof(ac_contract, largest_input);
  now.contract = &old;
  EXPECT_FALSE(read(now).signature.range.declared());
}

TEST(Range, ThatIsNoneIsRefused) {
  const auto refused = [](double low, double high, double input) {
    op::Op op("triple");
    describe_triple(op, false);
    op.loss_scales(low, high).largest_input(input);
    return refusal(op.finish());
  };
  EXPECT_EQ(refused(1, 1, 0), "");
  for (const auto& [low, high] : {std::pair(0.0, 2.0), std::pair(3.0, 8.0), std::pair(8.0, 2.0),
                                  std::pair(1.0, HUGE_VAL), std::pair(-1.0, 2.0), std::pair(1.0, std::nan(""))})
    EXPECT_NE(refused(low, high, 0).find("contract] loss_scales, got"), std::string::npos)
        << low << " " << high << refused(low, high, 0);
  for (const double input : {-1.0, HUGE_VAL, std::nan("")})
    EXPECT_NE(refused(0, 0, input).find("contract] largest_input, got"), std::string::npos) << input;
}

// ---- double backward ------------------------------------------------------------------------------------------------

/// y = s x, s = x^2, which is saved; dx = 3 s dy. `factor`: of x dy dgrad_x in the double backward, 6 is right.
void describe_cube(op::Op& op, float factor) {
  op.input("x", "N D");
  op.output("y");
  op.saved("s");
  op.dim("N", 5, 9, 2);
  op.dim("D", 7, 33, 64);
  op.formula("s = stored(s, x * x); y = s * x");
  op.forward([]<class T>(op::Type<T>, const op::Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    const auto s = call.view<float>("s");
    for (std::int64_t i = 0; i < x.size(); ++i) {
      s[i] = float(x[i]) * float(x[i]);
      y[i] = T(s[i] * float(x[i]));
    }
  });
  op.backward([]<class T>(op::Type<T>, const op::Call& call) {
    const auto s = call.view<const float>("s");
    const auto dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < s.size(); ++i) dx[i] = T(3 * (s[i] * float(dy[i])));
  });
  op.double_backward([factor]<class T>(op::Type<T>, const op::Call& call) {
    const auto s = call.view<const float>("s");
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy"), c = call.view<const T>("dgrad_x");
    const auto dx = call.view<T>("dx"), ddy = call.view<T>("ddy");
    for (std::int64_t i = 0; i < s.size(); ++i) {
      dx[i] = T(factor * (float(x[i]) * float(dy[i]) * float(c[i])));
      ddy[i] = T(3 * (s[i] * float(c[i])));
    }
  });
}

TEST(DoubleBackward, IsJudgedAsAnOpOfItsOwn) {
  for (const float factor : {6.0f, 3.0f}) {
    op::Op op("cube");
    describe_cube(op, factor);
    const std::vector<OpDef> ops = read_all(op.finish());
    ASSERT_EQ(ops.size(), 2u);
    EXPECT_EQ(ops[1].signature.name, "cube_backward");
    EXPECT_EQ(findings(ops[0]).second, std::set<std::string>()) << "first order is right";
    const OpCall call = parse_call("cube_backward(x=fp32[5,7],dy=fp32,seed=1)", ops[1].signature);
    const CaseResult result = run_case(ops[1], call, {});
    std::int64_t compared = 0;
    for (const CheckResult& check : result.checks)
      compared += check.name().starts_with("backward ddy") ? check.compared : 0;
    EXPECT_GT(compared, 0);
    if (factor == 6) {
      EXPECT_EQ(findings(ops[1]).second, std::set<std::string>());
    } else {
      EXPECT_EQ(result.code, Code::ac101);
      EXPECT_EQ(ampcheck::name(subject_of(*deciding_check(result))), "backward dx");
    }
  }
}

TEST(DoubleBackward, WantsWhatItCanBeJudgedBy) {
  op::Op op("cube");
  describe_cube(op, 6);
  ac_op made = op.finish();
  ac_output saved = *made.saved;
  saved.type = AC_TYPE_STORAGE;
  ac_op stored = made;
  stored.saved = &saved;
  EXPECT_NE(refusal(stored).find("double_backward] [cube] backward as an op, got"), std::string::npos)
      << refusal(stored);
  ac_double_backward none = {sizeof none, 0, nullptr};
  ac_extension extension = {sizeof extension, AC_EXTENSION_REQUIRED, AC_DOUBLE_BACKWARD, &none};
  made.extensions = &extension;
  EXPECT_NE(refusal(made).find("extension 1, double_backward] run, got a null pointer"), std::string::npos)
      << refusal(made);
  extension.data = nullptr;
  EXPECT_NE(refusal(made).find("double_backward] data, got a null pointer"), std::string::npos) << refusal(made);
}

TEST(DoubleBackward, AnOlderHostGivesNoneOfItsTensors) {
  ac_call call = {};
  call.struct_size = offsetof(ac_call, gradient_cotangents);
  call.input_count = 1;
  call.gradient_cotangents =
      reinterpret_cast<const ac_tensor* const*>(std::uintptr_t{8});  // what lies behind an older call is not its own
  EXPECT_FALSE(op::Call(&call).find<const float>("dgrad_x"));
}

// ---- variants -------------------------------------------------------------------------------------------------------

TEST(Variants, AreOpsOfTheirOwnWithTheKernelsThatTheyHaveNot) {
  op::Op op("cube");
  describe_cube(op, 6);
  op.variant("wrong").backward([]<class T>(op::Type<T>, const op::Call& call) {
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < dx.size(); ++i) dx[i] = T(1);
  });
  op.variant("fails").forward([](const op::Call&) { throw std::runtime_error("no such tile"); });
  const std::vector<OpDef> ops = read_all(op.finish());
  ASSERT_EQ(ops.size(), 4u) << "the op, its backward, two variants";
  EXPECT_EQ(ops[2].signature.name, "cube.wrong");
  EXPECT_EQ(ops[3].signature.name, "cube.fails");
  EXPECT_EQ(findings(ops[0]).first, std::set<std::string>());
  const auto wrong = findings(ops[2]);
  EXPECT_FALSE(wrong.first.empty());
  for (const std::string& check : wrong.second) EXPECT_EQ(check.find("forward y"), std::string::npos) << check;
  EXPECT_FALSE(findings(ops[3]).first.empty()) << "what a kernel throws is its finding";
}

TEST(Variants, WhatIsNoVariantIsRefused) {
  op::Op op("cube");
  describe_cube(op, 6);
  ac_op made = op.finish();
  ac_variant list[2] = {{sizeof(ac_variant), 0, "a", made.forward, nullptr, nullptr, nullptr},
                        {sizeof(ac_variant), 0, "a", made.forward, nullptr, nullptr, nullptr}};
  ac_variants variants = {sizeof(ac_variants), 2, list};
  const ac_extension extension = {sizeof extension, 0, AC_VARIANTS, &variants};
  made.extensions = &extension;
  made.extension_count = 1;
  const auto expect = [&](const char* part) {
    EXPECT_NE(refusal(made).find(part), std::string::npos) << part << "\n" << refusal(made);
  };
  expect("variant 2] name, got 'a' a second time");
  list[1].name = "b.c";
  expect("variant 2] name, got 'b.c'");
  list[1].name = "b";
  EXPECT_EQ(refusal(made), "");
  list[1].forward = nullptr;
  expect("variant 2] kernels, got none");
  list[1].jvp = made.forward;
  expect("variant 2] jvp, got one for an op without");
  variants.variant_count = 0;
  expect("variants, got none");
  variants.variant_count = -1;
  expect("variant count, got -1");
}

// ---- extensions -----------------------------------------------------------------------------------------------------

TEST(Extensions, AreIgnoredUnlessRequired) {
  const auto refused = [](const char* name, bool required) {
    op::Op op("clamp");
    describe_clamp(op, false, false);
    const int data = 7;
    op.extension(name, &data, required);
    return refusal(op.finish());
  };
  EXPECT_EQ(refused("vendor.tiling/3", false), "");
  EXPECT_NE(refused("vendor.tiling/3", true)
                .find("extension 1] got 'vendor.tiling/3', which is required and which this ampcheck does not know"),
            std::string::npos)
      << refused("vendor.tiling/3", true);
  for (const char* name : {"vendor.tiling", "/1", "vendor/", "vendor/x", ""})
    EXPECT_NE(refused(name, false).find("want it with a version"), std::string::npos) << name;
}

TEST(Extensions, ASourceIsALineOfAFile) {
  const auto refused = [](const ac_source* source) {
    op::Op op("clamp");
    describe_clamp(op, false, false);
    op.extension(AC_SOURCE, source);
    return refusal(op.finish());
  };
  const ac_source right = {sizeof(ac_source), 12, "ops/clamp.cpp"}, before = {sizeof(ac_source), 0, "clamp.cpp"},
                  nowhere = {sizeof(ac_source), 1, nullptr};
  EXPECT_EQ(refused(&right), "");
  EXPECT_NE(refused(&before).find("source] line, got 0, want 1 or more"), std::string::npos) << refused(&before);
  EXPECT_NE(refused(&nowhere).find("source] file, got an empty text"), std::string::npos) << refused(&nowhere);
  EXPECT_NE(refused(nullptr).find("source] data, got a null pointer"), std::string::npos) << refused(nullptr);
}

TEST(Extensions, OfOneNameAreRefused) {
  op::Op op("clamp");
  describe_clamp(op, false, false);
  op.extension("a/1", nullptr).extension("a/1", nullptr);
  EXPECT_NE(refusal(op.finish()).find("a second time"), std::string::npos);
}

}  // namespace
}  // namespace ampcheck::checks
