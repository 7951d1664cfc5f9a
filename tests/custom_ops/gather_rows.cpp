// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, with the scatter-add of its gradient in fp32 scratch memory. Two broken versions beside it.
#include <ampcheck/op.h>

namespace {

using ampcheck::op::Call;
using ampcheck::op::Expr;
using ampcheck::op::Op;
using ampcheck::op::Type;

enum class Version {
  right,
  loses_duplicates,  // of several uses of a row the last one counts
  low_accumulation,  // adds up in the storage type
};

template <class T, class Accumulator>
void backward(const Call& call, bool adds) {
  const auto index = call.view<const std::int64_t>("index");
  const auto dy = call.view<const T>("dy");
  const auto dtable = call.view<T>("dtable");
  auto* total = call.scratch<Accumulator>(dtable.size());
  for (std::int64_t n = 0; n < index.extent(0); ++n)
    for (std::int64_t d = 0; d < dtable.extent(1); ++d) {
      Accumulator& at = total[index(n) * dtable.extent(1) + d];
      at = Accumulator((adds ? float(at) : 0.0f) + float(dy(n, d)));
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
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto table = call.view<const T>("table");
    const auto index = call.view<const std::int64_t>("index");
    const auto y = call.view<T>("y");
    for (std::int64_t n = 0; n < y.extent(0); ++n)
      for (std::int64_t d = 0; d < y.extent(1); ++d) y(n, d) = table(index(n), d);
  });
  op.backward([version]<class T>(Type<T>, const Call& call) {
    if (version == Version::low_accumulation) backward<T, T>(call, true);
    else backward<T, float>(call, version == Version::right);
  });
}

}  // namespace

AMPCHECK_OP(gather_rows, op) { describe(op, Version::right); }
AMPCHECK_OP(gather_rows_loses_duplicates, op) { describe(op, Version::loses_duplicates); }
AMPCHECK_OP(gather_rows_low_accumulation, op) { describe(op, Version::low_accumulation); }
