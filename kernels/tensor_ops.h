// SPDX-License-Identifier: Apache-2.0
// What a training graph does to whole tensors between its ops, as kernels: the bits of the loops of
// checks/train/graph.cpp and of src/amp. A NaN that is copied or converted keeps its sign, as in src/rounding.h; of a
// NaN that arithmetic makes the sign is the machine's.
#pragma once

#include "kernels/kernel.h"

namespace ampcheck::kernels {

// Kernels of these names, to be launched with dense tensors of fp32, fp16 or bf16 of one shape unless said otherwise.

/// "out" = "x" rounded to nearest even into the dtype of out.
void convert_kernel(const KernelCall& call);
/// "out" = "x" + "y" in fp32, rounded to the dtype of all three; out may be x.
void sum_kernel(const KernelCall& call);
/// "out" = 0; any dtype.
void zero_kernel(const KernelCall& call);
/// "out"[i] = "x"["index"[i]], bit for bit; any dtype; index: i64, in the shape of out.
void take_kernel(const KernelCall& call);
/// "out"[i] = the sum in fp32, from 0, of "x"["source"[k]] for k from "first"[i] to "first"[i + 1], in this order;
/// rounded once. source, first: i64.
void spread_kernel(const KernelCall& call);

}  // namespace ampcheck::kernels
