// SPDX-License-Identifier: Apache-2.0
// Streams by row blocks give the bits of the evaluation at once, at every SIMD width.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "checks/define/op_def.h"
#include "checks/run/runner.h"
#include "reference/ball/ball.h"
#include "reference/ball/ball_rules.h"
#include "reference/certify/certify.h"
#include "src/random.h"
#include "src/rounding.h"
#include "tests/support/cotangents_of.h"

namespace ampcheck::checks {
namespace {

NamedValues inputs_of(const OpDef& op, const OpCall& call) {
  const RunOptions options;
  return CaseRun(op, call, options).reference.inputs();
}

bool same(const double* a, const double* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(double)) == 0;
}

/// Streams some tensors and compares every part with the whole balls of `whole`; returns the number of parts.
int compare_parts(CaseReference& streamed, CaseReference& whole, std::size_t form, Pass pass,
                  const std::vector<std::string>& names, const std::string& where) {
  std::vector<std::int64_t> covered(names.size(), 0);
  int parts = 0;
  streamed.stream_uniform(form, pass, names, [](std::size_t, std::int64_t, const reference::Ball&) {
  });  // what it keeps of moved leaves is used below
  const bool by_rows =
      streamed.stream(form, pass, names, [&](std::size_t which, std::int64_t first, const reference::Ball& part) {
        const reference::Ball& want = whole.ball(form, pass, names[which]);
        ++parts;
        covered[which] += part.count();
        EXPECT_TRUE(same(part.v.get(), want.v.get() + first, part.count()))
            << where << " value of " << names[which] << " from " << first;
        for (std::int64_t i = 0; i < part.count(); ++i) {
          const double got = part.r ? part.r[i] : 0.0, r = want.r ? want.r[first + i] : 0.0;
          ASSERT_EQ(got, r) << where << " radius of " << names[which] << " at " << first + i;
        }
      });
  if (!by_rows) return 0;
  for (std::size_t k = 0; k < names.size(); ++k)
    EXPECT_EQ(covered[k], whole.ball(form, pass, names[k]).count()) << where << " " << names[k];
  return parts;
}

std::vector<std::string> outputs_of(CaseReference& reference, std::size_t form) {
  std::vector<std::string> out;
  for (const auto& [name, node] : reference.recording(form).outputs) out.push_back(name);
  for (const auto& stored : reference.recording(form).stored)
    if (std::any_of(reference.op().signature.saved.begin(), reference.op().signature.saved.end(),
                    [&](const auto& s) { return s.name == stored.first; }))
      out.push_back(stored.first);
  return out;
}

std::vector<std::string> gradients_of(CaseReference& reference, std::size_t form) {
  std::vector<std::string> out;
  for (const auto& [name, node] : reference.recording(form).gradients) out.push_back(name);
  return out;
}

OpCall large_call(const OpDef& op, std::size_t which) {
  OpCall call = default_call(op.signature, Dtype::bf16);
  call.dims = reference::standard_dims(op.signature, which);
  return call;
}

TEST(BallRows, StreamsHaveTheBitsOfTheWholeInEveryFormOfEveryOp) {
  int streamed = 0, forms = 0;
  for (const OpDef& op : all_ops())
    for (const std::size_t which : {std::size_t{1}, std::size_t{2}}) {
      const OpCall call = large_call(op, which);
      if (op.signature.valid && !op.signature.valid(call.dims, call.attributes)) continue;
      for (std::size_t form = 0; form < op.forms.size(); ++form, ++forms) {
        CaseReference a(op, call, inputs_of(op, call)), b(op, call, inputs_of(op, call));
        const std::string where = call.str(op.signature) + " form " + op.forms[form].name;
        int parts = compare_parts(a, b, form, Pass::forward, outputs_of(a, form), where + " forward");
        for (const int probe : {0, 1, 2}) {
          a.set_cotangents(cotangents_of(a, probe));
          b.set_cotangents(cotangents_of(b, probe));
          parts += compare_parts(a, b, form, Pass::backward, gradients_of(a, form),
                                 where + " probe " + std::to_string(probe));
        }
        streamed += parts > 4;
      }
    }
  EXPECT_GT(streamed, 50) << "of " << forms << " forms and shapes: what went by rows no longer does";
}

// Axes that merely look like rows: extents that agree by chance, several leading axes, rows that a map or a product
// moves.
TEST(BallRows, ExtentsThatAgreeByChanceAreNoRows) {
  for (const char* name :
       {"layer_norm(x=fp32[72,72])", "rms_norm(x=bf16[72,72])", "softmax(x=bf16[128,64])",
        "attention(q=bf16[4,4,32,32])", "attention(q=bf16[2,3,64,8])", "conv2d(x=bf16[4,4,40,40],weight=bf16[4,4,3,3])",
        "max_pool2d(x=bf16[8,8,16,16])", "cross_entropy(x=fp32[64,128])", "swiglu(gate=bf16[64,128])"}) {
    const OpDef& op = *find_op(op_of(name));
    const OpCall call = parse_call(name, op.signature);
    int parts = 0;
    for (std::size_t form = 0; form < op.forms.size(); ++form) {
      CaseReference a(op, call, inputs_of(op, call)), b(op, call, inputs_of(op, call));
      const std::string where = std::string(name) + " form " + op.forms[form].name;
      parts += compare_parts(a, b, form, Pass::forward, outputs_of(a, form), where);
      a.set_cotangents(cotangents_of(a, 1));
      b.set_cotangents(cotangents_of(b, 1));
      parts += compare_parts(a, b, form, Pass::backward, gradients_of(a, form), where);
    }
    EXPECT_GT(parts, 4) << name << " does not go by rows: nothing was compared";
  }
}

TEST(BallRows, OnlyTheRowsAskedFor) {
  for (const char* name : {"softmax(x=bf16[64,512])", "layer_norm(x=bf16[64,512])", "gelu(x=bf16[64,512])"}) {
    const OpDef& op = *find_op(op_of(name));
    const OpCall call = parse_call(name, op.signature);
    CaseReference a(op, call, inputs_of(op, call)), b(op, call, inputs_of(op, call));
    const auto compare_rows = [&](Pass pass, const char* tensor, const std::vector<char>& rows) {
      std::int64_t seen = 0;
      ASSERT_TRUE(a.stream(
          0, pass, {tensor},
          [&](std::size_t, std::int64_t first, const reference::Ball& part) {
            seen += part.count();
            const reference::Ball& want = b.ball(0, pass, tensor);
            for (std::int64_t i = first; i < first + part.count(); ++i)
              EXPECT_TRUE(rows[static_cast<std::size_t>(i / 512)]);
            EXPECT_TRUE(same(part.v.get(), want.v.get() + first, part.count()))
                << name << " " << tensor << " from " << first;
            EXPECT_TRUE(same(part.r.get(), want.r.get() + first, part.count()))
                << name << " " << tensor << " from " << first;
          },
          &rows));
      EXPECT_EQ(seen, 512 * std::count(rows.begin(), rows.end(), 1));
    };
    std::vector<char> rows(64, 0);
    rows[0] = rows[33] = rows[34] = 1;
    compare_rows(Pass::forward, "y", rows);
    for (const int probe : {0, 1, 2}) {
      a.set_cotangents(cotangents_of(a, probe));
      b.set_cotangents(cotangents_of(b, probe));
      compare_rows(Pass::backward, "dx", rows);
      rows[static_cast<std::size_t>(20 + probe)] = rows[static_cast<std::size_t>(34 + probe)] = 1;
      rows[0] = 0;
    }
  }
}

// Places in rows of 512: none in most, several in some, the ends of a row in others.
reference::RowElements some_elements(int which, std::vector<char>& rows) {
  reference::RowElements elements;
  for (std::size_t row = static_cast<std::size_t>(which); row < rows.size(); row += 3 + row % 5) {
    for (std::int64_t at = static_cast<std::int64_t>(row) % 7 * 85; at < 512;
         at += 1 + static_cast<std::int64_t>(row) * 29)
      elements[static_cast<std::int64_t>(row)].push_back(at);
    rows[row] = 1;
  }
  elements[63] = {0, 511};
  rows[63] = 1;
  return elements;
}

TEST(BallRows, OnlyTheElementsAskedFor) {
  for (const char* name : {"softmax(x=bf16[64,512])", "log_softmax(x=fp16[64,512])", "layer_norm(x=bf16[64,512])",
                           "rms_norm(x=bf16[64,512])", "gelu(x=bf16[64,512])", "swiglu(gate=bf16[64,512])"}) {
    const OpDef& op = *find_op(op_of(name));
    const OpCall call = parse_call(name, op.signature);
    for (std::size_t form = 0; form < op.forms.size(); ++form) {
      CaseReference a(op, call, inputs_of(op, call)), b(op, call, inputs_of(op, call));
      const auto compare = [&](Pass pass, const std::string& tensor, int which) {
        std::vector<char> rows(64, 0);
        const reference::RowElements elements = some_elements(which, rows);
        ASSERT_TRUE(a.takes_elements(form, pass, {tensor})) << name << " " << tensor;
        reference::RowElements seen;
        ASSERT_TRUE(a.stream(
            form, pass, {tensor},
            [&](std::size_t, std::int64_t first, const reference::Ball& part) {
              ASSERT_EQ(part.count(), 1) << name << " " << tensor;
              seen[first / 512].push_back(first % 512);
              const reference::Ball& want = b.ball(form, pass, tensor);
              EXPECT_EQ(part.v[0], want.v[first]) << name << " " << tensor << " at " << first;
              EXPECT_EQ(part.r ? part.r[0] : 0.0, want.r ? want.r[first] : 0.0)
                  << name << " form " << op.forms[form].name << " " << tensor << " at " << first;
            },
            &rows, &elements));
        EXPECT_EQ(seen, elements) << name << " " << tensor;
      };
      compare(Pass::forward, op.signature.outputs.front().name, 0);
      for (const int probe : {0, 1, 2}) {
        a.set_cotangents(cotangents_of(a, probe));
        b.set_cotangents(cotangents_of(b, probe));
        compare(Pass::backward, gradient_name(op.signature.inputs.front().name), probe);
      }
    }
  }
}

// What follows from other rows, or from moved elements, comes by rows or whole.
TEST(BallRows, WhereElementsCannotBeTakenAloneRowsComeWhole) {
  for (const char* name : {"conv2d(x=bf16[4,4,40,40],weight=bf16[4,4,3,3])", "max_pool2d(x=bf16[8,8,16,16])",
                           "cross_entropy(x=bf16[64,512])"}) {
    const OpDef& op = *find_op(op_of(name));
    const OpCall call = parse_call(name, op.signature);
    CaseReference reference(op, call, inputs_of(op, call));
    EXPECT_FALSE(reference.takes_elements(0, Pass::forward, {op.signature.outputs.front().name})) << name;
  }
  const OpDef& norm = *find_op("layer_norm");
  const OpCall call = parse_call("layer_norm(x=bf16[64,512])", norm.signature);
  CaseReference reference(norm, call, inputs_of(norm, call));
  reference.set_cotangents(cotangents_of(reference, 1));
  EXPECT_FALSE(reference.takes_elements(0, Pass::backward, {"dweight"})) << "a sum over all rows";
  EXPECT_FALSE(reference.takes_elements(0, Pass::backward, {"dx", "dweight"}));
}

TEST(BallRows, NearTheEndsOfTheRangeTheWholeIsUsed) {
  const OpDef& op = *find_op("mul");
  const OpCall call = parse_call("mul(x=bf16[64,129],y=bf16[64,129],range=near_max)", op.signature);
  CaseReference reference(op, call, inputs_of(op, call));
  EXPECT_FALSE(reference.stream(0, Pass::forward, {"z"}, [](std::size_t, std::int64_t, const reference::Ball&) {}));
  EXPECT_FALSE(reference.tame());
}

/// Extremes of values alone: zeros, subnormal and non-finite numbers at every place of vectors of any width.
TEST(BallRows, EveryWidthSeesTheSameExtremes) {
  constexpr double kInf = HUGE_VAL, kNan = NAN;
  const Random random(3, "extremes");
  for (const std::string_view target : simd_targets())
    for (const double special : {0.0, -0.0, 0x1p-1074, -0x1p-1030, kInf, -kInf, kNan})
      for (std::size_t n = 1; n <= 20; ++n)
        for (std::size_t at = 0; at < n; ++at) {
          set_simd_target(target);
          std::vector<double> values(n);
          for (std::size_t i = 0; i < n; ++i) values[i] = (random.uniform(i) + 0.5) * (i % 2 == 0 ? 1 : -1);
          values[at] = special;
          reference::Extremes seen{.smallest = kInf};
          reference::see_values(values.data(), n, seen);
          double smallest = kInf, largest = 0;
          for (const double v : values) {
            if (v != 0 && std::isfinite(v)) smallest = std::min(smallest, std::fabs(v));
            if (std::isfinite(special))
              largest = std::max(largest, std::fabs(v));  // of numbers that are not all finite nothing is said
          }
          EXPECT_EQ(seen.finite, std::isfinite(special)) << target << " " << special << " at " << at << " of " << n;
          EXPECT_EQ(seen.zero, special == 0) << target << " " << special << " at " << at << " of " << n;
          EXPECT_EQ(seen.smallest, smallest) << target << " " << special << " at " << at << " of " << n;
          EXPECT_EQ(seen.largest, largest) << target << " " << special << " at " << at << " of " << n;
        }
  set_simd_target("");
}

TEST(BallRows, EveryWidthGivesTheSameBits) {
  const OpDef& op = *find_op("gelu");
  const OpCall call = parse_call("gelu(x=bf16[64,129])", op.signature);
  std::vector<double> first;
  for (const std::string_view target : simd_targets()) {
    set_simd_target(target);
    CaseReference reference(op, call, inputs_of(op, call));
    reference.set_cotangents(cotangents_of(reference, 1));
    const reference::Ball& ball = reference.ball(0, Pass::backward, "dx");
    std::vector<double> bits(ball.v.get(), ball.v.get() + ball.count());
    bits.insert(bits.end(), ball.r.get(), ball.r.get() + ball.count());
    if (first.empty()) first = bits;
    EXPECT_TRUE(same(first.data(), bits.data(), static_cast<std::int64_t>(bits.size()))) << target;
  }
  set_simd_target("");
}

TEST(Measure, SeesExtremesAndWhatIsNotFinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const Random random(1, "measure");
  for (std::int64_t n = 0; n < 21; ++n)
    for (const double odd : {1.0, kInf, -kInf, kNan, 0.0}) {
      reference::Ball ball;
      ball.shape = Shape{n};
      ball.v = reference::make_channel(n);
      ball.r = reference::make_channel(n);
      double largest = 0, smallest = kInf;
      bool finite = true;
      for (std::int64_t i = 0; i < n; ++i) {
        ball.v[i] = i == n / 2 ? odd : random.normal(static_cast<std::uint64_t>(i));
        ball.r[i] = 0x1p-10;
        const double size = std::fabs(ball.v[i]);
        finite &= std::isfinite(size);
        if (size > largest) largest = size;
        if (size > 0 && size < smallest) smallest = size;
      }
      EXPECT_TRUE(reference::measure(ball)) << n;
      EXPECT_EQ(ball.range.finite, finite) << n << " " << odd;
      EXPECT_EQ(ball.range.largest, largest) << n << " " << odd;
      if (finite) {
        EXPECT_EQ(ball.range.smallest, smallest == kInf ? 1.0 : smallest) << n << " " << odd;
      }
      if (n == 0) continue;
      for (const double wide : {0x1p100, kInf, kNan}) {
        ball.r[n - 1] = wide;
        EXPECT_FALSE(reference::measure(ball)) << n << " " << wide;
      }
    }
}

// The sums of these gradients overflow in some orders: another order's number is no verdict.
TEST(BallRows, SumsThatOverflowInSomeOrderAreOpen) {
  for (const char* name : {"conv2d(x=bf16[2,3,5,67],weight=bf16[2,3,3,3],cotangent=near_max,seed=1)",
                           "linear(x=fp32[5,67],weight=fp32[3,67],cotangent=near_max,seed=1)",
                           "embedding(weight=bf16[2,67],index=i64[5],cotangent=near_max,seed=1)"}) {
    const OpDef& op = *find_op(op_of(name));
    const CaseResult result = run_case(op, parse_call(name, op.signature), {});
    EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
    std::int64_t open = 0;
    for (const CheckResult& check : result.checks) open += check.range;
    EXPECT_GT(open, 0) << name;
  }
}

/// By vectors as one by one, of every length that ends within one.
TEST(BallRows, TheLeastLowestBitOfARunIsThatOfItsElements) {
  const Random random(1, "lowest bits");
  const double odd[] = {
      0.0, -0.0, 1, -2, 0x1p-1022, 0x1p-1074, 3 * 0x1p-1074, HUGE_VAL, std::nan(""), 0x1.8p100, -0x1.00001p-30, 65536};
  for (std::int64_t n = 0; n < 70; ++n)
    for (std::uint64_t turn = 0; turn < 20; ++turn) {
      std::vector<double> values;
      double want = HUGE_VAL;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::uint64_t k = random.below(static_cast<std::uint64_t>(n * 1000 + i) + turn * 1000000, 40);
        values.push_back(
            k < std::size(odd) && turn % 2 == 0
                ? odd[k]
                : std::ldexp(static_cast<double>(1 + random.below(k + turn, 255)), static_cast<int>(k) - 20));
        want = std::min(want, reference::lowest_bit(values.back()));
      }
      EXPECT_EQ(reference::lowest_bit(values.data(), n), want) << n << " elements, turn " << turn;
    }
}

}  // namespace
}  // namespace ampcheck::checks
