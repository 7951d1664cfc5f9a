// SPDX-License-Identifier: Apache-2.0
// The manual: pages in Markdown (tools/manual), parts of which the program fills in from what it knows of itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ampcheck::tools {

struct ManualPage {
  const char* name;      ///< "tutorial", as in `ampcheck explain tutorial`
  const char* markdown;  ///< as in tools/manual, with `<!-- fill: X -->` where the program fills in
};
const std::vector<ManualPage>& manual_pages();
/// Null if there is none. Earlier names of pages are known too: "formula", "dump".
const ManualPage* find_page(std::string_view name);

/// The page with its parts filled in. Throws Error for a part that nobody knows.
std::string filled(const ManualPage& page);

}  // namespace ampcheck::tools
