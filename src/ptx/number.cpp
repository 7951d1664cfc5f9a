// SPDX-License-Identifier: Apache-2.0
#include "src/ptx/number.h"

#include <algorithm>
#include <utility>

#include "src/ptx/fuse.h"

namespace ampcheck::ptx {

namespace {

using enum NumberOp;

constexpr std::pair<const char*, NumberOp> kArithmetic[] = {
    {"add", add},   {"sub", sub},     {"mul", mul},     {"div", div},     {"fma", fma},
    {"mad", fma},   {"min", minimum}, {"max", maximum}, {"neg", neg},     {"abs", NumberOp::abs},
    {"sqrt", sqrt}, {"rcp", rcp},     {"rsqrt", rsqrt}, {"ex2", ex2},     {"lg2", lg2},
    {"sin", sin},   {"cos", cos},     {"tanh", tanh},   {"cvt", convert}, {"copysign", NumberOp::copysign}};

/// What only carries values from one place to another.
constexpr std::pair<const char*, NumberOp> kCarriers[] = {{"mov", move},        {"selp", choose}, {"shfl", shuffle},
                                                          {"ld", load},         {"ldu", load},    {"st", store},
                                                          {"ldmatrix", matrix}, {"mma", product}};

bool has(const std::vector<std::string>& words, const char* word) {
  return std::find(words.begin() + 1, words.end(), word) != words.end();
}

NumberFormat format_of(const std::string& word, bool& pair) {
  constexpr std::pair<const char*, NumberFormat> kFormats[] = {
      {"f32", NumberFormat::single}, {"f16", NumberFormat::half},    {"f16x2", NumberFormat::half},
      {"f64", NumberFormat::wide},   {"bf16", NumberFormat::bfloat}, {"bf16x2", NumberFormat::bfloat}};
  for (const auto& [name, format] : kFormats)
    if (word == name) {
      pair = pair || word.ends_with("x2");
      return format;
    }
  return NumberFormat::none;
}

/// Whether a word is a type of anything.
bool is_type(const std::string& word) {
  bool pair = false;
  if (format_of(word, pair) != NumberFormat::none) return true;
  return word.size() >= 2 && word.size() <= 4 && std::string_view("bus").find(word[0]) != std::string_view::npos &&
         word.find_first_not_of("0123456789", 1) == std::string::npos;
}

/// The types that the words name, in order; one that is no float is `none`.
std::vector<NumberFormat> formats_of(const std::vector<std::string>& words, bool& pair) {
  std::vector<NumberFormat> out;
  for (std::size_t i = 1; i < words.size(); ++i)
    if (is_type(words[i])) out.push_back(format_of(words[i], pair));
  return out;
}

Number conversion(const std::vector<std::string>& words, Number out) {
  const std::vector<NumberFormat> formats = formats_of(words, out.pair);
  const bool whole = has(words, "rni") || has(words, "rzi") || has(words, "rmi") || has(words, "rpi");
  if (whole || formats.size() != 2 || formats[0] == NumberFormat::none || formats[1] == NumberFormat::none) return {};
  out.result = formats[0];
  out.operand = formats[1];
  return out;
}

}  // namespace

Number number_of(const std::vector<std::string>& words) {
  Number out;
  for (const auto& [root, op] : kCarriers)
    if (words[0] == root) {
      out.op = op;
      return op != matrix || has(words, "m8n8") ? out : Number{};
    }
  if (words[0] == "wmma") {
    out.op = has(words, "mma") ? wmma_product : has(words, "load") ? wmma_load : wmma_store;
    return out;
  }
  out.saturates = has(words, "sat");
  out.relu = has(words, "relu");
  if ((words[0] == "atom" || words[0] == "red") && has(words, "add")) out.op = atomic_add;
  for (const auto& [root, op] : kArithmetic)
    if (words[0] == root) out.op = op;
  if (out.op == none) return out;
  if (out.op == fma && has(words, kMinusSum)) out.op = fma_minus_sum;
  if (out.op == fma && has(words, kMinusProduct)) out.op = fma_minus_product;
  if (out.op == convert) return conversion(words, out);
  const std::vector<NumberFormat> formats = formats_of(words, out.pair);
  if (formats.size() != 1 || formats[0] == NumberFormat::none) return {};
  out.result = out.operand = formats[0];
  return out;
}

}  // namespace ampcheck::ptx
