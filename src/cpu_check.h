// SPDX-License-Identifier: Apache-2.0
// All other code is built for x86-64-v3; on an older processor it would end in an illegal instruction.
#pragma once

namespace ampcheck {

/// The first instruction set of x86-64-v3 that this processor or its operating system lacks, or null. Null elsewhere.
const char* missing_cpu_feature();

/// Ends the program with exit code 6 (environment) and one line on stderr where missing_cpu_feature() is not null.
/// A program that refers to it runs it before its static constructors, too.
void require_cpu();

}  // namespace ampcheck
