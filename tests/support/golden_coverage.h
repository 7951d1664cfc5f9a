// SPDX-License-Identifier: Apache-2.0
// Whether what torch's records hold is looked at: a test that plays entries of a list registers itself, and
// golden_coverage_test.cpp changes the entries' leaves one by one and wants it to notice.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/goldens.h"

namespace ampcheck::tests {

/// Every leaf of a golden with its path, indices as numbers, or as "*". A number's decimal text and a tensor's bits
/// beside its hex are no leaves of their own.
void each_leaf(Golden& golden, const std::string& path, const std::function<void(Golden&, const std::string&)>& visit,
               bool any_index = false);
/// Another value of the same kind: a dtype for a dtype, a number for a number.
void change(Golden& leaf);

/// Plays an entry of a list of a file, and fails where ours is another. An object in the place of the list is one
/// entry.
struct GoldenPlay {
  std::string file, list;
  std::function<void(const Golden&)> play;
};
std::vector<GoldenPlay>& golden_plays();
/// As a global of the file that plays.
struct Played {
  Played(const char* file, const char* list, std::function<void(const Golden&)> play) {
    golden_plays().push_back({file, list, std::move(play)});
  }
};

/// Whether the play fails, or throws.
bool notices(const std::function<void(const Golden&)>& play, const Golden& entry);

}  // namespace ampcheck::tests
