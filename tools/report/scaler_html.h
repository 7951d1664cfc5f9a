// SPDX-License-Identifier: Apache-2.0
// The page of `audit scaler --log`: answers, and the run's scale, skips, norm and loss as plots.
#pragma once

#include <string>

namespace ampcheck::checks::scaler {
struct LogAudit;
}

namespace ampcheck::tools {

/// One HTML file. `file`: the log's name.
std::string scaler_html(const checks::scaler::LogAudit& audit, const std::string& file);

}  // namespace ampcheck::tools
