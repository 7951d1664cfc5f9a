// SPDX-License-Identifier: Apache-2.0
// mma.sync: products of small matrices spread over a warp. Floats are added as the tensor core of the text's target
// adds them (src/tensor_core), integers exactly.
#include <algorithm>

#include "src/ptx/decode.h"
#include "src/ptx/machine.h"
#include "src/ptx/matrix_places.h"
#include "src/ptx/tensor_core_of.h"

namespace ampcheck::ptx {

TensorCore generation_of(std::string_view target) {
  int sm = 0;
  for (const char c : target)
    if (c >= '0' && c <= '9') sm = 10 * sm + (c - '0');
  return sm >= 100  ? TensorCore::b200
         : sm >= 90 ? TensorCore::h100
         : sm >= 89 ? TensorCore::ada
         : sm >= 80 ? TensorCore::a100
         : sm >= 75 ? TensorCore::turing
                    : TensorCore::v100;
}

bool input_of(const Type& t, tensor_core::Input& out) {
  if (t.is("f16"))
    out = tensor_core::Input::fp16;
  else if (t.is("bf16"))
    out = tensor_core::Input::bf16;
  else if (t.is("tf32"))
    out = tensor_core::Input::tf32;
  else if (t.is("e4m3"))
    out = tensor_core::Input::e4m3;
  else if (t.is("e5m2"))
    out = tensor_core::Input::e5m2;
  else
    return false;
  return true;
}

std::uint32_t whole_dot(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t c,
                        bool a_signed, bool b_signed, bool saturates) {
  const auto factor = [](std::uint32_t code, bool is_signed) {
    return is_signed ? std::int64_t{static_cast<std::int8_t>(code)} : std::int64_t{code};
  };
  std::int64_t sum = static_cast<std::int32_t>(c);
  for (std::size_t k = 0; k < a.size(); ++k) sum += factor(a[k], a_signed) * factor(b[k], b_signed);
  if (saturates) sum = std::clamp<std::int64_t>(sum, -2147483648LL, 2147483647LL);
  return static_cast<std::uint32_t>(sum);
}

namespace {

namespace core = tensor_core;

/// Register r of lane l holds `per` neighbours along k: of A in row l/4 (+8 for odd r) from k = 4 per (r/2) + per
/// (l%4), of B in column l/4 from k = 4 per r + per (l%4), of C two columns 2 (l%4) of row l/4 (+8 for the second
/// pair).
constexpr int kRows = 16, kColumns = 8;

struct Plan {
  core::Instruction instruction;
  int k = 16, bits = 16;
  bool whole = false;  ///< integers
  bool a_signed = false, b_signed = false, saturates = false;
  bool half_result = false;
};

/// In Program::extra: the registers of d, a, b and c, behind one another.
struct Places {
  const std::uint32_t *d, *a, *b, *c;
};

constexpr std::int64_t kHalf = 1, kWhole = 2, kSignedA = 4, kSignedB = 8, kSaturates = 16;

/// number: flags, k in bits 8-15, bits of a factor in 16-23, types in 24-31 and 32-39, the generation in 40-47.
Plan plan_of(std::int64_t number) {
  Plan out;
  const auto part = [&](int at) { return static_cast<int>(number >> at & 255); };
  out.half_result = (number & kHalf) != 0;
  out.whole = (number & kWhole) != 0;
  out.a_signed = (number & kSignedA) != 0;
  out.b_signed = (number & kSignedB) != 0;
  out.saturates = (number & kSaturates) != 0;
  out.k = part(8);
  out.bits = part(16);
  out.instruction = {.generation = static_cast<TensorCore>(part(40)),
                     .a = static_cast<core::Input>(part(24)),
                     .b = static_cast<core::Input>(part(32)),
                     .output = out.half_result ? core::Output::fp16 : core::Output::fp32,
                     .k = out.k};
  return out;
}

struct Matrices {
  std::uint32_t a[kRows][32], b[kColumns][32], c[kRows][kColumns];
};

void gather(const Warp& w, const Plan& plan, const Places& places, Matrices& m) {
  const int per = 32 / plan.bits, groups = plan.k / (4 * per);
  const std::uint32_t ones = plan.bits == 32 ? ~0u : (1u << plan.bits) - 1;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int row = lane / 4, first = lane % 4 * per;
    for (int g = 0; g < groups; ++g)
      for (int j = 0; j < per; ++j) {
        const int k = 4 * per * g + first + j;
        const auto of = [&](std::uint32_t slot) {
          return w.lanes<std::uint32_t>(slot)[lane] >> (j * plan.bits) & ones;
        };
        m.a[row][k] = of(places.a[2 * g]);
        m.a[row + 8][k] = of(places.a[2 * g + 1]);
        m.b[row][k] = of(places.b[g]);
      }
    for (int i = 0; i < 4; ++i) {
      const int column = 2 * (lane % 4) + i % 2, at = row + 8 * (i / 2);
      m.c[at][column] = plan.half_result ? w.lanes<std::uint32_t>(places.c[i / 2])[lane] >> (16 * (i % 2)) & 0xffffu
                                         : w.lanes<std::uint32_t>(places.c[i])[lane];
    }
  }
}

void multiply(Warp& w, const Instruction& in) {
  const Plan plan = plan_of(in.number);
  const int per = 32 / plan.bits, groups = plan.k / (4 * per);
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  const int results = plan.half_result ? 2 : 4;
  const Places places{extra, extra + results, extra + results + 2 * groups, extra + results + 3 * groups};
  Matrices m{};
  gather(w, plan, places, m);
  std::uint32_t d[kRows][kColumns];
  const auto k = static_cast<std::size_t>(plan.k);
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < kColumns; ++column)
      d[row][column] = plan.whole ? whole_dot({m.a[row], k}, {m.b[column], k}, m.c[row][column], plan.a_signed,
                                              plan.b_signed, plan.saturates)
                                  : core::dot(plan.instruction, {m.a[row], k}, {m.b[column], k}, m.c[row][column]);
  for (int r = 0; r < results; ++r)
    into<std::uint32_t>(w, places.d[r], [&](int lane) {
      const int row = lane / 4, column = 2 * (lane % 4);
      if (plan.half_result) return d[row + 8 * r][column] | d[row + 8 * r][column + 1] << 16;
      return d[row + 8 * (r / 2)][column + r % 2];
    });
}

void take_registers(Decoder& d, Instruction& in, std::size_t operand, int count, bool results) {
  const Operand& list = d.operand(operand);
  constexpr Type kWord{'b', 32, 1, "b32"};
  const std::vector<Operand> one = {list};
  const std::vector<Operand>& parts = list.kind == Operand::Kind::list ? list.parts : one;
  if (parts.size() != static_cast<std::size_t>(count))
    d.fail("got " + std::to_string(parts.size()) + " registers of operand " + std::to_string(operand + 1) + ", want " +
           std::to_string(count));
  for (const Operand& part : parts) {
    const std::uint32_t at = d.add_extra(results ? d.result(part, kWord) : d.value(part, kWord));
    if (in.more == 0) in.more = at;
  }
}

/// The types of d, a, b and c.
struct Types {
  Type d, a, b, c;
};

bool fits(const Types& t, core::Input& a, core::Input& b) {
  if (t.d.word != t.c.word) return false;
  if (t.d.is("s32")) return t.a.bits == 8 && t.b.bits == 8 && t.a.kind != 'x' && t.b.kind != 'x';
  return (t.d.is("f32") || t.d.is("f16")) && input_of(t.a, a) && input_of(t.b, b);
}

std::int64_t flags_of(const Types& t, bool saturates) {
  std::int64_t out = t.d.is("f16") ? kHalf : 0;
  if (t.d.is("s32")) out |= kWhole;
  if (t.a.kind == 's') out |= kSignedA;
  if (t.b.kind == 's') out |= kSignedB;
  return saturates ? out | kSaturates : out;
}

int take_shape(Words& words) {
  constexpr std::pair<const char*, int> kShapes[] = {
      {"m16n8k4", 4}, {"m16n8k8", 8}, {"m16n8k16", 16}, {"m16n8k32", 32}};
  for (const auto& [word, k] : kShapes)
    if (words.take(word)) return k;
  return 0;
}

NumberFormat number_format_of(core::Input input) {
  switch (input) {
    case core::Input::fp16: return NumberFormat::half;
    case core::Input::bf16: return NumberFormat::bfloat;
    case core::Input::tf32: return NumberFormat::single;
    default: return NumberFormat::none;
  }
}

}  // namespace

ProductPlaces mma_places(const Program& program, const Instruction& in) {
  const Plan plan = plan_of(in.number);
  ProductPlaces out;
  out.factor = number_format_of(plan.instruction.a);
  if (plan.whole || plan.bits < 16 || out.factor == NumberFormat::none) return out;
  out.m = kRows;
  out.n = kColumns;
  out.k = plan.k;
  if (plan.half_result) out.sum = NumberFormat::half;
  const int per = 32 / plan.bits, groups = plan.k / (4 * per), results = plan.half_result ? 2 : 4;
  const std::uint32_t* const extra = &program.extra[in.more];
  const Places places{extra, extra + results, extra + results + 2 * groups, extra + results + 3 * groups};
  const auto size = [](int rows, int columns) { return static_cast<std::size_t>(rows * columns); };
  out.a.resize(size(kRows, plan.k));
  out.b.resize(size(plan.k, kColumns));
  out.c.resize(size(kRows, kColumns));
  out.d.resize(size(kRows, kColumns));
  for (int lane = 0; lane < kLanes; ++lane) {
    const int row = lane / 4, first = lane % 4 * per;
    const auto at = [&](std::uint32_t slot, int part) {
      return MatrixPlace{slot, static_cast<std::uint8_t>(lane), static_cast<std::uint8_t>(part)};
    };
    for (int g = 0; g < groups; ++g)
      for (int j = 0; j < per; ++j) {
        const int k = 4 * per * g + first + j;
        out.a[size(row, plan.k) + static_cast<std::size_t>(k)] = at(places.a[2 * g], j);
        out.a[size(row + 8, plan.k) + static_cast<std::size_t>(k)] = at(places.a[2 * g + 1], j);
        out.b[size(k, kColumns) + static_cast<std::size_t>(row)] = at(places.b[g], j);
      }
    for (int i = 0; i < 4; ++i) {
      const std::size_t element = size(row + 8 * (i / 2), kColumns) + static_cast<std::size_t>(2 * (lane % 4) + i % 2);
      const int r = plan.half_result ? i / 2 : i, part = plan.half_result ? i % 2 : 0;
      out.c[element] = at(places.c[r], part);
      out.d[element] = at(places.d[r], part);
    }
  }
  return out;
}

bool decode_matrix(Decoder& d, Instruction& in) {
  if (d.statement().words[0] != "mma") return false;
  Words words(d.statement().words);
  words.take("sync");
  words.take("aligned");
  const int k = take_shape(words);
  const bool order = words.take("row") && words.take("col"), saturates = words.take("satfinite");
  Types t;
  const bool typed = words.take_type(t.d) && words.take_type(t.a) && words.take_type(t.b) && words.take_type(t.c);
  core::Input a = core::Input::fp16, b = core::Input::fp16;
  if (k == 0 || !order || !typed || !fits(t, a, b) || !words.left().empty())
    d.fail("got '" + d.statement().text() +
           "', a product that device ptx does not run, want m16n8 of f16, bf16, tf32, e4m3, e5m2, s8 or u8");
  const TensorCore generation = generation_of(d.module().target);
  in.number = flags_of(t, saturates) | std::int64_t{k} << 8 | std::int64_t{t.a.bits} << 16 |
              static_cast<std::int64_t>(a) << 24 | static_cast<std::int64_t>(b) << 32 |
              static_cast<std::int64_t>(generation) << 40;
  const Plan plan = plan_of(in.number);
  if (const std::string why = plan.whole ? "" : core::lacking(plan.instruction); !why.empty())
    d.fail(d.statement().text() + " on " + d.module().target + ": " + why);
  const int groups = k * plan.bits / 128, results = plan.half_result ? 2 : 4;
  if (groups < 1) d.fail("got '" + d.statement().text() + "', a shape that this type does not have");
  d.want_operands(4, 4);
  in.more = 0;
  d.add_extra(0);  // so that the first place is not 0
  take_registers(d, in, 0, results, true);
  take_registers(d, in, 1, 2 * groups, false);
  take_registers(d, in, 2, groups, false);
  take_registers(d, in, 3, results, false);
  in.flow = Flow::warp;
  in.from[3] = d.mask_constant(kAll);
  in.run = &multiply;
  return true;
}

}  // namespace ampcheck::ptx
