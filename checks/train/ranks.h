// SPDX-License-Identifier: Apache-2.0
// The mean of gradients over data-parallel ranks as the field computes it: in the wire's dtype, each addition rounded,
// in the order of the algorithm.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/tensor.h"

namespace ampcheck::checks::train {

struct ReduceOptions {
  enum class Divide : std::uint8_t {
    pre,
    post
  } divide = Divide::pre;  ///< by the number of ranks before the sum (torch's DDP) or after it
  enum class Order : std::uint8_t { ring, tree } order = Order::ring;
  std::optional<Dtype> compress = {};  ///< what goes over the wire (torch's fp16_compress_hook, bf16_compress_hook,
                                       ///< FSDP's reduce_dtype); none: the gradients as they are
};
/// "reduce ring divide pre compress fp16"
std::string str(const ReduceOptions& options);

/// What every rank gets, in the wire's dtype. Of tensors of one shape and dtype. With compression: rounded, then
/// divided in 16 bits, as torch's hooks do. ring: n elements in as many chunks as ranks; the sum of chunk c starts on
/// rank c+1 and goes round to rank c. tree: neighbours, then pairs of neighbours, and so on.
Tensor all_reduce_mean(std::span<const TensorView> of_ranks, const ReduceOptions& options);
/// In fp64, from what the ranks have.
std::vector<double> exact_mean(std::span<const TensorView> of_ranks);
/// What of that a format may lose: Event::sent and most_sent.
struct Sent {
  std::vector<double> least;
  double most = 0;
};
Sent sent_by(std::span<const TensorView> of_ranks, const ReduceOptions& options);
/// Rounded: the tensor itself if it is in that dtype.
Tensor in_dtype(const Tensor& tensor, Dtype dtype);

}  // namespace ampcheck::checks::train
