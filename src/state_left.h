// SPDX-License-Identifier: Apache-2.0
// The note of a launch whose kernel left the state of its thread changed: who writes it and who reads it agree here.
#pragma once

namespace ampcheck {

/// LaunchNote::what, and CheckId::dim of the note of a case.
inline constexpr const char* kStateLeft = "state";

}  // namespace ampcheck
