// SPDX-License-Identifier: Apache-2.0
// Names that break out of what a report puts them into, and a report full of them.
#pragma once

#include <string>
#include <vector>

#include "tools/report/reports.h"

namespace ampcheck::testing {

/// What some format takes for its own, alone and between letters.
std::vector<std::string> hostile_names();

/// A wrong case that has this name wherever it has one.
CaseResult failing_case(const std::string& name, std::size_t seed);

/// A wrong and a skipped case of each, and the names as notes.
Report report_of(const std::vector<std::string>& names);

/// A line of the gate of each.
tools::RunFacts facts_of(const std::vector<std::string>& names);

}  // namespace ampcheck::testing
