// SPDX-License-Identifier: Apache-2.0
// y[n,:] = weight[index[n],:].       Run it alone: ampcheck check embedding
// Backward accumulates: dweight[index[n],:] += dy[n,:], except for index = padding_idx (-1: none).
#include "kernels/gather_scatter.h"

namespace ampcheck::kernels {

namespace {

constexpr std::int64_t kNone = -1;  // no index is allowed to be out of range

void forward(const KernelCall& call) {
  const TensorView& weight = call.at("weight");
  check_indices(call, "index", weight.shape[0], kNone);
  gather_rows(call, weight, call.at("index"), call.at("y"));
}

void backward(const KernelCall& call) {
  const TensorView* dweight = call.find("dweight");
  if (dweight == nullptr) return;
  check_indices(call, "index", dweight->shape[0], kNone);
  scatter_add_rows(call, call.at("dy"), call.at("index"), call.attributes->integer("padding_idx"), *dweight);
}

}  // namespace

Kernel embedding_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
