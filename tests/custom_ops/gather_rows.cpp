// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, with the scatter-add of its gradient in fp32 scratch memory. Rows are added by blocks that
// run in another order at each launch, as blocks with atomics do on a GPU; the contract declares it. Three broken
// versions beside it.
#include <ampcheck/op.h>

#include <atomic>

namespace {

using ampcheck::op::Call;
using ampcheck::op::Expr;
using ampcheck::op::Op;
using ampcheck::op::Type;

enum class Version {
  right,
  loses_duplicates,  // of several uses of a row the last one counts
  low_accumulation,  // adds up in the storage type
  undeclared_order,  // right, but does not say that its results differ from launch to launch
};

/// The scheduler: which block runs first differs from launch to launch.
std::int64_t first_block(std::int64_t blocks) {
  static std::atomic<std::uint64_t> launches{0};
  return blocks == 0 ? 0 : static_cast<std::int64_t>(launches.fetch_add(1) * 7 % static_cast<std::uint64_t>(blocks));
}

constexpr std::int64_t kBlock = 2;  // rows

template <class T, class Accumulator>
void backward(const Call& call, bool adds) {
  const auto index = call.view<const std::int64_t>("index");
  const auto dy = call.view<const T>("dy");
  const auto dtable = call.view<T>("dtable");
  auto* total = call.scratch<Accumulator>(dtable.size());
  const std::int64_t rows = index.extent(0), blocks = (rows + kBlock - 1) / kBlock, first = first_block(blocks);
  for (std::int64_t run = 0; run < blocks; ++run) {
    const std::int64_t begin = (first + run) % blocks * kBlock;
    for (std::int64_t n = begin; n < std::min(begin + kBlock, rows); ++n)
      for (std::int64_t d = 0; d < dtable.extent(1); ++d) {
        Accumulator& at = total[index(n) * dtable.extent(1) + d];
        at = Accumulator((adds ? float(at) : 0.0f) + float(dy(n, d)));
      }
  }
  for (std::int64_t i = 0; i < dtable.size(); ++i) dtable[i] = T(float(total[i]));
}

void describe(Op& op, Version version) {
  op.summary("y = table[index]");
  op.input("table", "V D").weight();
  op.input("index", "N").index("V");
  op.output("y");
  op.dim("V", 6, 40, 300);
  op.dim("N", 9, 200, 33);
  op.dim("D", 4, 17, 64);
  op.formula([](Expr table, Expr index) { return gather(table, index); });
  if (version != Version::undeclared_order) op.atomics();
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto table = call.view<const T>("table");
    const auto index = call.view<const std::int64_t>("index");
    const auto y = call.view<T>("y");
    for (std::int64_t n = 0; n < y.extent(0); ++n)
      for (std::int64_t d = 0; d < y.extent(1); ++d) y(n, d) = table(index(n), d);
  });
  op.backward([version]<class T>(Type<T>, const Call& call) {
    if (version == Version::low_accumulation)
      backward<T, T>(call, true);
    else
      backward<T, float>(call, version != Version::loses_duplicates);
  });
}

}  // namespace

AMPCHECK_OP(gather_rows, op) { describe(op, Version::right); }
AMPCHECK_OP(gather_rows_loses_duplicates, op) { describe(op, Version::loses_duplicates); }
AMPCHECK_OP(gather_rows_low_accumulation, op) { describe(op, Version::low_accumulation); }
AMPCHECK_OP(gather_rows_undeclared_order, op) { describe(op, Version::undeclared_order); }
