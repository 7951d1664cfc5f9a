// SPDX-License-Identifier: Apache-2.0
#include "src/tensor_core/product.h"

#include <algorithm>

namespace ampcheck::tensor_core {

std::vector<Segment> segments(const Product& product, std::int64_t k) {
  const std::int64_t instructions = (k + product.instruction.k - 1) / product.instruction.k;
  const std::int64_t runs = std::clamp<std::int64_t>(product.order.split, 1, std::max<std::int64_t>(instructions, 1));
  std::vector<Segment> out;
  std::int64_t begin = 0;
  for (std::int64_t run = 0; run < runs; ++run) {
    const std::int64_t end = begin + instructions / runs + (run < instructions % runs);
    const std::int64_t step = product.order.promote > 0 ? product.order.promote : end - begin;
    for (std::int64_t at = begin; at < end; at += step)
      out.push_back({at, std::min(at + step, end), static_cast<int>(run), product.order.promote > 0});
    begin = end;
  }
  return out;
}

std::uint32_t element(const Product& product, std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                      std::uint32_t c) {
  const Instruction& i = product.instruction;
  const auto step = static_cast<std::size_t>(i.k);
  std::vector<std::uint32_t> x(step), y(step);
  const auto chain = [&](const Segment& segment, std::uint32_t sum) {
    for (std::int64_t at = segment.begin; at < segment.end; ++at) {
      const std::size_t from = static_cast<std::size_t>(at) * step, n = std::min(step, a.size() - from);
      std::fill(std::copy_n(a.begin() + static_cast<std::ptrdiff_t>(from), n, x.begin()), x.end(), 0u);
      std::fill(std::copy_n(b.begin() + static_cast<std::ptrdiff_t>(from), n, y.begin()), y.end(), 0u);
      sum = dot(i, x, y, sum);
    }
    return sum;
  };
  std::uint32_t total = c, run_sum = c;
  int run = 0;
  for (const Segment& segment : segments(product, static_cast<std::int64_t>(a.size()))) {
    if (segment.run != run) {
      total = run == 0 ? run_sum : add_outside(i.output, total, run_sum);
      run = segment.run;
      run_sum = 0;
    }
    run_sum = segment.fresh ? add_outside(i.output, run_sum, chain(segment, 0)) : chain(segment, run_sum);
  }
  return run == 0 ? run_sum : add_outside(i.output, total, run_sum);
}

}  // namespace ampcheck::tensor_core
