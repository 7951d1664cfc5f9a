// SPDX-License-Identifier: Apache-2.0
#include "reference/ball/row_group.h"

namespace ampcheck::reference {

bool lies_by_rows(const Ball& x, bool has_rows, std::int64_t width, std::int64_t count, ValuesIn& in,
                  std::int64_t& advance) {
  const std::int64_t own = has_rows ? x.count() / count : x.count();
  if (own != width && own != 1) return false;
  in = {x.v.get(), own == 1};
  advance = has_rows ? own : 0;
  return true;
}

void run_row_steps(std::span<RowStep> steps, std::int64_t count) {
  constexpr std::int64_t kTogether = 4;  // rows that are added to sums at once
  for (std::int64_t row = 0; row < count; ++row)
    for (RowStep& step : steps) {
      if (step.kind == RowStep::Kind::moved) continue;
      ValuesIn in[3] = {step.in[0], step.in[1], step.in[2]};
      for (std::size_t k = 0; k < 3; ++k)
        if (step.advance[k] != 0) in[k].p += row * step.advance[k];
      const auto n = static_cast<std::int64_t>(step.n);
      if (step.kind == RowStep::Kind::column) {
        const std::int64_t rows = row % kTogether + 1;
        if (rows == kTogether || row + 1 == count)
          add_values(in[0].p - (rows - 1) * step.advance[0], static_cast<std::size_t>(rows), step.n, step.out,
                     step.mass);
      } else if (step.kind == RowStep::Kind::sum) {
        SumState state;
        sum_run(in[0].p, nullptr, n, state);
        step.out[row] = state.value;
        step.mass[row] = state.mass;
      } else if (step.kind == RowStep::Kind::products) {
        evaluate_products(step.primitive, step.n, in, step.out + row * n, step.seen);
      } else {
        evaluate_values(step.primitive, step.n, in, step.out + row * n, step.seen, step.gap);
      }
    }
}

}  // namespace ampcheck::reference
