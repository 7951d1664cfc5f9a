// SPDX-License-Identifier: Apache-2.0
// Delta debugging: the smallest set of ops whose change alone makes a run well (Zeller's ddmin, with a memory of the
// sets that were tried).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checks/diagnose/raising_tape.h"

namespace ampcheck::checks::diagnose {

struct Search {
  bool known = false;  ///< all of them together do it
  Ops ops;
  int tried = 0;
};

/// `works`: whether this set does it; asked once for each. The answer is minimal: without any one of its ops it does
/// not work. `likely` comes first: if it works, nothing outside of it is tried.
Search smallest_set(const std::vector<std::string>& all, const std::vector<std::string>& likely,
                    const std::function<bool(const Ops&)>& works);

}  // namespace ampcheck::checks::diagnose
