// SPDX-License-Identifier: Apache-2.0
// wmma: matrices of a whole warp. PTX leaves open which lane holds which element, and a kernel may rely on nothing but
// that load, mma and store agree. Here lane l holds the elements l n, l n + 1, ... of the rows one behind the other, n
// of them; where a fragment has room for twice as many (factors of fp16), they stand there twice, as on a GPU.
#include <algorithm>
#include <array>

#include "src/ptx/decode.h"
#include "src/ptx/machine.h"
#include "src/ptx/matrix_places.h"
#include "src/ptx/tensor_core_of.h"
#include "src/tensor_core/instruction.h"

namespace ampcheck::ptx {

namespace {

namespace core = tensor_core;

constexpr int kMost = 32 * 16;  ///< elements of a matrix

/// A matrix in registers.
struct Fragment {
  int rows = 16, columns = 16;
  int bits = 16;       ///< of an element
  bool by_row = true;  ///< in memory
  int registers = 4;
  int per_register() const { return 32 / bits; }
  int per_lane() const { return rows * columns / kLanes; }
};

std::int64_t packed(const Fragment& f) {
  return f.rows | std::int64_t{f.columns} << 8 | std::int64_t{f.bits} << 16 | std::int64_t{f.by_row} << 24 |
         std::int64_t{f.registers} << 32;
}
Fragment fragment_of(std::int64_t number) {
  const auto part = [&](int at) { return static_cast<int>(number >> at & 255); };
  return {part(0), part(8), part(16), part(24) != 0, part(32)};
}

/// Element e of a lane in its registers.
std::uint32_t element(const Warp& w, const Fragment& f, const std::uint32_t* slots, int lane, int e) {
  const int per = f.per_register();
  const std::uint32_t ones = f.bits == 32 ? ~0u : (1u << f.bits) - 1;
  return w.lanes<std::uint32_t>(slots[e / per])[lane] >> (e % per * f.bits) & ones;
}

void gather(const Warp& w, const Fragment& f, const std::uint32_t* slots, std::uint32_t* matrix) {
  const int n = f.per_lane();
  for (int i = 0; i < f.rows * f.columns; ++i) matrix[i] = element(w, f, slots, i / n, i % n);
}

void spread(const Warp& w, const Fragment& f, const std::uint32_t* slots, const std::uint32_t* matrix) {
  const int n = f.per_lane(), per = f.per_register();
  for (int r = 0; r < f.registers; ++r)
    into<std::uint32_t>(w, slots[r], [&](int lane) {
      std::uint32_t out = 0;
      for (int j = 0; j < per; ++j) out |= matrix[lane * n + (r * per + j) % n] << (j * f.bits);
      return out;
    });
}

/// Where element i of a matrix lies, in elements from its first: from[1] is the stride, or it has none.
std::uint64_t place(const Warp& w, const Instruction& in, const Fragment& f, int lane, int i) {
  const auto row = static_cast<std::uint64_t>(i / f.columns), column = static_cast<std::uint64_t>(i % f.columns);
  const std::uint64_t stride = in.from[1] != kNone ? w.lanes<std::uint32_t>(in.from[1])[lane]
                                                   : static_cast<std::uint64_t>(f.by_row ? f.columns : f.rows);
  return f.by_row ? row * stride + column : column * stride + row;
}

/// Of a load or a store: the shape stands in Program::extra in front of the registers.
Fragment shape_of(const Warp& w, const Instruction& in, const std::uint32_t*& slots) {
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  slots = extra + 2;
  return fragment_of(static_cast<std::int64_t>(extra[0] | std::uint64_t{extra[1]} << 32));
}

void load_fragment(Warp& w, const Instruction& in) {
  const std::uint32_t* slots = nullptr;
  const Fragment f = shape_of(w, in, slots);
  const auto bytes = static_cast<std::uint32_t>(f.bits / 8);
  std::array<std::uint32_t, kMost> matrix = {};
  for (int i = 0; i < f.rows * f.columns; ++i) {
    const int lane = i / f.per_lane();
    const std::uint64_t at = address_of(w, in, lane) + place(w, in, f, lane, i) * bytes;
    const std::uint8_t* const from = w.machine->locate(w, in, lane, at, bytes, Access::read);
    std::uint32_t value = f.bits == 32 ? ~0u : (1u << f.bits) - 1;  // a NaN where the access may not be
    if (from != nullptr) {
      value = 0;
      std::memcpy(&value, from, bytes);
    }
    matrix[static_cast<std::size_t>(i)] = value;
  }
  spread(w, f, slots, matrix.data());
}

void store_fragment(Warp& w, const Instruction& in) {
  const std::uint32_t* slots = nullptr;
  const Fragment f = shape_of(w, in, slots);
  const auto bytes = static_cast<std::uint32_t>(f.bits / 8);
  std::array<std::uint32_t, kMost> matrix = {};
  gather(w, f, slots, matrix.data());
  for (int i = 0; i < f.rows * f.columns; ++i) {
    const int lane = i / f.per_lane();
    const std::uint32_t value = matrix[static_cast<std::size_t>(i)];
    const std::uint64_t at = address_of(w, in, lane) + place(w, in, f, lane, i) * bytes;
    std::uint8_t* const to = w.machine->locate(w, in, lane, at, bytes, Access::write, &value);
    if (to != nullptr) std::memcpy(to, &value, bytes);
  }
}

/// The product's plan, in Program::extra in front of the registers of d, a, b and c.
struct Plan {
  Fragment d, a, b, c;
  core::Instruction instruction;
  bool whole = false, a_signed = false, b_signed = false, saturates = false;
};

constexpr std::size_t kPlanWords = 11;

std::array<std::uint32_t, kPlanWords> words_of(const Plan& plan) {
  std::array<std::uint32_t, kPlanWords> out = {};
  std::size_t at = 0;
  for (const Fragment* const f : {&plan.d, &plan.a, &plan.b, &plan.c}) {
    out[at++] = static_cast<std::uint32_t>(packed(*f));
    out[at++] = static_cast<std::uint32_t>(packed(*f) >> 32);
  }
  const core::Instruction& i = plan.instruction;
  out[8] = static_cast<std::uint32_t>(i.generation) | static_cast<std::uint32_t>(i.a) << 8 |
           static_cast<std::uint32_t>(i.output) << 16;
  out[9] = static_cast<std::uint32_t>(i.k);
  out[10] = (plan.whole ? 1u : 0u) | (plan.a_signed ? 2u : 0u) | (plan.b_signed ? 4u : 0u) | (plan.saturates ? 8u : 0u);
  return out;
}

Plan plan_of(const std::uint32_t* words) {
  Plan plan;
  for (Fragment* const f : {&plan.d, &plan.a, &plan.b, &plan.c}) {
    *f = fragment_of(static_cast<std::int64_t>(words[0] | std::uint64_t{words[1]} << 32));
    words += 2;
  }
  plan.instruction = {.generation = static_cast<TensorCore>(words[0] & 255u),
                      .a = static_cast<core::Input>(words[0] >> 8 & 255u),
                      .b = static_cast<core::Input>(words[0] >> 8 & 255u),
                      .output = static_cast<core::Output>(words[0] >> 16 & 255u),
                      .k = static_cast<int>(words[1])};
  plan.whole = (words[2] & 1u) != 0;
  plan.a_signed = (words[2] & 2u) != 0;
  plan.b_signed = (words[2] & 4u) != 0;
  plan.saturates = (words[2] & 8u) != 0;
  return plan;
}

void multiply(Warp& w, const Instruction& in) {
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  const Plan plan = plan_of(extra);
  std::array<std::uint32_t, kMost> a, b, c, d = {};
  const std::uint32_t* slots = extra + kPlanWords;
  const std::uint32_t* const to = slots;
  slots += plan.d.registers;
  for (const auto& [fragment, matrix] : {std::pair(&plan.a, &a), std::pair(&plan.b, &b), std::pair(&plan.c, &c)}) {
    gather(w, *fragment, slots, matrix->data());
    slots += fragment->registers;
  }
  const auto k = static_cast<std::size_t>(plan.a.columns);
  std::array<std::uint32_t, 16> column = {};
  for (int n = 0; n < plan.b.columns; ++n) {
    for (std::size_t i = 0; i < k; ++i)
      column[i] = b[i * static_cast<std::size_t>(plan.b.columns) + static_cast<std::size_t>(n)];
    for (int m = 0; m < plan.a.rows; ++m) {
      const auto at = static_cast<std::size_t>(m * plan.d.columns + n);
      const std::uint32_t* const row = &a[static_cast<std::size_t>(m) * k];
      d[at] = plan.whole ? whole_dot({row, k}, {column.data(), k}, c[at], plan.a_signed, plan.b_signed, plan.saturates)
                         : core::dot(plan.instruction, {row, k}, {column.data(), k}, c[at]);
    }
  }
  spread(w, plan.d, to, d.data());
}

// ---- decoding ----

struct Shape {
  const char* word;
  int m, n, k;
};
constexpr Shape kShapes[] = {
    {"m16n16k16", 16, 16, 16}, {"m8n32k16", 8, 32, 16}, {"m32n8k16", 32, 8, 16}, {"m16n16k8", 16, 16, 8}};

const Shape* take_shape(Words& words) {
  for (const Shape& shape : kShapes)
    if (words.take(shape.word)) return &shape;
  return nullptr;
}

bool whole_type(const Type& t) { return t.bits == 8 && (t.kind == 's' || t.kind == 'u'); }
bool factor_type(const Type& t) { return t.is("f16") || t.is("bf16") || t.is("tf32") || whole_type(t); }
bool sum_type(const Type& t) { return t.is("f16") || t.is("f32") || t.is("s32"); }

/// Factors of fp16 fill eight registers whatever the shape; all other matrices stand there once.
Fragment fragment(char which, const Shape& shape, const Type& t, bool by_row) {
  Fragment out;
  out.rows = which == 'b' ? shape.k : shape.m;
  out.columns = which == 'a' ? shape.k : shape.n;
  out.bits = t.is("tf32") ? 32 : t.bits;
  out.by_row = by_row;
  out.registers = which != 'c' && t.is("f16") ? 8 : out.rows * out.columns * out.bits / (32 * kLanes);
  return out;
}

void add_registers(Decoder& d, const Operand& list, const Fragment& f, bool results) {
  constexpr Type kWord{'b', 32, 1, "b32"};
  const std::vector<Operand> one = {list};
  const std::vector<Operand>& parts = list.kind == Operand::Kind::list ? list.parts : one;
  if (parts.size() != static_cast<std::size_t>(f.registers))
    d.fail("got " + std::to_string(parts.size()) + " registers of a fragment of " + d.statement().text() + ", want " +
           std::to_string(f.registers));
  for (const Operand& part : parts) d.add_extra(results ? d.result(part, kWord) : d.value(part, kWord));
}

bool load_or_store(Decoder& d, Instruction& in, Words& words, const Shape& shape) {
  constexpr Type kWord{'u', 32, 1, "u32"};
  const bool loads = words.take("load");
  if (!loads && !words.take("store")) return false;
  const char which = words.take("a") ? 'a' : words.take("b") ? 'b' : words.take("c") || words.take("d") ? 'c' : '-';
  const bool by_row = words.take("row");
  if (which == '-' || (!by_row && !words.take("col"))) return false;
  if (words.take("shared") || words.take("shared::cta"))
    in.space = Space::shared;
  else if (words.take("global"))
    in.space = Space::global;
  Type t;
  if (!words.take_type(t) || !(which == 'c' ? sum_type(t) : factor_type(t))) return false;
  const Fragment f = fragment(which, shape, t, by_row);
  if (f.registers < 1) return false;
  d.want_operands(2, 3);
  in.more = d.add_extra(static_cast<std::uint32_t>(packed(f)));
  d.add_extra(static_cast<std::uint32_t>(packed(f) >> 32));
  add_registers(d, d.operand(loads ? 0 : 1), f, loads);
  d.address(d.operand(loads ? 1 : 0), in.space, in);
  if (d.operands() == 3) in.from[1] = d.value(d.operand(2), kWord);
  in.run = loads ? &load_fragment : &store_fragment;
  return true;
}

/// The types behind the shape: of d and c alone where factors are fp16, of d, a, b and c otherwise.
bool take_types(Words& words, Type& td, Type& ta, Type& tb, Type& tc) {
  std::vector<Type> types;
  for (Type t; words.take_type(t);) types.push_back(t);
  if (types.size() == 2) {
    find_type("f16", ta);
    td = types[0];
    tb = ta;
    tc = types[1];
  } else if (types.size() == 4) {
    td = types[0];
    ta = types[1];
    tb = types[2];
    tc = types[3];
  } else {
    return false;
  }
  const bool whole = whole_type(ta);
  return factor_type(ta) &&
         (whole ? whole_type(tb) && td.is("s32") && tc.is("s32")
                : ta.word == tb.word && sum_type(td) && sum_type(tc) && !td.is("s32") && !tc.is("s32"));
}

bool product(Decoder& d, Instruction& in, Words& words, const Shape& shape) {
  if (!words.take("mma")) return false;
  // The layouts of a and b say how they were loaded: in registers that makes no difference.
  for (int i = 0; i < 2; ++i)
    if (!words.take("row") && !words.take("col")) return false;
  Plan plan;
  plan.saturates = words.take("satfinite");
  Type td, ta, tb, tc;
  if (!take_types(words, td, ta, tb, tc)) return false;
  plan.whole = td.is("s32");
  plan.a_signed = ta.kind == 's';
  plan.b_signed = tb.kind == 's';
  if (plan.saturates && !plan.whole) return false;  // of floats it is gone from PTX
  plan.d = fragment('c', shape, td, true);
  plan.a = fragment('a', shape, ta, true);
  plan.b = fragment('b', shape, tb, true);
  plan.c = fragment('c', shape, tc, true);
  if (!plan.whole) {
    core::Input input = core::Input::fp16;
    if (!input_of(ta, input)) return false;
    if (td.word != tc.word)
      d.fail("got '" + d.statement().text() + "' with c and d of two types, which device ptx does not run");
    plan.instruction = {.generation = generation_of(d.module().target),
                        .a = input,
                        .b = input,
                        .output = td.is("f16") ? core::Output::fp16 : core::Output::fp32,
                        .k = shape.k};
    if (const std::string why = core::lacking(plan.instruction); !why.empty())
      d.fail(d.statement().text() + " on " + d.module().target + ": " + why);
  }
  d.want_operands(4, 4);
  const auto all = words_of(plan);
  in.more = d.add_extra(all[0]);
  for (std::size_t i = 1; i < all.size(); ++i) d.add_extra(all[i]);
  add_registers(d, d.operand(0), plan.d, true);
  add_registers(d, d.operand(1), plan.a, false);
  add_registers(d, d.operand(2), plan.b, false);
  add_registers(d, d.operand(3), plan.c, false);
  in.run = &multiply;
  return true;
}

NumberFormat number_format_of(core::Input input) {
  return input == core::Input::fp16   ? NumberFormat::half
         : input == core::Input::bf16 ? NumberFormat::bfloat
                                      : NumberFormat::single;
}

/// Element i of a matrix in its registers.
std::vector<MatrixPlace> places_of(const Fragment& f, const std::uint32_t* slots) {
  std::vector<MatrixPlace> out;
  for (int i = 0; i < f.rows * f.columns; ++i) {
    const int e = i % f.per_lane();
    out.push_back({slots[e / f.per_register()], static_cast<std::uint8_t>(i / f.per_lane()),
                   static_cast<std::uint8_t>(e % f.per_register())});
  }
  return out;
}

}  // namespace

ProductPlaces wmma_places(const Program& program, const Instruction& in) {
  const std::uint32_t* const extra = &program.extra[in.more];
  const Plan plan = plan_of(extra);
  ProductPlaces out;
  if (plan.whole) return out;
  out.m = plan.d.rows;
  out.n = plan.d.columns;
  out.k = plan.a.columns;
  out.factor = number_format_of(plan.instruction.a);
  if (plan.instruction.output == core::Output::fp16) out.sum = NumberFormat::half;
  const std::uint32_t* slots = extra + kPlanWords;
  for (const auto& [fragment, to] : {std::pair(&plan.d, &out.d), std::pair(&plan.a, &out.a), std::pair(&plan.b, &out.b),
                                     std::pair(&plan.c, &out.c)}) {
    *to = places_of(*fragment, slots);
    slots += fragment->registers;
  }
  return out;
}

std::vector<FragmentPlace> fragment_places(const Warp& w, const Instruction& in, std::uint32_t& bytes) {
  const std::uint32_t* slots = nullptr;
  const Fragment f = shape_of(w, in, slots);
  bytes = static_cast<std::uint32_t>(f.bits / 8);
  std::vector<FragmentPlace> out;
  const int n = f.per_lane(), per = f.per_register();
  for (int lane = 0; lane < kLanes; ++lane)
    for (int e = 0; e < f.registers * per; ++e) {
      FragmentPlace one;
      one.slot = slots[e / per];
      one.lane = static_cast<std::uint8_t>(lane);
      one.part = static_cast<std::uint8_t>(e % per);
      one.address = address_of(w, in, lane) + place(w, in, f, lane, lane * n + e % n) * bytes;
      out.push_back(one);
    }
  return out;
}

bool decode_wmma(Decoder& d, Instruction& in) {
  if (d.statement().words[0] != "wmma") return false;
  Words words(d.statement().words);
  words.take("sync");
  words.take("aligned");
  const Shape* const shape = take_shape(words);
  const bool known = shape != nullptr && (load_or_store(d, in, words, *shape) || product(d, in, words, *shape));
  if (!known || !words.left().empty())
    d.fail("got '" + d.statement().text() +
           "', which device ptx does not run, want m16n16k16, m8n32k16, m32n8k16 or m16n16k8 of f16, bf16, tf32, s8 or "
           "u8");
  in.flow = Flow::warp;
  in.from[3] = d.mask_constant(kAll);
  return true;
}

}  // namespace ampcheck::ptx
