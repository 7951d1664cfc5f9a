// SPDX-License-Identifier: Apache-2.0
// Small changes of a kernel's source, each of which makes another kernel: an operator, a constant, a bound, an index, a
// statement that is dropped, a type of less precision.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ampcheck::tools {

struct Mutant {
  enum class Kind { bound, constant, index, operation, precision, statement } kind = Kind::operation;
  std::size_t offset = 0, size = 0;  ///< bytes of the source that are replaced
  std::string by;
  int line = 0, column = 0;  ///< from 1

  /// The whole source with the change.
  std::string applied(std::string_view source) const;
  /// The lines that change, behind "- " and "+ ".
  std::string diff(std::string_view source) const;
};
const char* name(Mutant::Kind kind);

/// All mutants of the code that runs as a kernel, by their place; the same for the same source. `low_type`: what stands
/// for a type of less precision than float, "_Float16" or "__half".
std::vector<Mutant> mutants_of(std::string_view source, std::string_view low_type);

/// `most` of them, spread evenly.
std::vector<Mutant> spread(const std::vector<Mutant>& all, std::size_t most);

}  // namespace ampcheck::tools
