// SPDX-License-Identifier: Apache-2.0
// What a message adds to a word that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ampcheck {

/// " (did you mean 'softmax'?)" to follow the quoted word, so that "got 'sofmax'" and ", want ..." stay one sentence;
/// nothing if no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ampcheck
