// SPDX-License-Identifier: Apache-2.0
#include "src/suggestion.h"

#include "src/op_call.h"

namespace ampcheck {

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest_word(word, candidates);
  return near.empty() ? "" : " (did you mean '" + near + "'?)";
}

}  // namespace ampcheck
