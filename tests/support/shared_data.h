// SPDX-License-Identifier: Apache-2.0
// Files that some machines have beside the source tree and others do not.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "tests/support/paths.h"

namespace ampcheck::tests {

/// The file under $AMPCHECK_SHARED, or under the folder "shared" next to the source tree or in it; nothing if absent.
inline std::optional<std::filesystem::path> shared_file(std::string_view name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (const char* root = std::getenv("AMPCHECK_SHARED"); root != nullptr && *root != '\0') {
    const fs::path file = fs::path(root) / name;
    return fs::exists(file, ignored) ? std::optional(file) : std::nullopt;
  }
  const fs::path source(tests::in_data_root(""));
  for (const fs::path& root : {source.parent_path() / "shared", source / "shared"})
    if (fs::exists(root / name, ignored)) return root / name;
  return std::nullopt;
}

}  // namespace ampcheck::tests
