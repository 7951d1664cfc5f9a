// SPDX-License-Identifier: Apache-2.0
#include "checks/define/op_list.h"
#include "checks/define/second_order.h"
#include "checks/zoo/cheats.h"
#include "checks/zoo/planted.h"
#include "checks/zoo/zoo.h"
#include "kernels/math.h"

namespace ampcheck::checks {

std::span<const OpDef> all_ops() {
  static const std::vector<OpDef> kOps = {
#define AMPCHECK_OP(name) name##_op(),
#include "ampcheck_ops.inc"
#undef AMPCHECK_OP
  };
  return kOps;
}

const OpDef* find_op(std::string_view name) {
  for (const OpDef& op : all_ops())
    if (op.signature.name == name) return &op;
  if (name.find("_backward") != std::string_view::npos)
    for (const OpDef& op : second_order_ops())
      if (op.signature.name == name) return &op;
  if (name.find('.') == std::string_view::npos) return nullptr;
  for (const PlantedOp& planted : planted_ops())
    if (planted.op.signature.name == name) return &planted.op;
  for (const Cheat& cheat : cheats())
    if (cheat.planted.op.signature.name == name) return &cheat.planted.op;
  return zoo::find_specimen_op(name);
}

MathSet own_math() {
  using namespace kernels::math;
  return {.name = "kernels/math.h",
          .exp = kExpUlp,
          .expm1 = kExpm1Ulp,
          .log = kLogUlp,
          .log1p = kLog1pUlp,
          .tanh = kTanhUlp,
          .erf = kErfUlp,
          .erfc = kErfcUlp,
          .rsqrt = kRsqrtUlp,
          .sqrt = 0.5,
          .pow = kPowUlp};
}

}  // namespace ampcheck::checks
