// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// cumsum along the last axis.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

/// Replaces numbers by their running sums.
using Scan = void (*)(std::span<float>);

void one_by_one(std::span<float> row) {
  for (std::size_t i = 1; i < row.size(); ++i) row[i] = row[i - 1] + row[i];
}
/// Each number takes the one 1, 2, 4, ... before it.
void doubling(std::span<float> row) {
  for (std::size_t step = 1; step < row.size(); step *= 2)
    for (std::size_t i = row.size(); i-- > step;) row[i] = row[i - step] + row[i];
}

/// Blocks scanned apart; carry(block sum before, own block sum) goes to the next one.
template <class Carry>
void in_blocks_of(std::size_t block, std::span<float> row, Carry carry) {
  float before = 0;
  for (std::size_t begin = 0; begin < row.size(); begin += block) {
    const std::span<float> part = row.subspan(begin, std::min(block, row.size() - begin));
    doubling(part);
    const float own = part.back();
    for (float& v : part) v = before + v;
    before = carry(before, own);
  }
}
void blocks_of_32(std::span<float> row) {
  in_blocks_of(32, row, [](float before, float own) { return before + own; });
}
void blocks_of_256(std::span<float> row) {
  in_blocks_of(256, row, [](float before, float own) { return before + own; });
}
/// The sums of all blocks before, from the latest back, as decoupled look-back takes them.
void looking_back(std::span<float> row) {
  constexpr std::size_t kBlock = 32;
  Values sums;
  for (std::size_t begin = 0; begin < row.size(); begin += kBlock) {
    const std::span<float> part = row.subspan(begin, std::min(kBlock, row.size() - begin));
    one_by_one(part);
    float before = 0;
    for (std::size_t k = sums.size(); k-- > 0;) before += sums[k];
    sums.push_back(part.back());
    for (float& v : part) v = before + v;
  }
}
void kahan(std::span<float> row) {
  float sum = 0, lost = 0;
  for (float& v : row) {
    const float next = v - lost, total = sum + next;
    lost = std::isfinite(total) ? (total - sum) - next : 0;
    sum = total;
    v = sum;
  }
}
void in_fp64(std::span<float> row) {
  double sum = 0;
  for (float& v : row) {
    sum += static_cast<double>(v);
    v = static_cast<float>(sum);
  }
}

void bf16_sums(std::span<float> row) {
  float sum = 0;
  for (float& v : row) {
    sum = bf16(sum + v);
    v = sum;
  }
}
void fp16_sums(std::span<float> row) {
  float sum = 0;
  for (float& v : row) {
    sum = fp16(sum + v);
    v = sum;
  }
}
void bf16_carry(std::span<float> row) {
  in_blocks_of(32, row, [](float before, float own) { return bf16(before + own); });
}
void without_carry(std::span<float> row) {
  in_blocks_of(32, row, [](float, float) { return 0.0f; });
}
void carry_of_one_block(std::span<float> row) {
  in_blocks_of(32, row, [](float, float own) { return own; });
}
void exclusive(std::span<float> row) {
  float sum = 0;
  for (float& v : row) {
    const float own = v;
    v = sum;
    sum += own;
  }
}
void without_first_term(std::span<float> row) {
  if (!row.empty()) row[0] = 0;
  one_by_one(row);
}
void nothing_added(std::span<float>) {}
void whole_sum(std::span<float> row) {
  one_by_one(row);
  std::fill(row.begin(), row.end(), row.empty() ? 0.0f : row.back());
}

struct Style {
  Scan forward = one_by_one, backward = one_by_one;
  bool backward_reversed = true;
  bool across_rows = false;  ///< the running sum is not reset from row to row
  bool columns_if_square = false;
  Slip slip = {};
};

void scan_rows(Scan scan, bool reversed, Values& values, std::int64_t columns, bool across_rows) {
  if (columns == 0) return;
  const auto n = across_rows ? values.size() : index_of(columns);
  for (std::size_t begin = 0; begin < values.size(); begin += n) {
    const std::span<float> row = std::span(values).subspan(begin, n);
    if (reversed) std::reverse(row.begin(), row.end());
    scan(row);
    if (reversed) std::reverse(row.begin(), row.end());
  }
}

Values transposed(const Values& from, std::int64_t n) {
  Values out(from.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) out[index_of(j * n + i)] = from[index_of(i * n + j)];
  return out;
}

Kernel running(Style style) {
  const auto pass = [style](const Call& call, const char* from, const char* to, Scan scan, bool reversed) {
    const std::int64_t rows = call.rows(from), columns = call.columns(from);
    const bool turned = style.columns_if_square && rows == columns;
    Values values = call.in(from);
    if (turned) values = transposed(values, columns);
    scan_rows(scan, reversed, values, columns, style.across_rows && !reversed);
    call.out(to, turned ? transposed(values, columns) : values);
  };
  return kernel_of([=](const Call& call) { pass(call, "x", "y", style.forward, false); },
                   [=](const Call& call) { pass(call, "dy", "dx", style.backward, style.backward_reversed); },
                   style.slip);
}

}  // namespace

std::vector<Specimen> running_sum_specimens() {
  std::vector<Specimen> out;
  add(out, "cumsum",
      {{"exclusive", 14, "each sum without its own term", "any", V::bug, "exclusive|off by one|own term",
        running({.forward = exclusive})},
       {"gradient_forward", 8, "the gradient is added up from the first element on", "any", V::bug,
        "other end|reversed", running({.backward_reversed = false})},
       {"gradient_of_own_term", 3, "dx = dy", "any", V::bug, "other elements|without",
        running({.backward = nothing_added})},
       {"gradient_of_sum", 30, "every element receives the whole sum of dy", "any", V::bug, "sum of|another",
        running({.backward = whole_sum})},
       {"no_carry", 40, "blocks of 32 start again at 0", "more than 32 elements", V::bug, "carry|start again",
        running({.forward = without_carry})},
       {"carry_of_one_block", 17, "a block receives the sum of the block before alone", "more than 64 elements", V::bug,
        "carr", running({.forward = carry_of_one_block})},
       {"across_rows", 17, "the running sum is not reset from row to row", "more than one row", V::structural,
        "row to row|other row|another row|depends on", running({.across_rows = true}), kAllTypes, V::bug},
       {"without_first", 14, "sums leave out the first element", "any", V::bug, "first term|off by one",
        running({.forward = without_first_term})},
       {"in_bf16", 23, "accumulated in bf16", "any", V::precision_contract, "accumulates in bf16",
        running({.forward = bf16_sums})},
       {"in_fp16", 24, "the gradient is accumulated in fp16", "any", V::precision_contract, "accumulates in fp16",
        running({.backward = fp16_sums})},
       {"carry_in_bf16", 27, "what is carried from block to block is stored in bf16", "more than 32 elements",
        V::precision_contract, "in bf16", running({.forward = bf16_carry})},
       {"wrong_axis_if_square", 8, "a square tensor is added up along the other axis", "N = D", V::bug, "axis|transpos",
        running({.columns_if_square = true}), kAllTypes, V::structural},
       {"tail_of_4", 13, "what follows the last full vector of 4 is not written", "counts that are no multiple of 4",
        V::structural, "output buffer held|unwritten", running({.slip = {Io::drop_tail_of_4, "y"}})},
       {"dense_cotangent", 18, "dy is read as if row-major", "strided dy", V::structural, "strided",
        running({.slip = {Io::read_dense, "dy"}})}},
      {{"plain", "one by one", running({})},
       {"doubling", "Hillis and Steele over the whole row", running({.forward = doubling, .backward = doubling})},
       {"blocks", "blocks of 32, one after the other", running({.forward = blocks_of_32, .backward = blocks_of_32})},
       {"wide_blocks", "blocks of 256", running({.forward = blocks_of_256, .backward = blocks_of_256})},
       {"looking_back", "sums of blocks added from the latest back",
        running({.forward = looking_back, .backward = looking_back})},
       {"compensated", "Kahan", running({.forward = kahan, .backward = kahan})},
       {"double", "in fp64, rounded once", running({.forward = in_fp64, .backward = in_fp64})}});
  return out;
}

}  // namespace ampcheck::checks::zoo
