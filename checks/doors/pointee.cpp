// SPDX-License-Identifier: Apache-2.0
#include "checks/doors/pointee.h"

#include <algorithm>

#include "src/api/ampcheck/ampcheck_op.h"
#include "src/error.h"

namespace ampcheck::checks {

namespace {

/// A C type, and the dtypes whose memory it reads as they are.
struct CType {
  const char* words;
  std::vector<std::int32_t> dtypes;
  bool truth_only = false;  ///< holds 0 and 1 alone, or takes 255 for -1
};

const std::vector<CType>& c_types() {
  static const std::vector<std::int32_t> f16 = {AC_FP16}, b16 = {AC_BF16}, bits16 = {AC_FP16, AC_BF16}, i64 = {AC_I64},
                                         i32 = {AC_I32}, u8 = {AC_U8}, bits8 = {AC_U8, AC_E4M3FN, AC_E5M2};
  static const std::vector<CType> kTypes = {{"float", {AC_FP32}},
                                            {"double", {AC_FP64}},
                                            {"half", f16},
                                            {"__half", f16},
                                            {"_Float16", f16},
                                            {"__fp16", f16},
                                            {"bfloat16", b16},
                                            {"__nv_bfloat16", b16},
                                            {"nv_bfloat16", b16},
                                            {"__bf16", b16},
                                            {"hip_bfloat16", b16},
                                            {"__hip_bfloat16", b16},
                                            {"uint16_t", bits16},
                                            {"int16_t", bits16},
                                            {"unsigned short", bits16},
                                            {"short", bits16},
                                            {"unsigned short int", bits16},
                                            {"int64_t", i64},
                                            {"uint64_t", i64},
                                            {"long long", i64},
                                            {"unsigned long long", i64},
                                            {"long", i64},
                                            {"unsigned long", i64},
                                            {"size_t", i64},
                                            {"ptrdiff_t", i64},
                                            {"int32_t", i32},
                                            {"int", i32},
                                            {"uint32_t", i32},
                                            {"unsigned", i32},
                                            {"unsigned int", i32},
                                            {"uint8_t", bits8},
                                            {"unsigned char", bits8},
                                            {"__nv_fp8_storage_t", bits8},
                                            {"__nv_fp8_e4m3", {AC_E4M3FN}},
                                            {"__nv_fp8_e5m2", {AC_E5M2}},
                                            {"bool", u8, true},
                                            {"_Bool", u8, true},
                                            {"int8_t", u8, true},
                                            {"char", u8, true},
                                            {"signed char", u8, true}};
  return kTypes;
}

const char* dtype_word(std::int32_t dtype) {
  constexpr const char* kWords[] = {"fp64", "fp32",  "fp16",  "bf16", "e4m3fn",
                                    "e5m2", "int32", "int64", "uint8"};  // from AC_FP64 = 1
  return dtype >= AC_FP64 && dtype <= AC_U8 ? kWords[dtype - AC_FP64] : "?";
}

/// The type to write for a tensor of one dtype; null where void* is all there is.
const char* usual_type(std::int32_t dtype) {
  switch (dtype) {
    case AC_FP32: return "float";
    case AC_FP16: return "half";
    case AC_BF16: return "__nv_bfloat16";
    case AC_E4M3FN: return "__nv_fp8_e4m3";
    case AC_E5M2: return "__nv_fp8_e5m2";
    case AC_I64: return "int64_t";
    case AC_I32: return "int32_t";
    case AC_U8: return "uint8_t";
    default: return nullptr;
  }
}

std::string as_declared(const Pointee& pointee) {
  return (pointee.constant ? "const " : "") + pointee.type + std::string(static_cast<std::size_t>(pointee.stars), '*');
}

/// "const void* or const float*"
std::string wanted(const TensorFacts& facts) {
  const std::string head = facts.written ? "" : "const ";
  std::string out = head + "void*";
  if (facts.dtypes.size() != 1) return out + " (or one storage type in the contract)";
  if (const char* const type = usual_type(facts.dtypes.front())) out += " or " + head + type + "*";
  if (facts.dtypes.front() == AC_I64 && !facts.written) out += ", or const int32_t* for a copy in int32";
  return out;
}

}  // namespace

Passed passed_as(const Pointee& pointee, const std::string& name, const TensorFacts& facts) {
  if (facts.dtypes.empty()) return Passed::as_is;
  const std::string got = "got " + as_declared(pointee) + " for '" + name + "', which ";
  if (pointee.stars > 1) throw Error(got + "is passed as the address of its first element, want " + wanted(facts));
  if (pointee.constant && facts.written) throw Error(got + "the kernel writes, want " + wanted(facts));
  const auto known =
      std::find_if(c_types().begin(), c_types().end(), [&](const CType& type) { return pointee.type == type.words; });
  if (known == c_types().end()) return Passed::as_is;  // void, a vector, a struct of the user's own
  const auto reads = [&](std::int32_t dtype) {
    return std::find(known->dtypes.begin(), known->dtypes.end(), dtype) != known->dtypes.end();
  };
  if (std::all_of(facts.dtypes.begin(), facts.dtypes.end(), reads) && (!known->truth_only || facts.truth))
    return Passed::as_is;
  const bool int32 = pointee.type == "int" || pointee.type == "int32_t";
  if (int32 && !facts.written && facts.dtypes == std::vector<std::int32_t>{AC_I64}) return Passed::narrowed;
  std::string is;
  for (const std::int32_t dtype : facts.dtypes) is += (is.empty() ? "is " : " or ") + std::string(dtype_word(dtype));
  throw Error(got + is + (facts.dtypes.size() > 1 ? " by the case" : "") + ", want " + wanted(facts));
}

}  // namespace ampcheck::checks
