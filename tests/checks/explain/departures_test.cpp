// SPDX-License-Identifier: Apache-2.0
// A kernel that departs from its precision contract is told from one that is wrong: planted departures have the code of
// theirs, bugs of the same size stay bugs.
#include "checks/explain/departures.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "checks/zoo/kit.h"
#include "src/rounding.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using zoo::Call;
using zoo::index_of;
using Function = float (*)(float);

float exact_exp(float x) { return std::exp(x); }
float exp_by_exp2(float x) { return std::exp2(x * 1.44269504f); }
float of_3_digits(float x) { return std::exp2(x * 1.44f); }
float of_5_digits(float x) { return std::exp2(x * 1.4427f); }
float exp_in_bf16(float x) { return zoo::bf16(std::exp(x)); }

float exact_root(float v) { return 1 / std::sqrt(v); }
template <int kSteps>
float root_by_bits(float v) {
  float y = std::bit_cast<float>(0x5f3759dfu - (std::bit_cast<std::uint32_t>(v) >> 1));
  for (int k = 0; k < kSteps; ++k) y = y * (1.5f - 0.5f * v * y * y);
  return y;
}
float root_of_another_constant(float v) {
  return std::bit_cast<float>(0x5f3759dfu - (std::bit_cast<std::uint32_t>(v) >> 1)) * 1.0005f;
}
float root_of_more(float v) { return 1 / std::sqrt(v + 1e-4f); }

float exact_sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float sigmoid_in_bf16(float x) { return zoo::bf16(exact_sigmoid(x)); }
float sigmoid_in_fp16(float x) { return zoo::fp16(exact_sigmoid(x)); }
float sigmoid_slightly_off(float x) { return exact_sigmoid(x) * (1 + 0x1p-8f); }

OpDef op_with(const char* name, kernels::Kernel kernel) {
  OpDef op = *find_op(name);
  op.kernel = std::move(kernel);
  return op;
}

OpDef softmax(Function exp) {
  return op_with("softmax", zoo::kernel_of(
                                [exp](const Call& call) {
                                  zoo::Values y = call.in("x");
                                  const std::int64_t n = call.columns("x");
                                  for (std::int64_t r = 0; r < call.rows("x"); ++r) {
                                    const float most = zoo::largest(zoo::row_of(y, r, n));
                                    float sum = 0;
                                    for (std::int64_t i = r * n; i < (r + 1) * n; ++i)
                                      sum += y[index_of(i)] = exp(y[index_of(i)] - most);
                                    for (std::int64_t i = r * n; i < (r + 1) * n; ++i) y[index_of(i)] /= sum;
                                  }
                                  call.out("y", y);
                                },
                                nullptr));
}

OpDef exponential(Function exp) {
  return op_with("exp", zoo::kernel_of(
                            [exp](const Call& call) {
                              zoo::Values y = call.in("x");
                              for (float& v : y) v = exp(v);
                              call.out("y", y);
                            },
                            nullptr));
}

OpDef silu(Function sigmoid) {
  return op_with("silu", zoo::kernel_of(
                             [sigmoid](const Call& call) {
                               zoo::Values y = call.in("x");
                               for (float& v : y) v *= sigmoid(v);
                               call.out("y", y);
                             },
                             [sigmoid](const Call& call) {
                               const zoo::Values x = call.in("x");
                               zoo::Values dx = call.in("dy");
                               for (std::size_t i = 0; i < x.size(); ++i) {
                                 const float s = sigmoid(x[i]);
                                 dx[i] *= s * (1 + x[i] * (1 - s));
                               }
                               call.out("dx", dx);
                             }));
}

OpDef rms_norm(Function root) {
  return op_with("rms_norm",
                 zoo::kernel_of(
                     [root](const Call& call) {
                       zoo::Values y = call.in("x"), roots;
                       const zoo::Values weight =
                           call.has("weight") ? call.in("weight") : zoo::Values(index_of(call.columns("x")), 1.0f);
                       const std::int64_t n = call.columns("x");
                       for (std::int64_t r = 0; r < call.rows("x"); ++r) {
                         const float squares = zoo::total(zoo::in_order, n, [&](std::int64_t i) {
                           return zoo::Term{y[index_of(r * n + i)], y[index_of(r * n + i)]};
                         });
                         roots.push_back(root(squares / static_cast<float>(n) + call.number("eps")));
                         for (std::int64_t i = 0; i < n; ++i)
                           y[index_of(r * n + i)] = y[index_of(r * n + i)] * roots.back() * weight[index_of(i)];
                       }
                       call.out("y", y);
                       call.out("inv_rms", roots);
                     },
                     nullptr));
}

/// Codes of what the values of a kernel's standard cases are wrong by; the backward is the built-in op's where the
/// kernel has none.
std::map<std::string, int> codes_of(OpDef op, Dtype storage, const std::string& only, std::string& words) {
  const OpDef& built_in = *find_op(op.signature.name);
  const auto forward = op.kernel.forward, backward = op.kernel.backward, usual = built_in.kernel.backward;
  const bool own = op.signature.name == "silu";
  op.kernel.backward = own ? backward : usual;
  std::map<std::string, int> out;
  int cases = 0;
  for (const OpCall& call : cases_of(op.signature, storage, CaseSet::quick, 1)) {
    if (call.layout != "dense" || call.str(op.signature).find("specials") != std::string::npos || ++cases > 24)
      continue;
    for (const CheckResult& check : run_case(op, call, {}).checks) {
      if (check.failed == 0 || !check.name().starts_with(only) || check.code == Code::none) continue;
      ++out[ampcheck::name(check.code)];
      if (words.empty() || check.code == Code::ac302 || check.code == Code::ac304)
        words = call.str(op.signature) + " " + check.name() + " " + ampcheck::name(check.code) + " " + check.cause;
    }
  }
  return out;
}

struct Planted {
  const char* what;
  OpDef op;
  Dtype storage;
  const char *only, *code, *words;
};

TEST(Departures, ArePrecisionContractsAndBugsAreNot) {
  const Planted all[] = {
      {"exp2 in exp", exponential(exp_by_exp2), Dtype::fp32, "forward", "AC304", "fast-math exp"},
      {"rsqrt by two steps", rms_norm(root_by_bits<2>), Dtype::fp32, "forward", "AC304",
       "fast rsqrt, 1/sqrt(v) from the bits of v and two steps of Newton"},
      {"rsqrt by one step", rms_norm(root_by_bits<1>), Dtype::fp32, "forward", "AC304",
       "fast rsqrt, 1/sqrt(v) from the bits of v and one step of Newton"},
      {"rsqrt by one step, bf16", rms_norm(root_by_bits<1>), Dtype::bf16, "forward", "AC304", "fast rsqrt"},
      {"sigmoid in bf16", silu(sigmoid_in_bf16), Dtype::fp32, "", "AC302", "keeps sigmoid(x) in bf16"},
      {"sigmoid in bf16, bf16", silu(sigmoid_in_bf16), Dtype::bf16, "", "AC302", "keeps sigmoid(x) in bf16"},
      {"sigmoid in fp16, fp16", silu(sigmoid_in_fp16), Dtype::fp16, "", "AC302", "keeps sigmoid(x) in fp16"},
      {"exponentials in bf16, bf16", softmax(exp_in_bf16), Dtype::bf16, "forward", "AC302",
       "keeps exp(x - max(x)) in bf16"},
      {"a constant of three digits", exponential(of_3_digits), Dtype::fp32, "forward", "AC101", ""},
      {"of five digits", exponential(of_5_digits), Dtype::fp32, "forward", "AC101", ""},
      {"of three digits in softmax", softmax(of_3_digits), Dtype::fp32, "forward", "AC101", ""},
      {"of three digits, bf16", softmax(of_3_digits), Dtype::bf16, "forward", "AC101", ""},
      {"a root of more", rms_norm(root_of_more), Dtype::fp32, "forward", "AC101", ""},
      {"a root with a factor", rms_norm(root_of_another_constant), Dtype::fp32, "forward", "AC101", ""},
      {"sigmoid slightly off", silu(sigmoid_slightly_off), Dtype::bf16, "", "AC101", ""},
      {"sigmoid slightly off, fp32", silu(sigmoid_slightly_off), Dtype::fp32, "", "AC101", ""},
  };
  for (const Planted& p : all) {
    if (testing::kSanitized && p.storage != Dtype::bf16) continue;
    std::string words;
    const std::map<std::string, int> codes = codes_of(p.op, p.storage, p.only, words);
    int others = 0;
    std::string listed;
    for (const auto& [code, count] : codes) {
      others += code == p.code ? 0 : count;
      listed += code + ": " + std::to_string(count) + " ";
    }
    const auto due = codes.find(p.code);
    EXPECT_TRUE(due != codes.end() && due->second > others) << p.what << ": " << listed << words;
    EXPECT_TRUE(contains(words, p.words)) << p.what << ": " << words;
  }
  for (const auto& [op, storage] : {std::pair(softmax(exact_exp), Dtype::fp32),
                                    {rms_norm(exact_root), Dtype::fp32},
                                    {silu(exact_sigmoid), Dtype::bf16},
                                    {exponential(exact_exp), Dtype::fp16}}) {
    std::string words;
    EXPECT_TRUE(codes_of(op, storage, "", words).empty()) << words;
  }
}

}  // namespace
}  // namespace ampcheck::checks
