// SPDX-License-Identifier: Apache-2.0
// What a test leaves out where its code is instrumented: many times slower, and it looks for other things along the
// same paths.
#pragma once

#include <initializer_list>
#include <vector>

namespace ampcheck::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// All of a list, under sanitizers its first.
template <class T>
std::vector<T> all_or_first(std::initializer_list<T> all) {
  return kSanitized ? std::vector<T>{*all.begin()} : std::vector<T>(all);
}

/// A stride through many alike, under sanitizers ten times that.
constexpr std::size_t stride(std::size_t usual) { return kSanitized ? 10 * usual : usual; }

}  // namespace ampcheck::testing
