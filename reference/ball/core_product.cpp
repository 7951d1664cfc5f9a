// SPDX-License-Identifier: Apache-2.0
// Which products of a graph tensor cores compute, and in which types they take the operands.
#include <optional>

#include "reference/ball/ball_rules.h"

namespace ampcheck::reference {

namespace {

/// The type of an operand's numbers as the kernel has them in memory; none of one that it computes.
std::optional<Dtype> type_of(const Graph& graph, int id, const CoreProducts& products) {
  for (;;) {
    const Node& node = graph.node(id);
    switch (node.primitive) {
      case Primitive::input:
      case Primitive::stored:
        if (const auto known = products.leaves.find(node.name); known != products.leaves.end()) return known->second;
        [[fallthrough]];
      case Primitive::reshape:
      case Primitive::take:
      case Primitive::neg:
      case Primitive::own_adjoint:
      case Primitive::no_gradient:
      case Primitive::stop_gradient: break;
      default: return std::nullopt;
    }
    if (node.args.empty()) return std::nullopt;
    id = node.args[0];
  }
}

bool is_fp8(Dtype dtype) { return dtype == Dtype::e4m3fn || dtype == Dtype::e5m2; }
bool is_16_bit(Dtype dtype) { return dtype == Dtype::fp16 || dtype == Dtype::bf16; }

ProductType product_type(Dtype dtype) {
  return dtype == Dtype::fp16   ? ProductType::fp16
         : dtype == Dtype::bf16 ? ProductType::bf16
         : is_fp8(dtype)        ? ProductType::fp8
                                : ProductType::tf32;
}

const FloatFormat* operand_format(Dtype dtype) { return dtype == Dtype::fp32 ? &kTf32 : &format(dtype); }

}  // namespace

TensorCoreBlock block_of(const CoreProducts& products) {
  return block_of(products.core, product_type(products.storage));
}

double conversion_unit(const FloatFormat& format) {
  return (format == kTf32 ? 2 : 1) * format.unit_roundoff() * (1 + 0x1p-20);
}

CoreProduct core_product(const Graph& graph, const Node& node, const CoreProducts& products) {
  if (products.core == TensorCore::none) return {};
  const std::optional<Dtype> a = type_of(graph, node.args[0], products), b = type_of(graph, node.args[1], products);
  Dtype left = products.storage, right = products.storage;
  if (a && b && (is_fp8(*a) ? is_fp8(*b) : is_16_bit(*a) && a == b)) {
    left = *a;
    right = *b;
  } else if (!products.converts) {
    return {};
  }
  CoreProduct out;
  out.block = block_of(products.core, product_type(left));
  out.a = operand_format(left);
  out.b = operand_format(right);
  out.round_a = a != left || left == Dtype::fp32;
  out.round_b = b != right || right == Dtype::fp32;
  return out;
}

}  // namespace ampcheck::reference
