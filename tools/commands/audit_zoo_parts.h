// SPDX-License-Identifier: Apache-2.0
// Files of parts of `audit zoo`: what one rank of a job leaves for rank 0.
#pragma once

#include <string>

#include "tools/commands/audit_zoo_report.h"

namespace ampcheck::tools {

/// `settings`: what was asked for, in words; parts of one audit have the same. WriteError if it cannot be written.
void write_zoo_part(const std::string& path, const std::string& settings, const ZooAudit& part);
/// Adds the trials of a part. ForeignFileError for another file, or a part of another audit or version.
void read_zoo_part(const std::string& path, const std::string& settings, ZooAudit& to);
/// Puts the trials of all parts into the order of one audit.
void sort_as_audited(ZooAudit& audit);

}  // namespace ampcheck::tools
