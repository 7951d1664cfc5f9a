// SPDX-License-Identifier: Apache-2.0
// Where the tests find files. The folders stand in one generated file (paths.cpp.in): all other objects are the same
// wherever the tree lies, and a compiler cache finds them again.
#pragma once

#include <string>
#include <string_view>

namespace ampcheck::tests {

/// A file of the source tree; `path` begins with '/'.
std::string in_source(std::string_view path);
/// A file of the build tree.
std::string in_build(std::string_view path);
/// A file below the folder where test data lies (AMPCHECK_TEST_ROOT): the source tree, or what was packed of it.
std::string in_data_root(std::string_view path);
/// The CUDA compiler; empty if there is none.
std::string nvcc();

}  // namespace ampcheck::tests
