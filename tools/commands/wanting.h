// SPDX-License-Identifier: Apache-2.0
// What is known of each built-in op besides its three files, and what it still lacks. An op without any of it is listed
// (`ampcheck list --wanting`); one that has a part of it is a fault, which tests/program/wanting_test.cpp finds.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace ampcheck::tools {

struct Evidence {
  /// The least numbers of each that an op has, once it has any.
  static constexpr std::size_t kValues = 5, kDefects = 5, kVariants = 2;

  std::string name = {};
  std::size_t values = 0;              ///< of the forward, from an independent source (formula_values.json)
  std::size_t defects = 0;             ///< kernels with a planted defect (checks/zoo)
  std::size_t variants = 0;            ///< correct kernels that compute in another way (checks/zoo)
  std::vector<std::string> nets = {};  ///< names of the nets that call it (checks/models)

  /// What it lacks, in words; empty if nothing.
  std::vector<std::string> wanting() const;
  /// What is wrong where a part is there and another is not, one line; empty where nothing is wrong. An op has all of
  /// values, defects and variants or none of them, and a net calls only an op that has all.
  std::string broken() const;
};

/// That of the built-in ops, in their order. `data`: the folder that holds formula_values.json; EnvironmentError
/// without it.
std::vector<Evidence> evidence(const std::filesystem::path& data);

}  // namespace ampcheck::tools
