// SPDX-License-Identifier: Apache-2.0
// Data, cotangents, shapes and attributes of cases, from roles and formats only: nothing here knows an op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/op_call.h"

namespace ampcheck::checks {

enum class CaseSet {
  quick,     ///< everyday: ordered by what finds most
  standard,  ///< the default of `ampcheck check`
  all,       ///< --regimes all
};

/// Names of the data regimes and of the cotangent regimes, with one line on what each is for.
struct RegimeText {
  std::string name, purpose;
};
const std::vector<RegimeText>& data_regimes();
const std::vector<RegimeText>& cotangent_regimes();
const std::vector<RegimeText>& layouts();

/// Values of one input of a case, row-major, representable in the input's dtype; those of a real run or of a file for a
/// regime that names one (checks/data/real_tensors.h, checks/data/file_tensors.h). Throws Error for an unknown regime.
std::vector<double> input_values(const OpSignature& signature, const OpCall& call, const TensorSpec& spec);

/// Number of cotangent probes that a case runs; of a real run or a file with cotangents these are the first.
int probe_count(const OpCall& call);

/// Probe `probe` of the cotangent of one output: values of `shape`, representable in `dtype`. `room`: memory that may
/// be used.
std::vector<double> cotangent_values(const OpCall& call, const std::string& output, const Shape& shape, Dtype dtype,
                                     int probe, std::vector<double> room = {});

/// Whether gradients of probe `probe` have full mantissas (so that every order of summation shows).
bool full_mantissas(const OpCall& call, int probe);

/// The last probe with full mantissas, on which the order of a sum shows; 0 if there is none.
int relations_probe(const OpCall& call);

/// Throws Error, with what was wanted, unless the call's data regime, cotangent regime and layout exist.
void require_regimes(const OpSignature& signature, const OpCall& call);

/// The cases of an op for one storage dtype, most productive first; all valid in the sense of the signature.
std::vector<OpCall> cases_of(const OpSignature& signature, Dtype storage, CaseSet set, std::uint64_t seed);

}  // namespace ampcheck::checks
