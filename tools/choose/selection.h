// SPDX-License-Identifier: Apache-2.0
// From selectors to cases. A selector is a full case name, an op, or a pattern with * and ? over either; what reads as
// an exact name is one, and only the rest are patterns.
#pragma once

#include <string>
#include <vector>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "tools/choose/case_options.h"

namespace ampcheck::tools {

struct Selection {
  std::vector<checks::Case> cases;  ///< each case once, in the order of the selectors and ops
  std::vector<std::string> notes;   ///< what a reader should know, printed with the report
};

/// The cases of options.words after the filters; all built-in ops without words; generated ones, then those at the
/// tensors of real runs. Throws UsageError for an unknown op or a bad case name, EnvironmentError for data asked for
/// that is not there.
Selection select_cases(const CaseOptions& options);

/// The ops of options.words (names and patterns; none: all). Throws UsageError for an unknown op.
std::vector<const checks::OpDef*> select_ops(const OpOptions& options);

/// Whether it is a variant of a library's op: "softmax.tile128".
bool is_variant(const checks::OpDef& op);

/// Every op that the options are about: those of the library, with their variants where these are asked for, else the
/// built-in ones.
std::vector<const checks::OpDef*> ops_in_scope(const OpOptions& options);

/// Parses one full case name, canonical or not. Throws UsageError.
checks::Case parse_case(const CaseOptions& options, const std::string& text);

/// What to say of a selection without cases.
std::string nothing_selected(const CaseOptions& options);

}  // namespace ampcheck::tools
