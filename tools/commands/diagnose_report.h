// SPDX-License-Identifier: Apache-2.0
// What `ampcheck diagnose` says. Text counts steps from 1, JSON from 0.
#pragma once

#include <string>

#include "checks/diagnose/finding.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

std::string diagnose_text(const checks::diagnose::Subject& subject, const checks::diagnose::Observation& seen,
                          const checks::diagnose::Report& report, const Style& style);
/// ampcheck.diagnose/1
std::string diagnose_json(const checks::diagnose::Subject& subject, const checks::diagnose::Observation& seen,
                          const checks::diagnose::Report& report);

}  // namespace ampcheck::tools
