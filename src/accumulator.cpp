// SPDX-License-Identifier: Apache-2.0
#include "src/accumulator.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "src/suggestion.h"

namespace ampcheck {

namespace {

struct Generation {
  TensorCore core;
  const char* name;
  TensorCoreBlock fp16, bf16, tf32, fp8;
};

// Least and most products of a block, F, m. V100, A100, Ada, H100, H200 and B200: from captures of their instructions;
// Turing, tf32 and tcgen05 on Hopper and B200: MMA-Sim's. Smallest instructions: PTX's mma shapes, m16n8k8 for 16-bit
// types and m16n8k4 for tf32. fp8 on Hopper: wgmma, whose result has 13 bits; mma.sync has two blocks of 16 products in
// fp16's way, which lose less. fp8 on B200: tcgen05, and mma.sync the same way.
constexpr Generation kGenerations[] = {
    {TensorCore::v100, "v100", {4, 4, 23, 23}, {}, {}, {}},
    {TensorCore::turing, "turing", {4, 8, 24, 23}, {}, {}, {}},
    {TensorCore::a100, "a100", {8, 8, 24, 23}, {8, 8, 24, 23}, {4, 4, 24, 23}, {}},
    {TensorCore::ada, "ada", {8, 8, 24, 23}, {8, 8, 24, 23}, {4, 4, 24, 23}, {16, 16, 13, 13}},
    {TensorCore::h100, "h100", {8, 16, 25, 23}, {8, 16, 25, 23}, {4, 8, 25, 23}, {32, 32, 13, 13}},
    {TensorCore::b200, "b200", {8, 16, 25, 23}, {8, 16, 25, 23}, {4, 8, 25, 23}, {16, 32, 25, 23}},
};

const TensorCoreBlock& block_in(const Generation& generation, ProductType type) {
  switch (type) {
    case ProductType::fp16: return generation.fp16;
    case ProductType::bf16: return generation.bf16;
    case ProductType::tf32: return generation.tf32;
    case ProductType::fp8: break;
  }
  return generation.fp8;
}

constexpr std::string_view kPrefix = "tensor_core";

}  // namespace

std::string name(const Accumulator& accumulator) {
  if (accumulator.core == TensorCore::none) return name(accumulator.dtype);
  const auto found = std::find_if(std::begin(kGenerations), std::end(kGenerations),
                                  [&](const Generation& g) { return g.core == accumulator.core; });
  return std::string(kPrefix) + "(" + (found == std::end(kGenerations) ? "any" : found->name) + ")";
}

bool find_accumulator(std::string_view text, Accumulator& out) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
    if (text == name(dtype)) {
      out = dtype;
      return true;
    }
  if (!text.starts_with(kPrefix)) return false;
  text.remove_prefix(kPrefix.size());
  if (text.empty() || text == "(any)") {
    out = TensorCore::any;
    return true;
  }
  if (text == "(h200)") {
    out = TensorCore::h100;
    return true;  // the same cores
  }
  for (const Generation& generation : kGenerations)
    if (text == "(" + std::string(generation.name) + ")") {
      out = generation.core;
      return true;
    }
  return false;
}

std::string unknown_accumulator(const std::string& text) {
  std::vector<std::string> known = {"fp32", "fp16", "bf16"};
  for (const Generation& generation : kGenerations) known.push_back(name(Accumulator(generation.core)));
  known.push_back(name(Accumulator(TensorCore::any)));
  std::string list;
  for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
  return "got '" + text + "'" + did_you_mean(text, known) + ", want " + list;
}

TensorCore tensor_core_of(int major, int minor) {
  if (major < 7) return TensorCore::none;
  if (major == 7) return minor < 5 ? TensorCore::v100 : TensorCore::turing;
  if (major == 8) return minor < 9 ? TensorCore::a100 : TensorCore::ada;
  return major == 9 ? TensorCore::h100 : major == 10 ? TensorCore::b200 : TensorCore::any;
}

TensorCoreBlock block_of(TensorCore core, ProductType type) {
  TensorCoreBlock out;
  for (const Generation& generation : kGenerations) {
    const TensorCoreBlock& block = block_in(generation, type);
    if ((core != TensorCore::any && generation.core != core) || !block.exists()) continue;
    const auto worst = [&](int TensorCoreBlock::*field) {
      return out.exists() ? std::min(out.*field, block.*field) : block.*field;
    };
    out = {worst(&TensorCoreBlock::least), worst(&TensorCoreBlock::most), worst(&TensorCoreBlock::fraction),
           worst(&TensorCoreBlock::result)};
  }
  return out;
}

double TensorCoreBlock::partial_sums(double nonzero, double all) const {
  return std::min(std::ceil(all / most), nonzero - 1);
}

double TensorCoreBlock::blocks(double nonzero, double all) const {
  return std::min(std::ceil(all / least) + partial_sums(nonzero, all), nonzero - 1);
}

double TensorCoreBlock::truncations(double nonzero, double all) const {
  return nonzero <= 1 ? 0 : (nonzero + blocks(nonzero, all)) * std::ldexp(1.0, 24 - fraction);
}

double TensorCoreBlock::roundings(double nonzero, double all) const {
  if (nonzero <= 1) return 0;
  const double of_result = std::ldexp(1.0, 24 - result);
  const double results =
      std::min(blocks(nonzero, all) * of_result + partial_sums(nonzero, all), (nonzero - 1) * of_result);
  return truncations(nonzero, all) + results;
}

int TensorCoreBlock::exact_bits() const { return std::min({24, fraction, result + 1}); }

}  // namespace ampcheck
