// SPDX-License-Identifier: Apache-2.0
// Patterns: rows of a table picked by index, and added back to it.
//
// The order of a scattered sum: for every row of the table, the rows of the source that name it, in ascending order,
// added in fp32 starting from 0; then one addition to what the table holds and one rounding. A table row that nobody
// names is not touched. No atomics: repeats give the same bits.
#pragma once

#include "kernels/launch.h"

namespace ampcheck::kernels {

/// out[n,:] = table[index[n],:].
void gather_rows(const KernelCall& call, const TensorView& table, const TensorView& index, const TensorView& out);

/// table[v,:] += sum over n with index[n] = v of source[n,:]; indices equal to `skip` add nothing.
void scatter_add_rows(const KernelCall& call, const TensorView& source, const TensorView& index, std::int64_t skip,
                      const TensorView& table);

/// On the CPU: throws if an element of the index tensor is neither in [0, bound) nor equal to `skip`. On CUDA, where
/// the indices are on the device, such an index is undefined behaviour.
void check_indices(const KernelCall& call, const char* name, std::int64_t bound, std::int64_t skip);

}  // namespace ampcheck::kernels
