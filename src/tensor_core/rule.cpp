// SPDX-License-Identifier: Apache-2.0
// Which arithmetic each generation's instructions have.
#include <algorithm>
#include <iterator>

#include "src/error.h"
#include "src/tensor_core/instruction.h"

namespace ampcheck::tensor_core {

namespace {

bool is_fp8(Input type) { return type == Input::e4m3 || type == Input::e5m2; }

/// One generation. F is of 16 bits and tf32; what 8 bits do differs by unit, and is written out in rule_of().
///
/// L and F of V100, A100, Ada, Hopper and B200: they explain every captured instruction of Khattak and Mikaitis
/// (MATLAB-tensor-core: V100, A100, A2, RTX 1000 Ada, L40S, H100, H200, B200). Turing: Xie et al., arXiv:2511.10909. L
/// = 8 of tf32 on Hopper and B200 rests on both models; the captures have four products. Least exponents:
/// MATLAB-tensor-core.
struct Generation {
  TensorCore core;
  int smallest_16, products_16, largest_16;  ///< k of the smallest instruction, L, k of the largest
  bool bf16;
  int products_tf32;  ///< L; 0: none
  bool fp8;
  int fraction;
  int least_fp32, least_fp16;  ///< of E, by result
};
constexpr int kNoLeast = -1000;  // below every exponent of a product of two fp32 subnormals
constexpr Generation kGenerations[] = {
    {TensorCore::v100, 4, 4, 16, false, 0, false, 23, kNoLeast, -19},
    {TensorCore::turing, 4, 8, 16, false, 0, false, 24, -132, -20},
    {TensorCore::a100, 8, 8, 16, true, 4, false, 24, -132, -20},
    {TensorCore::ada, 8, 8, 16, true, 4, true, 24, -132, -20},
    {TensorCore::h100, 8, 16, 16, true, 8, true, 25, -133, -21},
    {TensorCore::b200, 8, 16, 16, true, 8, true, 25, -133, -21},
};

const Generation* find(TensorCore core) {
  const auto* at = std::find_if(std::begin(kGenerations), std::end(kGenerations),
                                [&](const Generation& g) { return g.core == core; });
  return at == std::end(kGenerations) ? nullptr : at;
}

std::string text_of(const Instruction& i) {
  const std::string types =
      std::string(name(i.a)) + (i.a == i.b ? "" : " by " + std::string(name(i.b))) + " to " + name(i.output);
  return std::string(name(i.unit)) + " of " + std::to_string(i.k) + " products, " + types + ", on " +
         name(Accumulator(i.generation));
}

std::string lacking_type(const Generation& g, const Instruction& i) {
  if (is_fp8(i.a) != is_fp8(i.b) || (!is_fp8(i.a) && i.a != i.b)) return "factors of one type, or both of 8 bits";
  if (i.a == Input::bf16 && !g.bf16) return "fp16: it has no bf16";
  if (i.a == Input::tf32 && g.products_tf32 == 0) return "fp16: it has no tf32";
  if (is_fp8(i.a) && !g.fp8) return "factors of 16 bits: it has none of 8";
  if (i.output == Output::fp16 && (i.a == Input::bf16 || i.a == Input::tf32)) return "fp32 results";
  return "";
}

std::string lacking_k(const Generation& g, const Instruction& i) {
  const bool warp = i.unit == Unit::mma;
  if (is_fp8(i.a)) return i.k == 32 || (warp && i.k == 16) ? "" : warp ? "k = 16 or 32" : "k = 32";
  if (i.a == Input::tf32) return i.k == 8 || (warp && i.k == 4) ? "" : warp ? "k = 4 or 8" : "k = 8";
  if (!warp) return i.k == 16 ? "" : "k = 16";
  if (i.k == 8 || i.k == 16 || (i.k == 4 && g.smallest_16 == 4)) return "";
  return g.smallest_16 == 4 ? "k = 4, 8 or 16" : "k = 8 or 16";
}

}  // namespace

std::string lacking(const Instruction& i) {
  const Generation* const g = find(i.generation);
  std::string want;
  if (g == nullptr)
    want = "one generation: v100, turing, a100, ada, h100 or b200";
  else if (i.unit == Unit::wgmma && i.generation != TensorCore::h100)
    want = "mma: wgmma is Hopper's alone";
  else if (i.unit == Unit::tcgen05 && i.generation != TensorCore::b200)
    want = "mma: tcgen05 is Blackwell's alone";
  else if (want = lacking_type(*g, i); want.empty())
    want = lacking_k(*g, i);
  return want.empty() ? "" : "got " + text_of(i) + ", want " + want;
}

Rule rule_of(const Instruction& i) {
  if (const std::string why = lacking(i); !why.empty()) throw Error("[tensor_core] instruction, " + why);
  const Generation& g = *find(i.generation);
  Rule rule;
  rule.products = i.a == Input::tf32 ? g.products_tf32 : i.k == 4 ? 4 : g.products_16;
  rule.fraction = g.fraction;
  rule.result = i.output == Output::fp16 ? Rule::Result::nearest_fp16 : Rule::Result::truncated;
  rule.zeros_count = i.floor == Floor::of_zeros;
  rule.least_exponent = rule.zeros_count ? kNoLeast : i.output == Output::fp16 ? g.least_fp16 : g.least_fp32;
  if (!is_fp8(i.a)) return rule;
  if (i.unit == Unit::tcgen05) {  // Xie et al.; there is no public capture
    rule.products = 32;
  } else if (i.unit == Unit::wgmma || i.generation == TensorCore::ada) {
    rule.products = i.unit == Unit::wgmma ? 32 : 16;
    rule.fraction = 13;
    if (i.output == Output::fp32) rule.result = Rule::Result::truncated_13_bits;
  } else {
    rule.by_two_fp16 = true;
  }
  return rule;
}

int largest_k(TensorCore generation, Input type) {
  const Generation* const g = find(generation);
  if (g == nullptr) return 0;
  if (is_fp8(type)) return g->fp8 ? 32 : 0;
  if (type == Input::tf32) return g->products_tf32 == 0 ? 0 : 8;
  return type == Input::bf16 && !g->bf16 ? 0 : g->largest_16;
}

const FloatFormat& format_of(Input type) {
  switch (type) {
    case Input::fp16: return kFp16;
    case Input::bf16: return kBf16;
    case Input::tf32: return kTf32;
    case Input::e4m3: return kE4m3fn;
    case Input::e5m2: break;
  }
  return kE5m2;
}
const FloatFormat& format_of(Output type) { return type == Output::fp16 ? kFp16 : kFp32; }

namespace {
constexpr const char* kInputs[] = {"fp16", "bf16", "tf32", "e4m3", "e5m2"};
constexpr const char* kOutputs[] = {"fp32", "fp16"};
constexpr const char* kUnits[] = {"mma", "wgmma", "tcgen05"};

template <class Kind, std::size_t n>
bool find_name(const char* const (&names)[n], std::string_view text, Kind& out) {
  const auto* at = std::find(std::begin(names), std::end(names), text);
  if (at == std::end(names)) return false;
  out = static_cast<Kind>(at - names);
  return true;
}
}  // namespace

const char* name(Input type) { return kInputs[static_cast<int>(type)]; }
const char* name(Output type) { return kOutputs[static_cast<int>(type)]; }
const char* name(Unit unit) { return kUnits[static_cast<int>(unit)]; }
bool find_input(std::string_view text, Input& out) { return find_name(kInputs, text, out); }
bool find_output(std::string_view text, Output& out) { return find_name(kOutputs, text, out); }
bool find_unit(std::string_view text, Unit& out) { return find_name(kUnits, text, out); }

}  // namespace ampcheck::tensor_core
